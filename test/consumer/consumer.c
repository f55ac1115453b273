/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a host's first page of code does with the library, with nothing but hvmem's own headers: one
 * heap, one bank, blocks and a run, everything given back. Returns 0, or the number of the step that
 * went wrong.
 */
#include "consumer.h"

#include <hvmem/heap.h>

#define BANK_BASE   0x100000u
#define BANK_FRAMES 0x10000u

static unsigned char heap_memory[1u << 20] __attribute__((aligned(64)));
static unsigned char table_memory[4u << 20] __attribute__((aligned(64)));

static int add_bank(struct hvmem_heap *heap)
{
    struct hvmem_bank bank = {0};
    hvmem_size bytes;

    bank.size = sizeof bank;
    bank.base = BANK_BASE;
    bank.frames = BANK_FRAMES;
    if (hvmem_bank_size(heap, &bank, &bytes) != HVMEM_OK || bytes > sizeof table_memory)
        return 3;
    if (hvmem_bank_add(heap, &bank, table_memory, bytes) != HVMEM_OK)
        return 4;
    return 0;
}

static int use_heap(struct hvmem_heap *heap)
{
    struct hvmem_request request = {0};
    hvmem_mfn page, large, run;

    request.size = sizeof request;
    request.count = 1000;
    request.node = HVMEM_NODE_ANY;
    if (hvmem_alloc_order(heap, 0, &page) != HVMEM_OK)
        return 5;
    if (hvmem_alloc_order(heap, 9, &large) != HVMEM_OK || large % 512 != 0)
        return 6;
    if (hvmem_alloc(heap, &request, &run) != HVMEM_OK || run < BANK_BASE)
        return 7;
    if (hvmem_free_frames(heap) != BANK_FRAMES - 1 - 512 - 1000)
        return 8;
    if (hvmem_free(heap, page, 0) != HVMEM_OK || hvmem_free(heap, page, 0) != HVMEM_E_FREE)
        return 9;
    if (hvmem_free(heap, large, HVMEM_ORDER_ANY) != HVMEM_OK)
        return 10;
    if (hvmem_free_run(heap, run, 1000) != HVMEM_OK)
        return 11;
    return hvmem_free_frames(heap) == BANK_FRAMES ? 0 : 12;
}

int consumer_run(void)
{
    struct hvmem_config config;
    struct hvmem_heap *heap;
    hvmem_size bytes;
    int step;

    hvmem_config_default(&config);
    if (hvmem_heap_size(&config, &bytes) != HVMEM_OK || bytes > sizeof heap_memory)
        return 1;
    if (hvmem_heap_init(heap_memory, bytes, &config, &heap) != HVMEM_OK)
        return 2;
    step = add_bank(heap);
    return step != 0 ? step : use_heap(heap);
}
