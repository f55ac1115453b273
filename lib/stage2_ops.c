/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_ops.c: a stage 2 as the tables of a domain (struct hvmem_domain_ops). */
#include <hvmem/populate.h>
#include <hvmem/track.h>

#include "stage2.h"

static hvmem_status map_block(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_mfn mfn,
                              hvmem_order order, hvmem_u32 mark)
{
    /* Of whom a populate is asked the domain knows. */
    static const struct hvmem__mapper anybody = {0, 0};
    struct hvmem_stage2_leaf leaf;
    hvmem_u64 frames, top = (hvmem_u64)1 << (s2->output_bits - 12);
    hvmem_status status;

    if (order > HVMEM_ORDER_LIMIT)
        return hvmem__s2_refuse(s2, HVMEM_E_ORDER, order);
    frames = (hvmem_u64)1 << order;
    status = hvmem__s2_check_range(s2, gfn, frames);
    if (!status && (mfn >= top || frames > top - mfn))
        status = HVMEM_E_RANGE;
    if (!status) {
        memset(&leaf, 0, sizeof leaf);
        leaf.mfn = mfn;
        leaf.order = order;
        leaf.rights = HVMEM_S2_RWX;
        leaf.state = mark;
        status = hvmem__s2_map_block(s2, gfn, &leaf, &anybody); /* whole, PREEMPTIBLE or not */
    }
    return status ? hvmem__s2_refuse(s2, status, gfn) : HVMEM_OK;
}

static HVMEM_CALLBACK hvmem_status ops_map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn,
                                           hvmem_order order)
{
    struct hvmem_stage2 *s2 = ctx;

    return map_block(s2, gfn, mfn, order, 0);
}

static HVMEM_CALLBACK hvmem_status ops_map_untouched(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn,
                                                     hvmem_order order)
{
    struct hvmem_stage2 *s2 = ctx;

    return map_block(s2, gfn, mfn, order, HVMEM_S2_UNCLEAN);
}

/* One table of the largest leaves: what one step maps. */
static HVMEM_CALLBACK hvmem_order ops_unit(void *ctx)
{
    return hvmem__s2_unit(ctx);
}

static HVMEM_CALLBACK hvmem_status ops_unmap(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn,
                                             hvmem_order order)
{
    struct hvmem__s2_work work;
    hvmem_u64 done;

    (void)mfn;
    memset(&work, 0, sizeof work);
    work.kind = HVMEM__S2_UNMAP;
    return hvmem__s2_change(ctx, gfn, (hvmem_u64)1 << order, HVMEM_NULL, &work, &done);
}

/* Whether no frame of the leaf around this one is the heap's. */
static int is_outside(const struct hvmem_stage2 *s2, const struct hvmem_stage2_leaf *leaf)
{
    hvmem_mfn first = (leaf->mfn >> leaf->order) << leaf->order, next = first;

    return !hvmem__bank_from(s2->heap, first, &next) || (next - first) >> leaf->order != 0;
}

static HVMEM_CALLBACK hvmem_status ops_lookup(void *ctx, hvmem_gfn gfn, hvmem_mfn *mfn,
                                              hvmem_order *order)
{
    const struct hvmem_stage2 *s2 = ctx;
    struct hvmem_stage2_leaf leaf;
    hvmem_status status;

    /* Behind what the tables can map: a domain says dirty without knowing their size. */
    if (gfn >> (s2->input_bits - 12)) {
        *order = hvmem__highest(gfn);
        return HVMEM_E_FREE;
    }
    memset(&leaf, 0, sizeof leaf);
    status = hvmem_stage2_lookup(ctx, gfn, &leaf);
    /* Registers of a device are in no cache, and not the host's to map. */
    if (!status && leaf.type == HVMEM_S2_DEVICE && is_outside(s2, &leaf))
        status = HVMEM_E_FREE;
    if (!status)
        *mfn = leaf.mfn;
    if (!status || status == HVMEM_E_FREE)
        *order = leaf.order;
    return status;
}

static HVMEM_CALLBACK hvmem_status ops_unmap_all(void *ctx, struct hvmem_cursor *cursor)
{
    return hvmem_stage2_teardown(ctx, cursor);
}

static HVMEM_CALLBACK hvmem_status ops_started(void *ctx)
{
    struct hvmem_stage2 *s2 = ctx;
    hvmem_status status = HVMEM_OK;
    struct hvmem_cursor cursor;

    if (!(s2->flags & HVMEM_S2_TRACK))
        return HVMEM_OK;
    memset(&cursor, 0, sizeof cursor);
    /* At most 16 root tables. */
    do
        status = hvmem_track_arm(s2, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

void hvmem_stage2_ops(struct hvmem_domain_ops *ops)
{
    if (!ops)
        return;
    memset(ops, 0, sizeof *ops);
    ops->size = sizeof *ops;
    ops->map = ops_map;
    ops->lookup = ops_lookup;
    ops->unmap_all = ops_unmap_all;
    ops->started = ops_started;
    ops->map_untouched = ops_map_untouched;
    ops->unit = ops_unit;
    ops->unmap = ops_unmap;
}
