/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * populate_take.c: the blocks of a slice: many under one lock while the arenas have them, one by one when
 * they must be looked for in caches; and back again, claims included.
 */
#include "populate.h"

#include "bank.h"
#include "claim.h"
#include "clock.h"
#include "free.h"
#include "gathered.h"
#include "request.h"
#include "take.h"
#include "testpoint.h"

/* Blocks taken under one lock, at most; a bit each in struct alike.touch. */
#define BATCH 64u

/* Extents in a row that ask for blocks of one order. */
struct alike {
    struct hvmem_extent *extent;
    hvmem_u32 n;
    hvmem_u32 order;
    hvmem_u64 touch; /* bit i: the block of extent i is paid for at first touch */
};

/* How a slice is taken. */
struct taking {
    struct hvmem__filling *f;
    struct hvmem_request request; /* for a block; its order is filled in. Checked once */
    hvmem_u64 nodes;              /* that blocks may come from */
    hvmem_u64 owing;              /* of these, what is free there is taken as it comes */
    hvmem_node home;
};

/* ---- giving back ----------------------------------------------------------------------------- */

/*
 * The block of a slot, held, back to where it came from; it owes `owed` besides. Only its going offline can
 * come in between.
 */
static void give_back(const struct hvmem_domain *domain, hvmem_u64 slot, hvmem_u32 owed)
{
    (void)hvmem__free_checked(domain->heap, hvmem__slot_mfn(slot), hvmem__slot_order(slot), &domain,
                              HVMEM__UNUSED | HVMEM__EVEN_HELD | owed);
}

/*
 * Unmap what is mapped of the slot at hand. 0: its block is not to be given back: it may still be reached and
 * is in quarantine, or the tables of a domain that ends are taken down first.
 */
static int take_back(struct hvmem_domain *domain, hvmem_u64 slot, struct hvmem__bank *b)
{
    struct hvmem__populate *p = &domain->populate;
    struct hvmem_heap *heap = domain->heap;
    hvmem_mfn mfn = hvmem__slot_mfn(slot);
    hvmem_u32 order = hvmem__slot_order(slot);
    hvmem_u64 at;

    if (p->part && hvmem__load(&domain->state) == HVMEM_DOMAIN_DYING) {
        hvmem__populate_let_go(heap, b, mfn);
        return 0;
    }
    /* (More than one piece is mapped only of a block that is larger than one.) */
    for (at = 0; at < p->part; at += (hvmem_u64)1 << p->unit) {
        hvmem_gfn gfn = p->gfn + (at << hvmem__gfn_shift(heap));

        if (domain->ops.unmap(domain->ctx, gfn, mfn + at, p->unit))
            p->begun = 2;
        hvmem__give_way(heap);
    }
    if (p->begun == 2)
        hvmem__gathered_withhold(heap, mfn, order);
    return p->begun != 2;
}

