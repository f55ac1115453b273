/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two operations on one entry of a second stage in every order of their steps, against model TLBs that
 * load whatever the tables offer in between. The oracle is in stage2_race.h.
 */
#include "stage2_race.h"

#include <string.h>

#define PAGE  0x205u
#define OTHER 0x405u /* in another table */
#define BLOCK 0x200u
#define HOME  0x1000000u /* machine frames outside the heap, + gfn */

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

static hvmem_status lookup(struct stage2_race *r, uint64_t gfn, struct hvmem_stage2_leaf *leaf)
{
    memset(leaf, 0, sizeof *leaf);
    return hvmem_stage2_lookup(r->rig.s2, gfn, leaf);
}

static int mapped_at(struct stage2_race *r, uint64_t gfn, uint64_t mfn)
{
    struct hvmem_stage2_leaf leaf;

    return !lookup(r, gfn, &leaf) && leaf.mfn == mfn;
}

static int is_absent(struct stage2_race *r, uint64_t gfn)
{
    struct hvmem_stage2_leaf leaf;

    return lookup(r, gfn, &leaf) == HVMEM_E_FREE && walk_raw(&r->rig.tables, gfn << 12, 3) == 0;
}

/* ---- what the CPUs do ----------------------------------------------------------------------- */

static void reads_page(struct stage2_race *r)
{
    r->done[test_thread()] = (uint64_t)race_guest(r, PAGE, HVMEM_S2_R);
}

static void writes_page(struct stage2_race *r)
{
    r->done[test_thread()] = (uint64_t)race_guest(r, PAGE, HVMEM_S2_W);
}

static void faults_page(struct stage2_race *r)
{
    int i;

    for (i = 0; i < 3; i++)
        if (race_fault(r, PAGE, HVMEM_S2_R) == HVMEM_FAULT_AGAIN)
            test_wait();
}

static void unmaps_page(struct stage2_race *r)
{
    RACE_CHECK(r, race_unmap(r, PAGE, 1) == HVMEM_OK);
}

static void unmaps_first(struct stage2_race *r)
{
    RACE_CHECK(r, race_unmap(r, BLOCK, 1) == HVMEM_OK);
}

static void maps_page(struct stage2_race *r)
{
    int tries = 0;

    while (race_map(r, PAGE, 1, 2 * HOME) == HVMEM_E_BUSY && ++tries < 100)
        test_wait();
    RACE_CHECK(r, tries < 100);
}

static void arms(struct stage2_race *r)
{
    r->status[test_thread()] = race_arm(r);
}

static void ages_page(struct stage2_race *r)
{
    RACE_CHECK(r, race_age(r, PAGE, 1, &r->count[0]) == HVMEM_OK);
}

static void protects_page(struct stage2_race *r)
{
    RACE_CHECK(r, race_protect(r, PAGE, 1, HVMEM_S2_R) == HVMEM_OK);
}

static void merges_block(struct stage2_race *r)
{
    r->clearing++;
    RACE_CHECK(r, hvmem_stage2_merge(r->rig.s2, BLOCK, 512, NULL) == HVMEM_OK);
    r->clearing--;
}

/* ---- what there is before ------------------------------------------------------------------- */

static void one_page(struct stage2_race *r)
{
    race_watch(r, PAGE);
    REQUIRE_EQ(race_map(r, PAGE, 1, HOME + PAGE), HVMEM_OK);
}

static void one_page_armed(struct stage2_race *r)
{
    one_page(r);
    REQUIRE_EQ(race_arm(r), HVMEM_OK);
}

static void one_block(struct stage2_race *r)
{
    race_watch(r, BLOCK);
    race_watch(r, PAGE);
    race_watch(r, BLOCK + 511);
    REQUIRE_EQ(race_map(r, BLOCK, 512, HOME + BLOCK), HVMEM_OK);
}

static void one_block_armed(struct stage2_race *r)
{
    one_block(r);
    REQUIRE_EQ(race_arm(r), HVMEM_OK);
}

static void block_in_pages(struct stage2_race *r)
{
    one_block(r);
    REQUIRE_EQ(race_protect(r, BLOCK, 1, HVMEM_S2_R | HVMEM_S2_X), HVMEM_OK);
    REQUIRE_EQ(race_protect(r, BLOCK, 1, HVMEM_S2_RWX), HVMEM_OK);
}

