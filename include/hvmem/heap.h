/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/heap.h: a heap of page frames: who may have which frame, and what each frame still owes.
 *
 * Life of a heap: fill a struct hvmem_config, ask hvmem_heap_size(), give that much memory to
 * hvmem_heap_init(); then for each bank of RAM ask hvmem_bank_size() and give that much table
 * memory to hvmem_bank_add(). The heap keeps no other memory, has no globals, and never touches a
 * free frame. Several heaps can exist side by side.
 *
 * Calling context of every function unless it says otherwise: any CPU, any time after init, in the
 * lock regime the heap was configured with (hvmem/host.h); no library lock is held on return. Calls
 * that may flush (HVMEM_E_WOULD_FLUSH) need interrupts on if the host flushes by IPI.
 */
#ifndef HVMEM_HEAP_H
#define HVMEM_HEAP_H

#include <hvmem/backend.h>
#include <hvmem/host.h>
#include <hvmem/status.h>
#include <hvmem/types.h>

struct hvmem_heap;
struct hvmem_domain;

/*
 * Obligations: maintenance a frame owes before it may be handed to another owner. Carried by every
 * block, merged by OR, inherited by split (SCRUB: exact per half), kept by an allocated block until
 * it is paid. Order of payment: TLB, host kinds, SCRUB, DCACHE, ICACHE.
 */
#define HVMEM_OWES_TLB     0x01u /* a CPU may still reach it through an earlier translation */
#define HVMEM_OWES_ICACHE  0x02u /* instruction caches may hold lines of earlier code */
#define HVMEM_OWES_DCACHE  0x04u /* dirty lines may hide behind caches (uncached new owner) */
#define HVMEM_OWES_SCRUB   0x08u /* holds data of an earlier owner */
#define HVMEM_OWES_FOREIGN 0x10u /* was mapped outside its owner's own spaces */
#define HVMEM_OWES_HOST0   0x20u /* three kinds defined by the host, */
#define HVMEM_OWES_HOST1   0x40u /* settled by its `settle` operation */
#define HVMEM_OWES_HOST2   0x80u
#define HVMEM_OWES_ANY     0xffu

/* ---- configuration ------------------------------------------------------------------------- */

#define HVMEM_CONFIG_NO_CPU_CACHE 1u /* no per-CPU caches: every call goes to the node heaps */

struct hvmem_config {
    hvmem_u32 size;        /* sizeof(struct hvmem_config) */
    hvmem_u32 flags;       /* HVMEM_CONFIG_* */
    hvmem_u32 page_shift;  /* log2 bytes a frame: 12, 14 or 16 */
    hvmem_u32 max_order;   /* largest block, 0 .. HVMEM_ORDER_LIMIT */
    hvmem_u32 lock_regime; /* HVMEM_LOCK_* */
    hvmem_u32 max_cpus;    /* 1 .. HVMEM_CPU_LIMIT */
    hvmem_u32 max_banks;   /* 1 .. 65535; a bank that crosses an arena border takes several */
    hvmem_u32 max_domains; /* 0 .. 65534; domain ids are 1 .. max_domains */
    hvmem_u32 arena_order; /* log2 frames of a span that shares a lock; 0: 20; at most 32 */
    hvmem_u32 reserved;
    hvmem_u32 owed_on_free;   /* HVMEM_OWES_* every frame of a domain owes when it is freed */
    hvmem_u32 distance_nodes; /* rows of `distance` */
    const hvmem_u8 *distance; /* row-major matrix as in ACPI SLIT; NULL: 10 local, 20 remote */
    const hvmem_u8 *cpu_node; /* node of each CPU, max_cpus entries; NULL: all on node 0 */
    hvmem_u64 low_frames;     /* HVMEM_EVENT_LOW_MEMORY at or below this; 0 = never */
    hvmem_u64 low_hysteresis; /* HVMEM_EVENT_MEMORY_OK above low_frames + low_hysteresis */
    const struct hvmem_host_ops *host; /* may be NULL; copied */
    void *host_ctx;
    struct hvmem_backend *backend; /* may be NULL where no frame ever owes anything; kept */
};

HVMEM_BEGIN_DECLS

/*
 * Fill in the defaults: page_shift 12, max_order 18, caller serialises, 1 CPU, 64 banks, 0 domains,
 * owed_on_free TLB | ICACHE | DCACHE | SCRUB. distance and cpu_node are only read during init.
 */
HVMEM_API void hvmem_config_default(struct hvmem_config *config);

/*
 * Bytes of memory a heap with this configuration needs (64-byte aligned), banks' tables excluded.
 * Errors: HVMEM_E_VERSION, HVMEM_E_ARG, HVMEM_E_ORDER, HVMEM_E_CPU, HVMEM_E_NODE, HVMEM_E_COUNT.
 */
