/* SPDX-License-Identifier: BSD-2-Clause */
/* domain.c: life cycle of a domain and what is charged to it. */
#include "domain.h"

#include "claim.h"
#include "clock.h"
#include "credit.h"
#include "settle.h"
#include "space.h"
#include "testpoint.h"

static hvmem_u64 min64(hvmem_u64 a, hvmem_u64 b)
{
    return a < b ? a : b;
}

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

int hvmem__domain_may_have(const struct hvmem_domain *domain, hvmem_u64 frames)
{
    hvmem_u64 pages = domain ? hvmem__load(&domain->pages) : 0;
    hvmem_u64 limit = domain ? hvmem__load(&domain->limit) : ~(hvmem_u64)0;

    return pages <= limit && frames <= limit - pages;
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

static void add_calls(struct hvmem_domain *domain, hvmem_u32 by)
{
    if (domain->heap->host.smp)
        __atomic_fetch_add(&domain->calls, by, __ATOMIC_SEQ_CST);
    else
        domain->calls += by;
}

hvmem_status hvmem__domain_enter(struct hvmem_domain *domain, int *building)
{
    hvmem_u32 state;

    *building = 0;
    if (!domain)
        return HVMEM_OK;
    /* Count first, then look at the state: start and teardown do it the other way round. */
    add_calls(domain, 1);
    (void)HVMEM_TEST_POINT("domain_enter");
    state = __atomic_load_n(&domain->state, __ATOMIC_SEQ_CST);
    *building = state == HVMEM_DOMAIN_BUILDING;
    if (state != HVMEM_DOMAIN_DYING && state != HVMEM_DOMAIN_STARTING)
        return HVMEM_OK;
    hvmem__domain_leave(domain);
    return state == HVMEM_DOMAIN_DYING ? HVMEM_E_DOMAIN : HVMEM_E_BUSY;
}

void hvmem__domain_leave(struct hvmem_domain *domain)
{
    if (domain)
        add_calls(domain, (hvmem_u32)-1);
}

hvmem_status hvmem__domain_enter_id(struct hvmem_heap *heap, hvmem_u32 id,
                                    struct hvmem_domain **domain)
{
    hvmem_status status;
    hvmem_u64 state;
    int building;

    *domain = HVMEM_NULL;
    if (!id)
        return HVMEM_OK;
    /* Who destroys it looks at the calls under this lock. */
    state = hvmem__lock_admin(heap);
    *domain = hvmem__domain_of(heap, id);
    if (*domain)
        add_calls(*domain, 1);
    hvmem__unlock_admin(heap, state);
    if (!*domain)
        return HVMEM_E_DOMAIN;
    status = hvmem__domain_enter(*domain, &building);
    hvmem__domain_leave(*domain);
    return status;
}

int hvmem__domain_called(const struct hvmem_domain *domain)
{
    if (domain->heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return hvmem__load(&domain->calls) != 0;
}

/* ---- what is owed --------------------------------------------------------------------------- */

static hvmem_u64 lock_domain(struct hvmem_domain *domain)
{
    return hvmem__lock(&domain->heap->host, &domain->lock, HVMEM__RANK_LEAF);
}

static void unlock_domain(struct hvmem_domain *domain, hvmem_u64 state)
{
    hvmem__unlock(&domain->heap->host, &domain->lock, HVMEM__RANK_LEAF, state);
}

void hvmem__tally_add(const struct hvmem_heap *heap, struct hvmem__tally *tally, hvmem__record r)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(r), stamp;
    hvmem_u32 debts = hvmem__rec_debts(r);

    if (!debts)
        return;
    tally->frames += frames;
    if (!(debts & HVMEM__OWES_FLUSH))
        return;
    tally->flush += frames;
    stamp = hvmem__stamp_time(heap, r);
    if (stamp > tally->newest)
        tally->newest = stamp;
}

void hvmem__domain_hold(struct hvmem_domain *domain, hvmem_mfn mfn, hvmem_u64 count,
                        const struct hvmem__tally *tally)
{
    hvmem_u64 state;

    if (!domain || !tally->frames)
        return;
    hvmem__count(domain->heap, &domain->deferred, tally->frames);
    hvmem__count(domain->heap, &domain->flush, tally->flush);
    if (hvmem__load(&domain->state) == HVMEM_DOMAIN_RUNNING)
        return; /* paid by the call that holds it; a start may be waiting for that call until then */
    state = lock_domain(domain);
    if (tally->newest > domain->newest)
        domain->newest = tally->newest;
    hvmem__ranges_add(&domain->frames, mfn, mfn + count);
    unlock_domain(domain, state);
}

void hvmem__domain_release(struct hvmem_domain *domain, const struct hvmem__tally *tally)
{
    subtract(domain, &domain->deferred, tally->frames);
    subtract(domain, &domain->flush, tally->flush);
}

void hvmem__domain_changed(struct hvmem_domain *domain, hvmem__record from, hvmem__record to)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(from);
    hvmem_u32 before = hvmem__rec_debts(from), after = hvmem__rec_debts(to);

    if (!domain)
        return;
    if (before && !after)
        subtract(domain, &domain->deferred, frames);
    if (before & HVMEM__OWES_FLUSH && !(after & HVMEM__OWES_FLUSH))
        subtract(domain, &domain->flush, frames);
    if (hvmem__unlikely(hvmem__rec_untouched(from) != hvmem__rec_untouched(to))) {
        if (hvmem__rec_untouched(from))
            subtract(domain, &domain->untouched, frames);
        else
            hvmem__count(domain->heap, &domain->untouched, frames);
    }
}

