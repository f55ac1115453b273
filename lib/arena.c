/* SPDX-License-Identifier: BSD-2-Clause */
/* arena.c: the banks of an arena, what its node knows of it, and the blocks that hold a frame. */
#include "sets.h"

struct hvmem__bank *hvmem__arena_bank_listed(struct hvmem_heap *heap,
                                             const struct hvmem__arena *arena, hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);

    if (b && hvmem__load(&b->live) && hvmem__arena_of(heap, b) == arena &&
        hvmem__bank_holds(b, mfn))
        return b;
    return HVMEM_NULL;
}

struct hvmem__bank *hvmem__arena_bank_far(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                          struct hvmem__bank *near, hvmem_mfn mfn)
{
    if (hvmem__likely(near->live && hvmem__arena_of(heap, near) == arena)) {
        struct hvmem__bank *next = mfn < near->base ? near->before : near->next;

        if (!next || hvmem__bank_holds(next, mfn))
            return next;
    }
    return hvmem__arena_bank_listed(heap, arena, mfn);
}

/* ---- sets -------------------------------------------------------------------------------------- */

void hvmem__set_put_among(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem__set_put_in_bitmap(b, mfn, order);
}

int hvmem__set_take_among(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    return hvmem__set_take_from_bitmap(b, mfn, order);
}

/*
 * Bitmaps that one hold may search through all their levels; of more the first three, of the set of the
 * lowest order: every word of one is work.
 */
#define FEW_BITMAPS  8u
#define THREE_LEVELS (HVMEM_STEPS ? 4u : 18u)

hvmem_mfn hvmem__bank_next(const struct hvmem__bank *b, hvmem_mfn from, hvmem_u32 orders,
                           hvmem_u32 *order, hvmem_mfn *end)
{
    hvmem_mfn best = HVMEM__NO_MFN;

    *end = b->base + b->frames;
    if (from < b->base)
        from = b->base;
    orders &= b->orders;
    if (orders && (HVMEM_STEPS || hvmem__weight(orders & b->spread) > FEW_BITMAPS)) {
        hvmem_u32 shift = THREE_LEVELS + hvmem__lowest(orders);
        hvmem_mfn stop = ((from >> shift) + 1) << shift;

        *end = stop < *end ? stop : *end;
    }
    for (; orders; orders &= orders - 1) {
        hvmem_u32 k = hvmem__lowest(orders);
        hvmem_mfn next = hvmem__set_next_in(b, from, *end, k);

        if (next < best) {
            best = next;
            *order = k;
        }
    }
    return best < *end ? best : HVMEM__NO_MFN;
}

/* ---- what a node knows of its arenas ---------------------------------------------------------- */

void hvmem__arena_tell(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u32 order)
{
    hvmem_u64 *may = heap->node[arena->node].may;
    hvmem_u64 bit = (hvmem_u64)1 << arena->slot;
    hvmem_u32 k = order + 1;

    /* may[k] shrinks with k, so that the first set bit downwards ends the work. */
    while (k-- > 0) {
        if (hvmem__load(&may[k]) & bit)
            return;
        if (heap->host.smp)
            __atomic_fetch_or(&may[k], bit, __ATOMIC_RELAXED);
        else
            may[k] |= bit;
    }
}

void hvmem__arena_exhausted(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                            hvmem_u32 order)
{
    hvmem_u64 *may = heap->node[arena->node].may;
    hvmem_u64 bit = (hvmem_u64)1 << arena->slot;
    hvmem_u32 k;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    for (k = order; k <= heap->max_order; k++) {
        if (!(hvmem__load(&may[k]) & bit))
            return;
        if (heap->host.smp)
            __atomic_fetch_and(&may[k], ~bit, __ATOMIC_RELAXED);
        else
            may[k] &= ~bit;
    }
}

/* ---- blocks ------------------------------------------------------------------------------------ */

int hvmem__arena_find(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                      hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    hvmem_u32 k;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    /* Downwards from bank to bank: each is passed once. */
    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (!hb)
            continue;
        if (hvmem__set_has(hb, h, k)) {
            *head = h;
            *order = k;
            return 1;
        }
        b = hb;
    }
    return 0;
}

int hvmem__arena_block(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                       hvmem_mfn mfn, hvmem_mfn *head, struct hvmem__bank **head_bank)
{
    hvmem_u32 k;

    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (!hb)
            continue;
        if (hvmem__is_head(hb, h) && hvmem__rec_order(hvmem__load(hvmem__record_at(hb, h))) >= k) {
            *head = h;
            *head_bank = hb;
            return 1;
        }
        b = hb;
    }
    return 0;
}

int hvmem__arena_has(const struct hvmem__arena *arena, hvmem_u32 order)
{
    const struct hvmem__bank *b;

    for (b = arena->first; b; b = b->next)
        if (b->orders >> order)
            return 1;
    return 0;
}
