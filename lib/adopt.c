/* SPDX-License-Identifier: BSD-2-Clause */
/* adopt.c: quiescing a heap, and taking over its tables in place. */
#include "adopt.h"
#include "claim.h"
#include "clock.h"
#include "domain.h"
#include "drain.h"
#include "free.h"
#include "sets.h"
#include "take.h"

/* Everything a frame found in flight may owe. */
#define OWES_WORST (HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN)

/* ---- quiesce -------------------------------------------------------------------------------- */

/*
 * Write what the bank counts into its table and mark it clean. 0 if a gather holds frames, perhaps of
 * this bank: it counts itself before it takes one, and taking one clears the mark; or if a block is still to be
 * merged, which is counted under the lock under which it was entered. Arena lock held.
 */
static int mark_clean(const struct hvmem_heap *heap, struct hvmem__bank *b)
{
    if (__atomic_load_n(&heap->gathers, __ATOMIC_SEQ_CST) || hvmem__load(&heap->unmerged))
        return 0;
    hvmem__table_changes(b->table); /* what it said before, if it was marked, goes first */
    b->table->clock = hvmem__load(&heap->clock.now);
    b->table->reserved_frames = b->reserved_frames;
    b->table->offline_frames = b->offline_frames;
    b->table->quarantine_frames = b->quarantine_frames;
    memcpy(b->table->in_bitmap, b->in_bitmap, sizeof b->in_bitmap);
    b->table->counts_checksum = hvmem__counts_checksum(b->table);
    hvmem__store(&b->marked, 1u);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    hvmem__store(&b->table->clean, 1);
    return 1;
}

/* Mark every table: clean, or not. 0 if one could not be marked clean. */
static int mark_all(struct hvmem_heap *heap, int clean)
{
    hvmem_u64 state = hvmem__lock_admin(heap);
    hvmem_u32 i;
    int done = 1;

    for (i = 0; i < heap->max_banks; i++) {
        struct hvmem__bank *b = &heap->bank[i];
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 arena_state;

        if (!b->live)
            continue;
        arena_state = hvmem__lock_arena(heap, arena);
        if (clean)
            done &= mark_clean(heap, b);
        else
            hvmem__store(&b->table->clean, 0);
        hvmem__unlock_arena(heap, arena, arena_state);
    }
    hvmem__unlock_admin(heap, state);
    return done;
}

hvmem_status hvmem_quiesce(struct hvmem_heap *heap)
{
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->adopting)
        status = HVMEM_E_PHASE; /* the counts are not known yet */
    else
        status = hvmem__domains_pending(heap) ? HVMEM_E_BUSY : hvmem__pcpu_drain_all(heap);
    if (!status) {
        int clean = mark_all(heap, 1);

        /*
         * The fast paths do not look at the mark: without a hint they take the other way, which
         * clears it. What came into caches meanwhile goes home and clears it too.
         */
        status = hvmem__pcpu_forget_banks(heap);
        if (hvmem__pcpu_drain_all(heap) || status)
            status = HVMEM_E_HOST;
        else if (!clean)
            status = HVMEM_E_BUSY;
        if (status)
            (void)mark_all(heap, 0);
    }
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

/* ---- adopting banks ------------------------------------------------------------------------- */

static int header_matches(const struct hvmem_heap *heap, const struct hvmem_bank *bank,
                          const struct hvmem__table *table, hvmem_mfn base, hvmem_u64 frames)
{
    return table->magic == HVMEM__TABLE_MAGIC && table->base == base && table->frames == frames &&
           table->node == bank->node && table->page_shift == heap->page_shift &&
           table->max_order == heap->max_order && table->checksum == hvmem__table_checksum(table) &&
           table->clean <= 1 && hvmem__fronts_sound(table) && !(table->clock >> 63) &&
           (!table->clean || table->counts_checksum == hvmem__counts_checksum(table));
}

/*
 * The clock goes on above the stored one. Of a heap that died it was further, nobody knows how far: by as much as
 * a stamp can tell, or stamps that stand for no time yet would owe a flush whatever is flushed.
 */
static void restart_clock(struct hvmem_heap *heap, const struct hvmem__table *table)
{
    hvmem_u64 from = table->clock + 1 + (table->clean ? 0 : HVMEM__STAMP_MASK);

    if (heap->clock.now < from)
        heap->clock.now = from;
}

