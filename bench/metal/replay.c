/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * replay: the library owns the machine, and a recorded trace (the first module) is played on both CPUs
 * with every recorded flush made by the machine's own back-end. The first round stops at the peak, where
 * the heap is audited and its blocks may be printed. After each round everything is freed, the heap is
 * audited, and its blocks must be those of the beginning. Arguments: trace=NAME rounds=N dump=1 debts=1.
 */
#include "replay.h"

#include <hvmem/domain.h>

#include "test/metal/subject.h"

#define USER_DOMAIN   1u
#define WAIT_LIMIT_MS 20000u
#define BOTH          3u /* the CPUs 0 and 1 */

static struct replay_run run;

/* One stretch of the trace, on both CPUs at once. */
static struct stretch {
    struct {
        hvmem_u32 from, to;
        hvmem_status status;
        uint64_t begin, end;
        uint64_t waited; /* of result.wait_time, what is accounted for */
        struct replay_result result;
    } cpu[2];
} stretch;

static int complain(const char *what, hvmem_status status)
{
    metal_printf("replay: %s: %s\n", what, hvmem_status_words(status));
    return 1;
}

static HVMEM_CALLBACK hvmem_u64 clock(void *host)
{
    (void)host;
    return metal_cycles();
}

static HVMEM_CALLBACK void wait_turn(void *host)
{
    (void)host;
    metal_relax();
}

static void play_here(void *arg)
{
    const unsigned cpu = metal_cpu_id();

    (void)arg;
    stretch.cpu[cpu].begin = metal_cycles();
    stretch.cpu[cpu].status = replay_play(&run.replay, cpu, stretch.cpu[cpu].from,
                                          stretch.cpu[cpu].to, &stretch.cpu[cpu].result);
    stretch.cpu[cpu].end = metal_cycles();
}

static int open_trace(void)
{
    const hvmem_status status =
        replay_open(&run.replay, run.bytes, run.size, run.slots,
                    (hvmem_size)METAL_PAGE_BYTES << run.slots_order, &run.ops, &run.player,
                    metal_cycles_per_ms() * WAIT_LIMIT_MS);

    stretch = (struct stretch){0};
    replay_counter_clear(&run.counter);
    return status == HVMEM_OK ? 0 : complain("trace", status);
}

/* From where each CPU stands to the peak or to the end. */
static int advance(int to_peak)
{
    const struct replay_header *header = run.replay.header;
    hvmem_status status = HVMEM_OK;

    for (unsigned cpu = 0; cpu < 2; cpu++) {
        stretch.cpu[cpu].from = stretch.cpu[cpu].to;
        stretch.cpu[cpu].to = to_peak ? header->peak_at[cpu] : header->records[cpu];
    }
    if (metal_run_cpus(BOTH, play_here, NULL) != METAL_OK)
        return complain("a CPU did not come back", HVMEM_E_TIMEOUT);
    for (unsigned cpu = 0; cpu < 2 && status == HVMEM_OK; cpu++)
        status = stretch.cpu[cpu].status;
    return status == HVMEM_OK ? 0 : complain("stopped", status);
}

static int finish(void)
{
    hvmem_u64 freed = 0;
    const hvmem_status status = replay_free_rest(&run.replay, 0, &freed);

    return status == HVMEM_OK ? 0 : complain("free of the rest", status);
}

/* The slots are memory of the heap itself, taken after the first look at its blocks. */
static int take_slots(void)
{
    const hvmem_size bytes = replay_slot_bytes(run.bytes, run.size);
    hvmem_status status;

    if (bytes == 0)
        return complain("the module is no compact trace", HVMEM_E_ARG);
    while ((hvmem_size)METAL_PAGE_BYTES << run.slots_order < bytes)
        run.slots_order++;
    status = hvmem_alloc_order(run.heap.heap, run.slots_order, &run.slots_at);
    if (status != HVMEM_OK)
        return complain("slots", status);
    run.slots = metal_frame(run.slots_at << METAL_PAGE_SHIFT);
    return 0;
}

/* Back to nothing allocated: are the blocks those of the beginning? The slots are taken again. */
static int check_restored(void)
{
    hvmem_status status = hvmem_free(run.heap.heap, run.slots_at, run.slots_order);

    if (status != HVMEM_OK)
        return complain("free of the slots", status);
    if (run.heap.host.reports != 0)
        return complain("the library reported a mistake", run.heap.host.last_report);
    return replay_restored(&run) != 0 || take_slots() != 0;
}

static uint64_t settled(void)
{
    struct hvmem_stats stats;

    if (hvmem_stats(run.heap.heap, HVMEM_NODE_ANY, sizeof stats, &stats) != HVMEM_OK)
        return 0;
    return stats.flushes;
}

