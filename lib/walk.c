/* SPDX-License-Identifier: BSD-2-Clause */
/* walk.c: going through the banks of a heap. */
#include "walk.h"

#include "arena.h"
#include "free.h"

/* Blocks looked at under one lock, and frames, of which many may be in few blocks. */
#define STEP        HVMEM__PER_HOLD(48u)
#define STEP_FRAMES ((hvmem_u64)1 << (HVMEM_STEPS ? 4u : 18u))

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

/* Whether a guest may get the block of this record. */
static hvmem_status may_map_block(const struct hvmem__mapper *mapper, hvmem__record record)
{
    hvmem_u32 state = hvmem__rec_state(record), owner = hvmem__rec_owner(record);

    if (state == HVMEM_BLOCK_RESERVED)
        return hvmem__rec_taken_out(record) ? HVMEM_E_FREE : HVMEM_OK;
    if (hvmem__state_error(state))
        return hvmem__state_error(state);
    /* (Being freed in steps it is unreachable already, and will not be flushed for again.) */
    if (hvmem__rec_table(record) || hvmem__rec_bias(record) == HVMEM__BIAS_SCRUBBING)
        return HVMEM_E_GATHERED;
    if (!owner || owner == mapper->guest || owner == mapper->payer ||
        !(mapper->guest | mapper->payer))
        return HVMEM_OK;
    /* Said so by its owner, and no debt of an earlier one (hvmem__rec_debts()). */
    return (hvmem__rec_owed(record) & (HVMEM_OWES_FOREIGN | HVMEM_OWES_TLB)) == HVMEM_OWES_FOREIGN
               ? HVMEM_OK
               : HVMEM_E_OWNER;
}

/* A block in use that begins at `at` and holds all up to `end`: its owner's, so that its bank stays. */
static int is_owned(const struct hvmem__mapper *mapper, const struct hvmem__bank *b, hvmem_mfn at,
                    hvmem_mfn end)
{
    hvmem__record record;

    if (!hvmem__bank_holds(b, at) || !hvmem__is_head(b, at))
        return 0;
    record = hvmem__load_acquire(hvmem__record_at(b, at));
    return hvmem__rec_state(record) == HVMEM_BLOCK_ALLOCATED && !may_map_block(mapper, record) &&
           end - at <= (hvmem_u64)1 << hvmem__rec_order(record);
}

/* The same within one bank, block by block. Arena lock held. */
static hvmem_status may_map_in(struct hvmem_heap *heap, const struct hvmem__mapper *mapper,
                               struct hvmem__arena *arena, struct hvmem__bank *b, hvmem_mfn *at,
                               hvmem_mfn end)
{
    struct hvmem__bank *hb = b;
    hvmem_mfn head = *at;
    hvmem__record record;
    hvmem_status status;
    hvmem_u32 steps;

    /* The first may lie in the middle of its block, which may begin in another bank. */
    if (!hvmem__arena_block(heap, arena, b, *at, &head, &hb))
        return HVMEM_E_FREE;
    for (steps = 0; steps < STEP; steps++, hb = b) {
        record = hvmem__load_acquire(hvmem__record_at(hb, head));
        status = may_map_block(mapper, record);
        if (status)
            return status;
        head += (hvmem_u64)1 << hvmem__rec_order(record);
        *at = head < end ? head : end;
        if (head >= end)
            return HVMEM_OK;
        if (!hvmem__bank_holds(b, head))
            break;
        if (!hvmem__is_head(b, head))
            return HVMEM_E_FREE; /* in no block outside the sets */
    }
    return HVMEM_AGAIN;
}

hvmem_status hvmem__may_map(struct hvmem_heap *heap, const struct hvmem__mapper *mapper,
                            hvmem_mfn *at, hvmem_mfn end)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, *at);
    hvmem_status status = HVMEM_AGAIN;
    struct hvmem__arena *arena;
    hvmem_u64 state;

    if (b && is_owned(mapper, b, *at, end)) {
        *at = end;
        return HVMEM_OK;
    }
    if (!b)
        b = hvmem__bank_from(heap, *at, at);
    if (!b || *at >= end) {
        *at = end;
        return HVMEM_OK;
    }
    arena = hvmem__bank_lock(heap, b, &state);
    if (!arena)
        return HVMEM_AGAIN;
    if (hvmem__bank_holds(b, *at))
        status = may_map_in(heap, mapper, arena, b, at, end);
    hvmem__unlock_arena(heap, arena, state);
    return status;
}
