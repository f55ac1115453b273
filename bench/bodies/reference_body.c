/* SPDX-License-Identifier: BSD-2-Clause */
/* The textbook buddy of bench/reference behind the benchmark loops. */
#include "bench/reference/buddy.h"

#include "body.h"

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    uint32_t got = buddy_alloc(pool->state, order);

    *frame = got;
    return got == BUDDY_NONE;
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    buddy_free(pool->state, (uint32_t)frame, order);
    return 0;
}

#include "ops.h"

static hvmem_size reference_bytes(const struct bench_setup *setup)
{
    return buddy_bytes((uint32_t)setup->frames);
}

static int reference_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                          hvmem_size bytes)
{
    if (bytes < buddy_bytes((uint32_t)setup->frames))
        return -1;
    pool->body = &bench_reference;
    pool->state = buddy_init(memory, (uint32_t)setup->frames);
    pool->base = 0;
    return 0;
}

static hvmem_u64 reference_blocks(struct bench_pool *pool, hvmem_u32 order)
{
    const struct buddy *buddy = pool->state;
    hvmem_u64 found = 0;
    uint32_t frame;

    for (frame = 0; frame < buddy->frames; frame += 1u << order) {
        if (buddy->page[frame].free && buddy->page[frame].order >= order)
            found += (hvmem_u64)1 << (buddy->page[frame].order - order);
    }
    return found;
}

static hvmem_u64 reference_superpages(struct bench_pool *pool)
{
    return reference_blocks(pool, 9);
}

const struct bench_body bench_reference = {
    .name = "textbook",
    .bytes = reference_bytes,
    .open = reference_open,
    .close = ops_nothing,
    .drain = ops_nothing,
    .free_superpages = reference_superpages,
    .free_blocks = reference_blocks,
    BENCH_OPS,
};
