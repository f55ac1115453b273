/* SPDX-License-Identifier: BSD-2-Clause */
/* drain.c: blocks out of the per-CPU caches, back to their arenas; and what is true of all caches. */
#include "drain.h"

#include "ageing.h"
#include "arena.h"
#include "claim.h"
#include "credit.h"
#include "take.h"
#include "testpoint.h"

/*
 * Work after which a lock section of a drain lets others in, in merges; a block costs as much as
 * BLOCK_WORK of them by itself. The last block may rise by all orders.
 */
#define DRAIN_WORK HVMEM__PER_HOLD(38u)
#define BLOCK_WORK 4u
/* Blocks given back in one turn at a cache's gate, which is held meanwhile. */
#define GATE_STEPS 1u
/* Turns at the gate after which a cache counts as empty even if its CPU keeps filling it. */
#define DRAIN_TURNS 4096u

/* ---- give back ------------------------------------------------------------------------------ */

/*
 * How many single frames at the front of a batch make one block, freed upwards or downwards: a power
 * of two, and the block's first frame. All owe nothing and lie in bank b.
 */
static hvmem_u32 block_at_front(const struct hvmem_heap *heap, const struct hvmem__bank *b,
                                const hvmem_mfn *blocks, hvmem_u32 count, hvmem_mfn *first)
{
    const hvmem__record plain = hvmem__rec_make(0, HVMEM_BLOCK_CACHED, 0);
    hvmem_u64 step = count > 1 && blocks[1] < blocks[0] ? ~(hvmem_u64)0 : 1;
    hvmem_u32 n = 0, order, most;

    while (n < count && blocks[n] == blocks[0] + n * step && hvmem__bank_holds(b, blocks[n]) &&
           hvmem__load(hvmem__record_at(b, blocks[n])) == plain)
        n++;
    *first = blocks[0];
    if (n < 2)
        return 1;
    /* The largest aligned block: going down its last frame comes first. */
    most = hvmem__lowest((step == 1 ? blocks[0] : blocks[0] + 1) | (hvmem_u64)1 << 32);
    order = hvmem__highest(n);
    order = order < most ? order : most;
    order = order < heap->max_order ? order : heap->max_order;
    if (step != 1)
        *first = blocks[0] + 1 - ((hvmem_u64)1 << order);
    return 1u << order;
}

/*
 * Give back the front of a batch as one block; how many of its frames that were. Adds to *work.
 * Arena lock held.
 */
static hvmem_u32 give_front(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, const hvmem_mfn *blocks, hvmem_u32 count,
                            hvmem_u32 *work)
{
    hvmem__record record = hvmem__load(hvmem__record_at(b, blocks[0]));
    hvmem_mfn first = blocks[0];
    hvmem_u32 n = 1;

    if (hvmem__rec_order(record) == 0)
        n = block_at_front(heap, b, blocks, count, &first);
    if (n > 1)
        *work += hvmem__return_frames(heap, arena, b, first, hvmem__lowest(n)) + n / 4;
    else
        *work += hvmem__return_block(heap, arena, b, blocks[0], record);
    *work += BLOCK_WORK;
    return n;
}

void hvmem__pcpu_give_some(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 count,
                           struct hvmem__unmerged *rest)
{
    hvmem_u32 i = 0;

    rest->work = 0;
    while (i < count) {
        struct hvmem__bank *b = hvmem__bank_of(heap, blocks[i]);
        struct hvmem__arena *arena = hvmem__arena_of(heap, b);
        hvmem_u64 state = hvmem__lock_arena(heap, arena);
        hvmem_u32 work = 0;

        do
            i += give_front(heap, arena, b, blocks + i, count - i, &work);
        while (i < count && work < DRAIN_WORK &&
               (b = hvmem__arena_bank(heap, arena, b, blocks[i])) != HVMEM_NULL);
        hvmem__unlock_arena(heap, arena, state);
        if (i < count) {
            hvmem__give_on(heap, blocks[i - 1], work);
        } else {
            rest->mfn = blocks[i - 1];
            rest->work = work;
        }
    }
}

void hvmem__pcpu_give_back(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 count)
{
    struct hvmem__unmerged rest;

    hvmem__pcpu_give_some(heap, blocks, count, &rest);
    hvmem__give_on(heap, rest.mfn, rest.work);
}

void hvmem__pcpu_flush_out(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem_u32 count = pc->out_count;

    hvmem__pcpu_give_back(heap, pc->out, count);
    hvmem__store(&pc->out_count, 0);
}

/* Give back the oldest `count` blocks of a magazine. Inside the section. */
void hvmem__pcpu_shed(struct hvmem_heap *heap, struct hvmem__mag *mag, hvmem_u32 count)
{
    hvmem_u32 i;

    hvmem__pcpu_give_back(heap, mag->slot, count);
    for (i = count; i < mag->count; i++)
        hvmem__store(&mag->slot[i - count], mag->slot[i]);
    hvmem__store(&mag->count, mag->count - count);
}

