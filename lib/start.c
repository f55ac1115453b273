/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * start.c: the start of a domain: everything that is still owed for its frames, once, then it runs. No
 * allocation of the domain is under way meanwhile (domain.h), and no populate is open.
 */
#include "domain.h"

#include "cache.h"
#include "clock.h"
#include "flush.h"
#include "free.h"
#include "settle.h"
#include "testpoint.h"
#include "walk.h"

/* Phases (struct hvmem__progress.phase), in the order of payment. */
#define PHASE_FLUSH  0u /* one filtered flush for the newest stamp */
#define PHASE_BLOCKS 1u /* blocks whose debts were deferred */
#define PHASE_DIRTY  2u /* guest ranges: what populate left, what the builder wrote */
#define PHASE_ICACHE 3u
#define PHASE_HOOK   4u
#define PHASE_DONE   5u

/* Turns of waiting for calls on other CPUs to end. */
#define WAIT_TURNS 1000u

/* ---- entering ------------------------------------------------------------------------------- */

/* Change the state, if it is `from`. */
static int change_state(struct hvmem_domain *domain, hvmem_u32 from, hvmem_u32 to)
{
    hvmem_u64 state = hvmem__lock_admin(domain->heap);
    int done = domain->state == from;

    if (done)
        __atomic_store_n(&domain->state, to, __ATOMIC_SEQ_CST);
    hvmem__unlock_admin(domain->heap, state);
    return done;
}

/* BUILDING -> STARTING, and nobody is in a call of the domain. */
static hvmem_status begin(struct hvmem_domain *domain)
{
    hvmem_u32 turns;

    if (!change_state(domain, HVMEM_DOMAIN_BUILDING, HVMEM_DOMAIN_STARTING))
        return HVMEM_E_PHASE;
    (void)HVMEM_TEST_POINT("start_publish");
    for (turns = 0; turns < WAIT_TURNS; turns++) {
        if (!__atomic_load_n(&domain->calls, __ATOMIC_SEQ_CST)) {
            memset(&domain->progress, 0, sizeof domain->progress);
            return HVMEM_OK;
        }
        hvmem__relax(&domain->heap->host);
    }
    (void)change_state(domain, HVMEM_DOMAIN_STARTING, HVMEM_DOMAIN_BUILDING);
    return HVMEM_E_BUSY;
}

/* ---- paying --------------------------------------------------------------------------------- */

static hvmem_status flush(struct hvmem_domain *domain)
{
    hvmem_status status = HVMEM_OK;

    if (hvmem__load(&domain->flush))
        status = hvmem__flush_for(domain->heap, domain->newest);
    return status;
}

/* One block with debts: everything but its instruction-cache work, which the domain takes over. */
static hvmem_status pay_one(struct hvmem_domain *domain, const struct hvmem__owned *found,
                            struct hvmem__budget *budget)
{
    struct hvmem_heap *heap = domain->heap;
    hvmem_u32 debts = hvmem__rec_debts(found->record);
    hvmem_status status;

    if (debts & HVMEM_OWES_ICACHE)
        hvmem__domain_owe(domain, HVMEM_OWES_ICACHE);
    status = hvmem__pay_block(heap, found->bank, found->mfn, found->record,
                              debts & ~HVMEM_OWES_ICACHE, &domain->progress.inside, budget);
    return status ? status : hvmem__paid(heap, found->bank, found->mfn, found->record, debts);
}

static hvmem_status pay_blocks(struct hvmem_domain *domain, struct hvmem__budget *budget)
{
    struct hvmem__progress *p = &domain->progress;
    struct hvmem__owned found;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 end;

    while (!status && hvmem__load(&domain->deferred) &&
           hvmem__ranges_next(&domain->frames, &p->at, &end)) {
        hvmem_mfn at = p->at;
        int result = hvmem__next_owned(domain->heap, domain->id, &at, end, &found);

        if (result > 0 && !hvmem__state_error(hvmem__rec_state(found.record)) &&
            hvmem__rec_debts(found.record)) {
            if (p->at != found.mfn)
                p->inside = 0; /* the block begun before has been freed */
            p->at = found.mfn;
            status = pay_one(domain, &found, budget);
            if (status)
                return status;
        }
        p->at = at;
        p->inside = 0;
        hvmem__budget_use(budget, 1);
        if (hvmem__budget_stop(domain->heap, budget))
            status = HVMEM_AGAIN;
    }
    /* Somebody else is paying, or frees, against the rules. */
    return !status && hvmem__load(&domain->deferred) ? HVMEM_E_OWED : status;
}

