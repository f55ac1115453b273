/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run_across.c: runs that lie across the border of two arenas, when neither holds one. A run is no longer than a
 * span, so that it crosses one border at most, and what is free at each tells where it must begin.
 */
#include "run.h"

#include "arena.h"
#include "clock.h"
#include "testpoint.h"

/* A run that is looked for. */
struct crossing {
    struct hvmem_heap *heap;
    struct hvmem__want *want;
    hvmem_node node;
    hvmem_u64 count;
    hvmem_u32 align;
};

/* The free block on the node that holds mfn, b or its arena having changed or not. Arena lock held. */
static int find(const struct crossing *c, struct hvmem__arena *arena, struct hvmem__bank *b,
                hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    return arena->node == c->node && hvmem__bank_holds(b, mfn) &&
           hvmem__arena_find(c->heap, arena, b, mfn, head, order);
}

/* The same as a snapshot. No lock held. */
static int free_block(const struct crossing *c, hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    struct hvmem__bank *b = hvmem__bank_of(c->heap, mfn);
    struct hvmem__arena *arena;
    hvmem_u64 state;
    int found;

    if (!b)
        return 0;
    arena = hvmem__bank_lock(c->heap, b, &state);
    if (!arena)
        return 0;
    found = find(c, arena, b, mfn, head, order);
    hvmem__unlock_arena(c->heap, arena, state);
    return found;
}

/* Where a run across the border can begin: 0 if none can. */
static int place(const struct crossing *c, hvmem_mfn border, hvmem_mfn *start)
{
    const struct hvmem__window *window = c->want->window;
    hvmem_mfn floor = border > c->count ? border - c->count + 1 : 0, ceiling, head, lo, hi;
    hvmem_u32 order;

    if (window && window->lo > floor)
        floor = window->lo;
    for (lo = border; lo > floor && free_block(c, lo - 1, &head, &order); lo = head)
        continue;
    *start = hvmem__round_up(lo > floor ? lo : floor, (hvmem_u64)1 << c->align);
    ceiling = *start + c->count;
    if (*start >= border || (window && ceiling > window->hi))
        return 0;
    for (hi = border; hi < ceiling && free_block(c, hi, &head, &order);)
        hi = head + ((hvmem_u64)1 << order);
    return hi >= ceiling;
}

/* The next piece of the run. E_NOMEM: another has it, or it owes a flush; E_CLAIM. No lock held. */
static hvmem_status take(const struct crossing *c, hvmem_mfn *at, hvmem_mfn end)
{
    const struct hvmem__window *window = c->want->window;
    struct hvmem__bank *b = hvmem__bank_of(c->heap, *at);
    hvmem_status status = HVMEM_E_NOMEM;
    struct hvmem__arena *arena;
    hvmem_u32 order, size;
    hvmem_u64 state;
    hvmem_mfn head;

    arena = b ? hvmem__bank_lock(c->heap, b, &state) : HVMEM_NULL;
    if (!arena)
        return HVMEM_E_NOMEM;
    if (find(c, arena, b, *at, &head, &order)) {
        struct hvmem__bank *hb = hvmem__arena_bank(c->heap, arena, b, head);
        hvmem__record record = hvmem__load_acquire(hvmem__record_at(hb, head));

        size = hvmem__fit(c->heap, *at, end - *at);
        size = size < order ? size : order;
        if (!window || !window->avoid || !hvmem__immature(c->heap, record))
            status = hvmem__run_take_piece(c->heap, arena, hb, c->want, head, order, *at, size);
        if (!status)
            *at += (hvmem_u64)1 << size;
    }
    hvmem__unlock_arena(c->heap, arena, state);
    return status == HVMEM_E_BUSY ? HVMEM_E_NOMEM : status;
}

/* A run across this border. E_NOMEM, E_CLAIM: nothing was taken. No lock held. */
static hvmem_status cross(const struct crossing *c, hvmem_mfn border, hvmem_mfn *start)
{
    hvmem_status status = HVMEM_OK;
    hvmem_mfn at, end;

    if (!place(c, border, start))
        return HVMEM_E_NOMEM;
    c->want->drawn_on = c->node;
    at = *start;
    end = at + c->count;
    while (at < end && !status) {
        (void)HVMEM_TEST_POINT("run_across");
        status = take(c, &at, end);
    }
    if (status)
        hvmem__run_return_pieces(c->heap, c->want, *start, at);
    else
        hvmem__run_keep_pieces(c->heap, c->want, *start, end);
    return status;
}

hvmem_status hvmem__run_across(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_node node,
                               hvmem_u64 count, hvmem_u32 align, hvmem_mfn *mfn)
{
    const struct crossing crossing = {heap, want, node, count, align};
    const hvmem_mfn span = (hvmem_mfn)1 << heap->arena_order;
    hvmem_status status = HVMEM_E_NOMEM;
    hvmem_u32 i;

    for (i = 0; i < heap->max_banks && status == HVMEM_E_NOMEM; i++) {
        const struct hvmem__bank *b = &heap->bank[i];
        hvmem_mfn border = hvmem__load(&b->base);

        if (hvmem__load(&b->live) && hvmem__load(&b->node) == node && border &&
            !(border & (span - 1)))
            status = cross(&crossing, border, mfn);
    }
    return status;
}
