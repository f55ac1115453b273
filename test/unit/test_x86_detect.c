/* SPDX-License-Identifier: BSD-2-Clause */
/* Detection of x86: CPUID bits, errata by model and microcode, merge of CPUs; operand encoders. */
#include "backends/x86/encode.h"
#include "x86_rig.h"
#include "test_main.h"

#include <string.h>

static struct x86_rig rig;

static uint64_t intel_quirks(uint32_t eax, uint32_t microcode, uint64_t arch_caps)
{
    x86_rig_setup(&rig, 0);
    rig.ids.vendor = 0x756e6547;
    rig.ids.leaf1_eax = eax;
    rig.ids.microcode = microcode;
    rig.ids.arch_caps = arch_caps;
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    return rig.be.caps.quirks;
}

TEST(invlpg_erratum_by_microcode)
{
    static const struct {
        uint32_t eax, fixed;
    } parts[] = {{0x90672, 0x2e},  {0x906a3, 0x42c},  {0xb06e0, 0x11},
                 {0xb0671, 0x118}, {0xb06a2, 0x4117}, {0xb06f2, 0x2e}};
    size_t i;

    for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        CHECK(intel_quirks(parts[i].eax, 0, 0) & HVMEM_QUIRK_INVLPG_GLOBAL);
        CHECK(intel_quirks(parts[i].eax, parts[i].fixed - 1, 0) & HVMEM_QUIRK_INVLPG_GLOBAL);
        CHECK(!(intel_quirks(parts[i].eax, parts[i].fixed, 0) & HVMEM_QUIRK_INVLPG_GLOBAL));
    }
    CHECK(!(intel_quirks(0x806f8, 0, 0) & HVMEM_QUIRK_INVLPG_GLOBAL)); /* Sapphire Rapids */
}

TEST(page_size_change_errata)
{
    CHECK(intel_quirks(0x50654, 0, 0) & HVMEM_QUIRK_BBM_REQUIRED);
    CHECK(!(intel_quirks(0x806f8, 0, 1u << 6) & HVMEM_QUIRK_BBM_REQUIRED));
    x86_rig_setup(&rig, 0);
    CHECK(!(rig.be.caps.quirks & HVMEM_QUIRK_BBM_REQUIRED));
    rig.ids.leaf1_eax = 0x100f42; /* family 10h */
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_BBM_REQUIRED);
}

TEST(zen2_invlpgb_is_not_used)
{
    x86_rig_setup(&rig, F_INVLPGB);
    CHECK(rig.be.caps.features & HVMEM_CAP_BROADCAST);
    CHECK_EQ(rig.be.caps.max_range_pages, 8);
    rig.ids.leaf1_eax = 0x840f70; /* family 17h */
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK(!(rig.be.caps.features & (HVMEM_CAP_BROADCAST | HVMEM_CAP_RANGE)));
    x86_rig_ask(&rig, HVMEM_FLUSH_ALL, HVMEM_SCOPE_INNER, HVMEM_REGIME_HOST);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_E_UNSUPPORTED);
}

/* INVLPG of large pages unreliable: the space goes, with globals if they may be there. */
TEST(superpage_quirk_flushes_the_space)
{
    x86_rig_setup(&rig, F_INVPCID | F_PCIDE | F_PGE | F_SUPER);
    rig.flush.count = 1;
    rig.ranges[0] =
        (struct hvmem_tlb_range){.start = 0x40000000, .pages = 512, .stride_shift = 21, .level = 2};
    x86_rig_ask(&rig, HVMEM_FLUSH_RANGES, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_USER);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 1);
    CHECK_EQ(rig.events[0].operand[0], 1 << 16 | 5);
    rig.ranges[0].flags = HVMEM_RANGE_GLOBAL;
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    REQUIRE_EQ(rig.log.count, 1);
    CHECK_EQ(rig.events[0].operand[0], 2 << 16);
    rig.ranges[0].stride_shift = 12;
    rig.ranges[0].pages = 1;
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.log.count, 2);
}

TEST(other_cpus_take_away_and_quirks_stay)
{
    struct hvmem_x86_ids weak;

    x86_rig_setup(&rig, F_INVPCID | F_INVLPGB);
    weak = rig.ids;
    weak.leaf7_ebx = 0;
    weak.ext8_ebx = 0;
    weak.leaf1_ebx = 4 << 8;
    CHECK_EQ(hvmem_x86_check_cpu(&rig.m, &rig.be, &rig.ids), HVMEM_OK);
    CHECK_EQ(hvmem_x86_check_cpu(&rig.m, &rig.be, &weak), HVMEM_E_CPU);
    CHECK_EQ(hvmem_x86_add_cpu(&rig.m, &rig.be, &weak), HVMEM_OK);
    CHECK_EQ(rig.be.caps.dline, 32);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_CLFLUSH_UNORDERED);
    CHECK(!(rig.be.caps.features & (HVMEM_CAP_USER_RANGE | HVMEM_CAP_BROADCAST)));
    x86_rig_ask(&rig, HVMEM_FLUSH_SPACE, HVMEM_SCOPE_LOCAL, HVMEM_REGIME_HOST);
    CHECK_EQ(x86_rig_go(&rig), HVMEM_OK);
    CHECK_EQ(rig.events[0].code, HVMEM_X86_INSN_CLI); /* no INVPCID any more */
    CHECK_EQ(hvmem_x86_add_cpu(&rig.m, &rig.be, &rig.ids), HVMEM_OK);
    CHECK(rig.be.caps.quirks & HVMEM_QUIRK_CLFLUSH_UNORDERED);
}

