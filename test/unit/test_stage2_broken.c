/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entries that a change of size left broken, or that others meet while it is under way: whether the guest
 * touched them is known as exactly as of all others, and devices that walk the tables never meet one.
 */
#include "stage2_rig.h"

#include <string.h>

#define HOME (RIG_BASE + 1024)

static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};

static struct stage2_rig rig;

static void begin(uint32_t format)
{
    stage2_rig_prepare(&rig, format);
    rig.quirks = HVMEM_QUIRK_BBM_REQUIRED;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
}

static void finish(void)
{
    rig_check_counts(&rig);
    stage2_rig_close(&rig);
}

/* ---- touched since ------------------------------------------------------------------------------ */

static void arm(void)
{
    struct hvmem_cursor cursor = {{0}};

    CHECK_EQ(hvmem_track_arm(rig.s2, &cursor), HVMEM_OK);
}

static int touched(uint64_t gfn)
{
    struct hvmem_stage2_leaf leaf;

    CHECK_EQ(hvmem_stage2_lookup(rig.s2, gfn, &leaf), HVMEM_OK);
    return leaf.state == HVMEM_S2_TOUCHED;
}

static uint64_t touched_frames(uint64_t gfn, uint64_t frames)
{
    hvmem_u64 n = ~0ull;

    CHECK_EQ(hvmem_track_age(rig.s2, gfn, frames, 0, &n), HVMEM_OK);
    return n;
}

/* 2 MiB at 0 that the guest touched, left broken by a merge whose flush failed, and a page behind it. */
static void broken_block(uint32_t format)
{
    begin(format);
    CHECK_EQ(rig_map(&rig, 0, 256, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 256, 256, HOME + 256, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 512, 1, HOME + 512, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 3 << 12, WALK_W) >= 0);
    rig.fail_flushes = 100;
    CHECK(hvmem_stage2_merge(rig.s2, 0, 512, NULL) < 0);
    rig.fail_flushes = 0;
}

/* What was touched before the break says so while it is broken. */
TEST(a_broken_block_is_as_touched_as_it_was)
{
    int i;

    for (i = 0; i < 3; i++) {
        broken_block(formats[i]);
        CHECK(touched(3));
        CHECK_EQ(touched_frames(0, 512), 512);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
        CHECK(touched(3));
        finish();
    }
}

/* Armed meanwhile: nobody can have touched it since, whether its table was pushed down or not. */
TEST(arming_makes_a_broken_block_untouched)
{
    int i, pushed;

    for (i = 0; i < 6; i++) {
        struct hvmem_track_progress progress = {0};
        struct hvmem_cursor cursor = {{0}};
        hvmem_status status;

        pushed = i / 3;
        broken_block(formats[i % 3]);
        arm();
        if (pushed)
            CHECK(rig_access(&rig, 0, 512 << 12, WALK_R) > 0);
        CHECK_EQ(touched(512), pushed);
        CHECK(!touched(3));
        CHECK_EQ(touched_frames(0, 512), 0);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
        CHECK(!touched(3));
        CHECK_EQ(touched_frames(0, 512), 0);
        do
            status = hvmem_track_setway(rig.s2, 0, &cursor, &progress);
        while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(progress.noted, pushed);
        CHECK(rig_access(&rig, 1, 3 << 12, WALK_R) > 0);
        CHECK(touched(3));
        finish();
    }
}

/* A block of 1 GiB stands in the root of three levels, or in a table below it. */
TEST(arming_makes_broken_blocks_of_1_gib_untouched)
{
    int i;

    for (i = 0; i < 3; i++) {
        begin(formats[i]);
        CHECK_EQ(rig_map(&rig, 0x40000, 0x20000, 0x40000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 0x60000, 0x20000, 0x60000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 0x80000, 0x40000, 0x80000, 7, 0, NULL), HVMEM_OK);
        rig.fail_flushes = 100;
        CHECK(hvmem_stage2_merge(rig.s2, 0x40000, 0x40000, NULL) < 0);
        rig.fail_flushes = 0;
        CHECK_EQ(touched_frames(0x40000, 0x40000), 0x40000);
        arm();
        CHECK(rig_access(&rig, 0, 0x80000ull << 12, WALK_R) > 0);
        CHECK_EQ(touched_frames(0x40000, 0x40000), 0);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0x40000, 0x40000, NULL), HVMEM_OK);
        CHECK_EQ(touched_frames(0x40000, 0x40000), 0);
        CHECK_EQ(touched_frames(0x80000, 0x40000), 0x40000);
        finish();
    }
}
