/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of domains by the short forms, called and inline: the same results, counts and refusals as by
 * the long ones, one flush a rotation, and nothing of the limit lost to what is charged in advance.
 */
#include "clock.h"
#include "credit.h"
#include "drain.h"
#include "expect.h"

#include <hvmem/fast.h>

#include <string.h>

#define FRAMES (1u << 14)

/* Which forms take() and put() use for single frames. */
static int inlined;
#define IN_BOTH_FORMS for (inlined = 0; inlined < 2; inlined++)

/* The CPU that acts. */
static hvmem_cpu acting;

struct two {
    struct world *world;
    struct hvmem_heap *heap;
    struct hvmem_domain *domain[2];
};

static void act(hvmem_cpu cpu)
{
    world_set_cpu(cpu);
    acting = cpu;
}

static hvmem_status take(const struct two *two, unsigned id, hvmem_u32 order, hvmem_mfn *mfn)
{
    if (!inlined || order)
        return hvmem_alloc_owned(two->heap, two->domain[id], order, mfn);
    return hvmem_alloc_page_owned(two->heap, hvmem_cpu_handle(two->heap, acting), two->domain[id],
                                  mfn);
}

static hvmem_status put(const struct two *two, unsigned id, hvmem_u32 order, hvmem_mfn mfn)
{
    if (!inlined || order)
        return hvmem_free_owned(two->heap, mfn, order, two->domain[id], 0);
    return hvmem_free_page_owned(two->heap, hvmem_cpu_handle(two->heap, acting), mfn,
                                 two->domain[id]);
}

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

    act(0);
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
    CHECK_EQ(put(two, id, order, mfn), HVMEM_OK);
}

