/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache.h: work on the contents of frames, stretch by stretch, and budgets for it. Nothing here knows
 * whose frames they are.
 */
#ifndef HVMEM_LIB_CACHE_H
#define HVMEM_LIB_CACHE_H

#include <hvmem/cache.h>

#include "heap.h"

/* How much a call may still do, in bytes of contents. */
struct hvmem__budget {
    hvmem_u64 left;
    hvmem_u32 whole; /* HVMEM__WHOLE_*; 0: it stops where `left` or the host says so */
    hvmem_u32 stop;  /* one of them did: whoever has more to do stops, however often he asks */
};
/* Never stops. Works in the same stretches, asks the host as often, and gives way where it is. */
#define HVMEM__WHOLE_CALL 1u
/* No more than a stretch: the caller asks behind it. */
#define HVMEM__WHOLE_PIECE 2u

HVMEM_INLINE struct hvmem__budget hvmem__budget_whole(hvmem_u32 whole)
{
    struct hvmem__budget budget = {~(hvmem_u64)0, 0, 0};

    budget.whole = whole;
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

/* Behind a stretch of a call that cannot stop: a host that wants the CPU runs others in a turn of a wait. */
HVMEM_INLINE void hvmem__give_way(const struct hvmem_heap *heap)
{
    if (hvmem__yield_wanted(&heap->host))
        hvmem__relax(&heap->host);
}

/* Whether to stop here. Asked after each stretch, never before the first. No lock held. */
HVMEM_INLINE int hvmem__budget_stop(const struct hvmem_heap *heap, struct hvmem__budget *budget)
{
    if (budget->whole == HVMEM__WHOLE_CALL)
        hvmem__give_way(heap);
    else if (!budget->whole && !budget->stop)
        budget->stop = !budget->left || hvmem__yield_wanted(&heap->host);
    return budget->stop != 0;
}

/* What to do with bytes: in this order. */
#define HVMEM__WORK_ZERO   1u
#define HVMEM__WORK_DCACHE 2u /* operation `dc` */
#define HVMEM__WORK_ICACHE 4u
struct hvmem__work {
    hvmem_u32 what; /* HVMEM__WORK_* */
    hvmem_u32 dc;   /* HVMEM_DC_* */
};

/* Bytes of a stretch in which `what` is done: HVMEM_CACHE_STRETCH lines, those of each operation counted. */
hvmem_u64 hvmem__stretch(const struct hvmem_heap *heap, hvmem_u32 what);

/*
 * Do `work` on [mfn, mfn + frames), from byte *done on; *done moves on. HVMEM_AGAIN: the budget says
 * stop (where it does so at the end of all, HVMEM_OK and budget->stop). E_UNSUPPORTED (no frame_map or
 * back-end operation), E_HOST. At most one block of MAP_ORDER is mapped at a time, and nothing on return.
 * No lock held.
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
