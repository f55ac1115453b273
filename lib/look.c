/* SPDX-License-Identifier: BSD-2-Clause */
/* look.c: looking at a heap without changing it: look-up, walk, counts, watermarks. */
#include "claim.h"
#include "drain.h"
#include "free.h"
#include "sets.h"
#include "walk.h"

#define SNAPSHOT_TRIES 64u

/* ---- the block of a frame ---------------------------------------------------------------------- */

/* Fill in what a record says. */
static void describe(const struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 state,
                     hvmem__record record, struct hvmem_block *block)
{
    memset(block, 0, sizeof *block);
    block->mfn = head;
    block->order = hvmem__rec_order(record);
    block->state = state;
    block->owner = hvmem__rec_owner(record);
    block->owed = hvmem__rec_owed(record);
    block->node = b->node;
}

hvmem_status hvmem__see_block(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem__seen *seen)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn), *hb = HVMEM_NULL;
    struct hvmem_block *block = &seen->block;
    struct hvmem__arena *arena;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;
    hvmem_u32 order;
    hvmem_mfn head;

    memset(seen, 0, sizeof *seen);
    if (!b)
        return HVMEM_E_FOREIGN;
    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return HVMEM_E_FOREIGN;
    if (!hvmem__bank_holds(b, mfn)) {
        status = HVMEM_E_FOREIGN;
    } else if (hvmem__arena_block(heap, arena, b, mfn, &head, &hb)) {
        hvmem__record r = hvmem__load_acquire(hvmem__record_at(hb, head));

        seen->record = r;
        /* One that is taken out is free to everybody: nobody may free it again. */
        describe(hb, head, hvmem__rec_taken_out(r) ? HVMEM_BLOCK_CACHED : hvmem__rec_state(r), r,
                 block);
        block->owed |= hvmem__owed_as_whole(heap, r);
    } else if (hvmem__arena_find(heap, arena, b, mfn, &head, &order)) {
        hb = hvmem__arena_bank(heap, arena, b, head);
        describe(hb, head, HVMEM_BLOCK_FREE,
                 hvmem__rec_with_order(hvmem__load(hvmem__record_at(hb, head)), order), block);
    } else {
        status = hvmem__load(&b->filling) ? HVMEM_E_FOREIGN : HVMEM_E_CORRUPT;
    }
    seen->bank = hb;
    hvmem__unlock_arena(heap, arena, state);
    return status;
}

hvmem_status hvmem__block_at(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem_block *block)
{
    struct hvmem__seen seen;
    hvmem_status status = hvmem__see_block(heap, mfn, &seen);

    *block = seen.block;
    return status;
}

/* ---- blocks ------------------------------------------------------------------------------------ */

