/* SPDX-License-Identifier: BSD-2-Clause */
/* claim.c: counting free memory against what is promised, and the public claim call. */
#include "claim.h"

#include "arena.h"
#include "credit.h"
#include "domain.h"
#include "drain.h"
#include "testpoint.h"

static hvmem_u64 lock_claims(struct hvmem_heap *heap)
{
    return hvmem__lock(&heap->host, &heap->claim_lock, HVMEM__RANK_CLAIM);
}

static void unlock_claims(struct hvmem_heap *heap, hvmem_u64 state)
{
    hvmem__unlock(&heap->host, &heap->claim_lock, HVMEM__RANK_CLAIM, state);
}

static hvmem_u64 min64(hvmem_u64 a, hvmem_u64 b)
{
    return a < b ? a : b;
}

/* A spare count is 0 while it is negative. */
static hvmem_u64 at_least_zero(hvmem_u64 spare)
{
    return (hvmem_i64)spare < 0 ? 0 : spare;
}

/* Move `by` (two's complement) frames into, or out of, the spare counts. Claim lock held. */
static void add_spare(struct hvmem_heap *heap, hvmem_node node, hvmem_u64 total, hvmem_u64 on_node)
{
    heap->spare += total;
    heap->node[node].spare += on_node;
}

/* Shrink (by > 0) or grow back a domain's outstanding claims. Claim lock held. */
static void draw(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_node node,
                 hvmem_u64 from_node, hvmem_u64 from_any)
{
    domain->claim[node] -= from_node;
    domain->claim[HVMEM__CLAIM_ANY] -= from_any;
    heap->node[node].claimed -= from_node;
    heap->claimed -= from_node + from_any;
}

void hvmem__claim_ask(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                      struct hvmem_domain *domain, hvmem_u64 frames, struct hvmem__drawn *drawn)
{
    hvmem_node node = arena->node;
    hvmem_u64 state, most, most_on_node;

    state = lock_claims(heap);
    most = at_least_zero(heap->spare);
    most_on_node = at_least_zero(heap->node[node].spare);
    if (domain) {
        drawn->domain = domain;
        drawn->when = domain->claims_set;
        drawn->from_node = min64(frames, domain->claim[node]);
        drawn->from_any =
            min64(min64(frames - drawn->from_node, domain->claim[HVMEM__CLAIM_ANY]), most_on_node);
        draw(heap, domain, node, drawn->from_node, drawn->from_any);
    }
    drawn->frames = drawn->from_node +
                    min64(frames - drawn->from_node, min64(drawn->from_any + most, most_on_node));
    add_spare(heap, node, drawn->from_node + drawn->from_any - drawn->frames,
              drawn->from_node - drawn->frames);
    unlock_claims(heap, state);
}

/* Of what was drawn on a claim, how much goes back to it: nothing if it was set anew. Claim lock held. */
static hvmem_u64 still_due(const struct hvmem__drawn *drawn, hvmem_u32 index, hvmem_u64 frames)
{
    return frames && drawn->domain->set_at[index] <= drawn->when ? frames : 0;
}

/*
 * Frames that were drawn on a domain's claims are promised to it again, if they still are to be. Claim
 * lock held.
 */
static void promise_again(struct hvmem_heap *heap, const struct hvmem__drawn *drawn,
                          hvmem_node node, hvmem_u64 from_node, hvmem_u64 from_any)
{
    from_node = still_due(drawn, node, from_node);
    from_any = still_due(drawn, HVMEM__CLAIM_ANY, from_any);
    if (!(from_node + from_any))
        return;
    draw(heap, drawn->domain, node, (hvmem_u64)0 - from_node, (hvmem_u64)0 - from_any);
    add_spare(heap, node, (hvmem_u64)0 - from_node - from_any, (hvmem_u64)0 - from_node);
    heap->claims_back++;
}

/* The claim is what was said just now, whatever was drawn on it before. Claim lock held. */
static void set_anew(struct hvmem_domain *domain, hvmem_u32 index, hvmem_u64 frames)
{
    struct hvmem_heap *heap = domain->heap;
    hvmem_u64 more = frames - domain->claim[index];

    domain->set_at[index] = ++domain->claims_set;
    domain->claim[index] = frames;
    heap->claimed += more;
    heap->spare -= more;
    if (index < HVMEM_NODE_LIMIT) {
        heap->node[index].claimed += more;
        heap->node[index].spare -= more;
    }
}

