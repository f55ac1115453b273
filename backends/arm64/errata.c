/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errata of arm64 parts by MIDR_EL1. Sources: Arm's CVE-2025-10263 notice (TFV-17, XSA-493) and the
 * errata notices of the cores. Parts that no entry knows are assumed to need the repeated TLBI: it
 * costs one round trip a batch, its absence costs correctness.
 */
#include "detect.h"

/* Variant and revision of MIDR as one number, rNpM = N << 4 | M. */
#define REV(n, p) ((n) << 4 | (p))
#define ANY       0xffu

struct erratum {
    hvmem_u8 implementer;
    hvmem_u8 first; /* REV, inclusive */
    hvmem_u8 last;
    hvmem_u16 part;
    hvmem_u64 quirks;
};

#define ARM 0x41u

static const struct erratum errata[] = {
    /* Speculative AT: 1165522, 1319367 / 1319537, 1530923. */
    {ARM, REV(0, 0), REV(2, 0), 0xd0b, HVMEM_QUIRK_SPECULATIVE_AT}, /* Cortex-A76 */
    {ARM, 0, ANY, 0xd07, HVMEM_QUIRK_SPECULATIVE_AT},               /* Cortex-A57 */
    {ARM, 0, ANY, 0xd08, HVMEM_QUIRK_SPECULATIVE_AT},               /* Cortex-A72 */
    {ARM, REV(0, 0), REV(2, 0), 0xd05, HVMEM_QUIRK_SPECULATIVE_AT}, /* Cortex-A55 */
    /* 826319, 827319, 824069, 819472: clean by address may be lost. */
    {ARM, REV(0, 0), REV(0, 2), 0xd03, HVMEM_QUIRK_CLEAN_IS_CIVAC}, /* Cortex-A53 */
};

/* Parts outside every erratum that asks for the repeated TLBI. */
static const struct erratum no_repeat[] = {
    {ARM, 0, ANY, 0xd03, 0},         /* Cortex-A53 */
    {ARM, 0, ANY, 0xd04, 0},         /* Cortex-A35 */
    {ARM, 0, ANY, 0xd07, 0},         /* Cortex-A57 */
    {ARM, 0, ANY, 0xd08, 0},         /* Cortex-A72 */
    {ARM, 0, ANY, 0xd09, 0},         /* Cortex-A73 */
    {ARM, 0, ANY, 0xd0a, 0},         /* Cortex-A75 */
    {ARM, REV(1, 2), ANY, 0xd46, 0}, /* Cortex-A510 from the fix of 2441009 on */
};

static int matches(const struct erratum *e, hvmem_u64 midr)
{
    hvmem_u64 rev = (midr >> 20 & 15) << 4 | (midr & 15);

    return (midr >> 24 & 0xff) == e->implementer && (midr >> 4 & 0xfff) == e->part &&
           rev >= e->first && rev <= e->last;
}

hvmem_u64 hvmem__arm64_errata(hvmem_u64 midr, int dic)
{
    hvmem_u64 quirks = HVMEM_QUIRK_REPEAT_TLBI;
    hvmem_u32 i;

    for (i = 0; i < sizeof(no_repeat) / sizeof(no_repeat[0]); i++)
        if (matches(&no_repeat[i], midr))
            quirks = 0;
    for (i = 0; i < sizeof(errata) / sizeof(errata[0]); i++)
        if (matches(&errata[i], midr))
            quirks |= errata[i].quirks;
    /* Neoverse-N1 1542419: DIC promises what the core does not keep. */
    if (dic && (midr >> 24 & 0xff) == ARM && (midr >> 4 & 0xfff) == 0xd0c)
        quirks |= HVMEM_QUIRK_HIDE_DIC;
    return quirks;
}
