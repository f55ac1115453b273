/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/bank.h: banks of RAM: adding them with their frame tables, removing them, their nodes, and
 * handing tables over to a new version of the host.
 */
#ifndef HVMEM_BANK_H
#define HVMEM_BANK_H

#include <hvmem/config.h>

#define HVMEM_BANK_HOTPLUG 1u /* range may hold no RAM: node look-up only, no table needed */
/*
 * Content unknown (boot memory, memory that was removed): every frame owes SCRUB, and of DCACHE and ICACHE what
 * freed ones do (ICACHE only where instruction caches do not see writes).
 */
#define HVMEM_BANK_DIRTY 2u

/* A contiguous range of RAM on one node. */
struct hvmem_bank {
    hvmem_u32 size;  /* sizeof(struct hvmem_bank) */
    hvmem_u32 flags; /* HVMEM_BANK_* */
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem_node node;
    hvmem_u32 reserved;
};

HVMEM_BEGIN_DECLS

/*
 * Bytes of table memory (64-byte aligned) a bank needs. Depends on the configuration and on the
 * bank only. About 8.4 bytes a frame. Errors: HVMEM_E_VERSION, HVMEM_E_ARG, HVMEM_E_RANGE,
 * HVMEM_E_NODE, HVMEM_E_COUNT.
 */
HVMEM_API hvmem_status hvmem_bank_size(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                       hvmem_size *bytes);

/*
 * Add a bank; all its frames become free at once. `table` may hold anything and belongs to the heap
 * until the bank is removed; it may lie inside the bank only if the caller reserves those frames
 * before the next allocation (or adds the bank without them). Blocks merge with those of banks
 * added before. Steps: about one per max-order block. Any time, also while other CPUs allocate.
 * Errors: as hvmem_bank_size, HVMEM_E_BUFFER, HVMEM_E_OVERLAP, HVMEM_E_COUNT (max_banks used up).
 */
HVMEM_API hvmem_status hvmem_bank_add(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                      void *table, hvmem_size bytes);

/*
 * Remove a range that was added as exactly this bank; every frame of it must be free (caches are
 * drained first). CPUs that may still reach a frame are made to flush; what else frames owe is forgotten: add
 * the range as HVMEM_BANK_DIRTY if it comes back. The table memory belongs to the caller again. Where a
 * hot-plug range has the same frames the RAM goes, and the range at a second call. May flush.
 * Errors: HVMEM_E_FOREIGN (no such bank), HVMEM_E_BUSY (frames in use or promised), HVMEM_E_HOST (the flush
 * or the barrier operation failed), HVMEM_E_UNSUPPORTED (frames owe a flush that nobody can do); the bank
 * stays then.
 */
HVMEM_API hvmem_status hvmem_bank_remove(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames);

/* Node of a frame (hot-plug ranges included). Errors: HVMEM_E_FOREIGN. */
HVMEM_API hvmem_status hvmem_node_of(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_node *node);

/*
 * Drain all caches and mark every table clean. The next call that changes anything clears the mark.
 * Errors: HVMEM_E_BUSY (a gather or a settle is open; a free is under way on another CPU; a domain has an
 * operation in steps open, or is being built and owes cache work as a whole, which no table says: start it
 * first), HVMEM_E_HOST (the barrier operation failed; nothing is marked).
 */
HVMEM_API hvmem_status hvmem_quiesce(struct hvmem_heap *heap);

/*
 * Take over, in place, a table that an earlier heap with the same geometry wrote, instead of
 * hvmem_bank_add(). For a heap fresh from init, on one CPU: create the domains that own frames,
 * adopt every bank, then call hvmem_adopt_finish(). Until that is done other calls are refused with
 * HVMEM_E_PHASE or find no memory. Which frames of blocks in state OFFLINING were bad no table says:
 * hvmem_offline() must be told again. Blocks that wait for their first touch do so still: the new tables map them
 * untouched again (HVMEM_S2_FIRST_TOUCH), or hvmem_domain_foreign() pays.
 * Errors: HVMEM_E_PHASE (the heap has other banks, runs on several CPUs, or is being finished),
 * HVMEM_E_GEOMETRY (header, checksum or configuration differ; nothing was changed), and
 * those of hvmem_bank_add().
 */
HVMEM_API hvmem_status hvmem_bank_adopt(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                        void *table, hvmem_size bytes);

/*
 * Bring adopted tables into service in bounded steps: HVMEM_AGAIN, call again with the same *cursor
 * (first call: 0). Clean tables are trusted and only their owners counted. Of others the summaries of
 * the sets are made anew, and they are audited whole before any block is changed; blocks in a gather and frames
 * in no block go to quarantine. Of all, blocks found in a cache or on their way through a call of the old heap
 * (a scrub, a split) become free owing everything. The flush clock restarts above every stored one. After an
 * error *cursor is 0 and what is missing may be given: banks, domains.
 * Errors: HVMEM_E_CORRUPT (no block was changed; also: a block reaches into a bank that was not given),
 * HVMEM_E_DOMAIN (a frame of a domain that does not exist), HVMEM_E_STALE (not the cursor of this
 * adoption), HVMEM_E_PHASE (nothing is being adopted).
 */
HVMEM_API hvmem_status hvmem_adopt_finish(struct hvmem_heap *heap, hvmem_u64 *cursor);

HVMEM_END_DECLS

#endif
