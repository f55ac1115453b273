/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_walk.c: walking, writing entries, counts of tables, and where table pages come from. */
#include "stage2.h"

#include "cache.h"
#include "free.h"
#include "gather.h"
#include "request.h"
#include "settle.h"

/* ---- entries -------------------------------------------------------------------------------- */

void hvmem__s2_walk(const struct hvmem_stage2 *s2, hvmem_gfn gfn, struct hvmem__s2_path *path)
{
    hvmem_u32 level = s2->start_level;
    hvmem_u64 *slot = hvmem__s2_table(s2, (hvmem_maddr)s2->root << 12);

    /* Root tables lie side by side: their index is not cut to 9 bits. */
    slot += gfn >> hvmem__s2_order(level);
    path->walkable = 1;
    for (;;) {
        hvmem_u64 entry = *slot;

        path->slot[level] = slot;
        if (!hvmem__s2_present(&s2->f, entry) || !hvmem__s2_is_table(&s2->f, entry, level)) {
            path->entry = entry;
            path->level = level;
            return;
        }
        path->walkable &= hvmem__s2_valid(&s2->f, entry) != 0;
        level++;
        slot = hvmem__s2_table(s2, hvmem__s2_address(&s2->f, entry)) + hvmem__s2_index(gfn, level);
    }
}

void hvmem__s2_add_count(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u32 by)
{
    hvmem_u64 *above, count;

    if (path->level == s2->start_level)
        return;
    above = path->slot[path->level - 1];
    count = (hvmem__s2_count(&s2->f, *above) + by) & 0x3ffu;
    HVMEM__ASSERT2(&s2->heap->host, count <= 512);
    hvmem__store(above, hvmem__s2_with_count(&s2->f, *above, (hvmem_u32)count));
}

void hvmem__s2_put(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u64 entry)
{
    int before = hvmem__s2_present(&s2->f, path->entry), after = hvmem__s2_present(&s2->f, entry);

    /* A table behind the entry is complete before hardware can see the entry. */
    hvmem__store_release(path->slot[path->level], entry);
    path->entry = entry;
    if (before != after)
        hvmem__s2_add_count(s2, path, after ? 1u : ~0u);
}

void hvmem__s2_prune(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_gfn gfn,
                     struct hvmem_gather *gather)
{
    while (path->level > s2->start_level) {
        hvmem_u64 table = *path->slot[path->level - 1];
        hvmem_u32 level = path->level;

        if (hvmem__s2_count(&s2->f, table))
            return;
        path->level--;
        path->entry = table;
        hvmem__s2_put(s2, path, 0);
        s2->used--;
        (void)hvmem__gather_table(gather, hvmem__s2_address(&s2->f, table) >> 12,
                                  (gfn >> hvmem__s2_order(level - 1))
                                      << hvmem__s2_order(level - 1) << 12,
                                  level, HVMEM_TABLE_TOLD, 1);
    }
}

void hvmem__s2_tell(struct hvmem_stage2 *s2, struct hvmem_gather *gather, hvmem_gfn gfn,
                    hvmem_u64 entries, hvmem_u32 level, hvmem_u64 entry)
{
    hvmem_u32 order = hvmem__s2_order(level);
    hvmem_u32 flags = hvmem__s2_rights(&s2->f, entry) & HVMEM_S2_X ? HVMEM_ENTRY_EXEC : 0;

    /* An argument that the gather refused makes it flush everything: nothing is missed. */
    (void)hvmem__gather_run(gather, (gfn >> order) << order << 12, entries, order + 12, level,
                            flags);
}

hvmem_status hvmem__s2_gather(struct hvmem_stage2 *s2, struct hvmem_gather *gather, hvmem_gfn gfn,
                              hvmem_u64 frames)
{
    hvmem_status status = HVMEM_E_PHASE;

    memset(gather, 0, sizeof *gather);
    if (hvmem__load(&s2->state) == HVMEM__S2_LIVE)
        status = hvmem_gather_begin(gather, &s2->mapping, 0, gfn << 12, frames << 12);
    return status == HVMEM_E_ARG ? HVMEM_E_PHASE : status;
}

hvmem_status hvmem__s2_shoot(struct hvmem_stage2 *s2, const struct hvmem_tlb_range *ranges,
                             hvmem_u32 count, hvmem_u32 flags)
{
    hvmem_status status = hvmem_shootdown(&s2->mapping, ranges, count, flags);

    return status == HVMEM_E_ARG ? HVMEM_E_PHASE : status;
}

int hvmem__s2_forget_touch(struct hvmem_stage2 *s2, hvmem_gfn gfn)
{
    hvmem_u32 i;

    for (i = 0; i < HVMEM__S2_TOUCHES; i++) {
        if (s2->touch[i].gfn != gfn + 1)
            continue;
        if (s2->touch[i].running)
            return 0;
        s2->touch[i].gfn = 0;
    }
    return 1;
}

hvmem_status hvmem__s2_wait(struct hvmem_stage2 *s2, hvmem_u32 *waited)
{
    if (++*waited > HVMEM__S2_WAITS)
        return HVMEM_E_BUSY;
    hvmem__relax(&s2->heap->host);
    return HVMEM_OK;
}

/* ---- table pages ---------------------------------------------------------------------------- */

