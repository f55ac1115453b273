/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames out of service: free, cached, in use, inside blocks; back again; never handed out meanwhile. */
#include "expect.h"
#include "shadow.h"
#include "test/support/test_tables.h"

#include <string.h>

static struct shadow *bank_of_64(hvmem_u32 regime, hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.max_order = 6;
    config.flags = flags;
    config.lock_regime = regime;
    config.max_cpus = 2;
    shadow = shadow_new(WORLD_NEW(&config, WORLD_BROADCAST), 0, 64);
    shadow_bank(shadow, 0, 64, 0, 0);
    if (regime != HVMEM_LOCK_CALLER)
        CHECK_EQ(world_smp(shadow->world), HVMEM_OK);
    shadow_domain_new(shadow, 1, ~0ull, 0);
    return shadow;
}

/* Each frame of a free heap alone. */
TEST(each_free_frame)
{
    hvmem_mfn mfn;

    for (mfn = 0; mfn < 64; mfn++) {
        struct shadow *shadow = bank_of_64(HVMEM_LOCK_CALLER, HVMEM_CONFIG_NO_CPU_CACHE);
        struct hvmem_request request = expect_block(0, NULL);
        hvmem_mfn got = 0;
        unsigned count = 0;

        CHECK_EQ(shadow_offline(shadow, mfn), HVMEM_OK);
        CHECK_EQ(shadow_offline(shadow, mfn), HVMEM_E_OFFLINE);
        shadow_check(shadow);
        CHECK_EQ(expect_stats(shadow->world, 0).offline, 1);
        while (shadow_alloc(shadow, &request, &got) == HVMEM_OK) {
            CHECK(got != mfn);
            count++;
        }
        CHECK_EQ(count, 63);
        CHECK_EQ(shadow_free(shadow, mfn, 0), HVMEM_E_OFFLINE);
        CHECK_EQ(shadow_online(shadow, mfn), HVMEM_OK);
        CHECK_EQ(shadow_alloc(shadow, &request, &got), HVMEM_OK);
        CHECK_EQ(got, mfn);
        CHECK_EQ(shadow_free_run(shadow, 0, 64), HVMEM_OK);
        CHECK_FREE_BLOCKS(shadow->world, {0, 6});
        SHADOW_END(shadow);
    }
}

/* In use, at each place of blocks of each order: the free takes that frame out and no other. */
TEST(each_frame_in_use)
{
    hvmem_u32 order;
    hvmem_mfn at;

    for (order = 0; order <= 4; order++)
        for (at = 0; at < 1u << order; at++) {
            struct shadow *shadow = bank_of_64(HVMEM_LOCK_CALLER, HVMEM_CONFIG_NO_CPU_CACHE);
            struct world *world = shadow->world;
            struct hvmem_request request = expect_block(order, shadow->domain[1].handle);
            uint64_t events;
            hvmem_mfn mfn = 0;

            CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
            CHECK_EQ(shadow_offline(shadow, mfn + at), HVMEM_AGAIN);
            shadow_check(shadow);
            CHECK_EQ(shadow_offline(shadow, mfn + at), HVMEM_E_OFFLINE);
            CHECK_EQ(expect_stats(world, 0).offline, 0);
            events = world->counts.events;
            /* Taken back before it was freed: nothing happens. */
            CHECK_EQ(shadow_online(shadow, mfn + at), HVMEM_OK);
            shadow_check(shadow);
            CHECK_EQ(shadow_offline(shadow, mfn + at), HVMEM_AGAIN);
            CHECK_EQ(shadow_free_run(shadow, mfn, 1ull << order), HVMEM_OK);
            shadow_check(shadow);
            CHECK_EQ(expect_stats(world, 0).offline, 1);
            CHECK_EQ(world->counts.events, events + 1);
            CHECK_EQ(world->events[events % WORLD_MAX_EVENTS].event, HVMEM_EVENT_OFFLINED);
            CHECK_EQ(world->events[events % WORLD_MAX_EVENTS].a, mfn + at);
            CHECK_EQ(expect_domain(shadow->domain[1].handle).pages, 0);
            CHECK_EQ(shadow_online(shadow, mfn + at), HVMEM_OK);
            CHECK_FREE_BLOCKS(world, {0, 6});
            SHADOW_END(shadow);
        }
}

/* The owner frees the block as it got it: by its first frame and order. */
TEST(whole_block_freed_with_a_bad_frame)
{
    hvmem_mfn at;

    for (at = 0; at < 8; at++) {
        struct shadow *shadow = bank_of_64(HVMEM_LOCK_CALLER, HVMEM_CONFIG_NO_CPU_CACHE);
        struct hvmem_request request = expect_block(3, NULL);
        hvmem_mfn mfn = 0;

        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_offline(shadow, mfn + at), HVMEM_AGAIN);
        CHECK_EQ(hvmem_free(shadow->world->heap, mfn, 3), HVMEM_OK);
        shadow_freed(shadow, mfn, 8, 0);
        shadow_check(shadow);
        CHECK_EQ(hvmem_free_frames(shadow->world->heap), 63);
        CHECK_EQ(shadow_online(shadow, mfn + at), HVMEM_OK);
        SHADOW_END(shadow);
    }
}

