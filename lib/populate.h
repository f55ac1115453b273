/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * populate.h: what the parts of a populate share: one step's surroundings, the slots of a slice.
 * populate_take.c takes a slice's blocks, populate.c does the rest.
 */
#ifndef HVMEM_LIB_POPULATE_H
#define HVMEM_LIB_POPULATE_H

#include "cache.h"
#include "domain.h"
#include "free.h"

/* Phases of a slice (struct hvmem__populate.phase). */
#define HVMEM__PHASE_TAKE  0u
#define HVMEM__PHASE_FLUSH 1u
#define HVMEM__PHASE_PAY   2u
#define HVMEM__PHASE_MAP   3u

/* A slot: the block's first frame, its order, and whether it is paid for at first touch. */
#define HVMEM__SLOT_ORDER_SHIFT 56
#define HVMEM__SLOT_TOUCH       ((hvmem_u64)1 << 63)

HVMEM_STATIC_ASSERT(HVMEM_ORDER_LIMIT < 32, order_fits_slot_and_drawn);

HVMEM_INLINE hvmem_mfn hvmem__slot_mfn(hvmem_u64 slot)
{
    return slot & (((hvmem_u64)1 << HVMEM__SLOT_ORDER_SHIFT) - 1);
}

HVMEM_INLINE hvmem_u32 hvmem__slot_order(hvmem_u64 slot)
{
    return (hvmem_u32)(slot >> HVMEM__SLOT_ORDER_SHIFT) & 63u;
}

/*
 * Whether the block of a slot, whose record this is, is the populate's. It is until it is mapped (HELD), but
 * for one that ops.map put into quarantine.
 */
HVMEM_INLINE int hvmem__slot_holds(const struct hvmem_domain *domain, hvmem_u64 slot,
                                   hvmem__record record)
{
    return hvmem__rec_owner(record) == domain->id &&
           hvmem__rec_order(record) == hvmem__slot_order(slot) && hvmem__rec_held(record) &&
           !hvmem__state_error(hvmem__rec_state(record));
}

/* Everything a step needs. */
struct hvmem__filling {
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    const struct hvmem_populate *request;
    struct hvmem__populate *p;
    struct hvmem__budget budget;
    struct hvmem__bank *bank; /* that a block was found in last: NULL, or one that may be gone */
};

/* Whether an extent, as it was read once, makes sense. */
HVMEM_INLINE hvmem_status hvmem__extent_check(const struct hvmem__filling *f,
                                              const struct hvmem_extent *extent)
{
    hvmem_u32 flags = extent->flags & ~HVMEM_EXTENT_DONE;
    hvmem_u64 gfns;

    if (extent->order > f->heap->max_order)
        return HVMEM_E_ORDER;
    if (flags & ~HVMEM_EXTENT_FIRST_TOUCH)
        return HVMEM_E_ARG;
    if (flags && !f->domain->ops.map_untouched)
        return HVMEM_E_UNSUPPORTED;
    gfns = (hvmem_u64)1 << (extent->order + hvmem__gfn_shift(f->heap));
    if (!hvmem__gfn_range(extent->gfn, gfns))
        return HVMEM_E_RANGE;
    return extent->gfn & (gfns - 1) ? HVMEM_E_ALIGN : HVMEM_OK;
}

/*
 * A block is mapped: from now on it can be freed by its number. Meanwhile only a first touch or its going
 * offline changes the record; should they do so again and again, only the end of the domain frees it.
 */
HVMEM_INLINE void hvmem__populate_let_go(struct hvmem_heap *heap, struct hvmem__bank *b,
                                         hvmem_mfn mfn)
{
    hvmem__record *at = hvmem__record_at(b, mfn), r = hvmem__load(at);
    hvmem_u32 tries;

    for (tries = 0; tries < HVMEM__PATIENT_TRIES; tries++, r = hvmem__load(at))
        if (!hvmem__rec_held(r) ||
            hvmem__frame_claim(&heap->host, at, r, hvmem__rec_unsay(r, HVMEM__BIAS_HELD)))
            break;
    /* Its owner may have freed it by now, and its bank be gone. */
    if (hvmem__unlikely(hvmem__load(&b->marked)))
        hvmem__bank_unmark(heap, b);
}

/* The blocks of the next slice, every debt left on them. HVMEM_AGAIN: the budget says stop. */
hvmem_status hvmem__populate_take(struct hvmem__filling *f);

/*
 * Give back what the open populate has allocated and not mapped, with what it still owes, and the claims
 * that it used for these. What is mapped of a block in part is unmapped before; where the domain is dying it
 * stays the domain's, whose tables go first. HVMEM_E_QUARANTINE: a block could not be unmapped, and went
 * there. The caller has `running`.
 */
hvmem_status hvmem__populate_abort(struct hvmem_domain *domain);

#endif
