/* SPDX-License-Identifier: BSD-2-Clause */
/* alloc.c: hvmem_alloc() and its kin: from a request to a block whose debts are paid. */
#include "claim.h"
#include "clock.h"
#include "credit.h"
#include "domain.h"
#include "drain.h"
#include "flush.h"
#include "free.h"
#include "magazine.h"
#include "pcpu.h"
#include "plain.h"
#include "request.h"
#include "run.h"
#include "settle.h"
#include "take.h"
#include "testpoint.h"

/* A checked request on its way. */
struct ask {
    const struct hvmem_request *req;
    struct hvmem__window window;
    struct hvmem__want want;
    hvmem_u64 frames;
    hvmem_u64 flush_for; /* a stamp that frames of this CPU's cache wait for, or 0 */
    hvmem_u32 owner;
    int cacheable;
    int noflush; /* the frames must owe no flush when they are taken */
    int holds;   /* the caller pays what is deferred, whatever the domain's state */
};

/* ---- where ---------------------------------------------------------------------------------- */

/* The next node of a domain's mask, in turn. mask must not be 0. */
static hvmem_node in_turn(struct hvmem_domain *domain, hvmem_u64 mask)
{
    hvmem_u32 turn = domain->heap->host.smp ? __atomic_fetch_add(&domain->turn, 1, __ATOMIC_RELAXED)
                                            : domain->turn++;
    hvmem_u32 skip;

    for (skip = turn % (hvmem_u32)hvmem__weight(mask); skip; skip--)
        mask &= mask - 1;
    return hvmem__lowest(mask);
}

static void place(struct hvmem_heap *heap, struct ask *ask)
{
    const struct hvmem_request *req = ask->req;
    struct hvmem__want *want = &ask->want;
    hvmem_u64 nodes = hvmem__request_nodes(heap, req);

    want->node_mask = nodes;
    want->node = req->node != HVMEM_NODE_ANY ? req->node : hvmem__own_node(heap);
    if (nodes && hvmem__request_in_turn(req))
        want->node = in_turn(req->domain, nodes);
    ask->window.lo = req->lo;
    ask->window.hi = req->hi ? req->hi : ~(hvmem_mfn)0;
    ask->window.colour_shift = req->colour_shift;
    ask->window.colour_mask = req->colour_mask;
    ask->window.colour = req->colour;
    if (req->lo || req->hi || req->colour_mask)
        want->window = &ask->window;
}

/* Fill in what the parts below need. */
static void prepare(struct hvmem_heap *heap, const struct hvmem_request *req, struct ask *ask)
{
    struct hvmem__want *want = &ask->want;

    memset(ask, 0, sizeof *ask);
    ask->req = req;
    ask->owner = req->domain ? req->domain->id : 0;
    want->order = req->order;
    if (req->count) {
        want->order = hvmem__order_for(req->count);
        if (want->order < req->align)
            want->order = req->align;
        if ((hvmem_u64)1 << want->order != req->count)
            want->count = req->count;
    }
    ask->frames = req->count ? req->count : (hvmem_u64)1 << req->order;
    want->keep = hvmem__rec_make(0, HVMEM_BLOCK_ALLOCATED, ask->owner);
    want->domain = req->flags & HVMEM_REQ_NO_CLAIM ? HVMEM_NULL : req->domain;
    place(heap, ask);
    ask->noflush =
        req->flags & HVMEM_REQ_NOFLUSH && HVMEM__OWES_FLUSH & ~hvmem__deferred_by(req->flags);
    ask->cacheable = !want->window && !req->count && !req->node_mask &&
                     !(req->flags & HVMEM_REQ_NO_CACHE) && !(req->domain && req->domain->node_mask);
}

/* ---- taking --------------------------------------------------------------------------------- */

