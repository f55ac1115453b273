/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Public bug reports of other allocators, class C: counters, claims, locking. B15 narrow counters,
 * B16 claims, B17 half-done operations, B18 check-then-act (its threads: test_smp.c).
 */
#include "expect.h"

#include <stdlib.h>
#include <string.h>

/* 2^32 frames on paper: order-30 blocks of a table that only the touched pages of take memory. */
TEST(B15_limit_near_2_to_32, slow)
{
    struct hvmem_config config = world_config();
    struct world *world;
    struct hvmem_domain *domain;
    struct hvmem_request request;
    hvmem_u64 left = 0xfffffff0u;
    hvmem_order order;
    hvmem_mfn mfn = 0;

    config.max_order = 30;
    config.max_banks = 8192;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, 1ull << 32, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 1ull << 32, 1ull << 30, 0, 0), HVMEM_OK);
    domain = world_domain(world, 1, 0xffffffffu, 0, NULL);
    REQUIRE(domain != NULL);
    for (order = 30; order <= 30; order--)
        while (left >> order != 0) {
            request = expect_block(order, domain);
            REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
            left -= 1ull << order;
        }
    CHECK_EQ(expect_domain(domain).pages, 0xfffffff0u);
    request = expect_block(5, domain);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
    request = expect_block(4, domain);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
    request = expect_block(3, domain);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(expect_domain(domain).pages, 0xfffffff8u);
    request = expect_block(3, domain);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_LIMIT);
    /* Without a limit the count passes 2^32. */
    CHECK_EQ(hvmem_domain_limit(domain, ~0ull), HVMEM_OK);
    request = expect_block(29, domain);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(expect_domain(domain).pages, 0xfffffff8ull + (1ull << 29));
    CHECK_EQ(expect_stats(world, 0).allocated, 0xfffffff8ull + (1ull << 29));
    CHECK_EQ(hvmem_free(world->heap, mfn, 29), HVMEM_OK);
    CHECK_EQ(expect_domain(domain).pages, 0xfffffff8u);
    /* No sum wraps: a limit or claim of nearly 2^64 against a count. */
    CHECK_EQ(hvmem_domain_limit(domain, ~0ull - 1), HVMEM_OK);
    CHECK(hvmem_domain_claim(domain, HVMEM_NODE_ANY, ~0ull) < 0);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, ~0ull >> 1), HVMEM_E_NOMEM);
    CHECK_EQ(expect_domain(domain).claimed, 0);
    CHECK(world_delete(world));
}

TEST(B15_group_counts_at_powers_of_two)
{
    static const hvmem_u64 sizes[] = {1ull << 15, 1ull << 16, 1ull << 17, 1ull << 18, 1ull << 19};
    size_t i;
    size_t max;

    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (max = 10; max <= 20; max += 5) {
            struct hvmem_config config = world_config();
            struct world *world;
            hvmem_mfn mfn = 0;

            config.max_order = (hvmem_u32)max;
            config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
            world = WORLD_NEW(&config, 0);
            REQUIRE_EQ(world_bank(world, 0, sizes[i], 0, 0), HVMEM_OK);
            CHECK_EQ(hvmem_free_frames(world->heap), sizes[i]);
            CHECK_EQ(expect_stats(world, 0).free, sizes[i]);
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
            CHECK_EQ(hvmem_free_frames(world->heap), sizes[i] - 1);
            CHECK_EQ(expect_stats(world, 0).free, sizes[i] - 1);
            CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
            CHECK_EQ(hvmem_free_frames(world->heap), sizes[i]);
            CHECK_EQ(expect_stats(world, 0).free, sizes[i]);
            CHECK_EQ(expect_stats(world, 0).allocated, 0);
            WORLD_END(world);
        }
}

