/* SPDX-License-Identifier: BSD-2-Clause */
/* cache.c: cache maintenance and zeroing in stretches, by frame and by the dirt of a block. */
#include "cache.h"

#include "arena.h"
#include "backendcall.h"
#include "dirt.h"
#include "testpoint.h"

/* Frames mapped at a time: 2 MiB of 4 KiB frames. */
#define MAP_ORDER 9u
/* Bytes a stretch is counted in where the machine has no data-cache lines to maintain. */
#define PLAIN_LINE 64u

#define CURSOR_CACHE 0x6863616376680001ull

/* The smallest line of the machine, so that a stretch is never more than that many of any kind. */
static hvmem_u64 line_bytes(const struct hvmem_heap *heap)
{
    hvmem_u32 line = heap->backend ? heap->backend->caps.dline : 0;
    hvmem_u32 iline = heap->backend ? heap->backend->caps.iline : 0;

    if (iline && (!line || iline < line))
        line = iline;
    return line ? line : PLAIN_LINE;
}

struct hvmem__budget hvmem__budget_frames(const struct hvmem_heap *heap, hvmem_u64 frames)
{
    struct hvmem__budget budget = {~(hvmem_u64)0, 0, 0};

    if (frames && frames < ~(hvmem_u64)0 >> heap->page_shift)
        budget.left = frames << heap->page_shift;
    return budget;
}

struct hvmem__budget hvmem__budget_lines(const struct hvmem_heap *heap, hvmem_u64 lines)
{
    struct hvmem__budget budget = {~(hvmem_u64)0, 0, 0};

    if (lines && lines < ~(hvmem_u64)0 / line_bytes(heap))
        budget.left = lines * line_bytes(heap);
    return budget;
}

hvmem_u64 hvmem__stretch(const struct hvmem_heap *heap, hvmem_u32 what)
{
    hvmem_u32 shift = 0;

    for (what &= what - 1; what; what &= what - 1)
        shift++;
    return (HVMEM_CACHE_STRETCH >> shift) * line_bytes(heap);
}

/* One stretch, mapped. dc: the operation on the data caches, with HVMEM_DC_MORE if it may stay open. */
static hvmem_status stretch(struct hvmem_heap *heap, hvmem_uptr addr, hvmem_size bytes,
                            hvmem_u32 what, hvmem_u32 dc)
{
    hvmem_status status = HVMEM_OK;

    if (what & HVMEM__WORK_ZERO)
        status = hvmem__backend_zero(heap->backend, addr, bytes);
    if (!status && what & HVMEM__WORK_DCACHE)
        status = hvmem__backend_dcache(heap->backend, dc, addr, bytes);
    if (!status && what & HVMEM__WORK_ICACHE)
        status = hvmem__backend_icache(heap->backend, addr, bytes);
    return status ? HVMEM_E_HOST : HVMEM_OK;
}

/* HVMEM_DC_MORE, if stretches may be left open. Fetches are told of what is complete. */
static hvmem_u32 may_stay_open(const struct hvmem_heap *heap, const struct hvmem__work *work)
{
    if (!(work->what & HVMEM__WORK_DCACHE) || work->what & HVMEM__WORK_ICACHE)
        return 0;
    return hvmem__backend_has_more(heap->backend) ? HVMEM_DC_MORE : 0;
}

/* Wait for the stretches that are open, if some are. */
static hvmem_status complete(struct hvmem_heap *heap, const struct hvmem__work *work,
                             hvmem_u32 *open)
{
    if (*open && hvmem__backend_dcache_done(heap->backend, work->dc))
        return HVMEM_E_HOST;
    *open = 0;
    return HVMEM_OK;
}

/* Behind a stretch. HVMEM_AGAIN: stop. Nothing is open while the host runs others. */
static hvmem_status look(struct hvmem_heap *heap, const struct hvmem__work *work,
                         struct hvmem__budget *budget, hvmem_u32 *open)
{
    if (budget->whole != HVMEM__WHOLE_CALL)
        return hvmem__budget_stop(heap, budget) ? HVMEM_AGAIN : HVMEM_OK;
    if (!hvmem__yield_wanted(&heap->host))
        return HVMEM_OK;
    if (complete(heap, work, open))
        return HVMEM_E_HOST;
    hvmem__relax(&heap->host);
    return HVMEM_OK;
}

/*
 * One mapping: bytes [*done, end) of it, stretch by stretch. Each stretch but the last is left open to the
 * next: waiting for it would cost as much as a hundred lines. On every way out all are complete, or *done
 * does not say that they are.
 */
