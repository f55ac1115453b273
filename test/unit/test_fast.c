/* SPDX-License-Identifier: BSD-2-Clause */
/* The inline forms of hvmem/fast.h: same results, counts and refusals as the calls they stand for. */
#include "expect.h"
#include "frame.h"

#include <hvmem/fast.h>

#define FRAMES 4096u

static struct world *fast_world(hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.max_order = 9;
    config.flags = flags;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0x1000, FRAMES, 0, 0), HVMEM_OK);
    return world;
}

static hvmem_u64 cached(struct world *world)
{
    struct hvmem_stats stats;

    REQUIRE_EQ(hvmem_stats(world->heap, HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_OK);
    CHECK_EQ(stats.frames, FRAMES);
    CHECK_EQ(stats.free + stats.allocated, FRAMES);
    return stats.cached;
}

TEST(pairs_and_counts)
{
    struct world *world = fast_world(0);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(world->heap, 0);
    hvmem_mfn a = 0, b = 0;
    hvmem_u64 before;

    REQUIRE(cpu != NULL);
    CHECK_EQ(hvmem_alloc_page(world->heap, cpu, &a), HVMEM_OK); /* fills the cache */
    before = cached(world);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_OK);
    CHECK_EQ(cpu->hot, a); /* it did go the short way */
    CHECK_EQ(cached(world), before + 1);
    CHECK_EQ(hvmem_alloc_page(world->heap, cpu, &b), HVMEM_OK);
    CHECK_EQ(a, b);
    CHECK_EQ(cpu->hot, HVMEM_FAST_NONE);
    CHECK_EQ(cached(world), before);
    CHECK_EQ(hvmem_free(world->heap, b, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(cpu->hot, HVMEM_FAST_NONE);
    CHECK_EQ(cached(world), 0);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
    WORLD_END(world);
}

/* Every frame through the inline forms and back: each once, none lost to the hot place. */
TEST(all_frames_once)
{
    static hvmem_mfn frames[FRAMES];
    static char seen[FRAMES];
    struct world *world = fast_world(0);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(world->heap, 0);
    hvmem_mfn more;
    unsigned i;

    for (i = 0; i < FRAMES; i++) {
        REQUIRE_EQ(hvmem_alloc_page(world->heap, cpu, &frames[i]), HVMEM_OK);
        CHECK_EQ(seen[frames[i] - 0x1000]++, 0);
        if (i % 3 == 0) { /* and a pair in between */
            CHECK_EQ(hvmem_free_page(world->heap, cpu, frames[i]), HVMEM_OK);
            more = frames[i];
            REQUIRE_EQ(hvmem_alloc_page(world->heap, cpu, &frames[i]), HVMEM_OK);
            CHECK_EQ(frames[i], more);
        }
    }
    CHECK_EQ(hvmem_alloc_page(world->heap, cpu, &more), HVMEM_E_NOMEM);
    for (i = 0; i < FRAMES; i++)
        CHECK_EQ(hvmem_free_page(world->heap, cpu, frames[i]), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    WORLD_END(world);
}

/* Mistakes are answered as by hvmem_free(), and change nothing. */
TEST(mistakes_are_refused)
{
    struct world *world = fast_world(0);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(world->heap, 0);
    hvmem_mfn a = 0, block = 0;

    REQUIRE_EQ(hvmem_alloc_page(world->heap, cpu, &a), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &block), HVMEM_OK);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_OK);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_E_FREE);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, 0x1000 + FRAMES), HVMEM_E_FOREIGN);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, 0xfff), HVMEM_E_FOREIGN);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, block), HVMEM_E_WRONG_ORDER);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, block + 1), HVMEM_E_INTERIOR);
    CHECK_EQ(hvmem_free(world->heap, block, 3), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_E_FREE);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
    WORLD_END(world);
}

/* A record that looks like a frame in hand, where no block starts: content of unknown memory. */
TEST(garbage_records_do_not_count)
{
    struct world *world = fast_world(0);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(world->heap, 0);
    hvmem_mfn a = 0, block = 0;

    REQUIRE_EQ(hvmem_alloc_page(world->heap, cpu, &a), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 6, &block), HVMEM_OK);
    REQUIRE(block - cpu->base < cpu->frames);
    cpu->record[block + 5 - cpu->base] = cpu->given;
    CHECK_EQ(hvmem_free_page(world->heap, cpu, block + 5), HVMEM_E_INTERIOR);
    CHECK_EQ(hvmem_free(world->heap, block, 6), HVMEM_OK);
    cpu->record[block + 5 - cpu->base] = cpu->given;
    CHECK_EQ(hvmem_free_page(world->heap, cpu, block + 5), HVMEM_E_FREE);
    CHECK_EQ(cpu->hot, HVMEM_FAST_NONE);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    WORLD_END(world);
}

TEST(without_caches_everything_falls_back)
{
    struct world *world = fast_world(HVMEM_CONFIG_NO_CPU_CACHE);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(world->heap, 0);
    hvmem_mfn a = 0;

    CHECK_EQ(hvmem_alloc_page(world->heap, cpu, &a), HVMEM_OK);
    CHECK_EQ(hvmem_free_page(world->heap, cpu, a), HVMEM_OK);
    CHECK_EQ(cpu->hot, HVMEM_FAST_NONE);
    CHECK_EQ(cached(world), 0);
    WORLD_END(world);
}

TEST(handles)
{
    struct world *world = fast_world(0);

    CHECK(hvmem_cpu_handle(world->heap, 0) != NULL);
    CHECK(hvmem_cpu_handle(world->heap, 1u << 20) == NULL);
    CHECK(hvmem_cpu_handle(NULL, 0) == NULL);
    CHECK(hvmem_cpu_handle_version(world->heap, 0, HVMEM_FAST_VERSION + 1) == NULL);
    CHECK_EQ(HVMEM_FAST_CACHED, hvmem__rec_make(0, HVMEM_BLOCK_CACHED, 0));
    WORLD_END(world);
}
