/* SPDX-License-Identifier: BSD-2-Clause */
/* Detection of x86 CPUs from CPUID words (SDM vol. 2 CPUID, APM vol. 3 appendix E). */
#include "detect.h"
#include "internal.h"

#define VMX_FLAG(config) (((config)->flags & HVMEM_X86_VMX) != 0)
#define SVM_FLAG(config) (((config)->flags & HVMEM_X86_SVM) != 0)

static hvmem_u32 bit(hvmem_u64 word, hvmem_u32 n)
{
    return (hvmem_u32)(word >> n) & 1;
}

/* Instructions of IA32_VMX_EPT_VPID_CAP (SDM vol. 3 A.10). */
static hvmem_u32 vmx_have(hvmem_u64 cap)
{
    hvmem_u32 have = 0;

    if (bit(cap, 20)) {
        have |= bit(cap, 25) * HAVE_INVEPT_ONE;
        have |= bit(cap, 26) * HAVE_INVEPT_ALL;
    }
    if (bit(cap, 32)) {
        have |= bit(cap, 40) * HAVE_INVVPID_ADDR;
        have |= bit(cap, 41) * HAVE_INVVPID_ONE;
        have |= bit(cap, 42) * HAVE_INVVPID_ALL;
    }
    return have;
}

static hvmem_u32 find_have(const struct hvmem_x86_ids *ids, const struct hvmem_x86_config *config,
                           hvmem_u64 quirks)
{
    hvmem_u32 have = 0;

    have |= bit(ids->leaf1_edx, 13) * HAVE_PGE;
    have |= bit(ids->leaf1_edx, 19) * HAVE_CLFLUSH;
    have |= bit(ids->leaf7_ebx, 10) * HAVE_INVPCID;
    have |= bit(ids->leaf7_ebx, 23) * HAVE_CLFLUSHOPT;
    have |= bit(ids->leaf7_ebx, 24) * HAVE_CLWB;
    have |= bit(ids->leaf7_edx, 14) * HAVE_SERIALIZE;
    have |= bit(ids->ext8_ebx, 0) * HAVE_CLZERO;
    have |= bit(ids->ext8_ebx, 9) * HAVE_WBNOINVD;
    if (bit(ids->ext8_ebx, 3) && !(quirks & HVMEM_QUIRK_NO_RANGE) &&
        !(config->flags & HVMEM_X86_USER) && !(config->features_clear & HVMEM_CAP_BROADCAST)) {
        have |= HAVE_INVLPGB;
        have |= bit(ids->ext8_ebx, 21) * HAVE_NESTED;
    }
    if (VMX_FLAG(config))
        have |= vmx_have(ids->ept_vpid_cap);
    if (SVM_FLAG(config))
        have |= bit(ids->exta_edx, 6) * HAVE_FLUSHBYASID;
    if (config->features_clear & HVMEM_CAP_CLWB)
        have &= ~HAVE_CLWB;
    if (config->features_clear & HVMEM_CAP_CLFLUSHOPT)
        have &= ~HAVE_CLFLUSHOPT;
    if (config->features_clear & HVMEM_CAP_USER_RANGE)
        have &= ~HAVE_INVPCID;
    return have;
}

/* Capabilities of privilege level 0 that concern tags and guests. */
static hvmem_u64 tlb_features(const struct hvmem_x86_ids *ids,
                              const struct hvmem_x86_config *config, hvmem_u32 have)
{
    hvmem_u64 features = HVMEM_CAP_WHOLE_CACHE;

    if (have & HAVE_PGE)
        features |= HVMEM_CAP_GLOBAL;
    if (have & HAVE_INVLPGB)
        features |= HVMEM_CAP_BROADCAST | HVMEM_CAP_RANGE;
    if (bit(ids->leaf1_ecx, 17))
        features |= HVMEM_CAP_USER_IDS;
    if (have & (HAVE_INVPCID | HAVE_INVLPGB))
        features |= HVMEM_CAP_USER_RANGE;
    if (VMX_FLAG(config) && (have & (HAVE_INVEPT_ONE | HAVE_INVEPT_ALL)))
        features |= HVMEM_CAP_STAGE2;
    if (VMX_FLAG(config) && (have & (HAVE_INVVPID_ONE | HAVE_INVVPID_ALL)))
        features |= HVMEM_CAP_GUEST;
    if (SVM_FLAG(config) && (have & HAVE_NESTED))
        features |= HVMEM_CAP_STAGE2;
    if (SVM_FLAG(config) && (have & HAVE_INVLPGB))
        features |= HVMEM_CAP_GUEST;
    if (SVM_FLAG(config) && (have & HAVE_FLUSHBYASID))
        features |= HVMEM_CAP_FLUSH_BY_ASID;
    return features;
}

