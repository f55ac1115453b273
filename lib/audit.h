/* SPDX-License-Identifier: BSD-2-Clause */
/* audit.h: checking the invariants of frame tables. */
#ifndef HVMEM_LIB_AUDIT_H
#define HVMEM_LIB_AUDIT_H

#include "arena.h"

/*
 * Check the frames [*at, end) of one bank, at most `steps` blocks; *at moves on. HVMEM_AGAIN: more
 * to do. E_CORRUPT: *where says what is wrong at *at. found[] and the other counts are added up for
 * the caller to compare. Arena lock held, or nobody else uses the bank.
 */
struct hvmem__found {
    hvmem_u64 free_blocks[HVMEM_ORDER_LIMIT + 1];
    hvmem_u64 reserved, offline, quarantined, cached, gathered;
    const char *where;
    hvmem_u32 lost_allowed; /* in: a frame in no block is no fault (a heap that was cut off) */
};
hvmem_status hvmem__audit_bank(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__bank *b, hvmem_mfn *at, hvmem_u32 steps,
                               struct hvmem__found *found);

/*
 * Compare what a bank counts, and what its table says of itself, with what the walk found. NULL, or what is
 * wrong. Arena lock held.
 */
const char *hvmem__audit_counts(struct hvmem_heap *heap, const struct hvmem__bank *b,
                                const struct hvmem__found *found);

/*
 * What domains own and owe, and what is promised: counted anew from the walk between begin and end, of which
 * end says what is wrong, or NULL. Admin lock held.
 */
void hvmem__audit_begin(struct hvmem_heap *heap);
const char *hvmem__audit_end(struct hvmem_heap *heap);

/* Count a block outside the free sets for its owner. 0: there is no such domain. Admin lock held. */
int hvmem__audit_owner(struct hvmem_heap *heap, hvmem__record record);

#endif
