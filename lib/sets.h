/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sets.h: the free blocks of a bank, a set an order, and the counts that go with them. A set is a bitmap
 * and, in front of it, one member that is not in the bitmap. What a split leaves behind it mostly finds
 * the front empty, and a merge finds its buddy there: neither touches the bitmap then.
 *
 * INVARIANT: front[k], in the bank's table, is HVMEM__NO_MFN or the first frame of a free block of order
 * k that free[k] does not hold. `orders`, `spread` and in_bitmap of the bank equal its sets.
 * Every function here: the arena's lock is held; blocks are named by their first frame.
 */
#ifndef HVMEM_LIB_SETS_H
#define HVMEM_LIB_SETS_H

#include "arena.h"
#include "dirt.h"

/* Place of a block in the bitmap of its set. */
HVMEM_INLINE hvmem_u64 hvmem__set_index(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    return (mfn >> order) - (b->base >> order);
}

/* A block enters the bitmap of a set. As the functions below. */
HVMEM_INLINE void hvmem__set_put_in_bitmap(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    b->spread |= 1u << order;
    b->in_bitmap[order]++;
    hvmem__bits_set(&b->free[order], hvmem__set_index(b, mfn, order));
}

/* A block leaves the bitmap of a set: whether it was there. */
HVMEM_INLINE int hvmem__set_take_from_bitmap(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_u64 index = hvmem__set_index(b, mfn, order);
    struct hvmem__member found;

    if (!hvmem__bits_find(&b->free[order], index, &found))
        return 0;
    if (!--b->in_bitmap[order]) {
        b->spread &= ~(1u << order);
        if (b->table->front[order] == HVMEM__NO_MFN)
            b->orders &= ~(1u << order);
    }
    hvmem__bits_drop(&b->free[order], index, &found);
    return 1;
}

/* The same two as calls, for loops that seldom come to a bitmap. */
void hvmem__set_put_among(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order);
int hvmem__set_take_among(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order);

/*
 * A block enters the set whose front is at *front. The bank's mask of orders and its frames are the
 * caller's. Loops over the orders carry `front` along.
 */
HVMEM_INLINE void hvmem__set_put(struct hvmem__bank *b, hvmem_mfn *front, hvmem_mfn mfn,
                                 hvmem_u32 order)
{
    if (hvmem__likely(*front == HVMEM__NO_MFN))
        hvmem__store(front, mfn);
    else
        hvmem__set_put_among(b, mfn, order);
}

/*
 * Take a block of `size` frames out of the set whose front is at *front, if it is the front: whether it was.
 * Then `size` is added to *taken, for hvmem__set_taken(). The bank's frames are the caller's to count.
 */
HVMEM_INLINE int hvmem__set_take_front(hvmem_mfn *front, hvmem_mfn mfn, hvmem_u64 size,
                                       hvmem_u32 *taken)
{
    if (hvmem__unlikely(*front != mfn))
        return 0;
    hvmem__store(front, HVMEM__NO_MFN);
    *taken |= (hvmem_u32)size;
    return 1;
}

/* The same wherever in the set it is. */
HVMEM_INLINE int hvmem__set_take_one(struct hvmem__bank *b, hvmem_mfn *front, hvmem_mfn mfn,
                                     hvmem_u64 size, hvmem_u32 *taken)
{
    return hvmem__set_take_front(front, mfn, size, taken) ||
           hvmem__set_take_among(b, mfn, hvmem__lowest(size));
}

/* Of the orders that lost a block those without any leave the bank's mask. */
HVMEM_INLINE void hvmem__set_taken(struct hvmem__bank *b, hvmem_u32 taken)
{
    b->orders &= ~taken | b->spread;
}

/* Take a block out of its set if it is in it; whether it was. Its frames are the caller's to count. */
HVMEM_INLINE int hvmem__set_take(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_u32 taken = 0;

    if (!hvmem__set_take_one(b, &b->table->front[order], mfn, (hvmem_u64)1 << order, &taken))
        return 0;
    hvmem__set_taken(b, taken);
    return 1;
}

/* Enter a free block without merging; the bank's frames are the caller's to count. */
HVMEM_INLINE void hvmem__enter(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                               hvmem__record record)
{
    hvmem_mfn *front = &b->table->front[order];

    hvmem__store(hvmem__record_at(b, mfn), record);
    b->orders |= 1u << order;
    if (*front == HVMEM__NO_MFN)
        hvmem__store(front, mfn);
    else
        hvmem__set_put_in_bitmap(b, mfn, order);
}

/* Free blocks of an order. */
HVMEM_INLINE hvmem_u64 hvmem__set_count(const struct hvmem__bank *b, hvmem_u32 order)
{
    return b->in_bitmap[order] + (b->table->front[order] != HVMEM__NO_MFN);
}

