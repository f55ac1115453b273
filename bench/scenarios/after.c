/* SPDX-License-Identifier: BSD-2-Clause */
/* A domain created by the library on the model of 128 CPUs; see after.h. */
#include "after.h"

#include "bench/common/figure.h"

#include <hvmem/bank.h>
#include <hvmem/clock.h>
#include <hvmem/heap.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIVE  4u /* domains that have all the memory before */
#define SLICE HVMEM_POPULATE_SLICE
/* Free frames when creation begins, given back as well: 1 GiB, what the caches of all CPUs may hold. */
#define RESERVE (SCENARIO_CPUS * 2048u)
#define BASE    0x100000u
/* Lines of a slice that the CPUs which freed its frames wrote last: locks, summaries, heads. */
#define SHARED_LINES 16u
#define FOREIGN_EACH 8u /* of so many frames given back one was mapped elsewhere too */

struct after {
    const struct after_config *config;
    struct hvmem_sim_costs costs;
    struct hvmem_sim_bill bill, scrub;
    struct hvmem_heap *heap;
    struct hvmem_domain *live[LIVE], *newborn;
    struct hvmem_backend_ops ops;
    struct hvmem_backend backend;
    uint64_t frames; /* in the bank */
    hvmem_cpu current;
    uint64_t now, period, random; /* picoseconds */
    uint64_t next[SCENARIO_CPUS];
    uint64_t seen[SCENARIO_CPUS],
        time[SCENARIO_CPUS];                        /* flushes of a CPU: when last scanned, now */
    uint32_t event, flushed[SCENARIO_CPUS], oldest; /* flushes in order; oldest of the CPUs' last */
    uint32_t *freed;                                /* of each frame: event at which it was freed */
    uint64_t in_callbacks;                          /* nanoseconds */
    uint32_t mapped;                                /* extents of the slice, for the oracle */
    struct {
        hvmem_mfn mfn;
        uint32_t order, oldest; /* the oldest of the CPUs' last flushes then */
    } map[SLICE];
    struct after_result result;
    void *memory[3 + LIVE + 1];
    hvmem_mfn *owned; /* frames of the live domains */
    struct hvmem_extent extent[SLICE];
};

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- host and back-end ----------------------------------------------------------------------- */

static hvmem_cpu this_cpu(void *host)
{
    return ((struct after *)host)->current;
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    struct after *a = host;
    uint64_t begin = cpu_ns(), asked = 0;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < SCENARIO_CPUS; cpu++) {
        /* The scan that made this set read each CPU's time. */
        hvmem_sim_bill_add(&a->bill, a->time[cpu] != a->seen[cpu] ? HVMEM_SIM_LINE : HVMEM_SIM_HIT,
                           1);
        a->seen[cpu] = a->time[cpu];
        if (!(cpus->words[cpu / 64] >> cpu % 64 & 1u))
            continue;
        a->current = cpu;
        fn(arg);
        asked++;
    }
    a->current = 0;
    a->result.asked += asked;
    a->result.flushes++;
    hvmem_sim_bill_shootdown(&a->bill, asked);
    a->in_callbacks += cpu_ns() - begin;
    return HVMEM_OK;
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct after *a = be->ctx;
    hvmem_cpu cpu;

    FIGURE_REQUIRE(flush->what == HVMEM_FLUSH_ALL);
    a->time[a->current]++;
    if (a->config->deaf)
        return HVMEM_OK;
    a->flushed[a->current] = ++a->event;
    for (cpu = 0, a->oldest = a->event; cpu < SCENARIO_CPUS; cpu++)
        a->oldest = a->flushed[cpu] < a->oldest ? a->flushed[cpu] : a->oldest;
    return HVMEM_OK;
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct after *a = be->ctx;

    (void)addr;
    hvmem_sim_bill_add(&a->scrub, HVMEM_SIM_ZERO_LINE, bytes / 64);
    return HVMEM_OK;
}

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    (void)host;
    (void)order;
    return (void *)(uintptr_t)((1ull << 60) + (mfn << 12)); /* nobody looks there */
}

/* A block becomes the new domain's. */
static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct after *a = ctx;

    (void)gfn;
    FIGURE_REQUIRE(a->mapped < SLICE);
    a->map[a->mapped].mfn = mfn;
    a->map[a->mapped].order = order;
    a->map[a->mapped++].oldest = a->oldest;
    return HVMEM_OK;
}

/* The oracle, outside the time that is measured: no CPU might reach what was mapped any more. */
static void look(struct after *a)
{
    uint32_t extent, i;

    for (extent = 0; extent < a->mapped; extent++)
        for (i = 0; i < 1u << a->map[extent].order; i++)
            a->result.stale += a->freed[a->map[extent].mfn - BASE + i] > a->map[extent].oldest;
    a->mapped = 0;
}