hvmem_maddr hvmem__s2_take(struct hvmem_stage2 *s2)
{
    hvmem_maddr address = (hvmem_maddr)s2->pool << 12;
    hvmem_u64 *table = hvmem__s2_table(s2, address);

    HVMEM__ASSERT(&s2->heap->host, s2->pool_count != 0);
    s2->pool = table[0];
    s2->pool_count--;
    s2->used++;
    table[0] = 0;
    return address;
}

/* Into the pool; the page is zero. Under the lock. */
static void put_in_pool(struct hvmem_stage2 *s2, hvmem_mfn mfn)
{
    hvmem__s2_table(s2, (hvmem_maddr)mfn << 12)[0] = s2->pool;
    s2->pool = mfn;
    s2->pool_count++;
}

/*
 * Zeroed frames for tables. Nothing is fetched from a table, so what instruction caches hold of it stays
 * owed: that would be an invalidation for every table.
 */
hvmem_status hvmem__s2_frames(struct hvmem_stage2 *s2, hvmem_u32 order, hvmem_mfn *mfn)
{
    struct hvmem_request request;
    struct hvmem__drawn drawn;
    hvmem_status status;
    hvmem_u64 i;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.flags = HVMEM_REQ_DEFER_ICACHE;
    request.node = s2->node;
    request.domain = s2->domain;
    request.order = order;
    request.hi = (hvmem_mfn)1 << (s2->output_bits - 12);
    status = hvmem__request_check(s2->heap, &request);
    if (!status)
        status = hvmem__alloc(s2->heap, &request, HVMEM__BIAS_TABLE, &drawn, mfn);
    for (i = 0; i < (hvmem_u64)1 << order && !status; i++) {
        memset(hvmem__s2_table(s2, (hvmem_maddr)(*mfn + i) << 12), 0, 4096);
        hvmem__give_way(s2->heap);
    }
    return status;
}

static hvmem_status one_table(struct hvmem_stage2 *s2, hvmem_mfn *mfn)
{
    return HVMEM_TEST_POINT("stage2.table") ? HVMEM_E_NOMEM : hvmem__s2_frames(s2, 0, mfn);
}

void hvmem__s2_release(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u32 order, hvmem_u32 owed)
{
    const struct hvmem_domain *owner = s2->domain;

    (void)hvmem__free_checked(s2->heap, mfn, order, &owner, owed | HVMEM__EVEN_TABLE);
}

hvmem_status hvmem__s2_fill(struct hvmem_stage2 *s2, hvmem_u64 tables)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state = hvmem__s2_lock(s2);
    hvmem_mfn mfn;

    while (s2->pool_count < tables && !status) {
        if (s2->state != HVMEM__S2_LIVE)
            status = HVMEM_E_PHASE;
        else if (s2->max_tables && s2->held >= s2->max_tables)
            status = HVMEM_E_LIMIT;
        if (status)
            break;
        s2->held++;
        hvmem__s2_unlock(s2, state);
        status = one_table(s2, &mfn);
        state = hvmem__s2_lock(s2);
        if (status)
            s2->held--;
        else
            put_in_pool(s2, mfn);
    }
    hvmem__s2_unlock(s2, state);
    return status;
}

void hvmem__s2_give_back(struct hvmem_stage2 *s2, hvmem_mfn mfn)
{
    hvmem_u64 state;
    int keep;

    memset(hvmem__s2_table(s2, (hvmem_maddr)mfn << 12), 0, 4096);
    hvmem__give_way(s2->heap);
    state = hvmem__s2_lock(s2);
    keep = s2->state == HVMEM__S2_LIVE && s2->pool_count < HVMEM__S2_POOL;
    if (keep)
        put_in_pool(s2, mfn);
    else
        s2->held--;
    hvmem__s2_unlock(s2, state);
    /* The zeroes may be in the caches alone. */
    if (!keep)
        hvmem__s2_release(s2, mfn, 0, hvmem__owed_by_table(s2->heap) & ~HVMEM_OWES_SCRUB);
}

HVMEM_CALLBACK void hvmem__s2_table_free(void *ctx, hvmem_mfn mfn, hvmem_status status)
{
    struct hvmem_stage2 *s2 = ctx;
    hvmem_u64 state;

    if (!status) {
        hvmem__s2_give_back(s2, mfn);
        return;
    }
    /* In quarantine: the host decides when it is free; it is ours no longer. */
    state = hvmem__s2_lock(s2);
    s2->held--;
    hvmem__s2_unlock(s2, state);
}

/* ---- what all public calls share -------------------------------------------------------------- */

hvmem_status hvmem__s2_check_range(const struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames)
{
    hvmem_u64 all = (hvmem_u64)1 << (s2->input_bits - 12);

    return !frames || gfn >= all || frames > all - gfn ? HVMEM_E_RANGE : HVMEM_OK;
}

hvmem_status hvmem__s2_refuse(struct hvmem_stage2 *s2, hvmem_status status, hvmem_u64 info)
{
    return hvmem__refuse(s2->heap, status, 0, HVMEM_ORDER_ANY, info);
}

int hvmem__s2_shared(const struct hvmem_stage2 *s2)
{
    return __atomic_load_n(&s2->mapping.notifiers, __ATOMIC_SEQ_CST) != HVMEM_NULL;
}
