/* SPDX-License-Identifier: BSD-2-Clause */
/* offline.c: taking bad frames out of service and back. */
#include "offline.h"

#include "arena.h"
#include "claim.h"
#include "drain.h"
#include "free.h"
#include "pcpu.h"
#include "take.h"
#include "testpoint.h"

/* Position of a frame in the list of bad frames, or bad_count. Admin lock held. */
static hvmem_u32 bad_index(const struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_u32 i = 0;

    while (i < heap->bad_count && heap->bad[i] != mfn)
        i++;
    return i;
}

/* Whether a bad frame lies in [lo, hi). Admin lock held. */
static int bad_in(const struct hvmem_heap *heap, hvmem_mfn lo, hvmem_mfn hi)
{
    hvmem_u32 i;

    for (i = 0; i < heap->bad_count; i++)
        if (heap->bad[i] >= lo && heap->bad[i] < hi)
            return 1;
    return 0;
}

/*
 * The list grows and shrinks. Admin lock held; the count is also read without it, by whoever gives a
 * gathered block back (hvmem__offline_waits()).
 */
static void note_bad(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    heap->bad[heap->bad_count] = mfn;
    hvmem__store(&heap->bad_count, heap->bad_count + 1);
}

static void drop_bad(struct hvmem_heap *heap, hvmem_u32 at)
{
    heap->bad[at] = heap->bad[heap->bad_count - 1];
    hvmem__store(&heap->bad_count, heap->bad_count - 1);
}

/* Mark one free frame, already out of the sets, OFFLINE. Arena lock held. */
static void mark_offline(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    record = hvmem__rec_with_owner(hvmem__rec_with_state(record, HVMEM_BLOCK_OFFLINE), 0);
    b->offline_frames++;
    hvmem__arena_mark(b, mfn, record);
}

/*
 * One hold for the block at mfn, which is in the caller's hands (CACHED): it is halved if there are bad frames
 * among others in it, out of service if it is one, and free otherwise. Returns where the next one begins. Admin
 * lock held.
 */
static hvmem_mfn sort_out(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn); /* stays, for its frames are ours */
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    hvmem__record record = hvmem__load(hvmem__record_at(b, mfn)), left, right;
    hvmem_mfn end = mfn + ((hvmem_u64)1 << hvmem__rec_order(record)), middle;
    int bad = bad_in(heap, mfn, end);
    hvmem_u64 state = hvmem__lock_arena(heap, arena);
    hvmem_u32 work = 0;

    if (!bad) {
        work = hvmem__return_block(heap, arena, b, mfn, record);
    } else if (end - mfn == 1) {
        mark_offline(b, mfn, record);
    } else {
        middle = mfn + (end - mfn) / 2;
        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        /* (Should the heap die between the two, half of it is in no block; never in two.) */
        hvmem__arena_mark(b, mfn, left);
        hvmem__arena_mark(hvmem__arena_bank(heap, arena, b, middle), middle, right);
        end = mfn;
    }
    hvmem__unlock_arena(heap, arena, state);
    hvmem__give_on(heap, mfn, work);
    return end;
}

void hvmem__offline_freed(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_mfn at = mfn, end = mfn + ((hvmem_u64)1 << order), gone[HVMEM__BAD_LIMIT];
    hvmem_u64 state = hvmem__lock_admin(heap);
    hvmem_u32 i, n = 0;

    while (at < end) {
        at = sort_out(heap, at);
        (void)HVMEM_TEST_POINT("offline_again");
    }
    for (i = 0; i < heap->bad_count;) {
        if (heap->bad[i] >= mfn && heap->bad[i] < end) {
            gone[n++] = heap->bad[i];
            drop_bad(heap, i);
        } else {
            i++;
        }
    }
    hvmem__unlock_admin(heap, state);
    for (i = 0; i < n; i++)
        hvmem__host_event(&heap->host, HVMEM_EVENT_OFFLINED, gone[i], 0);
}

/*
 * A free frame goes out of service at once. E_BUSY if it is not free, E_FOREIGN. Admin lock held, so that
 * its bank stays.
 */
