/* SPDX-License-Identifier: BSD-2-Clause */
/* The heap on the model machine, its CPUs, and random programs; see sim_rig.h. */
#include "sim_rig.h"

#include "test_heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE  0x100u
#define SLOTS 20u
#define LINES 2u
/* Turns of a lock that nobody will ever release: all is one thread. */
#define STUCK 100000u

static unsigned below(struct sim_rig *rig, uint64_t bound)
{
    return (unsigned)test_below(&rig->rng, bound);
}

int sim_rig_wrong(const struct sim_rig *rig)
{
    return rig->stale || rig->leaked || rig->m.recycled || rig->broken != NULL;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

void sim_flush_all(struct sim_rig *rig, hvmem_u32 flags)
{
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .what = HVMEM_FLUSH_ALL};
    struct hvmem_backend *be = &rig->m.backend;
    struct hvmem_flush_token token;

    if (rig->flags & SIM_BROADCAST && below(rig, 2))
        flush.scope = HVMEM_SCOPE_INNER;
    if (hvmem_flush_begin(rig->heap, flush.scope, flags, &token) != HVMEM_OK ||
        be->ops->tlb_flush(be, &flush) != HVMEM_OK ||
        hvmem_flush_end(rig->heap, &token) != HVMEM_OK)
        sim_broken(rig, "flush");
}

void sim_offline(struct sim_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = sim_act(rig, cpu);

    sim_switch(rig, cpu, -1, 0); /* what its TLB holds stays there */
    if (hvmem_ident_cpu_offline(rig->ident, cpu) != HVMEM_OK ||
        hvmem_cpu_offline(rig->heap, cpu) != HVMEM_OK)
        sim_broken(rig, "cpu_offline");
    hvmem_sim_set_online(&rig->m, cpu, 0);
    sim_leave(rig, before);
}

void sim_online(struct sim_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = sim_act(rig, cpu);
    const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(&rig->m.tlb, cpu);
    unsigned i;

    if (hvmem_cpu_online(rig->heap, cpu) != HVMEM_OK ||
        hvmem_ident_cpu_online(rig->ident, cpu, 0xffff) != HVMEM_OK)
        sim_broken(rig, "cpu_online");
    hvmem_sim_set_online(&rig->m, cpu, 1);
    for (i = 0; i < SLOTS; i++)
        rig->stale += entry[i].valid != 0;
    sim_leave(rig, before);
}

/* ---- what the library asks ------------------------------------------------------------------- */

static hvmem_cpu this_cpu(void *host)
{
    return ((struct sim_rig *)host)->m.current;
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    return hvmem_sim_call_cpus(&((struct sim_rig *)host)->m, cpus, fn, arg);
}

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    (void)order;
    return (void *)hvmem_sim_address(&((struct sim_rig *)host)->m.data, mfn);
}

/* Turns of waiting since somebody last came to a point. */
static unsigned turns;

static void relax(void *host)
{
    (void)host;
    if (++turns > STUCK) {
        fputs("sim_rig: a lock is held across a point where others run\n", stderr);
        abort();
    }
}

static void at_point(void *ctx, const char *where);

static hvmem_status arm64_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct hvmem_sim_machine *m = be->ctx;
    struct sim_rig *rig = m->config.ctx;
    hvmem_cpu cpu = m->current;
    hvmem_status status;

    at_point(rig, "tlb");
    m->current = cpu;
    status = sim_arm64_flush(&rig->arm64, m, flush);
    at_point(rig, "tlb");
    m->current = cpu;
    if (rig->arm64.unknown != NULL)
        sim_broken(rig, rig->arm64.unknown);
    return status;
}

/* What is zeroed nobody reaches any more: what they wrote afterwards would stay. */
static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct hvmem_sim_machine *m = be->ctx;
    struct sim_rig *rig = m->config.ctx;
    hvmem_mfn first = (addr - hvmem_sim_address(&m->data, 0)) >> 12;

    rig->stale += hvmem_sim_reached(m, first, bytes >> 12);
    if (rig->scrubbing == rig->depth + 1)
        rig->done.scrubbed += bytes >> 12;
    return rig->flags & SIM_BAD_SCRUB ? HVMEM_OK : rig->zero(be, addr, bytes);
}

