/* SPDX-License-Identifier: BSD-2-Clause */
/* split.c: a block out of the sets of its arena, split off a larger one. */
#include "sets.h"

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

/*
 * Split a block that has left its set and lies in bank b down to its first `order` block; the other
 * halves inherit `record`. Arena lock held.
 */
static HVMEM_NOINLINE void split_within(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 from,
                                        hvmem_u32 order, hvmem__record record)
{
    hvmem_u64 at = (mfn >> order) + 1, first = b->base >> order, size = (hvmem_u64)1 << order;
    hvmem__record *records = hvmem__record_at(b, mfn);

    record = hvmem__rec_with_order(record, order);
    b->orders |= (1u << from) - (1u << order);
    for (; order < from; order++, record++, size <<= 1) {
        hvmem__store(&records[size], record);
        hvmem__set_put(b, at - first, order);
        at = at >> 1 | 1;
        first >>= 1;
    }
}

/* Enter one half of a split block; the bank's frames are the caller's to count. Arena lock held. */
HVMEM_INLINE void enter_half(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                             hvmem__record record)
{
    hvmem__store(hvmem__record_at(b, mfn), record);
    b->orders |= 1u << order;
    hvmem__set_put(b, hvmem__block_index(b, mfn, order), order);
}

/* What a record that owes no SCRUB lacks for this dirt. */
HVMEM_INLINE hvmem__record dirt_bits(hvmem_u32 dirt)
{
    return hvmem__rec_with_dirt(0, dirt);
}

/*
 * Split a block that has left its set and lies in bank b down to the one of `order` that holds target;
 * the other halves are entered, each with its own dirt. Returns the record of what remains, order
 * apart. Arena lock held.
 */
static HVMEM_NOINLINE hvmem__record carve_within(struct hvmem__bank *b, hvmem_mfn mfn,
                                                 hvmem__record record, hvmem_mfn target,
                                                 hvmem_u32 order)
{
    hvmem_u32 dirt = hvmem__rec_dirt(record), k = hvmem__rec_order(record);

    record = hvmem__rec_with_dirt(hvmem__rec_with_order(record, 0), HVMEM__DIRT_CLEAN);
    while (k-- > order) {
        hvmem_mfn middle = mfn + ((hvmem_u64)1 << k), other = middle;
        hvmem_u32 left = dirt, right = dirt;

        if (dirt == HVMEM__DIRT_MIXED) {
            hvmem__record node = hvmem__load(hvmem__record_at(b, middle));

            left = hvmem__node_left(node);
            right = hvmem__node_right(node);
        }
        dirt = left;
        if (target >= middle) {
            other = mfn;
            mfn = middle;
            dirt = right;
            right = left;
        }
        enter_half(b, other, k, record | dirt_bits(right) | k);
    }
    return record | dirt_bits(dirt);
}

/*
 * Split a block that has left its set, and whose frames have left b's count, down to the one of
 * `order` that holds target; the other halves are entered. Returns the record of what remains, order
 * apart. Arena lock held.
 */
static hvmem__record split_to(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                              hvmem_mfn target, hvmem_u32 order)
{
    hvmem_u32 k = hvmem__rec_order(record);
    struct hvmem__bank *counted = b;

    /* As long as it spans banks. */
    while (k > order && !(b == counted && hvmem__bank_holds(b, mfn + (((hvmem_u64)1 << k) - 1)))) {
        hvmem_u64 size = (hvmem_u64)1 << --k;
        hvmem_mfn middle = mfn + size, other = middle;
        struct hvmem__bank *rb = hvmem__arena_bank(heap, arena, b, middle), *ob = rb;
        hvmem__record left, right;

        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        record = left;
        if (target >= middle) {
            ob = b;
            other = mfn;
            b = rb;
            mfn = middle;
            record = right;
            right = left;
        }
        enter_half(ob, other, k, right);
        if (ob != counted)
            hvmem__move_frames(counted, ob, size);
    }
    if (k == order)
        return record;
    if (target != mfn || hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED)
        return carve_within(b, mfn, record, target, order);
    split_within(b, mfn, k, order, record);
    return record;
}

hvmem__record hvmem__arena_carve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 head_order,
                                 hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, head);
    hvmem__record record = hvmem__load(hvmem__record_at(hb, head));
    int was_free;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    was_free = hvmem__take_out(hb, head, head_order);
    HVMEM__ASSERT(&heap->host, was_free);
    if (hvmem__unlikely(hvmem__load(&hb->table->clean)))
        hvmem__store(&hb->table->clean, 0);
    hvmem__add_frames(hb, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    record = hvmem__rec_with_order(record, head_order);
    if (head_order != order)
        record = split_to(heap, arena, hb, head, record, mfn, order);
    return hvmem__rec_with_order(record, order);
}

/* Take the first block of a set that is not empty out of it, unless it owes something. */
HVMEM_INLINE int take_first(struct hvmem__bank *b, hvmem_u32 order, hvmem_mfn *mfn)
{
    hvmem_u64 index = b->sole[order];

    if (index == HVMEM__BITS_NONE)
        index = hvmem__bits_first(&b->free[order]);
    *mfn = hvmem__block_mfn(b, index, order);
    if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(hvmem__record_at(b, *mfn)))))
        return 0;
    return hvmem__set_take(b, index, order);
}

struct hvmem__bank *hvmem__arena_take_plain(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                            hvmem_u32 order, hvmem_mfn *mfn)
{
    struct hvmem__bank *best = HVMEM_NULL;
    hvmem_u32 wanted = ~(hvmem_u32)0 << order, k = order, number;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    /* The lowest bank among those with the smallest order; then only smaller ones are of interest. */
    for (number = arena->first_bank; number != HVMEM__NO_BANK; number = heap->bank[number].next) {
        struct hvmem__bank *b = &heap->bank[number];

        if (hvmem__likely(!(b->orders & wanted)))
            continue;
        best = b;
        k = hvmem__lowest(b->orders & wanted);
        wanted &= ((hvmem_u32)1 << k) - 1;
        if (!wanted)
            break;
    }
    if (!best || !take_first(best, k, mfn))
        return HVMEM_NULL;
    hvmem__add_frames(best, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    if (k == order)
        return best;
    if (hvmem__likely(hvmem__bank_holds(best, *mfn + (((hvmem_u64)1 << k) - 1))))
        split_within(best, *mfn, k, order, hvmem__rec_make(0, HVMEM_BLOCK_FREE, 0));
    else
        split_to(heap, arena, best, *mfn, hvmem__rec_make(k, HVMEM_BLOCK_FREE, 0), *mfn, order);
    return best;
}