static hvmem_status mapped(struct hvmem_heap *heap, hvmem_uptr map, hvmem_u64 *done, hvmem_u64 end,
                           const struct hvmem__work *work, struct hvmem__budget *budget)
{
    hvmem_u64 most = hvmem__stretch(heap, work->what), start = *done;
    hvmem_u32 may = may_stay_open(heap, work), open = 0, more;
    hvmem_status status = HVMEM_OK;

    while (*done < end && !status) {
        hvmem_u64 bytes = end - *done < most ? end - *done : most;

        more = *done + bytes < end ? may : 0;
        status =
            stretch(heap, map + (hvmem_uptr)*done, (hvmem_size)bytes, work->what, work->dc | more);
        if (status)
            break;
        open = more;
        if (HVMEM_TEST_POINT("contents")) {
            status = HVMEM_E_HOST;
            break;
        }
        *done += bytes;
        hvmem__budget_use(budget, bytes);
        status = look(heap, work, budget, &open);
    }
    if (complete(heap, work, &open)) {
        *done = start;
        return HVMEM_E_HOST;
    }
    return status;
}

hvmem_status hvmem__contents(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                             const struct hvmem__work *work, hvmem_u64 *done,
                             struct hvmem__budget *budget)
{
    hvmem_u64 bytes = frames << heap->page_shift;
    hvmem_status status = HVMEM_OK;

    if (!heap->backend || !heap->host.ops.frame_map)
        return HVMEM_E_UNSUPPORTED;
    while (*done < bytes && !status) {
        /* The largest aligned block, up to the limit, that holds this frame and lies inside. */
        hvmem_mfn at = mfn + (*done >> heap->page_shift), first;
        hvmem_u32 order = MAP_ORDER;
        hvmem_u64 inside, end;
        void *map;

        for (first = at >> order << order;
             first < mfn || first + ((hvmem_u64)1 << order) > mfn + frames; order--)
            first = at >> (order - 1) << (order - 1);
        map = heap->host.ops.frame_map(heap->host.ctx, first, order);
        if (!map)
            return HVMEM_E_HOST;
        inside = *done - ((first - mfn) << heap->page_shift);
        end = (hvmem_u64)1 << (order + heap->page_shift);
        status = mapped(heap, (hvmem_uptr)map, &inside, end, work, budget);
        *done = inside + ((first - mfn) << heap->page_shift);
        if (heap->host.ops.frame_unmap)
            heap->host.ops.frame_unmap(heap->host.ctx, map, order);
    }
    return status == HVMEM_AGAIN && *done == bytes ? HVMEM_OK : status;
}

/* ---- by the dirt of a block ------------------------------------------------------------------- */

hvmem__record hvmem__dirt_part(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *mfn,
                               hvmem__record record, hvmem_mfn at)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    hvmem__record mark = hvmem__mark_of(hvmem__rec_dirt(record)), left, right;
    hvmem_u64 half = ((hvmem_u64)1 << hvmem__rec_order(record)) >> 1;

    if (mark != HVMEM__MARK_MIXED)
        return record;
    /* (A table that was adopted may say it of a single frame: then that is dirty.) */
    for (; mark == HVMEM__MARK_MIXED && half; half >>= 1, record--) {
        hvmem_mfn middle = *mfn + half;

        b = hvmem__arena_bank(heap, arena, b, middle); /* from the one before */
        hvmem__split_marks(mark, hvmem__record_at(b, middle), &left, &right);
        mark = at < middle ? left : right;
        *mfn = at < middle ? *mfn : middle;
    }
    return hvmem__rec_with_dirt(record, hvmem__mark_dirt(mark));
}

hvmem_status hvmem__pay_contents(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                                 hvmem__record record, hvmem_u32 owed, hvmem_u64 *done,
                                 struct hvmem__budget *budget)
{
    hvmem_u64 bytes = (hvmem_u64)1 << (hvmem__rec_order(record) + heap->page_shift);
    hvmem_status status = HVMEM_OK;

    if (!(owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE)))
        *done = bytes;
    while (*done < bytes && !status) {
        struct hvmem__work work = {0, HVMEM_DC_CLEAN_INVALIDATE};
        hvmem_mfn part = mfn;
        hvmem__record r =
            hvmem__dirt_part(heap, b, &part, record, mfn + (*done >> heap->page_shift));
        hvmem_u64 start = (part - mfn) << heap->page_shift, inside = *done - start;
        hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(r);

        if (owed & HVMEM_OWES_SCRUB && hvmem__rec_dirt(r) != HVMEM__DIRT_CLEAN)
            work.what |= HVMEM__WORK_ZERO;
        if (owed & HVMEM_OWES_DCACHE)
            work.what |= HVMEM__WORK_DCACHE;
        if (work.what)
            status = hvmem__contents(heap, part, frames, &work, &inside, budget);
        else
            inside = frames << heap->page_shift;
        *done = start + inside;
        if (!status && *done < bytes && budget->stop)
            status = HVMEM_AGAIN;
    }
    return status;
}

