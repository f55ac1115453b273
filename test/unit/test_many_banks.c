/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Arenas of many banks: searches that take several holds of the arena's lock to pass them all, and what others
 * may do between two holds.
 */
#include "expect.h"
#include "other.h"
#include "heap.h"

#include <string.h>

#define ORDER 12u
#define BANKS 40u
#define EVERY 64u /* frames from one bank to the next; one less in each */

static struct world *world_of_banks(hvmem_u32 flags)
{
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    config.max_order = config.arena_order = ORDER;
    config.max_banks = BANKS + 1;
    config.flags = flags;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
    for (i = 0; i < BANKS; i++)
        REQUIRE_EQ(world_bank(world, (hvmem_mfn)i * EVERY, EVERY - 1, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

/* To the last frame, whatever bank it is in, with and without caches; and all of it back. */
TEST(many_banks_to_the_last_frame)
{
    static hvmem_mfn frames[BANKS * EVERY];
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct world *world = world_of_banks(caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE);
        hvmem_u32 order;
        hvmem_mfn mfn;
        size_t i, n;

        for (order = 0; order < 6; order++) {
            REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
            CHECK_EQ(mfn >> order << order, mfn);
            REQUIRE_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK);
        }
        n = expect_take_all(world, frames, BANKS * EVERY);
        CHECK_EQ(n, BANKS * (EVERY - 1));
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
        CHECK_AUDIT(world);
        for (i = 0; i < n; i++)
            REQUIRE_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(world->heap), BANKS * (EVERY - 1));
        WORLD_END(world);
    }
}

/* The smallest block of all banks is taken, of those of one order the one in the first bank. */
TEST(smallest_of_many_banks)
{
    struct world *world = world_of_banks(HVMEM_CONFIG_NO_CPU_CACHE);
    unsigned i;
    hvmem_mfn mfn;

    for (i = 0; i < BANKS; i++)
        REQUIRE_EQ(hvmem_reserve(world->heap, (hvmem_mfn)i * EVERY, EVERY - 1), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, 3 * EVERY, 16), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, 30 * EVERY, 4), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, 35 * EVERY, 4), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, 39 * EVERY, 8), HVMEM_OK);
    for (i = 0; i < 4; i++) {
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, 30 * EVERY + i);
    }
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 2, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 35 * EVERY);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 2, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 39 * EVERY);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 4, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 3 * EVERY);
    CHECK_AUDIT(world);
    WORLD_END(world);
}

static int count_holds(const char *name, void *context)
{
    unsigned *holds = context;

    *holds += strcmp(name, "take_again") == 0 || strcmp(name, "refill_again") == 0;
    return 0;
}

/* A node knows that its banks are used up, however many: who asks again does not look at them. */
TEST(many_banks_used_up_are_known, points)
{
    static hvmem_mfn frames[BANKS * EVERY];
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct world *world = world_of_banks(caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE);
        size_t n = expect_take_all(world, frames, BANKS * EVERY);
        unsigned holds = 0;
        hvmem_mfn mfn;

        REQUIRE_EQ(n, BANKS * (EVERY - 1));
        CHECK_EQ(world->heap->node[0].may[0], 0);
        test_set_point_hook(count_holds, &holds);
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_E_NOMEM);
        CHECK_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_E_NOMEM);
        CHECK_EQ(holds, 0);
        test_set_point_hook(NULL, NULL);
        while (n)
            REQUIRE_EQ(hvmem_free(world->heap, frames[--n], 0), HVMEM_OK);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(hvmem_alloc_order(world->heap, 5, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_alloc_order(world->heap, 6, &mfn), HVMEM_E_NOMEM);
        CHECK_EQ(world->heap->node[0].may[6], 0);
        CHECK(world->heap->node[0].may[5] != 0);
        WORLD_END(world);
    }
}