/* Walk the pieces of a bank: check their headers (link 0), or take them into the heap (link 1). */
static hvmem_status adopt_pieces(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                 void *table, int link)
{
    hvmem_mfn at = bank->base, end = bank->base + bank->frames;
    hvmem_u8 *memory = table;

    while (at < end) {
        hvmem_u64 frames = hvmem__piece_frames(heap, at, end);
        void *header = memory;

        if (!header_matches(heap, bank, header, at, frames))
            return HVMEM_E_GEOMETRY;
        if (link) {
            struct hvmem__bank *b = hvmem__bank_make(heap, bank, at, frames);

            hvmem__bank_layout(heap, b, memory, 0);
            b->marked = b->table->clean;
            restart_clock(heap, b->table);
            hvmem__bank_link(heap, b);
            hvmem__arena_of(heap, b)->owing = 1;
        }
        memory += hvmem__piece_bytes(heap, at, frames);
        at += frames;
    }
    return HVMEM_OK;
}

hvmem_status hvmem_bank_adopt(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table,
                              hvmem_size bytes)
{
    hvmem_status status = hvmem__bank_check(heap, bank);

    if (!heap)
        return HVMEM_E_ARG;
    if (!status && ((!heap->adopting && heap->banks) || heap->adopt_at || heap->host.smp))
        status = HVMEM_E_PHASE;
    if (!status && bank->flags & HVMEM_BANK_HOTPLUG)
        status = HVMEM_E_ARG;
    if (!status)
        status = hvmem__bank_admit(heap, bank, table, bytes);
    if (!status)
        status = adopt_pieces(heap, bank, table, 0);
    if (status)
        return hvmem__refuse(heap, status, bank ? bank->base : 0, HVMEM_ORDER_ANY, 0);
    heap->adopting = 1;
    return adopt_pieces(heap, bank, table, 1);
}

/* ---- bringing tables into service ------------------------------------------------------------ */

/*
 * The cursor: pass in the top bits, then frame number. Of unclean banks the first pass makes the sets sound
 * in themselves, the second checks them without changing anything, the third counts and repairs, the
 * fourth gives back what lay in caches or was in flight, of clean banks too: it may merge with any neighbour, so
 * all of them must be counted by then. Banks are visited by address, so that the next position is found from the
 * frame number alone.
 */
#define PASS_SHIFT 60u
#define PASS_SETS  0u
#define PASS_CHECK 1u
#define PASS_COUNT 2u
#define PASS_GIVE  3u

/* First live bank that ends above mfn. */
static struct hvmem__bank *bank_from(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    hvmem_u32 i;

    for (i = 0; i < heap->banks; i++) {
        struct hvmem__bank *b = &heap->bank[heap->order_of_banks[i]];

        if (b->base + b->frames > mfn)
            return b;
    }
    return HVMEM_NULL;
}

/* What an adopted block of a domain has to settle. */
static void adopt_debts(const struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem__record r,
                        hvmem_mfn mfn)
{
    struct hvmem__tally tally = {0, 0, 0};

    hvmem__tally_add(heap, &tally, r);
    if (tally.flush)
        tally.newest = ~(hvmem_u64)0; /* of another clock */
    hvmem__domain_hold(domain, mfn, (hvmem_u64)1 << hvmem__rec_order(r), &tally);
    domain->untouched += hvmem__rec_untouched(r) ? (hvmem_u64)1 << hvmem__rec_order(r) : 0;
}

/* Count one block into its bank, arena and domain. */
static hvmem_status count_block(struct hvmem_heap *heap, struct hvmem__bank *b,
                                const struct hvmem_block *block)
{
    hvmem_u64 frames = (hvmem_u64)1 << block->order;
    struct hvmem_domain *domain = hvmem__domain_of(heap, block->owner);

    if (block->owner && !domain)
        return HVMEM_E_DOMAIN;
    if (domain) {
        domain->pages += frames;
        adopt_debts(heap, domain, hvmem__load(hvmem__record_at(b, block->mfn)), block->mfn);
        /* What it owed as a whole died with its handle. */
        hvmem__domain_owe(domain, HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE);
        hvmem__domain_dirty(domain, 0, (hvmem_u64)1 << HVMEM__GFN_BITS);
    }
    switch (block->state) {
    case HVMEM_BLOCK_FREE:
        if (b->table->front[block->order] != block->mfn) {
            b->in_bitmap[block->order]++;
            b->spread |= 1u << block->order;
        }
        b->free_frames += frames;
        b->orders |= 1u << block->order;
        hvmem__arena_offer(heap, hvmem__arena_of(heap, b), block->order);
        break;
    case HVMEM_BLOCK_RESERVED:
        b->reserved_frames += frames;
        break;
    case HVMEM_BLOCK_OFFLINE:
        b->offline_frames += frames;
        break;
    case HVMEM_BLOCK_QUARANTINE:
        b->quarantine_frames += frames;
        break;
    default:
        break;
    }
    return HVMEM_OK;
}

