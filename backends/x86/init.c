/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes an x86 back-end: checks the configuration, reads the CPU, fills operations. */
#include "detect.h"
#include "insn.h"
#include "internal.h"

#define KNOWN_FLAGS  (HVMEM_X86_USER | HVMEM_X86_VMX | HVMEM_X86_SVM | HVMEM_X86_SVM_ENTRY_FLUSH)
#define KNOWN_QUIRKS ((HVMEM_QUIRK_BBM_REQUIRED << 1) - 1)

static hvmem_status check_config(const struct hvmem_x86_config *config)
{
    hvmem_u32 virt = config->flags & (HVMEM_X86_VMX | HVMEM_X86_SVM);

    if (config->size != sizeof(*config))
        return HVMEM_E_VERSION;
    if ((config->flags & ~KNOWN_FLAGS) || config->zero > HVMEM_X86_ZERO_STORES ||
        ((config->quirks_set | config->quirks_clear) & ~KNOWN_QUIRKS))
        return HVMEM_E_ARG;
    /* VMX and SVM exclude each other, and privilege level 3 excludes both. */
    if (virt == (HVMEM_X86_VMX | HVMEM_X86_SVM) || (virt && (config->flags & HVMEM_X86_USER)) ||
        ((config->flags & HVMEM_X86_SVM_ENTRY_FLUSH) && virt != HVMEM_X86_SVM))
        return HVMEM_E_ARG;
    if (config->va_bits != 0 && config->va_bits != 48 && config->va_bits != 57)
        return HVMEM_E_RANGE;
    return HVMEM_OK;
}

static void detect(const struct hvmem_x86 *m, const struct hvmem_x86_ids *given,
                   struct hvmem_x86_ids *ids, struct hvmem_backend_caps *caps, hvmem_u32 *have)
{
    if (given)
        *ids = *given;
    else
        hvmem__x86_read_ids(m, ids);
    hvmem__x86_detect(caps, have, ids, &m->config);
}

/* Does the CPU have the virtualisation that the host says it switched on? */
static int has_virt(const struct hvmem_x86_config *config, const struct hvmem_x86_ids *ids)
{
    if ((config->flags & HVMEM_X86_VMX) && !(ids->leaf1_ecx >> 5 & 1))
        return 0;
    return !(config->flags & HVMEM_X86_SVM) || ids->exta_ebx != 0;
}

static void fill_ops(struct hvmem_backend_ops *ops)
{
    ops->size = sizeof(*ops);
    ops->reserved = 0;
    ops->tlb_flush = hvmem__x86_tlb_flush;
    ops->dcache = hvmem__x86_dcache;
    ops->icache = hvmem__x86_icache;
    ops->icache_all = hvmem__x86_icache_all;
    ops->dcache_all = hvmem__x86_dcache_all;
    ops->zero = hvmem__x86_zero;
    ops->guest_entry = hvmem__x86_guest_entry;
    ops->dcache_done = hvmem__x86_dcache_done;
}

hvmem_status hvmem_x86_init(struct hvmem_x86 *m, struct hvmem_backend *be,
                            const struct hvmem_x86_config *config)
{
    struct hvmem_x86_ids ids;
    hvmem_status status;

    if (!m || !be || !config)
        return HVMEM_E_ARG;
    status = check_config(config);
    if (status != HVMEM_OK)
        return status;
    m->config = *config;
    m->config.ids = (const struct hvmem_x86_ids *)0;
    m->reserved = 0;
    detect(m, config->ids, &ids, &be->caps, &m->have);
    if (!has_virt(config, &ids))
        return HVMEM_E_UNSUPPORTED;
    if (!m->config.va_bits) {
        m->config.va_bits = 48;
        if ((ids.leaf7_ecx >> 16 & 1) && !(config->flags & HVMEM_X86_USER) &&
            (hvmem__x86_read_cr4(m) & CR4_LA57))
            m->config.va_bits = 57;
    }
    fill_ops(&m->ops);
    be->ops = &m->ops;
    be->ctx = m;
    return HVMEM_OK;
}

hvmem_status hvmem_x86_add_cpu(struct hvmem_x86 *m, struct hvmem_backend *be,
                               const struct hvmem_x86_ids *given)
{
    struct hvmem_backend_caps caps;
    struct hvmem_x86_ids ids;
    hvmem_u32 have;

    if (!m || !be || be->ctx != m)
        return HVMEM_E_ARG;
    detect(m, given, &ids, &caps, &have);
    hvmem__x86_merge(&be->caps, &caps);
    m->have &= have;
    return HVMEM_OK;
}

static int same_caps(const struct hvmem_backend_caps *a, const struct hvmem_backend_caps *b)
{
    return a->features == b->features && a->quirks == b->quirks &&
           a->max_range_pages == b->max_range_pages && a->user_id_bits == b->user_id_bits &&
           a->stage2_ids == b->stage2_ids && a->dline == b->dline && a->iline == b->iline &&
           a->zero_block == b->zero_block;
}

hvmem_status hvmem_x86_check_cpu(const struct hvmem_x86 *m, const struct hvmem_backend *be,
                                 const struct hvmem_x86_ids *given)
{
    struct hvmem_backend_caps caps, merged;
    struct hvmem_x86_ids ids;
    hvmem_u32 have;

    if (!m || !be || be->ctx != m)
        return HVMEM_E_ARG;
    detect(m, given, &ids, &caps, &have);
    merged = be->caps;
    hvmem__x86_merge(&merged, &caps);
    return same_caps(&merged, &be->caps) && (m->have & ~have) == 0 ? HVMEM_OK : HVMEM_E_CPU;
}
