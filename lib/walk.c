/* SPDX-License-Identifier: BSD-2-Clause */
/* walk.c: going through the banks of a heap. */
#include "walk.h"

#include "arena.h"

/* Blocks looked at under one lock, and frames, of which many may be in few blocks. */
#define STEP        (HVMEM__IN_STEPS ? 1u : 48u)
#define STEP_FRAMES ((hvmem_u64)1 << (HVMEM__IN_STEPS ? 4u : 18u))

struct hvmem__bank *hvmem__bank_from(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_mfn *start)
{
    struct hvmem__bank *best = HVMEM_NULL;
    hvmem_u32 i;

    for (i = 0; i < heap->max_banks; i++) {
        struct hvmem__bank *b = &heap->bank[i];

        if (hvmem__load(&b->live) && b->base + b->frames > mfn && (!best || b->base < best->base))
            best = b;
    }
    if (best)
        *start = best->base > mfn ? best->base : mfn;
    return best;
}

/* Where a step through bank b that begins at a frame of it ends. */
static hvmem_mfn step_end(const struct hvmem__bank *b, hvmem_mfn at, hvmem_mfn end)
{
    hvmem_mfn stop = b->base + b->frames < end ? b->base + b->frames : end;

    return stop - at > STEP_FRAMES ? at + STEP_FRAMES : stop;
}

/* The same within one bank. Arena lock held. */
static int next_in(const struct hvmem__bank *b, hvmem_u32 owner, hvmem_mfn *at, hvmem_mfn end,
                   struct hvmem__owned *found)
{
    hvmem_mfn stop = step_end(b, *at, end);
    hvmem_u32 steps;

    for (steps = 0; steps < STEP; steps++) {
        hvmem_u64 offset = hvmem__bits_next(&b->head, *at - b->base, stop - b->base);

        if (offset == HVMEM__BITS_NONE) {
            *at = stop;
            return stop == end ? 0 : -1;
        }
        found->mfn = b->base + offset;
        found->record = hvmem__load_acquire(&b->record[offset]);
        *at = found->mfn + 1;
        if (hvmem__rec_owner(found->record) == owner)
            return 1;
    }
    return -1;
}

int hvmem__next_owned(struct hvmem_heap *heap, hvmem_u32 owner, hvmem_mfn *at, hvmem_mfn end,
                      struct hvmem__owned *found)
{
    struct hvmem__bank *b = *at < end ? hvmem__bank_from(heap, *at, at) : HVMEM_NULL;
    struct hvmem__arena *arena;
    hvmem_u64 state;
    int result = -1;

    if (!b || *at >= end) {
        *at = end;
        return 0;
    }
    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return -1;
    found->bank = b;
    if (hvmem__bank_holds(b, *at))
        result = next_in(b, owner, at, end, found);
    hvmem__unlock_arena(heap, arena, state);
    return result;
}

/* Whether it may be walked by hardware, or is about to be a table again. */
static int is_of_tables(hvmem__record record)
{
    return hvmem__rec_table(record) || hvmem__rec_state(record) == HVMEM_BLOCK_GATHERED;
}

/* A block in use that begins at `at` and holds all up to `end`: its owner's, so that its bank stays. */
static int is_owned(const struct hvmem__bank *b, hvmem_mfn at, hvmem_mfn end)
{
    hvmem__record record;

    if (!hvmem__bank_holds(b, at) || !hvmem__is_head(b, at))
        return 0;
    record = hvmem__load_acquire(hvmem__record_at(b, at));
    return hvmem__rec_state(record) == HVMEM_BLOCK_ALLOCATED && !hvmem__rec_table(record) &&
           end - at <= (hvmem_u64)1 << hvmem__rec_order(record);
}

/* The same within one bank. Arena lock held. */
static int next_table_in(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn *at, hvmem_mfn end)
{
    hvmem_mfn stop = step_end(b, *at, end), head;
    struct hvmem__bank *hb;
    hvmem_u32 steps;

    /* The first may lie in the middle of its block. */
    if (hvmem__arena_block(heap, arena, b, *at, &head, &hb) &&
        is_of_tables(hvmem__load_acquire(hvmem__record_at(hb, head))))
        return 1;
    for (steps = 0; steps < STEP; steps++) {
        hvmem_u64 offset = hvmem__bits_next(&b->head, *at - b->base, stop - b->base);

        if (offset == HVMEM__BITS_NONE) {
            *at = stop;
            return stop == end ? 0 : -1;
        }
        *at = b->base + offset;
        if (is_of_tables(hvmem__load_acquire(&b->record[offset])))
            return 1;
        ++*at;
    }
    return -1;
}

int hvmem__next_table(struct hvmem_heap *heap, hvmem_mfn *at, hvmem_mfn end)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, *at);
    struct hvmem__arena *arena;
    hvmem_u64 state;
    int result = -1;

    if (b && is_owned(b, *at, end)) {
        *at = end;
        return 0;
    }
    if (!b)
        b = hvmem__bank_from(heap, *at, at);
    if (!b || *at >= end) {
        *at = end;
        return 0;
    }
    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return -1;
    if (hvmem__bank_holds(b, *at))
        result = next_table_in(heap, arena, b, at, end);
    hvmem__unlock_arena(heap, arena, state);
    return result;
}
