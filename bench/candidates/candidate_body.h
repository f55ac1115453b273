/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A candidate behind the benchmark loops. The including file includes its set first and defines
 * BODY_IDENTIFIER, BODY_NAME, BODY_ALLOC and BODY_FREE (bare or through the cache).
 */
#include "heap.h"

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    uint64_t got = 0;
    int status = BODY_ALLOC(pool->state, order, &got);

    *frame = got;
    return status;
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    return BODY_FREE(pool->state, frame, order);
}

#include "bench/bodies/ops.h"

static int candidate_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                          hvmem_size bytes)
{
    if (bytes < cand_bytes(setup))
        return -1;
    pool->body = &BODY_IDENTIFIER;
    pool->state = cand_open(setup, memory);
    pool->base = 0;
    return 0;
}

const struct bench_body BODY_IDENTIFIER = {
    .name = BODY_NAME,
    .bytes = cand_bytes,
    .open = candidate_open,
    .close = ops_nothing,
    .drain = cand_drain,
    .free_superpages = cand_superpages,
    BENCH_OPS,
};
