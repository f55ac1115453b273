/* SPDX-License-Identifier: BSD-2-Clause */
/* One round of a trace on two threads: timed from start to end, or stopped at the peak for a look. */
#include "runner.h"

#include <hvmem/status.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_LIMIT_NS 20000000000ull
#define REGION_SHIFT  9u /* pages a 2 MiB region */
#define PAGE_SHIFT    12u

int trace_load(struct trace *trace, const char *path)
{
    const char *base = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    FILE *file = fopen(path, "rb");
    long size = -1;

    memset(trace, 0, sizeof *trace);
    snprintf(trace->name, sizeof trace->name, "%.*s", (int)strcspn(base, "."), base);
    if (file != NULL && fseek(file, 0, SEEK_END) == 0)
        size = ftell(file);
    if (size > 0 && fseek(file, 0, SEEK_SET) == 0) {
        trace->bytes = malloc((size_t)size);
        if (trace->bytes != NULL)
            trace->size = fread(trace->bytes, 1, (size_t)size, file);
    }
    if (file != NULL)
        fclose(file);
    trace->slot_bytes = replay_slot_bytes(trace->bytes, trace->size);
    trace->slots = trace->slot_bytes != 0 ? calloc(1, trace->slot_bytes) : NULL;
    if (trace->slots != NULL)
        return 0;
    fprintf(stderr, "hvmem-replay: %s: not a compact trace\n", path);
    trace_unload(trace);
    return 1;
}

void trace_unload(struct trace *trace)
{
    free(trace->bytes);
    free(trace->slots);
    trace->bytes = NULL;
    trace->slots = NULL;
}

/* One stretch of a replay, on all CPUs of the trace at once. */
struct stretch {
    struct replay replay;
    struct cpu_stretch {
        uint32_t from, to;
        hvmem_status status;
        uint64_t cpu_ns, begin, end;
        struct replay_result result;
    } cpu[REPLAY_MAX_CPUS];
};

static void play_cpu(void *arg, hvmem_cpu cpu)
{
    struct stretch *stretch = arg;
    struct cpu_stretch *mine = &stretch->cpu[cpu];
    uint64_t cpu_begin = thread_ns();

    mine->begin = wall_ns();
    mine->status = replay_play(&stretch->replay, cpu, mine->from, mine->to, &mine->result);
    mine->end = wall_ns();
    mine->cpu_ns = thread_ns() - cpu_begin;
}

static int start(struct stretch *stretch, const struct trace *trace,
                 const struct allocator *allocator)
{
    hvmem_status status;

    memset(stretch, 0, sizeof *stretch);
    status = replay_open(&stretch->replay, trace->bytes, trace->size, trace->slots,
                         trace->slot_bytes, &allocator->ops, allocator->ctx, WAIT_LIMIT_NS);
    if (status == HVMEM_OK)
        return 0;
    fprintf(stderr, "hvmem-replay: %s: %s\n", trace->name, hvmem_status_words(status));
    return 1;
}

/*
 * Play to the peak (or to the end) from where each CPU stands: on the threads of the heap's own host,
 * which its calls to other CPUs need, else on those given.
 */
static int advance(struct hvmem_linux_host *threads, const struct allocator *allocator,
                   struct stretch *stretch, bool to_peak)
{
    struct hvmem_linux_host *host = allocator->session != NULL ? allocator->session->host : threads;
    const struct replay_header *header = stretch->replay.header;
    hvmem_status status;
    uint32_t cpu;

    for (cpu = 0; cpu < header->cpus; cpu++) {
        stretch->cpu[cpu].from = stretch->cpu[cpu].to;
        stretch->cpu[cpu].to = to_peak ? header->peak_at[cpu] : header->records[cpu];
    }
    status = hvmem_linux_run(host, header->cpus, play_cpu, stretch);
    for (cpu = 0; cpu < header->cpus && status == HVMEM_OK; cpu++)
        status = stretch->cpu[cpu].status;
    if (status == HVMEM_OK)
        return 0;
    fprintf(stderr, "hvmem-replay: replay stopped: %s\n", hvmem_status_words(status));
    return 1;
}

static int finish(struct stretch *stretch, const struct allocator *allocator)
{
    hvmem_u64 freed = 0;
    hvmem_status status = replay_free_rest(&stretch->replay, 0, &freed);

    if (status != HVMEM_OK) {
        fprintf(stderr, "hvmem-replay: free of the rest: %s\n", hvmem_status_words(status));
        return 1;
    }
    return allocator->session != NULL ? session_restored(allocator->session) : 0;
}

/* Adds up what the CPUs did; returns the time they were busy. */
static uint64_t sum_up(const struct stretch *stretch, struct replay_result *sum, uint64_t *wall)
{
    uint64_t busy = 0, begin = UINT64_MAX, end = 0;
    uint32_t cpu;

    memset(sum, 0, sizeof *sum);
    for (cpu = 0; cpu < stretch->replay.header->cpus; cpu++) {
        const struct cpu_stretch *part = &stretch->cpu[cpu];

        replay_add(sum, &part->result);
        busy += part->cpu_ns - part->result.wait_time;
        begin = part->begin < begin ? part->begin : begin;
        end = part->end > end ? part->end : end;
    }
    *wall = end - begin;
    return busy;
}

