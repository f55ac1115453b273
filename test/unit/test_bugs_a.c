/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public bug reports of other allocators, class A: block geometry and argument checks. Each case
 * plays the whole report: B01 orders beyond the table, B03 double free, B04 free of a block's middle
 * or with another order.
 */
#include "expect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One block of order M, all of memory. */
TEST(B01_orders_beyond_the_table)
{
    static const hvmem_u32 orders[] = {255, (hvmem_u32)-1, INT_MAX, (hvmem_u32)INT_MIN, 31, 64};
    hvmem_u32 max;
    size_t i;

    for (max = 0; max <= 12; max++) {
        struct hvmem_config config = world_config();
        struct world *world;
        struct hvmem_request request;
        hvmem_mfn mfn = 0;

        config.max_order = max;
        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, 0x10000, 1ull << max, 0, 0), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, max + 1, &mfn), HVMEM_E_ORDER);
        request = expect_block(max + 1, NULL);
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ORDER);
        for (i = 0; i < sizeof orders / sizeof orders[0]; i++) {
            request = expect_block(orders[i], NULL);
            CHECK_REFUSED(world, hvmem_alloc_order(world->heap, orders[i], &mfn), HVMEM_E_ORDER);
            CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ORDER);
        }
        CHECK_EQ(hvmem_alloc_order(world->heap, max, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, 0x10000);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, max, &mfn), HVMEM_E_NOMEM);
        CHECK_REFUSED(world, hvmem_free(world->heap, mfn, max + 1), HVMEM_E_ORDER);
        CHECK_REFUSED(world, hvmem_free(world->heap, mfn, (hvmem_u32)-1), HVMEM_E_ORDER);
        CHECK_REFUSED(world, hvmem_free(world->heap, mfn, INT_MAX), HVMEM_E_ORDER);
        CHECK_EQ(hvmem_free(world->heap, mfn, max), HVMEM_OK);
        WORLD_END(world);
    }
}

TEST(B01_counts_beyond_the_table)
{
    const hvmem_u64 bad[] = {(1u << 10) + 1, 1ull << 52, SIZE_MAX, SIZE_MAX - 4095};
    struct world *world = WORLD_SIMPLE(0, 2048);
    struct hvmem_request request = expect_block(0, NULL);
    struct hvmem_heap *heap = world->heap;
    hvmem_mfn mfn = 77;
    size_t i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        request.count = bad[i];
        CHECK_REFUSED(world, hvmem_alloc(heap, &request, &mfn), HVMEM_E_COUNT);
        CHECK(hvmem_free_run(heap, 0, bad[i]) < 0);
        CHECK(hvmem_reserve(heap, 0, bad[i] == 1025 ? 2049 : bad[i]) < 0);
    }
    CHECK_EQ(mfn, 77);
    CHECK_REFUSED(world, hvmem_reserve(heap, 0, 0), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_free_run(heap, 0, 0), HVMEM_E_RANGE);
    request.count = 1u << 10;
    CHECK_EQ(hvmem_alloc(heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(heap, mfn, 1u << 10), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], 2);
    WORLD_END(world);
}

/* Everything as single frames: no frame twice, none outside, exactly `count` of them. */
static void take_everything_once(struct world *world, hvmem_mfn base, hvmem_u64 frames,
                                 hvmem_u64 count)
{
    unsigned char *seen = calloc(frames, 1);
    hvmem_u64 got = 0;
    hvmem_mfn mfn;

    while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK) {
        if (!CHECK(mfn >= base && mfn - base < frames) || !CHECK_EQ(seen[mfn - base], 0))
            break;
        seen[mfn - base] = 1;
        got++;
    }
    CHECK_EQ(got, count);
    free(seen);
}

