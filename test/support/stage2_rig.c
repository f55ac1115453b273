/* SPDX-License-Identifier: BSD-2-Clause */
/* The rig of stage2_rig.h. */
#include "stage2_rig.h"

#include "lib/heap.h"
#include "test_schedule.h"

#include <stdlib.h>
#include <string.h>

/* ---- the machine ---------------------------------------------------------------------------- */

static const uint64_t *table_at(void *ctx, uint64_t address)
{
    struct stage2_rig *rig = ctx;
    uint64_t mfn = address >> 12;

    if (mfn < RIG_BASE || mfn >= RIG_BASE + RIG_FRAMES)
        return NULL;
    return (const uint64_t *)(rig->pool + ((mfn - RIG_BASE) << 12));
}

uint64_t rig_frame_word(uint64_t mfn, unsigned rights, unsigned type)
{
    return mfn << 8 | rights | type << 3;
}

/* One descriptor for the TLB model. */
static int step(void *ctx, const struct hvmem_tlb_space *space, hvmem_u64 frame, hvmem_u32 level,
                hvmem_u64 page, struct hvmem_sim_entry *entry)
{
    struct stage2_rig *rig = ctx;
    int at = (int)level + rig->tables.start_level;
    struct walk_entry e = walk_step(&rig->tables, level ? frame : rig->tables.root, at, page << 12);

    (void)space;
    if (e.kind == WALK_MALFORMED)
        rig->malformed++;
    if (e.kind != WALK_TABLE && e.kind != WALK_LEAF)
        return 0;
    entry->table = e.kind == WALK_TABLE;
    entry->shift = (hvmem_u8)(e.shift - 12);
    entry->page = page >> entry->shift << entry->shift;
    entry->frame = entry->table ? e.address : rig_frame_word(e.address >> 12, e.rights, e.type);
    entry->global = 0;
    return 1;
}

/* The thread of a schedule is a CPU of its number. */
static hvmem_cpu this_cpu(void *host)
{
    struct stage2_rig *rig = host;

    if (test_thread() >= 0)
        return (hvmem_cpu)test_thread();
    return rig->cpu != NULL ? rig->cpu() : rig->tlb->current;
}

static void relax(void *host)
{
    struct stage2_rig *rig = host;

    if (rig->relax != NULL)
        rig->relax();
    test_wait();
}

static void guard(struct stage2_rig *rig, int on)
{
    if (rig->guard != NULL)
        rig->guard(on);
}

/* A batch that is not to fail. */
static hvmem_status flush_now(struct stage2_rig *rig, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    rig->flushes++;
    if (flush->what != HVMEM_FLUSH_RANGES)
        rig->whole++;
    else
        rig->ranges += flush->count;
    for (i = 0; flush->what == HVMEM_FLUSH_RANGES && i < flush->count; i++) {
        rig->last_range = flush->ranges[i];
        rig->single_pages += flush->ranges[i].pages == 1;
    }
    return hvmem_sim_tlb_flush(rig->tlb, this_cpu(rig), flush);
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct stage2_rig *rig = be->ctx;
    hvmem_status status = HVMEM_E_HOST;

    /* Whoever is asked may be waiting for the lock with interrupts off. */
    if (rig->heap->host.held != NULL)
        CHECK_EQ(rig->heap->host.held[this_cpu(rig)], 0);
    if (rig->on_flush != NULL)
        rig->on_flush(rig, flush);
    guard(rig, 1);
    if (rig->fail_flushes > 0)
        rig->fail_flushes--;
    else
        status = flush_now(rig, flush);
    guard(rig, 0);
    return status;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes)
{
    struct stage2_rig *rig = be->ctx;
    uint64_t offset = addr - (hvmem_uptr)rig->pool;

    (void)op;
    guard(rig, 1);
    for (; bytes >= 64; bytes -= 64, offset += 64) {
        if (offset % 4096 == 0 && rig->on_clean != NULL)
            rig->on_clean(rig, RIG_BASE + offset / 4096);
        rig->cleaned[offset / 4096]++;
        rig->lines++;
    }
    guard(rig, 0);
    return HVMEM_OK;
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct stage2_rig *rig = be->ctx;
    uint64_t page = addr - (hvmem_uptr)rig->pool, end = page + bytes;

    for (; rig->on_zero != NULL && page < end; page += 4096)
        if (page % 4096 == 0)
            rig->on_zero(rig, RIG_BASE + page / 4096);
    memset((void *)addr, 0, bytes);
    return HVMEM_OK;
}

static hvmem_status icache(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct stage2_rig *rig = be->ctx;
    uint64_t page = addr - (hvmem_uptr)rig->pool, end = page + bytes;

    for (; page < end; page += 4096)
        if (page % 4096 == 0)
            rig->fetched[page / 4096]++;
    return HVMEM_OK;
}

