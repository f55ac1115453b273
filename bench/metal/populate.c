/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * populate: memory for a new domain while a live one gives frames back, on CPUs that are asked to flush
 * by real interrupts. Before: as in the reports, each allocation takes the one lock, looks at the flush
 * time of every CPU and interrupts those that have not flushed since the frame was given back; the frame
 * freed last is handed out first. After: hvmem_domain_populate() in slices. Contents are not scrubbed
 * and nothing is mapped on either side, so that no frame need exist. Also with all frames given back
 * before the first is allocated (late=1 in the output), where both flush once. Fails unless the flushes are
 * exactly those: one a slice, or one in all, and every CPU asked in each. rounds=N (5 at most) measures less.
 */
#include <hvmem/populate.h>

#include "hosts/metal/common/host.h"
#include "test/metal/subject.h"

#define FRAMES 2048u
#define ROUNDS 5u
#define BASE   (1ull << 28) /* frame number of frames that do not exist: 1 TiB */

/* ---- before ---- */

static struct {
    struct metal_spin lock;
    hvmem_mfn stack[FRAMES];
    unsigned count;
    uint64_t stamp[FRAMES];
    uint64_t clock;
    uint64_t time[METAL_MAX_CPUS];
    uint64_t flushes;
    uint64_t asked;
} before;

static unsigned cpus, rounds;

static void before_free(hvmem_mfn mfn)
{
    metal_spin_lock(&before.lock);
    before.stamp[mfn - BASE] = before.clock;
    before.stack[before.count++] = mfn;
    metal_spin_unlock(&before.lock);
}

static void before_flush(void *arg)
{
    struct hvmem_backend *be = subject_backend();
    const struct hvmem_tlb_flush all = {
        .size = sizeof all, .what = HVMEM_FLUSH_ALL, .scope = HVMEM_SCOPE_LOCAL};

    (void)be->ops->tlb_flush(be, &all);
    before.time[metal_cpu_id()] = *(const uint64_t *)arg;
}

static int before_alloc(hvmem_mfn *mfn)
{
    uint64_t mask = 0, time, stamp;

    metal_spin_lock(&before.lock);
    if (before.count == 0) {
        metal_spin_unlock(&before.lock);
        return 0;
    }
    *mfn = before.stack[--before.count];
    stamp = before.stamp[*mfn - BASE];
    for (unsigned cpu = 0; cpu < cpus; cpu++)
        if (before.time[cpu] <= stamp)
            mask |= 1ull << cpu;
    metal_spin_unlock(&before.lock);
    if (mask == 0)
        return 1;
    time = __atomic_add_fetch(&before.clock, 1, __ATOMIC_SEQ_CST);
    before.flushes++;
    for (uint64_t left = mask; left != 0; left &= left - 1)
        before.asked++;
    return metal_call_cpus(mask, before_flush, &time) == METAL_OK;
}

static int before_round(int late)
{
    hvmem_mfn mfn;

    if (late)
        for (unsigned i = 0; i < FRAMES; i++)
            before_free(BASE + i);
    for (unsigned i = 0; i < FRAMES; i++) {
        if (!late)
            before_free(BASE + i);
        if (!before_alloc(&mfn))
            return 0;
    }
    return 1;
}

/* ---- after ---- */

static struct metal_host host;
static struct hvmem_host_ops ops;
static struct hvmem_heap *heap;
static struct hvmem_domain *live, *built;
static hvmem_mfn frame[FRAMES];

static HVMEM_CALLBACK hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx;
    (void)order;
    frame[gfn] = mfn;
    return HVMEM_OK;
}

static int heap_make(void)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = FRAMES};
    struct hvmem_config config;
    hvmem_size bytes = 0;

    metal_host_ops(&ops);
    host.report_lines = 8;
    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = cpus;
    config.max_banks = 4;
    config.max_domains = 2;
    config.owed_on_free = HVMEM_OWES_TLB;
    config.host = &ops;
    config.host_ctx = &host;
    config.backend = subject_backend();
    if (hvmem_heap_size(&config, &bytes) != HVMEM_OK ||
        hvmem_heap_init(metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config, &heap) != HVMEM_OK ||
        hvmem_bank_size(heap, &bank, &bytes) != HVMEM_OK ||
        hvmem_bank_add(heap, &bank, metal_pages(bytes, METAL_PAGE_BYTES), bytes) != HVMEM_OK ||
        hvmem_smp_enable(heap) != HVMEM_OK)
        return 0;
    for (unsigned cpu = 1; cpu < cpus; cpu++)
        if (hvmem_cpu_online(heap, cpu) != HVMEM_OK)
            return 0;
    return 1;
}

