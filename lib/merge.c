/* SPDX-License-Identifier: BSD-2-Clause */
/* merge.c: a block back into the sets of its arena, merged with its buddies. */
#include "sets.h"

#include "clock.h"

/* Orders up to which the blocks around a frame of bank b lie in it, max_order at most. */
HVMEM_INLINE hvmem_u32 orders_within(const struct hvmem__bank *b, hvmem_mfn mfn,
                                     hvmem_u32 max_order)
{
    hvmem_u32 below = hvmem__highest(mfn ^ (b->base - 1)),
              above = hvmem__highest(mfn ^ (b->base + b->frames));

    below = below < above ? below : above;
    return below < max_order ? below : max_order;
}

#define RISEN_ALL 0x100u /* above any order */

/*
 * Take the buddies that a block which owes nothing merges with out of their sets, as far as they owe
 * nothing either, up to order `last`; the blocks up to there lie in bank b. These are the levels that
 * most blocks rise by. Returns the order it rises to; RISEN_ALL with it if the next buddy is not free
 * or there is none. Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise_clean(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                           hvmem_u32 last)
{
    hvmem_u64 size = (hvmem_u64)1 << order, end = (hvmem_u64)1 << last;
    hvmem_mfn *front = &b->table->front[order];
    const hvmem_uptr records = hvmem__records_of(b);
    hvmem_u32 taken = 0, all = 0;

    for (; size < end; size <<= 1, front++) {
        hvmem_mfn buddy = mfn ^ size;

        /* (Of a buddy that is not free this means nothing: the other way finds out.) */
        if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(hvmem__record_in(records, buddy)))))
            break;
        if (!hvmem__set_take_one(b, front, buddy, size, &taken)) {
            all = RISEN_ALL;
            break;
        }
        mfn &= buddy;
    }
    hvmem__set_taken(b, taken);
    return hvmem__lowest(size) | all;
}

/* What a block that rises owes. */
struct rising {
    hvmem__record owed; /* records of its parts, one over the other: what they owe, SCRUB apart */
    hvmem__record mark;
    hvmem_u64 youth; /* of the youngest stamp */
    hvmem_u64 now;
};

/*
 * A block with its record at *mine merges with its buddy, whose record is at *theirs: debts add up, the
 * younger stamp counts. Where their dirt differs the node's record, which lives at the right half's
 * first frame, keeps both. Arena lock held.
 */
HVMEM_INLINE void merge_debts(struct rising *block, hvmem__record *mine, hvmem__record *theirs,
                              int theirs_is_left)
{
    hvmem__record other = hvmem__load(theirs), mark = hvmem__rec_mark(other);
    hvmem_u64 youth = hvmem__stamp_youth(other, block->now);

    block->owed |= other;
    if (youth > block->youth)
        block->youth = youth;
    if (mark == block->mark && mark != HVMEM__MARK_MIXED)
        return;
    if (theirs_is_left)
        hvmem__store(mine, hvmem__node_make(mark, block->mark));
    else
        hvmem__store(theirs, hvmem__node_make(block->mark, mark));
    block->mark = HVMEM__MARK_MIXED;
}

/*
 * As rise_clean(), whatever is owed.
 */
HVMEM_INLINE hvmem_u32 rise_owing(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                  hvmem_u32 last, struct rising *rising)
{
    hvmem_u64 size = (hvmem_u64)1 << order, end = (hvmem_u64)1 << last;
    hvmem_mfn *front = &b->table->front[order];
    const hvmem_uptr records = hvmem__records_of(b);
    struct rising block = *rising;
    hvmem_u32 taken = 0;

    for (; size < end; size <<= 1, front++) {
        hvmem_mfn buddy = mfn ^ size;

        if (!hvmem__set_take_one(b, front, buddy, size, &taken))
            break;
        merge_debts(&block, hvmem__record_in(records, mfn), hvmem__record_in(records, buddy),
                    buddy < mfn);
        mfn &= buddy;
    }
    hvmem__set_taken(b, taken);
    *rising = block;
    return hvmem__lowest(size) | (size < end ? RISEN_ALL : 0);
}

