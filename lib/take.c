/* SPDX-License-Identifier: BSD-2-Clause */
/* take.c: from nodes to arenas to blocks, nearest first. */
#include "take.h"

#include "claim.h"
#include "clock.h"
#include "hand.h"
#include "pcpu.h"
#include "run.h"
#include "testpoint.h"

/* Rounds a search that avoids debts goes on after it was cut; colours go on to the end. */
#define AVOID_ROUNDS 16u
/* Times a search that took several holds is made again before memory counts as used up. */
#define REPEATS 2u
static hvmem_u32 distance(const struct hvmem_heap *heap, hvmem_node a, hvmem_node b)
{
    if (a < heap->distance_nodes && b < heap->distance_nodes)
        return heap->distance[a * heap->distance_nodes + b];
    return a == b ? 10 : 20;
}

hvmem_node hvmem__nearest(const struct hvmem_heap *heap, hvmem_node from, hvmem_u64 mask)
{
    hvmem_node best = hvmem__lowest(mask);

    if (mask >> (from & 63) & 1 && from < HVMEM_NODE_LIMIT)
        return from;
    for (mask &= mask - 1; mask; mask &= mask - 1) {
        hvmem_node node = hvmem__lowest(mask);

        if (distance(heap, from, node) < distance(heap, from, best))
            best = node;
    }
    return best;
}

hvmem_u32 hvmem__return_block(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(record);

    hvmem__arena_unmark(b, mfn);
    hvmem__claim_give(heap, arena, frames);
    return hvmem__arena_give(heap, arena, b, mfn, record);
}

hvmem_u32 hvmem__return_frames(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_u64 frames = (hvmem_u64)1 << order;

    hvmem__table_changes(b->table);
    hvmem__bits_clear_range(&b->head, mfn - b->base, frames);
    hvmem__claim_give(heap, arena, frames);
    return hvmem__arena_give(heap, arena, b, mfn, hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0));
}

/* The calling CPU's (hvmem__first_slot()). */
static hvmem_u32 first_slot(const struct hvmem_heap *heap)
{
    return hvmem__first_slot(hvmem__pcpu_number(heap));
}

/* Search, and ask for the claims. HVMEM_OK: the block is in the hand. As take_locked(). */
static hvmem_status find_block(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__want *want, struct hvmem__window *window,
                               struct hvmem__hand *hand)
{
    hvmem_u64 frames = want->count ? want->count : (hvmem_u64)1 << want->order;
    struct hvmem__drawn *drawn = &want->drawn;
    struct hvmem__spot spot;
    hvmem_status status = hvmem__arena_search(heap, arena, window, want->order, &spot);
    hvmem_u32 stop;

    if (status)
        return status;
    want->drawn_on = arena->node;
    hvmem__claim_take(heap, arena, want->domain, frames, drawn);
    if (drawn->frames != frames) {
        hvmem__claim_untake(heap, arena, drawn, drawn->frames);
        return HVMEM_E_CLAIM;
    }
    stop = hvmem__hand_stop(&spot, want->order);
    hvmem__hand_take(heap, arena, hand, &spot, stop);
    hvmem__claim_force(heap, arena, ((hvmem_u64)1 << stop) - ((hvmem_u64)1 << want->order));
    return HVMEM_OK;
}

/*
 * One block out of an arena, as `want` says but for the window. Arena lock held. E_NOMEM, E_CLAIM: there
 * is such a block, but claims forbid it; HVMEM_AGAIN: go on under another hold; or done. The head is
 * set before the lock is released, so that nobody can take the block for free or unknown.
 */
static hvmem_status take_locked(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                struct hvmem__want *want, struct hvmem__window *window,
                                struct hvmem__hand *hand, hvmem__record *record)
{
    hvmem_status status;

    if (hvmem__likely(!hand->bank)) {
        status = find_block(heap, arena, want, window, hand);
        if (status)
            return status;
    } else {
        hvmem__hand_split(heap, arena, hand, want->order);
    }
    if (hvmem__unlikely(hvmem__rec_order(hand->record) != want->order)) {
        hvmem__hand_keep(hand);
        return HVMEM_AGAIN;
    }
    *record = hand->record | (want->keep & ~(hvmem__record)31u);
    if (want->count)
        hvmem__run_keep(heap, arena, hand->bank, hand->mfn, *record, want->count);
    else
        hvmem__arena_mark(hand->bank, hand->mfn, *record);
    return HVMEM_OK;
}

