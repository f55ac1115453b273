/* SPDX-License-Identifier: BSD-2-Clause */
/* domain.c: life cycle of a domain and what is charged to it. */
#include "domain.h"

#include "claim.h"
#include "settle.h"

/* ---- charging ------------------------------------------------------------------------------- */

hvmem_status hvmem__domain_charge(struct hvmem_domain *domain, hvmem_u64 frames)
{
    hvmem_u64 pages, limit;

    if (!domain)
        return HVMEM_OK;
    pages = hvmem__load(&domain->pages);
    do {
        limit = hvmem__load(&domain->limit);
        if (hvmem__load(&domain->state) == HVMEM_DOMAIN_DYING)
            return HVMEM_E_DOMAIN;
        if (pages > limit || frames > limit - pages)
            return HVMEM_E_LIMIT;
        if (!domain->heap->host.smp) {
            hvmem__store(&domain->pages, pages + frames);
            return HVMEM_OK;
        }
    } while (!__atomic_compare_exchange_n(&domain->pages, &pages, pages + frames, 0,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return HVMEM_OK;
}

void hvmem__domain_hold(struct hvmem_domain *domain, hvmem_u64 frames)
{
    hvmem__count(domain->heap, &domain->deferred, frames);
}

/* Subtract from a count that holds at least that much. */
static void subtract(struct hvmem_domain *domain, hvmem_u64 *count, hvmem_u64 frames)
{
    HVMEM__ASSERT(&domain->heap->host, hvmem__load(count) >= frames);
    hvmem__count(domain->heap, count, (hvmem_u64)0 - frames);
}

void hvmem__domain_uncharge(struct hvmem_domain *domain, hvmem_u64 frames)
{
    if (domain)
        subtract(domain, &domain->pages, frames);
}

void hvmem__domain_settled(struct hvmem_domain *domain, hvmem_u64 frames)
{
    if (domain)
        subtract(domain, &domain->deferred, frames);
}

hvmem_status hvmem__domain_may_defer(struct hvmem_domain *domain, hvmem_u64 frames)
{
    if (!domain)
        return HVMEM_E_PHASE;
    /* Count first, then look at the state: start does it the other way round. */
    if (domain->heap->host.smp)
        __atomic_fetch_add(&domain->deferred, frames, __ATOMIC_SEQ_CST);
    else
        domain->deferred += frames;
    if (__atomic_load_n(&domain->state, __ATOMIC_SEQ_CST) == HVMEM_DOMAIN_BUILDING)
        return HVMEM_OK;
    hvmem__domain_settled(domain, frames);
    return HVMEM_E_PHASE;
}

/* ---- public --------------------------------------------------------------------------------- */

hvmem_size hvmem_domain_size(struct hvmem_heap *heap)
{
    return heap ? (hvmem_size)hvmem__round_up(sizeof(struct hvmem_domain), HVMEM_LINE) : 0;
}

static hvmem_status check_config(struct hvmem_heap *heap, const void *memory, hvmem_size bytes,
                                 const struct hvmem_domain_config *config)
{
    if (!config || !memory)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if (bytes < hvmem_domain_size(heap) || ((hvmem_uptr)memory & (sizeof(hvmem_u64) - 1)))
        return HVMEM_E_BUFFER;
    if (!config->id || config->id > heap->max_domains)
        return HVMEM_E_DOMAIN;
    if (config->node_mask && !(config->node_mask & hvmem__load(&heap->node_mask)))
        return HVMEM_E_NODE;
    return hvmem__can_pay(heap, heap->owed_on_free) ? HVMEM_OK : HVMEM_E_UNSUPPORTED;
}

hvmem_status hvmem_domain_create(struct hvmem_heap *heap, void *memory, hvmem_size bytes,
                                 const struct hvmem_domain_config *config,
                                 struct hvmem_domain **domain)
{
    hvmem_status status = heap && domain ? check_config(heap, memory, bytes, config) : HVMEM_E_ARG;
    struct hvmem_domain *d = memory;
    hvmem_u64 state;

    if (status)
        return hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, config ? config->id : 0);
    state = hvmem__lock_admin(heap);
    if (heap->domain[config->id]) {
        hvmem__unlock_admin(heap, state);
        return hvmem__refuse(heap, HVMEM_E_DOMAIN, 0, HVMEM_ORDER_ANY, config->id);
    }
    memset(d, 0, sizeof *d);
    d->heap = heap;
    d->id = config->id;
    d->state = HVMEM_DOMAIN_BUILDING;
    d->limit = config->limit;
    d->node_mask = config->node_mask;
    hvmem__store_release(&heap->domain[d->id], d);
    hvmem__unlock_admin(heap, state);
    *domain = d;
    return HVMEM_OK;
}

hvmem_status hvmem_domain_start(struct hvmem_domain *domain)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_u64 state;
    hvmem_status status = HVMEM_OK;

    if (!heap)
        return HVMEM_E_ARG;
    state = hvmem__lock_admin(heap);
    if (domain->state != HVMEM_DOMAIN_BUILDING) {
        status = HVMEM_E_PHASE;
    } else {
        /* The other side of hvmem__domain_may_defer(): publish the state, then look. */
        __atomic_store_n(&domain->state, HVMEM_DOMAIN_RUNNING, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&domain->deferred, __ATOMIC_SEQ_CST)) {
            hvmem__store(&domain->state, HVMEM_DOMAIN_BUILDING);
            status = HVMEM_E_OWED;
        }
    }
    hvmem__unlock_admin(heap, state);
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, domain->id) : HVMEM_OK;
}

