/* SPDX-License-Identifier: BSD-2-Clause */
/* dirt.h: the dirt of free blocks and of the halves of their buddy nodes, as it stands in records. */
#ifndef HVMEM_LIB_DIRT_H
#define HVMEM_LIB_DIRT_H

#include "frame.h"

/*
 * The mark of a free block is its dirt as it stands in the record, whose bias is 0 or MIXED: 0, MARK_DIRTY
 * or MARK_MIXED. The record of a right half's first frame holds the marks of both halves while their
 * node is MIXED, the right half's one bit lower.
 */
#define HVMEM__MARK_DIRTY ((hvmem__record)HVMEM_OWES_SCRUB << 8)
#define HVMEM__MARK_MIXED (HVMEM__MARK_DIRTY | (hvmem__record)1 << 63)

HVMEM_INLINE hvmem__record hvmem__rec_mark(hvmem__record free_block)
{
    return free_block & HVMEM__MARK_MIXED;
}

/* The record of a free block without dirt, with this mark. */
HVMEM_INLINE hvmem__record hvmem__rec_with_mark(hvmem__record clean, hvmem__record mark)
{
    clean |= mark;
    if (hvmem__unlikely(mark == HVMEM__MARK_MIXED))
        clean |= (hvmem__record)HVMEM__BIAS_MIXED << 48;
    return clean;
}

HVMEM_INLINE hvmem__record hvmem__mark_of(hvmem_u32 dirt)
{
    return dirt == HVMEM__DIRT_CLEAN
               ? 0
               : (dirt == HVMEM__DIRT_MIXED ? HVMEM__MARK_MIXED : HVMEM__MARK_DIRTY);
}

HVMEM_INLINE hvmem_u32 hvmem__mark_dirt(hvmem__record mark)
{
    return mark ? (mark == HVMEM__MARK_MIXED ? HVMEM__DIRT_MIXED : HVMEM__DIRT_DIRTY)
                : HVMEM__DIRT_CLEAN;
}

HVMEM_INLINE hvmem__record hvmem__node_make(hvmem__record left_mark, hvmem__record right_mark)
{
    return left_mark | right_mark >> 1;
}

HVMEM_INLINE hvmem__record hvmem__node_left(hvmem__record node)
{
    return node & HVMEM__MARK_MIXED;
}

HVMEM_INLINE hvmem__record hvmem__node_right(hvmem__record node)
{
    return node << 1 & HVMEM__MARK_MIXED;
}

/* Whether a node's record is one that can be: never two halves both clean or both dirty. */
HVMEM_INLINE int hvmem__node_is_sound(hvmem__record node)
{
    hvmem__record left = hvmem__node_left(node), right = hvmem__node_right(node);

    return node == hvmem__node_make(left, right) &&
           hvmem__mark_of(hvmem__mark_dirt(left)) == left &&
           hvmem__mark_of(hvmem__mark_dirt(right)) == right &&
           (left != right || left == HVMEM__MARK_MIXED);
}

/* Marks of the halves of a block with this mark, whose node's record is at *node. */
HVMEM_INLINE void hvmem__split_marks(hvmem__record mark, const hvmem__record *node,
                                     hvmem__record *left, hvmem__record *right)
{
    *left = *right = mark;
    if (mark == HVMEM__MARK_MIXED) {
        hvmem__record both = hvmem__load(node);

        *left = hvmem__node_left(both);
        *right = hvmem__node_right(both);
    }
}

#endif
