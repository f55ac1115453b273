/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of gather_rig.h: CPUs, device, host operations, and the oracle. */
#include "gather_rig.h"

#include "test_heap.h"

#include <stdlib.h>
#include <string.h>

enum { TLB_SLOTS = 48, DEVICE_ROW = GATHER_CPUS, HEAP_ORDER = 10 };

/* ---- walking ------------------------------------------------------------------------------------ */

/* An entry: frame << 12 | kind; see gather_tables.c. */
static int step(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 frame, hvmem_u32 level,
                hvmem_u64 page, struct hvmem_sim_entry *entry)
{
    struct gather_rig *rig = ctx;
    unsigned shift = 9 * (2 - level);
    uint64_t word;

    if (level == 0)
        frame = space->root;
    word = rig->mem[frame - GATHER_BASE][page >> shift & 511];
    if (!word)
        return 0;
    entry->page = page >> shift << shift;
    entry->shift = (hvmem_u8)shift;
    entry->frame = word >> 12;
    entry->table = (word & 3) == HVMEM_PTE_TABLE;
    return 1;
}

/* ---- log ---------------------------------------------------------------------------------------- */

static struct gather_logged *logged(struct gather_rig *rig, enum gather_event event, uint64_t a,
                                    uint64_t b)
{
    struct gather_logged *entry = &rig->log[rig->logged++ % GATHER_LOG];

    memset(entry, 0, sizeof *entry);
    entry->event = event;
    entry->cpu = rig->current;
    entry->a = a;
    entry->b = b;
    return entry;
}

static void copy_ranges(struct gather_logged *entry, const struct hvmem_tlb_range *ranges,
                        hvmem_u32 count)
{
    if (count && count <= HVMEM_GATHER_RANGES)
        memcpy(entry->range, ranges, count * sizeof *ranges);
}

unsigned int gather_rig_count(const struct gather_rig *rig, enum gather_event event,
                              unsigned int from)
{
    unsigned int n = 0;

    for (; from < rig->logged; from++)
        n += rig->log[from % GATHER_LOG].event == event;
    return n;
}

/* ---- host and back-end -------------------------------------------------------------------------- */

static hvmem_cpu this_cpu(void *host)
{
    return ((struct gather_rig *)host)->current;
}

void gather_rig_act(struct gather_rig *rig, hvmem_cpu cpu)
{
    rig->current = cpu;
    rig->tlb->current = cpu;
    if (rig->kind == GATHER_SVM && rig->running[cpu] >= 0) { /* it leaves its guest */
        rig->wanted[cpu] = rig->running[cpu];
        rig->running[cpu] = -1;
        hvmem_sim_tlb_set_loaded(rig->tlb, cpu, NULL);
    }
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    struct gather_rig *rig = host;
    hvmem_cpu me = rig->current, first = (hvmem_cpu)test_below(&rig->rng, GATHER_CPUS), i;

    (void)logged(rig, EVENT_ASK, cpus->words[0], 0);
    if (rig->on_ask)
        rig->on_ask(rig);
    for (i = 0; i < GATHER_CPUS; i++) {
        hvmem_cpu cpu = (first + i) % GATHER_CPUS;

        if (!(cpus->words[0] >> cpu & rig->online >> cpu & 1))
            continue;
        gather_rig_act(rig, cpu);
        fn(arg);
        gather_rig_act(rig, me);
        if (!(rig->flags & GATHER_RIG_QUIET))
            gather_rig_speculate(rig, 2);
    }
    return HVMEM_OK;
}

static void report(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order, hvmem_u64 info)
{
    struct gather_rig *rig = host;

    (void)mfn;
    (void)order;
    (void)info;
    rig->reported++;
    rig->report = code;
}

static void event(void *host, hvmem_u32 what, hvmem_u64 a, hvmem_u64 b)
{
    struct gather_rig *rig = host;

    if (what == HVMEM_EVENT_QUARANTINED) {
        rig->quarantined += b;
        (void)logged(rig, EVENT_QUARANTINE, a, b);
    }
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct gather_rig *rig = be->ctx;

    copy_ranges(logged(rig, EVENT_FLUSH, flush->what, flush->count), flush->ranges, flush->count);
    if (rig->flags & GATHER_RIG_DEAF)
        return HVMEM_OK;
    return hvmem_sim_tlb_flush(rig->tlb, rig->current, flush);
}

static hvmem_status guest_entry(struct hvmem_backend *be, hvmem_u32 owed, hvmem_u32 *value)
{
    struct gather_rig *rig = be->ctx;

    return rig->tlb->backend.ops->guest_entry(&rig->tlb->backend, owed, value);
}

/* ---- the device --------------------------------------------------------------------------------- */

