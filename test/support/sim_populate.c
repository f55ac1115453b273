/* SPDX-License-Identifier: BSD-2-Clause */
/* Domains of the model machine populated by the library, first touches, idle scrubbing; see sim_rig.h. */
#include "sim_rig.h"

#include <string.h>

#define EXTENTS 4

/* The place of a guest frame: sim_populate asked for it. */
static struct sim_block *block_at(struct sim_tenant *t, hvmem_gfn gfn)
{
    int k;

    for (k = 0; k < SIM_BLOCKS; k++)
        if (t->block[k].state == SIM_PLACED && hvmem_sim_input(t->block[k].page) == gfn)
            return &t->block[k];
    return NULL;
}

/*
 * A block becomes the domain's and is mapped. While it is being built instruction caches may be as they
 * are: nothing runs it before its start.
 */
static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct sim_tenant *t = ctx;
    struct sim_rig *rig = t->rig;
    struct sim_block *b = block_at(t, gfn);

    if (b == NULL || b->order != order) {
        sim_broken(rig, "map of what was not asked for");
        return HVMEM_E_ARG;
    }
    if (!test_below(&rig->rng, 64))
        return HVMEM_E_NOMEM; /* no table */
    if (t->running)
        sim_handed_over(rig, mfn, 1ull << order);
    else
        sim_handed_over_data(rig, mfn, 1ull << order);
    hvmem_sim_use_data(&rig->m, mfn, 1ull << order, t->space.serial);
    b->mfn = mfn;
    b->guest = -1;
    sim_set_pages(rig, (int)(t - rig->tenant), b->page, mfn, order, 1);
    b->touched = 0;
    b->state = SIM_MAPPED;
    rig->populated++;
    return HVMEM_OK;
}

/* The same, but its contents are as they were: nobody else reaches them, nor does the tenant yet. */
static hvmem_status map_untouched(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct sim_tenant *t = ctx;
    struct sim_rig *rig = t->rig;
    struct sim_block *b = block_at(t, gfn);

    if (b == NULL || b->order != order) {
        sim_broken(rig, "map_untouched of what was not asked for");
        return HVMEM_E_ARG;
    }
    rig->stale += hvmem_sim_reached(&rig->m, mfn, 1ull << order);
    b->mfn = mfn;
    b->guest = -1;
    b->touched = 1;
    b->state = SIM_UNTOUCHED;
    rig->done.untouched++;
    return HVMEM_OK;
}

void sim_leave_place(struct sim_rig *rig, int tenant, const struct sim_block *b)
{
    memset(&rig->tenant[tenant].at[b->page], 0, (size_t)1 << b->order);
}

static void clean(struct sim_rig *rig, const struct sim_block *b, hvmem_u32 op)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_cache_range(rig->heap, b->mfn, 1ull << b->order, op,
                                   test_below(&rig->rng, 3) * HVMEM_CACHE_STRETCH, &cursor);
    while (sim_goes_on(rig, status));
    if (status != HVMEM_OK)
        sim_broken(rig, "cache_range");
}

void sim_touch(struct sim_rig *rig, int tenant, int block)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct sim_block *b = &t->block[block];
    struct hvmem_backend *be = &rig->m.backend;
    hvmem_u64 i;

    b->state = SIM_BUSY;
    for (i = 0; i < 1ull << b->order; i++)
        if (be->ops->zero(be, hvmem_sim_address(&rig->m.data, b->mfn + i), 4096) != HVMEM_OK)
            sim_broken(rig, "zero");
    clean(rig, b, HVMEM_DC_CLEAN_INVALIDATE);
    clean(rig, b, HVMEM_CACHE_ICACHE);
    sim_handed_over(rig, b->mfn, 1ull << b->order);
    hvmem_sim_use_data(&rig->m, b->mfn, 1ull << b->order, t->space.serial);
    sim_set_pages(rig, tenant, b->page, b->mfn, b->order, 1);
    rig->done.touched++;
    b->state = SIM_MAPPED;
}

void sim_attach(struct sim_rig *rig, int tenant)
{
    static const struct hvmem_domain_ops ops = {
        .size = sizeof ops, .map = map, .unmap_all = sim_unmap_all, .map_untouched = map_untouched};
    struct sim_tenant *t = &rig->tenant[tenant];

    t->rig = rig;
    if (hvmem_domain_attach(t->domain, &ops, t, t->handle) != HVMEM_OK)
        sim_broken(rig, "attach");
}

/* Places for the extents; how many. */
static hvmem_u64 choose(struct sim_rig *rig, int tenant, struct hvmem_extent *extents,
                        struct sim_block **chosen)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u64 n = 0;
    int k;

    for (k = 0; k < SIM_BLOCKS && n < EXTENTS; k++) {
        struct sim_block *b = &t->block[k];

        if (b->state != SIM_NONE || !test_below(&rig->rng, 3))
            continue;
        b->state = SIM_BUSY;
        b->page = SIM_NO_ROOM;
        b->order = (hvmem_u32)test_below(&rig->rng, 3);
        b->page = sim_room(rig, tenant, b->order);
        if (b->page == SIM_NO_ROOM) {
            b->state = SIM_NONE;
            continue;
        }
        b->state = SIM_PLACED;
        memset(&extents[n], 0, sizeof extents[n]);
        extents[n].gfn = hvmem_sim_input(b->page);
        extents[n].order = b->order;
        extents[n].flags = test_below(&rig->rng, 3) ? 0 : HVMEM_EXTENT_FIRST_TOUCH;
        chosen[n++] = b;
    }
    return n;
}

static int expected(hvmem_status status)
{
    return status == HVMEM_OK || status == HVMEM_E_NOMEM || status == HVMEM_E_BUSY ||
           status == HVMEM_E_PHASE || status == HVMEM_E_DOMAIN || status == HVMEM_E_STALE;
}

void sim_populate(struct sim_rig *rig, int tenant)
{
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_extent extents[EXTENTS];
    struct sim_block *chosen[EXTENTS];
    struct hvmem_cursor cursor;
    hvmem_status status;
    hvmem_u64 i;

    t->open++;
    memset(&cursor, 0, sizeof cursor);
    request.extents = extents;
    request.count = choose(rig, tenant, extents, chosen);
    request.budget = test_below(&rig->rng, 4);
    status = request.count ? HVMEM_AGAIN : HVMEM_OK;
    while (sim_goes_on(rig, status))
        status = hvmem_domain_populate(t->domain, &request, &cursor);
    if (!expected(status))
        sim_broken(rig, "populate");
    /* What was not mapped is free again. Others leave a place alone. */
    for (i = 0; i < request.count; i++) {
        if (chosen[i]->state != SIM_PLACED)
            continue;
        sim_leave_place(rig, tenant, chosen[i]);
        chosen[i]->state = SIM_NONE;
    }
    t->open--;
}

void sim_scrub(struct sim_rig *rig)
{
    unsigned before = rig->scrubbing, calls = 1 + (unsigned)test_below(&rig->rng, 3);
    struct hvmem_cursor cursor;
    hvmem_status status;

    rig->scrubbing = rig->depth + 1;
    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_scrub_step(rig->heap, HVMEM_NODE_ANY, 1 + test_below(&rig->rng, 6), &cursor);
    while (sim_goes_on(rig, status) && --calls);
    if (status != HVMEM_OK && status != HVMEM_AGAIN)
        sim_broken(rig, "scrub_step");
    rig->scrubbing = before;
}
