/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hand.h: a block on its way: found and out of the sets, it takes more than one hold to be split to what was
 * asked for. Between two of them it is in nobody's hands but the taker's (CACHED); it never is more than half
 * of what was free there.
 */
#ifndef HVMEM_LIB_HAND_H
#define HVMEM_LIB_HAND_H

#include "arena.h"
#include "claim.h"

struct hvmem__hand {
    struct hvmem__bank *bank; /* NULL: none yet */
    hvmem_mfn mfn;
    hvmem_mfn target;     /* the block asked for */
    hvmem__record record; /* of the whole block, as a free one's */
};

/* The block that was found comes into the hand, as what is left of it at `order`. Arena lock held. */
HVMEM_INLINE void hvmem__hand_take(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                   struct hvmem__hand *hand, const struct hvmem__spot *spot,
                                   hvmem_u32 order)
{
    hand->target = spot->at;
    hand->mfn = spot->at >> order << order;
    hand->record =
        hvmem__arena_carve(heap, arena, spot->bank, spot->head, spot->order, hand->mfn, order);
    hand->bank = hvmem__arena_bank(heap, arena, spot->bank, hand->mfn);
}

/* How far one hold splits a block that was found, for the one of `order` in it. Arena lock held. */
HVMEM_INLINE hvmem_u32 hvmem__hand_stop(const struct hvmem__spot *spot, hvmem_u32 order)
{
    return hvmem__split_stop(
        spot->bank, spot->head,
        hvmem__rec_with_order(hvmem__load(hvmem__record_at(spot->bank, spot->head)), spot->order),
        spot->at, order);
}

/*
 * The block in hand, its head set, becomes the one in it that holds the target and that one hold splits it to
 * for the one of `order`. Arena lock held.
 */
HVMEM_INLINE void hvmem__hand_split(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                    struct hvmem__hand *hand, hvmem_u32 order)
{
    hvmem_u64 before = (hvmem_u64)1 << hvmem__rec_order(hand->record);

    order = hvmem__split_stop(hand->bank, hand->mfn, hand->record, hand->target, order);
    arena->moves++;
    hvmem__arena_unmark(hand->bank, hand->mfn);
    hand->record = hvmem__arena_split(hand->bank, hand->mfn, hand->record, hand->target, order);
    hvmem__claim_give(heap, arena, before - ((hvmem_u64)1 << order));
    /* All the rest may have been used up meanwhile, and the node told so. */
    hvmem__arena_offer(heap, arena, hvmem__lowest(before) - 1);
    hand->mfn = hand->target >> order << order;
    hand->bank = hvmem__arena_bank(heap, arena, hand->bank, hand->mfn);
}

/* Until the next hold the block in hand is its taker's. Arena lock held. */
HVMEM_INLINE void hvmem__hand_keep(const struct hvmem__hand *hand)
{
    hvmem__arena_mark(hand->bank, hand->mfn,
                      hvmem__rec_with_state(hand->record, HVMEM_BLOCK_CACHED));
}

/*
 * Take exactly the block of `order` at spot->at, whose claims were drawn, RESERVED and what else `as` says:
 * what this hold does of it. hvmem__hand_reserve_on() must follow without the lock. Arena lock held.
 */
void hvmem__hand_reserve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                         struct hvmem__hand *hand, const struct hvmem__spot *spot, hvmem_u32 order,
                         hvmem__record as);

/* The rest of it, hold by hold, if any. No lock of rank ARENA or above held. */
void hvmem__hand_reserve_on(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__hand *hand, hvmem_u32 order, hvmem__record as);

#endif
