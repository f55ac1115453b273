/* SPDX-License-Identifier: BSD-2-Clause */
/* locked.c: counting what happens between lock and unlock, and the heaps it is counted in. */
#include "locked.h"

#include "bench/common/pages.h"
#include "bench/count/hvmem_host_count.h"
#include "bench/count/section.h"
#include "lib/heap.h"

#include <hvmem/backend.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* ---- what locks do -------------------------------------------------------------------------- */

const char *counting;
const char *kind = "";
static unsigned depth;
static const void
    *admin; /* what is done under it is done in holds of other locks, or to what nobody shares */

void bench_count_lock(const void *lock)
{
    if (lock != admin && depth++ == 0 && counting != NULL)
        section_begin();
}

void bench_count_unlock(const void *lock)
{
    if (lock != admin && --depth == 0 && counting != NULL)
        section_end(counting);
}

/* ---- heaps ---------------------------------------------------------------------------------- */

static hvmem_status barrier(void *host, hvmem_cpu cpu)
{
    (void)host;
    (void)cpu;
    return HVMEM_OK;
}

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    (void)mfn;
    (void)order;
    return host;
}

/* A back-end that is done at once, on all CPUs: only what happens under locks counts. */
static hvmem_status flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *what)
{
    (void)be;
    (void)what;
    return HVMEM_OK;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr at, hvmem_size bytes)
{
    (void)be;
    (void)op;
    (void)at;
    (void)bytes;
    return HVMEM_OK;
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr at, hvmem_size bytes)
{
    return dcache(be, 0, at, bytes);
}

static hvmem_status icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    return dcache(be, scope, 0, 0);
}

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return 0;
}

/* Tables that a machine has not got the memory for are left untouched but for what is used. */
#define UNTOUCHED ((size_t)1 << 24)

void *take_memory(struct heap *h, size_t bytes)
{
    void *memory;

    if (bytes < UNTOUCHED)
        memory = bench_pages_get(bytes, NULL);
    else
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FIGURE_REQUIRE(memory != NULL && memory != MAP_FAILED && h->used < 3 + BANKS);
    h->memory[h->used] = memory;
    h->bytes[h->used++] = bytes;
    return memory;
}

void add_bank(struct heap *h, hvmem_mfn base, hvmem_u64 frames)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = base, .frames = frames};
    hvmem_size bytes;

    FIGURE_REQUIRE(hvmem_bank_size(h->heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(h->heap, &bank, take_memory(h, bytes), bytes) == HVMEM_OK);
}

void start(struct heap *h, hvmem_u32 flags, hvmem_u32 order)
{
    static const struct hvmem_host_ops ops = {
        .size = sizeof ops, .this_cpu = this_cpu, .barrier_cpu = barrier, .frame_map = frame_map};
    static const struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops,
                                                         .tlb_flush = flush,
                                                         .dcache = dcache,
                                                         .zero = zero,
                                                         .icache_all = icache_all};
    static struct hvmem_backend backend = {
        .ops = &backend_ops,
        .caps = {.size = sizeof backend.caps, .page_shift = 12, .features = HVMEM_CAP_BROADCAST}};
    struct hvmem_config config;
    hvmem_size bytes;

    memset(h, 0, sizeof *h);
    hvmem_config_default(&config);
    config.flags = flags;
    config.max_order = config.arena_order = order;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.max_banks = 64;
    config.max_domains = 1;
    config.host = &ops;
    config.host_ctx = &backend; /* any address: frames are mapped nowhere */
    config.backend = &backend;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(take_memory(h, bytes), bytes, &config, &h->heap) == HVMEM_OK);
    admin = &h->heap->admin;
}

void open_heap(struct heap *h, hvmem_u32 flags, unsigned pieces)
{
    hvmem_mfn at = FIRST;
    unsigned i;

    start(h, flags, LARGEST);
    for (i = 0; pieces == DOUBLING && i <= LARGEST; i++) {
        add_bank(h, at, i ? at - FIRST : 1);
        at += i ? at - FIRST : 1;
    }
    /* Every border but the last is odd, so that blocks meet across borders at every level. */
    for (i = 1; i <= pieces; i++) {
        hvmem_mfn end = FIRST + ARENA * i / pieces - (i < pieces);

        add_bank(h, at, end - at);
        at = end;
    }
    FIGURE_REQUIRE(hvmem_smp_enable(h->heap) == HVMEM_OK);
}

void close_heap(struct heap *h)
{
    while (h->used > 0) {
        h->used--;
        bench_pages_put(h->memory[h->used], h->bytes[h->used]);
    }
}

const char *name_of(const char *what, hvmem_u32 order)
{
    static char names[8][48];
    static unsigned next;
    char *name = names[next++ % 8];

    snprintf(name, sizeof names[0], "%s%s%u", kind, what, order);
    return name;
}
