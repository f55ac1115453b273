/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any two calls that change entries, side by side, and a guest that writes meanwhile: what it wrote is found
 * by the set/way operation that comes after them, whatever the calls made of its entries.
 */
#include "stage2_race.h"

#include <string.h>

#define BLOCK 0x200u
#define OTHER (BLOCK + 7)

static struct stage2_race race;

/* ---- the calls ------------------------------------------------------------------------------- */

static int fine(hvmem_status status)
{
    return status == HVMEM_OK || status == HVMEM_E_BUSY || status == HVMEM_E_STALE;
}

static void splits(struct stage2_race *r)
{
    hvmem_status status;

    r->clearing++;
    status = hvmem_stage2_protect(r->rig.s2, OTHER, 1, HVMEM_S2_R, NULL, NULL);
    r->clearing--;
    RACE_CHECK(r, fine(status));
}

static void merges(struct stage2_race *r)
{
    hvmem_status status;

    r->clearing++;
    status = hvmem_stage2_merge(r->rig.s2, BLOCK, 512, NULL);
    r->clearing--;
    RACE_CHECK(r, fine(status));
}

static void unmaps(struct stage2_race *r)
{
    hvmem_status status;

    r->clearing++;
    status = hvmem_stage2_unmap(r->rig.s2, OTHER, 1, NULL, NULL);
    r->clearing--;
    RACE_CHECK(r, fine(status));
}

static void ages(struct stage2_race *r)
{
    uint64_t touched;

    RACE_CHECK(r, fine(race_age(r, BLOCK, 512, &touched)));
}

static void ages_one(struct stage2_race *r)
{
    uint64_t touched;

    RACE_CHECK(r, fine(race_age(r, BLOCK, 1, &touched)));
}

static void sets_ways(struct stage2_race *r)
{
    RACE_CHECK(r, fine(race_setway(r)));
}

static void disarms(struct stage2_race *r)
{
    RACE_CHECK(r, fine(race_disarm(r)));
}

static void writes(struct stage2_race *r)
{
    RACE_CHECK(r, race_guest(r, BLOCK, HVMEM_S2_W));
}

/* ---- pairs of them ---------------------------------------------------------------------------- */

static void (*const calls[])(struct stage2_race *) = {splits,   merges,    unmaps,  ages,
                                                      ages_one, sets_ways, disarms, writes};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* A block that the guest has written to, whole or in pages; its first page is looked at all the time. */
static void whole(struct stage2_race *r)
{
    race_block(r);
    race_watch(r, BLOCK);
    REQUIRE_EQ(race_map(r, BLOCK, 512, r->block), HVMEM_OK);
    r->dirty[0] = 1;
}

static void in_pages(struct stage2_race *r)
{
    whole(r);
    REQUIRE_EQ(race_protect(r, OTHER, 1, HVMEM_S2_R), HVMEM_OK);
    REQUIRE_EQ(race_protect(r, OTHER, 1, HVMEM_S2_RWX), HVMEM_OK);
}

static void aged_pages(struct stage2_race *r)
{
    uint64_t touched;

    in_pages(r);
    REQUIRE_EQ(race_age(r, BLOCK, 512, &touched), HVMEM_OK);
}

/* Of an operation that another one was under way beside, nothing is said: this one finds all. */
static void is_clean_in_the_end(struct stage2_race *r)
{
    RACE_CHECK(r, race_setway(r) == HVMEM_OK);
    RACE_CHECK(r, !r->dirty[0]);
}

static void explore(uint32_t format, void (*setup)(struct stage2_race *))
{
    struct race_program p = {.threads = 3, .preemptions = 1, .least = 1};
    int a, b;

    p.format = format;
    p.setup = setup;
    p.finish = is_clean_in_the_end;
    p.thread[2] = writes;
    for (a = 0; a < CALLS; a++)
        for (b = a; b < CALLS; b++) {
            p.thread[0] = calls[a];
            p.thread[1] = calls[b];
            race_explore(&race, &p);
        }
}

TEST(what_was_written_is_found_in_a_block, points, slow)
{
    explore(HVMEM_S2_ARM64, whole);
}

TEST(what_was_written_is_found_in_pages, points, slow)
{
    explore(HVMEM_S2_ARM64, in_pages);
}

TEST(what_was_written_is_found_in_aged_pages, points, slow)
{
    explore(HVMEM_S2_ARM64, aged_pages);
}

TEST(what_was_written_is_found_in_aged_pages_of_ept, points, slow)
{
    explore(HVMEM_S2_EPT, aged_pages);
}
