/* SPDX-License-Identifier: BSD-2-Clause */
/* Bad arguments again: requests, frees, look-ups, frames in each state, domains, map and adoption. */
#include "expect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

TEST(request_members)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_heap *heap = world->heap;
    const struct hvmem_request good = expect_block(0, NULL);
    const hvmem_u32 max = world->config.max_order;
    struct {
        hvmem_u32 size, flags;
        hvmem_u64 count;
        hvmem_u32 order, align;
        hvmem_mfn lo, hi;
        hvmem_u64 colour_mask, colour;
        hvmem_status code;
    } bad[] = {
        {0, 0, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_VERSION},
        {sizeof good - 1, 0, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_VERSION},
        {UINT_MAX, 0, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_VERSION},
        {sizeof good, 0x10, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_ARG},
        {sizeof good, 0x2000, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_ARG},
        {sizeof good, 0x80000000u, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_ARG},
        {sizeof good, 0, 0, max + 1, 0, 0, 0, 0, 0, HVMEM_E_ORDER},
        {sizeof good, 0, (1ull << max) + 1, 0, 0, 0, 0, 0, 0, HVMEM_E_COUNT},
        {sizeof good, 0, 4, 1, 0, 0, 0, 0, 0, HVMEM_E_ARG},
        {sizeof good, 0, 4, 0, max + 1, 0, 0, 0, 0, HVMEM_E_ALIGN},
        {sizeof good, 0, 4, 0, 64, 0, 0, 0, 0, HVMEM_E_ALIGN},
        {sizeof good, 0, 4, 0, UINT_MAX, 0, 0, 0, 0, HVMEM_E_ALIGN},
        {sizeof good, 0, 0, 0, 0, 20, 20, 0, 0, HVMEM_E_RANGE},
        {sizeof good, 0, 0, 0, 0, 21, 20, 0, 0, HVMEM_E_RANGE},
        {sizeof good, 0, 0, 1, 0, 0, 0, 3, 1, HVMEM_E_ARG},
        {sizeof good, 0, 4, 0, 0, 0, 0, 3, 1, HVMEM_E_ARG},
        {sizeof good, 0, 0, 0, 0, 0, 0, 3, 4, HVMEM_E_ARG},
        {sizeof good, HVMEM_REQ_DEFER_TLB, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_PHASE},
        {sizeof good, HVMEM_REQ_DEFER_ALL, 0, 0, 0, 0, 0, 0, 0, HVMEM_E_PHASE},
    };
    hvmem_mfn mfn = 99;
    hvmem_u32 got = 5;
    size_t i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct hvmem_request request = good;

        request.size = bad[i].size;
        request.flags = bad[i].flags;
        request.count = bad[i].count;
        request.order = bad[i].order;
        request.align = bad[i].align;
        request.lo = bad[i].lo;
        request.hi = bad[i].hi;
        request.colour_mask = bad[i].colour_mask;
        request.colour = bad[i].colour;
        CHECK_REFUSED(world, hvmem_alloc(heap, &request, &mfn), bad[i].code);
        CHECK_EQ(mfn, 99);
        if (bad[i].count == 0) {
            CHECK_REFUSED(world, hvmem_alloc_bulk(heap, &request, &mfn, 1, &got), bad[i].code);
            CHECK_EQ(mfn, 99);
        }
    }
    WORLD_END(world);
}

TEST(colour_shift_of_64_and_more)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn = 99;

    request.colour_mask = 1;
    request.colour_shift = 64;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ARG);
    request.colour_shift = UINT_MAX;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ARG);
    CHECK_EQ(mfn, 99);
    WORLD_END(world);
}

/* Deferral for a domain that runs; allocation for one that dies. */
TEST(requests_in_the_wrong_phase)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_domain *domain = world_domain(world, 1, 4, 0, NULL);
    struct hvmem_request request = expect_block(0, domain);
    hvmem_u32 flag;
    hvmem_mfn mfn = 99;

    request = expect_block(3, domain);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
    request = expect_block(0, domain);
    REQUIRE_EQ(hvmem_domain_start(domain), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_domain_start(domain), HVMEM_E_PHASE);
    CHECK_REFUSED(world, hvmem_domain_destroy(domain), HVMEM_E_PHASE);
    for (flag = HVMEM_REQ_DEFER_TLB; flag <= HVMEM_REQ_DEFER_HOST; flag <<= 1) {
        request.flags = flag;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_PHASE);
    }
    request.flags = 0;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_kill(domain), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_DOMAIN);
    CHECK_REFUSED(world, hvmem_domain_start(domain), HVMEM_E_PHASE);
    CHECK_REFUSED(world, hvmem_domain_claim(domain, HVMEM_NODE_ANY, 1), HVMEM_E_DOMAIN);
    CHECK_REFUSED(world, hvmem_domain_destroy(domain), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(world_domain_gone(world, domain), HVMEM_OK);
    WORLD_END(world);
}

