/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scrubbed.c: blocks zeroed on their way from their owner to the free sets, in steps.
 *
 * How far that is stands here and not in the cursor, which a host may repeat, lose, or let a guest write.
 * While a call is at work the block is held (gathered.h): nobody else frees or scrubs it. Between two calls
 * it is its owner's, who may free it in another way; its bias says SCRUBBING, and the record of its second
 * frame is its mark: the serial of the operation and the bytes that were done. A cursor goes on only
 * if it names record and mark exactly. Whatever else becomes of the block takes the bias away, and a
 * new operation writes another serial. A single frame has no second one: it is done in one call.
 */
#include "cache.h"
#include "clock.h"
#include "flush.h"
#include "free.h"
#include "gathered.h"
#include "pcpu.h"
#include "settle.h"

HVMEM_STATIC_ASSERT(HVMEM__TOKENS <= HVMEM__BIAS_SCRUBBING, scrubbing_is_no_token);

#define CURSOR_FREE 0x6673637668000001ull

/* A mark: bytes done in units that every stretch is made of, the serial above them. */
#define MARK_UNIT   12u
#define MARK_SERIAL 36u

/* A block on its way. */
struct leaver {
    struct hvmem_heap *heap;
    struct hvmem__bank *bank;
    hvmem_mfn mfn;
    hvmem__record from; /* before it was held */
    hvmem_u64 done;     /* bytes */
};

/* Its bank may be another than the block's head's. */
static hvmem_u64 read_mark(const struct leaver *l)
{
    return hvmem__load(hvmem__record_at(hvmem__bank_of(l->heap, l->mfn + 1), l->mfn + 1));
}

static void write_mark(const struct leaver *l, hvmem_u64 mark)
{
    struct hvmem__bank *b = hvmem__bank_of(l->heap, l->mfn + 1);

    hvmem__table_changes(b->table);
    hvmem__store(hvmem__record_at(b, l->mfn + 1), mark);
}

/* What a cursor says of a record: whether it is to go offline matters not. */
static hvmem__record named(hvmem__record r)
{
    return hvmem__rec_with_state(r, HVMEM_BLOCK_ALLOCATED);
}

/* Whether the cursor is of an operation on this block, as far as its own record says. */
static int is_of(const struct hvmem_cursor *cursor, const struct leaver *l)
{
    return cursor->words[0] == CURSOR_FREE && cursor->words[1] == l->mfn &&
           hvmem__rec_bias(l->from) == HVMEM__BIAS_SCRUBBING && cursor->words[2] == named(l->from);
}

/* Every check, and the block is held. The mark can be read then. */
static hvmem_status hold(struct leaver *l, hvmem_order order, const struct hvmem_domain *owner,
                         const struct hvmem_cursor *cursor)
{
    hvmem_u32 tries;

    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        hvmem_status status = hvmem__may_free(l->heap, l->mfn, order, &owner, &l->bank, &l->from);

        if (!status && cursor->words[0] && !is_of(cursor, l))
            status = HVMEM_E_STALE;
        if (!status && !hvmem__can_pay(l->heap, HVMEM_OWES_SCRUB))
            status = HVMEM_E_UNSUPPORTED;
        if (status)
            return status;
        status = hvmem__hold(l->heap, l->bank, l->mfn, l->from);
        if (status != HVMEM_E_FREE)
            return status;
    }
    return HVMEM_E_BUSY;
}

/* Make the block unreachable, or find out what was done after that. */
static hvmem_status enter(struct leaver *l, const struct hvmem_cursor *cursor)
{
    struct hvmem_heap *heap = l->heap;

    l->done = 0;
    if (!cursor->words[0])
        return hvmem__flush_for(
            heap, hvmem__stamp_decode(hvmem__stamp_now(heap), hvmem__load(&heap->clock.now)));
    if (read_mark(l) != cursor->words[3])
        return HVMEM_E_STALE;
    l->done = (cursor->words[3] & (((hvmem_u64)1 << MARK_SERIAL) - 1)) << MARK_UNIT;
    return HVMEM_OK;
}