hvmem_status hvmem_domain_kill(struct hvmem_domain *domain)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_u64 state;

    if (!heap)
        return HVMEM_E_ARG;
    state = hvmem__lock_admin(heap);
    hvmem__store(&domain->state, HVMEM_DOMAIN_DYING);
    if (heap->claims_active)
        hvmem__claim_cancel(heap, domain);
    hvmem__unlock_admin(heap, state);
    return HVMEM_OK;
}

hvmem_status hvmem_domain_destroy(struct hvmem_domain *domain)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_u64 state;
    hvmem_status status = HVMEM_OK;

    if (!heap)
        return HVMEM_E_ARG;
    state = hvmem__lock_admin(heap);
    if (domain->state != HVMEM_DOMAIN_DYING)
        status = HVMEM_E_PHASE;
    else if (hvmem__load(&domain->pages))
        status = HVMEM_E_BUSY;
    else
        hvmem__store_release(&heap->domain[domain->id], (struct hvmem_domain *)HVMEM_NULL);
    hvmem__unlock_admin(heap, state);
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

hvmem_status hvmem_domain_limit(struct hvmem_domain *domain, hvmem_u64 frames)
{
    if (!domain)
        return HVMEM_E_ARG;
    hvmem__store(&domain->limit, frames);
    return HVMEM_OK;
}

hvmem_status hvmem_domain_stats(struct hvmem_domain *domain, struct hvmem_domain_stats *stats)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_u64 state;
    hvmem_u32 i;

    if (!heap || !stats)
        return hvmem__refuse(heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    stats->pages = hvmem__load(&domain->pages);
    stats->limit = hvmem__load(&domain->limit);
    stats->state = hvmem__load(&domain->state);
    stats->id = domain->id;
    stats->claimed = 0;
    state = hvmem__lock(&heap->host, &heap->claim_lock, HVMEM__RANK_CLAIM);
    for (i = 0; i <= HVMEM__CLAIM_ANY; i++)
        stats->claimed += domain->claim[i];
    hvmem__unlock(&heap->host, &heap->claim_lock, HVMEM__RANK_CLAIM, state);
    return HVMEM_OK;
}
