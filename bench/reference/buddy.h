/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The textbook buddy allocator, to compare with: one lock, one array of page structures, a doubly
 * linked list a free order threaded through it, merge when the buddy's structure says "free, same
 * order". Every page structure is written at init, as the textbook does. It believes its caller: a
 * free is not checked.
 */
#ifndef BENCH_REFERENCE_BUDDY_H
#define BENCH_REFERENCE_BUDDY_H

#include <stddef.h>
#include <stdint.h>

#define BUDDY_MAX_ORDER 18u
#define BUDDY_NONE      UINT32_MAX

struct buddy_page {
    uint32_t next; /* of the free list; first page of a free block only */
    uint32_t prev;
    uint8_t order;
    uint8_t free; /* 1: first page of a free block */
    uint16_t reserved;
};

struct buddy {
    uint32_t lock;
    uint32_t frames;
    uint64_t free_frames;
    uint32_t head[BUDDY_MAX_ORDER + 1];
    uint32_t nonempty; /* bit k: head[k] is not BUDDY_NONE */
    struct buddy_page *page;
};

/* Bytes of memory for `frames` page structures and the head. */
size_t buddy_bytes(uint32_t frames);

/* All frames free, in the largest blocks that fit. The memory may hold anything. */
struct buddy *buddy_init(void *memory, uint32_t frames);

/* First frame of a block of 2^order, or BUDDY_NONE. */
uint32_t buddy_alloc(struct buddy *buddy, unsigned order);

void buddy_free(struct buddy *buddy, uint32_t frame, unsigned order);

#endif
