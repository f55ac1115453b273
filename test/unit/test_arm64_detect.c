/* SPDX-License-Identifier: BSD-2-Clause */
/* Detection of arm64: fields of ID registers, errata by part, merge of CPUs, refused configurations. */
#include "arm64_rig.h"
#include "test_main.h"

#include <string.h>

static struct arm64_rig rig;

static uint64_t quirks_of(uint64_t midr, uint64_t ctr)
{
    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    rig.ids.midr = midr;
    rig.ids.ctr = ctr;
    rig.ids.mmfr2 |= 2ull << 52;
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    return rig.be.caps.quirks;
}

#define PIPT (3u << 14)

TEST(repeat_tlbi_is_on_for_listed_and_unknown_parts)
{
    static const uint32_t listed[] = {0xd0b, 0xd0e, 0xd0c, 0xd0d, 0xd41, 0xd42, 0xd4b, 0xd44, 0xd4c,
                                      0xd47, 0xd48, 0xd4e, 0xd82, 0xd85, 0xd40, 0xd49, 0xd4f, 0xd84,
                                      0xd83, 0xd8c, 0xd90, 0xd05, 0xd46, 0xfff, 0x000};
    static const uint32_t free_of_it[] = {0xd03, 0xd04, 0xd07, 0xd08, 0xd09, 0xd0a};
    size_t i;

    for (i = 0; i < sizeof(listed) / sizeof(listed[0]); i++)
        CHECK(quirks_of(0x41ull << 24 | listed[i] << 4, PIPT) & HVMEM_QUIRK_REPEAT_TLBI);
    for (i = 0; i < sizeof(free_of_it) / sizeof(free_of_it[0]); i++)
        CHECK(!(quirks_of(0x41ull << 24 | free_of_it[i] << 4, PIPT) & HVMEM_QUIRK_REPEAT_TLBI));
    /* The same part numbers of another implementer say nothing. */
    CHECK(quirks_of(0x4eull << 24 | 0xd03 << 4, PIPT) & HVMEM_QUIRK_REPEAT_TLBI);
    CHECK(quirks_of(0, PIPT) & HVMEM_QUIRK_REPEAT_TLBI);
    /* Cortex-A510: fixed from r1p2 on. */
    CHECK(quirks_of(0x411fd461, PIPT) & HVMEM_QUIRK_REPEAT_TLBI);
    CHECK(!(quirks_of(0x411fd462, PIPT) & HVMEM_QUIRK_REPEAT_TLBI));
}