/* ---- random steps ---------------------------------------------------------------------------- */

static hvmem_cpu some_cpu(struct sim_rig *rig)
{
    hvmem_cpu cpu;

    do
        cpu = (hvmem_cpu)below(rig, rig->cpus);
    while (!hvmem_sim_online(&rig->m, cpu));
    return cpu;
}

/* A tenant that is there and that nobody is making, ending or borrowing for; -1: unlucky. */
static int some_tenant(struct sim_rig *rig, int running)
{
    int tenant = (int)below(rig, SIM_TENANTS);
    const struct sim_tenant *t = &rig->tenant[tenant];

    return !t->domain || t->busy || (running && !t->running) ? -1 : tenant;
}

static int idle(const struct sim_tenant *t)
{
    int k;

    for (k = 0; k < SIM_BLOCKS; k++)
        if (t->block[k].state == SIM_BUSY)
            return 0;
    return !t->busy && !t->open;
}

static hvmem_u32 some_deferral(struct sim_rig *rig, const struct sim_tenant *t)
{
    static const hvmem_u32 bit[] = {HVMEM_REQ_DEFER_TLB, HVMEM_REQ_DEFER_ICACHE,
                                    HVMEM_REQ_DEFER_DCACHE, HVMEM_REQ_DEFER_SCRUB};
    hvmem_u32 flags = 0;
    unsigned i;

    if (t->running ? below(rig, 16) : !below(rig, 4))
        return 0;
    if (below(rig, 2))
        return HVMEM_REQ_DEFER_ALL;
    for (i = 0; i < 4; i++)
        if (below(rig, 2))
            flags |= bit[i];
    return flags;
}

static void step_block(struct sim_rig *rig)
{
    int tenant = some_tenant(rig, 0), block = (int)below(rig, SIM_BLOCKS), guest;
    struct sim_tenant *t;

    if (tenant < 0)
        return;
    t = &rig->tenant[tenant];
    if (!below(rig, 12)) {
        sim_populate(rig, tenant);
        return;
    }
    switch (t->block[block].state) {
    case SIM_NONE:
        (void)sim_alloc(rig, tenant, block, below(rig, 3) ? below(rig, 3) : HVMEM_SIM_BLOCK_ORDER,
                        some_deferral(rig, t));
        break;
    case SIM_OWED:
        if (below(rig, 4))
            sim_settle(rig, tenant, block);
        else
            sim_give_back(rig, tenant, block, 0);
        break;
    case SIM_HELD:
        if (below(rig, 8))
            sim_map_block(rig, tenant, block);
        else
            sim_give_back(rig, tenant, block, 0);
        break;
    case SIM_UNTOUCHED:
        if (t->running && below(rig, 4))
            sim_touch(rig, tenant, block);
        else
            sim_give_back(rig, tenant, block, 0);
        break;
    case SIM_MAPPED:
        guest = below(rig, 6) || !t->running ? -1 : some_tenant(rig, 1);
        if (guest >= 0 && guest != tenant && t->block[block].guest < 0)
            sim_share(rig, tenant, block, guest);
        else
            sim_give_back(rig, tenant, block, below(rig, 3) == 0);
        break;
    default:
        break;
    }
}

static void step_tenant(struct sim_rig *rig)
{
    int tenant = (int)below(rig, SIM_TENANTS), k;
    struct sim_tenant *t = &rig->tenant[tenant];

    if (!t->domain && !t->busy) {
        (void)sim_create(rig, tenant);
    } else if (t->domain && !t->busy && !t->running) {
        for (k = 0; k < SIM_BLOCKS && below(rig, 4); k++)
            if (t->block[k].state == SIM_OWED)
                sim_settle(rig, tenant, k);
        if (t->domain && !t->busy && !t->running)
            (void)sim_start(rig, tenant);
    } else if (t->domain && idle(t) && !below(rig, 8)) {
        if (below(rig, 2) && !(rig->flags & SIM_BAD_ID))
            sim_teardown(rig, tenant);
        else
            sim_destroy(rig, tenant);
    }
}

static void step_cpus(struct sim_rig *rig)
{
    hvmem_cpu cpu = (hvmem_cpu)below(rig, rig->cpus);

    if (rig->acting[cpu] || cpu == 0)
        return;
    if (!hvmem_sim_online(&rig->m, cpu))
        sim_online(rig, cpu);
    else if (!below(rig, 4))
        sim_offline(rig, cpu);
}

