/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap over the machine's RAM, made from the boot information with the library's public calls alone:
 * place the heap and the tables in the RAM that they manage, then add bank after bank.
 */
#include <hvmem/map.h>

#include "host.h"

#define REPORT_LINES 16u

/* The boot information in the library's terms; the one keep-out piece more is for the heap itself. */
struct pieces {
    struct hvmem_map_piece ram[METAL_MAX_MEM];
    struct hvmem_map_piece kept[METAL_MAX_RESERVED + 1];
    struct hvmem_map map;
};

static struct pieces pieces;
static uint8_t distance[METAL_MAX_NODES * METAL_MAX_NODES];
static uint8_t cpu_node[METAL_MAX_CPUS];

static void pieces_fill(const struct metal_boot *boot)
{
    for (uint32_t i = 0; i < boot->mem_count; i++)
        pieces.ram[i] =
            (struct hvmem_map_piece){boot->mem[i].base, boot->mem[i].bytes, boot->mem[i].node, 0};
    for (uint32_t i = 0; i < boot->reserved_count; i++)
        pieces.kept[i] =
            (struct hvmem_map_piece){boot->reserved[i].base, boot->reserved[i].bytes, 0, 0};
    pieces.map = (struct hvmem_map){.size = sizeof pieces.map,
                                    .page_shift = METAL_PAGE_SHIFT,
                                    .ram = pieces.ram,
                                    .keep_out = pieces.kept,
                                    .ram_count = boot->mem_count,
                                    .keep_out_count = boot->reserved_count};
}

/* A bank that crosses the border of an arena takes several places: one a GiB more is enough. */
static uint32_t banks_needed(const struct metal_boot *boot)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < boot->mem_count; i++)
        bytes += boot->mem[i].bytes;
    bytes = 2 * (boot->mem_count + boot->reserved_count) + 16 + (bytes >> 30);
    return bytes < 65535 ? (uint32_t)bytes : 65535;
}

static void config_fill(struct hvmem_config *config, struct metal_heap *h,
                        const struct metal_heap_options *options)
{
    const struct metal_boot *boot = metal_boot_info();

    for (uint32_t i = 0; i < boot->node_count; i++)
        for (uint32_t j = 0; j < boot->node_count; j++)
            distance[i * boot->node_count + j] = boot->distance[i][j];
    for (uint32_t i = 0; i < boot->cpu_count; i++)
        cpu_node[i] = (uint8_t)boot->cpu[i].node;
    metal_host_ops(&h->ops);
    hvmem_config_default(config);
    config->lock_regime = options->lock_regime;
    config->max_cpus = boot->cpu_count;
    config->max_banks = banks_needed(boot);
    config->max_domains = options->max_domains;
    if (options->max_order != 0)
        config->max_order = options->max_order;
    config->distance_nodes = boot->node_count;
    config->distance = distance;
    config->cpu_node = cpu_node;
    config->host = &h->ops;
    config->host_ctx = &h->host;
    config->backend = options->backend;
    if (options->backend == NULL)
        config->owed_on_free = 0;
}

static uint64_t pages_of(hvmem_size bytes)
{
    return (bytes + METAL_PAGE_BYTES - 1) >> METAL_PAGE_SHIFT;
}

/* Takes `count` frames of the largest bank out of the map; 0 = no bank is large enough. */
static uint64_t carve(uint64_t count)
{
    struct hvmem_bank bank = {.size = sizeof bank}, largest = {.size = sizeof largest};
    hvmem_u64 cursor = 0;

    while (hvmem_map_next(&pieces.map, &cursor, &bank) == HVMEM_AGAIN)
        if (bank.frames > largest.frames)
            largest = bank;
    if (largest.frames <= count)
        return 0;
    pieces.kept[pieces.map.keep_out_count++] =
        (struct hvmem_map_piece){largest.base << METAL_PAGE_SHIFT, count << METAL_PAGE_SHIFT, 0, 0};
    return largest.base << METAL_PAGE_SHIFT;
}

