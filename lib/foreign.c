/* SPDX-License-Identifier: BSD-2-Clause */
/* foreign.c: blocks of a domain that are mapped outside its own spaces: what they owe is paid before. */
#include "domain.h"

#include "free.h"
#include "settle.h"

/* The owner's block, paid for, owes a flush when it is freed. E_BUSY: it may have been got anew, with debts. */
static hvmem_status mark_foreign(const struct hvmem_domain *owner, hvmem_mfn mfn, hvmem_order order)
{
    struct hvmem_heap *heap = owner->heap;
    hvmem_u32 tries;

    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        struct hvmem__bank *b;
        hvmem__record r = 0;
        hvmem_status status = hvmem__may_free(heap, mfn, order, &owner, &b, &r);

        if (!status && (hvmem__rec_debts(r) || hvmem__rec_untouched(r)))
            status = HVMEM_E_BUSY;
        if (status)
            return status;
        status = hvmem__seize(heap, b, mfn, r,
                              hvmem__rec_with_owed(r, hvmem__rec_owed(r) | HVMEM_OWES_FOREIGN));
        if (status != HVMEM_E_FREE)
            return status;
    }
    return HVMEM_E_BUSY;
}

/* The domain is entered: nothing of it is freed by a teardown meanwhile. */
static hvmem_status make_foreign(struct hvmem_domain *domain, hvmem_mfn mfn, hvmem_order order)
{
    struct hvmem_heap *heap = domain->heap;
    const struct hvmem_domain *owner = domain;
    struct hvmem__bank *b;
    hvmem__record r = 0;
    hvmem_status status;
    hvmem_mfn at;

    status = hvmem__may_free(heap, mfn, order, &owner, &b, &r);
    if (!status)
        status = hvmem__settle_range(heap, mfn, (hvmem_u64)1 << hvmem__rec_order(r), HVMEM_OWES_ANY,
                                     0, &at);
    /* What waits for its first touch waits no longer. */
    if (!status && hvmem__rec_untouched(r))
        status = hvmem__pay_mapped(heap, mfn, mfn + ((hvmem_mfn)1 << hvmem__rec_order(r)),
                                   HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE, 1);
    if (!status)
        status = mark_foreign(domain, mfn, hvmem__rec_order(r));
    return status;
}

hvmem_status hvmem_domain_foreign(struct hvmem_domain *domain, hvmem_mfn mfn, hvmem_order order)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_status status;
    int building;

    if (!heap)
        return HVMEM_E_ARG;
    status = hvmem__domain_enter(domain, &building);
    if (!status) {
        status = make_foreign(domain, mfn, order);
        hvmem__domain_leave(domain);
    }
    return status < 0 ? hvmem__refuse(heap, status, mfn, order, domain->id) : status;
}
