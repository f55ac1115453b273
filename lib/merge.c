/* SPDX-License-Identifier: BSD-2-Clause */
/* merge.c: a block back into the sets of its arena, merged with its buddies. */
#include "sets.h"

#include "clock.h"
#include "testpoint.h"

/* Orders up to which the blocks around a frame of bank b lie in it, max_order at most. */
HVMEM_INLINE hvmem_u32 orders_within(const struct hvmem__bank *b, hvmem_mfn mfn,
                                     hvmem_u32 max_order)
{
    hvmem_u32 below = hvmem__highest(mfn ^ (b->base - 1)),
              above = hvmem__highest(mfn ^ (b->base + b->frames));

    below = below < above ? below : above;
    return below < max_order ? below : max_order;
}

/*
 * Work of merging under one hold, in tens of instructions. Blocks that owe nothing and stand in front of
 * their sets are not counted, all of them together cost less than what else a hold may do.
 */
#define MERGE_WORK  HVMEM__PER_HOLD(35u)
#define AMONG_WORK  16u /* a buddy out of a bitmap */
#define RISE_WORK   8u  /* to begin with debts after that */
#define OWING_WORK  4u  /* debts that are merged */
#define ACROSS_WORK 10u /* the same, and perhaps from one bank to the next */
#define FAR_WORK    25u /* a bank looked up */
#define NEAR_WORK   6u  /* after more, the next hold looks it up */

/* Levels by the front of a set that are as much work as one out of a bitmap. */
#define FRONTS 3u
/* Levels between two counts of them; all that one hold does. */
#define STRIDE      15u
#define MOST_LEVELS 18u

#define RISEN_ALL   0x100u /* above any order */
#define RISEN_CUT   0x200u /* the work of this hold is used up */
#define RISEN_ORDER 0xffu

/*
 * Where a block stops that rose from `order` by the levels below `size`, those of `taken` by the front of a
 * set: below the order at which it may have met more bitmaps than one hold may, as frames of a block; `size`
 * if it is cut there. spread: the orders ahead of it that have a bitmap.
 */
static HVMEM_NOINLINE hvmem_u64 next_stop(hvmem_u32 spread, hvmem_u32 order, hvmem_u64 size,
                                          hvmem_u32 taken, hvmem_u32 climb)
{
    hvmem_u32 at = hvmem__lowest(size), fronts = hvmem__weight(taken), used = at - order - fronts;

    if (HVMEM_STEPS || at - order >= MOST_LEVELS)
        return size;
    if (!spread)
        return (hvmem_u64)1 << (at + STRIDE);
    spread |= 1u << (at + STRIDE < 31 ? at + STRIDE : 31);
    fronts += hvmem__lowest(spread) - at; /* up to the next bitmap */
    for (used += (fronts + FRONTS - 1) / FRONTS; used < climb && (spread & (spread - 1)); used++)
        spread &= spread - 1;
    return (hvmem_u64)1 << hvmem__lowest(spread);
}

/*
 * Take the buddies that a block which owes nothing merges with out of their sets, as far as they owe
 * nothing either, up to order `last`; the blocks up to there lie in bank b. These are the levels that
 * most blocks rise by. Returns the order it rises to; RISEN_ALL with it if the next buddy is not free
 * or there is none, or RISEN_CUT as well. Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise_clean(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                           hvmem_u32 last, hvmem_u32 climb)
{
    hvmem_u64 size = (hvmem_u64)1 << order, end = (hvmem_u64)1 << last, stop = size << climb;
    hvmem_mfn *front = &b->table->front[order];
    const hvmem_uptr records = hvmem__records_of(b);
    hvmem_u32 taken = 0, all = 0;

    for (stop = stop < end ? stop : end;; size <<= 1, front++) {
        hvmem_mfn buddy = mfn ^ size;

        if (hvmem__unlikely(size == stop)) {
            if (size == end)
                break;
            stop = taken ? next_stop(b->spread & (hvmem_u32)(end - size), order, size, taken, climb)
                         : size;
            if (size == stop) {
                all = RISEN_ALL | RISEN_CUT;
                break;
            }
            stop = stop < end ? stop : end;
        }
        /* (Of a buddy that is not free this means nothing: the other way finds out.) */
        if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(hvmem__record_in(records, buddy)))))
            break;
        if (!hvmem__set_take_front(front, buddy, size, &taken) &&
            !hvmem__set_take_from_bitmap(b, buddy, hvmem__lowest(size))) {
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
    hvmem_u32 work; /* done under this hold of the lock */
};

