/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench_hvmem_owned with the inline forms of hvmem/fast.h for order 0, for the thread that opened it. It
 * reads its handle again on every call, as from a hypervisor's per-CPU data.
 */
#include "owned.h"

#include <hvmem/fast.h>

#include "hvmem_host_linux.h"

static __thread struct hvmem_cpu_cache *volatile handle;

HVMEM_INLINE int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    struct owned *owned = pool->state;

    return order ? hvmem_alloc_owned(owned->heap, owned->domain, order, frame)
                 : hvmem_alloc_page_owned(owned->heap, handle, owned->domain, frame);
}

HVMEM_INLINE int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    struct owned *owned = pool->state;

    return order ? hvmem_free_owned(owned->heap, frame, order, owned->domain, 0)
                 : hvmem_free_page_owned(owned->heap, handle, frame, owned->domain);
}

#include "ops.h"

static hvmem_size inline_bytes(const struct bench_setup *setup)
{
    return bench_hvmem_owned.bytes(setup);
}

static int inline_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                       hvmem_size bytes)
{
    int result = bench_hvmem_owned.open(pool, setup, memory, bytes);
    struct owned *owned = memory;

    pool->body = &bench_hvmem_owned_inline;
    handle = hvmem_cpu_handle(owned->heap, hvmem_linux__this_cpu);
    return result;
}

static void inline_drain(struct bench_pool *pool)
{
    bench_hvmem_owned.drain(pool);
}

const struct bench_body bench_hvmem_owned_inline = {
    .name = "hvmem inline, owned",
    .bytes = inline_bytes,
    .open = inline_open,
    .close = ops_nothing,
    .drain = inline_drain,
    .free_superpages = ops_unknown,
    BENCH_OPS,
};
