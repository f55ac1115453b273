/* SPDX-License-Identifier: BSD-2-Clause */
/* What a hypervisor does with blocks, tables and devices on the model machine; see sim_rig.h. */
#include "sim_rig.h"

#include <string.h>

void sim_broken(struct sim_rig *rig, const char *what)
{
    if (rig->broken == NULL)
        rig->broken = what;
}

hvmem_cpu sim_act(struct sim_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = rig->m.current;

    rig->m.current = cpu;
    rig->acting[cpu]++;
    return before;
}

void sim_leave(struct sim_rig *rig, hvmem_cpu before)
{
    rig->acting[rig->m.current]--;
    rig->m.current = before;
}

int sim_goes_on(struct sim_rig *rig, hvmem_status status)
{
    hvmem_cpu cpu = (hvmem_cpu)test_below(&rig->rng, rig->cpus);

    if (status != HVMEM_AGAIN)
        return 0;
    if (hvmem_sim_online(&rig->m, cpu)) {
        rig->acting[rig->m.current]--;
        rig->m.current = cpu;
        rig->acting[cpu]++;
    }
    return 1;
}

static void must(struct sim_rig *rig, hvmem_status status, const char *what)
{
    if (status != HVMEM_OK)
        sim_broken(rig, what);
}

static int bad(const struct sim_rig *rig, unsigned flag)
{
    return (rig->flags & flag) != 0;
}

/* ---- devices ----------------------------------------------------------------------------------- */

/* Devices have no debts: they are told before a frame is freed. */
void sim_tell_devices(struct sim_rig *rig)
{
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};
    unsigned d;

    for (d = 0; d < rig->m.config.devices && !bad(rig, SIM_BAD_DEVICE); d++)
        must(rig, hvmem_sim_device_flush(&rig->m, d, &all), "device");
}

/* ---- the oracle ------------------------------------------------------------------------------ */

/* A word was seen where only zeroes and the owner's own may be. */
static void seen(struct sim_rig *rig, uint32_t word, uint32_t owner)
{
    rig->leaked += word != 0 && word != owner;
}

/* In one of `ways` ways: cached, past the caches, as code. */
static void look_at(struct sim_rig *rig, hvmem_mfn mfn, uint32_t owner, unsigned ways)
{
    hvmem_cpu cpu = (hvmem_cpu)test_below(&rig->rng, rig->cpus);
    hvmem_u32 line = (hvmem_u32)test_below(&rig->rng, rig->m.config.lines), word;

    switch (test_below(&rig->rng, ways)) {
    case 0:
        word = hvmem_sim_read(&rig->m.data, mfn, line);
        break;
    case 1:
        word = rig->flags & (SIM_FORCED | SIM_CACHED) ? 0
                                                      : hvmem_sim_read_ram(&rig->m.data, mfn, line);
        break;
    default:
        word = hvmem_sim_fetch(&rig->m.data, cpu, mfn, line);
        break;
    }
    seen(rig, word, owner);
}

static void handed_over(struct sim_rig *rig, hvmem_mfn mfn, hvmem_u64 frames, unsigned ways)
{
    hvmem_u64 i;

    rig->handed++;
    rig->stale += hvmem_sim_reached(&rig->m, mfn, frames);
    for (i = 0; i < frames; i++)
        look_at(rig, mfn + i, 0, ways);
}

void sim_handed_over(struct sim_rig *rig, hvmem_mfn mfn, hvmem_u64 frames)
{
    handed_over(rig, mfn, frames, 3);
}

void sim_handed_over_data(struct sim_rig *rig, hvmem_mfn mfn, hvmem_u64 frames)
{
    handed_over(rig, mfn, frames, 2);
}

