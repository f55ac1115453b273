/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Magazines of the middle orders: what goes through them and what does not, how much they hold, who
 * empties them, and mistakes with blocks that lie in one.
 */
#include "expect.h"
#include "free.h"
#include "magazine.h"
#include "request.h"

#include <pthread.h>
#include <string.h>

#define FRAMES 8192u
#define BLOCKS 8u /* of the largest order, 10 */
#define MIDDLE 8u /* orders 1 to 8 */

static struct world *magazine_world(unsigned host)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.owed_on_free = 0;
    world = WORLD_NEW(&config, host | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

static hvmem_u32 held(struct world *world, hvmem_cpu cpu, hvmem_u32 order)
{
    return world->heap->pcpu[cpu].mag[order].count;
}

/* Blocks in the middle magazines of a CPU. */
static hvmem_u32 held_at_all(struct world *world, hvmem_cpu cpu)
{
    hvmem_u32 order, sum = 0;

    for (order = 1; order <= MIDDLE; order++)
        sum += held(world, cpu, order);
    return sum;
}

static void pair(struct world *world, hvmem_u32 order)
{
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK);
}

/* Both CPUs' magazines hold blocks of all middle orders. */
static void fill(struct world *world)
{
    hvmem_u32 order;
    hvmem_cpu cpu;

    for (cpu = 0; cpu < 2; cpu++) {
        world_set_cpu(cpu);
        for (order = 1; order <= MIDDLE; order++) {
            pair(world, order);
            CHECK(held(world, cpu, order) > 0);
        }
    }
    world_set_cpu(0);
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
}

/* A block goes into the magazine, counts as free and cached, and is the next that comes out. */
TEST(last_in_first_out)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        hvmem_mfn first = 0, second = 0;
        hvmem_u64 cached;

        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &first), HVMEM_OK);
        CHECK_EQ(expect_lookup(world, first).state, HVMEM_BLOCK_ALLOCATED);
        CHECK_EQ(expect_lookup(world, first).order, order);
        CHECK_EQ(hvmem_free_frames(world->heap), FRAMES - (1ull << order));
        cached = expect_stats(world, 0).cached;
        CHECK_EQ(hvmem_free(world->heap, first, order), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).cached, cached + (1ull << order));
        CHECK_EQ(expect_lookup(world, first).state, HVMEM_BLOCK_CACHED);
        CHECK_EQ(hvmem_free_frames(world->heap), FRAMES);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &second), HVMEM_OK);
        CHECK_EQ(second, first);
        CHECK_AUDIT(world);
        CHECK_EQ(hvmem_free(world->heap, second, order), HVMEM_OK);
    }
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    WORLD_END(world);
}

/* However many are freed, one by one or by turns of two CPUs. */
TEST(they_hold_no_more_than_their_slots)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    static hvmem_mfn blocks[FRAMES / 2];
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        hvmem_u32 n = (FRAMES >> order) - 2, i;
        hvmem_cpu cpu;

        for (i = 0; i < n; i++)
            REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &blocks[i]), HVMEM_OK);
        for (i = 0; i < n; i++) {
            world_set_cpu(i / 3 % 2);
            CHECK_EQ(hvmem_free(world->heap, blocks[i], order), HVMEM_OK);
            for (cpu = 0; cpu < 2; cpu++)
                CHECK(held(world, cpu, order) <= hvmem__mag_slots(order));
        }
        world_set_cpu(0);
        CHECK(held(world, 0, order) > 0 && held(world, 1, order) > 0);
        CHECK_AUDIT(world);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    }
    WORLD_END(world);
}

/* ---- who empties them ---------------------------------------------------------------------- */

static void by_drain(struct world *world)
{
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
}

/* No allocation fails for want of what lies in a cache, of whatever order. */
static void by_large_blocks(struct world *world)
{
    hvmem_mfn blocks[BLOCKS];
    unsigned i;

    for (i = 0; i < BLOCKS; i++)
        CHECK_EQ(hvmem_alloc_order(world->heap, 10, &blocks[i]), HVMEM_OK);
    for (i = 0; i < BLOCKS; i++)
        CHECK_EQ(hvmem_free(world->heap, blocks[i], 10), HVMEM_OK);
}

static void by_single_frames(struct world *world)
{
    static hvmem_mfn frames[FRAMES];
    hvmem_u32 i;

    for (i = 0; i < FRAMES; i++)
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &frames[i]), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    for (i = 0; i < FRAMES; i++)
        CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
}

static void by_their_own_order(struct world *world)
{
    static hvmem_mfn blocks[FRAMES];
    hvmem_u32 i;

    for (i = 0; i < FRAMES >> 3; i++)
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &blocks[i]), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    for (i = 0; i < FRAMES >> 3; i++)
        CHECK_EQ(hvmem_free(world->heap, blocks[i], 3), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
}

