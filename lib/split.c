/* SPDX-License-Identifier: BSD-2-Clause */
/* split.c: a block out of the sets of its arena, split off a larger one. */
#include "sets.h"

void hvmem__split_record(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem__record whole, hvmem__record *left,
                         hvmem__record *right)
{
    hvmem_mfn middle = mfn + ((hvmem_u64)1 << (hvmem__rec_order(whole) - 1));
    const struct hvmem__bank *rb;
    hvmem__record node;

    *left = *right = whole - 1; /* the order */
    if (hvmem__rec_dirt(whole) != HVMEM__DIRT_MIXED)
        return;
    rb = hvmem__arena_bank(heap, arena, b, middle);
    node = hvmem__load(hvmem__record_at(rb, middle));
    *left = hvmem__rec_with_dirt(*left, hvmem__mark_dirt(hvmem__node_left(node)));
    *right = hvmem__rec_with_dirt(*right, hvmem__mark_dirt(hvmem__node_right(node)));
}

/*
 * Split a block that has left its set and lies in bank b down to its first `order` block; the other
 * halves inherit `record`. Arena lock held.
 */
static HVMEM_NOINLINE void split_within(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 from,
                                        hvmem_u32 order, hvmem__record record)
{
    hvmem_u64 size = (hvmem_u64)1 << order;
    hvmem__record *records = hvmem__record_at(b, mfn);
    hvmem_mfn *front = &b->table->front[order];

    record = hvmem__rec_with_order(record, order);
    b->orders |= (1u << from) - (1u << order);
    for (; order < from; order++, record++, size <<= 1, front++) {
        hvmem__store(&records[size], record);
        hvmem__set_put(b, front, mfn + size, order);
    }
}

/*
 * Split a block that has left its set and lies in bank b down to the one of `order` that holds target;
 * the other halves are entered, each with its own dirt. Returns the record of what remains, order
 * apart. Arena lock held.
 */
static HVMEM_NOINLINE hvmem__record carve_within(struct hvmem__bank *b, hvmem_mfn mfn,
                                                 hvmem__record record, hvmem_mfn target,
                                                 hvmem_u32 order)
{
    const hvmem_uptr records = hvmem__records_of(b);
    hvmem__record mark = hvmem__rec_mark(record);
    hvmem_u32 k = hvmem__rec_order(record);
    hvmem_u64 size = (hvmem_u64)1 << k, last = (hvmem_u64)1 << order;
    hvmem_mfn *front = &b->table->front[k];

    record = hvmem__rec_with_dirt(record, HVMEM__DIRT_CLEAN);
    b->orders |= (1u << k) - (1u << order);
    while (size > last) {
        hvmem_mfn middle = mfn + (size >>= 1), other = middle;
        hvmem__record left, right;

        hvmem__split_marks(mark, hvmem__record_in(records, middle), &left, &right);
        mark = left;
        if (target >= middle) {
            other = mfn;
            mfn = middle;
            mark = right;
            right = left;
        }
        record--; /* the order */
        hvmem__store(hvmem__record_in(records, other), hvmem__rec_with_mark(record, right));
        hvmem__set_put(b, --front, other, hvmem__rec_order(record));
    }
    return hvmem__rec_with_mark(record, mark);
}

/*
 * Split a block that has left its set, and whose frames have left b's count, down to the one of
 * `order` that holds target; the other halves are entered. Returns the record of what remains, order
 * apart. Arena lock held.
 */
static hvmem__record split_to(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                              hvmem_mfn target, hvmem_u32 order)
{
    hvmem_u64 size = (hvmem_u64)1 << hvmem__rec_order(record), last = (hvmem_u64)1 << order;
    struct hvmem__bank *counted = b, *rb = b, *ob;
    hvmem__record mark = hvmem__rec_mark(record);

    /* As long as it spans banks. */
    record = hvmem__rec_with_dirt(record, HVMEM__DIRT_CLEAN);
    while (size > last && !(b == counted && hvmem__bank_holds(b, mfn + (size - 1)))) {
        hvmem_mfn middle = mfn + (size >>= 1), other = middle;
        hvmem__record left, right;

        rb = ob = hvmem__bank_near(rb, middle); /* from the one before */
        hvmem__split_marks(mark, hvmem__record_at(rb, middle), &left, &right);
        mark = left;
        if (target >= middle) {
            ob = b;
            other = mfn;
            b = rb;
            mfn = middle;
            mark = right;
            right = left;
        }
        record--; /* the order */
        hvmem__table_changes(ob->table);
        hvmem__enter(ob, other, hvmem__rec_order(record), hvmem__rec_with_mark(record, right));
        if (ob != counted)
            hvmem__move_frames(counted, ob, size);
    }
    record = hvmem__rec_with_mark(record, mark);
    if (size == last)
        return record;
    if (target != mfn || mark == HVMEM__MARK_MIXED)
        return carve_within(b, mfn, record, target, order);
    split_within(b, mfn, hvmem__rec_order(record), order, record);
    return record;
}

