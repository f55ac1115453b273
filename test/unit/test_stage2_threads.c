/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads as CPUs on one second stage, for the thread sanitizer: map, unmap, rights, faults, ageing, arming,
 * set/way, merges and look-ups at random, on the same entries: the pages of one block belong to different
 * threads, so that blocks are split and merged under everybody. Each thread knows its own pages exactly
 * and checks them after each call; between rounds one of them checks everything: the independent
 * walker, model TLBs, counts, tables in use and free. The last round tears down under the others.
 */
#include "stage2_rig.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#define THREADS 3
#define FIRST   0x200u /* two blocks of 2 MiB */
#define PAGES   1024u
#define GROUP   16u /* pages of one owner side by side */
#define HERE    0x80u

static struct {
    struct stage2_rig rig;
    pthread_mutex_t tlbs;
    uint32_t arrived; /* threads at a barrier, ever */
    hvmem_mfn block;
    unsigned flags; /* WITH_* */
    uint64_t rounds, steps;
    int last;              /* the round in which it is torn down */
    uint8_t shadow[PAGES]; /* HERE | rights; the owner's to write */
    /* Under the mutex. */
    uint8_t dirty[PAGES], waits[PAGES], mapped[PAGES];
    uint64_t busy, through, splits;
} t;
#define WITH_ARMING 1u /* arm and disarm */
#define WITH_SETWAY 2u /* armed once, then ageing and set/way */
#define WITH_TOUCH  4u /* every page waits for its first touch */

static __thread hvmem_cpu self;
static __thread int last; /* the round in which it is torn down */
static __thread struct test_rng rng;

static hvmem_cpu this_cpu(void)
{
    return self;
}

/* Whoever is waited for may not be running, for longer than many turns take. */
static void relax(void)
{
    static __thread unsigned turns;

    if (++turns % 16 == 0)
        usleep(1000);
    else
        sched_yield();
}

static void guard(int on)
{
    if (on)
        pthread_mutex_lock(&t.tlbs);
    else
        pthread_mutex_unlock(&t.tlbs);
}

/* ---- what hardware does, under the mutex ----------------------------------------------------- */

static void on_clean(struct stage2_rig *rig, hvmem_mfn mfn)
{
    uint64_t page = mfn - t.block;

    (void)rig;
    REQUIRE(page < PAGES);
    /* Set/way may come late: cleaning twice does no harm. What is scrubbed must not be another's. */
    CHECK(t.mapped[page] || !(t.flags & WITH_TOUCH));
    t.dirty[page] = t.waits[page] = 0;
}

static void on_access(struct stage2_rig *rig, uint64_t gfn, uint64_t mfn, unsigned access)
{
    uint64_t page = mfn - t.block;

    (void)rig;
    CHECK(page < PAGES && page == gfn - FIRST);
    CHECK(t.mapped[page] && !t.waits[page]);
    t.through++;
    if (access & HVMEM_S2_W)
        t.dirty[page] = 1;
}

/* CPUs load what they like, and nothing that contradicts what they have. */
static void speculate(void)
{
    struct hvmem_sim_entry e;
    int i;

    guard(1);
    for (i = 0; i < 4; i++)
        hvmem_sim_tlb_access(t.rig.tlb, (hvmem_cpu)test_below(&rng, THREADS),
                             FIRST + test_below(&rng, PAGES), &e);
    if (test_below(&rng, 16) == 0 && t.rig.config.format == HVMEM_S2_ARM64 &&
        !(t.rig.features & HVMEM_CAP_BBM2))
        CHECK_EQ(rig_conflicts(&t.rig), 0);
    guard(0);
}

static void on_flush(struct stage2_rig *rig, const struct hvmem_tlb_flush *flush)
{
    (void)rig;
    (void)flush;
    speculate();
}

