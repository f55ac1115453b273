/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How the allocator of the reports gives a new domain its memory, as events that the cost model prices:
 * every allocation takes the one heap lock, walks all pages of the block for their stamps, then looks
 * at the flush time of every CPU and interrupts those that have not flushed since. Its CPUs switch
 * spaces at a rate, each switch a full flush with a tick of the clock.
 *
 * The times lie in per-CPU areas at the same offset: their addresses differ by whole pages and fall
 * into few sets of the nearer caches, so a time that nobody wrote is a hit of the last-level cache, and
 * one that its CPU wrote since comes from that CPU.
 */
#ifndef BENCH_REFERENCE_POPULATE_BEFORE_H
#define BENCH_REFERENCE_POPULATE_BEFORE_H

#include "backends/sim/cost.h"

#include <stdint.h>

#define BEFORE_MAX_CPUS 256u
#define BEFORE_LAG      512u /* frames given back ahead of those that are allocated */

struct before {
    struct hvmem_sim_costs costs;
    struct hvmem_sim_bill bill;
    unsigned cpus;       /* CPU 0 creates the domain */
    uint64_t period;     /* picoseconds between two switches of a CPU; 0: none */
    uint64_t now;        /* picoseconds */
    uint64_t clock;      /* of flushes */
    uint64_t seen_clock; /* as CPU 0 last read it */
    uint64_t random;
    uint64_t time[BEFORE_MAX_CPUS]; /* of each CPU's last full flush */
    uint64_t seen[BEFORE_MAX_CPUS]; /* of these, what CPU 0 read last */
    uint64_t next[BEFORE_MAX_CPUS]; /* when it switches next */
    uint64_t allocations, flushes, asked;
    uint64_t stamp[BEFORE_LAG]; /* of the frames that come next */
};

/* `rate` switches a second on each CPU but the first. All frames were freed just before. */
void before_init(struct before *before, const struct hvmem_sim_costs *costs, unsigned cpus,
                 double rate);

/*
 * Allocate 2^order frames. live: another CPU gives a block of the same size back meanwhile, to be
 * allocated BEFORE_LAG allocations later, and takes the lock for it. Otherwise all were freed before.
 */
void before_allocate(struct before *before, unsigned order, int live);

/* Seconds that `count` allocations take: the mean of `samples` of them, after some to settle in. */
double before_seconds(struct before *before, unsigned order, int live, double count,
                      unsigned samples);

#endif
