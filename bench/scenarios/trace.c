/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figure of the recorded traces: flushes that allocations cause because frames owe them, with the clock
 * and the caches' order of reuse against one flush for each allocation of frames that owe. User memory
 * belongs to a domain; a task switch that flushed everything in the recording does so here. The oracle
 * looks at every allocation: each CPU has flushed since the frames were freed.
 */
#include "bench/common/figure.h"
#include "hosts/common/player.h"
#include "hosts/linux/replay/trace_text.h"

#include <hvmem/bank.h>
#include <hvmem/clock.h>
#include <hvmem/domain.h>
#include <hvmem/heap.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS 2u
#define BASE 0x1000u

struct scene {
    struct hvmem_heap *heap;
    struct hvmem_domain *user;
    struct hvmem_backend backend;
    struct replay replay;
    struct replay_result result;
    hvmem_cpu current;
    uint32_t at[CPUS]; /* next record of each CPU */
    uint64_t frames, turns;
    uint64_t event, flushed[CPUS]; /* flushes and frees in order; last flush of each CPU */
    uint64_t *freed;               /* of each frame, 0: never by the user */
    void *memory[4];
};

static hvmem_cpu this_cpu(void *host)
{
    return ((struct scene *)host)->current;
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    struct scene *s = host;
    hvmem_cpu before = s->current;

    for (s->current = 0; s->current < CPUS; s->current++)
        if (cpus->words[0] >> s->current & 1u)
            fn(arg);
    s->current = before;
    return HVMEM_OK;
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct scene *s = be->ctx;

    if (flush->what == HVMEM_FLUSH_ALL)
        s->flushed[s->current] = ++s->event;
    return HVMEM_OK;
}

/* ---- what the player plays on ---------------------------------------------------------------- */

static int is_user(hvmem_u32 use)
{
    return (use & REPLAY_USE_MASK) == REPLAY_USE_USER;
}

static hvmem_status play_alloc(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u32 use,
                               hvmem_u64 *handle)
{
    struct hvmem_request request = {.size = sizeof request, .order = order};
    struct scene *s = ctx;
    hvmem_status status;
    uint64_t i, cpus;

    s->current = cpu;
    request.node = HVMEM_NODE_ANY;
    request.domain = is_user(use) ? s->user : NULL;
    status = hvmem_alloc(s->heap, &request, handle);
    for (i = 0; status == HVMEM_OK && i < 1u << order; i++)
        for (cpus = 0; cpus < CPUS; cpus++)
            FIGURE_REQUIRE(s->flushed[cpus] >= s->freed[*handle - BASE + i]);
    return status;
}

static hvmem_status play_free(void *ctx, hvmem_u32 cpu, hvmem_u32 order, hvmem_u64 handle)
{
    struct scene *s = ctx;
    struct hvmem_block block;
    uint64_t i;

    s->current = cpu;
    FIGURE_REQUIRE(hvmem_lookup(s->heap, handle, &block) == HVMEM_OK);
    s->event++;
    for (i = 0; block.owner && i < 1u << order; i++)
        s->freed[handle - BASE + i] = s->event;
    return hvmem_free(s->heap, handle, order);
}

/* A flush of everything on the CPU itself, as hosts have to tell; of ranges and others the heap knows
 * nothing. */
static hvmem_status play_flush(void *ctx, hvmem_u32 cpu, hvmem_u32 what, hvmem_u32 pages)
{
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};
    struct hvmem_flush_token token;
    struct scene *s = ctx;

    if (what != REPLAY_LOCAL || pages != REPLAY_FULL)
        return HVMEM_OK;
    s->current = cpu;
    FIGURE_REQUIRE(hvmem_flush_begin(s->heap, HVMEM_SCOPE_LOCAL, HVMEM_FLUSH_OPPORTUNISTIC,
                                     &token) == HVMEM_OK);
    FIGURE_REQUIRE(tlb_flush(&s->backend, &all) == HVMEM_OK);
    return hvmem_flush_end(s->heap, &token);
}

static hvmem_u64 play_now(void *ctx)
{
    return ((struct scene *)ctx)->turns;
}

static void play_one(struct scene *s, hvmem_u32 cpu)
{
    hvmem_u32 at = s->at[cpu]++;
    hvmem_status status = replay_play(&s->replay, cpu, at, at + 1, &s->result);

    if (status != HVMEM_OK)
        figure_fail("trace: CPU %u, record %u: %s", cpu, at, hvmem_status_words(status));
}

/*
 * A CPU waits for a block that the other is to allocate: that one goes on. It need not wait itself: what
 * comes before that allocation frees what was allocated earlier still.
 */
static void play_relax(void *ctx)
{
    struct scene *s = ctx;
    hvmem_cpu other = s->current ^ 1u;

    s->turns++;
    s->current = other;
    if (s->at[other] < s->replay.header->records[other])
        play_one(s, other);
    s->current = other ^ 1u;
}