void sim_access(struct sim_rig *rig, hvmem_u32 row)
{
    hvmem_u32 page = (hvmem_u32)test_below(&rig->rng, HVMEM_SIM_PAGES);
    hvmem_u32 line = (hvmem_u32)test_below(&rig->rng, rig->m.config.lines);
    struct hvmem_sim_entry entry;
    uint32_t self;
    hvmem_mfn mfn;

    if (rig->loaded[row] < 0 || (row < rig->cpus && hvmem_sim_lazy(&rig->m, row)) ||
        !hvmem_sim_tlb_access(&rig->m.tlb, row, hvmem_sim_input(page), &entry))
        return;
    mfn = entry.frame + (entry.shift ? page % HVMEM_SIM_FANOUT : 0);
    self = rig->tenant[rig->loaded[row]].space.serial;
    /* What another lends, and what is no longer its own, it leaves alone. */
    if (rig->m.frame[mfn - rig->m.config.base].serial != self)
        return;
    rig->accesses++;
    if (row >= rig->cpus) {
        if (rig->flags & (SIM_FORCED | SIM_CACHED))
            return;
        if (test_below(&rig->rng, 2))
            hvmem_sim_write_ram(&rig->m.data, mfn, line, self);
        else
            seen(rig, hvmem_sim_read_ram(&rig->m.data, mfn, line), self);
    } else if (test_below(&rig->rng, 2)) {
        hvmem_sim_write(&rig->m.data, row, mfn, line, self);
    } else {
        look_at(rig, mfn, self, 3);
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* A frame of the host's own for a table. */
hvmem_status sim_table_frame(struct sim_rig *rig, hvmem_mfn *mfn)
{
    hvmem_status status = hvmem_alloc_order(rig->heap, 0, mfn);

    if (status == HVMEM_OK)
        sim_handed_over(rig, *mfn, 1);
    else if (status != HVMEM_E_NOMEM)
        sim_broken(rig, "alloc of a table");
    return status;
}

/* Bytes of input that a table or a block spans, log2. */
#define SPAN_SHIFT 21

/* Whether a CPU keeps the tenant's tables without using them. */
static int kept_lazily(const struct sim_rig *rig, int tenant)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < rig->cpus; cpu++)
        if (rig->loaded[cpu] == tenant && hvmem_sim_lazy(&rig->m, cpu))
            return 1;
    return 0;
}

/* A table without entries is unhooked, forgotten everywhere and freed by one gather. */
static void gather_table(struct sim_rig *rig, int tenant, hvmem_u32 slot)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u64 at = (hvmem_u64)slot << SPAN_SHIFT;
    struct hvmem_gather gather = {0};

    must(rig, hvmem_gather_begin(&gather, &t->mapping, 0, at, 1ull << SPAN_SHIFT), "gather_begin");
    must(rig,
         hvmem_gather_table(&gather, hvmem_sim_unhook(&rig->m, &t->space, slot), at, 3,
                            HVMEM_TABLE_TOLD),
         "gather_table");
    must(rig, hvmem_gather_finish(&gather), "gather_finish");
}

void sim_drop_table(struct sim_rig *rig, int tenant, hvmem_u32 slot, int at_once)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 i, first = slot * HVMEM_SIM_FANOUT;
    hvmem_mfn mfn;

    for (i = 0; i < HVMEM_SIM_FANOUT; i++)
        if (t->at[first + i])
            return;
    if (!hvmem_sim_has_table(&rig->m, &t->space, slot))
        return;
    t->busy++;
    if (at_once && !bad(rig, SIM_BAD_TABLE)) {
        rig->done.tables_of_lazy += kept_lazily(rig, tenant);
        gather_table(rig, tenant, slot);
    } else {
        mfn = hvmem_sim_unhook(&rig->m, &t->space, slot);
        if (at_once)
            sim_shoot(rig, tenant, first, HVMEM_SIM_FANOUT, HVMEM_RANGE_LEAF);
        else
            sim_tell_devices(rig);
        must(rig, hvmem_free_owned(rig->heap, mfn, 0, NULL, at_once ? 0 : HVMEM_OWES_TLB),
             "free of a table");
    }
    t->busy--;
}

