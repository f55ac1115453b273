/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public bug reports of other allocators, class B: memory map and NUMA. B08 page zero, B09
 * overlapping reserved pieces and ends off frame limits, B11 nodes without memory and holes in ids,
 * B13 affinity edges that do not match bank edges.
 */
#include "expect.h"

#include <stdlib.h>
#include <string.h>

TEST(B08_page_zero_is_a_frame_like_others)
{
    struct world *world = WORLD_SIMPLE(0, 1024);
    struct hvmem_heap *heap = world->heap;
    hvmem_mfn *frames = calloc(1025, sizeof *frames);
    struct hvmem_block block;
    hvmem_node node = 9;
    unsigned zeros = 0;
    size_t i;

    REQUIRE_EQ(expect_take_all(world, frames, 1025), 1024);
    for (i = 0; i < 1024; i++)
        zeros += frames[i] == 0;
    CHECK_EQ(zeros, 1);
    block = expect_lookup(world, 0);
    CHECK_EQ(block.mfn, 0);
    CHECK_EQ(block.order, 0);
    CHECK_EQ(block.state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(hvmem_node_of(heap, 0, &node), HVMEM_OK);
    CHECK_EQ(node, 0);
    CHECK_EQ(hvmem_settle(heap, 0, 1, HVMEM_OWES_TLB), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap, 0, 0), HVMEM_OK);
    CHECK_REFUSED_AT(world, hvmem_free(heap, 0, 0), HVMEM_E_FREE, 0);
    CHECK_EQ(hvmem_reserve(heap, 0, 1), HVMEM_OK);
    CHECK_REFUSED_AT(world, hvmem_free(heap, 0, 0), HVMEM_E_RESERVED, 0);
    CHECK_EQ(hvmem_free_run(heap, 0, 1), HVMEM_OK);
    CHECK_EQ(hvmem_offline(heap, 0), HVMEM_OK);
    CHECK_EQ(hvmem_online(heap, 0), HVMEM_OK);
    for (i = 0; i < 1024; i++)
        if (frames[i] != 0)
            CHECK_EQ(hvmem_free(heap, frames[i], 0), HVMEM_OK);
    CHECK_FREE_BLOCKS(world, {0, 10});
    /* The block at 0 is not a failure either, at any order. */
    CHECK_EQ(hvmem_alloc_order(heap, 10, &frames[0]), HVMEM_OK);
    CHECK_EQ(frames[0], 0);
    CHECK_EQ(hvmem_free(heap, 0, 10), HVMEM_OK);
    WORLD_END(world);
    free(frames);
}

TEST(B08_low_hole)
{
    struct world *world = WORLD_SIMPLE(0, 1024);
    hvmem_mfn *frames = calloc(1025, sizeof *frames);
    size_t i;

    REQUIRE_EQ(hvmem_reserve(world->heap, 0, 512), HVMEM_OK);
    REQUIRE_EQ(expect_take_all(world, frames, 1025), 512);
    for (i = 0; i < 512; i++)
        CHECK(frames[i] >= 512 && frames[i] < 1024);
    WORLD_END(world);
    world = WORLD_SIMPLE(512, 512);
    REQUIRE_EQ(expect_take_all(world, frames, 1025), 512);
    for (i = 0; i < 512; i++)
        CHECK(frames[i] >= 512);
    WORLD_END(world);
    free(frames);
}

/* A map in bytes: the banks it gives, compared with the list. */
struct range {
    hvmem_mfn from;
    hvmem_mfn to;
};

static void check_map(const struct hvmem_map *map, const struct range *expected, size_t count)
{
    hvmem_u64 cursor = 0;
    struct hvmem_bank bank;
    hvmem_status status;
    size_t at = 0;

    while ((status = hvmem_map_next(map, &cursor, &bank)) == HVMEM_AGAIN) {
        if (!CHECK(at < count))
            return;
        CHECK_EQ(bank.size, sizeof bank);
        CHECK_EQ(bank.base, expected[at].from);
        CHECK_EQ(bank.base + bank.frames, expected[at].to);
        at++;
    }
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(at, count);
}