/* Most that any CPU holds of the pages: HERE and rights. */
static unsigned held(uint64_t gfn, uint64_t frames)
{
    unsigned found = 0;
    hvmem_cpu cpu;
    int i;

    guard(1);
    for (cpu = 0; cpu < THREADS; cpu++)
        for (i = 0; i < RIG_SLOTS; i++) {
            const struct hvmem_sim_entry *e = &hvmem_sim_tlb_entries(t.rig.tlb, cpu)[i];

            if (e->valid && !e->table && e->page < gfn + frames &&
                e->page + ((uint64_t)1 << e->shift) > gfn)
                found |= HERE | (unsigned)(e->frame & 7);
        }
    guard(0);
    return found;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Pages of this thread's own, within one group. */
static uint64_t own(uint64_t *frames)
{
    uint64_t group = test_below(&rng, PAGES / GROUP / THREADS) * THREADS + self;
    uint64_t at = test_below(&rng, GROUP);

    *frames = 1 + test_below(&rng, GROUP - at);
    return FIRST + group * GROUP + at;
}

/* Refused as the tables are being torn down; or, where a call may be, because of the others. */
static int may_be(hvmem_status status, int busy)
{
    int ok =
        status == HVMEM_OK || (busy && status == HVMEM_E_BUSY) || (last && status == HVMEM_E_PHASE);

    if (status == HVMEM_E_BUSY) {
        guard(1);
        t.busy++;
        guard(0);
    }
    return CHECK(ok) && status == HVMEM_OK;
}

static void mark(uint64_t gfn, uint64_t frames, int mapped)
{
    guard(1);
    memset(&t.mapped[gfn - FIRST], mapped, frames);
    memset(&t.dirty[gfn - FIRST], 0, frames);
    memset(&t.waits[gfn - FIRST], mapped && (t.flags & WITH_TOUCH), frames);
    guard(0);
}

static void step_map(void)
{
    static const unsigned rights[] = {7, 7, 7, 7, 3, 1};
    uint64_t frames, gfn = own(&frames), done = 0, first;
    unsigned to = rights[test_below(&rng, 6)];
    hvmem_status status;

    for (first = 0; first < frames && !t.shadow[gfn - FIRST + first]; first++)
        ;
    mark(gfn, first, 1);
    status = rig_map(&t.rig, gfn, frames, t.block + gfn - FIRST, to, 0, &done);
    (void)may_be(status, 1);
    CHECK(done <= first && (status || (done == frames)));
    memset(&t.shadow[gfn - FIRST], (int)(HERE | to), done);
    if (done < first)
        mark(gfn + done, first - done, 0);
}

static void step_unmap(void)
{
    uint64_t frames, gfn = own(&frames), done = 0;
    hvmem_status status = hvmem_stage2_unmap(t.rig.s2, gfn, frames, NULL, &done);

    (void)may_be(status, 1);
    CHECK(status || done == frames);
    if (!done)
        return;
    CHECK_EQ(held(gfn, done), 0);
    memset(&t.shadow[gfn - FIRST], 0, done);
    mark(gfn, done, 0);
}

static void step_protect(void)
{
    static const unsigned rights[] = {7, 7, 3, 5, 1};
    uint64_t frames, gfn = own(&frames), done = 0, i;
    unsigned to = rights[test_below(&rng, 5)];
    hvmem_status status = hvmem_stage2_protect(t.rig.s2, gfn, frames, to, NULL, &done);

    (void)may_be(status, 1);
    if (!done)
        return;
    CHECK_EQ(held(gfn, done) & 7 & ~to, 0);
    for (i = gfn - FIRST; i < gfn - FIRST + done; i++)
        if (t.shadow[i])
            t.shadow[i] = (uint8_t)(HERE | to);
}

static void step_access(void)
{
    unsigned access = 1u << test_below(&rng, 3);
    uint64_t frames, gfn = own(&frames), other = FIRST + test_below(&rng, PAGES);
    int through = rig_access(&t.rig, self, gfn << 12, access) >= 0;

    CHECK(through == ((t.shadow[gfn - FIRST] & access) != 0) || (last && !through));
    (void)rig_access(&t.rig, self, other << 12, access);
    speculate();
}

static void step_look(void)
{
    uint64_t frames, gfn = own(&frames);
    struct hvmem_stage2_leaf leaf;
    hvmem_status status = hvmem_stage2_lookup(t.rig.s2, gfn, &leaf);

    if (last && status == HVMEM_E_PHASE)
        return;
    CHECK_EQ(status, t.shadow[gfn - FIRST] ? HVMEM_OK : HVMEM_E_FREE);
    if (!status)
        CHECK(leaf.mfn == t.block + gfn - FIRST && (HERE | leaf.rights) == t.shadow[gfn - FIRST]);
}

static void step_merge(void)
{
    (void)may_be(hvmem_stage2_merge(t.rig.s2, FIRST + 512 * test_below(&rng, 2), 512, NULL), 0);
}

static void step_age(void)
{
    uint64_t gfn = FIRST + test_below(&rng, PAGES), touched;

    (void)may_be(hvmem_track_age(
                     t.rig.s2, gfn, 1 + test_below(&rng, 64),
                     (t.flags & WITH_TOUCH) && test_below(&rng, 2) ? 0 : HVMEM_AGE_CLEAR, &touched),
                 0);
}

/* To the end, or until somebody else's operation is in the way. */
static void step_track(int kind)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    int calls = 0;

    memset(&cursor, 0, sizeof cursor);
    do {
        if (calls > 100)
            sched_yield(); /* it waits for a first touch that another thread pays for */
        status = kind == 0   ? hvmem_track_arm(t.rig.s2, &cursor)
                 : kind == 1 ? hvmem_track_disarm(t.rig.s2, &cursor)
                             : hvmem_track_setway(t.rig.s2, 0, &cursor, NULL);
    } while (status == HVMEM_AGAIN && ++calls < 100000);
    /* Stale: another one took over where this one was not finished. */
    CHECK(status == HVMEM_OK || status == HVMEM_E_BUSY || status == HVMEM_E_STALE ||
          (last && status == HVMEM_E_PHASE));
}

