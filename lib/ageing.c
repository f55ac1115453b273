/* SPDX-License-Identifier: BSD-2-Clause */
/* ageing.c: queues of cached blocks that owe something, the oldest first. */
#include "ageing.h"

#include "arena.h"
#include "clock.h"
#include "drain.h"

/* Blocks a full queue gives up at a time. */
#define SHED0 32u
#define SHED1 4u
/* Blocks looked at in one go to learn how many of the oldest are mature. */
#define RIPE_STEPS 64u

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
    pc->ageing[0].slot = slots;
    pc->ageing[0].slots = HVMEM__AGEING_SLOTS;
    pc->ageing[1].slot = slots + HVMEM__AGEING_SLOTS;
    pc->ageing[1].slots = HVMEM__AGEING_SLOTS1;
}

/* The slot of the i-th oldest. */
static hvmem_mfn *slot_at(const struct hvmem__ageing *queue, hvmem_u32 i)
{
    return &queue->slot[(queue->head + i) & (queue->slots - 1)];
}

static hvmem__record record_of(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    return hvmem__load_acquire(hvmem__record_at(hvmem__bank_of(heap, mfn), mfn));
}

/* The oldest n leave. */
static void drop(struct hvmem__ageing *queue, hvmem_u32 n)
{
    queue->ripe = queue->ripe > n ? queue->ripe - n : 0;
    hvmem__store(&queue->head, queue->head + n);
    hvmem__store(&queue->count, queue->count - n);
}

void hvmem__ageing_shed(struct hvmem_heap *heap, struct hvmem__ageing *queue, hvmem_u32 count)
{
    hvmem_u32 n = count < queue->count ? count : queue->count;

    while (n) {
        hvmem_u32 at = queue->head & (queue->slots - 1);
        hvmem_u32 some = n < queue->slots - at ? n : queue->slots - at; /* up to the wrap */

        hvmem__pcpu_give_back(heap, &queue->slot[at], some);
        drop(queue, some);
        n -= some;
    }
}

void hvmem__ageing_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                       hvmem_mfn mfn)
{
    struct hvmem__ageing *queue = hvmem__ageing_of(pc, order);

    if (queue->count == queue->slots)
        hvmem__ageing_shed(heap, queue, order ? SHED1 : SHED0);
    hvmem__store(slot_at(queue, queue->count), mfn);
    hvmem__store(&queue->count, queue->count + 1);
}

hvmem_mfn hvmem__ageing_take(struct hvmem__ageing *queue)
{
    hvmem_mfn mfn = *slot_at(queue, 0);

    drop(queue, 1);
    return mfn;
}

/* Raise `ripe` over what is mature by the floor as it is. */
static void ripen(struct hvmem_heap *heap, struct hvmem__ageing *queue)
{
    hvmem_u32 most = queue->count < RIPE_STEPS ? queue->count : RIPE_STEPS;

    while (queue->ripe < most &&
           !hvmem__immature(heap, record_of(heap, *slot_at(queue, queue->ripe))))
        queue->ripe++;
}

int hvmem__ageing_ripe(struct hvmem_heap *heap, struct hvmem__ageing *queue)
{
    if (!queue->ripe)
        ripen(heap, queue);
    if (!queue->ripe && queue->count) {
        hvmem__clock_raise_floor(heap);
        ripen(heap, queue);
    }
    return queue->ripe != 0;
}

hvmem_u64 hvmem__ageing_newest(struct hvmem_heap *heap, const struct hvmem__ageing *queue)
{
    hvmem_u32 i, most = queue->count < RIPE_STEPS ? queue->count : RIPE_STEPS;

    /* The youngest that owes a flush; others say nothing. */
    for (i = 1; i <= most; i++) {
        hvmem__record record = record_of(heap, *slot_at(queue, queue->count - i));

        if (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH)
            return hvmem__stamp_time(heap, record);
    }
    return 0;
}