/* From this CPU's cache. E_UNSUPPORTED: not a case for the cache. */
static hvmem_status from_cache(struct hvmem_heap *heap, struct ask *ask, hvmem_mfn *mfn,
                               hvmem_u32 *owed)
{
    hvmem_status status = HVMEM_E_UNSUPPORTED;
    struct hvmem__section s;

    if (!ask->cacheable || !ask->want.node_mask || !hvmem__cacheable(heap, ask->want.order))
        return status;
    hvmem__section_enter(heap, &s);
    if (hvmem__nearest(heap, ask->want.node, ask->want.node_mask) == hvmem__pcpu_node(heap, s.pc)) {
        struct hvmem__taken taken;

        ask->want.drawn_on = hvmem__pcpu_node(heap, s.pc);
        if (hvmem__pcpu_take(heap, s.pc, ask->want.order, ask->noflush, ask->want.node_mask,
                             ask->want.domain, &ask->want.drawn, &taken, &status)) {
            hvmem__record to = hvmem__rec_with_owner(
                hvmem__rec_with_state(taken.record, HVMEM_BLOCK_ALLOCATED), ask->owner);

            *owed = hvmem__rec_owed(to);
            if (hvmem__unlikely(ask->want.keep >> 48))
                to |= ask->want.keep >> 48 << 48;
            else if (!*owed && !ask->owner)
                to = hvmem__rec_with_bias(to, s.pc->token);
            hvmem__store(taken.at, to);
            *mfn = taken.mfn;
            ask->flush_for = taken.flush_for;
        }
    }
    hvmem__section_leave(heap, &s);
    return status;
}

/* From the arenas: one block, or a run that may lie over several. */
static hvmem_status from_arenas(struct hvmem_heap *heap, struct ask *ask, hvmem_mfn *mfn,
                                hvmem_u32 *owed)
{
    hvmem__record record = 0;
    hvmem_status status;

    if (!ask->want.node_mask)
        return HVMEM_E_NOMEM;
    status = hvmem__take(heap, &ask->want, mfn, &record);
    *owed = hvmem__rec_owed(record);
    if (status && ask->req->count) {
        hvmem_status run =
            hvmem__run_search(heap, &ask->want, ask->req->count, ask->req->align, mfn);

        *owed = HVMEM_OWES_ANY; /* of several blocks: told one by one when they are settled */
        if (run != HVMEM_E_NOMEM)
            status = run;
    }
    return status;
}

/* From the arenas, but nothing that must wait for a flush. */
static hvmem_status without_flush(struct hvmem_heap *heap, struct ask *ask, hvmem_mfn *mfn,
                                  hvmem_u32 *owed)
{
    struct hvmem__window *window = ask->want.window;
    hvmem_status status;

    ask->window.avoid = HVMEM__OWES_FLUSH;
    ask->want.window = &ask->window;
    status = from_arenas(heap, ask, mfn, owed);
    ask->window.avoid = 0;
    ask->want.window = window;
    return status;
}

static hvmem_status take_any(struct hvmem_heap *heap, struct ask *ask, hvmem_mfn *mfn,
                             hvmem_u32 *owed)
{
    hvmem_status status = from_cache(heap, ask, mfn, owed);

    if (!status)
        return status;
    return ask->noflush ? without_flush(heap, ask, mfn, owed) : from_arenas(heap, ask, mfn, owed);
}

/*
 * Taking fails only after every cache was emptied; then one that may not flush takes what would have
 * to be flushed for, so that it is told so.
 */
static hvmem_status take_drained(struct hvmem_heap *heap, struct ask *ask, hvmem_mfn *mfn,
                                 hvmem_u32 *owed)
{
    hvmem_status status = take_any(heap, ask, mfn, owed), drained = HVMEM_OK;

    if (status && hvmem__pcpu_any(heap)) {
        drained = hvmem__pcpu_drain_all(heap);
        status = take_any(heap, ask, mfn, owed);
    }
    if (status && ask->noflush)
        status = from_arenas(heap, ask, mfn, owed);
    return status && drained ? drained : status;
}

/* ---- paying --------------------------------------------------------------------------------- */

