/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps at the ends of what can be configured: smallest and largest orders, one frame, the last frame, all
 * nodes, thousands of CPUs, no banks, colours that nothing has, counters at their maximum.
 */
#include "domain.h"
#include "expect.h"
#include "heap.h"

#include <hvmem/fast.h>

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- orders ------------------------------------------------------------------------------------- */

static void one_block_of_each_order(hvmem_order max, hvmem_mfn base)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_order order;
    hvmem_mfn mfn = 99;

    config.max_order = max;
    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BARRIER);
    REQUIRE_EQ(world_bank(world, base, 1ull << max, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, max + 1, &mfn), HVMEM_E_ORDER);
    CHECK_EQ(hvmem_free(world->heap, base, max + 1), HVMEM_E_ORDER);
    CHECK_EQ(mfn, 99);
    for (order = 0; order <= max; order++) {
        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
        CHECK_EQ(mfn & ((1ull << order) - 1), 0);
        CHECK_EQ(expect_lookup(world, mfn + (1ull << order) - 1).mfn, mfn);
        world_set_cpu(order & 1); /* by another CPU too */
        CHECK_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK);
        world_set_cpu(0);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[max], 1);
    }
    REQUIRE_EQ(hvmem_alloc_order(world->heap, max, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_free(world->heap, base, max), HVMEM_OK);
    WORLD_END(world);
}

TEST(smallest_and_largest_orders)
{
    static const hvmem_order orders[] = {0, 1, 8, 9, 10, 18, HVMEM_ORDER_LIMIT};
    size_t i;

    for (i = 0; i < COUNT(orders); i++) {
        one_block_of_each_order(orders[i], 0);
        one_block_of_each_order(orders[i],
                                (1ull << 40) - (1ull << orders[i])); /* the last frames */
    }
}

/* An order-9 block, the largest of its heap, through the caches of two CPUs, again and again. */
TEST(largest_order_goes_through_caches)
{
    struct hvmem_config config = world_config();
    struct world *world;
    struct hvmem_domain *domain;
    unsigned round;
    hvmem_mfn mfn[40];
    unsigned i, n;

    config.max_order = 9;
    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.owed_on_free = HVMEM_OWES_TLB;
    world = WORLD_NEW(&config, WORLD_BARRIER | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 512, 40 * 512, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    domain = world_domain(world, 1, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_domain_start(domain), HVMEM_OK);
    for (round = 0; round < 6; round++) {
        for (n = 0; n < 40; n++) {
            struct hvmem_request request = expect_block(9, round % 2 ? domain : NULL);

            world_set_cpu(n & 1);
            if (hvmem_alloc(world->heap, &request, &mfn[n]) != HVMEM_OK)
                break;
        }
        CHECK_EQ(n, 40);
        for (i = 0; i < n; i++) {
            world_set_cpu(i / 2 & 1);
            CHECK_EQ(hvmem_free(world->heap, mfn[i], 9), HVMEM_OK);
        }
        CHECK_AUDIT(world);
    }
    world_set_cpu(0);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[9], 40);
    CHECK_TORN_DOWN(world, domain);
    WORLD_END(world);
}

/* ---- one frame ---------------------------------------------------------------------------------- */

/* All of a heap of one frame, wherever it is: in use, out of service, handed over, gone. */
TEST(one_frame)
{
    static const hvmem_mfn frames[] = {0, 1, 0x12345, (1ull << 40) - 1};
    size_t i;

    for (i = 0; i < COUNT(frames); i++) {
        struct world *world = WORLD_SIMPLE(frames[i], 1), *next;
        struct hvmem_bank bank = {sizeof bank, 0, frames[i], 1, 0, 0};
        struct world_table *table;
        hvmem_u64 cursor = 0;
        hvmem_mfn mfn = 7, more = 7;

        CHECK_FREE_BLOCKS(world, {frames[i], 0});
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, frames[i]);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &more), HVMEM_E_NOMEM);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 1, &more), HVMEM_E_NOMEM);
        CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
        CHECK_EQ(hvmem_reserve(world->heap, mfn, 1), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_reserve(world->heap, mfn, 2), HVMEM_E_FOREIGN);
        CHECK_EQ(hvmem_free_run(world->heap, mfn, 1), HVMEM_OK);
        CHECK_EQ(hvmem_offline(world->heap, mfn), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &more), HVMEM_E_NOMEM);
        CHECK_EQ(hvmem_online(world->heap, mfn), HVMEM_OK);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        REQUIRE_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
        next = WORLD_NEW(&world->config, 0);
        table = world_table_of(world, mfn);
        REQUIRE_EQ(hvmem_bank_adopt(next->heap, &bank, table->memory, table->bytes), HVMEM_OK);
        while (hvmem_adopt_finish(next->heap, &cursor) == HVMEM_AGAIN)
            continue;
        CHECK_AUDIT(next);
        CHECK_EQ(hvmem_free_frames(next->heap), 0);
        CHECK_EQ(hvmem_free(next->heap, mfn, 0), HVMEM_OK);
        CHECK_EQ(hvmem_bank_remove(next->heap, mfn, 1), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(next->heap), 0);
        CHECK(world_delete(next));
        CHECK(world_delete(world));
    }
}