/* ---- public ----------------------------------------------------------------------------------- */

static int is_dcache(hvmem_u32 op)
{
    return (op & ~HVMEM_CACHE_MAY_WHOLE) <= HVMEM_DC_CLEAN_POU;
}

static hvmem_status check_range(const struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                                hvmem_u32 op)
{
    hvmem_u64 all = (hvmem_u64)1 << (HVMEM_MADDR_BITS - heap->page_shift);

    if (op != HVMEM_CACHE_ICACHE && !is_dcache(op))
        return HVMEM_E_ARG;
    if (op & HVMEM_CACHE_MAY_WHOLE && (op & ~HVMEM_CACHE_MAY_WHOLE) > HVMEM_DC_CLEAN_INVALIDATE)
        return HVMEM_E_ARG;
    if (!frames || mfn >= all || frames > all - mfn)
        return HVMEM_E_RANGE;
    return heap->backend ? HVMEM_OK : HVMEM_E_UNSUPPORTED;
}

/* Whether the machine needs nothing for it. */
static int is_void(const struct hvmem_backend_caps *caps, hvmem_u32 op)
{
    if (op == HVMEM_CACHE_ICACHE)
        return caps->features & HVMEM_CAP_ICOHERENT ||
               (caps->features & HVMEM_CAP_DIC && caps->features & HVMEM_CAP_IDC);
    return !caps->dline ||
           (op == HVMEM_DC_CLEAN_POU && caps->features & (HVMEM_CAP_IDC | HVMEM_CAP_ICOHERENT));
}

/* The whole cache at once, if that was asked for, exists, is less work, and no other CPU's cache counts. */
static int by_whole(struct hvmem_heap *heap, hvmem_u64 frames, hvmem_u32 op)
{
    const struct hvmem_backend_caps *caps = &heap->backend->caps;

    return op & HVMEM_CACHE_MAY_WHOLE && heap->max_cpus == 1 &&
           caps->features & HVMEM_CAP_WHOLE_CACHE && caps->cache_bytes &&
           frames > caps->cache_bytes >> heap->page_shift;
}

/* What the operation is made of; an aliasing I-cache is cleaned first and invalidated whole at the end. */
static struct hvmem__work work_of(const struct hvmem_heap *heap, hvmem_u32 op)
{
    struct hvmem__work work = {HVMEM__WORK_DCACHE, op & ~HVMEM_CACHE_MAY_WHOLE};

    if (op == HVMEM_CACHE_ICACHE) {
        work.what = heap->backend->caps.quirks & HVMEM_QUIRK_VIPT_ICACHE ? HVMEM__WORK_DCACHE
                                                                         : HVMEM__WORK_ICACHE;
        work.dc = HVMEM_DC_CLEAN_POU;
    }
    return work;
}

static hvmem_status run(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames, hvmem_u32 op,
                        hvmem_u64 lines, hvmem_u64 *done)
{
    struct hvmem__work work = work_of(heap, op);
    struct hvmem__budget budget = hvmem__budget_lines(heap, lines);
    hvmem_status status;

    if (by_whole(heap, frames, op)) {
        status = HVMEM__BACKEND_HAS(heap->backend, dcache_all)
                     ? heap->backend->ops->dcache_all(heap->backend, work.dc)
                     : HVMEM_E_UNSUPPORTED;
        return status && status != HVMEM_E_UNSUPPORTED ? HVMEM_E_HOST : status;
    }
    status = hvmem__contents(heap, mfn, frames, &work, done, &budget);
    if (!status && op == HVMEM_CACHE_ICACHE && work.what == HVMEM__WORK_DCACHE &&
        hvmem__backend_icache_all(heap->backend, HVMEM_SCOPE_INNER))
        status = HVMEM_E_HOST;
    return status;
}

hvmem_status hvmem_cache_range(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                               hvmem_u32 op, hvmem_u64 budget_lines, struct hvmem_cursor *cursor)
{
    hvmem_u64 what[3] = {mfn, frames, op};
    struct hvmem__passage passage;
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    status = cursor ? check_range(heap, mfn, frames, op) : HVMEM_E_ARG;
    if (!status)
        status = hvmem__passage_enter(heap, &heap->cleans, CURSOR_CACHE, what, cursor, &passage);
    if (status)
        return hvmem__refuse(heap, status, mfn, HVMEM_ORDER_ANY, frames);
    if (!is_void(&heap->backend->caps, op))
        status = run(heap, mfn, frames, op, budget_lines, &passage.inside);
    status = hvmem__passage_leave(heap, &heap->cleans, CURSOR_CACHE, &passage, status, cursor);
    return status < 0 ? hvmem__refuse(heap, status, mfn, HVMEM_ORDER_ANY, frames) : status;
}