/* Adds the time of the stretch that was just played to the round. */
static void add_time(void)
{
    uint64_t begin = ~0ull, end = 0;

    for (unsigned cpu = 0; cpu < 2; cpu++) {
        const uint64_t waited = stretch.cpu[cpu].result.wait_time - stretch.cpu[cpu].waited;

        run.busy[run.rounds] += stretch.cpu[cpu].end - stretch.cpu[cpu].begin - waited;
        stretch.cpu[cpu].waited = stretch.cpu[cpu].result.wait_time;
        begin = stretch.cpu[cpu].begin < begin ? stretch.cpu[cpu].begin : begin;
        end = stretch.cpu[cpu].end > end ? stretch.cpu[cpu].end : end;
    }
    run.passed[run.rounds] += end - begin;
}

/* The trace once; look: stop at the peak for it. */
static int play_round(int look)
{
    const uint64_t before = settled();

    if (open_trace() != 0)
        return 1;
    if (look) {
        if (advance(1) != 0)
            return 1;
        add_time();
        if (replay_look(&run) != 0)
            return 1;
    }
    if (advance(0) != 0)
        return 1;
    add_time();
    run.rounds++;
    run.settle = settled() - before;
    run.result = (struct replay_result){0};
    for (unsigned cpu = 0; cpu < 2; cpu++)
        replay_add(&run.result, &stretch.cpu[cpu].result);
    return finish() != 0 || check_restored() != 0;
}

static int make_domain(void)
{
    const struct hvmem_domain_config config = {
        .size = sizeof config, .id = USER_DOMAIN, .limit = ~0ull};
    const hvmem_size bytes = hvmem_domain_size(run.heap.heap);
    void *memory = metal_pages(bytes, METAL_PAGE_BYTES);
    hvmem_status status = HVMEM_E_NOMEM;

    if (memory != NULL)
        status = hvmem_domain_create(run.heap.heap, memory, bytes, &config, &run.player.user);
    run.player.user_flags = HVMEM_REQ_DEFER_ALL;
    return status == HVMEM_OK ? 0 : complain("domain", status);
}

static int make_heap(void)
{
    const struct metal_heap_options options = {.backend = &run.counter.backend,
                                               .max_domains = USER_DOMAIN,
                                               .lock_regime = HVMEM_LOCK_PLAIN};

    replay_counter_init(&run.counter, subject_backend());
    if (metal_heap_boot(&run.heap, &options) != HVMEM_OK || metal_heap_smp(&run.heap) != HVMEM_OK)
        return 1;
    run.player = (struct replay_heap){.heap = run.heap.heap,
                                      .cpus = 2,
                                      .backend = &run.counter.backend,
                                      .window = metal_window(),
                                      .call_cpus = run.heap.ops.call_cpus,
                                      .host = &run.heap.host,
                                      .clock = clock,
                                      .wait_turn = wait_turn};
    replay_heap_ops(&run.ops);
    return run.debts ? make_domain() : 0;
}

static int read_arguments(void)
{
    const struct metal_boot *boot = metal_boot_info();

    run.trace = metal_arg("trace", &run.trace_length);
    if (run.trace == NULL) {
        run.trace = "trace";
        run.trace_length = 5;
    }
    run.dump = metal_arg_is("dump", "1");
    run.debts = metal_arg_is("debts", "1");
    if (boot->module_count == 0) {
        metal_printf("replay: no module: hand a compact trace over (--initrd)\n");
        return 1;
    }
    run.bytes = metal_frame(boot->module[0].base);
    run.size = boot->module[0].bytes;
    return 0;
}

static int replay(void)
{
    const uint64_t rounds = metal_arg_u64("rounds", 1);
    const struct metal_boot *boot = metal_boot_info();

    if (read_arguments() != 0)
        return 1;
    if (metal_start_cpus(NULL) < 2) {
        metal_printf("replay: needs two CPUs\n");
        return 1;
    }
    if (make_heap() != 0 || replay_remember(&run) != 0 || take_slots() != 0)
        return 1;
    metal_printf("replay: %s by %s: %u CPUs, %u nodes, %llu MiB in %u banks, %u blocks\n",
                 subject_level(), boot->protocol, boot->cpu_count, boot->node_count,
                 (unsigned long long)(run.heap.frames >> (20 - METAL_PAGE_SHIFT)), run.heap.banks,
                 run.initial_count);
    do {
        if (play_round(run.rounds == 0) != 0)
            return 1;
        metal_printf(
            "replay: round %u: peak %llu pages; audited, all freed, the first blocks are back\n",
            run.rounds, (unsigned long long)run.peak.pages);
    } while (run.rounds < rounds && run.rounds < REPLAY_METAL_ROUNDS);
    replay_print(&run);
    return 0;
}

METAL_PROGRAM(replay, replay);
