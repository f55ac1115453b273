/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loops of body.h over one allocator. The including file defines before, as static inline,
 *     int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)   0 on success
 *     int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)     0 on success
 * and afterwards puts BENCH_OPS into its struct bench_body.
 */
#include "body.h"

static hvmem_u64 ops_pair(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n)
{
    hvmem_u64 refused = 0;

    while (n-- > 0) {
        hvmem_u64 frame = 0;

        refused += op_alloc(pool, order, &frame) != 0;
        refused += op_free(pool, frame, order) != 0;
    }
    return refused;
}

static hvmem_u64 ops_fill(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frames, hvmem_u64 n)
{
    hvmem_u64 refused = 0;
    hvmem_u64 i;

    for (i = 0; i < n; i++)
        refused += op_alloc(pool, order, &frames[i]) != 0;
    return refused;
}

static hvmem_u64 ops_release(struct bench_pool *pool, hvmem_u32 order, const hvmem_u64 *frames,
                             hvmem_u64 n)
{
    hvmem_u64 refused = 0;
    hvmem_u64 i;

    for (i = 0; i < n; i++)
        refused += op_free(pool, frames[i], order) != 0;
    return refused;
}

static hvmem_u64 ops_mix(struct bench_pool *pool, struct bench_slot *slots, const hvmem_u32 *steps,
                         hvmem_u64 n)
{
    hvmem_u64 refused = 0;
    hvmem_u64 i;

    for (i = 0; i < n; i++) {
        struct bench_slot *slot = &slots[steps[i] >> 5];

        if (slot->order != BENCH_EMPTY) {
            refused += op_free(pool, slot->frame, slot->order) != 0;
            slot->order = BENCH_EMPTY;
        } else if (op_alloc(pool, steps[i] & 31u, &slot->frame) == 0) {
            slot->order = steps[i] & 31u;
        } else {
            refused++;
        }
    }
    return refused;
}

static hvmem_u64 ops_refuse(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n)
{
    hvmem_u64 refused = 0;
    hvmem_u64 frame;

    while (n-- > 0)
        refused += op_alloc(pool, order, &frame) != 0;
    return refused;
}

/* What an allocator without caches, or without tables of its own, has to say. */
__attribute__((unused)) static void ops_nothing(struct bench_pool *pool)
{
    (void)pool;
}

__attribute__((unused)) static hvmem_u64 ops_unknown(struct bench_pool *pool)
{
    (void)pool;
    return ~(hvmem_u64)0;
}

#define BENCH_OPS                                                                                  \
    .pair = ops_pair, .fill = ops_fill, .release = ops_release, .mix = ops_mix, .refuse = ops_refuse
