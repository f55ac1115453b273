/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As test_stage2_race.c, where frames and their contents are at stake: set/way against stores, first touch
 * against unmap, frames on demand, teardown against everything.
 */
#include "stage2_race.h"

#include <string.h>

#define PAGE  0x205u
#define NEXT  0x206u
#define BLOCK 0x200u

static struct stage2_race race;

static void explore_formats(struct race_program program)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    int i;

    for (i = 0; i < 3; i++) {
        program.format = formats[i];
        race_explore(&race, &program);
    }
}

/* ---- set/way -------------------------------------------------------------------------------- */

/* Two pages out of a block of the heap, both written before. */
static void written_pages(struct stage2_race *r)
{
    race_block(r);
    race_watch(r, PAGE);
    race_watch(r, NEXT);
    REQUIRE_EQ(race_map(r, PAGE, 2, r->block), HVMEM_OK);
    r->dirty[0] = r->dirty[1] = 1;
}

static void written_block(struct stage2_race *r)
{
    race_block(r);
    race_watch(r, BLOCK);
    race_watch(r, BLOCK + 1);
    REQUIRE_EQ(race_map(r, BLOCK, 512, r->block), HVMEM_OK);
    r->dirty[0] = 1;
}

static void sets_ways(struct stage2_race *r)
{
    RACE_CHECK(r, race_setway(r) == HVMEM_OK);
}

static void writes_page(struct stage2_race *r)
{
    r->done[1] = (uint64_t)race_guest(r, r->page[0].gfn, HVMEM_S2_W);
    RACE_CHECK(r, r->done[1] == 1);
}

static void unmaps_page(struct stage2_race *r)
{
    RACE_CHECK(r, race_unmap(r, r->page[0].gfn, 1) == HVMEM_OK);
}

/* What was written before is clean; a store meanwhile is, or is found by the next operation. */
static void nothing_is_lost(struct stage2_race *r)
{
    RACE_CHECK(r, !r->dirty[1]);
    RACE_CHECK(r, !r->dirty[0] || race_touched(r, r->page[0].gfn));
    RACE_CHECK(r, race_setway(r) == HVMEM_OK);
    RACE_CHECK(r, !r->dirty[0] && !r->dirty[1]);
}

TEST(setway_against_a_write, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 100};

    p.setup = written_pages;
    p.thread[0] = sets_ways;
    p.thread[1] = writes_page;
    p.finish = nothing_is_lost;
    explore_formats(p);
    p.setup = written_block;
    p.preemptions = 2;
    explore_formats(p);
}

static void the_rest_is_clean(struct stage2_race *r)
{
    RACE_CHECK(r, !r->dirty[1]);
}

TEST(setway_against_unmap, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 100};

    p.setup = written_pages;
    p.thread[0] = sets_ways;
    p.thread[1] = unmaps_page;
    p.finish = the_rest_is_clean;
    explore_formats(p);
}

/* ---- first touch ---------------------------------------------------------------------------- */

static void unclean_page(struct stage2_race *r)
{
    race_block(r);
    race_watch(r, PAGE);
    r->waits[0] = 1;
    REQUIRE_EQ(race_map(r, PAGE, 1, r->block), HVMEM_OK);
}

static void unclean_block(struct stage2_race *r)
{
    race_block(r);
    race_watch(r, BLOCK);
    race_watch(r, BLOCK + 1);
    memset(r->waits, 1, sizeof r->waits);
    REQUIRE_EQ(race_map(r, BLOCK, 512, r->block), HVMEM_OK);
}

static void touches(struct stage2_race *r)
{
    r->done[test_thread()] = (uint64_t)race_guest(r, r->page[0].gfn, HVMEM_S2_R);
}

/* Its owner from here on is another. */
static void unmaps_and_gives(struct stage2_race *r)
{
    RACE_CHECK(r, race_unmap(r, r->page[0].gfn, 1) == HVMEM_OK);
    r->given[0] = 1;
}

TEST(first_touch_against_unmap, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 30};

    p.flags = HVMEM_S2_FIRST_TOUCH;
    p.setup = unclean_page;
    p.thread[0] = touches;
    p.thread[1] = unmaps_and_gives;
    explore_formats(p);
    p.setup = unclean_block; /* the unmap splits it, while stretches of it are paid for */
    p.preemptions = 2;
    explore_formats(p);
}

static void both_got_in(struct stage2_race *r)
{
    RACE_CHECK(r, r->done[0] == 1 && r->done[1] == 1 && !r->waits[0]);
    RACE_CHECK(r, rig_stats(&r->rig).repairs == 1);
}

TEST(first_touch_by_two, points)
{
    struct race_program p = {.threads = 2, .preemptions = 5, .least = 100};

    p.flags = HVMEM_S2_FIRST_TOUCH;
    p.setup = unclean_page;
    p.thread[0] = touches;
    p.thread[1] = touches;
    p.finish = both_got_in;
    explore_formats(p);
}

/* ---- frames on demand ----------------------------------------------------------------------- */