HVMEM_API hvmem_status hvmem_heap_size(const struct hvmem_config *config, hvmem_size *bytes);

/*
 * Make a heap without banks in memory[0 .. bytes). The memory may hold anything; it belongs to the
 * heap until the host stops using the heap. One CPU; no atomics are used.
 * Errors: as hvmem_heap_size, HVMEM_E_BUFFER.
 */
HVMEM_API hvmem_status hvmem_heap_init(void *memory, hvmem_size bytes,
                                       const struct hvmem_config *config, struct hvmem_heap **heap);

/*
 * From now on several CPUs may call: locks, atomics and per-CPU caches are used. Call once, on one
 * CPU, when atomics work (MMU and caches on). Meaningless in the regime HVMEM_LOCK_CALLER, where
 * it is refused. Errors: HVMEM_E_PHASE (twice, or regime), HVMEM_E_UNSUPPORTED (max_cpus > 1 and no
 * this_cpu operation).
 */
HVMEM_API hvmem_status hvmem_smp_enable(struct hvmem_heap *heap);

/*
 * A CPU joins (before its first call) or leaves (after its last): leaving drains its cache. In a
 * heap fresh from init only the CPU that called init is online.
 * Errors: HVMEM_E_CPU (number out of range, already in that state).
 */
HVMEM_API hvmem_status hvmem_cpu_online(struct hvmem_heap *heap, hvmem_cpu cpu);
HVMEM_API hvmem_status hvmem_cpu_offline(struct hvmem_heap *heap, hvmem_cpu cpu);

/* ---- banks --------------------------------------------------------------------------------- */

#define HVMEM_BANK_HOTPLUG 1u /* range may hold no RAM: node look-up only, no table needed */
#define HVMEM_BANK_DIRTY   2u /* content unknown: every frame owes SCRUB (boot memory) */

/* A contiguous range of RAM on one node. */
struct hvmem_bank {
    hvmem_u32 size;  /* sizeof(struct hvmem_bank) */
    hvmem_u32 flags; /* HVMEM_BANK_* */
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem_node node;
    hvmem_u32 reserved;
};

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
 * drained first). The table memory belongs to the caller again.
 * Errors: HVMEM_E_FOREIGN (no such bank), HVMEM_E_BUSY (frames in use).
 */
HVMEM_API hvmem_status hvmem_bank_remove(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames);

/* Node of a frame (hot-plug ranges included). Errors: HVMEM_E_FOREIGN. */
HVMEM_API hvmem_status hvmem_node_of(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_node *node);

/* ---- requests ------------------------------------------------------------------------------ */

#define HVMEM_REQ_EXACT_NODE 0x0001u /* fail rather than use another node than `node` */
#define HVMEM_REQ_NOFLUSH    0x0002u /* the caller cannot flush now: HVMEM_E_WOULD_FLUSH instead */
#define HVMEM_REQ_NO_CACHE   0x0004u /* bypass the per-CPU cache */
#define HVMEM_REQ_NO_CLAIM   0x0008u /* do not draw on the domain's claims */
/* Leave the debt on the block; only for a domain in state BUILDING (hvmem/domain.h). */
#define HVMEM_REQ_DEFER_TLB    0x0100u
#define HVMEM_REQ_DEFER_ICACHE 0x0200u
#define HVMEM_REQ_DEFER_DCACHE 0x0400u
#define HVMEM_REQ_DEFER_SCRUB  0x0800u
#define HVMEM_REQ_DEFER_HOST   0x1000u
#define HVMEM_REQ_DEFER_ALL    0x1f00u

/*
 * What is wanted. Zero every member that is not used. One block: set `order`, count 0. A run: set
 * `count` (1 .. 2^max_order frames, contiguous; the tail beyond count stays free).
 */
struct hvmem_request {
    hvmem_u32 size;  /* sizeof(struct hvmem_request) */
    hvmem_u32 flags; /* HVMEM_REQ_* */
    hvmem_u64 count; /* frames of a run; 0: one block of `order` */
    hvmem_u32 order; /* order of the block; with count: must be 0 */
    hvmem_u32 align; /* runs: start aligned to 2^align frames, align <= max_order */
    hvmem_mfn lo;    /* only frames in [lo, hi) */
    hvmem_mfn hi;    /* exclusive; 0: no upper limit */
    hvmem_node node; /* preferred node; HVMEM_NODE_ANY: the CPU's own */
    hvmem_u32 colour_shift;
    hvmem_u64 node_mask;   /* bit n: node n allowed; 0: all. Must hold a node with memory */
    hvmem_u64 colour_mask; /* order 0 only: ((mfn >> colour_shift) & colour_mask) == colour */
    hvmem_u64 colour;
    struct hvmem_domain *domain; /* charged owner; NULL: the host itself */
};

