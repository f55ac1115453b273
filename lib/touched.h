/* SPDX-License-Identifier: BSD-2-Clause */
/* touched.h: what frames that wait for their first touch owe, and the record of what of it was paid. */
#ifndef HVMEM_LIB_TOUCHED_H
#define HVMEM_LIB_TOUCHED_H

#include "frame.h"

/*
 * Debts of frame mfn. *frames, how many are asked about, becomes how many from mfn on have the same ones and
 * lie in the same block. A frame of no bank owes nothing. No lock held.
 */
hvmem_u32 hvmem__touch_debts(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames);

/*
 * The frames, all in one block, are scrubbed and clean: its record no longer says otherwise of them, so
 * that nobody scrubs again what the guest may have written since. To be called before the guest can reach
 * them. HVMEM_E_BUSY, HVMEM_E_HOST: not recorded. No lock and no section held.
 */
hvmem_status hvmem__touch_paid(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames);

#endif
