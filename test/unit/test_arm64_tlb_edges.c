/* SPDX-License-Identifier: BSD-2-Clause */
/* Edges of arm64 TLB requests: what whole forms reach, neighbours of ranges, strides, bad input. */
#include "arm64_rig.h"
#include "test_main.h"

static struct arm64_rig rig;

/* What each whole form must reach, and what it must leave. */
TEST(whole_forms_reach_what_they_name)
{
    struct arm64_entry asid = {.regime = ARM64_EL10, .vmid = 0x11, .asid = 0x55, .bytes = 4096};
    struct arm64_entry other = asid, global = asid, s2 = asid, el2 = asid;

    other.asid = 0x66;
    global.global = 1;
    s2.regime = ARM64_S2;
    el2.regime = ARM64_EL2_REGIME;
    rig_setup(&rig, HVMEM_ARM64_EL1, 0, 12);
    rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_INNER, HVMEM_REGIME_USER);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK(arm64_removes(&rig.judged, &asid));
    CHECK(!arm64_removes(&rig.judged, &other));
    CHECK(!arm64_removes(&rig.judged, &global));
    rig_ask(&rig, HVMEM_FLUSH_REGIME, HVMEM_SCOPE_INNER, HVMEM_REGIME_USER);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK(arm64_removes(&rig.judged, &other) && arm64_removes(&rig.judged, &global));
    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_INNER, HVMEM_REGIME_STAGE2);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK(!arm64_removes(&rig.judged, &s2));
    s2.vmid = asid.vmid = 0x55;
    CHECK(arm64_removes(&rig.judged, &s2) && arm64_removes(&rig.judged, &asid));
    CHECK(!arm64_removes(&rig.judged, &el2));
    rig_ask(&rig, HVMEM_FLUSH_ALL, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    s2.vmid = 0x77;
    CHECK(arm64_removes(&rig.judged, &s2) && arm64_removes(&rig.judged, &el2));
    rig_ask(&rig, HVMEM_FLUSH_REGIME, HVMEM_SCOPE_INNER, HVMEM_REGIME_GUEST);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK(arm64_removes(&rig.judged, &s2) && !arm64_removes(&rig.judged, &el2));
}

/* Neighbours of a range keep their entries, other spaces too. */
static void neighbours(uint32_t flags, uint32_t regime, uint32_t pages)
{
    struct arm64_entry e;

    rig_setup(&rig, HVMEM_ARM64_EL2, flags, 12);
    rig.ranges[0] =
        (struct hvmem_tlb_range){.start = 0x7fff5000, .pages = pages, .level = HVMEM_LEVEL_UNKNOWN};
    rig.flush.count = 1;
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, regime);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
    e = rig_entry_of(&rig, 0x7fff4000, 12);
    CHECK(!arm64_removes(&rig.judged, &e));
    e = rig_entry_of(&rig, 0x7fff5000 + ((uint64_t)pages << 12), 12);
    CHECK(!arm64_removes(&rig.judged, &e));
    e = rig_entry_of(&rig, 0x7fff5000, 12);
    CHECK(arm64_removes(&rig.judged, &e));
    e.asid = 0x56;
    CHECK_EQ(arm64_removes(&rig.judged, &e), regime != HVMEM_REGIME_USER);
    e.vmid = 0x56;
    CHECK_EQ(arm64_removes(&rig.judged, &e), regime == HVMEM_REGIME_HOST);
}

TEST(B34_neighbours_keep_their_entries)
{
    static const uint32_t pages[] = {1, 2, 3, 63, 64, 65, 511, 2049};
    uint32_t i, regime;

    for (i = 0; i < 8; i++)
        for (regime = 0; regime <= HVMEM_REGIME_STAGE2; regime++) {
            neighbours(0, regime, pages[i]);
            neighbours(F_RANGE, regime, pages[i]);
            neighbours(F_RANGE | F_LPA2 | F_TTL, regime, pages[i]);
        }
}

TEST(B34_without_range_operations_large_ranges_flush_the_space)
{
    rig_setup(&rig, HVMEM_ARM64_EL1, 0, 12);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){
        .start = 0, .pages = HVMEM_ARM64_BATCH_OPS, .level = 3, .flags = HVMEM_RANGE_LEAF};
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_USER);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.log.count, HVMEM_ARM64_BATCH_OPS + 3);
    rig.ranges[0].pages = (1 << 22) + 3;
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.log.count, 4);
    CHECK_EQ(rig.events[1].code, 0xd5088340); /* ASIDE1IS */
    rig.ranges[0].flags |= HVMEM_RANGE_GLOBAL;
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.events[1].code, 0xd508831f); /* VMALLE1IS: globals too */
    CHECK(rig_all_gone(&rig));
}