int play_round(struct hvmem_linux_host *threads, const struct trace *trace,
               const struct allocator *allocator, struct outcome *outcome)
{
    struct heap_session *session = allocator->session;
    static struct stretch stretch;
    uint64_t busy, wall;

    if (session != NULL)
        count_backend_clear(&session->backend);
    if (session != NULL && session->backend.recorders != NULL)
        recorders_clear(session->backend.recorders);
    if (start(&stretch, trace, allocator) != 0 || advance(threads, allocator, &stretch, false) != 0)
        return 1;
    busy = sum_up(&stretch, &outcome->result, &wall);
    if (session != NULL) {
        outcome->backend_all = atomic_load(&session->backend.all);
        outcome->backend_ranges = atomic_load(&session->backend.ranges);
        outcome->backend_pages = atomic_load(&session->backend.pages);
        if (session->backend.recorders != NULL)
            recorders_counts(session->backend.recorders, outcome->instructions);
    }
    if (outcome->rounds < MAX_ROUNDS) {
        outcome->ns[outcome->rounds] =
            (double)busy / (double)(outcome->result.allocs + outcome->result.frees);
        outcome->wall_ms[outcome->rounds] = (double)wall / 1e6;
        outcome->rounds++;
    }
    return finish(&stretch, allocator);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

/* Pages, blocks and regions of what is live; for hvmem a handle is a frame, else an address. */
static int measure_live(const struct stretch *stretch, bool frames, struct peak *peak)
{
    size_t room = stretch->replay.header->slots;
    uint64_t *region = malloc(2 * (room + 1) * sizeof *region);
    size_t count = 0, i;
    hvmem_u64 handle;
    hvmem_u32 cursor = 0, order;

    if (region == NULL)
        return 1;
    memset(peak, 0, sizeof *peak);
    while (replay_live(&stretch->replay, &cursor, &handle, &order)) {
        uint64_t first = frames ? handle : handle >> PAGE_SHIFT;
        uint64_t bytes = (uint64_t)1 << (order + PAGE_SHIFT);
        uint64_t last = frames ? first + (1u << order) - 1 : (handle + bytes - 1) >> PAGE_SHIFT;

        peak->blocks++;
        peak->pages += (uint64_t)1 << order;
        region[count++] = first >> REGION_SHIFT;
        region[count++] = last >> REGION_SHIFT;
    }
    qsort(region, count, sizeof *region, compare_u64);
    for (i = 0; i < count; i++)
        peak->regions += i == 0 || region[i] != region[i - 1];
    peak->regions_least = (peak->pages + (1u << REGION_SHIFT) - 1) >> REGION_SHIFT;
    free(region);
    return 0;
}

/* At the peak, no CPU plays. */
static int look(const struct stretch *stretch, const struct allocator *allocator,
                struct outcome *outcome, const char *dump_path)
{
    struct heap_session *session = allocator->session;
    char title[160];

    if (measure_live(stretch, session != NULL, &outcome->peak) != 0)
        return 1;
    outcome->peak.metadata = allocator->metadata(allocator->ctx, outcome->peak.pages << PAGE_SHIFT);
    if (session == NULL)
        return 0;
    if (session_audit(session) != 0)
        return 1;
    snprintf(title, sizeof title, "Heap at the peak of %s: %u pages live", outcome->trace->name,
             (unsigned)outcome->peak.pages);
    if (dump_path != NULL && session_dump(session, dump_path, title) != 0)
        return 1;
    return session_large(session, &outcome->peak.free_large, &outcome->peak.possible_large);
}

static uint64_t settle_flushes(const struct heap_session *session)
{
    struct hvmem_stats stats;

    if (hvmem_stats(session->linux_heap.heap, HVMEM_NODE_ANY, sizeof stats, &stats) != HVMEM_OK)
        return 0;
    return stats.flushes;
}

int play_peak(struct hvmem_linux_host *threads, const struct trace *trace,
              const struct allocator *allocator, struct outcome *outcome, const char *dump_path)
{
    struct heap_session *session = allocator->session;
    static struct stretch stretch;
    uint64_t before = session != NULL ? settle_flushes(session) : 0;

    if (start(&stretch, trace, allocator) != 0 ||
        advance(threads, allocator, &stretch, true) != 0 ||
        look(&stretch, allocator, outcome, dump_path) != 0 ||
        advance(threads, allocator, &stretch, false) != 0)
        return 1;
    if (session != NULL)
        outcome->settle_flushes = settle_flushes(session) - before;
    if (outcome->peak.pages != stretch.replay.header->peak_pages) {
        fprintf(stderr, "hvmem-replay: %lu pages live at the peak, %u recorded\n",
                (unsigned long)outcome->peak.pages, stretch.replay.header->peak_pages);
        return 1;
    }
    if (finish(&stretch, allocator) != 0)
        return 1;
    outcome->verified = session != NULL;
    return 0;
}
