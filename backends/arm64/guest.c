/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work on another VM's translations: TLBI of the EL1&0 regime act on the VMID in VTTBR_EL2, and under
 * VHE only while HCR_EL2.TGE is 0 (Arm ARM D8.14). CPUs with the speculative-AT errata must not walk
 * stage 1 while VTTBR_EL2 and the EL1 registers belong to different VMs: EPD0 and EPD1 stop walks,
 * SCTLR_EL1.M keeps IPA-to-PA entries from being made with stage 1 off. M is set after the walks have
 * stopped and taken back before they go on, with an ISB between: the tables of a guest whose stage 1 is
 * off may be anything.
 */
#include "insn.h"
#include "internal.h"

#define HCR_TGE  (1ull << 27)
#define TCR_EPD0 (1ull << 7)
#define TCR_EPD1 (1ull << 23)
#define SCTLR_M  1ull

static int is_vhe(const struct hvmem_arm64 *m)
{
    return m->config.level == HVMEM_ARM64_VHE;
}

static void write_tcr(const struct hvmem_arm64 *m, hvmem_u64 value)
{
    hvmem__a64_write(m, is_vhe(m) ? A64_W_TCR_EL12 : A64_W_TCR_EL1, value);
    insn_plain(m, A64_ISB);
}

static void write_sctlr(const struct hvmem_arm64 *m, hvmem_u64 value)
{
    hvmem__a64_write(m, is_vhe(m) ? A64_W_SCTLR_EL12 : A64_W_SCTLR_EL1, value);
    insn_plain(m, A64_ISB);
}

void hvmem__arm64_vmid_enter(const struct hvmem_arm64 *m, hvmem_u64 quirks,
                             struct hvmem__arm64_vmid_state *state, hvmem_u32 id, hvmem_u64 root)
{
    state->daif = hvmem__a64_read(m, A64_DAIF);
    insn_plain(m, A64_DAIFSET_IF);
    state->vttbr = hvmem__a64_read(m, A64_VTTBR_EL2);
    state->switched = state->vttbr >> 48 != id;
    if (state->switched && (quirks & HVMEM_QUIRK_SPECULATIVE_AT)) {
        state->tcr = hvmem__a64_read(m, is_vhe(m) ? A64_TCR_EL12 : A64_TCR_EL1);
        state->sctlr = hvmem__a64_read(m, is_vhe(m) ? A64_SCTLR_EL12 : A64_SCTLR_EL1);
        write_tcr(m, state->tcr | TCR_EPD0 | TCR_EPD1);
        if (!(state->sctlr & SCTLR_M))
            write_sctlr(m, state->sctlr | SCTLR_M);
    }
    if (state->switched)
        hvmem__a64_write(m, A64_W_VTTBR_EL2, (root & ((1ull << 48) - 1)) | (hvmem_u64)id << 48);
    if (is_vhe(m)) {
        state->hcr = hvmem__a64_read(m, A64_HCR_EL2);
        hvmem__a64_write(m, A64_W_HCR_EL2, state->hcr & ~HCR_TGE);
    }
    if (state->switched || is_vhe(m))
        insn_plain(m, A64_ISB);
}

void hvmem__arm64_vmid_leave(const struct hvmem_arm64 *m, hvmem_u64 quirks,
                             const struct hvmem__arm64_vmid_state *state)
{
    if (is_vhe(m)) {
        hvmem__a64_write(m, A64_W_HCR_EL2, state->hcr);
        insn_plain(m, A64_ISB);
    }
    if (state->switched) {
        hvmem__a64_write(m, A64_W_VTTBR_EL2, state->vttbr);
        insn_plain(m, A64_ISB);
    }
    if (state->switched && (quirks & HVMEM_QUIRK_SPECULATIVE_AT)) {
        if (!(state->sctlr & SCTLR_M))
            write_sctlr(m, state->sctlr);
        write_tcr(m, state->tcr);
    }
    if (!state->switched && !is_vhe(m))
        insn_plain(m, A64_ISB);
    hvmem__a64_write(m, A64_W_DAIF, state->daif);
}

hvmem_status hvmem__arm64_guest_entry(struct hvmem_backend *be, hvmem_u32 owed, hvmem_u32 *value)
{
    (void)be;
    if (!value || owed > HVMEM_ENTRY_FLUSH_ALL)
        return HVMEM_E_ARG;
    /* No entry structure of arm64 can ask for an invalidation. */
    return HVMEM_E_UNSUPPORTED;
}