static hvmem_status offline_free(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);
    struct hvmem__arena *arena;
    hvmem_status status = HVMEM_E_BUSY;
    hvmem_u64 state;
    hvmem_u32 order;
    hvmem_mfn head;

    if (!b)
        return HVMEM_E_FOREIGN;
    arena = hvmem__arena_of(heap, b);
    state = hvmem__lock_arena(heap, arena);
    if (hvmem__arena_find(heap, arena, b, mfn, &head, &order)) {
        hvmem__claim_force(heap, arena, 1);
        mark_offline(b, mfn, hvmem__arena_carve(heap, arena, b, head, order, mfn, 0));
        status = HVMEM_OK;
    }
    hvmem__unlock_arena(heap, arena, state);
    return status;
}

/*
 * A frame held by a gather is noted; its block keeps its state. Either the gather's end sees the note
 * (hvmem__offline_waits()), or this sees that the block is gathered no more. Admin lock held.
 */
static hvmem_status offline_gathered(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn head)
{
    hvmem__record *record = hvmem__record_at(hvmem__bank_of(heap, head), head);

    note_bad(heap, mfn);
    (void)HVMEM_TEST_POINT("offline_noted");
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (hvmem__rec_state(hvmem__load(record)) == HVMEM_BLOCK_GATHERED)
        return HVMEM_AGAIN;
    drop_bad(heap, heap->bad_count - 1);
    return HVMEM_E_BUSY;
}

void hvmem__offline_restored(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_u64 state = hvmem__lock_admin(heap);
    struct hvmem__seen seen;

    /* Its owner may have freed it meanwhile. */
    if (!hvmem__see_block(heap, mfn, &seen) && seen.block.mfn == mfn &&
        seen.block.state == HVMEM_BLOCK_ALLOCATED &&
        bad_in(heap, mfn, mfn + ((hvmem_u64)1 << seen.block.order)))
        (void)hvmem__try_seize(heap, seen.bank, mfn, seen.record,
                               hvmem__rec_with_state(seen.record, HVMEM_BLOCK_OFFLINING));
    hvmem__unlock_admin(heap, state);
}

/* The record of a block in use that is to go offline: no CPU's alone any more. */
static hvmem__record offlining(hvmem__record r)
{
    if (hvmem__rec_bias(r) < HVMEM__TOKENS)
        r = hvmem__rec_with_bias(r, 0);
    return hvmem__rec_with_state(r, HVMEM_BLOCK_OFFLINING);
}

/* A frame in use is noted, and its block marked. Admin lock held. */
static hvmem_status offline_used(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem_block block;
    hvmem_status status = hvmem__block_at(heap, mfn, &block);
    struct hvmem__bank *b;
    hvmem__record r;

    if (status)
        return status;
    if (block.state == HVMEM_BLOCK_OFFLINE || bad_index(heap, mfn) < heap->bad_count)
        return HVMEM_E_OFFLINE;
    status = hvmem__state_error(block.state);
    if (status == HVMEM_E_FREE) /* free or cached now: the caller tries again */
        return HVMEM_E_BUSY;
    if (status && status != HVMEM_E_GATHERED)
        return status;
    if (heap->bad_count == HVMEM__BAD_LIMIT)
        return HVMEM_E_COUNT;
    if (block.state == HVMEM_BLOCK_GATHERED)
        return offline_gathered(heap, mfn, block.mfn);
    b = hvmem__bank_of(heap, block.mfn);
    r = hvmem__load(hvmem__record_at(b, block.mfn));
    if (hvmem__rec_state(r) != block.state || hvmem__rec_order(r) != block.order ||
        !hvmem__try_seize(heap, b, block.mfn, r, offlining(r)))
        return HVMEM_E_BUSY;
    note_bad(heap, mfn);
    return HVMEM_AGAIN;
}

/* Make the block of a frame nobody's in particular, so that its record can be claimed. No lock. */
static hvmem_status unbias_block(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__seen seen;

    if (hvmem__see_block(heap, mfn, &seen) || seen.block.state == HVMEM_BLOCK_FREE)
        return HVMEM_OK;
    return hvmem__unbias(heap, seen.record);
}