static void by_reserve(struct world *world)
{
    CHECK_EQ(hvmem_reserve(world->heap, 0, FRAMES), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(world->heap, 0, FRAMES), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
}

static void by_quiesce(struct world *world)
{
    CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
}

static void by_removal(struct world *world)
{
    CHECK_EQ(world_remove(world, 0, FRAMES), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 0);
    REQUIRE_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
}

/* Every frame can go bad, whoever has it in a cache. */
static void by_offline(struct world *world)
{
    hvmem_mfn mfn = 0;

    while (mfn < FRAMES && expect_lookup(world, mfn).state != HVMEM_BLOCK_CACHED)
        mfn++;
    REQUIRE(mfn < FRAMES);
    CHECK_EQ(hvmem_offline(world->heap, mfn), HVMEM_OK);
    CHECK_EQ(hvmem_online(world->heap, mfn), HVMEM_OK);
}

static void by_claims(struct world *world)
{
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    hvmem_mfn mfn = 0;

    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, FRAMES), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_E_CLAIM);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, 0), HVMEM_OK);
}

TEST(whoever_needs_them_empties_them)
{
    static void (*const by[])(struct world *) = {
        by_drain,   by_large_blocks, by_single_frames, by_their_own_order, by_reserve,
        by_quiesce, by_removal,      by_offline,       by_claims};
    static const unsigned hosts[] = {WORLD_BARRIER, WORLD_BARRIER | WORLD_HOST_LOCK};
    size_t i, host;

    for (host = 0; host < 2; host++)
        for (i = 0; i < sizeof by / sizeof by[0]; i++) {
            struct world *world = magazine_world(hosts[host]);

            fill(world);
            by[i](world);
            CHECK_EQ(held_at_all(world, 0), 0);
            CHECK_EQ(held_at_all(world, 1), 0);
            CHECK_AUDIT(world);
            /* And they are used again afterwards. */
            fill(world);
            CHECK_AUDIT(world);
            CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
            CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
            WORLD_END(world);
        }
}

/* What came in with a block that was handed out, nothing having been freed. */
TEST(the_rest_of_a_refill_is_found)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        hvmem_mfn mfn = 0;

        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
        CHECK(held(world, 0, order) > 0);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(held(world, 0, order), 0);
        CHECK_EQ(hvmem_free_run(world->heap, mfn, 1ull << order), HVMEM_OK);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    }
    WORLD_END(world);
}

TEST(a_cpu_that_leaves_leaves_nothing)
{
    struct world *world = magazine_world(WORLD_BARRIER);

    fill(world);
    CHECK_EQ(hvmem_cpu_offline(world->heap, 1), HVMEM_OK);
    CHECK_EQ(held_at_all(world, 1), 0);
    CHECK(held_at_all(world, 0) > 0);
    CHECK_AUDIT(world);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_OK);
    fill(world);
    WORLD_END(world);
}

/*
 * Frames that are promised do not wait in a magazine for those without a claim, and what is in one when
 * frames go bad stands in for them; then all stay shut until the promises hold.
 */
TEST(shut_while_claims_are_short)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    hvmem_mfn mfn = 0, other = 0, bad;

    REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 3, &other), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, FRAMES - 16), HVMEM_OK);
    for (bad = FRAMES - 32; bad < FRAMES; bad++)
        CHECK_EQ(hvmem_offline(world->heap, bad), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 3), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).cached, 0);
    CHECK_EQ(hvmem_alloc_order(world->heap, 3, &mfn), HVMEM_E_CLAIM);
    CHECK_EQ(hvmem_free(world->heap, other, 3), HVMEM_OK); /* nor has asking opened them */
    CHECK_EQ(expect_stats(world, 0).cached, 0);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, 0), HVMEM_OK);
    while (bad-- > FRAMES - 32)
        CHECK_EQ(hvmem_online(world->heap, bad), HVMEM_OK);
    fill(world);
    WORLD_END(world);
}

/* ---- what stays out ------------------------------------------------------------------------- */

/* Debts go home with their blocks, and domains' blocks do not come from a magazine. */
TEST(debts_and_domains_stay_out)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        struct hvmem_request request = expect_block(order, domain);
        hvmem_u32 before;
        hvmem_mfn mfn = 0;

        pair(world, order);
        before = held(world, 0, order);
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free_owned(world->heap, mfn, order, domain, 0), HVMEM_OK);
        CHECK_EQ(held(world, 0, order), before);
        CHECK(expect_lookup(world, mfn).state == HVMEM_BLOCK_FREE);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
        CHECK_EQ(held(world, 0, order), before - 1);
        CHECK_EQ(hvmem_free_owned(world->heap, mfn, order, NULL, HVMEM_OWES_SCRUB), HVMEM_OK);
        CHECK_EQ(held(world, 0, order), before - 1);
        CHECK_EQ(expect_lookup(world, mfn).state, HVMEM_BLOCK_FREE);
        CHECK(expect_lookup(world, mfn).owed & HVMEM_OWES_SCRUB);
        CHECK_AUDIT(world);
    }
    WORLD_END(world);
}

