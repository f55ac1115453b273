/* SPDX-License-Identifier: BSD-2-Clause */
/* take.c: from nodes to arenas to blocks, nearest first. */
#include "take.h"

#include "claim.h"
#include "clock.h"
#include "pcpu.h"
#include "run.h"
#include "testpoint.h"

/* Rounds a search that avoids debts goes on after it was cut; colours go on to the end. */
#define AVOID_ROUNDS 16u
/* Times a search that took several holds is made again before memory counts as used up. */
#define REPEATS 2u
/*
 * Work of one hold of a refill, in tens of instructions: for each block, each order that it is split by,
 * what it owes, if anything, and each frame of one that is taken apart, or of one whose dirt differs.
 */
#ifndef HVMEM_BATCH_WORK
#    define HVMEM_BATCH_WORK 300u
#endif
#define BLOCK_WORK  22u
#define ORDER_WORK  4u
#define OWING_WORK  18u
#define FRAME_SHIFT 1u /* half of one */
#define MIXED_WORK  40u
/* Largest part that single frames are taken from of a block whose dirt differs. */
#define MIXED_ORDER 2u
/* Largest remainder that single frames are taken from before a frame that ages: below 2 MiB. */
#define SMALL_ORDER 8u

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

/* Arenas of a node that may have a block of `order`, starting with the CPU's own. */
static hvmem_u64 candidates(const struct hvmem_heap *heap, hvmem_node node, hvmem_u32 order)
{
    return hvmem__load(&heap->node[node].may[order]);
}

/* The next candidate at or after `first`, cyclically. */
static hvmem_u32 next_slot(hvmem_u64 mask, hvmem_u32 first)
{
    hvmem_u64 at_or_after = mask & ~(((hvmem_u64)1 << first) - 1);

    return hvmem__lowest(at_or_after ? at_or_after : mask);
}

/* Where this CPU starts among the arenas of a node, so that CPUs rarely meet. */
static hvmem_u32 first_slot(const struct hvmem_heap *heap)
{
    hvmem_cpu cpu = heap->host.smp ? hvmem__this_cpu(&heap->host) : 0;

    return cpu & (HVMEM__NODE_ARENAS - 1);
}

static struct hvmem__arena *arena_at(struct hvmem_heap *heap, hvmem_node node, hvmem_u32 slot)
{
    return &heap->arena[hvmem__load_acquire(&heap->node[node].arena[slot])];
}

/* A window that allows everything, for arenas whose banks are too many to be passed under one hold. */
static void allow_all(struct hvmem__window *window)
{
    memset(window, 0, sizeof *window);
    window->hi = ~(hvmem_mfn)0;
    window->anywhere = 1;
}

/*
 * One block out of an arena, as `want` says but for the window. Arena lock held. E_NOMEM, E_CLAIM: there
 * is such a block, but claims forbid it; HVMEM_AGAIN: go on under another hold; or done. The head is
 * set before the lock is released, so that nobody can take the block for free or unknown.
 */
static hvmem_status take_locked(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                struct hvmem__want *want, struct hvmem__window *window,
                                hvmem_mfn *mfn, hvmem__record *record)
{
    hvmem_u64 frames = want->count ? want->count : (hvmem_u64)1 << want->order;
    struct hvmem__drawn *drawn = &want->drawn;
    struct hvmem__spot spot;
    hvmem_status status = hvmem__arena_search(heap, arena, window, want->order, &spot);
    struct hvmem__bank *b;

    if (status)
        return status;
    want->drawn_on = arena->node;
    hvmem__claim_take(heap, arena, want->domain, frames, drawn);
    if (drawn->frames != frames) {
        hvmem__claim_untake(heap, arena, drawn, drawn->frames);
        return HVMEM_E_CLAIM;
    }
    *mfn = spot.at;
    *record =
        hvmem__arena_carve(heap, arena, spot.bank, spot.head, spot.order, spot.at, want->order) |
        (want->keep & ~(hvmem__record)31u);
    b = hvmem__arena_bank(heap, arena, spot.bank, spot.at);
    if (want->count)
        hvmem__run_keep(heap, arena, b, *mfn, *record, want->count);
    else
        hvmem__arena_mark(b, *mfn, *record);
    return HVMEM_OK;
}