static void one_step(void)
{
    uint64_t dice = test_below(&rng, 100);

    if (dice < 28)
        step_map();
    else if (dice < 42)
        step_unmap();
    else if (dice < 54)
        step_protect();
    else if (dice < 80)
        step_access();
    else if (dice < 88)
        step_look();
    else if (dice < 92)
        step_merge();
    else if (dice < 96)
        step_age();
    else if (t.flags & WITH_ARMING)
        step_track(dice == 99);
    else if (t.flags & WITH_SETWAY)
        step_track(2);
}

/* ---- quiet ----------------------------------------------------------------------------------- */

static void check_page(uint64_t page)
{
    struct walk_entry hw = rig_walk(&t.rig, FIRST + page);
    struct hvmem_stage2_leaf leaf;
    hvmem_status status = hvmem_stage2_lookup(t.rig.s2, FIRST + page, &leaf);
    unsigned now = held(FIRST + page, 1), is = t.shadow[page];

    CHECK_EQ(status, is ? HVMEM_OK : HVMEM_E_FREE);
    CHECK(is || hw.kind == WALK_INVALID);
    CHECK(!(now & ~is)); /* nothing is held that is not mapped, no right that is not given */
    CHECK(!now || hw.kind == WALK_LEAF);
    if (status)
        return;
    CHECK((HERE | leaf.rights) == is && leaf.mfn == t.block + page);
    CHECK_EQ(hw.kind == WALK_LEAF, !!(leaf.state & HVMEM_S2_TOUCHED));
    /* A stretch of a block that was split before all of it was clean is cleaned again. */
    CHECK(!t.waits[page] || (leaf.state & HVMEM_S2_UNCLEAN));
    if (hw.kind == WALK_LEAF)
        CHECK(hw.address >> 12 == t.block + page && (HERE | hw.rights) == is);
}

static void check_all(void)
{
    struct hvmem_stage2_stats stats;
    uint64_t page;

    for (page = 0; page < PAGES; page++)
        check_page(page);
    rig_check_counts(&t.rig);
    CHECK_EQ(rig_conflicts(&t.rig), 0);
    stats = rig_stats(&t.rig);
    CHECK_EQ(hvmem_free_frames(t.rig.heap) + stats.tables + stats.pool + PAGES, RIG_FRAMES);
    t.splits = stats.splits;
    if (!(t.flags & WITH_SETWAY))
        return;
    /* No store is lost: what is dirty is touched, and the next operation finds it. */
    step_track(2);
    for (page = 0; page < PAGES; page++)
        CHECK(!t.dirty[page]);
}

/* Everything anew, as two blocks. */
static void map_blocks(void)
{
    hvmem_u64 done;

    CHECK_EQ(hvmem_stage2_unmap(t.rig.s2, FIRST, PAGES, NULL, NULL), HVMEM_OK);
    mark(FIRST, PAGES, 1);
    CHECK_EQ(rig_map(&t.rig, FIRST, PAGES, t.block, 7, 0, &done), HVMEM_OK);
    memset(t.shadow, HERE | 7, PAGES);
}

