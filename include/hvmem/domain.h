/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/domain.h: an owner of frames: its life, page count, limit and claims, and what is owed for it.
 *
 * BUILDING: not yet run; deferral flags are allowed and debts collect on its frames. STARTING: a start
 * is settling them; nothing is allocated for it meanwhile. RUNNING: runs; every allocation settles
 * before it returns. DYING: gives frames back; may neither allocate nor claim. The handle lives in
 * memory of the host and is unlinked by destroy.
 *
 * hvmem_domain_populate() (hvmem/populate.h) gives a domain its memory.
 */
#ifndef HVMEM_DOMAIN_H
#define HVMEM_DOMAIN_H

#include <hvmem/heap.h>

#define HVMEM_DOMAIN_BUILDING 1u
#define HVMEM_DOMAIN_RUNNING  2u
#define HVMEM_DOMAIN_DYING    3u
#define HVMEM_DOMAIN_STARTING 4u

struct hvmem_space;

/*
 * How the tables of a domain are reached: by populate, start, clean and teardown. Given once by
 * hvmem_domain_attach(). Called with no library lock held. A gfn counts 4 KiB; an order counts frames
 * of the heap.
 */
struct hvmem_domain_ops {
    /* sizeof(struct hvmem_domain_ops) of the host's build; members beyond it are absent. */
    hvmem_u32 size;
    hvmem_u32 reserved;

    /*
     * Map 2^order frames from mfn at gfn. Every debt that must be paid before a running vCPU may see
     * them is paid. All or nothing: after an error nothing of them is mapped, nor cached, and the frames
     * are freed, with the debts of used ones, or where it is HVMEM_E_QUARANTINE they go into quarantine.
     */
    hvmem_status (*map)(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order);

    /*
     * Which frame is mapped at gfn: *mfn, and in *order the largest aligned block around gfn that is
     * mapped to one aligned block around *mfn. HVMEM_E_FREE: nothing is mapped there that a cache can hold
     * (registers of a device are not), and *order is the largest aligned block of gfns of which that is
     * true (0 if unknown). Absent: hvmem_domain_clean and _dirtied are refused. Frames mapped by
     * map_untouched are reported as mapped.
     */
    hvmem_status (*lookup)(void *ctx, hvmem_gfn gfn, hvmem_mfn *mfn, hvmem_order *order);

    /*
     * Remove all mappings and tables, in bounded steps (HVMEM_AGAIN). Called by teardown when no vCPU
     * can load the tables any more and no TLB holds their translations; devices must be told.
     */
    hvmem_status (*unmap_all)(void *ctx, struct hvmem_cursor *cursor);

    /*
     * The domain is about to run: everything is settled. Arms access tracking, for instance. An error
     * leaves the domain BUILDING. Never called again once it returned HVMEM_OK.
     */
    hvmem_status (*started)(void *ctx);

    /*
     * As map, but such that the first access of a vCPU faults: the contents of the frames are still
     * those of an earlier owner. The fault path pays, by hvmem_domain_foreign() where it is the host's own,
     * then makes the entry valid. Absent: extents with HVMEM_EXTENT_FIRST_TOUCH are refused.
     */
    hvmem_status (*map_untouched)(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order);

    /*
     * Both or neither. unit: the largest order that one call of map or map_untouched maps in bounded
     * time; a larger extent is mapped piece by piece in that order, and a populate can stop in between.
     * unmap: take one such piece back, for an extent of which the rest was refused or that was given
     * up: on return nothing of it is mapped or cached; after an error the whole block goes into
     * quarantine. Absent: each extent is mapped by one call.
     */
    hvmem_order (*unit)(void *ctx);
    hvmem_status (*unmap)(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order);
};

struct hvmem_domain_config {
    hvmem_u32 size;      /* sizeof(struct hvmem_domain_config) */
    hvmem_u32 id;        /* 1 .. config.max_domains, not in use */
    hvmem_u64 limit;     /* most frames it may own; ~0: no limit */
    hvmem_u64 node_mask; /* nodes its allocations may use, taken in turn; 0: all, nearest first */
};

struct hvmem_domain_stats {
    hvmem_u64 pages; /* frames owned, those cached for it excluded */
    hvmem_u64 limit;
    hvmem_u64 claimed; /* outstanding: promised and not yet allocated */
    hvmem_u32 state;   /* HVMEM_DOMAIN_* */
    hvmem_u32 id;
};