TEST(B03_second_free_is_refused_at_once)
{
    struct world *world = WORLD_SIMPLE(64, 64);
    struct hvmem_heap *heap = world->heap;
    hvmem_mfn mfn = 0;
    hvmem_mfn hold = 0;

    /* Its buddy in use: the block stays as it is. */
    REQUIRE_EQ(hvmem_alloc_order(heap, 2, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(heap, mfn ^ 4, 1), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap, mfn, 2), HVMEM_OK);
    CHECK_REFUSED_AT(world, hvmem_free(heap, mfn, 2), HVMEM_E_FREE, mfn);
    CHECK_REFUSED_AT(world, hvmem_free(heap, mfn, HVMEM_ORDER_ANY), HVMEM_E_FREE, mfn);
    CHECK_REFUSED_AT(world, hvmem_free(heap, mfn + 1, 0), HVMEM_E_FREE, mfn + 1);
    /* Merged into a larger one in between. */
    CHECK_EQ(hvmem_free_run(heap, mfn ^ 4, 1), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, mfn).order, 6);
    CHECK_REFUSED_AT(world, hvmem_free(heap, mfn, 2), HVMEM_E_FREE, mfn);
    CHECK_REFUSED(world, hvmem_free_run(heap, mfn, 4), HVMEM_E_FREE);
    /* Merged with a buddy that starts before it. */
    REQUIRE_EQ(hvmem_alloc_order(heap, 2, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(heap, 2, &hold), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap, mfn, 2), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap, hold, 2), HVMEM_OK);
    CHECK_REFUSED_AT(world, hvmem_free(heap, hold, 2), HVMEM_E_FREE, hold);
    CHECK_REFUSED_AT(world, hvmem_free(heap, mfn, 2), HVMEM_E_FREE, mfn);
    take_everything_once(world, 64, 64, 64);
    WORLD_END(world);
}

TEST(B03_frames_never_given_out)
{
    struct world *world = WORLD_SIMPLE(64, 64);
    struct hvmem_heap *heap = world->heap;
    const hvmem_mfn outside[] = {0, 63, 128, 1ull << 40, ~0ull, ~0ull >> 12};
    struct hvmem_domain *domain;
    size_t i;

    CHECK_REFUSED_AT(world, hvmem_free(heap, 100, 0), HVMEM_E_FREE, 100);
    CHECK_REFUSED_AT(world, hvmem_free(heap, 64, 6), HVMEM_E_FREE, 64);
    REQUIRE_EQ(hvmem_reserve(heap, 70, 3), HVMEM_OK);
    for (i = 70; i < 73; i++) {
        CHECK_REFUSED_AT(world, hvmem_free(heap, i, 0), HVMEM_E_RESERVED, i);
        CHECK_REFUSED_AT(world, hvmem_free(heap, i, HVMEM_ORDER_ANY), HVMEM_E_RESERVED, i);
    }
    for (i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        CHECK_REFUSED_AT(world, hvmem_free(heap, outside[i], 0), HVMEM_E_FOREIGN, outside[i]);
        CHECK_REFUSED_AT(world, hvmem_free_owned(heap, outside[i], 0, NULL, 0), HVMEM_E_FOREIGN,
                         outside[i]);
        CHECK(hvmem_free_run(heap, outside[i], 1) < 0);
    }
    domain = world_domain(world, 1, ~0ull, 0, NULL);
    CHECK_REFUSED_AT(world, hvmem_free_owned(heap, 100, 0, domain, 0), HVMEM_E_FREE, 100);
    take_everything_once(world, 64, 64, 61);
    WORLD_END(world);
}

/* In a per-CPU cache; then freed on one CPU and again on another. */
TEST(B03_block_in_a_cpu_cache)
{
    static const hvmem_order orders[] = {0, 9, 0, 1, 4, 5, 7, 8, 9};
    size_t i;

    for (i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn mfn = 0;

        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 3;
        config.owed_on_free = 0;
        /* (Middle orders use their magazines only where sections need no gate.) */
        world = WORLD_NEW(&config, i < 2 ? 0 : WORLD_BARRIER);
        REQUIRE_EQ(world_bank(world, 0, 4096, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, orders[i], &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, mfn, orders[i]), HVMEM_OK);
        CHECK_EQ(expect_lookup(world, mfn).state, HVMEM_BLOCK_CACHED);
        CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, orders[i]), HVMEM_E_FREE, mfn);
        world_set_cpu(1);
        CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, orders[i]), HVMEM_E_FREE, mfn);
        CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, HVMEM_ORDER_ANY), HVMEM_E_FREE, mfn);
        CHECK_REFUSED(world, hvmem_free_run(world->heap, mfn, 1), HVMEM_E_FREE);
        /* Allocated here, freed there, freed here again. */
        REQUIRE_EQ(hvmem_alloc_order(world->heap, orders[i], &mfn), HVMEM_OK);
        world_set_cpu(2);
        CHECK_EQ(hvmem_free(world->heap, mfn, orders[i]), HVMEM_OK);
        world_set_cpu(0);
        CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, orders[i]), HVMEM_E_FREE, mfn);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], 4);
        take_everything_once(world, 0, 4096, 4096);
        WORLD_END(world);
    }
}

