/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scrubbing: of free memory by idle CPUs and at boot, and of blocks as they are freed: real bytes, so
 * that a secret that survives is seen.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <string.h>

#define FRAMES 512u
#define PAGE   4096u

static struct world *real_world(hvmem_u32 bank_flags, hvmem_u64 frames)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE;
    config.max_order = 9;
    world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_REAL_MEMORY);
    world_track(world, 0, frames);
    REQUIRE(world->content != NULL);
    memset(world->content, 0x5e, frames * PAGE);
    CHECK_EQ(world_bank(world, 0, frames, 0, bank_flags), HVMEM_OK);
    return world;
}

static unsigned scrub_all(struct world *world, hvmem_u64 budget)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned calls = 0;
    hvmem_status status;

    do {
        status = hvmem_scrub_step(world->heap, HVMEM_NODE_ANY, budget, &cursor);
        CHECK_AUDIT(world);
        calls++;
    } while (status == HVMEM_AGAIN && calls < 10000);
    CHECK_EQ(status, HVMEM_OK);
    return calls;
}

static int is_zero(struct world *world, hvmem_mfn mfn, hvmem_u64 frames)
{
    const unsigned char *at = world->content + mfn * PAGE;

    return at[0] == 0 && memcmp(at, at + 1, frames * PAGE - 1) == 0;
}

/* B22: at boot, in any steps; reserved modules are skipped and, freed afterwards, scrubbed before use. */
TEST(B22_boot_scrub_misses_nothing)
{
    static const hvmem_u64 budgets[] = {0, 1, 7, 100};
    unsigned i;

    for (i = 0; i < 4; i++) {
        struct world *world = real_world(HVMEM_BANK_DIRTY, FRAMES);
        hvmem_mfn mfn;

        CHECK_EQ(hvmem_reserve(world->heap, 100, 33), HVMEM_OK);
        CHECK_EQ(hvmem_reserve(world->heap, 510, 2), HVMEM_OK);
        (void)scrub_all(world, budgets[i]);
        CHECK_EQ(world->counts.zeroed, (FRAMES - 35u) * PAGE);
        CHECK(is_zero(world, 0, 100) && is_zero(world, 133, 510 - 133));
        CHECK(!is_zero(world, 100, 1) && !is_zero(world, 511, 1));
        CHECK_EQ(hvmem_free_run(world->heap, 100, 33), HVMEM_OK);
        CHECK_EQ(hvmem_free_run(world->heap, 510, 2), HVMEM_OK);
        while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
            CHECK(is_zero(world, mfn, 1));
        CHECK_EQ(world->counts.zeroed, FRAMES * PAGE);
        WORLD_END(world);
    }
}