/* The highest frame of a 52-bit address goes through every call that stores or returns it. */
TEST(B15_highest_frame, slow)
{
    static const hvmem_u32 shifts[] = {12, 14, 16};
    size_t i;

    for (i = 0; i < 3; i++) {
        struct hvmem_config config = world_config();
        hvmem_mfn top = (1ull << (HVMEM_MADDR_BITS - shifts[i])) - 1;
        struct hvmem_request request;
        struct world *world;
        hvmem_mfn mfn = 0;
        hvmem_node node = 9;

        config.page_shift = shifts[i];
        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, top - 63, 64, 3, 0), HVMEM_OK);
        CHECK_REFUSED(world, world_bank(world, top + 1, 64, 3, 0), HVMEM_E_RANGE);
        request = expect_run(1, 0, top, 0);
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, top);
        CHECK_EQ(expect_lookup(world, top).mfn, top);
        CHECK_EQ(hvmem_node_of(world->heap, top, &node), HVMEM_OK);
        CHECK_EQ(node, 3);
        CHECK_EQ(hvmem_settle(world->heap, top, 1, HVMEM_OWES_TLB), HVMEM_OK);
        CHECK_EQ(hvmem_free(world->heap, top, 0), HVMEM_OK);
        CHECK_EQ(hvmem_reserve(world->heap, top, 1), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_reserve(world->heap, top, 2), HVMEM_E_FOREIGN);
        CHECK_EQ(hvmem_free_run(world->heap, top, 1), HVMEM_OK);
        CHECK_EQ(hvmem_offline(world->heap, top), HVMEM_OK);
        CHECK_EQ(hvmem_online(world->heap, top), HVMEM_OK);
        CHECK_FREE_BLOCKS(world, {top - 63, 6});
        CHECK_REFUSED_AT(world, hvmem_free(world->heap, top, 0), HVMEM_E_FREE, top);
        WORLD_END(world);
    }
}

/* Freeing more than was counted is refused; no count passes below zero. */
TEST(B15_counts_never_wrap)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_domain *domain = world_domain(world, 1, 8, 0, NULL);
    struct hvmem_request request = expect_block(2, domain);
    hvmem_mfn mfn = 0;
    hvmem_mfn host = 0;

    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 2, &host), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_free_owned(world->heap, host, 2, domain, 0), HVMEM_E_OWNER);
    CHECK_REFUSED(world, hvmem_free_owned(world->heap, mfn, 2, NULL, 0), HVMEM_E_OWNER);
    CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
    CHECK_EQ(expect_domain(domain).pages, 0);
    CHECK_REFUSED(world, hvmem_free_owned(world->heap, mfn, 2, domain, 0), HVMEM_E_FREE);
    CHECK_EQ(expect_domain(domain).pages, 0);
    CHECK_EQ(hvmem_free(world->heap, host, 2), HVMEM_OK);
    WORLD_END(world);
}

/* 100 free frames, A claims 60. */
struct claims {
    struct world *world;
    struct hvmem_domain *a;
    struct hvmem_domain *b;
};

static struct claims claims_new(hvmem_u64 frames)
{
    struct claims claims;

    claims.world = WORLD_SIMPLE(0, frames);
    claims.a = world_domain(claims.world, 1, ~0ull, 0, NULL);
    claims.b = world_domain(claims.world, 2, ~0ull, 0, NULL);
    REQUIRE(claims.a != NULL && claims.b != NULL);
    return claims;
}

static hvmem_status take(struct world *world, struct hvmem_domain *domain, hvmem_order order)
{
    struct hvmem_request request = expect_block(order, domain);
    hvmem_mfn mfn = 0;

    return hvmem_alloc(world->heap, &request, &mfn);
}

