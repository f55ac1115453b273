/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sets.h: one block in and out of the sets of its bank, and the counts that go with it: between merge.c
 * and split.c. The sets' sole members are known where a set was filled from empty: what a split leaves
 * behind and a merge picks up again, level by level, without a look at the bitmaps.
 *
 * INVARIANT: sole[k] is HVMEM__BITS_NONE, or the only member of free[k].
 * Every function here: the arena's lock is held.
 */
#ifndef HVMEM_LIB_SETS_H
#define HVMEM_LIB_SETS_H

#include "arena.h"

/* A block enters a set that has others. */
void hvmem__set_put_among(struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 order);

/* Frames of free blocks change from one bank's count to the other's. */
void hvmem__move_frames(struct hvmem__bank *from, struct hvmem__bank *to, hvmem_u64 frames);

/* As hvmem__set_take(), of the block at mfn. */
int hvmem__take_out(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order);

/* A block enters a set. The rest of the bank's counts are the caller's. */
HVMEM_INLINE void hvmem__set_put(struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 order)
{
    if (hvmem__likely(!b->free_blocks[order])) {
        hvmem__bits_set_first(&b->free[order], index);
        b->free_blocks[order] = 1;
        b->sole[order] = index;
    } else {
        hvmem__set_put_among(b, index, order);
    }
}

/* The sole member of a set leaves it. */
HVMEM_INLINE void hvmem__set_take_sole(struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 order)
{
    hvmem__bits_drop_last(&b->free[order], index);
    b->free_blocks[order] = 0;
    b->sole[order] = HVMEM__BITS_NONE;
    b->orders &= ~(1u << order);
}

/* A member that was found, one of several for all that is known, leaves the set. */
HVMEM_INLINE void hvmem__set_take_found(struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 order,
                                        const struct hvmem__member *found)
{
    hvmem__bits_drop(&b->free[order], index, found);
    if (!--b->free_blocks[order])
        b->orders &= ~(1u << order);
}

/*
 * Enter a free block without merging; the bank's frames are the caller's to count. As
 * hvmem__set_put(), where sets with and without members are as likely.
 */
HVMEM_INLINE void hvmem__enter(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order,
                               hvmem__record record)
{
    hvmem_u64 index = hvmem__block_index(b, mfn, order);

    hvmem__store(hvmem__record_at(b, mfn), record);
    b->orders |= 1u << order;
    b->sole[order] = b->free_blocks[order]++ ? HVMEM__BITS_NONE : index;
    hvmem__bits_set(&b->free[order], index);
}

/*
 * Take a free block out of its set if it is in it; whether it was. The bank's frames are the
 * caller's to count.
 */
HVMEM_INLINE int hvmem__set_take(struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 order)
{
    struct hvmem__member found;

    if (hvmem__likely(b->sole[order] == index)) {
        hvmem__set_take_sole(b, index, order);
        return 1;
    }
    if (!hvmem__bits_find(&b->free[order], index, &found))
        return 0;
    hvmem__set_take_found(b, index, order, &found);
    return 1;
}

/* Add to a bank's count of free frames (two's complement). */
HVMEM_INLINE void hvmem__add_frames(struct hvmem__bank *b, hvmem_u64 frames)
{
    hvmem__store(&b->free_frames, b->free_frames + frames);
}

#endif
