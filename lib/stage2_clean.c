/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_clean.c: which work the contents of a guest's frames need on this machine. */
#include "settle.h"
#include "stage2.h"

hvmem_u32 hvmem__s2_work(const struct hvmem_stage2 *s2, hvmem_u32 what)
{
    const struct hvmem_backend *be = s2->heap->backend;
    hvmem_u32 work = 0;

    if (!be)
        return 0;
    if (what & HVMEM_OWES_SCRUB)
        work |= HVMEM__WORK_ZERO;
    /* A guest whose accesses are write-back whatever it says sees what the caches hold. */
    if (be->caps.dline && ((what & HVMEM_OWES_DCACHE) || !s2->f.flags ||
                           !(hvmem__void_debts(s2->heap) & HVMEM_OWES_DCACHE)))
        work |= HVMEM__WORK_DCACHE;
    if ((what & HVMEM_OWES_ICACHE) && !(be->caps.features & (HVMEM_CAP_DIC | HVMEM_CAP_ICOHERENT)))
        work |= HVMEM__WORK_ICACHE;
    return work;
}

hvmem_u64 hvmem__s2_stretch(const struct hvmem_stage2 *s2, hvmem_u32 what)
{
    hvmem_u64 frames = hvmem__stretch(s2->heap, hvmem__s2_work(s2, what)) >> 12;

    return frames ? frames : 1;
}

hvmem_status hvmem__s2_clean(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 what)
{
    struct hvmem__work work = {hvmem__s2_work(s2, what), HVMEM_DC_CLEAN_INVALIDATE};
    struct hvmem__budget budget = hvmem__budget_whole(HVMEM__WHOLE_PIECE);
    hvmem_u64 done = 0;

    if (!s2->heap->backend)
        return HVMEM_E_UNSUPPORTED;
    return work.what ? hvmem__contents(s2->heap, mfn, frames, &work, &done, &budget) : HVMEM_OK;
}
