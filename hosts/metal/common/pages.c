/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page-aligned memory of the image itself, for stacks, tables and tests: a fixed piece of its zeroed
 * data, given out once and never taken back.
 */
#include "boot.h"

#define POOL_BYTES (3u << 20)

static uint8_t pool[POOL_BYTES] __attribute__((aligned(METAL_PAGE_BYTES)));
static uint64_t used;

void *metal_pages(size_t bytes, size_t align)
{
    uint64_t from = __atomic_load_n(&used, __ATOMIC_RELAXED);
    uint64_t at;
    const uint64_t page = METAL_PAGE_BYTES;

    if (bytes == 0 || bytes > POOL_BYTES || (align & (align - 1)) != 0)
        return NULL;
    if (align < page)
        align = page;
    bytes = (bytes + page - 1) & ~(page - 1);
    do {
        /* Aligned as an address: the pool itself is only page aligned. */
        at = (((uintptr_t)pool + from + align - 1) & ~(align - 1)) - (uintptr_t)pool;
        if (at + bytes > POOL_BYTES)
            return NULL;
    } while (!__atomic_compare_exchange_n(&used, &from, at + bytes, 0, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return pool + at;
}
