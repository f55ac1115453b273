/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap on a machine of model CPUs; see clock_rig.h. */
#include "clock_rig.h"

#include "test_heap.h"

#include <stdlib.h>
#include <string.h>

#define PAGES     (CLOCK_SLOTS * CLOCK_SLOT_PAGES)
#define PAGE_BITS 5
#define TLB_SLOTS 24

static void broken(struct clock_rig *rig, const char *what)
{
    if (rig->broken == NULL)
        rig->broken = what;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static int walk(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 page,
                struct hvmem_sim_entry *entry)
{
    struct clock_rig *rig = ctx;
    const struct clock_slot *slot;

    if (page >= PAGES)
        return 0;
    slot = &rig->slot[space->id - 1][page / CLOCK_SLOT_PAGES];
    if (slot->used != 1 || page % CLOCK_SLOT_PAGES >> slot->order)
        return 0;
    entry->page = page;
    entry->frame = slot->mfn + page % CLOCK_SLOT_PAGES;
    entry->level = 3;
    return 1;
}

uint64_t clock_rig_holders(struct clock_rig *rig, hvmem_mfn mfn, hvmem_u64 frames)
{
    uint64_t n = 0;
    hvmem_cpu cpu;
    int i;

    for (cpu = 0; cpu < CLOCK_CPUS; cpu++) {
        const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(rig->tlb, cpu);

        for (i = 0; rig->online >> cpu & 1 && i < TLB_SLOTS; i++)
            n += entry[i].valid && entry[i].frame - mfn < frames;
    }
    return n;
}

static hvmem_cpu act_as(struct clock_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = rig->current;

    rig->current = cpu;
    rig->tlb->current = cpu;
    return before;
}

void clock_rig_speculate(struct clock_rig *rig, unsigned each)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < CLOCK_CPUS; cpu++)
        if (rig->online >> cpu & 1)
            hvmem_sim_tlb_speculate(rig->tlb, cpu, (hvmem_u32)test_below(&rig->rng, each + 1));
}

/* ---- host and back-end ----------------------------------------------------------------------- */

static hvmem_cpu this_cpu(void *host)
{
    return ((struct clock_rig *)host)->current;
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    struct clock_rig *rig = host;
    hvmem_cpu first = (hvmem_cpu)test_below(&rig->rng, CLOCK_CPUS), i;

    for (i = 0; i < CLOCK_CPUS; i++) {
        hvmem_cpu cpu = (first + i) % CLOCK_CPUS, before;

        if (!(cpus->words[0] >> cpu & rig->online >> cpu & 1))
            continue;
        before = act_as(rig, cpu);
        fn(arg);
        act_as(rig, before);
        rig->asked++;
        if (!(rig->flags & CLOCK_RIG_QUIET))
            clock_rig_speculate(rig, 2);
    }
    return HVMEM_OK;
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct clock_rig *rig = be->ctx;
    hvmem_status status;

    if (rig->flags & CLOCK_RIG_DEAF)
        return HVMEM_OK;
    (void)hvmem__test_point("clock_backend");
    status = hvmem_sim_tlb_flush(rig->tlb, rig->current, flush);
    (void)hvmem__test_point("clock_backend");
    return status;
}

static hvmem_status whole(struct clock_rig *rig, hvmem_u32 scope)
{
    struct hvmem_tlb_flush flush = {
        .size = sizeof flush, .what = HVMEM_FLUSH_ALL, .scope = (hvmem_u16)scope};

    return tlb_flush(&rig->tlb->backend, &flush);
}

/* ---- steps ----------------------------------------------------------------------------------- */

hvmem_status clock_rig_alloc(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int slot,
                             hvmem_u32 order)
{
    struct clock_slot *s = &rig->slot[tenant][slot];
    hvmem_cpu before = act_as(rig, cpu);
    hvmem_status status;
    hvmem_mfn mfn = 0;

    s->used = 2;
    status = hvmem_alloc_order(rig->heap, order, &mfn);
    if (status == HVMEM_OK) {
        rig->handed++;
        rig->stale += clock_rig_holders(rig, mfn, 1ull << order);
        s->mfn = mfn;
        s->order = order;
        s->used = 1;
    } else {
        s->used = 0;
        if (status != HVMEM_E_NOMEM)
            broken(rig, "alloc");
    }
    act_as(rig, before);
    return status;
}

