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
    rig_set_apart(&rig, HOME, 2048);
}

/* ---- touched since ------------------------------------------------------------------------------ */

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
        CHECK(rig_touched(&rig, 3));
        CHECK_EQ(touched_frames(0, 512), 512);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
        CHECK(rig_touched(&rig, 3));
        stage2_rig_finish(&rig);
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
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        if (pushed)
            CHECK(rig_access(&rig, 0, 512 << 12, WALK_R) > 0);
        CHECK_EQ(rig_touched(&rig, 512), pushed);
        CHECK(!rig_touched(&rig, 3));
        CHECK_EQ(touched_frames(0, 512), 0);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
        CHECK(!rig_touched(&rig, 3));
        CHECK_EQ(touched_frames(0, 512), 0);
        do
            status = hvmem_track_setway(rig.s2, 0, &cursor, &progress);
        while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(progress.noted, pushed);
        CHECK(rig_access(&rig, 1, 3 << 12, WALK_R) > 0);
        CHECK(rig_touched(&rig, 3));
        stage2_rig_finish(&rig);
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
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK(rig_access(&rig, 0, 0x80000ull << 12, WALK_R) > 0);
        CHECK_EQ(touched_frames(0x40000, 0x40000), 0);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0x40000, 0x40000, NULL), HVMEM_OK);
        CHECK_EQ(touched_frames(0x40000, 0x40000), 0);
        CHECK_EQ(touched_frames(0x80000, 0x40000), 0x40000);
        stage2_rig_finish(&rig);
    }
}

/* ---- devices that walk the tables --------------------------------------------------------------- */

static hvmem_status forget(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                           hvmem_u64 *ticket)
{
    (void)ctx;
    (void)ranges;
    (void)count;
    (void)ticket;
    return HVMEM_OK;
}

static struct hvmem_notifier device;

static hvmem_status add_device(void)
{
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    return hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device);
}

static hvmem_status remove_device(void)
{
    return hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device);
}

/* Frames that the device accesses at any moment: their first address must always be translated. */
static uint64_t watched[2];

static void device_walks(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    (void)flush;
    CHECK_EQ(rig_walk(r, watched[0]).kind, WALK_LEAF);
    CHECK_EQ(rig_walk(r, watched[1]).kind, WALK_LEAF);
}

/* A block of 2 MiB at 0, and one in pages behind it. */
static void block_and_pages(uint32_t format, uint64_t features, uint64_t quirks)
{
    stage2_rig_prepare(&rig, format);
    rig.features |= features;
    rig.quirks = quirks;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, 512, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 512, 256, HOME + 512, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 768, 256, HOME + 768, 7, 0, NULL), HVMEM_OK);
    watched[0] = 3;
    watched[1] = 515;
}

/* What needs a break is refused and leaves all as it was; the rest is done. */
TEST(nothing_is_broken_beside_a_device)
{
    int i;

    for (i = 0; i < 3; i++) {
        struct hvmem_stage2_leaf leaf;
        hvmem_u64 done;

        block_and_pages(formats[i], 0, HVMEM_QUIRK_BBM_REQUIRED);
        CHECK_EQ(add_device(), HVMEM_OK);
        rig.on_flush = device_walks;
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 7, 1, NULL, &done), HVMEM_E_BUSY);
        CHECK_EQ(done, 0);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 7, 1, HVMEM_S2_R, NULL, &done), HVMEM_E_BUSY);
        CHECK_EQ(done, 0);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 512, 512, &done), HVMEM_E_BUSY);
        CHECK_EQ(done, 0);
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, 7, &leaf), HVMEM_OK);
        CHECK_EQ(leaf.order, 9);
        CHECK_EQ(leaf.rights, HVMEM_S2_RWX);
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, 515, &leaf), HVMEM_OK);
        CHECK_EQ(leaf.order, 0);
        CHECK_EQ(rig.flushes, 0);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 512, HVMEM_S2_R, NULL, &done), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, &done), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 600, 1, NULL, &done), HVMEM_OK);
        rig.on_flush = NULL;
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, &done), HVMEM_OK);
        CHECK_EQ(remove_device(), HVMEM_OK);
        stage2_rig_finish(&rig);
    }
}

/* Where entries may change their size while valid, they do: no walk in between finds nothing. */
TEST(sizes_change_beside_a_device_where_no_break_is_needed)
{
    static const uint64_t features[] = {HVMEM_CAP_BBM2, 0, 0};
    int i;

    for (i = 0; i < 3; i++) {
        block_and_pages(formats[i], features[i], 0);
        CHECK_EQ(add_device(), HVMEM_OK);
        rig.on_flush = device_walks;
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 7, 1, NULL, NULL), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 512, 512, NULL), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).leaves[0], 511);
        CHECK_EQ(rig_stats(&rig).leaves[1], 1);
        CHECK(rig.flushes > 0);
        rig.on_flush = NULL;
        CHECK_EQ(remove_device(), HVMEM_OK);
        stage2_rig_finish(&rig);
    }
}

static hvmem_status came;

static void device_comes(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    (void)r;
    (void)flush;
    came = add_device();
}

/* A device that comes while an entry is broken is to come again. */
TEST(no_device_comes_while_an_entry_is_broken)
{
    int i;

    for (i = 0; i < 3; i++) {
        block_and_pages(formats[i], 0, HVMEM_QUIRK_BBM_REQUIRED);
        CHECK(rig_access(&rig, 0, 3 << 12, WALK_R) >= 0);
        CHECK(rig_access(&rig, 0, 515 << 12, WALK_R) >= 0);
        came = HVMEM_OK;
        rig.on_flush = device_comes;
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 512, 512, NULL), HVMEM_OK);
        CHECK_EQ(came, HVMEM_E_BUSY);
        came = HVMEM_OK;
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 7, 1, HVMEM_S2_R, NULL, NULL), HVMEM_OK);
        rig.on_flush = NULL;
        if (came != HVMEM_OK)
            CHECK_EQ(add_device(), HVMEM_OK);
        CHECK_EQ(remove_device(), HVMEM_OK);
        stage2_rig_finish(&rig);
    }
}

/* Nor where a merge failed: until the block is whole again, split by another call, or gone. */
TEST(no_device_comes_while_a_merge_has_failed)
{
    int i, way;

    for (i = 0; i < 3; i++)
        for (way = 0; way < 4; way++) {
            broken_block(formats[i]);
            CHECK_EQ(add_device(), HVMEM_E_BUSY);
            if (way == 0)
                CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
            else if (way == 1)
                CHECK_EQ(hvmem_stage2_protect(rig.s2, 7, 1, HVMEM_S2_R, NULL, NULL), HVMEM_OK);
            else if (way == 2)
                CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, NULL), HVMEM_OK);
            else
                CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 1024, NULL, NULL), HVMEM_OK);
            CHECK_EQ(add_device(), HVMEM_OK);
            CHECK_EQ(remove_device(), HVMEM_OK);
            stage2_rig_finish(&rig);
        }
}