/* B22: banks that do not touch, the first not at 0, and one that comes late and below all others. */
TEST(B22_every_bank)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn;

    config.max_order = 9;
    world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_REAL_MEMORY);
    world_track(world, 0x100, 0x1000);
    memset(world->content, 0x5e, 0x1000 * PAGE);
    CHECK_EQ(world_bank(world, 0x800, 0x100, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    CHECK_EQ(world_bank(world, 0xa01, 0x7f, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    (void)scrub_all(world, 5);
    CHECK_EQ(world_bank(world, 0x100, 0x80, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    (void)scrub_all(world, 5);
    CHECK_EQ(world->counts.zeroed, (0x100 + 0x7f + 0x80) * (uint64_t)PAGE);
    while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
        CHECK(is_zero(world, mfn - 0x100, 1));
    CHECK_EQ(world->counts.zeroed, (0x100 + 0x7f + 0x80) * (uint64_t)PAGE);
    WORLD_END(world);
}

/* B20: of random dirt in a large block exactly the dirty frames are zeroed, once, whatever the steps. */
TEST(B20_dirt_stays_exact)
{
    struct test_rng rng = test_rng(20);
    unsigned round;

    for (round = 0; round < 30; round++) {
        struct world *world = real_world(0, FRAMES);
        struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
        hvmem_mfn mine[FRAMES], mfn;
        unsigned n = 0, i;

        memset(world->content, 0, FRAMES * PAGE);
        for (i = 0; i < 60; i++) {
            hvmem_u64 lo = test_below(&rng, FRAMES);
            struct hvmem_request request = expect_run(1 + test_below(&rng, 4), 0, lo, 0);

            request.domain = domain;
            if (hvmem_alloc(world->heap, &request, &mine[n]) == HVMEM_OK) {
                memset(world->content + mine[n] * PAGE, 0x5e, PAGE * request.count);
                world_owe(world, mine[n], request.count, world->config.owed_on_free);
                mine[n] |= request.count << 32;
                n++;
            }
        }
        for (i = 0, mfn = 0; i < n; i++) {
            CHECK_EQ(hvmem_free_run(world->heap, mine[i] & 0xffffffffu, mine[i] >> 32), HVMEM_OK);
            mfn += mine[i] >> 32;
        }
        (void)scrub_all(world, round % 5);
        CHECK_EQ(world->counts.zeroed, mfn * PAGE);
        CHECK(is_zero(world, 0, FRAMES));
        CHECK_EQ(world->counts.flushes, 1); /* before the first zero; the others are mature then */
        CHECK_EQ(hvmem_alloc_order(world->heap, 9, &mfn), HVMEM_OK);
        CHECK_EQ(world_owed(world, 0, FRAMES), 0);
        CHECK_EQ(world->counts.flushes, 1);
        WORLD_END(world);
    }
}

/* Take the block at `lo`, write to it if it is somebody's, and say who had it. */
static void use(struct world *world, struct hvmem_domain *domain, hvmem_mfn lo, hvmem_order order)
{
    struct hvmem_request request = expect_block(order, domain);
    hvmem_u64 frames = (hvmem_u64)1 << order;
    hvmem_mfn mfn;

    request.lo = lo;
    request.hi = lo + frames;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    if (domain == NULL)
        return;
    memset(world->content + mfn * PAGE, 0x5e, frames * PAGE);
    world_owe(world, mfn, frames, world->config.owed_on_free);
}

/* B20: two halves, each clean or dirty, freed in either order, merged: what is dirty is zeroed, once. */
TEST(B20_halves_of_every_order)
{
    unsigned order, dirty, swapped, i;

    for (order = 1; order <= 9; order++)
        for (dirty = 0; dirty < 4; dirty++)
            for (swapped = 0; swapped < 2; swapped++) {
                struct world *world = real_world(0, FRAMES);
                struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
                hvmem_u64 half = 1u << (order - 1), zeroed = 0;

                memset(world->content, 0, FRAMES * PAGE);
                for (i = 0; i < 2; i++) {
                    use(world, dirty >> i & 1 ? domain : NULL, i * half, order - 1);
                    zeroed += (dirty >> i & 1) * half * PAGE;
                }
                for (i = 0; i < 2; i++)
                    CHECK_EQ(hvmem_free(world->heap, (i ^ swapped) * half, order - 1), HVMEM_OK);
                use(world, NULL, 0, order);
                CHECK(is_zero(world, 0, 2 * half));
                CHECK_EQ(world->counts.zeroed, zeroed);
                CHECK_EQ(hvmem_free(world->heap, 0, order), HVMEM_OK);
                /* Split again: clean is what was cleaned. */
                for (i = 0; i < 2; i++)
                    use(world, NULL, i * half, order - 1);
                CHECK_EQ(world->counts.zeroed, zeroed);
                CHECK_AUDIT(world);
                WORLD_END(world);
            }
}

/* B20: taken with the scrub left for later, given back unwritten: it is as dirty as it was. */
TEST(B20_given_back_unscrubbed)
{
    struct world *world = real_world(0, FRAMES);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(4, domain);
    hvmem_mfn mfn;

    use(world, domain, 0, 4);
    CHECK_EQ(hvmem_free(world->heap, 0, 4), HVMEM_OK);
    request.flags = HVMEM_REQ_DEFER_ALL;
    request.hi = 16;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(world->counts.zeroed, 0);
    CHECK(expect_lookup(world, mfn).owed & HVMEM_OWES_SCRUB);
    CHECK_EQ(hvmem_free(world->heap, mfn, 4), HVMEM_OK);
    use(world, NULL, 0, 4);
    CHECK(is_zero(world, 0, 16));
    CHECK_EQ(world->counts.zeroed, 16u * PAGE);
    CHECK_AUDIT(world);
    WORLD_END(world);
}

/* What fails leaves the block as dirty as it was, free again, and nothing is lost. */
TEST(scrub_fails_anywhere)
{
    unsigned step;
    hvmem_status status = HVMEM_E_HOST;

    for (step = 1; status != HVMEM_OK && step < 400; step++) {
        struct world *world = real_world(HVMEM_BANK_DIRTY, FRAMES);
        struct hvmem_cursor cursor = {{0}};
        hvmem_mfn mfn;

        world->fail_in = step;
        do
            status = hvmem_scrub_step(world->heap, 0, 9, &cursor);
        while (status == HVMEM_AGAIN);
        CHECK(status == HVMEM_OK || status == HVMEM_E_HOST);
        world->fail_in = 0;
        CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
        CHECK_AUDIT(world);
        while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
            CHECK(is_zero(world, mfn, 1));
        WORLD_END(world);
    }
    CHECK(step > 20);
}

/* While a block is being scrubbed nobody gets it, and others can be had; the host is heeded. */
static int busy(const char *name, void *context)
{
    struct world *world = context;
    hvmem_mfn mfn;

    if (strcmp(name, "scrub") != 0)
        return 0;
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES / 2);
    CHECK_EQ(hvmem_alloc_order(world->heap, 8, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 8), HVMEM_OK);
    return 0;
}

/* At the test point: everything that would give back or change what is being scrubbed. */
static int free_again(const char *name, void *context)
{
    struct world *world = context;
    struct hvmem_block block;
    hvmem_mfn mfn;

    if (strcmp(name, "scrub") != 0)
        return 0;
    for (mfn = 0; mfn < FRAMES; mfn++) {
        CHECK(hvmem_free_run(world->heap, mfn, 1) < 0);
        CHECK(hvmem_free(world->heap, mfn, HVMEM_ORDER_ANY) < 0);
        CHECK(hvmem_settle(world->heap, mfn, 1, HVMEM_OWES_SCRUB) < 0);
        CHECK_EQ(hvmem_lookup(world->heap, mfn, &block), HVMEM_OK);
        CHECK(block.state == HVMEM_BLOCK_FREE || block.state == HVMEM_BLOCK_CACHED);
    }
    return 0;
}

/* B03: free memory that is out to be scrubbed is free all the same. */
TEST(B03_freed_again_while_scrubbed, points)
{
    struct world *world = real_world(HVMEM_BANK_DIRTY, FRAMES);

    test_set_point_hook(free_again, world);
    (void)scrub_all(world, 100);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
    WORLD_END(world);
}

TEST(gives_way, points)
{
    struct world *world = real_world(0, FRAMES);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(8, domain);
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn;

    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    world_owe(world, mfn, 256, world->config.owed_on_free);
    CHECK_EQ(hvmem_free(world->heap, mfn, 8), HVMEM_OK);
    world->yields = 1;
    test_set_point_hook(busy, world);
    CHECK_EQ(hvmem_scrub_step(world->heap, 0, 0, &cursor), HVMEM_AGAIN);
    CHECK_EQ(world->counts.zeroed, HVMEM_CACHE_STRETCH * 64u);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
    WORLD_END(world);
}

/* Scrub on free: unreachable first, then zeroed, and the next owner finds it clean. */
TEST(scrub_on_free)
{
    struct world *world = real_world(0, FRAMES);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(6, domain);
    struct hvmem_cursor cursor = {{0}}, stale;
    hvmem_status status;
    hvmem_mfn mfn;
    unsigned calls = 0;

    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    memset(world->content + mfn * PAGE, 0x5e, 64 * PAGE);
    world_owe(world, mfn, 64, world->config.owed_on_free);
    do {
        status = hvmem_free_scrubbed(world->heap, mfn, 6, domain, 0, 5, &cursor);
        stale = cursor;
        stale.words[1]++;
        if (status == HVMEM_AGAIN)
            CHECK_EQ(hvmem_free_scrubbed(world->heap, mfn, 6, domain, 0, 5, &stale), HVMEM_E_STALE);
        calls++;
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK(calls >= 4);
    CHECK_EQ(world->counts.flushes, 1);
    CHECK_EQ(world->counts.zeroed, 64u * PAGE);
    CHECK_EQ(expect_lookup(world, mfn).owed, HVMEM_OWES_DCACHE);
    CHECK_EQ(expect_domain(domain).pages, 0);
    while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
        CHECK_EQ(world_owed(world, mfn, 1), 0);
    CHECK(is_zero(world, 0, 64) || !is_zero(world, FRAMES - 1, 1));
    CHECK_EQ(world->counts.zeroed, 64u * PAGE);
    WORLD_END(world);
}

/* Arguments, and a host that cannot. */
TEST(bad_arguments)
{
    struct world *world = real_world(0, FRAMES);
    struct hvmem_cursor cursor = {{0}}, forged = {{1, 2, 3, 4}};

    CHECK_EQ(hvmem_scrub_step(NULL, 0, 0, &cursor), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_scrub_step(world->heap, 0, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_scrub_step(world->heap, 1, 0, &cursor), HVMEM_E_NODE);
    CHECK_REFUSED(world, hvmem_scrub_step(world->heap, 64, 0, &cursor), HVMEM_E_NODE);
    CHECK_REFUSED(world, hvmem_scrub_step(world->heap, 0, 0, &forged), HVMEM_E_STALE);
    WORLD_END(world);
}
