/* SPDX-License-Identifier: BSD-2-Clause */
/* audit.c: hvmem_audit(): a walk over every block that trusts nothing. */
#include "audit.h"

#include "clock.h"
#include "drain.h"
#include "free.h"
#include "sets.h"

/* ---- one block ------------------------------------------------------------------------------ */

/* How many descriptions of a block at or over mfn there are must be exactly one. */
static hvmem_u32 free_orders_at(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 *order)
{
    hvmem_u32 k, n = 0;

    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (hb && hvmem__set_has(hb, h, k)) {
            *order = k;
            n++;
        }
    }
    return n;
}

static int is_free_block(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem_u32 k)
{
    struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, mfn);

    return hb && hvmem__set_has(hb, mfn, k);
}

/* Whether all frames of a block belong to banks of the arena. */
static int inside(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                  hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_mfn end = mfn + ((hvmem_u64)1 << order);

    while (mfn < end) {
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, mfn);

        if (!hb)
            return 0;
        mfn = hb->base + hb->frames;
    }
    return 1;
}

/* No other block may start inside [mfn + 1, mfn + 2^order). */
static int starts_inside(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_mfn end = mfn + ((hvmem_u64)1 << order), at = mfn + 1;
    hvmem_u32 k;

    for (; at < end; at = b->base + b->frames) {
        b = hvmem__arena_bank(heap, arena, b, at);
        if (hvmem__bits_next(&b->head, at - b->base, end - b->base) != HVMEM__BITS_NONE)
            return 1;
        for (k = 0; k < order; k++)
            if (hvmem__set_next(b, at, k) < end)
                return 1;
    }
    return 0;
}

/*
 * Dirt of a MIXED block: that of its halves must itself be well formed, never two equal pure ones; `whole`:
 * and so on down to single frames, otherwise at its own node alone.
 */
static int dirt_is_sound(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem__record record, int whole)
{
    hvmem_mfn right[HVMEM_ORDER_LIMIT + 1]; /* halves still to be looked at, one an order at most */
    hvmem_u32 order = hvmem__rec_order(record), left_over = 0;

    if (hvmem__rec_state(record) == HVMEM_BLOCK_GATHERED ||
        hvmem__rec_dirt(record) != HVMEM__DIRT_MIXED)
        return 1;
    for (;;) {
        hvmem__record node;

        if (!order--)
            return 0;
        right[order] = mfn + ((hvmem_u64)1 << order);
        b = hvmem__arena_bank(heap, arena, b, right[order]);
        node = b ? hvmem__load(hvmem__record_at(b, right[order])) : 0;
        if (!hvmem__node_is_sound(node))
            return 0;
        if (hvmem__node_right(node) == HVMEM__MARK_MIXED)
            left_over |= 1u << order;
        if (!whole)
            return 1;
        if (hvmem__node_left(node) == HVMEM__MARK_MIXED)
            continue;
        if (!left_over)
            return 1;
        order = hvmem__lowest(left_over);
        left_over &= left_over - 1;
        mfn = right[order];
    }
}

/* Whether a record is one that a free block can have. */
static int is_free_record(hvmem__record record, hvmem_u32 order)
{
    hvmem_u32 bias = hvmem__rec_bias(record);

    return hvmem__rec_order(record) == order && hvmem__rec_state(record) == HVMEM_BLOCK_FREE &&
           !hvmem__rec_owner(record) &&
           (!bias || (bias == HVMEM__BIAS_MIXED && hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED));
}

/* unmerged: buddies may be free. */
static const char *check_free(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order, int unmerged)
{
    hvmem__record record = hvmem__load(hvmem__record_at(b, mfn));

    if (!is_free_record(record, order))
        return "record of a free block";
    if (!arena->owing && hvmem__rec_owed(record) & HVMEM__OWES_FLUSH)
        return "free block owes a flush, its arena does not know";
    if (b->table->front[order] == mfn &&
        hvmem__bits_test(&b->free[order], hvmem__set_index(b, mfn, order)))
        return "front of a set also in its bitmap";
    if (!unmerged && order < heap->max_order &&
        is_free_block(heap, arena, b, mfn ^ (hvmem_u64)1 << order, order))
        return "free buddies not merged";
    return dirt_is_sound(heap, arena, b, mfn, record, !unmerged) ? HVMEM_NULL
                                                                 : "dirt of a mixed block";
}

static const char *check_used(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                              struct hvmem__found *found)
{
    hvmem_u64 frames = (hvmem_u64)1 << hvmem__rec_order(record);

    if (hvmem__rec_owner(record) > heap->max_domains)
        return "owner beyond the configured domains";
    if (!found->lost_allowed && !hvmem__audit_owner(heap, record))
        return "owner that is no domain";
    switch (hvmem__rec_state(record)) {
    case HVMEM_BLOCK_FREE:
        return "head of a block without state";
    case HVMEM_BLOCK_RESERVED:
        found->reserved += frames;
        break;
    case HVMEM_BLOCK_OFFLINE:
        if (hvmem__rec_order(record) || hvmem__rec_owner(record))
            return "frame out of service in a block";
        found->offline += frames;
        break;
    case HVMEM_BLOCK_QUARANTINE:
        if (hvmem__rec_owner(record))
            return "owner of a block in quarantine";
        found->quarantined += frames;
        break;
    case HVMEM_BLOCK_CACHED:
        found->cached += frames;
        break;
    case HVMEM_BLOCK_GATHERED:
        found->gathered += frames;
        break;
    default:
        break;
    }
    return dirt_is_sound(heap, arena, b, mfn, record, !found->lost_allowed)
               ? HVMEM_NULL
               : "dirt of a mixed block";
}