static hvmem_status icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    (void)be;
    (void)scope;
    return HVMEM_OK;
}

static const struct hvmem_backend_ops backend_ops = {
    .size = sizeof(struct hvmem_backend_ops),
    .tlb_flush = tlb_flush,
    .dcache = dcache,
    .icache = icache,
    .icache_all = icache_all,
    .zero = zero,
};

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    struct stage2_rig *rig = host;

    if (mfn < RIG_BASE || mfn + ((uint64_t)1 << order) > RIG_BASE + RIG_FRAMES)
        return NULL;
    return rig->pool + ((mfn - RIG_BASE) << 12);
}

static void frame_unmap(void *host, void *map, hvmem_order order)
{
    (void)host;
    (void)map;
    (void)order;
}

static void report(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order, hvmem_u64 info)
{
    (void)code;
    (void)mfn;
    (void)order;
    (void)info;
    __atomic_fetch_add(&((struct stage2_rig *)host)->reported, 1, __ATOMIC_RELAXED);
}

static hvmem_u32 yield_wanted(void *host)
{
    return (hvmem_u32)((struct stage2_rig *)host)->yield_wanted;
}

static const struct hvmem_host_ops host_ops = {
    .size = sizeof(struct hvmem_host_ops),
    .this_cpu = this_cpu,
    .relax = relax,
    .frame_map = frame_map,
    .frame_unmap = frame_unmap,
    .report = report,
    .yield_wanted = yield_wanted,
};

/* Fails the table allocation that is due. */
static int point(const char *name, void *ctx)
{
    struct stage2_rig *rig = ctx;

    if (strcmp(name, "stage2.table") != 0 || rig->fail_tables == 0)
        return 0;
    return --rig->fail_tables == 0;
}

static unsigned char pool_memory[(size_t)RIG_FRAMES << 12] __attribute__((aligned(4096)));
static int filled;

/* ---- set-up --------------------------------------------------------------------------------- */

void stage2_rig_prepare(struct stage2_rig *rig, uint32_t format)
{
    memset(rig, 0, sizeof *rig);
    rig->config.size = sizeof rig->config;
    rig->config.format = format;
    rig->config.input_bits = 32;
    rig->config.start_level = HVMEM_S2_LEVEL_AUTO;
    rig->config.output_bits = format == HVMEM_S2_ARM64 ? 48 : 52;
    rig->config.id_bits = 16;
    rig->config.largest = 18;
    rig->config.node = HVMEM_NODE_ANY;
    rig->cpus = RIG_CPUS;
    rig->slots = RIG_SLOTS;
    rig->features = HVMEM_CAP_BROADCAST | HVMEM_CAP_STAGE2 | HVMEM_CAP_STAGE2_RANGE;
    if (format == HVMEM_S2_ARM64)
        rig->features |= HVMEM_CAP_RANGE;
}

/* Kept from one rig to the next of the same size: schedules open many thousands. */
static void *memory_of(int slot, size_t bytes)
{
    static void *kept[8];
    static size_t sizes[8];

    if (sizes[slot] != bytes) {
        free(kept[slot]);
        kept[slot] = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        REQUIRE(kept[slot] != NULL);
        sizes[slot] = bytes;
    }
    memset(kept[slot], 0xa5, bytes);
    return kept[slot];
}

static void open_tlb(struct stage2_rig *rig)
{
    struct hvmem_sim_tlb_config config;
    uint64_t bytes;

    memset(&config, 0, sizeof config);
    config.cpus = rig->cpus;
    config.slots = rig->slots;
    config.roots = rig->config.format == HVMEM_S2_EPT;
    config.page_bits = rig->config.input_bits - 12;
    config.features = rig->features;
    config.fragments = rig->fragments;
    config.seed = test_seed() | 1;
    config.step = step;
    config.ctx = rig;
    config.levels = 4u - (hvmem_u32)rig->tables.start_level;
    config.level = (hvmem_u32)rig->tables.start_level;
    bytes = sizeof *rig->tlb + hvmem_sim_tlb_bytes(&config);
    rig->tlb = memory_of(0, bytes);
    hvmem_sim_tlb_init(rig->tlb, rig->tlb + 1, &config);
    rig->be.ops = &backend_ops;
    rig->be.ctx = rig;
    rig->be.caps = rig->tlb->backend.caps;
    rig->be.caps.features = rig->features;
    rig->be.caps.quirks = rig->quirks;
    rig->be.caps.page_shift = 12;
    rig->be.caps.dline = rig->be.caps.iline = rig->line ? rig->line : 64;
    if ((rig->features & HVMEM_CAP_RANGE) && !rig->be.caps.max_range_pages)
        rig->be.caps.max_range_pages = 1u << 21;
}

