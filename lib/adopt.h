/* SPDX-License-Identifier: BSD-2-Clause */
/* adopt.h: the parts of an adoption. */
#ifndef HVMEM_LIB_ADOPT_H
#define HVMEM_LIB_ADOPT_H

#include "bank.h"

/* Blocks checked or taken over in one step. */
#define HVMEM__ADOPT_STEPS 256u

/*
 * One step of the check of a bank, from *at on. A clean bank is trusted, but its first and its last block may
 * lie in a neighbour, which must be given too, and be clean if the first one begins there: else this one is
 * clean no more. Of others frames in no block are left for the next pass. HVMEM_AGAIN, or E_CORRUPT. Nobody
 * else uses the heap.
 */
hvmem_status hvmem__adopt_check(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at);

#endif