static void free_behind(struct other *other)
{
    other->status = other->frames ? hvmem_free_run(other->world->heap, other->mfn, other->frames)
                                  : hvmem_free(other->world->heap, other->mfn, 3);
}

/*
 * What comes to a bank that the search has passed is not forgotten: a part of a reserved range, or (frames 0) a
 * block of order 3 that was allocated. Whether it came while the search was under way.
 */
static int freed_behind(unsigned turn, uint64_t frames)
{
    struct world *world = world_of_banks(HVMEM_CONFIG_NO_CPU_CACHE);
    hvmem_mfn mfn = 0, behind = turn % 2 * 5 * EVERY;
    struct other other;
    unsigned i, first = 0;
    int came;

    if (!frames) {
        first = 1; /* the first bank's only block of order 3, with what is around it */
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &behind), HVMEM_OK);
        REQUIRE_EQ(behind, 48);
        REQUIRE_EQ(hvmem_reserve(world->heap, 0, 48), HVMEM_OK);
        REQUIRE_EQ(hvmem_reserve(world->heap, 56, EVERY - 1 - 56), HVMEM_OK);
    }
    for (i = first; i < BANKS; i++)
        REQUIRE_EQ(hvmem_reserve(world->heap, (hvmem_mfn)i * EVERY, EVERY - 1), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_run(world->heap, 20 * EVERY, 4), HVMEM_OK);
    other_waits(&other, world, "take_again", turn, free_behind);
    other.mfn = behind;
    other.frames = frames;
    if (hvmem_alloc_order(world->heap, 3, &mfn) != HVMEM_OK) {
        CHECK_AUDIT(world);
        if (other.done)
            CHECK_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_OK);
    }
    test_set_point_hook(NULL, NULL);
    came = other.done != 0;
    CHECK_AUDIT(world);
    WORLD_END(world);
    return came;
}

TEST(freed_behind_a_search_of_many_banks, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 12; turn++)
        done += (unsigned)(freed_behind(turn, 8) + freed_behind(turn, 0));
    CHECK(done > 4);
}

/* Removes a bank, or adds one. */
static void change_banks(struct other *other)
{
    other->status = other->frames ? world_remove(other->world, other->mfn, other->frames)
                                  : world_bank(other->world, other->mfn, EVERY - 1, 0, 0);
}

TEST(bank_goes_or_comes_between_two_holds, points)
{
    unsigned round, done = 0;

    for (round = 0; round < 4 * (BANKS - 1); round++) {
        struct world *world = world_of_banks(HVMEM_CONFIG_NO_CPU_CACHE);
        struct other other;
        hvmem_mfn mfn = 0;
        unsigned i;

        /* All but the last bank has nothing, and those that may go are whole. */
        for (i = 0; i < BANKS - 1; i++)
            if (i != round % (BANKS - 1))
                REQUIRE_EQ(hvmem_reserve(world->heap, (hvmem_mfn)i * EVERY, EVERY - 1), HVMEM_OK);
        other_waits(&other, world, "take_again", round / (BANKS - 1), change_banks);
        other.mfn = round % 3 ? (hvmem_mfn)(round % (BANKS - 1)) * EVERY : BANKS * EVERY;
        other.frames = round % 3 ? EVERY - 1 : 0;
        CHECK_EQ(hvmem_alloc_order(world->heap, 5, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        done += other.status == HVMEM_OK;
        CHECK_AUDIT(world);
        WORLD_END(world);
    }
    CHECK(done > 20);
}

/* Promised to another: told so, however many banks there are, and nothing is changed. */
TEST(claims_in_many_banks)
{
    struct world *world = world_of_banks(HVMEM_CONFIG_NO_CPU_CACHE);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(3, NULL);
    hvmem_mfn mfn;

    REQUIRE_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, BANKS * (EVERY - 1)), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_CLAIM);
    request.order = 6;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    request.order = 3;
    request.domain = domain;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_AUDIT(world);
    WORLD_END(world);
}