static void forget(struct gather_rig *rig, int space, const struct hvmem_tlb_range *ranges,
                   hvmem_u32 count)
{
    struct hvmem_tlb_flush flush = {.size = sizeof flush,
                                    .what = count ? HVMEM_FLUSH_RANGES : HVMEM_FLUSH_SPACE,
                                    .ranges = ranges,
                                    .count = count};

    flush.space.regime = HVMEM_REGIME_USER;
    flush.space.id = 0x1000u + (hvmem_u32)space;
    hvmem_sim_tlb_flush_device(rig->tlb, DEVICE_ROW + (hvmem_u32)space, &flush);
}

static hvmem_status device_invalidate(void *ctx, const struct hvmem_tlb_range *ranges,
                                      hvmem_u32 count, hvmem_u64 *ticket)
{
    struct gather_rig *rig = ctx;
    int space;

    copy_ranges(logged(rig, EVENT_DEVICE, count, 0), ranges, count);
    if (rig->device_status < 0)
        return rig->device_status;
    for (space = 0; space < GATHER_SPACES; space++)
        forget(rig, space, ranges, count);
    *ticket = (hvmem_u64)rig->device_status;
    return rig->device_status ? HVMEM_AGAIN : HVMEM_OK;
}

static hvmem_status device_poll(void *ctx, hvmem_u64 *ticket)
{
    (void)ctx;
    return --*ticket ? HVMEM_AGAIN : HVMEM_OK;
}

/* ---- CPUs --------------------------------------------------------------------------------------- */

/* Load what the entry says; SVM: by VMRUN. */
static void load(struct gather_rig *rig, hvmem_cpu cpu, int space, const struct hvmem_entry *entry)
{
    struct hvmem_tlb_space tag;

    tag.regime = HVMEM_REGIME_USER;
    tag.id = entry->id;
    tag.root = rig->root[space];
    rig->running[cpu] = space;
    rig->lazy[cpu] = 0;
    if (rig->kind == GATHER_SVM)
        hvmem_sim_tlb_vmrun(rig->tlb, cpu, &tag, entry->value);
    else
        hvmem_sim_tlb_set_loaded(rig->tlb, cpu, &tag);
}

void gather_rig_switch(struct gather_rig *rig, hvmem_cpu cpu, int space)
{
    hvmem_cpu before = rig->current;
    struct hvmem_entry entry;

    gather_rig_act(rig, cpu);
    CHECK_EQ(hvmem_space_activate(rig->space[space], cpu, &entry), HVMEM_OK);
    load(rig, cpu, space, &entry);
    CHECK_EQ(hvmem_space_entered(rig->ident, cpu), HVMEM_OK);
    rig->wanted[cpu] = -1;
    gather_rig_act(rig, before);
}

void gather_rig_idle(struct gather_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = rig->current;

    if (rig->running[cpu] < 0 && rig->wanted[cpu] < 0)
        return;
    gather_rig_act(rig, cpu);
    CHECK_EQ(hvmem_space_deactivate(rig->ident, cpu), HVMEM_OK);
    hvmem_sim_tlb_set_loaded(rig->tlb, cpu, NULL);
    rig->running[cpu] = rig->wanted[cpu] = -1;
    rig->lazy[cpu] = 0;
    CHECK_EQ(hvmem_space_entered(rig->ident, cpu), HVMEM_OK);
    gather_rig_act(rig, before);
}

void gather_rig_lazy(struct gather_rig *rig, hvmem_cpu cpu)
{
    if (rig->running[cpu] < 0)
        return;
    CHECK_EQ(hvmem_space_lazy(rig->ident, cpu), HVMEM_OK);
    rig->lazy[cpu] = 1;
}

void gather_rig_offline(struct gather_rig *rig, hvmem_cpu cpu)
{
    gather_rig_idle(rig, cpu);
    rig->online &= ~(1ull << cpu);
    CHECK_EQ(hvmem_ident_cpu_offline(rig->ident, cpu), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_offline(rig->heap, cpu), HVMEM_OK);
}

void gather_rig_online(struct gather_rig *rig, hvmem_cpu cpu)
{
    hvmem_cpu before = rig->current;

    gather_rig_act(rig, cpu);
    CHECK_EQ(hvmem_cpu_online(rig->heap, cpu), HVMEM_OK);
    CHECK_EQ(hvmem_ident_cpu_online(rig->ident, cpu, 0xffff), HVMEM_OK);
    rig->online |= 1ull << cpu;
    gather_rig_act(rig, before);
}

void gather_rig_speculate(struct gather_rig *rig, unsigned each)
{
    hvmem_u32 row;

    for (row = 0; row < GATHER_CPUS + GATHER_SPACES; row++)
        hvmem_sim_tlb_speculate(rig->tlb, row, (hvmem_u32)test_below(&rig->rng, each + 1));
}

