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

#include <hvmem/bank.h>
#include <hvmem/config.h>
#include <hvmem/look.h>

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
    hvmem_u64 colour_mask; /* order 0 only: ((mfn >> colour_shift) & colour_mask) == colour;
                              no bit beyond frame numbers */
    hvmem_u64 colour;
    struct hvmem_domain *domain; /* charged owner; NULL: the host itself */
};

HVMEM_BEGIN_DECLS

/*
 * Allocate one block or run. *mfn is written only on success. Whatever the frames owe and the flags
 * do not defer is settled before the call returns.
 * Errors: HVMEM_E_NOMEM, HVMEM_E_LIMIT, HVMEM_E_CLAIM, HVMEM_E_WOULD_FLUSH, HVMEM_E_ARG,
 * HVMEM_E_VERSION, HVMEM_E_ORDER, HVMEM_E_COUNT, HVMEM_E_ALIGN, HVMEM_E_RANGE, HVMEM_E_NODE,
 * HVMEM_E_DOMAIN (dying), HVMEM_E_BUSY (the domain is starting: try again),
 * HVMEM_E_PHASE (deferral outside BUILDING), HVMEM_E_UNSUPPORTED (a debt
 * that neither host nor back-end can pay), HVMEM_E_HOST (also: no memory but what may lie in the
 * cache of a CPU for which barrier_cpu failed).
 */
HVMEM_API hvmem_status hvmem_alloc(struct hvmem_heap *heap, const struct hvmem_request *request,
                                   hvmem_mfn *mfn);

/* Short form: one block for the host itself, on the CPU's own node or the nearest. Errors as hvmem_alloc(). */
HVMEM_API hvmem_status hvmem_alloc_order(struct hvmem_heap *heap, hvmem_order order,
                                         hvmem_mfn *mfn);

/*
 * Short form: one block for a domain (NULL: the host itself), as hvmem_alloc() with nothing but order and
 * domain set. A CPU that allocates and frees single frames or order-9 blocks of one running domain again
 * and again (hvmem_free_owned()) does so without a locked instruction: some frames of the domain's limit
 * are then charged to it in advance; they are in no count and are taken back before a limit refuses.
 */
HVMEM_API hvmem_status hvmem_alloc_owned(struct hvmem_heap *heap, struct hvmem_domain *domain,
                                         hvmem_order order, hvmem_mfn *mfn);

/*
 * Allocate up to n blocks of request->order. *got says how many of frames[] were written; fewer
 * than n only with a status other than HVMEM_OK: the one that the next block was refused with. Those
 * that were got stay allocated.
 */
HVMEM_API hvmem_status hvmem_alloc_bulk(struct hvmem_heap *heap,
                                        const struct hvmem_request *request, hvmem_mfn *frames,
                                        hvmem_u32 n, hvmem_u32 *got);

/*
 * Take exactly [mfn, mfn + count) out of the free memory, whatever its debts (they stay on the
 * frames). All or nothing; may span banks. Freed again by hvmem_free_run().
 * Errors: HVMEM_E_RANGE, HVMEM_E_FOREIGN (part outside every bank), HVMEM_E_BUSY (part in use),
 * HVMEM_E_CLAIM (free, but promised to domains).
 */
HVMEM_API hvmem_status hvmem_reserve(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/*
 * Free the block that starts at mfn. order must be the block's order or HVMEM_ORDER_ANY. Blocks of
 * a domain come to owe config.owed_on_free in addition to what they owe already.
 * Errors: HVMEM_E_FOREIGN, HVMEM_E_FREE, HVMEM_E_INTERIOR, HVMEM_E_WRONG_ORDER, HVMEM_E_RESERVED,
 * HVMEM_E_OFFLINE, HVMEM_E_ORDER, HVMEM_E_GATHERED, HVMEM_E_QUARANTINE, HVMEM_E_HOST (the block
 * belongs to the cache of a CPU for which barrier_cpu failed; nothing changed, try again), HVMEM_E_BUSY (16
 * times on end other calls changed the block's record between the look at it and the free: a frame of it went
 * offline and back, a debt was paid; nothing changed, try again).
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
 * frames included. Checked whole before anything changes; errors as hvmem_free, but those of an order or of
 * the middle of a block, and HVMEM_E_RANGE (empty, wraps). After these nothing is freed. HVMEM_E_BUSY (other calls
 * changed one block 4096 times on end) comes at a block: what is below it is free, it and what is above it are as
 * they were.
 * The caller must own the run: it must not be freed by anyone else meanwhile (other parts of its blocks may
 * be); if that rule is broken the call stops at the first frame found free and returns HVMEM_E_FREE.
 */
HVMEM_API hvmem_status hvmem_free_run(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/*
 * Free n blocks of one order (HVMEM_ORDER_ANY: of any). Stops at the first that is refused; *done
 * says how many were freed. Errors: as hvmem_free().
 */
HVMEM_API hvmem_status hvmem_free_bulk(struct hvmem_heap *heap, const hvmem_mfn *frames,
                                       hvmem_u32 n, hvmem_order order, hvmem_u32 *done);

/*
 * Pay `owed` (HVMEM_OWES_*) for the allocated frames of [mfn, mfn + count): at most one whole flush (without
 * the clock one an owner), then scrub, clean, instruction invalidate per block, in that order, without a
 * library lock held. The caller owns the frames: nobody frees them meanwhile but a teardown of their domain,
 * which waits.
 * Errors: HVMEM_E_RANGE (empty, wraps), HVMEM_E_ARG (owed); as hvmem_free for frames that are not allocated;
 * HVMEM_E_UNSUPPORTED, HVMEM_E_HOST, HVMEM_E_DOMAIN (dying), HVMEM_E_BUSY (a first touch under way on another
 * CPU does not end, the domain is starting, or they were freed just now): the debts that were not paid stay.
 */
HVMEM_API hvmem_status hvmem_settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                    hvmem_u32 owed);

/*
 * Take one frame out of service. Free: at once. In use: it goes when it is freed, event
 * HVMEM_EVENT_OFFLINED. HVMEM_AGAIN says that it is in use. `online` brings it back.
 * Errors: HVMEM_E_FOREIGN, HVMEM_E_OFFLINE (already), HVMEM_E_RESERVED, HVMEM_E_QUARANTINE,
 * HVMEM_E_HOST (as hvmem_free), HVMEM_E_COUNT (256 frames wait for their owners), HVMEM_E_BUSY (its
 * block changed hands time and again: try again).
 */
HVMEM_API hvmem_status hvmem_offline(struct hvmem_heap *heap, hvmem_mfn mfn);
/* Errors: HVMEM_E_FOREIGN, HVMEM_E_ARG (neither offline nor going offline). */
HVMEM_API hvmem_status hvmem_online(struct hvmem_heap *heap, hvmem_mfn mfn);

/*
 * Give the block of a frame in quarantine back, after the host has made sure that nothing reaches
 * it. Errors: HVMEM_E_FOREIGN, HVMEM_E_ARG (not in quarantine).
 */
HVMEM_API hvmem_status hvmem_quarantine_release(struct hvmem_heap *heap, hvmem_mfn mfn);

HVMEM_END_DECLS

#endif