hvmem_u32 sim_room(struct sim_rig *rig, int tenant, hvmem_u32 order)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 pages = 1u << order, i;
    hvmem_u32 page = (hvmem_u32)test_below(&rig->rng, HVMEM_SIM_PAGES) & ~(pages - 1);
    hvmem_u32 slot = page / HVMEM_SIM_FANOUT;
    hvmem_mfn mfn;

    for (i = 0; i < pages; i++)
        if (t->at[page + i])
            return SIM_NO_ROOM;
    if (order == HVMEM_SIM_BLOCK_ORDER)
        return hvmem_sim_has_table(&rig->m, &t->space, slot) ? SIM_NO_ROOM : page;
    for (i = 0; i < HVMEM_SIM_FANOUT; i++)
        if (t->at[slot * HVMEM_SIM_FANOUT + i] && !hvmem_sim_has_table(&rig->m, &t->space, slot))
            return SIM_NO_ROOM; /* a block lies there */
    for (i = 0; i < pages; i++)
        t->at[page + i] = 3;
    if (!hvmem_sim_has_table(&rig->m, &t->space, slot)) {
        hvmem_status status = sim_table_frame(rig, &mfn);

        if (status == HVMEM_OK && hvmem_sim_has_table(&rig->m, &t->space, slot))
            must(rig, hvmem_free(rig->heap, mfn, 0), "free"); /* another CPU made one */
        else if (status == HVMEM_OK)
            hvmem_sim_hook(&rig->m, &t->space, slot, mfn);
        if (status != HVMEM_OK) {
            for (i = 0; i < pages; i++)
                t->at[page + i] = 0;
            return SIM_NO_ROOM;
        }
    }
    return page;
}

void sim_set_pages(struct sim_rig *rig, int tenant, hvmem_u32 page, hvmem_mfn mfn, hvmem_u32 order,
                   int kind)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 i;

    for (i = 0; i < 1u << order; i++) {
        t->at[page + i] = (signed char)kind;
        if (kind && (order != HVMEM_SIM_BLOCK_ORDER || !i))
            hvmem_sim_map(&rig->m, &t->space, page + i, mfn + i, order);
        else if (!kind)
            hvmem_sim_unmap(&rig->m, &t->space, page + i);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

hvmem_status sim_alloc(struct sim_rig *rig, int tenant, int block, hvmem_u32 order, hvmem_u32 flags)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct sim_block *b = &t->block[block];
    struct hvmem_request request = {.size = sizeof request, .flags = flags, .order = order};
    hvmem_status status;

    b->state = SIM_BUSY;
    request.node = HVMEM_NODE_ANY;
    request.domain = t->domain;
    status = hvmem_alloc(rig->heap, &request, &b->mfn);
    if (status != HVMEM_OK) {
        b->state = SIM_NONE;
        if (status != HVMEM_E_NOMEM && status != HVMEM_E_PHASE && status != HVMEM_E_WOULD_FLUSH)
            sim_broken(rig, "alloc");
        return status;
    }
    b->order = order;
    b->guest = -1;
    b->touched = 0;
    b->state = flags & HVMEM_REQ_DEFER_ALL ? SIM_OWED : SIM_HELD;
    if (b->state == SIM_HELD) {
        sim_handed_over(rig, b->mfn, 1ull << order);
        hvmem_sim_use_data(&rig->m, b->mfn, 1ull << order, t->space.serial);
    }
    return status;
}

void sim_settle(struct sim_rig *rig, int tenant, int block)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct sim_block *b = &t->block[block];

    b->state = SIM_BUSY;
    must(rig, hvmem_settle(rig->heap, b->mfn, 1ull << b->order, HVMEM_OWES_ANY), "settle");
    sim_handed_over(rig, b->mfn, 1ull << b->order);
    hvmem_sim_use_data(&rig->m, b->mfn, 1ull << b->order, t->space.serial);
    b->state = SIM_HELD;
}

