/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening allocators (bodies/body.h) in a Linux process: table memory that is resident and dirty,
 * threads as CPUs. The main thread stands for CPU 0 from the first open on.
 */
#ifndef BENCH_POOL_H
#define BENCH_POOL_H

#include "bench/bodies/body.h"

#include <stddef.h>

#define BENCH_CPUS         2u
#define BENCH_FRAMES_8_GIB ((hvmem_u64)1 << 21)

struct bench_opened {
    struct bench_pool pool;
    void *memory;
    size_t bytes;
};

/* Ends the program if the allocator cannot be opened. */
void bench_open(struct bench_opened *opened, const struct bench_body *body, hvmem_u64 frames,
                hvmem_u32 flags);
void bench_close(struct bench_opened *opened);

/* Makes the calling thread CPU 0, once; opening does so too. */
void bench_start_host(void);

/* The calling thread stands for this CPU, and no longer. */
void bench_enter(hvmem_cpu cpu);
void bench_leave(void);

#endif
