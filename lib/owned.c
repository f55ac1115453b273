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
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    hvmem_mfn ready = HVMEM_FAST_NONE;

    if (hvmem__section_begin(pc))
        ready = hvmem_fast_ready(&pc->fast, hvmem__ageing_of(pc, order), domain);
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    if (hvmem__unlikely(ready == HVMEM_FAST_NONE))
        return 0;
    *mfn = ready;
    return 1;
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

/*
 * A block that this CPU handed out for the domain, back to age. The stamp is taken before the section:
 * the frame's translations are gone already, and a test point may let other CPUs run there.
 */
HVMEM_INLINE int free_fast(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order,
                           const struct hvmem_domain *domain)
{
    hvmem_u64 pin, now = hvmem__stamp_read(heap);
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    int done = 0;

    if (hvmem__section_begin(pc))
        done = hvmem_fast_age(&pc->fast, hvmem__ageing_of(pc, order), mfn, order, domain, now);
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return done;
}

/*
 * What keeps freed blocks from the short way: the clock has moved on, this CPU holds much credit. Whether
 * any of it did and does no more.
 */
static int prepare(struct hvmem_heap *heap, hvmem_u32 order)
{
    hvmem_u64 now = hvmem__stamp_read(heap);
    struct hvmem__section s;
    int changed;

    hvmem__section_enter(heap, &s);
    changed = hvmem__ageing_stamp(s.pc, order, now) | hvmem__credit_trim(s.pc);
    hvmem__section_leave(heap, &s);
    return changed;
}

/* The short way is for heaps whose blocks come to owe a flush and nothing else. */
static HVMEM_NOINLINE hvmem_status free_slow(struct hvmem_heap *heap, hvmem_mfn mfn,
                                             hvmem_order order, const struct hvmem_domain *owner,
                                             hvmem_u32 owed)
{
    hvmem_status status = !heap || owed & ~HVMEM_OWES_ANY ? HVMEM_E_ARG : HVMEM_OK;

    if (!status && owner && !owed && heap->owed_on_free == HVMEM_OWES_TLB &&
        hvmem__cacheable(heap, order) && prepare(heap, order) && free_fast(heap, mfn, order, owner))
        return HVMEM_OK;
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

hvmem_status hvmem_free_owned(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_order order,
                              struct hvmem_domain *domain, hvmem_u32 owed)
{
    if (hvmem__unlikely(!heap) || hvmem__unlikely(!domain) || hvmem__unlikely(owed))
        return free_slow(heap, mfn, order, domain, owed);
    if (hvmem__likely(order == 0))
        return hvmem__likely(free_fast(heap, mfn, 0, domain)) ? HVMEM_OK
                                                              : free_slow(heap, mfn, 0, domain, 0);
    return order == HVMEM__MAG_ORDER1 ? free_large(heap, mfn, domain)
                                      : free_slow(heap, mfn, order, domain, 0);
}