void hvmem__domain_split(struct hvmem_domain *domain, hvmem__record from, hvmem_u64 owing,
                         hvmem_u64 untouched)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(from);

    /* Of a MIXED block that owes nothing but its scrub the clean parts owe nothing. */
    if (domain && hvmem__rec_debts(from) && owing < frames)
        subtract(domain, &domain->deferred, frames - owing);
    if (domain && hvmem__rec_untouched(from) && untouched < frames)
        subtract(domain, &domain->untouched, frames - untouched);
}

void hvmem__domain_owe(struct hvmem_domain *domain, hvmem_u32 owed)
{
    if ((hvmem__load(&domain->owes) & owed) == owed)
        return;
    if (domain->heap->host.smp)
        __atomic_fetch_or(&domain->owes, owed, __ATOMIC_SEQ_CST);
    else
        domain->owes |= owed;
}

int hvmem__domains_pending(struct hvmem_heap *heap)
{
    hvmem_u64 state = hvmem__lock_admin(heap);
    hvmem_u32 id;
    int pending = 0;

    for (id = 1; id <= heap->max_domains && !pending; id++) {
        const struct hvmem_domain *domain = heap->domain[id];

        pending = domain && (hvmem__load(&domain->owes) || hvmem__load(&domain->open));
    }
    hvmem__unlock_admin(heap, state);
    return pending;
}

void hvmem__domain_dirty(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n)
{
    hvmem_u64 state = lock_domain(domain);

    hvmem__ranges_add(&domain->dirty, gfn, gfn + n);
    unlock_domain(domain, state);
}

/* ---- operations in steps ---------------------------------------------------------------------- */

/* First word of a cursor, by kind. */
#define CURSOR_DOMAIN 0x646e6f6376680000ull

static hvmem_status open_locked(struct hvmem_domain *domain, hvmem_u32 kind,
                                const struct hvmem_cursor *cursor, int *fresh)
{
    *fresh = !cursor->words[0];
    if (*fresh) {
        /* A teardown takes over from whatever was left open. */
        if (domain->running || (domain->open != HVMEM__OPEN_NONE && kind != HVMEM__OPEN_TEARDOWN))
            return HVMEM_E_BUSY;
        return HVMEM_OK;
    }
    if (cursor->words[0] != CURSOR_DOMAIN + kind || cursor->words[1] != domain->id ||
        domain->open != kind || cursor->words[2] != domain->serial || cursor->words[3])
        return HVMEM_E_STALE;
    return domain->running ? HVMEM_E_BUSY : HVMEM_OK;
}

hvmem_status hvmem__domain_open(struct hvmem_domain *domain, hvmem_u32 kind,
                                struct hvmem_cursor *cursor, int *fresh)
{
    hvmem_u64 state = lock_domain(domain);
    hvmem_status status = open_locked(domain, kind, cursor, fresh);

    if (!status)
        domain->running = 1;
    if (!status && *fresh) {
        if (domain->open == HVMEM__OPEN_NONE)
            hvmem__store(&domain->open, kind);
        domain->serial = hvmem__next_serial(domain->heap);
    }
    unlock_domain(domain, state);
    return status;
}

