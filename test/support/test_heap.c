/* SPDX-License-Identifier: BSD-2-Clause */
/* test_heap.c: memory for the library's objects, and a heap with one bank. */
#include "test_heap.h"

#include "test_main.h"

#include <stdlib.h>
#include <string.h>

void *test_memory(hvmem_size bytes)
{
    hvmem_size room = (bytes + 127) / 128 * 128;
    void *memory = aligned_alloc(128, room);

    REQUIRE(memory != NULL);
    return memset(memory, 0, room);
}

struct hvmem_heap *test_heap(const struct hvmem_config *config, const struct hvmem_bank *bank,
                             void *memory[2])
{
    struct hvmem_heap *heap;
    hvmem_size bytes;

    REQUIRE_EQ(hvmem_heap_size(config, &bytes), HVMEM_OK);
    memory[0] = test_memory(bytes);
    REQUIRE_EQ(hvmem_heap_init(memory[0], bytes, config, &heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_bank_size(heap, bank, &bytes), HVMEM_OK);
    memory[1] = test_memory(bytes);
    REQUIRE_EQ(hvmem_bank_add(heap, bank, memory[1], bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_smp_enable(heap), HVMEM_OK);
    return heap;
}