/* A clean table says itself what is free. */
static void trust_counts(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    hvmem_u32 k;

    b->reserved_frames = b->table->reserved_frames;
    b->offline_frames = b->table->offline_frames;
    b->quarantine_frames = b->table->quarantine_frames;
    for (k = 0; k <= heap->max_order; k++) {
        b->in_bitmap[k] = b->table->in_bitmap[k];
        b->spread |= (b->in_bitmap[k] ? 1u : 0u) << k;
        b->free_frames += hvmem__set_count(b, k) << k;
        if (hvmem__set_count(b, k)) {
            b->orders |= 1u << k;
            hvmem__arena_offer(heap, hvmem__arena_of(heap, b), k);
        }
    }
}

/* A record without what only the heap that wrote it could go on with: tokens, populates, scrubs in steps. */
static hvmem__record lasting(hvmem__record r)
{
    if (!(hvmem__rec_bias(r) & HVMEM__BIAS_SAYS))
        return hvmem__rec_with_bias(r, 0);
    return hvmem__rec_unsay(r, ~(HVMEM__BIAS_MIXED | HVMEM__BIAS_UNTOUCHED));
}

/*
 * A block that a call under way had in nobody's name when the heap was quiesced, or had taken out, and which
 * nobody goes on with: the last pass gives it back, as one of a bank that is not clean.
 */
static hvmem__record in_flight(struct hvmem__bank *b, hvmem__record r)
{
    if (hvmem__rec_taken_out(r))
        b->reserved_frames -= (hvmem_u64)1 << hvmem__rec_order(r);
    hvmem__table_changes(b->table);
    return hvmem__rec_with_owed(hvmem__rec_make(hvmem__rec_order(r), HVMEM_BLOCK_CACHED, 0),
                                OWES_WORST);
}

/* Third pass over a bank that was clean: only blocks outside the free sets are of interest. */
static hvmem_status count_owners(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at)
{
    hvmem_mfn stop = b->base + b->frames;
    hvmem_u32 steps;

    if (*at <= b->base) {
        *at = b->base;
        trust_counts(heap, b);
    }
    if (stop - *at > HVMEM__ADOPT_FRAMES)
        stop = *at + HVMEM__ADOPT_FRAMES;
    for (steps = 0; steps < HVMEM__ADOPT_STEPS; steps++) {
        hvmem_u64 offset = hvmem__bits_next(&b->head, *at - b->base, stop - b->base);
        hvmem__record r;
        struct hvmem_domain *domain;

        if (offset == HVMEM__BITS_NONE) {
            *at = stop;
            return HVMEM_OK;
        }
        r = hvmem__load(&b->record[offset]);
        domain = hvmem__domain_of(heap, hvmem__rec_owner(r));
        if (hvmem__rec_owner(r) && !domain)
            return HVMEM_E_DOMAIN;
        if (domain) {
            domain->pages += (hvmem_u64)1 << hvmem__rec_order(r);
            adopt_debts(heap, domain, r, b->base + offset);
        }
        r = hvmem__rec_taken_out(r) || hvmem__rec_state(r) == HVMEM_BLOCK_CACHED ? in_flight(b, r)
                                                                                 : lasting(r);
        hvmem__store(&b->record[offset], r);
        *at = b->base + offset + 1;
    }
    return HVMEM_OK;
}

/* What an unclean table says of a block, made safe: nothing stays in flight. */
static void repair(struct hvmem__bank *b, struct hvmem_block *block, hvmem_mfn mfn)
{
    hvmem__record *record = hvmem__record_at(b, mfn), r = hvmem__load(record);

    if (block->state == HVMEM_BLOCK_FREE)
        return;
    if (block->state == HVMEM_BLOCK_CACHED || block->state == HVMEM_BLOCK_GATHERED) {
        /* Made anew: a link is no bias. */
        if (block->state == HVMEM_BLOCK_GATHERED)
            block->state = HVMEM_BLOCK_QUARANTINE;
        block->owner = 0;
        r = hvmem__rec_with_owed(hvmem__rec_make(block->order, block->state, 0), OWES_WORST);
    } else {
        r = lasting(r);
    }
    hvmem__store(record, r);
}

/* Third pass over an unclean bank. */
static hvmem_status count_all(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 steps;

    if (*at < b->base)
        *at = b->base;
    for (steps = 0; steps < HVMEM__ADOPT_STEPS && *at < b->base + b->frames && !status; steps++) {
        struct hvmem_block block;

        if (hvmem__block_at(heap, *at, &block)) {
            hvmem__record lost = hvmem__rec_make(0, HVMEM_BLOCK_QUARANTINE, 0);

            hvmem__arena_mark(b, *at, hvmem__rec_with_owed(lost, OWES_WORST));
            hvmem__block_at(heap, *at, &block);
        }
        if (block.mfn < *at) { /* counted with the bank that holds its head */
            *at = block.mfn + ((hvmem_u64)1 << block.order);
            continue;
        }
        repair(b, &block, *at);
        status = count_block(heap, b, &block);
        if (!status)
            *at += (hvmem_u64)1 << block.order;
    }
    return status;
}

