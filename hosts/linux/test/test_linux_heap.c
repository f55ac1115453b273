/* SPDX-License-Identifier: BSD-2-Clause */
/* Heaps made by the Linux host: from recorded memory maps and described topologies, on threads. */
#include "test_main.h"

#include "hvmem_host_linux.h"
#include "hvmem_linux.h"

#include "hosts/linux/replay/count_backend.h"

#include <stdlib.h>
#include <string.h>

#define MAPS HVMEM_TEST_DATA "/memory-maps.txt"

static struct hvmem_linux_topology topology;
static struct hvmem_linux_map map;
static struct hvmem_linux_heap made;

static struct hvmem_linux_host *make_host(uint32_t cpus)
{
    struct hvmem_linux_host_config config = {.cpus = cpus};
    struct hvmem_linux_host *host = NULL;

    REQUIRE_EQ(hvmem_linux_host_create(&config, &host), HVMEM_OK);
    return host;
}

static struct hvmem_stats stats_of(hvmem_node node)
{
    struct hvmem_stats stats = {0};

    CHECK_EQ(hvmem_stats(made.heap, node, sizeof stats, &stats), HVMEM_OK);
    return stats;
}

static void check_audit(void)
{
    const char *where = "";
    hvmem_mfn mfn = 0;

    if (!CHECK_EQ(hvmem_audit(made.heap, &mfn, &where), HVMEM_OK))
        test_note("audit: %s at 0x%llx", where, (unsigned long long)mfn);
}

/* Whole frames of the map's pieces, by node; the pieces of a real map do not overlap. */
static uint64_t expected_frames(hvmem_node node)
{
    uint64_t frames = 0;
    uint32_t i;

    for (i = 0; i < map.ram_count; i++) {
        uint64_t first = (map.ram[i].start + 4095) / 4096;
        uint64_t end = (map.ram[i].start + map.ram[i].bytes) / 4096;

        if (map.ram[i].node == node && end > first)
            frames += end - first;
    }
    return frames;
}

static void check_map_heap(void)
{
    uint64_t sum = 0;
    hvmem_node node, found;
    uint32_t i;

    for (node = 0; node < 4; node++) {
        uint64_t expected = expected_frames(node);
        struct hvmem_request request = {
            .size = sizeof request, .flags = HVMEM_REQ_EXACT_NODE, .order = 18, .node = node};
        hvmem_mfn mfn = 0;

        if (expected == 0)
            continue;
        sum += expected;
        CHECK_EQ(stats_of(node).frames, expected);
        CHECK_EQ(stats_of(node).free, expected);
        CHECK_EQ(hvmem_alloc(made.heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_node_of(made.heap, mfn, &found), HVMEM_OK);
        CHECK_EQ(found, node);
        CHECK_EQ(stats_of(node).free, expected - (1u << 18));
        CHECK_EQ(hvmem_free(made.heap, mfn, 18), HVMEM_OK);
        CHECK_EQ(stats_of(node).free, expected);
    }
    CHECK_EQ(made.frames, sum);
    CHECK_EQ(stats_of(HVMEM_NODE_ANY).frames, sum);
    for (i = 0; i < map.hotplug_count; i++) {
        CHECK_EQ(hvmem_node_of(made.heap, map.hotplug[i].start >> 12, &found), HVMEM_OK);
        CHECK_EQ(found, map.hotplug[i].node);
    }
    CHECK_EQ(hvmem_node_of(made.heap, 0, &found), HVMEM_E_FOREIGN);
}

TEST(every_recorded_map_gives_exact_totals)
{
    struct hvmem_linux_heap_config config = {.topology = &topology, .map = &map};
    uint32_t index;

    REQUIRE_EQ(hvmem_linux_topology("numa:4 pu:2", &topology), HVMEM_OK);
    for (index = 0; hvmem_linux_map_read(MAPS, index, &map, NULL) == HVMEM_AGAIN; index++) {
        test_note("%s", map.name);
        REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
        check_map_heap();
        hvmem_linux_heap_destroy(&made);
    }
    CHECK_EQ(index, 3);
}

TEST(nodes_with_holes_in_their_ids)
{
    struct hvmem_linux_heap_config config = {
        .topology = &topology, .node_frames = 5000, .flags = HVMEM_LINUX_DIRTY};
    static const uint32_t ids[] = {0, 5, 63};
    struct hvmem_stats stats;
    hvmem_node node;
    uint32_t i;

    REQUIRE_EQ(hvmem_linux_topology("pack:3 [numa(memory=64MB indexes=0,5,63)] pu:1", &topology),
               HVMEM_OK);
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
    CHECK_EQ(made.frames, 15000);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(stats_of(ids[i]).free, 5000);
        CHECK_EQ(hvmem_node_of(made.heap, HVMEM_LINUX_FIRST_MFN + ((uint64_t)i << 18), &node),
                 HVMEM_OK);
        CHECK_EQ(node, ids[i]);
    }
    CHECK_EQ(hvmem_stats(made.heap, 4, sizeof stats, &stats), HVMEM_E_NODE);
    check_audit();
    hvmem_linux_heap_destroy(&made);
    CHECK(made.heap == NULL);
}

