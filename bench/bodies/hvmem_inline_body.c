/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem with the inline forms of hvmem/fast.h for order 0; all else is bench_hvmem. Each CPU keeps its
 * handle in a word of its own, which every call reads again, as from a hypervisor's per-CPU data.
 */
#include <hvmem/fast.h>

#include "hvmem_host_linux.h"

#include "body.h"

static __thread struct hvmem_cpu_cache *volatile handle;

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    return order ? hvmem_alloc_order(pool->state, order, frame)
                 : hvmem_alloc_page(pool->state, handle, frame);
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    return order ? hvmem_free(pool->state, frame, order)
                 : hvmem_free_page(pool->state, handle, frame);
}

#include "ops.h"

/* The loops, with this thread's handle for this heap. */
static void use(const struct bench_pool *pool)
{
    handle = hvmem_cpu_handle(pool->state, hvmem_linux__this_cpu);
}

static hvmem_u64 inline_pair(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n)
{
    use(pool);
    return ops_pair(pool, order, n);
}

static hvmem_u64 inline_fill(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frames,
                             hvmem_u64 n)
{
    use(pool);
    return ops_fill(pool, order, frames, n);
}

static hvmem_u64 inline_release(struct bench_pool *pool, hvmem_u32 order, const hvmem_u64 *frames,
                                hvmem_u64 n)
{
    use(pool);
    return ops_release(pool, order, frames, n);
}

static hvmem_u64 inline_mix(struct bench_pool *pool, struct bench_slot *slots,
                            const hvmem_u32 *steps, hvmem_u64 n)
{
    use(pool);
    return ops_mix(pool, slots, steps, n);
}

static hvmem_u64 inline_refuse(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n)
{
    use(pool);
    return ops_refuse(pool, order, n);
}

static hvmem_size inline_bytes(const struct bench_setup *setup)
{
    return bench_hvmem.bytes(setup);
}

static int inline_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                       hvmem_size bytes)
{
    int result = bench_hvmem.open(pool, setup, memory, bytes);

    pool->body = &bench_hvmem_inline;
    return result;
}

static void inline_drain(struct bench_pool *pool)
{
    bench_hvmem.drain(pool);
}

static hvmem_u64 inline_superpages(struct bench_pool *pool)
{
    return bench_hvmem.free_superpages(pool);
}

const struct bench_body bench_hvmem_inline = {
    .name = "hvmem inline",
    .bytes = inline_bytes,
    .open = inline_open,
    .close = ops_nothing,
    .drain = inline_drain,
    .free_superpages = inline_superpages,
    .pair = inline_pair,
    .fill = inline_fill,
    .release = inline_release,
    .mix = inline_mix,
    .refuse = inline_refuse,
};
