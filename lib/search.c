/* SPDX-License-Identifier: BSD-2-Clause */
/* search.c: which free block of an arena a request gets: by order, window, colour and debts. */
#include "sets.h"

#include "clock.h"

/* Blocks of one order looked at for one that need not wait for a flush, but for the one in front. */
#define PREFER_STEPS 3u

/* The smallest frame >= start whose bits under mask equal want; may wrap below start at the top. */
static hvmem_mfn next_coloured(hvmem_mfn start, hvmem_u64 mask, hvmem_u64 want)
{
    hvmem_u64 differ = (start ^ want) & mask;
    hvmem_u32 d, e;

    if (!differ)
        return start;
    d = hvmem__highest(differ);
    if (want >> d & 1) /* raise bit d; what is below it restarts at its smallest */
        return (start >> d << d & ~mask) | want;
    /* Bit d must fall: carry into the lowest bit above it that is 0 and not a colour bit. */
    e = hvmem__lowest(~((start | mask) >> d)) + d;
    return (((start >> e | 1) << e) & ~mask) | want;
}

/* First frame of an `order` block in the free block [head, head + 2^k) that the window allows. */
static int fits(const struct hvmem__window *w, hvmem_mfn head, hvmem_u32 k, hvmem_u32 order,
                hvmem_mfn *at)
{
    hvmem_u64 size = (hvmem_u64)1 << order;
    hvmem_mfn start = head < w->lo ? hvmem__round_up(w->lo, size) : head;
    hvmem_mfn end = head + ((hvmem_u64)1 << k);

    if (end > w->hi)
        end = w->hi;
    if (w->colour_mask)
        start =
            next_coloured(start, w->colour_mask << w->colour_shift, w->colour << w->colour_shift);
    if (start < head || start >= end || end - start < size)
        return 0;
    *at = start;
    return 1;
}

/* Whether the window forbids a block for what it owes. */
static int avoided(const struct hvmem_heap *heap, const struct hvmem__window *w,
                   hvmem__record record)
{
    return (hvmem__rec_owed(record) & w->avoid & ~HVMEM__OWES_FLUSH) ||
           ((w->avoid & HVMEM__OWES_FLUSH) && hvmem__immature(heap, record));
}

/*
 * A block of set k that owes no flush any more, if there is one among the first few: the one in front and
 * the first word of the bitmap; else the first.
 */
static hvmem_mfn first_of_set(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                              const struct hvmem__bank *b, hvmem_u32 k)
{
    hvmem_mfn first = hvmem__set_first(b, k), head;
    hvmem_u64 index, word;
    hvmem_u32 steps;

    if (hvmem__likely(!arena->owing) ||
        !hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, first))) ||
        !(b->spread >> k & 1))
        return first;
    index = hvmem__bits_first(&b->free[k]) >> 6;
    word = hvmem__bits_word(&b->free[k], index);
    for (steps = 1; word && steps < PREFER_STEPS; word &= word - 1, steps++) {
        head = ((b->base >> k) + (index << 6 | hvmem__lowest(word))) << k;
        if (!hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, head))))
            return head;
    }
    head = b->table->front[k];
    if (head != HVMEM__NO_MFN &&
        !hvmem__immature(heap, hvmem__load_acquire(hvmem__record_at(b, head))))
        return head;
    return first;
}

/*
 * Work, in tens of instructions: to pass a bank; to begin with its set; to look at a block, or for one where
 * there is none.
 */
#define BANK_WORK 3u
#define SET_WORK  4u
#define LOOK_WORK 14u
/* Times a search begins again because banks were added or removed. */
#define RESTARTS 8u

/*
 * The first block of the set at w->place, of bank b, in which the window allows an `order` block. Looks
 * at HVMEM__SEARCH_STEPS blocks at most and says where it was cut.
 */
static hvmem_status search_set(const struct hvmem_heap *heap, const struct hvmem__bank *b,
                               struct hvmem__window *w, hvmem_u32 order, struct hvmem__spot *spot)
{
    struct hvmem__place *at = &w->place;
    const hvmem_u32 k = at->order;
    hvmem_mfn floor = (w->lo > b->base ? w->lo : b->base) >> k << k;

    if (at->from < floor)
        at->from = floor;
    if (k <= w->passed_order && at->from < w->passed)
        at->from = w->passed;
    if (at->from >= b->base + b->frames)
        return HVMEM_E_NOMEM;
    while (at->looks < HVMEM__SEARCH_STEPS) {
        if (!hvmem__hold_allows(&w->hold, 1))
            return HVMEM_AGAIN;
        hvmem__spend(&w->hold.work, LOOK_WORK);
        spot->head = hvmem__set_next(b, at->from, k);
        if (spot->head == HVMEM__NO_MFN || spot->head >= w->hi) {
            hvmem__spend(&w->hold.work, LOOK_WORK); /* up all levels of the bitmap */
            return HVMEM_E_NOMEM;
        }
        at->from = spot->head;
        if (fits(w, spot->head, k, order, &spot->at) &&
            !avoided(heap, w, hvmem__load_acquire(hvmem__record_at(b, spot->head))))
            return HVMEM_OK;
        at->from = spot->head + 1;
        at->looks++;
        w->hold.moved = 1;
    }
    if (at->from < w->cut)
        w->cut = at->from;
    return HVMEM_E_NOMEM;
}