/* The block that starts at mfn. Sets its order. */
static const char *check_block(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 *order,
                               struct hvmem__found *found)
{
    hvmem_u32 frees = free_orders_at(heap, arena, b, mfn, order);
    const char *where;

    if (hvmem__is_head(b, mfn)) {
        hvmem__record record = hvmem__load(hvmem__record_at(b, mfn));

        *order = hvmem__rec_order(record);
        if (frees)
            return "frame both free and in use";
        if (*order > heap->max_order || (mfn & (((hvmem_u64)1 << *order) - 1)))
            return "block misaligned or too large";
        where = check_used(heap, arena, b, mfn, record, found);
    } else {
        if (!frees && found->lost_allowed)
            return HVMEM_NULL;
        if (!frees)
            return "frame in no block";
        if (frees > 1 || !is_free_block(heap, arena, b, mfn, *order))
            return "free blocks overlap";
        found->free_blocks[*order]++;
        where = check_free(heap, arena, b, mfn, *order, (int)found->lost_allowed);
    }
    if (where)
        return where;
    if (!inside(heap, arena, b, mfn, *order))
        return "block reaches outside its arena";
    return starts_inside(heap, arena, b, mfn, *order) ? "block inside a block" : HVMEM_NULL;
}

/* ---- banks and counts ----------------------------------------------------------------------- */

/* A block of an earlier bank may cover the first frames of this one. */
static hvmem_mfn skip_covered(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b)
{
    struct hvmem__bank *hb;
    hvmem_mfn head;
    hvmem_u32 order;

    if (hvmem__arena_find(heap, arena, b, b->base, &head, &order) && head < b->base)
        return head + ((hvmem_u64)1 << order);
    if (hvmem__arena_block(heap, arena, b, b->base, &head, &hb) && head < b->base)
        return head + ((hvmem_u64)1 << hvmem__rec_order(hvmem__load(hvmem__record_at(hb, head))));
    return b->base;
}

hvmem_status hvmem__audit_bank(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__bank *b, hvmem_mfn *at, hvmem_u32 steps,
                               struct hvmem__found *found)
{
    if (*at <= b->base)
        *at = skip_covered(heap, arena, b);
    while (*at < b->base + b->frames) {
        hvmem_u32 order = 0;

        if (!steps--)
            return HVMEM_AGAIN;
        found->where = check_block(heap, arena, b, *at, &order, found);
        if (found->where)
            return HVMEM_E_CORRUPT;
        *at += (hvmem_u64)1 << order;
    }
    return HVMEM_OK;
}

static hvmem_status audit_arena(struct hvmem_heap *heap, struct hvmem__arena *arena, hvmem_mfn *mfn,
                                const char **where, hvmem_u64 *cached)
{
    hvmem_u64 state = hvmem__lock_arena(heap, arena);
    hvmem_status status = HVMEM_OK;
    struct hvmem__bank *b;

    for (b = arena->first; b && !status; b = b->next) {
        struct hvmem__found found;

        memset(&found, 0, sizeof found);
        *mfn = b->base;
        status = hvmem__audit_bank(heap, arena, b, mfn, ~(hvmem_u32)0, &found);
        if (!status)
            found.where = hvmem__audit_counts(heap, b, &found);
        if (found.where) {
            status = HVMEM_E_CORRUPT;
            *where = found.where;
        }
        *cached += found.cached;
    }
    hvmem__unlock_arena(heap, arena, state);
    return status;
}

hvmem_status hvmem_audit(struct hvmem_heap *heap, hvmem_mfn *mfn, const char **where)
{
    hvmem_u64 state, cached = 0;
    hvmem_status status = HVMEM_OK;
    hvmem_u32 i;

    if (!heap)
        return HVMEM_E_ARG;
    if (!mfn || !where)
        return hvmem__refuse(heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    *where = "nothing";
    state = hvmem__lock_admin(heap);
    hvmem__audit_begin(heap);
    for (i = 0; i < heap->arenas && !status; i++)
        status = audit_arena(heap, &heap->arena[i], mfn, where, &cached);
    if (!status) {
        const char *wrong = cached != hvmem__pcpu_cached(heap, HVMEM_NODE_ANY)
                                ? "count of cached frames"
                                : hvmem__audit_end(heap);

        if (wrong) {
            status = HVMEM_E_CORRUPT;
            *where = wrong;
            *mfn = 0;
        }
    }
    hvmem__unlock_admin(heap, state);
    return status ? hvmem__refuse(heap, status, *mfn, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}