static void open_heap(struct stage2_rig *rig)
{
    struct hvmem_domain_config owner;
    struct hvmem_config config;
    struct hvmem_bank bank;
    hvmem_size bytes;
    hvmem_cpu cpu;

    hvmem_config_default(&config);
    config.max_cpus = rig->cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_domains = 4;
    config.max_order = 12;
    config.owed_on_free = HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE | rig->owed;
    config.flags = rig->cached ? 0 : HVMEM_CONFIG_NO_CPU_CACHE;
    config.host = &host_ops;
    config.host_ctx = rig;
    config.backend = &rig->be;
    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_heap_init(memory_of(1, bytes), bytes, &config, &rig->heap), HVMEM_OK);
    memset(&bank, 0, sizeof bank);
    bank.size = sizeof bank;
    bank.base = RIG_BASE;
    bank.frames = RIG_FRAMES;
    REQUIRE_EQ(hvmem_bank_size(rig->heap, &bank, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_bank_add(rig->heap, &bank, memory_of(2, bytes), bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_smp_enable(rig->heap), HVMEM_OK);
    for (cpu = 1; cpu < rig->cpus; cpu++)
        REQUIRE_EQ(hvmem_cpu_online(rig->heap, cpu), HVMEM_OK);
    memset(&owner, 0, sizeof owner);
    owner.size = sizeof owner;
    owner.id = 1;
    owner.limit = ~(hvmem_u64)0;
    bytes = hvmem_domain_size(rig->heap);
    REQUIRE_EQ(hvmem_domain_create(rig->heap, memory_of(3, bytes), bytes, &owner, &rig->domain),
               HVMEM_OK);
}

static void open_space(struct stage2_rig *rig)
{
    struct hvmem_ident_config config;
    struct hvmem_space_config space;
    hvmem_size bytes;
    hvmem_cpu cpu;

    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.flags = rig->features & HVMEM_CAP_BROADCAST ? HVMEM_IDENT_BROADCAST : 0;
    if (rig->config.format == HVMEM_S2_EPT)
        config.flags |= HVMEM_IDENT_ROOTS;
    config.regime = HVMEM_REGIME_STAGE2;
    config.first = 1;
    config.ids = 250;
    config.max_cpus = rig->cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.host = &host_ops;
    config.host_ctx = rig;
    config.backend = &rig->be;
    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(memory_of(4, bytes), bytes, &config, &rig->ident), HVMEM_OK);
    for (cpu = 0; cpu < rig->cpus; cpu++)
        REQUIRE_EQ(hvmem_ident_cpu_online(rig->ident, cpu, 0xffff), HVMEM_OK);
    memset(&space, 0, sizeof space);
    space.size = sizeof space;
    space.regime = HVMEM_REGIME_STAGE2;
    space.root = 0x1000;
    bytes = hvmem_space_size(rig->ident);
    REQUIRE_EQ(hvmem_space_create(rig->ident, memory_of(5, bytes), bytes, &space, &rig->space),
               HVMEM_OK);
}

/* Every CPU enters the guest. */
static void load(struct stage2_rig *rig)
{
    struct hvmem_tlb_space tag;
    struct hvmem_entry entry;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < rig->cpus; cpu++) {
        rig->tlb->current = cpu;
        REQUIRE_EQ(hvmem_space_activate(rig->space, cpu, &entry), HVMEM_OK);
        REQUIRE_EQ(hvmem_space_id(rig->space, cpu, &tag), HVMEM_OK);
        hvmem_sim_tlb_set_loaded(rig->tlb, cpu, &tag);
        REQUIRE_EQ(hvmem_space_entered(rig->ident, cpu), HVMEM_OK);
    }
    rig->tlb->current = 0;
    rig->flushes = rig->whole = rig->ranges = 0;
}

hvmem_status stage2_rig_open(struct stage2_rig *rig)
{
    hvmem_status status;
    hvmem_u64 root;
    hvmem_size bytes;
    unsigned bits = rig->config.input_bits;

    /* Filled once: afterwards it holds what earlier guests left, which is as good. */
    if (!filled)
        memset(pool_memory, 0xa5, sizeof pool_memory);
    filled = 1;
    rig->pool = pool_memory;
    rig->tables.format = (int)rig->config.format;
    rig->tables.input_bits = bits;
    rig->tables.output_bits = rig->config.output_bits;
    rig->tables.at = table_at;
    rig->tables.ctx = rig;
    rig->tables.start_level = 0;
    if (rig->config.format == HVMEM_S2_ARM64)
        rig->tables.start_level = rig->config.start_level != HVMEM_S2_LEVEL_AUTO
                                      ? (int)rig->config.start_level
                                      : (bits <= 30                                   ? 2
                                         : bits <= 39 || rig->config.output_bits < 44 ? 1
                                                                                      : 0);
    open_tlb(rig);
    open_heap(rig);
    open_space(rig);
    rig->config.heap = rig->heap;
    rig->config.domain = rig->charged ? rig->domain : NULL;
    rig->config.space = rig->space;
    rig->config.direct_map = (hvmem_uptr)rig->pool - ((hvmem_uptr)RIG_BASE << 12);
    test_set_point_hook(point, rig);
    REQUIRE_EQ(hvmem_stage2_size(&rig->config, &bytes), HVMEM_OK);
    status = hvmem_stage2_init(memory_of(6, bytes), bytes, &rig->config, &rig->s2);
    if (status)
        return status;
    REQUIRE_EQ(hvmem_stage2_root(rig->s2, 0, &root), HVMEM_OK);
    rig->tables.root = root & 0xfffffffff000ull;
    load(rig);
    return HVMEM_OK;
}

