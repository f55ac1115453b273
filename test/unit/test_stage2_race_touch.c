/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As test_stage2_race.c: one frame that waits for its first touch, reached in several ways at once: through
 * two guest frames, through two second stages, beside a settle. It is scrubbed once, and never after the
 * guest wrote to it.
 */
#include "stage2_race.h"

#include <hvmem/populate.h>

#include <string.h>

#define PAGE  0x205u
#define ALIAS 0x405u
#define BLOCK 0x200u
#define TWIN  0x400u

static struct stage2_race race;

static void explore_formats(struct race_program program)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    int i;

    program.flags = HVMEM_S2_FIRST_TOUCH;
    for (i = 0; i < 3; i++) {
        program.format = formats[i];
        race_explore(&race, &program);
    }
}

/* One frame of a dirty block at two places of the guest. */
static void aliased_page(struct stage2_race *r)
{
    race_dirty_block(r);
    race_watch(r, PAGE);
    race_watch(r, ALIAS);
    r->waits[1] = 1;
    REQUIRE_EQ(race_map(r, PAGE, 1, r->block + 1), HVMEM_OK);
    REQUIRE_EQ(race_map(r, ALIAS, 1, r->block + 1), HVMEM_OK);
}

static void aliased_block(struct stage2_race *r)
{
    race_dirty_block(r);
    race_watch(r, BLOCK);
    race_watch(r, TWIN);
    memset(r->waits, 1, sizeof r->waits);
    REQUIRE_EQ(race_map(r, BLOCK, 512, r->block), HVMEM_OK);
    REQUIRE_EQ(race_map(r, TWIN, 512, r->block), HVMEM_OK);
}

/* Two stretches of a block, a fault each: more only take longer. */
static void by_halves(struct stage2_race *r)
{
    r->rig.line = 4096;
    r->rig.config.touch_lines = 256;
}

static void writes_first(struct stage2_race *r)
{
    r->done[0] = (uint64_t)race_guest(r, r->page[0].gfn, HVMEM_S2_W);
}

static void reads_second(struct stage2_race *r)
{
    r->done[1] = (uint64_t)race_guest(r, r->page[1].gfn, HVMEM_S2_R);
}

static void paid_once(struct stage2_race *r)
{
    int i;

    RACE_CHECK(r, r->done[0] == 1 && r->done[1] == 1);
    for (i = 0; i < RACE_FRAMES; i++)
        RACE_CHECK(r, r->zeroed[i] <= 1 && !r->waits[i]);
    RACE_CHECK(r, r->zeroed[1] == 1);
}

TEST(two_aliases_are_scrubbed_once, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 100};

    p.setup = aliased_page;
    p.thread[0] = writes_first;
    p.thread[1] = reads_second;
    p.finish = paid_once;
    explore_formats(p);
    p.setup = aliased_block;
    p.prepare = by_halves;
    p.preemptions = 2;
    explore_formats(p);
}

/* Pages that wait for their first touch among some that were touched, then armed. */
static void armed_among_touched(struct stage2_race *r)
{
    race_dirty_block(r);
    race_watch(r, PAGE);
    race_watch(r, PAGE + 2);
    r->waits[1] = r->waits[2] = 1;
    REQUIRE_EQ(race_map(r, PAGE, 3, r->block), HVMEM_OK);
    CHECK(rig_access(&r->rig, 0, PAGE << 12, HVMEM_S2_W) > 0);
    REQUIRE_EQ(race_arm(r), HVMEM_OK);
}

static void disarms(struct stage2_race *r)
{
    RACE_CHECK(r, race_disarm(r) == HVMEM_OK);
}

/* The guest's fault pushes tables down while a disarm goes through them. */
TEST(disarm_beside_a_fault, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 100};

    p.setup = armed_among_touched;
    p.thread[0] = disarms;
    p.thread[1] = reads_second;
    explore_formats(p);
}

/* ---- two second stages -------------------------------------------------------------------------- */

static struct stage2_rig rig;
static struct hvmem_stage2 *other;
static uint64_t zeroed;
static hvmem_u32 meanwhile;

/* Another CPU comes to the frame through its own tables, in the middle of a page. */
static void faults_elsewhere(struct stage2_rig *r, hvmem_mfn mfn)
{
    (void)r;
    (void)mfn;
    if (zeroed++ == 0)
        CHECK_EQ(hvmem_stage2_fault(other, 0x9000, HVMEM_S2_R, &meanwhile), HVMEM_OK);
}

static hvmem_status map_in(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_mfn mfn)
{
    struct hvmem_stage2_map map;

    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.gfn = gfn;
    map.mfn = mfn;
    map.frames = 1;
    map.rights = HVMEM_S2_RWX;
    return hvmem_stage2_map(s2, &map, NULL);
}

