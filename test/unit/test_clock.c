/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The flush clock: stamps, times of CPUs, who is asked, brackets of the host, CPUs that come and go;
 * then random programs on model CPUs that load what they may at any time.
 */
#include "clock.h"
#include "clock_rig.h"

#include <string.h>

static struct clock_rig rig;

/* ---- stamps ---------------------------------------------------------------------------------- */

TEST(stamps_decode_to_the_truth_or_later)
{
    struct test_rng rng = test_rng(0);
    uint64_t rounds = test_rounds(200000);

    while (rounds--) {
        uint64_t now = test_random(&rng) >> test_below(&rng, 60);
        uint64_t age = test_random(&rng) >> test_below(&rng, 64);
        uint64_t truth = now - (age > now ? now : age);
        uint64_t read = hvmem__stamp_decode(hvmem__stamp_encode(truth), now);

        CHECK(read >= truth && read <= now);
        if (now - truth <= HVMEM__STAMP_MASK)
            CHECK_EQ(read, truth);
    }
}

TEST(merge_keeps_the_newer_of_those_that_count)
{
    hvmem__record owes = hvmem__rec_with_owed(0, HVMEM_OWES_TLB);
    hvmem__record foreign = hvmem__rec_with_owed(0, HVMEM_OWES_FOREIGN);
    uint64_t span = HVMEM__STAMP_MASK + 1, now = 5 * span + 3;
    /* The clock wrapped between them: the older has the larger low bits. */
    uint32_t old = hvmem__stamp_encode(now - 4), young = hvmem__stamp_encode(now - 1);

    CHECK(old > young);
    CHECK(hvmem__stamp_youth(hvmem__rec_with_stamp(owes, young), now) >
          hvmem__stamp_youth(hvmem__rec_with_stamp(owes, old), now));
    CHECK(hvmem__stamp_youth(hvmem__rec_with_stamp(foreign, young), now) >
          hvmem__stamp_youth(hvmem__rec_with_stamp(owes, old), now));
    CHECK_EQ(hvmem__stamp_of_youth(hvmem__stamp_youth(hvmem__rec_with_stamp(owes, old), now), now),
             old);
    CHECK_EQ(hvmem__stamp_youth(hvmem__rec_with_stamp(0, young), now), 0);
}

/* ---- who is asked ---------------------------------------------------------------------------- */

/* A block of tenant 0, used by every CPU and freed. */
static void leave_a_debt(void)
{
    REQUIRE_EQ(clock_rig_alloc(&rig, 0, 0, 0, 2), HVMEM_OK);
    clock_rig_speculate(&rig, 200);
    clock_rig_free(&rig, 0, 0, 0);
}

/* Everything is allocated, so that what owes is handed over too; then freed without a debt. */
static void take_all(void)
{
    hvmem_mfn mfn[CLOCK_FRAMES];
    unsigned n = 0;

    while (n < CLOCK_FRAMES && hvmem_alloc_order(rig.heap, 0, &mfn[n]) == HVMEM_OK)
        CHECK_EQ(clock_rig_holders(&rig, mfn[n++], 1), 0);
    CHECK_EQ(n, CLOCK_FRAMES);
    while (n--)
        CHECK_EQ(hvmem_free(rig.heap, mfn[n], 0), HVMEM_OK);
}

TEST(only_cpus_that_have_not_flushed_are_asked)
{
    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    leave_a_debt();
    clock_rig_flush(&rig, 1, 0);
    clock_rig_flush(&rig, 3, HVMEM_FLUSH_OPPORTUNISTIC);
    take_all();
    CHECK_EQ(rig.asked, 3);
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    /* All have flushed since: nobody is asked, nothing is flushed. */
    leave_a_debt();
    clock_rig_flush(&rig, 0, 0);
    clock_rig_flush(&rig, 1, 0);
    clock_rig_flush(&rig, 2, 0);
    clock_rig_flush(&rig, 3, 0);
    clock_rig_flush(&rig, 4, 0);
    take_all();
    CHECK_EQ(rig.asked, 3);
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    CHECK(rig.heap->clock.floor > 1);
    clock_rig_end(&rig);
}

