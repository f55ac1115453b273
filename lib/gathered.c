/* SPDX-License-Identifier: BSD-2-Clause */
/* gathered.c: blocks that wait for a flush, linked through their records; quarantine and release. */
#include "gathered.h"

#include "arena.h"
#include "clock.h"
#include "domain.h"
#include "free.h"
#include "offline.h"
#include "pcpu.h"
#include "take.h"

hvmem_status hvmem__gathered_take(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                  const struct hvmem__leaver *leaver, hvmem_mfn *first)
{
    hvmem_u32 tries, owed, link = (hvmem_u32)(*first == HVMEM__NO_MFN ? mfn : *first);

    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        struct hvmem__bank *b;
        hvmem__record from = 0, to;
        hvmem_status status = hvmem__may_free(
            heap, mfn, order, leaver->anybody ? HVMEM_NULL : &leaver->domain, &b, &from);

        /* A populate's own block, which ops.map cannot but withhold; a table of the stage 2 that asks. */
        if (status == HVMEM_E_GATHERED &&
            ((leaver->held && hvmem__rec_held(from)) || (leaver->table && hvmem__rec_table(from))))
            status = HVMEM_OK;
        if (status)
            return status;
        owed = hvmem__rec_owed(from) | hvmem__owed_as_whole(heap, from) | leaver->owed;
        if (owed & HVMEM_OWES_FOREIGN)
            owed |= HVMEM_OWES_TLB;
        if (hvmem__rec_owner(from))
            owed |= leaver->owed_by_owner;
        owed = hvmem__with_clean(heap, owed);
        to = hvmem__rec_make(hvmem__rec_order(from), HVMEM_BLOCK_GATHERED, hvmem__rec_owner(from));
        to = hvmem__rec_with_link(hvmem__rec_with_owed(to, owed), link);
        status = hvmem__seize(heap, b, mfn, from, to);
        if (status == HVMEM_E_FREE)
            continue; /* it changed: look again */
        if (status)
            return status;
        if (hvmem__rec_owed(from))
            hvmem__domain_changed(hvmem__domain_of(heap, hvmem__rec_owner(from)), from, 0);
        *first = mfn;
        return HVMEM_OK;
    }
    return HVMEM_E_BUSY;
}

/* The record of a block in a list, its bank, and its frames. */
static hvmem__record gathered(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem__bank **b,
                              hvmem_u64 *frames)
{
    hvmem__record r;

    *b = hvmem__bank_of(heap, mfn);
    HVMEM__ASSERT(&heap->host, *b != HVMEM_NULL);
    r = hvmem__load(hvmem__record_at(*b, mfn));
    HVMEM__ASSERT(&heap->host, hvmem__rec_state(r) == HVMEM_BLOCK_GATHERED);
    *frames = (hvmem_u64)1 << hvmem__rec_order(r);
    return r;
}

hvmem_mfn hvmem__gathered_next(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__bank *b;
    hvmem_u64 frames;
    hvmem_u32 link = hvmem__rec_link(gathered(heap, mfn, &b, &frames));

    if (link == (hvmem_u32)mfn)
        return HVMEM__NO_MFN;
    return mfn >> HVMEM__LINK_BITS << HVMEM__LINK_BITS | link;
}

/* A gathered record without its link, in another state: stamp as of now, dirt whole. */
static hvmem__record unlinked(struct hvmem_heap *heap, hvmem__record r, hvmem_u32 state)
{
    r = hvmem__rec_with_link(hvmem__rec_with_state(r, state), 0);
    if (hvmem__rec_owed(r) & HVMEM__OWES_FLUSH)
        r = hvmem__rec_with_stamp(r, hvmem__stamp_now(heap));
    return r;
}

/* Change the record of a block that is ours alone. */
static void change(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                   hvmem__record from, hvmem__record to)
{
    int done = hvmem__frame_claim(&heap->host, hvmem__record_at(b, mfn), from, to);

    HVMEM__ASSERT(&heap->host, done);
}

/* A block of nobody, its record already CACHED as `r`, to the free sets. No lock held. */
static void give_back(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                      hvmem__record r)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    struct hvmem__section s;
    hvmem_u64 state;
    hvmem_u32 work;

    (void)HVMEM_TEST_POINT("gathered_given");
    if (hvmem__unlikely(hvmem__offline_waits(heap))) {
        hvmem__offline_freed(heap, mfn, hvmem__rec_order(r));
    } else if (hvmem__cacheable(heap, hvmem__rec_order(r))) {
        hvmem__section_enter(heap, &s);
        hvmem__pcpu_put(heap, s.pc, b, mfn, r);
        hvmem__section_leave(heap, &s);
    } else {
        state = hvmem__lock_arena(heap, arena);
        work = hvmem__return_block(heap, arena, b, mfn, r);
        hvmem__unlock_arena(heap, arena, state);
        hvmem__give_on(heap, mfn, work);
    }
}

void hvmem__gathered_free(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__bank *b;
    hvmem_u64 frames;
    hvmem__record from = gathered(heap, mfn, &b, &frames), to;
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(from));

    to = hvmem__rec_with_owner(unlinked(heap, from, HVMEM_BLOCK_CACHED), 0);
    change(heap, b, mfn, from, to);
    give_back(heap, b, mfn, to);
    hvmem__domain_uncharge(domain, frames);
    hvmem__watch(heap);
}

