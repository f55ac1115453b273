/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many instructions a change of an entry's size costs: a block goes by one operation at any of its
 * addresses, whatever size the hardware keeps it in. The flushes are issued by the arm64 back-end into a
 * recorder, and by the model TLB, whose CPUs keep large blocks as single pages of them.
 */
#include "arm64_rig.h"
#include "stage2_rig.h"

#include <string.h>

#define GUEST 0x40000u   /* guest frames, and */
#define HOME  0x1000000u /* machine frames outside the heap, both aligned to 1 GiB */

static struct stage2_rig rig;
static struct arm64_rig recorder;
static unsigned by_ipa, by_range, whole;
static unsigned ranges_seen; /* when expect() looked */
static uint64_t levels_seen;
static uint64_t levels; /* bit k: an operation with the hint of level k; bit 0: without one */

static void count(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    (void)r;
    recorder.flush = *flush;
    recorder.flush.space.id = 0x55;
    REQUIRE_EQ(rig_go(&recorder), HVMEM_OK);
    for (i = 0; i < recorder.log.count; i++) {
        const struct hvmem_record_event *e = &recorder.log.events[i];
        int one = e->code == 0xd50c8020 || e->code == 0xd50c80a0;

        by_ipa += one;
        by_range += e->code == 0xd50c8040 || e->code == 0xd50c80c0;
        whole += e->code == 0xd50c83df;
        if (one)
            levels |= 1ull << (e->operand[0] >> 44 & 3);
    }
}

static void begin(uint64_t features)
{
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.features = (rig.features & ~HVMEM_CAP_RANGE) | features;
    rig.fragments = 1;
    rig.slots = 1024;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_setup(&recorder, HVMEM_ARM64_EL2, F_TTL | (features & HVMEM_CAP_RANGE ? F_RANGE : 0), 12);
    rig.on_flush = count;
}

/* A block, of which both CPUs keep several pages. */
static void touched_block(uint64_t frames)
{
    uint64_t i;

    REQUIRE_EQ(rig_map(&rig, GUEST, frames, HOME, HVMEM_S2_RWX, 0, NULL), HVMEM_OK);
    for (i = 0; i < 512; i += 7) {
        REQUIRE(rig_access(&rig, 0, (uint64_t)(GUEST + i) << 12, WALK_W) >= 0);
        REQUIRE(rig_access(&rig, 1, (uint64_t)(GUEST + i) << 12, WALK_W) >= 0);
    }
    by_ipa = by_range = whole = 0;
    levels = 0;
}

/* What the call cost, and that nobody holds anything of the block. */
static void expect(unsigned operations, unsigned everything)
{
    CHECK_EQ(by_ipa, operations);
    CHECK_EQ(whole, everything);
    levels_seen = levels;
    ranges_seen = by_range;
    CHECK_EQ(rig_holds(&rig, GUEST, 512), 0);
}

static void protects(uint64_t mapped, uint64_t at, uint64_t frames, unsigned operations)
{
    hvmem_u64 done;

    touched_block(mapped);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST + at, frames, HVMEM_S2_R, NULL, &done), HVMEM_OK);
    expect(operations, 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST, mapped, NULL, &done), HVMEM_OK);
}

static void unmaps(uint64_t mapped, uint64_t at, uint64_t frames, unsigned operations)
{
    hvmem_u64 done;

    touched_block(mapped);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST + at, frames, NULL, &done), HVMEM_OK);
    expect(operations, 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST, mapped, NULL, &done), HVMEM_OK);
}

TEST(a_block_is_broken_by_one_operation)
{
    begin(0);
    protects(512, 5, 1, 2);
    CHECK_EQ(levels_seen, 1u << 2 | 1u << 3);
    unmaps(512, 5, 1, 2);
    protects(512, 0, 256, 1 + 256);
    unmaps(512, 256, 256, 1 + 256);
    /* 1 GiB: its own operation, that of 2 MiB of it, and the page's. */
    protects(1u << 18, 5, 1, 3);
    CHECK_EQ(levels_seen, 1u << 1 | 1u << 2 | 1u << 3);
    unmaps(1u << 18, 0, 512, 2);
    stage2_rig_close(&rig);
}

