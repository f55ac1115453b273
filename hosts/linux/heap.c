/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap with all its banks, from a topology or from a memory map, with the tables it needs. */
#include "host_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DIRTY_BYTE 0xa5
#define NODE_ALIGN ((hvmem_u64)1 << 18) /* frames: 1 GiB */
/* A memory map's ranges may be cut at arena borders: entries of the bank table a machine needs. */
#define MAX_BANKS 4096u

static void *take_area(struct hvmem_linux_heap *heap, hvmem_size bytes, hvmem_node node,
                       hvmem_u32 flags)
{
    void *start;

    if (heap->areas == sizeof heap->area / sizeof heap->area[0])
        return NULL;
    start = hvmem_linux_pages(bytes, node, (flags & HVMEM_LINUX_PREFAULT) != 0);
    if (start == NULL)
        return NULL;
    if ((flags & HVMEM_LINUX_DIRTY) != 0)
        memset(start, DIRTY_BYTE, bytes);
    heap->area[heap->areas].start = start;
    heap->area[heap->areas].bytes = bytes;
    heap->areas++;
    return start;
}

static void fill_config(const struct hvmem_linux_heap_config *from, struct hvmem_config *config)
{
    if (from->base != NULL) {
        *config = *from->base;
    } else {
        hvmem_config_default(config);
        config->max_banks = MAX_BANKS;
    }
    config->max_cpus = from->topology->cpus;
    config->cpu_node = from->topology->cpu_node;
    config->distance = from->map != NULL ? from->map->distance : from->topology->distance;
    config->distance_nodes =
        from->map != NULL ? from->map->distance_nodes : from->topology->distance_nodes;
    if ((from->flags & HVMEM_LINUX_SMP) != 0 && config->lock_regime == HVMEM_LOCK_CALLER)
        config->lock_regime = HVMEM_LOCK_PLAIN;
    if (from->host != NULL) {
        config->host = hvmem_linux_ops(from->host);
        config->host_ctx = from->host;
    }
}

static hvmem_status init_heap(const struct hvmem_linux_heap_config *from,
                              struct hvmem_linux_heap *heap)
{
    struct hvmem_config config;
    hvmem_size bytes = 0;
    hvmem_status status;
    void *memory;

    fill_config(from, &config);
    status = hvmem_heap_size(&config, &bytes);
    if (status != HVMEM_OK)
        return status;
    memory = take_area(heap, bytes, HVMEM_NODE_ANY, from->flags);
    if (memory == NULL)
        return HVMEM_E_NOMEM;
    heap->heap_bytes = bytes;
    return hvmem_heap_init(memory, bytes, &config, &heap->heap);
}

static hvmem_status add_bank(const struct hvmem_linux_heap_config *from,
                             struct hvmem_linux_heap *heap, const struct hvmem_bank *range)
{
    struct hvmem_bank bank = *range;
    hvmem_size bytes = 0;
    hvmem_status status;
    void *table = NULL;

    bank.size = sizeof bank;
    if ((from->flags & HVMEM_LINUX_DIRTY) != 0 && (bank.flags & HVMEM_BANK_HOTPLUG) == 0)
        bank.flags |= HVMEM_BANK_DIRTY;
    status = hvmem_bank_size(heap->heap, &bank, &bytes);
    if (status != HVMEM_OK)
        return status;
    if (bytes != 0) {
        table = take_area(heap, bytes, bank.node, from->flags);
        if (table == NULL)
            return HVMEM_E_NOMEM;
    }
    status = hvmem_bank_add(heap->heap, &bank, table, bytes);
    if (status == HVMEM_OK && (bank.flags & HVMEM_BANK_HOTPLUG) == 0) {
        heap->frames += bank.frames;
        heap->table_bytes += bytes;
    }
    return status;
}

