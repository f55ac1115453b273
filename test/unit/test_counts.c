/* SPDX-License-Identifier: BSD-2-Clause */
/* Statistics, walk, quiesce and the low-memory event with its hysteresis. */
#include "expect.h"

#include <string.h>

TEST(low_memory_event_with_hysteresis)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn frames[64];
    unsigned i;

    config.low_frames = 10;
    config.low_hysteresis = 5;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    world->counts.events = 0;
    for (i = 0; i < 64; i++) {
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &frames[i]), HVMEM_OK);
        CHECK_EQ(world->counts.events, 63 - i <= 10);
    }
    CHECK_EQ(world->events[0].event, HVMEM_EVENT_LOW_MEMORY);
    CHECK_EQ(world->events[0].a, 10);
    CHECK_EQ(world->events[0].b, 10);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
        CHECK_EQ(world->counts.events, 1 + (i + 1 > 15));
    }
    CHECK_EQ(world->events[1].event, HVMEM_EVENT_MEMORY_OK);
    CHECK_EQ(world->events[1].a, 16);
    /* Between the two thresholds nothing is told, however often. */
    REQUIRE_EQ(hvmem_reserve(world->heap, 0, 52), HVMEM_OK);
    for (i = 0; i < 20; i++) {
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &frames[0]), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, frames[0], 0), HVMEM_OK);
    }
    CHECK_EQ(world->counts.events, 2);
    CHECK_EQ(hvmem_reserve(world->heap, 52, 12), HVMEM_OK);
    CHECK_EQ(world->counts.events, 3);
    CHECK_EQ(hvmem_free_run(world->heap, 0, 64), HVMEM_OK);
    CHECK_EQ(world->counts.events, 4);
    WORLD_END(world);
}

/* A threshold of 0 says never; bulk, runs and caches cross the threshold like single frames. */
TEST(low_memory_by_other_calls)
{
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct hvmem_config config = world_config();
        struct hvmem_request request = expect_block(0, NULL);
        struct world *world;
        hvmem_mfn frames[64];
        hvmem_u32 got = 0;

        config.low_frames = 32;
        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 1;
        config.flags = caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        world->counts.events = 0;
        CHECK_EQ(hvmem_alloc_bulk(world->heap, &request, frames, 40, &got), HVMEM_OK);
        CHECK_EQ(world->counts.events, 1);
        CHECK_EQ(hvmem_free_bulk(world->heap, frames, 40, 0, &got), HVMEM_OK);
        CHECK_EQ(world->counts.events, 2);
        request = expect_run(40, 0, 0, 0);
        CHECK_EQ(hvmem_alloc(world->heap, &request, frames), HVMEM_OK);
        CHECK_EQ(world->counts.events, 3);
        CHECK_EQ(world_bank(world, 64, 64, 0, 0), HVMEM_OK);
        CHECK_EQ(world->counts.events, 4);
        WORLD_END(world);
    }
}

/* Walk and look-up agree; the walk ends; a cursor from nowhere ends or finds a block. */
TEST(walk_is_complete)
{
    struct world *world = WORLD_SIMPLE(3, 61);
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_mfn at = 3;
    hvmem_mfn mfn;
    unsigned steps = 0;

    for (mfn = 5; mfn < 60; mfn += 9)
        REQUIRE_EQ(hvmem_reserve(world->heap, mfn, 2), HVMEM_OK);
    while (hvmem_walk(world->heap, &cursor, &block) == HVMEM_AGAIN && steps++ < 100) {
        CHECK_EQ(block.mfn, at);
        at += 1ull << block.order;
    }
    CHECK_EQ(at, 64);
    cursor = ~0ull;
    CHECK(hvmem_walk(world->heap, &cursor, &block) <= HVMEM_AGAIN);
    WORLD_END(world);
}

/* Quiesce drains; the heap goes on afterwards. */
TEST(quiesce_drains)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;
    unsigned i;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 1024, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    for (i = 0; i < 4; i++) {
        world_set_cpu(i % 2);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
        CHECK(expect_stats(world, 0).cached != 0);
        CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).cached, 0);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], 1);
        CHECK_AUDIT(world);
    }
    WORLD_END(world);
}

/* Each refusal for a mistake is counted; a lack of memory is not a mistake. */
TEST(refusals_are_counted)
{
    struct world *world = WORLD_SIMPLE(0, 4);
    hvmem_u64 before = expect_stats(world, HVMEM_NODE_ANY).refused;
    hvmem_mfn mfn = 0;
    unsigned i;

    for (i = 0; i < 10; i++)
        CHECK_EQ(hvmem_free(world->heap, 0, 0), HVMEM_E_FREE);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).refused, before + 10);
    CHECK_EQ(world->counts.reports, 10);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 2, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    CHECK_EQ(world->counts.reports, 10);
    WORLD_END(world);
}
