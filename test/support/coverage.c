/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes which instructions a test has judged; see coverage.h. */
#include "coverage.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "insn_names.h"

/* Appends the names of the log that `seen` (a bit per table entry) does not hold yet. */
static void note(const struct hvmem_record *log, const char *arch, const struct insn_name *table,
                 uint32_t count, uint64_t seen[2])
{
    const char *path = getenv("HVMEM_COVERAGE");
    FILE *out = NULL;

    if (path == NULL || path[0] == '\0')
        return;
    for (uint32_t i = 0; i < log->count; i++)
        for (uint32_t k = 0; k < count; k++) {
            if (table[k].code != log->events[i].code || (seen[k / 64] >> k % 64 & 1) != 0)
                continue;
            seen[k / 64] |= 1ull << k % 64;
            if (out == NULL)
                out = fopen(path, "a");
            if (out != NULL)
                fprintf(out, "record %s %s\n", arch, table[k].name);
        }
    if (out != NULL)
        fclose(out);
}

void coverage_judged_arm64(const struct hvmem_record *log)
{
    static uint64_t seen[2];

    note(log, "arm64", insn_names_arm64, INSN_COUNT(insn_names_arm64), seen);
}

void coverage_judged_x86(const struct hvmem_record *log)
{
    static uint64_t seen[2];

    note(log, "x86", insn_names_x86, INSN_COUNT(insn_names_x86), seen);
}