/* One operation for each block, whatever the form. */
TEST(strides_and_levels)
{
    struct arm64_entry e;

    rig_setup(&rig, HVMEM_ARM64_EL2, F_RANGE | F_TTL, 12);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){.start = 0x40000000,
                                             .pages = 512,
                                             .stride_shift = 21,
                                             .level = 2,
                                             .flags = HVMEM_RANGE_LEAF};
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
    CHECK_EQ(rig.log.count, 4);
    CHECK_EQ(rig.events[1].operand[0], 6ull << 44 | 0x40000); /* TTL: 4 KiB, level 2 */
    e = rig_entry_of(&rig, 0x40000000, 12);
    CHECK(!arm64_removes(&rig.judged, &e)); /* the level was promised */
    rig.ranges[0].flags = 0;                /* a table was freed: no hint */
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.events[1].operand[0], 0x40000);
    /* Blocks of which the range is a part are reached too. */
    rig.ranges[0].start += 0x5000;
    rig.ranges[0].pages = 513;
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
}

TEST(upper_half_and_top_of_the_address_space)
{
    rig_setup(&rig, HVMEM_ARM64_EL1, F_RANGE, 12);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){
        .start = 0ull - 37 * 4096, .pages = 37, .level = HVMEM_LEVEL_UNKNOWN};
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
    rig.ranges[0].pages = 38;
    CHECK_EQ(rig_go(&rig), HVMEM_E_RANGE);
    CHECK_EQ(rig.log.count, 0);
}

/* A guest may have 52 bits of address where the caller has 48. */
TEST(guests_may_be_wider_than_the_host)
{
    struct arm64_entry e;

    rig_setup(&rig, HVMEM_ARM64_EL2, F_RANGE, 12);
    rig.flush.count = 1;
    rig.ranges[0] = (struct hvmem_tlb_range){
        .start = 0xfffff00000000ull, .pages = 2, .level = HVMEM_LEVEL_UNKNOWN};
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_GUEST);
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig_judge(&rig);
    e = rig_entry_of(&rig, 0xfffff00001000ull, 12);
    CHECK(arm64_removes(&rig.judged, &e));
    rig.ranges[0].start = 0xfff0000000000000ull;
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig.ranges[0].start = 0x0010000000000000ull; /* between the halves */
    CHECK_EQ(rig_go(&rig), HVMEM_E_RANGE);
    CHECK_EQ(rig.log.count, 0);
    rig.ranges[0].start = 0xfffff00000000ull;
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    CHECK_EQ(rig_go(&rig), HVMEM_E_RANGE);
}

static void refused(hvmem_status want)
{
    CHECK_EQ(rig_go(&rig), want);
    CHECK_EQ(rig.log.count, 0);
}

TEST(bad_input_is_refused_without_an_instruction)
{
    struct hvmem_tlb_range good = {.start = 0x1000, .pages = 1, .level = 3};

    rig_setup(&rig, HVMEM_ARM64_EL2, F_OUTER, 12);
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_STAGE2);
    rig.flush.count = 2;
    rig.ranges[0] = rig.ranges[1] = good;
    CHECK_EQ(rig_go(&rig), HVMEM_OK);
    rig.ranges[1].start = 0x1001;
    refused(HVMEM_E_ALIGN);
    rig.ranges[1] = good;
    rig.ranges[1].pages = 0;
    refused(HVMEM_E_RANGE);
    rig.ranges[1].pages = ~0ull;
    refused(HVMEM_E_RANGE);
    rig.ranges[1].pages = 1ull << 36; /* past the 48 bits of IPA */
    refused(HVMEM_E_RANGE);
    rig.ranges[1] = good;
    rig.ranges[1].level = 4;
    refused(HVMEM_E_ARG);
    rig.ranges[1] = good;
    rig.ranges[1].flags = 4;
    refused(HVMEM_E_ARG);
    rig.ranges[1] = good;
    rig.ranges[1].stride_shift = 11;
    refused(HVMEM_E_ARG);
    rig.ranges[1] = good;
    rig.flush.space.regime = 4;
    refused(HVMEM_E_ARG);
    rig_ask(&rig, 4, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    refused(HVMEM_E_ARG);
    rig_ask(&rig, HVMEM_FLUSH_ALL, 3, HVMEM_REGIME_HOST);
    refused(HVMEM_E_ARG);
    rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_INNER, HVMEM_REGIME_USER);
    rig.flush.space.id = 0x10000;
    refused(HVMEM_E_SPACE);
    rig.flush.size = 1;
    refused(HVMEM_E_ARG);
    CHECK_EQ(rig.be.ops->tlb_flush(&rig.be, NULL), HVMEM_E_ARG);
    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    rig.ranges[0] = (struct hvmem_tlb_range){.start = ~0xfffull, .pages = 1, .level = 3};
    rig.flush.count = 1;
    rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    refused(HVMEM_E_RANGE); /* EL2 without VHE has no upper half */
    rig_setup(&rig, HVMEM_ARM64_EL0, 0, 12);
    rig_ask(&rig, HVMEM_FLUSH_ALL, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    refused(HVMEM_E_LEVEL);
}