void hvmem__pcpu_spill(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    struct hvmem__mag *mag = &pc->mag[0];
    hvmem_mfn hot = hvmem__load(&pc->fast.hot);

    if (hot == HVMEM_FAST_NONE)
        return;
    if (hvmem__unlikely(!mag->capacity)) {
        hvmem__pcpu_give_back(heap, &hot, 1);
        hvmem__store(&pc->fast.hot, HVMEM_FAST_NONE);
        return;
    }
    if (mag->count == mag->capacity)
        hvmem__pcpu_shed(heap, mag, mag->capacity / 2);
    hvmem__store(&mag->slot[mag->count], hot);
    hvmem__store(&mag->count, mag->count + 1);
    hvmem__store(&pc->fast.hot, HVMEM_FAST_NONE);
}

/* ---- all caches ----------------------------------------------------------------------------- */

/* The first order whose magazine holds a block, or HVMEM__MAGS. */
static hvmem_u32 first_filled(const struct hvmem__pcpu *pc)
{
    hvmem_u32 left = hvmem__load(&pc->filled);

    for (; left; left &= left - 1)
        if (hvmem__load(&pc->mag[hvmem__lowest(left)].count))
            return hvmem__lowest(left);
    return HVMEM__MAGS;
}

static int holds_any(const struct hvmem__pcpu *pc)
{
    return hvmem__load(&pc->out_count) || hvmem__load(&pc->fast.hot) != HVMEM_FAST_NONE ||
           hvmem__ageing_count(&pc->fast.queue[0]) || hvmem__ageing_count(&pc->fast.queue[1]) ||
           first_filled(pc) < HVMEM__MAGS;
}

int hvmem__pcpu_any(const struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        if (holds_any(&heap->pcpu[cpu]))
            return 1;
    return 0;
}

/* Give the last few blocks of a list back. Inside the section. */
static void shed_last(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 *count,
                      struct hvmem__unmerged *rest)
{
    hvmem_u32 some = *count < GATE_STEPS ? *count : GATE_STEPS;

    hvmem__pcpu_give_some(heap, blocks + (*count - some), some, rest);
    hvmem__store(count, *count - some);
}

/* A few blocks of a cache, so that the gate is not held for long. Whether more are left. */
static int drain_some(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__unmerged *rest)
{
    hvmem_u32 order;

    if (!pc->mag[0].count)
        hvmem__pcpu_spill(heap, pc);
    order = first_filled(pc);
    if (pc->out_count)
        shed_last(heap, pc->out, &pc->out_count, rest);
    else if (order < HVMEM__MAGS)
        shed_last(heap, pc->mag[order].slot, &pc->mag[order].count, rest);
    else if (pc->filled != HVMEM__FILLED)
        hvmem__store(&pc->filled, HVMEM__FILLED);
    else
        hvmem__ageing_shed(heap, pc,
                           hvmem__ageing_count(&pc->fast.queue[0]) ? 0 : HVMEM__MAG_ORDER1,
                           GATE_STEPS, rest);
    return holds_any(pc);
}

/*
 * Let others, the cache's own CPU among them, through the gate; `closed` stays raised. What is left to
 * merge is merged meanwhile.
 */
static void breathe(struct hvmem_heap *heap, struct hvmem__section *s, struct hvmem__unmerged *rest)
{
    int gated = s->gated != HVMEM__GATED_NOBODY;

    if (gated)
        hvmem__unlock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE, s->lock_state);
    hvmem__give_on(heap, rest->mfn, rest->work);
    rest->work = 0;
    if (gated)
        s->lock_state = hvmem__lock(&heap->host, &s->pc->gate, HVMEM__RANK_CACHE);
}

/* All of a cache, or as much as its CPU does not put in meanwhile. */
static void empty(struct hvmem_heap *heap, struct hvmem__section *s)
{
    struct hvmem__unmerged rest = {0, 0};
    hvmem_u32 turns;

    for (turns = 0; turns < DRAIN_TURNS && drain_some(heap, s->pc, &rest); turns++)
        breathe(heap, s, &rest);
    if (rest.work >= HVMEM__GIVE_CUT)
        breathe(heap, s, &rest);
}

hvmem_status hvmem__pcpu_drain(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    struct hvmem__pcpu *pc = &heap->pcpu[cpu];
    struct hvmem__section s;

    if (!holds_any(pc))
        return HVMEM_OK;
    if (hvmem__section_enter_other(heap, &s, cpu))
        return HVMEM_E_HOST;
    empty(heap, &s);
    hvmem__section_leave(heap, &s);
    return HVMEM_OK;
}