hvmem_status hvmem__domain_retake(struct hvmem_domain *domain, hvmem_u32 kind)
{
    hvmem_u64 state = lock_domain(domain);
    hvmem_status status = HVMEM_OK;

    if (domain->open != kind)
        status = HVMEM_E_PHASE;
    else if (domain->running)
        status = HVMEM_E_BUSY;
    else
        domain->running = 1;
    unlock_domain(domain, state);
    return status;
}

void hvmem__domain_close(struct hvmem_domain *domain, struct hvmem_cursor *cursor, int over)
{
    hvmem_u64 state = lock_domain(domain);

    memset(cursor, 0, sizeof *cursor);
    if (over) {
        hvmem__store(&domain->open, HVMEM__OPEN_NONE);
    } else {
        cursor->words[0] = CURSOR_DOMAIN + domain->open;
        cursor->words[1] = domain->id;
        cursor->words[2] = domain->serial;
    }
    domain->running = 0;
    unlock_domain(domain, state);
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
    /* A cache that is being given credit at this moment sees DYING and gives it back (credit.c). */
    (void)hvmem__credit_recall(heap, domain);
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
    if (domain->state != HVMEM_DOMAIN_DYING || heap->adopting)
        status = HVMEM_E_PHASE;
    else if (hvmem__load(&domain->pages) || hvmem__load(&domain->running) ||
             hvmem__load(&domain->calls))
        status = HVMEM_E_BUSY;
    else
        hvmem__store_release(&heap->domain[domain->id], (struct hvmem_domain *)HVMEM_NULL);
    if (!status)
        domain->heap = HVMEM_NULL; /* a dead handle is no domain, whoever has its id next */
    hvmem__unlock_admin(heap, state);
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

hvmem_status hvmem_domain_attach(struct hvmem_domain *domain, const struct hvmem_domain_ops *ops,
                                 void *ctx, struct hvmem_space *space)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;

    if (!heap)
        return HVMEM_E_ARG;
    if (!ops)
        status = HVMEM_E_ARG;
    else if (!ops->size)
        status = HVMEM_E_VERSION;
    if (!status) {
        state = lock_domain(domain);
        if (hvmem__load(&domain->state) != HVMEM_DOMAIN_BUILDING)
            status = HVMEM_E_PHASE;
        else if (domain->open != HVMEM__OPEN_NONE || domain->running)
            status = HVMEM_E_BUSY;
        if (!status) {
            memset(&domain->ops, 0, sizeof domain->ops);
            memcpy(&domain->ops, ops,
                   ops->size < sizeof domain->ops ? ops->size : sizeof domain->ops);
            domain->ctx = ctx;
            domain->space = space;
            if (space)
                hvmem__store(&space->guest, domain->id);
        }
        unlock_domain(domain, state);
    }
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, domain->id) : HVMEM_OK;
}

/* Note what the builder wrote; E_PHASE: it builds no more. */
static hvmem_status note_dirtied(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n)
{
    int building;

    if (hvmem__domain_enter(domain, &building))
        return HVMEM_E_PHASE;
    if (building) {
        hvmem__domain_dirty(domain, gfn, n);
        /* What was written may be code. */
        hvmem__domain_owe(domain, HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE);
    }
    hvmem__domain_leave(domain);
    return building ? HVMEM_OK : HVMEM_E_PHASE;
}

hvmem_status hvmem_domain_dirtied(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    if (!hvmem__gfn_range(gfn, n))
        status = HVMEM_E_RANGE;
    else if (!domain->ops.lookup)
        status = HVMEM_E_UNSUPPORTED;
    else
        status = note_dirtied(domain, gfn, n);
    return status ? hvmem__refuse(heap, status, gfn, HVMEM_ORDER_ANY, n) : HVMEM_OK;
}

hvmem_status hvmem_domain_limit(struct hvmem_domain *domain, hvmem_u64 frames)
{
    if (!domain || !domain->heap)
        return HVMEM_E_ARG;
    hvmem__store(&domain->limit, frames);
    /* What was charged in advance must meet the new limit. */
    (void)hvmem__credit_recall(domain->heap, domain);
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
    stats->pages -= min64(stats->pages, hvmem__credit_sum(heap, domain));
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
