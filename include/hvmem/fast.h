/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/fast.h: single frames allocated and freed inline, the host's own and those of running domains.
 * Same results and same checks as the calls (hvmem_alloc_order, hvmem_free, hvmem_alloc_owned,
 * hvmem_free_owned), which everything that is not the plain case falls back to: an empty or closed
 * cache, a frame of another CPU, a mistake.
 *
 * A host asks once for each CPU's handle, keeps it in its own per-CPU data and passes it on every
 * call. Host and library may be built apart: the version in the request for the handle is checked.
 *
 * Calling context: on the handle's CPU, which must not change until the call returns, and not while
 * another call of the same CPU may be under way (an interrupt): as between the pin and unpin
 * operations of hvmem/host.h.
 */
#ifndef HVMEM_FAST_H
#define HVMEM_FAST_H

#include <hvmem/heap.h>

#define HVMEM_FAST_VERSION 2u

/*
 * Blocks of one order that owe something, in the order they were freed. Positions count on for ever; the
 * place of one is its value & mask. All stamps are at or before `newest`.
 * INVARIANT: the blocks before `ready` are mature, owe nothing but the flush that is paid by that, and
 * are charged to the domain; `given` is a record that no block has while there is no domain or no token.
 */
struct hvmem_cpu_queue {
    hvmem_u64 head;    /* of the oldest; read by anyone */
    hvmem_u64 ready;   /* behind the last that may go out to the domain as it is; read by anyone */
    hvmem_u64 tail;    /* behind the youngest; read by anyone */
    hvmem_u64 mask;    /* places (a power of two) - 1 */
    hvmem_mfn *slot;   /* of each place */
    hvmem_u64 given;   /* record of a block in the domain's hands that this CPU gave out */
    hvmem_u64 aged;    /* record of one that was freed at clock value aged_at and owes that flush */
    hvmem_u64 aged_at; /* 0: never, blocks come to owe something else */
    /* The library's. */
    hvmem_u64 newest;
    hvmem_u64 mark; /* blocks before this are mature when all CPUs have flushed after mark_time */
    hvmem_u64 mark_time;
    hvmem_u64 others; /* blocks before this may owe more than a flush */
};

/*
 * One CPU's hot frame, the bank that this CPU met last, and what it does for a domain. Read and written
 * only by the functions below and the library, inside the section that `busy` opens.
 * INVARIANT: while `hot` names a frame, it lies in this bank, its record is HVMEM_FAST_CACHED, and
 * `given` carries a living token. `given` is a record that no frame has while there is no token.
 */
struct hvmem_cpu_cache {
    hvmem_u32 busy;    /* this CPU is inside its section */
    hvmem_u32 closed;  /* not 0: sections must be entered through the library */
    hvmem_mfn hot;     /* freed last, or HVMEM_FAST_NONE */
    hvmem_u64 given;   /* record of an order-0 block in the hands of this CPU's caller */
    hvmem_mfn base;    /* bank: first frame */
    hvmem_u64 frames;  /* bank: 0 if there is none */
    hvmem_u64 *record; /* bank: one a frame */
    hvmem_u64 *head0;  /* bank: frames that start a block outside the free sets, */
    hvmem_u64 *head1;  /* and which words of that mean something */

    struct hvmem_domain *domain; /* that this CPU works for; NULL: none; read by anyone */
    hvmem_u64 credit;      /* frames charged to it in advance, beside those ready; read by anyone */
    const hvmem_u32 *owes; /* what it owes as a whole; valid while there is one */
    const hvmem_u32 *claims;         /* not 0: frames are counted against claims */
    const hvmem_u64 *clock;          /* the flush clock */
    struct hvmem_cpu_queue queue[2]; /* single frames; blocks of order 9 */
};

#define HVMEM_FAST_NONE   (~(hvmem_mfn)0)
#define HVMEM_FAST_CACHED ((hvmem_u64)HVMEM_BLOCK_CACHED << 5)
#define HVMEM_FAST_CREDIT 8192u /* with that much some goes back before any more comes in */

HVMEM_BEGIN_DECLS

/*
 * The handle of a CPU, constant for the life of the heap, or NULL: cpu is not below
 * config.max_cpus, or the library is of another version of this header (then the host must call the
 * library). Before hvmem_smp_enable() only CPU 0 has a use for its handle.
 */
