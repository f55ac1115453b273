/* SPDX-License-Identifier: BSD-2-Clause */
/* arena.c: buddy mechanics over the banks of one arena. */
#include "arena.h"

#include "clock.h"

struct hvmem__bank *hvmem__arena_bank_far(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                          struct hvmem__bank *near, hvmem_mfn mfn)
{
    hvmem_u32 number = arena->first_bank;

    /* By address: what lies above `near` is found from there on. */
    if (mfn > near->base && near->live && &heap->arena[near->arena] == arena)
        number = near->next;
    for (; number != HVMEM__NO_BANK && heap->bank[number].base <= mfn;
         number = heap->bank[number].next)
        if (hvmem__bank_holds(&heap->bank[number], mfn))
            return &heap->bank[number];
    return HVMEM_NULL;
}

/* ---- one block in and out of the sets ------------------------------------------------------- */

/* Enter a free block without merging; frames are counted by the caller. Arena lock held. */
HVMEM_INLINE void enter(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order, hvmem__record record)
{
    hvmem__store(hvmem__record_at(b, mfn), record);
    hvmem__bits_set(&b->free[order], hvmem__block_index(b, mfn, order));
    hvmem__store(&b->free_blocks[order], b->free_blocks[order] + 1);
    b->orders |= 1u << order;
}

/* A block of this order has left the set; frames are counted by the caller. Arena lock held. */
HVMEM_INLINE void left_set(struct hvmem__bank *b, hvmem_u32 order)
{
    hvmem_u64 blocks = b->free_blocks[order] - 1;

    hvmem__store(&b->free_blocks[order], blocks);
    if (!blocks)
        b->orders &= ~(1u << order);
}

/* Add to a bank's count of free frames (two's complement). Arena lock held. */
HVMEM_INLINE void add_frames(struct hvmem__bank *b, hvmem_u64 frames)
{
    hvmem__store(&b->free_frames, b->free_frames + frames);
}

static int is_free(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order)
{
    return hvmem__bits_test(&b->free[order], hvmem__block_index(b, mfn, order));
}

/* ---- merge and split ------------------------------------------------------------------------ */

/*
 * Record of the union of two halves. Where their dirt differs the node's record, which lives at the
 * right half's first frame, keeps both. Arena lock held.
 */
static hvmem__record merge_record(struct hvmem_heap *heap, struct hvmem__bank *right_bank,
                                  hvmem_mfn right_mfn, hvmem__record left, hvmem__record right)
{
    hvmem_u32 left_dirt = hvmem__rec_dirt(left), right_dirt = hvmem__rec_dirt(right);
    hvmem_u32 owed = (hvmem__rec_owed(left) | hvmem__rec_owed(right)) & ~HVMEM_OWES_SCRUB;
    hvmem__record whole = hvmem__rec_make(hvmem__rec_order(left) + 1, HVMEM_BLOCK_FREE, 0);
    hvmem_u32 stamp = hvmem__stamp_newer(hvmem__load(&heap->clock.now), left, right);

    whole = hvmem__rec_with_stamp(hvmem__rec_with_owed(whole, owed), stamp);
    if (left_dirt == right_dirt && left_dirt != HVMEM__DIRT_MIXED)
        return hvmem__rec_with_dirt(whole, left_dirt);
    hvmem__store(hvmem__record_at(right_bank, right_mfn), hvmem__node_make(left_dirt, right_dirt));
    return hvmem__rec_with_dirt(whole, HVMEM__DIRT_MIXED);
}

void hvmem__split_record(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem__record whole, hvmem__record *left,
                         hvmem__record *right)
{
    hvmem_u32 order = hvmem__rec_order(whole) - 1;
    hvmem_mfn right_mfn = mfn + ((hvmem_u64)1 << order);

    *left = *right = hvmem__rec_with_order(whole, order);
    if (hvmem__rec_dirt(whole) == HVMEM__DIRT_MIXED) {
        struct hvmem__bank *rb = hvmem__arena_bank(heap, arena, b, right_mfn);
        hvmem__record node = hvmem__load(hvmem__record_at(rb, right_mfn));

        *left = hvmem__rec_with_dirt(*left, hvmem__node_left(node));
        *right = hvmem__rec_with_dirt(*right, hvmem__node_right(node));
    }
}

/* Tell a node that it may have free blocks of `order`, unless it knows. Arena lock held. */
static HVMEM_NOINLINE void offer(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                 hvmem_u32 order)
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

