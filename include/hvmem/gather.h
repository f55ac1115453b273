/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/gather.h: unhook, invalidate, free: in this order and with one invalidation for many entries.
 *
 * A gather collects what one operation on a mapping removed: the input ranges, the table pages that
 * were unhooked, the frames to be freed. hvmem_gather_finish() invalidates CPUs, then devices, then
 * frees. It needs no memory (frames are linked through the frame table, state
 * HVMEM_BLOCK_GATHERED) and never forces a flush at some number of entries. Typical use:
 *
 *   hvmem_gather_begin(&gather, mapping, 0, start, bytes);
 *   for each entry in [start, start + bytes) that was valid and is now changed
 *       hvmem_gather_entry(&gather, addr, shift, level, flags);      and, if the frame is to go,
 *       hvmem_gather_free(&gather, mfn, order, domain, 0);
 *   for each table page that is not used any more and was unhooked
 *       hvmem_gather_table(&gather, table_mfn, addr, level, HVMEM_TABLE_TOLD);
 *   hvmem_gather_finish(&gather);
 *
 * Decide by the OLD value of an entry, taken by the same atomic operation that changed it; what was
 * absent, or did not change, is not told (hvmem_gather_change() decides that). Another gather may
 * have removed what this one found absent and not have flushed yet: whenever two gathers on one
 * mapping overlap in time, both flush all of the range they were asked for. A caller that must
 * rely on a range being gone uses a gather even if it finds nothing to change.
 *
 * A page that MOVES to another address is told at the old one and mapped at the new one after finish has
 * returned: were it mapped before, another gather could free it there, and would flush the new address only.
 *
 * Locks: begin, entry, table, free may be called under the caller's page-table lock (table and free
 * flush early in two rare cases named there, and like hvmem_free() they may ask a CPU for a barrier:
 * where the host has barrier_cpu do not wait for that lock with interrupts off); finish and cancel
 * under no lock that an asked CPU may wait for. One gather belongs to one thread of control; different ones
 * on a mapping run side by side. None may be left open: hvmem_gather_cancel() settles as finish does.
 */
#ifndef HVMEM_GATHER_H
#define HVMEM_GATHER_H

#include <hvmem/mapping.h>

/* Flags of hvmem_gather_begin. */
#define HVMEM_GATHER_WHOLE       1u /* the whole input space; start and bytes must be 0 */
#define HVMEM_GATHER_PREEMPTIBLE 2u /* finish and cancel free in slices and answer HVMEM_AGAIN */

/* Flags of hvmem_gather_entry. */
#define HVMEM_ENTRY_EXEC   1u /* code could be fetched through it: frames come to owe ICACHE */
#define HVMEM_ENTRY_GLOBAL 2u /* it may be global: only with HVMEM_MAPPING_GLOBALS */

/* Flags of hvmem_gather_table. */
/* Entries that were valid in it were told one by one (or there were none): only walks are left. */
#define HVMEM_TABLE_TOLD 1u

/* Frames freed by one call of finish in a PREEMPTIBLE gather, at most. */
#define HVMEM_GATHER_SLICE 512u

#define HVMEM_GATHER_RANGES  8u  /* disjoint ranges kept apart */
#define HVMEM_GATHER_WINDOWS 8u  /* spans of 2^32 frames whose frames can be gathered at once */
#define HVMEM_GATHER_TABLES  16u /* table pages outside the heap held at once */

/* One gather, on the caller's stack. The contents are the library's; no need to clear it. */
struct hvmem_gather {
    hvmem_uptr self; /* guards against reuse, copies and use before begin */
    struct hvmem_mapping *mapping;
    hvmem_u32 flags;
    hvmem_u32 phase;
    hvmem_u64 turn;        /* of the mapping when it was begun */
    hvmem_u64 start, last; /* requested, both inclusive */
    hvmem_u32 ranges;      /* in use */
    hvmem_u32 tables;      /* in table[] */
    hvmem_u32 windows[2];  /* in use: of frames, of table pages */
    hvmem_status failed;   /* first failure to invalidate */
    hvmem_status settled;  /* outcome of the last invalidation */
    hvmem_u32 counted;     /* 1: the heap counts it as holding frames */
    struct hvmem_gather_range {
        hvmem_u64 start, last;
        hvmem_u8 stride;
        hvmem_u8 level;
        hvmem_u16 flags;
        hvmem_u32 reserved;
    } range[HVMEM_GATHER_RANGES + 1];         /* by address; one more while an entry is put in */
    hvmem_mfn first[2][HVMEM_GATHER_WINDOWS]; /* heads of the lists: frames, table pages */
    hvmem_mfn table[HVMEM_GATHER_TABLES];     /* table pages outside the heap */
};

/* What a table entry says, for hvmem_gather_change(). */
struct hvmem_pte {
    hvmem_u32 kind;       /* HVMEM_PTE_* */
    hvmem_u32 rights;     /* HVMEM_PTE_READ, WRITE, EXEC and bits of the host's own above bit 7 */
    hvmem_u64 attributes; /* memory type and the like: any change must be flushed */
    hvmem_mfn mfn;        /* frame, or table page */
};
#define HVMEM_PTE_ABSENT 0u
#define HVMEM_PTE_LEAF   1u
#define HVMEM_PTE_TABLE  2u
#define HVMEM_PTE_READ   1u
#define HVMEM_PTE_WRITE  2u
#define HVMEM_PTE_EXEC   4u

HVMEM_BEGIN_DECLS

