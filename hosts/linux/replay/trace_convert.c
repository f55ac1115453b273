/* SPDX-License-Identifier: BSD-2-Clause */
/* trace-convert TEXT[.gz] COMPACT: the build step that makes the compact traces. */
#include "trace_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    int bad;

    if (file == NULL)
        return 1;
    bad = fwrite(bytes, 1, size, file) != size;
    bad |= fclose(file) != 0;
    if (bad)
        remove(path);
    return bad;
}

static int convert(struct trace_text *text, const char *from, const char *to)
{
    struct trace_text_stats stats;
    unsigned long line;
    void *bytes = NULL;
    size_t size = 0;
    int result = trace_text_file(text, from, &line);

    if (result == TRACE_OK)
        result = trace_text_finish(text, &bytes, &size);
    if (result != TRACE_OK) {
        fprintf(stderr, "%s:%lu: %s\n", from, line, trace_text_words(result));
        return 1;
    }
    result = write_file(to, bytes, size);
    free(bytes);
    if (result != 0) {
        perror(to);
        return 1;
    }
    trace_text_stats(text, &stats);
    printf("%s: %" PRIu64 " events, %" PRIu64 " allocations, %" PRIu64 " frees, %" PRIu64
           " freed first, %" PRIu64 " foreign, %" PRIu64 " flushes, peak %" PRIu64
           " pages, %zu bytes\n",
           to, stats.events, stats.allocs, stats.frees, stats.freed_first, stats.foreign,
           stats.flushes, stats.peak, size);
    return 0;
}

int main(int argc, char **argv)
{
    struct trace_text *text;
    int result;

    if (argc != 3) {
        fprintf(stderr, "usage: %s TEXT[.gz] COMPACT\n", argv[0]);
        return 2;
    }
    text = trace_text_new();
    if (text == NULL) {
        fprintf(stderr, "%s: out of memory\n", argv[0]);
        return 1;
    }
    result = convert(text, argv[1], argv[2]);
    trace_text_delete(text);
    return result;
}
