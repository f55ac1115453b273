/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs of calls from bytes: the same player for random tests and for the fuzzer. The first bytes
 * choose the heap (regime, CPUs, caches, orders, banks, nodes, debts, what the host offers), each
 * following group of bytes one call with its arguments. After each call the heap is compared with
 * the shadow; at the end everything is given back.
 */
#ifndef HVMEM_TEST_PROGRAM_H
#define HVMEM_TEST_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

enum program_call {
    PROGRAM_ALLOC,
    PROGRAM_ALLOC_WINDOW,
    PROGRAM_ALLOC_RUN,
    PROGRAM_ALLOC_BULK,
    PROGRAM_RESERVE,
    PROGRAM_FREE,
    PROGRAM_FREE_WRONG,
    PROGRAM_FREE_RUN,
    PROGRAM_FREE_BULK,
    PROGRAM_FREE_OWNED,
    PROGRAM_SETTLE,
    PROGRAM_OFFLINE,
    PROGRAM_ONLINE,
    PROGRAM_BANK,
    PROGRAM_REMOVE,
    PROGRAM_DOMAIN,
    PROGRAM_START,
    PROGRAM_KILL,
    PROGRAM_LIMIT,
    PROGRAM_CLAIM,
    PROGRAM_DRAIN,
    PROGRAM_CPU,
    PROGRAM_CPU_DOWN,
    PROGRAM_FAIL,
    PROGRAM_CALLS
};

struct program_result {
    uint64_t made[PROGRAM_CALLS];      /* calls of each kind */
    uint64_t succeeded[PROGRAM_CALLS]; /* those that were not refused */
    char failure[256];                 /* empty: heap and shadow agreed all the way */
};

/* Adds to the counts of *result; failure is set anew. Returns 1 if everything agreed. */
int program_play(const uint8_t *data, size_t size, struct program_result *result);

#endif