HVMEM_API struct hvmem_cpu_cache *hvmem_cpu_handle_version(struct hvmem_heap *heap, hvmem_cpu cpu,
                                                           hvmem_u32 version);

HVMEM_INLINE struct hvmem_cpu_cache *hvmem_cpu_handle(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    return hvmem_cpu_handle_version(heap, cpu, HVMEM_FAST_VERSION);
}

/*
 * Open the section: whether this CPU is alone in it. Close it in either case. Who enters from
 * outside sets `closed`, has this CPU pass a barrier, and waits for busy 0: so a store, an order of
 * the compiler alone, and a load are enough here.
 */
HVMEM_INLINE int hvmem_fast_open(struct hvmem_cpu_cache *cpu)
{
    __atomic_store_n(&cpu->busy, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return !__atomic_load_n(&cpu->closed, __ATOMIC_ACQUIRE);
}

HVMEM_INLINE void hvmem_fast_close(struct hvmem_cpu_cache *cpu)
{
    __atomic_store_n(&cpu->busy, 0, __ATOMIC_RELEASE);
}

/* The hot frame, or HVMEM_FAST_NONE. Inside the section. */
HVMEM_INLINE hvmem_mfn hvmem_fast_take(struct hvmem_cpu_cache *cpu)
{
    hvmem_mfn hot = __atomic_load_n(&cpu->hot, __ATOMIC_RELAXED);

    if (__builtin_expect(hot != HVMEM_FAST_NONE, 1)) {
        __atomic_store_n(&cpu->hot, HVMEM_FAST_NONE, __ATOMIC_RELAXED);
        __atomic_store_n(&cpu->record[hot - cpu->base], cpu->given, __ATOMIC_RELAXED);
    }
    return hot;
}

/*
 * Whether the block at `offset` of this bank was handed out by this CPU as `given` says. Inside the
 * section. The record counts only where the frame starts a block: tables begin with unknown content.
 */
HVMEM_INLINE int hvmem_fast_owns(const struct hvmem_cpu_cache *cpu, hvmem_u64 offset,
                                 hvmem_u64 given)
{
    if (__builtin_expect(offset >= cpu->frames ||
                             __atomic_load_n(&cpu->record[offset], __ATOMIC_RELAXED) != given,
                         0))
        return 0;
    if (!(__atomic_load_n(&cpu->head1[offset >> 12], __ATOMIC_ACQUIRE) >> (offset >> 6 & 63) & 1))
        return 0;
    return __atomic_load_n(&cpu->head0[offset >> 6], __ATOMIC_RELAXED) >> (offset & 63) & 1;
}

/* Make a frame the hot one, if there is none and this CPU handed it out. Inside the section. */
HVMEM_INLINE int hvmem_fast_give(struct hvmem_cpu_cache *cpu, hvmem_mfn mfn)
{
    hvmem_u64 offset = mfn - cpu->base;

    if (__builtin_expect(__atomic_load_n(&cpu->hot, __ATOMIC_RELAXED) != HVMEM_FAST_NONE ||
                             !hvmem_fast_owns(cpu, offset, cpu->given),
                         0))
        return 0;
    __atomic_store_n(&cpu->record[offset], HVMEM_FAST_CACHED, __ATOMIC_RELAXED);
    __atomic_store_n(&cpu->hot, mfn, __ATOMIC_RELAXED);
    return 1;
}

/* The oldest block of a queue, if it is ready for the domain, or HVMEM_FAST_NONE. Inside the section. */
HVMEM_INLINE hvmem_mfn hvmem_fast_ready(struct hvmem_cpu_cache *cpu, struct hvmem_cpu_queue *queue,
                                        const struct hvmem_domain *domain)
{
    hvmem_u64 head = __atomic_load_n(&queue->head, __ATOMIC_RELAXED), offset;
    hvmem_mfn mfn;

    if (__builtin_expect(cpu->domain != domain || head >= queue->ready ||
                             __atomic_load_n(cpu->claims, __ATOMIC_RELAXED),
                         0))
        return HVMEM_FAST_NONE;
    mfn = queue->slot[head & queue->mask];
    offset = mfn - cpu->base;
    if (__builtin_expect(offset >= cpu->frames, 0))
        return HVMEM_FAST_NONE;
    __atomic_store_n(&cpu->record[offset], queue->given, __ATOMIC_RELAXED);
    __atomic_store_n(&queue->head, head + 1, __ATOMIC_RELAXED);
    return mfn;
}

/* Put a block freed at clock value `now` into its queue, if this CPU gave it out. Inside the section. */
HVMEM_INLINE int hvmem_fast_age(struct hvmem_cpu_cache *cpu, struct hvmem_cpu_queue *queue,
                                hvmem_mfn mfn, hvmem_order order, const struct hvmem_domain *domain,
                                hvmem_u64 now)
{
    hvmem_u64 tail = queue->tail, offset = mfn - cpu->base;

    if (__builtin_expect(cpu->domain != domain || queue->aged_at != now ||
                             tail - queue->head > queue->mask || cpu->credit >= HVMEM_FAST_CREDIT ||
                             !hvmem_fast_owns(cpu, offset, queue->given) ||
                             __atomic_load_n(cpu->owes, __ATOMIC_RELAXED),
                         0))
        return 0;
    __atomic_store_n(&cpu->record[offset], queue->aged, __ATOMIC_RELAXED);
    __atomic_store_n(&queue->slot[tail & queue->mask], mfn, __ATOMIC_RELAXED);
    __atomic_store_n(&queue->tail, tail + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&cpu->credit, cpu->credit + ((hvmem_u64)1 << order), __ATOMIC_RELAXED);
    return 1;
}

/* One frame for the host itself. As hvmem_alloc_order(heap, 0, mfn); no pointer may be NULL. */
HVMEM_INLINE hvmem_status hvmem_alloc_page(struct hvmem_heap *heap, struct hvmem_cpu_cache *cpu,
                                           hvmem_mfn *mfn)
{
    if (__builtin_expect(hvmem_fast_open(cpu), 1)) {
        hvmem_mfn hot = hvmem_fast_take(cpu);

        if (__builtin_expect(hot != HVMEM_FAST_NONE, 1)) {
            hvmem_fast_close(cpu);
            *mfn = hot;
            return HVMEM_OK;
        }
    }
    hvmem_fast_close(cpu);
    return hvmem_alloc_order(heap, 0, mfn);
}

/* As hvmem_free(heap, mfn, 0); no pointer may be NULL. */
HVMEM_INLINE hvmem_status hvmem_free_page(struct hvmem_heap *heap, struct hvmem_cpu_cache *cpu,
                                          hvmem_mfn mfn)
{
    int done = __builtin_expect(hvmem_fast_open(cpu), 1) && hvmem_fast_give(cpu, mfn);

    hvmem_fast_close(cpu);
    return __builtin_expect(done, 1) ? HVMEM_OK : hvmem_free(heap, mfn, 0);
}

/* One frame for a domain. As hvmem_alloc_owned(heap, domain, 0, mfn); no pointer may be NULL. */
HVMEM_INLINE hvmem_status hvmem_alloc_page_owned(struct hvmem_heap *heap,
                                                 struct hvmem_cpu_cache *cpu,
                                                 struct hvmem_domain *domain, hvmem_mfn *mfn)
{
    if (__builtin_expect(hvmem_fast_open(cpu), 1)) {
        hvmem_mfn ready = hvmem_fast_ready(cpu, &cpu->queue[0], domain);

        if (__builtin_expect(ready != HVMEM_FAST_NONE, 1)) {
            hvmem_fast_close(cpu);
            *mfn = ready;
            return HVMEM_OK;
        }
    }
    hvmem_fast_close(cpu);
    return hvmem_alloc_owned(heap, domain, 0, mfn);
}

/* As hvmem_free_owned(heap, mfn, 0, domain, 0); no pointer may be NULL. */
HVMEM_INLINE hvmem_status hvmem_free_page_owned(struct hvmem_heap *heap,
                                                struct hvmem_cpu_cache *cpu, hvmem_mfn mfn,
                                                struct hvmem_domain *domain)
{
    hvmem_u64 now = __atomic_load_n(cpu->clock, __ATOMIC_RELAXED);
    int done = __builtin_expect(hvmem_fast_open(cpu), 1) &&
               hvmem_fast_age(cpu, &cpu->queue[0], mfn, 0, domain, now);

    hvmem_fast_close(cpu);
    return __builtin_expect(done, 1) ? HVMEM_OK : hvmem_free_owned(heap, mfn, 0, domain, 0);
}

HVMEM_END_DECLS

#endif
