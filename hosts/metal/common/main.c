/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the program of the image by the first word of the command line, runs it and turns its
 * return value into the exit code.
 */
#include "boot.h"

struct metal_boot metal__boot;

/* Bounds of the section that METAL_PROGRAM fills, given by the linker script. */
extern const struct metal_program metal__programs_start[];
extern const struct metal_program metal__programs_end[];

const struct metal_boot *metal_boot_info(void)
{
    return &metal__boot;
}

/* Length of the command line's first word if that is no name=value; *word points at it. */
static size_t program_word(const char **word)
{
    const char *at = metal__boot.cmdline;
    size_t length = 0;

    while (*at == ' ')
        at++;
    *word = at;
    for (; at[length] != '\0' && at[length] != ' '; length++)
        if (at[length] == '=')
            return 0;
    return length;
}

static const struct metal_program *program_find(const char *name, size_t length)
{
    for (const struct metal_program *p = metal__programs_start; p < metal__programs_end; p++) {
        size_t i = 0;

        while (i < length && p->name[i] != '\0' && p->name[i] == name[i])
            i++;
        if (i == length && p->name[i] == '\0')
            return p;
    }
    return NULL;
}

void metal__main(void)
{
    const char *name;
    size_t length = program_word(&name);
    const struct metal_program *program;
    int result;

    if (length == 0) {
        name = "selftest";
        length = 8;
    }
    program = program_find(name, length);
    if (program == NULL) {
        metal_printf("metal: no program of this name; there are:\n");
        for (const struct metal_program *p = metal__programs_start; p < metal__programs_end; p++)
            metal_printf("  %s\n", p->name);
        metal_exit(2);
    }
    /* The counters of both architectures start at 0 with the machine: firmware's time is in it. */
    metal_printf("metal: %s, started by %s, %llu ms after reset\n", program->name,
                 metal__boot.protocol,
                 (unsigned long long)(metal_cycles() / metal_cycles_per_ms()));
    result = program->run();
    metal_exit(result == 0 ? 0 : result > 0 && result < 46 ? (unsigned)result : 1);
}