hvmem_status hvmem_lookup(struct hvmem_heap *heap, hvmem_mfn mfn, struct hvmem_block *block)
{
    hvmem_status status = heap && block ? hvmem__block_at(heap, mfn, block) : HVMEM_E_ARG;

    return status ? hvmem__refuse(heap, status, mfn, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

hvmem_status hvmem_walk(struct hvmem_heap *heap, hvmem_u64 *cursor, struct hvmem_block *block)
{
    const struct hvmem__bank *b;
    hvmem_mfn at;

    if (!heap)
        return HVMEM_E_ARG;
    if (!cursor || !block)
        return hvmem__refuse(heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    while ((b = hvmem__bank_from(heap, *cursor, &at)) != HVMEM_NULL) {
        hvmem_status status = hvmem__block_at(heap, at, block);

        if (!status) {
            *cursor = block->mfn + ((hvmem_u64)1 << block->order);
            return HVMEM_AGAIN;
        }
        if (status == HVMEM_E_CORRUPT)
            return hvmem__refuse(heap, status, at, HVMEM_ORDER_ANY, 0);
        /* The bank was removed meanwhile: look again from here. Or it is not all there yet. */
        *cursor = hvmem__load(&b->filling) && hvmem__bank_holds(b, at) ? b->base + b->frames : at;
    }
    return HVMEM_OK;
}

/* ---- counts --------------------------------------------------------------------------------- */

hvmem_u64 hvmem_free_frames(struct hvmem_heap *heap)
{
    hvmem_u64 frames = 0;
    hvmem_u32 i, banks = heap ? hvmem__load(&heap->banks) : 0;

    if (!banks)
        return 0;
    for (i = 0; i < banks; i++)
        frames += hvmem__load(&heap->bank[hvmem__load(&heap->order_of_banks[i])].free_frames);
    return frames + hvmem__pcpu_cached(heap, HVMEM_NODE_ANY);
}

static void add_bank(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_node node,
                     struct hvmem_stats *stats)
{
    hvmem_u64 state;
    struct hvmem__arena *arena = hvmem__bank_lock(heap, b, &state);
    hvmem_u32 k;

    if (!arena)
        return;
    if (node == HVMEM_NODE_ANY || b->node == node) {
        stats->frames += b->frames;
        stats->free += b->free_frames;
        stats->reserved += b->reserved_frames;
        stats->offline += b->offline_frames;
        stats->quarantined += b->quarantine_frames;
        for (k = 0; k <= heap->max_order; k++)
            stats->free_blocks[k] += hvmem__set_count(b, k);
    }
    hvmem__unlock_arena(heap, arena, state);
}

/*
 * Free and claimed frames of one moment. Frames that move between a cache and an arena meanwhile would
 * count twice or not at all: again, a few times, until the caches hold the same before and after.
 */
static void snapshot(struct hvmem_heap *heap, struct hvmem_stats *stats)
{
    hvmem_u32 tries;
    hvmem_u64 before;

    for (tries = 0; tries < SNAPSHOT_TRIES; tries++) {
        before = stats->cached;
        hvmem__claim_snapshot(heap, &stats->free, &stats->claimed);
        stats->cached = hvmem__pcpu_cached(heap, HVMEM_NODE_ANY);
        if (stats->cached == before)
            return;
    }
}

hvmem_status hvmem_stats(struct hvmem_heap *heap, hvmem_node node, hvmem_size size,
                         struct hvmem_stats *stats)
{
    hvmem_u64 used;
    hvmem_u32 i;

    if (!heap)
        return HVMEM_E_ARG;
    if (!stats)
        return hvmem__refuse(heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    if (size != sizeof *stats)
        return hvmem__refuse(heap, HVMEM_E_VERSION, 0, HVMEM_ORDER_ANY, size);
    if (node != HVMEM_NODE_ANY &&
        (node >= HVMEM_NODE_LIMIT || !(hvmem__load(&heap->node_mask) >> node & 1)))
        return hvmem__refuse(heap, HVMEM_E_NODE, 0, HVMEM_ORDER_ANY, node);
    memset(stats, 0, sizeof *stats);
    for (i = 0; i < heap->max_banks; i++)
        if (hvmem__load(&heap->bank[i].live))
            add_bank(heap, &heap->bank[i], node, stats);
    stats->cached = hvmem__pcpu_cached(heap, node);
    if (node == HVMEM_NODE_ANY && hvmem__load(&heap->claims_active))
        snapshot(heap, stats);
    else if (node != HVMEM_NODE_ANY)
        stats->claimed = hvmem__claim_outstanding(heap, node);
    stats->free += stats->cached;
    used = stats->reserved + stats->offline + stats->quarantined;
    if (stats->free > stats->frames - used) /* frames that moved while they were counted */
        stats->free = stats->frames - used;
    if (stats->cached > stats->free)
        stats->cached = stats->free;
    stats->allocated = stats->frames - stats->free - used;
    stats->refused = hvmem__load(&heap->refused);
    stats->flushes = hvmem__load(&heap->flushes);
    stats->flush_cpus = hvmem__load(&heap->flush_cpus);
    return HVMEM_OK;
}

/* Whether this call is the one that changes the state. */
static int set_low(struct hvmem_heap *heap, hvmem_u32 low)
{
    hvmem_u32 old = heap->low_state;

    if (heap->host.smp)
        return __atomic_exchange_n(&heap->low_state, low, __ATOMIC_RELAXED) != low;
    heap->low_state = low;
    return old != low;
}

void hvmem__watch_now(struct hvmem_heap *heap)
{
    hvmem_u64 frames = hvmem_free_frames(heap);
    hvmem_u32 low = hvmem__load(&heap->low_state);

    if (!low && frames <= heap->low_frames) {
        if (set_low(heap, 1))
            hvmem__host_event(&heap->host, HVMEM_EVENT_LOW_MEMORY, frames, heap->low_frames);
    } else if (low && frames > heap->low_frames &&
               frames - heap->low_frames > heap->low_hysteresis) {
        if (set_low(heap, 0))
            hvmem__host_event(&heap->host, HVMEM_EVENT_MEMORY_OK, frames, heap->low_frames);
    }
}
