/* SPDX-License-Identifier: BSD-2-Clause */
/* settle.c: paying debts through the back-end and the host. */
#include "settle.h"

#include "backendcall.h"
#include "cache.h"
#include "clock.h"
#include "domain.h"
#include "flush.h"
#include "free.h"
#include "pcpu.h"
#include "testpoint.h"
#include "touched.h"

#define OWES_HOST (HVMEM_OWES_HOST0 | HVMEM_OWES_HOST1 | HVMEM_OWES_HOST2)

static hvmem_u64 features(const struct hvmem_heap *heap)
{
    return heap->backend ? heap->backend->caps.features : 0;
}

hvmem_u32 hvmem__void_debts(const struct hvmem_heap *heap)
{
    hvmem_u32 none = 0;

    /* Where fetches do not see the data caches, zeroes that stay there leave old code to be fetched. */
    if (features(heap) & HVMEM_CAP_FWB && features(heap) & (HVMEM_CAP_IDC | HVMEM_CAP_ICOHERENT))
        none |= HVMEM_OWES_DCACHE;
    if (features(heap) & HVMEM_CAP_ICOHERENT ||
        (features(heap) & HVMEM_CAP_DIC && features(heap) & HVMEM_CAP_IDC))
        none |= HVMEM_OWES_ICACHE;
    return none;
}

hvmem_u32 hvmem__owed_by_unknown(const struct hvmem_heap *heap)
{
    return hvmem__with_clean(heap, HVMEM_OWES_SCRUB) |
           (heap->owed_on_free & HVMEM_OWES_ICACHE & ~hvmem__void_debts(heap));
}

int hvmem__can_pay(const struct hvmem_heap *heap, hvmem_u32 owed)
{
    hvmem_u64 caps = features(heap);

    owed &= ~hvmem__void_debts(heap);
    if (owed && !heap->backend)
        return 0;
    if ((owed & HVMEM__OWES_FLUSH) && heap->max_cpus > 1 && !(caps & HVMEM_CAP_BROADCAST) &&
        !heap->host.ops.call_cpus)
        return 0;
    if ((owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE)) && !heap->host.ops.frame_map)
        return 0;
    return !(owed & OWES_HOST) || heap->host.ops.settle;
}

hvmem_u32 hvmem__owed_by_table(const struct hvmem_heap *heap)
{
    hvmem_u32 owed = heap->owed_on_free & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);

    /* Where it cannot be paid there are no domains (hvmem_domain_create()). */
    return hvmem__can_pay(heap, owed) ? owed : 0;
}

hvmem_status hvmem__pay_block(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                              hvmem__record record, hvmem_u32 due, hvmem_u64 *inside,
                              struct hvmem__budget *budget)
{
    hvmem_status status;

    due &= ~hvmem__void_debts(heap);
    if (!hvmem__can_pay(heap, due))
        return HVMEM_E_UNSUPPORTED;
    if (!*inside && due & OWES_HOST &&
        heap->host.ops.settle(heap->host.ctx, mfn, hvmem__rec_order(record), due & OWES_HOST))
        return HVMEM_E_HOST;
    status = hvmem__pay_contents(heap, b, mfn, record, due, inside, budget);
    return status < 0 ? HVMEM_E_HOST : status;
}

hvmem_status hvmem__pay_icache(struct hvmem_heap *heap)
{
    if (hvmem__void_debts(heap) & HVMEM_OWES_ICACHE)
        return HVMEM_OK;
    if (!heap->backend)
        return HVMEM_E_UNSUPPORTED;
    return hvmem__backend_icache_all(heap->backend, HVMEM_SCOPE_INNER) ? HVMEM_E_HOST : HVMEM_OK;
}

/*
 * SCRUB and DCACHE among `due` for frames, held, of one block. untouched: only for parts that wait for their
 * first touch, which all owe SCRUB. *worked: there was something to pay for.
 */