HVMEM_BEGIN_DECLS

/* Bytes (64-byte aligned) of a domain handle in this heap. */
HVMEM_API hvmem_size hvmem_domain_size(struct hvmem_heap *heap);

/*
 * Create a domain in state BUILDING with no frames. `memory` belongs to the heap until destroy.
 * Errors: HVMEM_E_VERSION, HVMEM_E_ARG, HVMEM_E_BUFFER, HVMEM_E_DOMAIN (id out of range or in use),
 * HVMEM_E_NODE (mask without a node that has memory), HVMEM_E_UNSUPPORTED (config.owed_on_free
 * holds a debt that neither host nor back-end can pay).
 */
HVMEM_API hvmem_status hvmem_domain_create(struct hvmem_heap *heap, void *memory, hvmem_size bytes,
                                           const struct hvmem_domain_config *config,
                                           struct hvmem_domain **domain);

/*
 * Give the domain its tables: `ops` (copied) and `ctx` for them, and the space that its vCPUs run, or
 * NULL. State BUILDING, no operation open.
 * Errors: HVMEM_E_ARG, HVMEM_E_VERSION (size 0), HVMEM_E_PHASE, HVMEM_E_BUSY.
 */
HVMEM_API hvmem_status hvmem_domain_attach(struct hvmem_domain *domain,
                                           const struct hvmem_domain_ops *ops, void *ctx,
                                           struct hvmem_space *space);

/*
 * BUILDING -> RUNNING, once. Pays whatever is still owed for the domain's frames, each debt once: one
 * filtered TLB flush if any is left, scrub, clean of what owes it or was dirtied, one invalidation of
 * the instruction caches, then ops.started(). From the call on no deferral is accepted. No frame of the
 * domain may be freed meanwhile. Frames that are to be paid at first touch keep their debts.
 *
 * hvmem_domain_start_step() is the same in bounded steps: HVMEM_AGAIN until it is done; `budget` frames
 * of contents a call (0: until the host wants the CPU back). The state is STARTING meanwhile; a call of
 * hvmem_domain_start() takes over where the steps stopped, hvmem_domain_kill() gives up.
 * Errors, the domain is BUILDING and what was not paid is still owed: HVMEM_E_PHASE (not BUILDING),
 * HVMEM_E_BUSY (a populate is open, a call of the domain is under way on another CPU), HVMEM_E_STALE,
 * HVMEM_E_DOMAIN (killed between two steps, and stays so), HVMEM_E_UNSUPPORTED, HVMEM_E_HOST, and what
 * ops.lookup or ops.started returned.
 */
HVMEM_API hvmem_status hvmem_domain_start(struct hvmem_domain *domain);
HVMEM_API hvmem_status hvmem_domain_start_step(struct hvmem_domain *domain, hvmem_u64 budget,
                                               struct hvmem_cursor *cursor);

/*
 * The builder wrote guest frames [gfn, gfn + n) after they were populated (an image, tables): start
 * cleans them. Needs no memory: a few ranges are kept, neighbours merged. State BUILDING; later
 * the caller cleans by itself.
 * Errors: HVMEM_E_ARG, HVMEM_E_RANGE (empty, wraps, beyond 2^40), HVMEM_E_PHASE, HVMEM_E_UNSUPPORTED
 * (no ops.lookup).
 */
HVMEM_API hvmem_status hvmem_domain_dirtied(struct hvmem_domain *domain, hvmem_gfn gfn,
                                            hvmem_u64 n);

/*
 * Clean and invalidate the data-cache lines of guest frames [gfn, gfn + n), holes skipped, in bounded
 * steps of HVMEM_CLEAN_LINES lines a call (fewer if the host wants the CPU back). HVMEM_AGAIN: call again.
 * The guest may name any range and have the cursor in its hands (HVMEM_CLEANS, hvmem/cache.h): out of range
 * or of another range than the cursor's is refused. After an error it is over and the cursor zero. Errors:
 * HVMEM_E_ARG, HVMEM_E_RANGE, HVMEM_E_STALE, HVMEM_E_BUSY, HVMEM_E_DOMAIN (dying), HVMEM_E_UNSUPPORTED,
 * HVMEM_E_HOST, and what ops.lookup returned.
 */