/* One search of an arena, through as many holds of its lock as it takes. 1 in *several: it took several. */
static hvmem_status take_once(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__want *want, struct hvmem__window *window,
                              hvmem_mfn *mfn, hvmem__record *record, int *several)
{
    struct hvmem__hand hand = {HVMEM_NULL, 0, 0, 0};
    hvmem_status status;

    for (;;) {
        hvmem_u64 state = hvmem__lock_arena(heap, arena);

        if (window)
            hvmem__hold_begin(&window->hold, HVMEM__SEARCH_WORK);
        status = take_locked(heap, arena, want, window, &hand, record);
        if (status == HVMEM_E_NOMEM && (!window || hvmem__arena_searched(arena, window)))
            hvmem__arena_exhausted(heap, arena, want->order);
        hvmem__unlock_arena(heap, arena, state);
        *mfn = hand.mfn;
        if (status != HVMEM_AGAIN)
            return status;
        *several = 1;
        (void)HVMEM_TEST_POINT("take_again");
    }
}

/*
 * One arena: search again from the cut until done, found, or out of rounds. What others did between two
 * holds may have hidden from a search what was free all the time: one that found nothing is made again.
 */
static hvmem_status take_from(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__want *want, hvmem_mfn *mfn, hvmem__record *record)
{
    struct hvmem__window all, *window = want->window;
    hvmem_u32 rounds = 0, repeats = 0;
    hvmem_status status;
    hvmem_mfn lo;
    int several = 0;

    if (!window && hvmem__unlikely(hvmem__arena_many(arena))) {
        hvmem__window_all(&all);
        window = &all;
    }
    lo = window ? window->lo : 0;
    for (;;) {
        status = take_once(heap, arena, want, window, mfn, record, &several);
        if (status != HVMEM_E_NOMEM || !window)
            break;
        if (window->cut != HVMEM__NOT_CUT) {
            several = 1;
            if (window->avoid && ++rounds == AVOID_ROUNDS)
                break;
            window->lo = window->cut;
        } else if (several && !window->avoid && repeats++ < REPEATS) {
            several = 0;
            window->lo = lo;
        } else {
            break;
        }
    }
    if (window)
        window->lo = lo;
    return status;
}

hvmem_status hvmem__take(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_mfn *mfn,
                         hvmem__record *record)
{
    hvmem_u64 nodes = want->node_mask;
    hvmem_status status = HVMEM_E_NOMEM;

    while (nodes) {
        hvmem_node node = hvmem__nearest(heap, want->node, nodes);
        hvmem_u64 left = hvmem__candidates(heap, node, want->order);
        hvmem_u32 slot = left ? first_slot(heap) : 0;

        nodes &= ~((hvmem_u64)1 << node);
        while (left) {
            hvmem_status one;

            slot = hvmem__next_slot(left, slot);
            left &= ~((hvmem_u64)1 << slot);
            one = take_from(heap, hvmem__arena_at(heap, node, slot), want, mfn, record);
            if (!one)
                return HVMEM_OK;
            if (one == HVMEM_E_CLAIM)
                status = one;
        }
    }
    return status;
}

/* ---- batches --------------------------------------------------------------------------------- */

hvmem_status hvmem__take_batch(struct hvmem_heap *heap, struct hvmem__batch *batch,
                               hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 *got)
{
    hvmem_status status = HVMEM_E_NOMEM, one;
    hvmem_u64 left;
    hvmem_u32 slot;

    *got = 0;
    left = hvmem__candidates(heap, batch->node, batch->order);
    slot = left ? first_slot(heap) : 0;
    while (left) {
        slot = hvmem__next_slot(left, slot);
        left &= ~((hvmem_u64)1 << slot);
        one = hvmem__batch_from(heap, hvmem__arena_at(heap, batch->node, slot), batch, blocks, n,
                                got);
        if (!one)
            return HVMEM_OK;
        if (one == HVMEM_E_CLAIM)
            status = one;
    }
    return status;
}
