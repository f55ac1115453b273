/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_clean.c: which work the contents of a guest's frames need on this machine. */
#include "settle.h"
#include "stage2.h"

hvmem_status hvmem__s2_clean(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 what)
{
    struct hvmem__work work = {0, HVMEM_DC_CLEAN_INVALIDATE};
    struct hvmem__budget budget = hvmem__budget_whole();
    const struct hvmem_backend_caps *caps;
    hvmem_u64 done = 0;

    if (!s2->heap->backend)
        return HVMEM_E_UNSUPPORTED;
    caps = &s2->heap->backend->caps;
    if (what & HVMEM_OWES_SCRUB)
        work.what |= HVMEM__WORK_ZERO;
    /* A guest whose accesses are write-back whatever it says sees what the caches hold. */
    if (caps->dline && ((what & HVMEM_OWES_DCACHE) || !s2->f.flags ||
                        !(hvmem__void_debts(s2->heap) & HVMEM_OWES_DCACHE)))
        work.what |= HVMEM__WORK_DCACHE;
    if ((what & HVMEM_OWES_ICACHE) && !(caps->features & (HVMEM_CAP_DIC | HVMEM_CAP_ICOHERENT)))
        work.what |= HVMEM__WORK_ICACHE;
    return work.what ? hvmem__contents(s2->heap, mfn, frames, &work, &done, &budget) : HVMEM_OK;
}
