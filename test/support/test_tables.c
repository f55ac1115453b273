/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of a guest for tests of domains. */
#include "test_tables.h"

#include <string.h>

static hvmem_status map_as(struct test_tables *t, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order,
                           uint64_t mark)
{
    uint64_t i;

    if (gfn + (1ull << order) > TABLES_GFNS)
        return HVMEM_E_RANGE;
    if (t->map_fail && !--t->map_fail)
        return HVMEM_E_NOMEM;
    for (i = 0; i < 1ull << order; i++)
        if (t->map[gfn + i] != TABLES_UNMAPPED)
            t->broken = "mapped twice";
    if (t->mapping)
        t->mapping(t->context, gfn, mfn, order);
    for (i = 0; i < 1ull << order; i++)
        t->map[gfn + i] = (mfn + i) | mark;
    t->maps++;
    return HVMEM_OK;
}

static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    return map_as(ctx, gfn, mfn, order, 0);
}

static hvmem_status map_untouched(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    return map_as(ctx, gfn, mfn, order, TABLES_UNTOUCHED);
}

/* The largest aligned block around gfn that is mapped in one piece, or not at all. */
static hvmem_status lookup(void *ctx, hvmem_gfn gfn, hvmem_mfn *mfn, hvmem_order *order)
{
    struct test_tables *t = ctx;
    uint64_t first, i, size;

    *order = 0;
    if (gfn >= TABLES_GFNS) {
        *order = 13;
        return HVMEM_E_FREE;
    }
    for (size = 2; size <= TABLES_GFNS; size *= 2) {
        first = gfn & ~(size - 1);
        if (t->map[gfn] != TABLES_UNMAPPED && t->map[first] & (size - 1) & ~TABLES_UNTOUCHED)
            break;
        for (i = 0; i < size; i++)
            if (t->map[gfn] == TABLES_UNMAPPED ? t->map[first + i] != TABLES_UNMAPPED
                                               : t->map[first + i] != t->map[first] + i)
                break;
        if (i < size)
            break;
        ++*order;
    }
    *mfn = t->map[gfn] & ~TABLES_UNTOUCHED;
    return t->map[gfn] == TABLES_UNMAPPED ? HVMEM_E_FREE : HVMEM_OK;
}

static hvmem_status unmap_all(void *ctx, struct hvmem_cursor *cursor)
{
    struct test_tables *t = ctx;

    if (cursor->words[0] != t->unmaps)
        t->broken = "unmap_all was given another cursor";
    cursor->words[0] = ++t->unmaps;
    if (t->unmaps < t->unmap_steps)
        return HVMEM_AGAIN;
    memset(t->map, 0xff, sizeof t->map);
    return HVMEM_OK;
}

static hvmem_status started(void *ctx)
{
    struct test_tables *t = ctx;

    if (t->hook_fails) {
        t->hook_fails--;
        return HVMEM_E_NOMEM;
    }
    t->started++;
    return HVMEM_OK;
}

void test_tables_init(struct test_tables *tables)
{
    memset(tables, 0, sizeof *tables);
    memset(tables->map, 0xff, sizeof tables->map);
    tables->ops.size = sizeof tables->ops;
    tables->ops.map = map;
    tables->ops.lookup = lookup;
    tables->ops.unmap_all = unmap_all;
    tables->ops.started = started;
    tables->ops.map_untouched = map_untouched;
}

uint64_t test_tables_mapped(const struct test_tables *tables)
{
    uint64_t mapped = 0;
    unsigned i;

    for (i = 0; i < TABLES_GFNS; i++)
        mapped += tables->map[i] != TABLES_UNMAPPED;
    return mapped;
}