#define HVMEM_CLEAN_LINES 16384u
HVMEM_API hvmem_status hvmem_domain_clean(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n,
                                          struct hvmem_cursor *cursor);

/*
 * An allocated block of the domain is (or is about to be) mapped outside the domain's own spaces. Pays
 * what the block owes first, what waits for its first touch too: beside vCPUs that touch it meanwhile, and
 * in bounded steps, HVMEM_AGAIN (the host wants the CPU back): call again, nothing is paid for twice. From
 * HVMEM_OK on its frames owe a filtered flush when they are freed, even by a teardown.
 * Errors: as hvmem_free for blocks, HVMEM_E_OWNER, and as hvmem_settle; HVMEM_E_DOMAIN (dying); HVMEM_E_BUSY also
 * if the domain is starting, or the block was freed and allocated anew meanwhile, which nobody may do on another
 * CPU but a teardown, that waits: what is just being scrubbed would be the next owner's.
 */
HVMEM_API hvmem_status hvmem_domain_foreign(struct hvmem_domain *domain, hvmem_mfn mfn,
                                            hvmem_order order);

/*
 * Kill the domain and take everything from it, in bounded steps (HVMEM_AGAIN: call again; cursor zero
 * at first): an open populate or start is given up, claims are cancelled, the attached space is
 * destroyed, which is one flush of its id, ops.unmap_all, and every block that the domain owns is freed.
 * With HVMEM_OK it owns nothing and can be destroyed.
 *
 * When the ids of the domain cannot be loaded any more (the space given by attach was destroyed, or
 * HVMEM_TEARDOWN_IDS_GONE says that all its spaces were, with their flush), freed frames owe no flush of
 * translations for its sake: only what they owed before, and FOREIGN ones.
 * Errors: HVMEM_E_ARG, HVMEM_E_STALE, HVMEM_E_BUSY (vCPUs run or are attached; another CPU is in a call
 * of the domain; a gather or quarantine holds frames of it, or a stage 2 that is not attached has tables
 * which it pays for: try again), and what ops.unmap_all returned. The domain is DYING after any of them but
 * ARG and STALE.
 */
#define HVMEM_TEARDOWN_IDS_GONE 1u
HVMEM_API hvmem_status hvmem_domain_teardown(struct hvmem_domain *domain, hvmem_u32 flags,
                                             struct hvmem_cursor *cursor);

/* Any state -> DYING: claims are given back, allocation and claims are refused from now on. */
HVMEM_API hvmem_status hvmem_domain_kill(struct hvmem_domain *domain);

/*
 * Unlink a DYING domain that owns no frame. The handle is dead: HVMEM_E_ARG as long as its memory is
 * not used for anything else. Errors: HVMEM_E_PHASE, HVMEM_E_BUSY (owns frames).
 */
HVMEM_API hvmem_status hvmem_domain_destroy(struct hvmem_domain *domain);

/* Set the page limit. May be below what the domain owns: then it cannot allocate. */
HVMEM_API hvmem_status hvmem_domain_limit(struct hvmem_domain *domain, hvmem_u64 frames);

/*
 * Promise that `frames` more frames can be allocated for the domain, on one node or anywhere
 * (HVMEM_NODE_ANY). Replaces the claim on that node that is still outstanding; 0 cancels it. Every
 * allocation of the domain (HVMEM_REQ_NO_CLAIM excepted) uses its claims up: that of the node, then
 * the one for anywhere; one that fails puts them back as they were, unless they were set meanwhile. Others
 * get HVMEM_E_CLAIM rather than claimed memory. A claim counts frames,
 * not contiguity. Where bad frames that go offline leave less than was promised, domains with claims
 * are served in the order they come, the others not at all.
 * Errors: HVMEM_E_NOMEM (not that many unclaimed free frames), HVMEM_E_LIMIT (beyond the page
 * limit), HVMEM_E_DOMAIN (dying), HVMEM_E_NODE, HVMEM_E_HOST (not that many outside the cache of a CPU
 * for which barrier_cpu failed).
 */
HVMEM_API hvmem_status hvmem_domain_claim(struct hvmem_domain *domain, hvmem_node node,
                                          hvmem_u64 frames);

/* Counts and state. Errors: HVMEM_E_ARG. */
HVMEM_API hvmem_status hvmem_domain_stats(struct hvmem_domain *domain,
                                          struct hvmem_domain_stats *stats);

HVMEM_END_DECLS

#endif
