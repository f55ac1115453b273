/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * populate.c: memory for a domain in slices: take a slice's blocks, flush once for all of them, pay for
 * their contents, map them. Between two calls the blocks that are not mapped yet are known to the domain
 * alone; their records keep every debt until all of the block's are paid.
 */
#include "populate.h"

#include "clock.h"
#include "flush.h"
#include "free.h"
#include "request.h"
#include "run.h"
#include "settle.h"
#include "testpoint.h"
#include "walk.h"

#define KNOWN_FLAGS                                                                                \
    (HVMEM_POPULATE_DEFER_DCACHE | HVMEM_POPULATE_NO_CLAIM | HVMEM_POPULATE_EXACT_NODE)

/* Phases of a slice (struct hvmem__populate.phase). */
#define PHASE_TAKE  0u
#define PHASE_FLUSH 1u
#define PHASE_PAY   2u
#define PHASE_MAP   3u

/* A slot: the block's first frame, its order, and whether it is paid for at first touch. */
#define SLOT_ORDER_SHIFT 56
#define SLOT_TOUCH       ((hvmem_u64)1 << 63)

HVMEM_STATIC_ASSERT(HVMEM_ORDER_LIMIT < 64, order_fits_slot);

static hvmem_mfn slot_mfn(hvmem_u64 slot)
{
    return slot & (((hvmem_u64)1 << SLOT_ORDER_SHIFT) - 1);
}

static hvmem_u32 slot_order(hvmem_u64 slot)
{
    return (hvmem_u32)(slot >> SLOT_ORDER_SHIFT) & 63u;
}

/* Everything a step needs. */
struct run {
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    const struct hvmem_populate *request;
    struct hvmem__populate *p;
    struct hvmem__budget budget;
    struct hvmem__bank *bank; /* that a block was found in last: NULL, or one that may be gone */
    struct hvmem_request one; /* for a block of the slice; its order is filled in */
};

/* ---- giving up ------------------------------------------------------------------------------ */

void hvmem__populate_abort(struct hvmem_domain *domain)
{
    struct hvmem__populate *p = &domain->populate;

    for (; p->mapped < p->taken; p->mapped++) {
        hvmem_u64 slot = p->slot[p->mapped];
        hvmem_mfn at;

        (void)hvmem__run_free(domain->heap, slot_mfn(slot), (hvmem_u64)1 << slot_order(slot),
                              HVMEM__UNUSED, &at);
    }
    p->taken = p->mapped = p->paid = 0;
}

/* ---- taking --------------------------------------------------------------------------------- */

static hvmem_status check_extent(const struct run *run, const struct hvmem_extent *extent)
{
    hvmem_u32 flags = extent->flags & ~HVMEM_EXTENT_DONE;
    hvmem_u64 gfns;

    if (extent->order > run->heap->max_order)
        return HVMEM_E_ORDER;
    if (flags & ~HVMEM_EXTENT_FIRST_TOUCH)
        return HVMEM_E_ARG;
    if (flags && !run->domain->ops.map_untouched)
        return HVMEM_E_UNSUPPORTED;
    gfns = (hvmem_u64)1 << (extent->order + hvmem__gfn_shift(run->heap));
    if (!hvmem__gfn_range(extent->gfn, gfns))
        return HVMEM_E_RANGE;
    return extent->gfn & (gfns - 1) ? HVMEM_E_ALIGN : HVMEM_OK;
}

/* The next extent's block, every debt left on it. */
static hvmem_status take(struct run *run, struct hvmem_extent *extent)
{
    struct hvmem_extent wanted = *extent; /* one look: others may write to it */
    hvmem_status status = check_extent(run, &wanted);
    struct hvmem__populate *p = run->p;
    hvmem_mfn mfn;

    if (status)
        return status;
    run->one.order = wanted.order;
    if (HVMEM_TEST_POINT("populate_take"))
        return HVMEM_E_NOMEM;
    status = hvmem__alloc(run->heap, &run->one, 1, &mfn);
    if (status)
        return status;
    extent->flags = wanted.flags & ~HVMEM_EXTENT_DONE;
    p->slot[p->taken] = mfn | (hvmem_u64)wanted.order << SLOT_ORDER_SHIFT;
    if (wanted.flags & HVMEM_EXTENT_FIRST_TOUCH)
        p->slot[p->taken] |= SLOT_TOUCH;
    p->taken++;
    return HVMEM_OK;
}