TEST(one_flush_pays_for_all_that_was_freed_before)
{
    int slot;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 1);
    for (slot = 0; slot < CLOCK_SLOTS; slot++)
        REQUIRE_EQ(clock_rig_alloc(&rig, 0, 0, slot, 0), HVMEM_OK);
    for (slot = 0; slot < CLOCK_SLOTS; slot++)
        clock_rig_free(&rig, (hvmem_cpu)slot % CLOCK_CPUS, 0, slot);
    take_all();
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    CHECK_EQ(rig.asked, CLOCK_CPUS);
    clock_rig_end(&rig);
}

TEST(with_the_clock_off_everybody_is_asked)
{
    clock_rig_begin(&rig, CLOCK_RIG_QUIET | CLOCK_RIG_OFF, 0);
    leave_a_debt();
    clock_rig_flush(&rig, 1, 0);
    take_all();
    CHECK(rig.asked >= CLOCK_CPUS);
    CHECK_EQ(rig.asked, CLOCK_CPUS * clock_rig_flushes(&rig));
    clock_rig_end(&rig);
}

/* What a hypercall or broadcast instruction does for a host: no CPU from `first` on keeps anything. */
static void flush_cpus(hvmem_cpu first, hvmem_cpu end)
{
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .what = HVMEM_FLUSH_ALL};

    for (; first < end; first++)
        CHECK_EQ(hvmem_sim_tlb_flush(rig.tlb, first, &flush), HVMEM_OK);
}

TEST(broadcast_hardware_has_one_time)
{
    struct hvmem_flush_token token;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET | CLOCK_RIG_BROADCAST, 0);
    leave_a_debt();
    /* One CPU's own flush says nothing of the others. */
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
    flush_cpus(0, 1);
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_OK);
    take_all();
    CHECK_EQ(rig.asked, 0);
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    leave_a_debt();
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_INNER, 0, &token), HVMEM_OK);
    flush_cpus(0, CLOCK_CPUS);
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_OK);
    take_all();
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    clock_rig_end(&rig);
}

/* A hypercall that flushes every CPU counts for every CPU. */
TEST(a_flush_of_all_cpus_counts_for_each)
{
    struct hvmem_flush_token token;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    leave_a_debt();
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_INNER, 0, &token), HVMEM_OK);
    flush_cpus(0, CLOCK_CPUS);
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_OK);
    take_all();
    CHECK_EQ(rig.asked, 0);
    clock_rig_end(&rig);
}

/* ---- brackets -------------------------------------------------------------------------------- */

TEST(opportunistic_flushes_move_the_clock_only_for_a_reason)
{
    uint64_t before;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    leave_a_debt();
    before = rig.heap->clock.now;
    clock_rig_flush(&rig, 1, HVMEM_FLUSH_OPPORTUNISTIC);
    CHECK_EQ(rig.heap->clock.now, before + 1);
    clock_rig_flush(&rig, 2, HVMEM_FLUSH_OPPORTUNISTIC);
    clock_rig_flush(&rig, 1, HVMEM_FLUSH_OPPORTUNISTIC);
    CHECK_EQ(rig.heap->clock.now, before + 1);
    clock_rig_flush(&rig, 1, 0);
    CHECK_EQ(rig.heap->clock.now, before + 2);
    take_all();
    CHECK_EQ(rig.asked, 3); /* not CPU 2, though it did not move the clock */
    clock_rig_end(&rig);
}

TEST(times_never_fall)
{
    struct hvmem_flush_token outer, inner;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, &outer), HVMEM_OK);
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, &inner), HVMEM_OK);
    CHECK(inner.time > outer.time);
    CHECK_EQ(hvmem_flush_end(rig.heap, &inner), HVMEM_OK);
    CHECK_EQ(hvmem_flush_end(rig.heap, &outer), HVMEM_OK);
    CHECK_EQ(rig.heap->clock.cpu[0].time, inner.time);
    clock_rig_end(&rig);
}

