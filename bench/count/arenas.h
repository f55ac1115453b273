/* SPDX-License-Identifier: BSD-2-Clause */
/* arenas.h: arenas of any order, in one bank or in many, and the bad states that programs of counts share. */
#ifndef BENCH_COUNT_ARENAS_H
#define BENCH_COUNT_ARENAS_H

#include "bench/count/locked.h"

#include <hvmem/backend.h>

#define DEBTS (HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE)
#define CROWD 60u /* small banks of one arena */

/* An arena of one order, and where it begins. */
struct arena {
    struct heap h;
    hvmem_mfn first;
    hvmem_u32 order;
    struct hvmem_domain *domain; /* being built: its blocks need not be paid for */
};

/* As one bank, or as DOUBLING ones. */
void open_arena(struct arena *a, hvmem_u32 order, int doubling);

/* Of order LARGEST: banks of a few frames before a large one, no border even. */
void open_crowd(struct arena *a);

/* As name_of(), of a call that has no order. */
const char *named(const char *what);

/* Names begin with those of the arena and of what makes the state bad. */
void name_kind(const char *name, const char *state);

/* A block of an order at or above `lo`, for the host or the domain. */
hvmem_mfn take_above(struct arena *a, hvmem_mfn lo, hvmem_u32 order, struct hvmem_domain *domain);

/* While memory is promised to somebody, all of it is counted. */
void claim(struct hvmem_domain *domain, hvmem_u64 frames);

/*
 * One frame in each half is taken: the halves' blocks of each order are in front of their sets, and in
 * the bitmaps. Blocks of the second half owe, every second one.
 */
struct chains {
    hvmem_mfn left, right;
};
struct chains make_chains(struct arena *a, hvmem_u32 owed);

/* The two frames come back. */
void end_chains(struct arena *a, struct chains chains);

#endif
