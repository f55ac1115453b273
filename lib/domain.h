/* SPDX-License-Identifier: BSD-2-Clause */
/* domain.h: the inside of a domain handle, and charging frames to it. */
#ifndef HVMEM_LIB_DOMAIN_H
#define HVMEM_LIB_DOMAIN_H

#include "heap.h"

#define HVMEM__CLAIM_ANY HVMEM_NODE_LIMIT /* index of the claim for anywhere */

struct hvmem_domain {
    struct hvmem_heap *heap; /* constant */
    hvmem_u32 id;            /* constant */
    hvmem_u32 state;         /* HVMEM_DOMAIN_*; admin lock to write */
    hvmem_u64 node_mask;     /* constant; 0: any */
    hvmem_u64 limit;         /* atomic */
    hvmem_u64 pages;         /* frames owned; atomic */
    hvmem_u64 deferred;      /* of these, in blocks that still owe something; atomic */
    hvmem_u32 turn;          /* round robin over node_mask; atomic */
    hvmem_u32 reserved;
    hvmem_u64 claim[HVMEM_NODE_LIMIT + 1]; /* outstanding; claim lock */
};

/* The domain of an owner id, or NULL for 0. The owner of a frame exists. */
HVMEM_INLINE struct hvmem_domain *hvmem__domain_of(const struct hvmem_heap *heap, hvmem_u32 id)
{
    return id && id <= heap->max_domains ? __atomic_load_n(&heap->domain[id], __ATOMIC_ACQUIRE)
                                         : (struct hvmem_domain *)0;
}

/* Charge frames against the limit: all or nothing. E_LIMIT, E_DOMAIN (dying). NULL: nothing. */
hvmem_status hvmem__domain_charge(struct hvmem_domain *domain, hvmem_u64 frames);
void hvmem__domain_uncharge(struct hvmem_domain *domain, hvmem_u64 frames);

/*
 * A call wants to leave `frames` in debt: counts them as deferred if the domain is BUILDING, else
 * E_PHASE. Ordered against hvmem_domain_start(): either start sees the count or the caller sees
 * that the domain runs. Frames that owe nothing after all, or any more, are taken off again.
 */
hvmem_status hvmem__domain_may_defer(struct hvmem_domain *domain, hvmem_u64 frames);
/* Count without asking: debts that the call itself is about to pay. */
void hvmem__domain_hold(struct hvmem_domain *domain, hvmem_u64 frames);
void hvmem__domain_settled(struct hvmem_domain *domain, hvmem_u64 frames);

#endif