/* ---- faults against changes ----------------------------------------------------------------- */

static void page_is_gone(struct stage2_race *r)
{
    RACE_CHECK(r, is_absent(r, PAGE));
}

static void fault_against_unmap(int preemptions)
{
    struct race_program p = {.threads = 2, .preemptions = preemptions, .least = 20};

    p.setup = one_page_armed;
    p.thread[0] = reads_page;
    p.thread[1] = unmaps_page;
    p.finish = page_is_gone;
    explore_formats(p);
}

TEST(B36_fault_against_unmap, points)
{
    fault_against_unmap(5);
}

TEST(B36_fault_against_unmap_deeper, points, slow)
{
    fault_against_unmap(32);
}

static void all_but_the_first(struct stage2_race *r)
{
    RACE_CHECK(r, is_absent(r, BLOCK));
    RACE_CHECK(r, mapped_at(r, PAGE, HOME + PAGE));
    RACE_CHECK(r, mapped_at(r, BLOCK + 511, HOME + BLOCK + 511));
    RACE_CHECK(r, r->rig.tlb != NULL && rig_stats(&r->rig).leaves[0] == 511);
}

/* In the window between break and make a fault mends nothing. */
static void fault_against_split(int preemptions)
{
    struct race_program p = {.threads = 2, .preemptions = preemptions, .least = 100};

    p.setup = one_block;
    p.thread[0] = faults_page;
    p.thread[1] = unmaps_first;
    p.finish = all_but_the_first;
    explore_formats(p);
    p.setup = one_block_armed;
    p.preemptions = 2;
    explore_formats(p);
}

TEST(B39_fault_against_split, points)
{
    fault_against_split(3);
}

TEST(B39_fault_against_split_deeper, points, slow)
{
    fault_against_split(5);
}

static void page_may_only_be_read(struct stage2_race *r)
{
    struct hvmem_stage2_leaf leaf;

    RACE_CHECK(r, !lookup(r, PAGE, &leaf) && leaf.rights == HVMEM_S2_R);
}

TEST(protect_against_fault, points)
{
    struct race_program p = {.threads = 2, .preemptions = 32, .least = 20};

    p.setup = one_page_armed;
    p.thread[0] = writes_page;
    p.thread[1] = protects_page;
    p.finish = page_may_only_be_read;
    explore_formats(p);
    p.setup = one_block_armed;
    p.preemptions = 3;
    p.least = 100;
    explore_formats(p);
}

static void page_is_new(struct stage2_race *r)
{
    RACE_CHECK(r, mapped_at(r, PAGE, 2 * HOME));
}

/* Between the removal and its flush the page is absent, and may be mapped by nobody unflushed. */
static void map_against_unmap(int preemptions)
{
    struct race_program p = {.threads = 2, .preemptions = preemptions, .least = 20};

    p.setup = one_page;
    p.thread[0] = unmaps_page;
    p.thread[1] = maps_page;
    p.finish = page_is_new;
    explore_formats(p);
    p.threads = 3;
    p.thread[2] = reads_page;
    p.preemptions = 2;
    explore_formats(p);
}

TEST(B29_map_against_unmap, points)
{
    map_against_unmap(3);
}

TEST(B29_map_against_unmap_deeper, points, slow)
{
    map_against_unmap(5);
}

/* The second finds nothing; on return of either the page is gone all the same. */
static void unmap_against_unmap(int preemptions)
{
    struct race_program p = {.threads = 2, .preemptions = preemptions, .least = 20};

    p.setup = one_page;
    p.thread[0] = unmaps_page;
    p.thread[1] = unmaps_page;
    p.finish = page_is_gone;
    explore_formats(p);
    p.setup = one_block;
    p.preemptions = 2;
    explore_formats(p);
}

TEST(B29_unmap_against_unmap, points)
{
    unmap_against_unmap(4);
}

TEST(B29_unmap_against_unmap_deeper, points, slow)
{
    unmap_against_unmap(32);
}

/* ---- break before make, by several ----------------------------------------------------------- */