/* 16 frames, all else split; frees that name the middle or another order. */
TEST(B04_wrong_start_or_order)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_heap *heap = world->heap;
    hvmem_mfn singles[48];
    hvmem_mfn p = 0;
    size_t i;

    REQUIRE_EQ(hvmem_alloc_order(heap, 4, &p), HVMEM_OK);
    REQUIRE_EQ(expect_take_all(world, singles, 48), 48);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p + 1, 0), HVMEM_E_INTERIOR, p + 1);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p + 8, 3), HVMEM_E_INTERIOR, p + 8);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p + 8, HVMEM_ORDER_ANY), HVMEM_E_INTERIOR, p + 8);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p, 3), HVMEM_E_WRONG_ORDER, p);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p, 5), HVMEM_E_WRONG_ORDER, p);
    CHECK_REFUSED_AT(world, hvmem_free(heap, p, 0), HVMEM_E_WRONG_ORDER, p);
    for (i = 0; i < 48; i++)
        CHECK_REFUSED_AT(world, hvmem_free(heap, singles[i], 1), HVMEM_E_WRONG_ORDER, singles[i]);
    CHECK_EQ(hvmem_free(heap, p, 4), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, p + 5).order, 4);
    CHECK_EQ(hvmem_free_frames(heap), 16);
    WORLD_END(world);
}

/* Every sub-run of a block of 16 by the call that is made for it: these frames, no others. */
TEST(B04_partial_free_is_exact)
{
    hvmem_u64 from;
    hvmem_u64 count;
    hvmem_u64 i;

    for (from = 0; from < 16; from++)
        for (count = 1; from + count <= 16; count++) {
            struct world *world = WORLD_SIMPLE(0, 32);
            hvmem_mfn p = 0;

            REQUIRE_EQ(hvmem_alloc_order(world->heap, 4, &p), HVMEM_OK);
            CHECK_EQ(hvmem_free_run(world->heap, p + from, count), HVMEM_OK);
            for (i = 0; i < 16; i++)
                CHECK_EQ(expect_lookup(world, p + i).state,
                         i >= from && i < from + count ? HVMEM_BLOCK_FREE : HVMEM_BLOCK_ALLOCATED);
            CHECK_EQ(hvmem_free_frames(world->heap), 16 + count);
            CHECK_AUDIT(world);
            /* The rest goes back in one piece on each side. */
            if (from != 0)
                CHECK_EQ(hvmem_free_run(world->heap, p, from), HVMEM_OK);
            if (from + count != 16)
                CHECK_EQ(hvmem_free_run(world->heap, p + from + count, 16 - from - count),
                         HVMEM_OK);
            CHECK_FREE_BLOCKS(world, {0, 5});
            WORLD_END(world);
        }
}

/* Same start as the root of 16: freeing the first four frees four. */
TEST(B04_same_start_as_the_parent)
{
    struct world *world = WORLD_SIMPLE(16, 16);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_request request = expect_run(4, 2, 16, 20);
    hvmem_mfn p = 0;
    hvmem_mfn rest = 0;

    REQUIRE_EQ(hvmem_alloc(heap, &request, &p), HVMEM_OK);
    CHECK_EQ(p, 16);
    REQUIRE_EQ(hvmem_alloc_order(heap, 3, &rest), HVMEM_OK);
    CHECK_REFUSED_AT(world, hvmem_free(heap, 16, 4), HVMEM_E_WRONG_ORDER, 16);
    CHECK_REFUSED_AT(world, hvmem_free(heap, 16, 3), HVMEM_E_WRONG_ORDER, 16);
    CHECK_EQ(hvmem_free(heap, 16, 2), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(heap), 8);
    CHECK_EQ(expect_lookup(world, rest).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(hvmem_free(heap, rest, 3), HVMEM_OK);
    CHECK_FREE_BLOCKS(world, {16, 4});
    WORLD_END(world);
}
