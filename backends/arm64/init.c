/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes an arm64 back-end: checks the configuration, reads ID registers, fills operations. */
#include "detect.h"
#include "insn.h"
#include "internal.h"

#define KNOWN_FLAGS                                                                                \
    (HVMEM_ARM64_LPA2_STAGE1 | HVMEM_ARM64_LPA2_STAGE2 | HVMEM_ARM64_NO_ZVA | HVMEM_ARM64_FWB)
#define KNOWN_QUIRKS ((HVMEM_QUIRK_BBM_REQUIRED << 1) - 1)

static hvmem_status check_config(const struct hvmem_arm64_config *config)
{
    if (config->size != sizeof(*config))
        return HVMEM_E_VERSION;
    if (config->level > HVMEM_ARM64_VHE || (config->flags & ~KNOWN_FLAGS) ||
        ((config->quirks_set | config->quirks_clear) & ~KNOWN_QUIRKS))
        return HVMEM_E_ARG;
    return config->flags & HVMEM_ARM64_FWB && config->level < HVMEM_ARM64_EL2 ? HVMEM_E_ARG
                                                                              : HVMEM_OK;
}

/* Widest input address: above 48 bits tables need the 64 KiB granule or LPA2, and range operands too. */
static hvmem_u32 most_bits(const struct hvmem_arm64_config *config, hvmem_u32 granule_shift,
                           hvmem_u32 lpa2)
{
    return granule_shift == 16 || (config->flags & lpa2) ? 52 : 48;
}

/* Takes the configuration over with its defaults. */
static hvmem_status take_config(struct hvmem_arm64_config *to,
                                const struct hvmem_arm64_config *from)
{
    *to = *from;
    to->ids = (const struct hvmem_arm64_ids *)0;
    if (!to->page_shift)
        to->page_shift = 12;
    if (!to->stage2_shift)
        to->stage2_shift = 12;
    if (!to->va_bits)
        to->va_bits = 48;
    if (!to->ipa_bits)
        to->ipa_bits = 48;
    if ((to->page_shift != 12 && to->page_shift != 14 && to->page_shift != 16) ||
        (to->stage2_shift != 12 && to->stage2_shift != 14 && to->stage2_shift != 16) ||
        to->stage2_shift > to->page_shift)
        return HVMEM_E_ALIGN;
    if (to->va_bits < 25 || to->va_bits > most_bits(to, to->page_shift, HVMEM_ARM64_LPA2_STAGE1))
        return HVMEM_E_RANGE;
    if (to->ipa_bits < 32 ||
        to->ipa_bits > most_bits(to, to->stage2_shift, HVMEM_ARM64_LPA2_STAGE2))
        return HVMEM_E_RANGE;
    return HVMEM_OK;
}

/* EL0 may read the cache type registers alone; what it cannot see is taken as absent. */
static void read_ids(const struct hvmem_arm64 *m, struct hvmem_arm64_ids *ids)
{
    int privileged = m->config.level != HVMEM_ARM64_EL0;

    ids->ctr = hvmem__a64_read(m, A64_CTR_EL0);
    ids->dczid = hvmem__a64_read(m, A64_DCZID_EL0);
    ids->midr = privileged ? hvmem__a64_read(m, A64_MIDR_EL1) : 0;
    ids->isar0 = privileged ? hvmem__a64_read(m, A64_ISAR0_EL1) : 0;
    ids->isar1 = privileged ? hvmem__a64_read(m, A64_ISAR1_EL1) : 0;
    ids->mmfr0 = privileged ? hvmem__a64_read(m, A64_MMFR0_EL1) : 0;
    ids->mmfr1 = privileged ? hvmem__a64_read(m, A64_MMFR1_EL1) : 0;
    ids->mmfr2 = privileged ? hvmem__a64_read(m, A64_MMFR2_EL1) : 0;
}

static void detect(const struct hvmem_arm64 *m, const struct hvmem_arm64_ids *given,
                   struct hvmem_arm64_ids *ids, struct hvmem_backend_caps *caps)
{
    if (given)
        *ids = *given;
    else
        read_ids(m, ids);
    hvmem__arm64_detect(caps, ids, &m->config);
}

hvmem_status hvmem_arm64_init(struct hvmem_arm64 *m, struct hvmem_backend *be,
                              const struct hvmem_arm64_config *config)
{
    struct hvmem_arm64_ids ids;
    hvmem_status status;

    if (!m || !be || !config)
        return HVMEM_E_ARG;
    status = check_config(config);
    if (status == HVMEM_OK)
        status = take_config(&m->config, config);
    if (status != HVMEM_OK)
        return status;
    m->ops.size = sizeof(m->ops);
    m->ops.reserved = 0;
    m->ops.tlb_flush = hvmem__arm64_tlb_flush;
    m->ops.dcache = hvmem__arm64_dcache;
    m->ops.icache = hvmem__arm64_icache;
    m->ops.icache_all = hvmem__arm64_icache_all;
    m->ops.dcache_all = hvmem__arm64_dcache_all;
    m->ops.dcache_done = hvmem__arm64_dcache_done;
    m->ops.zero = hvmem__arm64_zero;
    m->ops.guest_entry = hvmem__arm64_guest_entry;
    detect(m, config->ids, &ids, &be->caps);
    be->ops = &m->ops;
    be->ctx = m;
    return HVMEM_OK;
}

hvmem_status hvmem_arm64_add_cpu(struct hvmem_arm64 *m, struct hvmem_backend *be,
                                 const struct hvmem_arm64_ids *given)
{
    struct hvmem_backend_caps caps;
    struct hvmem_arm64_ids ids;

    if (!m || !be || be->ctx != m)
        return HVMEM_E_ARG;
    detect(m, given, &ids, &caps);
    hvmem__arm64_merge(&be->caps, &caps);
    return HVMEM_OK;
}

static int same_caps(const struct hvmem_backend_caps *a, const struct hvmem_backend_caps *b)
{
    return a->features == b->features && a->quirks == b->quirks &&
           a->max_range_pages == b->max_range_pages && a->user_id_bits == b->user_id_bits &&
           a->stage2_id_bits == b->stage2_id_bits && a->stage2_ids == b->stage2_ids &&
           a->dline == b->dline && a->iline == b->iline && a->zero_block == b->zero_block;
}

hvmem_status hvmem_arm64_check_cpu(const struct hvmem_arm64 *m, const struct hvmem_backend *be,
                                   const struct hvmem_arm64_ids *given)
{
    struct hvmem_backend_caps caps, merged;
    struct hvmem_arm64_ids ids;

    if (!m || !be || be->ctx != m)
        return HVMEM_E_ARG;
    detect(m, given, &ids, &caps);
    merged = be->caps;
    hvmem__arm64_merge(&merged, &caps);
    return same_caps(&merged, &be->caps) ? HVMEM_OK : HVMEM_E_CPU;
}