/*
 * Work of the splits of one hold, and of a split by one order, in instructions: within a bank, all halves
 * alike; more where they differ, or another than the first is wanted; across banks; where a set has other
 * blocks.
 */
#define SPLIT_WORK   HVMEM__PER_HOLD(270u)
#define PLAIN_WORK   11u
#define CLEAR_ORDERS (SPLIT_WORK / PLAIN_WORK + 1)
#define TOLD_WORK    45u
#define ACROSS_WORK  100u
#define AMONG_WORK   75u

hvmem_u32 hvmem__split_stop(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                            hvmem_mfn target, hvmem_u32 order)
{
    hvmem_u32 k = hvmem__rec_order(record), left = SPLIT_WORK, each = PLAIN_WORK;

    if (!hvmem__bank_holds(b, mfn + (((hvmem_u64)1 << k) - 1)))
        each = ACROSS_WORK;
    else if (target != mfn || hvmem__rec_dirt(record) == HVMEM__DIRT_MIXED)
        each = TOLD_WORK;
    else if (!(b->orders & ((1u << k) - (1u << order))))
        return k - order <= CLEAR_ORDERS ? order : k - CLEAR_ORDERS;
    while (k > order) {
        hvmem_u32 work = each + (b->orders >> (k - 1) & 1) * AMONG_WORK;

        if (work > left && k < hvmem__rec_order(record))
            break;
        hvmem__spend(&left, work);
        k--;
    }
    return k;
}

hvmem__record hvmem__arena_split(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                                 hvmem_mfn target, hvmem_u32 order)
{
    hvmem__add_frames(b, ((hvmem_u64)1 << hvmem__rec_order(record)) - ((hvmem_u64)1 << order));
    return hvmem__rec_with_order(split_to(b, mfn, record, target, order), order);
}

hvmem__record hvmem__arena_carve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 head_order,
                                 hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem__bank *hb = hvmem__arena_bank(heap, arena, b, head);
    hvmem__record record = hvmem__load(hvmem__record_at(hb, head));
    int was_free;

    HVMEM__ASSERT2(&heap->host, hvmem__lock_held(&heap->host, &arena->lock));
    HVMEM__ASSERT2(&heap->host, hvmem__arena_of(heap, hb) == arena);
    arena->moves++;
    hvmem__add_frames(hb, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    was_free = hvmem__set_take(hb, head, head_order);
    HVMEM__ASSERT(&heap->host, was_free);
    record = hvmem__rec_with_order(record, head_order);
    if (head_order != order)
        record = split_to(hb, head, record, mfn, order);
    return hvmem__rec_with_order(record, order);
}

/* Orders that any block may be split by under one hold. */
#define PLAIN_ORDERS 5u

/* Whether a free block that owes nothing is split in more than one hold. */
HVMEM_INLINE int is_long(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 k, hvmem_u32 order)
{
    if (k - order <= PLAIN_ORDERS || (!(b->orders & ((1u << k) - (1u << order))) &&
                                      hvmem__bank_holds(b, mfn + (((hvmem_u64)1 << k) - 1))))
        return 0;
    return hvmem__split_stop(b, mfn, hvmem__rec_make(k, HVMEM_BLOCK_FREE, 0), mfn, order) != order;
}

int hvmem__arena_split_plain(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 k, hvmem_u32 order)
{
    if (hvmem__unlikely(is_long(b, mfn, k, order)))
        return 0;
    hvmem__add_frames(b, (hvmem_u64)0 - ((hvmem_u64)1 << order));
    (void)hvmem__set_take(b, mfn, k);
    if (hvmem__likely(hvmem__bank_holds(b, mfn + (((hvmem_u64)1 << k) - 1))))
        split_within(b, mfn, k, order, hvmem__rec_make(0, HVMEM_BLOCK_FREE, 0));
    else
        split_to(b, mfn, hvmem__rec_make(k, HVMEM_BLOCK_FREE, 0), mfn, order);
    return 1;
}
