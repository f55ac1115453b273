/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work on guests' translations of this CPU: INVEPT and INVVPID with escalation to the next wider
 * type (SDM vol. 3 30.4.3), INVLPGA and TLB_CONTROL (APM vol. 2 15.16). An EPT violation or the
 * like aside, these act on the issuing CPU alone.
 */
#include "insn.h"
#include "internal.h"

struct hvmem__x86_steps hvmem__x86_steps(const struct hvmem_tlb_range *range)
{
    struct hvmem__x86_steps steps;
    hvmem_u64 last = range->start + ((range->pages - 1) << 12) + 0xfff;

    steps.shift = range->stride_shift > 12 ? range->stride_shift : 12;
    steps.first = range->start >> steps.shift << steps.shift;
    steps.count = (last >> steps.shift) - (range->start >> steps.shift) + 1;
    return steps;
}

static hvmem_status invept_all(const struct hvmem_x86 *m)
{
    return insn_invept(m, HVMEM__INVEPT_ALL, 0) ? HVMEM_E_HOST : HVMEM_OK;
}

static hvmem_status invept_one(const struct hvmem_x86 *m, hvmem_u64 eptp)
{
    if ((m->have & HAVE_INVEPT_ONE) && !insn_invept(m, HVMEM__INVEPT_ONE, eptp))
        return HVMEM_OK;
    return m->have & HAVE_INVEPT_ALL ? invept_all(m) : HVMEM_E_HOST;
}

static hvmem_status invvpid_all(const struct hvmem_x86 *m)
{
    return insn_invvpid(m, HVMEM__INVVPID_ALL, 0, 0) ? HVMEM_E_HOST : HVMEM_OK;
}

static hvmem_status invvpid_one(const struct hvmem_x86 *m, hvmem_u32 vpid)
{
    if ((m->have & HAVE_INVVPID_ONE) && !insn_invvpid(m, HVMEM__INVVPID_ONE, vpid, 0))
        return HVMEM_OK;
    return m->have & HAVE_INVVPID_ALL ? invvpid_all(m) : HVMEM_E_HOST;
}

static hvmem_status invvpid_ranges(const struct hvmem_x86 *m, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    if (!(m->have & HAVE_INVVPID_ADDR))
        return invvpid_one(m, flush->space.id);
    for (i = 0; i < flush->count; i++) {
        struct hvmem__x86_steps steps = hvmem__x86_steps(&flush->ranges[i]);

        for (; steps.count; steps.count--, steps.first += 1ull << steps.shift)
            if (insn_invvpid(m, HVMEM__INVVPID_ADDRESS, flush->space.id, steps.first))
                return invvpid_one(m, flush->space.id);
    }
    return HVMEM_OK;
}

static void invlpga_ranges(const struct hvmem_x86 *m, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    for (i = 0; i < flush->count; i++) {
        struct hvmem__x86_steps steps = hvmem__x86_steps(&flush->ranges[i]);

        for (; steps.count; steps.count--, steps.first += 1ull << steps.shift)
            insn_invlpga(m, steps.first, flush->space.id);
    }
}

hvmem_status hvmem__x86_guest_flush(const struct hvmem_x86 *m, const struct hvmem_tlb_flush *flush,
                                    int whole)
{
    int regime = flush->what == HVMEM_FLUSH_REGIME;

    if (m->config.flags & HVMEM_X86_SVM) {
        invlpga_ranges(m, flush);
        return HVMEM_OK;
    }
    if (flush->space.regime == HVMEM_REGIME_STAGE2)
        return regime ? invept_all(m) : invept_one(m, flush->space.root);
    if (regime)
        return invvpid_all(m);
    return whole ? invvpid_one(m, flush->space.id) : invvpid_ranges(m, flush);
}

hvmem_status hvmem__x86_guest_flush_all(const struct hvmem_x86 *m)
{
    hvmem_status status = HVMEM_OK;

    if (m->have & HAVE_INVEPT_ALL)
        status = invept_all(m);
    if (status == HVMEM_OK && (m->have & HAVE_INVVPID_ALL))
        status = invvpid_all(m);
    return status;
}

hvmem_status hvmem__x86_guest_entry(struct hvmem_backend *be, hvmem_u32 owed, hvmem_u32 *value)
{
    const struct hvmem_x86 *m = (const struct hvmem_x86 *)be->ctx;

    if (!value || owed > HVMEM_ENTRY_FLUSH_ALL)
        return HVMEM_E_ARG;
    if (!(m->config.flags & HVMEM_X86_SVM))
        return HVMEM_E_UNSUPPORTED;
    *value = hvmem__x86_tlb_control(owed, (be->caps.features & HVMEM_CAP_FLUSH_BY_ASID) != 0);
    return HVMEM_OK;
}
