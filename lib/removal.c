/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * removal.c: removing banks. A bank goes in steps: all its frames are taken out, so that nobody gets or frees
 * one; what they owe is paid; its pieces leave arenas and directory, so that nobody finds them any more; every
 * section is waited for, in which one may have been found before. Only then its slots are free and its table
 * the host's.
 */
#include "bank.h"
#include "clock.h"
#include "drain.h"
#include "flush.h"
#include "free.h"
#include "pcpu.h"
#include "run.h"
#include "testpoint.h"

static int is_piece(const struct hvmem__bank *b, hvmem_mfn base, hvmem_u64 frames)
{
    return (b->live || b->leaving) && b->group_base == base && b->group_frames == frames;
}

/* A piece that left comes back, or is gone. Admin lock held. */
static void decide(struct hvmem_heap *heap, struct hvmem__bank *b, int stays)
{
    b->leaving = 0;
    heap->leaving--;
    if (stays)
        hvmem__bank_link(heap, b);
}

/* The same for all that left of a bank. Admin lock held. */
static void decide_all(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames, int stays)
{
    hvmem_u32 i;

    for (i = 0; i < heap->max_banks; i++)
        if (heap->bank[i].leaving && is_piece(&heap->bank[i], base, frames))
            decide(heap, &heap->bank[i], stays);
}

/*
 * Unlink every piece of a bank whose frames were all taken out for that. E_BUSY: some are not, and no piece
 * has left. No lock held.
 */
static hvmem_status leave(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;
    hvmem_u32 i;

    (void)HVMEM_TEST_POINT("bank_leaves");
    state = hvmem__lock_admin(heap);
    for (i = 0; i < heap->max_banks && !status; i++) {
        struct hvmem__bank *b = &heap->bank[i];

        if (!is_piece(b, base, frames))
            continue;
        status = hvmem__bank_unlink(heap, b);
        if (!status) {
            b->leaving = 1;
            heap->leaving++;
        }
    }
    if (status)
        decide_all(heap, base, frames, 1);
    hvmem__unlock_admin(heap, state);
    return status;
}

/* Nobody finds the bank any more: wait for those who did. E_HOST: not possible; it is back. No lock held. */
static hvmem_status wait_for_sections(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    /* Asks other CPUs for a barrier: not under the lock. */
    hvmem_status status = hvmem__pcpu_forget_banks(heap);
    hvmem_u64 state = hvmem__lock_admin(heap);

    decide_all(heap, base, frames, status != HVMEM_OK);
    hvmem__unlock_admin(heap, state);
    return status;
}

/* Forget a range that was for node look-up only. Whether there was one. */
static int remove_hotplug(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_u64 state = hvmem__lock_admin(heap);
    hvmem_u32 i;
    int found = 0;

    for (i = 0; i < heap->max_banks && !found; i++) {
        struct hvmem__bank *b = &heap->bank[i];

        found = b->hotplug && b->base == base && b->frames == frames;
        if (found) {
            hvmem__store(&b->hotplug, 0);
            heap->hotplugs--;
        }
    }
    hvmem__unlock_admin(heap, state);
    return found;
}

/* One filtered flush for all frames of a bank, which are taken out: no table says afterwards that they owe it. */
static hvmem_status flush_whole(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_mfn at = base, end = base + frames;
    hvmem_u64 newest = 0, stamp;
    int due = 0;

    while (at < end) {
        const struct hvmem__bank *b = hvmem__bank_of(heap, at); /* stays, for its frames are ours */
        hvmem__record record = hvmem__load_acquire(hvmem__record_at(b, at));

        at += (hvmem_u64)1 << hvmem__rec_order(record);
        if (!(hvmem__rec_owed(record) & HVMEM__OWES_FLUSH))
            continue;
        stamp = hvmem__stamp_time(heap, record);
        newest = stamp > newest ? stamp : newest;
        due = 1;
    }
    return due ? hvmem__flush_for(heap, newest) : HVMEM_OK;
}

hvmem_status hvmem_bank_remove(struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_status status, drained;
    struct hvmem__bank *b;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->adopting)
        return hvmem__refuse(heap, HVMEM_E_PHASE, base, HVMEM_ORDER_ANY, frames);
    /* RAM before the range for node look-up that it was added in: the caller gets its table back. */
    b = hvmem__bank_of(heap, base);
    if (!b || b->group_base != base || b->group_frames != frames)
        return remove_hotplug(heap, base, frames)
                   ? HVMEM_OK
                   : hvmem__refuse(heap, HVMEM_E_FOREIGN, base, HVMEM_ORDER_ANY, frames);
    drained = hvmem__pcpu_drain_all(heap);
    /*
     * Taking the whole bank out makes it unreachable for everyone else. Not under the lock:
     * what was taken of a bank that is in use goes back, of which the host may hear by an event.
     */
    status = hvmem__run_take_out(heap, base, frames);
    if (status)
        return hvmem__refuse(heap, drained ? drained : HVMEM_E_BUSY, base, HVMEM_ORDER_ANY, frames);
    status = flush_whole(heap, base, frames);
    if (!status)
        status = leave(heap, base, frames);
    if (!status)
        status = wait_for_sections(heap, base, frames);
    if (status)
        hvmem__run_put_back(heap, base, frames);
    hvmem__watch(heap);
    return status ? hvmem__refuse(heap, status, base, HVMEM_ORDER_ANY, frames) : HVMEM_OK;
}