TEST(errata_by_revision)
{
    CHECK(quirks_of(0x410fd032, PIPT) & HVMEM_QUIRK_CLEAN_IS_CIVAC); /* A53 r0p2 */
    CHECK(!(quirks_of(0x410fd033, PIPT) & HVMEM_QUIRK_CLEAN_IS_CIVAC));
    CHECK(quirks_of(0x412fd0b0, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT); /* A76 r2p0 */
    CHECK(!(quirks_of(0x412fd0b1, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT));
    CHECK(quirks_of(0x413fd071, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT); /* A57 */
    CHECK(quirks_of(0x413fd083, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT); /* A72 */
    CHECK(quirks_of(0x412fd050, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT); /* A55 r2p0 */
    CHECK(!(quirks_of(0x410fd0a0, PIPT) & HVMEM_QUIRK_SPECULATIVE_AT));
    CHECK(quirks_of(0x410fd0c0, PIPT | 1u << 29) & HVMEM_QUIRK_HIDE_DIC); /* N1 */
    CHECK(!(rig.be.caps.features & HVMEM_CAP_DIC));
    CHECK(!(quirks_of(0x410fd0c0, PIPT) & HVMEM_QUIRK_HIDE_DIC));
    CHECK(quirks_of(0x410fd0a0, 2u << 14) & HVMEM_QUIRK_VIPT_ICACHE);
    CHECK(!(quirks_of(0x410fd0a0, PIPT) & HVMEM_QUIRK_VIPT_ICACHE));
}

TEST(features_of_id_registers)
{
    rig_setup(&rig, HVMEM_ARM64_EL2, F_RANGE | F_TTL, 12);
    rig.ids.mmfr2 |= 1ull << 40;
    rig.ids.ctr |= 3u << 28;
    rig.ids.mmfr1 = 0;
    rig.config.flags = HVMEM_ARM64_FWB;
    rig.ids.mmfr2 |= 1ull << 28;
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK(rig.be.caps.features & HVMEM_CAP_SMALL_INPUT);
    rig.ids.mmfr2 &= ~(15ull << 28);
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK(!(rig.be.caps.features & HVMEM_CAP_SMALL_INPUT));
    CHECK(rig.be.caps.features & HVMEM_CAP_RANGE);
    CHECK(rig.be.caps.features & HVMEM_CAP_OUTER);
    CHECK(rig.be.caps.features & HVMEM_CAP_TTL);
    CHECK(rig.be.caps.features & HVMEM_CAP_FWB);
    CHECK(rig.be.caps.features & HVMEM_CAP_IDC);
    CHECK(rig.be.caps.features & HVMEM_CAP_DIC);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_BBM_REQUIRED);
    CHECK_EQ(rig.be.caps.max_range_pages, 1 << 21);
    CHECK_EQ(rig.be.caps.user_id_bits, 16);
    CHECK_EQ(rig.be.caps.stage2_id_bits, 8);
    CHECK_EQ(rig.be.caps.dline, 64);
    CHECK_EQ(rig.be.caps.iline, 64);
    rig.config.quirks_set = HVMEM_QUIRK_NO_RANGE;
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK(!(rig.be.caps.features & HVMEM_CAP_RANGE));
    CHECK_EQ(rig.be.caps.max_range_pages, 0);
}

/* A machine that can force write-back does not mean a host that does: guests would see what caches hide. */
TEST(forced_write_back_is_for_hypervisors_to_promise)
{
    static const hvmem_u32 levels[] = {HVMEM_ARM64_EL0, HVMEM_ARM64_EL1, HVMEM_ARM64_EL2,
                                       HVMEM_ARM64_VHE};
    struct hvmem_arm64_ids without;
    unsigned i;

    for (i = 0; i < 4; i++) {
        rig_setup(&rig, levels[i], 0, 12);
        without = rig.ids;
        rig.ids.mmfr2 |= 1ull << 40;
        REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
        CHECK(!(rig.be.caps.features & HVMEM_CAP_FWB));
        rig.config.flags = HVMEM_ARM64_FWB;
        CHECK_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), i < 2 ? HVMEM_E_ARG : HVMEM_OK);
        CHECK_EQ(!!(rig.be.caps.features & HVMEM_CAP_FWB), i >= 2);
        /* And no other CPU's guest does otherwise. */
        CHECK_EQ(hvmem_arm64_add_cpu(&rig.m, &rig.be, &without), HVMEM_OK);
        CHECK(!(rig.be.caps.features & HVMEM_CAP_FWB));
    }
}

/* IDs not given are read, through the register words. */
TEST(reads_the_calling_cpu)
{
    rig_setup(&rig, HVMEM_ARM64_EL1, 0, 12);
    rig.config.ids = NULL;
    hvmem_record_set(&rig.log, 0xd5380000, 0, 0x410fd032);
    hvmem_record_set(&rig.log, 0xd53b0020, 0, PIPT | 3u << 16 | 5);
    hvmem_record_set(&rig.log, 0xd53b00e0, 0, 5);
    hvmem_record_set(&rig.log, 0xd5380600, 0, 2ull << 56);
    hvmem_record_set(&rig.log, 0xd5380740, 0, 1ull << 48);
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(rig.be.caps.dline, 32);
    CHECK_EQ(rig.be.caps.iline, 128);
    CHECK_EQ(rig.be.caps.zero_block, 128);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_CLEAN_IS_CIVAC);
    CHECK(rig.be.caps.features & HVMEM_CAP_RANGE);
    CHECK(rig.be.caps.features & HVMEM_CAP_TTL);
    CHECK_EQ(rig.log.count, 0);
}

TEST(other_cpus_take_away_and_quirks_stay)
{
    struct hvmem_arm64_ids weak;

    rig_setup(&rig, HVMEM_ARM64_EL2, F_RANGE | F_TTL, 12);
    weak = rig.ids;
    weak.midr = 0x410fd0d0; /* needs the repeated TLBI */
    weak.isar0 = 0;
    weak.mmfr0 = 0;
    weak.dczid = 5;
    CHECK(rig.be.caps.zero_block != 0);
    CHECK_EQ(hvmem_arm64_check_cpu(&rig.m, &rig.be, &weak), HVMEM_E_CPU);
    CHECK(rig.be.caps.features & HVMEM_CAP_RANGE);
    CHECK_EQ(hvmem_arm64_add_cpu(&rig.m, &rig.be, &weak), HVMEM_OK);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_REPEAT_TLBI);
    CHECK(!(rig.be.caps.features & (HVMEM_CAP_RANGE | HVMEM_CAP_OUTER)));
    CHECK_EQ(rig.be.caps.user_id_bits, 8);
    CHECK_EQ(rig.be.caps.zero_block, 0); /* blocks differ: nobody may use them */
    CHECK_EQ(hvmem_arm64_add_cpu(&rig.m, &rig.be, &rig.ids), HVMEM_OK);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_REPEAT_TLBI);
    CHECK(!(rig.be.caps.features & HVMEM_CAP_RANGE));
}

TEST(bad_configurations_are_refused)
{
    struct hvmem_arm64_config good;

    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    good = rig.config;
    CHECK_EQ(hvmem_arm64_init(NULL, &rig.be, &good), HVMEM_E_ARG);
    CHECK_EQ(hvmem_arm64_init(&rig.m, &rig.be, NULL), HVMEM_E_ARG);
#define REFUSED(member, bad, code)                                                                 \
    do {                                                                                           \
        rig.config = good;                                                                         \
        rig.config.member = bad;                                                                   \
        CHECK_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), code);                            \
    } while (0)
    REFUSED(size, 8, HVMEM_E_VERSION);
    REFUSED(level, 4, HVMEM_E_ARG);
    REFUSED(flags, 16, HVMEM_E_ARG);
    REFUSED(quirks_set, 1ull << 40, HVMEM_E_ARG);
    REFUSED(page_shift, 13, HVMEM_E_ALIGN);
    REFUSED(stage2_shift, 16, HVMEM_E_ALIGN); /* above page_shift */
    REFUSED(va_bits, 53, HVMEM_E_RANGE);
    REFUSED(va_bits, 52, HVMEM_E_RANGE); /* 4 KiB without LPA2: range operands end at bit 48 */
    REFUSED(ipa_bits, 20, HVMEM_E_RANGE);
    REFUSED(ipa_bits, 49, HVMEM_E_RANGE);
    good.flags = HVMEM_ARM64_LPA2_STAGE1;
    REFUSED(va_bits, 52, HVMEM_OK);
    REFUSED(ipa_bits, 52, HVMEM_E_RANGE); /* LPA2 of the other stage */
    good.flags = 0;
    good.page_shift = 16;
    REFUSED(va_bits, 52, HVMEM_OK);
    good.stage2_shift = 16;
    REFUSED(ipa_bits, 52, HVMEM_OK);
    CHECK_EQ(hvmem_arm64_add_cpu(&rig.m, NULL, NULL), HVMEM_E_ARG);
}
