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
/*
 * What a CPU takes from its cache and puts there is not looked at: the events come late by that, and no
 * more, and never early. Both ends of the bound: as many frames as the cache holds, and one beyond it.
 */
#define CACHED 64u /* single frames of a magazine */

static struct world *cached_world(hvmem_u64 low, hvmem_mfn *frames, int drained)
{
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    config.low_frames = low;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BARRIER);
    REQUIRE_EQ(world_bank(world, 0, 512, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    for (i = 0; i < 300; i++)
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &frames[i]), HVMEM_OK);
    if (drained)
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    world->counts.events = 0;
    return world;
}

TEST(low_memory_late_by_a_cache)
{
    hvmem_u64 low, late = 0;

    for (low = 200; low < 280; low++) {
        hvmem_mfn frames[512], mfn;
        struct world *world = cached_world(low, frames, 1);
        hvmem_u64 free = 212;
        unsigned i;

        for (i = 0; i < CACHED; i++, free++)
            CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(world->heap), free);
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).cached, CACHED);
        /* A call past the cache, so that this CPU knows the bank and what is free is looked at. */
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 1, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, mfn, 1), HVMEM_OK);
        if (free - 2 <= low) { /* told by that call */
            WORLD_END(world);
            continue;
        }
        world->counts.events = 0;
        for (; !world->counts.events && free; free--)
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        REQUIRE(world->counts.events == 1);
        CHECK_EQ(world->events[0].event, HVMEM_EVENT_LOW_MEMORY);
        CHECK_EQ(world->events[0].a, free);
        CHECK(free <= low && free + CACHED >= low);
        late = low - free > late ? low - free : late;
        WORLD_END(world);
    }
    /* Crossed by one of the first frames out of a full cache: told by the refill behind the last. */
    CHECK(late >= CACHED - 2);
}

TEST(memory_ok_late_by_a_cache)
{
    hvmem_u64 low, late = 0;

    for (low = 230; low < 330; low++) {
        hvmem_mfn frames[512];
        struct world *world = cached_world(low, frames, 0);
        hvmem_u64 free = 212;
        hvmem_mfn mfn;
        unsigned i;

        /* The state is low; the cache has room for half of what it holds. */
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 1, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, mfn, 1), HVMEM_OK);
        world->counts.events = 0;
        for (i = 0; i < 300 && !world->counts.events; i++, free++)
            CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
        REQUIRE(world->counts.events == 1);
        CHECK_EQ(world->events[0].event, HVMEM_EVENT_MEMORY_OK);
        CHECK_EQ(world->events[0].a, free);
        CHECK(free > low && free <= low + 2 + CACHED);
        late = free - low - 1 > late ? free - low - 1 : late;
        WORLD_END(world);
    }
    /* Told when a full magazine gives half of it back. */
    CHECK(late >= CACHED / 2 - 2);
}

/* Calls that go past the cache look, whatever stands in it; so does the removal of a bank. */
TEST(low_memory_at_once)
{
    hvmem_mfn frames[512], mfn;
    struct world *world = cached_world(250, frames, 1);
    struct hvmem_request request = expect_block(0, NULL);
    unsigned i;

    for (i = 0; i < CACHED; i++)
        CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 1, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 1), HVMEM_OK);
    world->counts.events = 0;
    for (i = 0; i < 26; i++) {
        CHECK_EQ(world->counts.events, 0);
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    }
    CHECK_EQ(world->counts.events, 1);
    CHECK_EQ(world->events[0].a, 250);
    REQUIRE_EQ(world_bank(world, 1024, 256, 0, 0), HVMEM_OK);
    CHECK_EQ(world->counts.events, 2);
    CHECK_EQ(world->events[1].event, HVMEM_EVENT_MEMORY_OK);
    REQUIRE_EQ(world_remove(world, 1024, 256), HVMEM_OK);
    CHECK_EQ(world->counts.events, 3);
    CHECK_EQ(world->events[2].event, HVMEM_EVENT_LOW_MEMORY);
    CHECK_EQ(world->events[2].a, 250);
    WORLD_END(world);
}

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
