/* SPDX-License-Identifier: BSD-2-Clause */
/* batch.c: many blocks of one order out of one arena, in holds of bounded work. */
#include "clock.h"
#include "take.h"
#include "testpoint.h"

/*
 * Work of one hold of a refill, in tens of instructions: for each block, each order that it is split by,
 * what it owes, if anything, and each frame of one that is taken apart, or of one whose dirt differs.
 */
#define BATCH_WORK  HVMEM__PER_HOLD(300u)
#define BLOCK_WORK  22u
#define ORDER_WORK  4u
#define OWING_WORK  18u
#define FRAME_SHIFT 1u /* half of one */
#define MIXED_WORK  40u
/* Largest part that single frames are taken from of a block whose dirt differs. */
#define MIXED_ORDER 2u
/* Largest remainder that single frames are taken from before a frame that ages: below 2 MiB. */
#define SMALL_ORDER 8u

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
    hvmem__window_all(allowed);
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
        *work = window->hold.work;
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
    hvmem__spend(work, cost);
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
    hvmem_u32 work = BATCH_WORK;
    hvmem_status status = HVMEM_OK;

    while (*got < n && work) {
        if (hvmem__unlikely(window != HVMEM_NULL))
            hvmem__hold_begin(&window->hold, work);
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

/* One hold of hvmem__batch_from(): *got grows by what it gave. Arena lock held. */
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
    if (status == HVMEM_E_NOMEM && (hvmem__arena_many(arena) ? hvmem__arena_searched(arena, window)
                                                             : !hvmem__arena_has(arena, order)))
        hvmem__arena_exhausted(heap, arena, order);
    hvmem__claim_untake(heap, arena, &drawn, drawn.frames - ((hvmem_u64)more << order));
    hvmem__claim_join(&batch->drawn, &drawn);
    *got += more;
    return status;
}

hvmem_status hvmem__batch_from(struct hvmem_heap *heap, struct hvmem__arena *arena,
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
