/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * claim.h: free memory promised to domains.
 *
 * While any claim is outstanding every arena is `counted`: takes and gives of frames adjust
 *   spare       = free frames in the arenas - all outstanding claims
 *   node.spare  = free frames in the node's arenas - the node's outstanding node claims
 * under the claim lock, in the same arena section that moves the frames. Frames in per-CPU caches
 * are outside the arenas and so count as taken. Without claims nothing is counted and no shared
 * line is touched. Both spares may become negative when bad frames go offline (as two's complement).
 * Then what is free must not wait in a cache for those without a claim: the caches are emptied and
 * stay shut (pcpu.h) until the promises hold again.
 */
#ifndef HVMEM_LIB_CLAIM_H
#define HVMEM_LIB_CLAIM_H

#include "heap.h"

/* What one take drew on, so that it can be undone exactly. */
struct hvmem__drawn {
    struct hvmem_domain *domain;
    hvmem_u64 frames;    /* allowed to be taken */
    hvmem_u64 from_node; /* of these, promised to the domain on this node */
    hvmem_u64 from_any;  /* and anywhere */
    hvmem_u64 when;      /* claims_set of the domain then: a claim that was set later gave none */
};

/*
 * About to take `frames` from this arena: how many may be taken, those promised to the domain (whose
 * claims are used up) and those promised to nobody, is left in drawn->frames. What is not taken after
 * all goes back with untake: then it is as if it had not been asked for; what a claim gave that has been
 * set anew since is nobody's. Arena lock held.
 */
void hvmem__claim_ask(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                      struct hvmem_domain *domain, hvmem_u64 frames, struct hvmem__drawn *drawn);

HVMEM_INLINE void hvmem__claim_take(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                    struct hvmem_domain *domain, hvmem_u64 frames,
                                    struct hvmem__drawn *drawn)
{
    drawn->domain = (struct hvmem_domain *)0;
    drawn->frames = frames;
    drawn->from_node = drawn->from_any = drawn->when = 0;
    if (hvmem__unlikely(arena->counted))
        hvmem__claim_ask(heap, arena, domain, frames, drawn);
}
void hvmem__claim_untake(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                         struct hvmem__drawn *drawn, hvmem_u64 frames);

/*
 * An allocation is about to give back what it took: its domain's claims are as before, but for those
 * that were set anew since. Called before the frames are given back. No lock held.
 */
void hvmem__claim_refund(struct hvmem_heap *heap, hvmem_node node,
                         const struct hvmem__drawn *drawn);

/*
 * Whether what one hold of an arena's lock drew can be added to what earlier ones did for the same
 * allocation: not if a claim was set anew in between, for the two could not be told apart.
 */
HVMEM_INLINE int hvmem__claim_joins(const struct hvmem__drawn *all,
                                    const struct hvmem__drawn *drawn)
{
    return !(drawn->from_node | drawn->from_any) || !(all->from_node | all->from_any) ||
           all->when == drawn->when;
}

HVMEM_INLINE void hvmem__claim_join(struct hvmem__drawn *all, const struct hvmem__drawn *drawn)
{
    if (hvmem__likely(!(drawn->from_node | drawn->from_any)))
        return;
    all->domain = drawn->domain;
    all->when = drawn->when;
    all->from_node += drawn->from_node;
    all->from_any += drawn->from_any;
}

/* Its `when` from the low bits, which an open populate notes. No lock of rank CLAIM or above held. */
hvmem_u64 hvmem__claim_when(struct hvmem_domain *domain, hvmem_u32 low);

/* Take without asking: bad frames. Arena lock held. */
void hvmem__claim_force(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                        hvmem_u64 frames);

void hvmem__claim_add(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u64 frames);

/* `frames` became free in this arena. Arena lock held. */
HVMEM_INLINE void hvmem__claim_give(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                    hvmem_u64 frames)
{
    if (hvmem__unlikely(arena->counted))
        hvmem__claim_add(heap, arena, frames);
}

/* A domain got `frames` on a node from a cache: its claims shrink. Inside the section. */
void hvmem__claim_use(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_node node,
                      hvmem_u64 frames, struct hvmem__drawn *drawn);

/* Give all outstanding claims of a domain back. Admin lock held. */
void hvmem__claim_cancel(struct hvmem_heap *heap, struct hvmem_domain *domain);

/*
 * Whether less is free in the arenas than is promised, on a node or anywhere: bad frames went offline.
 * No lock of rank CLAIM or above held.
 */
int hvmem__claim_short(struct hvmem_heap *heap);

/* Claims outstanding on one node, or all. No lock of rank CLAIM or above held. */
hvmem_u64 hvmem__claim_outstanding(struct hvmem_heap *heap, hvmem_node node);

/* Free frames and claims as of one moment; only while claims are active. */
void hvmem__claim_snapshot(struct hvmem_heap *heap, hvmem_u64 *free_frames, hvmem_u64 *claimed);

#endif
