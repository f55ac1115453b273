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

/* An OFFLINING block, in transit, was freed: keep the bad frames, give the rest back. No lock. */
void hvmem__offline_freed(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                          hvmem__record record);

#endif