/*
 * As rise_owing(), of a block that spans banks or will with its buddy: from there on every buddy lies in
 * another bank, or may. *bank, which holds the block's head, and *mfn follow the block. Returns its order.
 */
HVMEM_INLINE hvmem_u32 rise_across(struct hvmem__bank **bank, hvmem_mfn *mfn, hvmem_u32 order,
                                   hvmem_u32 max_order, struct rising *block)
{
    struct hvmem__bank *b = *bank, *far = b; /* far: where the search above the block starts */

    for (; order < max_order; order++) {
        hvmem_u64 size = (hvmem_u64)1 << order;
        hvmem_mfn buddy = *mfn ^ size;
        int is_left = buddy < *mfn;
        struct hvmem__bank *bb = hvmem__bank_near(is_left ? b : far, buddy);

        if (!bb)
            break;
        hvmem__table_changes(bb->table); /* in case it does */
        if (!hvmem__set_take(bb, buddy, order))
            break;
        merge_debts(block, hvmem__record_at(b, *mfn), hvmem__record_at(bb, buddy), is_left);
        if (is_left) {
            if (bb != b) /* the union counts where its head lies */
                hvmem__move_frames(b, bb, size);
            b = bb;
            *mfn = buddy;
        } else {
            if (bb != b)
                hvmem__move_frames(bb, b, size);
            far = bb;
        }
    }
    *bank = b;
    return order;
}

/*
 * Enter a block, its frames counted in bank b, after merging it with its buddies, whatever it owes and
 * wherever they lie; up to order `last` the blocks around it lie in b. Returns its work, as
 * hvmem__arena_give(). Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                     struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                                     hvmem_u32 last)
{
    hvmem_u32 order = hvmem__rec_order(record), from = order, owed;
    struct rising block;

    block.now = hvmem__load(&heap->clock.now);
    block.owed = record;
    block.mark = hvmem__mark_of(hvmem__rec_dirt(record));
    block.youth = hvmem__stamp_youth(record, block.now);
    if (order < last)
        order = rise_owing(b, mfn, order, last, &block);
    if (order >= last && order < RISEN_ALL) {
        mfn = mfn >> order << order;
        order = rise_across(&b, &mfn, order, heap->max_order, &block);
    }
    order &= ~RISEN_ALL;
    mfn = mfn >> order << order;
    owed = hvmem__rec_owed(block.owed) & ~HVMEM_OWES_SCRUB;
    record = hvmem__rec_with_owed(hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0), owed);
    if (owed & HVMEM__OWES_FLUSH)
        record = hvmem__rec_with_stamp(record, hvmem__stamp_of_youth(block.youth, block.now));
    hvmem__enter(b, mfn, order, hvmem__rec_with_mark(record, block.mark));
    hvmem__arena_offer(heap, arena, order);
    return 2 * (order - from); /* merging debts costs twice as much */
}

hvmem_u32 hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    hvmem_u32 order = hvmem__rec_order(record), from = order, risen,
              last = orders_within(b, mfn, heap->max_order);

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    HVMEM__ASSERT2(&heap->host, hvmem__arena_of(heap, b) == arena);
    hvmem__store(&b->free_frames, b->free_frames + ((hvmem_u64)1 << order));
    if (hvmem__unlikely(hvmem__rec_owed(record))) {
        if (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH)
            arena->owing = 1;
        return rise(heap, arena, b, mfn, record, last);
    }
    risen = order;
    if (order < last) {
        hvmem_mfn buddy = mfn ^ (hvmem_u64)1 << order;

        /* Mostly there is nothing to merge with. */
        if (!hvmem__set_has(b, buddy, order))
            risen |= RISEN_ALL;
        else if (!hvmem__rec_owed(hvmem__load(hvmem__record_at(b, buddy))))
            risen = rise_clean(b, mfn, order, last);
    }
    order = risen & ~RISEN_ALL;
    mfn = mfn >> order << order;
    record = hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0);
    if (hvmem__unlikely(risen < heap->max_order)) /* RISEN_ALL is above it */
        return order - from + rise(heap, arena, b, mfn, record, last);
    hvmem__enter(b, mfn, order, record);
    hvmem__arena_offer(heap, arena, order);
    return order - from;
}
