/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of a heap's own size and start: 1 TiB of frames as one bank. */
#include "work.h"
#include "bench/common/pages.h"

#include <hvmem/heap.h>

#include <string.h>

#define TIB_FRAMES ((hvmem_u64)1 << 28)
#define ROUNDS     3u

struct tib {
    struct hvmem_config config;
    struct hvmem_bank bank;
    hvmem_size heap_bytes, table_bytes;
    void *heap_memory, *table;
};

static void sizes(struct tib *tib, hvmem_u32 cpus, hvmem_u32 domains)
{
    struct hvmem_heap *heap;

    hvmem_config_default(&tib->config);
    tib->config.lock_regime = HVMEM_LOCK_PLAIN;
    tib->config.max_cpus = cpus;
    tib->config.max_domains = domains;
    tib->config.max_banks = 1024 + 64; /* one for each arena of the TiB, and some more */
    memset(&tib->bank, 0, sizeof tib->bank);
    tib->bank.size = sizeof tib->bank;
    tib->bank.base = 0x100000;
    tib->bank.frames = TIB_FRAMES;
    FIGURE_REQUIRE(hvmem_heap_size(&tib->config, &tib->heap_bytes) == HVMEM_OK);
    tib->heap_memory = bench_pages_get(tib->heap_bytes, NULL);
    FIGURE_REQUIRE(tib->heap_memory != NULL);
    FIGURE_REQUIRE(hvmem_heap_init(tib->heap_memory, tib->heap_bytes, &tib->config, &heap) ==
                   HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_size(heap, &tib->bank, &tib->table_bytes) == HVMEM_OK);
}

/* A heap that says it is ready must be: the first and a largest block come out and go back. */
static void check_ready(struct hvmem_heap *heap)
{
    hvmem_mfn mfn;

    FIGURE_REQUIRE(hvmem_free_frames(heap) == TIB_FRAMES);
    FIGURE_REQUIRE(hvmem_alloc_order(heap, 18, &mfn) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(heap, mfn, 18) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(heap, 0, &mfn) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(heap, mfn, 0) == HVMEM_OK);
}

static double init_once(struct tib *tib)
{
    struct hvmem_heap *heap;
    double start, end;

    memset(tib->heap_memory, 0xa5, tib->heap_bytes);
    memset(tib->table, 0xa5, tib->table_bytes);
    start = bench_now();
    FIGURE_REQUIRE(hvmem_heap_init(tib->heap_memory, tib->heap_bytes, &tib->config, &heap) ==
                   HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(heap, &tib->bank, tib->table, tib->table_bytes) == HVMEM_OK);
    end = bench_now();
    check_ready(heap);
    return (end - start) / 1e6;
}

FIGURE(init_1tib, "init_1tib.ms", "ms",
       "heap init + bank add of 1 TiB over resident table memory filled with 0xA5")
{
    struct bench_samples samples = {0};
    struct tib tib;
    double touch_ms, median;
    unsigned i;

    sizes(&tib, BENCH_CPUS, 0);
    tib.table = bench_pages_get(tib.table_bytes, &touch_ms);
    if (tib.table == NULL)
        figure_fail("no %zu MiB of memory for the table of 1 TiB", (size_t)tib.table_bytes >> 20);
    for (i = 0; i < ROUNDS; i++)
        bench_samples_add(&samples, init_once(&tib));
    median = bench_median(&samples);
    figure_comment("init_1tib: table %.1f MiB; its first touch, page faults included, took %.0f ms",
                   (double)tib.table_bytes / 1048576, touch_ms);
    figure_comment("init_1tib: fastest %.3f ms, slowest %.3f ms of %u", bench_quantile(&samples, 0),
                   bench_quantile(&samples, 1), ROUNDS);
    bench_samples_free(&samples);
    bench_pages_put(tib.table, tib.table_bytes);
    bench_pages_put(tib.heap_memory, tib.heap_bytes);
    return median;
}

FIGURE(frame_bytes, "frame_bytes", "B",
       "bytes a frame at 1 TiB by the size queries: heap for 128 CPUs and 1,024 domains, and table")
{
    struct tib tib;
    double bytes;

    sizes(&tib, 128, 1024);
    bytes = (double)(tib.heap_bytes + tib.table_bytes) / (double)TIB_FRAMES;
    figure_comment("frame_bytes: heap %zu KiB, table %zu KiB", (size_t)tib.heap_bytes >> 10,
                   (size_t)tib.table_bytes >> 10);
    bench_pages_put(tib.heap_memory, tib.heap_bytes);
    return bytes;
}
