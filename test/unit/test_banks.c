/* SPDX-License-Identifier: BSD-2-Clause */
/* Banks that come and go: merging across seams, removal and return, hot-plug ranges, table sizes. */
#include "expect.h"
#include "shadow.h"

#include <stdlib.h>
#include <string.h>

static struct shadow *empty(hvmem_u32 max_order, hvmem_u64 span)
{
    struct hvmem_config config = world_config();

    config.max_order = max_order;
    config.max_banks = 64;
    return shadow_new(WORLD_NEW(&config, WORLD_BROADCAST), 0, span);
}

/* One frame at a time, in random order, then removed in random order. */
TEST(frame_by_frame)
{
    struct test_rng rng = test_rng(3);
    unsigned round;

    for (round = 0; round < 20; round++) {
        struct shadow *shadow = empty(5, 64);
        unsigned here[40];
        unsigned count;
        unsigned i;

        for (i = 0; i < 40; i++)
            here[i] = i;
        for (count = 40; count > 0; count--) {
            unsigned pick = (unsigned)test_below(&rng, count);
            unsigned mfn = here[pick];

            CHECK_EQ(shadow_bank(shadow, 7 + mfn, 1, mfn < 20 ? 0 : 1, 0), HVMEM_OK);
            here[pick] = here[count - 1];
            here[count - 1] = mfn;
            shadow_check(shadow);
        }
        for (count = 40; count > 0; count--) {
            unsigned pick = (unsigned)test_below(&rng, count);

            CHECK_EQ(shadow_remove(shadow, 7 + here[pick], 1), HVMEM_OK);
            here[pick] = here[count - 1];
            shadow_check(shadow);
        }
        if (!SHADOW_END(shadow))
            return;
    }
}

/* The middle of three leaves while the others are in use and merged with it; then it comes back. */
TEST(middle_bank_leaves)
{
    struct shadow *shadow = empty(7, 256);
    struct hvmem_request request = expect_run(1, 0, 0, 0);
    hvmem_mfn mfn = 0;
    unsigned round;

    CHECK_EQ(shadow_bank(shadow, 0, 40, 0, 0), HVMEM_OK);
    CHECK_EQ(shadow_bank(shadow, 40, 50, 0, 0), HVMEM_OK);
    CHECK_EQ(shadow_bank(shadow, 90, 60, 0, 0), HVMEM_OK);
    for (round = 0; round < 10; round++) {
        request.lo = round < 5 ? round * 8 : 90 + round * 4;
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_remove(shadow, 40, 50), HVMEM_OK);
        shadow_check(shadow);
        CHECK_EQ(shadow_reserve(shadow, 30, 20), HVMEM_E_FOREIGN);
        CHECK_EQ(shadow_bank(shadow, 40, 50, 0, round % 2 ? HVMEM_BANK_DIRTY : 0), HVMEM_OK);
        shadow_check(shadow);
    }
    request.lo = 60;
    request.hi = 61;
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    CHECK_EQ(shadow_remove(shadow, 40, 50), HVMEM_E_BUSY);
    CHECK_EQ(shadow_free(shadow, 60, 0), HVMEM_OK);
    CHECK_EQ(shadow_remove(shadow, 40, 50), HVMEM_OK);
    SHADOW_END(shadow);
}

/* Debts of a block that spans two banks stay right on each side when one leaves. */
TEST(debts_at_a_seam)
{
    struct shadow *shadow = empty(7, 128);
    struct hvmem_request request;
    hvmem_mfn mfn = 0;

    CHECK_EQ(shadow_bank(shadow, 0, 64, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    CHECK_EQ(shadow_bank(shadow, 64, 64, 0, 0), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(expect_lookup(shadow->world, 100).order, 7);
    request = expect_block(6, NULL);
    request.lo = 64;
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.zeroed, 0);
    CHECK_EQ(shadow_free(shadow, 64, 6), HVMEM_OK);
    CHECK_EQ(shadow_remove(shadow, 0, 64), HVMEM_OK);
    CHECK_EQ(expect_lookup(shadow->world, 64).owed & HVMEM_OWES_SCRUB, 0);
    CHECK_EQ(shadow_bank(shadow, 0, 64, 0, 0), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(shadow_remove(shadow, 64, 64), HVMEM_OK);
    SHADOW_END(shadow);
}

/* The table is the caller's again: it may be filled and given for another bank. */
TEST(table_is_free_after_removal)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_bank bank = {sizeof bank, 0, 0x100, 200, 0, 0};
    hvmem_size bytes = 0;
    unsigned char *table;
    unsigned char *copy;
    unsigned round;
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_bank_size(world->heap, &bank, &bytes), HVMEM_OK);
    table = aligned_alloc(64, bytes);
    copy = malloc(bytes);
    for (round = 0; round < 5; round++) {
        memset(table, (int)(round * 0x55), bytes);
        bank.base = 0x100 + round * 0x1000;
        REQUIRE_EQ(hvmem_bank_add(world->heap, &bank, table, bytes), HVMEM_OK);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, mfn, 3), HVMEM_OK);
        CHECK_EQ(hvmem_bank_remove(world->heap, bank.base, 200), HVMEM_OK);
        memset(table, 0xff, bytes);
        memcpy(copy, table, bytes);
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
        CHECK_AUDIT(world);
        CHECK_EQ(memcmp(copy, table, bytes), 0);
    }
    free(table);
    free(copy);
    WORLD_END(world);
}