/* What of the frames' debts this request must pay before it returns. */
static hvmem_u32 due_now(const struct ask *ask, hvmem_u32 owed)
{
    return hvmem__payable(owed, hvmem__deferred_by(ask->req->flags));
}

/* What a request got, and what it cost. */
struct got {
    hvmem_mfn mfn;
    hvmem_u64 flush_for; /* as in struct ask */
    hvmem_u32 owed;
    hvmem_node drawn_on;
    struct hvmem__drawn drawn; /* claims used, on node drawn_on */
};

/* Give back frames that nobody has used, as if they had never been taken. */
static void undo(struct hvmem_heap *heap, const struct ask *ask, const struct got *got)
{
    hvmem_mfn at;

    hvmem__claim_refund(heap, got->drawn_on, &got->drawn);
    hvmem__run_free(heap, ask->owner, got->mfn, ask->frames, HVMEM__UNUSED, &at);
}

/* Whether a CPU may still reach the frames. */
static int would_flush(struct hvmem_heap *heap, const struct ask *ask, const struct got *got)
{
    hvmem_u64 newest = 0;
    hvmem_mfn at;
    int owes = 0;

    (void)hvmem__newest_stamp(heap, got->mfn, ask->frames, &at, &owes, &newest);
    return owes && !hvmem__clock_mature(heap, newest);
}

/* Pay what is due; on an error the frames go back. flushed: the TLB part was paid already. */
static hvmem_status settle(struct hvmem_heap *heap, const struct ask *ask, const struct got *got,
                           int flushed)
{
    hvmem_u32 due = due_now(ask, got->owed);
    hvmem_status status = HVMEM_OK;
    hvmem_mfn at;

    if (due & HVMEM__OWES_FLUSH && ask->noflush && would_flush(heap, ask, got))
        status = HVMEM_E_WOULD_FLUSH;
    /* One flush that does for what ages in this CPU's cache as well. */
    if (!status && due & HVMEM__OWES_FLUSH && !flushed && got->flush_for) {
        status = hvmem__flush_for(heap, got->flush_for);
        flushed = 1;
    }
    if (!status && due)
        status = HVMEM_TEST_POINT("settle")
                     ? HVMEM_E_HOST
                     : hvmem__settle_range(heap, got->mfn, ask->frames, due, flushed, &at);
    if (status)
        undo(heap, ask, got);
    return status;
}

/* Take frames, for a domain that was entered. */
static hvmem_status take_entered(struct hvmem_heap *heap, struct ask *ask, struct got *got)
{
    struct hvmem_domain *domain = ask->req->domain;
    hvmem_status status;

    got->owed = 0;
    status = take_drained(heap, ask, &got->mfn, &got->owed);
    got->flush_for = ask->flush_for;
    got->drawn = ask->want.drawn;
    got->drawn_on = ask->want.drawn_on;
    if (!status && domain && got->owed) {
        struct hvmem__tally tally = hvmem__owing(heap, got->mfn, ask->frames);

        hvmem__domain_hold(domain, got->mfn, ask->frames, &tally);
    }
    return status;
}

/*
 * Take frames and charge them. Debts of a domain's frames are counted until they are paid (domain.h).
 * On success the call stays entered (domain.h): the frames are the caller's, with what was deferred, or given back,
 * when it leaves.
 */
static hvmem_status take_charged(struct hvmem_heap *heap, struct ask *ask, struct got *got)
{
    struct hvmem_domain *domain = ask->req->domain;
    hvmem_status status = hvmem__domain_charge(domain, ask->frames);
    int building = 0;

    if (status == HVMEM_E_LIMIT && hvmem__credit_recall(heap, domain))
        status = hvmem__domain_charge(domain, ask->frames);
    if (status)
        return status;
    status = hvmem__domain_enter(domain, &building);
    if (!status) {
        status = ask->req->flags & HVMEM_REQ_DEFER_ALL && !building && !ask->holds
                     ? HVMEM_E_PHASE
                     : take_entered(heap, ask, got);
        if (status)
            hvmem__domain_leave(domain);
    }
    if (status)
        hvmem__domain_uncharge(domain, ask->frames);
    return status;
}

