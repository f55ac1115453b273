/* SPDX-License-Identifier: BSD-2-Clause */
/* adopt_check.c: whether the tables of a bank can be taken over, before anything is changed. */
#include "adopt.h"

#include "audit.h"
#include "sets.h"

/*
 * Whether the block of a frame at the edge of a clean bank reaches into a bank that was not given:
 * upwards it may not end there, or it started in one, where `before` is.
 */
static int reaches_out(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                       hvmem_mfn before)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    struct hvmem__bank *hb;
    hvmem_mfn head, end;
    hvmem_u32 order;

    if (hvmem__arena_find(heap, arena, b, mfn, &head, &order))
        end = head + ((hvmem_u64)1 << order);
    else if (hvmem__arena_block(heap, arena, b, mfn, &head, &hb))
        end = head + ((hvmem_u64)1 << hvmem__rec_order(hvmem__load(hvmem__record_at(hb, head))));
    else
        return !hvmem__arena_bank(heap, arena, b, before);
    for (; mfn < end; mfn = hb->base + hb->frames) {
        hb = hvmem__arena_bank(heap, arena, b, mfn);
        if (!hb)
            return 1;
    }
    return 0;
}

/*
 * Whether what a clean bank begins with is the business of a neighbour that was changed since: of a block
 * that reaches over from there, or did, some may be in no block.
 */
static int begins_unsure(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    struct hvmem__arena *arena = hvmem__arena_of(heap, b);
    struct hvmem__bank *hb;
    hvmem_mfn head;
    hvmem_u32 order;

    if (hvmem__arena_find(heap, arena, b, b->base, &head, &order))
        hb = hvmem__arena_bank(heap, arena, b, head);
    else if (!hvmem__arena_block(heap, arena, b, b->base, &head, &hb))
        return 1;
    return !hb->table->clean;
}

hvmem_status hvmem__adopt_check(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at)
{
    struct hvmem__found found;
    hvmem_status status;

    if (b->table->clean) {
        hvmem_mfn end = b->base + b->frames;

        if (reaches_out(heap, b, b->base, b->base - 1) || reaches_out(heap, b, end - 1, b->base))
            return HVMEM_E_CORRUPT;
        if (!begins_unsure(heap, b)) {
            *at = end;
            return HVMEM_AGAIN;
        }
        hvmem__table_changes(b->table);
        b->marked = 0;
    }
    memset(&found, 0, sizeof found);
    found.lost_allowed = 1;
    status = hvmem__audit_bank(heap, hvmem__arena_of(heap, b), b, at, HVMEM__ADOPT_STEPS, &found);
    return status ? status : HVMEM_AGAIN;
}
