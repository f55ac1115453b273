/* SPDX-License-Identifier: BSD-2-Clause */
/* Detection of arm64 CPUs from ID register values; field positions: Arm ARM D19.2. */
#include "detect.h"

static hvmem_u32 field(hvmem_u64 reg, hvmem_u32 shift)
{
    return (hvmem_u32)(reg >> shift) & 15;
}

/* Features that follow from the exception level alone. */
static hvmem_u64 level_features(hvmem_u32 level)
{
    switch (level) {
    case HVMEM_ARM64_EL0:
        return 0;
    case HVMEM_ARM64_EL1:
        return HVMEM_CAP_BROADCAST | HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE |
               HVMEM_CAP_WHOLE_CACHE | HVMEM_CAP_GLOBAL;
    default:
        return HVMEM_CAP_BROADCAST | HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE | HVMEM_CAP_STAGE2 |
               HVMEM_CAP_STAGE2_RANGE | HVMEM_CAP_GUEST | HVMEM_CAP_WHOLE_CACHE | HVMEM_CAP_GLOBAL;
    }
}

static hvmem_u64 id_features(const struct hvmem_arm64_ids *ids,
                             const struct hvmem_arm64_config *config)
{
    const hvmem_u32 level = config->level;
    hvmem_u64 features = level_features(level);
    hvmem_u32 tlb = field(ids->isar0, 56); /* ID_AA64ISAR0_EL1.TLB: 1 outer, 2 range too */

    if (level != HVMEM_ARM64_EL0) {
        if (tlb >= 1)
            features |= HVMEM_CAP_OUTER;
        if (tlb >= 2)
            features |= HVMEM_CAP_RANGE;
        if (field(ids->mmfr2, 48)) /* TTL */
            features |= HVMEM_CAP_TTL;
    }
    /* That the CPU could does not say that anybody does. */
    if (field(ids->mmfr2, 40) && config->flags & HVMEM_ARM64_FWB)
        features |= HVMEM_CAP_FWB;
    if (field(ids->mmfr2, 52) >= 2)
        features |= HVMEM_CAP_BBM2;
    if (field(ids->mmfr2, 28)) /* ST */
        features |= HVMEM_CAP_SMALL_INPUT;
    if (ids->ctr >> 28 & 1)
        features |= HVMEM_CAP_IDC;
    if (ids->ctr >> 29 & 1)
        features |= HVMEM_CAP_DIC;
    return features | HVMEM_CAP_CLWB;
}

/* Drops capabilities that quirks make unusable. */
static void apply_quirks(struct hvmem_backend_caps *caps)
{
    if (caps->quirks & HVMEM_QUIRK_NO_RANGE)
        caps->features &= ~HVMEM_CAP_RANGE;
    if (caps->quirks & HVMEM_QUIRK_HIDE_DIC)
        caps->features &= ~HVMEM_CAP_DIC;
    if (caps->quirks & HVMEM_QUIRK_BBM_REQUIRED)
        caps->features &= ~HVMEM_CAP_BBM2;
    if (!(caps->features & HVMEM_CAP_RANGE))
        caps->max_range_pages = 0;
    if (caps->zero_block == 0)
        caps->features &= ~HVMEM_CAP_FAST_ZERO;
}

void hvmem__arm64_detect(struct hvmem_backend_caps *caps, const struct hvmem_arm64_ids *ids,
                         const struct hvmem_arm64_config *config)
{
    int dic = (int)(ids->ctr >> 29 & 1);
    hvmem_u32 l1ip = (hvmem_u32)(ids->ctr >> 14) & 3;

    caps->size = sizeof(*caps);
    caps->page_shift = config->page_shift;
    caps->features = id_features(ids, config) | HVMEM_CAP_FAST_ZERO;
    caps->features &= ~config->features_clear;
    caps->quirks = hvmem__arm64_errata(ids->midr, dic);
    /* Without BBM level 2 a block may change its size only through an invalid entry. */
    if (!(caps->features & HVMEM_CAP_BBM2))
        caps->quirks |= HVMEM_QUIRK_BBM_REQUIRED;
    if (l1ip != 3) /* not PIPT */
        caps->quirks |= HVMEM_QUIRK_VIPT_ICACHE;
    caps->quirks = (caps->quirks & ~config->quirks_clear) | config->quirks_set;
    caps->max_range_pages = 1ull << 21;
    caps->user_id_bits = field(ids->mmfr0, 4) == 2 ? 16 : 8;
    caps->stage2_id_bits = field(ids->mmfr1, 4) == 2 ? 16 : 8;
    caps->stage2_ids = 1u << caps->stage2_id_bits;
    caps->dline = 4u << field(ids->ctr, 16);
    caps->iline = 4u << field(ids->ctr, 0);
    caps->zero_block = 4u << field(ids->dczid, 0);
    if ((ids->dczid >> 4 & 1) || (config->flags & HVMEM_ARM64_NO_ZVA) ||
        (config->features_clear & HVMEM_CAP_FAST_ZERO))
        caps->zero_block = 0;
    caps->cache_bytes = 0;
    apply_quirks(caps);
}

static hvmem_u32 least(hvmem_u32 a, hvmem_u32 b)
{
    return a < b ? a : b;
}

void hvmem__arm64_merge(struct hvmem_backend_caps *caps, const struct hvmem_backend_caps *other)
{
    caps->features &= other->features;
    caps->quirks |= other->quirks;
    if (other->max_range_pages < caps->max_range_pages)
        caps->max_range_pages = other->max_range_pages;
    caps->user_id_bits = least(caps->user_id_bits, other->user_id_bits);
    caps->stage2_id_bits = least(caps->stage2_id_bits, other->stage2_id_bits);
    caps->stage2_ids = least(caps->stage2_ids, other->stage2_ids);
    caps->dline = least(caps->dline, other->dline);
    caps->iline = least(caps->iline, other->iline);
    /* DC ZVA clears the block of the CPU it runs on: CPUs that differ cannot use it. */
    if (caps->zero_block != other->zero_block)
        caps->zero_block = 0;
    apply_quirks(caps);
}
