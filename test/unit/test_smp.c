/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Several CPUs: races of frees (B18) and claims (B16), threads that allocate, pass on and free under
 * the ownership check while frames go offline, banks come and go and caches are drained. Each with
 * a host that has barrier_cpu and one that has not, with the library's locks and the host's.
 */
#include "expect.h"
#include "stress.h"

#include <sched.h>
#include <string.h>

static const unsigned hosts[] = {0, WORLD_BARRIER, WORLD_HOST_LOCK,
                                 WORLD_BARRIER | WORLD_HOST_LOCK};
#define HOSTS (sizeof hosts / sizeof hosts[0])

static struct world *smp_world(unsigned cpus, hvmem_u32 config_flags, unsigned host,
                               hvmem_u64 frames)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = cpus;
    config.flags = config_flags;
    config.owed_on_free = 0;
    world = WORLD_NEW(&config, host | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, frames, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

static void smp_end(struct stress *stress)
{
    struct world *world = stress->world;

    world_set_cpu(0);
    if (!CHECK(stress->failure[0] == '\0'))
        test_note("%s", stress->failure);
    stress_delete(stress);
    WORLD_END(world);
}

/* ---- B18: two CPUs free one block ------------------------------------------------------------ */

struct duel {
    struct stress_gate gate;
    uint64_t rounds;
    hvmem_u32 order;
    int halves; /* 1: each frees a half of a pair; 0: both free the same block */
    int bulk;   /* CPU 1 frees by the call for many */
    hvmem_mfn mfn;
    hvmem_status status[2];
    uint64_t done[2]; /* successes of each CPU */
};

static void duel_round(struct stress *stress, unsigned me, struct duel *duel)
{
    struct hvmem_heap *heap = stress->world->heap;
    hvmem_mfn half = duel->halves && me == 1 ? 1ull << duel->order : 0;

    stress_meet(&duel->gate);
    if (me == 1 && duel->bulk) {
        hvmem_mfn mfn = duel->mfn + half;
        hvmem_u32 done;

        duel->status[me] = hvmem_free_bulk(heap, &mfn, 1, duel->order, &done);
    } else {
        duel->status[me] = hvmem_free(heap, duel->mfn + half, duel->order);
    }
    stress_meet(&duel->gate);
    if (duel->status[me] == HVMEM_OK)
        duel->done[me]++;
}

static void duel_body(struct stress *stress, unsigned me, void *argument)
{
    struct hvmem_heap *heap = stress->world->heap;
    struct duel *duel = argument;
    uint64_t round;

    for (round = 0; round < duel->rounds; round++) {
        /* The CPU that allocates changes: the block is the one's own, the other's by turns. */
        if (me == round % 2) {
            struct hvmem_request request =
                expect_run(duel->halves ? 2ull << duel->order : 1, 0, 0, 0);

            if (duel->halves) {
                request.align = duel->order + 1;
                request.flags = HVMEM_REQ_NO_CACHE;
                if (hvmem_alloc(heap, &request, &duel->mfn) != HVMEM_OK ||
                    hvmem_free_run(heap, duel->mfn, 2ull << duel->order) != HVMEM_OK)
                    stress_fail(stress, "no pair");
                request.count = 1ull << duel->order;
                request.align = duel->order;
                request.lo = duel->mfn;
                request.hi = duel->mfn + (2ull << duel->order);
                if (hvmem_alloc(heap, &request, &duel->mfn) != HVMEM_OK ||
                    hvmem_alloc(heap, &request, &duel->mfn) != HVMEM_OK)
                    stress_fail(stress, "no halves");
                duel->mfn = request.lo;
            } else if (hvmem_alloc_order(heap, duel->order, &duel->mfn) != HVMEM_OK) {
                stress_fail(stress, "no block");
            }
        }
        duel_round(stress, me, duel);
        if (me == round % 2) {
            int both = (duel->status[0] == HVMEM_OK) + (duel->status[1] == HVMEM_OK);
            hvmem_status loser = duel->status[duel->status[0] == HVMEM_OK];

            if (both != (duel->halves ? 2 : 1) || (!duel->halves && loser != HVMEM_E_FREE))
                stress_fail(stress, "round %llu: codes %d and %d", (unsigned long long)round,
                            duel->status[0], duel->status[1]);
        }
        stress_meet(&duel->gate);
        if (stress_stopped(stress))
            return;
    }
}

static void duels(uint64_t rounds, int halves)
{
    static const hvmem_u32 orders[] = {0, 1, 4, 8, 9};
    const size_t kinds = 2 * sizeof orders / sizeof orders[0];
    size_t host;
    size_t i;
    unsigned caches;

    for (host = 0; host < HOSTS; host++)
        for (caches = 0; caches < 2; caches++)
            for (i = 0; i < kinds; i++) {
                struct world *world =
                    smp_world(2, caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE, hosts[host], 4096);
                struct stress *stress = stress_new(world, 0, 4096);
                struct duel duel = {.gate = {2, 0, 0},
                                    .rounds = rounds / (8 * kinds) + 1,
                                    .order = orders[i / 2],
                                    .halves = halves,
                                    .bulk = i % 2};
                uint64_t reports = world->counts.reports;

                stress_run(stress, 2, duel_body, &duel);
                world_set_cpu(0);
                CHECK_EQ(duel.done[0] + duel.done[1], duel.rounds * (halves ? 2 : 1));
                CHECK_EQ(world->counts.reports - reports, halves ? 0 : duel.rounds);
                CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
                CHECK_EQ(expect_stats(world, 0).free_blocks[10], 4);
                smp_end(stress);
            }
}

TEST(B18_two_cpus_free_one_block, threads)
{
    duels(test_rounds(1600), 0);
}

TEST(B18_two_cpus_free_one_block_long, threads, slow)
{
    duels(test_rounds(100000), 0);
}

TEST(B18_two_cpus_free_a_pair, threads)
{
    duels(test_rounds(1600), 1);
}

/* A free by its start races a free_run over it, and offline of a frame in it. */
struct mixed {
    struct stress_gate gate;
    uint64_t rounds;
    hvmem_mfn mfn;
    hvmem_status status[2];
};

static void mixed_body(struct stress *stress, unsigned me, void *argument)
{
    struct hvmem_heap *heap = stress->world->heap;
    struct mixed *mixed = argument;
    uint64_t round;

    for (round = 0; round < mixed->rounds && !stress_stopped(stress); round++) {
        hvmem_u32 order = round % 3 == 2 ? 0 : 3;

        if (me == 0 && hvmem_alloc_order(heap, order, &mixed->mfn) != HVMEM_OK)
            stress_fail(stress, "no block");
        stress_meet(&mixed->gate);
        if (me == 0)
            mixed->status[0] = hvmem_free(heap, mixed->mfn, order);
        else
            mixed->status[1] = hvmem_offline(heap, mixed->mfn);
        stress_meet(&mixed->gate);
        if (me == 0) {
            struct hvmem_block block;

            /* On its way into a cache at that moment: the next call finds it. */
            if (mixed->status[1] == HVMEM_E_BUSY)
                mixed->status[1] = hvmem_offline(heap, mixed->mfn);
            if (mixed->status[0] != HVMEM_OK || mixed->status[1] < 0)
                stress_fail(stress, "free gave %d, offline %d", mixed->status[0], mixed->status[1]);
            else if (hvmem_lookup(heap, mixed->mfn, &block) != HVMEM_OK ||
                     block.state != HVMEM_BLOCK_OFFLINE)
                stress_fail(stress, "round %llu: frame is in state %u, not offline",
                            (unsigned long long)round, block.state);
            else if (hvmem_online(heap, mixed->mfn) != HVMEM_OK)
                stress_fail(stress, "online refused");
        }
        stress_meet(&mixed->gate);
    }
}

TEST(B18_free_against_offline, threads)
{
    size_t host;

    for (host = 0; host < HOSTS; host++) {
        struct world *world = smp_world(2, 0, hosts[host], 1024);
        struct stress *stress = stress_new(world, 0, 1024);
        struct mixed mixed = {{2, 0, 0}, test_rounds(600), 0, {0, 0}};

        stress_run(stress, 2, mixed_body, &mixed);
        world_set_cpu(0);
        CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
        CHECK_EQ(expect_stats(world, 0).free_blocks[10], 1);
        smp_end(stress);
    }
}

/* ---- B18: a pause while a block is on its way -------------------------------------------------- */

struct pause {
    struct stress_gate gate;
    struct stress *stress;
    int armed;
    int held;    /* the allocating CPU stands at the point */
    int release; /* ... and may go on */
    hvmem_mfn buddy;
};

static int hold_here(const char *name, void *context)
{
    struct pause *pause = context;

    if (strcmp(name, "settle") != 0 || world_cpu() != 0 ||
        !__atomic_load_n(&pause->armed, __ATOMIC_ACQUIRE))
        return 0;
    __atomic_store_n(&pause->held, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&pause->release, __ATOMIC_ACQUIRE))
        sched_yield();
    return 0;
}

