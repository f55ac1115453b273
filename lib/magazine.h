/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * magazine.h: the host's own blocks that owe nothing, by the magazines of this CPU: what the very
 * short ways of alloc.c and free.c leave over (another bank than the last, a block that another CPU gave
 * out, an empty or full magazine), and all there is for orders 1 to 8.
 *
 * Those orders have no queue. Their magazines hold debt-free blocks only, are filled by half from the
 * nearest arena, and are used inside a section that is free of locks: a CPU whose sections go through the
 * gate takes from the arenas and gives back to them.
 */
#ifndef HVMEM_LIB_MAGAZINE_H
#define HVMEM_LIB_MAGAZINE_H

#include "pcpu.h"

/* Whether blocks of an order go through magazines at least. */
HVMEM_INLINE int hvmem__has_magazine(const struct hvmem_heap *heap, hvmem_u32 order)
{
    return order < HVMEM__MAGS && !(heap->flags & HVMEM_CONFIG_NO_CPU_CACHE);
}

/* Slots of an order's magazine. */
HVMEM_INLINE hvmem_u32 hvmem__mag_slots(hvmem_u32 order)
{
    if (order == 0)
        return HVMEM__MAG_SLOTS;
    if (order == HVMEM__MAG_ORDER1)
        return HVMEM__MAG_SLOTS1;
    return order < 5 ? 16u : order < 7 ? 8u : 4u;
}

/*
 * A block of order 0 or 9, or of one between them, that is in the magazine or, of a middle order, comes
 * in now. 1, or 0 with nothing handed out: the long way decides. No lock, no section held.
 */
int hvmem__magazine_take(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn);
int hvmem__magazine_take_middle(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn);

/* Free a block likewise; whatever is unusual about it is left to the long way. */
int hvmem__magazine_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order);

#endif