/* Look-up only, no frame, and RAM may be added inside such a range later. */
TEST(hotplug_ranges)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_bank range = {sizeof range, HVMEM_BANK_HOTPLUG, 1ull << 36, 1ull << 30, 5, 0};
    hvmem_size bytes = 99;
    hvmem_node node = 0;
    hvmem_mfn mfn = 0;

    CHECK_EQ(hvmem_bank_size(world->heap, &range, &bytes), HVMEM_OK);
    CHECK_EQ(bytes, 0);
    CHECK_EQ(hvmem_bank_add(world->heap, &range, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_node_of(world->heap, (1ull << 36) + 12345, &node), HVMEM_OK);
    CHECK_EQ(node, 5);
    CHECK_EQ(hvmem_node_of(world->heap, (1ull << 36) + (1ull << 30) - 1, &node), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_node_of(world->heap, (1ull << 36) + (1ull << 30), &node),
                  HVMEM_E_FOREIGN);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).frames, 0);
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    CHECK_REFUSED(world, hvmem_reserve(world->heap, 1ull << 36, 1), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_free(world->heap, 1ull << 36, 0), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_offline(world->heap, 1ull << 36), HVMEM_E_FOREIGN);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_bank_remove(world->heap, range.base, range.frames), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_node_of(world->heap, 1ull << 36, &node), HVMEM_E_FOREIGN);
    WORLD_END(world);
}

/* RAM that fills such a range: it goes first, with its table, then the range. */
TEST(hotplug_range_of_the_same_frames)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_bank range = {sizeof range, HVMEM_BANK_HOTPLUG, 0x1000, 64, 5, 0};
    hvmem_node node = 0;
    hvmem_mfn mfn = 0;

    CHECK_EQ(hvmem_bank_add(world->heap, &range, NULL, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, range.base, range.frames, 5, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, range.base, range.frames), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_free(world->heap, mfn, 3), HVMEM_OK);
    CHECK_EQ(world_remove(world, range.base, range.frames), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).frames, 0);
    CHECK_EQ(hvmem_node_of(world->heap, range.base, &node), HVMEM_OK);
    CHECK_EQ(node, 5);
    CHECK_EQ(hvmem_bank_remove(world->heap, range.base, range.frames), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_node_of(world->heap, range.base, &node), HVMEM_E_FOREIGN);
    WORLD_END(world);
}

/* 8.4 bytes a frame and no more than 16.5, at every size; the same answer each time. */
TEST(table_sizes)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_u64 frames;

    config.max_order = 18;
    world = WORLD_NEW(&config, 0);
    for (frames = 1; frames <= 1ull << 28; frames = frames * 3 + 1) {
        struct hvmem_bank bank = {sizeof bank, 0, 12345, frames, 0, 0};
        hvmem_size bytes = 0;
        hvmem_size again = 0;

        CHECK_EQ(hvmem_bank_size(world->heap, &bank, &bytes), HVMEM_OK);
        CHECK_EQ(hvmem_bank_size(world->heap, &bank, &again), HVMEM_OK);
        CHECK_EQ(bytes, again);
        CHECK_EQ(bytes % 64, 0);
        CHECK(bytes >= frames * 8);
        if (frames > 1u << 20)
            CHECK(bytes <= frames * 17 / 2);
    }
    WORLD_END(world);
}

/* More than one arena: blocks of the largest order everywhere, all frames counted, all given back. */
TEST(several_arenas)
{
    static const hvmem_u32 orders[] = {9, 18, 20};
    size_t i;

    for (i = 0; i < 3; i++) {
        struct hvmem_config config = world_config();
        struct world *world;
        struct snapshot *before;
        struct snapshot *after;
        hvmem_mfn blocks[5000];
        hvmem_u32 n = 0;
        hvmem_u32 done = 0;

        config.max_order = orders[i];
        config.max_banks = 64;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, 77, 1ull << 21, 0, 0), HVMEM_OK);
        before = snapshot_take(world, false);
        while (n < 5000 && hvmem_alloc_order(world->heap, orders[i], &blocks[n]) == HVMEM_OK)
            n++;
        CHECK(n >= (1u << 21 >> orders[i]) - 1 && n <= 1u << 21 >> orders[i]);
        CHECK_EQ(hvmem_free_frames(world->heap), (1ull << 21) - ((hvmem_u64)n << orders[i]));
        CHECK_AUDIT(world);
        CHECK_EQ(hvmem_free_bulk(world->heap, blocks, n, orders[i], &done), HVMEM_OK);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        after = snapshot_take(world, false);
        CHECK(snapshot_difference(before, after) == NULL);
        snapshot_delete(before);
        snapshot_delete(after);
        WORLD_END(world);
    }
}

/* What a CPU may still reach when a bank goes is flushed for: nothing would say so when the range comes back. */
TEST(bank_that_goes_is_out_of_reach)
{
    int fails;

    for (fails = 0; fails < 2; fails++) {
        struct hvmem_config config = world_config();
        struct hvmem_request request;
        struct world *world;
        hvmem_mfn mfn = 0;

        config.max_cpus = 2;
        config.owed_on_free = HVMEM_OWES_TLB;
        config.lock_regime = HVMEM_LOCK_PLAIN;
        world = WORLD_NEW(&config, WORLD_BARRIER);
        world_track(world, 0, 64);
        REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        request = expect_block(4, world_domain(world, 1, ~0ull, 0, NULL));
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        world_owe(world, mfn, 16, HVMEM_OWES_TLB);
        REQUIRE_EQ(hvmem_free(world->heap, mfn, 4), HVMEM_OK);
        if (fails) {
            world->fail_in = 1;
            CHECK_EQ(world_remove(world, 0, 64), HVMEM_E_HOST);
            CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free, 64);
            CHECK(expect_lookup(world, mfn).owed & HVMEM_OWES_TLB);
        }
        CHECK_EQ(world_remove(world, 0, 64), HVMEM_OK);
        CHECK_EQ(world_owed(world, 0, 64), 0);
        CHECK_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(world_owed(world, 0, 64), 0);
        WORLD_END(world);
    }
}