static hvmem_status pay_held(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 due, int untouched, int *worked)
{
    hvmem_status status = HVMEM_OK;

    while (frames && !status) {
        struct hvmem__work work = {0, HVMEM_DC_CLEAN_INVALIDATE};
        hvmem_u64 part = frames, done = 0;
        hvmem_u32 owed = hvmem__touch_debts(heap, mfn, &part) & due;

        if (untouched && !(owed & HVMEM_OWES_SCRUB))
            owed = 0;
        if (owed & HVMEM_OWES_SCRUB)
            work.what |= HVMEM__WORK_ZERO;
        if (owed & HVMEM_OWES_DCACHE)
            work.what |= HVMEM__WORK_DCACHE;
        if (work.what) {
            /* What is one frame may be more than a stretch. */
            struct hvmem__budget budget = hvmem__budget_whole(
                untouched && part << heap->page_shift <= hvmem__stretch(heap, work.what)
                    ? HVMEM__WHOLE_PIECE
                    : HVMEM__WHOLE_CALL);

            *worked = 1;
            if (hvmem__contents(heap, mfn, part, &work, &done, &budget))
                return HVMEM_E_HOST;
            status = hvmem__touch_paid(heap, mfn, part, due);
        }
        mfn += part;
        frames -= part;
    }
    return status;
}

/* Wait for frames that another CPU holds. HVMEM_AGAIN: the host wants the CPU back. */
static hvmem_status hold(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames, int may_stop)
{
    hvmem_u32 turns;

    for (turns = 0; turns < HVMEM__HOLD_WAITS; turns++) {
        if (hvmem__touch_hold(heap, mfn, frames))
            return HVMEM_OK;
        if (may_stop && hvmem__yield_wanted(&heap->host))
            return HVMEM_AGAIN;
        hvmem__relax(&heap->host);
    }
    return HVMEM_E_BUSY;
}

hvmem_status hvmem__pay_mapped(struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end, hvmem_u32 due,
                               int untouched)
{
    hvmem_u64 piece = ~(hvmem_u64)0, frames;
    hvmem_status status = HVMEM_OK;
    int worked;

    due &= ~hvmem__void_debts(heap);
    /* A stretch between two questions whether to stop, or one frame that is more than that. */
    if (untouched) {
        piece = hvmem__stretch(heap, HVMEM__WORK_ZERO | HVMEM__WORK_DCACHE) >> heap->page_shift;
        piece = piece ? piece : 1;
    }
    for (; at < end && due && !status; at += frames) {
        frames = end - at < piece ? end - at : piece;
        status = hold(heap, at, &frames, untouched);
        if (status)
            return status;
        worked = 0;
        status = pay_held(heap, at, frames, due, untouched, &worked);
        hvmem__touch_release(heap, at, frames);
        /* What was paid for is in the record: the next call passes over it. */
        if (!status && untouched && worked && at + frames < end && hvmem__yield_wanted(&heap->host))
            status = HVMEM_AGAIN;
    }
    return status;
}

/* All of it for a block whose flush was paid, which a guest may touch meanwhile. */
static hvmem_status pay(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                        hvmem__record record, hvmem_u32 due)
{
    const hvmem_u32 contents = HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE;
    struct hvmem__budget budget = hvmem__budget_whole(HVMEM__WHOLE_CALL);
    hvmem_u64 inside = 0;
    hvmem_status status = HVMEM_E_UNSUPPORTED;

    if (hvmem__can_pay(heap, due))
        status = hvmem__pay_block(heap, b, mfn, record, due & ~contents, &inside, &budget);
    if (!status)
        status = hvmem__pay_mapped(heap, mfn, mfn + ((hvmem_mfn)1 << hvmem__rec_order(record)),
                                   due & contents, 0);
    if (!status && due & HVMEM_OWES_ICACHE)
        status = hvmem__pay_icache(heap);
    return status;
}

/* The i-th kind of debt in the order of payment. */
#define KINDS 5u
static hvmem_u32 kind(hvmem_u32 i)
{
    switch (i) {
    case 0:
        return HVMEM__OWES_FLUSH;
    case 1:
        return OWES_HOST;
    case 2:
        return HVMEM_OWES_SCRUB;
    case 3:
        return HVMEM_OWES_DCACHE;
    default:
        return HVMEM_OWES_ICACHE;
    }
}

hvmem_u32 hvmem__with_earlier(hvmem_u32 asked)
{
    hvmem_u32 i, earlier = 0, all = 0;

    for (i = 0; i < KINDS; i++) {
        earlier |= kind(i);
        if (asked & kind(i))
            all = earlier;
    }
    return all;
}

hvmem_u32 hvmem__payable(hvmem_u32 owed, hvmem_u32 deferred)
{
    hvmem_u32 i, due = 0;

    for (i = 0; i < KINDS && !(owed & deferred & kind(i)); i++)
        due |= owed & kind(i);
    return due;
}