/* Whether a hold has done its work: who asks has risen in it by a level, or did no work yet. */
HVMEM_INLINE int is_cut(const struct rising *block)
{
    return hvmem__unlikely(block->work >= MERGE_WORK);
}

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
    hvmem_u32 taken = 0, cut = 0;

    for (; size < end; size <<= 1, front++) {
        hvmem_mfn buddy = mfn ^ size;

        if (is_cut(&block)) {
            cut = RISEN_CUT;
            break;
        }
        block.work += *front == buddy ? OWING_WORK : OWING_WORK + AMONG_WORK;
        if (!hvmem__set_take_one(b, front, buddy, size, &taken))
            break;
        merge_debts(&block, hvmem__record_in(records, mfn), hvmem__record_in(records, buddy),
                    buddy < mfn);
        mfn &= buddy;
    }
    hvmem__set_taken(b, taken);
    *rising = block;
    return hvmem__lowest(size) | (size < end ? RISEN_ALL : 0) | cut;
}

/* The bank that holds mfn, or NULL, if it is `near` or would be the next: whether that is known. */
HVMEM_INLINE int bank_beside(struct hvmem__bank *near, hvmem_mfn mfn, struct hvmem__bank **bank)
{
    struct hvmem__bank *next = mfn < near->base ? near->before : near->next;

    *bank = hvmem__bank_holds(near, mfn) ? near : next;
    return !*bank || hvmem__bank_holds(*bank, mfn);
}

/*
 * As rise_owing(), of a block that spans banks or will with its buddy: from there on every buddy lies in
 * another bank, or may. *bank, which holds the block's head, and *mfn follow the block. Returns its order,
 * perhaps with RISEN_CUT.
 */
static hvmem_u32 rise_across(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                             struct hvmem__bank **bank, hvmem_mfn *mfn, hvmem_u32 order,
                             struct rising *block)
{
    struct hvmem__bank *b = *bank, *far = b; /* far: where the search above the block starts */

    for (; order < heap->max_order; order++) {
        hvmem_u64 size = (hvmem_u64)1 << order;
        hvmem_mfn buddy = *mfn ^ size;
        int is_left = buddy < *mfn;
        struct hvmem__bank *bb;
        int known = bank_beside(is_left ? b : far, buddy, &bb);

        if (is_cut(block) || (!known && block->work > NEAR_WORK)) {
            *bank = b;
            return order | RISEN_CUT;
        }
        if (!known)
            bb = hvmem__arena_bank_listed(heap, arena, buddy);
        if (!bb)
            break;
        block->work += known ? ACROSS_WORK : ACROSS_WORK + FAR_WORK;
        block->work += bb->table->front[order] == buddy ? 0 : AMONG_WORK;
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
 * wherever they lie; up to order `last` the blocks around it lie in b. `work` was done already. Returns
 * as hvmem__arena_give(). Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                     struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                                     hvmem_u32 last, hvmem_u32 work)
{
    hvmem_u32 order = hvmem__rec_order(record), from = order, owed, cut;
    struct rising block;

    block.now = hvmem__load(&heap->clock.now);
    block.owed = record;
    block.mark = hvmem__mark_of(hvmem__rec_dirt(record));
    block.youth = hvmem__stamp_youth(record, block.now);
    block.work = work;
    if (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH)
        arena->owing = 1;
    if (order < last)
        order = rise_owing(b, mfn, order, last, &block);
    if (order >= last && order < RISEN_ALL) {
        mfn = mfn >> order << order;
        order = rise_across(heap, arena, &b, &mfn, order, &block);
    }
    cut = order & RISEN_CUT;
    order &= RISEN_ORDER;
    mfn = mfn >> order << order;
    owed = hvmem__rec_owed(block.owed) & ~HVMEM_OWES_SCRUB;
    record = hvmem__rec_with_owed(hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0), owed);
    if (owed & HVMEM__OWES_FLUSH)
        record = hvmem__rec_with_stamp(record, hvmem__stamp_of_youth(block.youth, block.now));
    hvmem__enter(b, mfn, order, hvmem__rec_with_mark(record, block.mark));
    hvmem__arena_offer(heap, arena, order);
    if (hvmem__unlikely(cut))
        return hvmem__leave_unmerged(heap, order);
    return 2 * (order - from); /* merging debts costs twice as much */
}