/* One frame in each state, every call on each: the code of that state. */
TEST(frames_in_every_state)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_request at = expect_run(1, 0, 20, 21);
    hvmem_mfn leaving = 0;

    REQUIRE_EQ(hvmem_reserve(heap, 10, 1), HVMEM_OK);
    REQUIRE_EQ(hvmem_offline(heap, 12), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc(heap, &at, &leaving), HVMEM_OK);
    REQUIRE_EQ(hvmem_offline(heap, leaving), HVMEM_AGAIN);

    CHECK_REFUSED_AT(world, hvmem_offline(heap, 10), HVMEM_E_RESERVED, 10);
    CHECK_REFUSED_AT(world, hvmem_offline(heap, 12), HVMEM_E_OFFLINE, 12);
    CHECK_REFUSED_AT(world, hvmem_offline(heap, leaving), HVMEM_E_OFFLINE, leaving);
    CHECK_REFUSED_AT(world, hvmem_offline(heap, 64), HVMEM_E_FOREIGN, 64);
    CHECK_REFUSED_AT(world, hvmem_offline(heap, ~0ull), HVMEM_E_FOREIGN, ~0ull);
    CHECK_REFUSED(world, hvmem_online(heap, 11), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_online(heap, 10), HVMEM_E_ARG);
    CHECK_REFUSED_AT(world, hvmem_online(heap, 64), HVMEM_E_FOREIGN, 64);

    CHECK_REFUSED_AT(world, hvmem_free(heap, 12, 0), HVMEM_E_OFFLINE, 12);
    CHECK_REFUSED(world, hvmem_free_run(heap, 12, 1), HVMEM_E_OFFLINE);
    CHECK_REFUSED(world, hvmem_free_run(heap, 10, 2), HVMEM_E_FREE);
    CHECK_REFUSED(world, hvmem_free_run(heap, 10, ~0ull), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_free_run(heap, ~0ull, 2), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_reserve(heap, 12, 1), HVMEM_E_BUSY);
    CHECK_REFUSED(world, hvmem_reserve(heap, leaving, 1), HVMEM_E_BUSY);
    CHECK_REFUSED(world, hvmem_free_owned(heap, leaving, 0, NULL, 0x100), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_free_owned(heap, leaving, 99, NULL, 0), HVMEM_E_ORDER);

    CHECK_REFUSED(world, hvmem_settle(heap, 11, 1, HVMEM_OWES_TLB), HVMEM_E_FREE);
    CHECK_REFUSED(world, hvmem_settle(heap, 12, 1, HVMEM_OWES_TLB), HVMEM_E_OFFLINE);
    CHECK_EQ(hvmem_settle(heap, 10, 1, HVMEM_OWES_TLB), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_settle(heap, 64, 1, HVMEM_OWES_TLB), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_settle(heap, leaving, 0, HVMEM_OWES_TLB), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_settle(heap, ~0ull, 2, HVMEM_OWES_TLB), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_settle(heap, leaving, 1, 0x100), HVMEM_E_ARG);

    CHECK_EQ(hvmem_online(heap, leaving), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap, leaving, 0), HVMEM_OK);
    CHECK_EQ(hvmem_online(heap, 12), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(heap, 10, 1), HVMEM_OK);
    CHECK_FREE_BLOCKS(world, {0, 6});
    WORLD_END(world);
}