TEST(ids_of_guests)
{
    x86_rig_setup(&rig, F_SVM);
    CHECK_EQ(rig.be.caps.stage2_ids, 32768);
    CHECK_EQ(rig.be.caps.stage2_id_bits, 15);
    CHECK(rig.be.caps.features & HVMEM_CAP_FLUSH_BY_ASID);
    rig.ids.exta_ebx = 509;
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(rig.be.caps.stage2_id_bits, 9);
    x86_rig_setup(&rig, F_VMX);
    CHECK_EQ(rig.be.caps.stage2_id_bits, 16);
    CHECK(rig.be.caps.features & HVMEM_CAP_STAGE2);
    CHECK(!(rig.be.caps.features & HVMEM_CAP_STAGE2_RANGE));
}

TEST(bad_configurations_are_refused)
{
    struct hvmem_x86_config good;

    x86_rig_setup(&rig, 0);
    good = rig.config;
    CHECK_EQ(hvmem_x86_init(&rig.m, NULL, &good), HVMEM_E_ARG);
#define REFUSED(member, bad, code)                                                                 \
    do {                                                                                           \
        rig.config = good;                                                                         \
        rig.config.member = bad;                                                                   \
        CHECK_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), code);                              \
    } while (0)
    REFUSED(size, 8, HVMEM_E_VERSION);
    REFUSED(flags, 16, HVMEM_E_ARG);
    REFUSED(flags, HVMEM_X86_VMX | HVMEM_X86_SVM, HVMEM_E_ARG);
    REFUSED(flags, HVMEM_X86_USER | HVMEM_X86_VMX, HVMEM_E_ARG);
    REFUSED(flags, HVMEM_X86_SVM_ENTRY_FLUSH, HVMEM_E_ARG);
    REFUSED(flags, HVMEM_X86_VMX, HVMEM_E_UNSUPPORTED);
    REFUSED(flags, HVMEM_X86_SVM, HVMEM_E_UNSUPPORTED);
    REFUSED(zero, 3, HVMEM_E_ARG);
    REFUSED(va_bits, 52, HVMEM_E_RANGE);
}

TEST(descriptors_and_registers)
{
    struct hvmem__x86_descriptor d = hvmem__x86_invpcid(0xfff, 0xffff800000001000);
    struct hvmem__x86_invlpgb r;

    CHECK_EQ(d.low, 0xfff);
    CHECK_EQ(d.high, 0xffff800000001000);
    d = hvmem__x86_invvpid(0x1234, 0x5000);
    CHECK_EQ(d.low, 0x1234);
    CHECK_EQ(d.high, 0x5000);
    d = hvmem__x86_invept(0x5501e);
    CHECK_EQ(d.low, 0x5501e);
    CHECK_EQ(d.high, 0);
    r = hvmem__x86_invlpgb(0x7123, 8, 0, HVMEM__INVLPGB_VA | HVMEM__INVLPGB_PCID, 3, 0xabc);
    CHECK_EQ(r.rax, 0x7003);
    CHECK_EQ(r.ecx, 7);
    CHECK_EQ(r.edx, 0xabc0003);
    r = hvmem__x86_invlpgb(0x40000000, 1, 1, HVMEM__INVLPGB_VA | HVMEM__INVLPGB_FINAL, 0, 0);
    CHECK_EQ(r.rax, 0x40000011);
    CHECK_EQ(r.ecx, 1u << 31);
    CHECK_EQ(hvmem__x86_split(9, 8), 8);
    CHECK_EQ(hvmem__x86_split(8, 8), 8);
    CHECK_EQ(hvmem__x86_split(1, 8), 1);
    CHECK_EQ(hvmem__x86_tlb_control(HVMEM_ENTRY_NOTHING, 1), 0);
    CHECK_EQ(hvmem__x86_tlb_control(HVMEM_ENTRY_FLUSH_GUEST, 1), 3);
    CHECK_EQ(hvmem__x86_tlb_control(HVMEM_ENTRY_FLUSH_GUEST, 0), 1);
    CHECK_EQ(hvmem__x86_tlb_control(HVMEM_ENTRY_FLUSH_ALL, 1), 1);
}

TEST(canonical_addresses_and_eptp)
{
    CHECK(hvmem__x86_canonical(0, 0x7ffffffff000, 48));
    CHECK(!hvmem__x86_canonical(0, 0x800000000000, 48));
    CHECK(hvmem__x86_canonical(0, 0x800000000000, 57));
    CHECK(hvmem__x86_canonical(0xffff800000000000, ~0xfffull, 48));
    CHECK(!hvmem__x86_canonical(0xffff7ffffffff000, ~0xfffull, 48));
    CHECK(!hvmem__x86_canonical(0x7ffffffff000, 0xffff800000000000, 48));
    CHECK(hvmem__x86_eptp_ok(0x5501e));
    CHECK(hvmem__x86_eptp_ok(0x55020));
    CHECK(!hvmem__x86_eptp_ok(0x55000));
    CHECK(!hvmem__x86_eptp_ok(0x5501f));
    CHECK(!hvmem__x86_eptp_ok(1ull << 52 | 0x5501e));
}
