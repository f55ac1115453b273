/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * populate.c: memory for a domain in slices: take a slice's blocks (populate_take.c), flush once for all
 * of them, pay for their contents, map them. Between two calls the blocks that are not mapped yet are
 * known to the domain alone; their records keep every debt until all of the block's are paid.
 */
#include "populate.h"

#include "clock.h"
#include "flush.h"
#include "settle.h"
#include "testpoint.h"
#include "walk.h"

#define KNOWN_FLAGS                                                                                \
    (HVMEM_POPULATE_DEFER_DCACHE | HVMEM_POPULATE_NO_CLAIM | HVMEM_POPULATE_EXACT_NODE)

/* ---- paying --------------------------------------------------------------------------------- */

/* A slot's block as its record is now; 0: it is no longer the domain's (hvmem__slot_holds). */
static struct hvmem__owned block_of(struct hvmem__filling *f, hvmem_u64 slot)
{
    struct hvmem__bank *b = f->bank;
    struct hvmem__owned found;

    /* The bank of a block that is held cannot be removed, so that no other can come to hold it. */
    found.mfn = hvmem__slot_mfn(slot);
    if (!b || found.mfn - hvmem__load(&b->base) >= hvmem__load(&b->frames))
        f->bank = hvmem__bank_of(f->heap, found.mfn);
    found.bank = f->bank;
    found.record = found.bank ? hvmem__load_acquire(hvmem__record_at(found.bank, found.mfn)) : 0;
    if (!hvmem__slot_holds(f->domain, slot, found.record))
        found.record = 0;
    return found;
}

/* Blocks whose records change under one lock. */
#define SECTION 64u

/* The record of a block that owes a flush and nothing else, as it is once that is paid; else 0. */
static hvmem__record flushed(const struct hvmem__filling *f, hvmem__record record, hvmem_u64 slot)
{
    hvmem_u32 owed = hvmem__rec_owed(record);

    if (!(owed & HVMEM__OWES_FLUSH) || owed & ~HVMEM__OWES_FLUSH ||
        hvmem__rec_bias(record) != HVMEM__BIAS_HELD || !hvmem__slot_holds(f->domain, slot, record))
        return 0;
    return hvmem__flush_paid(record);
}

/*
 * The flush was done: blocks that owed nothing else owe nothing any more. From slot i on those of one
 * bank, under one lock; returns where it stopped.
 */
static hvmem_u32 clear_flush(struct hvmem__filling *f, hvmem_u32 i)
{
    const struct hvmem__populate *p = f->p;
    struct hvmem__bank *b = block_of(f, p->slot[i]).bank;
    hvmem_u32 end = i + SECTION < p->taken ? i + SECTION : p->taken;
    struct hvmem__tally paid = {0, 0, 0};
    struct hvmem__arena *arena;
    hvmem_u64 state;

    if (!b)
        return i + 1;
    arena = hvmem__arena_of(f->heap, b);
    state = hvmem__lock_arena(f->heap, arena);
    hvmem__table_changes(b->table);
    for (; i < end && hvmem__bank_holds(b, hvmem__slot_mfn(p->slot[i])); i++) {
        hvmem_mfn mfn = hvmem__slot_mfn(p->slot[i]);
        hvmem__record *at = hvmem__record_at(b, mfn), from = hvmem__load(at);
        hvmem__record to = flushed(f, from, p->slot[i]);

        if (to && hvmem__is_head(b, mfn) && hvmem__frame_claim(&f->heap->host, at, from, to)) {
            paid.frames += hvmem__rec_debts(from) ? (hvmem_u64)1 << hvmem__rec_order(to) : 0;
            paid.flush = paid.frames;
        }
    }
    hvmem__unlock_arena(f->heap, arena, state);
    hvmem__domain_release(f->domain, &paid);
    return i;
}

/* One filtered flush for the whole slice. */
static hvmem_status flush_slice(struct hvmem__filling *f)
{
    struct hvmem__populate *p = f->p;
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i = 0;

    if (HVMEM_TEST_POINT("populate_flush"))
        return HVMEM_E_HOST;
    if (p->owed & HVMEM__OWES_FLUSH) {
        status = hvmem__flush_for(f->heap, p->newest);
        if (status)
            return status;
        while (i < p->taken)
            i = clear_flush(f, i);
    }
    p->owed &= ~HVMEM__OWES_FLUSH;
    p->paid = 0;
    p->inside = 0;
    p->icache = 0;
    p->phase = HVMEM__PHASE_PAY;
    return HVMEM_OK;
}

