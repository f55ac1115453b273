/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scrub.c: zeroing free memory before somebody waits for it, by idle CPUs or at boot; scrubbed.c does it for
 * blocks that are being freed. A block being scrubbed is RESERVED, so that nobody takes or frees it; what
 * was not reached goes back as dirty as it was. A cursor's position is only where to look next: dirt that
 * it passes over stays dirt.
 */
#include "cache.h"
#include "claim.h"
#include "clock.h"
#include "drain.h"
#include "flush.h"
#include "free.h"
#include "hand.h"
#include "sets.h"
#include "settle.h"
#include "take.h"
#include "testpoint.h"
#include "walk.h"

/* Largest block taken out at a time: 2 MiB of 4 KiB frames are missing meanwhile. */
#define SCRUB_ORDER 9u
/*
 * Work under one lock, in steps of some 30 instructions: an order in which the block of a frame is looked
 * for; an order searched, and a level of dirt in an arena of several banks, cost LEVEL_WORK; to take a block
 * out is CARVE_WORK.
 */
#define LOOK_WORK  HVMEM__PER_HOLD(100u)
#define LEVEL_WORK 4u
#define CARVE_WORK 30u
/* Frames of the budget that a look which finds nothing stands for. */
#define LOOK_FRAMES 16u

#define CURSOR_SCRUB 0x6273637668000001ull

#define OWES_HOST (HVMEM_OWES_HOST0 | HVMEM_OWES_HOST1 | HVMEM_OWES_HOST2)

/* ---- finding dirt ----------------------------------------------------------------------------- */

/* A block in our hands, or on its way there. */
struct dirty {
    struct hvmem__hand hand;
    hvmem_u32 order;
};

/*
 * The free block of the arena that holds *at, or the first of bank b above it, where *at is then. 0: there is
 * none up to *at, from where to go on. Adds to *work. Arena lock held.
 */
static int free_from(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                     hvmem_mfn *at, struct hvmem__spot *spot, hvmem_u32 *work)
{
    hvmem_mfn end;

    if (hvmem__arena_find(heap, arena, b, *at, &spot->head, &spot->order)) {
        spot->bank = hvmem__arena_bank(heap, arena, b, spot->head);
        *work += spot->order + 1;
        return 1;
    }
    *work += heap->max_order + 1 + LEVEL_WORK * hvmem__weight(b->orders);
    spot->bank = b;
    spot->head = hvmem__bank_next(b, *at + 1, b->orders, &spot->order, &end);
    *at = spot->head != HVMEM__NO_MFN ? spot->head : end;
    return spot->head != HVMEM__NO_MFN;
}

/*
 * The first dirty part at or after *at in the free block at head, as a block of its own at *at. If there is
 * none *at is behind what was looked at. Adds to *work. Arena lock held.
 */
static int dirty_in(struct hvmem_heap *heap, struct hvmem__bank *hb, hvmem_mfn head,
                    hvmem_u32 order, hvmem_mfn *at, hvmem_u32 *size, hvmem_u32 *work)
{
    hvmem__record whole = hvmem__rec_with_order(hvmem__load(hvmem__record_at(hb, head)), order);
    hvmem_mfn end = head + ((hvmem_u64)1 << order);
    const hvmem_u32 level = hvmem__arena_of(heap, hb)->banks > 1 ? LEVEL_WORK : 1;

    do {
        hvmem_mfn part = head, stop;
        hvmem__record r = hvmem__dirt_part(heap, hb, &part, whole, *at);

        *work += level * (1 + order - hvmem__rec_order(r));
        stop = part + ((hvmem_u64)1 << hvmem__rec_order(r));
        if (hvmem__rec_dirt(r) != HVMEM__DIRT_CLEAN) {
            *size = hvmem__fit(heap, *at, stop - *at);
            if (*size > SCRUB_ORDER)
                *size = SCRUB_ORDER;
            return 1;
        }
        *at = stop;
    } while (*at < end && *work + heap->max_order < LOOK_WORK);
    return 0;
}

/* Begin to take it out of the free sets, unless it is promised. Arena lock held. */
static int take_out(struct hvmem_heap *heap, struct hvmem__arena *arena,
                    const struct hvmem__spot *spot, struct dirty *dirty)
{
    hvmem_u64 frames = (hvmem_u64)1 << dirty->order;
    struct hvmem__drawn drawn;

    hvmem__claim_take(heap, arena, HVMEM_NULL, frames, &drawn);
    if (drawn.frames != frames) {
        hvmem__claim_untake(heap, arena, &drawn, drawn.frames);
        return 0;
    }
    hvmem__hand_reserve(heap, arena, &dirty->hand, spot, dirty->order, HVMEM__TAKEN_OUT);
    return 1;
}