/* Frames that sit in per-CPU caches are free: they go at once, whichever CPU has them. */
TEST(frames_in_caches)
{
    struct shadow *shadow = bank_of_64(HVMEM_LOCK_PLAIN, 0);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn frames[64];
    hvmem_u32 got = 0;
    hvmem_mfn mfn;
    unsigned i;

    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 64, &got), HVMEM_OK);
    for (i = 0; i < 64; i++) {
        world_set_cpu(i % 2);
        CHECK_EQ(shadow_free(shadow, frames[i], 0), HVMEM_OK);
    }
    shadow_check(shadow);
    for (mfn = 0; mfn < 64; mfn += 3) {
        world_set_cpu(mfn / 3 % 2);
        CHECK_EQ(shadow_offline(shadow, mfn), HVMEM_OK);
        shadow_check(shadow);
    }
    while (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK)
        CHECK(mfn % 3 != 0);
    CHECK_EQ(hvmem_free_frames(shadow->world->heap), 0);
    for (mfn = 0; mfn < 64; mfn += 3)
        CHECK_EQ(shadow_online(shadow, mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(shadow->world->heap), 22);
    SHADOW_END(shadow);
}

/* Freed into a cache while it is to go: it goes and is not cached. */
TEST(leaving_frame_is_not_cached)
{
    struct shadow *shadow = bank_of_64(HVMEM_LOCK_PLAIN, 0);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn = 0;
    unsigned cpu;

    for (cpu = 0; cpu < 2; cpu++) {
        world_set_cpu(0);
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_offline(shadow, mfn), HVMEM_AGAIN);
        world_set_cpu(cpu);
        CHECK_EQ(shadow_free(shadow, mfn, 0), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, mfn).state, HVMEM_BLOCK_OFFLINE);
        shadow_check(shadow);
    }
    CHECK_EQ(expect_stats(shadow->world, 0).offline, 2);
    SHADOW_END(shadow);
}

/* A bank with a frame out of service cannot be removed; after online it can. */
TEST(removal_waits_for_offline_frames)
{
    struct shadow *shadow = bank_of_64(HVMEM_LOCK_CALLER, 0);

    CHECK_EQ(shadow_offline(shadow, 33), HVMEM_OK);
    CHECK_EQ(shadow_remove(shadow, 0, 64), HVMEM_E_BUSY);
    CHECK_EQ(shadow_online(shadow, 33), HVMEM_OK);
    CHECK_EQ(shadow_remove(shadow, 0, 64), HVMEM_OK);
    SHADOW_END(shadow);
}

/* While caches are drained for the frame its bank goes, comes back, and another takes its place. */
static hvmem_status swap_banks(struct world *world, hvmem_cpu cpu)
{
    (void)cpu;
    world->barrier = NULL;
    CHECK_EQ(world_remove(world, 0, 64), HVMEM_OK);
    CHECK_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    CHECK_EQ(world_bank(world, 0x1000, 64, 0, 0), HVMEM_OK);
    return HVMEM_OK;
}

TEST(bank_goes_and_comes_meanwhile)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.max_banks = 2;
    world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    world_set_cpu(1);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    world_set_cpu(0);
    world->barrier = swap_banks;
    CHECK_EQ(hvmem_offline(world->heap, mfn), HVMEM_OK);
    CHECK(world->barrier == NULL);
    CHECK_EQ(expect_lookup(world, mfn).state, HVMEM_BLOCK_OFFLINE);
    CHECK_AUDIT(world);
    CHECK_EQ(hvmem_online(world->heap, mfn), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free, 128);
    WORLD_END(world);
}

/* ---- while debts are paid ---------------------------------------------------------------------- */

/* What another CPU does at the n-th place where the call at work holds no lock. */
static struct {
    unsigned in; /* places to go; 0: done */
    hvmem_mfn mfn;
    hvmem_status status;
} asked;

static void ask_offline(struct world *world)
{
    if (!asked.in || --asked.in)
        return;
    world->between = NULL;
    world_set_cpu(1);
    asked.status = hvmem_offline(world->heap, asked.mfn);
    world_set_cpu(0);
}

