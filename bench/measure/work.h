/* SPDX-License-Identifier: BSD-2-Clause */
/* Rounds that several figures share: pairs, bulk, mix; each over one open allocator. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "bench/common/figure.h"
#include "bench/common/pool.h"
#include "bench/common/random.h"
#include "bench/common/rounds.h"
#include "bench/common/team.h"

/* Hot pairs of one order. values[0]: ns a pair. */
struct work_pair {
    struct bench_opened *opened;
    hvmem_u32 order;
    hvmem_u64 n;
    struct bench_team *team; /* NULL: one thread */
};
void work_pair_round(void *arg, double *values);

/*
 * Order-0 blocks into frames[] or out of it, timed in stretches of WORK_STRETCH; ns a block over the
 * stretches in which the thread kept its CPU, NaN if that were fewer than a quarter.
 */
#define WORK_STRETCH 4000u
double work_fill(struct bench_pool *pool, hvmem_u64 *frames, hvmem_u64 n);
double work_release(struct bench_pool *pool, const hvmem_u64 *frames, hvmem_u64 n);

/*
 * Blocks of order 0: n allocated, freed in that order, allocated, freed in random order.
 * values[0..2]: ns an allocation, ns a free in order, ns a free in random order.
 */
struct work_bulk {
    struct bench_opened *opened;
    hvmem_u64 n;
    hvmem_u64 *frames;
    struct bench_rng rng;
};
void work_bulk_init(struct work_bulk *bulk, struct bench_opened *opened, hvmem_u64 n);
void work_bulk_end(struct work_bulk *bulk);
void work_bulk_round(void *arg, double *values);

/*
 * Random orders 0-9 at half load: each step takes a random slot and frees what it holds, or fills it.
 * values[0]: ns a step. With a team each thread has slots of its own, half as many.
 */
struct work_mix {
    struct bench_opened *opened;
    struct bench_team *team; /* NULL: one thread */
    struct bench_rng rng;
    hvmem_u32 slots; /* a thread */
    struct bench_slot *slot[BENCH_CPUS];
    hvmem_u32 *steps[BENCH_CPUS];
    hvmem_u64 refused[BENCH_CPUS];
};
#define WORK_MIX_STEPS 8192u
void work_mix_init(struct work_mix *mix, struct bench_opened *opened, hvmem_u64 frames,
                   struct bench_team *team);
void work_mix_end(struct work_mix *mix);
void work_mix_round(void *arg, double *values);

#endif
