/* SPDX-License-Identifier: BSD-2-Clause */
/* plain.c: plain blocks out of an arena and back: the shortest ways under its lock, each function inline. */
#include "plain.h"

#include "claim.h"
#include "free.h"
#include "magazine.h"
#include "sets.h"
#include "take.h"
#include "testpoint.h"

/*
 * A CPU that met a bank remembers it for hvmem__pcpu_bank_of(). Lock of the bank's arena held, the bank live:
 * so it is forgotten again when the bank goes.
 */
HVMEM_INLINE void remember(struct hvmem__pcpu *pc, struct hvmem__bank *b)
{
    if (hvmem__load(&pc->met) != b)
        hvmem__store(&pc->met, b);
}

/* ---- out ------------------------------------------------------------------------------------ */

/*
 * Take one block of `order`, the smallest there is, of the lowest address, split if it must be. Returns its
 * bank, or NULL if there is none, it owes something, or its split takes more than one hold: nothing was
 * changed then. The caller sets the head bit and the record. Arena lock held.
 */
HVMEM_INLINE struct hvmem__bank *take_first(const struct hvmem__arena *arena, hvmem_u32 order,
                                            hvmem_mfn *mfn)
{
    hvmem_u32 k = order;
    struct hvmem__bank *b = hvmem__set_smallest(arena, &k);
    hvmem_mfn first;

    if (hvmem__unlikely(!b))
        return HVMEM_NULL;
    *mfn = first = hvmem__set_first(b, k);
    if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(hvmem__record_at(b, first)))))
        return HVMEM_NULL;
    if (k != order)
        return hvmem__arena_split_plain(b, first, k, order) ? b : HVMEM_NULL;
    hvmem__add_frames(b, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    (void)hvmem__set_take(b, first, order);
    return b;
}

/* As hvmem__plain_take_some(). */
HVMEM_INLINE hvmem_u32 take(struct hvmem_heap *heap, hvmem__record keep, hvmem_mfn *blocks,
                            hvmem_u32 n)
{
    const hvmem_u32 order = hvmem__rec_order(keep);
    const hvmem_cpu cpu = hvmem__pcpu_number(heap);
    const hvmem_node node = heap->cpu_node[cpu];
    const hvmem_u64 candidates = hvmem__candidates(heap, node, order);
    struct hvmem__arena *arena;
    hvmem_u32 got = 0;
    hvmem_u64 state;

    if (hvmem__unlikely(!candidates))
        return 0;
    arena = hvmem__arena_at(heap, node, hvmem__next_slot(candidates, hvmem__first_slot(cpu)));
    state = hvmem__lock_arena(heap, arena);
    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    while (hvmem__likely(arena->plain)) {
        hvmem_mfn mfn = 0;
        struct hvmem__bank *b = take_first(arena, order, &mfn);

        if (hvmem__unlikely(!b))
            break;
        hvmem__arena_mark_taken(b, mfn, keep);
        hvmem__store(&blocks[got], mfn);
        if (++got == n) {
            remember(&heap->pcpu[cpu], b);
            break;
        }
    }
    hvmem__unlock_arena(heap, arena, state);
    return got;
}

int hvmem__plain_take(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn)
{
    return (int)take(heap, hvmem__rec_make(order, HVMEM_BLOCK_ALLOCATED, 0), mfn, 1);
}

hvmem_u32 hvmem__plain_take_some(struct hvmem_heap *heap, hvmem__record keep, hvmem_mfn *blocks,
                                 hvmem_u32 n)
{
    return take(heap, keep, blocks, n);
}

/* ---- back ----------------------------------------------------------------------------------- */

/*
 * Work after which a lock section of a list of frees lets others in, in merges (hvmem__arena_give); a
 * block costs as much as FREE_WORK of them by itself. The last block may rise by all orders.
 */
#define BULK_WORK HVMEM__PER_HOLD(38u)
#define FREE_WORK 4u

/* A block is to be freed: what its record says, and whether it may be freed without the lock as well. */
struct plain {
    hvmem__record allocated;
    hvmem__record transit; /* while it is taken from its owner */
    int exchange;          /* it goes through magazines: of two that free it one does (frame.h) */
};

/*
 * Take a block from its owner: its head bit is cleared. Whether it was a plain one. Arena lock held.
 */
HVMEM_INLINE int take_back(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                           const struct plain *plain)
{
    hvmem_u64 index = mfn - b->base;
    struct hvmem__member head;

    if (hvmem__unlikely(index >= b->frames) ||
        hvmem__unlikely(!hvmem__bits_find(&b->head, index, &head)) ||
        hvmem__unlikely(hvmem__load(&b->record[index]) != plain->allocated))
        return 0;
    hvmem__table_changes(b->table);
    if (plain->exchange &&
        !hvmem__frame_claim(&heap->host, &b->record[index], plain->allocated, plain->transit))
        return 0;
    (void)HVMEM_TEST_POINT("free_plain");
    hvmem__bits_drop(&b->head, index, &head);
    return 1;
}

/* The block becomes free. Returns the work of merging (hvmem__arena_give). Arena lock held. */
HVMEM_INLINE hvmem_u32 give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    const hvmem_u64 frames = (hvmem_u64)1 << order;
    const hvmem__record record = hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0);

    hvmem__claim_give(heap, arena, frames);
    hvmem__frames_come(arena, b, frames);
    if (!hvmem__set_stays(heap, b, mfn, order))
        return hvmem__arena_merge(heap, arena, b, mfn, record);
    hvmem__enter(b, mfn, order, record);
    hvmem__arena_offer(heap, arena, order);
    return 0;
}

/* As hvmem__plain_free_some(). */
HVMEM_INLINE hvmem_u32 free_blocks(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 n,
                                   hvmem_u32 order)
{
    const struct plain plain = {hvmem__rec_make(order, HVMEM_BLOCK_ALLOCATED, 0),
                                hvmem__rec_make(order, HVMEM_BLOCK_CACHED, 0),
                                hvmem__has_magazine(heap, order)};
    struct hvmem__pcpu *pc = &heap->pcpu[hvmem__pcpu_number(heap)];
    struct hvmem__bank *b = hvmem__pcpu_bank_of(heap, pc, blocks[0]);
    hvmem_u32 done = 0, work = 0;
    struct hvmem__arena *arena;
    hvmem_u64 state;

    if (hvmem__unlikely(!b || order > heap->max_order || heap->adopting))
        return 0;
    arena = hvmem__bank_lock(heap, b, &state);
    if (hvmem__unlikely(!arena))
        return 0;
    do {
        if (!take_back(heap, b, blocks[done], &plain))
            break;
        work += FREE_WORK + give(heap, arena, b, blocks[done], order);
    } while (++done < n && work < BULK_WORK);
    if (hvmem__likely(done))
        remember(pc, b);
    hvmem__unlock_arena(heap, arena, state);
    if (hvmem__likely(done)) {
        hvmem__give_on(heap, blocks[done - 1], work);
        hvmem__watch(heap);
    }
    return done;
}

int hvmem__plain_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order)
{
    return (int)free_blocks(heap, &mfn, 1, order);
}

hvmem_u32 hvmem__plain_free_some(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 n,
                                 hvmem_u32 order)
{
    return free_blocks(heap, blocks, n, order);
}