/* The block is whole again and cached, and then broken a second time, behind a split under way. */
static void splits_merges_splits(struct stage2_race *r)
{
    hvmem_status status;

    RACE_CHECK(r, race_protect(r, PAGE, 1, HVMEM_S2_R | HVMEM_S2_X) == HVMEM_OK);
    RACE_CHECK(r, race_protect(r, PAGE, 1, HVMEM_S2_RWX) == HVMEM_OK);
    r->clearing++;
    status = hvmem_stage2_merge(r->rig.s2, BLOCK, 512, NULL);
    r->clearing--;
    RACE_CHECK(r, status == HVMEM_OK);
    RACE_CHECK(r, race_unmap(r, BLOCK + 511, 1) == HVMEM_OK);
}

static void both_ends_are_gone(struct stage2_race *r)
{
    RACE_CHECK(r, is_absent(r, BLOCK));
    RACE_CHECK(r, mapped_at(r, PAGE, HOME + PAGE));
    RACE_CHECK(r, is_absent(r, BLOCK + 511));
}

TEST(B39_split_against_a_second_break, points)
{
    struct race_program p = {.format = HVMEM_S2_ARM64, .threads = 2, .preemptions = 2};

    p.least = 500;
    p.setup = one_block;
    p.thread[0] = unmaps_first;
    p.thread[1] = splits_merges_splits;
    p.finish = both_ends_are_gone;
    race_explore(&race, &p);
}

TEST(merge_against_fault_and_unmap, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 50};

    p.setup = block_in_pages;
    p.thread[0] = merges_block;
    p.thread[1] = unmaps_first;
    p.finish = all_but_the_first;
    explore_formats(p);
    p.thread[1] = faults_page;
    p.finish = NULL;
    explore_formats(p);
}

/* ---- tracking ------------------------------------------------------------------------------- */

static void two_pages(struct stage2_race *r)
{
    one_page(r);
    race_watch(r, OTHER);
    REQUIRE_EQ(race_map(r, OTHER, 1, HOME + OTHER), HVMEM_OK);
}

static void other_is_untouched(struct stage2_race *r)
{
    RACE_CHECK(r, r->status[0] == HVMEM_OK || r->status[1] == HVMEM_OK);
    RACE_CHECK(r, hvmem_track_armed(r->rig.s2) && !race_touched(r, OTHER));
}

TEST(B36_arm_against_fault, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 10};

    p.setup = two_pages;
    p.thread[0] = arms;
    p.thread[1] = faults_page;
    p.finish = other_is_untouched;
    explore_formats(p);
    p.thread[1] = reads_page;
    explore_formats(p);
    p.threads = 3; /* who comes second is refused, or arms once more */
    p.thread[1] = arms;
    p.thread[2] = faults_page;
    p.preemptions = 2;
    explore_formats(p);
}

/* Cleared above and not flushed yet: what is unmapped below may be cached all the same. */
TEST(B36_arm_against_unmap, points)
{
    struct race_program p = {.threads = 2, .preemptions = 4, .least = 20};

    p.setup = one_page;
    p.thread[0] = arms;
    p.thread[1] = unmaps_page;
    p.finish = page_is_gone;
    explore_formats(p);
}

TEST(B36_age_against_fault, points)
{
    struct race_program p = {.threads = 2, .preemptions = 32, .least = 20};

    p.setup = two_pages;
    p.thread[0] = ages_page;
    p.thread[1] = faults_page;
    explore_formats(p);
}

static void disarms(struct stage2_race *r)
{
    r->status[test_thread()] = race_disarm(r);
}

/* One of the two calls goes through; the other may be refused while it is open. */
static void one_of_two(struct stage2_race *r)
{
    RACE_CHECK(r, r->status[0] == HVMEM_OK || r->status[0] == HVMEM_E_BUSY);
    RACE_CHECK(r, r->status[1] == HVMEM_OK || r->status[1] == HVMEM_E_BUSY);
    RACE_CHECK(r, r->status[0] == HVMEM_OK || r->status[1] == HVMEM_OK);
}

TEST(disarm_against_unmap_and_arm, points)
{
    struct race_program p = {.threads = 2, .preemptions = 3, .least = 20};

    p.setup = one_page_armed;
    p.thread[0] = disarms;
    p.thread[1] = unmaps_page;
    p.finish = page_is_gone;
    explore_formats(p);
    p.thread[1] = arms;
    p.finish = one_of_two;
    explore_formats(p);
}
