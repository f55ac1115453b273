/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gathered.h: blocks between their owner and the free sets, waiting for a flush: the states GATHERED
 * and QUARANTINE.
 *
 * A list of gathered blocks is its first frame number; each block's record holds the low 32 bits of
 * the next one's, the last one's its own. All blocks of a list have the same high bits.
 * INVARIANT: a GATHERED record belongs to the gather that took it, nobody else changes it (adoption
 * apart). heap.gathers counts the gathers that hold any: it is raised before the first is taken.
 *
 * A call that works on the contents of a block it is about to free holds it in the same state meanwhile,
 * as a list of one.
 */
#ifndef HVMEM_LIB_GATHERED_H
#define HVMEM_LIB_GATHERED_H

#include "heap.h"

/* Frames of one list. */
#define HVMEM__LINK_BITS 32u

/* Who frees a block into a gather. */
struct hvmem__leaver {
    const struct hvmem_domain *domain; /* must be the owner, NULL: the host; */
    int anybody;                       /* unless this is set */
    int held;                          /* also one that a populate has not mapped yet */
    int table;                         /* also a stage 2's table, for it is that stage 2 */
    hvmem_u32 owed;                    /* HVMEM_OWES_* to add */
    hvmem_u32 owed_by_owner;           /* to add if there is one */
};

/*
 * ALLOCATED or OFFLINING -> GATHERED, in front of the list *first (HVMEM__NO_MFN: empty). Errors: as
 * hvmem_free_owned(), nothing changed. No lock held.
 */
hvmem_status hvmem__gathered_take(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                  const struct hvmem__leaver *leaver, hvmem_mfn *first);

/* The block after this one, or HVMEM__NO_MFN. */
hvmem_mfn hvmem__gathered_next(struct hvmem_heap *heap, hvmem_mfn mfn);

/*
 * GATHERED -> free, after everything was invalidated: TLB is owed only if it was before the gather,
 * stamped anew. The owner is uncharged. No lock held; locks one arena for one block.
 */
void hvmem__gathered_free(struct hvmem_heap *heap, hvmem_mfn mfn);

/* GATHERED -> its owner's again, for a table page that its owner keeps. bias: as before. No lock held. */
void hvmem__gathered_restore(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 bias);

/*
 * GATHERED -> QUARANTINE, `owed` added and what an owner owes on free; the owner is uncharged, the host
 * told. Returns the number of frames. No lock held.
 */
hvmem_u64 hvmem__gathered_quarantine(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 owed);

/*
 * The block at mfn, a populate's too, may still be reached: into quarantine with it, so that whoever has it
 * does not free it for another to use. One that is no such block is left. No lock held.
 */
void hvmem__gathered_withhold(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order);

/*
 * ALLOCATED or OFFLINING, as was seen in `from`, -> GATHERED, for the time of one call. Errors: as
 * hvmem__seize(), nothing changed. No lock held.
 */
hvmem_status hvmem__hold(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                         hvmem__record from);

/* Its owner's again, with this record, or OFFLINING if a bad frame is in it. No lock held. */
void hvmem__held_back(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                      hvmem__record to);

/* Freed, as hvmem__free_block(): `from` is its record before it was held. No lock held. */
void hvmem__held_free(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                      hvmem__record from, hvmem_u32 owed);

#endif
