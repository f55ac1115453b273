/* SPDX-License-Identifier: BSD-2-Clause */
/* Topologies: described ones with holes and memory-less nodes, this machine's, malformed words. */
#include "test_main.h"

#include "hvmem_linux.h"

static struct hvmem_linux_topology describe(const char *words)
{
    static struct hvmem_linux_topology topology;

    REQUIRE_EQ(hvmem_linux_topology(words, &topology), HVMEM_OK);
    return topology;
}

TEST(plain_words)
{
    struct hvmem_linux_topology got = describe("numa:4 pu:2");
    uint32_t i;

    CHECK_EQ(got.synthetic, 1);
    CHECK_EQ(got.cpus, 8);
    CHECK_EQ(got.nodes, 4);
    CHECK_EQ(got.distance_nodes, 4);
    for (i = 0; i < 8; i++)
        CHECK_EQ(got.cpu_node[i], i / 2);
    for (i = 0; i < 16; i++)
        CHECK_EQ(got.distance[i], i / 4 == i % 4 ? 10 : 20);
    CHECK(got.node[3].bytes > 0);
}

TEST(node_ids_with_holes)
{
    struct hvmem_linux_topology got =
        describe("pack:3 [numa(memory=1073741824 indexes=0,5,63)] core:2 pu:1");
    static const uint32_t id[] = {0, 5, 63};
    uint32_t i;

    CHECK_EQ(got.nodes, 3);
    CHECK_EQ(got.distance_nodes, 64);
    for (i = 0; i < 3; i++) {
        CHECK_EQ(got.node[i].id, id[i]);
        CHECK_EQ(got.node[i].bytes, 1ull << 30);
    }
    for (i = 0; i < 6; i++)
        CHECK_EQ(got.cpu_node[i], id[i / 2]);
    CHECK_EQ(got.distance[63 * 64 + 5], 20);
    CHECK_EQ(got.distance[63 * 64 + 63], 10);
}

TEST(cpus_prefer_the_node_that_has_memory)
{
    struct hvmem_linux_topology got = describe("pack:2 [numa(memory=0)] [numa(memory=64MB)] pu:2");
    uint32_t i;

    CHECK_EQ(got.nodes, 4);
    for (i = 0; i < 4; i++) {
        CHECK_EQ(got.node[i].bytes == 0, i % 2 == 0);
        CHECK_EQ(got.cpu_node[i], i / 2 * 2 + 1);
    }
}

TEST(this_machine)
{
    static struct hvmem_linux_topology got;
    uint64_t bytes = 0;
    uint32_t i;

    REQUIRE_EQ(hvmem_linux_topology(NULL, &got), HVMEM_OK);
    CHECK_EQ(got.synthetic, 0);
    CHECK(got.cpus >= 1 && got.nodes >= 1);
    for (i = 0; i < got.nodes; i++) {
        uint32_t id = got.node[i].id;

        bytes += got.node[i].bytes;
        CHECK_EQ(got.distance[id * got.distance_nodes + id], 10);
    }
    CHECK(bytes > 1u << 20);
}

TEST(bad_words_are_refused)
{
    static struct hvmem_linux_topology got;

    CHECK_EQ(hvmem_linux_topology("nothing:2", &got), HVMEM_E_ARG);
    CHECK_EQ(hvmem_linux_topology("", &got), HVMEM_E_ARG);
    CHECK_EQ(hvmem_linux_topology("pack:2 [numa(indexes=0,64)] pu:1", &got), HVMEM_E_NODE);
    CHECK_EQ(hvmem_linux_topology("pu:1", NULL), HVMEM_E_ARG);
}

TEST(cpus_beyond_the_limit_are_left_out)
{
    struct hvmem_linux_topology got = describe("numa:2 pu:200");

    CHECK_EQ(got.cpus, HVMEM_LINUX_MAX_CPUS);
    CHECK_EQ(got.cpu_node[199], 0);
    CHECK_EQ(got.cpu_node[200], 1);
}
