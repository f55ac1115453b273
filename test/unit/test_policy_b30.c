/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The range policy with the back-ends' recorders: what the chosen request issues, and whether every
 * translation of the ranges is gone (B30).
 */
#include "arm64_rig.h"
#include "policy.h"
#include "test_main.h"

#include <string.h>

static struct arm64_rig rig;

/* The ranges in rig.ranges: decide, issue, judge. Returns the decision. */
static struct hvmem_policy_choice run(const struct hvmem_policy *policy, uint32_t regime)
{
    struct hvmem_policy_choice choice;

    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, regime);
    rig.flush.flags = 0;
    REQUIRE_EQ(hvmem_policy_choose(policy, &rig.be.caps, &rig.flush, &choice), HVMEM_OK);
    hvmem_policy_apply(&choice, &rig.flush);
    REQUIRE_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
    return choice;
}

/* TLBI in the log. */
static uint32_t tlbis(void)
{
    struct arm64_tlbi decoded;
    uint32_t i, n = 0;

    for (i = 0; i < rig.log.count; i++)
        n += (uint32_t)(arm64_decode_tlbi(rig.events[i].code, &decoded) != 0);
    return n;
}

static void range(uint32_t i, uint64_t start, uint64_t pages, uint32_t stride)
{
    rig.ranges[i] = (struct hvmem_tlb_range){.start = start,
                                             .pages = pages,
                                             .stride_shift = (uint8_t)stride,
                                             .level = HVMEM_LEVEL_UNKNOWN};
    if (stride > 12) { /* blocks alone */
        rig.ranges[i].level = stride == 21 ? 2 : 1;
        rig.ranges[i].flags = HVMEM_RANGE_LEAF;
    }
}

/* (a) 512 pages promoted to a block and removed: the pages are still cached beside it. */
TEST(B30_promoted_block_leaves_no_small_entry)
{
    struct hvmem_policy_choice choice;
    struct hvmem_policy policy;
    struct arm64_entry entry;
    uint32_t ranges, i;

    for (ranges = 0; ranges < 2; ranges++) {
        rig_setup(&rig, HVMEM_ARM64_EL2, ranges ? F_RANGE | F_TTL : F_TTL, 12);
        REQUIRE_EQ(hvmem_policy_default(&policy, &rig.be.caps), HVMEM_OK);
        rig.flush.count = 1;
        range(0, 0x40000000, 512, 12); /* the finest stride since the last flush */
        choice = run(&policy, HVMEM_REGIME_STAGE2);
        CHECK_EQ(choice.operations, ranges ? 1 : 512);
        for (i = 0; i < 512; i++) {
            entry = rig_entry_of(&rig, 0x40000000 + (uint64_t)i * 4096, 12);
            CHECK(arm64_removes(&rig.judged, &entry));
        }
        entry = rig_entry_of(&rig, 0x40000000, 21);
        entry.level = 2;
        CHECK(arm64_removes(&rig.judged, &entry));
    }
    /* Negative control: one operation at the block's stride leaves 511. */
    range(0, 0x40000000, 512, 21);
    rig.flush.flags = HVMEM_TLB_SINGLES;
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_STAGE2);
    REQUIRE_EQ(rig_go(&rig), HVMEM_OK);
    entry = rig_entry_of(&rig, 0x40001000, 12);
    CHECK(!arm64_removes(&rig.judged, &entry));
}

/* (b) blocks, small pages and contiguous pages with the threshold at, below and above the count. */
TEST(B30_threshold_at_and_around_the_count_of_operations)
{
    static const uint32_t regimes[] = {HVMEM_REGIME_HOST, HVMEM_REGIME_STAGE2};
    struct hvmem_policy_choice choice;
    struct hvmem_policy policy;
    uint32_t count = 3 + 2 + 16, limit, i;

    for (i = 0; i < 2; i++)
        for (limit = count - 1; limit <= count + 1; limit++) {
            rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
            REQUIRE_EQ(hvmem_policy_default(&policy, &rig.be.caps), HVMEM_OK);
            policy.max_operations = limit;
            rig.flush.count = 3;
            range(0, 0x40000000, 3 * 512, 21);
            range(1, 0x7fff0000, 2, 12);
            range(2, 0x80000000, 16, 12); /* contiguous hints may be cached page by page */
            choice = run(&policy, regimes[i]);
            CHECK_EQ(choice.what, limit < count ? HVMEM_CHOOSE_SPACE : HVMEM_CHOOSE_SINGLES);
            CHECK_EQ(choice.operations, limit < count ? 1 : count);
            CHECK_EQ(tlbis(), choice.operations + choice.companions);
        }
}