void hvmem__gathered_restore(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 bias)
{
    struct hvmem__bank *b;
    hvmem_u64 frames;
    hvmem__record from = gathered(heap, mfn, &b, &frames);
    hvmem__record to = hvmem__rec_with_bias(unlinked(heap, from, HVMEM_BLOCK_ALLOCATED), bias);
    struct hvmem__tally tally = {0, 0, 0};

    hvmem__tally_add(heap, &tally, to);
    hvmem__domain_hold(hvmem__domain_of(heap, hvmem__rec_owner(from)), mfn, frames, &tally);
    change(heap, b, mfn, from, to);
    if (hvmem__unlikely(hvmem__offline_waits(heap)))
        hvmem__offline_restored(heap, mfn);
}

hvmem_u64 hvmem__gathered_quarantine(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 owed)
{
    struct hvmem__bank *b;
    hvmem_u64 frames, state;
    hvmem__record from = gathered(heap, mfn, &b, &frames), to;
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(from));
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);

    if (domain)
        owed |= heap->owed_on_free;
    to = hvmem__rec_with_owed(from, hvmem__rec_owed(from) | owed);
    to = hvmem__rec_with_owner(unlinked(heap, to, HVMEM_BLOCK_QUARANTINE), 0);
    state = hvmem__lock_arena(heap, arena);
    hvmem__table_changes(b->table);
    change(heap, b, mfn, from, to);
    b->quarantine_frames += frames;
    hvmem__unlock_arena(heap, arena, state);
    hvmem__domain_uncharge(domain, frames);
    hvmem__host_event(&heap->host, HVMEM_EVENT_QUARANTINED, mfn, frames);
    return frames;
}

void hvmem__gathered_withhold(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order)
{
    hvmem_mfn first = HVMEM__NO_MFN;
    struct hvmem__leaver leaver;

    memset(&leaver, 0, sizeof leaver);
    leaver.anybody = leaver.held = 1;
    hvmem__count(heap, &heap->gathers, 1);
    if (!hvmem__gathered_take(heap, mfn, order, &leaver, &first))
        (void)hvmem__gathered_quarantine(heap, mfn, HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN);
    hvmem__count(heap, &heap->gathers, (hvmem_u64)0 - 1);
}

/* ---- held for one call ------------------------------------------------------------------------ */

hvmem_status hvmem__hold(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                         hvmem__record from)
{
    hvmem__record held = hvmem__rec_with_state(from, HVMEM_BLOCK_GATHERED);
    hvmem_status status;

    hvmem__count(heap, &heap->gathers, 1);
    status = hvmem__seize(heap, b, mfn, from, hvmem__rec_with_link(held, (hvmem_u32)mfn));
    if (status)
        hvmem__count(heap, &heap->gathers, (hvmem_u64)0 - 1);
    return status;
}

void hvmem__held_back(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                      hvmem__record to)
{
    hvmem_u64 frames;

    change(heap, b, mfn, gathered(heap, mfn, &b, &frames), to);
    if (hvmem__unlikely(hvmem__offline_waits(heap)))
        hvmem__offline_restored(heap, mfn);
    hvmem__count(heap, &heap->gathers, (hvmem_u64)0 - 1);
}

void hvmem__held_free(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                      hvmem__record from, hvmem_u32 owed)
{
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(from));
    hvmem__record to;
    hvmem_u64 frames;

    if (domain)
        owed |= hvmem__load(&domain->owes);
    to = hvmem__in_transit(heap, from, owed);
    change(heap, b, mfn, gathered(heap, mfn, &b, &frames), to);
    give_back(heap, b, mfn, to);
    if (hvmem__rec_owed(from))
        hvmem__domain_changed(domain, from, 0);
    hvmem__domain_uncharge(domain, frames);
    hvmem__count(heap, &heap->gathers, (hvmem_u64)0 - 1);
    hvmem__watch(heap);
}

/* ---- quarantine ------------------------------------------------------------------------------- */

/* Take the block at mfn out of quarantine: record CACHED. E_ARG if it is not there. */
static hvmem_status leave_quarantine(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                                     hvmem__record *record)
{
    hvmem_status status = HVMEM_E_ARG;
    struct hvmem__arena *arena;
    hvmem_u64 state;

    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return status;
    if (hvmem__bank_holds(b, mfn) && hvmem__is_head(b, mfn)) {
        hvmem__record from = hvmem__load(hvmem__record_at(b, mfn));

        if (hvmem__rec_state(from) == HVMEM_BLOCK_QUARANTINE) {
            *record = hvmem__rec_with_stamp(hvmem__rec_with_state(from, HVMEM_BLOCK_CACHED),
                                            hvmem__stamp_now(heap));
            hvmem__table_changes(b->table);
            change(heap, b, mfn, from, *record);
            b->quarantine_frames -= (hvmem_u64)1 << hvmem__rec_order(from);
            status = HVMEM_OK;
        }
    }
    hvmem__unlock_arena(heap, arena, state);
    return status;
}

hvmem_status hvmem_quarantine_release(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem__seen seen;
    hvmem_status status = heap ? hvmem__see_block(heap, mfn, &seen) : HVMEM_E_ARG;
    hvmem__record record = 0;

    if (!status && heap->adopting)
        status = HVMEM_E_PHASE;
    if (!status && seen.block.state != HVMEM_BLOCK_QUARANTINE)
        status = HVMEM_E_ARG;
    if (!status)
        status = leave_quarantine(heap, seen.bank, seen.block.mfn, &record);
    if (status)
        return hvmem__refuse(heap, status, mfn, HVMEM_ORDER_ANY, 0);
    give_back(heap, seen.bank, seen.block.mfn, record);
    hvmem__watch(heap);
    return HVMEM_OK;
}
