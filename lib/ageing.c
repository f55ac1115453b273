/* SPDX-License-Identifier: BSD-2-Clause */
/* ageing.c: queues of cached blocks that owe something, the oldest first. */
#include "ageing.h"

#include "arena.h"
#include "clock.h"
#include "credit.h"
#include "drain.h"

/* Blocks a full queue gives up at a time. */
#define SHED0 32u
#define SHED1 4u

HVMEM_STATIC_ASSERT((HVMEM__AGEING_SLOTS & (HVMEM__AGEING_SLOTS - 1)) == 0, ageing_wraps_by_mask);
HVMEM_STATIC_ASSERT((HVMEM__AGEING_SLOTS1 & (HVMEM__AGEING_SLOTS1 - 1)) == 0,
                    ageing1_wraps_by_mask);

hvmem_size hvmem__ageing_bytes(hvmem_u32 config_flags)
{
    return config_flags & HVMEM_CONFIG_NO_CPU_CACHE
               ? 0
               : (HVMEM__AGEING_SLOTS + HVMEM__AGEING_SLOTS1) * sizeof(hvmem_mfn);
}

void hvmem__ageing_init(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn *slots)
{
    if (heap->flags & HVMEM_CONFIG_NO_CPU_CACHE)
        return;
    pc->fast.queue[0].slot = slots;
    pc->fast.queue[0].mask = HVMEM__AGEING_SLOTS - 1;
    pc->fast.queue[1].slot = slots + HVMEM__AGEING_SLOTS;
    pc->fast.queue[1].mask = HVMEM__AGEING_SLOTS1 - 1;
}

static hvmem__record record_of(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    return hvmem__load_acquire(hvmem__record_at(hvmem__bank_of(heap, mfn), mfn));
}

/* The oldest n leave; none is ready any more. */
static void drop(struct hvmem__pcpu *pc, hvmem_u32 order, hvmem_u32 n)
{
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);

    hvmem__credit_unready(pc, order);
    hvmem__store(&queue->head, queue->head + n);
}

void hvmem__ageing_shed(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                        hvmem_u32 count, struct hvmem__unmerged *rest)
{
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    hvmem_u32 n = hvmem__ageing_count(queue);

    rest->work = 0;
    n = count < n ? count : n;
    while (n) {
        hvmem_u32 at = (hvmem_u32)(queue->head & queue->mask);
        hvmem_u32 some = hvmem__ageing_before_wrap(queue, at, n);

        hvmem__pcpu_give_some(heap, &queue->slot[at], some, rest);
        if (some < n)
            hvmem__give_on(heap, rest->mfn, rest->work);
        drop(pc, order, some);
        n -= some;
    }
}

void hvmem__ageing_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn mfn,
                       hvmem__record record)
{
    hvmem_u32 order = hvmem__rec_order(record), owed = hvmem__rec_owed(record);
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    struct hvmem__unmerged rest;

    if (hvmem__ageing_count(queue) > queue->mask) {
        hvmem__ageing_shed(heap, pc, order, order ? SHED1 : SHED0, &rest);
        hvmem__give_on(heap, rest.mfn, rest.work);
    }
    hvmem__store(&queue->slot[queue->tail & queue->mask], mfn);
    hvmem__store(&queue->tail, queue->tail + 1);
    if (owed & HVMEM__OWES_FLUSH && hvmem__stamp_time(heap, record) > queue->newest)
        queue->newest = hvmem__stamp_time(heap, record);
    if (owed & ~HVMEM__OWES_FLUSH)
        queue->others = queue->tail;
}

int hvmem__ageing_stamp(struct hvmem__pcpu *pc, hvmem_u32 order, hvmem_u64 now)
{
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    hvmem__record record = hvmem__rec_make(order, HVMEM_BLOCK_CACHED, 0);

    if (queue->aged_at == now)
        return 0;
    queue->newest = now > queue->newest ? now : queue->newest;
    queue->aged = hvmem__rec_with_stamp(hvmem__rec_with_owed(record, HVMEM_OWES_TLB),
                                        hvmem__stamp_encode(now));
    queue->aged_at = now;
    return 1;
}

hvmem_mfn hvmem__ageing_take(struct hvmem__pcpu *pc, hvmem_u32 order)
{
    const struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);
    hvmem_mfn mfn = queue->slot[queue->head & queue->mask];

    drop(pc, order, 1);
    return mfn;
}

int hvmem__ageing_ripe(struct hvmem_heap *heap, struct hvmem_cpu_queue *queue)
{
    hvmem__record record;

    if (!hvmem__ageing_count(queue))
        return 0;
    record = record_of(heap, queue->slot[queue->head & queue->mask]);
    if (!hvmem__immature(heap, record))
        return 1;
    hvmem__clock_raise_floor(heap);
    if (!hvmem__immature(heap, record))
        return 1;
    queue->mark = queue->tail;
    queue->mark_time = queue->newest;
    return 0;
}

/* Blocks before a position; 0 if it was passed. */
static hvmem_u32 before(const struct hvmem_cpu_queue *queue, hvmem_u64 position)
{
    return position > queue->head ? (hvmem_u32)(position - queue->head) : 0;
}

hvmem_u32 hvmem__ageing_plain(const struct hvmem_heap *heap, const struct hvmem_cpu_queue *queue)
{
    if (before(queue, queue->others) || !hvmem__clock_mature(heap, queue->mark_time))
        return 0;
    return before(queue, queue->mark);
}
