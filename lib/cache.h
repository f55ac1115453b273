/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache.h: work on the contents of frames, stretch by stretch, and budgets for it. Nothing here knows
 * whose frames they are.
 */
#ifndef HVMEM_LIB_CACHE_H
#define HVMEM_LIB_CACHE_H

#include <hvmem/cache.h>

#include "heap.h"

/*
 * How much a call may still do, in bytes of contents. A call that is never to stop (`whole`) works in
 * whole mappings instead of stretches and does not ask the host.
 */
struct hvmem__budget {
    hvmem_u64 left;
    hvmem_u32 whole;
    hvmem_u32 reserved;
};

HVMEM_INLINE struct hvmem__budget hvmem__budget_whole(void)
{
    struct hvmem__budget budget = {~(hvmem_u64)0, 1, 0};

    return budget;
}

/* A budget of `frames` (0: none but the host's wish). */
struct hvmem__budget hvmem__budget_frames(const struct hvmem_heap *heap, hvmem_u64 frames);

/* A budget of cache lines. */
struct hvmem__budget hvmem__budget_lines(const struct hvmem_heap *heap, hvmem_u64 lines);

/* Count work off. */
HVMEM_INLINE void hvmem__budget_use(struct hvmem__budget *budget, hvmem_u64 bytes)
{
    if (!budget->whole && budget->left != ~(hvmem_u64)0)
        budget->left -= bytes < budget->left ? bytes : budget->left;
}

/* Whether to stop here. Asked after each stretch, never before the first. */
HVMEM_INLINE int hvmem__budget_stop(const struct hvmem_heap *heap,
                                    const struct hvmem__budget *budget)
{
    return !budget->whole && (!budget->left || hvmem__yield_wanted(&heap->host));
}

/* What to do with bytes: in this order. */
#define HVMEM__WORK_ZERO   1u
#define HVMEM__WORK_DCACHE 2u /* operation `dc` */
#define HVMEM__WORK_ICACHE 4u
struct hvmem__work {
    hvmem_u32 what; /* HVMEM__WORK_* */
    hvmem_u32 dc;   /* HVMEM_DC_* */
};

/*
 * Do `work` on [mfn, mfn + frames), from byte *done on; *done moves on. HVMEM_AGAIN: the budget says
 * stop. E_UNSUPPORTED (no frame_map or back-end operation), E_HOST. At most one block of MAP_ORDER is
 * mapped at a time, and nothing on return. No lock held.
 */
hvmem_status hvmem__contents(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                             const struct hvmem__work *work, hvmem_u64 *done,
                             struct hvmem__budget *budget);

/*
 * The largest part around frame `at`, of one dirt, of the block at *mfn with this record: its first
 * frame in *mfn, its record returned. Steps: max_order. The block is the caller's, or the arena locked.
 */
hvmem__record hvmem__dirt_part(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *mfn,
                               hvmem__record record, hvmem_mfn at);

/*
 * Scrub and clean as `owed` says the block at mfn, whose record the caller holds: of a MIXED block only
 * dirty parts are scrubbed. From byte *done on, as above.
 */
hvmem_status hvmem__pay_contents(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                                 hvmem__record record, hvmem_u32 owed, hvmem_u64 *done,
                                 struct hvmem__budget *budget);

#endif