void sim_map_block(struct sim_rig *rig, int tenant, int block)
{
    struct sim_block *b = &rig->tenant[tenant].block[block];

    b->state = SIM_BUSY;
    b->page = sim_room(rig, tenant, b->order);
    b->state = SIM_HELD;
    if (b->page == SIM_NO_ROOM)
        return;
    sim_set_pages(rig, tenant, b->page, b->mfn, b->order, 1);
    b->state = SIM_MAPPED;
}

void sim_share(struct sim_rig *rig, int tenant, int block, int guest)
{
    struct sim_block *b = &rig->tenant[tenant].block[block];

    if (b->touched) /* to the library it still waits for that */
        return;
    b->state = SIM_BUSY;
    rig->tenant[guest].busy++;
    if (!bad(rig, SIM_BAD_FOREIGN))
        must(rig, hvmem_domain_foreign(rig->tenant[tenant].domain, b->mfn, b->order), "foreign");
    b->guest_page = sim_room(rig, guest, b->order);
    if (b->guest_page != SIM_NO_ROOM) {
        sim_set_pages(rig, guest, b->guest_page, b->mfn, b->order, 2);
        b->guest = guest;
    }
    rig->tenant[guest].busy--;
    b->state = SIM_MAPPED;
}

/* Unmap from the owner's space and free by one gather; a loan is forgotten before that. */
static void gather_block(struct sim_rig *rig, int tenant, struct sim_block *b, int guest)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 pages = 1u << b->order, i;
    int block = b->order == HVMEM_SIM_BLOCK_ORDER;
    hvmem_u32 owed = 0;
    hvmem_u64 at = hvmem_sim_input(b->page) << 12;
    struct hvmem_gather gather = {0};

    must(rig,
         hvmem_gather_begin(&gather, &t->mapping, 0, at,
                            block ? 1ull << SPAN_SHIFT : (hvmem_u64)pages << 12),
         "gather_begin");
    sim_set_pages(rig, tenant, b->page, 0, b->order, 0);
    for (i = 0; i < (block ? 1 : pages); i++)
        must(rig,
             hvmem_gather_entry(&gather, at + ((hvmem_u64)i << 12), block ? SPAN_SHIFT : 12,
                                block ? 2 : 3, HVMEM_ENTRY_EXEC),
             "gather_entry");
    if (guest >= 0) {
        sim_set_pages(rig, guest, b->guest_page, 0, b->order, 0);
        if (rig->tenant[guest].dying) /* its mapping is going: pay at the next hand-over */
            owed = HVMEM_OWES_FOREIGN;
        else if (!bad(rig, SIM_BAD_FOREIGN))
            sim_shoot(rig, guest, b->guest_page, block ? 512 : pages, HVMEM_RANGE_LEAF);
    }
    must(rig, hvmem_gather_free(&gather, b->mfn, b->order, t->domain, owed), "gather_free");
    must(rig, hvmem_gather_finish(&gather), "gather_finish");
}

void sim_give_back(struct sim_rig *rig, int tenant, int block, int at_once)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct sim_block *b = &t->block[block];
    hvmem_u32 owed = bad(rig, SIM_BAD_FREE) ? 0 : HVMEM_OWES_TLB;
    int mapped = b->state == SIM_MAPPED, guest = mapped ? b->guest : -1;

    if (b->state == SIM_UNTOUCHED)
        sim_leave_place(rig, tenant, b);
    b->state = SIM_BUSY;
    if (guest >= 0)
        rig->tenant[guest].busy++;
    if (mapped && at_once) {
        gather_block(rig, tenant, b, guest);
    } else {
        if (mapped) {
            sim_set_pages(rig, tenant, b->page, 0, b->order, 0);
            if (guest >= 0)
                sim_set_pages(rig, guest, b->guest_page, 0, b->order, 0);
            sim_tell_devices(rig);
        }
        if (guest >= 0)
            owed = bad(rig, SIM_BAD_FOREIGN) ? 0 : HVMEM_OWES_FOREIGN;
        must(rig, hvmem_free_owned(rig->heap, b->mfn, b->order, t->domain, owed), "free");
    }
    if (guest >= 0)
        rig->tenant[guest].busy--;
    b->state = SIM_NONE;
}