TEST(B09_all_orders_of_overlapping_pieces)
{
    static const struct hvmem_map_piece ram[] = {{0x1000800, 0x1000000, 0, 0}};
    static const struct hvmem_map_piece pieces[5] = {
        {0x1400100, 1, 0, 0}, {0x1300000, 0x200000, 0, 0}, {0x12ff000, 0x2000, 0, 0},
        {0x1500000, 0, 0, 0}, {0x1100000, 0x80000, 0, 0},
    };
    static const struct range expected[] = {{0x1001, 0x1100}, {0x1180, 0x12ff}, {0x1500, 0x2000}};
    struct hvmem_map_piece out[5];
    struct hvmem_map map = {sizeof map, 12, ram, out, 1, 5};
    unsigned order;

    for (order = 0; order < 120; order++) {
        unsigned left = order;
        unsigned used = 0;
        unsigned i;

        for (i = 0; i < 5; i++) {
            unsigned pick = left % (5 - i);
            unsigned at = 0;

            left /= 5 - i;
            for (;; at++)
                if (!(used >> at & 1) && pick-- == 0)
                    break;
            used |= 1u << at;
            out[i] = pieces[at];
        }
        check_map(&map, expected, 3);
    }
}

/* RAM pieces that overlap an earlier one, unsorted, do not give a frame twice. */
TEST(B09_overlapping_ram)
{
    static const struct hvmem_map_piece ram[] = {{0x8000, 0x4000, 0, 0},
                                                 {0x1000, 0x3000, 0, 0},
                                                 {0x3000, 0x6000, 0, 0},
                                                 {0x9000, 0x1000, 0, 0},
                                                 {0x4000, 0, 0, 0}};
    static const struct range expected[] = {{1, 12}};
    struct hvmem_map map = {sizeof map, 12, ram, NULL, 5, 0};

    check_map(&map, expected, 1);
}

/* Two nodes overlap: the one listed first has the frames; touching pieces of one node are joined. */
TEST(B09_overlapping_nodes)
{
    static const struct hvmem_map_piece ram[] = {
        {0x2000, 0x4000, 1, 0}, {0x0000, 0x4000, 0, 0}, {0x6000, 0x2000, 1, 0}};
    struct hvmem_map map = {sizeof map, 12, ram, NULL, 3, 0};
    static const struct range expected[] = {{0, 2}, {2, 8}};
    hvmem_u64 cursor = 0;
    struct hvmem_bank bank;

    check_map(&map, expected, 2);
    REQUIRE_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_AGAIN);
    CHECK_EQ(bank.node, 0);
    REQUIRE_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_AGAIN);
    CHECK_EQ(bank.node, 1);
}

TEST(B09_less_than_a_frame)
{
    static const struct hvmem_map_piece ram[] = {
        {0x1001, 0xffe, 0, 0}, {0x2001, 0x1ffe, 0, 0}, {0x10000, 0xfff, 0, 0}};
    struct hvmem_map map = {sizeof map, 12, ram, NULL, 3, 0};

    check_map(&map, NULL, 0);
    map.page_shift = 16;
    check_map(&map, NULL, 0);
}

/* Memory just as large as its own table: nothing to hand out, and no endless loop. */
TEST(B09_bank_as_large_as_its_table)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;

    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0x1000, 1, 0, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(world->heap, 0x1000, 1), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    WORLD_END(world);
}

/* Nodes 1, 4 and 6 with memory; CPU 0 on node 2, which has none. */
#define B11_FRAMES 64u