static void step_switch(struct sim_rig *rig)
{
    unsigned rows = rig->cpus + rig->m.config.devices, row = below(rig, rows);

    if (row < rig->cpus && !below(rig, 3))
        sim_lazy(rig, row);
    else if (row >= rig->cpus || hvmem_sim_online(&rig->m, row))
        sim_switch(rig, row, below(rig, 8) ? some_tenant(rig, 1) : -1, (int)below(rig, 2));
}

static void step(struct sim_rig *rig)
{
    hvmem_cpu before = sim_act(rig, some_cpu(rig));
    int tenant;

    rig->steps++;
    switch (below(rig, 32)) {
    case 0:
        step_tenant(rig);
        break;
    case 1:
        step_cpus(rig);
        break;
    case 2:
        sim_flush_all(rig, below(rig, 2) ? HVMEM_FLUSH_OPPORTUNISTIC : 0);
        break;
    case 3:
        tenant = some_tenant(rig, 0);
        if (tenant >= 0)
            sim_drop_table(rig, tenant, below(rig, SIM_TABLES), (int)below(rig, 2));
        break;
    case 4:
    case 5:
    case 6:
        step_switch(rig);
        break;
    case 7:
    case 8:
        hvmem_sim_speculate_on(&rig->m, below(rig, rig->cpus + rig->m.config.devices), 8);
        break;
    case 15:
        if (!below(rig, 4))
            sim_scrub(rig);
        break;
    case 9:
        hvmem_sim_data_stir(&rig->m.data, 4);
        break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
        sim_access(rig, below(rig, rig->cpus + rig->m.config.devices));
        break;
    default:
        step_block(rig);
        break;
    }
    sim_leave(rig, before);
}

/* Between two instructions: hardware does what it likes, and sometimes another CPU goes on. */
static void between(struct sim_rig *rig)
{
    hvmem_cpu before = rig->m.current;
    unsigned i, rows = rig->cpus + rig->m.config.devices;

    if (rig->depth > 2 || sim_rig_wrong(rig))
        return;
    rig->depth++;
    for (i = 0; i < 3; i++)
        hvmem_sim_speculate_on(&rig->m, below(rig, rows), 2);
    sim_access(rig, below(rig, rows));
    hvmem_sim_data_stir(&rig->m.data, 2);
    if (!rig->masked && !below(rig, 4))
        step(rig);
    rig->m.current = before;
    rig->depth--;
}

static void at_point(void *ctx, const char *where)
{
    struct sim_rig *rig = ctx;

    (void)where;
    turns = 0;
    if (!(rig->flags & SIM_QUIET))
        between(rig);
}

static int at_test_point(const char *name, void *ctx)
{
    turns = 0;
    if (strncmp(name, "clock_", 6) == 0)
        between(ctx);
    return 0;
}