hvmem_u32 hvmem__deferred_by(hvmem_u32 flags)
{
    hvmem_u32 owed = 0;

    if (flags & HVMEM_REQ_DEFER_TLB)
        owed |= HVMEM__OWES_FLUSH;
    if (flags & HVMEM_REQ_DEFER_ICACHE)
        owed |= HVMEM_OWES_ICACHE;
    if (flags & HVMEM_REQ_DEFER_DCACHE)
        owed |= HVMEM_OWES_DCACHE;
    if (flags & HVMEM_REQ_DEFER_SCRUB)
        owed |= HVMEM_OWES_SCRUB;
    if (flags & HVMEM_REQ_DEFER_HOST)
        owed |= OWES_HOST;
    return owed;
}

/* ---- public --------------------------------------------------------------------------------- */

/*
 * Whether a block is still the one that was seen: in the same hands, and as large. While it is in use a frame of
 * it may be asked to go offline, or not to any more; that is nothing to who pays for it.
 */
static int is_same_block(hvmem__record now, hvmem__record seen)
{
    hvmem_u32 state = hvmem__rec_state(now), then = hvmem__rec_state(seen);

    return hvmem__rec_order(now) == hvmem__rec_order(seen) &&
           hvmem__rec_owner(now) == hvmem__rec_owner(seen) &&
           (state == then || (!hvmem__state_error(state) && !hvmem__state_error(then)));
}

hvmem_status hvmem__paid(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                         hvmem__record seen, hvmem_u32 due)
{
    struct hvmem__seen now;
    hvmem_u32 tries;

    now.bank = b;
    now.record = seen;
    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        hvmem__record r = now.record, to;

        if (!is_same_block(r, seen))
            return HVMEM_E_FREE;
        /* A clean is void once a first touch has scrubbed: it leaves with the dirt. */
        if (hvmem__unlikely(hvmem__rec_untouched(r)))
            due &= ~(HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
        to = hvmem__rec_with_owed(r, hvmem__rec_owed(r) & ~due);
        if (due & HVMEM_OWES_SCRUB)
            to = hvmem__rec_with_dirt(to, HVMEM__DIRT_CLEAN);
        switch (hvmem__seize(heap, now.bank, mfn, r, to)) {
        case HVMEM_OK:
            hvmem__domain_changed(hvmem__domain_of(heap, hvmem__rec_owner(r)), r, to);
            return HVMEM_OK;
        case HVMEM_E_FREE: /* changed meanwhile: look again */
            if (hvmem__see_block(heap, mfn, &now) || now.block.mfn != mfn)
                return HVMEM_E_FREE;
            continue;
        default:
            return HVMEM_E_HOST;
        }
    }
    return HVMEM_E_BUSY;
}

/* Pay `owed` for the block at mfn and take the debts off its record. */
static hvmem_status settle_block(struct hvmem_heap *heap, const struct hvmem__seen *seen,
                                 hvmem_u32 owed)
{
    hvmem_mfn mfn = seen->block.mfn;
    hvmem__record r = seen->record;
    hvmem_u32 due = (hvmem__rec_debts(r) | hvmem__owed_as_whole(heap, r)) & owed;
    hvmem_status status = due ? pay(heap, seen->bank, mfn, r, due) : HVMEM_OK;

    if (due && !status)
        status = hvmem__paid(heap, seen->bank, mfn, r, due);
    return status;
}

/* The allocated block at mfn, whole inside [mfn, end). */
static hvmem_status block_to_settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn end,
                                    struct hvmem__seen *seen)
{
    const struct hvmem_block *block = &seen->block;
    hvmem_status status = hvmem__see_block(heap, mfn, seen);

    if (!status)
        status = hvmem__state_error(block->state);
    if (status == HVMEM_E_RESERVED)
        status = HVMEM_OK;
    if (!status && (block->mfn != mfn || ((hvmem_u64)1 << block->order) > end - mfn))
        status = HVMEM_E_INTERIOR;
    return status;
}

static hvmem_mfn behind(const struct hvmem__seen *seen)
{
    return seen->block.mfn + ((hvmem_u64)1 << seen->block.order);
}

