/* SPDX-License-Identifier: BSD-2-Clause */
/* run.c: splitting blocks at arbitrary frames, exact ranges, and freeing any range. */
#include "run.h"

#include "claim.h"
#include "clock.h"
#include "domain.h"
#include "drain.h"
#include "free.h"
#include "hand.h"
#include "pcpu.h"
#include "sets.h"
#include "testpoint.h"

/*
 * Work of one lock section, in steps of some 30 instructions: an order in which the block of a frame is
 * looked for is one. A section does what it must, but ends before more work than that.
 */
#define STRETCH_WORK HVMEM__PER_HOLD(85u)
#define LEVEL_WORK   3u  /* a level that a block is split by */
#define PIECE_WORK   10u /* a block marked */
/* Levels that a block is split by under one lock, when a part of it is made blocks of their own. */
#define SPLIT_LEVELS HVMEM__PER_HOLD(12u)

/* ---- part of a block ------------------------------------------------------------------------ */

/* The frames [lo, hi) of a block become blocks of their own; the rest is marked with its record as well. */
struct parts {
    hvmem_mfn lo, hi;
    hvmem_u32 splits;    /* left; what is not split any more is marked whole */
    hvmem_u64 owing;     /* out: frames of marked blocks with debts */
    hvmem_u64 untouched; /* out: of marked blocks that are mapped untouched */
};

/*
 * Take a block that is in nobody's hands apart at lo and hi. Recursion depth <= max_order, about
 * 2 * max_order calls. Arena lock held.
 */
static void part(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                 hvmem_mfn mfn, hvmem__record record, struct parts *parts)
{
    hvmem_u32 order = hvmem__rec_order(record);
    hvmem_mfn end = mfn + ((hvmem_u64)1 << order);
    int inside = mfn >= parts->lo && end <= parts->hi;
    hvmem__record left, right;

    b = hvmem__arena_bank(heap, arena, b, mfn);
    if (inside || end <= parts->lo || mfn >= parts->hi || !parts->splits) {
        hvmem__arena_mark(b, mfn, record);
        if (hvmem__rec_debts(record))
            parts->owing += (hvmem_u64)1 << order;
        if (hvmem__rec_untouched(record))
            parts->untouched += (hvmem_u64)1 << order;
    } else {
        parts->splits--;
        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        part(heap, arena, b, mfn, left, parts);
        part(heap, arena, b, mfn + ((hvmem_u64)1 << (order - 1)), right, parts);
    }
}

/* ---- exact ranges --------------------------------------------------------------------------- */

/* Order of the first block that [lo, hi) is taken as, out of one of order `most`. */
static hvmem_u32 size_at(const struct hvmem_heap *heap, hvmem_mfn lo, hvmem_mfn hi, hvmem_u32 most)
{
    hvmem_u32 size = hvmem__fit(heap, lo, hi - lo);

    return size < most ? size : most;
}

/*
 * How far [lo, hi), all in one arena, is free, as far as one section's work goes; at least for one block, which
 * is all if its split takes several holds. *first is where that lies. NO_MFN: up to there not all is. Arena
 * lock held.
 */
static hvmem_mfn free_stretch(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn lo, hvmem_mfn hi,
                              struct hvmem__spot *first)
{
    hvmem_u32 work = 0, order;
    hvmem_mfn head, end;

    first->at = lo;
    while (lo < hi) {
        hvmem_u32 left;

        if (!hvmem__arena_find(heap, arena, b, lo, &head, &order))
            return HVMEM__NO_MFN;
        work += order + 1;
        end = head + ((hvmem_u64)1 << order);
        if (end > hi)
            end = hi;
        /* The blocks that it is taken as, each out of one of order `left`. */
        for (left = order; lo < end; left = hvmem__lowest(lo)) {
            hvmem_u32 size = size_at(heap, lo, end, left);

            work += PIECE_WORK + left + 1 + LEVEL_WORK * (left - size);
            if (lo == first->at) {
                first->bank = hvmem__arena_bank(heap, arena, b, head);
                first->head = head;
                first->order = order;
                if (hvmem__hand_stop(first, size) != size)
                    return lo + ((hvmem_u64)1 << size);
            } else if (work > STRETCH_WORK) {
                return lo;
            }
            lo += (hvmem_u64)1 << size;
        }
    }
    return hi;
}

