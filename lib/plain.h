/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * plain.h: blocks of the host's own that owe nothing, past the caches and without a request: straight out of
 * an arena and back into one. Anything unusual is left, with nothing changed, to the long ways of alloc.c
 * and free.c, which find out what it is.
 */
#ifndef HVMEM_LIB_PLAIN_H
#define HVMEM_LIB_PLAIN_H

#include "heap.h"

/*
 * A block from the first arena of the CPU's node that may have one, while no claims are counted; of an order
 * that the heap has. Whether there was one. No lock of rank ARENA or above held.
 */
int hvmem__plain_take(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn);

/* Up to n such blocks, whose record becomes `keep`, which says the order: how many. */
hvmem_u32 hvmem__plain_take_some(struct hvmem_heap *heap, hvmem__record keep, hvmem_mfn *blocks,
                                 hvmem_u32 n);

/* Free a block of an order without a queue, as the caller says; whether it was one. No lock, no section held. */
int hvmem__plain_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order);

/* Of a list of n blocks those at its front that lie in one bank, as many as one hold gives back: how many. */
hvmem_u32 hvmem__plain_free_some(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 n,
                                 hvmem_u32 order);

#endif
