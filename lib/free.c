/* SPDX-License-Identifier: BSD-2-Clause */
/* free.c: hvmem_free() and its kin. */
#include "free.h"

#include "arena.h"
#include "clock.h"
#include "drain.h"
#include "magazine.h"
#include "offline.h"
#include "pcpu.h"
#include "plain.h"
#include "take.h"
#include "testpoint.h"

hvmem_status hvmem__state_error(hvmem_u32 state)
{
    switch (state) {
    case HVMEM_BLOCK_ALLOCATED:
    case HVMEM_BLOCK_OFFLINING:
        return HVMEM_OK;
    case HVMEM_BLOCK_RESERVED:
        return HVMEM_E_RESERVED;
    case HVMEM_BLOCK_OFFLINE:
        return HVMEM_E_OFFLINE;
    case HVMEM_BLOCK_GATHERED:
        return HVMEM_E_GATHERED;
    case HVMEM_BLOCK_QUARANTINE:
        return HVMEM_E_QUARANTINE;
    default: /* FREE, CACHED */
        return HVMEM_E_FREE;
    }
}

/* ---- taking a block from its owner ---------------------------------------------------------- */

hvmem_status hvmem__enter_for(struct hvmem_heap *heap, struct hvmem__section *s,
                              hvmem__record record)
{
    hvmem_status status;

    hvmem__section_enter(heap, s);
    while (hvmem__biased_elsewhere(heap, s->pc, record)) {
        hvmem__section_leave(heap, s);
        status = hvmem__unbias(heap, record);
        if (status)
            return status;
        hvmem__section_enter(heap, s);
    }
    return HVMEM_OK;
}

/* Claim the record of a block inside a section that may do so. */
static int claim_inside(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                        hvmem__record from, hvmem__record to)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);
    int done;

    if (!arena)
        return 0;
    done = hvmem__bank_holds(b, mfn) && hvmem__is_head(b, mfn);
    if (done) {
        hvmem__table_changes(b->table);
        done = hvmem__frame_claim(&heap->host, hvmem__record_at(b, mfn), from, to);
    }
    hvmem__unlock_arena(heap, arena, state);
    return done;
}

hvmem_status hvmem__seize(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                          hvmem__record from, hvmem__record to)
{
    struct hvmem__section s;
    hvmem_status status = hvmem__enter_for(heap, &s, from);

    if (status)
        return status;
    if (!claim_inside(heap, b, mfn, from, to))
        status = HVMEM_E_FREE;
    hvmem__section_leave(heap, &s);
    return status;
}

int hvmem__try_seize(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                     hvmem__record from, hvmem__record to)
{
    struct hvmem__section s;
    int done;

    hvmem__section_enter(heap, &s);
    done = !hvmem__biased_elsewhere(heap, s.pc, from) && claim_inside(heap, b, mfn, from, to);
    hvmem__section_leave(heap, &s);
    return done;
}