static void tear_down(void)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    uint64_t tries = 0;

    memset(&cursor, 0, sizeof cursor);
    do {
        status = hvmem_stage2_teardown(t.rig.s2, &cursor);
        sched_yield();
    } while ((status == HVMEM_AGAIN || status == HVMEM_E_BUSY) && ++tries < 1000000);
    CHECK_EQ(status, HVMEM_OK);
}

/* A barrier that a thread which a failed check ended does not hold up for ever. */
static void meet(void)
{
    uint32_t goal = __atomic_add_fetch(&t.arrived, 1, __ATOMIC_ACQ_REL);
    uint64_t turns;

    goal = (goal + THREADS - 1) / THREADS * THREADS;
    for (turns = 0; __atomic_load_n(&t.arrived, __ATOMIC_ACQUIRE) < goal; turns++) {
        REQUIRE(turns < 20000);
        usleep(turns < 100 ? 0 : 1000);
    }
}

static void *run(void *arg)
{
    uint64_t round, i;

    self = (hvmem_cpu)(uintptr_t)arg;
    rng = test_rng(self + 1);
    for (round = 0; round < t.rounds; round++) {
        last = round + 1 == t.rounds;
        meet();
        for (i = 0; i < t.steps; i++) {
            if (last && !self && i == t.steps / 2) {
                tear_down();
                break;
            }
            one_step();
        }
        meet();
        if (self || last)
            continue;
        check_all();
        if (round % 4 != 3)
            map_blocks();
    }
    return NULL;
}

static void stress(uint32_t format, uint64_t features, unsigned flags)
{
    pthread_t thread[THREADS];
    struct hvmem_cursor cursor;
    uintptr_t i;

    memset(&t, 0, sizeof t);
    pthread_mutex_init(&t.tlbs, NULL);
    t.flags = flags;
    t.rounds = 30;
    t.steps = test_rounds(100);
    stage2_rig_prepare(&t.rig, format);
    t.rig.cpus = THREADS;
    t.rig.features |= features;
    t.rig.config.flags = flags & WITH_TOUCH ? HVMEM_S2_FIRST_TOUCH : 0;
    REQUIRE_EQ(stage2_rig_open(&t.rig), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(t.rig.heap, 10, &t.block), HVMEM_OK);
    memset(&cursor, 0, sizeof cursor);
    if (flags & WITH_SETWAY)
        CHECK_EQ(hvmem_track_arm(t.rig.s2, &cursor), HVMEM_OK);
    t.rig.cpu = this_cpu;
    t.rig.relax = relax;
    t.rig.guard = guard;
    t.rig.on_flush = on_flush;
    t.rig.on_clean = on_clean;
    t.rig.on_access = on_access;
    for (i = 0; i < THREADS; i++)
        REQUIRE_EQ(pthread_create(&thread[i], NULL, run, (void *)i), 0);
    for (i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    CHECK_EQ(hvmem_free(t.rig.heap, t.block, 10), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(t.rig.heap), RIG_FRAMES);
    CHECK_EQ(rig_holds(&t.rig, 0, ~0ull), 0);
    CHECK(t.through > t.steps && t.splits > t.rounds);
    test_note("%llu through, %llu splits, %llu busy", (unsigned long long)t.through,
              (unsigned long long)t.splits, (unsigned long long)t.busy);
    t.rig.s2 = NULL;
    stage2_rig_close(&t.rig);
    pthread_mutex_destroy(&t.tlbs);
}

TEST(arm64_armed_by_all, threads)
{
    stress(HVMEM_S2_ARM64, 0, WITH_ARMING);
}

TEST(arm64_set_ways_by_all, threads)
{
    stress(HVMEM_S2_ARM64, 0, WITH_SETWAY);
}

TEST(arm64_first_touch_by_all, threads)
{
    stress(HVMEM_S2_ARM64, 0, WITH_ARMING | WITH_TOUCH);
}

TEST(arm64_without_break, threads)
{
    stress(HVMEM_S2_ARM64, HVMEM_CAP_BBM2, WITH_SETWAY);
}

TEST(npt_armed_by_all, threads)
{
    stress(HVMEM_S2_NPT, 0, WITH_ARMING);
}

TEST(ept_set_ways_by_all, threads)
{
    stress(HVMEM_S2_EPT, 0, WITH_SETWAY);
}