void clock_rig_free(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int slot)
{
    struct clock_slot *s = &rig->slot[tenant][slot];
    hvmem_cpu before = act_as(rig, cpu);

    s->used = 2; /* the translation is gone for walkers from here on */
    if (hvmem_free_owned(rig->heap, s->mfn, s->order, NULL,
                         test_below(&rig->rng, 4) ? HVMEM_OWES_TLB : HVMEM_OWES_FOREIGN) !=
        HVMEM_OK)
        broken(rig, "free");
    s->used = 0;
    act_as(rig, before);
}

void clock_rig_flush(struct clock_rig *rig, hvmem_cpu cpu, hvmem_u32 flags)
{
    hvmem_u32 scope = rig->flags & CLOCK_RIG_BROADCAST && test_below(&rig->rng, 2)
                          ? HVMEM_SCOPE_INNER
                          : HVMEM_SCOPE_LOCAL;
    hvmem_cpu before = act_as(rig, cpu);
    struct hvmem_flush_token token;

    if (hvmem_flush_begin(rig->heap, scope, flags, &token) != HVMEM_OK)
        broken(rig, "flush_begin");
    if (!(rig->flags & CLOCK_RIG_QUIET))
        clock_rig_speculate(rig, 1);
    if (whole(rig, scope) != HVMEM_OK)
        broken(rig, "flush");
    if (!(rig->flags & CLOCK_RIG_QUIET))
        clock_rig_speculate(rig, 1);
    if (hvmem_flush_end(rig->heap, &token) != HVMEM_OK)
        broken(rig, "flush_end");
    act_as(rig, before);
}

void clock_rig_switch(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int flush)
{
    struct hvmem_tlb_space space = {.regime = HVMEM_REGIME_USER, .id = (hvmem_u32)tenant + 1};

    if (flush)
        clock_rig_flush(rig, cpu, HVMEM_FLUSH_OPPORTUNISTIC);
    rig->loaded[cpu] = tenant;
    hvmem_sim_tlb_set_loaded(rig->tlb, cpu, tenant < 0 ? NULL : &space);
}

void clock_rig_offline(struct clock_rig *rig, hvmem_cpu cpu)
{
    clock_rig_switch(rig, cpu, -1, 0); /* what its TLB holds stays there */
    if (hvmem_cpu_offline(rig->heap, cpu) != HVMEM_OK)
        broken(rig, "cpu_offline");
    rig->online &= ~(1ull << cpu);
}

void clock_rig_online(struct clock_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = act_as(rig, cpu);
    const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(rig->tlb, cpu);
    int i;

    if (hvmem_cpu_online(rig->heap, cpu) != HVMEM_OK)
        broken(rig, "cpu_online");
    rig->online |= 1ull << cpu;
    for (i = 0; i < TLB_SLOTS; i++)
        rig->stale += entry[i].valid != 0;
    act_as(rig, before);
}

/* ---- random steps ---------------------------------------------------------------------------- */

static hvmem_cpu some_cpu(struct clock_rig *rig)
{
    hvmem_cpu cpu;

    do
        cpu = (hvmem_cpu)test_below(&rig->rng, CLOCK_CPUS);
    while (!(rig->online >> cpu & 1));
    return cpu;
}

static void alloc_or_free(struct clock_rig *rig)
{
    int tenant = (int)test_below(&rig->rng, CLOCK_TENANTS);
    int slot = (int)test_below(&rig->rng, CLOCK_SLOTS);

    if (rig->slot[tenant][slot].used == 1)
        clock_rig_free(rig, some_cpu(rig), tenant, slot);
    else if (!rig->slot[tenant][slot].used)
        clock_rig_alloc(rig, some_cpu(rig), tenant, slot, (hvmem_u32)test_below(&rig->rng, 3));
}

/* The clock moves without any flush: begun flushes that are given up. */
static void ticks(struct clock_rig *rig)
{
    struct hvmem_flush_token token;
    uint64_t n = test_below(&rig->rng, test_below(&rig->rng, 8) ? 8 : 300);

    while (n--)
        if (hvmem_flush_begin(rig->heap, rig->flags & CLOCK_RIG_BROADCAST ? HVMEM_SCOPE_INNER : 0,
                              0, &token) != HVMEM_OK)
            broken(rig, "flush_begin");
}