static hvmem_u64 cache_features(hvmem_u32 have)
{
    hvmem_u64 features = HVMEM_CAP_IDC | HVMEM_CAP_DIC | HVMEM_CAP_ICOHERENT | HVMEM_CAP_FAST_ZERO;

    if (have & HAVE_CLWB)
        features |= HVMEM_CAP_CLWB;
    if (have & HAVE_CLFLUSHOPT)
        features |= HVMEM_CAP_CLFLUSHOPT;
    return features;
}

/* Width and number of VPIDs or SVM ASIDs. */
static void guest_ids(struct hvmem_backend_caps *caps, const struct hvmem_x86_ids *ids,
                      const struct hvmem_x86_config *config)
{
    caps->stage2_id_bits = 0;
    caps->stage2_ids = 0;
    if (VMX_FLAG(config)) {
        caps->stage2_id_bits = 16;
        caps->stage2_ids = 1u << 16;
    }
    if (SVM_FLAG(config)) {
        caps->stage2_ids = ids->exta_ebx;
        while (caps->stage2_id_bits < 31 && 1u << caps->stage2_id_bits < ids->exta_ebx)
            caps->stage2_id_bits++;
    }
}

void hvmem__x86_detect(struct hvmem_backend_caps *caps, hvmem_u32 *have,
                       const struct hvmem_x86_ids *ids, const struct hvmem_x86_config *config)
{
    hvmem_u32 line = (ids->leaf1_ebx >> 8 & 0xff) * 8;

    caps->size = sizeof(*caps);
    caps->page_shift = 12;
    caps->quirks = (hvmem__x86_errata(ids) & ~config->quirks_clear) | config->quirks_set;
    *have = find_have(ids, config, caps->quirks);
    caps->features = cache_features(*have);
    if (!(config->flags & HVMEM_X86_USER))
        caps->features |= tlb_features(ids, config, *have);
    caps->features &= ~config->features_clear;
    caps->max_range_pages = 0;
    if (caps->features & HVMEM_CAP_RANGE)
        caps->max_range_pages = (ids->ext8_edx & 0xffff) + 1;
    caps->user_id_bits = caps->features & HVMEM_CAP_USER_IDS ? 12 : 0;
    guest_ids(caps, ids, config);
    caps->dline = *have & HAVE_CLFLUSH ? line : 0;
    caps->iline = caps->dline;
    caps->zero_block = *have & HAVE_CLZERO ? 64 : 0;
    caps->cache_bytes = ids->cache_bytes;
}

static hvmem_u32 least(hvmem_u32 a, hvmem_u32 b)
{
    return a < b ? a : b;
}

void hvmem__x86_merge(struct hvmem_backend_caps *caps, const struct hvmem_backend_caps *other)
{
    /* Globals anywhere must be reckoned with everywhere. */
    hvmem_u64 global = (caps->features | other->features) & HVMEM_CAP_GLOBAL;

    caps->features = (caps->features & other->features) | global;
    caps->quirks |= other->quirks;
    if (other->max_range_pages < caps->max_range_pages)
        caps->max_range_pages = other->max_range_pages;
    caps->user_id_bits = least(caps->user_id_bits, other->user_id_bits);
    caps->stage2_id_bits = least(caps->stage2_id_bits, other->stage2_id_bits);
    caps->stage2_ids = least(caps->stage2_ids, other->stage2_ids);
    caps->dline = least(caps->dline, other->dline);
    caps->iline = least(caps->iline, other->iline);
    caps->zero_block = least(caps->zero_block, other->zero_block);
    if (other->cache_bytes > caps->cache_bytes)
        caps->cache_bytes = other->cache_bytes;
}
