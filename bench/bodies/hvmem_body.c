/* SPDX-License-Identifier: BSD-2-Clause */
/* hvmem through its public interface: one bank on one node, library locks, every CPU online. */
#include <hvmem/heap.h>

#include "body.h"

static inline int op_alloc(struct bench_pool *pool, hvmem_u32 order, hvmem_u64 *frame)
{
    return hvmem_alloc_order(pool->state, order, frame);
}

static inline int op_free(struct bench_pool *pool, hvmem_u64 frame, hvmem_u32 order)
{
    return hvmem_free(pool->state, frame, order);
}

#include "ops.h"

#define FIRST_MFN 0x100000u /* 4 GiB: where RAM above the devices begins */

static void configure(const struct bench_setup *setup, struct hvmem_config *config,
                      struct hvmem_bank *bank)
{
    static const struct hvmem_bank empty;

    hvmem_config_default(config);
    config->flags = setup->flags & BENCH_NO_CPU_CACHE ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    config->lock_regime = HVMEM_LOCK_PLAIN;
    config->max_cpus = setup->cpus;
    /* A bank that crosses arena borders counts once for each arena. */
    config->max_banks = 64 + (hvmem_u32)(setup->frames >> 18);
    config->host = setup->host;
    config->host_ctx = setup->host_ctx;
    *bank = empty;
    bank->size = sizeof *bank;
    bank->base = FIRST_MFN;
    bank->frames = setup->frames;
}

/* The table of a bank can only be asked of a heap, which needs memory first: an upper bound. */
static hvmem_size table_bound(const struct bench_setup *setup)
{
    return (hvmem_size)(setup->frames * 9 + (1u << 20));
}

static hvmem_size hvmem_bytes(const struct bench_setup *setup)
{
    struct hvmem_config config;
    struct hvmem_bank bank;
    hvmem_size heap_bytes = 0;

    configure(setup, &config, &bank);
    if (hvmem_heap_size(&config, &heap_bytes) != HVMEM_OK)
        return 0;
    return heap_bytes + table_bound(setup);
}

static int hvmem_open(struct bench_pool *pool, const struct bench_setup *setup, void *memory,
                      hvmem_size bytes)
{
    struct hvmem_config config;
    struct hvmem_bank bank;
    struct hvmem_heap *heap;
    hvmem_size heap_bytes, table_bytes;
    hvmem_u32 cpu;

    configure(setup, &config, &bank);
    if (hvmem_heap_size(&config, &heap_bytes) != HVMEM_OK || heap_bytes > bytes)
        return -1;
    if (hvmem_heap_init(memory, heap_bytes, &config, &heap) != HVMEM_OK)
        return -1;
    if (hvmem_bank_size(heap, &bank, &table_bytes) != HVMEM_OK || table_bytes > bytes - heap_bytes)
        return -1;
    if (hvmem_bank_add(heap, &bank, (char *)memory + heap_bytes, table_bytes) != HVMEM_OK)
        return -1;
    if (hvmem_smp_enable(heap) != HVMEM_OK)
        return -1;
    for (cpu = 1; cpu < setup->cpus; cpu++) {
        if (hvmem_cpu_online(heap, cpu) != HVMEM_OK)
            return -1;
    }
    pool->body = &bench_hvmem;
    pool->state = heap;
    pool->base = FIRST_MFN;
    return 0;
}

static void hvmem_give_back(struct bench_pool *pool)
{
    (void)hvmem_drain(pool->state);
}

static hvmem_u64 hvmem_blocks(struct bench_pool *pool, hvmem_u32 order)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0, found = 0;

    while (hvmem_walk(pool->state, &cursor, &block) == HVMEM_AGAIN) {
        if (block.state == HVMEM_BLOCK_FREE && block.order >= order)
            found += (hvmem_u64)1 << (block.order - order);
    }
    return found;
}

static hvmem_u64 hvmem_superpages(struct bench_pool *pool)
{
    return hvmem_blocks(pool, 9);
}

const struct bench_body bench_hvmem = {
    .name = "hvmem",
    .bytes = hvmem_bytes,
    .open = hvmem_open,
    .close = ops_nothing,
    .drain = hvmem_give_back,
    .free_superpages = hvmem_superpages,
    .free_blocks = hvmem_blocks,
    BENCH_OPS,
};