/* Last pass over an unclean bank: cached blocks, repaired, go home; free ones are merged to the end. */
static hvmem_status give_cached(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    hvmem_u32 steps;

    if (*at < b->base)
        *at = b->base;
    for (steps = 0; steps < HVMEM__ADOPT_STEPS && *at < b->base + b->frames; steps++) {
        struct hvmem_block block;
        hvmem_u32 work = 0;

        (void)hvmem__block_at(heap, *at, &block); /* every frame has one by now */
        *at = block.mfn + ((hvmem_u64)1 << block.order);
        if (!hvmem__bank_holds(b, block.mfn)) /* given with the bank that holds its head */
            continue;
        if (block.state == HVMEM_BLOCK_CACHED)
            work = hvmem__return_block(heap, arena, b, block.mfn,
                                       hvmem__load(hvmem__record_at(b, block.mfn)));
        else if (block.state == HVMEM_BLOCK_FREE)
            work = hvmem__leave_unmerged(heap, block.order);
        hvmem__give_on(heap, block.mfn, work);
    }
    return HVMEM_OK;
}

/*
 * One step of a pass over one bank. The next one begins at its base, though a block of this one may reach
 * into it: only so it is seen that nothing of it was counted yet.
 */
static hvmem_status adopt_step(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_u64 pass,
                               hvmem_mfn *at)
{
    hvmem_mfn end = b->base + b->frames;
    hvmem_status status = HVMEM_OK;

    if (pass == PASS_SETS && !b->table->clean)
        hvmem__table_mend(heap, b, at);
    else if (pass == PASS_SETS)
        *at = end;
    else if (pass == PASS_CHECK)
        status = hvmem__adopt_check(heap, b, at);
    else if (pass == PASS_COUNT)
        status = b->marked ? count_owners(heap, b, at) : count_all(heap, b, at);
    else if (b->table->clean)
        *at = end;
    else
        status = give_cached(heap, b, at);
    if (*at > end && status >= 0)
        *at = end;
    return status;
}

/* A heap that could not be taken over has nothing to give, and its domains own nothing. */
static void forget_counts(struct hvmem_heap *heap)
{
    hvmem_u32 i;

    for (i = 1; i <= heap->max_domains; i++) {
        struct hvmem_domain *domain = heap->domain[i];

        if (domain)
            domain->pages = domain->deferred = domain->flush = domain->untouched = 0;
    }

    for (i = 0; i < heap->banks; i++) {
        struct hvmem__bank *b = &heap->bank[heap->order_of_banks[i]];

        b->free_frames = b->reserved_frames = b->offline_frames = b->quarantine_frames = 0;
        /* Two plain stores become one of MMX where a host forbids SSE only. */
        hvmem__store(&b->orders, 0u);
        hvmem__store(&b->spread, 0u);
        memset(b->in_bitmap, 0, sizeof b->in_bitmap);
        b->marked = b->table->clean;
    }
}

hvmem_status hvmem_adopt_finish(struct hvmem_heap *heap, hvmem_u64 *cursor)
{
    hvmem_u64 pass, mask = ((hvmem_u64)1 << PASS_SHIFT) - 1;
    hvmem_status status = HVMEM_OK;
    struct hvmem__bank *b;
    hvmem_mfn at;

    if (!heap)
        return HVMEM_E_ARG;
    if (!cursor || !heap->adopting)
        return hvmem__refuse(heap, cursor ? HVMEM_E_PHASE : HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    if (*cursor != heap->adopt_at)
        return hvmem__refuse(heap, HVMEM_E_STALE, 0, HVMEM_ORDER_ANY, *cursor);
    pass = *cursor >> PASS_SHIFT;
    at = *cursor & mask;
    b = bank_from(heap, at);
    if (!b && pass >= PASS_GIVE) {
        heap->adopting = 0;
        hvmem__watch(heap);
        return HVMEM_OK;
    }
    if (!b) {
        *cursor = heap->adopt_at = (pass + 1) << PASS_SHIFT;
        return HVMEM_AGAIN;
    }
    status = adopt_step(heap, b, pass, &at);
    if (status < 0) {
        forget_counts(heap);
        *cursor = heap->adopt_at = 0;
        return hvmem__refuse(heap, status, at, HVMEM_ORDER_ANY, 0);
    }
    *cursor = heap->adopt_at = pass << PASS_SHIFT | at;
    return HVMEM_AGAIN;
}