TEST(a_node_without_memory_allocates_elsewhere, threads)
{
    struct hvmem_linux_host *host = make_host(2);
    struct hvmem_linux_heap_config config = {
        .topology = &topology, .node_frames = 1024, .flags = HVMEM_LINUX_SMP, .host = host};
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_linux_topology("numa:2(memory=64MB) pu:1", &topology), HVMEM_OK);
    topology.node[1].bytes = 0;
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
    CHECK_EQ(made.frames, 1024);
    REQUIRE_EQ(hvmem_linux_enter(host, 1), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(made.heap, 0, &mfn), HVMEM_OK);
    CHECK(mfn - HVMEM_LINUX_FIRST_MFN < 1024);
    CHECK_EQ(hvmem_free(made.heap, mfn, 0), HVMEM_OK);
    hvmem_linux_leave();
    hvmem_linux_heap_destroy(&made);
    hvmem_linux_host_destroy(host);
}

#define HELD 64u

static void churn(void *arg, hvmem_cpu cpu)
{
    struct test_rng rng = test_rng(cpu + 1);
    hvmem_mfn held[HELD];
    uint32_t order[HELD];
    uint64_t rounds = *(uint64_t *)arg;
    uint32_t have = 0, i;

    while (rounds-- != 0) {
        if (have < HELD && test_below(&rng, 2) == 0) {
            order[have] = (uint32_t)test_below(&rng, 5);
            REQUIRE_EQ(hvmem_alloc_order(made.heap, order[have], &held[have]), HVMEM_OK);
            have++;
        } else if (have != 0) {
            i = (uint32_t)test_below(&rng, have);
            REQUIRE_EQ(hvmem_free(made.heap, held[i], order[i]), HVMEM_OK);
            have--;
            held[i] = held[have];
            order[i] = order[have];
        }
    }
    for (i = 0; i < have; i++)
        REQUIRE_EQ(hvmem_free(made.heap, held[i], order[i]), HVMEM_OK);
}

TEST(threads_churn_and_nothing_is_lost, threads)
{
    struct hvmem_linux_host *host = make_host(4);
    struct hvmem_linux_heap_config config = {.topology = &topology,
                                             .node_frames = 16384,
                                             .flags = HVMEM_LINUX_SMP | HVMEM_LINUX_DIRTY,
                                             .host = host};
    struct hvmem_config base;
    uint64_t rounds = test_rounds(6000);
    struct count_backend backend;

    hvmem_config_default(&base);
    count_backend_init(&backend, HVMEM_CAP_ICOHERENT);
    base.backend = &backend.backend;
    config.base = &base;
    config.flags |= HVMEM_LINUX_FRAMES;
    REQUIRE_EQ(hvmem_linux_topology("numa:2 pu:2", &topology), HVMEM_OK);
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
    CHECK_EQ(hvmem_linux_run(host, 4, churn, &rounds), HVMEM_OK);
    CHECK_EQ(hvmem_drain(made.heap), HVMEM_OK);
    check_audit();
    CHECK_EQ(stats_of(HVMEM_NODE_ANY).free, 2 * 16384);
    CHECK_EQ(stats_of(0).free, 16384);
    CHECK_EQ(atomic_load(&backend.refused), 0);
    hvmem_linux_heap_destroy(&made);
    hvmem_linux_host_destroy(host);
}