TEST(two_second_stages_pay_once)
{
    struct hvmem_cursor cursor;
    hvmem_u32 outcome;

    memset(&race, 0, sizeof race);
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.flags = HVMEM_S2_FIRST_TOUCH;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    other = rig_second(&rig);
    race.rig.heap = rig.heap;
    race.rig.domain = rig.domain;
    race_dirty_block(&race);
    REQUIRE_EQ(map_in(rig.s2, 5, race.block), HVMEM_OK);
    REQUIRE_EQ(map_in(other, 9, race.block), HVMEM_OK);
    zeroed = 0;
    rig.on_zero = faults_elsewhere;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x5000, HVMEM_S2_W, &outcome), HVMEM_OK);
    CHECK_EQ(outcome, HVMEM_FAULT_ENTER);
    CHECK_EQ(meanwhile, HVMEM_FAULT_AGAIN);
    CHECK_EQ(hvmem_stage2_fault(other, 0x9000, HVMEM_S2_R, &outcome), HVMEM_OK);
    CHECK_EQ(outcome, HVMEM_FAULT_ENTER);
    CHECK_EQ(zeroed, 1);
    memset(&cursor, 0, sizeof cursor);
    while (hvmem_stage2_teardown(other, &cursor) == HVMEM_AGAIN)
        ;
    CHECK_EQ(hvmem_free(rig.heap, race.block, 9), HVMEM_OK);
    stage2_rig_close(&rig);
}

/* ---- the host pays as well ---------------------------------------------------------------------- */

/* One page, and the whole block that it is in, by the host. */
static void page_of_block(struct stage2_race *r)
{
    race_dirty_block(r);
    race_watch(r, PAGE);
    r->waits[1] = 1;
    REQUIRE_EQ(race_map(r, PAGE, 1, r->block + 1), HVMEM_OK);
}

static void settles(struct stage2_race *r)
{
    r->done[1] =
        hvmem_settle(r->rig.heap, r->block, 512, HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE) == HVMEM_OK;
}

static void nothing_is_owed(struct stage2_race *r)
{
    struct hvmem_block block;

    paid_once(r);
    RACE_CHECK(r, hvmem_lookup(r->rig.heap, r->block, &block) == HVMEM_OK);
    RACE_CHECK(r, !(block.owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE)));
}

TEST(settle_beside_a_first_touch, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 100};

    p.setup = page_of_block;
    p.thread[0] = writes_first;
    p.thread[1] = settles;
    p.finish = nothing_is_owed;
    explore_formats(p);
}

/* A foreign map pays for what waits, beside a guest that touches it. */
static void maps_foreign(struct stage2_race *r)
{
    hvmem_status status;
    int calls = 0;

    do
        status = hvmem_domain_foreign(r->rig.domain, r->block, 9);
    while (status == HVMEM_AGAIN && ++calls < 100);
    r->done[1] = status == HVMEM_OK;
}

static void untouched_page(struct stage2_race *r)
{
    struct hvmem_populate request;
    struct hvmem_domain_ops ops;
    struct hvmem_extent extent;
    struct hvmem_cursor cursor;

    race_dirty_block(r);
    REQUIRE_EQ(hvmem_free_owned(r->rig.heap, r->block, 9, r->rig.domain, 0), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(r->rig.domain, &ops, r->rig.s2, r->rig.space), HVMEM_OK);
    memset(&request, 0, sizeof request);
    memset(&extent, 0, sizeof extent);
    memset(&cursor, 0, sizeof cursor);
    extent.gfn = BLOCK;
    extent.order = 9;
    extent.flags = HVMEM_EXTENT_FIRST_TOUCH;
    request.size = sizeof request;
    request.extents = &extent;
    request.count = 1;
    request.node = HVMEM_NODE_ANY;
    REQUIRE_EQ(hvmem_domain_populate(r->rig.domain, &request, &cursor), HVMEM_OK);
    r->block = extent.mfn;
    memset(r->waits, 1, sizeof r->waits);
    race_watch(r, BLOCK + 1);
}

static void nothing_waits(struct stage2_race *r)
{
    nothing_is_owed(r);
    RACE_CHECK(r, race_unmap(r, BLOCK, 512) == HVMEM_OK);
}

TEST(foreign_map_beside_a_first_touch, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 100};

    p.prepare = by_halves;
    p.setup = untouched_page;
    p.thread[0] = writes_first;
    p.thread[1] = maps_foreign;
    p.finish = nothing_waits;
    explore_formats(p);
}