/* Clean guest frames of one range from p->at on. */
static hvmem_status clean_dirty(struct hvmem_domain *domain, struct hvmem__budget *budget)
{
    struct hvmem__progress *p = &domain->progress;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 end;

    /* (Without a look-up nothing was ever left to this; an adopted domain is only taken for dirty.) */
    if (!domain->ops.lookup || hvmem__void_debts(domain->heap) & HVMEM_OWES_DCACHE)
        return HVMEM_OK;
    while (!status && hvmem__ranges_next(&domain->dirty, &p->at, &end))
        status = hvmem__clean_guest(domain, &p->at, end, &p->inside, budget);
    return status;
}

static hvmem_status icache(struct hvmem_domain *domain)
{
    hvmem_status status = HVMEM_OK;

    if (hvmem__load(&domain->owes) & HVMEM_OWES_ICACHE)
        status = hvmem__pay_icache(domain->heap);
    if (!status) {
        hvmem__store(&domain->owes, 0);
        domain->dirty.count = domain->frames.count = 0;
        domain->newest = 0;
    }
    return status;
}

static hvmem_status hook(struct hvmem_domain *domain)
{
    hvmem_status status = HVMEM_OK;

    if (domain->ops.started)
        status = domain->ops.started(domain->ctx);
    return status > 0 ? HVMEM_E_HOST : status;
}

static hvmem_status step(struct hvmem_domain *domain, struct hvmem__budget *budget)
{
    if (HVMEM_TEST_POINT("start_step"))
        return HVMEM_E_HOST;
    switch (domain->progress.phase) {
    case PHASE_FLUSH:
        return flush(domain);
    case PHASE_BLOCKS:
        return pay_blocks(domain, budget);
    case PHASE_DIRTY:
        return clean_dirty(domain, budget);
    case PHASE_ICACHE:
        return icache(domain);
    case PHASE_HOOK:
    default:
        return hook(domain);
    }
}

/* ---- public --------------------------------------------------------------------------------- */

/* Phase after phase; the domain is entered. */
static hvmem_status go_on(struct hvmem_domain *domain, struct hvmem__budget *budget)
{
    struct hvmem__progress *p = &domain->progress;
    hvmem_status status = HVMEM_OK;

    while (!status && p->phase != PHASE_DONE) {
        if (hvmem__load(&domain->state) != HVMEM_DOMAIN_STARTING)
            return HVMEM_E_DOMAIN; /* killed */
        status = step(domain, budget);
        if (!status) {
            p->phase++;
            p->at = p->inside = 0;
        }
    }
    if (status < 0)
        (void)change_state(domain, HVMEM_DOMAIN_STARTING, HVMEM_DOMAIN_BUILDING);
    if (!status && !change_state(domain, HVMEM_DOMAIN_STARTING, HVMEM_DOMAIN_RUNNING))
        status = HVMEM_E_DOMAIN;
    return status;
}

/* Start afresh, or go on with a start in steps. */
static hvmem_status enter(struct hvmem_domain *domain, struct hvmem_cursor *cursor, int whole)
{
    hvmem_status status;
    int fresh = 1;

    if (domain->heap->adopting) /* its debts are not counted yet */
        return HVMEM_E_PHASE;
    if (whole && !hvmem__domain_retake(domain, HVMEM__OPEN_START))
        return HVMEM_OK;
    if (!cursor->words[0] && hvmem__load(&domain->state) != HVMEM_DOMAIN_BUILDING &&
        hvmem__load(&domain->state) != HVMEM_DOMAIN_STARTING)
        return HVMEM_E_PHASE;
    status = hvmem__domain_open(domain, HVMEM__OPEN_START, cursor, &fresh);
    if (status || !fresh)
        return status;
    status = begin(domain);
    if (status)
        hvmem__domain_close(domain, cursor, 1);
    return status;
}

static hvmem_status start(struct hvmem_domain *domain, struct hvmem__budget budget,
                          struct hvmem_cursor *cursor)
{
    hvmem_status status = enter(domain, cursor, budget.whole != 0);

    if (!status) {
        status = go_on(domain, &budget);
        hvmem__domain_close(domain, cursor, status != HVMEM_AGAIN);
    }
    return status < 0 ? hvmem__refuse(domain->heap, status, 0, HVMEM_ORDER_ANY, domain->id)
                      : status;
}

hvmem_status hvmem_domain_start(struct hvmem_domain *domain)
{
    struct hvmem_cursor cursor;

    if (!domain || !domain->heap)
        return HVMEM_E_ARG;
    memset(&cursor, 0, sizeof cursor);
    return start(domain, hvmem__budget_whole(HVMEM__WHOLE_CALL), &cursor);
}

hvmem_status hvmem_domain_start_step(struct hvmem_domain *domain, hvmem_u64 budget,
                                     struct hvmem_cursor *cursor)
{
    if (!domain || !domain->heap)
        return HVMEM_E_ARG;
    if (!cursor)
        return hvmem__refuse(domain->heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, domain->id);
    return start(domain, hvmem__budget_frames(domain->heap, budget), cursor);
}
