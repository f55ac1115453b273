/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * offline.h: frames out of service. A bad frame in use is noted in a small list and its block marked
 * OFFLINING; when the block is freed the frame stays behind as an OFFLINE block of order 0.
 */
#ifndef HVMEM_LIB_OFFLINE_H
#define HVMEM_LIB_OFFLINE_H

#include "heap.h"

/* Bad frames that may wait for their owners at a time. */
#define HVMEM__BAD_LIMIT 256u

/*
 * An OFFLINING block, CACHED now and the caller's, was freed: keep the bad frames, give the rest back. A hold of
 * its arena's lock for each part. No lock held.
 */
void hvmem__offline_freed(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order);

/*
 * Whether frames wait to go offline: asked by whoever gives a gathered or quarantined block back, after
 * it changed the record; if so the block takes the way of hvmem__offline_freed().
 */
HVMEM_INLINE int hvmem__offline_waits(const struct hvmem_heap *heap)
{
    if (heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return hvmem__load(&heap->bad_count) != 0;
}

/* A gathered block is its owner's again: OFFLINING if a bad frame is in it. No lock held. */
void hvmem__offline_restored(struct hvmem_heap *heap, hvmem_mfn mfn);

#endif