/* Debts of a block that its domain pays as a whole, at start: while it has not run. */
static hvmem_u32 left_to_start(const struct hvmem__filling *f)
{
    if (hvmem__load(&f->domain->state) == HVMEM_DOMAIN_RUNNING)
        return 0;
    return f->p->flags & HVMEM_POPULATE_DEFER_DCACHE ? HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE
                                                     : HVMEM_OWES_ICACHE;
}

/* What of a slot's debts is paid in this phase. */
static hvmem_u32 due_now(const struct hvmem__filling *f, hvmem_u64 slot, hvmem__record record)
{
    hvmem_u32 due = hvmem__rec_owed(record) & ~left_to_start(f) & ~HVMEM_OWES_ICACHE;

    return slot & HVMEM__SLOT_TOUCH ? due & ~(HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE) : due;
}

static hvmem_status pay_slice(struct hvmem__filling *f)
{
    struct hvmem__populate *p = f->p;
    hvmem_status status = HVMEM_OK;

    for (; p->owed && p->paid < p->taken; p->paid++, p->inside = 0) {
        hvmem_u64 slot = p->slot[p->paid];
        struct hvmem__owned block = block_of(f, slot);
        hvmem_u32 due = due_now(f, slot, block.record);

        if (!block.record)
            return HVMEM_E_OWNER;
        if (due)
            status = HVMEM_TEST_POINT("populate_pay")
                         ? HVMEM_E_HOST
                         : hvmem__pay_block(f->heap, block.bank, hvmem__slot_mfn(slot),
                                            block.record, due, &p->inside, &f->budget);
        if (hvmem__rec_owed(block.record) & ~left_to_start(f) & HVMEM_OWES_ICACHE)
            p->icache = 1;
        if (status)
            return status;
        /* Wanted at the end of one block is wanted before the next. */
        if (f->budget.stop && p->paid + 1 < p->taken) {
            p->paid++;
            p->inside = 0;
            return HVMEM_AGAIN;
        }
    }
    if (p->icache)
        status = hvmem__pay_icache(f->heap);
    if (!status)
        p->phase = HVMEM__PHASE_MAP;
    return status;
}

/* ---- mapping -------------------------------------------------------------------------------- */

/* The contents of a slot's block are paid for at its first touch, the rest is booked. */
static hvmem_status await_touch(struct hvmem__filling *f, hvmem_u64 slot, struct hvmem__owned block)
{
    hvmem_status status = HVMEM_E_FREE;
    hvmem_u32 tries;

    /* Only its going offline can come in between. */
    for (tries = 0; status == HVMEM_E_FREE && tries < HVMEM__SEIZE_TRIES; tries++) {
        hvmem_u32 contents = hvmem__rec_owed(block.record) & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
        /* A dirty part stands for one that owes its clean too. */
        hvmem_u32 dirt =
            contents & HVMEM_OWES_DCACHE ? HVMEM__DIRT_DIRTY : hvmem__rec_dirt(block.record);
        hvmem__record to = hvmem__rec_with_bias(hvmem__rec_with_owed(block.record, contents),
                                                HVMEM__BIAS_HELD | HVMEM__BIAS_UNTOUCHED);

        to = hvmem__rec_with_dirt(to, dirt);
        status = hvmem__seize(f->heap, block.bank, hvmem__slot_mfn(slot), block.record, to);
        if (!status)
            hvmem__domain_changed(f->domain, block.record, to);
        else
            block = block_of(f, slot);
    }
    return status;
}

/*
 * All of a block's debts are paid, or the domain's now, or wait for the first touch: say so in its
 * record. Moved before the record is cleared, so that a free meanwhile does not lose them.
 */