/* Take [lo, hi), known to be free, out. Arena lock held. */
static void carve_range(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                        hvmem_mfn lo, hvmem_mfn hi)
{
    while (lo < hi) {
        hvmem_mfn head = lo;
        hvmem_u32 order = 0, size;
        hvmem__record record;
        int found = hvmem__arena_find(heap, arena, b, lo, &head, &order);

        HVMEM__ASSERT(&heap->host, found);
        size = size_at(heap, lo, hi, order);
        record = hvmem__arena_carve(heap, arena, b, head, order, lo, size);
        hvmem__arena_mark(b, lo,
                          hvmem__rec_with_state(record | HVMEM__TAKEN_OUT, HVMEM_BLOCK_RESERVED));
        b->reserved_frames += (hvmem_u64)1 << size;
        lo += (hvmem_u64)1 << size;
    }
}

/*
 * One stretch inside bank b, known to be free, its first block at *first. What is left to do of that is in
 * *hand. E_CLAIM. Arena lock held.
 */
static hvmem_status take_stretch(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, const struct hvmem__spot *first,
                                 hvmem_mfn hi, struct hvmem__hand *hand)
{
    hvmem_u32 size = size_at(heap, first->at, hi, first->order);
    struct hvmem__drawn drawn;

    hvmem__claim_take(heap, arena, HVMEM_NULL, hi - first->at, &drawn);
    if (drawn.frames != hi - first->at) {
        hvmem__claim_untake(heap, arena, &drawn, drawn.frames);
        return HVMEM_E_CLAIM;
    }
    hvmem__hand_reserve(heap, arena, hand, first, size, HVMEM__TAKEN_OUT);
    carve_range(heap, arena, b, first->at + ((hvmem_u64)1 << size), hi);
    return HVMEM_OK;
}

/* One stretch inside one bank, whose end is left in *hi. No lock held. */
static hvmem_status take_out_stretch(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn lo,
                                     hvmem_mfn *hi)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);
    hvmem_status status = HVMEM_OK;
    struct hvmem__spot first;
    struct hvmem__hand hand;

    if (!arena)
        return HVMEM_E_FOREIGN;
    if (!hvmem__bank_holds(b, lo)) {
        status = HVMEM_E_FOREIGN;
    } else {
        if (*hi > b->base + b->frames)
            *hi = b->base + b->frames;
        *hi = free_stretch(heap, arena, b, lo, *hi, &first);
        if (*hi == HVMEM__NO_MFN || HVMEM_TEST_POINT("reserve"))
            status = HVMEM_E_BUSY;
    }
    if (!status)
        status = take_stretch(heap, arena, b, &first, *hi, &hand);
    hvmem__unlock_arena(heap, arena, state);
    if (!status)
        hvmem__hand_reserve_on(heap, arena, &hand, size_at(heap, lo, *hi, first.order),
                               HVMEM__TAKEN_OUT);
    return status;
}

/* Whether banks cover [lo, end). */
static int covered(struct hvmem_heap *heap, hvmem_mfn lo, hvmem_mfn end)
{
    while (lo < end) {
        const struct hvmem__bank *b = hvmem__bank_of(heap, lo);

        if (!b)
            return 0;
        lo = b->base + b->frames;
    }
    return 1;
}

void hvmem__run_put_back(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn end = mfn + count;

    while (mfn < end) {
        struct hvmem__bank *b = hvmem__bank_of(heap, mfn); /* stays, for its frames are ours */
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 state = hvmem__lock_arena(heap, arena), frames;
        hvmem__record record = hvmem__load(hvmem__record_at(b, mfn));
        hvmem_u32 work;

        frames = (hvmem_u64)1 << hvmem__rec_order(record);
        b->reserved_frames -= frames;
        work = hvmem__return_block(heap, arena, b, mfn, record);
        hvmem__unlock_arena(heap, arena, state);
        hvmem__give_on(heap, mfn, work);
        hvmem__watch(heap);
        mfn += frames;
    }
}

