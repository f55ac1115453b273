/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes to a program of heap calls of several CPUs and domains; the audit and the shadow model
 * (test/oracle) compare after each call. Any deviation aborts.
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct program_result result;

    if (size > 4096)
        return -1;
    if (!program_play(data, size, &result)) {
        fprintf(stderr, "heap and shadow differ: %s\n", result.failure);
        abort();
    }
    return 0;
}