static hvmem_status add_nodes(const struct hvmem_linux_heap_config *from,
                              struct hvmem_linux_heap *heap, hvmem_u32 page_shift, hvmem_mfn *end)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    *end = HVMEM_LINUX_FIRST_MFN;
    for (i = 0; i < from->topology->nodes && status == HVMEM_OK; i++) {
        const struct hvmem_linux_node *node = &from->topology->node[i];
        struct hvmem_bank bank = {.base = *end, .node = node->id};

        bank.frames = from->node_frames != 0 ? from->node_frames : node->bytes >> page_shift;
        if (node->bytes == 0 || bank.frames == 0)
            continue;
        status = add_bank(from, heap, &bank);
        *end = (bank.base + bank.frames + NODE_ALIGN - 1) & ~(NODE_ALIGN - 1);
    }
    return status;
}

static hvmem_status add_map(const struct hvmem_linux_heap_config *from,
                            struct hvmem_linux_heap *heap, hvmem_u32 page_shift, hvmem_mfn *end)
{
    struct hvmem_map map = {.size = sizeof map,
                            .page_shift = page_shift,
                            .ram = from->map->ram,
                            .ram_count = from->map->ram_count};
    struct hvmem_bank bank = {.size = sizeof bank};
    hvmem_u64 cursor = 0;
    hvmem_status status;

    while ((status = hvmem_map_next(&map, &cursor, &bank)) == HVMEM_AGAIN) {
        status = add_bank(from, heap, &bank);
        if (status != HVMEM_OK)
            return status;
        *end = bank.base + bank.frames;
    }
    if (status != HVMEM_OK)
        return status;
    map.ram = from->map->hotplug;
    map.ram_count = from->map->hotplug_count;
    cursor = 0;
    while ((status = hvmem_map_next(&map, &cursor, &bank)) == HVMEM_AGAIN) {
        bank.flags |= HVMEM_BANK_HOTPLUG;
        status = add_bank(from, heap, &bank);
        if (status != HVMEM_OK)
            return status;
    }
    return status;
}

static hvmem_status go_smp(const struct hvmem_linux_heap_config *from,
                           struct hvmem_linux_heap *heap)
{
    hvmem_status status = hvmem_smp_enable(heap->heap);
    hvmem_u32 cpu;

    for (cpu = 0; cpu < from->topology->cpus && status == HVMEM_OK; cpu++)
        if (cpu != hvmem_linux__this_cpu)
            status = hvmem_cpu_online(heap->heap, cpu);
    return status;
}

hvmem_status hvmem_linux_heap_create(const struct hvmem_linux_heap_config *config,
                                     struct hvmem_linux_heap *heap)
{
    hvmem_u32 page_shift;
    hvmem_mfn end = 0;
    hvmem_status status;

    if (config == NULL || heap == NULL || config->topology == NULL)
        return HVMEM_E_ARG;
    if ((config->flags & HVMEM_LINUX_FRAMES) != 0 && (config->host == NULL || config->map != NULL))
        return HVMEM_E_ARG;
    if ((config->flags & HVMEM_LINUX_SMP) != 0 && config->host == NULL)
        return HVMEM_E_UNSUPPORTED;
    memset(heap, 0, sizeof *heap);
    heap->host = config->host;
    page_shift = config->base != NULL ? config->base->page_shift : 12;
    status = init_heap(config, heap);
    if (status == HVMEM_OK)
        status = config->map != NULL ? add_map(config, heap, page_shift, &end)
                                     : add_nodes(config, heap, page_shift, &end);
    if (status == HVMEM_OK && (config->flags & HVMEM_LINUX_FRAMES) != 0)
        status = hvmem_linux_window(config->host, HVMEM_LINUX_FIRST_MFN,
                                    end - HVMEM_LINUX_FIRST_MFN, page_shift);
    if (status == HVMEM_OK && (config->flags & HVMEM_LINUX_SMP) != 0)
        status = go_smp(config, heap);
    if (status != HVMEM_OK)
        hvmem_linux_heap_destroy(heap);
    return status;
}

void hvmem_linux_heap_destroy(struct hvmem_linux_heap *heap)
{
    hvmem_u32 i;

    for (i = 0; i < heap->areas; i++)
        munmap(heap->area[i].start, heap->area[i].bytes);
    memset(heap, 0, sizeof *heap);
}
