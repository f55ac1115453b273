/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc and glibc behind the player's operations. jemalloc is the process's malloc, linked as
 * usual; glibc's own is reached by the names under which it exports it besides.
 */
#include "runner.h"

#include <jemalloc/jemalloc.h>
#include <limits.h>
#include <malloc.h>
#include <sched.h>
#include <time.h>

/* glibc, malloc/malloc.c: public aliases. */
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *block);

#define PAGE 4096u

static size_t bytes_of(hvmem_u32 order)
{
    return (size_t)PAGE << order;
}

static hvmem_status give(void *block, hvmem_u64 *handle)
{
    *handle = (hvmem_u64)(uintptr_t)block;
    return block == NULL ? HVMEM_E_NOMEM : HVMEM_OK;
}

static hvmem_status mallocx_alloc(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                                  hvmem_u64 *handle)
{
    (void)ctx, (void)cpu, (void)use;
    return give(mallocx(bytes_of(order), MALLOCX_LG_ALIGN((int)order + 12)), handle);
}

static hvmem_status mallocx_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u64 handle)
{
    (void)ctx, (void)cpu;
    sdallocx((void *)(uintptr_t)handle, bytes_of(order), MALLOCX_LG_ALIGN((int)order + 12));
    return HVMEM_OK;
}

static hvmem_status malloc_alloc(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                                 hvmem_u64 *handle)
{
    (void)ctx, (void)cpu, (void)use;
    return give(malloc(bytes_of(order)), handle);
}

static hvmem_status malloc_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u64 handle)
{
    (void)ctx, (void)cpu, (void)order;
    free((void *)(uintptr_t)handle);
    return HVMEM_OK;
}

static hvmem_status glibc_aligned(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                                  hvmem_u64 *handle)
{
    (void)ctx, (void)cpu, (void)use;
    return give(__libc_memalign(bytes_of(order), bytes_of(order)), handle);
}

static hvmem_status glibc_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u64 handle)
{
    (void)ctx, (void)cpu, (void)order;
    __libc_free((void *)(uintptr_t)handle);
    return HVMEM_OK;
}

/* jemalloc: all its metadata (its own statistic), that of the process's few other blocks included. */
static uint64_t jemalloc_metadata(void *ctx, uint64_t live_bytes)
{
    uint64_t epoch = 1;
    size_t size = sizeof epoch;
    size_t metadata = 0;

    (void)ctx, (void)live_bytes;
    if (mallctl("epoch", &epoch, &size, &epoch, size) != 0)
        return 0;
    size = sizeof metadata;
    return mallctl("stats.metadata", &metadata, &size, NULL, 0) == 0 ? metadata : 0;
}

/* glibc: what its chunks take beyond the bytes asked for. Only the replay uses it here. */
static uint64_t glibc_metadata(void *ctx, uint64_t live_bytes)
{
    struct mallinfo2 info = mallinfo2();
    uint64_t used = info.uordblks + info.hblkhd;

    (void)ctx;
    return used > live_bytes ? used - live_bytes : 0;
}

uint64_t thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t wall_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static hvmem_u64 now(void *ctx)
{
    (void)ctx;
    return thread_ns();
}

static void relax(void *ctx)
{
    (void)ctx;
    hvmem_linux_relax();
}

size_t malloc_allocators(struct allocator *list, size_t room)
{
    static const struct allocator known[] = {
        {.key = "jemalloc-mallocx",
         .name = "jemalloc mallocx, aligned",
         .ops = {mallocx_alloc, mallocx_free, NULL, now, relax},
         .metadata = jemalloc_metadata},
        {.key = "jemalloc-malloc",
         .name = "jemalloc malloc",
         .ops = {malloc_alloc, malloc_free, NULL, now, relax},
         .metadata = jemalloc_metadata},
        {.key = "glibc-aligned",
         .name = "glibc aligned_alloc",
         .ops = {glibc_aligned, glibc_free, NULL, now, relax},
         .metadata = glibc_metadata},
    };
    size_t i;

    /* Keep what was freed resident, so that rounds after the first are not about page faults. */
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
    for (i = 0; i < room && i < sizeof known / sizeof known[0]; i++)
        list[i] = known[i];
    return i;
}
