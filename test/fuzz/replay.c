/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Feeds kept inputs to a fuzz target without libFuzzer: each argument is a file or a folder of files.
 * A target that finds a fault aborts, so coming to the end is success; finding no input is not.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned long replayed;

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size;
    uint8_t *data;

    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (size = ftell(file)) < 0) {
        perror(path);
        return 1;
    }
    rewind(file);
    /* Exactly as long as the input, so that the address sanitizer sees a read beyond it. */
    data = malloc(size > 0 ? (size_t)size : 1);
    if (data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size) {
        perror(path);
        return 1;
    }
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    replayed++;
    return 0;
}

static int replay_folder(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char name[4096];
    int bad = 0;

    if (folder == NULL)
        return replay_file(path);
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        bad |= replay_file(name);
    }
    closedir(folder);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    int i;

    for (i = 1; i < argc; i++)
        bad |= replay_folder(argv[i]);
    printf("%lu inputs replayed\n", replayed);
    return bad || replayed == 0;
}