/* (c) around a block's worth of pages, and 2^31 of them. */
TEST(B30_exact_coverage_of_odd_sizes)
{
    static const uint64_t pages[] = {4095, 4096, 4097, 1ull << 31};
    struct hvmem_policy_choice choice;
    struct hvmem_policy policy;
    uint32_t i, flags;

    for (flags = 0; flags < 4; flags++)
        for (i = 0; i < 4; i++) {
            rig_setup(&rig, HVMEM_ARM64_EL2, (flags & 1 ? F_RANGE : 0) | (flags & 2 ? F_LPA2 : 0),
                      12);
            REQUIRE_EQ(hvmem_policy_default(&policy, &rig.be.caps), HVMEM_OK);
            policy.flags = flags & 2 ? HVMEM_POLICY_LPA2_STAGE2 : 0;
            rig.flush.count = 1;
            range(0, 0x40003000, pages[i], 12);
            choice = run(&policy, HVMEM_REGIME_STAGE2);
            CHECK_EQ(choice.what, (flags & 1) && i < 3 ? HVMEM_CHOOSE_RANGES : HVMEM_CHOOSE_SPACE);
            CHECK_EQ(tlbis(), choice.operations + choice.companions);
            if (choice.what == HVMEM_CHOOSE_RANGES) {
                struct arm64_entry entry = rig_entry_of(&rig, 0x40002000, 12);

                CHECK(!arm64_removes(&rig.judged, &entry));
                entry = rig_entry_of(&rig, 0x40003000 + pages[i] * 4096, 12);
                CHECK(!arm64_removes(&rig.judged, &entry));
            }
        }
}

/* (d) a 1 GiB block, a 2 MiB block and a page in one batch: a stride of its own for each. */
TEST(B30_each_part_has_its_stride)
{
    struct hvmem_policy_choice choice;
    struct hvmem_policy policy;

    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    REQUIRE_EQ(hvmem_policy_default(&policy, &rig.be.caps), HVMEM_OK);
    rig.flush.count = 3;
    range(0, 1ull << 32, 1 << 18, 30);
    range(1, 0x40000000, 512, 21);
    range(2, 0x1000, 1, 12);
    choice = run(&policy, HVMEM_REGIME_STAGE2);
    CHECK_EQ(choice.what, HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(choice.operations, 3);
    CHECK_EQ(tlbis(), 4);
}

TEST(singles_are_issued_where_ranges_exist)
{
    struct hvmem_policy_choice choice;
    struct hvmem_policy policy;

    rig_setup(&rig, HVMEM_ARM64_EL2, F_RANGE, 12);
    REQUIRE_EQ(hvmem_policy_default(&policy, &rig.be.caps), HVMEM_OK);
    policy.flags = HVMEM_POLICY_COSTS;
    policy.costs[1] = (struct hvmem_flush_costs){100, 10, 25, 100000, 100000};
    rig.flush.count = 1;
    range(0, 0x40000000, 2, 12);
    choice = run(&policy, HVMEM_REGIME_STAGE2);
    CHECK_EQ(choice.what, HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(tlbis(), 3);
    range(0, 0x40000000, 4, 12);
    choice = run(&policy, HVMEM_REGIME_STAGE2);
    CHECK_EQ(choice.what, HVMEM_CHOOSE_RANGES);
    CHECK_EQ(tlbis(), 2);
    rig.flush.flags = 2;
    CHECK_EQ(rig_go(&rig), HVMEM_E_ARG);
}