TEST(a_block_is_broken_by_one_operation_beside_ranges)
{
    begin(HVMEM_CAP_RANGE);
    protects(512, 5, 1, 2);
    protects(1u << 18, 5, 1, 3);
    protects(512, 0, 256, 1);
    CHECK_EQ(ranges_seen, 1);
    stage2_rig_close(&rig);
}

/* No break: the operation at the page takes the block along, as it names no level. */
TEST(a_block_that_need_not_be_broken_costs_nothing_more)
{
    hvmem_u64 done;

    begin(HVMEM_CAP_BBM2);
    touched_block(512);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST + 7, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
    expect(1, 0);
    CHECK_EQ(levels_seen, 1u << 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST, 512, NULL, &done), HVMEM_OK);
    touched_block(1u << 18);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST + 14, 2, NULL, &done), HVMEM_OK);
    expect(2, 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, GUEST, 1u << 18, NULL, &done), HVMEM_OK);
    stage2_rig_close(&rig);
}

/* The 512 old entries are each one of their own: by address or all at once, as the policy says. */
TEST(a_merge_drops_what_was_smaller)
{
    hvmem_u64 done;

    begin(0);
    rig.config.largest = 18;
    touched_block(512);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST, 1, HVMEM_S2_RWX, NULL, &done), HVMEM_OK);
    CHECK(rig_access(&rig, 0, (uint64_t)GUEST << 12, WALK_W) >= 0);
    by_ipa = whole = 0;
    CHECK_EQ(hvmem_stage2_merge(rig.s2, GUEST, 512, &done), HVMEM_OK);
    expect(512, 0);
    stage2_rig_close(&rig);
}

/* ---- a split beside another call that has not flushed yet ---------------------------------------- */

static int nested, made_too_early;
static uint64_t held_after;

/* Another CPU changes a page of the block before the flush of the first call is done. */
static void split_meanwhile(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    hvmem_u64 done;

    (void)flush;
    /* Small entries are there, and the large one that they replace is still held. */
    if (rig_walk(r, GUEST + 5).shift == 12 && rig_holds(r, GUEST, 512) != 0 && nested)
        made_too_early = 1;
    if (nested++)
        return;
    CHECK_EQ(hvmem_stage2_protect(r->s2, GUEST + 5, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
    held_after = rig_holds(r, GUEST, 512);
}

TEST(a_split_beside_ageing_breaks_what_is_still_cached)
{
    hvmem_u64 touched;

    begin(0);
    touched_block(512);
    nested = made_too_early = 0;
    rig.on_flush = split_meanwhile;
    CHECK_EQ(hvmem_track_age(rig.s2, GUEST, 512, HVMEM_AGE_CLEAR, &touched), HVMEM_OK);
    CHECK(nested > 1);
    CHECK(!made_too_early);
    CHECK_EQ(held_after, 0);
    stage2_rig_close(&rig);
}

TEST(a_split_beside_a_merge_drops_the_pages)
{
    hvmem_u64 done;

    begin(0);
    touched_block(512);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GUEST, 1, HVMEM_S2_RWX, NULL, &done), HVMEM_OK);
    CHECK(rig_access(&rig, 0, (uint64_t)GUEST << 12, WALK_W) >= 0);
    CHECK(rig_access(&rig, 1, (uint64_t)(GUEST + 99) << 12, WALK_W) >= 0);
    nested = 0;
    rig.on_flush = split_meanwhile;
    CHECK_EQ(hvmem_stage2_merge(rig.s2, GUEST, 512, &done), HVMEM_OK);
    CHECK_EQ(held_after, 0);
    stage2_rig_close(&rig);
}