TEST(B16_others_stop_at_the_claim)
{
    struct claims claims = claims_new(100);
    struct world *world = claims.world;
    hvmem_mfn mfn = 0;
    unsigned i;

    REQUIRE_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 60), HVMEM_OK);
    for (i = 0; i < 40; i++)
        CHECK_EQ(take(world, claims.b, 0), HVMEM_OK);
    CHECK_REFUSED(world, take(world, claims.b, 0), HVMEM_E_CLAIM);
    CHECK_REFUSED(world, hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_CLAIM);
    for (i = 0; i < 60; i++) {
        struct hvmem_stats stats;

        CHECK_EQ(expect_domain(claims.a).claimed, 60 - i);
        CHECK_EQ(take(world, claims.a, 0), HVMEM_OK);
        stats = expect_stats(world, HVMEM_NODE_ANY);
        CHECK(stats.free >= stats.claimed && stats.free - stats.claimed <= 40);
    }
    CHECK_EQ(expect_domain(claims.a).claimed, 0);
    CHECK_REFUSED(world, take(world, claims.a, 0), HVMEM_E_NOMEM);
    WORLD_END(world);
}

/* Two of its own claim and two unclaimed make an order-2 block; one less does not. */
TEST(B16_claim_used_in_part)
{
    unsigned claimed;

    for (claimed = 0; claimed <= 6; claimed++) {
        struct claims claims = claims_new(4);
        struct world *world = claims.world;
        unsigned mine = claimed <= 4 ? claimed : 0;
        unsigned others = claimed == 5 ? 1 : claimed == 6 ? 4 : 0;

        REQUIRE_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, mine), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_claim(claims.b, HVMEM_NODE_ANY, others), HVMEM_OK);
        if (others != 0) {
            CHECK_REFUSED(world, take(world, claims.a, 2), HVMEM_E_CLAIM);
        } else {
            CHECK_EQ(take(world, claims.a, 2), HVMEM_OK);
            CHECK_EQ(expect_domain(claims.a).claimed, 0);
            CHECK_EQ(expect_domain(claims.a).pages, 4);
        }
        WORLD_END(world);
    }
}

TEST(B16_exact_totals)
{
    struct claims claims = claims_new(100);
    struct world *world = claims.world;

    CHECK_REFUSED(world, hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 101), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 60), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 60);
    CHECK_REFUSED(world, hvmem_domain_claim(claims.b, HVMEM_NODE_ANY, 41), HVMEM_E_NOMEM);
    /* Twice: replaces, also upwards to all that is left. */
    CHECK_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 70), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 70);
    CHECK_REFUSED(world, hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 101), HVMEM_E_NOMEM);
    CHECK_EQ(expect_domain(claims.a).claimed, 70);
    CHECK_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 5), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(claims.a, 0, 10), HVMEM_OK);
    CHECK_EQ(expect_domain(claims.a).claimed, 15);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 15);
    CHECK_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 0), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(claims.a, 0, 0), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 0);
    WORLD_END(world);
}

TEST(B16_dying_domain_gives_its_claim_back)
{
    struct claims claims = claims_new(100);
    struct world *world = claims.world;
    hvmem_mfn mfn = 0;
    unsigned i;

    REQUIRE_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 60), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_claim(claims.a, 0, 30), HVMEM_OK);
    CHECK_EQ(hvmem_domain_kill(claims.a), HVMEM_OK);
    CHECK_EQ(expect_domain(claims.a).claimed, 0);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 0);
    CHECK_REFUSED(world, hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 1), HVMEM_E_DOMAIN);
    CHECK_REFUSED(world, take(world, claims.a, 0), HVMEM_E_DOMAIN);
    CHECK_EQ(world_domain_gone(world, claims.a), HVMEM_OK);
    for (i = 0; i < 100; i++)
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    WORLD_END(world);
}