TEST(boot_memory_is_scrubbed_through_the_window)
{
    struct hvmem_linux_host *host = make_host(1);
    struct hvmem_linux_heap_config config = {.topology = &topology,
                                             .node_frames = 256,
                                             .flags = HVMEM_LINUX_FRAMES | HVMEM_LINUX_DIRTY,
                                             .host = host};
    struct hvmem_linux_counts counts;
    struct count_backend backend;
    struct hvmem_config base;
    hvmem_mfn mfn = 0;
    char *all, *frame;
    int i, stale = 0;

    hvmem_config_default(&base);
    count_backend_init(&backend, HVMEM_CAP_ICOHERENT);
    base.backend = &backend.backend;
    config.base = &base;
    REQUIRE_EQ(hvmem_linux_topology("pu:1", &topology), HVMEM_OK);
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
    all = hvmem_linux_ops(host)->frame_map(host, HVMEM_LINUX_FIRST_MFN, 8);
    REQUIRE(all != NULL);
    memset(all, 0x5a, 256 * 4096);
    CHECK_EQ(hvmem_alloc_order(made.heap, 2, &mfn), HVMEM_OK);
    frame = hvmem_linux_ops(host)->frame_map(host, mfn, 2);
    REQUIRE(frame != NULL);
    for (i = 0; i < 4 * 4096; i++)
        stale += frame[i] != 0;
    CHECK_EQ(stale, 0);
    CHECK_EQ(atomic_load(&backend.zeroed_bytes), 4 * 4096);
    hvmem_linux_counts(host, &counts);
    CHECK(counts.maps >= 3);
    hvmem_linux_heap_destroy(&made);
    hvmem_linux_host_destroy(host);
}

TEST(misuse_reaches_the_report)
{
    struct hvmem_linux_host *host = make_host(1);
    struct hvmem_linux_heap_config config = {
        .topology = &topology, .node_frames = 256, .host = host};
    struct hvmem_linux_counts counts;
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_linux_topology("pu:1", &topology), HVMEM_OK);
    REQUIRE_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(made.heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(made.heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free(made.heap, mfn, 0), HVMEM_E_FREE);
    hvmem_linux_counts(host, &counts);
    CHECK_EQ(counts.reports, 1);
    CHECK_EQ(counts.last_code, HVMEM_E_FREE);
    CHECK_EQ(counts.last_mfn, mfn);
    hvmem_linux_heap_destroy(&made);
    hvmem_linux_host_destroy(host);
}

TEST(bad_heaps_are_refused_and_leave_nothing)
{
    struct hvmem_linux_heap_config config = {.topology = NULL};
    struct hvmem_config base;

    CHECK_EQ(hvmem_linux_heap_create(NULL, &made), HVMEM_E_ARG);
    CHECK_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_E_ARG);
    REQUIRE_EQ(hvmem_linux_topology("numa:2 pu:1", &topology), HVMEM_OK);
    config.topology = &topology;
    config.flags = HVMEM_LINUX_FRAMES; /* without a host */
    CHECK_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_E_ARG);
    config.flags = HVMEM_LINUX_SMP; /* without a host */
    CHECK_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_E_UNSUPPORTED);
    CHECK(made.heap == NULL && made.areas == 0);
    hvmem_config_default(&base);
    base.max_order = HVMEM_ORDER_LIMIT + 1;
    config.base = &base;
    config.flags = 0;
    CHECK_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_E_ORDER);
    hvmem_config_default(&base);
    base.max_banks = 1;
    config.node_frames = 1024;
    CHECK_EQ(hvmem_linux_heap_create(&config, &made), HVMEM_E_COUNT);
    CHECK(made.heap == NULL && made.areas == 0);
}
