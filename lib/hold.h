/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hold.h: work under one hold of an arena's lock. It is counted in each part of the core by constants of its
 * own, most in tens of instructions; what is left when a hold has used up its work goes on under the next.
 */
#ifndef HVMEM_LIB_HOLD_H
#define HVMEM_LIB_HOLD_H

#include "heap.h"

/* 1: every hold makes one step, or does the least possible. For tests (test/steps). */
#ifndef HVMEM_STEPS
#    define HVMEM_STEPS 0
#endif
/* A constant: the work of a hold, or how many of something one hold does at most. */
#define HVMEM__PER_HOLD(most) (HVMEM_STEPS ? 1u : (most))

/* Of the work that is left, some is done. */
HVMEM_INLINE void hvmem__spend(hvmem_u32 *left, hvmem_u32 work)
{
    *left = *left > work ? *left - work : 0;
}

/* One hold that makes steps: as many as its work allows, and the first in any case. */
struct hvmem__hold {
    hvmem_u32 work;  /* left */
    hvmem_u32 moved; /* 1: it has made a step */
};

HVMEM_INLINE void hvmem__hold_begin(struct hvmem__hold *hold, hvmem_u32 work)
{
    hold->work = work;
    hold->moved = 0;
}

/* Whether the next step, of so much work, may still be made. */
HVMEM_INLINE int hvmem__hold_allows(const struct hvmem__hold *hold, hvmem_u32 work)
{
    return hold->work >= work || !hold->moved;
}

#endif
