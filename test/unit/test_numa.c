/* SPDX-License-Identifier: BSD-2-Clause */
/* Nodes: fallback by distance, exact node, masks in turn, interleaved ranges, CPUs on their nodes. */
#include "expect.h"

#include <stdlib.h>
#include <string.h>

#define NODES 4u
#define EACH  32u

static struct world *world_of_nodes(const hvmem_u8 *distance, const hvmem_u8 *cpu_node,
                                    hvmem_u32 cpus, hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_node node;

    config.flags = flags;
    config.distance = distance;
    config.distance_nodes = distance != NULL ? NODES : 0;
    config.cpu_node = cpu_node;
    config.max_cpus = cpus;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    for (node = 0; node < NODES; node++)
        REQUIRE_EQ(world_bank(world, node * 0x1000, EACH, node, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

/* Every distance matrix of three remote values: from every node, nodes empty in order of distance. */
TEST(fallback_in_order_of_distance)
{
    static const hvmem_u8 values[] = {20, 21, 31};
    static const hvmem_u8 cpu_node[] = {0, 1, 2, 3};
    unsigned round;

    for (round = 0; round < 729; round += 13) {
        hvmem_u8 distance[NODES * NODES];
        unsigned left = round;
        struct world *world;
        hvmem_node from;
        unsigned i;
        unsigned k;

        for (i = 0; i < NODES; i++)
            for (k = 0; k <= i; k++) {
                distance[i * NODES + k] = distance[k * NODES + i] = i == k ? 10 : values[left % 3];
                left /= i == k ? 1 : 3;
            }
        for (from = 0; from < NODES; from++) {
            hvmem_u8 last = 0;
            hvmem_mfn mfn;

            world = world_of_nodes(distance, cpu_node, 4, HVMEM_CONFIG_NO_CPU_CACHE);
            world_set_cpu(from);
            for (i = 0; i < NODES * EACH; i++) {
                hvmem_u8 now;

                REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
                now = distance[from * NODES + expect_node(world, mfn)];
                CHECK(now >= last);
                CHECK_EQ(expect_stats(world, expect_node(world, mfn)).free, EACH - 1 - i % EACH);
                last = now;
            }
            CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
            WORLD_END(world);
        }
    }
}

/* No matrix: the own node first, all others alike. With and without caches. */
TEST(default_distances)
{
    static const hvmem_u8 cpu_node[] = {3, 1};
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct world *world =
            world_of_nodes(NULL, cpu_node, 2, caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE);
        hvmem_mfn mfn;
        unsigned i;

        for (i = 0; i < NODES * EACH; i++) {
            hvmem_cpu cpu = i % 2;

            world_set_cpu(cpu);
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
            if (i < 2 * EACH && !caches)
                CHECK_EQ(expect_node(world, mfn), cpu_node[cpu]);
        }
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
        WORLD_END(world);
    }
}

/* Frames of another node in a CPU's cache never answer an exact-node request. */
TEST(exact_node_with_caches)
{
    static const hvmem_u8 cpu_node[] = {0, 1};
    struct world *world = world_of_nodes(NULL, cpu_node, 2, 0);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn frames[NODES * EACH];
    hvmem_node node;
    unsigned i;

    for (node = 0; node < NODES; node++) {
        request.node = node;
        request.flags = HVMEM_REQ_EXACT_NODE;
        for (i = 0; hvmem_alloc(world->heap, &request, &frames[i]) == HVMEM_OK; i++) {
            CHECK_EQ(expect_node(world, frames[i]), node);
            CHECK_EQ(hvmem_free_frames(world->heap), NODES * EACH - i - 1);
        }
        CHECK_EQ(i, EACH);
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &frames[i]), HVMEM_E_NOMEM);
        while (i > 0) {
            world_set_cpu(i % 2);
            CHECK_EQ(hvmem_free(world->heap, frames[--i], 0), HVMEM_OK);
        }
        CHECK_AUDIT(world);
    }
    WORLD_END(world);
}

/* A domain with a mask takes its nodes in turn and no others. */
TEST(masks_in_turn)
{
    static const hvmem_u8 cpu_node[] = {0};
    hvmem_u64 mask;

    for (mask = 1; mask < 16; mask++) {
        struct world *world = world_of_nodes(NULL, cpu_node, 1, HVMEM_CONFIG_NO_CPU_CACHE);
        struct hvmem_domain *domain = world_domain(world, 1, ~0ull, mask, NULL);
        unsigned count[NODES] = {0};
        unsigned nodes = 0;
        hvmem_node node;
        unsigned got = 0;
        hvmem_mfn mfn;

        REQUIRE(domain != NULL);
        for (node = 0; node < NODES; node++)
            nodes += mask >> node & 1;
        for (;;) {
            struct hvmem_request request = expect_block(0, domain);

            if (hvmem_alloc(world->heap, &request, &mfn) != HVMEM_OK)
                break;
            count[expect_node(world, mfn)]++;
            got++;
            for (node = 0; node < NODES; node++) {
                if (!(mask >> node & 1))
                    CHECK_EQ(count[node], 0);
                else
                    CHECK(count[node] >= got / nodes - (got >= nodes) &&
                          count[node] <= got / nodes + 1);
            }
        }
        CHECK_EQ(got, nodes * EACH);
        CHECK_EQ(expect_domain(domain).pages, nodes * EACH);
        WORLD_END(world);
    }
}

/* A request's mask and the domain's: both hold. */
TEST(both_masks_hold)
{
    static const hvmem_u8 cpu_node[] = {0};
    struct world *world = world_of_nodes(NULL, cpu_node, 1, 0);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 6, NULL);
    struct hvmem_request request = expect_block(0, domain);
    hvmem_mfn mfn;
    unsigned got;

    request.node_mask = 12;
    for (got = 0; hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK; got++)
        CHECK_EQ(expect_node(world, mfn), 2);
    CHECK_EQ(got, EACH);
    WORLD_END(world);
}

/* Nodes interleaved frame by frame range: no block crosses, each node keeps its count. */
TEST(interleaved_ranges)
{
    struct hvmem_config config = world_config();
    struct world *world;
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_node node;
    hvmem_mfn mfn;
    unsigned i;

    config.max_banks = 64;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    for (i = 0; i < 32; i++)
        REQUIRE_EQ(world_bank(world, i * 6 + 1, 6, i % 3, 0), HVMEM_OK);
    while (hvmem_walk(world->heap, &cursor, &block) == HVMEM_AGAIN)
        for (mfn = block.mfn; mfn < block.mfn + (1ull << block.order); mfn++)
            CHECK_EQ((mfn - 1) / 6 % 3, block.node);
    for (node = 0; node < 3; node++) {
        struct hvmem_request request = expect_block(0, NULL);
        unsigned got;

        request.node = node;
        request.flags = HVMEM_REQ_EXACT_NODE;
        for (got = 0; hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK; got++)
            CHECK_EQ((mfn - 1) / 6 % 3, node);
        CHECK_EQ(got, node < 2 ? 66 : 60);
    }
    WORLD_END(world);
}