hvmem_status hvmem_offline(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_status status = HVMEM_E_BUSY;
    hvmem_u32 tries;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->adopting)
        status = HVMEM_E_PHASE;
    else if (!hvmem__bank_of(heap, mfn))
        status = HVMEM_E_FOREIGN;
    for (tries = 0; status == HVMEM_E_BUSY && tries < HVMEM__SEIZE_TRIES; tries++) {
        hvmem_u64 state;

        if ((tries && hvmem__pcpu_drain_all(heap)) || unbias_block(heap, mfn)) {
            status = HVMEM_E_HOST;
            break;
        }
        state = hvmem__lock_admin(heap);
        status = offline_free(heap, mfn);
        if (status == HVMEM_E_BUSY)
            status = offline_used(heap, mfn);
        hvmem__unlock_admin(heap, state);
    }
    /*
     * The frame was promised: what waits in caches must stand in for it. A cache that cannot be
     * entered empties itself before it hands out another block.
     */
    if (!status && hvmem__unlikely(hvmem__claim_short(heap)) && hvmem__pcpu_shut(heap))
        hvmem__refuse(heap, HVMEM_E_HOST, mfn, 0, 0);
    if (!status)
        hvmem__watch(heap);
    return status < 0 ? hvmem__refuse(heap, status, mfn, 0, 0) : status;
}

/* An OFFLINE frame is free again. E_ARG if it is not, E_FOREIGN. Admin lock held. */
static hvmem_status online_free(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);
    hvmem_status status = HVMEM_E_ARG;
    struct hvmem__arena *arena;
    hvmem_u64 state;
    hvmem_u32 work = 0;

    if (!b)
        return HVMEM_E_FOREIGN;
    arena = hvmem__arena_of(heap, b);
    state = hvmem__lock_arena(heap, arena);
    if (hvmem__is_head(b, mfn)) {
        hvmem__record r = hvmem__load(hvmem__record_at(b, mfn));

        if (hvmem__rec_state(r) == HVMEM_BLOCK_OFFLINE) {
            b->offline_frames--;
            hvmem__arena_unmark(b, mfn);
            hvmem__claim_give(heap, arena, 1);
            work = hvmem__arena_give(heap, arena, b, mfn, r);
            status = HVMEM_OK;
        }
    }
    hvmem__unlock_arena(heap, arena, state);
    hvmem__give_on(heap, mfn, work);
    return status;
}

/* A frame that waited for its owner stays in service. Admin lock held. */
static hvmem_status online_used(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_u32 at = bad_index(heap, mfn);
    struct hvmem_block block;
    struct hvmem__bank *b;
    hvmem__record r;

    if (at == heap->bad_count)
        return HVMEM_E_ARG;
    drop_bad(heap, at);
    /* Being freed just now: whoever frees it waits for the admin lock and finds it good. */
    if (hvmem__block_at(heap, mfn, &block) || block.state != HVMEM_BLOCK_OFFLINING)
        return HVMEM_OK;
    if (bad_in(heap, block.mfn, block.mfn + ((hvmem_u64)1 << block.order)))
        return HVMEM_OK;
    b = hvmem__bank_of(heap, block.mfn);
    r = hvmem__load(hvmem__record_at(b, block.mfn));
    /* If the owner frees it at this moment that is as good: no bad frame is left in it. */
    if (hvmem__rec_state(r) == HVMEM_BLOCK_OFFLINING)
        hvmem__try_seize(heap, b, block.mfn, r, hvmem__rec_with_state(r, HVMEM_BLOCK_ALLOCATED));
    return HVMEM_OK;
}

hvmem_status hvmem_online(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_status status;
    hvmem_u64 state;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->adopting)
        return hvmem__refuse(heap, HVMEM_E_PHASE, mfn, 0, 0);
    state = hvmem__lock_admin(heap);
    status = online_free(heap, mfn);
    if (status == HVMEM_E_ARG)
        status = online_used(heap, mfn);
    hvmem__unlock_admin(heap, state);
    if (!status)
        hvmem__watch(heap);
    return status ? hvmem__refuse(heap, status, mfn, 0, 0) : HVMEM_OK;
}
