/* SPDX-License-Identifier: BSD-2-Clause */
/* clock.c: the flush clock, times of CPUs, the filter, and brackets for flushes of the host's own. */
#include "clock.h"

static int can_name_cpus(const struct hvmem_heap *heap)
{
#ifdef HVMEM_HOST_THIS_CPU
    (void)heap;
    return 1;
#else
    return heap->host.ops.this_cpu != HVMEM_NULL;
#endif
}

void hvmem__clock_init(struct hvmem_heap *heap, hvmem_u32 config_flags)
{
    heap->clock.now = 1;
    heap->clock.mode = HVMEM__CLOCK_PER_CPU;
    if (heap->backend && (heap->backend->caps.features & HVMEM_CAP_BROADCAST))
        heap->clock.mode = HVMEM__CLOCK_BROADCAST;
    /* Callers that serialise several CPUs but cannot name them. */
    if (heap->clock.mode == HVMEM__CLOCK_PER_CPU && heap->max_cpus > 1 && !can_name_cpus(heap) &&
        heap->host.regime == HVMEM_LOCK_CALLER)
        heap->clock.mode = HVMEM__CLOCK_OFF;
    if (config_flags & HVMEM_CONFIG_NO_CLOCK)
        heap->clock.mode = HVMEM__CLOCK_OFF;
}

void hvmem__clock_smp(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    hvmem_u64 time = heap->clock.cpu[0].time;

    heap->clock.cpu[0].time = 0;
    heap->clock.cpu[cpu].time = time;
}

hvmem_u64 hvmem__clock_tick(struct hvmem_heap *heap)
{
    hvmem_u64 *now = &heap->clock.now;

    (void)HVMEM_TEST_POINT("clock_tick");
    if (heap->host.smp)
        return __atomic_add_fetch(now, 1, __ATOMIC_SEQ_CST);
    hvmem__store(now, *now + 1);
    hvmem__compiler_barrier();
    return *now;
}

/* Raise *time to at least `to`. Interrupts of this CPU, and with one time all CPUs, do it as well. */
static void raise(const struct hvmem_heap *heap, hvmem_u64 *time, hvmem_u64 to)
{
    hvmem_u64 old = hvmem__load(time);

    if (!heap->host.smp) {
        if (old < to)
            hvmem__store_release(time, to);
        return;
    }
    /* Ends: every failure means that somebody raised it. */
    while (old < to &&
           !__atomic_compare_exchange_n(time, &old, to, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
}

void hvmem__clock_publish(struct hvmem_heap *heap, hvmem_cpu cpu, hvmem_u64 time)
{
    (void)HVMEM_TEST_POINT("clock_publish");
    if (heap->clock.mode == HVMEM__CLOCK_BROADCAST)
        raise(heap, &heap->clock.floor, time);
    else
        raise(heap, &heap->clock.cpu[cpu].time, time);
}

hvmem_u32 hvmem__clock_scan(struct hvmem_heap *heap, hvmem_u64 stamp, hvmem_u64 *words)
{
    hvmem_u64 floor = __atomic_load_n(&heap->clock.now, __ATOMIC_SEQ_CST);
    hvmem_u32 i, count = 0;

    for (i = 0; i < (heap->max_cpus + 63) / 64; i++) {
        hvmem_u64 left = hvmem__load_acquire(&heap->online[i]);

        (void)HVMEM_TEST_POINT("clock_scan");
        words[i] = 0;
        for (; left; left &= left - 1) {
            hvmem_u32 bit = hvmem__lowest(left);
            hvmem_u64 time = hvmem__load_acquire(&heap->clock.cpu[i * 64 + bit].time);

            if (time < floor)
                floor = time;
            if (time <= stamp || heap->clock.mode == HVMEM__CLOCK_OFF) {
                words[i] |= (hvmem_u64)1 << bit;
                count++;
            }
        }
    }
    if (heap->clock.mode == HVMEM__CLOCK_PER_CPU)
        raise(heap, &heap->clock.floor, floor);
    return count;
}

void hvmem__clock_raise_floor(struct hvmem_heap *heap)
{
    hvmem_u64 floor = __atomic_load_n(&heap->clock.now, __ATOMIC_SEQ_CST);
    hvmem_u32 i;

    if (heap->clock.mode != HVMEM__CLOCK_PER_CPU)
        return;
    for (i = 0; i < (heap->max_cpus + 63) / 64; i++) {
        hvmem_u64 left = hvmem__load_acquire(&heap->online[i]);

        for (; left; left &= left - 1) {
            hvmem_u64 time =
                hvmem__load_acquire(&heap->clock.cpu[i * 64 + hvmem__lowest(left)].time);

            if (time < floor)
                floor = time;
        }
    }
    raise(heap, &heap->clock.floor, floor);
}

/* ---- flushes of the host's own -------------------------------------------------------------- */

hvmem_status hvmem_flush_begin(struct hvmem_heap *heap, hvmem_u32 scope, hvmem_u32 flags,
                               struct hvmem_flush_token *token)
{
    hvmem_status status = HVMEM_OK;
    hvmem_cpu cpu;

    if (!heap)
        return HVMEM_E_ARG;
    cpu = hvmem__clock_cpu(heap);
    if (!token || scope > HVMEM_SCOPE_INNER || (flags & ~HVMEM_FLUSH_OPPORTUNISTIC))
        status = HVMEM_E_ARG;
    else if (cpu >= heap->max_cpus)
        status = HVMEM_E_CPU;
    if (status)
        return hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, scope);
    token->cpu = cpu;
    token->scope = (hvmem_u16)scope;
    token->open = 1;
    token->time = 0;
    if (heap->clock.mode == HVMEM__CLOCK_OFF ||
        (heap->clock.mode == HVMEM__CLOCK_BROADCAST && scope == HVMEM_SCOPE_LOCAL))
        return HVMEM_OK; /* nothing that it could say */
    token->time = __atomic_load_n(&heap->clock.now, __ATOMIC_SEQ_CST);
    if (!(flags & HVMEM_FLUSH_OPPORTUNISTIC) || hvmem__load(&heap->clock.stamped) == token->time)
        token->time = hvmem__clock_tick(heap);
    return HVMEM_OK;
}

hvmem_status hvmem_flush_end(struct hvmem_heap *heap, struct hvmem_flush_token *token)
{
    hvmem_status status = HVMEM_OK;
    hvmem_cpu cpu;
    hvmem_u32 i;

    if (!heap)
        return HVMEM_E_ARG;
    cpu = hvmem__clock_cpu(heap);
    if (!token)
        status = HVMEM_E_ARG;
    else if (token->open != 1 || token->scope > HVMEM_SCOPE_INNER ||
             token->time > __atomic_load_n(&heap->clock.now, __ATOMIC_SEQ_CST))
        status = HVMEM_E_STALE; /* a time to come would vouch for flushes that were never made */
    else if (token->cpu != cpu || cpu >= heap->max_cpus)
        status = HVMEM_E_CPU;
    if (token)
        token->open = 0;
    if (status)
        return hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, 0);
    if (!token->time)
        return HVMEM_OK;
    if (token->scope == HVMEM_SCOPE_LOCAL || heap->clock.mode == HVMEM__CLOCK_BROADCAST) {
        hvmem__clock_publish(heap, cpu, token->time);
        return HVMEM_OK;
    }
    for (i = 0; i < heap->max_cpus; i++)
        hvmem__clock_publish(heap, i, token->time);
    return HVMEM_OK;
}
