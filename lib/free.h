/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * free.h: blocks out of their owners' hands: finding the block of a frame, taking it from its owner
 * exactly once, and giving it to a cache or its arena.
 */
#ifndef HVMEM_LIB_FREE_H
#define HVMEM_LIB_FREE_H

#include "bank.h"
#include "domain.h"

/* A record changes under a claim at most this often before the call gives up with E_BUSY. */
#define HVMEM__SEIZE_TRIES 16u
/* The same where giving up would leave things half done: each time another call has to come in between. */
#define HVMEM__PATIENT_TRIES 4096u

/* Among the debts to add: add none, not even the owner's: nobody has used the frames. */
#define HVMEM__UNUSED 0x100u
/* Likewise: flushed and scrubbed since the owner used it last: it owes neither. */
#define HVMEM__SCRUBBED 0x400u
/* Likewise: the owner's ids are gone, with their flush: no TLB debt for its sake, but for FOREIGN. */
#define HVMEM__GONE 0x200u
/* Likewise: also a block that a populate holds; a stage 2's table: for it is that which frees it, or its end. */
#define HVMEM__EVEN_HELD  0x1000u
#define HVMEM__EVEN_TABLE 0x800u

/* The block that holds mfn, as it is now. E_FOREIGN. No lock held. */
hvmem_status hvmem__block_at(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem_block *block);

/*
 * The same with the bank of its head, and its record if it is not free (0 if it is): as they were, for the
 * block may be another's by now and the bank gone.
 */
struct hvmem__seen {
    struct hvmem_block block;
    struct hvmem__bank *bank;
    hvmem__record record;
};
hvmem_status hvmem__see_block(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem__seen *seen);

/* What freeing a block in this state is answered with: HVMEM_OK only for allocated ones. */
hvmem_status hvmem__state_error(hvmem_u32 state);

/*
 * Every check of a free: the block that starts at mfn, its bank and its record as it was seen, which
 * is to be claimed by compare-exchange. owner: the block must be this domain's (NULL inside: the
 * host's); NULL: anybody's. Errors: those of hvmem_free_owned(); all but E_GATHERED of a block that is
 * kept (hvmem__rec_kept()) leave *bank and *record as they were. No lock held.
 */
hvmem_status hvmem__may_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                             const struct hvmem_domain *const *owner, struct hvmem__bank **bank,
                             hvmem__record *record);

struct hvmem__section;

/*
 * Enter this CPU's section such that `record` may be claimed inside it (hvmem__frame_claim()). E_HOST: not
 * entered, for the record may be changed without notice by the CPU that it is biased to. No lock and no
 * section held.
 */
hvmem_status hvmem__enter_for(struct hvmem_heap *heap, struct hvmem__section *s,
                              hvmem__record record);

/*
 * Change the record of a block that is not free, biased or not, from `from` to `to`, if it still is
 * `from`. Of several CPUs that try exactly one succeeds; the others get E_FREE. E_HOST: it is biased
 * to a CPU that the host cannot reach. No lock and no section held.
 */
hvmem_status hvmem__seize(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                          hvmem__record from, hvmem__record to);

/*
 * The same with the admin lock held, which forbids asking other CPUs: 0 also if the block is biased
 * to another CPU (hvmem__unbias() without the lock, then try again).
 */
int hvmem__try_seize(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                     hvmem__record from, hvmem__record to);

/*
 * Free the block at mfn whose record was seen as `from` (allocated, offlining or reserved), adding
 * `owed`. E_FREE if somebody else was faster, E_HOST as hvmem__seize. No lock and no section held.
 */
hvmem_status hvmem__free_block(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                               hvmem__record from, hvmem_u32 owed);

/*
 * Free with every check, and again while the record changes meanwhile; owner as hvmem__may_free(). No lock,
 * no section held.
 */
hvmem_status hvmem__free_checked(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                 const struct hvmem_domain *const *owner, hvmem_u32 owed);

/* Record of a block on its way from its owner to the free sets, debts of the owner added. */
hvmem__record hvmem__in_transit(struct hvmem_heap *heap, hvmem__record from, hvmem_u32 owed);

/* Tell the host if free memory crossed a watermark. No lock held. */
void hvmem__watch_now(struct hvmem_heap *heap);
HVMEM_INLINE void hvmem__watch(struct hvmem_heap *heap)
{
    if (hvmem__unlikely(heap->low_frames))
        hvmem__watch_now(heap);
}

#endif