/* count[0]: frames given; [1]: of them not used and freed. */
static hvmem_status give(void *ctx, hvmem_gfn gfn, hvmem_u32 access, struct hvmem_stage2_leaf *leaf)
{
    struct stage2_race *r = ctx;
    hvmem_status status = hvmem_alloc_order(r->rig.heap, 0, &leaf->mfn);

    (void)gfn;
    (void)access;
    test_yield();
    if (!status)
        r->count[0]++;
    return status;
}

static void lost(void *ctx, hvmem_gfn gfn, const struct hvmem_stage2_leaf *leaf)
{
    struct stage2_race *r = ctx;

    (void)gfn;
    if (hvmem_free(r->rig.heap, leaf->mfn, 0))
        race_wrong(r, "a frame lost that was not given", gfn);
    r->count[1]++;
}

static void on_demand(struct stage2_race *r)
{
    race_watch(r, PAGE);
    race_watch(r, NEXT);
    r->count[2] = hvmem_free_frames(r->rig.heap) + rig_stats(&r->rig).tables;
}

static void demands(struct stage2_race *r)
{
    r->done[test_thread()] = (uint64_t)race_guest(r, PAGE, HVMEM_S2_W);
}

/* Frames that were mapped are the guest's, and nobody's after it: freed here. */
static void one_frame_came(struct stage2_race *r)
{
    struct hvmem_stage2_stats stats = rig_stats(&r->rig);
    struct hvmem_stage2_leaf leaf;

    RACE_CHECK(r, r->done[0] == 1 && r->done[1] == 1);
    RACE_CHECK(r, r->count[0] - r->count[1] == 1);
    RACE_CHECK(r, !hvmem_stage2_lookup(r->rig.s2, PAGE, &leaf));
    RACE_CHECK(r, race_unmap(r, PAGE, 1) == HVMEM_OK);
    RACE_CHECK(r, hvmem_free(r->rig.heap, leaf.mfn, 0) == HVMEM_OK);
    stats = rig_stats(&r->rig);
    RACE_CHECK(r, hvmem_free_frames(r->rig.heap) + stats.tables + stats.pool == r->count[2]);
}

static void prepare_demand(struct stage2_race *r)
{
    r->rig.config.populate.give = give;
    r->rig.config.populate.lost = lost;
    r->rig.config.ctx = r;
}

TEST(two_demand_one_frame, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 100};

    p.prepare = prepare_demand;
    p.setup = on_demand;
    p.thread[0] = demands;
    p.thread[1] = demands;
    p.finish = one_frame_came;
    explore_formats(p);
}

/* ---- a gather of the caller's, still open ---------------------------------------------------- */

#define OLD 0x1000000u /* a machine frame outside the heap */

static void touched_on_demand(struct stage2_race *r)
{
    on_demand(r);
    REQUIRE_EQ(race_map(r, PAGE, 1, OLD), HVMEM_OK);
    CHECK(rig_access(&r->rig, 0, (uint64_t)PAGE << 12, HVMEM_S2_R) >= 0);
}

/* What is removed stays cached until the gather is finished. */
static void unmaps_into_a_gather(struct stage2_race *r)
{
    struct hvmem_gather gather;
    hvmem_u64 done = 0;

    memset(&gather, 0, sizeof gather);
    r->clearing++;
    RACE_CHECK(r, hvmem_gather_begin(&gather, hvmem_stage2_mapping(r->rig.s2), 0,
                                     (hvmem_u64)PAGE << 12, 4096) == HVMEM_OK);
    RACE_CHECK(r, hvmem_stage2_unmap(r->rig.s2, PAGE, 1, &gather, &done) == HVMEM_OK);
    test_yield();
    RACE_CHECK(r, hvmem_gather_finish(&gather) == HVMEM_OK);
    r->clearing--;
}

static void faults_on_another_cpu(struct stage2_race *r)
{
    (void)race_fault(r, PAGE, HVMEM_S2_R);
    test_yield();
    (void)race_fault(r, PAGE, HVMEM_S2_R);
}

static void maps_another(struct stage2_race *r)
{
    hvmem_status status = rig_map(&r->rig, PAGE, 1, 2 * OLD, HVMEM_S2_RWX, 0, NULL);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_BUSY);
}

/* The frame given on demand, if any, is nobody's after it. */
static void free_what_was_given(struct stage2_race *r)
{
    struct hvmem_stage2_leaf leaf;

    memset(&leaf, 0, sizeof leaf);
    if (!hvmem_stage2_lookup(r->rig.s2, PAGE, &leaf) && leaf.mfn < OLD) {
        RACE_CHECK(r, race_unmap(r, PAGE, 1) == HVMEM_OK);
        RACE_CHECK(r, hvmem_free(r->rig.heap, leaf.mfn, 0) == HVMEM_OK);
    }
}

TEST(demand_beside_a_gather_of_the_caller, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 100};

    p.prepare = prepare_demand;
    p.setup = touched_on_demand;
    p.thread[0] = unmaps_into_a_gather;
    p.thread[1] = faults_on_another_cpu;
    p.finish = free_what_was_given;
    explore_formats(p);
    p.thread[1] = maps_another;
    p.least = 50;
    explore_formats(p);
}