/* One search of an arena, through as many holds of its lock as it takes. 1 in *several: it took several. */
static hvmem_status take_once(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__want *want, struct hvmem__window *window,
                              hvmem_mfn *mfn, hvmem__record *record, int *several)
{
    hvmem_status status;

    for (;;) {
        hvmem_u64 state = hvmem__lock_arena(heap, arena);

        if (window)
            hvmem__window_hold(window, HVMEM_HOLD_WORK);
        status = take_locked(heap, arena, want, window, mfn, record);
        if (status == HVMEM_E_NOMEM && !window)
            hvmem__arena_exhausted(heap, arena, want->order);
        hvmem__unlock_arena(heap, arena, state);
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
        allow_all(&all);
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
        hvmem_u64 left = candidates(heap, node, want->order);
        hvmem_u32 slot = left ? first_slot(heap) : 0;

        nodes &= ~((hvmem_u64)1 << node);
        while (left) {
            hvmem_status one;

            slot = next_slot(left, slot);
            left &= ~((hvmem_u64)1 << slot);
            one = take_from(heap, arena_at(heap, node, slot), want, mfn, record);
            if (!one)
                return HVMEM_OK;
            if (one == HVMEM_E_CLAIM)
                status = one;
        }
    }
    return status;
}

/* As hvmem__take_plain_some(). */
HVMEM_INLINE hvmem_u32 take_plain(struct hvmem_heap *heap, hvmem__record keep, hvmem_mfn *blocks,
                                  hvmem_u32 n)
{
    hvmem_cpu cpu = heap->host.smp ? hvmem__this_cpu(&heap->host) : 0;
    hvmem_u32 order = hvmem__rec_order(keep), got = 0;
    struct hvmem__arena *arena;
    struct hvmem__bank *b;
    hvmem_node node;
    hvmem_u64 left, state;

    HVMEM__ASSERT(&heap->host, cpu < heap->max_cpus);
    node = heap->cpu_node[cpu];
    left = candidates(heap, node, order);
    if (!left)
        return 0;
    arena = arena_at(heap, node, next_slot(left, cpu & (HVMEM__NODE_ARENAS - 1)));
    state = hvmem__lock_arena(heap, arena);
    while (hvmem__likely(arena->plain)) {
        hvmem_mfn found;

        b = hvmem__arena_take_plain(heap, arena, order, &found);
        if (hvmem__unlikely(!b))
            break;
        hvmem__arena_mark_taken(b, found, keep);
        hvmem__store(&blocks[got], found);
        if (++got == n) {
            hvmem__pcpu_met(heap, b);
            break;
        }
    }
    hvmem__unlock_arena(heap, arena, state);
    return got;
}

int hvmem__take_plain(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn)
{
    return (int)take_plain(heap, hvmem__rec_make(order, HVMEM_BLOCK_ALLOCATED, 0), mfn, 1);
}

hvmem_u32 hvmem__take_plain_some(struct hvmem_heap *heap, hvmem__record keep, hvmem_mfn *blocks,
                                 hvmem_u32 n)
{
    return take_plain(heap, keep, blocks, n);
}

/* ---- batches -------------------------------------------------------------------------------- */

/* What a block that was taken, of one dirt or kept whole, adds to what the batch owes: its record. */
static HVMEM_NOINLINE hvmem__record add_debts(struct hvmem_heap *heap, struct hvmem__batch *batch,
                                              hvmem__record record)
{
    if (!hvmem__immature(heap, record))
        record = hvmem__flush_paid(record);
    batch->owed |= hvmem__rec_owed(record);
    hvmem__tally_add(heap, &batch->tally, record);
    return record;
}

/* The record of a block that was taken. Arena lock held. */
HVMEM_INLINE hvmem__record taken(struct hvmem_heap *heap, struct hvmem__batch *batch,
                                 hvmem__record record)
{
    record |= batch->keep;
    return hvmem__unlikely(hvmem__rec_owed(record)) ? add_debts(heap, batch, record) : record;
}

