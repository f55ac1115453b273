/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Class A again: B06 banks whose ends are not powers of two, B07 merging across a border (node,
 * window edge, reserved frame, frames out of service).
 */
#include "expect.h"

#include <stdlib.h>
#include <string.h>

TEST(B06_tail_and_head_blocks)
{
    struct world *world = WORLD_SIMPLE(3, 13);

    CHECK_FREE_BLOCKS(world, {3, 0}, {4, 2}, {8, 3});
    WORLD_END(world);
    world = WORLD_SIMPLE(3, 12);
    CHECK_FREE_BLOCKS(world, {3, 0}, {4, 2}, {8, 2}, {12, 1}, {14, 0});
    WORLD_END(world);
}

/* One bank: all frames one by one, back in another order, and the first block set is there again. */
static void whole_bank(struct world *world, hvmem_mfn base, hvmem_u64 frames, struct test_rng *rng)
{
    struct snapshot *before;
    struct snapshot *after;
    unsigned char seen[160];
    hvmem_mfn got[160];
    size_t count;
    size_t i;

    before = snapshot_take(world, false);
    count = expect_take_all(world, got, 160);
    CHECK_EQ(count, frames);
    memset(seen, 0, sizeof seen);
    for (i = 0; i < count; i++) {
        CHECK(got[i] >= base && got[i] - base < frames && !seen[got[i] - base]);
        seen[(got[i] - base) % 160] = 1;
    }
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    for (i = count; i > 0; i--) {
        size_t pick = test_below(rng, i);

        CHECK_EQ(hvmem_free(world->heap, got[pick], 0), HVMEM_OK);
        got[pick] = got[i - 1];
    }
    after = snapshot_take(world, false);
    CHECK(snapshot_difference(before, after) == NULL);
    snapshot_delete(before);
    snapshot_delete(after);
}

TEST(B06_every_start_and_length)
{
    struct test_rng rng = test_rng(6);
    hvmem_mfn start;
    hvmem_u64 length;

    for (start = 0; start <= 70; start++)
        for (length = 1; length <= 70; length++) {
            struct world *world = WORLD_SIMPLE(start, length);

            whole_bank(world, start, length, &rng);
            WORLD_END(world);
        }
}

/* Length 0 is refused, at every start. */
TEST(B06_empty_bank)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    hvmem_mfn start;

    for (start = 0; start <= 70; start++)
        CHECK_REFUSED(world, world_bank(world, start, 0, 0, 0), HVMEM_E_COUNT);
    WORLD_END(world);
}

/* Alignment counts from frame 0, not from the bank. */
TEST(B06_alignment_is_absolute)
{
    struct world *world = WORLD_SIMPLE(0x21f, 0x200);
    hvmem_order order;
    hvmem_mfn mfn;
    unsigned got;

    for (order = 0; order <= 8; order++) {
        hvmem_mfn blocks[0x200];

        for (got = 0; hvmem_alloc_order(world->heap, order, &mfn) == HVMEM_OK; got++) {
            CHECK_EQ(mfn & ((1ull << order) - 1), 0);
            CHECK(mfn >= 0x21f && mfn + (1ull << order) <= 0x41f);
            blocks[got] = mfn;
        }
        CHECK(got != 0);
        while (got > 0)
            CHECK_EQ(hvmem_free(world->heap, blocks[--got], order), HVMEM_OK);
    }
    WORLD_END(world);
}

/* The table lies inside the bank: those frames are reserved first and keep their content. */
TEST(B06_table_inside_the_bank)
{
    const hvmem_u64 frames = 512;
    struct hvmem_config config = world_config();
    struct world *world;
    struct hvmem_bank bank = {sizeof bank, 0, 0x100, frames, 0, 0};
    unsigned char *memory = aligned_alloc(4096, frames * 4096);
    hvmem_size bytes = 0;
    hvmem_u64 table_frames;
    hvmem_mfn mfn;
    hvmem_u64 got = 0;

    REQUIRE(memory != NULL);
    world_garbage(memory, frames * 4096);
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(hvmem_bank_size(world->heap, &bank, &bytes), HVMEM_OK);
    table_frames = (bytes + 4095) / 4096;
    REQUIRE_EQ(hvmem_bank_add(world->heap, &bank, memory, bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(world->heap, 0x100, table_frames), HVMEM_OK);
    while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK) {
        CHECK(mfn >= 0x100 + table_frames && mfn < 0x100 + frames);
        memset(memory + (mfn - 0x100) * 4096, 0x5a, 4096);
        got++;
    }
    CHECK_EQ(got, frames - table_frames);
    CHECK_AUDIT(world);
    CHECK_EQ(hvmem_free_run(world->heap, 0x100 + table_frames, got), HVMEM_OK);
    WORLD_END(world);
    free(memory);
}

