/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A malloc behind the benchmark loops: a "frame" is the address. The including file defines op_alloc,
 * op_free and BODY_IDENTIFIER, BODY_NAME. The memory is never touched, as hvmem touches none.
 */
#include "ops.h"

static hvmem_size malloc_bytes(const struct bench_setup *setup)
{
    (void)setup;
    return 0;
}

static int malloc_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                       hvmem_size bytes)
{
    (void)setup;
    (void)memory;
    (void)bytes;
    pool->body = &BODY_IDENTIFIER;
    pool->state = 0;
    pool->base = 0;
    return 0;
}

const struct bench_body BODY_IDENTIFIER = {
    .name = BODY_NAME,
    .bytes = malloc_bytes,
    .open = malloc_open,
    .close = ops_nothing,
    .drain = ops_nothing,
    .free_superpages = ops_unknown,
    BENCH_OPS,
};
