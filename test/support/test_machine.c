/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of test_machine.h. */
#include "test_machine.h"

#include "test_main.h"
#include "test_schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- what the library asks ------------------------------------------------------------------- */

static hvmem_cpu host_cpu(void *host)
{
    const struct machine *m = host;

    return (hvmem_cpu)m->acting[test_thread() + 1];
}

/* The CPU as which the caller (a thread of the schedule, or the test itself) acts from now on. */
static int act_as(struct machine *m, int cpu)
{
    int before = m->acting[test_thread() + 1];

    m->acting[test_thread() + 1] = cpu;
    return before;
}

static void host_relax(void *host)
{
    (void)host;
    test_wait();
}

static void host_report(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order,
                        hvmem_u64 info)
{
    struct machine *m = host;

    (void)code;
    (void)mfn;
    (void)order;
    (void)info;
    m->reported++;
}

static const struct hvmem_host_ops host_ops = {
    .size = sizeof(struct hvmem_host_ops),
    .this_cpu = host_cpu,
    .relax = host_relax,
    .report = host_report,
};

/* The back-end acts on the CPU whose code runs. */
static hvmem_status flush_here(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct machine *m = be->ctx;
    hvmem_status status;

    test_yield();
    status = hvmem_sim_tlb_flush(&m->tlb, host_cpu(m), flush);
    test_yield();
    return status;
}

static hvmem_status guest_entry(struct hvmem_backend *be, hvmem_u32 owed, hvmem_u32 *value)
{
    struct machine *m = be->ctx;

    return m->tlb.backend.ops->guest_entry(&m->tlb.backend, owed, value);
}