hvmem__record hvmem__in_transit(struct hvmem_heap *heap, hvmem__record from, hvmem_u32 owed)
{
    hvmem_u32 dirt = hvmem__rec_dirt(from);
    hvmem__record to = hvmem__rec_with_state(from, HVMEM_BLOCK_CACHED);

    if (hvmem__rec_owner(from) && !(owed & HVMEM__UNUSED))
        owed |= heap->owed_on_free &
                ~(owed & (HVMEM__GONE | HVMEM__SCRUBBED) ? HVMEM_OWES_TLB : 0u) &
                ~(owed & HVMEM__SCRUBBED ? HVMEM_OWES_SCRUB : 0u);
    /* Mapped elsewhere: due from now on, and told apart from such a mark by TLB. */
    if (hvmem__rec_owner(from) && (hvmem__rec_owed(from) & HVMEM__OWES_FLUSH) == HVMEM_OWES_FOREIGN)
        owed |= owed & HVMEM__SCRUBBED ? 0u : HVMEM__OWES_FLUSH;
    if (owed & HVMEM_OWES_FOREIGN)
        owed |= HVMEM_OWES_TLB;
    owed = hvmem__with_clean(heap, owed);
    if (owed & HVMEM__SCRUBBED) {
        owed |= heap->owed_on_free & HVMEM_OWES_DCACHE; /* as hvmem__with_clean() */
        from = hvmem__rec_with_owed(from, hvmem__rec_owed(from) & ~HVMEM__OWES_FLUSH);
        to = hvmem__rec_with_state(from, HVMEM_BLOCK_CACHED);
        dirt = HVMEM__DIRT_CLEAN;
    }
    owed &= HVMEM_OWES_ANY;
    if (owed & HVMEM_OWES_SCRUB)
        dirt = HVMEM__DIRT_DIRTY;
    to = hvmem__rec_with_owner(to, 0);
    to = hvmem__rec_with_owed(to, hvmem__rec_owed(to) | owed);
    to = hvmem__rec_with_dirt(to, dirt);
    if (owed & HVMEM__OWES_FLUSH)
        to = hvmem__rec_with_stamp(to, hvmem__stamp_now(heap));
    return to;
}

/*
 * Of the orders that go through magazines: into this CPU's cache. Through the gate it is left without
 * blocks of middle orders, which are not taken out that way. No lock held.
 */
static hvmem_status free_to_cache(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                                  hvmem__record from, hvmem__record to)
{
    struct hvmem__section s;
    hvmem_status status = hvmem__enter_for(heap, &s, from);

    if (status)
        return status;
    if (hvmem__unlikely(hvmem__pcpu_bank_of(heap, s.pc, mfn) != b)) {
        hvmem__section_leave(heap, &s);
        return HVMEM_E_FREE; /* it was another's, whose bank has gone since */
    }
    hvmem__table_changes(b->table); /* and again where it goes */
    if (!hvmem__is_head(b, mfn) ||
        !hvmem__frame_claim(&heap->host, hvmem__record_at(b, mfn), from, to))
        status = HVMEM_E_FREE;
    else if (s.gated != HVMEM__GATED_NOT && !hvmem__cacheable(heap, hvmem__rec_order(to)))
        hvmem__pcpu_give_back(heap, &mfn, 1);
    else
        hvmem__pcpu_put(heap, s.pc, b, mfn, to);
    hvmem__section_leave(heap, &s);
    return status;
}

/*
 * Whether a free changes the record by compare-exchange (frame.h), and the block may go through a
 * cache. What a domain has not used goes home: it may be promised to it again.
 */
static int by_exchange(const struct hvmem_heap *heap, hvmem__record from, hvmem_u32 owed)
{
    hvmem_u32 order = hvmem__rec_order(from), owner = hvmem__rec_owner(from);

    if (hvmem__rec_state(from) != HVMEM_BLOCK_ALLOCATED || !hvmem__has_magazine(heap, order))
        return 0;
    return !owner || (hvmem__cacheable(heap, order) && !(owed & HVMEM__UNUSED));
}

/* Straight home to the arena, in whose lock the record changes. No lock held. */
static hvmem_status free_to_arena(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                                  hvmem__record from, hvmem__record to)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);
    int done;
    hvmem_u32 work = 0;

    if (!arena)
        return HVMEM_E_FREE;
    done = hvmem__bank_holds(b, mfn) && hvmem__is_head(b, mfn) &&
           hvmem__load(hvmem__record_at(b, mfn)) == from;
    if (done) {
        if (hvmem__rec_state(from) == HVMEM_BLOCK_RESERVED)
            b->reserved_frames -= (hvmem_u64)1 << hvmem__rec_order(from);
        work = hvmem__return_block(heap, arena, b, mfn, to);
    }
    hvmem__unlock_arena(heap, arena, state);
    hvmem__give_on(heap, mfn, work);
    return done ? HVMEM_OK : HVMEM_E_FREE;
}