hvmem_status hvmem__populate_abort(struct hvmem_domain *domain)
{
    struct hvmem__populate *p = &domain->populate;
    struct hvmem_heap *heap = domain->heap;
    hvmem_status status = HVMEM_OK;

    for (; p->mapped < p->taken; p->mapped++, p->part = p->begun = 0) {
        hvmem_u64 slot = p->slot[p->mapped];
        hvmem_mfn mfn = hvmem__slot_mfn(slot);
        struct hvmem__seen seen;

        if (hvmem__see_block(heap, mfn, &seen) || seen.block.mfn != mfn ||
            !hvmem__slot_holds(domain, slot, seen.record))
            continue; /* in quarantine, or out of it by now */
        if (p->begun && !take_back(domain, slot, seen.bank)) {
            status = p->begun == 2 ? HVMEM_E_QUARANTINE : status;
            continue;
        }
        if (p->drew) {
            struct hvmem__drawn drawn = {domain, 0, 0, 0, 0};

            drawn.from_node = p->drawn[p->mapped].from_node;
            drawn.from_any = p->drawn[p->mapped].from_any;
            drawn.when = hvmem__claim_when(domain, p->drawn[p->mapped].when);
            hvmem__claim_refund(heap, seen.bank->node, &drawn);
        }
        /* A vCPU may have reached what was mapped for a moment. */
        give_back(domain, slot, p->begun ? heap->owed_on_free : 0);
    }
    p->taken = p->mapped = p->paid = 0;
    return status;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Note which claims the blocks of the next `n` slots used up, in the order that they would one by one. */
static void note_drawn(struct hvmem__populate *p, hvmem_u32 n, hvmem_u32 order,
                       const struct hvmem__drawn *drawn)
{
    hvmem_u64 from_node = drawn->from_node, from_any = drawn->from_any;
    hvmem_u32 frames = (hvmem_u32)1 << order, i;

    if (hvmem__likely(!(from_node | from_any)))
        return;
    if (!p->drew)
        memset(p->drawn, 0, sizeof p->drawn);
    p->drew = 1;
    for (i = p->taken; i < p->taken + n; i++) {
        hvmem_u32 node = from_node < frames ? (hvmem_u32)from_node : frames;
        hvmem_u32 any = from_any < frames - node ? (hvmem_u32)from_any : frames - node;

        p->drawn[i].from_node = node;
        p->drawn[i].from_any = any;
        p->drawn[i].when = (hvmem_u32)drawn->when;
        from_node -= node;
        from_any -= any;
    }
}

/* The next extents that want blocks of one order, `most` at most. Without any: why. */
static hvmem_status find_alike(const struct taking *t, hvmem_u64 most, struct alike *alike)
{
    const struct hvmem__populate *p = t->f->p;

    alike->extent = &t->f->request->extents[p->first + p->taken];
    alike->n = 0;
    alike->order = 0;
    alike->touch = 0;
    for (; alike->n < most; alike->n++) {
        struct hvmem_extent wanted = alike->extent[alike->n]; /* one look: others may write to it */
        hvmem_status status = hvmem__extent_check(t->f, &wanted);

        if (hvmem__unlikely(status != HVMEM_OK))
            return alike->n ? HVMEM_OK : status;
        if (hvmem__unlikely(wanted.order != alike->order)) {
            if (alike->n)
                return HVMEM_OK;
            alike->order = wanted.order;
        }
        if (hvmem__unlikely(wanted.flags & HVMEM_EXTENT_FIRST_TOUCH))
            alike->touch |= (hvmem_u64)1 << alike->n;
    }
    return HVMEM_OK;
}

/* A batch from the arenas of the nearest node that has any, rather without a flush. How many. */
static hvmem_u32 from_arenas(struct taking *t, struct hvmem__batch *batch, hvmem_mfn *blocks,
                             hvmem_u32 n)
{
    hvmem_u64 nodes = t->nodes, bit;
    hvmem_u32 got;

    for (; nodes; nodes &= ~bit) {
        batch->node = hvmem__nearest(t->f->heap, t->home, nodes);
        bit = (hvmem_u64)1 << batch->node;
        batch->of = HVMEM__SUPPLY_CLEAN;
        if (!(t->owing & bit) && !hvmem__take_batch(t->f->heap, batch, blocks, n, &got)) {
            if (batch->cut)
                t->owing |= bit;
            return got;
        }
        t->owing |= bit;
        batch->of = HVMEM__SUPPLY_ANY;
        if (!hvmem__take_batch(t->f->heap, batch, blocks, n, &got))
            return got;
    }
    return 0;
}

/* The domain has these blocks to settle, which all lie between the lowest and the highest. */
static void hold(struct hvmem_domain *domain, const hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 order,
                 const struct hvmem__tally *tally)
{
    hvmem_mfn lo = blocks[0], last = blocks[0];
    hvmem_u32 i;

    if (hvmem__likely(!tally->frames))
        return;
    for (i = 1; i < n; i++) {
        lo = blocks[i] < lo ? blocks[i] : lo;
        last = blocks[i] > last ? blocks[i] : last;
    }
    hvmem__domain_hold(domain, lo, last - lo + ((hvmem_u64)1 << order), tally);
}

/*
 * Blocks for all of them, or for some at their front, out of the arenas; 0: none, and why is for the
 * long way to find out. An open populate keeps start out, so that this need not count as a call.
 */
static hvmem_u32 take_batch(struct taking *t, const struct alike *alike)
{
    struct hvmem__filling *f = t->f;
    struct hvmem__populate *p = f->p;
    struct hvmem__batch batch;
    hvmem_u32 got;

    if (hvmem__domain_charge(f->domain, (hvmem_u64)alike->n << alike->order))
        return 0;
    hvmem__batch_init(&batch, alike->order,
                      hvmem__rec_with_bias(hvmem__rec_make(0, HVMEM_BLOCK_ALLOCATED, f->domain->id),
                                           HVMEM__BIAS_HELD));
    batch.domain = p->flags & HVMEM_POPULATE_NO_CLAIM ? HVMEM_NULL : f->domain;
    got = from_arenas(t, &batch, &p->slot[p->taken], alike->n);
    if (got < alike->n)
        hvmem__domain_uncharge(f->domain, (hvmem_u64)(alike->n - got) << alike->order);
    if (!got)
        return 0;
    hold(f->domain, &p->slot[p->taken], got, alike->order, &batch.tally);
    note_drawn(p, got, alike->order, &batch.drawn);
    p->owed |= batch.owed;
    if (batch.tally.newest > p->newest)
        p->newest = batch.tally.newest;
    hvmem__watch(f->heap);
    return got;
}

/* A block for the first of them, wherever it may be. */
static hvmem_status take_one(struct taking *t, const struct alike *alike)
{
    struct hvmem__filling *f = t->f;
    struct hvmem__populate *p = f->p;
    struct hvmem__drawn drawn;
    hvmem_status status;
    hvmem__record record;
    hvmem_mfn mfn;

    t->request.order = alike->order;
    status = hvmem__alloc(f->heap, &t->request, HVMEM__BIAS_HELD, &drawn, &mfn);
    if (status)
        return status;
    record = hvmem__load_acquire(hvmem__record_at(hvmem__bank_of(f->heap, mfn), mfn));
    p->slot[p->taken] = mfn;
    note_drawn(p, 1, alike->order, &drawn);
    p->owed |= hvmem__rec_owed(record);
    if (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH &&
        hvmem__stamp_time(f->heap, record) > p->newest)
        p->newest = hvmem__stamp_time(f->heap, record);
    return HVMEM_OK;
}

/* Blocks for the next extents, `most` at most; how many in *got. */
static hvmem_status take_some(struct taking *t, hvmem_u64 most, hvmem_u32 *got)
{
    struct hvmem__populate *p = t->f->p;
    struct alike alike;
    hvmem_status status = find_alike(t, most, &alike);
    hvmem_u32 i;

    *got = 0;
    if (status)
        return status;
    if (HVMEM_TEST_POINT("populate_take"))
        return HVMEM_E_NOMEM;
    if (!hvmem__request_in_turn(&t->request))
        *got = take_batch(t, &alike);
    if (hvmem__unlikely(!*got)) {
        status = take_one(t, &alike);
        *got = !status;
    }
    for (i = 0; i < *got; i++) {
        hvmem_u32 touch = (hvmem_u32)(alike.touch >> i & 1);

        alike.extent[i].flags = touch ? HVMEM_EXTENT_FIRST_TOUCH : 0;
        p->slot[p->taken + i] |=
            (hvmem_u64)alike.order << HVMEM__SLOT_ORDER_SHIFT | (touch ? HVMEM__SLOT_TOUCH : 0);
    }
    p->taken += *got;
    return status;
}

/* The request for a block: all of a slice but its order. Checked here, once. */
static hvmem_status begin(struct taking *t, struct hvmem__filling *f)
{
    struct hvmem_request *one = &t->request;
    hvmem_status status;

    memset(t, 0, sizeof *t);
    t->f = f;
    one->size = sizeof *one;
    one->flags = HVMEM_REQ_DEFER_ALL;
    if (f->p->flags & HVMEM_POPULATE_NO_CLAIM)
        one->flags |= HVMEM_REQ_NO_CLAIM;
    if (f->p->flags & HVMEM_POPULATE_EXACT_NODE)
        one->flags |= HVMEM_REQ_EXACT_NODE;
    one->node = f->p->node;
    one->domain = f->domain;
    status = hvmem__request_check(f->heap, one);
    if (status)
        return status;
    t->nodes = hvmem__request_nodes(f->heap, one);
    t->home = one->node != HVMEM_NODE_ANY ? one->node : hvmem__own_node(f->heap);
    return HVMEM_OK;
}

hvmem_status hvmem__populate_take(struct hvmem__filling *f)
{
    struct hvmem__populate *p = f->p;
    struct taking t;

    if (!p->taken)
        p->newest = p->owed = p->drew = 0;
    if (!p->stop && p->first + p->taken < p->count)
        p->stop = begin(&t, f);
    while (p->taken < HVMEM_POPULATE_SLICE && p->first + p->taken < p->count && !p->stop) {
        hvmem_u64 most = HVMEM_POPULATE_SLICE - p->taken, left = p->count - p->first - p->taken;
        hvmem_u64 allowed = f->budget.left >> f->heap->page_shift;
        hvmem_u32 got;

        most = most < left ? most : left;
        most = most < BATCH ? most : BATCH;
        if (most > allowed)
            most = allowed ? allowed : 1;
        p->stop = take_some(&t, most, &got);
        hvmem__budget_use(&f->budget, (hvmem_u64)(got ? got : 1) << f->heap->page_shift);
        if (hvmem__budget_stop(f->heap, &f->budget))
            return HVMEM_AGAIN;
    }
    p->phase = HVMEM__PHASE_FLUSH;
    return HVMEM_OK;
}