/* Zero all of it that was not done, as far as the budget goes. */
static hvmem_status zero(struct leaver *l, hvmem_u64 frames)
{
    struct hvmem__budget budget = hvmem__rec_order(l->from)
                                      ? hvmem__budget_frames(l->heap, frames)
                                      : hvmem__budget_whole(HVMEM__WHOLE_CALL);
    hvmem__record dirty = hvmem__rec_with_bias(hvmem__rec_with_owner(l->from, 0), 0);

    dirty = hvmem__rec_with_dirt(dirty, HVMEM__DIRT_DIRTY);
    return hvmem__pay_block(l->heap, l->bank, l->mfn, dirty, HVMEM_OWES_SCRUB, &l->done, &budget);
}

/*
 * To its owner until the next call. Debts stay as they were, except: of a MIXED block all owes its scrub, and
 * what waited for a first touch waits no more.
 */
static void leave(const struct leaver *l, struct hvmem_cursor *cursor)
{
    struct hvmem_domain *domain = hvmem__domain_of(l->heap, hvmem__rec_owner(l->from));
    hvmem_u64 serial =
        cursor->words[0] ? cursor->words[3] >> MARK_SERIAL : hvmem__next_serial(l->heap);
    hvmem__record to = hvmem__rec_with_bias(l->from, HVMEM__BIAS_SCRUBBING);
    struct hvmem__tally tally = {0, 0, 0};

    if (hvmem__rec_debts(to) && !hvmem__rec_debts(l->from)) {
        hvmem__tally_add(l->heap, &tally, to);
        hvmem__domain_hold(domain, l->mfn, tally.frames, &tally);
    }
    hvmem__domain_changed(domain, l->from, to);
    cursor->words[0] = CURSOR_FREE;
    cursor->words[1] = l->mfn;
    cursor->words[2] = named(to);
    cursor->words[3] = serial << MARK_SERIAL | l->done >> MARK_UNIT;
    write_mark(l, cursor->words[3]);
    hvmem__held_back(l->heap, l->bank, l->mfn, to);
}

/* To its owner for good: it has begun nothing. */
static void give_up(const struct leaver *l)
{
    hvmem__record to = l->from;

    if (hvmem__rec_bias(to) == HVMEM__BIAS_SCRUBBING)
        to = hvmem__rec_with_bias(to, 0);
    hvmem__held_back(l->heap, l->bank, l->mfn, to);
}

static hvmem_status work(struct leaver *l, hvmem_u32 owed, hvmem_u64 budget,
                         struct hvmem_cursor *cursor)
{
    hvmem_status status = enter(l, cursor);

    if (status == HVMEM_E_STALE) {
        hvmem__held_back(l->heap, l->bank, l->mfn, l->from);
        return status;
    }
    if (!status)
        status = zero(l, budget);
    if (status == HVMEM_AGAIN) {
        leave(l, cursor);
        return status;
    }
    if (status)
        give_up(l);
    else
        hvmem__held_free(l->heap, l->bank, l->mfn, l->from,
                         (owed & ~(HVMEM__OWES_FLUSH | HVMEM_OWES_SCRUB)) | HVMEM__SCRUBBED);
    memset(cursor, 0, sizeof *cursor);
    return status;
}

hvmem_status hvmem_free_scrubbed(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                                 struct hvmem_domain *domain, hvmem_u32 owed, hvmem_u64 budget,
                                 struct hvmem_cursor *cursor)
{
    struct leaver l = {heap, HVMEM_NULL, mfn, 0, 0};
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    status = cursor && !(owed & ~HVMEM_OWES_ANY) ? HVMEM_OK : HVMEM_E_ARG;
    if (!status)
        status = hold(&l, order, domain, cursor);
    if (!status)
        status = work(&l, owed, budget, cursor);
    return status < 0 ? hvmem__refuse(heap, status, mfn, order, owed) : status;
}
