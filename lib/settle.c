/* SPDX-License-Identifier: BSD-2-Clause */
/* settle.c: paying debts through the back-end and the host. */
#include "settle.h"

#include "arena.h"
#include "backendcall.h"
#include "clock.h"
#include "domain.h"
#include "flush.h"
#include "free.h"
#include "pcpu.h"

#define OWES_HOST (HVMEM_OWES_HOST0 | HVMEM_OWES_HOST1 | HVMEM_OWES_HOST2)
/* Frames mapped at a time: 2 MiB of 4 KiB frames. */
#define MAP_ORDER 9u

static hvmem_u64 features(const struct hvmem_heap *heap)
{
    return heap->backend ? heap->backend->caps.features : 0;
}

/* D-cache work is void where stage 2 forces write-back. */
static hvmem_u32 void_debts(const struct hvmem_heap *heap)
{
    hvmem_u32 none = 0;

    if (features(heap) & HVMEM_CAP_FWB)
        none |= HVMEM_OWES_DCACHE;
    if (features(heap) & HVMEM_CAP_ICOHERENT)
        none |= HVMEM_OWES_ICACHE;
    return none;
}

int hvmem__can_pay(const struct hvmem_heap *heap, hvmem_u32 owed)
{
    hvmem_u64 caps = features(heap);

    owed &= ~void_debts(heap);
    if (owed && !heap->backend)
        return 0;
    if ((owed & HVMEM__OWES_FLUSH) && heap->max_cpus > 1 && !(caps & HVMEM_CAP_BROADCAST) &&
        !heap->host.ops.call_cpus)
        return 0;
    if ((owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE)) && !heap->host.ops.frame_map)
        return 0;
    return !(owed & OWES_HOST) || heap->host.ops.settle;
}

/* ---- contents ------------------------------------------------------------------------------- */

/* Scrub and clean one mapped stretch. */
static hvmem_status pay_mapped(struct hvmem_heap *heap, hvmem_uptr addr, hvmem_size bytes,
                               hvmem_u32 owed)
{
    hvmem_status status = HVMEM_OK;

    if (owed & HVMEM_OWES_SCRUB)
        status = hvmem__backend_zero(heap->backend, addr, bytes);
    if (!status && (owed & HVMEM_OWES_DCACHE))
        status = hvmem__backend_dcache(heap->backend, HVMEM_DC_CLEAN_INVALIDATE, addr, bytes);
    return status;
}

static hvmem_status pay_contents(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order,
                                 hvmem_u32 owed)
{
    hvmem_u32 step = order < MAP_ORDER ? order : MAP_ORDER;
    hvmem_mfn end = mfn + ((hvmem_u64)1 << order);
    hvmem_status status = HVMEM_OK;

    if (!(owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE)))
        return HVMEM_OK;
    for (; mfn < end && !status; mfn += (hvmem_u64)1 << step) {
        void *map = heap->host.ops.frame_map(heap->host.ctx, mfn, step);

        if (!map)
            return HVMEM_E_HOST;
        status =
            pay_mapped(heap, (hvmem_uptr)map, (hvmem_size)1 << (step + heap->page_shift), owed);
        if (heap->host.ops.frame_unmap)
            heap->host.ops.frame_unmap(heap->host.ctx, map, step);
    }
    return status ? HVMEM_E_HOST : HVMEM_OK;
}

/*
 * Contents of a block whose record the caller holds: of a MIXED block only the dirty parts are
 * scrubbed. Recursion depth <= max_order.
 */
static hvmem_status pay_parts(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                              hvmem__record record, hvmem_u32 owed)
{
    hvmem_u32 dirt = hvmem__rec_dirt(record), order = hvmem__rec_order(record);
    hvmem__record left, right;
    hvmem_status status;

    if (dirt == HVMEM__DIRT_CLEAN)
        owed &= ~HVMEM_OWES_SCRUB;
    if (dirt != HVMEM__DIRT_MIXED || !(owed & HVMEM_OWES_SCRUB))
        return pay_contents(heap, mfn, order, owed);
    hvmem__split_record(heap, hvmem__arena_of(heap, b), b, mfn, record, &left, &right);
    status = pay_parts(heap, b, mfn, left, owed);
    return status ? status : pay_parts(heap, b, mfn + ((hvmem_u64)1 << (order - 1)), right, owed);
}

/*
 * Pay for a block that the caller holds, record as given, and whose flush was paid already. On an
 * error nothing may be considered paid.
 */