/*
 * Allocate one block or run. *mfn is written only on success. Whatever the frames owe and the flags
 * do not defer is settled before the call returns.
 * Errors: HVMEM_E_NOMEM, HVMEM_E_LIMIT, HVMEM_E_CLAIM, HVMEM_E_WOULD_FLUSH, HVMEM_E_ARG,
 * HVMEM_E_VERSION, HVMEM_E_ORDER, HVMEM_E_COUNT, HVMEM_E_ALIGN, HVMEM_E_RANGE, HVMEM_E_NODE,
 * HVMEM_E_DOMAIN (dying), HVMEM_E_PHASE (deferral outside BUILDING), HVMEM_E_UNSUPPORTED (a debt
 * that neither host nor back-end can pay), HVMEM_E_HOST.
 */
HVMEM_API hvmem_status hvmem_alloc(struct hvmem_heap *heap, const struct hvmem_request *request,
                                   hvmem_mfn *mfn);

/* Short form: one block for the host itself, on the CPU's own node or the nearest. */
HVMEM_API hvmem_status hvmem_alloc_order(struct hvmem_heap *heap, hvmem_order order,
                                         hvmem_mfn *mfn);

/*
 * Allocate up to n blocks of request->order. *got says how many of frames[] were written; fewer
 * than n only with a status other than HVMEM_OK, and those that were got stay allocated.
 */
HVMEM_API hvmem_status hvmem_alloc_bulk(struct hvmem_heap *heap,
                                        const struct hvmem_request *request, hvmem_mfn *frames,
                                        hvmem_u32 n, hvmem_u32 *got);

/*
 * Take exactly [mfn, mfn + count) out of the free memory, whatever its debts (they stay on the
 * frames). All or nothing; may span banks. Freed again by hvmem_free_run().
 * Errors: HVMEM_E_RANGE, HVMEM_E_FOREIGN (part outside every bank), HVMEM_E_BUSY (part in use).
 */
HVMEM_API hvmem_status hvmem_reserve(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/* ---- free ---------------------------------------------------------------------------------- */

/*
 * Free the block that starts at mfn. order must be the block's order or HVMEM_ORDER_ANY. Blocks of
 * a domain come to owe config.owed_on_free in addition to what they owe already.
 * Errors: HVMEM_E_FOREIGN, HVMEM_E_FREE, HVMEM_E_INTERIOR, HVMEM_E_WRONG_ORDER, HVMEM_E_RESERVED,
 * HVMEM_E_OFFLINE, HVMEM_E_ORDER, HVMEM_E_GATHERED, HVMEM_E_QUARANTINE.
 */
HVMEM_API hvmem_status hvmem_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order);

/*
 * As hvmem_free, but adds `owed` (HVMEM_OWES_*) and refuses a block whose owner is not `domain`
 * (NULL: the host itself) with HVMEM_E_OWNER.
 */
HVMEM_API hvmem_status hvmem_free_owned(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                        struct hvmem_domain *domain, hvmem_u32 owed);

/*
 * Free [mfn, mfn + count): any part of one block, or a run over several blocks and owners, reserved
 * frames included. Checked whole before anything changes; errors as hvmem_free, HVMEM_E_RANGE.
 * The caller must own the run: it must not be freed by anyone else meanwhile; if that rule is broken
 * the call stops at the first frame found free and returns HVMEM_E_FREE.
 */
HVMEM_API hvmem_status hvmem_free_run(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/*
 * Free n blocks of one order (HVMEM_ORDER_ANY: of any). Stops at the first that is refused; *done
 * says how many were freed.
 */
HVMEM_API hvmem_status hvmem_free_bulk(struct hvmem_heap *heap, const hvmem_mfn *frames,
                                       hvmem_u32 n, hvmem_order order, hvmem_u32 *done);

/* ---- debts --------------------------------------------------------------------------------- */

/*
 * Pay `owed` (HVMEM_OWES_*) for the allocated frames of [mfn, mfn + count): at most one whole flush,
 * then scrub, clean, instruction invalidate per block, in that order, without a library lock held.
 * Errors: as hvmem_free for frames that are not allocated; HVMEM_E_UNSUPPORTED, HVMEM_E_HOST: the
 * debts that were not paid stay.
 */
HVMEM_API hvmem_status hvmem_settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                    hvmem_u32 owed);

/* ---- bad frames ---------------------------------------------------------------------------- */

/*
 * Take one frame out of service. Free: at once. In use: it goes when it is freed, event
 * HVMEM_EVENT_OFFLINED. HVMEM_AGAIN says that it is in use. `online` brings it back.
 * Errors: HVMEM_E_FOREIGN, HVMEM_E_OFFLINE (already), HVMEM_E_RESERVED.
 */
HVMEM_API hvmem_status hvmem_offline(struct hvmem_heap *heap, hvmem_mfn mfn);
/* Errors: HVMEM_E_FOREIGN, HVMEM_E_ARG (neither offline nor going offline). */
HVMEM_API hvmem_status hvmem_online(struct hvmem_heap *heap, hvmem_mfn mfn);