/* The set of the order at w->place in bank b; notes which higher orders the bank has. */
static hvmem_status search_bank(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                struct hvmem__bank *b, struct hvmem__window *w, hvmem_u32 order,
                                struct hvmem__spot *spot)
{
    struct hvmem__place *at = &w->place;
    hvmem_u32 orders = b->orders >> at->order, above;

    hvmem__spend(&w->hold.work, BANK_WORK);
    /* A block of the last order may reach past the bank's end into the window. */
    if (!orders || b->base >= w->hi ||
        (w->lo && hvmem__round_up(b->base + b->frames, (hvmem_u64)1 << heap->max_order) <= w->lo))
        return HVMEM_E_NOMEM;
    if (orders & ~1u) {
        above = at->order + hvmem__lowest(orders & ~1u);
        at->above = above < at->above ? above : at->above;
    }
    if (!(orders & 1))
        return HVMEM_E_NOMEM;
    hvmem__spend(&w->hold.work, SET_WORK);
    spot->bank = b;
    spot->order = at->order;
    if (!w->anywhere)
        return search_set(heap, b, w, order, spot);
    hvmem__spend(&w->hold.work, LOOK_WORK);
    spot->head = spot->at = first_of_set(heap, arena, b, at->order);
    return HVMEM_OK;
}

/* The search goes on with the first bank. */
static void from_first(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                       struct hvmem__place *at, hvmem_u32 order)
{
    at->bank = arena->first;
    at->order = order;
    at->above = heap->max_order + 1;
    at->from = 0;
    at->looks = 0;
}

/* As hvmem__arena_search(), in a window, wherever the search stands. */
static hvmem_status search_window(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                  struct hvmem__window *w, hvmem_u32 order,
                                  struct hvmem__spot *spot)
{
    const hvmem_u32 last =
        w->largest && w->largest < heap->max_order ? w->largest : heap->max_order;
    struct hvmem__place *at = &w->place;
    hvmem_status status;

    while (at->bank && at->order <= last) {
        if (!hvmem__hold_allows(&w->hold, 1))
            return HVMEM_AGAIN;
        status = search_bank(heap, arena, at->bank, w, order, spot);
        if (status != HVMEM_E_NOMEM)
            return status;
        w->hold.moved = 1;
        at->from = 0;
        at->looks = 0;
        if (at->bank->next)
            at->bank = at->bank->next;
        else
            from_first(heap, arena, at, at->above);
    }
    at->bank = HVMEM_NULL;
    return HVMEM_E_NOMEM;
}

hvmem_status hvmem__arena_first(const struct hvmem__arena *arena, hvmem_u32 order,
                                struct hvmem__spot *spot)
{
    spot->order = order;
    spot->bank = hvmem__set_smallest(arena, &spot->order);
    if (!spot->bank)
        return HVMEM_E_NOMEM;
    spot->head = spot->at = hvmem__set_first(spot->bank, spot->order);
    return HVMEM_OK;
}

/*
 * Whether the first block of all is one that the window allows, which only avoids debts: where there are
 * few banks nothing need be remembered then. Arena lock held.
 */
static int first_will_do(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                         struct hvmem__window *w, hvmem_u32 order, struct hvmem__spot *spot)
{
    if ((w->lo | ~w->hi | w->colour_mask) || w->hold.work < HVMEM__TAKE_WORK ||
        hvmem__arena_many(arena) || hvmem__arena_first(arena, order, spot))
        return 0;
    hvmem__spend(&w->hold.work, LOOK_WORK);
    return (!w->largest || spot->order <= w->largest) &&
           !avoided(heap, w, hvmem__load_acquire(hvmem__record_at(spot->bank, spot->head)));
}

hvmem_status hvmem__arena_search(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                 struct hvmem__window *w, hvmem_u32 order, struct hvmem__spot *spot)
{
    hvmem_status status;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    if (hvmem__likely(!w)) {
        spot->order = order;
        spot->bank = hvmem__set_smallest(arena, &spot->order);
        if (!spot->bank)
            return HVMEM_E_NOMEM;
        spot->head = spot->at = first_of_set(heap, arena, spot->bank, spot->order);
        return HVMEM_OK;
    }
    if (w->place.bank && w->place.links != arena->links) {
        w->place.bank = HVMEM_NULL;
        if (++w->restarts > RESTARTS)
            return HVMEM_E_NOMEM;
    }
    if (!w->place.bank) {
        w->cut = HVMEM__NOT_CUT;
        if (hvmem__likely(first_will_do(heap, arena, w, order, spot)))
            return HVMEM_OK;
        from_first(heap, arena, &w->place, order);
        w->place.links = arena->links;
        w->place.moves = arena->moves;
    }
    status = search_window(heap, arena, w, order, spot);
    /* What is left must do for taking it; else it is the first that the next hold looks at. */
    if (!status && w->hold.moved && w->hold.work < HVMEM__TAKE_WORK)
        return HVMEM_AGAIN;
    if (!status)
        w->place.bank = HVMEM_NULL;
    return status;
}