hvmem_status hvmem__run_take_out(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn at = mfn, end = mfn + count;
    hvmem_status status = HVMEM_OK;

    if (!covered(heap, mfn, end))
        return HVMEM_E_FOREIGN;
    while (at < end && !status) {
        struct hvmem__bank *b = hvmem__bank_of(heap, at);
        hvmem_mfn stop = end;

        status = b ? take_out_stretch(heap, b, at, &stop) : HVMEM_E_FOREIGN;
        if (!status)
            at = stop;
    }
    if (status)
        hvmem__run_put_back(heap, mfn, at - mfn);
    return status;
}

/* All of a range that was taken out is there: it is reserved. No lock held. */
static void keep_reserved(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn end = mfn + count;

    while (mfn < end) {
        struct hvmem__bank *b = hvmem__bank_of(heap, mfn); /* stays, for its frames are ours */
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 state = hvmem__lock_arena(heap, arena); /* no mark of a quiesce comes between */
        hvmem__record *at = hvmem__record_at(b, mfn), record = hvmem__load(at);

        mfn += (hvmem_u64)1 << hvmem__rec_order(record);
        hvmem__table_changes(b->table);
        hvmem__store_release(at, hvmem__rec_unsay(record, HVMEM__BIAS_SCRUBBING));
        hvmem__unlock_arena(heap, arena, state);
    }
}

/* ---- freeing any range ---------------------------------------------------------------------- */

/*
 * Make the parts of a block blocks of their own, as far as `parts` says, under one hold of the arena's lock and
 * inside a section that may claim the block: whoever frees another part of it sees the block whole or its
 * pieces, and if this heap dies meanwhile nobody takes it for free. 0: it changed.
 */
static int split_locked(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn head,
                        hvmem__record from, struct parts *parts)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);
    hvmem__record held =
        hvmem__rec_with_link(hvmem__rec_with_state(from, HVMEM_BLOCK_GATHERED), (hvmem_u32)head);
    int done;

    if (!arena)
        return 0;
    done = hvmem__bank_holds(b, head) && hvmem__is_head(b, head) &&
           hvmem__load(hvmem__record_at(b, head)) == from;
    if (done) {
        hvmem__table_changes(b->table);
        done = hvmem__frame_claim(&heap->host, hvmem__record_at(b, head), from, held);
    }
    if (done) {
        hvmem__arena_unmark(b, head);
        part(heap, arena, b, head, hvmem__rec_with_dirt(from, hvmem__rec_dirt(from)), parts);
    }
    hvmem__unlock_arena(heap, arena, state);
    return done;
}

/*
 * Make [lo, hi), a part of the block at `head`, blocks of their own, or come nearer to that: then the block
 * of lo is a smaller one. No lock held.
 */
static hvmem_status split_off(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn head,
                              hvmem__record from, hvmem_mfn lo, hvmem_mfn hi)
{
    struct parts parts = {lo, hi, SPLIT_LEVELS, 0, 0};
    struct hvmem__section s;
    hvmem_status status = hvmem__enter_for(heap, &s, from);

    if (status)
        return status;
    if (!split_locked(heap, b, head, from, &parts))
        status = HVMEM_E_FREE;
    hvmem__section_leave(heap, &s);
    if (!status)
        hvmem__domain_split(hvmem__domain_of(heap, hvmem__rec_owner(from)), from, parts.owing,
                            parts.untouched);
    return status;
}

/* One step of a run: the block at *at, or the part of it below end. E_FREE: it changed meanwhile. */
static hvmem_status free_step(struct hvmem_heap *heap, hvmem_u32 owner, hvmem_mfn *at,
                              hvmem_mfn end, hvmem_u32 owed, const struct hvmem__seen *seen)
{
    const struct hvmem_block *block = &seen->block;
    hvmem_mfn stop = block->mfn + ((hvmem_u64)1 << block->order);
    hvmem__record r = seen->record;
    hvmem_status status;

    if (owner != HVMEM__ANY_OWNER && hvmem__rec_owner(r) != owner)
        return HVMEM_E_OWNER;
    if (hvmem__unlikely(hvmem__rec_kept(r)) && !(owed & HVMEM__UNUSED))
        return HVMEM_E_GATHERED;
    if (block->mfn != *at || stop > end)
        return split_off(heap, seen->bank, block->mfn, r, *at, stop < end ? stop : end);
    status = hvmem__free_block(heap, seen->bank, block->mfn, r, owed);
    if (!status)
        *at = stop;
    return status;
}

