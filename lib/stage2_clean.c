/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_clean.c: the contents of a guest's frames: cleaned, or scrubbed first, through the host's mapping. */
#include "backendcall.h"
#include "stage2.h"

static hvmem_status work(struct hvmem_backend *be, void *map, hvmem_u32 what)
{
    hvmem_status status = HVMEM_OK;

    if (what & HVMEM_OWES_SCRUB) {
        status = hvmem__backend_zero(be, (hvmem_uptr)map, 4096);
        if (status == HVMEM_E_UNSUPPORTED) {
            memset(map, 0, 4096);
            status = HVMEM_OK;
        }
    }
    if (!status && be->caps.dline)
        status = hvmem__backend_dcache(be, HVMEM_DC_CLEAN_INVALIDATE, (hvmem_uptr)map, 4096);
    if (!status && (what & HVMEM_OWES_ICACHE) && HVMEM__BACKEND_HAS(be, icache))
        status = be->ops->icache(be, (hvmem_uptr)map, 4096);
    return status;
}

hvmem_status hvmem__s2_clean(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 what)
{
    struct hvmem__host *host = &s2->heap->host;
    struct hvmem_backend *be = s2->heap->backend;
    hvmem_status status = HVMEM_OK;
    void *map;

    if (!be || !host->ops.frame_map || !host->ops.frame_unmap)
        return HVMEM_E_UNSUPPORTED;
    for (; frames && !status; frames--, mfn++) {
        map = host->ops.frame_map(host->ctx, mfn, 0);
        if (!map)
            return HVMEM_E_HOST;
        status = work(be, map, what);
        host->ops.frame_unmap(host->ctx, map, 0);
    }
    return status;
}
