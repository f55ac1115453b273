/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ranges.h: a few disjoint ranges of numbers that together cover whatever was added: what does not fit
 * is merged with its nearest neighbour, so that no memory is needed and nothing is ever forgotten.
 */
#ifndef HVMEM_LIB_RANGES_H
#define HVMEM_LIB_RANGES_H

#include "deps.h"

#define HVMEM__RANGES 8u

/* INVARIANT: at[0 .. count) are sorted, not empty, and do not touch each other. */
struct hvmem__ranges {
    hvmem_u32 count;
    hvmem_u32 reserved;
    struct hvmem__span {
        hvmem_u64 lo;
        hvmem_u64 hi;        /* exclusive */
    } at[HVMEM__RANGES + 1]; /* one more while a range is being added */
};

/* Add [lo, hi), lo < hi. Caller's lock. */
void hvmem__ranges_add(struct hvmem__ranges *ranges, hvmem_u64 lo, hvmem_u64 hi);

/* The first number >= from in a range, its range's end in *end; 0 if there is none. */
int hvmem__ranges_next(const struct hvmem__ranges *ranges, hvmem_u64 *from, hvmem_u64 *end);

#endif
