/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A host whose barrier_cpu fails: nobody enters the cache of a CPU that may be inside, every call
 * that wanted to is refused with nothing changed, and all of them work again once that CPU has come
 * through the gate. A CPU "inside" is one whose section is open while its `busy` is still in the
 * store buffer, which the tests play by hand.
 */
#include "expect.h"
#include "drain.h"
#include "pcpu.h"
#include "stress.h"

#include <string.h>

#define FRAMES 2048u

static struct world *barrier_world(unsigned flags)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.owed_on_free = 0;
    world = WORLD_NEW(&config, WORLD_BARRIER | WORLD_BROADCAST | flags);
    REQUIRE_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

static hvmem_status never(struct world *world, hvmem_cpu cpu)
{
    (void)world;
    (void)cpu;
    return HVMEM_E_HOST;
}

/* A frame that CPU 1 allocated, biased to it. */
static hvmem_mfn frame_of_cpu1(struct world *world)
{
    hvmem_mfn mfn = ~0ull;

    world_set_cpu(1);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    world_set_cpu(0);
    return mfn;
}

/* CPU 1 calls the library once. */
static void cpu1_calls(struct world *world)
{
    hvmem_mfn mfn;

    world_set_cpu(1);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    world_set_cpu(0);
}

TEST(refused_then_through_the_gate)
{
    struct world *world = barrier_world(0);
    struct hvmem__pcpu *pc = &world->heap->pcpu[1];
    hvmem_mfn mfn = frame_of_cpu1(world);
    uint64_t barriers = world->counts.barriers;
    hvmem_u32 token = pc->token;

    CHECK(token != 0);
    world->barrier = never;
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_E_HOST);
    CHECK_EQ(world->counts.barriers - barriers, 3);
    CHECK_EQ(pc->token, token);
    CHECK_EQ(pc->forced, HVMEM__FORCED_ASKED);
    CHECK_EQ(expect_lookup(world, mfn).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(hvmem_offline(world->heap, mfn), HVMEM_E_HOST);
    CHECK_EQ(hvmem_free_run(world->heap, mfn, 1), HVMEM_E_HOST);
    CHECK_EQ(pc->fast.closed, 1);
    CHECK_AUDIT(world);
    cpu1_calls(world);
    CHECK_EQ(pc->forced, HVMEM__FORCED_KNOWN);
    CHECK_EQ(pc->token, 0);
    barriers = world->counts.barriers;
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(world->counts.barriers, barriers); /* never asked again */
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], 2);
    CHECK_EQ(pc->fast.closed, 1);
    WORLD_END(world);
}

static hvmem_status third_time(struct world *world, hvmem_cpu cpu)
{
    (void)cpu;
    return world->counts.barriers % 3 ? HVMEM_E_HOST : HVMEM_OK;
}

TEST(tried_three_times)
{
    struct world *world = barrier_world(0);
    hvmem_mfn mfn = frame_of_cpu1(world);

    world->counts.barriers = 0;
    world->barrier = third_time;
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(world->counts.barriers, 3);
    CHECK_EQ(world->heap->pcpu[1].forced, HVMEM__FORCED_NOT);
    CHECK_EQ(world->heap->pcpu[1].fast.closed, 0);
    WORLD_END(world);
}

/* A later barrier that comes back does as well as a call of the CPU. */
TEST(a_barrier_that_works_again)
{
    struct world *world = barrier_world(0);
    struct hvmem__pcpu *pc = &world->heap->pcpu[1];
    hvmem_mfn mfn = frame_of_cpu1(world);

    world->barrier = never;
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_E_HOST);
    CHECK(hvmem__pcpu_cached(world->heap, HVMEM_NODE_ANY) != 0);
    world->barrier = NULL;
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(pc->forced, HVMEM__FORCED_KNOWN);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], 2);
    world->barrier = never;
    cpu1_calls(world);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    WORLD_END(world);
}