/* Mark the frames of a block as single frames of the batch. Arena lock held. */
static void explode(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                    hvmem_mfn mfn, hvmem__record record, struct hvmem__batch *batch,
                    hvmem_mfn *blocks)
{
    hvmem_u32 order = hvmem__rec_order(record), i;
    hvmem__record left, right;

    if (order && hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED) {
        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        explode(heap, arena, b, mfn, left, batch, blocks);
        explode(heap, arena, b, mfn + ((hvmem_u64)1 << (order - 1)), right, batch,
                blocks + ((hvmem_u64)1 << (order - 1)));
        return;
    }
    record = hvmem__rec_with_order(taken(heap, batch, record), 0);
    if (hvmem__likely(hvmem__bank_holds(b, mfn + ((1u << order) - 1)))) {
        hvmem__record *records = hvmem__record_at(b, mfn);

        hvmem__table_changes(b->table);
        for (i = 0; i < 1u << order; i++) {
            hvmem__store(&records[i], record);
            hvmem__store(&blocks[i], mfn + i);
        }
        hvmem__bits_set_range(&b->head, mfn - b->base, (hvmem_u64)1 << order);
        return;
    }
    for (i = 0; i < 1u << order; i++) {
        struct hvmem__bank *fb = hvmem__arena_bank(heap, arena, b, mfn + i);

        hvmem__arena_mark(fb, mfn + i, record);
        hvmem__store(&blocks[i], mfn + i);
    }
}

/* What a supply allows, as a window into *allowed; NULL: anything. Arena lock held. */
static struct hvmem__window *limit_to(const struct hvmem__arena *arena,
                                      const struct hvmem__batch *batch,
                                      struct hvmem__window *allowed)
{
    enum hvmem__supply of = batch->of;
    int any =
        of == HVMEM__SUPPLY_ANY || (of == HVMEM__SUPPLY_CLEAN && hvmem__likely(!arena->owing));

    if (any && hvmem__likely(!hvmem__arena_many(arena)))
        return HVMEM_NULL;
    allow_all(allowed);
    if (any)
        return allowed;
    allowed->anywhere = 0;
    allowed->avoid = HVMEM__OWES_FLUSH;
    if (of == HVMEM__SUPPLY_SMALL)
        allowed->largest = batch->order ? batch->order : SMALL_ORDER;
    return allowed;
}

/*
 * Take the next block, or for single frames up to `most` of one block. How many were taken; 0 with the
 * reason in *status. What is left of the work is in *work. Arena lock held.
 */
static hvmem_u32 batch_next(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__batch *batch, struct hvmem__window *window,
                            hvmem_mfn *blocks, hvmem_u32 most, hvmem_u32 *work,
                            hvmem_status *status)
{
    hvmem_u32 size = batch->order, cost = BLOCK_WORK;
    struct hvmem__spot spot;
    hvmem__record record;

    *status = window ? hvmem__arena_search(heap, arena, window, size, &spot)
                     : hvmem__arena_first(arena, size, &spot);
    if (*status)
        return 0;
    if (hvmem__unlikely(window != HVMEM_NULL)) {
        *work = window->work;
        hvmem__window_passed(window, spot.head, spot.order);
    }
    record = hvmem__load(hvmem__record_at(spot.bank, spot.head));
    if (!size) {
        /* Not more than the smallest free block holds: small remainders go first. */
        size = hvmem__highest(most);
        size = size < spot.order ? size : spot.order;
        if (hvmem__unlikely(hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED)) {
            size = size < MIXED_ORDER ? size : MIXED_ORDER;
            cost += (MIXED_WORK << size) + (spot.order - size) * ORDER_WORK;
        }
        cost += ((hvmem_u32)1 << size) >> FRAME_SHIFT;
    }
    if (hvmem__unlikely(hvmem__rec_owed(record)))
        cost += OWING_WORK;
    cost += (spot.order - size) * ORDER_WORK;
    *work = *work > cost ? *work - cost : 0;
    record = hvmem__arena_carve(heap, arena, spot.bank, spot.head, spot.order, spot.head, size);
    if (size != batch->order) {
        explode(heap, arena, spot.bank, spot.head, record, batch, blocks);
        return 1u << size;
    }
    hvmem__arena_mark(spot.bank, spot.head, taken(heap, batch, record));
    hvmem__store(blocks, spot.head);
    return 1;
}

