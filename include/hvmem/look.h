/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/look.h: looking at a heap without changing it: blocks, counts, walks, audit.
 */
#ifndef HVMEM_LOOK_H
#define HVMEM_LOOK_H

#include <hvmem/config.h>

/* States of a block (struct hvmem_block.state). */
#define HVMEM_BLOCK_FREE       0u
#define HVMEM_BLOCK_ALLOCATED  1u
#define HVMEM_BLOCK_CACHED     2u /* free, in a per-CPU cache */
#define HVMEM_BLOCK_RESERVED   3u /* taken by hvmem_reserve() */
#define HVMEM_BLOCK_OFFLINING  4u /* allocated; goes offline when freed */
#define HVMEM_BLOCK_OFFLINE    5u /* out of service */
#define HVMEM_BLOCK_GATHERED   6u /* held by a gather until its flush is done */
#define HVMEM_BLOCK_QUARANTINE 7u /* its flush did not come back */

struct hvmem_block {
    hvmem_mfn mfn; /* first frame of the block */
    hvmem_u32 order;
    hvmem_u32 state; /* HVMEM_BLOCK_* */
    hvmem_u32 owner; /* domain id; 0: the host itself */
    hvmem_u32 owed;  /* HVMEM_OWES_* */
    hvmem_node node;
    hvmem_u32 reserved;
};

HVMEM_BEGIN_DECLS

/*
 * The block that holds a frame. A snapshot unless the caller owns it. Errors: HVMEM_E_FOREIGN, also while the
 * frame's bank is being added.
 */
HVMEM_API hvmem_status hvmem_lookup(struct hvmem_heap *heap, hvmem_mfn mfn,
                                    struct hvmem_block *block);

/*
 * Counts. `free` includes `cached`, and free + allocated + reserved + offline + quarantined = frames,
 * always. Where other CPUs allocate and free meanwhile, a frame on its way between a cache and the
 * node heap may be counted as free or as allocated, whichever it is not.
 */
struct hvmem_stats {
    hvmem_u64 frames;    /* in all banks */
    hvmem_u64 free;      /* can be allocated, per-CPU caches included */
    hvmem_u64 cached;    /* of these, in per-CPU caches */
    hvmem_u64 allocated; /* owned by the host or a domain, gathered ones too, reserved ones not */
    hvmem_u64 reserved;
    hvmem_u64 offline;
    hvmem_u64 quarantined;
    hvmem_u64 claimed;    /* outstanding claims */
    hvmem_u64 refused;    /* calls refused for a mistake of the caller */
    hvmem_u64 flushes;    /* whole flushes made because frames had to settle */
    hvmem_u64 flush_cpus; /* CPUs asked in them; hardware that broadcasts asks none */
    hvmem_u64 free_blocks[HVMEM_ORDER_LIMIT + 1]; /* by order, caches excluded */
};

/* Free frames, per-CPU caches included; cheap, exact when no call is running. No lock. */
HVMEM_API hvmem_u64 hvmem_free_frames(struct hvmem_heap *heap);

/*
 * Counts of a node (HVMEM_NODE_ANY: of all), exact when no other call is running. Takes each lock in
 * turn.
 * Errors: HVMEM_E_NODE (no memory on that node), HVMEM_E_VERSION.
 */
HVMEM_API hvmem_status hvmem_stats(struct hvmem_heap *heap, hvmem_node node, hvmem_size size,
                                   struct hvmem_stats *stats);

/*
 * Return every cached frame to the node heaps. HVMEM_E_HOST: the barrier operation failed for some
 * CPU, whose frames go home at its next call.
 */
HVMEM_API hvmem_status hvmem_drain(struct hvmem_heap *heap);

/*
 * Walk every block of every bank in address order, holding no lock between calls: *cursor starts at
 * 0. HVMEM_AGAIN: *block was filled; HVMEM_OK: the end. Blocks may change between calls; of a bank that is
 * being added those that are not there yet are left out.
 */
HVMEM_API hvmem_status hvmem_walk(struct hvmem_heap *heap, hvmem_u64 *cursor,
                                  struct hvmem_block *block);

/*
 * Check every invariant of the frame table: each frame in exactly one block, blocks aligned, no two
 * free buddies unmerged, summaries of sets and dirt of parts as they are below, all counts equal to a walk,
 * those of domains and claims too. Each arena is locked for the whole of its check: for tests and crash
 * analysis, while no other call runs (blocks on their way would count as wrong). HVMEM_E_CORRUPT names the
 * first frame found wrong in *mfn (0: a count beside the tables) and, in *where, a stable text.
 */
HVMEM_API hvmem_status hvmem_audit(struct hvmem_heap *heap, hvmem_mfn *mfn, const char **where);

HVMEM_END_DECLS

#endif