/*
 * One look at bank b from *at on, or at least at one block. 1: a block was taken, or is on its way. What is
 * found when not enough work is left is the first that the next look finds. Arena lock held.
 */
static int look(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                hvmem_mfn *at, struct dirty *dirty)
{
    const hvmem_u32 search = heap->max_order + 1 + LEVEL_WORK * hvmem__weight(b->orders);
    const hvmem_mfn from = *at;
    hvmem_u32 work = 0, steps;

    for (steps = 0; hvmem__bank_holds(b, *at) && (!steps || work + search < LOOK_WORK); steps++) {
        struct hvmem__spot spot;

        if (!free_from(heap, arena, b, at, &spot, &work))
            continue;
        if (work + CARVE_WORK > LOOK_WORK && *at != from)
            break;
        if (!dirty_in(heap, spot.bank, spot.head, spot.order, at, &dirty->order, &work))
            continue;
        if (work + CARVE_WORK > LOOK_WORK && *at != from)
            break;
        spot.at = *at;
        *at += (hvmem_u64)1 << dirty->order;
        if (take_out(heap, arena, &spot, dirty))
            return 1;
    }
    return 0;
}

/* The next dirty block of a node at or after *at. 1: taken; 0: none is left; -1: go on. */
static int next_dirty(struct hvmem_heap *heap, hvmem_node node, hvmem_mfn *at, struct dirty *dirty)
{
    struct hvmem__bank *b = hvmem__bank_from(heap, *at, at);
    struct hvmem__arena *arena;
    hvmem_u64 state;
    int taken = 0;

    if (!b)
        return 0;
    if (node != HVMEM_NODE_ANY && hvmem__load(&b->node) != node) {
        *at = b->base + b->frames;
        return -1;
    }
    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return -1;
    if (node == HVMEM_NODE_ANY || b->node == node)
        taken = look(heap, arena, b, at, dirty);
    hvmem__unlock_arena(heap, arena, state);
    if (taken)
        hvmem__hand_reserve_on(heap, arena, &dirty->hand, dirty->order, HVMEM__TAKEN_OUT);
    return taken ? 1 : -1;
}

/* ---- giving back ------------------------------------------------------------------------------ */

/* Make [lo, hi) of our block blocks of ours, each of which goes back by itself. Arena lock held. */
static void part_off(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                     hvmem_mfn lo, hvmem_mfn hi, hvmem__record record)
{
    record = hvmem__rec_with_bias(hvmem__rec_with_state(record, HVMEM_BLOCK_RESERVED),
                                  HVMEM__BIAS_SCRUBBING);
    while (lo < hi) {
        hvmem_u32 order = hvmem__fit(heap, lo, hi - lo);

        b = hvmem__arena_bank(heap, arena, b, lo);
        hvmem__arena_mark(b, lo, hvmem__rec_with_order(record, order));
        b->reserved_frames += (hvmem_u64)1 << order;
        lo += (hvmem_u64)1 << order;
    }
}

/* [lo, hi), blocks of ours, becomes free with this record. No lock held. */
static void give_part(struct hvmem_heap *heap, hvmem_mfn lo, hvmem_mfn hi, hvmem__record record)
{
    while (lo < hi) {
        struct hvmem__bank *b = hvmem__bank_of(heap, lo);
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u32 order = hvmem__fit(heap, lo, hi - lo), work;
        hvmem_u64 state = hvmem__lock_arena(heap, arena);

        b->reserved_frames -= (hvmem_u64)1 << order;
        work = hvmem__return_block(heap, arena, b, lo, hvmem__rec_with_order(record, order));
        hvmem__unlock_arena(heap, arena, state);
        hvmem__give_on(heap, lo, work);
        lo += (hvmem_u64)1 << order;
    }
}

