/* SPDX-License-Identifier: BSD-2-Clause */
/* Spaces of tenants on the model machine: their ids, mappings, devices, and who runs them; sim_rig.h. */
#include "sim_rig.h"

#include <stdlib.h>
#include <string.h>

static void must(struct sim_rig *rig, hvmem_status status, const char *what)
{
    if (status != HVMEM_OK)
        sim_broken(rig, what);
}

static hvmem_u32 regime_of(const struct sim_rig *rig)
{
    return rig->flags & SIM_BROADCAST ? HVMEM_REGIME_STAGE2 : HVMEM_REGIME_USER;
}

/* ---- ids ------------------------------------------------------------------------------------- */

void sim_ident_begin(struct sim_rig *rig, const struct hvmem_host_ops *host)
{
    struct hvmem_ident_config config = {.size = sizeof config, .regime = regime_of(rig)};
    hvmem_size bytes;
    int i;

    config.flags = rig->flags & SIM_BROADCAST ? HVMEM_IDENT_BROADCAST : HVMEM_IDENT_PER_CPU;
    config.first = 1;
    config.ids = rig->flags & SIM_BROADCAST ? 2 * rig->cpus + 1 : 3;
    config.max_cpus = rig->cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.host = host;
    config.host_ctx = rig;
    config.backend = &rig->m.backend;
    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    rig->memory[3] = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_ident_init(rig->memory[3], bytes, &config, &rig->ident), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_cpu_online(rig->ident, 0, 0xffff), HVMEM_OK);
    for (i = 0; i < SIM_TENANTS; i++) {
        rig->tenant[i].space_memory = aligned_alloc(64, hvmem_space_size(rig->ident));
        REQUIRE(rig->tenant[i].space_memory != NULL);
    }
}

/* ---- spaces ---------------------------------------------------------------------------------- */

static hvmem_status invalidate(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                               hvmem_u64 *ticket)
{
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};
    struct sim_device *device = ctx;

    (void)ranges;
    (void)count;
    (void)ticket;
    if (device->rig->flags & SIM_BAD_DEVICE)
        return HVMEM_OK;
    return hvmem_sim_device_flush(&device->rig->m, device->number, &all);
}

void sim_space_create(struct sim_rig *rig, int tenant, hvmem_mfn root)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_space_config space = {.size = sizeof space, .regime = regime_of(rig)};
    struct hvmem_mapping_config mapping = {.size = sizeof mapping, .heap = rig->heap};
    hvmem_u32 d;

    /* Under a tag of devices; CPUs load it under the id they are told. */
    hvmem_sim_space_create(&rig->m, &t->space, regime_of(rig), 0xf000u + (hvmem_u32)tenant, root);
    must(rig,
         hvmem_space_create(rig->ident, t->space_memory, hvmem_space_size(rig->ident), &space,
                            &t->handle),
         "space_create");
    mapping.space = t->handle;
    must(rig, hvmem_mapping_init(&t->mapping, &mapping), "mapping_init");
    for (d = 0; d < rig->m.config.devices; d++) {
        t->device[d] = (struct sim_device){.rig = rig, .number = d};
        t->device[d].notifier.size = sizeof t->device[d].notifier;
        t->device[d].notifier.invalidate = invalidate;
        t->device[d].notifier.ctx = &t->device[d];
        must(rig, hvmem_notifier_add(&t->mapping, &t->device[d].notifier), "notifier_add");
    }
}

/* Nobody runs it: devices forget it. */
void sim_mapping_end(struct sim_rig *rig, int tenant)
{
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};
    struct sim_tenant *t = &rig->tenant[tenant];
    hvmem_u32 d;

    for (d = 0; d < rig->m.config.devices; d++) {
        if (!(rig->flags & SIM_BAD_DEVICE))
            must(rig, hvmem_sim_device_flush(&rig->m, d, &all), "device");
        must(rig, hvmem_notifier_remove(&t->mapping, &t->device[d].notifier), "notifier_remove");
    }
    must(rig, hvmem_mapping_fini(&t->mapping), "mapping_fini");
}

