/* SPDX-License-Identifier: BSD-2-Clause */
/* jemalloc by mallocx and sdallocx, aligned to the size: what a page allocator promises. */
#include "body.h"

#include <jemalloc/jemalloc.h>
#include <stddef.h>
#include <stdint.h>

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    size_t bytes = (size_t)4096 << order;
    void *memory = mallocx(bytes, MALLOCX_ALIGN(bytes));

    (void)pool;
    __asm__ volatile("" : "+r"(memory) : : "memory");
    *frame = (uintptr_t)memory;
    return memory == NULL;
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    size_t bytes = (size_t)4096 << order;

    (void)pool;
    sdallocx((void *)(uintptr_t)frame, bytes, MALLOCX_ALIGN(bytes));
    return 0;
}

#define BODY_IDENTIFIER bench_jemalloc_x
#define BODY_NAME       "jemalloc, aligned"
#include "malloc_body.h"