/* As many banks of one frame as a heap can have here, on either side of each other. */
TEST(banks_of_one_frame)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn;

    config.max_order = 6;
    config.max_banks = 64;
    world = WORLD_NEW(&config, 0);
    for (mfn = 0; mfn < 64; mfn++) /* 0, 17, 34 ... */
        REQUIRE_EQ(world_bank(world, mfn * 17 % 64, 1, 0, 0), HVMEM_OK);
    CHECK_FREE_BLOCKS(world, {0, 6});
    CHECK_REFUSED(world, world_bank(world, 64, 1, 0, 0), HVMEM_E_COUNT);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 6, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(world->heap, 33, 1), HVMEM_OK);
    CHECK_EQ(world_remove(world, 33, 1), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(world->heap, 0, 33), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(world->heap, 34, 30), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free, 63);
    WORLD_END(world);
}

/* ---- nodes -------------------------------------------------------------------------------------- */

/*
 * Of a node, where every step-th has two frames and those below this one have none left: both are had from
 * there, or one from the nearest above.
 */
static void take_from(struct world *world, hvmem_node node, hvmem_node step)
{
    struct hvmem_request request = expect_block(0, NULL);
    struct hvmem_stats stats;
    hvmem_mfn mfn = 0;
    int has = node % step == 0;
    hvmem_node nearest = has ? node : node + step - node % step;

    request.node = node;
    request.flags = HVMEM_REQ_EXACT_NODE;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), has ? HVMEM_OK : HVMEM_E_NODE);
    CHECK_EQ(hvmem_stats(world->heap, node, sizeof stats, &stats), has ? HVMEM_OK : HVMEM_E_NODE);
    if (has)
        CHECK_EQ(expect_lookup(world, mfn).node, node);
    request.flags = HVMEM_REQ_NO_CACHE;
    request.node_mask = 0;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, mfn).node, nearest);
    request.node_mask = 1ull << node;
    if (!has)
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NODE);
    request.node_mask = 0;
    if (!has)
        CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
}

/* A frame on each of 64 nodes, and then on every third of them: ids with holes, nodes without memory. */
TEST(every_node)
{
    struct hvmem_config config = world_config();
    static hvmem_u8 distance[HVMEM_NODE_LIMIT * HVMEM_NODE_LIMIT], cpu_node[2] = {62, 0};
    hvmem_node node, step;
    unsigned i, j;

    for (i = 0; i < HVMEM_NODE_LIMIT; i++)
        for (j = 0; j < HVMEM_NODE_LIMIT; j++)
            distance[i * HVMEM_NODE_LIMIT + j] = (hvmem_u8)(10 + (i > j ? i - j : j - i));
    config.max_banks = 64;
    config.max_cpus = 2;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.cpu_node = cpu_node;
    config.distance = distance;
    config.distance_nodes = HVMEM_NODE_LIMIT;
    for (step = 1; step < 4; step += 2) {
        struct world *world = WORLD_NEW(&config, WORLD_BARRIER);

        for (node = 0; node < HVMEM_NODE_LIMIT; node += step)
            REQUIRE_EQ(world_bank(world, 1000 - 3 * node, 2, node, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        for (node = 0; node < HVMEM_NODE_LIMIT; node++)
            take_from(world, node, step);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_AUDIT(world);
        WORLD_END(world);
    }
    config.distance_nodes = HVMEM_NODE_LIMIT + 1;
    {
        hvmem_size bytes = 0;

        CHECK_EQ(hvmem_heap_size(&config, &bytes), HVMEM_E_NODE);
    }
}

/* A CPU whose node has no memory takes from the nearest that has, and from its own once it has. */
TEST(node_without_memory_at_home)
{
    struct hvmem_config config = world_config();
    static hvmem_u8 cpu_node[1] = {63};
    struct world *world;
    hvmem_mfn mfn = 0;

    config.cpu_node = cpu_node;
    world = WORLD_NEW(&config, 0);
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    REQUIRE_EQ(world_bank(world, 64, 64, 7, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, mfn).node, 7);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 0, 64, 63, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, mfn).node, 63);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    WORLD_END(world);
}

/* ---- CPUs --------------------------------------------------------------------------------------- */

static hvmem_size heap_bytes(struct hvmem_config *config, hvmem_u32 cpus)
{
    hvmem_size bytes = 0;

    config->max_cpus = cpus;
    CHECK_EQ(hvmem_heap_size(config, &bytes), HVMEM_OK);
    return bytes;
}