/* Each call that needs the cache of a CPU it cannot reach, and what it leaves. */
TEST(every_call_refused_unchanged)
{
    struct world *world = barrier_world(0);
    struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
    static hvmem_mfn frames[FRAMES];
    hvmem_mfn mfn = frame_of_cpu1(world), more;
    size_t got;

    world->barrier = never;
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_E_HOST);
    CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_E_HOST);
    CHECK_EQ(hvmem_bank_remove(world->heap, 0, FRAMES), HVMEM_E_HOST);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, FRAMES - 1), HVMEM_E_HOST);
    CHECK_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, FRAMES), HVMEM_E_HOST);
    CHECK_EQ(expect_stats(world, 0).claimed, 0);
    CHECK_AUDIT(world);
    /* Everything but what lies in CPU 1's cache can be had, and the next call says why not that. */
    for (got = 0; hvmem_alloc_order(world->heap, 0, &frames[got]) == HVMEM_OK; got++)
        CHECK(frames[got] != mfn);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &more), HVMEM_E_HOST);
    CHECK(got >= FRAMES - 1 - 2 * HVMEM__MAG_SLOTS);
    cpu1_calls(world);
    while (got < FRAMES - 1 && hvmem_alloc_order(world->heap, 0, &frames[got]) == HVMEM_OK)
        got++;
    CHECK_EQ(got, FRAMES - 1);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &more), HVMEM_E_NOMEM);
    while (got)
        CHECK_EQ(hvmem_free(world->heap, frames[--got], 0), HVMEM_OK);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_OK); /* CPU 0 enters its own cache at any time */
    world->barrier = NULL;
    WORLD_END(world);
}