int gather_rig_access(struct gather_rig *rig, hvmem_cpu cpu, uint64_t page)
{
    struct hvmem_sim_entry entry;

    return hvmem_sim_tlb_access(rig->tlb, cpu, page, &entry);
}

/* ---- oracle ------------------------------------------------------------------------------------- */

void gather_rig_check(struct gather_rig *rig)
{
    hvmem_u32 row;
    int i;

    for (row = 0; row < GATHER_CPUS + GATHER_SPACES; row++) {
        const struct hvmem_sim_entry *entry = hvmem_sim_tlb_entries(rig->tlb, row);
        const struct hvmem_sim_loaded *loaded = &rig->tlb->loaded[row];
        int space = row < GATHER_CPUS ? rig->running[row] : (int)(row - GATHER_CPUS);
        int lazy = row < GATHER_CPUS && rig->lazy[row];

        for (i = 0; i < TLB_SLOTS && loaded->on; i++) {
            if (!entry[i].valid || entry[i].id != loaded->space.id || (lazy && !entry[i].table))
                continue;
            if (entry[i].frame - GATHER_BASE >= GATHER_FRAMES ||
                rig->owner[entry[i].frame - GATHER_BASE] != space + 1) {
                if (!rig->stale++)
                    test_note(
                        "row %u: page %#llx, order %u, level %u%s: frame %#llx is not of space %d",
                        row, (unsigned long long)entry[i].page, entry[i].shift, entry[i].level,
                        entry[i].table ? " (table)" : "", (unsigned long long)entry[i].frame,
                        space);
            }
        }
    }
}

/* ---- adversary ---------------------------------------------------------------------------------- */

/* At test points everybody loads what the tables allow, and other CPUs switch. */
static int adversary(const char *name, void *ctx)
{
    struct gather_rig *rig = ctx;
    hvmem_cpu cpu;

    if (rig->depth || !strncmp(name, "space_", 6) || !strncmp(name, "ident_", 6))
        return 0;
    rig->depth++;
    if (!strcmp(name, "gathered_given") && rig->finishing)
        gather_rig_disown(rig, rig->finishing);
    gather_rig_speculate(rig, 3);
    cpu = (hvmem_cpu)test_below(&rig->rng, GATHER_CPUS);
    if (!test_below(&rig->rng, 3) && cpu != rig->current && rig->online >> cpu & 1)
        gather_rig_switch(rig, cpu, (int)test_below(&rig->rng, GATHER_SPACES));
    gather_rig_check(rig);
    rig->depth--;
    return 0;
}

/* ---- begin and end ------------------------------------------------------------------------------ */

static void *memory(struct gather_rig *rig, int slot, hvmem_size bytes)
{
    return rig->memory[slot] = test_memory(bytes);
}

static struct hvmem_backend_ops backend_ops = {
    .size = sizeof backend_ops, .tlb_flush = tlb_flush, .guest_entry = guest_entry};
static struct hvmem_backend backend;

static void make_machine(struct gather_rig *rig)
{
    static const hvmem_u64 features[GATHER_KINDS] = {
        [GATHER_PCID] = HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE,
        [GATHER_TAGS] = HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE,
        [GATHER_VMID] = HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE | HVMEM_CAP_BROADCAST,
        [GATHER_SVM] = HVMEM_CAP_USER_IDS | HVMEM_CAP_GUEST | HVMEM_CAP_FLUSH_BY_ASID};
    struct hvmem_sim_tlb_config config = {.cpus = GATHER_CPUS,
                                          .slots = TLB_SLOTS,
                                          .page_bits = 11,
                                          .features = features[rig->kind],
                                          .seed = test_random(&rig->rng) | 1,
                                          .ctx = rig,
                                          .step = step,
                                          .levels = 3,
                                          .level = 1,
                                          .devices = GATHER_SPACES};

    rig->tlb = memory(rig, 0, sizeof *rig->tlb);
    hvmem_sim_tlb_init(rig->tlb, memory(rig, 1, hvmem_sim_tlb_bytes(&config)), &config);
    backend = rig->tlb->backend;
    backend.ops = &backend_ops;
    backend.ctx = rig;
}

static void make_heap(struct gather_rig *rig, const struct hvmem_host_ops *host)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = GATHER_BASE, .frames = GATHER_FRAMES};
    struct hvmem_config config;

    hvmem_config_default(&config);
    config.max_order = HEAP_ORDER;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = GATHER_CPUS;
    config.max_banks = 16;
    config.max_domains = GATHER_SPACES;
    config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_ICACHE;
    config.host = host;
    config.host_ctx = rig;
    config.backend = &backend;
    rig->heap = test_heap(&config, &bank, &rig->memory[2]);
    rig->mem = rig->memory[4] = calloc(GATHER_FRAMES, sizeof *rig->mem); /* seldom touched */
    REQUIRE(rig->mem != NULL);
}

