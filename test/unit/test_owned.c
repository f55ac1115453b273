/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of domains by the short forms: the same results, counts and refusals as by the long ones, one
 * flush a rotation, and nothing of the limit lost to what is charged in advance.
 */
#include "credit.h"
#include "drain.h"
#include "expect.h"

#define FRAMES (1u << 14)

struct two {
    struct world *world;
    struct hvmem_heap *heap;
    struct hvmem_domain *domain[2];
};

static struct two two_new(hvmem_u32 owed, hvmem_u64 limit)
{
    struct hvmem_config config = world_config();
    struct two two;
    unsigned i;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.owed_on_free = owed;
    two.world = WORLD_NEW(&config, WORLD_BARRIER);
    REQUIRE_EQ(world_bank(two.world, 0, FRAMES, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(two.world), HVMEM_OK);
    world_track(two.world, 0, FRAMES);
    two.heap = two.world->heap;
    for (i = 0; i < 2; i++) {
        two.domain[i] = world_domain(two.world, i + 1, limit, 0, NULL);
        REQUIRE_EQ(hvmem_domain_start(two.domain[i]), HVMEM_OK);
    }
    return two;
}

static void two_end(struct two *two)
{
    unsigned i;

    world_set_cpu(0);
    for (i = 0; i < 2; i++) {
        CHECK_EQ(expect_domain(two->domain[i]).pages, 0);
        CHECK_EQ(hvmem_domain_kill(two->domain[i]), HVMEM_OK);
        CHECK_EQ(hvmem__credit_sum(two->heap, two->domain[i]), 0);
        CHECK_EQ(world_domain_gone(two->world, two->domain[i]), HVMEM_OK);
    }
    CHECK_EQ(hvmem_drain(two->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(two->world, 0).free, FRAMES);
    WORLD_END(two->world);
}

static void give(const struct two *two, unsigned id, hvmem_u32 order, hvmem_mfn mfn)
{
    world_owe(two->world, mfn, 1ull << order, two->world->config.owed_on_free);
    CHECK_EQ(hvmem_free_owned(two->heap, mfn, order, two->domain[id], 0), HVMEM_OK);
}

static void pairs(const struct two *two, unsigned id, hvmem_u32 order, uint64_t n)
{
    hvmem_mfn mfn;

    while (n-- > 0) {
        if (!CHECK_EQ(hvmem_alloc_owned(two->heap, two->domain[id], order, &mfn), HVMEM_OK))
            return;
        CHECK_EQ(world_owed(two->world, mfn, 1ull << order), 0);
        give(two, id, order, mfn);
    }
}

static void rotations(hvmem_u32 order, hvmem_u64 slots)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    struct hvmem_block block;
    uint64_t before;
    hvmem_mfn mfn;

    pairs(&two, 0, order, 2 * slots);
    before = expect_stats(two.world, 0).flushes;
    pairs(&two, 0, order, 5 * slots);
    CHECK_EQ(expect_stats(two.world, 0).flushes - before, 5);
    CHECK(hvmem__credit_sum(two.heap, two.domain[0]) != 0); /* the short way */
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], order, &mfn), HVMEM_OK);
    CHECK_EQ(expect_domain(two.domain[0]).pages, 1ull << order);
    block = expect_lookup(two.world, mfn);
    CHECK_EQ(block.owner, 1);
    CHECK_EQ(block.owed, 0);
    CHECK_EQ(block.order, order);
    CHECK_AUDIT(two.world);
    give(&two, 0, order, mfn);
    CHECK_EQ(expect_lookup(two.world, mfn).owed, HVMEM_OWES_TLB);
    two_end(&two);
}

TEST(one_flush_a_rotation)
{
    rotations(0, HVMEM__AGEING_SLOTS);
    rotations(9, HVMEM__AGEING_SLOTS1);
}