/* ---- public --------------------------------------------------------------------------------- */

hvmem_status hvmem__alloc(struct hvmem_heap *heap, const struct hvmem_request *request,
                          hvmem_u32 bias, struct hvmem__drawn *drawn, hvmem_mfn *mfn)
{
    hvmem_status status = drawn ? HVMEM_OK : hvmem__request_check(heap, request);
    struct got got;
    struct ask ask;

    if (status)
        return status;
    prepare(heap, request, &ask);
    ask.holds = drawn != HVMEM_NULL;
    ask.want.keep |= (hvmem__record)bias << 48;
    status = take_charged(heap, &ask, &got);
    if (!status) {
        if (got.owed)
            status = settle(heap, &ask, &got, 0);
        hvmem__domain_leave(request->domain);
    }
    if (!status)
        *mfn = got.mfn;
    if (!status && drawn)
        *drawn = got.drawn;
    hvmem__watch(heap);
    return status;
}

hvmem_status hvmem_alloc(struct hvmem_heap *heap, const struct hvmem_request *request,
                         hvmem_mfn *mfn)
{
    hvmem_status status =
        heap && mfn ? hvmem__alloc(heap, request, 0, HVMEM_NULL, mfn) : HVMEM_E_ARG;

    return status ? hvmem__refuse(heap, status, 0, request ? request->order : 0, 0) : HVMEM_OK;
}

/* A plain block of the host's, the long way. */
static HVMEM_NOINLINE hvmem_status alloc_slow(struct hvmem_heap *heap, hvmem_order order,
                                              hvmem_mfn *mfn)
{
    struct hvmem_request request;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.order = order;
    request.node = HVMEM_NODE_ANY;
    return hvmem_alloc(heap, &request, mfn);
}

/* A plain block of an order without a queue: the short ways, or the long one. */
static HVMEM_NOINLINE hvmem_status alloc_plain(struct hvmem_heap *heap, hvmem_order order,
                                               hvmem_mfn *mfn)
{
    if (hvmem__has_magazine(heap, order) && hvmem__magazine_take_middle(heap, order, mfn))
        return HVMEM_OK;
    if (hvmem__unlikely(order > heap->max_order || heap->adopting ||
                        !hvmem__plain_take(heap, order, mfn)))
        return alloc_slow(heap, order, mfn);
    hvmem__watch(heap);
    return HVMEM_OK;
}

/* The top of a magazine, if it owes nothing and lies in the bank met last. Inside the section. */
HVMEM_INLINE int pop(struct hvmem__pcpu *pc, struct hvmem__mag *mag, hvmem_mfn *mfn)
{
    hvmem_mfn taken;
    hvmem_u64 offset;

    if (hvmem__unlikely(!mag->count))
        return 0;
    taken = mag->slot[mag->count - 1];
    offset = taken - pc->fast.base;
    if (hvmem__unlikely(offset >= pc->fast.frames) ||
        hvmem__unlikely(hvmem__load(&pc->fast.record[offset]) != mag->cached))
        return 0;
    hvmem__store(&pc->fast.record[offset], mag->given);
    hvmem__store(&mag->count, mag->count - 1);
    *mfn = taken;
    return 1;
}

/* The CPU's cache has nothing to hand out at once, or caches are off. */
static HVMEM_NOINLINE hvmem_status alloc_refill(struct hvmem_heap *heap, hvmem_order order,
                                                hvmem_mfn *mfn)
{
    if (!hvmem__cacheable(heap, order))
        return alloc_plain(heap, order, mfn);
    return hvmem__magazine_take(heap, order, mfn) ? HVMEM_OK : alloc_slow(heap, order, mfn);
}