static void make_ident(struct gather_rig *rig, const struct hvmem_host_ops *host)
{
    struct hvmem_ident_config config = {.size = sizeof config,
                                        .regime = HVMEM_REGIME_USER,
                                        .first = 1,
                                        .ids = 15,
                                        .max_cpus = GATHER_CPUS,
                                        .lock_regime = HVMEM_LOCK_PLAIN,
                                        .host = host,
                                        .host_ctx = rig,
                                        .backend = &backend};
    hvmem_size bytes;

    if (rig->kind == GATHER_PCID || rig->kind == GATHER_SVM)
        config.flags |= HVMEM_IDENT_PER_CPU;
    if (rig->kind == GATHER_SVM)
        config.flags |= HVMEM_IDENT_ENTRY;
    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(memory(rig, 5, bytes), bytes, &config, &rig->ident), HVMEM_OK);
}

/* The device walks the tables of each space all the time, by a row of its own for each. */
static void make_space(struct gather_rig *rig, int i)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_USER};
    struct hvmem_mapping_config mapping = {.size = sizeof mapping, .heap = rig->heap};
    hvmem_size bytes = hvmem_space_size(rig->ident);
    struct hvmem_tlb_space tag;

    REQUIRE_EQ(
        hvmem_space_create(rig->ident, memory(rig, 6 + i, bytes), bytes, &config, &rig->space[i]),
        HVMEM_OK);
    mapping.space = rig->space[i];
    REQUIRE_EQ(hvmem_mapping_init(&rig->mapping[i], &mapping), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(rig->heap, 0, &rig->root[i]), HVMEM_OK);
    rig->owner[rig->root[i] - GATHER_BASE] = (unsigned char)(i + 1);
    rig->device[i].size = sizeof rig->device[i];
    rig->device[i].polls = 100;
    rig->device[i].invalidate = device_invalidate;
    rig->device[i].poll = device_poll;
    rig->device[i].ctx = rig;
    REQUIRE_EQ(hvmem_notifier_add(&rig->mapping[i], &rig->device[i]), HVMEM_OK);
    tag.regime = HVMEM_REGIME_USER;
    tag.id = 0x1000u + (hvmem_u32)i;
    tag.root = rig->root[i];
    hvmem_sim_tlb_set_loaded(rig->tlb, DEVICE_ROW + (hvmem_u32)i, &tag);
}

void gather_rig_begin(struct gather_rig *rig, enum gather_kind kind, unsigned flags,
                      uint64_t stream)
{
    struct hvmem_host_ops host = {
        .size = sizeof host, .this_cpu = this_cpu, .report = report, .event = event};
    hvmem_cpu cpu;
    int i;

    memset(rig, 0, sizeof *rig);
    rig->kind = kind;
    rig->flags = flags;
    rig->rng = test_rng(stream);
    if (!(flags & GATHER_RIG_PLAIN))
        host.call_cpus = call_cpus;
    make_machine(rig);
    make_heap(rig, &host);
    make_ident(rig, &host);
    for (i = 0; i < GATHER_SPACES; i++)
        make_space(rig, i);
    rig->online = 1;
    CHECK_EQ(hvmem_ident_cpu_online(rig->ident, 0, 0xffff), HVMEM_OK);
    for (cpu = 0; cpu < GATHER_CPUS; cpu++) {
        rig->running[cpu] = rig->wanted[cpu] = -1;
        if (cpu)
            gather_rig_online(rig, cpu);
    }
    rig->logged = 0;
    rig->reported = 0;
    if (!(flags & GATHER_RIG_QUIET))
        test_set_point_hook(adversary, rig);
}

void gather_rig_end(struct gather_rig *rig)
{
    const char *where = NULL;
    hvmem_mfn mfn = 0;
    int i;

    test_set_point_hook(NULL, NULL);
    if (!CHECK_EQ(hvmem_audit(rig->heap, &mfn, &where), HVMEM_OK))
        test_note("frame %#llx: %s", (unsigned long long)mfn, where);
    for (i = 0; i < GATHER_SPACES; i++) {
        CHECK_EQ(hvmem_notifier_remove(&rig->mapping[i], &rig->device[i]), HVMEM_OK);
        CHECK_EQ(hvmem_mapping_fini(&rig->mapping[i]), HVMEM_OK);
    }
    for (i = 0; i < 6 + GATHER_SPACES; i++)
        free(rig->memory[i]);
}