/* The first `clean` frames were scrubbed; `paid` is no longer owed by any of it. No lock held. */
static void give_back(struct hvmem_heap *heap, const struct hvmem__hand *dirty, hvmem_u64 clean,
                      hvmem_u32 paid)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, dirty->bank);
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(dirty->record), state;
    hvmem__record rest =
        hvmem__rec_with_owed(dirty->record, hvmem__rec_owed(dirty->record) & ~paid);
    hvmem__record done = hvmem__rec_with_dirt(rest, HVMEM__DIRT_CLEAN);
    hvmem_mfn middle = dirty->mfn + clean, end = dirty->mfn + frames;

    /* The zeroes may still be in a cache only. */
    done = hvmem__rec_with_owed(done,
                                hvmem__rec_owed(done) | (heap->owed_on_free & HVMEM_OWES_DCACHE));
    if (clean && clean < frames) {
        state = hvmem__lock_arena(heap, arena);
        hvmem__arena_unmark(dirty->bank, dirty->mfn);
        dirty->bank->reserved_frames -= frames;
        part_off(heap, arena, dirty->bank, dirty->mfn, middle, done);
        part_off(heap, arena, dirty->bank, middle, end, rest);
        hvmem__unlock_arena(heap, arena, state);
    }
    give_part(heap, dirty->mfn, middle, done);
    give_part(heap, middle, end, rest);
    hvmem__watch(heap);
}

/* Flush, then zero one block, and give it back. *at: where a later call goes on. */
static hvmem_status scrub_one(struct hvmem_heap *heap, const struct hvmem__hand *dirty,
                              struct hvmem__budget *budget, hvmem_mfn *at)
{
    hvmem_u32 owed = hvmem__rec_owed(dirty->record), paid = 0;
    hvmem_u64 inside = 0, clean;
    hvmem_status status = HVMEM_OK;

    if (owed & HVMEM__OWES_FLUSH)
        status = hvmem__flush_for(heap, hvmem__stamp_time(heap, dirty->record));
    if (!status) {
        paid = owed & HVMEM__OWES_FLUSH;
        (void)HVMEM_TEST_POINT("scrub");
        status = hvmem__pay_block(heap, dirty->bank, dirty->mfn, dirty->record,
                                  owed & (OWES_HOST | HVMEM_OWES_SCRUB), &inside, budget);
    }
    if (inside)
        paid |= owed & OWES_HOST;
    clean = inside >> heap->page_shift;
    if (status == HVMEM_AGAIN)
        *at = dirty->mfn + clean;
    give_back(heap, dirty, clean, paid);
    return status;
}

/* ---- public ----------------------------------------------------------------------------------- */

static hvmem_status check(const struct hvmem_heap *heap, hvmem_node node,
                          const struct hvmem_cursor *cursor)
{
    if (!cursor)
        return HVMEM_E_ARG;
    if (node != HVMEM_NODE_ANY &&
        (node >= HVMEM_NODE_LIMIT || !(hvmem__load(&heap->node_mask) >> node & 1)))
        return HVMEM_E_NODE;
    if (heap->adopting)
        return HVMEM_E_PHASE;
    if (cursor->words[0] &&
        (cursor->words[0] != CURSOR_SCRUB || cursor->words[1] != node || cursor->words[3]))
        return HVMEM_E_STALE;
    return hvmem__can_pay(heap, HVMEM_OWES_SCRUB) ? HVMEM_OK : HVMEM_E_UNSUPPORTED;
}

static hvmem_status scrub(struct hvmem_heap *heap, hvmem_node node, struct hvmem__budget *budget,
                          hvmem_mfn *at)
{
    for (;;) {
        hvmem_status status = HVMEM_OK;
        struct dirty dirty = {{HVMEM_NULL, 0, 0, 0}, 0};
        int found = next_dirty(heap, node, at, &dirty);

        if (!found)
            return HVMEM_OK;
        if (found > 0)
            status = scrub_one(heap, &dirty.hand, budget, at);
        else
            hvmem__budget_use(budget, LOOK_FRAMES);
        if (status)
            return status;
        if (hvmem__budget_stop(heap, budget))
            return HVMEM_AGAIN;
    }
}

hvmem_status hvmem_scrub_step(struct hvmem_heap *heap, hvmem_node node, hvmem_u64 budget,
                              struct hvmem_cursor *cursor)
{
    struct hvmem__budget frames;
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    status = check(heap, node, cursor);
    if (!status) {
        if (!cursor->words[0]) {
            hvmem__pcpu_drain_all(heap);
            cursor->words[0] = CURSOR_SCRUB;
            cursor->words[1] = node;
            cursor->words[2] = 0;
        }
        frames = hvmem__budget_frames(heap, budget);
        status = scrub(heap, node, &frames, &cursor->words[2]);
        if (status != HVMEM_AGAIN)
            memset(cursor, 0, sizeof *cursor);
    }
    return status < 0 ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, node) : status;
}
