/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * touched.h: what frames that wait for their first touch owe, and the record of what of it was paid.
 *
 * One frame may be paid for from several sides: through two guest frames, two second stages of its owner, a
 * settle, a foreign map. The first may already have let a guest in when the second comes to its scrub. So
 * frames are held from before their debts are looked at until what was paid is in the record: each part is
 * paid for once, and who comes second finds it paid. Blocks that nobody but the payer knows (populate, idle
 * scrubbing, allocation) are not held.
 */
#ifndef HVMEM_LIB_TOUCHED_H
#define HVMEM_LIB_TOUCHED_H

#include "frame.h"

/* Turns of the longest wait for frames that another CPU holds. */
#define HVMEM__HOLD_WAITS 10000000u

/*
 * Hold frames from mfn on, *frames at most: how many becomes *frames. They end with the chunk of
 * 2^HVMEM__HOLD_ORDER frames, or where another holds some. 0: another holds the first, or too many are held
 * in the chunk: try again. A leaf lock inside.
 */
int hvmem__touch_hold(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames);
/* Give back what was held. A leaf lock inside. */
void hvmem__touch_release(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames);

/*
 * Debts of frame mfn. *frames, how many are asked about, becomes how many from mfn on have the same ones and
 * lie in the same block. Free frames and those of no bank owe nothing; the stretch ends where one that may
 * begins. No lock held.
 */
hvmem_u32 hvmem__touch_debts(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames);

/*
 * `paid` (SCRUB, DCACHE) of the frames, held and all in one block, is done: its record no longer says
 * otherwise of them, so that nobody scrubs again what the guest may have written since. To be called before
 * the guest can reach them. HVMEM_E_BUSY, HVMEM_E_HOST: not recorded. No lock and no section held.
 */
hvmem_status hvmem__touch_paid(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                               hvmem_u32 paid);

#endif