/*
 * Up to n blocks out of one arena, smallest blocks first; for single frames a larger block is taken
 * apart whole. Arena lock held; cut by work done. Without any: why, or HVMEM_AGAIN if the search is to go on.
 */
static hvmem_status batch_locked(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__batch *batch, struct hvmem__window *window,
                                 hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 *got)
{
    hvmem_u32 work = HVMEM_BATCH_WORK;
    hvmem_status status = HVMEM_OK;

    while (*got < n && work) {
        if (hvmem__unlikely(window != HVMEM_NULL))
            hvmem__window_hold(window, work);
        *got += batch_next(heap, arena, batch, window, blocks + *got, n - *got, &work, &status);
        if (status)
            break;
        /* Those that were passed over would be looked at again for every block. */
        if (hvmem__unlikely(window && window->cut != HVMEM__NOT_CUT)) {
            batch->cut = 1;
            break;
        }
    }
    return *got ? HVMEM_OK : status;
}

/* One hold of batch_from(): *got grows by what it gave. Arena lock held. */
static hvmem_status batch_hold(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__batch *batch, struct hvmem__window *window,
                               hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 *got)
{
    const hvmem_u32 order = batch->order;
    hvmem_status status = HVMEM_E_CLAIM;
    struct hvmem__drawn drawn;
    hvmem_u32 more = 0;

    hvmem__claim_take(heap, arena, batch->domain, (hvmem_u64)(n - *got) << order, &drawn);
    if (hvmem__unlikely(!hvmem__claim_joins(&batch->drawn, &drawn))) {
        hvmem__claim_untake(heap, arena, &drawn, drawn.frames);
        return HVMEM_E_CLAIM;
    }
    if (drawn.frames >> order)
        status = batch_locked(heap, arena, batch, window, blocks + *got,
                              (hvmem_u32)(drawn.frames >> order), &more);
    if (status == HVMEM_E_NOMEM && !hvmem__arena_many(arena) && !hvmem__arena_has(arena, order))
        hvmem__arena_exhausted(heap, arena, order);
    hvmem__claim_untake(heap, arena, &drawn, drawn.frames - ((hvmem_u64)more << order));
    hvmem__claim_join(&batch->drawn, &drawn);
    *got += more;
    return status;
}

/* A batch out of one arena, within what claims leave, through as many holds of its lock as it takes. */
static hvmem_status batch_from(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__batch *batch, hvmem_mfn *blocks, hvmem_u32 n,
                               hvmem_u32 *got)
{
    struct hvmem__window allowed, *window = HVMEM_NULL;
    hvmem_status status;

    *got = 0;
    do {
        hvmem_u64 state = hvmem__lock_arena(heap, arena);

        if (!window)
            window = limit_to(arena, batch, &allowed);
        status = batch_hold(heap, arena, batch, window, blocks, n, got);
        hvmem__unlock_arena(heap, arena, state);
        if (*got == n || batch->cut)
            break;
        (void)HVMEM_TEST_POINT("refill_again");
    } while (!status || status == HVMEM_AGAIN);
    return *got ? HVMEM_OK : status;
}

hvmem_status hvmem__take_batch(struct hvmem_heap *heap, struct hvmem__batch *batch,
                               hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 *got)
{
    hvmem_status status = HVMEM_E_NOMEM, one;
    hvmem_u64 left;
    hvmem_u32 slot;

    *got = 0;
    left = candidates(heap, batch->node, batch->order);
    slot = left ? first_slot(heap) : 0;
    while (left) {
        slot = next_slot(left, slot);
        left &= ~((hvmem_u64)1 << slot);
        one = batch_from(heap, arena_at(heap, batch->node, slot), batch, blocks, n, got);
        if (!one)
            return HVMEM_OK;
        if (one == HVMEM_E_CLAIM)
            status = one;
    }
    return status;
}