hvmem_status hvmem__free_block(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                               hvmem__record from, hvmem_u32 owed)
{
    struct hvmem_domain *domain = hvmem__domain_of(heap, hvmem__rec_owner(from));
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(from);
    hvmem__record to;
    hvmem_status status;

    /* What the domain owes as a whole it owes for this block too. */
    if (domain)
        owed |= hvmem__load(&domain->owes);
    to = hvmem__in_transit(heap, from, owed);

    if (hvmem__rec_state(from) == HVMEM_BLOCK_OFFLINING) {
        status = hvmem__seize(heap, b, mfn, from, to);
        if (!status)
            hvmem__offline_freed(heap, mfn, hvmem__rec_order(to));
    } else if (by_exchange(heap, from, owed)) {
        status = free_to_cache(heap, b, mfn, from, to);
    } else {
        status = free_to_arena(heap, b, mfn, from, to);
    }
    if (status)
        return status;
    if (hvmem__rec_owed(from))
        hvmem__domain_changed(domain, from, 0);
    hvmem__domain_uncharge(domain, frames);
    hvmem__watch(heap);
    return HVMEM_OK;
}

/* ---- public --------------------------------------------------------------------------------- */

/* Why a frame that starts no block outside the free sets cannot be freed. */
static hvmem_status why_not(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    struct hvmem_block block;
    hvmem_status status = hvmem__block_at(heap, mfn, &block);

    if (!status)
        status = hvmem__state_error(block.state);
    if (!status)
        status = HVMEM_E_INTERIOR;
    return status;
}

/*
 * The bank of a frame, NULL if there is none, and whether the frame starts a block outside the free sets; its
 * record then. Read inside a section: a bank that goes waits for that before its table goes. No lock held.
 */
static int read_head(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem__bank **bank,
                     hvmem__record *record)
{
    struct hvmem__section s;
    int found;

    hvmem__section_enter(heap, &s);
    *bank = hvmem__pcpu_bank_of(heap, s.pc, mfn);
    (void)HVMEM_TEST_POINT("read_head");
    found = *bank && hvmem__is_head(*bank, mfn);
    if (found)
        *record = hvmem__load(hvmem__record_at(*bank, mfn));
    hvmem__section_leave(heap, &s);
    return found;
}

hvmem_status hvmem__may_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                             const struct hvmem_domain *const *owner, struct hvmem__bank **bank,
                             hvmem__record *record)
{
    struct hvmem__bank *b;
    hvmem_status status;
    hvmem__record r = 0;

    if (order > heap->max_order && order != HVMEM_ORDER_ANY)
        return HVMEM_E_ORDER;
    if (heap->adopting)
        return HVMEM_E_PHASE;
    if (!read_head(heap, mfn, &b, &r))
        return b ? why_not(heap, mfn) : HVMEM_E_FOREIGN;
    status = hvmem__state_error(hvmem__rec_state(r));
    if (status)
        return status;
    if (order != HVMEM_ORDER_ANY && order != hvmem__rec_order(r))
        return HVMEM_E_WRONG_ORDER;
    if (owner && hvmem__domain_of(heap, hvmem__rec_owner(r)) != *owner)
        return HVMEM_E_OWNER;
    *bank = b;
    *record = r;
    return hvmem__unlikely(hvmem__rec_kept(r)) ? HVMEM_E_GATHERED : HVMEM_OK;
}

hvmem_status hvmem__free_checked(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                 const struct hvmem_domain *const *owner, hvmem_u32 owed)
{
    hvmem_u32 tries;

    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        struct hvmem__bank *b;
        hvmem__record r = 0;
        hvmem_status status;

        status = hvmem__may_free(heap, mfn, order, owner, &b, &r);
        if (status == HVMEM_E_GATHERED && ((owed & HVMEM__EVEN_HELD && hvmem__rec_held(r)) ||
                                           (owed & HVMEM__EVEN_TABLE && hvmem__rec_table(r))))
            status = HVMEM_OK;
        if (status)
            return status;
        (void)HVMEM_TEST_POINT("free_seen");
        status = hvmem__free_block(heap, b, mfn, r, owed);
        if (status != HVMEM_E_FREE)
            return status;
    }
    return HVMEM_E_BUSY;
}