void stage2_rig_close(struct stage2_rig *rig)
{
    struct hvmem_cursor cursor;
    hvmem_status status = HVMEM_OK;
    const char *where;
    hvmem_u64 root;
    hvmem_mfn mfn;

    rig->on_flush = NULL;
    rig->on_clean = NULL;
    rig->on_zero = NULL;
    /* Nobody leaves an entry broken, nor counts one that is none. */
    if (rig->s2 != NULL && hvmem_stage2_root(rig->s2, 0, &root) == HVMEM_OK)
        CHECK_EQ(hvmem_stage2_mapping(rig->s2)->broken, 0);
    if (rig->s2 != NULL) {
        memset(&cursor, 0, sizeof cursor);
        do
            status = hvmem_stage2_teardown(rig->s2, &cursor);
        while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(rig_holds(rig, 0, ~0ull), 0);
    }
    CHECK_EQ(rig->malformed, 0);
    CHECK_EQ(hvmem_audit(rig->heap, &mfn, &where), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
}

/* ---- what tests do -------------------------------------------------------------------------- */

/* x86: a fault drops the translation it came from (SDM vol. 3 30.4.3.1, 4.10.4.1). */
static void drop(struct stage2_rig *rig, hvmem_cpu cpu, uint64_t gpa)
{
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush;

    memset(&range, 0, sizeof range);
    range.start = gpa & ~4095ull;
    range.pages = 1;
    range.stride_shift = 12;
    range.level = HVMEM_LEVEL_UNKNOWN;
    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = HVMEM_FLUSH_RANGES;
    flush.scope = HVMEM_SCOPE_LOCAL;
    flush.space = rig->tlb->loaded[cpu].space;
    flush.ranges = &range;
    flush.count = 1;
    CHECK_EQ(hvmem_sim_tlb_flush(rig->tlb, cpu, &flush), HVMEM_OK);
}

/* One try: whether hardware lets the access through. */
static int hit(struct stage2_rig *rig, hvmem_cpu cpu, uint64_t gpa, unsigned access)
{
    struct hvmem_sim_entry entry;
    int through;

    guard(rig, 1);
    through = hvmem_sim_tlb_access(rig->tlb, cpu, gpa >> 12, &entry) &&
              (entry.frame & 7 & access) == access;
    if (through && rig->on_access != NULL)
        rig->on_access(rig, gpa >> 12, (entry.frame >> 8) + (gpa >> 12) - entry.page, access);
    if (!through && rig->config.format != HVMEM_S2_ARM64)
        drop(rig, cpu, gpa);
    guard(rig, 0);
    return through;
}

int rig_access(struct stage2_rig *rig, hvmem_cpu cpu, uint64_t gpa, unsigned access)
{
    hvmem_u32 outcome;
    int faults = 0;

    if (rig->cpu == NULL)
        rig->tlb->current = cpu;
    while (!hit(rig, cpu, gpa, access)) {
        if (++faults > 2000 || hvmem_stage2_fault(rig->s2, gpa, access, &outcome) != HVMEM_OK ||
            outcome > HVMEM_FAULT_AGAIN)
            return -1;
        if (outcome == HVMEM_FAULT_AGAIN)
            relax(rig);
    }
    return faults;
}

struct walk_entry rig_walk(struct stage2_rig *rig, uint64_t gfn)
{
    int level;
    struct walk_entry e = walk_tables(&rig->tables, gfn << 12, &level);

    if (e.kind == WALK_MALFORMED)
        rig->malformed++;
    return e;
}

hvmem_status rig_map(struct stage2_rig *rig, uint64_t gfn, uint64_t frames, uint64_t mfn,
                     unsigned rights, unsigned type, uint64_t *done)
{
    struct hvmem_stage2_map map;
    hvmem_u64 n = 0;
    hvmem_status status;

    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.gfn = gfn;
    map.frames = frames;
    map.mfn = mfn;
    map.rights = rights;
    map.type = type;
    status = hvmem_stage2_map(rig->s2, &map, &n);
    if (done != NULL)
        *done = n;
    return status;
}