static struct hvmem_domain *domain_make(uint32_t id)
{
    const struct hvmem_domain_config config = {.size = sizeof config, .id = id, .limit = ~0ull};
    const hvmem_size bytes = hvmem_domain_size(heap);
    struct hvmem_domain *domain = NULL;

    (void)hvmem_domain_create(heap, metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config, &domain);
    return domain;
}

/* All frames are the live domain's. */
static int live_takes(void)
{
    const struct hvmem_request request = {
        .size = sizeof request, .node = HVMEM_NODE_ANY, .domain = live};

    for (unsigned i = 0; i < FRAMES; i++)
        if (hvmem_alloc(heap, &request, &frame[i]) != HVMEM_OK)
            return 0;
    return 1;
}

static int populate_slice(unsigned from, unsigned count)
{
    static struct hvmem_extent extents[FRAMES];
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    const struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = count, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    for (unsigned i = 0; i < count; i++)
        extents[i] = (struct hvmem_extent){.gfn = from + i};
    do
        status = hvmem_domain_populate(built, &request, &cursor);
    while (status == HVMEM_AGAIN);
    return status == HVMEM_OK;
}

static int after_round(int late)
{
    const unsigned step = late ? FRAMES : HVMEM_POPULATE_SLICE;

    for (unsigned from = 0; from < FRAMES; from += step) {
        for (unsigned i = from; i < from + step; i++)
            if (hvmem_free(heap, frame[i], 0) != HVMEM_OK)
                return 0;
        if (!populate_slice(from, step))
            return 0;
    }
    return 1;
}

static int after_give_back(void)
{
    for (unsigned i = 0; i < FRAMES; i++)
        if (hvmem_free(heap, frame[i], 0) != HVMEM_OK)
            return 0;
    return live_takes();
}

/* ---- rounds ---- */

static uint64_t median(uint64_t *t)
{
    for (unsigned i = 1; i < rounds; i++)
        for (unsigned j = i; j > 0 && t[j] < t[j - 1]; j--) {
            const uint64_t swap = t[j];

            t[j] = t[j - 1];
            t[j - 1] = swap;
        }
    return t[rounds / 2];
}

static int measure(int late)
{
    uint64_t old[ROUNDS], new[ROUNDS], begin;
    struct hvmem_stats s0, s1;
    uint64_t flushes = 0, asked = 0;

    before.flushes = before.asked = 0;
    for (unsigned i = 0; i < rounds; i++) {
        begin = metal_cycles();
        if (!before_round(late))
            return 0;
        old[i] = metal_cycles() - begin;
        (void)hvmem_stats(heap, HVMEM_NODE_ANY, sizeof s0, &s0);
        begin = metal_cycles();
        if (!after_round(late))
            return 0;
        new[i] = metal_cycles() - begin;
        (void)hvmem_stats(heap, HVMEM_NODE_ANY, sizeof s1, &s1);
        flushes += s1.flushes - s0.flushes;
        asked += s1.flush_cpus - s0.flush_cpus;
        if (!after_give_back())
            return 0;
    }
    metal_printf("populate: late %d frames %u before_us %llu flushes %llu asked %llu after_us %llu "
                 "flushes %llu asked %llu\n",
                 late, FRAMES, (unsigned long long)(median(old) * 1000 / metal_cycles_per_ms()),
                 (unsigned long long)(before.flushes / rounds),
                 (unsigned long long)(before.asked / rounds),
                 (unsigned long long)(median(new) * 1000 / metal_cycles_per_ms()),
                 (unsigned long long)(flushes / rounds), (unsigned long long)(asked / rounds));
    return flushes == rounds * (late ? 1 : FRAMES / HVMEM_POPULATE_SLICE) &&
           asked == flushes * cpus && before.flushes == rounds * (late ? 1 : FRAMES);
}

static int populate(void)
{
    const struct hvmem_domain_ops tables = {.size = sizeof tables, .map = map};

    cpus = metal_start_cpus(NULL);
    rounds = (unsigned)metal_arg_u64("rounds", ROUNDS);
    if (rounds == 0 || rounds > ROUNDS)
        return 1;
    before.clock = 1;
    if (!heap_make())
        return 1;
    live = domain_make(1);
    built = domain_make(2);
    if (live == NULL || built == NULL ||
        hvmem_domain_attach(built, &tables, NULL, NULL) != HVMEM_OK || !live_takes())
        return 1;
    return measure(0) && measure(1) ? 0 : 1;
}

METAL_PROGRAM(populate, populate);