void hvmem__claim_untake(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                         struct hvmem__drawn *drawn, hvmem_u64 frames)
{
    hvmem_u64 state, from_node, from_any;

    if (!arena->counted || !frames)
        return;
    state = lock_claims(heap);
    /* Those that were taken use the node's claim up first, as asked for alone. */
    drawn->frames -= frames;
    from_node = drawn->from_node - min64(drawn->from_node, drawn->frames);
    drawn->from_node -= from_node;
    from_any = drawn->from_any - min64(drawn->from_any, drawn->frames - drawn->from_node);
    drawn->from_any -= from_any;
    promise_again(heap, drawn, arena->node, from_node, from_any);
    add_spare(heap, arena->node, frames, frames);
    unlock_claims(heap, state);
}

void hvmem__claim_force(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u64 frames)
{
    hvmem__claim_give(heap, arena, (hvmem_u64)0 - frames);
}

void hvmem__claim_add(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u64 frames)
{
    hvmem_u64 state = lock_claims(heap);

    add_spare(heap, arena->node, frames, frames);
    unlock_claims(heap, state);
}

void hvmem__claim_use(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_node node,
                      hvmem_u64 frames, struct hvmem__drawn *drawn)
{
    hvmem_u64 state;

    memset(drawn, 0, sizeof *drawn);
    if (!domain || !hvmem__load(&heap->claims_active))
        return;
    state = lock_claims(heap);
    drawn->domain = domain;
    drawn->when = domain->claims_set;
    drawn->from_node = min64(frames, domain->claim[node]);
    drawn->from_any = min64(frames - drawn->from_node, domain->claim[HVMEM__CLAIM_ANY]);
    draw(heap, domain, node, drawn->from_node, drawn->from_any);
    add_spare(heap, node, drawn->from_node + drawn->from_any, drawn->from_node);
    unlock_claims(heap, state);
}

/* No claim is outstanding: *back is claims_back then. No lock of rank CLAIM or above held. */
static int none_claimed(struct hvmem_heap *heap, hvmem_u64 *back)
{
    hvmem_u64 state = lock_claims(heap);
    int none = !heap->claimed;

    *back = heap->claims_back;
    unlock_claims(heap, state);
    return none;
}

/*
 * No claim is outstanding, nor does a section under way give one back what it asked for: of those that had
 * begun when none was outstanding none is left, and none has. Admin lock held.
 */
static int none_left(struct hvmem_heap *heap)
{
    hvmem_u64 before, after;
    hvmem_u32 i;

    if (!none_claimed(heap, &before))
        return 0;
    for (i = 0; i < heap->arenas; i++)
        hvmem__unlock_arena(heap, &heap->arena[i], hvmem__lock_arena(heap, &heap->arena[i]));
    return none_claimed(heap, &after) && before == after;
}

/*
 * Start or stop counting in every arena; it goes on if a claim is left. Admin lock held. Nobody is refused
 * for it meanwhile: no claim is outstanding, and at any moment spare (and a node's) is at least what is
 * free in each arena that counts, for that is what it consists of; arenas that do not count only add to it
 * by standing aside.
 */
static void switch_counting(struct hvmem_heap *heap, hvmem_u32 on)
{
    hvmem_u32 i;
    hvmem_u64 claims;

    if (heap->claims_active == on || (!on && !none_left(heap)))
        return;
    /* Arenas that still count when it ends need the spares as they are. */
    claims = lock_claims(heap);
    if (on)
        heap->spare = 0;
    for (i = 0; on && i < HVMEM_NODE_LIMIT; i++)
        heap->node[i].spare = 0;
    unlock_claims(heap, claims);
    hvmem__store(&heap->claims_active, on);
    for (i = 0; i < heap->arenas; i++) {
        struct hvmem__arena *arena = &heap->arena[i];
        hvmem_u64 state = hvmem__lock_arena(heap, arena), frames = 0;

        struct hvmem__bank *b;

        for (b = arena->first; b; b = b->next) {
            frames += b->free_frames;
            hvmem__bank_measure(b, on);
        }
        arena->counted = on;
        hvmem__arena_changed(arena);
        if (on)
            hvmem__claim_give(heap, arena, frames);
        hvmem__unlock_arena(heap, arena, state);
        (void)HVMEM_TEST_POINT("claim_switch");
    }
}

void hvmem__claim_cancel(struct hvmem_heap *heap, struct hvmem_domain *domain)
{
    hvmem_u64 state = lock_claims(heap);
    hvmem_node node;

    for (node = 0; node <= HVMEM__CLAIM_ANY; node++)
        set_anew(domain, node, 0);
    unlock_claims(heap, state);
    switch_counting(heap, 0);
}

