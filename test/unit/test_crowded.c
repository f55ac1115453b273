/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Searches that take several holds of an arena's lock: heaps crowded with blocks that a request may not
 * have and with banks, and what others may do between two holds.
 */
#include "expect.h"
#include "other.h"

#include <string.h>

#define ORDER 12u
#define HALF  ((hvmem_mfn)1 << (ORDER - 1))
#define EACH  80u /* free blocks of order 0 in the lower half, no two of them neighbours */

/* One bank, the lower half crowded, the upper half in use. */
static struct world *world_crowded(void)
{
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    config.max_order = config.arena_order = ORDER;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, 2 * HALF, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(world->heap, 0, 2 * HALF), HVMEM_OK);
    for (i = 0; i < EACH; i++)
        REQUIRE_EQ(hvmem_free_run(world->heap, 2 * i, 1), HVMEM_OK);
    return world;
}

/* A request that no frame of the lower half suits. */
static struct hvmem_request upper_colour(void)
{
    struct hvmem_request request = expect_block(0, NULL);

    request.colour_shift = ORDER - 1;
    request.colour_mask = request.colour = 1;
    return request;
}

TEST(smallest_and_lowest_is_found_behind_many)
{
    struct world *world = world_crowded();
    struct hvmem_request request = upper_colour();
    hvmem_mfn mfn = 0;

    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    REQUIRE_EQ(hvmem_free_run(world->heap, HALF + 64, 64), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, HALF + 512, 4), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, HALF + 520, 4), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, HALF + 512);
    /* Of order 0 now as well, but behind more blocks than are looked at first. */
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, HALF + 514);
    CHECK_AUDIT(world);
    WORLD_END(world);
}

/* Takes frames for good. */
static void take_them(struct other *other)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;

    request.lo = other->mfn;
    request.hi = other->mfn + other->frames;
    other->status = HVMEM_OK;
    while (other->status == HVMEM_OK && other->frames-- > 0)
        other->status = hvmem_alloc(other->world->heap, &request, &mfn);
}

/* What was found goes to another before it is taken: the next is. */
TEST(found_block_goes_between_two_holds, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 40; turn++) {
        struct world *world = world_crowded();
        struct hvmem_request request = upper_colour();
        struct other other;
        hvmem_mfn mfn = 0;

        REQUIRE_EQ(hvmem_free_run(world->heap, HALF + 8, 1), HVMEM_OK);
        REQUIRE_EQ(hvmem_free_run(world->heap, HALF + 64, 1), HVMEM_OK);
        other_waits(&other, world, "take_again", turn, take_them);
        other.mfn = HALF + 8;
        other.frames = 1;
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        if (other.done) {
            CHECK_EQ(other.status, HVMEM_OK);
            CHECK_EQ(mfn, HALF + 64);
            done++;
        }
        WORLD_END(world);
    }
    CHECK(done > 10);
}

/* Takes every second frame of a block of four: what is left of it is of the lowest order. */
static void take_odd_frames(struct other *other)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;
    unsigned i;

    other->status = HVMEM_OK;
    for (i = 1; i < 4 && other->status == HVMEM_OK; i += 2) {
        request.lo = other->mfn + i;
        request.hi = request.lo + 1;
        other->status = hvmem_alloc(other->world->heap, &request, &mfn);
    }
}

/* A block that was ahead is split by another, into orders that were searched already: found all the same. */
TEST(memory_that_moves_down_is_found, points)
{
    unsigned turn, i, done = 0;

    for (turn = 0; turn < 60; turn++) {
        struct world *world = world_crowded();
        struct hvmem_request request = upper_colour();
        struct other other;
        hvmem_mfn mfn = 0;

        /* Less than would cut the search short in either order. */
        for (i = 0; i < EACH / 2; i++) {
            REQUIRE_EQ(hvmem_reserve(world->heap, 4 * i, 1), HVMEM_OK);
            REQUIRE_EQ(hvmem_free_run(world->heap, 4 * i + 512, 2), HVMEM_OK);
        }
        REQUIRE_EQ(hvmem_free_run(world->heap, HALF, 4), HVMEM_OK);
        other_waits(&other, world, "take_again", turn, take_odd_frames);
        other.mfn = HALF;
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        CHECK(mfn >= HALF && mfn < HALF + 4);
        done += other.status == HVMEM_OK;
        WORLD_END(world);
    }
    CHECK(done > 10);
}

