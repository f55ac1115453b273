/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What frames owe that wait for their first touch, stretch by stretch: wherever one begins, in a bank, in a
 * hole, in free memory, and whatever it crosses, the answer is true of each of its frames.
 */
#include "expect.h"

#include "lib/touched.h"

enum { SPACE = 512, DOMAIN = 2 };

/* Banks that touch, with holes between others, none at either end. */
static void add_banks(struct world *world, struct test_rng *rng)
{
    hvmem_mfn at = 3 + test_below(rng, 40);
    hvmem_node node = 0;

    while (at + 40 < SPACE) {
        hvmem_u64 frames = 16 + test_below(rng, SPACE - 20 - at < 120 ? SPACE - 20 - at : 120);

        if (at + frames > SPACE - 3)
            break;
        CHECK_EQ(world_bank(world, at, frames, node, 0), HVMEM_OK);
        at += frames + (test_below(rng, 2) ? 0 : test_below(rng, 30));
        node ^= (hvmem_node)test_below(rng, 2);
    }
}

/* All memory in blocks of every order; some of it freed, got again with its debts, freed by another. */
static void use_memory(struct world *world, struct hvmem_domain *domain, struct test_rng *rng)
{
    struct hvmem_domain *owners[2] = {NULL, domain};
    hvmem_mfn mfn[SPACE];
    unsigned round, n, i;

    for (round = 0; round < 3; round++) {
        for (n = 0; n < SPACE; n++) {
            struct hvmem_request request =
                expect_block(test_below(rng, 5), owners[test_below(rng, 2)]);

            request.flags = request.domain != NULL ? HVMEM_REQ_DEFER_ALL : 0;
            if (hvmem_alloc(world->heap, &request, &mfn[n]) != HVMEM_OK)
                break;
        }
        for (i = 0; i < n; i++)
            if (round < 2 || test_below(rng, 3) == 0)
                CHECK_EQ(hvmem_free(world->heap, mfn[i], HVMEM_ORDER_ANY), HVMEM_OK);
    }
}

static hvmem_u32 debts_of(struct world *world, hvmem_mfn mfn)
{
    hvmem_u64 one = 1;
    hvmem_u32 owed = hvmem__touch_debts(world->heap, mfn, &one);

    CHECK_EQ(one, 1);
    return owed;
}

static void check_stretch(struct world *world, const hvmem_u32 *owed, hvmem_mfn mfn,
                          hvmem_u64 asked)
{
    struct hvmem_block first, block;
    hvmem_u64 frames = asked, i;
    hvmem_u32 got = hvmem__touch_debts(world->heap, mfn, &frames);
    int in_block = hvmem_lookup(world->heap, mfn, &first) == HVMEM_OK;

    CHECK(frames >= 1 && frames <= asked);
    for (i = 0; i < frames; i++) {
        CHECK_EQ(got, owed[mfn + i]);
        if (got != 0)
            CHECK(in_block && hvmem_lookup(world->heap, mfn + i, &block) == HVMEM_OK &&
                  block.mfn == first.mfn);
    }
}

TEST(debts_are_those_of_every_frame)
{
    struct test_rng rng = test_rng(1);
    unsigned round;

    for (round = 0; round < 60; round++) {
        struct hvmem_config config = world_config();
        hvmem_u32 owed[2 * SPACE], all = 0;
        struct hvmem_domain *domain;
        struct world *world;
        hvmem_mfn mfn;
        unsigned i;

        config.owed_on_free = HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        world_track(world, 0, SPACE);
        add_banks(world, &rng);
        domain = world_domain(world, DOMAIN, ~0ull, 0, NULL);
        use_memory(world, domain, &rng);
        for (mfn = 0; mfn < SPACE; mfn++)
            all |= owed[mfn] = debts_of(world, mfn);
        for (; mfn < 2 * SPACE; mfn++)
            owed[mfn] = 0;
        CHECK(all & HVMEM_OWES_SCRUB);
        for (i = 0; i < 4000; i++)
            check_stretch(world, owed, test_below(&rng, SPACE), 1 + test_below(&rng, SPACE));
        CHECK_TORN_DOWN(world, domain);
        WORLD_END(world);
    }
}

/* A bank that went, and the top of the address space. */
TEST(debts_where_no_bank_is)
{
    const hvmem_mfn top = (hvmem_mfn)1 << (HVMEM_MADDR_BITS - 12);
    struct world *world = WORLD_SIMPLE(64, 64);
    hvmem_u64 frames = 200;

    CHECK_EQ(hvmem__touch_debts(world->heap, 0, &frames), 0);
    CHECK_EQ(frames, 64);
    CHECK_EQ(world_remove(world, 64, 64), HVMEM_OK);
    frames = 200;
    CHECK_EQ(hvmem__touch_debts(world->heap, 0, &frames), 0);
    CHECK_EQ(frames, 200);
    frames = 8;
    CHECK_EQ(hvmem__touch_debts(world->heap, top - 8, &frames), 0);
    CHECK_EQ(frames, 8);
    WORLD_END(world);
}