/* Its translations are gone when this returns. */
void sim_space_destroy(struct sim_rig *rig, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];

    /* LAZY keeps the number, and what it translates: the wrong thing where frames are freed next. */
    must(rig, hvmem_space_destroy(t->handle, rig->flags & SIM_BAD_ID ? HVMEM_DESTROY_LAZY : 0),
         "space_destroy");
    t->handle = NULL;
}

void sim_shoot(struct sim_rig *rig, int tenant, hvmem_u32 page, hvmem_u32 pages, hvmem_u32 flags)
{
    struct hvmem_tlb_range range = {.start = hvmem_sim_input(page) << 12, .pages = pages};

    range.stride_shift = 12;
    range.level = HVMEM_LEVEL_UNKNOWN;
    range.flags = (hvmem_u16)flags;
    must(rig,
         hvmem_shootdown(&rig->tenant[tenant].mapping, &range, 1,
                         flags & HVMEM_RANGE_LEAF ? 0 : HVMEM_SHOOT_TABLES),
         "shootdown");
}

/* ---- who runs what --------------------------------------------------------------------------- */

/* The CPU leaves its space and runs none. */
static void leave(struct sim_rig *rig, hvmem_cpu cpu)
{
    if (rig->loaded[cpu] < 0)
        return;
    must(rig, hvmem_space_deactivate(rig->ident, cpu), "deactivate");
    hvmem_sim_load(&rig->m, cpu, NULL);
    rig->loaded[cpu] = -1;
    must(rig, hvmem_space_entered(rig->ident, cpu), "entered");
}

/* Interrupts are off from activate until the hardware has loaded what it said. */
static void enter(struct sim_rig *rig, hvmem_cpu cpu, int tenant)
{
    struct sim_tenant *t = &rig->tenant[tenant];
    struct hvmem_sim_space loaded = t->space;
    struct hvmem_entry entry;

    rig->done.lazy_again += rig->loaded[cpu] == tenant && hvmem_sim_lazy(&rig->m, cpu);
    must(rig, hvmem_space_activate(t->handle, cpu, &entry), "activate");
    loaded.tag.id = rig->flags & SIM_BAD_ID ? (hvmem_u32)tenant + 1 : entry.id;
    hvmem_sim_load(&rig->m, cpu, &loaded);
    rig->loaded[cpu] = tenant;
    rig->stale += hvmem_sim_outdated(&rig->m, cpu);
    must(rig, hvmem_space_entered(rig->ident, cpu), "entered");
}

void sim_lazy(struct sim_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before;

    if (rig->loaded[cpu] < 0 || hvmem_sim_lazy(&rig->m, cpu))
        return;
    before = sim_act(rig, cpu);
    must(rig, hvmem_space_lazy(rig->ident, cpu), "lazy");
    hvmem_sim_set_lazy(&rig->m, cpu);
    rig->done.lazy++;
    sim_leave(rig, before);
}

void sim_switch(struct sim_rig *rig, hvmem_u32 row, int tenant, int flush)
{
    const struct sim_tenant *t = tenant < 0 ? NULL : &rig->tenant[tenant];
    hvmem_cpu before;

    if (row >= rig->cpus) {
        /* A device has a tag of its own. */
        rig->loaded[row] = t && !t->busy && t->domain ? tenant : -1;
        hvmem_sim_load(&rig->m, row, rig->loaded[row] < 0 ? NULL : &t->space);
        return;
    }
    before = sim_act(rig, row);
    if (flush)
        sim_flush_all(rig, HVMEM_FLUSH_OPPORTUNISTIC);
    rig->masked++;
    if (t && !t->busy && t->domain) /* else it went away meanwhile */
        enter(rig, row, tenant);
    else
        leave(rig, row);
    rig->masked--;
    sim_leave(rig, before);
}