static void pairs(const struct two *two, unsigned id, hvmem_u32 order, uint64_t n)
{
    hvmem_mfn mfn;

    while (n-- > 0) {
        if (!CHECK_EQ(take(two, id, order, &mfn), HVMEM_OK))
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
    CHECK_EQ(take(&two, 0, order, &mfn), HVMEM_OK);
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
    IN_BOTH_FORMS
    rotations(0, HVMEM__AGEING_SLOTS);
    rotations(9, HVMEM__AGEING_SLOTS1);
}

static void refusals(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn = 0, kept;

    pairs(&two, 0, 0, 3000);
    CHECK_EQ(take(&two, 0, 0, &mfn), HVMEM_OK);
    kept = mfn;
    CHECK_EQ(hvmem_alloc_owned(NULL, two.domain[0], 0, &mfn), HVMEM_E_ARG);
    CHECK_REFUSED(two.world, hvmem_alloc_owned(two.heap, two.domain[0], 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(two.world, take(&two, 0, 11, &mfn), HVMEM_E_ORDER);
    CHECK_REFUSED(two.world, put(&two, 1, 0, kept), HVMEM_E_OWNER);
    CHECK_REFUSED(two.world, hvmem_free_owned(two.heap, kept, 0, NULL, 0), HVMEM_E_OWNER);
    CHECK_REFUSED(two.world, put(&two, 0, 9, kept), HVMEM_E_WRONG_ORDER);
    CHECK_REFUSED(two.world, put(&two, 0, 0, FRAMES), HVMEM_E_FOREIGN);
    CHECK_EQ(mfn, kept);
    give(&two, 0, 0, kept);
    CHECK_REFUSED(two.world, put(&two, 0, 0, kept), HVMEM_E_FREE);
    two_end(&two);
}

TEST(refusals_are_those_of_the_long_forms)
{
    IN_BOTH_FORMS
    refusals();
}

/* A limit refuses what goes beyond it and nothing else, whoever was charged in advance. */
static void limit(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, 3000);
    static hvmem_mfn mfn[3000];
    hvmem_mfn more;
    unsigned i;

    act(1);
    pairs(&two, 0, 0, 100);
    act(0);
    pairs(&two, 0, 0, 100);
    CHECK(hvmem__credit_sum(two.heap, two.domain[0]) != 0);
    for (i = 0; i < 3000; i++) {
        CHECK_EQ(take(&two, 0, 0, &mfn[i]), HVMEM_OK);
        CHECK_EQ(expect_domain(two.domain[0]).pages, i + 1);
    }
    CHECK_EQ(take(&two, 0, 0, &more), HVMEM_E_LIMIT);
    for (i = 0; i < 3000; i++)
        give(&two, 0, 0, mfn[i]);
    pairs(&two, 0, 0, 3000);
    CHECK_EQ(hvmem_domain_limit(two.domain[0], 1), HVMEM_OK);
    CHECK_EQ(take(&two, 0, 0, &mfn[0]), HVMEM_OK);
    CHECK_EQ(take(&two, 0, 0, &more), HVMEM_E_LIMIT);
    give(&two, 0, 0, mfn[0]);
    two_end(&two);
}

TEST(limits_are_exact)
{
    IN_BOTH_FORMS
    limit();
}

/* Another CPU frees what this one handed out, and one domain after the other is served. */
static void others(void)
{
    struct two two = two_new(HVMEM_OWES_TLB | HVMEM_OWES_SCRUB, ~0ull);
    hvmem_mfn mfn[2];
    unsigned round, i;

    for (round = 0; round < 200; round++) {
        for (i = 0; i < 2; i++) {
            act(i);
            CHECK_EQ(take(&two, round / 7 % 2, 0, &mfn[i]), HVMEM_OK);
            CHECK_EQ(world_owed(two.world, mfn[i], 1), 0);
        }
        CHECK_EQ(expect_domain(two.domain[round / 7 % 2]).pages, 2);
        act(round % 3 == 0);
        give(&two, round / 7 % 2, 0, mfn[0]);
        give(&two, round / 7 % 2, 0, mfn[1]);
    }
    two_end(&two);
}

TEST(other_cpus_and_other_domains)
{
    IN_BOTH_FORMS
    others();
}

/* A domain that dies has no credit left, and is given none; claims are used up one by one. */
static void dying(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn[64], other;
    unsigned i;

    pairs(&two, 0, 0, 5000);
    CHECK_EQ(hvmem_domain_claim(two.domain[0], HVMEM_NODE_ANY, 64), HVMEM_OK);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(take(&two, 0, 0, &mfn[i]), HVMEM_OK);
        CHECK_EQ(expect_domain(two.domain[0]).claimed, 63 - i);
    }
    for (i = 0; i < 63; i++)
        give(&two, 0, 0, mfn[i]);
    pairs(&two, 0, 0, 5000);
    CHECK_EQ(hvmem_domain_kill(two.domain[0]), HVMEM_OK);
    CHECK_EQ(hvmem__credit_sum(two.heap, two.domain[0]), 0);
    CHECK_EQ(take(&two, 0, 0, &other), HVMEM_E_DOMAIN);
    CHECK_EQ(expect_domain(two.domain[0]).pages, 1);
    give(&two, 0, 0, mfn[63]);
    CHECK_EQ(hvmem__credit_sum(two.heap, two.domain[0]), 0);
    two_end(&two);
}

TEST(dying_domains_and_claims)
{
    IN_BOTH_FORMS
    dying();
}

/* ---- what the short way must not miss ---------------------------------------------------------- */

static hvmem__record record_of(const struct two *two, hvmem_mfn mfn)
{
    return hvmem__load(hvmem__record_at(hvmem__bank_of(two->heap, mfn), mfn));
}

/* A record that looks like a frame in the domain's hands where no block starts. */
static void garbage(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    struct hvmem_cpu_cache *cpu = hvmem_cpu_handle(two.heap, 0);
    hvmem_mfn block;

    pairs(&two, 0, 0, 100);
    REQUIRE_EQ(hvmem_alloc_order(two.heap, 6, &block), HVMEM_OK);
    REQUIRE(block - cpu->base < cpu->frames);
    cpu->record[block + 5 - cpu->base] = cpu->queue[0].given;
    CHECK_REFUSED(two.world, put(&two, 0, 0, block + 5), HVMEM_E_INTERIOR);
    CHECK_EQ(hvmem_free(two.heap, block, 6), HVMEM_OK);
    cpu->record[block + 5 - cpu->base] = cpu->queue[0].given;
    CHECK_REFUSED(two.world, put(&two, 0, 0, block + 5), HVMEM_E_FREE);
    two_end(&two);
}

TEST(garbage_records_do_not_count)
{
    IN_BOTH_FORMS
    garbage();
}

/* A block is stamped with the clock of its own free, whatever was freed before. */
static void stamps(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    struct hvmem_flush_token token;
    hvmem_mfn mfn;
    unsigned i;

    pairs(&two, 0, 0, 3000);
    for (i = 0; i < 50; i++) {
        CHECK_EQ(take(&two, 0, 0, &mfn), HVMEM_OK);
        if (i % 3 == 0) { /* CPU 1 flushes by itself */
            act(1);
            CHECK_EQ(hvmem_flush_begin(two.heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
            CHECK_EQ(hvmem_flush_end(two.heap, &token), HVMEM_OK);
            act(0);
        }
        give(&two, 0, 0, mfn);
        CHECK_EQ(hvmem__rec_stamp(record_of(&two, mfn)), hvmem__stamp_encode(two.heap->clock.now));
        CHECK_EQ(two.heap->clock.stamped, two.heap->clock.now);
    }
    two_end(&two);
}

TEST(each_free_has_its_own_stamp)
{
    IN_BOTH_FORMS
    stamps();
}

/* What the domain comes to owe as a whole while this CPU works for it, its freed frames owe too. */
static void whole(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn[2];

    pairs(&two, 0, 0, 3000);
    CHECK_EQ(take(&two, 0, 0, &mfn[0]), HVMEM_OK);
    CHECK_EQ(take(&two, 0, 0, &mfn[1]), HVMEM_OK);
    hvmem__domain_owe(two.domain[0], HVMEM_OWES_ICACHE);
    give(&two, 0, 0, mfn[0]);
    CHECK_EQ(expect_lookup(two.world, mfn[0]).owed, HVMEM_OWES_TLB | HVMEM_OWES_ICACHE);
    hvmem__store(&two.domain[0]->owes, 0);
    give(&two, 0, 0, mfn[1]);
    CHECK_EQ(expect_lookup(two.world, mfn[1]).owed, HVMEM_OWES_TLB);
    two_end(&two);
}

TEST(debts_of_the_domain_as_a_whole)
{
    IN_BOTH_FORMS
    whole();
}

/* Claims are used up by what goes out of a cache, too. */
static void claims(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn;
    unsigned i;

    CHECK_EQ(hvmem_domain_claim(two.domain[0], HVMEM_NODE_ANY, 6000), HVMEM_OK);
    for (i = 0; i < 5000; i++) {
        CHECK_EQ(take(&two, 0, 0, &mfn), HVMEM_OK);
        CHECK_EQ(expect_domain(two.domain[0]).claimed, 5999 - i);
        give(&two, 0, 0, mfn);
    }
    two_end(&two);
}

TEST(claims_are_used_up_by_cached_frames)
{
    IN_BOTH_FORMS
    claims();
}

/* Frees bring credit in; it does not grow without bound. */
static void credit(void)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_u64 *frames = &two.heap->pcpu[0].fast.credit;
    hvmem_mfn mfn[300];
    unsigned i;

    pairs(&two, 0, 0, 3ull * HVMEM__AGEING_SLOTS + 10);
    for (i = 0; i < 300; i++)
        CHECK_EQ(take(&two, 0, 0, &mfn[i]), HVMEM_OK);
    REQUIRE(*frames < HVMEM_FAST_CREDIT / 2);
    REQUIRE_EQ(hvmem__domain_charge(two.domain[0], HVMEM_FAST_CREDIT - 100 - *frames), HVMEM_OK);
    *frames = HVMEM_FAST_CREDIT - 100;
    for (i = 0; i < 300; i++) {
        give(&two, 0, 0, mfn[i]);
        CHECK(*frames <= HVMEM_FAST_CREDIT);
    }
    CHECK(*frames < HVMEM_FAST_CREDIT / 2);
    two_end(&two);
}

TEST(credit_is_bounded)
{
    IN_BOTH_FORMS
    credit();
}

/* The domain is killed by another CPU while this one gets its credit: it is given back. */
static int kill_it(const char *name, void *context)
{
    struct two *two = context;

    if (strcmp(name, "credit_open") != 0)
        return 0;
    test_set_point_hook(NULL, NULL);
    act(1);
    CHECK_EQ(hvmem_domain_kill(two->domain[0]), HVMEM_OK);
    act(0);
    return 0;
}

TEST(killed_while_given_credit, points)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn = 0;

    test_set_point_hook(kill_it, &two);
    CHECK_EQ(hvmem_alloc_owned(two.heap, two.domain[0], 0, &mfn), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(expect_domain(two.domain[0]).state, HVMEM_DOMAIN_DYING);
    CHECK_EQ(hvmem_free(two.heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(world_domain_gone(two.world, two.domain[0]), HVMEM_OK);
    WORLD_END(two.world);
}

/* Its limit is lowered by another CPU while this one gets its credit: that must meet the new limit. */
static int lower_it(const char *name, void *context)
{
    struct two *two = context;

    if (strcmp(name, "credit_open") != 0)
        return 0;
    test_set_point_hook(NULL, NULL);
    act(1);
    CHECK_EQ(hvmem_domain_limit(two->domain[0], 1), HVMEM_OK);
    act(0);
    return 0;
}

TEST(limit_lowered_while_given_credit, points)
{
    struct two two = two_new(HVMEM_OWES_TLB, ~0ull);
    hvmem_mfn mfn[2] = {0, 0};

    /* A queue whose blocks are mature, without credit. */
    pairs(&two, 0, 0, 3000);
    (void)hvmem__credit_recall(two.heap, two.domain[0]);
    test_set_point_hook(lower_it, &two);
    CHECK_EQ(take(&two, 0, 0, &mfn[0]), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(expect_domain(two.domain[0]).limit, 1);
    if (!CHECK_EQ(take(&two, 0, 0, &mfn[1]), HVMEM_E_LIMIT))
        give(&two, 0, 0, mfn[1]);
    give(&two, 0, 0, mfn[0]);
    two_end(&two);
}
