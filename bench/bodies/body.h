/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a benchmark does to an allocator, apart from taking the time: the same bodies for every
 * allocator and every runner. Freestanding (hvmem headers only), so that a unikernel can run them
 * too: the runner brings memory, time and threads.
 *
 * Each allocator has one file that defines how to allocate and free a block and includes ops.h,
 * which makes the loops: the calls in them are direct and inlined, the table below is entered once
 * a loop.
 */
#ifndef BENCH_BODY_H
#define BENCH_BODY_H

#include <hvmem/host.h>
#include <hvmem/types.h>

#define BENCH_NO_CPU_CACHE 1u /* every call goes to the shared structure behind the caches */

/* What to open. Allocators that take their memory from the system ignore all but the CPUs. */
struct bench_setup {
    hvmem_u64 frames; /* of 4 KiB; a multiple of 2^18 */
    hvmem_u32 cpus;
    hvmem_u32 flags; /* BENCH_* */
    const struct hvmem_host_ops *host;
    void *host_ctx;
};

/* An open allocator; `state` is its own. */
struct bench_pool {
    const struct bench_body *body;
    void *state;
    hvmem_u64 base; /* lowest frame */
};

/* A slot of the mix: a block, or nothing (order BENCH_EMPTY). */
struct bench_slot {
    hvmem_u64 frame;
    hvmem_u32 order;
    hvmem_u32 reserved;
};
#define BENCH_EMPTY 0xffu

/* One step of the mix: free what the slot holds, or allocate `order` into it. */
#define BENCH_STEP(slot, order) ((hvmem_u32)(slot) << 5 | (hvmem_u32)(order))

struct bench_body {
    const char *name;

    /* Bytes open() needs for its tables; 0 if none. */
    hvmem_size (*bytes)(const struct bench_setup *setup);
    /* 0 on success. The memory may hold anything. */
    int (*open)(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                hvmem_size bytes);
    void (*close)(struct bench_pool *pool);
    /* Give what is cached per CPU back to the shared structure. */
    void (*drain)(struct bench_pool *pool);
    /* Frames in free, naturally aligned runs of 2^9, caches excluded, in units of 2^9 frames; ~0 if
     * the allocator cannot tell. */
    hvmem_u64 (*free_superpages)(struct bench_pool *pool);
    /* The same for any order; NULL where only 2 MiB blocks can be told. */
    hvmem_u64 (*free_blocks)(struct bench_pool *pool, hvmem_u32 order);

    /*
     * The loops. Each returns how many of its calls were refused: 0, but for `refuse`.
     * pair: n times allocate and free at once. fill, release: n blocks into and from frames[].
     * mix: n steps. refuse: n allocations that cannot succeed.
     */
    hvmem_u64 (*pair)(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n);
    hvmem_u64 (*fill)(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frames, hvmem_u64 n);
    hvmem_u64 (*release)(struct bench_pool *pool, hvmem_u32 order, const hvmem_u64 *frames,
                         hvmem_u64 n);
    hvmem_u64 (*mix)(struct bench_pool *pool, struct bench_slot *slots, const hvmem_u32 *steps,
                     hvmem_u64 n);
    hvmem_u64 (*refuse)(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 n);
};

/* The allocators; which of them are linked is the build's choice. */
extern const struct bench_body bench_hvmem;
extern const struct bench_body bench_hvmem_owned;        /* blocks of a running domain */
extern const struct bench_body bench_hvmem_owned_inline; /* order 0 through hvmem/fast.h */
/* The heap of one of these two, and flushes that it needed so far. */
struct hvmem_heap *bench_owned_heap(const struct bench_pool *pool);
hvmem_u64 bench_owned_flushes(const struct bench_pool *pool);
extern const struct bench_body bench_hvmem_inline; /* order 0 through hvmem/fast.h */
extern const struct bench_body bench_reference;
extern const struct bench_body bench_jemalloc;   /* malloc(4096 << order), free */
extern const struct bench_body bench_jemalloc_x; /* mallocx aligned to the size, sdallocx */
extern const struct bench_body bench_glibc;      /* malloc(4096 << order), free */
extern const struct bench_body bench_lists;      /* candidate: index lists, bare */
extern const struct bench_body bench_lists_front;
extern const struct bench_body bench_bitmaps; /* candidate: bitmaps, bare */
extern const struct bench_body bench_bitmaps_front;

#endif