/* The request for a block: all of a slice but its order. Checked here, once. */
static hvmem_status fill_request(struct run *run)
{
    struct hvmem_request *one = &run->one;

    memset(one, 0, sizeof *one);
    one->size = sizeof *one;
    one->flags = HVMEM_REQ_DEFER_ALL;
    if (run->p->flags & HVMEM_POPULATE_NO_CLAIM)
        one->flags |= HVMEM_REQ_NO_CLAIM;
    if (run->p->flags & HVMEM_POPULATE_EXACT_NODE)
        one->flags |= HVMEM_REQ_EXACT_NODE;
    one->node = run->p->node;
    one->domain = run->domain;
    return hvmem__request_check(run->heap, one);
}

static hvmem_status take_slice(struct run *run)
{
    struct hvmem__populate *p = run->p;

    if (!p->stop && p->first + p->taken < p->count)
        p->stop = fill_request(run);
    while (p->taken < HVMEM_POPULATE_SLICE && p->first + p->taken < p->count && !p->stop) {
        p->stop = take(run, &run->request->extents[p->first + p->taken]);
        hvmem__budget_use(&run->budget, (hvmem_u64)1 << run->heap->page_shift);
        if (hvmem__budget_stop(run->heap, &run->budget))
            return HVMEM_AGAIN;
    }
    p->phase = PHASE_FLUSH;
    return HVMEM_OK;
}

/* ---- paying --------------------------------------------------------------------------------- */

/* A slot's block as its record is now. */
static struct hvmem__owned block_of(struct run *run, hvmem_u64 slot)
{
    struct hvmem__bank *b = run->bank;
    struct hvmem__owned found;

    /* The bank of a block that is held cannot be removed, so that no other can come to hold it. */
    found.mfn = slot_mfn(slot);
    if (!b || found.mfn - hvmem__load(&b->base) >= hvmem__load(&b->frames))
        run->bank = hvmem__bank_of(run->heap, found.mfn);
    found.bank = run->bank;
    found.record = hvmem__load_acquire(hvmem__record_at(found.bank, found.mfn));
    return found;
}

/* One filtered flush for the whole slice. */
static hvmem_status flush_slice(struct run *run)
{
    struct hvmem__populate *p = run->p;
    struct hvmem__tally tally = {0, 0, 0};
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    for (i = 0; i < p->taken; i++)
        hvmem__tally_add(run->heap, &tally, block_of(run, p->slot[i]).record);
    if (HVMEM_TEST_POINT("populate_flush"))
        return HVMEM_E_HOST;
    if (tally.flush)
        status = hvmem__flush_for(run->heap, tally.newest);
    p->paid = 0;
    p->inside = 0;
    p->icache = 0;
    p->phase = PHASE_PAY;
    return status;
}

/* Debts of a block that its domain pays as a whole, at start: while it has not run. */
static hvmem_u32 left_to_start(const struct run *run)
{
    if (hvmem__load(&run->domain->state) == HVMEM_DOMAIN_RUNNING)
        return 0;
    return run->p->flags & HVMEM_POPULATE_DEFER_DCACHE ? HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE
                                                       : HVMEM_OWES_ICACHE;
}

/* What of a slot's debts is paid in this phase. */
static hvmem_u32 due_now(const struct run *run, hvmem_u64 slot, hvmem__record record)
{
    hvmem_u32 due = hvmem__rec_owed(record) & ~left_to_start(run) & ~HVMEM_OWES_ICACHE;

    return slot & SLOT_TOUCH ? due & ~(HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE) : due;
}