hvmem_status hvmem__run_free(struct hvmem_heap *heap, hvmem_u32 owner, hvmem_mfn mfn,
                             hvmem_u64 count, hvmem_u32 owed, hvmem_mfn *at)
{
    hvmem_mfn end = mfn + count;
    hvmem_status status = HVMEM_OK;
    hvmem_u32 tries = 0;

    *at = mfn;
    while (*at < end && !status) {
        struct hvmem__seen seen;

        status = hvmem__see_block(heap, *at, &seen);
        if (!status && seen.block.state != HVMEM_BLOCK_RESERVED)
            status = hvmem__state_error(seen.block.state);
        if (status)
            break;
        (void)HVMEM_TEST_POINT("free_seen");
        status = free_step(heap, owner, at, end, owed, &seen);
        /* It changed just now (a frame goes offline, a part is freed, a debt is paid): look again. */
        if (status == HVMEM_E_FREE)
            status = ++tries < HVMEM__PATIENT_TRIES ? HVMEM_OK : HVMEM_E_BUSY;
        else
            tries = 0;
    }
    hvmem__watch(heap);
    return status;
}

/* ---- public --------------------------------------------------------------------------------- */

hvmem_status hvmem_reserve(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    if (!count || mfn + count < mfn)
        return hvmem__refuse(heap, HVMEM_E_RANGE, mfn, HVMEM_ORDER_ANY, count);
    if (heap->adopting)
        return hvmem__refuse(heap, HVMEM_E_PHASE, mfn, HVMEM_ORDER_ANY, count);
    status = hvmem__run_take_out(heap, mfn, count);
    if (status == HVMEM_E_BUSY || status == HVMEM_E_CLAIM) {
        /* Frames in caches are free too. */
        hvmem__pcpu_drain_all(heap);
        status = hvmem__run_take_out(heap, mfn, count);
    }
    if (!status) {
        keep_reserved(heap, mfn, count);
        hvmem__watch(heap);
    }
    return status ? hvmem__refuse(heap, status, mfn, HVMEM_ORDER_ANY, count) : HVMEM_OK;
}

/*
 * The block may be freed as a part of a run, and no CPU frees it without being asked any more: so a CPU that
 * cannot be asked is found before anything changes. No lock and no section held.
 */
static hvmem_status check_piece(struct hvmem_heap *heap, const struct hvmem__seen *seen)
{
    hvmem_status status = HVMEM_OK;
    struct hvmem__section s;

    if (seen->block.state != HVMEM_BLOCK_RESERVED)
        status = hvmem__state_error(seen->block.state);
    if (!status && hvmem__rec_kept(seen->record))
        status = HVMEM_E_GATHERED;
    if (status || !hvmem__rec_bias(seen->record))
        return status;
    status = hvmem__enter_for(heap, &s, seen->record);
    if (!status)
        hvmem__section_leave(heap, &s);
    return status;
}

hvmem_status hvmem_free_run(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn at = mfn, end = mfn + count;
    hvmem_status status = HVMEM_OK;
    struct hvmem__seen seen;

    if (!heap)
        return HVMEM_E_ARG;
    if (!count || end < mfn)
        return hvmem__refuse(heap, HVMEM_E_RANGE, mfn, HVMEM_ORDER_ANY, count);
    if (heap->adopting)
        status = HVMEM_E_PHASE;
    while (at < end && !status) {
        status = hvmem__see_block(heap, at, &seen);
        if (!status)
            status = check_piece(heap, &seen);
        if (!status)
            at = seen.block.mfn + ((hvmem_u64)1 << seen.block.order);
    }
    if (!status)
        status = hvmem__run_free(heap, HVMEM__ANY_OWNER, mfn, count, 0, &at);
    return status ? hvmem__refuse(heap, status, at, HVMEM_ORDER_ANY, count) : HVMEM_OK;
}