void hvmem__arena_offer(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u32 order)
{
    if (hvmem__unlikely(!(hvmem__load(&heap->node[arena->node].may[order]) >> arena->slot & 1)))
        offer(heap, arena, order);
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

/*
 * Frames move between the counts of two banks when a merged block's head does: `counted` of its
 * frames are in b's count already. Arena lock held.
 */
static HVMEM_NOINLINE void merge_counts(struct hvmem__bank *b, struct hvmem__bank *bb,
                                        hvmem_u64 counted, hvmem_u32 order)
{
    hvmem__store(&b->table->clean, 0);
    hvmem__store(&bb->table->clean, 0);
    add_frames(b, (hvmem_u64)0 - counted);
    add_frames(bb, (hvmem_u64)0 - ((hvmem_u64)1 << order));
}

void hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                       hvmem_mfn mfn, hvmem__record record)
{
    hvmem_u32 order = hvmem__rec_order(record), last = heap->max_order;
    hvmem_u64 counted = 0;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    if (hvmem__unlikely(hvmem__rec_owed(record) & HVMEM__OWES_FLUSH))
        arena->owing = 1;
    record = hvmem__rec_with_owner(hvmem__rec_with_state(record, HVMEM_BLOCK_FREE), 0);
    record = hvmem__rec_with_dirt(record, hvmem__rec_dirt(record));
    for (; order < last; order++) {
        hvmem_mfn buddy = mfn ^ (hvmem_u64)1 << order;
        struct hvmem__bank *bb = hvmem__arena_bank(heap, arena, b, buddy);
        hvmem__record other;

        if (!bb || !hvmem__bits_take(&bb->free[order], hvmem__block_index(bb, buddy, order)))
            break;
        left_set(bb, order);
        other = hvmem__load(hvmem__record_at(bb, buddy));
        if (hvmem__likely(!hvmem__rec_owed(record | other)))
            record = hvmem__rec_make(order + 1, HVMEM_BLOCK_FREE, 0);
        else if (buddy < mfn)
            record = merge_record(heap, b, mfn, other, record);
        else
            record = merge_record(heap, bb, buddy, record, other);
        counted += (hvmem_u64)1 << order;
        if (hvmem__unlikely(bb != b)) {
            merge_counts(b, bb, counted - ((hvmem_u64)1 << order), order);
            counted = 0;
        }
        if (buddy < mfn) {
            mfn = buddy;
            b = bb;
        }
    }
    enter(b, mfn, order, record);
    add_frames(b, ((hvmem_u64)1 << order) - counted);
    hvmem__arena_offer(heap, arena, order);
}

/* Split a MIXED block once. Arena lock held. */
static HVMEM_NOINLINE void split_mixed(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                       struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record whole,
                                       hvmem__record *left, hvmem__record *right)
{
    hvmem__split_record(heap, arena, b, mfn, whole, left, right);
}

/*
 * Split a block that has left its set down to the one of `order` that holds target; the other
 * halves are entered. Returns the record of what remains. Arena lock held.
 */
static hvmem__record split_to(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                              hvmem_mfn target, hvmem_u32 order)
{
    hvmem_u32 k = hvmem__rec_order(record);

    while (k > order) {
        hvmem__record left, right;
        hvmem_mfn middle;

        k--;
        middle = mfn + ((hvmem_u64)1 << k);
        left = right = hvmem__rec_with_order(record, k);
        if (hvmem__unlikely(hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED))
            split_mixed(heap, arena, b, mfn, record, &left, &right);
        if (target < middle) {
            struct hvmem__bank *rb = hvmem__arena_bank(heap, arena, b, middle);

            if (hvmem__unlikely(rb != b))
                hvmem__store(&rb->table->clean, 0);
            enter(rb, middle, k, right);
            add_frames(rb, (hvmem_u64)1 << k);
            record = left;
        } else {
            enter(b, mfn, k, left);
            add_frames(b, (hvmem_u64)1 << k);
            record = right;
            mfn = middle;
            b = hvmem__arena_bank(heap, arena, b, mfn);
        }
    }
    return record;
}

hvmem__record hvmem__arena_carve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 head_order,
                                 hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, head);
    hvmem__record record = hvmem__load(hvmem__record_at(hb, head));
    int was_free;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    was_free = hvmem__bits_take(&hb->free[head_order], hvmem__block_index(hb, head, head_order));
    HVMEM__ASSERT(&heap->host, was_free);
    if (hvmem__unlikely(hvmem__load(&hb->table->clean)))
        hvmem__store(&hb->table->clean, 0);
    left_set(hb, head_order);
    add_frames(hb, (hvmem_u64)0 - ((hvmem_u64)1 << head_order));
    record = hvmem__rec_with_order(record, head_order);
    return head_order == order ? record : split_to(heap, arena, hb, head, record, mfn, order);
}