static hvmem_status pay_slice(struct run *run)
{
    struct hvmem__populate *p = run->p;

    for (; p->paid < p->taken; p->paid++, p->inside = 0) {
        hvmem_u64 slot = p->slot[p->paid];
        struct hvmem__owned block = block_of(run, slot);
        hvmem_u32 due = due_now(run, slot, block.record);
        hvmem_status status = HVMEM_OK;

        if (due)
            status = HVMEM_TEST_POINT("populate_pay")
                         ? HVMEM_E_HOST
                         : hvmem__pay_block(run->heap, block.bank, slot_mfn(slot), block.record,
                                            due, &p->inside, &run->budget);
        if (hvmem__rec_owed(block.record) & ~left_to_start(run) & HVMEM_OWES_ICACHE)
            p->icache = 1;
        if (status)
            return status;
    }
    p->phase = PHASE_MAP;
    return p->icache ? hvmem__pay_icache(run->heap) : HVMEM_OK;
}

/* ---- mapping -------------------------------------------------------------------------------- */

/*
 * All of a block's debts are paid, or the domain's now, or wait for the first touch: say so in its
 * record. Moved before the record is cleared, so that a free meanwhile does not lose them.
 */
static hvmem_status book(struct run *run, hvmem_gfn gfn, hvmem_u64 slot)
{
    struct hvmem__owned block = block_of(run, slot);
    hvmem_u32 owed = hvmem__rec_owed(block.record), moved = owed & left_to_start(run);
    hvmem_u32 contents = owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE), dirt;
    hvmem_status status;
    hvmem__record to;

    if (moved & HVMEM_OWES_DCACHE && !(slot & SLOT_TOUCH))
        hvmem__domain_dirty(run->domain, gfn,
                            (hvmem_u64)1 << (slot_order(slot) + hvmem__gfn_shift(run->heap)));
    if (moved)
        hvmem__domain_owe(run->domain, moved);
    if (!(slot & SLOT_TOUCH) || !contents)
        return owed ? hvmem__paid(run->heap, block.bank, slot_mfn(slot), block.record, owed)
                    : HVMEM_OK;
    /* A dirty part stands for one that owes its clean too. */
    dirt = contents & HVMEM_OWES_DCACHE ? HVMEM__DIRT_DIRTY : hvmem__rec_dirt(block.record);
    to = hvmem__rec_with_bias(hvmem__rec_with_owed(block.record, contents), HVMEM__BIAS_UNTOUCHED);
    to = hvmem__rec_with_dirt(to, dirt);
    status = hvmem__seize(run->heap, block.bank, slot_mfn(slot), block.record, to);
    if (status)
        return status;
    hvmem__domain_changed(run->domain, block.record, to);
    return HVMEM_OK;
}

static hvmem_status map_one(struct run *run, struct hvmem_extent *extent, hvmem_u64 slot)
{
    hvmem_u32 touch = slot & SLOT_TOUCH ? HVMEM_EXTENT_FIRST_TOUCH : 0;
    struct hvmem_extent wanted = *extent;
    struct hvmem_domain *domain = run->domain;
    hvmem_status status = check_extent(run, &wanted);

    /* The caller may have changed its array since the block was taken. */
    if (!status &&
        (wanted.order != slot_order(slot) || (wanted.flags & HVMEM_EXTENT_FIRST_TOUCH) != touch))
        status = HVMEM_E_STALE;
    if (!status)
        status = book(run, wanted.gfn, slot);
    if (status)
        return status;
    if (touch && hvmem__rec_untouched(block_of(run, slot).record))
        status = domain->ops.map_untouched(domain->ctx, wanted.gfn, slot_mfn(slot), wanted.order);
    else
        status = domain->ops.map(domain->ctx, wanted.gfn, slot_mfn(slot), wanted.order);
    if (status)
        return status < 0 ? status : HVMEM_E_HOST;
    extent->mfn = slot_mfn(slot);
    extent->flags = wanted.flags | HVMEM_EXTENT_DONE;
    return HVMEM_OK;
}

static hvmem_status map_slice(struct run *run)
{
    struct hvmem__populate *p = run->p;

    while (p->mapped < p->taken) {
        hvmem_status status =
            map_one(run, &run->request->extents[p->first + p->mapped], p->slot[p->mapped]);

        if (status)
            return status;
        p->mapped++;
        hvmem__budget_use(&run->budget, (hvmem_u64)1 << run->heap->page_shift);
        if (hvmem__budget_stop(run->heap, &run->budget) &&
            (p->mapped < p->taken || p->first + p->mapped < p->count))
            return HVMEM_AGAIN;
    }
    p->first += p->taken;
    p->taken = p->mapped = p->paid = 0;
    p->phase = PHASE_TAKE;
    return p->stop;
}

