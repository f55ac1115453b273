/* SPDX-License-Identifier: BSD-2-Clause */
/* arena.c: buddy mechanics over the banks of one arena. */
#include "arena.h"

#include "clock.h"

struct hvmem__bank *hvmem__arena_bank(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                      struct hvmem__bank *near, hvmem_mfn mfn)
{
    hvmem_u32 number;

    if (hvmem__likely(hvmem__bank_holds(near, mfn)))
        return near;
    for (number = arena->first_bank; number != HVMEM__NO_BANK; number = heap->bank[number].next)
        if (hvmem__bank_holds(&heap->bank[number], mfn))
            return &heap->bank[number];
    return HVMEM_NULL;
}

/* ---- one block in and out of the sets ------------------------------------------------------- */

/* Enter a free block without merging. Arena lock held. */
static void enter(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order, hvmem__record record)
{
    hvmem__store(hvmem__record_at(b, mfn), record);
    hvmem__bits_set(&b->free[order], hvmem__block_index(b, mfn, order));
    hvmem__store(&b->free_blocks[order], b->free_blocks[order] + 1);
    hvmem__store(&b->free_frames, b->free_frames + ((hvmem_u64)1 << order));
    b->orders |= 1u << order;
}

/* Remove a free block from its set. Returns its record. Arena lock held. */
static hvmem__record leave(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem__bits_clear(&b->free[order], hvmem__block_index(b, mfn, order));
    hvmem__store(&b->free_blocks[order], b->free_blocks[order] - 1);
    hvmem__store(&b->free_frames, b->free_frames - ((hvmem_u64)1 << order));
    if (!b->free_blocks[order])
        b->orders &= ~(1u << order);
    return hvmem__load(hvmem__record_at(b, mfn));
}

static int is_free(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    return hvmem__bits_test(&b->free[order], hvmem__block_index(b, mfn, order));
}

void hvmem__arena_mark(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    hvmem__store_release(hvmem__record_at(b, mfn), record);
    hvmem__bits_set(&b->head, mfn - b->base);
}

/* ---- merge and split ------------------------------------------------------------------------ */

/*
 * Record of the union of two halves. Where their dirt differs the node's record, which lives at the
 * right half's first frame, keeps both. Arena lock held.
 */
static hvmem__record merge_record(struct hvmem_heap *heap, struct hvmem__bank *right_bank,
                                  hvmem_mfn right_mfn, hvmem__record left, hvmem__record right)
{
    hvmem_u32 left_dirt = hvmem__rec_dirt(left), right_dirt = hvmem__rec_dirt(right);
    hvmem_u32 owed = (hvmem__rec_owed(left) | hvmem__rec_owed(right)) & ~HVMEM_OWES_SCRUB;
    hvmem__record whole = hvmem__rec_make(hvmem__rec_order(left) + 1, HVMEM_BLOCK_FREE, 0);
    hvmem_u32 stamp = hvmem__stamp_newer(heap->clock, left, right);

    whole = hvmem__rec_with_stamp(hvmem__rec_with_owed(whole, owed), stamp);
    if (left_dirt == right_dirt && left_dirt != HVMEM__DIRT_MIXED)
        return hvmem__rec_with_dirt(whole, left_dirt);
    hvmem__store(hvmem__record_at(right_bank, right_mfn), hvmem__node_make(left_dirt, right_dirt));
    return hvmem__rec_with_dirt(whole, HVMEM__DIRT_MIXED);
}

void hvmem__split_record(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem__record whole, hvmem__record *left,
                         hvmem__record *right)
{
    hvmem_u32 order = hvmem__rec_order(whole) - 1;
    hvmem_mfn right_mfn = mfn + ((hvmem_u64)1 << order);

    *left = *right = hvmem__rec_with_order(whole, order);
    if (hvmem__rec_dirt(whole) == HVMEM__DIRT_MIXED) {
        struct hvmem__bank *rb = hvmem__arena_bank(heap, arena, b, right_mfn);
        hvmem__record node = hvmem__load(hvmem__record_at(rb, right_mfn));

        *left = hvmem__rec_with_dirt(*left, hvmem__node_left(node));
        *right = hvmem__rec_with_dirt(*right, hvmem__node_right(node));
    }
}

void hvmem__arena_offer(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u32 order)
{
    hvmem_u64 *may = heap->node[arena->node].may;
    hvmem_u64 bit = (hvmem_u64)1 << arena->slot;
    hvmem_u32 k = order + 1;

    /* may[k] shrinks with k, so that the first set bit downwards ends the work. */
    while (k-- > 0) {
        if (hvmem__load(&may[k]) & bit)
            return;
        if (heap->host.smp)
            __atomic_fetch_or(&may[k], bit, __ATOMIC_RELAXED);
        else
            may[k] |= bit;
    }
}

void hvmem__arena_exhausted(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                            hvmem_u32 order)
{
    hvmem_u64 *may = heap->node[arena->node].may;
    hvmem_u64 bit = (hvmem_u64)1 << arena->slot;
    hvmem_u32 k;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    for (k = order; k <= heap->max_order; k++) {
        if (!(hvmem__load(&may[k]) & bit))
            return;
        if (heap->host.smp)
            __atomic_fetch_and(&may[k], ~bit, __ATOMIC_RELAXED);
        else
            may[k] &= ~bit;
    }
}

void hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                       hvmem_mfn mfn, hvmem__record record)
{
    hvmem_u32 order = hvmem__rec_order(record);

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    record = hvmem__rec_with_owner(hvmem__rec_with_state(record, HVMEM_BLOCK_FREE), 0);
    record = hvmem__rec_with_dirt(record, hvmem__rec_dirt(record));
    while (order < heap->max_order) {
        hvmem_mfn buddy = mfn ^ (hvmem_u64)1 << order;
        struct hvmem__bank *bb = hvmem__arena_bank(heap, arena, b, buddy);
        hvmem__record other;

        if (!bb || !is_free(bb, buddy, order))
            break;
        other = leave(bb, buddy, order);
        if (buddy < mfn) {
            record = merge_record(heap, b, mfn, other, record);
            mfn = buddy;
            b = bb;
        } else {
            record = merge_record(heap, bb, buddy, record, other);
        }
        order++;
    }
    enter(b, mfn, order, record);
    hvmem__arena_offer(heap, arena, order);
}

/*
 * Split a block that has left its set down to the one of `order` that holds target; the other
 * halves are entered. Returns the record of what remains. Arena lock held.
 */
static hvmem__record split_to(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                              hvmem_mfn target, hvmem_u32 order)
{
    hvmem_u32 k = hvmem__rec_order(record);

    while (k > order) {
        hvmem__record left, right;
        hvmem_mfn middle;

        k--;
        middle = mfn + ((hvmem_u64)1 << k);
        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        if (target < middle) {
            enter(hvmem__arena_bank(heap, arena, b, middle), middle, k, right);
            record = left;
        } else {
            enter(b, mfn, k, left);
            record = right;
            mfn = middle;
            b = hvmem__arena_bank(heap, arena, b, mfn);
        }
    }
    return record;
}

hvmem__record hvmem__arena_carve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 head_order,
                                 hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, head);
    hvmem__record record;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    record = hvmem__rec_with_order(leave(hb, head, head_order), head_order);
    return split_to(heap, arena, hb, head, record, mfn, order);
}

/* ---- search --------------------------------------------------------------------------------- */

int hvmem__arena_find(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                      hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    hvmem_u32 k;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (hb && is_free(hb, h, k)) {
            *head = h;
            *order = k;
            return 1;
        }
    }
    return 0;
}

int hvmem__arena_block(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                       hvmem_mfn mfn, hvmem_mfn *head, struct hvmem__bank **head_bank)
{
    hvmem_u32 k;

    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (hb && hvmem__is_head(hb, h) &&
            hvmem__rec_order(hvmem__load(hvmem__record_at(hb, h))) >= k) {
            *head = h;
            *head_bank = hb;
            return 1;
        }
    }
    return 0;
}

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

/*
 * The first block of set k of bank b in which the window allows an `order` block, and where.
 * Looks at HVMEM__SEARCH_STEPS blocks at most and says where it was cut.
 */
static int search_set(const struct hvmem__bank *b, struct hvmem__window *w, hvmem_u32 k,
                      hvmem_u32 order, hvmem_mfn *head, hvmem_mfn *at)
{
    hvmem_u64 index = w->lo > b->base ? hvmem__block_index(b, w->lo, k) : 0;
    hvmem_u32 steps;

    for (steps = 0; steps < HVMEM__SEARCH_STEPS; steps++, index++) {
        index = hvmem__bits_next(&b->free[k], index);
        if (index == HVMEM__BITS_NONE)
            return 0;
        *head = hvmem__block_mfn(b, index, k);
        if (*head >= w->hi)
            return 0;
        if (fits(w, *head, k, order, at) &&
            !(hvmem__rec_owed(hvmem__load(hvmem__record_at(b, *head))) & w->avoid))
            return 1;
    }
    if (*head + 1 < w->cut)
        w->cut = *head + 1;
    return 0;
}

/* Smallest order >= `order` of a free block in the window, and where. */
static struct hvmem__bank *search(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                  struct hvmem__window *w, hvmem_u32 order, hvmem_u32 *k,
                                  hvmem_mfn *head, hvmem_mfn *at)
{
    struct hvmem__bank *best = HVMEM_NULL;
    hvmem_u32 best_k = heap->max_order + 1, number;

    for (number = arena->first_bank; number != HVMEM__NO_BANK; number = heap->bank[number].next) {
        struct hvmem__bank *b = &heap->bank[number];
        hvmem_u32 left = b->orders >> order << order;

        /* A block of the last order may reach past the bank's end into the window. */
        if (w && (b->base >= w->hi ||
                  hvmem__round_up(b->base + b->frames, (hvmem_u64)1 << heap->max_order) <= w->lo))
            continue;
        for (; left; left &= left - 1) {
            hvmem_u32 o = hvmem__lowest(left);
            hvmem_mfn h, a;

            if (o >= best_k)
                break;
            if (!w) {
                h = a = hvmem__block_mfn(b, hvmem__bits_first(&b->free[o]), o);
            } else if (!search_set(b, w, o, order, &h, &a)) {
                continue;
            }
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

hvmem_u32 hvmem__arena_smallest(struct hvmem_heap *heap, const struct hvmem__arena *arena)
{
    hvmem_u32 orders = 0, number;

    for (number = arena->first_bank; number != HVMEM__NO_BANK; number = heap->bank[number].next)
        orders |= heap->bank[number].orders;
    return orders ? hvmem__lowest(orders) : heap->max_order + 1;
}

int hvmem__arena_take(struct hvmem_heap *heap, struct hvmem__arena *arena, hvmem_u32 order,
                      struct hvmem__window *window, hvmem_mfn *mfn, hvmem__record *record)
{
    hvmem_mfn head = 0, at = 0;
    hvmem_u32 k;
    struct hvmem__bank *b;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    if (window)
        window->cut = HVMEM__NOT_CUT;
    b = search(heap, arena, window, order, &k, &head, &at);
    if (!b)
        return 0;
    *record = hvmem__arena_carve(heap, arena, b, head, k, at, order);
    *mfn = at;
    return 1;
}
