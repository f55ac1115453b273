/* SPDX-License-Identifier: BSD-2-Clause */
/* flush.c: flushes of translations that frames owe: on the CPUs that have not flushed since. */
#include "flush.h"

#include "backendcall.h"
#include "clock.h"
#include "settle.h"

/* CPUs of a heap that need only a small set on the stack. */
#define FEW_CPUS 1024u

/* The request of a whole flush in a scope. */
static struct hvmem_tlb_flush whole(hvmem_u32 scope)
{
    struct hvmem_tlb_flush flush;

    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = HVMEM_FLUSH_ALL;
    flush.scope = (hvmem_u16)scope;
    return flush;
}

hvmem_status hvmem__flush_local(struct hvmem_heap *heap)
{
    struct hvmem_tlb_flush flush = whole(HVMEM_SCOPE_LOCAL);

    return hvmem__backend_tlb_flush(heap->backend, &flush);
}

/* Whether one CPU calls, though others may have joined already. */
static int is_early(const struct hvmem_heap *heap)
{
    return !heap->host.smp && heap->host.regime != HVMEM_LOCK_CALLER;
}

struct remote_flush {
    struct hvmem_heap *heap;
    hvmem_u64 time;   /* the tick before it */
    int early;        /* only one CPU calls as yet, and says itself what time the others have */
    hvmem_u32 failed; /* atomic */
};

static HVMEM_CALLBACK void flush_here(void *arg)
{
    struct remote_flush *remote = arg;

    (void)HVMEM_TEST_POINT("clock_flush");
    if (hvmem__flush_local(remote->heap))
        hvmem__store(&remote->failed, 1);
    else if (!remote->early)
        hvmem__clock_publish(remote->heap, hvmem__clock_cpu(remote->heap), remote->time);
}

/*
 * Ask the CPUs that need a flush for `stamp`. words: room for a private set, for the set of online
 * CPUs may change meanwhile: a CPU that leaves is skipped by the host, one that joins flushes.
 */
static hvmem_status flush_cpus(struct hvmem_heap *heap, hvmem_u64 stamp, hvmem_u64 *words)
{
    hvmem_u32 cpus = hvmem__clock_scan(heap, stamp, words);
    struct remote_flush remote;
    struct hvmem_cpuset set;
    hvmem_status status;
    hvmem_cpu cpu;

    remote.early = is_early(heap);
    if (remote.early) {
        cpus -= (hvmem_u32)(words[0] & 1); /* this one, whichever it is: it flushes after them */
        words[0] &= ~(hvmem_u64)1;
    }
    if (!cpus)
        return HVMEM_OK;
    hvmem__count(heap, &heap->flushes, 1);
    hvmem__count(heap, &heap->flush_cpus, cpus);
    remote.heap = heap;
    remote.time = hvmem__clock_tick(heap);
    remote.failed = 0;
    set.words = words;
    set.cpus = heap->max_cpus;
    set.reserved = 0;
    status = heap->host.ops.call_cpus(heap->host.ctx, &set, flush_here, &remote);
    if (status || hvmem__load(&remote.failed))
        return HVMEM_E_HOST;
    for (cpu = 0; remote.early && cpu < heap->max_cpus; cpu++)
        if (words[cpu / 64] >> (cpu % 64) & 1)
            hvmem__clock_publish(heap, cpu, remote.time);
    return HVMEM_OK;
}

/* Two functions, so that only heaps for very many CPUs need 2 KiB of stack. */
static HVMEM_NOINLINE hvmem_status flush_few(struct hvmem_heap *heap, hvmem_u64 stamp)
{
    hvmem_u64 words[FEW_CPUS / 64];

    return flush_cpus(heap, stamp, words);
}

static HVMEM_NOINLINE hvmem_status flush_many(struct hvmem_heap *heap, hvmem_u64 stamp)
{
    hvmem_u64 words[(HVMEM_CPU_LIMIT + 63) / 64];

    return flush_cpus(heap, stamp, words);
}

/* One batch of this CPU does it: broadcast hardware, or there is no other CPU. */
static hvmem_status flush_direct(struct hvmem_heap *heap, hvmem_u64 stamp, hvmem_u32 scope)
{
    struct hvmem_tlb_flush flush = whole(scope);
    hvmem_u64 time;

    if (heap->clock.mode == HVMEM__CLOCK_PER_CPU && hvmem__load(&heap->clock.cpu[0].time) > stamp)
        return HVMEM_OK;
    hvmem__count(heap, &heap->flushes, 1);
    time = hvmem__clock_tick(heap);
    (void)HVMEM_TEST_POINT("clock_flush");
    if (hvmem__backend_tlb_flush(heap->backend, &flush))
        return HVMEM_E_HOST;
    hvmem__clock_publish(heap, 0, time);
    return HVMEM_OK;
}

hvmem_status hvmem__flush_for(struct hvmem_heap *heap, hvmem_u64 stamp)
{
    hvmem_status status;

    if (!hvmem__can_pay(heap, HVMEM_OWES_TLB))
        return HVMEM_E_UNSUPPORTED;
    if (hvmem__clock_mature(heap, stamp))
        return HVMEM_OK;
    if (heap->backend->caps.features & HVMEM_CAP_BROADCAST)
        return flush_direct(heap, stamp, HVMEM_SCOPE_INNER);
    if (heap->max_cpus == 1)
        return flush_direct(heap, stamp, HVMEM_SCOPE_LOCAL);
    status = heap->max_cpus <= FEW_CPUS ? flush_few(heap, stamp) : flush_many(heap, stamp);
    return !status && is_early(heap) ? flush_direct(heap, stamp, HVMEM_SCOPE_LOCAL) : status;
}