/* Both CPUs in proportion to what they have, a record at a time. */
static void play(struct scene *s)
{
    const hvmem_u32 *records = s->replay.header->records;

    while (s->at[0] < records[0] || s->at[1] < records[1]) {
        hvmem_u32 cpu = (uint64_t)s->at[0] * records[1] <= (uint64_t)s->at[1] * records[0] ? 0 : 1;

        if (s->at[cpu] >= records[cpu])
            cpu ^= 1u;
        s->current = cpu;
        play_one(s, cpu);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

static void *room(struct scene *s, unsigned i, size_t bytes)
{
    s->memory[i] = aligned_alloc(128, (bytes + 127) / 128 * 128);
    FIGURE_REQUIRE(s->memory[i] != NULL);
    memset(s->memory[i], 0, bytes);
    return s->memory[i];
}

static void make_heap(struct scene *s, hvmem_u32 flags)
{
    static const struct hvmem_host_ops host = {
        .size = sizeof host, .this_cpu = this_cpu, .call_cpus = call_cpus};
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = s->frames};
    struct hvmem_domain_config domain = {.size = sizeof domain, .id = 1, .limit = ~0ull};
    struct hvmem_config config;
    hvmem_size bytes;

    hvmem_config_default(&config);
    config.flags = flags;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = CPUS;
    config.max_domains = 1;
    config.owed_on_free = HVMEM_OWES_TLB;
    config.host = &host;
    config.host_ctx = s;
    config.backend = &s->backend;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(room(s, 0, bytes), bytes, &config, &s->heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_size(s->heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(s->heap, &bank, room(s, 1, bytes), bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_smp_enable(s->heap) == HVMEM_OK);
    s->current = 1;
    FIGURE_REQUIRE(hvmem_cpu_online(s->heap, 1) == HVMEM_OK);
    bytes = hvmem_domain_size(s->heap);
    FIGURE_REQUIRE(hvmem_domain_create(s->heap, room(s, 2, bytes), bytes, &domain, &s->user) ==
                   HVMEM_OK);
}

/* Whole flushes that allocations caused; `allocs` of the trace. */
static uint64_t flushes(const void *trace, size_t bytes, hvmem_u32 flags, uint64_t *allocs)
{
    static const struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops,
                                                         .tlb_flush = tlb_flush};
    static const struct replay_ops ops = {play_alloc, play_free, play_flush, play_now, play_relax};
    struct scene *s = calloc(1, sizeof *s);
    struct hvmem_stats stats;
    hvmem_size slots = replay_slot_bytes(trace, bytes);
    unsigned i;

    FIGURE_REQUIRE(s != NULL && slots != 0);
    s->backend.ops = &backend_ops;
    s->backend.ctx = s;
    s->backend.caps.size = sizeof s->backend.caps;
    s->backend.caps.page_shift = 12;
    s->backend.caps.features = HVMEM_CAP_ICOHERENT;
    s->frames = 4ull * ((const struct replay_header *)trace)->peak_pages;
    s->freed = calloc(s->frames, sizeof *s->freed);
    make_heap(s, flags);
    FIGURE_REQUIRE(replay_open(&s->replay, trace, bytes, room(s, 3, slots), slots, &ops, s,
                               1u << 30) == HVMEM_OK);
    FIGURE_REQUIRE(s->replay.header->cpus == CPUS);
    play(s);
    FIGURE_REQUIRE(s->result.no_memory == 0);
    FIGURE_REQUIRE(hvmem_stats(s->heap, HVMEM_NODE_ANY, sizeof stats, &stats) == HVMEM_OK);
    *allocs = s->result.allocs;
    for (i = 0; i < 4; i++)
        free(s->memory[i]);
    free(s->freed);
    free(s);
    return stats.flushes;
}

static double saved(const char *name)
{
    const hvmem_u32 each = HVMEM_CONFIG_NO_CLOCK | HVMEM_CONFIG_NO_CPU_CACHE;
    struct trace_text *text = trace_text_new();
    uint64_t before, after, allocs;
    unsigned long line;
    char path[512];
    void *trace;
    size_t bytes;
    double percent;

    FIGURE_REQUIRE(text != NULL);
    snprintf(path, sizeof path, "%s/%s.trace.gz", HVMEM_TRACE_DATA, name);
    FIGURE_REQUIRE(trace_text_file(text, path, &line) == TRACE_OK);
    FIGURE_REQUIRE(trace_text_finish(text, &trace, &bytes) == TRACE_OK);
    trace_text_delete(text);
    before = flushes(trace, bytes, each, &allocs);
    after = flushes(trace, bytes, 0, &allocs);
    free(trace);
    FIGURE_REQUIRE(before > 0 && after > 0);
    FIGURE_REQUIRE(after <= before);
    percent = 100.0 * (double)(before - after) / (double)before;
    figure_comment("%s: saved %llu of %llu flushes (%.4f %%), %llu made; %llu allocations", name,
                   (unsigned long long)(before - after), (unsigned long long)before, percent,
                   (unsigned long long)after, (unsigned long long)allocs);
    return percent;
}

FIGURE(
    trace_flushes_saved_pct, "trace.flushes_saved_pct", "%",
    "flushes saved by clock and order of reuse, of one for each allocation that owes; worse trace")
{
    double build = saved("linux-cmake-build"), sort = saved("linux-jemalloc-sort");

    return build < sort ? build : sort;
}