TEST(tokens_are_good_once_on_their_cpu)
{
    struct hvmem_flush_token token, again;
    uint64_t time;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    time = rig.heap->clock.cpu[2].time;
    CHECK_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_OUTER, 0, &token), HVMEM_E_ARG);
    CHECK_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 2, &token), HVMEM_E_ARG);
    rig.current = CLOCK_CPUS;
    CHECK_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_E_CPU);
    rig.current = 1;
    REQUIRE_EQ(hvmem_flush_begin(rig.heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
    again = token;
    rig.current = 2;
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_E_CPU);
    CHECK_EQ(rig.heap->clock.cpu[2].time, time);
    rig.current = 1;
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_E_STALE);
    CHECK_EQ(hvmem_flush_end(rig.heap, &again), HVMEM_OK);
    CHECK_EQ(hvmem_flush_end(rig.heap, &again), HVMEM_E_STALE);
    /* Never begun here: of a time that has not come, of a scope that there is not. */
    again.open = 1;
    again.time = ~0ull;
    CHECK_EQ(hvmem_flush_end(rig.heap, &again), HVMEM_E_STALE);
    again.open = 1;
    again.time = 1;
    again.scope = HVMEM_SCOPE_INNER + 1;
    CHECK_EQ(hvmem_flush_end(rig.heap, &again), HVMEM_E_STALE);
    CHECK_EQ(hvmem_flush_end(rig.heap, NULL), HVMEM_E_ARG);
    memset(&token, 0, sizeof token);
    CHECK_EQ(hvmem_flush_end(rig.heap, &token), HVMEM_E_STALE);
    clock_rig_end(&rig);
}

/* ---- CPUs that come and go ------------------------------------------------------------------- */

TEST(a_cpu_that_joins_has_flushed)
{
    clock_rig_begin(&rig, CLOCK_RIG_QUIET, 0);
    leave_a_debt();
    clock_rig_offline(&rig, 4); /* with translations of the freed block */
    take_all();
    CHECK_EQ(rig.asked, CLOCK_CPUS - 1);
    clock_rig_online(&rig, 4); /* the rig looks into its TLB */
    CHECK_EQ(rig.stale, 0);
    take_all();
    CHECK_EQ(clock_rig_flushes(&rig), 1);
    clock_rig_end(&rig);
}

static int join_during_scan(const char *name, void *ctx)
{
    int *once = ctx;
    hvmem_cpu cpu;

    if (strcmp(name, "clock_scan") != 0 || !*once)
        return 0;
    *once = 0;
    clock_rig_online(&rig, 4);
    clock_rig_switch(&rig, 4, 1, 0);
    clock_rig_speculate(&rig, 200);
    clock_rig_free(&rig, 1, 1, 0);
    for (cpu = 0; cpu < 4; cpu++)
        clock_rig_flush(&rig, cpu, 0);
    return 0;
}

/* The CPUs that a scan knew have all flushed after a block was freed; the one that joined has not. */
TEST(a_cpu_that_joins_during_a_scan_is_asked_later, points)
{
    int once = 1;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET | CLOCK_RIG_NO_CACHE, 0);
    clock_rig_offline(&rig, 4);
    REQUIRE_EQ(clock_rig_alloc(&rig, 0, 1, 0, 2), HVMEM_OK);
    leave_a_debt();
    test_set_point_hook(join_during_scan, &once);
    take_all();
    CHECK_EQ(once, 0);
    clock_rig_end(&rig);
}

/*
 * After a CPU that joins has flushed another one frees, and all that are known flush: had the joining CPU
 * loaded the translation meanwhile, nobody would ask it any more.
 */
static int free_while_joining(const char *name, void *ctx)
{
    int *once = ctx;
    hvmem_cpu cpu;

    if (strcmp(name, "clock_publish") != 0 || !*once || rig.current != 4)
        return 0;
    *once = 0;
    clock_rig_free(&rig, 1, 1, 0);
    for (cpu = 0; cpu < 4; cpu++)
        clock_rig_flush(&rig, cpu, 0);
    rig.current = 0;
    hvmem__clock_raise_floor(rig.heap);
    rig.current = 4;
    return 0;
}