void sim_rig_run(struct sim_rig *rig, uint64_t steps)
{
    uint64_t end = rig->steps + steps;

    while (rig->steps < end && !sim_rig_wrong(rig))
        step(rig);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static hvmem_u64 features_of(unsigned flags)
{
    hvmem_u64 features = flags & SIM_BROADCAST
                             ? HVMEM_CAP_BROADCAST | HVMEM_CAP_STAGE2 | HVMEM_CAP_STAGE2_RANGE
                             : HVMEM_CAP_ICOHERENT | HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE;

    if (flags & SIM_FORCED)
        features |= HVMEM_CAP_FWB | (flags & SIM_POU ? 0 : HVMEM_CAP_IDC);
    return features | HVMEM_CAP_FAST_ZERO;
}

static void make_machine(struct sim_rig *rig)
{
    struct hvmem_sim_machine_config config = {.cpus = rig->cpus, .slots = SLOTS, .lines = LINES};
    static struct hvmem_backend_ops ops;

    config.devices = rig->flags & SIM_DEVICES ? 2 : 0;
    config.base = BASE;
    config.frames = SIM_FRAMES;
    config.features = features_of(rig->flags);
    config.flawed = (rig->flags & SIM_FLAWED) != 0;
    config.seed = test_random(&rig->rng) | 1;
    config.point = at_point;
    config.ctx = rig;
    rig->memory[0] = calloc(1, hvmem_sim_machine_bytes(&config));
    REQUIRE(rig->memory[0] != NULL);
    hvmem_sim_machine_init(&rig->m, rig->memory[0], &config);
    ops = *rig->m.backend.ops;
    rig->zero = ops.zero;
    ops.zero = zero;
    if (rig->flags & SIM_ARM64) {
        sim_arm64_begin(&rig->arm64, (rig->flags & SIM_FLAWED) && !(rig->flags & SIM_BAD_QUIRK));
        ops.tlb_flush = arm64_flush;
        rig->m.backend.caps.features |=
            rig->arm64.be.caps.features & (HVMEM_CAP_RANGE | HVMEM_CAP_TTL);
        rig->m.backend.caps.max_range_pages = rig->arm64.be.caps.max_range_pages;
    }
    rig->m.backend.ops = &ops;
    if (rig->flags & SIM_BAD_QUIRK)
        rig->m.backend.caps.quirks = 0;
}

static void make_heap(struct sim_rig *rig)
{
    static const struct hvmem_host_ops host = {.size = sizeof host,
                                               .this_cpu = this_cpu,
                                               .relax = relax,
                                               .call_cpus = call_cpus,
                                               .frame_map = frame_map};
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = SIM_FRAMES};
    struct hvmem_config config;

    hvmem_config_default(&config);
    config.max_order = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = rig->cpus;
    config.max_banks = 2;
    config.max_domains = SIM_TENANTS;
    config.owed_on_free = HVMEM_OWES_SCRUB | HVMEM_OWES_ICACHE;
    if (!(rig->flags & SIM_CACHED))
        config.owed_on_free |= HVMEM_OWES_DCACHE;
    config.host = &host;
    config.host_ctx = rig;
    config.backend = &rig->m.backend;
    config.flags = (rig->flags & SIM_NO_CLOCK ? HVMEM_CONFIG_NO_CLOCK : 0) |
                   (rig->flags & SIM_NO_CACHE ? HVMEM_CONFIG_NO_CPU_CACHE : 0);
    rig->heap = test_heap(&config, &bank, &rig->memory[1]);
    sim_ident_begin(rig, &host);
}

void sim_rig_begin(struct sim_rig *rig, unsigned flags, unsigned cpus, uint64_t stream)
{
    unsigned row;
    int i;

    memset(rig, 0, sizeof *rig);
    rig->flags = flags | SIM_QUIET;
    rig->cpus = cpus;
    rig->rng = test_rng(stream);
    if (flags & SIM_FIXED)
        rig->rng.state = 0x5eed5eed5eedu + stream;
    make_machine(rig);
    make_heap(rig);
    for (i = 0; i < SIM_TENANTS; i++) {
        rig->tenant[i].memory = calloc(1, hvmem_domain_size(rig->heap));
        REQUIRE(rig->tenant[i].memory != NULL);
    }
    for (row = 0; row < cpus + rig->m.config.devices; row++)
        rig->loaded[row] = -1;
    for (row = 1; row < cpus; row++)
        sim_online(rig, row);
    rig->flags = flags;
    if (!(flags & SIM_QUIET))
        test_set_point_hook(at_test_point, rig);
}

void sim_rig_end(struct sim_rig *rig)
{
    int wrong = sim_rig_wrong(rig);
    const char *where = NULL;
    hvmem_mfn mfn = 0;
    int i;

    test_set_point_hook(NULL, NULL);
    rig->flags |= SIM_QUIET;
    if (!CHECK(rig->broken == NULL))
        test_note("%s failed", rig->broken);
    for (i = 0; i < SIM_TENANTS && !wrong; i++)
        if (rig->tenant[i].domain)
            sim_destroy(rig, i);
    if (!wrong) {
        CHECK_EQ(hvmem_drain(rig->heap), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(rig->heap), SIM_FRAMES);
        CHECK_EQ(hvmem_audit(rig->heap, &mfn, &where), HVMEM_OK);
    }
    for (i = 0; i < SIM_TENANTS; i++) {
        free(rig->tenant[i].memory);
        free(rig->tenant[i].space_memory);
    }
    for (i = 0; i < 4; i++)
        free(rig->memory[i]);
}
