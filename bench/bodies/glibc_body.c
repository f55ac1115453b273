/* SPDX-License-Identifier: BSD-2-Clause */
/* glibc's malloc, by the names that stay glibc's in a program whose malloc is another's. */
#include "body.h"

#include <stddef.h>
#include <stdint.h>

extern void *__libc_malloc(size_t bytes);
extern void __libc_free(void *memory);

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    void *memory = __libc_malloc((size_t)4096 << order);

    (void)pool;
    __asm__ volatile("" : "+r"(memory) : : "memory");
    *frame = (uintptr_t)memory;
    return memory == NULL;
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    (void)pool;
    (void)order;
    __libc_free((void *)(uintptr_t)frame);
    return 0;
}

#define BODY_IDENTIFIER bench_glibc
#define BODY_NAME       "glibc"
#include "malloc_body.h"
