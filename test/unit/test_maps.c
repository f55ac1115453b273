/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every memory map of test/data/memory-maps.txt (real machines): totals per node, everything
 * allocated and given back, fallback by distance, exact node, hot-plug ranges.
 */
#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PIECES 64u
#define MAX_MAPS   16u
#define MAX_ORDER  18u

struct real_map {
    char name[64];
    struct hvmem_map_piece ram[MAX_PIECES];
    struct hvmem_map_piece hotplug[MAX_PIECES];
    unsigned rams;
    unsigned hotplugs;
    hvmem_u8 distance[HVMEM_NODE_LIMIT * HVMEM_NODE_LIMIT];
};

static struct real_map maps[MAX_MAPS];
static unsigned map_count;

static void read_line(const char *line)
{
    struct real_map *map = map_count > 0 ? &maps[map_count - 1] : NULL;
    unsigned long long from;
    unsigned long long to;
    unsigned a;
    unsigned b;
    unsigned node;
    struct hvmem_map_piece piece = {0};
    char name[64];

    if (sscanf(line, "[%63[^]]]", name) == 1) {
        REQUIRE(map_count < MAX_MAPS);
        map = &maps[map_count++];
        memset(map, 0, sizeof *map);
        memset(map->distance, 20, sizeof map->distance);
        for (a = 0; a < HVMEM_NODE_LIMIT; a++)
            map->distance[a * HVMEM_NODE_LIMIT + a] = 10;
        memcpy(map->name, name, sizeof name);
    } else if (sscanf(line, "distance %u %u %u", &a, &b, &node) == 3) {
        REQUIRE(map != NULL && a < HVMEM_NODE_LIMIT && b < HVMEM_NODE_LIMIT);
        map->distance[a * HVMEM_NODE_LIMIT + b] = (hvmem_u8)node;
        map->distance[b * HVMEM_NODE_LIMIT + a] = (hvmem_u8)node;
    } else if (sscanf(line, "ram %llx %llx %u", &from, &to, &node) == 3 ||
               sscanf(line, "hotplug %llx %llx %u", &from, &to, &node) == 3) {
        piece.start = from;
        piece.bytes = to + 1 - from;
        piece.node = node;
        REQUIRE(map != NULL && map->rams < MAX_PIECES && map->hotplugs < MAX_PIECES);
        if (line[0] == 'r')
            map->ram[map->rams++] = piece;
        else
            map->hotplug[map->hotplugs++] = piece;
    }
}

static void read_maps(void)
{
    FILE *file = fopen(TEST_MAPS_FILE, "r");
    char line[512];

    map_count = 0;
    REQUIRE(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        read_line(line);
    fclose(file);
    REQUIRE(map_count >= 3);
}

static struct world *world_of(const struct real_map *real, hvmem_u32 flags)
{
    struct hvmem_map map = {sizeof map, 12, real->ram, NULL, real->rams, 0};
    struct hvmem_config config = world_config();
    struct hvmem_bank bank;
    struct world *world;
    hvmem_u64 cursor = 0;
    unsigned i;

    config.flags = flags;
    config.max_order = MAX_ORDER;
    config.max_banks = 2048;
    config.distance = real->distance;
    config.distance_nodes = HVMEM_NODE_LIMIT;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    while (hvmem_map_next(&map, &cursor, &bank) == HVMEM_AGAIN)
        REQUIRE_EQ(world_bank(world, bank.base, bank.frames, bank.node, 0), HVMEM_OK);
    for (i = 0; i < real->hotplugs; i++)
        REQUIRE_EQ(world_bank(world, real->hotplug[i].start >> 12, real->hotplug[i].bytes >> 12,
                              real->hotplug[i].node, HVMEM_BANK_HOTPLUG),
                   HVMEM_OK);
    return world;
}

/* Whole frames of the map's RAM on a node (the maps have no overlaps). */
static hvmem_u64 frames_of(const struct real_map *real, hvmem_node node)
{
    hvmem_u64 frames = 0;
    unsigned i;

    for (i = 0; i < real->rams; i++)
        if (node == HVMEM_NODE_ANY || real->ram[i].node == node)
            frames += ((real->ram[i].start + real->ram[i].bytes) >> 12) -
                      ((real->ram[i].start + 4095) >> 12);
    return frames;
}

static void check_totals(struct world *world, const struct real_map *real)
{
    struct hvmem_stats stats;
    hvmem_node node;

    for (node = 0; node < HVMEM_NODE_LIMIT; node++) {
        hvmem_u64 frames = frames_of(real, node);

        if (frames == 0) {
            CHECK_EQ(hvmem_stats(world->heap, node, sizeof stats, &stats), HVMEM_E_NODE);
            continue;
        }
        stats = expect_stats(world, node);
        CHECK_EQ(stats.frames, frames);
        CHECK_EQ(stats.free, frames);
    }
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).frames, frames_of(real, HVMEM_NODE_ANY));
    CHECK_EQ(hvmem_free_frames(world->heap), frames_of(real, HVMEM_NODE_ANY));
}