static void step(struct clock_rig *rig, int outer)
{
    hvmem_cpu cpu = some_cpu(rig);

    switch (test_below(&rig->rng, 16)) {
    case 0:
        clock_rig_switch(rig, cpu, (int)test_below(&rig->rng, CLOCK_TENANTS),
                         (int)test_below(&rig->rng, 2));
        break;
    case 1:
        clock_rig_flush(rig, cpu, 0);
        break;
    case 2:
        if (!test_below(&rig->rng, 4))
            ticks(rig);
        break;
    case 3:
        cpu = 1 + (hvmem_cpu)test_below(&rig->rng, CLOCK_CPUS - 1);
        if (outer && cpu != rig->current && rig->online >> cpu & 1)
            clock_rig_offline(rig, cpu);
        else if (outer && !(rig->online >> cpu & 1))
            clock_rig_online(rig, cpu);
        break;
    case 4:
        clock_rig_speculate(rig, 6);
        break;
    default:
        alloc_or_free(rig);
        break;
    }
}

/* At the points of the clock other CPUs do something first. */
static int adversary(const char *name, void *ctx)
{
    struct clock_rig *rig = ctx;
    hvmem_cpu before = rig->current;

    if (strncmp(name, "clock_", 6) != 0 || rig->depth > 2)
        return 0;
    rig->depth++;
    clock_rig_speculate(rig, 3);
    if (!test_below(&rig->rng, 2))
        step(rig, 0);
    act_as(rig, before);
    rig->depth--;
    return 0;
}

void clock_rig_run(struct clock_rig *rig, uint64_t steps)
{
    while (steps-- && !rig->broken && !rig->stale)
        step(rig, 1);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops, .tlb_flush = tlb_flush};

static void make_machine(struct clock_rig *rig)
{
    struct hvmem_sim_tlb_config config = {.cpus = CLOCK_CPUS,
                                          .slots = TLB_SLOTS,
                                          .page_bits = PAGE_BITS,
                                          .seed = test_random(&rig->rng) | 1,
                                          .walk = walk,
                                          .ctx = rig};

    config.features = rig->flags & CLOCK_RIG_BROADCAST ? HVMEM_CAP_BROADCAST : 0;
    rig->memory[0] = calloc(1, hvmem_sim_tlb_bytes(&config));
    rig->tlb = calloc(1, sizeof *rig->tlb);
    REQUIRE(rig->memory[0] != NULL && rig->tlb != NULL);
    hvmem_sim_tlb_init(rig->tlb, rig->memory[0], &config);
    rig->tlb->backend.ops = &backend_ops;
    rig->tlb->backend.ctx = rig;
    rig->tlb->backend.caps.features = config.features;
}

static void make_heap(struct clock_rig *rig)
{
    static const struct hvmem_host_ops host = {
        .size = sizeof host, .this_cpu = this_cpu, .call_cpus = call_cpus};
    struct hvmem_bank bank = {.size = sizeof bank, .base = 0x100, .frames = CLOCK_FRAMES};
    struct hvmem_config config;

    hvmem_config_default(&config);
    config.max_order = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = CLOCK_CPUS;
    config.max_banks = 2;
    config.host = &host;
    config.host_ctx = rig;
    config.backend = &rig->tlb->backend;
    config.flags = (rig->flags & CLOCK_RIG_OFF ? HVMEM_CONFIG_NO_CLOCK : 0) |
                   (rig->flags & CLOCK_RIG_NO_CACHE ? HVMEM_CONFIG_NO_CPU_CACHE : 0);
    rig->heap = test_heap(&config, &bank, &rig->memory[1]);
}

void clock_rig_begin(struct clock_rig *rig, unsigned flags, uint64_t stream)
{
    hvmem_cpu cpu;

    memset(rig, 0, sizeof *rig);
    rig->flags = flags;
    rig->rng = test_rng(stream);
    rig->online = 1;
    make_machine(rig);
    make_heap(rig);
    for (cpu = 0; cpu < CLOCK_CPUS; cpu++) {
        if (cpu)
            clock_rig_online(rig, cpu);
        clock_rig_switch(rig, cpu, (int)cpu % CLOCK_TENANTS, 0);
    }
    if (!(flags & CLOCK_RIG_QUIET))
        test_set_point_hook(adversary, rig);
}

void clock_rig_end(struct clock_rig *rig)
{
    const char *where = NULL;
    hvmem_mfn mfn = 0;
    int i;

    test_set_point_hook(NULL, NULL);
    if (!CHECK(rig->broken == NULL))
        test_note("%s failed", rig->broken);
    CHECK_EQ(hvmem_audit(rig->heap, &mfn, &where), HVMEM_OK);
    for (i = 0; i < 3; i++)
        free(rig->memory[i]);
    free(rig->tlb);
}

hvmem_u64 clock_rig_flushes(struct clock_rig *rig)
{
    struct hvmem_stats stats;

    REQUIRE_EQ(hvmem_stats(rig->heap, HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_OK);
    return stats.flushes;
}