/* ---- search --------------------------------------------------------------------------------- */

int hvmem__arena_find(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                      hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    hvmem_u32 k;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    for (k = 0; k <= heap->max_order; k++) {
        hvmem_mfn h = mfn >> k << k;
        struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, h);

        if (hb && is_free(hb, h, k)) {
            *head = h;
            *order = k;
            return 1;
        }
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

        if (hb && hvmem__is_head(hb, h) &&
            hvmem__rec_order(hvmem__load(hvmem__record_at(hb, h))) >= k) {
            *head = h;
            *head_bank = hb;
            return 1;
        }
    }
    return 0;
}

/* Orders of which the arena has free blocks, a bit each. Arena lock held. */
static hvmem_u32 orders_of(const struct hvmem_heap *heap, const struct hvmem__arena *arena)
{
    hvmem_u32 orders = 0, number;

    for (number = arena->first_bank; number != HVMEM__NO_BANK; number = heap->bank[number].next)
        orders |= heap->bank[number].orders;
    return orders;
}

hvmem_u32 hvmem__arena_smallest(struct hvmem_heap *heap, const struct hvmem__arena *arena)
{
    hvmem_u32 orders = orders_of(heap, arena);

    return orders ? hvmem__lowest(orders) : heap->max_order + 1;
}

int hvmem__arena_has(const struct hvmem_heap *heap, const struct hvmem__arena *arena,
                     hvmem_u32 order)
{
    return orders_of(heap, arena) >> order != 0;
}

int hvmem__arena_take(struct hvmem_heap *heap, struct hvmem__arena *arena, hvmem_u32 order,
                      struct hvmem__window *window, hvmem_mfn *mfn, hvmem__record *record)
{
    hvmem_mfn head = 0, at = 0;
    hvmem_u32 k;
    struct hvmem__bank *b;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    if (window)
        window->cut = HVMEM__NOT_CUT;
    b = hvmem__arena_search(heap, arena, window, order, &k, &head, &at);
    if (!b)
        return 0;
    *record = hvmem__arena_carve(heap, arena, b, head, k, at, order);
    *mfn = at;
    return 1;
}

/* Split the debt-free block at head, out of its set already, down to its first `order` block. */
static void split_plain(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                        hvmem_mfn head, hvmem_u32 k, hvmem_u32 order)
{
    while (k-- > order) {
        hvmem_mfn middle = head + ((hvmem_u64)1 << k);
        struct hvmem__bank *rb = hvmem__arena_bank(heap, arena, b, middle);

        enter(rb, middle, k, hvmem__rec_make(k, HVMEM_BLOCK_FREE, 0));
        if (hvmem__unlikely(rb != b)) { /* counted in b by the caller */
            hvmem__store(&rb->table->clean, 0);
            add_frames(rb, (hvmem_u64)1 << k);
            add_frames(b, (hvmem_u64)0 - ((hvmem_u64)1 << k));
        }
    }
}

struct hvmem__bank *hvmem__arena_take_plain(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                            hvmem_u32 order, hvmem_mfn *mfn)
{
    struct hvmem__bank *best = HVMEM_NULL;
    hvmem_u32 k = HVMEM_ORDER_LIMIT + 1, number = arena->first_bank;
    hvmem_u64 index;
    hvmem_mfn head;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    for (; number != HVMEM__NO_BANK && k != order; number = heap->bank[number].next) {
        struct hvmem__bank *b = &heap->bank[number];
        hvmem_u32 orders = b->orders >> order;

        if (orders && hvmem__lowest(orders) + order < k) {
            k = hvmem__lowest(orders) + order;
            best = b;
        }
    }
    if (!best)
        return HVMEM_NULL;
    index = hvmem__bits_first(&best->free[k]);
    head = hvmem__block_mfn(best, index, k);
    if (hvmem__unlikely(hvmem__rec_owed(hvmem__load(hvmem__record_at(best, head)))))
        return HVMEM_NULL;
    hvmem__bits_take(&best->free[k], index);
    left_set(best, k);
    add_frames(best, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    if (k != order)
        split_plain(heap, arena, best, head, k, order);
    *mfn = head;
    return best;
}