/* ---- teardown ------------------------------------------------------------------------------- */

static void tears_down(struct stage2_race *r)
{
    RACE_CHECK(r, race_teardown(r) == HVMEM_OK);
}

/* A fault, a demand and a change: each comes before or is refused. */
static void faults_demands_changes(struct stage2_race *r)
{
    hvmem_u32 outcome = race_fault(r, NEXT, HVMEM_S2_R);
    hvmem_status status;

    RACE_CHECK(r, outcome <= HVMEM_FAULT_UNMAPPED || outcome == 100);
    outcome = race_fault(r, PAGE, HVMEM_S2_R);
    RACE_CHECK(r, outcome == HVMEM_FAULT_ENTER || outcome == 100);
    status = race_unmap(r, PAGE, 1);
    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
    status = race_map(r, PAGE, 1, 0x1000000);
    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

/* It needs tables, which the heap gives while the others are freed. */
static void maps_far(struct stage2_race *r)
{
    hvmem_status status = race_map(r, PAGE + 0x40000, 1, 0x1000000);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

/* The other one is under way, or has done it. */
static void tears_down_too(struct stage2_race *r)
{
    hvmem_status status = race_teardown(r);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE || status == HVMEM_E_STALE);
}

static void armed_page_on_demand(struct stage2_race *r)
{
    on_demand(r);
    REQUIRE_EQ(race_map(r, PAGE, 1, 0x2000000), HVMEM_OK);
    REQUIRE_EQ(race_arm(r), HVMEM_OK);
}

/* Every table came back, and every frame that was given and not mapped. */
static void all_is_back(struct stage2_race *r)
{
    uint64_t mapped = r->count[0] - r->count[1];

    RACE_CHECK(r, mapped <= 1);
    RACE_CHECK(r, hvmem_free_frames(r->rig.heap) + mapped == RIG_FRAMES);
    r->rig.s2 = NULL;
}

TEST(teardown_against_fault_demand_and_change, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 50};

    p.prepare = prepare_demand;
    p.setup = armed_page_on_demand;
    p.thread[0] = tears_down;
    p.thread[1] = faults_demands_changes;
    p.finish = all_is_back;
    explore_formats(p);
    p.preemptions = 2;
    p.thread[1] = maps_far;
    explore_formats(p);
    p.thread[0] = p.thread[1] = tears_down_too;
    explore_formats(p);
}

/* ---- teardown against calls that walk more than once ------------------------------------------- */

/* count[3]: the tables went back to the heap, the root too. */
static void *table_while_there_are(void *ctx, hvmem_maddr table)
{
    struct stage2_race *r = ctx;

    if (r->count[3])
        race_wrong(r, "a table is walked after the teardown", table >> 12);
    return r->rig.pool + (table - ((hvmem_maddr)RIG_BASE << 12));
}

static void prepare_tables(struct stage2_race *r)
{
    r->rig.config.table_at = table_while_there_are;
    r->rig.config.ctx = r;
}

static void tears_down_for_good(struct stage2_race *r)
{
    RACE_CHECK(r, race_teardown(r) == HVMEM_OK);
    r->count[3] = 1;
}

static void merges_block(struct stage2_race *r)
{
    hvmem_status status;

    r->clearing++;
    status = hvmem_stage2_merge(r->rig.s2, BLOCK, 512, NULL);
    r->clearing--;
    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

static void disarms(struct stage2_race *r)
{
    hvmem_status status = race_disarm(r);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

static void arms(struct stage2_race *r)
{
    hvmem_status status = race_arm(r);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

static void sets_ways_or_not(struct stage2_race *r)
{
    hvmem_status status = race_setway(r);

    RACE_CHECK(r, status == HVMEM_OK || status == HVMEM_E_PHASE);
}

static void split_block(struct stage2_race *r)
{
    written_block(r);
    REQUIRE_EQ(race_protect(r, BLOCK + 5, 1, HVMEM_S2_R), HVMEM_OK);
    REQUIRE_EQ(race_protect(r, BLOCK + 5, 1, HVMEM_S2_RWX), HVMEM_OK);
}

static void is_gone(struct stage2_race *r)
{
    r->rig.s2 = NULL;
}

/* Each comes before, or is refused: nothing reads or writes the root after it was freed. */
TEST(teardown_against_merge_disarm_arm_and_setway, points)
{
    struct race_program p = {.threads = 2, .preemptions = 2, .least = 30};
    void (*const others[])(struct stage2_race *) = {merges_block, disarms, arms, sets_ways_or_not};
    size_t i;

    p.prepare = prepare_tables;
    p.thread[0] = tears_down_for_good;
    p.finish = is_gone;
    for (i = 0; i < sizeof others / sizeof others[0]; i++) {
        p.setup = others[i] == merges_block ? split_block : written_pages;
        p.thread[1] = others[i];
        explore_formats(p);
    }
}
