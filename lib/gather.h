/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gather.h: the ranges of a gather. They are disjoint and in rising order; neighbours that touch differ
 * in stride, level or flags, so that a block keeps its own stride beside single pages. Where more
 * than HVMEM_GATHER_RANGES come together those two neighbours are joined whose union costs the
 * fewest further operations: what was told is never lost, only widened.
 */
#ifndef HVMEM_LIB_GATHER_H
#define HVMEM_LIB_GATHER_H

#include <hvmem/gather.h>

#include "mapping.h"

/* Flags of a gather besides HVMEM_GATHER_*: learned on the way. */
#define HVMEM__GATHER_ALL    0x100u  /* flush the whole space: what to flush is not known */
#define HVMEM__GATHER_EXEC   0x200u  /* an entry could fetch code */
#define HVMEM__GATHER_GLOBAL 0x400u  /* an entry may have been global */
#define HVMEM__GATHER_TABLES 0x800u  /* table pages go */
#define HVMEM__GATHER_LENT   0x1000u /* counted in mapping.lent until what it was told is invalid */

/* What a frame comes to owe with an owner: the gather pays for the TLBs, and knows whether code was fetched. */
HVMEM_INLINE hvmem_u32 hvmem__gather_owed(const struct hvmem_gather *gather)
{
    hvmem_u32 owed = gather->mapping->heap->owed_on_free & ~HVMEM_OWES_TLB;

    return gather->flags & HVMEM__GATHER_EXEC ? owed : owed & ~HVMEM_OWES_ICACHE;
}

/* Add to mapping.lent; returns what it was. */
HVMEM_INLINE hvmem_u32 hvmem__mapping_lend(struct hvmem_mapping *mapping, hvmem_u32 by)
{
    hvmem_u32 old;

    if (mapping->heap->host.smp)
        return __atomic_fetch_add(&mapping->lent, by, __ATOMIC_ACQ_REL);
    old = mapping->lent;
    hvmem__store(&mapping->lent, old + by);
    return old;
}

/*
 * What a stage 2 removes goes into a gather of the caller's, who finishes it some time. 1: no other such
 * gather is open. What was fetched through an entry is not known from it: it may have lost the right, or
 * have been made invalid since.
 */
HVMEM_INLINE int hvmem__gather_lend(struct hvmem_gather *gather)
{
    if (gather->flags & HVMEM__GATHER_LENT)
        return 0;
    gather->flags |= HVMEM__GATHER_LENT | HVMEM__GATHER_EXEC;
    return !hvmem__mapping_lend(gather->mapping, 1);
}

/*
 * Add [start, last] with this stride (log2 bytes of the smallest entry), level and HVMEM_RANGE_*
 * flags. Without HVMEM_RANGE_LEAF the level is UNKNOWN.
 */
void hvmem__gather_add(struct hvmem_gather *gather, const struct hvmem_gather_range *piece);

/* Cached walks through a table that translated [start, last], `page` being one page of it. */
void hvmem__gather_add_walks(struct hvmem_gather *gather, hvmem_u64 start, hvmem_u64 last,
                             const struct hvmem_gather_range *page);

/* Whether things may be told to the gather: E_ARG, E_STALE, E_PHASE. */
hvmem_status hvmem__gather_check(const struct hvmem_gather *gather);

/* hvmem_gather_entry() of `entries` >= 1 neighbours of one size, level and kind, from addr on. */
hvmem_status hvmem__gather_run(struct hvmem_gather *gather, hvmem_u64 addr, hvmem_u64 entries,
                               hvmem_u32 shift, hvmem_u32 level, hvmem_u32 flags);

/* hvmem_gather_table(); own: the table is the stage 2's whose mapping this is, as only it can say. */
hvmem_status hvmem__gather_table(struct hvmem_gather *gather, hvmem_mfn mfn, hvmem_u64 addr,
                                 hvmem_u32 level, hvmem_u32 flags, int own);

/*
 * Whether these table pages of the heap can all be told to the gather without a flush on the way, and what
 * makes room where not: everything told so far is invalidated and given back. The latter under no
 * lock; how it went is known to the gather.
 */
int hvmem__gather_has_room(const struct hvmem_gather *gather, const hvmem_mfn *tables,
                           hvmem_u32 count);
void hvmem__gather_settle(struct hvmem_gather *gather);

/* The ranges as a back-end takes them, in units of pages. */
void hvmem__gather_export(const struct hvmem_gather *gather, hvmem_u32 page_shift,
                          struct hvmem_tlb_range *out);

#endif
