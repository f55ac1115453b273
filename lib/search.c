/* SPDX-License-Identifier: BSD-2-Clause */
/* search.c: which free block of an arena a request gets: by order, window, colour and debts. */
#include "sets.h"

#include "clock.h"

/* Blocks of one order looked at for one that need not wait for a flush, but for the one in front. */
#define PREFER_STEPS 3u

/* The smallest frame >= start whose bits under mask equal want; may wrap below start at the top. */
static hvmem_mfn next_coloured(hvmem_mfn start, hvmem_u64 mask, hvmem_u64 want)
{
    hvmem_u64 differ = (start ^ want) & mask;
    hvmem_u32 d, e;

    if (!differ)
        return start;
    d = hvmem__highest(differ);
    if (want >> d & 1) /* raise bit d; what is below it restarts at its smallest */
        return (start >> d << d & ~mask) | want;
    /* Bit d must fall: carry into the lowest bit above it that is 0 and not a colour bit. */
    e = hvmem__lowest(~((start | mask) >> d)) + d;
    return (((start >> e | 1) << e) & ~mask) | want;
}

/* First frame of an `order` block in the free block [head, head + 2^k) that the window allows. */
static int fits(const struct hvmem__window *w, hvmem_mfn head, hvmem_u32 k, hvmem_u32 order,
                hvmem_mfn *at)
{
    hvmem_u64 size = (hvmem_u64)1 << order;
    hvmem_mfn start = head < w->lo ? hvmem__round_up(w->lo, size) : head;
    hvmem_mfn end = head + ((hvmem_u64)1 << k);

    if (end > w->hi)
        end = w->hi;
    if (w->colour_mask)
        start =
            next_coloured(start, w->colour_mask << w->colour_shift, w->colour << w->colour_shift);
    if (start < head || start >= end || end - start < size)
        return 0;
    *at = start;
    return 1;
}

/* Whether the window forbids a block for what it owes. */
static int avoided(const struct hvmem_heap *heap, const struct hvmem__window *w,
                   hvmem__record record)
{
    return (hvmem__rec_owed(record) & w->avoid & ~HVMEM__OWES_FLUSH) ||
           ((w->avoid & HVMEM__OWES_FLUSH) && hvmem__immature(heap, record));
}

/*
 * A block of set k that owes no flush any more, if there is one among the first few: the one in front and
 * the first word of the bitmap; else the first.
 */
static hvmem_mfn first_of_set(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                              const struct hvmem__bank *b, hvmem_u32 k)
{
    hvmem_mfn first = hvmem__set_first(b, k), head;
    hvmem_u64 index, word;
    hvmem_u32 steps;

    if (hvmem__likely(!arena->owing) ||
        !hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, first))) ||
        !(b->spread >> k & 1))
        return first;
    index = hvmem__bits_first(&b->free[k]) >> 6;
    word = hvmem__bits_word(&b->free[k], index);
    for (steps = 1; word && steps < PREFER_STEPS; word &= word - 1, steps++) {
        head = ((b->base >> k) + (index << 6 | hvmem__lowest(word))) << k;
        if (!hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, head))))
            return head;
    }
    head = b->table->front[k];
    if (head != HVMEM__NO_MFN &&
        !hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, head))))
        return head;
    return first;
}

/*
 * The first block of set k of bank b in which the window allows an `order` block, and where.
 * Looks at HVMEM__SEARCH_STEPS blocks at most and says where it was cut.
 */
static int search_set(const struct hvmem_heap *heap, const struct hvmem__bank *b,
                      struct hvmem__window *w, hvmem_u32 k, hvmem_u32 order, hvmem_mfn *head,
                      hvmem_mfn *at)
{
    hvmem_mfn from = (w->lo > b->base ? w->lo : b->base) >> k << k;
    hvmem_u32 steps;

    for (steps = 0; steps < HVMEM__SEARCH_STEPS; steps++, from = *head + 1) {
        *head = hvmem__set_next(b, from, k);
        if (*head == HVMEM__NO_MFN)
            return 0;
        if (*head >= w->hi)
            return 0;
        if (fits(w, *head, k, order, at) &&
            !avoided(heap, w, hvmem__load_acquire(hvmem__record_at(b, *head))))
            return 1;
    }
    if (*head + 1 < w->cut)
        w->cut = *head + 1;
    return 0;
}

struct hvmem__bank *hvmem__arena_search(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                        struct hvmem__window *w, hvmem_u32 order, hvmem_u32 *k,
                                        hvmem_mfn *head, hvmem_mfn *at)
{
    struct hvmem__bank *best = HVMEM_NULL;
    hvmem_u32 best_k = heap->max_order + 1;
    struct hvmem__bank *b;

    if (!w) {
        *k = order;
        best = hvmem__set_smallest(arena, k);
        if (best)
            *head = *at = first_of_set(heap, arena, best, *k);
        return best;
    }
    for (b = arena->first; b; b = b->next) {
        hvmem_u32 left = b->orders >> order << order;

        /* A block of the last order may reach past the bank's end into the window. */
        if (b->base >= w->hi ||
            hvmem__round_up(b->base + b->frames, (hvmem_u64)1 << heap->max_order) <= w->lo)
            continue;
        for (; left; left &= left - 1) {
            hvmem_u32 o = hvmem__lowest(left);
            hvmem_mfn h, a;

            if (o >= best_k || (w->largest && o > w->largest))
                break;
            if (!search_set(heap, b, w, o, order, &h, &a))
                continue;
            best = b;
            best_k = o;
            *head = h;
            *at = a;
            break;
        }
    }
    *k = best_k;
    return best;
}