/* A run with a block that only its CPU may change is not freed by half. */
TEST(run_stays_whole_where_a_block_is_out_of_reach)
{
    struct world *world = barrier_world(0);
    hvmem_mfn mfn, theirs;
    unsigned i, n = 0;

    /* All that CPU 0's cache was filled with; the next frame is CPU 1's. */
    for (i = 0; i < 64; i++)
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    theirs = frame_of_cpu1(world);
    world_set_cpu(1);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    world_set_cpu(0);
    REQUIRE_EQ(mfn, theirs + 1);
    while (theirs - n > 0 && expect_lookup(world, theirs - n - 1).state == HVMEM_BLOCK_ALLOCATED)
        n++;
    REQUIRE(n >= 32);
    world->barrier = never;
    CHECK_EQ(hvmem_free_run(world->heap, theirs - n, n + 2), HVMEM_E_HOST);
    for (i = 0; i < n; i++)
        CHECK_EQ(expect_lookup(world, theirs - n + i).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(expect_lookup(world, theirs).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(expect_lookup(world, theirs + 1).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_AUDIT(world);
    cpu1_calls(world);
    CHECK_EQ(hvmem_free_run(world->heap, theirs - n, n + 2), HVMEM_OK);
    world->barrier = NULL;
    WORLD_END(world);
}

/* The table of a bank is never given up while a CPU may still write to it. */
TEST(bank_stays_while_a_cpu_may_know_it)
{
    struct world *world = barrier_world(0);
    struct hvmem__pcpu *pc = &world->heap->pcpu[1];
    hvmem_mfn mfn;

    REQUIRE_EQ(world_bank(world, 0x10000, FRAMES, 0, 0), HVMEM_OK);
    mfn = frame_of_cpu1(world);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK); /* empty, but its hint names a bank */
    world->barrier = never;
    CHECK(pc->fast.frames != 0);
    CHECK_EQ(hvmem_bank_remove(world->heap, pc->fast.base, FRAMES), HVMEM_E_HOST);
    CHECK_EQ(expect_stats(world, 0).frames, 2 * FRAMES);
    CHECK_EQ(expect_stats(world, 0).free, 2 * FRAMES);
    CHECK_AUDIT(world);
    cpu1_calls(world);
    CHECK_EQ(world_remove(world, 0, FRAMES), HVMEM_OK);
    CHECK_EQ(world_remove(world, 0x10000, FRAMES), HVMEM_OK);
    CHECK_EQ(pc->fast.frames, 0);
    WORLD_END(world);
}

/* What a CPU that left the heap has seen does not matter: it is in no call. */
TEST(offline_cpu_needs_no_barrier)
{
    struct world *world = barrier_world(0);
    hvmem_mfn mfn = frame_of_cpu1(world);

    world->barrier = never;
    CHECK_EQ(hvmem_cpu_offline(world->heap, 1), HVMEM_OK);
    CHECK_EQ(hvmem__pcpu_cached(world->heap, HVMEM_NODE_ANY), 0);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(world->heap->pcpu[1].forced, HVMEM__FORCED_NOT);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_OK);
    cpu1_calls(world);
    CHECK_EQ(world->heap->pcpu[1].fast.closed, 0);
    world->barrier = NULL;
    WORLD_END(world);
}

/* ---- a CPU inside, its `busy` not yet seen ----------------------------------------------------- */

static struct {
    struct hvmem_cpu_cache *cache;
    hvmem_mfn hot;
    int ended;
} inside;

/* CPU 1 has opened its section and read the hot frame; its stores have not left it. */
static void begin_inside(struct world *world)
{
    inside.cache = hvmem_cpu_handle(world->heap, 1);
    inside.ended = 0;
    world_set_cpu(1);
    CHECK(hvmem_fast_open(inside.cache));
    inside.hot = inside.cache->hot;
    CHECK(inside.hot != HVMEM_FAST_NONE);
    inside.cache->busy = 0;
    world_set_cpu(0);
}

/* ... now they have: it took the frame and left. */
static void end_inside(struct world *world)
{
    (void)world;
    if (inside.ended)
        return;
    inside.ended = 1;
    inside.cache->hot = HVMEM_FAST_NONE;
    inside.cache->record[inside.hot - inside.cache->base] = inside.cache->given;
    inside.cache->busy = 0;
}

/* The barrier makes the earlier store seen. */
static hvmem_status show_busy(struct world *world, hvmem_cpu cpu)
{
    (void)world;
    if (cpu == 1 && !inside.ended)
        inside.cache->busy = 1;
    return HVMEM_OK;
}

static void two_owners(struct world *world, hvmem_status expected)
{
    static hvmem_mfn frames[FRAMES];
    size_t got, i;

    world->relaxing = end_inside;
    begin_inside(world);
    CHECK_EQ(hvmem_drain(world->heap), expected);
    end_inside(world);
    world->relaxing = NULL;
    /* CPU 1 owns the frame now; nobody else may get it. */
    for (got = 0; got < FRAMES && hvmem_alloc_order(world->heap, 0, &frames[got]) == HVMEM_OK;
         got++)
        CHECK(frames[got] != inside.hot);
    for (i = 0; i < got; i++)
        CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, inside.hot).state, HVMEM_BLOCK_ALLOCATED);
    world_set_cpu(1);
    CHECK_EQ(hvmem_free(world->heap, inside.hot, 0), HVMEM_OK);
    world_set_cpu(0);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[10], 2);
    WORLD_END(world);
}

/* CPU 1 has a hot frame. */
static struct world *hot_world(void)
{
    struct world *world = barrier_world(0);

    cpu1_calls(world);
    return world;
}

TEST(never_two_inside_when_the_barrier_fails)
{
    struct world *world = hot_world();

    world->barrier = never;
    two_owners(world, HVMEM_E_HOST);
}

TEST(waits_for_the_other_when_the_barrier_works)
{
    struct world *world = hot_world();

    world->barrier = show_busy;
    two_owners(world, HVMEM_OK);
}

/* ---- threads ----------------------------------------------------------------------------------- */