hvmem_status hvmem__newest_stamp(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_mfn *at, int *due, hvmem_u64 *newest)
{
    hvmem_mfn end = mfn + count;
    struct hvmem__seen seen;
    hvmem_status status;
    hvmem_u64 stamp;

    for (*at = mfn; *at < end; *at = behind(&seen)) {
        status = block_to_settle(heap, *at, end, &seen);
        if (status)
            return status;
        if (!(seen.block.owed & HVMEM__OWES_FLUSH))
            continue;
        stamp = hvmem__stamp_time(heap, seen.record);
        *newest = stamp > *newest ? stamp : *newest;
        *due = 1;
    }
    return HVMEM_OK;
}

hvmem_status hvmem__settle_range(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_u32 owed, int flushed, hvmem_mfn *at)
{
    hvmem_mfn end = mfn + count;
    struct hvmem__seen seen;
    hvmem_status status;
    hvmem_u64 newest = 0;
    int due = 0;

    owed = hvmem__with_earlier(owed);
    status = hvmem__newest_stamp(heap, mfn, count, at, &due, &newest);
    if (status)
        return status;
    if (due && (owed & HVMEM__OWES_FLUSH) && !flushed)
        status = hvmem__flush_for(heap, newest);
    for (*at = mfn; *at < end && !status; *at = behind(&seen)) {
        status = block_to_settle(heap, *at, end, &seen);
        if (!status)
            status = settle_block(heap, &seen, owed);
        if (status)
            break;
    }
    return status;
}

struct hvmem__tally hvmem__owing(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    struct hvmem__tally tally = {0, 0, 0};
    hvmem_mfn end = mfn + count;
    struct hvmem__seen seen;

    for (; mfn < end && !hvmem__see_block(heap, mfn, &seen); mfn = behind(&seen))
        if (seen.block.owed)
            hvmem__tally_add(heap, &tally, seen.record);
    return tally;
}

/* Where the blocks from `at` on, whose owner is this one, end: `at` itself if it is another's, or nobody's. */
static hvmem_mfn end_of_owner(struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end, hvmem_u32 owner)
{
    struct hvmem__seen seen;

    while (at < end && !block_to_settle(heap, at, end, &seen) &&
           hvmem__rec_owner(seen.record) == owner)
        at = behind(&seen);
    return at;
}

/*
 * Settle blocks of one owner from *at on. Its domain is entered: no teardown frees them meanwhile, so that what
 * is scrubbed is not another's by then. *at moves behind them. No lock held.
 */
static hvmem_status settle_owner(struct hvmem_heap *heap, hvmem_mfn *at, hvmem_mfn end,
                                 hvmem_u32 owed)
{
    struct hvmem_domain *domain;
    struct hvmem__seen seen;
    hvmem_u32 owner;
    hvmem_mfn stop;
    hvmem_status status = block_to_settle(heap, *at, end, &seen);

    if (status)
        return status;
    owner = hvmem__rec_owner(seen.record);
    (void)HVMEM_TEST_POINT("settle_enter");
    status = hvmem__domain_enter_id(heap, owner, &domain);
    if (status)
        return status;
    stop = end_of_owner(heap, *at, end, owner);
    status = stop > *at ? hvmem__settle_range(heap, *at, stop - *at, owed, 0, at) : HVMEM_E_BUSY;
    hvmem__domain_leave(domain);
    return status;
}

/* The caller's range. *at is the frame where it stopped. */
static hvmem_status settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn end, hvmem_u32 owed,
                           hvmem_mfn *at)
{
    hvmem_u64 newest = 0;
    int due = 0;
    /* Nothing is paid if a part cannot be. */
    hvmem_status status = hvmem__newest_stamp(heap, mfn, end - mfn, at, &due, &newest);

    if (!status)
        *at = mfn;
    while (!status && *at < end)
        status = settle_owner(heap, at, end, owed);
    return status;
}

hvmem_status hvmem_settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count, hvmem_u32 owed)
{
    hvmem_status status = HVMEM_OK;
    hvmem_mfn at = mfn;

    if (!heap)
        return HVMEM_E_ARG;
    if (owed & ~HVMEM_OWES_ANY)
        status = HVMEM_E_ARG;
    else if (!count || mfn + count < mfn)
        status = HVMEM_E_RANGE;
    else if (heap->adopting)
        status = HVMEM_E_PHASE;
    else
        status = settle(heap, mfn, mfn + count, owed, &at);
    return status ? hvmem__refuse(heap, status, at, HVMEM_ORDER_ANY, count) : HVMEM_OK;
}
