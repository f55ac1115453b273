/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free-set candidate "index lists": 16 bytes a frame (record and two links), a doubly linked list a
 * free order, last in first out, and a bit a frame that says "a block starts here, free or not".
 * A free block is recognised by its bit and its record; records inside blocks mean nothing.
 */
#ifndef BENCH_CANDIDATES_LISTS_H
#define BENCH_CANDIDATES_LISTS_H

#include "record.h"

#include <stddef.h>
#include <string.h>

#define LIST_END UINT32_MAX

struct list_frame {
    uint64_t record;
    uint32_t next;
    uint32_t prev;
};

struct set {
    struct list_frame *frame;
    uint64_t *starts; /* bit a frame */
    uint32_t first[CAND_MAX_ORDER + 1];
    uint32_t nonempty;
};

static inline size_t set_bytes(uint64_t frames)
{
    return (size_t)(frames * sizeof(struct list_frame) + frames / 8);
}

/* The bits are cleared here; a product would do so by the unit at its first split. */
static inline void set_init(struct set *set, void *memory, uint64_t frames)
{
    unsigned order;

    set->frame = memory;
    set->starts = (uint64_t *)(set->frame + frames);
    memset(set->starts, 0, (size_t)(frames / 8));
    for (order = 0; order <= CAND_MAX_ORDER; order++)
        set->first[order] = LIST_END;
    set->nonempty = 0;
}

static inline uint64_t *set_record(struct set *set, uint64_t frame)
{
    return &set->frame[frame].record;
}

static inline int set_starts(const struct set *set, uint64_t frame)
{
    return (int)(set->starts[frame >> 6] >> (frame & 63)) & 1;
}

static inline void set_enter(struct set *set, uint64_t frame, unsigned order, uint64_t record)
{
    struct list_frame *entry = &set->frame[frame];
    uint32_t first = set->first[order];

    entry->record = record;
    entry->next = first;
    entry->prev = LIST_END;
    if (first != LIST_END)
        set->frame[first].prev = (uint32_t)frame;
    set->first[order] = (uint32_t)frame;
    set->nonempty |= 1u << order;
    set->starts[frame >> 6] |= (uint64_t)1 << (frame & 63);
}

static inline uint64_t set_leave(struct set *set, uint64_t frame, unsigned order)
{
    struct list_frame *entry = &set->frame[frame];

    if (entry->next != LIST_END)
        set->frame[entry->next].prev = entry->prev;
    if (entry->prev != LIST_END)
        set->frame[entry->prev].next = entry->next;
    else
        set->first[order] = entry->next;
    if (set->first[order] == LIST_END)
        set->nonempty &= ~(1u << order);
    set->starts[frame >> 6] &= ~((uint64_t)1 << (frame & 63));
    return entry->record;
}

static inline uint64_t set_first(const struct set *set, unsigned order)
{
    return set->first[order];
}

static inline int set_is_free(const struct set *set, uint64_t frame, unsigned order)
{
    return set_starts(set, frame) &&
           (set->frame[frame].record & 0xff) == (order | (unsigned)CAND_FREE << 5);
}

/* 1 if a block starts here that is not free. */
static inline int set_is_used(const struct set *set, uint64_t frame)
{
    return set_starts(set, frame) && rec_state(set->frame[frame].record) != CAND_FREE;
}

static inline void set_use(struct set *set, uint64_t frame, uint64_t record)
{
    set->frame[frame].record = record;
    set->starts[frame >> 6] |= (uint64_t)1 << (frame & 63);
}

static inline void set_unuse(struct set *set, uint64_t frame)
{
    set->starts[frame >> 6] &= ~((uint64_t)1 << (frame & 63));
}

/* Up to `most` free single frames at once; `used` gets their records. Returns how many. */
static inline unsigned set_take_singles(struct set *set, uint64_t *frames, unsigned most)
{
    unsigned n = 0;

    while (n < most && set->first[0] != LIST_END) {
        uint64_t frame = set->first[0];
        uint64_t record = set_leave(set, frame, 0);

        set_use(set, frame, rec_with(record, 0, CAND_CACHED));
        frames[n++] = frame;
    }
    return n;
}

#endif
