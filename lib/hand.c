/* SPDX-License-Identifier: BSD-2-Clause */
/* hand.c: blocks that are taken out of the sets exactly, in as many holds as their splits take. */
#include "hand.h"

#include "testpoint.h"

/* The block in hand is RESERVED if it is the one of `order`, on its way otherwise. Arena lock held. */
static void mark(const struct hvmem__hand *hand, hvmem_u32 order, hvmem__record as)
{
    if (hvmem__rec_order(hand->record) != order) {
        hvmem__hand_keep(hand);
        return;
    }
    hand->bank->reserved_frames += (hvmem_u64)1 << order;
    hvmem__arena_mark(hand->bank, hand->mfn,
                      hvmem__rec_with_state(hand->record | as, HVMEM_BLOCK_RESERVED));
}

void hvmem__hand_reserve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                         struct hvmem__hand *hand, const struct hvmem__spot *spot, hvmem_u32 order,
                         hvmem__record as)
{
    hvmem_u32 stop = hvmem__hand_stop(spot, order);

    hvmem__hand_take(heap, arena, hand, spot, stop);
    hvmem__claim_force(heap, arena, ((hvmem_u64)1 << stop) - ((hvmem_u64)1 << order));
    mark(hand, order, as);
}

void hvmem__hand_reserve_on(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__hand *hand, hvmem_u32 order, hvmem__record as)
{
    while (hvmem__rec_order(hand->record) != order) {
        hvmem_u64 state;

        (void)HVMEM_TEST_POINT("hand_again");
        state = hvmem__lock_arena(heap, arena);
        hvmem__hand_split(heap, arena, hand, order);
        mark(hand, order, as);
        hvmem__unlock_arena(heap, arena, state);
    }
}