TEST(looking_arguments)
{
    struct world *world = WORLD_SIMPLE(64, 64);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_block block;
    struct hvmem_stats stats;
    static const hvmem_mfn outside[] = {0, 63, 128, 1ull << 39, 1ull << 40, ~0ull};
    static const hvmem_node nodes[] = {1, 63, 64, 1000, 0xfffffffe};
    hvmem_node node;
    size_t i;

    for (i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        CHECK_REFUSED_AT(world, hvmem_lookup(heap, outside[i], &block), HVMEM_E_FOREIGN,
                         outside[i]);
        CHECK_REFUSED_AT(world, hvmem_node_of(heap, outside[i], &node), HVMEM_E_FOREIGN,
                         outside[i]);
    }
    for (i = 0; i < sizeof nodes / sizeof nodes[0]; i++)
        CHECK_REFUSED(world, hvmem_stats(heap, nodes[i], sizeof stats, &stats), HVMEM_E_NODE);
    CHECK_REFUSED(world, hvmem_stats(heap, 0, 0, &stats), HVMEM_E_VERSION);
    CHECK_REFUSED(world, hvmem_stats(heap, 0, sizeof stats - 1, &stats), HVMEM_E_VERSION);
    WORLD_END(world);
}

/* A bulk call that stops in the middle keeps what it did and says how much. */
TEST(bulk_stops_where_it_fails)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_request request = expect_block(3, NULL);
    hvmem_mfn frames[16];
    hvmem_u32 done = 77;
    hvmem_u32 i;

    CHECK_EQ(hvmem_alloc_bulk(world->heap, &request, frames, 0, &done), HVMEM_OK);
    CHECK_EQ(done, 0);
    CHECK_EQ(hvmem_alloc_bulk(world->heap, &request, frames, 16, &done), HVMEM_E_NOMEM);
    REQUIRE_EQ(done, 8);
    frames[8] = 1000;
    for (i = 0; i < 3; i++) {
        static const hvmem_mfn bad[] = {1000, 1, 0};
        static const hvmem_status code[] = {HVMEM_E_FOREIGN, HVMEM_E_INTERIOR, HVMEM_E_FREE};
        hvmem_mfn list[3] = {frames[i], i == 2 ? frames[i] : bad[i], frames[7]};

        if (i == 1)
            list[1] = frames[7] + 1;
        CHECK_EQ(hvmem_free_bulk(world->heap, list, 3, 3, &done), code[i]);
        CHECK_EQ(done, 1);
        CHECK_EQ(expect_lookup(world, frames[7]).state, HVMEM_BLOCK_ALLOCATED);
        CHECK_AUDIT(world);
    }
    CHECK_REFUSED(world, hvmem_free_bulk(world->heap, frames + 3, 2, 2, &done),
                  HVMEM_E_WRONG_ORDER);
    CHECK_EQ(done, 0);
    CHECK_REFUSED(world, hvmem_free_bulk(world->heap, frames + 3, 2, 99, &done), HVMEM_E_ORDER);
    CHECK_EQ(hvmem_free_bulk(world->heap, frames + 3, 5, HVMEM_ORDER_ANY, &done), HVMEM_OK);
    CHECK_EQ(done, 5);
    CHECK_FREE_BLOCKS(world, {0, 6});
    WORLD_END(world);
}