/* One block, whose frames owe everything, and its next owner. */
static struct world *one_owing_block(struct hvmem_domain **domain)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request;
    struct world *world;
    hvmem_mfn mfn = 0;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_HOST_LOCK);
    REQUIRE_EQ(world_bank(world, 16, 4, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    *domain = world_domain(world, 1, ~0ull, 0, NULL);
    REQUIRE(*domain != NULL);
    world_track(world, 16, 4);
    request = expect_block(2, *domain);
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    world_owe(world, 16, 4, config.owed_on_free);
    REQUIRE_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
    return world;
}

/* A block that is to go offline is paid for like any other: to its owner that is no mistake. */
TEST(asked_for_while_an_allocation_pays)
{
    unsigned n, waits = 0;

    for (n = 1; n < 200; n++) {
        struct hvmem_domain *domain;
        struct world *world = one_owing_block(&domain);
        struct hvmem_request request = expect_block(2, domain);
        hvmem_mfn mfn = 0;
        hvmem_status status;

        asked.in = n;
        asked.mfn = 17;
        asked.status = HVMEM_OK;
        world->between = ask_offline;
        status = hvmem_alloc(world->heap, &request, &mfn);
        world->between = NULL;
        waits += asked.status == HVMEM_AGAIN;
        /* Either it was free still, and is gone, or it waits for its new owner. */
        if (!CHECK_EQ(status, asked.status == HVMEM_OK && !asked.in ? HVMEM_E_NOMEM : HVMEM_OK))
            test_note("place %u: offline said %d", n, asked.status);
        if (status == HVMEM_OK) {
            CHECK_EQ(world_owed(world, mfn, 4), 0);
            CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
        }
        CHECK_AUDIT(world);
        WORLD_END(world);
        if (asked.in)
            break; /* no more places */
    }
    CHECK(waits > 3);
    CHECK(n < 200);
}

/* The block, its debts deferred; a frame of it is asked to go offline at the n-th place from here on. */
static hvmem_mfn deferred_and_asked(struct world *world, struct hvmem_domain *domain, unsigned n)
{
    struct hvmem_request request = expect_block(2, domain);
    hvmem_mfn mfn = 0;

    request.flags = HVMEM_REQ_DEFER_ALL;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    asked.in = n;
    asked.mfn = 17;
    world->between = ask_offline;
    return mfn;
}

TEST(asked_for_while_a_settle_or_a_start_pays)
{
    unsigned n, start;

    for (start = 0; start < 2; start++) {
        for (n = 1; n < 200; n++) {
            struct hvmem_domain *domain;
            struct world *world = one_owing_block(&domain);
            hvmem_mfn mfn = deferred_and_asked(world, domain, n);

            if (start)
                CHECK_EQ(hvmem_domain_start(domain), HVMEM_OK);
            else
                CHECK_EQ(hvmem_settle(world->heap, mfn, 4, HVMEM_OWES_ANY), HVMEM_OK);
            world->between = NULL;
            CHECK_EQ(world_owed(world, mfn, 4), 0);
            CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
            CHECK_AUDIT(world);
            WORLD_END(world);
            if (asked.in)
                break;
        }
        CHECK(n > 10 && n < 200);
    }
}

/* Nor is it to who maps the block elsewhere. */
TEST(asked_for_while_a_block_becomes_foreign)
{
    unsigned n;

    for (n = 1; n < 200; n++) {
        struct hvmem_domain *domain;
        struct world *world = one_owing_block(&domain);
        hvmem_mfn mfn = deferred_and_asked(world, domain, n);

        CHECK_EQ(hvmem_domain_foreign(domain, mfn, 2), HVMEM_OK);
        world->between = NULL;
        CHECK(expect_lookup(world, mfn).owed & HVMEM_OWES_FOREIGN);
        CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
        CHECK_AUDIT(world);
        WORLD_END(world);
        if (asked.in)
            break;
    }
    CHECK(n > 10);
}

/* So are the blocks of a populate, those too that wait for their first touch. */
TEST(asked_for_while_a_populate_pays)
{
    unsigned n, touch, waits = 0;

    for (touch = 0; touch < 2; touch++)
        for (n = 1; n < 400; n++) {
            struct hvmem_domain *domain;
            struct world *world = one_owing_block(&domain);
            struct hvmem_extent extent = {.order = 2};
            struct hvmem_populate request = {.size = sizeof request, .count = 1};
            struct hvmem_cursor cursor = {{0}};
            struct test_tables tables;
            hvmem_status status;
            hvmem_u64 done = 0;

            test_tables_init(&tables);
            REQUIRE_EQ(hvmem_domain_attach(domain, &tables.ops, &tables, NULL), HVMEM_OK);
            extent.flags = touch ? HVMEM_EXTENT_FIRST_TOUCH : 0;
            request.extents = &extent;
            request.node = HVMEM_NODE_ANY;
            request.done = &done;
            asked.in = n;
            asked.mfn = 17;
            asked.status = HVMEM_OK;
            world->between = ask_offline;
            do
                status = hvmem_domain_populate(domain, &request, &cursor);
            while (status == HVMEM_AGAIN);
            world->between = NULL;
            waits += asked.status == HVMEM_AGAIN;
            if (!CHECK_EQ(status, asked.status == HVMEM_OK && !asked.in ? HVMEM_E_NOMEM : HVMEM_OK))
                test_note("touch %u, place %u: offline said %d", touch, n, asked.status);
            CHECK_AUDIT(world);
            CHECK_TORN_DOWN(world, domain);
            CHECK(tables.broken == NULL);
            CHECK_AUDIT(world);
            WORLD_END(world);
            if (asked.in)
                break;
        }
    CHECK(waits > 6);
}