TEST(thousands_of_cpus)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_size one, some, most;
    hvmem_mfn mfn[2];

    config.lock_regime = HVMEM_LOCK_PLAIN;
    one = heap_bytes(&config, 1);
    most = heap_bytes(&config, HVMEM_CPU_LIMIT);
    some = heap_bytes(&config, 4096);
    /* So many bytes a CPU, at any number of them. */
    CHECK((some - one) / 4095 > 0);
    CHECK((most - one) / (HVMEM_CPU_LIMIT - 1) - (some - one) / 4095 + 64 < 128);
    world = WORLD_NEW(&config, WORLD_BARRIER | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, 4096, 0, 0), HVMEM_OK);
    CHECK(hvmem_cpu_handle(world->heap, 4095) != NULL);
    CHECK(hvmem_cpu_handle(world->heap, 4096) == NULL);
    REQUIRE_EQ(hvmem_smp_enable(world->heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_cpu_online(world->heap, 4095), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_online(world->heap, 4096), HVMEM_E_CPU);
    world_set_cpu(4095);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn[0]), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &mfn[1]), HVMEM_OK);
    world_set_cpu(0);
    CHECK_EQ(hvmem_free(world->heap, mfn[0], 0), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn[1], 3), HVMEM_OK);
    world_set_cpu(0);
    CHECK_EQ(hvmem_cpu_offline(world->heap, 4095), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], 4);
    WORLD_END(world);
}

/* ---- nothing there ------------------------------------------------------------------------------ */

TEST(heap_without_banks)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, WORLD_BROADCAST);
    const struct hvmem_map none = {sizeof none, 12, NULL, NULL, 0, 0};
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_block block;
    struct hvmem_bank bank;
    hvmem_u64 at = 0;
    hvmem_mfn mfn = 3;

    CHECK_EQ(hvmem_map_next(&none, &at, &bank), HVMEM_OK);
    at = 0;
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
    CHECK_REFUSED(world, hvmem_free(world->heap, 0, 0), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_reserve(world->heap, 0, 1), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_lookup(world->heap, 0, &block), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, 0, 1), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_domain_claim(domain, HVMEM_NODE_ANY, 1), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK_EQ(hvmem_walk(world->heap, &at, &block), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).frames, 0);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(domain), HVMEM_OK);
    while (hvmem_domain_teardown(domain, 0, &cursor) == HVMEM_AGAIN)
        continue;
    CHECK_EQ(world_domain_gone(world, domain), HVMEM_OK);
    CHECK_EQ(mfn, 3);
    WORLD_END(world);
}

/* Colours that no frame of the heap has, and those that one has. */
TEST(colours_that_nothing_has)
{
    struct world *world = WORLD_SIMPLE(64, 64);
    struct hvmem_request request = expect_block(0, NULL);
    const hvmem_u64 last = (1ull << 40) - 1;
    hvmem_mfn mfn = 3;
    size_t i;
    struct {
        hvmem_u64 mask, colour;
        hvmem_u32 shift;
        hvmem_mfn lo, hi;
    } none[] = {
        {128, 128, 0, 0, 0},      {64, 0, 0, 0, 0},      {last, 63, 0, 0, 0},
        {last, 128, 0, 0, 0},     {last, last, 0, 0, 0}, {1ull << 39, 1ull << 39, 0, 0, 0},
        {1, 1, 39, 0, 0},         {7, 5, 0, 64, 69},     {7, 5, 0, 70, 77},
        {0xff >> 3, 31, 3, 0, 0}, {63, 63, 0, 64, 127},
    };

    for (i = 0; i < COUNT(none); i++) {
        request.colour_mask = none[i].mask;
        request.colour = none[i].colour;
        request.colour_shift = none[i].shift;
        request.lo = none[i].lo;
        request.hi = none[i].hi;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    }
    CHECK_EQ(mfn, 3);
    request.hi = 0;
    request.colour_shift = 0;
    request.colour_mask = last;
    request.colour = 127;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 127);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    WORLD_END(world);
}

/* ---- counters ----------------------------------------------------------------------------------- */

/* Limits and counts at the end of 64 bits: nothing wraps. */
TEST(domain_counters_at_their_maximum)
{
    static const hvmem_u64 limits[] = {~0ull, ~0ull - 1, ~0ull - 7, 1ull << 63};
    size_t i;

    for (i = 0; i < COUNT(limits); i++) {
        struct world *world = WORLD_SIMPLE(0, 64);
        struct hvmem_domain *domain = world_domain(world, 1, limits[i], 0, NULL);
        struct hvmem_request request = expect_block(3, domain);
        hvmem_mfn mfn = 0;

        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(expect_domain(domain).pages, 8);
        CHECK_REFUSED(world, hvmem_domain_claim(domain, 0, ~0ull), HVMEM_E_NOMEM);
        CHECK_REFUSED(world, hvmem_domain_claim(domain, 0, ~0ull - 7), HVMEM_E_NOMEM);
        REQUIRE_EQ(hvmem_domain_claim(domain, 0, 50), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_domain_claim(domain, HVMEM_NODE_ANY, ~0ull - 40), HVMEM_E_NOMEM);
        CHECK_EQ(expect_domain(domain).claimed, 50);
        /* It owns almost all that can be counted. */
        domain->pages = limits[i] - 4;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
        request.order = 2;
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(domain->pages, limits[i]);
        request.order = 0;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
        CHECK_REFUSED(world, hvmem_domain_claim(domain, HVMEM_NODE_ANY, 1), HVMEM_E_LIMIT);
        domain->pages = 12;
        CHECK_EQ(hvmem_domain_limit(domain, 0), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
        CHECK_TORN_DOWN(world, domain);
        WORLD_END(world);
    }
}
