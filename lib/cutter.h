/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cutter.h: memory of an object cut into parts. One description of the parts serves twice: to measure
 * (base NULL) and to hand out.
 */
#ifndef HVMEM_LIB_CUTTER_H
#define HVMEM_LIB_CUTTER_H

#include "deps.h"

struct hvmem__cutter {
    hvmem_u8 *base;   /* NULL: only measure */
    hvmem_size align; /* of each part, a power of two */
    hvmem_size used;
};

/* The next part: `count` times `each` bytes. NULL while measuring. */
HVMEM_INLINE void *hvmem__cut(struct hvmem__cutter *cutter, hvmem_u64 count, hvmem_size each)
{
    void *part = cutter->base ? cutter->base + cutter->used : HVMEM_NULL;

    cutter->used = (hvmem_size)hvmem__round_up(cutter->used + count * each, cutter->align);
    return part;
}

#endif