/* ---- the other CPUs -------------------------------------------------------------------------- */

static double draw(struct after *a)
{
    uint64_t x = a->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    a->random = x;
    return ((double)(x >> 12) + 1) / 4503599627370496.0;
}

static uint64_t interval(struct after *a)
{
    return 1 + (uint64_t)(-log(draw(a)) * (double)a->period);
}

/* CPUs that switched since; of several switches of one the last is what counts. */
static void let_switch(struct after *a)
{
    struct hvmem_flush_token token;
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};
    hvmem_cpu cpu;

    for (cpu = 1; cpu < SCENARIO_CPUS && a->period; cpu++) {
        if (a->next[cpu] > a->now)
            continue;
        a->next[cpu] = a->now + interval(a);
        a->current = cpu;
        FIGURE_REQUIRE(hvmem_flush_begin(a->heap, HVMEM_SCOPE_LOCAL, HVMEM_FLUSH_OPPORTUNISTIC,
                                         &token) == HVMEM_OK);
        FIGURE_REQUIRE(tlb_flush(&a->backend, &all) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_flush_end(a->heap, &token) == HVMEM_OK);
    }
    a->current = 0;
}

/* Live domains give `count` frames back, on some CPU. */
static void give_back(struct after *a, uint64_t first, uint64_t count)
{
    hvmem_cpu cpu = 1 + (hvmem_cpu)(first / SLICE % (SCENARIO_CPUS - 1));
    uint64_t i, blocks = count >> a->config->order, step = 1u << a->config->order, k;

    a->current = cpu;
    for (i = first >> a->config->order; blocks; blocks--, i++) {
        hvmem_mfn mfn = a->owned[i];

        for (k = 0; k < step; k++)
            a->freed[mfn - BASE + k] = a->event + 1; /* only a later flush is good */
        a->event++;
        FIGURE_REQUIRE(hvmem_free_owned(a->heap, mfn, a->config->order, a->live[i % LIVE],
                                        i % FOREIGN_EACH ? HVMEM_OWES_TLB : HVMEM_OWES_FOREIGN) ==
                       HVMEM_OK);
    }
    a->current = 0;
}

/* ---- the creation ---------------------------------------------------------------------------- */

/* One slice, and the time it took: own code, then events. Returns the nanoseconds of own code. */
static double slice(struct after *a, hvmem_gfn gfn, uint64_t extents)
{
    struct hvmem_populate request = {.size = sizeof request, .extents = a->extent};
    struct hvmem_cursor cursor;
    struct hvmem_sim_bill before = a->bill, delta;
    uint64_t begin, lines, i;
    hvmem_status status;
    double own;

    memset(&cursor, 0, sizeof cursor);
    for (i = 0; i < extents; i++)
        a->extent[i] =
            (struct hvmem_extent){.gfn = gfn + (i << a->config->order), .order = a->config->order};
    request.count = extents;
    request.node = HVMEM_NODE_ANY;
    a->in_callbacks = 0;
    begin = cpu_ns();
    do
        status = hvmem_domain_populate(a->newborn, &request, &cursor);
    while (status == HVMEM_AGAIN);
    own = (double)(cpu_ns() - begin - a->in_callbacks);
    FIGURE_REQUIRE(status == HVMEM_OK && a->mapped == extents);
    look(a);
    /* Records of the blocks (8 bytes of each head), read after their last owner wrote them. */
    lines = a->config->order ? extents : (extents * 8 + 63) / 64;
    hvmem_sim_bill_add(&a->bill, HVMEM_SIM_LINE, lines + SHARED_LINES);
    for (i = 0; i < HVMEM_SIM_EVENTS; i++)
        delta.count[i] = a->bill.count[i] - before.count[i];
    a->now += (uint64_t)(own * 1000) + hvmem_sim_bill_price(&delta, &a->costs);
    a->result.slices++;
    return own;
}

