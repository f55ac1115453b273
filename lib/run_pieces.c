/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run_pieces.c: the pieces of a run over several free blocks. Those that were taken are in nobody's hands but
 * the taker's, as blocks on their way are (CACHED), until all are there, or they go back.
 */
#include "run.h"

#include "arena.h"
#include "claim.h"
#include "drain.h"

/* Pieces given back under one hold. */
#define RETURNS HVMEM__PER_HOLD(5u)

/* Draw on claims for one piece: HVMEM_OK, E_CLAIM, E_BUSY: one was set anew meanwhile. Arena lock held. */
static hvmem_status draw(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                         struct hvmem__want *want, hvmem_u64 frames)
{
    struct hvmem__drawn drawn;
    hvmem_status status;

    hvmem__claim_take(heap, arena, want->domain, frames, &drawn);
    if (drawn.frames == frames && hvmem__claim_joins(&want->drawn, &drawn)) {
        hvmem__claim_join(&want->drawn, &drawn);
        return HVMEM_OK;
    }
    status = drawn.frames == frames ? HVMEM_E_BUSY : HVMEM_E_CLAIM;
    hvmem__claim_untake(heap, arena, &drawn, drawn.frames);
    return status;
}

hvmem_status hvmem__run_take_piece(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                   struct hvmem__bank *near, struct hvmem__want *want,
                                   hvmem_mfn head, hvmem_u32 head_order, hvmem_mfn mfn,
                                   hvmem_u32 order)
{
    hvmem_status status = draw(heap, arena, want, (hvmem_u64)1 << order);
    struct hvmem__bank *b;
    hvmem__record record;

    if (status)
        return status;
    b = hvmem__arena_bank(heap, arena, near, mfn);
    record = hvmem__arena_carve(heap, arena, b, head, head_order, mfn, order);
    hvmem__arena_mark(b, mfn, hvmem__rec_with_state(record, HVMEM_BLOCK_CACHED));
    return HVMEM_OK;
}

void hvmem__run_keep_pieces(struct hvmem_heap *heap, const struct hvmem__want *want, hvmem_mfn mfn,
                            hvmem_mfn end)
{
    while (mfn < end) {
        struct hvmem__bank *b = hvmem__bank_of(heap, mfn); /* stays, for its frames are ours */
        hvmem__record *at = hvmem__record_at(b, mfn);
        hvmem__record record = hvmem__load(at);

        hvmem__table_changes(b->table);
        hvmem__store_release(at,
                             hvmem__rec_with_state(record, 0) | (want->keep & ~(hvmem__record)31u));
        mfn += (hvmem_u64)1 << hvmem__rec_order(record);
    }
}

void hvmem__run_return_pieces(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_mfn mfn,
                              hvmem_mfn end)
{
    hvmem__claim_refund(heap, want->drawn_on, &want->drawn);
    memset(&want->drawn, 0, sizeof want->drawn);
    while (mfn < end) {
        struct hvmem__bank *b = hvmem__bank_of(heap, mfn); /* stays, for its frames are ours */
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 state = hvmem__lock_arena(heap, arena);
        hvmem_u32 merged = 0, n;

        for (n = 0; n < RETURNS && mfn < end && merged < HVMEM__GIVE_CUT; n++) {
            hvmem__record record;

            b = hvmem__arena_bank(heap, arena, b, mfn);
            if (!b) /* of another arena */
                break;
            record = hvmem__load(hvmem__record_at(b, mfn));
            merged = hvmem__return_block(heap, arena, b, mfn, record);
            mfn += (hvmem_u64)1 << hvmem__rec_order(record);
        }
        hvmem__unlock_arena(heap, arena, state);
        hvmem__give_on(heap, mfn - 1, merged);
    }
}