static void pause_body(struct stress *stress, unsigned me, void *argument)
{
    struct hvmem_heap *heap = stress->world->heap;
    struct pause *pause = argument;
    struct hvmem_block block;
    hvmem_mfn mfn = ~0ull;
    hvmem_u32 order;
    unsigned waits = 0;

    if (me == 0) {
        __atomic_store_n(&pause->armed, 1, __ATOMIC_RELEASE);
        if (hvmem_alloc_order(heap, 3, &mfn) != HVMEM_OK || mfn == pause->buddy)
            stress_fail(stress, "the paused allocation failed");
        __atomic_store_n(&pause->held, 2, __ATOMIC_RELEASE);
        if (hvmem_free(heap, mfn, 3) != HVMEM_OK)
            stress_fail(stress, "its block could not be freed");
        return;
    }
    while (__atomic_load_n(&pause->held, __ATOMIC_ACQUIRE) == 0 && waits++ < 2000000)
        sched_yield();
    if (pause->held != 1)
        stress_fail(stress, "the allocation did not stand at its point");
    if (hvmem_free(heap, pause->buddy, 3) != HVMEM_OK)
        stress_fail(stress, "buddy not freed");
    order = hvmem_lookup(heap, pause->buddy, &block) == HVMEM_OK ? block.order : 99;
    if (order != 3 || block.state != HVMEM_BLOCK_FREE)
        stress_fail(stress, "buddy is of order %u: merged with a block on its way", order);
    __atomic_store_n(&pause->release, 1, __ATOMIC_RELEASE);
}