static hvmem_status book(struct hvmem__filling *f, hvmem_gfn gfn, hvmem_u64 slot,
                         struct hvmem__owned block)
{
    hvmem_u32 owed = hvmem__rec_owed(block.record), moved = owed & left_to_start(f);
    hvmem_u32 contents = owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);

    if (moved & HVMEM_OWES_DCACHE && !(slot & HVMEM__SLOT_TOUCH))
        hvmem__domain_dirty(f->domain, gfn,
                            (hvmem_u64)1 << (hvmem__slot_order(slot) + hvmem__gfn_shift(f->heap)));
    if (moved)
        hvmem__domain_owe(f->domain, moved);
    if (!(slot & HVMEM__SLOT_TOUCH) || !contents)
        return owed ? hvmem__paid(f->heap, block.bank, hvmem__slot_mfn(slot), block.record, owed)
                    : HVMEM_OK;
    return await_touch(f, slot, block);
}

/* One call of ops.map, of 2^order frames of the slot at hand. */
HVMEM_INLINE hvmem_status map_piece(struct hvmem__filling *f, hvmem_u64 slot, hvmem_gfn gfn,
                                    hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem_domain *domain = f->domain;
    hvmem_status status;

    if (slot & HVMEM__SLOT_TOUCH && hvmem__rec_untouched(block_of(f, slot).record))
        status = domain->ops.map_untouched(domain->ctx, gfn, mfn, order);
    else
        status = domain->ops.map(domain->ctx, gfn, mfn, order);
    if (hvmem__likely(!status))
        return HVMEM_OK;
    f->p->begun = status == HVMEM_E_QUARANTINE ? 2 : 1;
    return status < 0 ? status : HVMEM_E_HOST;
}

/* A slot that is larger than a piece, from where it was left. HVMEM_AGAIN: the budget says stop. */
static HVMEM_NOINLINE hvmem_status map_pieces(struct hvmem__filling *f, hvmem_u64 slot,
                                              hvmem_gfn gfn)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__slot_order(slot);
    struct hvmem__populate *p = f->p;

    p->gfn = gfn;
    for (p->begun = 1;;) {
        hvmem_status status = map_piece(f, slot, gfn + (p->part << hvmem__gfn_shift(f->heap)),
                                        hvmem__slot_mfn(slot) + p->part, p->unit);

        if (status)
            return status;
        p->part += (hvmem_u64)1 << p->unit;
        if (p->part >= frames)
            break;
        hvmem__budget_use(&f->budget, (hvmem_u64)1 << f->heap->page_shift);
        if (hvmem__budget_stop(f->heap, &f->budget))
            return HVMEM_AGAIN;
    }
    p->part = p->begun = 0;
    return HVMEM_OK;
}

static hvmem_status map_one(struct hvmem__filling *f, struct hvmem_extent *extent, hvmem_u64 slot)
{
    hvmem_u32 touch = slot & HVMEM__SLOT_TOUCH ? HVMEM_EXTENT_FIRST_TOUCH : 0;
    struct hvmem_extent wanted = *extent;
    struct hvmem__populate *p = f->p;
    struct hvmem__owned block = block_of(f, slot);
    hvmem_status status = block.record ? hvmem__extent_check(f, &wanted) : HVMEM_E_OWNER;

    /* The caller may have changed its array since the block was taken, or begun. */
    if (!status && (wanted.order != hvmem__slot_order(slot) ||
                    (wanted.flags & HVMEM_EXTENT_FIRST_TOUCH) != touch ||
                    hvmem__unlikely(p->begun && wanted.gfn != p->gfn)))
        status = HVMEM_E_STALE;
    if (!status && hvmem__unlikely(p->owed != 0) && !p->begun)
        status = book(f, wanted.gfn, slot, block);
    if (status)
        return status;
    if (HVMEM_TEST_POINT("populate_map"))
        return HVMEM_E_HOST;
    if (hvmem__likely(wanted.order <= p->unit))
        status = map_piece(f, slot, wanted.gfn, hvmem__slot_mfn(slot), wanted.order);
    else
        status = map_pieces(f, slot, wanted.gfn);
    if (status)
        return status;
    hvmem__populate_let_go(f->heap, block.bank, block.mfn);
    extent->mfn = hvmem__slot_mfn(slot);
    extent->flags = wanted.flags | HVMEM_EXTENT_DONE;
    return HVMEM_OK;
}