static hvmem_status heap_make(struct metal_heap *h, const struct hvmem_config *config)
{
    hvmem_size bytes = 0;
    hvmem_status status = hvmem_heap_size(config, &bytes);
    uint64_t at;

    if (status != HVMEM_OK)
        return status;
    at = carve(pages_of(bytes));
    if (at == 0)
        return HVMEM_E_NOMEM;
    h->table_frames += pages_of(bytes);
    return hvmem_heap_init(metal_frame(at), bytes, config, &h->heap);
}

/* The table takes the last frames of the bank, which shrinks by them. */
static hvmem_status bank_give(struct metal_heap *h, struct hvmem_bank *bank)
{
    hvmem_size bytes = 0;
    hvmem_status status = hvmem_bank_size(h->heap, bank, &bytes);
    const uint64_t pages = pages_of(bytes);

    if (status != HVMEM_OK)
        return status;
    if (pages >= bank->frames) {
        metal_printf("metal: bank at frame 0x%llx is too small for its table, not used\n",
                     (unsigned long long)bank->base);
        h->banks_skipped++;
        return HVMEM_OK;
    }
    bank->frames -= pages;
    status = hvmem_bank_add(h->heap, bank,
                            metal_frame((bank->base + bank->frames) << METAL_PAGE_SHIFT), bytes);
    if (status != HVMEM_OK)
        return status;
    h->banks++;
    h->frames += bank->frames;
    h->table_frames += pages;
    return HVMEM_OK;
}

static hvmem_status refused(hvmem_status status, const char *what)
{
    metal_printf("metal: no heap: %s: %s\n", what, hvmem_status_words(status));
    return status;
}

hvmem_status metal_heap_boot(struct metal_heap *h, const struct metal_heap_options *options)
{
    struct hvmem_bank bank = {.size = sizeof bank};
    struct hvmem_config config;
    hvmem_u64 cursor = 0;
    hvmem_status status;

    *h = (struct metal_heap){.host.report_lines = REPORT_LINES};
    pieces_fill(metal_boot_info());
    config_fill(&config, h, options);
    status = heap_make(h, &config);
    if (status != HVMEM_OK)
        return refused(status, "heap");
    while ((status = hvmem_map_next(&pieces.map, &cursor, &bank)) == HVMEM_AGAIN) {
        bank.flags = options->bank_flags;
        status = bank_give(h, &bank);
        if (status != HVMEM_OK)
            return refused(status, "bank");
    }
    return status == HVMEM_OK ? HVMEM_OK : refused(status, "memory map");
}

hvmem_status metal_heap_smp(struct metal_heap *h)
{
    hvmem_status status = hvmem_smp_enable(h->heap);

    for (uint64_t left = metal_online() & ~1ull; left != 0 && status == HVMEM_OK; left &= left - 1)
        status = hvmem_cpu_online(h->heap, (hvmem_cpu)__builtin_ctzll(left));
    return status == HVMEM_OK ? HVMEM_OK : refused(status, "more CPUs");
}

int metal_heap_outside(struct hvmem_heap *heap, hvmem_mfn first, hvmem_u64 frames,
                       int (*fn)(void *arg, hvmem_mfn first, hvmem_u64 frames), void *arg)
{
    const hvmem_mfn end = first + frames;
    struct hvmem_block block;
    hvmem_u64 cursor = first;

    while (first < end) {
        if (hvmem_walk(heap, &cursor, &block) != HVMEM_AGAIN || block.mfn >= end)
            return fn(arg, first, end - first);
        if (block.state == HVMEM_BLOCK_RESERVED)
            continue;
        if (block.mfn > first && !fn(arg, first, block.mfn - first))
            return 0;
        first = block.mfn + (1ull << block.order);
    }
    return 1;
}
