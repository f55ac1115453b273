/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem with blocks of a running domain, which owe a flush when they are freed. The back-end counts
 * whole flushes and does nothing: what a flush costs is no part of what is measured.
 */
#include "owned.h"

#include <hvmem/bank.h>
#include <hvmem/domain.h>
#include <hvmem/look.h>

#define FIRST_MFN 0x100000u

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    struct owned *owned = pool->state;

    return hvmem_alloc_owned(owned->heap, owned->domain, order, frame);
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    struct owned *owned = pool->state;

    return hvmem_free_owned(owned->heap, frame, order, owned->domain, 0);
}

#include "ops.h"

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    (void)flush;
    return HVMEM_OK;
}

static void configure(const struct bench_setup *setup, struct owned *owned,
                      struct hvmem_config *config, struct hvmem_bank *bank)
{
    static const struct hvmem_bank empty;

    hvmem_config_default(config);
    config->lock_regime = HVMEM_LOCK_PLAIN;
    config->max_cpus = setup->cpus;
    config->max_banks = 64 + (hvmem_u32)(setup->frames >> 18);
    config->host = setup->host;
    config->host_ctx = setup->host_ctx;
    config->backend = &owned->backend;
    config->max_domains = 2;
    config->owed_on_free = HVMEM_OWES_TLB;
    *bank = empty;
    bank->size = sizeof *bank;
    bank->base = FIRST_MFN;
    bank->frames = setup->frames;
}

static hvmem_size room(hvmem_size bytes)
{
    return (bytes + 4095) & ~(hvmem_size)4095;
}

static hvmem_size owned_bytes(const struct bench_setup *setup)
{
    struct hvmem_config config;
    struct hvmem_bank bank;
    struct owned owned;
    hvmem_size heap_bytes = 0;

    configure(setup, &owned, &config, &bank);
    if (hvmem_heap_size(&config, &heap_bytes) != HVMEM_OK)
        return 0;
    return room(sizeof(struct owned)) + room(heap_bytes) + (setup->frames * 9 + (1u << 20));
}

static int make_domain(struct owned *owned)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};

    if (hvmem_domain_size(owned->heap) > sizeof owned->domain_memory)
        return -1;
    return hvmem_domain_create(owned->heap, owned->domain_memory, sizeof owned->domain_memory,
                               &config, &owned->domain) != HVMEM_OK ||
           hvmem_domain_start(owned->domain) != HVMEM_OK;
}

static int owned_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                      hvmem_size bytes)
{
    struct owned *owned = memory;
    struct hvmem_config config;
    struct hvmem_bank bank;
    hvmem_size heap_bytes, table_bytes;
    char *at = (char *)memory + room(sizeof *owned);
    hvmem_u32 cpu;

    *owned = (struct owned){.ops = {.size = sizeof owned->ops, .tlb_flush = tlb_flush}};
    owned->backend.ops = &owned->ops;
    owned->backend.caps.size = sizeof owned->backend.caps;
    owned->backend.caps.page_shift = 12;
    owned->backend.caps.features = HVMEM_CAP_BROADCAST;
    configure(setup, owned, &config, &bank);
    if (hvmem_heap_size(&config, &heap_bytes) != HVMEM_OK ||
        hvmem_heap_init(at, heap_bytes, &config, &owned->heap) != HVMEM_OK)
        return -1;
    at += room(heap_bytes);
    if (hvmem_bank_size(owned->heap, &bank, &table_bytes) != HVMEM_OK ||
        table_bytes > bytes - (hvmem_size)(at - (char *)memory) ||
        hvmem_bank_add(owned->heap, &bank, at, table_bytes) != HVMEM_OK ||
        hvmem_smp_enable(owned->heap) != HVMEM_OK)
        return -1;
    for (cpu = 1; cpu < setup->cpus; cpu++)
        if (hvmem_cpu_online(owned->heap, cpu) != HVMEM_OK)
            return -1;
    pool->body = &bench_hvmem_owned;
    pool->state = owned;
    pool->base = FIRST_MFN;
    return make_domain(owned);
}

static void owned_drain(struct bench_pool *pool)
{
    struct owned *owned = pool->state;

    (void)hvmem_drain(owned->heap);
}

static hvmem_u64 owned_superpages(struct bench_pool *pool)
{
    (void)pool;
    return ~(hvmem_u64)0;
}

struct hvmem_heap *bench_owned_heap(const struct bench_pool *pool)
{
    const struct owned *owned = pool->state;

    return owned->heap;
}

hvmem_u64 bench_owned_flushes(const struct bench_pool *pool)
{
    const struct owned *owned = pool->state;
    struct hvmem_stats stats;

    return hvmem_stats(owned->heap, HVMEM_NODE_ANY, sizeof stats, &stats) == HVMEM_OK
               ? stats.flushes
               : ~(hvmem_u64)0;
}

const struct bench_body bench_hvmem_owned = {
    .name = "hvmem, owned",
    .bytes = owned_bytes,
    .open = owned_open,
    .close = ops_nothing,
    .drain = owned_drain,
    .free_superpages = owned_superpages,
    BENCH_OPS,
};
