/* SPDX-License-Identifier: BSD-2-Clause */
/* walk.h: going through the banks of a heap in address order, a bounded step at a time. */
#ifndef HVMEM_LIB_WALK_H
#define HVMEM_LIB_WALK_H

#include "bank.h"

/* The live bank that holds mfn or is the first above it, or NULL; *start: where in it to begin. */
struct hvmem__bank *hvmem__bank_from(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn *start);

/* A block found by a walk. */
struct hvmem__owned {
    struct hvmem__bank *bank;
    hvmem_mfn mfn;
    hvmem__record record;
};

/*
 * The next block of domain `owner` at or after *at and below end that is outside the free sets; *at
 * moves behind it. 1: found. 0: none; *at is end. -1: a step's worth of other blocks was looked at,
 * go on from *at. One arena lock section.
 */
int hvmem__next_owned(struct hvmem_heap *heap, hvmem_u32 owner, hvmem_mfn *at, hvmem_mfn end,
                      struct hvmem__owned *found);

/*
 * Whose blocks a guest may get besides the host's, by their ids: its own, and those of the domain that pays for
 * its tables. Both 0: nobody has said whose the guest is, and it may get anybody's.
 */
struct hvmem__mapper {
    hvmem_u32 guest, payer;
};

/*
 * Whether a guest may get the frames from *at on, below end. HVMEM_OK: all; *at is end. HVMEM_AGAIN: a step's
 * worth of blocks was looked at, go on from *at. Otherwise *at says which not: one that nobody owns and another
 * gets (as hvmem__state_error(), but for RESERVED ones), a table of a stage 2 or gathered, which a table may be
 * whose flush is not over (E_GATHERED), or another domain's that it did not say FOREIGN of (E_OWNER). Frames of
 * no bank are the host's to know. Who asks knows that the frames are not handed on meanwhile. One arena lock
 * section, or none.
 */
hvmem_status hvmem__may_map(struct hvmem_heap *heap, const struct hvmem__mapper *mapper,
                            hvmem_mfn *at, hvmem_mfn end);

#endif
