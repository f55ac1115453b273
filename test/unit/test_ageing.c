/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Order of reuse in the per-CPU caches and the arenas: frames that owe a flush age, one flush makes a
 * rotation mature, what owes nothing is preferred, and nothing is lost to the queues. The world is the
 * oracle: it knows which CPUs may hold a translation of which frame.
 */
#include "ageing.h"
#include "drain.h"
#include "expect.h"
#include "stress.h"

#include <hvmem/clock.h>
#include <stdlib.h>
#include <string.h>

#define TLB HVMEM_OWES_TLB

struct bed {
    struct world *world;
    struct hvmem_domain *domain;
};

static struct bed bed_new(unsigned cpus, hvmem_u64 frames, hvmem_u32 owed, unsigned flags)
{
    struct hvmem_config config = world_config();
    struct bed bed;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = cpus;
    config.owed_on_free = owed;
    bed.world = WORLD_NEW(&config, flags);
    REQUIRE_EQ(world_bank(bed.world, 0, frames, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(bed.world), HVMEM_OK);
    world_track(bed.world, 0, frames);
    bed.domain = world_domain(bed.world, 1, ~0ull, 0, NULL);
    REQUIRE(bed.domain != NULL);
    return bed;
}

static uint64_t flushes(const struct bed *bed)
{
    return expect_stats(bed->world, 0).flushes;
}

static struct hvmem_cpu_queue *queue_of(const struct bed *bed, hvmem_cpu cpu, hvmem_u32 order)
{
    return hvmem__ageing_of(&bed->world->heap->pcpu[cpu], order);
}

/* For the domain (or the host); whatever comes owes nothing to anybody. */
static hvmem_status take(const struct bed *bed, hvmem_u32 order, int host, hvmem_u32 flags,
                         hvmem_mfn *mfn)
{
    struct hvmem_request request = expect_block(order, host ? NULL : bed->domain);
    hvmem_status status;

    request.flags = flags;
    status = hvmem_alloc(bed->world->heap, &request, mfn);
    if (status == HVMEM_OK)
        CHECK_EQ(world_owed(bed->world, *mfn, 1ull << order), 0);
    return status;
}

/* The domain had it mapped on every CPU. */
static void give(const struct bed *bed, hvmem_u32 order, hvmem_mfn mfn)
{
    world_owe(bed->world, mfn, 1ull << order, bed->world->config.owed_on_free);
    CHECK_EQ(hvmem_free(bed->world->heap, mfn, order), HVMEM_OK);
}

static void pairs(const struct bed *bed, hvmem_u32 order, uint64_t n)
{
    hvmem_mfn mfn;

    while (n-- > 0 && CHECK_EQ(take(bed, order, 0, 0, &mfn), HVMEM_OK))
        give(bed, order, mfn);
}

static void bed_end(const struct bed *bed)
{
    world_set_cpu(0);
    CHECK_AUDIT(bed->world);
    CHECK_EQ(hvmem_drain(bed->world->heap), HVMEM_OK);
    CHECK_EQ(hvmem__pcpu_cached(bed->world->heap, HVMEM_NODE_ANY), 0);
    CHECK_EQ(expect_stats(bed->world, 0).free, expect_stats(bed->world, 0).frames);
    WORLD_END(bed->world);
}

/* ---- rotation ---------------------------------------------------------------------------------- */

/* Exactly one flush a rotation, never a frame without one; at most the bound is broken up for it. */
static void rotation(unsigned cpus, unsigned flags, hvmem_u32 order, hvmem_u64 frames)
{
    const hvmem_u64 slots = order ? HVMEM__AGEING_SLOTS1 : HVMEM__AGEING_SLOTS;
    struct bed bed = bed_new(cpus, frames, TLB, flags);
    uint64_t before, rounds = order ? 40 : 3;

    pairs(&bed, order, 2 * slots);
    before = flushes(&bed);
    CHECK(before >= 1 && before <= 2);
    pairs(&bed, order, rounds * slots);
    CHECK_EQ(flushes(&bed) - before, rounds);
    CHECK(hvmem__ageing_count(queue_of(&bed, 0, order)) <= slots);
    CHECK(expect_stats(bed.world, 0).cached <= (slots << order) + 4 * HVMEM__MAG_SLOTS);
    /* 2 MiB blocks are order 9 here: 4 for the queue, one for remainders and refills. */
    if (!order)
        CHECK(expect_stats(bed.world, 0).free_blocks[10] >= (frames >> 10) - 4);
    bed_end(&bed);
}

TEST(one_flush_a_rotation)
{
    rotation(1, 0, 0, 1u << 14);
    rotation(2, 0, 0, 1u << 14);
    rotation(3, WORLD_BROADCAST, 0, 1u << 14);
    rotation(2, 0, 9, 1u << 15);
}

/* Less memory than the queue holds: the smaller rotation, but never more than one flush for it. */
TEST(small_heaps_rotate_what_they_have)
{
    struct bed bed = bed_new(2, 256, TLB, 0);
    uint64_t before;

    pairs(&bed, 0, 512);
    before = flushes(&bed);
    pairs(&bed, 0, 256 * 8);
    CHECK_EQ(flushes(&bed) - before, 8);
    bed_end(&bed);
}

/* However few frames lie beside: a hot pair never walks on through clean memory. */
TEST(a_hot_pair_stays_within_its_rotation)
{
    unsigned beside;

    for (beside = 1; beside < 40; beside += 7) {
        struct bed bed = bed_new(1, 1u << 14, TLB, 0);
        hvmem_mfn mine[40];
        uint64_t before;
        unsigned i;

        for (i = 0; i < beside; i++)
            CHECK_EQ(take(&bed, 0, 1, 0, &mine[i]), HVMEM_OK);
        pairs(&bed, 0, 2 * HVMEM__AGEING_SLOTS);
        before = flushes(&bed);
        pairs(&bed, 0, 3 * HVMEM__AGEING_SLOTS);
        CHECK_EQ(flushes(&bed) - before, 3);
        CHECK(expect_stats(bed.world, 0).free_blocks[10] >= 16 - 3);
        for (i = 0; i < beside; i++)
            CHECK_EQ(hvmem_free(bed.world->heap, mine[i], 0), HVMEM_OK);
        bed_end(&bed);
    }
}

/* The host's own frames do not age and are not in the way of those that do. */
TEST(frames_of_the_host_stay_hot)
{
    struct bed bed = bed_new(2, 1u << 13, TLB, 0);
    hvmem_mfn mine, again;

    pairs(&bed, 0, 100);
    CHECK_EQ(hvmem_alloc_order(bed.world->heap, 0, &mine), HVMEM_OK);
    CHECK_EQ(hvmem_free(bed.world->heap, mine, 0), HVMEM_OK);
    CHECK_EQ(hvmem_alloc_order(bed.world->heap, 0, &again), HVMEM_OK);
    CHECK_EQ(mine, again);
    CHECK_EQ(flushes(&bed), 0);
    CHECK_EQ(hvmem_free(bed.world->heap, again, 0), HVMEM_OK);
    bed_end(&bed);
}

/* ---- maturity ---------------------------------------------------------------------------------- */

static void flush_by_itself(const struct bed *bed, hvmem_cpu cpu)
{
    struct hvmem_tlb_flush flush = {
        .size = sizeof flush, .what = HVMEM_FLUSH_ALL, .scope = HVMEM_SCOPE_LOCAL};
    struct hvmem_flush_token token;

    world_set_cpu(cpu);
    CHECK_EQ(hvmem_flush_begin(bed->world->heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
    CHECK_EQ(bed->world->backend.ops->tlb_flush(&bed->world->backend, &flush), HVMEM_OK);
    CHECK_EQ(hvmem_flush_end(bed->world->heap, &token), HVMEM_OK);
    world_set_cpu(0);
}

/* Frames of a domain, all of memory, back in the queue of CPU 0. */
static void age(const struct bed *bed, hvmem_u64 frames)
{
    hvmem_mfn *mfn = calloc(frames, sizeof *mfn);
    hvmem_u64 i;

    for (i = 0; i < frames; i++)
        CHECK_EQ(take(bed, 0, 0, 0, &mfn[i]), HVMEM_OK);
    for (i = 0; i < frames; i++)
        give(bed, 0, mfn[i]);
    free(mfn);
}

TEST(mature_when_every_cpu_has_flushed)
{
    struct bed bed = bed_new(3, 64, TLB, 0);
    hvmem_mfn mfn;

    age(&bed, 64);
    CHECK_EQ(hvmem__ageing_count(queue_of(&bed, 0, 0)), 64);
    CHECK_EQ(hvmem__ageing_ripe(bed.world->heap, queue_of(&bed, 0, 0)), 0);
    flush_by_itself(&bed, 1);
    flush_by_itself(&bed, 2);
    CHECK_EQ(hvmem__ageing_ripe(bed.world->heap, queue_of(&bed, 0, 0)), 0);
    flush_by_itself(&bed, 0);
    CHECK_EQ(hvmem__ageing_ripe(bed.world->heap, queue_of(&bed, 0, 0)), 1);
    CHECK_EQ(take(&bed, 0, 0, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_OK);
    CHECK_EQ(flushes(&bed), 0);
    CHECK_EQ(expect_lookup(bed.world, mfn).owed, 0);
    give(&bed, 0, mfn);
    bed_end(&bed);
}

/* The one flush asks only who has not flushed since the youngest was stamped. */
TEST(one_filtered_flush)
{
    struct bed bed = bed_new(3, 64, TLB, 0);
    struct hvmem_stats before, after;
    unsigned i;
    hvmem_mfn mfn[64];

    age(&bed, 64);
    flush_by_itself(&bed, 1);
    before = expect_stats(bed.world, 0);
    for (i = 0; i < 64; i++)
        CHECK_EQ(take(&bed, 0, 0, 0, &mfn[i]), HVMEM_OK);
    after = expect_stats(bed.world, 0);
    CHECK_EQ(after.flushes - before.flushes, 1);
    CHECK_EQ(after.flush_cpus - before.flush_cpus, 2);
    for (i = 0; i < 64; i++)
        give(&bed, 0, mfn[i]);
    bed_end(&bed);
}

/* What else is owed is settled at hand-over, flushed or matured. */
TEST(other_debts_are_settled_too)
{
    struct bed bed =
        bed_new(2, 64, TLB | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE, 0);
    hvmem_mfn mfn;
    unsigned i;

    age(&bed, 64);
    for (i = 0; i < 3; i++) {
        if (i == 1) {
            flush_by_itself(&bed, 0);
            flush_by_itself(&bed, 1);
        }
        CHECK_EQ(take(&bed, 0, i == 2, 0, &mfn), HVMEM_OK);
        CHECK_EQ(expect_lookup(bed.world, mfn).owed, 0);
        give(&bed, 0, mfn);
    }
    bed_end(&bed);
}

/* Scrub alone need not wait for anybody. */
TEST(without_a_flush_nothing_waits)
{
    struct bed bed = bed_new(2, 64, HVMEM_OWES_SCRUB, 0);

    age(&bed, 64);
    pairs(&bed, 0, 64);
    CHECK_EQ(flushes(&bed), 0);
    CHECK(bed.world->counts.zeroed != 0);
    bed_end(&bed);
}

/* A flush that fails: told, nothing lost, and the frame still owes it. */
TEST(failed_flush_changes_nothing)
{
    struct bed bed = bed_new(2, 64, TLB, WORLD_BROADCAST);
    hvmem_mfn mfn;

    age(&bed, 64);
    bed.world->fail_in = 1;
    CHECK_EQ(take(&bed, 0, 0, 0, &mfn), HVMEM_E_HOST);
    CHECK_EQ(expect_domain(bed.domain).pages, 0);
    CHECK_EQ(expect_stats(bed.world, 0).free, 64);
    CHECK_AUDIT(bed.world);
    CHECK_EQ(take(&bed, 0, 0, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_E_WOULD_FLUSH);
    CHECK_EQ(take(&bed, 0, 0, 0, &mfn), HVMEM_OK);
    give(&bed, 0, mfn);
    bed_end(&bed);
}

/* ---- order of preference ------------------------------------------------------------------------ */

TEST(noflush_only_if_nothing_else_is_left)
{
    struct bed bed = bed_new(2, 64, TLB, 0);
    hvmem_mfn mfn, mine[32];
    uint64_t before;
    unsigned i;

    /* Half of memory in the hands of the host, half aged by CPU 0. */
    for (i = 0; i < 32; i++)
        CHECK_EQ(take(&bed, 0, 1, 0, &mine[i]), HVMEM_OK);
    age(&bed, 32);
    before = flushes(&bed);
    CHECK_EQ(take(&bed, 0, 0, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_E_WOULD_FLUSH);
    CHECK_EQ(take(&bed, 0, 1, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_E_WOULD_FLUSH);
    CHECK_EQ(expect_domain(bed.domain).pages, 0);
    CHECK_AUDIT(bed.world);
    /* One clean frame in another CPU's cache. */
    world_set_cpu(1);
    CHECK_EQ(hvmem_free(bed.world->heap, mine[31], 0), HVMEM_OK);
    world_set_cpu(0);
    CHECK_EQ(take(&bed, 0, 0, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, mine[31]);
    CHECK_EQ(flushes(&bed), before);
    give(&bed, 0, mfn);
    for (i = 0; i < 31; i++)
        CHECK_EQ(hvmem_free(bed.world->heap, mine[i], 0), HVMEM_OK);
    bed_end(&bed);
}

/* Clean, then matured, then small remainders, then the full queue's flush, never a larger block. */
TEST(order_of_preference)
{
    struct bed bed = bed_new(1, 1u << 13, TLB, 0);
    struct hvmem_cpu_queue *queue = queue_of(&bed, 0, 0);
    hvmem_mfn mfn, clean, aged;
    hvmem_u64 large;

    /* Rotate until the queue is full and the next needs a flush. */
    do
        pairs(&bed, 0, 1);
    while (hvmem__ageing_count(queue) <= queue->mask || hvmem__ageing_ripe(bed.world->heap, queue));
    while (bed.world->heap->pcpu[0].mag[0].count)
        pairs(&bed, 0, 1);
    large = expect_stats(bed.world, 0).free_blocks[10];
    CHECK_EQ(take(&bed, 0, 1, 0, &clean), HVMEM_OK);
    aged = queue->slot[queue->head & queue->mask];
    /* Clean: what the host gives back is next, without a flush. */
    CHECK_EQ(hvmem_free(bed.world->heap, clean, 0), HVMEM_OK);
    large = flushes(&bed);
    CHECK_EQ(take(&bed, 0, 0, 0, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, clean);
    CHECK_EQ(flushes(&bed), large);
    give(&bed, 0, mfn);
    /* Matured: the oldest, although arenas have clean memory. */
    flush_by_itself(&bed, 0);
    while (bed.world->heap->pcpu[0].mag[0].count)
        CHECK_EQ(take(&bed, 0, 1, 0, &clean), HVMEM_OK);
    aged = queue->slot[queue->head & queue->mask];
    CHECK_EQ(take(&bed, 0, 0, 0, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, aged);
    CHECK_EQ(flushes(&bed), large);
    give(&bed, 0, mfn);
    WORLD_END(bed.world);
}

/* Among blocks of one order the one that owes no flush, though it lies higher. */
TEST(arenas_prefer_what_owes_no_flush)
{
    struct bed bed = bed_new(1, 64, TLB, 0);
    struct hvmem_request request = expect_block(3, bed.domain);
    hvmem_mfn mfn[8], got;
    unsigned i;

    for (i = 0; i < 8; i++)
        CHECK_EQ(take(&bed, 3, i == 4, 0, &mfn[i]), HVMEM_OK);
    for (i = 0; i < 8; i += 2)
        give(&bed, 3, mfn[i]);
    CHECK_EQ(hvmem_alloc(bed.world->heap, &request, &got), HVMEM_OK);
    CHECK_EQ(got, mfn[4]);
    CHECK_EQ(flushes(&bed), 0);
    give(&bed, 3, got);
    for (i = 1; i < 8; i += 2)
        give(&bed, 3, mfn[i]);
    bed_end(&bed);
}

/* ---- nothing is lost to a queue ---------------------------------------------------------------- */

/* An allocation never fails while frames age, whoever's cache and whatever order. */
TEST(queues_are_emptied_on_demand)
{
    struct bed bed = bed_new(2, 1024, TLB, 0);
    hvmem_mfn mfn;

    age(&bed, 1024);
    CHECK_EQ(hvmem__ageing_count(queue_of(&bed, 0, 0)), 1024);
    world_set_cpu(1);
    CHECK_EQ(take(&bed, 10, 0, 0, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem__ageing_count(queue_of(&bed, 0, 0)), 0);
    give(&bed, 10, mfn);
    age(&bed, 1024);
    world_set_cpu(0);
    CHECK_EQ(hvmem_reserve(bed.world->heap, 0, 1024), HVMEM_OK);
    CHECK_EQ(hvmem_free_run(bed.world->heap, 0, 1024), HVMEM_OK);
    bed_end(&bed);
}

TEST(a_cpu_that_leaves_gives_its_queue_up)
{
    struct bed bed = bed_new(2, 1024, TLB, 0);
    hvmem_mfn mfn;

    world_set_cpu(1);
    age(&bed, 512);
    world_set_cpu(0);
    CHECK_EQ(hvmem__ageing_count(queue_of(&bed, 1, 0)), 512);
    CHECK_EQ(hvmem_cpu_offline(bed.world->heap, 1), HVMEM_OK);
    CHECK_EQ(hvmem__ageing_count(queue_of(&bed, 1, 0)), 0);
    CHECK_EQ(expect_lookup(bed.world, 0).owed | expect_lookup(bed.world, 1023).owed, TLB);
    world_forget_cpu(bed.world, 1);
    CHECK_EQ(take(&bed, 10, 0, 0, &mfn), HVMEM_OK);
    give(&bed, 10, mfn);
    bed_end(&bed);
}

/* Frames that age are free: they can be claimed, and are not given away when they are. */
TEST(claims_see_frames_that_age)
{
    struct bed bed = bed_new(2, 64, TLB, 0);
    struct hvmem_domain *other = world_domain(bed.world, 2, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(0, other);
    hvmem_mfn mfn[64];
    unsigned i;

    age(&bed, 64);
    CHECK_EQ(hvmem_free_frames(bed.world->heap), 64);
    CHECK_EQ(hvmem_domain_claim(other, HVMEM_NODE_ANY, 64), HVMEM_OK);
    CHECK_EQ(take(&bed, 0, 0, 0, &mfn[0]), HVMEM_E_CLAIM);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(hvmem_alloc(bed.world->heap, &request, &mfn[i]), HVMEM_OK);
        CHECK_EQ(world_owed(bed.world, mfn[i], 1), 0);
    }
    CHECK_EQ(expect_domain(other).claimed, 0);
    for (i = 0; i < 64; i++)
        give(&bed, 0, mfn[i]);
    bed_end(&bed);
}

/* A bad frame and a bank leave although their frames age. */
TEST(bad_frames_and_banks_leave_the_queue)
{
    struct bed bed = bed_new(2, 1024, TLB, 0);
    struct hvmem_block block;

    age(&bed, 1024);
    CHECK_EQ(hvmem_offline(bed.world->heap, 77), HVMEM_OK);
    CHECK_EQ(hvmem_lookup(bed.world->heap, 77, &block), HVMEM_OK);
    CHECK_EQ(block.state, HVMEM_BLOCK_OFFLINE);
    CHECK_EQ(block.owed, TLB);
    CHECK_EQ(hvmem_online(bed.world->heap, 77), HVMEM_OK);
    age(&bed, 1024);
    CHECK_EQ(world_remove(bed.world, 0, 1024), HVMEM_OK);
    WORLD_END(bed.world);
}

/* A full queue sends its oldest home; all are still there. */
TEST(a_full_queue_sheds_its_oldest)
{
    struct bed bed = bed_new(1, 8192, TLB, 0);

    age(&bed, 6000);
    CHECK(hvmem__ageing_count(queue_of(&bed, 0, 0)) <= HVMEM__AGEING_SLOTS);
    CHECK(hvmem__ageing_count(queue_of(&bed, 0, 0)) > HVMEM__AGEING_SLOTS - 64);
    CHECK_EQ(expect_stats(bed.world, 0).free, 8192);
    CHECK_AUDIT(bed.world);
    bed_end(&bed);
}

/* Without a clock nothing matures: a flush for each allocation that owes one. */
TEST(clock_off_flushes_every_time)
{
    struct hvmem_config config = world_config();
    struct bed bed;
    uint64_t before;

    config.owed_on_free = TLB;
    config.flags = HVMEM_CONFIG_NO_CLOCK;
    bed.world = WORLD_NEW(&config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(bed.world, 0, 16, 0, 0), HVMEM_OK);
    world_track(bed.world, 0, 16);
    bed.domain = world_domain(bed.world, 1, ~0ull, 0, NULL);
    age(&bed, 16);
    before = flushes(&bed);
    pairs(&bed, 0, 32);
    CHECK_EQ(flushes(&bed) - before, 32);
    bed_end(&bed);
}

/* ---- random ------------------------------------------------------------------------------------ */

/* CPUs that allocate, free, flush by themselves, drain and come and go; the oracle at every hand-over. */
static void random_steps(uint64_t steps, unsigned flags, uint64_t stream)
{
    static const hvmem_u32 orders[] = {0, 0, 0, 0, 9, 3};
    struct bed bed = bed_new(3, 1u << 13, TLB | (stream % 2 ? HVMEM_OWES_SCRUB : 0), flags);
    struct test_rng rng = test_rng(stream);
    struct {
        hvmem_mfn mfn;
        hvmem_u32 order;
        int host;
    } held[64];
    unsigned n = 0, pick;

    for (; steps > 0; steps--) {
        world_set_cpu((hvmem_cpu)test_below(&rng, 3));
        pick = (unsigned)test_below(&rng, 64);
        if (pick < n) {
            if (held[pick].host)
                CHECK_EQ(hvmem_free(bed.world->heap, held[pick].mfn, held[pick].order), HVMEM_OK);
            else
                give(&bed, held[pick].order, held[pick].mfn);
            held[pick] = held[--n];
        } else if (n < 64) {
            hvmem_status status;

            held[n].order = orders[test_below(&rng, 6)];
            held[n].host = test_below(&rng, 4) == 0;
            status = take(&bed, held[n].order, held[n].host,
                          test_below(&rng, 8) == 0 ? HVMEM_REQ_NOFLUSH : 0, &held[n].mfn);
            n += status == HVMEM_OK;
            CHECK(status == HVMEM_OK || status == HVMEM_E_WOULD_FLUSH || status == HVMEM_E_NOMEM);
        }
        if (test_below(&rng, 400) == 0)
            flush_by_itself(&bed, (hvmem_cpu)test_below(&rng, 3));
        if (test_below(&rng, 4000) == 0)
            CHECK_EQ(hvmem_drain(bed.world->heap), HVMEM_OK);
        if (test_below(&rng, 500) == 0)
            CHECK_AUDIT(bed.world);
    }
    while (n > 0) {
        n--;
        CHECK_EQ(hvmem_free(bed.world->heap, held[n].mfn, held[n].order), HVMEM_OK);
    }
    bed_end(&bed);
}

TEST(random_owners_never_meet)
{
    random_steps(test_rounds(8000), 0, 1);
    random_steps(test_rounds(8000), WORLD_BROADCAST, 2);
    random_steps(test_rounds(8000), WORLD_BARRIER, 3);
}
