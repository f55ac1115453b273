/* SPDX-License-Identifier: BSD-2-Clause */
/* The player on a heap: owners of user memory, flushes here and on the other CPU, their instructions. */
#include "test_main.h"

#include "hosts/common/player_heap.h"
#include "hosts/linux/replay/count_backend.h"
#include "hosts/linux/replay/recorders.h"
#include "hosts/linux/replay/trace_text.h"

#include "hvmem_linux.h"

#include <hvmem/domain.h>
#include <hvmem/record.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CPUS 2u

struct setup {
    struct hvmem_linux_host *host;
    struct hvmem_linux_heap made;
    struct count_backend backend;
    struct replay_heap player;
    struct replay_ops ops;
    struct replay replay;
    void *trace, *slots, *domain_memory;
    size_t size;
    hvmem_status status[CPUS];
    struct replay_result result[CPUS];
};

static hvmem_u64 clock_ms(void *host)
{
    struct timespec now;

    (void)host;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (hvmem_u64)now.tv_sec * 1000u + (hvmem_u64)now.tv_nsec / 1000000u;
}

static void wait_turn(void *host)
{
    (void)host;
    hvmem_linux_relax();
}

static void make_heap(struct setup *setup)
{
    static struct hvmem_linux_topology topology;
    struct hvmem_linux_host_config host = {.cpus = CPUS, .flags = HVMEM_LINUX_KICK};
    struct hvmem_linux_heap_config config = {
        .topology = &topology, .node_frames = 1024, .flags = HVMEM_LINUX_SMP};
    struct hvmem_config base;

    REQUIRE_EQ(hvmem_linux_host_create(&host, &setup->host), HVMEM_OK);
    REQUIRE_EQ(hvmem_linux_topology("numa:1 pu:2", &topology), HVMEM_OK);
    count_backend_init(&setup->backend, HVMEM_CAP_ICOHERENT);
    setup->backend.recorders = recorders_new(0);
    REQUIRE(setup->backend.recorders != NULL);
    setup->backend.forward = recorders_flush;
    hvmem_config_default(&base);
    base.max_domains = 1;
    base.owed_on_free = HVMEM_OWES_TLB;
    base.backend = &setup->backend.backend;
    config.base = &base;
    config.host = setup->host;
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &setup->made), HVMEM_OK);
    setup->player.heap = setup->made.heap;
    setup->player.cpus = CPUS;
    setup->player.backend = &setup->backend.backend;
    setup->player.window = 0x10000;
    setup->player.call_cpus = hvmem_linux_ops(setup->host)->call_cpus;
    setup->player.host = setup->host;
    setup->player.clock = clock_ms;
    setup->player.wait_turn = wait_turn;
}

static struct setup *open_setup(const char *const *lines)
{
    struct setup *setup = calloc(1, sizeof *setup);
    struct trace_text *text = trace_text_new();
    size_t needed;

    REQUIRE(setup != NULL && text != NULL);
    make_heap(setup);
    for (; *lines != NULL; lines++)
        REQUIRE_EQ(trace_text_line(text, *lines), TRACE_OK);
    REQUIRE_EQ(trace_text_finish(text, &setup->trace, &setup->size), TRACE_OK);
    trace_text_delete(text);
    needed = replay_slot_bytes(setup->trace, setup->size);
    setup->slots = malloc(needed);
    REQUIRE(setup->slots != NULL);
    replay_heap_ops(&setup->ops);
    REQUIRE_EQ(replay_open(&setup->replay, setup->trace, setup->size, setup->slots, needed,
                           &setup->ops, &setup->player, 20000),
               HVMEM_OK);
    return setup;
}

static void close_setup(struct setup *setup)
{
    hvmem_linux_heap_destroy(&setup->made);
    hvmem_linux_host_destroy(setup->host);
    recorders_delete(setup->backend.recorders);
    free(setup->domain_memory);
    free(setup->slots);
    free(setup->trace);
    free(setup);
}

static void play(void *arg, hvmem_cpu cpu)
{
    struct setup *setup = arg;

    setup->status[cpu] = replay_play(&setup->replay, cpu, 0, UINT32_MAX, &setup->result[cpu]);
}