/* Where sections go through the gate nothing is kept that would not be handed out again. */
TEST(unused_where_sections_go_through_the_gate)
{
    struct world *world = magazine_world(0);
    hvmem_u32 order, i;

    for (order = 1; order <= MIDDLE; order++)
        for (i = 0; i < 3; i++)
            pair(world, order);
    CHECK_EQ(expect_stats(world, 0).cached, 0);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    WORLD_END(world);
}

/* A block of another node is handed back there, not out here. */
TEST(blocks_of_another_node_go_home)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    struct hvmem_request request = expect_block(4, NULL);
    hvmem_mfn far[3] = {0}, mfn = 0;
    hvmem_u32 before, i;

    REQUIRE_EQ(world_bank(world, FRAMES, FRAMES, 1, 0), HVMEM_OK);
    request.node = 1;
    request.flags = HVMEM_REQ_EXACT_NODE;
    pair(world, 4);
    before = held(world, 0, 4);
    for (i = 0; i < 3; i++) {
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &far[i]), HVMEM_OK);
        CHECK(far[i] >= FRAMES);
    }
    for (i = 0; i < 3; i++)
        CHECK_EQ(hvmem_free(world->heap, far[i], 4), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 1).free, FRAMES);
    CHECK_EQ(held(world, 0, 4), before);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 4, &mfn), HVMEM_OK);
    CHECK(mfn < FRAMES);
    CHECK_EQ(hvmem_free(world->heap, mfn, 4), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 1).free_blocks[10], BLOCKS);
    WORLD_END(world);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

TEST(mistakes_are_refused)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        struct hvmem_domain *nobody = NULL;
        hvmem_mfn mfn = 0, last;
        hvmem_cpu cpu;

        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
        last = mfn + (1ull << order) - 1;
        for (cpu = 0; cpu < 2; cpu++) {
            world_set_cpu(cpu);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, order - 1), HVMEM_E_WRONG_ORDER,
                             mfn);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, order + 1), HVMEM_E_WRONG_ORDER,
                             mfn);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, last, 0), HVMEM_E_INTERIOR, last);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, last, order), HVMEM_E_INTERIOR, last);
        }
        CHECK_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK); /* by the other */
        CHECK_EQ(held(world, 1, order), 1);
        for (cpu = 0; cpu < 2; cpu++) {
            world_set_cpu(cpu);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, order), HVMEM_E_FREE, mfn);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, order - 1), HVMEM_E_FREE, mfn);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, HVMEM_ORDER_ANY), HVMEM_E_FREE,
                             mfn);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, last, order), HVMEM_E_FREE, last);
            CHECK_REFUSED_AT(world, hvmem_free_owned(world->heap, mfn, order, nobody, 0),
                             HVMEM_E_FREE, mfn);
            CHECK_REFUSED(world, hvmem_free_run(world->heap, mfn, 1), HVMEM_E_FREE);
            CHECK_REFUSED(world, hvmem_settle(world->heap, mfn, order, HVMEM_OWES_ANY),
                          HVMEM_E_FREE);
        }
        world_set_cpu(0);
        CHECK_REFUSED(world, hvmem_free(world->heap, 1ull << 40, order), HVMEM_E_FOREIGN);
    }
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    WORLD_END(world);
}

/* ---- two CPUs at one block ------------------------------------------------------------------ */

/* At the point named, once, the other CPU frees the block. */
struct other {
    struct world *world;
    const char *point;
    hvmem_mfn mfn;
    hvmem_u32 order;
    hvmem_status status;
    int done;
};

/* (By the call that takes no lock of an arena.) */
static void *other_cpu(void *argument)
{
    struct other *other = argument;

    world_set_cpu(1);
    other->status = hvmem_free_owned(other->world->heap, other->mfn, other->order, NULL, 0);
    return NULL;
}

static int other_frees(const char *name, void *context)
{
    struct other *other = context;
    pthread_t thread;

    if (other->done || strcmp(name, other->point) != 0)
        return 0;
    other->done = 1;
    REQUIRE_EQ(pthread_create(&thread, NULL, other_cpu, other), 0);
    REQUIRE_EQ(pthread_join(thread, NULL), 0);
    return 0;
}

