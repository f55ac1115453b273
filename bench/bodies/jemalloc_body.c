/* SPDX-License-Identifier: BSD-2-Clause */
/* jemalloc by its malloc and free. The program is linked with jemalloc, so malloc is jemalloc's. */
#include "body.h"

#include <jemalloc/jemalloc.h>
#include <stddef.h>
#include <stdint.h>

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    void *memory = malloc((size_t)4096 << order);

    (void)pool;
    /* The compiler must not see that a pair is for nothing. */
    __asm__ volatile("" : "+r"(memory) : : "memory");
    *frame = (uintptr_t)memory;
    return memory == NULL;
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    (void)pool;
    (void)order;
    free((void *)(uintptr_t)frame);
    return 0;
}

#define BODY_IDENTIFIER bench_jemalloc
#define BODY_NAME       "jemalloc"
#include "malloc_body.h"