HVMEM_INLINE int hvmem__set_has(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    return b->table->front[order] == mfn ||
           hvmem__bits_test(&b->free[order], hvmem__set_index(b, mfn, order));
}

/*
 * Whether a free block of `order` at mfn has nothing to merge with: there is no higher order, or its buddy lies
 * in bank b as it does and is not free. Mostly so.
 */
HVMEM_INLINE int hvmem__set_stays(const struct hvmem_heap *heap, const struct hvmem__bank *b,
                                  hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_u64 size = (hvmem_u64)1 << order;
    hvmem_mfn pair = mfn & ~size;

    return order >= heap->max_order ||
           (hvmem__bank_holds(b, pair) && hvmem__bank_holds(b, pair + 2 * size - 1) &&
            !hvmem__set_has(b, mfn ^ size, order));
}

/* The lowest of the front, if it is not below `from`, and the block at `index` of the bitmap. */
HVMEM_INLINE hvmem_mfn hvmem__set_lower(const struct hvmem__bank *b, hvmem_mfn from,
                                        hvmem_u64 index, hvmem_u32 order)
{
    hvmem_mfn front = b->table->front[order], in_bitmap = HVMEM__NO_MFN;

    if (index != HVMEM__BITS_NONE)
        in_bitmap = ((b->base >> order) + index) << order;
    return front >= from && front < in_bitmap ? front : in_bitmap;
}

/* The first block of a set that does not start below `from`, or NO_MFN; from + 2^order > base. */
HVMEM_INLINE hvmem_mfn hvmem__set_next(const struct hvmem__bank *b, hvmem_mfn from, hvmem_u32 order)
{
    hvmem_mfn up = hvmem__round_up(from, (hvmem_u64)1 << order);

    return hvmem__set_lower(
        b, up, hvmem__bits_next(&b->free[order], hvmem__set_index(b, up, order), HVMEM__BITS_NONE),
        order);
}

/* The same, but only what starts below `end` is looked for, nor need that be all that is returned. */
HVMEM_INLINE hvmem_mfn hvmem__set_next_in(const struct hvmem__bank *b, hvmem_mfn from,
                                          hvmem_mfn end, hvmem_u32 order)
{
    hvmem_mfn up = hvmem__round_up(from, (hvmem_u64)1 << order);
    hvmem_u64 index = HVMEM__BITS_NONE;

    if (b->spread >> order & 1)
        index = hvmem__bits_next(&b->free[order], hvmem__set_index(b, up, order),
                                 hvmem__set_index(b, end - 1, order) + 1);
    return hvmem__set_lower(b, up, index, order);
}

/* The first block of a set that is not empty. */
HVMEM_INLINE hvmem_mfn hvmem__set_first(const struct hvmem__bank *b, hvmem_u32 order)
{
    hvmem_mfn front = b->table->front[order];

    if (hvmem__likely(front != HVMEM__NO_MFN && !(b->spread >> order & 1)))
        return front;
    return hvmem__set_lower(b, 0, hvmem__bits_first(&b->free[order]), order);
}

/*
 * The first of the banks of an arena whose smallest free block of at least order *order is the smallest,
 * or NULL; *order becomes its order.
 */
HVMEM_INLINE struct hvmem__bank *hvmem__set_smallest(const struct hvmem__arena *arena,
                                                     hvmem_u32 *order)
{
    hvmem_u32 wanted = ~(hvmem_u32)0 << *order;
    struct hvmem__bank *best = HVMEM_NULL, *b;

    for (b = arena->first; b && wanted; b = b->next) {
        if (hvmem__likely(!(b->orders & wanted)))
            continue;
        best = b;
        *order = hvmem__lowest(b->orders & wanted);
        wanted &= ((hvmem_u32)1 << *order) - 1; /* then only smaller ones are of interest */
    }
    return best;
}

/* Add to a bank's count of free frames (two's complement). */
HVMEM_INLINE void hvmem__add_frames(struct hvmem__bank *b, hvmem_u64 frames)
{
    hvmem__table_changes(b->table);
    hvmem__store(&b->free_frames, b->free_frames + frames);
}

/* The same for a block that comes to the sets of an arena, b's table not being marked any more. */
HVMEM_INLINE void hvmem__frames_come(struct hvmem__arena *arena, struct hvmem__bank *b,
                                     hvmem_u64 frames)
{
    arena->moves++;
    hvmem__store(&b->free_frames, b->free_frames + frames);
}

/* Frames of free blocks change from one bank's count to the other's. Neither table is marked any more. */
HVMEM_INLINE void hvmem__move_frames(struct hvmem__bank *from, struct hvmem__bank *to,
                                     hvmem_u64 frames)
{
    hvmem__store(&from->free_frames, from->free_frames - frames);
    hvmem__store(&to->free_frames, to->free_frames + frames);
}

#endif