static struct world *world_with_holes(void)
{
    static hvmem_u8 distance[64 * 64];
    static const hvmem_u8 cpu_node[] = {2, 4};
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    for (i = 0; i < 64 * 64; i++)
        distance[i] = i / 64 == i % 64 ? 10 : 40;
    distance[2 * 64 + 4] = 15;
    distance[2 * 64 + 1] = 25;
    distance[2 * 64 + 6] = 30;
    distance[6 * 64 + 1] = 12;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    config.distance = distance;
    config.distance_nodes = 64;
    config.cpu_node = cpu_node;
    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0x1000, B11_FRAMES, 1, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 0x4000, B11_FRAMES, 4, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 0x6000, B11_FRAMES, 6, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

/* From a CPU of a node without memory: by distance, each node once. */
TEST(B11_nearest_node_first)
{
    static const hvmem_node order[] = {4, 1, 6};
    struct world *world = world_with_holes();
    hvmem_mfn mfn;
    unsigned i;

    world_set_cpu(0);
    for (i = 0; i < 3 * B11_FRAMES; i++) {
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(expect_node(world, mfn), order[i / B11_FRAMES]);
    }
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    WORLD_END(world);
}

TEST(B11_preferred_node_is_empty)
{
    static const hvmem_node order[] = {6, 1, 4};
    struct world *world = world_with_holes();
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;
    unsigned i;

    request.node = 6;
    for (i = 0; i < 3 * B11_FRAMES; i++) {
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(expect_node(world, mfn), order[i / B11_FRAMES]);
    }
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    WORLD_END(world);
}

TEST(B11_exact_nodes_and_ids_out_of_range)
{
    static const hvmem_node empty[] = {0, 2, 3, 5, 7, 63, 64, 255, 256, 0x7fffffff, 0xfffffffe};
    struct world *world = world_with_holes();
    struct hvmem_request request = expect_block(0, NULL);
    struct hvmem_stats stats;
    hvmem_mfn mfn = 0;
    hvmem_node node;
    size_t i;

    request.flags = HVMEM_REQ_EXACT_NODE;
    for (i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        request.node = empty[i];
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NODE);
        CHECK_REFUSED(world, hvmem_stats(world->heap, empty[i], sizeof stats, &stats),
                      HVMEM_E_NODE);
    }
    for (node = 1; node < 7; node++) {
        if (node != 1 && node != 4 && node != 6)
            continue;
        request.node = node;
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(expect_node(world, mfn), node);
        CHECK_EQ(expect_stats(world, node).free, B11_FRAMES - 1);
        CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    }
    /* A node out of range is a mistake even where another one would do. */
    request.flags = 0;
    request.node = 64;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NODE);
    WORLD_END(world);
}

TEST(B11_masks_without_memory)
{
    static const hvmem_u64 empty[] = {1, 1ull << 2, 1ull << 63, 0x8000000000000025ull};
    static const hvmem_u64 good[] = {2, 1ull << 4, 1ull << 6, 0xffull, ~0ull};
    struct world *world = world_with_holes();
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_status status;
    hvmem_mfn mfn = 0;
    size_t i;

    for (i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        request.node_mask = empty[i];
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NODE);
        CHECK(world_domain(world, 1, ~0ull, empty[i], &status) == NULL);
        CHECK_EQ(status, HVMEM_E_NODE);
    }
    for (i = 0; i < sizeof good / sizeof good[0]; i++) {
        request.node_mask = good[i];
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK(good[i] >> expect_node(world, mfn) & 1);
        CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    }
    /* A mask is kept to the last frame. */
    request.node_mask = 1ull << 4;
    for (i = 0; hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK; i++)
        CHECK_EQ(expect_node(world, mfn), 4);
    CHECK_EQ(i, B11_FRAMES);
    CHECK_EQ(hvmem_free_frames(world->heap), 2 * B11_FRAMES);
    WORLD_END(world);
}