static void create(struct after *a)
{
    uint64_t frames = a->config->frames, batch = (uint64_t)SLICE << a->config->order, at;
    uint64_t slices = frames / batch, n = 0;
    double own = 0;

    for (at = 0; at < (a->config->live ? RESERVE : a->frames); at += SLICE)
        give_back(a, at, SLICE);
    for (at = 0; n < slices; at += batch, n++) {
        uint64_t part;

        for (part = 0; a->config->live && part < batch; part += SLICE)
            give_back(a, RESERVE + at + part, SLICE);
        let_switch(a);
        own += slice(a, at, SLICE);
    }
    a->result.scale = SCENARIO_FRAMES / (double)frames;
    a->result.bill = a->bill;
    a->result.own = own * 1e-9 * a->result.scale;
    a->result.seconds =
        a->result.own + (double)hvmem_sim_bill_price(&a->bill, &a->costs) * 1e-12 * a->result.scale;
    a->result.scrub = (double)hvmem_sim_bill_price(&a->scrub, &a->costs) * 1e-12 * a->result.scale;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void *room(struct after *a, unsigned i, size_t bytes)
{
    a->memory[i] = aligned_alloc(128, (bytes + 127) / 128 * 128);
    FIGURE_REQUIRE(a->memory[i] != NULL);
    memset(a->memory[i], 0, bytes);
    return a->memory[i];
}

static struct hvmem_domain *domain(struct after *a, unsigned i)
{
    static const struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map};
    struct hvmem_domain_config config = {.size = sizeof config, .id = i + 1, .limit = ~0ull};
    hvmem_size bytes = hvmem_domain_size(a->heap);
    struct hvmem_domain *made;

    FIGURE_REQUIRE(hvmem_domain_create(a->heap, room(a, 3 + i, bytes), bytes, &config, &made) ==
                   HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_attach(made, &ops, a, NULL) == HVMEM_OK);
    return made;
}

static void make_heap(struct after *a)
{
    static const struct hvmem_host_ops host = {
        .size = sizeof host, .this_cpu = this_cpu, .call_cpus = call_cpus, .frame_map = frame_map};
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = a->frames};
    struct hvmem_config config;
    hvmem_size bytes;
    hvmem_cpu cpu;

    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = SCENARIO_CPUS;
    config.max_domains = LIVE + 1;
    config.owed_on_free = a->config->scrub ? HVMEM_OWES_SCRUB : 0;
    config.host = &host;
    config.host_ctx = a;
    config.backend = &a->backend;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(room(a, 0, bytes), bytes, &config, &a->heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_size(a->heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(a->heap, &bank, room(a, 1, bytes), bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_smp_enable(a->heap) == HVMEM_OK);
    for (cpu = 1; cpu < SCENARIO_CPUS; cpu++) {
        a->current = cpu;
        FIGURE_REQUIRE(hvmem_cpu_online(a->heap, cpu) == HVMEM_OK);
    }
    a->current = 0;
}

/* All memory belongs to the live domains, in blocks of the extents' order. */
static void give_all(struct after *a)
{
    struct hvmem_request request = {.size = sizeof request, .order = a->config->order};
    uint64_t blocks = a->frames >> a->config->order, i;

    request.node = HVMEM_NODE_ANY;
    a->owned = calloc(blocks, sizeof *a->owned);
    a->freed = calloc(a->frames, sizeof *a->freed);
    FIGURE_REQUIRE(a->owned != NULL && a->freed != NULL);
    for (i = 0; i < blocks; i++) {
        request.domain = a->live[i % LIVE];
        FIGURE_REQUIRE(hvmem_alloc(a->heap, &request, &a->owned[i]) == HVMEM_OK);
    }
}

struct after_result after_run(const struct after_config *config)
{
    struct after *a = calloc(1, sizeof *a);
    struct after_result result;
    unsigned i;

    FIGURE_REQUIRE(a != NULL);
    a->config = config;
    hvmem_sim_costs_default(&a->costs);
    if (config->costs)
        a->costs = *config->costs;
    a->frames = config->frames + RESERVE;
    a->random = 0x9e3779b97f4a7c15u;
    a->period = config->rate > 0 ? (uint64_t)(1e12 / config->rate) : 0;
    for (i = 1; i < SCENARIO_CPUS && a->period; i++)
        a->next[i] = interval(a);
    a->ops =
        (struct hvmem_backend_ops){.size = sizeof a->ops, .tlb_flush = tlb_flush, .zero = zero};
    a->backend.ops = &a->ops;
    a->backend.ctx = a;
    a->backend.caps.size = sizeof a->backend.caps;
    a->backend.caps.page_shift = 12;
    a->backend.caps.features = HVMEM_CAP_ICOHERENT;
    make_heap(a);
    for (i = 0; i < LIVE; i++) {
        a->live[i] = domain(a, i);
        FIGURE_REQUIRE(hvmem_domain_start(a->live[i]) == HVMEM_OK);
    }
    a->newborn = domain(a, LIVE);
    give_all(a);
    create(a);
    result = a->result;
    for (i = 0; i < 3 + LIVE + 1; i++)
        free(a->memory[i]);
    free(a->owned);
    free(a->freed);
    free(a);
    return result;
}