TEST(B18_no_merge_with_a_half_taken_block, threads, points)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request;
    struct hvmem_domain *domain;
    struct stress *stress;
    struct pause pause;
    struct world *world;
    hvmem_mfn mfn[2] = {0, 0};

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.max_order = 4;
    config.owed_on_free = HVMEM_OWES_TLB;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(world, 0, 16, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    domain = world_domain(world, 1, ~0ull, 0, NULL);
    request = expect_block(3, domain);
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn[0]), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn[1]), HVMEM_OK);
    /* One half owes a flush and is free; the other is still in use. */
    CHECK_EQ(hvmem_free(world->heap, mfn[0], 3), HVMEM_OK);
    memset(&pause, 0, sizeof pause);
    pause.buddy = mfn[1];
    stress = stress_new(world, 0, 16);
    pause.stress = stress;
    test_set_point_hook(hold_here, &pause);
    stress_run(stress, 2, pause_body, &pause);
    test_set_point_hook(NULL, NULL);
    world_set_cpu(0);
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, 0).free_blocks[4], 1);
    smp_end(stress);
}

/* ---- B16: claims in races --------------------------------------------------------------------- */

struct claim_race {
    struct stress_gate gate;
    struct hvmem_domain *domain[2];
    hvmem_status status[2];
    uint64_t rounds;
    unsigned phase; /* odd: A takes what it claimed and gives nothing back */
    int done;
};

static void claim_body(struct stress *stress, unsigned me, void *argument)
{
    struct claim_race *race = argument;
    uint64_t round;

    for (round = 0; round < race->rounds; round++) {
        stress_meet(&race->gate);
        race->status[me] = hvmem_domain_claim(race->domain[me], HVMEM_NODE_ANY, 10);
        stress_meet(&race->gate);
        if ((race->status[0] == HVMEM_OK) + (race->status[1] == HVMEM_OK) != 1 ||
            (race->status[me] != HVMEM_OK && race->status[me] != HVMEM_E_NOMEM))
            stress_fail(stress, "claims of the last 10 frames: %d and %d", race->status[0],
                        race->status[1]);
        stress_meet(&race->gate);
        hvmem_domain_claim(race->domain[me], HVMEM_NODE_ANY, 0);
    }
}

TEST(B16_race_for_the_last_frames, threads)
{
    struct world *world = smp_world(2, 0, WORLD_BARRIER, 10);
    struct stress *stress = stress_new(world, 0, 10);
    struct claim_race race = {{2, 0, 0}, {NULL, NULL}, {0, 0}, test_rounds(3000), 0, 0};

    race.domain[0] = world_domain(world, 1, ~0ull, 0, NULL);
    race.domain[1] = world_domain(world, 2, ~0ull, 0, NULL);
    stress_run(stress, 2, claim_body, &race);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).claimed, 0);
    smp_end(stress);
}