TEST(flushes_reach_the_right_cpu, threads)
{
    static const char *const lines[] = {"1 0 t 3 5",  "2 1 t 3 -1", "3 0 t 4 7",
                                        "4 1 t 4 -1", "5 0 t 0 -1", NULL};
    struct setup *setup = open_setup(lines);
    uint64_t counts[RECORD_KINDS];
    struct hvmem_linux_counts calls;

    CHECK_EQ(hvmem_linux_run(setup->host, CPUS, play, setup), HVMEM_OK);
    CHECK_EQ(setup->status[0], HVMEM_OK);
    CHECK_EQ(setup->status[1], HVMEM_OK);
    CHECK_EQ(atomic_load(&setup->backend.all), 3);
    CHECK_EQ(atomic_load(&setup->backend.ranges), 2);
    CHECK_EQ(atomic_load(&setup->backend.pages), 12);
    CHECK_EQ(atomic_load(&setup->backend.refused), 0);
    hvmem_linux_counts(setup->host, &calls);
    CHECK_EQ(calls.calls, 2);
    CHECK_EQ(calls.called, 2); /* both ran on the other CPU, none on the caller */
    recorders_counts(setup->backend.recorders, counts);
    CHECK_EQ(counts[HVMEM_X86_INSN_INVLPG], 12);
    CHECK_EQ(counts[HVMEM_X86_INSN_INVPCID], 3);
    close_setup(setup);
}

TEST(a_refused_flush_stops_the_replay)
{
    static const char *const lines[] = {"1 0 t 3 5", "2 0 a 0 10 X 0", NULL};
    struct setup *setup = open_setup(lines);

    setup->player.window = 0x10001; /* not page-aligned */
    CHECK_EQ(replay_play(&setup->replay, 0, 0, UINT32_MAX, &setup->result[0]), HVMEM_E_ALIGN);
    CHECK_EQ(setup->result[0].allocs, 0);
    CHECK_EQ(atomic_load(&setup->backend.refused), 1);
    close_setup(setup);
}

TEST(another_cpu_cannot_be_reached_without_calls)
{
    static const char *const lines[] = {"1 0 t 4 5", NULL};
    struct setup *setup = open_setup(lines);

    setup->player.call_cpus = NULL;
    CHECK_EQ(replay_play(&setup->replay, 0, 0, UINT32_MAX, &setup->result[0]), HVMEM_E_UNSUPPORTED);
    close_setup(setup);
}

TEST(user_memory_belongs_to_its_domain)
{
    static const char *const lines[] = {"1 0 a 0 10 HIGHUSER_MOVABLE 1", "2 0 a 1 20 KERNEL 0",
                                        "3 0 a 0 11 RECLAIM 2", NULL};
    static const uint32_t owner[] = {1, 0, 0}, orders[] = {0, 1, 0};
    struct setup *setup = open_setup(lines);
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~(hvmem_u64)0};
    hvmem_size bytes = hvmem_domain_size(setup->made.heap);
    struct hvmem_domain_stats stats;
    struct hvmem_block block;
    hvmem_u64 handle, freed = 0;
    hvmem_u32 cursor = 0, order, i;

    setup->domain_memory = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_domain_create(setup->made.heap, setup->domain_memory, bytes, &config,
                                   &setup->player.user),
               HVMEM_OK);
    setup->player.user_flags = HVMEM_REQ_DEFER_ALL;
    CHECK_EQ(replay_play(&setup->replay, 0, 0, UINT32_MAX, &setup->result[0]), HVMEM_OK);
    for (i = 0; replay_live(&setup->replay, &cursor, &handle, &order); i++) {
        REQUIRE(i < 3);
        CHECK_EQ(hvmem_lookup(setup->made.heap, handle, &block), HVMEM_OK);
        CHECK_EQ(block.mfn, handle);
        CHECK_EQ(block.owner, owner[i]);
        CHECK_EQ(block.order, orders[i]);
        CHECK_EQ(order, orders[i]);
    }
    CHECK_EQ(i, 3);
    CHECK_EQ(hvmem_domain_stats(setup->player.user, &stats), HVMEM_OK);
    CHECK_EQ(stats.pages, 1);
    CHECK_EQ(replay_free_rest(&setup->replay, 0, &freed), HVMEM_OK);
    CHECK_EQ(freed, 3);
    CHECK_EQ(hvmem_free_frames(setup->made.heap), 1024);
    close_setup(setup);
}