/* Not into this CPU's cache. */
static HVMEM_NOINLINE hvmem_status free_long(struct hvmem_heap *heap, hvmem_mfn mfn,
                                             hvmem_order order)
{
    hvmem_status status;

    if (!hvmem__cacheable(heap, order) && hvmem__plain_free(heap, mfn, order))
        return HVMEM_OK;
    status = hvmem__free_checked(heap, mfn, order, HVMEM_NULL, 0);
    return status ? hvmem__refuse(heap, status, mfn, order, 0) : HVMEM_OK;
}

/* Not into this CPU's cache at once. */
static HVMEM_NOINLINE hvmem_status free_slow(struct hvmem_heap *heap, hvmem_mfn mfn,
                                             hvmem_order order)
{
    if (hvmem__has_magazine(heap, order) && hvmem__magazine_free(heap, mfn, order))
        return HVMEM_OK;
    return free_long(heap, mfn, order);
}

/*
 * Into the cache of the CPU that allocated the block, without a locked instruction. The newest frame
 * is the hot one; the one before goes into the magazine.
 */
HVMEM_INLINE hvmem_status free_fast(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order)
{
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    struct hvmem__mag *mag = &pc->mag[order];
    int done = 0;

    if (hvmem__section_begin(pc)) {
        hvmem_u64 offset = mfn - pc->fast.base;

        if (order == 0) {
            hvmem_mfn hot = hvmem__load(&pc->fast.hot);

            if (hot != HVMEM_FAST_NONE && hvmem__likely(mag->count < mag->capacity)) {
                hvmem__store(&mag->slot[mag->count], hot);
                hvmem__store(&mag->count, mag->count + 1);
                hvmem__store(&pc->fast.hot, HVMEM_FAST_NONE);
            }
            done = hvmem_fast_give(&pc->fast, mfn);
        } else if (hvmem__likely(pc->token && mag->count < mag->capacity) &&
                   hvmem__likely(hvmem_fast_owns(&pc->fast, offset, mag->given))) {
            hvmem__store(&pc->fast.record[offset], mag->cached);
            hvmem__store(&mag->slot[mag->count], mfn);
            hvmem__store(&mag->count, mag->count + 1);
            done = 1;
        }
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return hvmem__likely(done) ? HVMEM_OK : free_slow(heap, mfn, order);
}

static HVMEM_NOINLINE hvmem_status free_fast9(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    return free_fast(heap, mfn, HVMEM__MAG_ORDER1);
}

hvmem_status hvmem_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order)
{
    if (hvmem__unlikely(!heap))
        return HVMEM_E_ARG;
    if (hvmem__likely(order == 0))
        return free_fast(heap, mfn, 0);
    return order == HVMEM__MAG_ORDER1 ? free_fast9(heap, mfn) : free_slow(heap, mfn, order);
}

hvmem_status hvmem_free_bulk(struct hvmem_heap *heap, const hvmem_mfn *frames, hvmem_u32 n,
                             hvmem_order order, hvmem_u32 *done)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i = 0;

    if (!heap)
        return HVMEM_E_ARG;
    if (!done || (n && !frames))
        return hvmem__refuse(heap, HVMEM_E_ARG, 0, order, n);
    while (i < n && !status) {
        hvmem_u32 plain = hvmem__cacheable(heap, order)
                              ? 0
                              : hvmem__plain_free_some(heap, frames + i, n - i, order);

        if (!plain) {
            status = hvmem_free(heap, frames[i], order);
            plain = !status;
        }
        i += plain;
    }
    *done = i;
    return status;
}