TEST(totals_and_look_ups)
{
    unsigned m;
    unsigned i;

    read_maps();
    for (m = 0; m < map_count; m++) {
        struct world *world = world_of(&maps[m], 0);
        const struct hvmem_map_piece *piece;
        hvmem_node node = 99;

        check_totals(world, &maps[m]);
        for (i = 0; i < maps[m].rams + maps[m].hotplugs; i++) {
            bool ram = i < maps[m].rams;

            piece = ram ? &maps[m].ram[i] : &maps[m].hotplug[i - maps[m].rams];
            CHECK_EQ(hvmem_node_of(world->heap, (piece->start + 4095) >> 12, &node), HVMEM_OK);
            CHECK_EQ(node, piece->node);
            CHECK_EQ(hvmem_node_of(world->heap, ((piece->start + piece->bytes) >> 12) - 1, &node),
                     HVMEM_OK);
            CHECK_EQ(node, piece->node);
            if (!ram)
                CHECK_EQ(hvmem_reserve(world->heap, piece->start >> 12, 1), HVMEM_E_FOREIGN);
        }
        CHECK_EQ(hvmem_node_of(world->heap, 0, &node), HVMEM_E_FOREIGN);
        WORLD_END(world);
    }
}

/* From the largest order down to single frames until nothing is left; then back. */
TEST(everything_out_and_back)
{
    unsigned m;

    read_maps();
    for (m = 0; m < map_count; m++) {
        struct world *world = world_of(&maps[m], HVMEM_CONFIG_NO_CPU_CACHE);
        struct snapshot *before = snapshot_take(world, false);
        struct snapshot *after;
        static hvmem_mfn blocks[100000];
        static hvmem_u8 orders[100000];
        hvmem_u64 frames = 0;
        size_t n = 0;
        hvmem_u32 order = MAX_ORDER;

        for (;;) {
            if (hvmem_alloc_order(world->heap, order, &blocks[n]) == HVMEM_OK) {
                REQUIRE(n + 1 < sizeof orders);
                orders[n++] = (hvmem_u8)order;
                frames += 1ull << order;
            } else if (order-- == 0) {
                break;
            }
        }
        CHECK_EQ(frames, frames_of(&maps[m], HVMEM_NODE_ANY));
        CHECK_EQ(hvmem_free_frames(world->heap), 0);
        CHECK_AUDIT(world);
        while (n > 0) {
            n--;
            CHECK_EQ(hvmem_free(world->heap, blocks[n], orders[n]), HVMEM_OK);
        }
        after = snapshot_take(world, false);
        CHECK(snapshot_difference(before, after) == NULL);
        snapshot_delete(before);
        snapshot_delete(after);
        check_totals(world, &maps[m]);
        WORLD_END(world);
    }
}

/* Blocks of order 18 preferring each node: never a nearer node with such a block left behind. */
TEST(fallback_by_distance)
{
    unsigned m;
    hvmem_node from;

    read_maps();
    for (m = 0; m < map_count; m++)
        for (from = 0; from < 4; from++) {
            struct world *world;
            struct hvmem_request request = expect_block(MAX_ORDER, NULL);
            hvmem_u64 most = 1ull << 40;
            hvmem_u8 last = 0;
            hvmem_node node = 0;
            hvmem_mfn mfn;

            if (frames_of(&maps[m], from) == 0)
                continue;
            world = world_of(&maps[m], HVMEM_CONFIG_NO_CPU_CACHE);
            request.node = from;
            while (hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK && most-- > 0) {
                hvmem_u8 now;

                CHECK_EQ(hvmem_node_of(world->heap, mfn, &node), HVMEM_OK);
                now = maps[m].distance[from * HVMEM_NODE_LIMIT + node];
                CHECK(now >= last);
                last = now;
            }
            CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free_blocks[MAX_ORDER], 0);
            WORLD_END(world);
        }
}

TEST(exact_node)
{
    unsigned m;
    hvmem_node node;

    read_maps();
    for (m = 0; m < map_count; m++) {
        struct world *world = world_of(&maps[m], HVMEM_CONFIG_NO_CPU_CACHE);
        struct hvmem_request request = expect_block(9, NULL);
        hvmem_mfn mfn = 0;

        request.flags = HVMEM_REQ_EXACT_NODE;
        for (node = 0; node < HVMEM_NODE_LIMIT; node++) {
            hvmem_node at = 99;

            request.node = node;
            if (frames_of(&maps[m], node) == 0) {
                CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NODE);
                continue;
            }
            REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
            CHECK_EQ(hvmem_node_of(world->heap, mfn, &at), HVMEM_OK);
            CHECK_EQ(at, node);
            /* Until the node has none left: then refused, though others have. */
            request.order = MAX_ORDER;
            while (hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK) {
                CHECK_EQ(hvmem_node_of(world->heap, mfn, &at), HVMEM_OK);
                CHECK_EQ(at, node);
            }
            CHECK_EQ(expect_stats(world, node).free_blocks[MAX_ORDER], 0);
            request.order = 9;
        }
        WORLD_END(world);
    }
}