/* Inside the section. */
static void forget_bank(struct hvmem_heap *heap, struct hvmem__pcpu *pc)
{
    hvmem__pcpu_spill(heap, pc);
    pc->fast.frames = 0;
    pc->bank = HVMEM_NULL;
    memset(pc->near, 0, sizeof pc->near);
}

void hvmem__pcpu_clear(struct hvmem_heap *heap, struct hvmem__section *s)
{
    hvmem__pcpu_set_open(s->pc, 0);
    hvmem__credit_close(s->pc);
    empty(heap, s);
    forget_bank(heap, s->pc); /* or a hot frame could come in */
}

hvmem_status hvmem__pcpu_shut(struct hvmem_heap *heap)
{
    hvmem_status status = HVMEM_OK;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__section s;

        if (hvmem__section_enter_other(heap, &s, cpu)) {
            status = HVMEM_E_HOST;
            continue;
        }
        hvmem__pcpu_clear(heap, &s);
        hvmem__section_leave(heap, &s);
    }
    return status;
}

hvmem_status hvmem__pcpu_drain_all(struct hvmem_heap *heap)
{
    hvmem_status status = HVMEM_OK;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++)
        if (hvmem__pcpu_drain(heap, cpu))
            status = HVMEM_E_HOST;
    return status;
}

hvmem_status hvmem__pcpu_forget_banks(struct hvmem_heap *heap)
{
    hvmem_status status = HVMEM_OK;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        struct hvmem__section s;

        hvmem__store(&heap->pcpu[cpu].met, HVMEM_NULL);
        if (hvmem__section_enter_other(heap, &s, cpu)) {
            status = HVMEM_E_HOST;
            continue;
        }
        forget_bank(heap, s.pc);
        hvmem__section_leave(heap, &s);
    }
    return status;
}

/*
 * Whether a block that was seen in another CPU's cache, and may have left it by now, counts for a node. Its
 * record is not looked at: the table may be the host's again.
 */
static int counts_on(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_node node)
{
    const struct hvmem__bank *b;

    if (node == HVMEM_NODE_ANY)
        return 1;
    b = hvmem__bank_of(heap, mfn);
    return b && hvmem__load(&b->node) == node;
}

static hvmem_u64 cached_on(struct hvmem_heap *heap, const hvmem_mfn *slot, hvmem_u32 count,
                           hvmem_u32 order, hvmem_node node)
{
    hvmem_u64 blocks = 0;
    hvmem_u32 i;

    if (node == HVMEM_NODE_ANY)
        return (hvmem_u64)count << order;
    for (i = 0; i < count; i++)
        blocks += (hvmem_u64)counts_on(heap, hvmem__load(&slot[i]), node);
    return blocks << order;
}

/* What is on its way home. */
static hvmem_u64 out_on(struct hvmem_heap *heap, const struct hvmem__pcpu *pc, hvmem_node node)
{
    hvmem_u32 count = hvmem__load(&pc->out_count), i;
    hvmem_u64 frames = 0;

    for (i = 0; i < count; i++) {
        int counts = counts_on(heap, hvmem__load(&pc->out[i]), node);

        (void)HVMEM_TEST_POINT("cached_out");
        if (counts)
            frames += (hvmem_u64)1 << hvmem__load(&pc->out_order[i]);
    }
    return frames;
}

static hvmem_u64 ageing_on(struct hvmem_heap *heap, const struct hvmem_cpu_queue *queue,
                           hvmem_u32 order, hvmem_node node)
{
    hvmem_u32 count = hvmem__ageing_count(queue), at, some;

    if (!count) /* nor need there be room for any */
        return 0;
    at = (hvmem_u32)(hvmem__load(&queue->head) & queue->mask);
    some = hvmem__ageing_before_wrap(queue, at, count);
    return cached_on(heap, queue->slot + at, some, order, node) +
           cached_on(heap, queue->slot, count - some, order, node);
}

hvmem_u64 hvmem__pcpu_cached(struct hvmem_heap *heap, hvmem_node node)
{
    hvmem_u64 frames = 0;
    hvmem_u32 order;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < heap->max_cpus; cpu++) {
        const struct hvmem__pcpu *pc = &heap->pcpu[cpu];

        if (hvmem__load(&pc->fast.hot) != HVMEM_FAST_NONE)
            frames += cached_on(heap, &pc->fast.hot, 1, 0, node);
        for (order = 0; order < HVMEM__MAGS; order++)
            frames += cached_on(heap, pc->mag[order].slot, hvmem__load(&pc->mag[order].count),
                                order, node);
        frames += out_on(heap, pc, node);
        frames += ageing_on(heap, &pc->fast.queue[0], 0, node);
        frames += ageing_on(heap, &pc->fast.queue[1], HVMEM__MAG_ORDER1, node);
    }
    return frames;
}