/* ---- splits ------------------------------------------------------------------------------------ */

/* Takes single frames until there are none. */
static void take_all(struct other *other)
{
    hvmem_mfn mfn;

    while (hvmem_alloc_order(other->world->heap, 0, &mfn) == HVMEM_OK)
        other->frames++;
}

/*
 * A block is split over many borders of banks, under several holds. At any time others have at least half of
 * what it was; in the end all frames are accounted for, and promises kept.
 */
TEST(others_take_the_rest_of_a_block_that_is_split, points)
{
    unsigned turn, i, done = 0;

    for (turn = 0; turn < 12; turn++) {
        struct hvmem_config config = world_config();
        struct hvmem_request request = expect_block(turn % 3, NULL);
        struct other other;
        struct world *world;
        hvmem_mfn mfn = 0;

        config.max_order = config.arena_order = ORDER;
        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        config.lock_regime = HVMEM_LOCK_PLAIN;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        REQUIRE_EQ(world_bank(world, 0, 1, 0, 0), HVMEM_OK);
        for (i = 0; i < ORDER; i++)
            REQUIRE_EQ(world_bank(world, (hvmem_mfn)1 << i, (hvmem_u64)1 << i, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        if (turn % 2) {
            request.domain = world_domain(world, 1, ~0ull, 0, NULL);
            REQUIRE_EQ(hvmem_domain_claim(request.domain, HVMEM_NODE_ANY, 64), HVMEM_OK);
        }
        other_waits(&other, world, "take_again", turn / 3, take_all);
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(mfn, 0);
        if (other.done) {
            CHECK(other.frames >= HALF - 64);
            done++;
        }
        while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
            other.frames++;
        i = request.domain ? 64u - (1u << request.order) : 0;
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free, i);
        CHECK_EQ(other.frames + (1u << request.order) + i, 2 * HALF);
        WORLD_END(world);
    }
    CHECK(done > 4);
}

/* ---- runs -------------------------------------------------------------------------------------- */

#define RUN      509u /* frames of many blocks */
#define STRETCH  3u
#define BEHIND   (STRETCH + 1024)
#define PROMISED 600u

/* Takes a frame before the call that is in between takes it. */
static void take_frame(struct other *other)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;

    request.lo = other->mfn;
    request.hi = other->mfn + 1;
    other->status = hvmem_alloc(other->world->heap, &request, &mfn);
}

/* A run of which another takes the last frame at any time: it is given up, claims included, for the next. */
TEST(run_loses_a_part_between_two_holds, points)
{
    unsigned turn, lost = 0;

    for (turn = 0; turn < 40; turn++) {
        struct world *world = world_crowded();
        struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
        struct hvmem_request request = expect_run(RUN, 0, 0, 0);
        struct other other;
        hvmem_u64 before;
        hvmem_mfn mfn = 0;

        request.domain = domain;
        REQUIRE_EQ(hvmem_free_run(world->heap, HALF + STRETCH, RUN), HVMEM_OK);
        REQUIRE_EQ(hvmem_free_run(world->heap, HALF + BEHIND, RUN), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, PROMISED), HVMEM_OK);
        before = expect_stats(world, HVMEM_NODE_ANY).free;
        other_waits(&other, world, "run_again", turn, take_frame);
        other.mfn = HALF + STRETCH + RUN - 1;
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(mfn, other.status == HVMEM_OK ? HALF + BEHIND : HALF + STRETCH);
        lost += other.status == HVMEM_OK;
        CHECK_EQ(expect_domain(domain).claimed, PROMISED - RUN);
        CHECK_EQ(expect_domain(domain).pages, RUN);
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free,
                 before - RUN - (other.status == HVMEM_OK));
        /* Promises are kept to the frame: that many are left to others, no more. */
        request.domain = NULL;
        request.count = 0;
        while (hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK)
            continue;
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free, PROMISED - RUN);
        WORLD_END(world);
    }
    CHECK(lost > 0);
}