TEST(a_cpu_that_joins_is_asked_for_what_is_freed_meanwhile, points)
{
    hvmem_u64 freed;
    int once = 1;

    clock_rig_begin(&rig, CLOCK_RIG_QUIET | CLOCK_RIG_NO_CACHE, 0);
    clock_rig_offline(&rig, 4);
    REQUIRE_EQ(clock_rig_alloc(&rig, 0, 1, 0, 2), HVMEM_OK);
    test_set_point_hook(free_while_joining, &once);
    clock_rig_online(&rig, 4);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(once, 0);
    freed = hvmem__load(&rig.heap->clock.cpu[4].time);
    /* It flushed before the block was freed: no frame that it may hold counts as mature. */
    CHECK(rig.heap->clock.floor <= freed);
    clock_rig_end(&rig);
}

/* ---- B23 ------------------------------------------------------------------------------------- */

/* At the `at`-th point of the clock CPU 1 flushes some times, and loads what the tables allow. */
struct intruder {
    int at, seen, ticks;
};

static int intrude(const char *name, void *ctx)
{
    struct intruder *intruder = ctx;
    int i;

    if (strncmp(name, "clock_", 6) != 0 || intruder->seen++ != intruder->at)
        return 0;
    for (i = 0; i < intruder->ticks; i++) {
        clock_rig_flush(&rig, 1, 0);
        clock_rig_speculate(&rig, 60);
    }
    return 0;
}

/* Flush and reload in every window of free and hand-over, with 1 to 5 ticks in it. */
TEST(B23_flush_and_reload_in_every_window, points)
{
    struct intruder intruder;
    int reached = 0;

    for (intruder.at = 0; intruder.at < 24; intruder.at++)
        for (intruder.ticks = 1; intruder.ticks <= 5; intruder.ticks++) {
            clock_rig_begin(&rig, CLOCK_RIG_QUIET | CLOCK_RIG_NO_CACHE, 7);
            REQUIRE_EQ(clock_rig_alloc(&rig, 0, 1, 0, 1), HVMEM_OK); /* what CPU 1 runs */
            clock_rig_speculate(&rig, 60);
            intruder.seen = 0;
            test_set_point_hook(intrude, &intruder);
            clock_rig_free(&rig, 0, 1, 0);
            while (clock_rig_alloc(&rig, 0, 0, (int)(rig.handed % CLOCK_SLOTS), 2) == HVMEM_OK &&
                   rig.handed < 1 + CLOCK_FRAMES / 4)
                clock_rig_speculate(&rig, 4);
            CHECK_EQ(rig.handed, 1 + CLOCK_FRAMES / 4);
            CHECK_EQ(rig.stale, 0);
            reached = intruder.seen > reached ? intruder.seen : reached;
            clock_rig_end(&rig);
        }
    CHECK(reached >= 5); /* stamp, tick, flush and publish of each CPU */
}

/* ---- everything at any time ------------------------------------------------------------------ */

static void random_program(unsigned flags, uint64_t stream)
{
    uint64_t flushes;

    clock_rig_begin(&rig, flags, stream);
    clock_rig_run(&rig, test_rounds(20000));
    flushes = clock_rig_flushes(&rig);
    if (!CHECK_EQ(rig.stale, 0))
        test_note("flags %#x, %llu blocks handed over", flags, (unsigned long long)rig.handed);
    CHECK(rig.handed > 1000 && flushes > 50);
    clock_rig_end(&rig);
}

TEST(random_programs_hand_over_nothing_stale, points)
{
    unsigned flags;

    for (flags = 0; flags < 8; flags++)
        random_program(flags, flags);
}

TEST(the_oracle_sees_flushes_that_do_nothing, points)
{
    clock_rig_begin(&rig, CLOCK_RIG_DEAF, 3);
    clock_rig_run(&rig, 60000);
    CHECK(rig.stale != 0);
    clock_rig_end(&rig);
}