/* ---- looking ------------------------------------------------------------------------------- */

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

/* The block that holds a frame. A snapshot unless the caller owns it. Errors: HVMEM_E_FOREIGN. */
HVMEM_API hvmem_status hvmem_lookup(struct hvmem_heap *heap, hvmem_mfn mfn,
                                    struct hvmem_block *block);

/* Counts. `free` includes `cached`. */
struct hvmem_stats {
    hvmem_u64 frames;    /* in all banks */
    hvmem_u64 free;      /* can be allocated, per-CPU caches included */
    hvmem_u64 cached;    /* of these, in per-CPU caches */
    hvmem_u64 allocated; /* owned by the host or a domain, reserved frames excluded */
    hvmem_u64 reserved;
    hvmem_u64 offline;
    hvmem_u64 quarantined;
    hvmem_u64 claimed; /* outstanding claims */
    hvmem_u64 refused; /* calls refused for a mistake of the caller */
    hvmem_u64 flushes; /* whole flushes made because an allocation had to settle */
    hvmem_u64 free_blocks[HVMEM_ORDER_LIMIT + 1]; /* by order, caches excluded */
};

/* Free frames, per-CPU caches included; cheap, exact when no call is running. No lock. */
HVMEM_API hvmem_u64 hvmem_free_frames(struct hvmem_heap *heap);

/*
 * Exact counts of a node (HVMEM_NODE_ANY: of all). Takes each lock in turn.
 * Errors: HVMEM_E_NODE (no memory on that node), HVMEM_E_VERSION.
 */
HVMEM_API hvmem_status hvmem_stats(struct hvmem_heap *heap, hvmem_node node, hvmem_size size,
                                   struct hvmem_stats *stats);

/* Return every cached frame to the node heaps. */
HVMEM_API hvmem_status hvmem_drain(struct hvmem_heap *heap);

/*
 * Walk every block of every bank in address order, holding no lock between calls: *cursor starts at
 * 0. HVMEM_AGAIN: *block was filled; HVMEM_OK: the end. Blocks may change between calls.
 */
HVMEM_API hvmem_status hvmem_walk(struct hvmem_heap *heap, hvmem_u64 *cursor,
                                  struct hvmem_block *block);

/*
 * Check every invariant of the frame table: each frame in exactly one block, blocks aligned, no two
 * free buddies unmerged, all counts equal to a walk. Each arena is locked for the whole of its
 * check: for tests and crash analysis. HVMEM_E_CORRUPT names the first frame found wrong in *mfn
 * and, in *where, a stable text.
 */
HVMEM_API hvmem_status hvmem_audit(struct hvmem_heap *heap, hvmem_mfn *mfn, const char **where);

/* ---- handing the table to a new version of the host ----------------------------------------- */

/*
 * Drain all caches and mark every table clean. The next call that changes anything clears the mark.
 * Errors: HVMEM_E_BUSY (a gather or a settle is open).
 */
HVMEM_API hvmem_status hvmem_quiesce(struct hvmem_heap *heap);

/*
 * Take over, in place, a table that an earlier heap with the same geometry wrote, instead of
 * hvmem_bank_add(). For a heap fresh from init, on one CPU: create the domains that own frames,
 * adopt every bank, then call hvmem_adopt_finish(). Until that is done other calls are refused with
 * HVMEM_E_PHASE or find no memory.
 * Errors: HVMEM_E_GEOMETRY (header, checksum or configuration differ; nothing was changed), and
 * those of hvmem_bank_add().
 */
HVMEM_API hvmem_status hvmem_bank_adopt(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                        void *table, hvmem_size bytes);

/*
 * Bring adopted tables into service in bounded steps: HVMEM_AGAIN, call again with the same *cursor
 * (first call: 0). Clean tables are trusted and only their owners counted. Others are audited whole
 * first; blocks found in a cache then become free owing everything, blocks in a gather and frames in
 * no block go to quarantine. The flush clock restarts above every stored one.
 * Errors: HVMEM_E_CORRUPT (no table was changed), HVMEM_E_DOMAIN (a frame of a domain that does not
 * exist), HVMEM_E_PHASE (nothing is being adopted).
 */
HVMEM_API hvmem_status hvmem_adopt_finish(struct hvmem_heap *heap, hvmem_u64 *cursor);

/*
 * Give the block of a frame in quarantine back, after the host has made sure that nothing reaches
 * it. Errors: HVMEM_E_FOREIGN, HVMEM_E_ARG (not in quarantine).
 */
HVMEM_API hvmem_status hvmem_quarantine_release(struct hvmem_heap *heap, hvmem_mfn mfn);

HVMEM_END_DECLS

#endif