/* Free everything one by one in a random order, with an audit at the end. */
static void free_at_random(struct world *world, hvmem_mfn *frames, size_t count,
                           struct test_rng *rng)
{
    while (count > 0) {
        size_t pick = test_below(rng, count);

        CHECK_EQ(hvmem_free(world->heap, frames[pick], 0), HVMEM_OK);
        frames[pick] = frames[--count];
    }
}

TEST(B07_two_nodes)
{
    unsigned round;

    for (round = 0; round < 1000; round++) {
        struct test_rng rng = test_rng(7000 + round);
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn frames[16];
        hvmem_mfn mfn;

        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, 0, 8, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_bank(world, 8, 8, 1, 0), HVMEM_OK);
        REQUIRE_EQ(expect_take_all(world, frames, 16), 16);
        free_at_random(world, frames, 16, &rng);
        CHECK_FREE_BLOCKS(world, {0, 3}, {8, 3});
        CHECK_EQ(expect_stats(world, 0).free_blocks[3], 1);
        CHECK_EQ(expect_stats(world, 1).free_blocks[3], 1);
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free_blocks[4], 0);
        CHECK_EQ(hvmem_alloc_order(world->heap, 4, &mfn), HVMEM_E_NOMEM);
        WORLD_END(world);
    }
}

/* An address limit at 8 splits nothing for good and is never crossed. */
TEST(B07_window_edge)
{
    unsigned round;

    for (round = 0; round < 200; round++) {
        struct test_rng rng = test_rng(7700 + round);
        struct world *world = WORLD_SIMPLE(0, 16);
        struct hvmem_request low = expect_block(0, NULL);
        hvmem_mfn frames[16];
        size_t got = 0;

        low.hi = 8;
        while (got < 16 && hvmem_alloc(world->heap, &low, &frames[got]) == HVMEM_OK)
            CHECK(frames[got++] < 8);
        CHECK_EQ(got, 8);
        low.lo = 8;
        low.hi = 16;
        low.order = 3;
        CHECK_EQ(hvmem_alloc(world->heap, &low, &frames[8]), HVMEM_OK);
        CHECK_EQ(frames[8], 8);
        CHECK_EQ(hvmem_free(world->heap, 8, 3), HVMEM_OK);
        free_at_random(world, frames, 8, &rng);
        CHECK_FREE_BLOCKS(world, {0, 4});
        WORLD_END(world);
    }
}

TEST(B07_reserved_frame_at_the_edge)
{
    unsigned round;

    for (round = 0; round < 200; round++) {
        struct test_rng rng = test_rng(7800 + round);
        struct world *world = WORLD_SIMPLE(0, 16);
        hvmem_mfn frames[16];

        REQUIRE_EQ(hvmem_reserve(world->heap, 8, 1), HVMEM_OK);
        REQUIRE_EQ(expect_take_all(world, frames, 16), 15);
        free_at_random(world, frames, 15, &rng);
        CHECK_FREE_BLOCKS(world, {0, 3}, {9, 0}, {10, 1}, {12, 2});
        CHECK_EQ(hvmem_free_run(world->heap, 8, 1), HVMEM_OK);
        CHECK_FREE_BLOCKS(world, {0, 4});
        WORLD_END(world);
    }
}

/* [8, 16) out of service while [0, 8) is freed. */
TEST(B07_frames_out_of_service)
{
    unsigned round;

    for (round = 0; round < 200; round++) {
        struct test_rng rng = test_rng(7900 + round);
        struct world *world = WORLD_SIMPLE(0, 16);
        struct hvmem_request low = expect_block(0, NULL);
        hvmem_mfn frames[16];
        hvmem_mfn mfn;
        size_t got = 0;

        low.hi = 8;
        while (got < 16 && hvmem_alloc(world->heap, &low, &frames[got]) == HVMEM_OK)
            got++;
        REQUIRE_EQ(got, 8);
        for (mfn = 8; mfn < 16; mfn++)
            CHECK_EQ(hvmem_offline(world->heap, mfn), HVMEM_OK);
        while (got > 0) {
            size_t pick = test_below(&rng, got);

            CHECK_EQ(hvmem_free(world->heap, frames[pick], 0), HVMEM_OK);
            frames[pick] = frames[--got];
            CHECK_EQ(hvmem_free_frames(world->heap), 8 - got);
            CHECK_AUDIT(world);
        }
        CHECK_EQ(expect_take_all(world, frames, 16), 8);
        for (got = 0; got < 8; got++)
            CHECK(frames[got] < 8);
        free_at_random(world, frames, 8, &rng);
        for (mfn = 8; mfn < 16; mfn++)
            CHECK_EQ(hvmem_online(world->heap, 8 + (mfn * 5 + round) % 8), HVMEM_OK);
        CHECK_FREE_BLOCKS(world, {0, 4});
        WORLD_END(world);
    }
}