/* From this CPU's cache without a locked instruction. */
HVMEM_INLINE hvmem_status alloc_fast(struct hvmem_heap *heap, hvmem_order order, hvmem_mfn *mfn)
{
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    int done = 0;

    if (hvmem__section_begin(pc)) {
        hvmem_mfn hot = order ? HVMEM_FAST_NONE : hvmem_fast_take(&pc->fast);

        done = 1;
        if (hot != HVMEM_FAST_NONE)
            *mfn = hot;
        else
            done = pop(pc, &pc->mag[order], mfn);
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return hvmem__likely(done) ? HVMEM_OK : alloc_refill(heap, order, mfn);
}

static HVMEM_NOINLINE hvmem_status alloc_fast9(struct hvmem_heap *heap, hvmem_mfn *mfn)
{
    return alloc_fast(heap, HVMEM__MAG_ORDER1, mfn);
}

hvmem_status hvmem_alloc_order(struct hvmem_heap *heap, hvmem_order order, hvmem_mfn *mfn)
{
    if (hvmem__unlikely(!heap || !mfn))
        return alloc_slow(heap, order, mfn);
    if (hvmem__likely(order == 0))
        return alloc_fast(heap, 0, mfn);
    return order == HVMEM__MAG_ORDER1 ? alloc_fast9(heap, mfn) : alloc_plain(heap, order, mfn);
}

/* Blocks of one bulk call that share a flush; on the stack. */
#define BULK 16u

/*
 * Up to BULK blocks: take all, flush once for all, then pay the rest one by one. The first that
 * cannot be paid ends it as if it had been the last one asked for: those behind it go back unused.
 */
static hvmem_status alloc_group(struct hvmem_heap *heap, const struct hvmem_request *request,
                                hvmem_mfn *frames, hvmem_u32 n, hvmem_u32 *got)
{
    hvmem_status status = HVMEM_OK, stop = HVMEM_OK;
    hvmem_u32 due = 0, taken = 0, i;
    struct got each[BULK];
    hvmem_u64 newest = 0;
    struct ask ask;
    hvmem_mfn at;
    int owes = 0;

    while (taken < n && !status) {
        prepare(heap, request, &ask);
        status = take_charged(heap, &ask, &each[taken]);
        if (!status)
            due |= due_now(&ask, each[taken++].owed);
    }
    if (due & HVMEM__OWES_FLUSH && !(request->flags & HVMEM_REQ_NOFLUSH)) {
        for (i = 0; i < taken && !stop; i++) {
            stop = hvmem__newest_stamp(heap, each[i].mfn, ask.frames, &at, &owes, &newest);
            newest = each[i].flush_for > newest ? each[i].flush_for : newest;
        }
        if (!stop && owes)
            stop = hvmem__flush_for(heap, newest);
    }
    for (i = 0, *got = 0; i < taken; i++) {
        if (stop)
            undo(heap, &ask, &each[i]);
        else if (each[i].owed)
            stop = settle(heap, &ask, &each[i], 1);
        hvmem__domain_leave(request->domain);
        if (!stop)
            frames[(*got)++] = each[i].mfn;
    }
    return stop ? stop : status;
}

hvmem_status hvmem_alloc_bulk(struct hvmem_heap *heap, const struct hvmem_request *request,
                              hvmem_mfn *frames, hvmem_u32 n, hvmem_u32 *got)
{
    hvmem_status status =
        heap && got && (frames || !n) ? hvmem__request_check(heap, request) : HVMEM_E_ARG;

    if (got)
        *got = 0;
    while (!status && *got < n) {
        hvmem_u32 left = n - *got, more = 0;

        status = alloc_group(heap, request, frames + *got, left < BULK ? left : BULK, &more);
        *got += more;
    }
    if (heap)
        hvmem__watch(heap);
    return status ? hvmem__refuse(heap, status, 0, request ? request->order : HVMEM_ORDER_ANY, n)
                  : HVMEM_OK;
}
