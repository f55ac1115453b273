/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errata of x86 CPUs by family, model and microcode. Sources: Intel specification updates (ADL063,
 * RPL042; CVE-2018-12207), AMD revision guides (erratum 383), APM vol. 3 CLFLUSH, and the public
 * report that Zen 2 parts advertise an INVLPGB that does not work.
 */
#include "detect.h"

struct cpu_model {
    hvmem_u32 model;
    hvmem_u32 fixed; /* first microcode revision with the fix */
};

/* INVLPG may miss global entries while PCID is on: Alder Lake, Gracemont, Raptor Lake. */
static const struct cpu_model invlpg_global[] = {
    {0x97, 0x2e}, {0x9a, 0x42c}, {0xbe, 0x11}, {0xb7, 0x118}, {0xba, 0x4117}, {0xbf, 0x2e},
};

static hvmem_u32 family(hvmem_u32 eax)
{
    hvmem_u32 base = eax >> 8 & 15;

    return base == 15 ? base + (eax >> 20 & 0xff) : base;
}

static hvmem_u32 model(hvmem_u32 eax)
{
    hvmem_u32 base = eax >> 8 & 15;

    return base == 6 || base == 15 ? (eax >> 12 & 0xf0) | (eax >> 4 & 15) : eax >> 4 & 15;
}

static hvmem_u64 intel_errata(const struct hvmem_x86_ids *ids)
{
    hvmem_u64 quirks = 0;
    hvmem_u32 i;

    if (family(ids->leaf1_eax) != 6)
        return 0;
    for (i = 0; i < sizeof(invlpg_global) / sizeof(invlpg_global[0]); i++)
        if (model(ids->leaf1_eax) == invlpg_global[i].model &&
            ids->microcode < invlpg_global[i].fixed)
            quirks |= HVMEM_QUIRK_INVLPG_GLOBAL;
    /* Machine check when a page size changes in place, unless PSCHANGE_MC_NO says otherwise. */
    if (!(ids->arch_caps >> 6 & 1))
        quirks |= HVMEM_QUIRK_BBM_REQUIRED;
    return quirks;
}

hvmem_u64 hvmem__x86_errata(const struct hvmem_x86_ids *ids)
{
    hvmem_u64 quirks = 0;
    hvmem_u32 fam = family(ids->leaf1_eax);

    if (ids->vendor == HVMEM__X86_INTEL)
        return intel_errata(ids);
    if (ids->vendor != HVMEM__X86_AMD && ids->vendor != HVMEM__X86_HYGON)
        return 0;
    if (!(ids->leaf7_ebx >> 23 & 1)) /* before CLFLUSHOPT */
        quirks |= HVMEM_QUIRK_CLFLUSH_UNORDERED;
    if (fam == 0x17 && (ids->ext8_ebx >> 3 & 1))
        quirks |= HVMEM_QUIRK_NO_RANGE;
    if (fam == 0x10) /* erratum 383 */
        quirks |= HVMEM_QUIRK_BBM_REQUIRED;
    return quirks;
}