/* The reader: never less free than promised; while A only takes, never more than 40 beyond it. */
static void read_samples(struct stress *stress, struct claim_race *race)
{
    struct hvmem_stats stats;
    uint64_t round;

    for (round = 0; round < race->rounds && !stress_stopped(stress); round++) {
        unsigned before = __atomic_load_n(&race->phase, __ATOMIC_ACQUIRE);

        if (hvmem_stats(stress->world->heap, HVMEM_NODE_ANY, sizeof stats, &stats) != HVMEM_OK)
            stress_fail(stress, "statistics refused");
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (stats.free < stats.claimed ||
            (stats.free - stats.claimed > 40 && before % 2 == 1 &&
             before == __atomic_load_n(&race->phase, __ATOMIC_RELAXED)))
            stress_fail(stress, "sample %llu: free %llu, claimed %llu", (unsigned long long)round,
                        (unsigned long long)stats.free, (unsigned long long)stats.claimed);
    }
    __atomic_store_n(&race->done, 1, __ATOMIC_RELEASE);
}

/* A claims 60 of 100 and takes them one by one, again and again; the other CPU looks all the time. */
static void sample_body(struct stress *stress, unsigned me, void *argument)
{
    struct claim_race *race = argument;
    struct hvmem_request request = expect_block(0, race->domain[0]);
    hvmem_mfn frames[60];
    unsigned i;

    if (me == 1) {
        read_samples(stress, race);
        return;
    }
    while (!__atomic_load_n(&race->done, __ATOMIC_ACQUIRE)) {
        __atomic_add_fetch(&race->phase, 1, __ATOMIC_SEQ_CST);
        for (i = 0; i < 60; i++)
            if (hvmem_alloc(stress->world->heap, &request, &frames[i]) != HVMEM_OK) {
                stress_fail(stress, "claimed frame %u refused", i);
                return;
            }
        __atomic_add_fetch(&race->phase, 1, __ATOMIC_SEQ_CST);
        for (i = 0; i < 60; i++)
            hvmem_free(stress->world->heap, frames[i], 0);
        if (hvmem_domain_claim(race->domain[0], HVMEM_NODE_ANY, 60) != HVMEM_OK)
            stress_fail(stress, "claim refused");
    }
}

static void sample_claims(uint64_t rounds, hvmem_u32 flags)
{
    struct world *world = smp_world(2, flags, WORLD_BARRIER, 100);
    struct stress *stress = stress_new(world, 0, 100);
    struct claim_race race = {{2, 0, 0}, {NULL, NULL}, {0, 0}, rounds, 0, 0};
    struct hvmem_request request;
    hvmem_mfn frames[40];
    hvmem_u32 got = 0;

    race.domain[0] = world_domain(world, 1, ~0ull, 0, NULL);
    race.domain[1] = world_domain(world, 2, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_domain_claim(race.domain[0], HVMEM_NODE_ANY, 60), HVMEM_OK);
    stress_run(stress, 2, sample_body, &race);
    world_set_cpu(0);
    request = expect_block(0, race.domain[1]);
    CHECK_EQ(hvmem_alloc_bulk(world->heap, &request, frames, 40, &got), HVMEM_OK);
    CHECK_EQ(hvmem_alloc(world->heap, &request, frames), HVMEM_E_CLAIM);
    smp_end(stress);
}

TEST(B16_free_minus_claims_is_never_negative, threads)
{
    sample_claims(test_rounds(30000), HVMEM_CONFIG_NO_CPU_CACHE);
    sample_claims(test_rounds(30000), 0);
}

TEST(B16_free_minus_claims_a_million_times, threads, slow)
{
    sample_claims(test_rounds(1000000), HVMEM_CONFIG_NO_CPU_CACHE);
    sample_claims(test_rounds(1000000), 0);
}

/* A CPU that joined before several may call is flushed too, once for all that was freed before. */
TEST(cpus_that_join_early_are_flushed)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 1, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_OK);
    world->online |= 2;
    world_track(world, 0, 1);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    world_owe(world, mfn, 1, HVMEM_OWES_TLB);
    CHECK_EQ(hvmem_free_owned(world->heap, mfn, 0, NULL, HVMEM_OWES_TLB), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(world_owed(world, mfn, 1), 0);
    CHECK_EQ(world->counts.calls, 1);
    world_owe(world, mfn, 1, HVMEM_OWES_TLB);
    CHECK_EQ(hvmem_free_owned(world->heap, mfn, 0, NULL, HVMEM_OWES_TLB), HVMEM_OK);
    CHECK_EQ(hvmem_smp_enable(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(world_owed(world, mfn, 1), 0);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    WORLD_END(world);
}