static hvmem_status pay(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                        hvmem__record record, hvmem_u32 owed)
{
    hvmem_status status = HVMEM_OK;

    owed &= ~void_debts(heap);
    if (!hvmem__can_pay(heap, owed))
        return HVMEM_E_UNSUPPORTED;
    if ((owed & OWES_HOST) &&
        heap->host.ops.settle(heap->host.ctx, mfn, hvmem__rec_order(record), owed & OWES_HOST))
        status = HVMEM_E_HOST;
    if (!status)
        status = pay_parts(heap, b, mfn, record, owed);
    if (!status && (owed & HVMEM_OWES_ICACHE) &&
        hvmem__backend_icache_all(heap->backend, HVMEM_SCOPE_INNER))
        status = HVMEM_E_HOST;
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

/* Pay `owed` for the block at mfn and take the debts off its record. */
static hvmem_status settle_block(struct hvmem_heap *heap, const struct hvmem_block *block,
                                 hvmem_u32 owed)
{
    hvmem_u32 due = block->owed & owed, tries;
    struct hvmem__bank *b;
    hvmem_status status;

    if (!due)
        return HVMEM_OK;
    b = hvmem__bank_of(heap, block->mfn);
    status = pay(heap, b, block->mfn, hvmem__load(hvmem__record_at(b, block->mfn)), due);
    for (tries = 0; !status && tries < HVMEM__SEIZE_TRIES; tries++) {
        hvmem__record r = hvmem__load(hvmem__record_at(b, block->mfn)), to;

        if (hvmem__rec_state(r) != block->state || hvmem__rec_order(r) != block->order)
            return HVMEM_E_FREE;
        to = hvmem__rec_with_owed(r, hvmem__rec_owed(r) & ~due);
        if (due & HVMEM_OWES_SCRUB)
            to = hvmem__rec_with_dirt(to, HVMEM__DIRT_CLEAN);
        switch (hvmem__seize(heap, b, block->mfn, r, to)) {
        case HVMEM_OK:
            break;
        case HVMEM_E_FREE: /* changed meanwhile: look again */
            continue;
        default:
            return HVMEM_E_HOST;
        }
        if (!hvmem__rec_owed(to))
            hvmem__domain_settled(hvmem__domain_of(heap, hvmem__rec_owner(r)),
                                  (hvmem_u64)1 << block->order);
        return HVMEM_OK;
    }
    return status ? status : HVMEM_E_BUSY;
}

/* The allocated block at mfn, whole inside [mfn, end). */
static hvmem_status block_to_settle(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn end,
                                    struct hvmem_block *block)
{
    hvmem_status status = hvmem__block_at(heap, mfn, block);

    if (!status)
        status = hvmem__state_error(block->state);
    if (status == HVMEM_E_RESERVED)
        status = HVMEM_OK;
    if (!status && (block->mfn != mfn || ((hvmem_u64)1 << block->order) > end - mfn))
        status = HVMEM_E_INTERIOR;
    return status;
}

hvmem_status hvmem__newest_stamp(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_mfn *at, int *due, hvmem_u64 *newest)
{
    hvmem_mfn end = mfn + count;
    struct hvmem_block block;
    hvmem_status status;
    hvmem_u64 stamp;

    for (*at = mfn; *at < end; *at = block.mfn + ((hvmem_u64)1 << block.order)) {
        status = block_to_settle(heap, *at, end, &block);
        if (status)
            return status;
        if (!(block.owed & HVMEM__OWES_FLUSH))
            continue;
        stamp = hvmem__stamp_time(
            heap, hvmem__load_acquire(hvmem__record_at(hvmem__bank_of(heap, *at), *at)));
        *newest = stamp > *newest ? stamp : *newest;
        *due = 1;
    }
    return HVMEM_OK;
}

hvmem_status hvmem__settle_range(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_u32 owed, int flushed, hvmem_mfn *at)
{
    hvmem_mfn end = mfn + count;
    struct hvmem_block block;
    hvmem_status status;
    hvmem_u64 newest = 0;
    int due = 0;

    owed = hvmem__with_earlier(owed);
    status = hvmem__newest_stamp(heap, mfn, count, at, &due, &newest);
    if (status)
        return status;
    if (due && (owed & HVMEM__OWES_FLUSH) && !flushed)
        status = hvmem__flush_for(heap, newest);
    for (*at = mfn; *at < end && !status; *at = block.mfn + ((hvmem_u64)1 << block.order)) {
        status = block_to_settle(heap, *at, end, &block);
        if (!status)
            status = settle_block(heap, &block, owed);
        if (status)
            break;
    }
    return status;
}

hvmem_u64 hvmem__owing(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn end = mfn + count;
    struct hvmem_block block;
    hvmem_u64 frames = 0;

    for (; mfn < end; mfn = block.mfn + ((hvmem_u64)1 << block.order))
        if (!hvmem__block_at(heap, mfn, &block) && block.owed)
            frames += (hvmem_u64)1 << block.order;
    return frames;
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
    else
        status = hvmem__settle_range(heap, mfn, count, owed, 0, &at);
    return status ? hvmem__refuse(heap, status, at, HVMEM_ORDER_ANY, count) : HVMEM_OK;
}