/* ---- public --------------------------------------------------------------------------------- */

static hvmem_status step(struct run *run)
{
    switch (run->p->phase) {
    case PHASE_TAKE:
        return take_slice(run);
    case PHASE_FLUSH:
        return flush_slice(run);
    case PHASE_PAY:
        return pay_slice(run);
    case PHASE_MAP:
    default:
        return map_slice(run);
    }
}

static hvmem_status check(const struct hvmem_domain *domain, const struct hvmem_populate *request)
{
    hvmem_u32 state = hvmem__load(&domain->state);

    if (request->size != sizeof *request)
        return HVMEM_E_VERSION;
    if (!request->extents || request->flags & ~KNOWN_FLAGS || request->reserved)
        return HVMEM_E_ARG;
    if (!request->count)
        return HVMEM_E_COUNT;
    if (!domain->ops.map)
        return HVMEM_E_UNSUPPORTED;
    if (request->flags & HVMEM_POPULATE_DEFER_DCACHE) {
        if (state != HVMEM_DOMAIN_BUILDING)
            return HVMEM_E_PHASE;
        if (!domain->ops.lookup)
            return HVMEM_E_UNSUPPORTED;
    }
    return HVMEM_OK;
}

/* Open it, or check that the request is the one it was opened with. */
static hvmem_status begin(struct run *run, struct hvmem_cursor *cursor)
{
    const struct hvmem_populate *request = run->request;
    struct hvmem__populate *p = run->p;
    int fresh;
    hvmem_status status = hvmem__domain_open(run->domain, HVMEM__OPEN_POPULATE, cursor, &fresh);

    if (status)
        return status;
    if (fresh) {
        memset(p, 0, sizeof *p - sizeof p->slot);
        p->count = request->count;
        p->flags = request->flags;
        p->node = request->node;
        return HVMEM_OK;
    }
    if (p->count == request->count && p->flags == request->flags && p->node == request->node)
        return HVMEM_OK;
    hvmem__domain_close(run->domain, cursor, 0);
    return HVMEM_E_STALE;
}

/* Steps until the end, the budget's end, or an error. */
static hvmem_status go_on(struct run *run)
{
    struct hvmem__populate *p = run->p;
    hvmem_status status = HVMEM_OK;

    run->budget = hvmem__budget_frames(run->heap, run->request->budget);
    while (!status && (p->taken || p->first < p->count)) {
        if (hvmem__load(&run->domain->state) == HVMEM_DOMAIN_DYING)
            return HVMEM_E_DOMAIN;
        status = step(run);
    }
    return status;
}

hvmem_status hvmem_domain_populate(struct hvmem_domain *domain,
                                   const struct hvmem_populate *request,
                                   struct hvmem_cursor *cursor)
{
    struct run run;
    hvmem_status status;

    if (!domain || !domain->heap)
        return HVMEM_E_ARG;
    run.heap = domain->heap;
    run.domain = domain;
    run.request = request;
    run.p = &domain->populate;
    run.bank = HVMEM_NULL;
    status = request && cursor ? check(domain, request) : HVMEM_E_ARG;
    if (!status)
        status = begin(&run, cursor);
    if (status)
        return hvmem__refuse(run.heap, status, 0, HVMEM_ORDER_ANY, domain->id);
    status = go_on(&run);
    if (request->done)
        *request->done = run.p->first + run.p->mapped;
    if (status != HVMEM_AGAIN)
        hvmem__populate_abort(domain);
    hvmem__domain_close(domain, cursor, status != HVMEM_AGAIN);
    return status < 0 ? hvmem__refuse(run.heap, status, 0, HVMEM_ORDER_ANY, domain->id) : status;
}

hvmem_status hvmem_domain_populate_cancel(struct hvmem_domain *domain)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    struct hvmem_cursor cursor;
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    status = hvmem__domain_retake(domain, HVMEM__OPEN_POPULATE);
    if (status)
        return hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, domain->id);
    hvmem__populate_abort(domain);
    hvmem__domain_close(domain, &cursor, 1);
    return HVMEM_OK;
}