/*
 * Begin: [start, start + bytes) is the requested input range (rounded outward to pages; it may end
 * at the top of the address space). Nothing happens yet.
 * Errors: HVMEM_E_ARG (null, flag, WHOLE with a range), HVMEM_E_RANGE (empty, wraps), HVMEM_E_PHASE
 * (this gather is open, or was dropped while open: cancel it first), HVMEM_E_SPACE (dead),
 * HVMEM_E_COUNT (2^19 gathers are open on the mapping).
 */
HVMEM_API hvmem_status hvmem_gather_begin(struct hvmem_gather *gather,
                                          struct hvmem_mapping *mapping, hvmem_u32 flags,
                                          hvmem_u64 start, hvmem_u64 bytes);

/*
 * A valid entry that translated [addr, addr + 2^shift) was changed or removed; `level` is the table
 * level it sat at (arm64 numbering 0..3), HVMEM_LEVEL_UNKNOWN if not certain. May lie outside the
 * requested range (a block that was split). An entry that merged several told as one (contiguous
 * bit): shift of the single entry. Errors: HVMEM_E_STALE (not open), HVMEM_E_PHASE (being freed),
 * HVMEM_E_ARG (flag, level), HVMEM_E_ORDER (shift below the page or above 63), HVMEM_E_ALIGN (addr).
 * After an error of the last three kinds the gather flushes the whole space: nothing is missed.
 */
HVMEM_API hvmem_status hvmem_gather_entry(struct hvmem_gather *gather, hvmem_u64 addr,
                                          hvmem_u32 shift, hvmem_u32 level, hvmem_u32 flags);

/*
 * The same with the decision: told if the old entry was present and the frame, the attributes or the
 * kind changed, or a right was lost; or gained, if a device walks the tables. (Else gained rights need no
 * flush: the fault that a stale entry causes is retried. On x86 it drops the entry (Intel SDM vol. 3 4.10.4.1 to
 * .3, EPT 30.4.3); arm64 does not promise that: there the host tells it with hvmem_gather_entry(), or
 * invalidates in its fault handler.) *told, if not NULL: whether it was. flags: HVMEM_ENTRY_GLOBAL; EXEC follows from `before`. An entry that was a table: as
 * hvmem_gather_entry with unknown level and finest stride. Errors: as hvmem_gather_entry.
 */
HVMEM_API hvmem_status hvmem_gather_change(struct hvmem_gather *gather, hvmem_u64 addr,
                                           hvmem_u32 shift, hvmem_u32 level,
                                           const struct hvmem_pte *before,
                                           const struct hvmem_pte *after, hvmem_u32 flags,
                                           hvmem_u32 *told);

/*
 * Table page mfn of `level` (the level of the entries in it, 0..3 with level 3 the last), which
 * translated addr, was unhooked and goes to table_free after a flush that covers cached walks.
 * Without HVMEM_TABLE_TOLD every page it could map is flushed. One that the gather frees itself comes to owe
 * as an owned frame does (hvmem_gather_free()); the host's too, SCRUB and DCACHE: addresses are in it.
 * Frames of the heap must be allocated blocks of order 0; others are held in the gather, and the 17th of
 * them settles early. Errors, as hvmem_gather_entry; HVMEM_E_FREE and the other codes of hvmem_free
 * (HVMEM_E_GATHERED also for what a stage 2 has for tables): the page is not the gather's then, but what it
 * translated is flushed.
 */
HVMEM_API hvmem_status hvmem_gather_table(struct hvmem_gather *gather, hvmem_mfn mfn,
                                          hvmem_u64 addr, hvmem_u32 level, hvmem_u32 flags);

/*
 * The block at mfn (order or HVMEM_ORDER_ANY) of `domain` (NULL: the host) is freed after the flush.
 * Until then it stays charged to its owner, and hvmem_free() answers HVMEM_E_GATHERED. It comes to
 * owe `owed` (HVMEM_OWES_*) and, with an owner, config.owed_on_free; without TLB, which the gather
 * pays, and without ICACHE out of owed_on_free unless an entry told so far could fetch, or a stage 2
 * removed anything into the gather. (Of a frame that could be fetched from earlier only, say it in `owed`.)
 * What it owed before it still owes. A partly dirty block counts as dirty from here on.
 * Settles early if its frames come from more than HVMEM_GATHER_WINDOWS spans of 2^32 frames.
 * Errors, nothing changed: HVMEM_E_STALE, HVMEM_E_PHASE, HVMEM_E_ARG (owed), those of
 * hvmem_free_owned().
 */
HVMEM_API hvmem_status hvmem_gather_free(struct hvmem_gather *gather, hvmem_mfn mfn,
                                         hvmem_order order, struct hvmem_domain *domain,
                                         hvmem_u32 owed);

/*
 * Invalidate what was told on CPUs and devices, or everything requested if another gather was open
 * on the mapping meanwhile, or nothing if nothing is owed; then free tables and frames. The gather
 * is over, unless HVMEM_AGAIN is returned (PREEMPTIBLE: the flush is done, call again).
 * No lock is held longer than for one block.
 * Errors: HVMEM_E_STALE (not open: finished twice, dropped, copied). HVMEM_E_HOST, HVMEM_E_TIMEOUT or
 * another failure of an invalidation: the gather is over, its frames and tables are in quarantine
 * (HVMEM_EVENT_QUARANTINED each, one report), hvmem_quarantine_release() gives them back.
 */
HVMEM_API hvmem_status hvmem_gather_finish(struct hvmem_gather *gather);

/* The operation failed half-way: exactly as finish, counted apart. */
HVMEM_API hvmem_status hvmem_gather_cancel(struct hvmem_gather *gather);

HVMEM_END_DECLS

#endif