void hvmem__claim_refund(struct hvmem_heap *heap, hvmem_node node, const struct hvmem__drawn *drawn)
{
    hvmem_u64 from_node = drawn->from_node, from_any = drawn->from_any, admin, state;

    if (!drawn->domain || !(from_node + from_any))
        return;
    admin = hvmem__lock_admin(heap);
    /* (Whoever sets claims has the lock, too.) */
    from_node = still_due(drawn, node, from_node);
    from_any = still_due(drawn, HVMEM__CLAIM_ANY, from_any);
    if (drawn->domain->state != HVMEM_DOMAIN_DYING && from_node + from_any) {
        switch_counting(heap, 1);
        state = lock_claims(heap);
        promise_again(heap, drawn, node, from_node, from_any);
        unlock_claims(heap, state);
    }
    hvmem__unlock_admin(heap, admin);
}

hvmem_u64 hvmem__claim_when(struct hvmem_domain *domain, hvmem_u32 low)
{
    hvmem_u64 state = lock_claims(domain->heap), now = domain->claims_set;

    unlock_claims(domain->heap, state);
    return now - (hvmem_u32)((hvmem_u32)now - low);
}

int hvmem__claim_short(struct hvmem_heap *heap)
{
    hvmem_u64 state;
    hvmem_node node;
    int found;

    if (!hvmem__load(&heap->claims_active))
        return 0;
    state = lock_claims(heap);
    found = (hvmem_i64)heap->spare < 0;
    for (node = 0; node < HVMEM_NODE_LIMIT && !found; node++)
        found = (hvmem_i64)heap->node[node].spare < 0;
    unlock_claims(heap, state);
    return found;
}

void hvmem__claim_snapshot(struct hvmem_heap *heap, hvmem_u64 *free_frames, hvmem_u64 *claimed)
{
    hvmem_u64 state = lock_claims(heap);

    *claimed = heap->claimed;
    *free_frames = heap->spare + heap->claimed;
    unlock_claims(heap, state);
}

/* Replace one claim if memory and limit allow. Admin lock held, counting on. */
static hvmem_status replace(struct hvmem_domain *domain, hvmem_u32 index, hvmem_u64 frames)
{
    struct hvmem_heap *heap = domain->heap;
    hvmem_u64 state = lock_claims(heap), others = 0, old = domain->claim[index];
    hvmem_u64 limit = hvmem__load(&domain->limit), pages = hvmem__load(&domain->pages);
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    for (i = 0; i <= HVMEM__CLAIM_ANY; i++)
        others += i == index ? 0 : domain->claim[i];
    if (frames > old &&
        (frames - old > at_least_zero(heap->spare) ||
         (index < HVMEM_NODE_LIMIT && frames - old > at_least_zero(heap->node[index].spare))))
        status = HVMEM_E_NOMEM;
    else if (frames > old &&
             (pages > limit || others > limit - pages || frames > limit - pages - others))
        status = HVMEM_E_LIMIT;
    if (!status)
        set_anew(domain, index, frames);
    unlock_claims(heap, state);
    return status;
}

hvmem_u64 hvmem__claim_outstanding(struct hvmem_heap *heap, hvmem_node node)
{
    hvmem_u64 state = lock_claims(heap), claimed;

    claimed = node == HVMEM_NODE_ANY ? heap->claimed : heap->node[node].claimed;
    unlock_claims(heap, state);
    return claimed;
}

hvmem_status hvmem_domain_claim(struct hvmem_domain *domain, hvmem_node node, hvmem_u64 frames)
{
    hvmem_u32 index = node == HVMEM_NODE_ANY ? HVMEM__CLAIM_ANY : node;
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_status status = HVMEM_OK, drained;
    hvmem_u64 state;

    if (!heap)
        return HVMEM_E_ARG;
    if (index > HVMEM__CLAIM_ANY || (index == HVMEM__CLAIM_ANY && node != HVMEM_NODE_ANY) ||
        (node != HVMEM_NODE_ANY && !(hvmem__load(&heap->node_mask) >> node & 1)))
        return hvmem__refuse(heap, HVMEM_E_NODE, 0, HVMEM_ORDER_ANY, node);
    if (heap->adopting)
        return hvmem__refuse(heap, HVMEM_E_PHASE, 0, HVMEM_ORDER_ANY, frames);
    /* Frames in caches count as taken: bring them in first. */
    drained = hvmem__pcpu_drain_all(heap);
    (void)hvmem__credit_recall(heap, domain); /* nor is what was only charged in advance */
    state = hvmem__lock_admin(heap);
    if (domain->state == HVMEM_DOMAIN_DYING) {
        status = HVMEM_E_DOMAIN;
    } else {
        switch_counting(heap, 1);
        status = replace(domain, index, frames);
        switch_counting(heap, 0);
    }
    hvmem__unlock_admin(heap, state);
    if (status == HVMEM_E_NOMEM && drained)
        status = drained;
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, frames) : HVMEM_OK;
}
