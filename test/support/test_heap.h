/* SPDX-License-Identifier: BSD-2-Clause */
/* test_heap.h: memory for the library's objects, and a heap with one bank, for rigs with a machine of their own. */
#ifndef HVMEM_TEST_HEAP_H
#define HVMEM_TEST_HEAP_H

#include <hvmem/heap.h>

/* Zeroed memory on a boundary of 128 bytes, or the case ends. free() it. */
void *test_memory(hvmem_size bytes);

/* A heap with this bank, where several CPUs may call; memory[] is to be freed after it. */
struct hvmem_heap *test_heap(const struct hvmem_config *config, const struct hvmem_bank *bank,
                             void *memory[2]);

#endif