TEST(refusals_are_those_of_the_long_forms)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn = 0, kept;

    pairs(&two, 0, 0, 3000);
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &mfn), HVMEM_OK);
    kept = mfn;
    CHECK_EQ(hvmem_alloc_owned(NULL, two.domain[0], 0, &mfn), HVMEM_E_ARG);
    CHECK_REFUSED(two.world, hvmem_alloc_owned(two.heap, two.domain[0], 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(two.world, hvmem_alloc_owned(two.heap, two.domain[0], 11, &mfn), HVMEM_E_ORDER);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, kept, 0, two.domain[1], 0), HVMEM_E_OWNER);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, kept, 0, NULL, 0), HVMEM_E_OWNER);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, kept, 9, two.domain[0], 0),
                  HVMEM_E_WRONG_ORDER);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, FRAMES, 0, two.domain[0], 0),
                  HVMEM_E_FOREIGN);
    CHECK_EQ(mfn, kept);
    give(&two, 0, 0, kept);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, kept, 0, two.domain[0], 0), HVMEM_E_FREE);
    two_end(&two);
}

/* A limit refuses what goes beyond it and nothing else, whoever was charged in advance. */
TEST(limits_are_exact)
{
    struct two two = two_new(HVMEM_OWES_TLB, 3000);
    static hvmem_mfn mfn[3000];
    hvmem_mfn more;
    unsigned i;

    world_set_cpu(1);
    pairs(&two, 0, 0, 100);
    world_set_cpu(0);
    pairs(&two, 0, 0, 100);
    CHECK(hvmem__credit_sum(two.heap, two.domain[0]) != 0);
    for (i = 0; i < 3000; i++) {
        CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &mfn[i]), HVMEM_OK);
        CHECK_EQ(expect_domain(two.domain[0]).pages, i + 1);
    }
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &more), HVMEM_E_LIMIT);
    for (i = 0; i < 3000; i++)
        give(&two, 0, 0, mfn[i]);
    pairs(&two, 0, 0, 3000);
    CHECK_EQ(hvmem_domain_limit(two.domain[0], 1), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &mfn[0]), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &more), HVMEM_E_LIMIT);
    give(&two, 0, 0, mfn[0]);
    two_end(&two);
}

/* Another CPU frees what this one handed out, and one domain after the other is served. */
TEST(other_cpus_and_other_domains)
{
    struct two two = two_new(HVMEM_OWES_TLB | HVMEM_OWES_SCRUB, ~0ull);
    hvmem_mfn mfn[2];
    unsigned round, i;

    for (round = 0; round < 200; round++) {
        for (i = 0; i < 2; i++) {
            world_set_cpu(i);
            CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[round / 7 % 2], 0, &mfn[i]), HVMEM_OK);
            CHECK_EQ(world_owed(two.world, mfn[i], 1), 0);
        }
        CHECK_EQ(expect_domain(two.domain[round / 7 % 2]).pages, 2);
        world_set_cpu(round % 3 == 0);
        give(&two, round / 7 % 2, 0, mfn[0]);
        give(&two, round / 7 % 2, 0, mfn[1]);
    }
    two_end(&two);
}

/* A domain that dies has no credit left, and is given none; claims are used up one by one. */
TEST(dying_domains_and_claims)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn[64], other;
    unsigned i;

    pairs(&two, 0, 0, 5000);
    CHECK_EQ(hvmem_domain_claim(two.domain[0], HVMEM_NODE_ANY, 64), HVMEM_OK);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &mfn[i]), HVMEM_OK);
        CHECK_EQ(expect_domain(two.domain[0]).claimed, 63 - i);
    }
    for (i = 0; i < 63; i++)
        give(&two, 0, 0, mfn[i]);
    pairs(&two, 0, 0, 5000);
    CHECK_EQ(hvmem_domain_kill(two.domain[0]), HVMEM_OK);
    CHECK_EQ(hvmem__credit_sum(two.heap, two.domain[0]), 0);
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &other), HVMEM_E_DOMAIN);
    CHECK_EQ(expect_domain(two.domain[0]).pages, 1);
    give(&two, 0, 0, mfn[63]);
    CHECK_EQ(hvmem__credit_sum(two.heap, two.domain[0]), 0);
    two_end(&two);
}
