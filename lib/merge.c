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

#define RISEN_ALL 0x100u

/*
 * Take the buddies that a block which owes nothing merges with out of their sets, as far as they owe
 * nothing either, up to order `last`; the blocks up to there lie in bank b. These are the levels that
 * most blocks rise by. Returns the order it rises to; RISEN_ALL with it if the next buddy is not free
 * or there is none. Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise_clean(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                           hvmem_u32 last)
{
    hvmem_u64 at = mfn >> order, first = b->base >> order;

    for (; order < last; order++, at >>= 1, first >>= 1) {
        hvmem_u64 index = (at ^ 1) - first;
        const hvmem__record *record = hvmem__record_at(b, (at ^ 1) << order);
        struct hvmem__member found;

        if (hvmem__likely(b->sole[order] == index)) {
            if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(record))))
                return order;
            hvmem__set_take_sole(b, index, order);
        } else {
            if (!hvmem__bits_find(&b->free[order], index, &found))
                return order | RISEN_ALL;
            if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(record))))
                return order;
            hvmem__set_take_found(b, index, order, &found);
        }
    }
    return order;
}

/* What a block that rises owes. */
struct rising {
    hvmem_u32 owed; /* SCRUB apart */
    hvmem_u32 dirt;
    hvmem_u64 age; /* of the youngest stamp, or HVMEM__AGELESS */
    hvmem_u64 now;
};

/*
 * A block merges with its buddy, whose record is `other`: debts add up, the younger stamp counts. Where
 * their dirt differs the node's record, which lives at the right half's first frame, keeps both.
 * Arena lock held.
 */
HVMEM_INLINE void merge_debts(struct rising *block, hvmem__record other, int other_is_left,
                              hvmem__record *node)
{
    hvmem_u32 dirt = hvmem__rec_dirt(other);
    hvmem_u64 age;

    if (hvmem__likely(!hvmem__rec_owed(other)) && block->dirt == HVMEM__DIRT_CLEAN)
        return;
    age = hvmem__stamp_age(other, block->now);
    block->owed |= hvmem__rec_owed(other) & ~HVMEM_OWES_SCRUB;
    if (age < block->age)
        block->age = age;
    if (dirt == block->dirt && dirt != HVMEM__DIRT_MIXED)
        return;
    hvmem__store(node, other_is_left ? hvmem__node_make(dirt, block->dirt)
                                     : hvmem__node_make(block->dirt, dirt));
    block->dirt = HVMEM__DIRT_MIXED;
}

/*
 * As rise_clean(), whatever is owed.
 */
static HVMEM_NOINLINE hvmem_u32 rise_owing(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                           hvmem_u32 last, struct rising *rising)
{
    hvmem_u64 at = mfn >> order, first = b->base >> order;
    struct rising block = *rising;

    for (; order < last; order++, at >>= 1, first >>= 1) {
        if (!hvmem__set_take(b, (at ^ 1) - first, order))
            break;
        merge_debts(&block, hvmem__load(hvmem__record_at(b, (at ^ 1) << order)), (int)(at & 1),
                    hvmem__record_at(b, (at | 1) << order));
    }
    *rising = block;
    return order < last ? order | RISEN_ALL : order;
}

/* Merge with a buddy that may lie in another bank; 0: it is not free. Arena lock held. */
static int rise_across(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                       struct hvmem__bank **bank, hvmem_mfn mfn, hvmem_u32 order,
                       struct rising *block)
{
    hvmem_u64 size = (hvmem_u64)1 << order;
    hvmem_mfn buddy = mfn ^ size;
    struct hvmem__bank *b = *bank, *bb = hvmem__arena_bank(heap, arena, b, buddy), *lb, *rb;

    if (!bb || !hvmem__take_out(bb, buddy, order))
        return 0;
    lb = buddy < mfn ? bb : b;
    rb = buddy < mfn ? b : bb;
    merge_debts(block, hvmem__load(hvmem__record_at(bb, buddy)), buddy < mfn,
                hvmem__record_at(rb, mfn | size));
    if (lb != rb) /* the union counts where its head lies */
        hvmem__move_frames(rb, lb, size);
    *bank = lb;
    return 1;
}

/*
 * Enter a block, its frames counted in bank b, after merging it with its buddies, whatever it owes and
 * wherever they lie. Returns its work, as hvmem__arena_give(). Arena lock held.
 */
static HVMEM_NOINLINE hvmem_u32 rise(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                     struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                                     hvmem__record record)
{
    hvmem_u32 from = order;
    struct rising block;

    block.now = hvmem__load(&heap->clock.now);
    block.owed = hvmem__rec_owed(record) & ~HVMEM_OWES_SCRUB;
    block.dirt = hvmem__rec_dirt(record);
    block.age = hvmem__stamp_age(record, block.now);
    for (; order < heap->max_order; order++) {
        hvmem_u32 last = orders_within(b, mfn, heap->max_order);

        if (order < last) {
            hvmem_u32 risen = rise_owing(b, mfn, order, last, &block);

            order = risen & ~RISEN_ALL;
            mfn = mfn >> order << order;
            if (risen != last || last == heap->max_order)
                break;
        }
        if (!rise_across(heap, arena, &b, mfn, order, &block))
            break;
        mfn &= ~((hvmem_u64)1 << order);
    }
    record = hvmem__rec_with_owed(hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0), block.owed);
    if (block.age != HVMEM__AGELESS)
        record = hvmem__rec_with_stamp(record, hvmem__stamp_encode(block.now - block.age));
    hvmem__enter(b, mfn, order, hvmem__rec_with_dirt(record, block.dirt));
    hvmem__arena_offer(heap, arena, order);
    return 2 * (order - from); /* merging debts costs twice as much */
}

hvmem_u32 hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    hvmem_u32 order = hvmem__rec_order(record), from = order;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    hvmem__add_frames(b, (hvmem_u64)1 << order);
    if (hvmem__unlikely(hvmem__rec_owed(record))) {
        if (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH)
            arena->owing = 1;
        return rise(heap, arena, b, mfn, order, record);
    }
    if (order != heap->max_order) {
        hvmem_u32 risen = rise_clean(b, mfn, order, orders_within(b, mfn, heap->max_order));

        order = risen & ~RISEN_ALL;
        mfn = mfn >> order << order;
        if (hvmem__unlikely(risen < heap->max_order)) /* RISEN_ALL is above it */
            return order - from + rise(heap, arena, b, mfn, order, 0);
    }
    hvmem__enter(b, mfn, order, hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0));
    hvmem__arena_offer(heap, arena, order);
    return order - from;
}
