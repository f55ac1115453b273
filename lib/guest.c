/* SPDX-License-Identifier: BSD-2-Clause */
/* guest.c: cleaning by guest frame: what start owes for dirtied ranges, and the public call. */
#include "domain.h"

#include "cache.h"
#include "settle.h"

#define CURSOR_CLEAN 0x6e6c6376680001ull

/* Guest frames in 2^order frames of the heap, capped to what a gfn can count. */
static hvmem_u64 gfns_of(const struct hvmem_heap *heap, hvmem_u32 order)
{
    hvmem_u32 shift = order + hvmem__gfn_shift(heap);

    return (hvmem_u64)1 << (shift < HVMEM__GFN_BITS ? shift : HVMEM__GFN_BITS);
}

/* The end of the aligned block of guest frames around gfn, or `end` if that comes first. */
static hvmem_gfn block_end(const struct hvmem_heap *heap, hvmem_gfn gfn, hvmem_u32 order,
                           hvmem_gfn end)
{
    hvmem_u64 size = gfns_of(heap, order);
    hvmem_gfn stop = (gfn & ~(size - 1)) + size;

    return stop < end ? stop : end;
}

hvmem_status hvmem__clean_guest(struct hvmem_domain *domain, hvmem_gfn *gfn, hvmem_gfn end,
                                hvmem_u64 *inside, struct hvmem__budget *budget)
{
    const struct hvmem__work work = {HVMEM__WORK_DCACHE, HVMEM_DC_CLEAN_INVALIDATE};
    struct hvmem_heap *heap = domain->heap;
    hvmem_u32 shift = hvmem__gfn_shift(heap);
    hvmem_status status = HVMEM_OK;

    while (*gfn < end && !status) {
        hvmem_mfn mfn = 0;
        hvmem_order order = 0;
        hvmem_gfn stop;
        hvmem_u64 frames;

        status = domain->ops.lookup(domain->ctx, *gfn, &mfn, &order);
        stop = block_end(heap, *gfn, order, end);
        if (status == HVMEM_E_FREE) {
            *gfn = stop;
            *inside = 0;
            hvmem__budget_use(budget, 1);
            status = hvmem__budget_stop(heap, budget) && *gfn < end ? HVMEM_AGAIN : HVMEM_OK;
            continue;
        }
        if (status)
            return status < 0 ? status : HVMEM_E_HOST;
        /* Whole frames of the heap, also where they are larger than guest frames. */
        frames = ((stop - 1) >> shift) - (*gfn >> shift) + 1;
        status = hvmem__contents(heap, mfn, frames, &work, inside, budget);
        if (status < 0)
            return status;
        if (!status) {
            *gfn = stop;
            *inside = 0;
            status = budget->stop && *gfn < end ? HVMEM_AGAIN : HVMEM_OK;
        }
    }
    return status;
}

hvmem_status hvmem_domain_clean(struct hvmem_domain *domain, hvmem_gfn gfn, hvmem_u64 n,
                                struct hvmem_cursor *cursor)
{
    struct hvmem_heap *heap = domain ? domain->heap : HVMEM_NULL;
    hvmem_u64 what[3] = {gfn, n, 0};
    struct hvmem__passage passage;
    struct hvmem__budget budget;
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    if (!cursor)
        status = HVMEM_E_ARG;
    else if (!hvmem__gfn_range(gfn, n))
        status = HVMEM_E_RANGE;
    else if (hvmem__load(&domain->state) == HVMEM_DOMAIN_DYING)
        status = HVMEM_E_DOMAIN;
    else if (!domain->ops.lookup)
        status = HVMEM_E_UNSUPPORTED;
    else
        status = hvmem__passage_enter(heap, &domain->cleans, CURSOR_CLEAN, what, cursor, &passage);
    if (status)
        return hvmem__refuse(heap, status, gfn, HVMEM_ORDER_ANY, n);
    if (!(hvmem__void_debts(heap) & HVMEM_OWES_DCACHE)) {
        hvmem_gfn at = gfn + passage.at;

        budget = hvmem__budget_lines(heap, HVMEM_CLEAN_LINES);
        status = hvmem__clean_guest(domain, &at, gfn + n, &passage.inside, &budget);
        passage.at = at - gfn;
    }
    status = hvmem__passage_leave(heap, &domain->cleans, CURSOR_CLEAN, &passage, status, cursor);
    return status < 0 ? hvmem__refuse(heap, status, gfn, HVMEM_ORDER_ANY, n) : status;
}
