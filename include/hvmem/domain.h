/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/domain.h: an owner of frames: its state, page count, limit and claims.
 *
 * BUILDING: not yet run; deferral flags are allowed and debts collect on its frames.
 * RUNNING: runs; every allocation settles before it returns. DYING: gives frames back; may neither
 * allocate nor claim. The handle lives in memory of the host and is unlinked by destroy.
 */
#ifndef HVMEM_DOMAIN_H
#define HVMEM_DOMAIN_H

#include <hvmem/heap.h>

#define HVMEM_DOMAIN_BUILDING 1u
#define HVMEM_DOMAIN_RUNNING  2u
#define HVMEM_DOMAIN_DYING    3u

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
 * BUILDING -> RUNNING. From the call on no deferral is accepted; every debt on the domain's frames
 * must be settled before: HVMEM_E_OWED if the domain still holds a deferred debt.
 */
HVMEM_API hvmem_status hvmem_domain_start(struct hvmem_domain *domain);

/* Any state -> DYING: claims are given back, allocation and claims are refused from now on. */
HVMEM_API hvmem_status hvmem_domain_kill(struct hvmem_domain *domain);

/* Unlink a DYING domain that owns no frame. Errors: HVMEM_E_PHASE, HVMEM_E_BUSY (owns frames). */
HVMEM_API hvmem_status hvmem_domain_destroy(struct hvmem_domain *domain);

/* Set the page limit. May be below what the domain owns: then it cannot allocate. */
HVMEM_API hvmem_status hvmem_domain_limit(struct hvmem_domain *domain, hvmem_u64 frames);

/*
 * Promise that `frames` more frames can be allocated for the domain, on one node or anywhere
 * (HVMEM_NODE_ANY). Replaces the claim on that node that is still outstanding; 0 cancels it. Every
 * allocation of the domain (HVMEM_REQ_NO_CLAIM excepted) uses its claims up: that of the node, then
 * the one for anywhere. Others get HVMEM_E_CLAIM rather than claimed memory. A claim counts frames,
 * not contiguity. Where bad frames that go offline leave less than was promised, domains with claims
 * are served in the order they come, the others not at all.
 * Errors: HVMEM_E_NOMEM (not that many unclaimed free frames), HVMEM_E_LIMIT (beyond the page
 * limit), HVMEM_E_DOMAIN (dying), HVMEM_E_NODE.
 */
HVMEM_API hvmem_status hvmem_domain_claim(struct hvmem_domain *domain, hvmem_node node,
                                          hvmem_u64 frames);

/* Counts and state. Errors: HVMEM_E_ARG. */
HVMEM_API hvmem_status hvmem_domain_stats(struct hvmem_domain *domain,
                                          struct hvmem_domain_stats *stats);

HVMEM_END_DECLS

#endif