/* Exact node, colour, window, run, bulk, reserve: each honours the claim or draws on it. */
TEST(B16_special_paths)
{
    struct claims claims = claims_new(64);
    struct world *world = claims.world;
    struct hvmem_request request[5];
    hvmem_mfn frames[64];
    hvmem_u32 got = 9;
    unsigned i;

    REQUIRE_EQ(hvmem_domain_claim(claims.a, HVMEM_NODE_ANY, 64), HVMEM_OK);
    for (i = 0; i < 5; i++)
        request[i] = expect_block(0, claims.b);
    request[0].flags = HVMEM_REQ_EXACT_NODE;
    request[0].node = 0;
    request[1].colour_mask = 1;
    request[1].colour = 1;
    request[2].hi = 10;
    request[3].count = 3;
    request[4].flags = HVMEM_REQ_NO_CLAIM;
    for (i = 0; i < 5; i++) {
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request[i], frames), HVMEM_E_CLAIM);
        request[i].domain = NULL;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request[i], frames), HVMEM_E_CLAIM);
    }
    CHECK_EQ(hvmem_alloc_bulk(world->heap, &request[0], frames, 8, &got), HVMEM_E_CLAIM);
    CHECK_EQ(got, 0);
    /* The claim's owner itself, if it asks not to draw on it. */
    request[4].domain = claims.a;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request[4], frames), HVMEM_E_CLAIM);
    for (i = 0; i < 4; i++) {
        request[i].domain = claims.a;
        CHECK_EQ(hvmem_alloc(world->heap, &request[i], frames), HVMEM_OK);
    }
    CHECK_EQ(expect_domain(claims.a).claimed, 64 - 6);
    CHECK_EQ(hvmem_alloc_bulk(world->heap, &request[0], frames, 58, &got), HVMEM_OK);
    CHECK_EQ(expect_domain(claims.a).claimed, 0);
    CHECK_EQ(expect_domain(claims.a).pages, 64);
    WORLD_END(world);
}

TEST(B17_reserve_is_all_or_nothing)
{
    struct world *world = WORLD_SIMPLE(64, 64);
    struct hvmem_heap *heap = world->heap;
    hvmem_mfn taken;
    hvmem_mfn mfn;
    hvmem_u64 count;

    for (taken = 100; taken < 108; taken++) {
        REQUIRE_EQ(hvmem_reserve(heap, taken, 1), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_reserve(heap, 100, 8), HVMEM_E_BUSY);
        CHECK_EQ(hvmem_free_run(heap, taken, 1), HVMEM_OK);
    }
    CHECK_REFUSED(world, hvmem_reserve(heap, 0, 8), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_reserve(heap, 60, 8), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_reserve(heap, 124, 8), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_reserve(heap, ~0ull - 2, 8), HVMEM_E_RANGE);
    for (mfn = 64; mfn < 128; mfn += 7)
        for (count = 1; mfn + count <= 128; count += 5) {
            REQUIRE_EQ(hvmem_reserve(heap, mfn, count), HVMEM_OK);
            CHECK_EQ(hvmem_free_frames(heap), 64 - count);
            CHECK_AUDIT(world);
            CHECK_REFUSED(world, hvmem_reserve(heap, 64, 64), HVMEM_E_BUSY);
            CHECK_EQ(hvmem_free_run(heap, mfn, count), HVMEM_OK);
            CHECK_FREE_BLOCKS(world, {64, 6});
        }
    WORLD_END(world);
}

/* Fewer frames left than one refill of a per-CPU cache takes. */
TEST(B17_refill_with_little_left)
{
    hvmem_u64 frames;

    for (frames = 1; frames <= 40; frames++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn got[41];
        hvmem_mfn mfn = 0;
        size_t count;
        size_t i;
        size_t k;

        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 2;
        world = WORLD_NEW(&config, 0);
        REQUIRE_EQ(world_bank(world, 3, frames, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        for (count = 0; hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK && count < 41;) {
            CHECK(mfn >= 3 && mfn - 3 < frames);
            for (k = 0; k < count; k++)
                CHECK(got[k] != mfn);
            got[count++] = mfn;
            CHECK_EQ(hvmem_free_frames(world->heap), frames - count);
            CHECK_AUDIT(world);
            world_set_cpu(count % 2);
        }
        CHECK_EQ(count, frames);
        for (i = 0; i < count; i++)
            CHECK_EQ(hvmem_free(world->heap, got[i], 0), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(world->heap), frames);
        WORLD_END(world);
    }
}