static const struct hvmem_backend_ops backend_ops = {
    .size = sizeof(struct hvmem_backend_ops),
    .tlb_flush = flush_here,
    .guest_entry = guest_entry,
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* A frame carries who mapped it and in which version. */
static uint64_t frame_of(const struct machine_space *s, uint64_t page)
{
    return s->serial << 32 | s->version[page];
}

static int walk(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 page,
                struct hvmem_sim_entry *entry)
{
    const struct machine *m = ctx;
    const struct machine_space *s = &m->spaces[space->root - 1];

    if (s->space == NULL)
        return 0;
    entry->page = page;
    entry->frame = frame_of(s, page);
    entry->level = 3;
    return 1;
}

static int by_request(const struct machine *m)
{
    return m->kind == MACHINE_PCID || m->kind == MACHINE_TAGS;
}

static int by_entry(const struct machine *m)
{
    return m->kind == MACHINE_SVM || m->kind == MACHINE_SVM_1;
}

static int per_cpu(const struct machine *m)
{
    return m->kind == MACHINE_PCID || by_entry(m);
}

static uint32_t regime_of(const struct machine *m)
{
    return m->kind == MACHINE_ASID || m->kind == MACHINE_PCID ? HVMEM_REGIME_USER
                                                              : HVMEM_REGIME_STAGE2;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void configure(struct machine *m, struct hvmem_ident_config *config,
                      struct hvmem_sim_tlb_config *tlb, struct hvmem_backend *backend)
{
    memset(config, 0, sizeof *config);
    memset(tlb, 0, sizeof *tlb);
    tlb->cpus = (hvmem_u32)m->cpus;
    tlb->slots = MACHINE_SLOTS;
    tlb->page_bits = 2;
    tlb->walk = walk;
    tlb->ctx = m;
    tlb->seed = 1;
    if (m->kind == MACHINE_ASID || m->kind == MACHINE_VMID)
        tlb->features = HVMEM_CAP_BROADCAST;
    if (by_entry(m))
        tlb->features = HVMEM_CAP_GUEST;
    if (m->kind == MACHINE_SVM)
        tlb->features |= HVMEM_CAP_FLUSH_BY_ASID;
    config->size = sizeof *config;
    config->flags = per_cpu(m) ? HVMEM_IDENT_PER_CPU : 0;
    if (m->kind == MACHINE_VMID)
        config->flags |= HVMEM_IDENT_BROADCAST;
    if (by_entry(m))
        config->flags |= HVMEM_IDENT_ENTRY;
    config->regime = regime_of(m);
    config->first = m->first;
    config->ids = m->ids;
    config->max_cpus = (hvmem_u32)m->cpus;
    config->lock_regime = HVMEM_LOCK_PLAIN;
    config->host = &host_ops;
    config->host_ctx = m;
    config->backend = backend;
}

static struct hvmem_backend backends[MACHINE_KINDS];

/* Carve 64-byte aligned pieces out of one allocation. */
static void *carve(char **at, size_t bytes)
{
    char *piece = *at;

    *at += (bytes + 63) & ~(size_t)63;
    return piece;
}

void machine_begin(struct machine *m, enum machine_kind kind, int cpus, uint32_t first,
                   uint32_t ids)
{
    struct hvmem_backend *backend = &backends[kind];
    struct hvmem_ident_config config;
    struct hvmem_sim_tlb_config tlb;
    void *memory = m->memory;
    hvmem_size ident_bytes;
    char *at;
    int i;

    memset(m, 0, sizeof *m);
    m->kind = kind;
    m->cpus = cpus;
    m->first = first;
    m->ids = ids;
    m->bytes = MACHINE_BYTES;
    m->memory = memory != NULL ? memory : aligned_alloc(64, m->bytes);
    at = m->memory;
    backend->ops = &backend_ops;
    backend->ctx = m;
    configure(m, &config, &tlb, backend);
    hvmem_sim_tlb_init(&m->tlb, carve(&at, hvmem_sim_tlb_bytes(&tlb)), &tlb);
    backend->caps = m->tlb.backend.caps;
    REQUIRE_EQ(hvmem_ident_size(&config, &ident_bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(carve(&at, ident_bytes), ident_bytes, &config, &m->ident),
               HVMEM_OK);
    for (i = 0; i < TEST_SCHEDULE_THREADS; i++)
        m->acting[i + 1] = i;
    for (i = 0; i < cpus; i++) {
        m->cpu[i].running = MACHINE_NONE;
        m->cpu[i].asked_space = MACHINE_NONE;
        REQUIRE_EQ(hvmem_ident_cpu_online(m->ident, (hvmem_cpu)i, 0xffff), HVMEM_OK);
    }
    for (i = 0; i < MACHINE_SPACES; i++)
        m->spaces[i].memory = carve(&at, hvmem_space_size(m->ident));
    REQUIRE((size_t)(at - (char *)m->memory) <= m->bytes);
}

void machine_free(struct machine *m)
{
    free(m->memory);
    m->memory = NULL;
}

void machine_create(struct machine *m, int space)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = regime_of(m)};
    struct machine_space *s = &m->spaces[space];
    int i;

    s->serial = ++m->serials;
    for (i = 0; i < MACHINE_PAGES; i++)
        s->version[i] = s->oldest[i] = 1;
    s->pins = 0;
    REQUIRE_EQ(
        hvmem_space_create(m->ident, s->memory, hvmem_space_size(m->ident), &config, &s->space),
        HVMEM_OK);
}

hvmem_status machine_destroy(struct machine *m, int cpu, int space, uint32_t flags)
{
    hvmem_status status;

    act_as(m, cpu);
    status = hvmem_space_destroy(m->spaces[space].space, flags);
    if (status == HVMEM_OK)
        m->spaces[space].space = NULL;
    return status;
}

/* ---- switching ------------------------------------------------------------------------------- */

/* The hardware takes what the library said; in between it still runs what it ran. */
static void load(struct machine *m, int cpu, int space, const struct hvmem_entry *entry)
{
    struct hvmem_tlb_space tag = {.regime = regime_of(m), .id = entry->id};

    tag.root = (hvmem_u64)space + 1;
    m->wrong_id += entry->id < m->first || entry->id >= m->first + m->ids;
    test_yield();
    if (by_entry(m))
        hvmem_sim_tlb_vmrun(&m->tlb, (hvmem_cpu)cpu, &tag, entry->value);
    else
        hvmem_sim_tlb_set_loaded(&m->tlb, (hvmem_cpu)cpu, &tag);
    m->ran_dead += m->spaces[space].space == NULL;
    m->cpu[cpu].running = space;
    m->cpu[cpu].in_guest = 1;
    test_yield();
}

/* The library's part of a switch. */
static hvmem_status choose(struct machine *m, int cpu, int space, struct hvmem_entry *entry)
{
    act_as(m, cpu);
    machine_serve(m, cpu);
    if (by_entry(m)) {
        hvmem_sim_tlb_set_loaded(&m->tlb, (hvmem_cpu)cpu, NULL);
        m->cpu[cpu].in_guest = 0;
    }
    m->cpu[cpu].switching = 1;
    return hvmem_space_activate(m->spaces[space].space, (hvmem_cpu)cpu, entry);
}

hvmem_status machine_give_up(struct machine *m, int cpu, int space)
{
    struct hvmem_entry entry;
    hvmem_status status = choose(m, cpu, space, &entry);

    m->cpu[cpu].in_guest = 0;
    return status;
}

hvmem_status machine_switch(struct machine *m, int cpu, int space)
{
    struct hvmem_entry entry;
    hvmem_status status = choose(m, cpu, space, &entry);

    if (status == HVMEM_OK) {
        load(m, cpu, space, &entry);
        hvmem_space_entered(m->ident, (hvmem_cpu)cpu);
    }
    m->cpu[cpu].switching = 0;
    return status;
}

hvmem_status machine_idle(struct machine *m, int cpu)
{
    hvmem_status status;

    act_as(m, cpu);
    machine_serve(m, cpu);
    m->cpu[cpu].switching = 1;
    status = hvmem_space_deactivate(m->ident, (hvmem_cpu)cpu);
    if (status == HVMEM_OK) {
        test_yield();
        hvmem_sim_tlb_set_loaded(&m->tlb, (hvmem_cpu)cpu, NULL);
        m->cpu[cpu].running = MACHINE_NONE;
        m->cpu[cpu].in_guest = 0;
        hvmem_space_entered(m->ident, (hvmem_cpu)cpu);
    }
    m->cpu[cpu].switching = 0;
    return status;
}

hvmem_status machine_resume(struct machine *m, int cpu)
{
    if (m->cpu[cpu].running == MACHINE_NONE || m->cpu[cpu].in_guest)
        return HVMEM_OK;
    return machine_switch(m, cpu, m->cpu[cpu].running);
}

/* ---- accesses and changes -------------------------------------------------------------------- */

void machine_access(struct machine *m, int cpu, int page)
{
    const struct machine_space *s;
    struct hvmem_sim_entry entry;

    machine_serve(m, cpu);
    if (m->cpu[cpu].running == MACHINE_NONE || !m->cpu[cpu].in_guest)
        return;
    s = &m->spaces[m->cpu[cpu].running];
    m->accesses++;
    if (!hvmem_sim_tlb_access(&m->tlb, (hvmem_cpu)cpu, (hvmem_u64)page, &entry))
        return;
    if (entry.frame >> 32 != s->serial)
        m->cross++;
    else if ((uint32_t)entry.frame < s->oldest[page])
        m->stale++;
}

void machine_speculate(struct machine *m, int each)
{
    int cpu;

    for (cpu = 0; cpu < m->cpus; cpu++)
        hvmem_sim_tlb_speculate(&m->tlb, (hvmem_cpu)cpu, (hvmem_u32)each);
}

static struct hvmem_tlb_range range_of(int page)
{
    struct hvmem_tlb_range range = {.start = (hvmem_u64)page << 12, .pages = 1};

    range.stride_shift = 12;
    range.level = 3;
    range.flags = HVMEM_RANGE_LEAF;
    return range;
}

/* What the CPU does when its interrupt comes. */
void machine_serve(struct machine *m, int cpu)
{
    struct machine_cpu *c = &m->cpu[cpu];
    struct hvmem_tlb_range range;
    int before;

    if (c->asked_space == MACHINE_NONE)
        return;
    range = range_of(c->asked_page);
    before = act_as(m, cpu);
    if (by_entry(m)) {
        hvmem_sim_tlb_set_loaded(&m->tlb, (hvmem_cpu)cpu, NULL);
        c->in_guest = 0;
    }
    CHECK_EQ(hvmem_space_flush_here(m->spaces[c->asked_space].space, (hvmem_cpu)cpu, &range, 1,
                                    c->asked_change),
             HVMEM_OK);
    act_as(m, before);
    c->asked_space = MACHINE_NONE;
}

static void ask(struct machine *m, int cpu, int target, int space, int page, uint64_t change)
{
    struct machine_cpu *c = &m->cpu[target];

    /* Its mailbox may hold another CPU's request still. */
    while (c->asked_space != MACHINE_NONE) {
        machine_serve(m, cpu);
        test_wait();
        if (!c->busy)
            machine_serve(m, target);
    }
    c->asked_page = page;
    c->asked_change = change;
    c->asked_space = space;
    while (c->asked_space != MACHINE_NONE) {
        if (target == cpu || !c->busy)
            machine_serve(m, target);
        else
            test_wait();
        machine_serve(m, cpu);
    }
}

static void change_by_request(struct machine *m, int cpu, int space, int page)
{
    struct machine_space *s = &m->spaces[space];
    hvmem_u64 change;
    hvmem_u64 words[1];
    hvmem_u32 targets;
    int i;

    CHECK_EQ(hvmem_space_changed(s->space, &change), HVMEM_OK);
    test_yield();
    CHECK_EQ(hvmem_space_targets(s->space, 0, words, 1, &targets), HVMEM_OK);
    for (i = 0; i < m->cpus; i++) {
        if (words[0] >> i & 1)
            ask(m, cpu, i, space, page, change);
    }
}

static void change_by_broadcast(struct machine *m, int cpu, int space, int page)
{
    struct hvmem_tlb_range range = range_of(page);
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .what = HVMEM_FLUSH_RANGES};

    flush.scope = HVMEM_SCOPE_INNER;
    flush.ranges = &range;
    flush.count = 1;
    CHECK_EQ(hvmem_space_id(m->spaces[space].space, (hvmem_cpu)cpu, &flush.space), HVMEM_OK);
    test_yield();
    if (flush.space.id != 0)
        CHECK_EQ(hvmem_sim_tlb_flush(&m->tlb, (hvmem_cpu)cpu, &flush), HVMEM_OK);
}

void machine_change(struct machine *m, int cpu, int space, int page)
{
    struct machine_space *s = &m->spaces[space];
    uint32_t version;

    act_as(m, cpu);
    machine_serve(m, cpu);
    version = ++s->version[page];
    test_yield();
    if (by_request(m) || by_entry(m))
        change_by_request(m, cpu, space, page);
    else
        change_by_broadcast(m, cpu, space, page);
    if (s->oldest[page] < version)
        s->oldest[page] = version;
}

void machine_check_ids(struct machine *m)
{
    int a;
    int b;

    for (a = 0; a < m->cpus; a++) {
        for (b = a + 1; b < m->cpus; b++) {
            const struct hvmem_sim_loaded *x = &m->tlb.loaded[a];
            const struct hvmem_sim_loaded *y = &m->tlb.loaded[b];

            if (per_cpu(m) || !x->on || !y->on)
                continue;
            if (x->space.root != y->space.root)
                m->wrong_id += x->space.id == y->space.id;
            else if (!m->cpu[a].switching && !m->cpu[b].switching)
                m->wrong_id += x->space.id != y->space.id;
        }
    }
}