static hvmem_status map_slice(struct hvmem__filling *f)
{
    struct hvmem__populate *p = f->p;

    while (p->mapped < p->taken) {
        hvmem_status status =
            map_one(f, &f->request->extents[p->first + p->mapped], p->slot[p->mapped]);

        if (status)
            return status;
        p->mapped++;
        hvmem__budget_use(&f->budget, (hvmem_u64)1 << f->heap->page_shift);
        if (hvmem__budget_stop(f->heap, &f->budget) &&
            (p->mapped < p->taken || p->first + p->mapped < p->count))
            return HVMEM_AGAIN;
    }
    p->first += p->taken;
    p->taken = p->mapped = p->paid = 0;
    p->phase = HVMEM__PHASE_TAKE;
    return p->stop;
}

/* ---- public --------------------------------------------------------------------------------- */

static hvmem_status step(struct hvmem__filling *f)
{
    switch (f->p->phase) {
    case HVMEM__PHASE_TAKE:
        return hvmem__populate_take(f);
    case HVMEM__PHASE_FLUSH:
        return flush_slice(f);
    case HVMEM__PHASE_PAY:
        return pay_slice(f);
    case HVMEM__PHASE_MAP:
    default:
        return map_slice(f);
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
    if (domain->heap->adopting)
        return HVMEM_E_PHASE;
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
static hvmem_status begin(struct hvmem__filling *f, struct hvmem_cursor *cursor)
{
    const struct hvmem_populate *request = f->request;
    struct hvmem__populate *p = f->p;
    int fresh;
    hvmem_status status = hvmem__domain_open(f->domain, HVMEM__OPEN_POPULATE, cursor, &fresh);

    if (status)
        return status;
    if (fresh) {
        memset(p, 0, sizeof *p - sizeof p->slot - sizeof p->drawn);
        p->count = request->count;
        p->flags = request->flags;
        p->node = request->node;
        p->unit = HVMEM_ORDER_LIMIT;
        if (f->domain->ops.unit && f->domain->ops.unmap)
            p->unit = f->domain->ops.unit(f->domain->ctx);
        return HVMEM_OK;
    }
    if (p->count == request->count && p->flags == request->flags && p->node == request->node)
        return HVMEM_OK;
    hvmem__domain_close(f->domain, cursor, 0);
    return HVMEM_E_STALE;
}

/* Steps until the end, the budget's end, or an error. */
static hvmem_status go_on(struct hvmem__filling *f)
{
    struct hvmem__populate *p = f->p;
    hvmem_status status = HVMEM_OK;

    f->budget = hvmem__budget_frames(f->heap, f->request->budget);
    while (!status && (p->taken || p->first < p->count)) {
        if (hvmem__load(&f->domain->state) == HVMEM_DOMAIN_DYING)
            return HVMEM_E_DOMAIN;
        status = step(f);
    }
    return status;
}

hvmem_status hvmem_domain_populate(struct hvmem_domain *domain,
                                   const struct hvmem_populate *request,
                                   struct hvmem_cursor *cursor)
{
    struct hvmem__filling f;
    hvmem_status status;

    if (!domain || !domain->heap)
        return HVMEM_E_ARG;
    f.heap = domain->heap;
    f.domain = domain;
    f.request = request;
    f.p = &domain->populate;
    f.bank = HVMEM_NULL;
    status = request && cursor ? check(domain, request) : HVMEM_E_ARG;
    if (!status)
        status = begin(&f, cursor);
    if (status)
        return hvmem__refuse(f.heap, status, 0, HVMEM_ORDER_ANY, domain->id);
    status = go_on(&f);
    if (request->done)
        *request->done = f.p->first + f.p->mapped;
    if (status != HVMEM_AGAIN && hvmem__populate_abort(domain))
        status = HVMEM_E_QUARANTINE;
    hvmem__domain_close(domain, cursor, status != HVMEM_AGAIN);
    return status < 0 ? hvmem__refuse(f.heap, status, 0, HVMEM_ORDER_ANY, domain->id) : status;
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
    status = hvmem__populate_abort(domain);
    hvmem__domain_close(domain, &cursor, 1);
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, domain->id) : HVMEM_OK;
}