TEST(domain_arguments)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_domain_config config = {sizeof config, 1, ~0ull, 0};
    hvmem_size bytes = hvmem_domain_size(heap);
    unsigned char *memory = aligned_alloc(64, bytes + 64);
    static const hvmem_u32 ids[] = {0, 9, 65535, UINT_MAX};
    static const hvmem_node nodes[] = {1, 63, 64, 0xfffffffe};
    struct hvmem_domain *domain = NULL;
    struct hvmem_domain_stats stats;
    size_t i;

    CHECK_EQ(bytes % 64, 0);
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes, NULL, &domain), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes, &config, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_domain_create(heap, NULL, bytes, &config, &domain), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes - 1, &config, &domain),
                  HVMEM_E_BUFFER);
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory + 4, bytes, &config, &domain),
                  HVMEM_E_BUFFER);
    for (i = 0; i < 4; i++) {
        config.id = ids[i];
        CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes, &config, &domain),
                      HVMEM_E_DOMAIN);
    }
    config.id = 8;
    config.size = 4;
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes, &config, &domain),
                  HVMEM_E_VERSION);
    config.size = sizeof config;
    config.node_mask = 2;
    CHECK_REFUSED(world, hvmem_domain_create(heap, memory, bytes, &config, &domain), HVMEM_E_NODE);
    config.node_mask = 0;
    CHECK_EQ(hvmem_domain_create(NULL, memory, bytes, &config, &domain), HVMEM_E_ARG);
    CHECK(domain == NULL);
    REQUIRE_EQ(hvmem_domain_create(heap, memory, bytes, &config, &domain), HVMEM_OK);
    CHECK(world_domain(world, 8, ~0ull, 0, NULL) == NULL);
    CHECK_REFUSED(world, hvmem_domain_stats(domain, NULL), HVMEM_E_ARG);
    for (i = 0; i < 4; i++)
        CHECK_REFUSED(world, hvmem_domain_claim(domain, nodes[i], 1), HVMEM_E_NODE);
    CHECK_REFUSED(world, hvmem_domain_claim(domain, HVMEM_NODE_ANY, 65), HVMEM_E_NOMEM);
    CHECK_REFUSED(world, hvmem_domain_claim(domain, 0, ~0ull), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_limit(domain, 10), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_domain_claim(domain, 0, 11), HVMEM_E_LIMIT);
    CHECK_EQ(hvmem_domain_start(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_kill(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_destroy(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_limit(NULL, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_claim(NULL, 0, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_stats(NULL, &stats), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_kill(domain), HVMEM_OK);
    CHECK_EQ(hvmem_domain_destroy(domain), HVMEM_OK);
    free(memory);
    WORLD_END(world);
}

/* A domain of one heap handed to another. */
TEST(domain_of_another_heap)
{
    struct world *mine = WORLD_SIMPLE(0, 64);
    struct world *other = WORLD_SIMPLE(0, 64);
    struct hvmem_domain *domain = world_domain(other, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(0, domain);
    hvmem_mfn mfn = 9;

    CHECK_REFUSED(mine, hvmem_alloc(mine->heap, &request, &mfn), HVMEM_E_DOMAIN);
    CHECK_EQ(mfn, 9);
    CHECK_EQ(expect_domain(domain).pages, 0);
    WORLD_END(mine);
    WORLD_END(other);
}

/* Debts that nobody can pay. */
TEST(debts_without_means)
{
    static const unsigned lacks[] = {WORLD_NO_BACKEND, WORLD_NO_MAP};
    size_t i;

    for (i = 0; i < 2; i++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn mfn = 9;
        hvmem_status status;

        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
        world = WORLD_NEW(&config, lacks[i]);
        REQUIRE_EQ(world_bank(world, 0, 64, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
        CHECK(world_domain(world, 1, ~0ull, 0, &status) == NULL);
        CHECK_EQ(status, HVMEM_E_UNSUPPORTED);
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_UNSUPPORTED);
        CHECK_EQ(mfn, 9);
        CHECK_AUDIT(world);
        WORLD_END(world);
    }
}

TEST(map_arguments)
{
    struct hvmem_map_piece ram = {0x1000, 0x1000, 0, 0};
    struct hvmem_map_piece out = {0x1000, 0, 0, 0};
    const struct hvmem_map good = {sizeof good, 12, &ram, &out, 1, 1};
    struct hvmem_map map = good;
    struct hvmem_bank bank;
    hvmem_u64 cursor = 0;

    CHECK_EQ(hvmem_map_next(NULL, &cursor, &bank), HVMEM_E_ARG);
    CHECK_EQ(hvmem_map_next(&map, NULL, &bank), HVMEM_E_ARG);
    CHECK_EQ(hvmem_map_next(&map, &cursor, NULL), HVMEM_E_ARG);
    map.size = 4;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_VERSION);
    map = good;
    map.page_shift = 17;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_ARG);
    map = good;
    map.ram = NULL;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_ARG);
    map = good;
    map.keep_out = NULL;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_ARG);
    map = good;
    ram.node = 64;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_NODE);
    ram.node = 0;
    ram.start = ~0ull - 10;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_RANGE);
    ram.start = (1ull << 52) - 0x1000;
    ram.bytes = 0x1001;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_RANGE);
    ram.bytes = 0x1000;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_AGAIN);
    CHECK_EQ(bank.base, (1ull << 40) - 1);
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_OK);
    cursor = 0;
    out.start = ~0ull;
    out.bytes = 2;
    CHECK_EQ(hvmem_map_next(&map, &cursor, &bank), HVMEM_E_RANGE);
}