static void between(const char *point, int bulk, hvmem_u32 order)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    struct hvmem_request request = expect_block(order, NULL);
    struct other other = {.world = world, .point = point, .order = order};
    hvmem_status status;
    hvmem_u32 n = 0;

    fill(world);
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &other.mfn),
               HVMEM_OK); /* nobody's in particular */
    test_set_point_hook(other_frees, &other);
    if (bulk)
        status = hvmem_free_bulk(world->heap, &other.mfn, 1, order, &n);
    else
        status = hvmem_free(world->heap, other.mfn, order);
    test_set_point_hook(NULL, NULL);
    CHECK(other.done);
    CHECK_EQ(status, bulk ? HVMEM_OK : HVMEM_E_FREE);
    CHECK_EQ(other.status, bulk ? HVMEM_E_FREE : HVMEM_OK);
    CHECK_AUDIT(world);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], BLOCKS);
    WORLD_END(world);
}

/* After one has looked at the record, or claimed it under the arena's lock. */
TEST(of_two_that_free_one_block_one_does, points)
{
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        between("magazine_claim", 0, order);
        between("free_plain", 1, order);
    }
}

/* Pages of a stage 2, in use as tables, look like any block of the host's but for one bit. */
TEST(tables_stay_out)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 order, done;

    for (order = 0; order <= 9; order++) {
        struct hvmem_request request = expect_block(order, NULL);
        hvmem_mfn mfn = 0;
        hvmem_cpu cpu;

        pair(world, order);
        REQUIRE_EQ(hvmem__alloc(world->heap, &request, HVMEM__BIAS_TABLE, NULL, &mfn), HVMEM_OK);
        for (cpu = 0; cpu < 2; cpu++) {
            world_set_cpu(cpu);
            pair(world, order);
            CHECK_REFUSED_AT(world, hvmem_free(world->heap, mfn, order), HVMEM_E_GATHERED, mfn);
            CHECK_REFUSED_AT(world, hvmem_free_bulk(world->heap, &mfn, 1, order, &done),
                             HVMEM_E_GATHERED, mfn);
        }
        world_set_cpu(0);
        CHECK_EQ(hvmem__free_checked(world->heap, mfn, order, NULL, 0), HVMEM_E_GATHERED);
        CHECK_EQ(hvmem__free_checked(world->heap, mfn, order, NULL, HVMEM__EVEN_TABLE), HVMEM_OK);
        CHECK_EQ(expect_lookup(world, mfn).owner, 0);
        pair(world, order);
    }
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free, FRAMES);
    WORLD_END(world);
}

/* What one CPU may free by a plain store another frees only after it has taken that right away. */
TEST(blocks_of_another_cpu_are_unbiased_first)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 order;

    for (order = 1; order <= MIDDLE; order++) {
        struct hvmem__pcpu *pc = &world->heap->pcpu[0];
        uint64_t barriers = world->counts.barriers;
        hvmem_mfn mfn = 0;

        pc->rest = 0; /* it need not wait for a token */
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn), HVMEM_OK);
        CHECK(pc->token != 0);
        world_set_cpu(1);
        CHECK_EQ(hvmem_free(world->heap, mfn, order), HVMEM_OK);
        world_set_cpu(0);
        CHECK_EQ(pc->token, 0);
        CHECK(world->counts.barriers > barriers);
        CHECK_EQ(held(world, 1, order), 1);
    }
    WORLD_END(world);
}

/* A bank that was removed is not known from before. */
TEST(hints_end_with_their_bank)
{
    struct world *world = magazine_world(WORLD_BARRIER);
    hvmem_u32 i;

    fill(world);
    CHECK(world->heap->pcpu[0].near[0] != NULL);
    CHECK_EQ(world_remove(world, 0, FRAMES), HVMEM_OK);
    for (i = 0; i < HVMEM__NEAR; i++)
        CHECK(!world->heap->pcpu[0].near[i] && !world->heap->pcpu[1].near[i]);
    CHECK_REFUSED(world, hvmem_free(world->heap, 0, 3), HVMEM_E_FOREIGN);
    REQUIRE_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
    WORLD_END(world);
}

/* An allocation from a heap whose blocks are smaller than the order asked for. */
TEST(orders_above_the_largest)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;
    hvmem_u32 order;

    config.max_order = 4;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    for (order = 1; order <= 4; order++)
        pair(world, order);
    for (; order <= MIDDLE + 1; order++) {
        CHECK_REFUSED(world, hvmem_alloc_order(world->heap, order, &mfn), HVMEM_E_ORDER);
        CHECK_REFUSED(world, hvmem_free(world->heap, 0, order), HVMEM_E_ORDER);
    }
    WORLD_END(world);
}