#define LEFT 256u

struct relay {
    struct stress_queue queue[2]; /* to thread i */
    uint64_t rounds;
    uint64_t refused[2];
    hvmem_mfn left[2][LEFT]; /* refused so far */
    unsigned lefts[2];
};

/* Seven of eight fail: two of three calls that need a barrier. */
static hvmem_status mostly_fails(struct world *world, hvmem_cpu cpu)
{
    static _Thread_local struct test_rng rng;

    (void)world;
    (void)cpu;
    if (rng.state == 0)
        rng = test_rng(world_cpu() + 7u);
    return test_below(&rng, 8) ? HVMEM_E_HOST : HVMEM_OK;
}

static void give(struct stress *stress, unsigned me, struct relay *relay, hvmem_mfn mfn)
{
    hvmem_status status = hvmem_free(stress->world->heap, mfn, 0);

    if (status == HVMEM_E_HOST && relay->lefts[me] < LEFT) {
        relay->refused[me]++;
        relay->left[me][relay->lefts[me]++] = mfn;
    } else if (status != HVMEM_OK) {
        stress_fail(stress, "free gave %d", status);
    }
}

static void relay_body(struct stress *stress, unsigned me, void *argument)
{
    struct relay *relay = argument;
    uint64_t round;
    hvmem_mfn mfn;
    hvmem_u32 order;

    for (round = 0; round < relay->rounds && !stress_stopped(stress); round++) {
        hvmem_mfn again[LEFT];
        unsigned n;

        if (hvmem_alloc_order(stress->world->heap, 0, &mfn) == HVMEM_OK) {
            stress_got(stress, me, mfn, 1);
            stress_gives(stress, mfn, 1);
            if (round % 2 || !stress_send(&relay->queue[1 - me], mfn, 0))
                give(stress, me, relay, mfn);
        }
        if (stress_receive(&relay->queue[me], &mfn, &order))
            give(stress, me, relay, mfn);
        n = relay->lefts[me];
        memcpy(again, relay->left[me], n * sizeof again[0]);
        relay->lefts[me] = 0;
        while (n-- > 0)
            give(stress, me, relay, again[n]);
        if (round % 512 == 511)
            (void)hvmem_drain(stress->world->heap);
    }
}

/*
 * So many heaps, and more (seconds of them) as long as no CPU came upon a barrier that failed: on a busy
 * machine one thread may be over before the other begins.
 */
static void relays(uint64_t heaps, uint64_t rounds)
{
    uint64_t refused = 0;
    uint64_t done;

    for (done = 0; done < heaps || (refused == 0 && done < heaps + 20000); done++) {
        struct world *world = barrier_world(0);
        struct stress *stress = stress_new(world, 0, FRAMES);
        struct relay relay;
        hvmem_u32 order;
        hvmem_mfn mfn;
        unsigned i;

        memset(&relay, 0, sizeof relay);
        relay.rounds = rounds;
        world->barrier = mostly_fails;
        stress_run(stress, 2, relay_body, &relay);
        world->barrier = NULL;
        world_set_cpu(0);
        for (i = 0; i < 2; i++) {
            refused += relay.refused[i];
            while (stress_receive(&relay.queue[i], &mfn, &order))
                CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
            while (relay.lefts[i] > 0)
                CHECK_EQ(hvmem_free(world->heap, relay.left[i][--relay.lefts[i]], 0), HVMEM_OK);
        }
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], 2);
        if (!CHECK(stress->failure[0] == '\0'))
            test_note("%s", stress->failure);
        stress_delete(stress);
        WORLD_END(world);
    }
    CHECK(refused != 0);
}

TEST(two_cpus_while_barriers_fail, threads)
{
    relays(test_rounds(40), 2000);
}

TEST(two_cpus_while_barriers_fail_long, threads, slow)
{
    relays(test_rounds(400), 20000);
}
