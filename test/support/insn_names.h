/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names of the maintenance instructions that the recorder logs, for tests on the host and in the metal
 * images. Codes are those of hvmem/record.h: arm64 instruction words, HVMEM_X86_INSN_*.
 */
#ifndef TEST_INSN_NAMES_H
#define TEST_INSN_NAMES_H

#include <hvmem/record.h>

struct insn_name {
    hvmem_u32 code;
    const char *name;
};

/* clang-format off */
#define INSN_NAMES3(name, local, inner, outer) {local, name}, {inner, name "IS"}, {outer, name "OS"}

static const struct insn_name insn_names_arm64[] = {
    INSN_NAMES3("VMALLE1", 0xd508871f, 0xd508831f, 0xd508811f),
    INSN_NAMES3("VAE1", 0xd5088720, 0xd5088320, 0xd5088120),
    INSN_NAMES3("ASIDE1", 0xd5088740, 0xd5088340, 0xd5088140),
    INSN_NAMES3("VAAE1", 0xd5088760, 0xd5088360, 0xd5088160),
    INSN_NAMES3("VALE1", 0xd50887a0, 0xd50883a0, 0xd50881a0),
    INSN_NAMES3("VAALE1", 0xd50887e0, 0xd50883e0, 0xd50881e0),
    INSN_NAMES3("RVAE1", 0xd5088620, 0xd5088220, 0xd5088520),
    INSN_NAMES3("RVAAE1", 0xd5088660, 0xd5088260, 0xd5088560),
    INSN_NAMES3("RVALE1", 0xd50886a0, 0xd50882a0, 0xd50885a0),
    INSN_NAMES3("RVAALE1", 0xd50886e0, 0xd50882e0, 0xd50885e0),
    INSN_NAMES3("ALLE2", 0xd50c871f, 0xd50c831f, 0xd50c811f),
    INSN_NAMES3("VAE2", 0xd50c8720, 0xd50c8320, 0xd50c8120),
    INSN_NAMES3("VALE2", 0xd50c87a0, 0xd50c83a0, 0xd50c81a0),
    INSN_NAMES3("RVAE2", 0xd50c8620, 0xd50c8220, 0xd50c8520),
    INSN_NAMES3("RVALE2", 0xd50c86a0, 0xd50c82a0, 0xd50c85a0),
    INSN_NAMES3("ALLE1", 0xd50c879f, 0xd50c839f, 0xd50c819f),
    INSN_NAMES3("VMALLS12E1", 0xd50c87df, 0xd50c83df, 0xd50c81df),
    INSN_NAMES3("IPAS2E1", 0xd50c8420, 0xd50c8020, 0xd50c8400),
    INSN_NAMES3("IPAS2LE1", 0xd50c84a0, 0xd50c80a0, 0xd50c8480),
    INSN_NAMES3("RIPAS2E1", 0xd50c8440, 0xd50c8040, 0xd50c8460),
    INSN_NAMES3("RIPAS2LE1", 0xd50c84c0, 0xd50c80c0, 0xd50c84e0),
    {0xd5087620, "DC-IVAC"}, {0xd5087a40, "DC-CSW"}, {0xd5087e40, "DC-CISW"},
    {0xd50b7420, "DC-ZVA"}, {0xd50b7a20, "DC-CVAC"}, {0xd50b7b20, "DC-CVAU"},
    {0xd50b7e20, "DC-CIVAC"}, {0xd508711f, "IC-IALLUIS"}, {0xd508751f, "IC-IALLU"},
    {0xd50b7520, "IC-IVAU"},
};

static const struct insn_name insn_names_x86[] = {
    {HVMEM_X86_INSN_INVLPG, "INVLPG"}, {HVMEM_X86_INSN_INVPCID, "INVPCID"},
    {HVMEM_X86_INSN_CR3, "MOV-CR3"}, {HVMEM_X86_INSN_CR4, "MOV-CR4"},
    {HVMEM_X86_INSN_INVLPGB, "INVLPGB"}, {HVMEM_X86_INSN_TLBSYNC, "TLBSYNC"},
    {HVMEM_X86_INSN_INVLPGA, "INVLPGA"}, {HVMEM_X86_INSN_INVEPT, "INVEPT"},
    {HVMEM_X86_INSN_INVVPID, "INVVPID"}, {HVMEM_X86_INSN_CLFLUSH, "CLFLUSH"},
    {HVMEM_X86_INSN_CLFLUSHOPT, "CLFLUSHOPT"}, {HVMEM_X86_INSN_CLWB, "CLWB"},
    {HVMEM_X86_INSN_WBINVD, "WBINVD"}, {HVMEM_X86_INSN_WBNOINVD, "WBNOINVD"},
    {HVMEM_X86_INSN_CLZERO, "CLZERO"}, {HVMEM_X86_INSN_MOVNTI, "MOVNTI"},
};
/* clang-format on */

/* Name in a table, or 0 (a null pointer) for barriers, registers and the like. */
static inline const char *insn_name(const struct insn_name *table, hvmem_u32 count, hvmem_u32 code)
{
    hvmem_u32 i;

    for (i = 0; i < count; i++)
        if (table[i].code == code)
            return table[i].name;
    return 0;
}

#define INSN_COUNT(table) ((hvmem_u32)(sizeof(table) / sizeof((table)[0])))

#endif
