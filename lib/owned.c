/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * owned.c: single blocks of domains. The short ways are for a domain that runs and a CPU that works
 * for it: a mature block out of the cache and a freed one back into it, inside the CPU's section, by
 * plain stores. Everything else goes the long way, which also gives the CPU its credit.
 */
#include <hvmem/fast.h>

#include "ageing.h"
#include "clock.h"
#include "credit.h"
#include "drain.h"
#include "free.h"

/* ---- allocation ------------------------------------------------------------------------------- */

/* One of the blocks that are ready for the domain. */
HVMEM_INLINE int alloc_fast(struct hvmem_heap *heap, const struct hvmem_domain *domain,
                            hvmem_u32 order, hvmem_mfn *mfn)
{
    hvmem_u64 pin, offset;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    struct hvmem__ageing *queue = hvmem__ageing_of(pc, order);
    int done = 0;

    if (hvmem__section_begin(pc) && hvmem__likely(queue->ready && pc->credit.domain == domain) &&
        hvmem__likely(!hvmem__load(&heap->claims_active))) {
        hvmem_mfn oldest = queue->slot[queue->head & (queue->slots - 1)];

        offset = oldest - pc->fast.base;
        if (hvmem__likely(offset < pc->fast.frames)) {
            hvmem__store(&pc->fast.record[offset], pc->credit.given[order ? 1 : 0]);
            hvmem__store(&queue->head, queue->head + 1);
            hvmem__store(&queue->ready, queue->ready - 1);
            *mfn = oldest;
            done = 1;
        }
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return done;
}

static HVMEM_NOINLINE hvmem_status alloc_slow(struct hvmem_heap *heap, struct hvmem_domain *domain,
                                              hvmem_order order, hvmem_mfn *mfn)
{
    struct hvmem_request request;
    hvmem_status status;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.order = order;
    request.node = HVMEM_NODE_ANY;
    request.domain = domain;
    status = hvmem_alloc(heap, &request, mfn);
    if (!status && domain && hvmem__cacheable(heap, order))
        hvmem__credit_open(heap, domain, order);
    return status;
}

/* A block of order 9. */
static HVMEM_NOINLINE hvmem_status alloc_large(struct hvmem_heap *heap, struct hvmem_domain *domain,
                                               hvmem_mfn *mfn)
{
    return alloc_fast(heap, domain, HVMEM__MAG_ORDER1, mfn)
               ? HVMEM_OK
               : alloc_slow(heap, domain, HVMEM__MAG_ORDER1, mfn);
}

hvmem_status hvmem_alloc_owned(struct hvmem_heap *heap, struct hvmem_domain *domain,
                               hvmem_order order, hvmem_mfn *mfn)
{
    if (hvmem__unlikely(!heap) || hvmem__unlikely(!domain) || hvmem__unlikely(!mfn))
        return alloc_slow(heap, domain, order, mfn);
    if (hvmem__likely(order == 0))
        return hvmem__likely(alloc_fast(heap, domain, 0, mfn)) ? HVMEM_OK
                                                               : alloc_slow(heap, domain, 0, mfn);
    return order == HVMEM__MAG_ORDER1 ? alloc_large(heap, domain, mfn)
                                      : alloc_slow(heap, domain, order, mfn);
}

/* ---- free ------------------------------------------------------------------------------------- */

/* Record of a cached block that owes a flush since `now`. */
HVMEM_INLINE hvmem__record aged(hvmem_u32 order, hvmem_u64 now)
{
    return hvmem__rec_with_stamp(
        hvmem__rec_with_owed(hvmem__rec_make(order, HVMEM_BLOCK_CACHED, 0), HVMEM_OWES_TLB),
        hvmem__stamp_encode(now));
}

/*
 * A block that this CPU handed out for the domain, back to age. The stamp is taken before the section:
 * the frame's translations are gone already, and a test point may let other CPUs run there.
 */
HVMEM_INLINE int free_fast(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order,
                           const struct hvmem_domain *domain)
{
    hvmem_u64 pin, now = hvmem__stamp_read(heap), offset;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    struct hvmem__ageing *queue = hvmem__ageing_of(pc, order);
    int done = 0;

    if (hvmem__section_begin(pc) && hvmem__likely(pc->credit.domain == domain) &&
        hvmem__likely(queue->tail - queue->head < queue->slots)) {
        offset = mfn - pc->fast.base;
        done = hvmem_fast_owns(&pc->fast, offset, pc->credit.given[order ? 1 : 0]);
        if (hvmem__likely(done)) {
            hvmem__store(&pc->fast.record[offset], aged(order, now));
            hvmem__store(&queue->slot[queue->tail & (queue->slots - 1)], mfn);
            hvmem__store(&queue->tail, queue->tail + 1);
            queue->newest = now > queue->newest ? now : queue->newest;
            hvmem__store(&pc->credit.frames, pc->credit.frames + ((hvmem_u64)1 << order));
            hvmem__credit_trim(&pc->credit);
        }
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return done;
}

static HVMEM_NOINLINE hvmem_status free_slow(struct hvmem_heap *heap, hvmem_mfn mfn,
                                             hvmem_order order, const struct hvmem_domain *owner,
                                             hvmem_u32 owed)
{
    hvmem_status status = !heap || owed & ~HVMEM_OWES_ANY ? HVMEM_E_ARG : HVMEM_OK;

    if (!status)
        status = hvmem__free_checked(heap, mfn, order, &owner, owed);
    return status ? hvmem__refuse(heap, status, mfn, order, owed) : HVMEM_OK;
}

/* A block of order 9. */
static HVMEM_NOINLINE hvmem_status free_large(struct hvmem_heap *heap, hvmem_mfn mfn,
                                              const struct hvmem_domain *domain)
{
    return free_fast(heap, mfn, HVMEM__MAG_ORDER1, domain)
               ? HVMEM_OK
               : free_slow(heap, mfn, HVMEM__MAG_ORDER1, domain, 0);
}

/* The short way is for domains whose blocks come to owe a flush and nothing else. */
hvmem_status hvmem_free_owned(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                              struct hvmem_domain *domain, hvmem_u32 owed)
{
    if (hvmem__unlikely(!heap) || hvmem__unlikely(!domain) || hvmem__unlikely(owed) ||
        hvmem__unlikely(heap->owed_on_free != HVMEM_OWES_TLB || hvmem__load(&domain->owes)))
        return free_slow(heap, mfn, order, domain, owed);
    if (hvmem__likely(order == 0))
        return hvmem__likely(free_fast(heap, mfn, 0, domain)) ? HVMEM_OK
                                                              : free_slow(heap, mfn, 0, domain, 0);
    return order == HVMEM__MAG_ORDER1 ? free_large(heap, mfn, domain)
                                      : free_slow(heap, mfn, order, domain, 0);
}