/* Work that a rise by so many levels without debts may have been. */
HVMEM_INLINE hvmem_u32 clean_work(const struct hvmem__bank *b, hvmem_u32 levels)
{
    return levels ? RISE_WORK + levels + AMONG_WORK * (levels < b->climb ? levels : b->climb) : 0;
}

/* Enter a block that was cut at `order`. Returns as hvmem__arena_give(). */
static HVMEM_NOINLINE hvmem_u32 enter_cut(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                          struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem__enter(b, mfn >> order << order, order, hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0));
    hvmem__arena_offer(heap, arena, order);
    return hvmem__leave_unmerged(heap, order);
}

/* As hvmem__arena_merge(). */
HVMEM_INLINE hvmem_u32 merge(struct hvmem_heap *heap, struct hvmem__arena *arena,
                             struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                             hvmem_u32 climb)
{
    hvmem_u32 order = hvmem__rec_order(record), from = order, risen = order,
              last = orders_within(b, mfn, heap->max_order);

    if (hvmem__unlikely(hvmem__rec_owed(record)))
        return rise(heap, arena, b, mfn, record, last, 0);
    if (order < last &&
        !hvmem__rec_owed(hvmem__load(hvmem__record_at(b, mfn ^ (hvmem_u64)1 << order)))) {
        risen = rise_clean(b, mfn, order, last, climb);
        if (hvmem__unlikely(risen & RISEN_CUT))
            return enter_cut(heap, arena, b, mfn, risen & RISEN_ORDER);
    }
    order = risen & ~RISEN_ALL;
    mfn = mfn >> order << order;
    record = hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0);
    if (hvmem__unlikely(risen < heap->max_order)) { /* RISEN_ALL is above it */
        hvmem_u32 work = clean_work(b, order - from);

        if (work >= MERGE_WORK)
            return enter_cut(heap, arena, b, mfn, order);
        return order - from + rise(heap, arena, b, mfn, record, last, work);
    }
    hvmem__enter(b, mfn, order, record);
    hvmem__arena_offer(heap, arena, order);
    return order - from;
}

hvmem_u32 hvmem__arena_merge(struct hvmem_heap *heap, struct hvmem__arena *arena,
                             struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    return merge(heap, arena, b, mfn, record, b->climb);
}

/* The same where mostly there is nothing to merge with. */
HVMEM_INLINE hvmem_u32 give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                            hvmem_u32 climb)
{
    hvmem_u32 order = hvmem__rec_order(record);

    if (hvmem__unlikely(hvmem__rec_owed(record)) || !hvmem__set_stays(heap, b, mfn, order))
        return merge(heap, arena, b, mfn, record, climb);
    hvmem__enter(b, mfn, order, hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0));
    hvmem__arena_offer(heap, arena, order);
    return 0;
}

hvmem_u32 hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    HVMEM__ASSERT2(&heap->host, hvmem__arena_of(heap, b) == arena);
    hvmem__frames_come(arena, b, (hvmem_u64)1 << hvmem__rec_order(record));
    return give(heap, arena, b, mfn, record, b->climb);
}

/*
 * One hold for a block that was cut: if it is still free as it was left it rises further. Otherwise nothing
 * is to do: who took it, or a part, gives it back merged, and who merged with it goes on with the whole.
 */
static hvmem_u32 merge_again(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);
    struct hvmem__arena *arena;
    hvmem_u32 work = 0;
    hvmem_u64 state;

    if (hvmem__unlikely(!b))
        return 0;
    arena = hvmem__bank_lock(heap, b, &state);
    if (hvmem__unlikely(!arena))
        return 0;
    if (hvmem__bank_holds(b, mfn) && hvmem__set_has(b, mfn, order)) {
        hvmem__record record = hvmem__load(hvmem__record_at(b, mfn));

        arena->moves++;
        hvmem__table_changes(b->table);
        (void)hvmem__set_take(b, mfn, order);
        /* (To take it out may have been as much work as a level.) */
        work = give(heap, arena, b, mfn, record, b->climb > 1 ? b->climb - 1 : 1);
    }
    hvmem__unlock_arena(heap, arena, state);
    return work;
}

void hvmem__merge_on(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 work)
{
    while (work >= HVMEM__GIVE_CUT) {
        hvmem_u32 order = hvmem__give_order(work);

        mfn = mfn >> order << order;
        (void)HVMEM_TEST_POINT("merge_on");
        work = merge_again(heap, mfn, order);
        hvmem__count(heap, &heap->unmerged, (hvmem_u64)0 - 1);
    }
}