/* The affinity table and the bank list are cut at other places. */
TEST(B13_edges_off_any_granule)
{
    static const struct hvmem_map_piece ram[] = {{0, 0x1234000, 0, 0},
                                                 {0x1234000, 0x3000000 - 0x1234000, 1, 0}};
    static const struct hvmem_map_piece out[] = {{0, 0x1000000, 0, 0},
                                                 {0x2000000, 0x1000000, 0, 0}};
    struct hvmem_map map = {sizeof map, 12, ram, out, 2, 2};
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_bank bank;
    hvmem_u64 cursor = 0;
    hvmem_node node;

    while (hvmem_map_next(&map, &cursor, &bank) == HVMEM_AGAIN)
        REQUIRE_EQ(world_bank(world, bank.base, bank.frames, bank.node, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 0x2000, 0x1000, 1, HVMEM_BANK_HOTPLUG), HVMEM_OK);
    CHECK_EQ(expect_node(world, 0x1000), 0);
    CHECK_EQ(expect_node(world, 0x1233), 0);
    CHECK_EQ(expect_node(world, 0x1234), 1);
    CHECK_EQ(expect_node(world, 0x1fff), 1);
    CHECK_EQ(expect_node(world, 0x2fff), 1);
    CHECK_REFUSED_AT(world, hvmem_node_of(world->heap, 0x3000, &node), HVMEM_E_FOREIGN, 0x3000);
    CHECK_REFUSED_AT(world, hvmem_node_of(world->heap, 0xfff, &node), HVMEM_E_FOREIGN, 0xfff);
    CHECK_EQ(expect_stats(world, 0).free, 0x234);
    CHECK_EQ(expect_stats(world, 1).free, 0xdcc);
    WORLD_END(world);
}

TEST(B13_node_in_four_touching_pieces)
{
    static const hvmem_mfn cuts[] = {0x1000, 0x1234, 0x1235, 0x1501, 0x17f3, 0x2000};
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    config.max_banks = 64;
    world = WORLD_NEW(&config, 0);
    for (i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++)
        REQUIRE_EQ(world_bank(world, cuts[i], cuts[i + 1] - cuts[i], i == 0 ? 0 : 1, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0x1000);
    CHECK_EQ(expect_stats(world, 0).free, 0x234);
    CHECK_EQ(expect_stats(world, 1).free, 0xdcc);
    /* As if node 1 had been given in one piece. */
    CHECK_FREE_BLOCKS(world, {0x1000, 9}, {0x1200, 5}, {0x1220, 4}, {0x1230, 2}, {0x1234, 2},
                      {0x1238, 3}, {0x1240, 6}, {0x1280, 7}, {0x1300, 8}, {0x1400, 10},
                      {0x1800, 10}, {0x1c00, 10});
    WORLD_END(world);
}

/* [0,2) and [2,4) in two calls, in either order, with what lies round them. */
TEST(B13_two_calls_are_one_bank)
{
    unsigned order;

    for (order = 0; order < 2; order++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn mfn = 9;

        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, order ? 2 : 0, 2, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_bank(world, order ? 0 : 2, 2, 0, 0), HVMEM_OK);
        CHECK_FREE_BLOCKS(world, {0, 2});
        CHECK_EQ(hvmem_alloc_order(world->heap, 2, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, 0);
        CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
        WORLD_END(world);
    }
}

/* Every way to cut 24 frames into three banks, in every order: one and the same heap. */
TEST(B13_every_cut_in_every_order)
{
    static const unsigned orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    struct world *whole = WORLD_SIMPLE(5, 24);
    struct snapshot *expected = snapshot_take(whole, false);
    hvmem_u64 a;
    hvmem_u64 b;
    unsigned order;

    for (a = 1; a < 23; a++)
        for (b = a + 1; b < 24; b++)
            for (order = 0; order < 6; order++) {
                const hvmem_mfn cut[4] = {5, 5 + a, 5 + b, 29};
                struct hvmem_config config = world_config();
                struct world *world = WORLD_NEW(&config, 0);
                struct snapshot *got;
                unsigned i;

                for (i = 0; i < 3; i++) {
                    unsigned piece = orders[order][i];

                    CHECK_EQ(world_bank(world, cut[piece], cut[piece + 1] - cut[piece], 0, 0),
                             HVMEM_OK);
                }
                got = snapshot_take(world, false);
                CHECK(snapshot_difference(expected, got) == NULL);
                snapshot_delete(got);
                WORLD_END(world);
            }
    snapshot_delete(expected);
    WORLD_END(whole);
}
