/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the arm64 back-end share: the operations and the VMID switch. */
#ifndef HVMEM_ARM64_INTERNAL_H
#define HVMEM_ARM64_INTERNAL_H

#include <hvmem/arm64.h>

/* tlb.c */
HVMEM_CALLBACK hvmem_status hvmem__arm64_tlb_flush(struct hvmem_backend *be,
                                                   const struct hvmem_tlb_flush *flush);
/* cache.c */
HVMEM_CALLBACK hvmem_status hvmem__arm64_dcache(struct hvmem_backend *be, hvmem_u32 op,
                                                hvmem_uptr addr, hvmem_size bytes);
HVMEM_CALLBACK hvmem_status hvmem__arm64_dcache_done(struct hvmem_backend *be, hvmem_u32 op);
HVMEM_CALLBACK hvmem_status hvmem__arm64_icache(struct hvmem_backend *be, hvmem_uptr addr,
                                                hvmem_size bytes);
HVMEM_CALLBACK hvmem_status hvmem__arm64_icache_all(struct hvmem_backend *be, hvmem_u32 scope);
HVMEM_CALLBACK hvmem_status hvmem__arm64_dcache_all(struct hvmem_backend *be, hvmem_u32 op);
HVMEM_CALLBACK hvmem_status hvmem__arm64_zero(struct hvmem_backend *be, hvmem_uptr addr,
                                              hvmem_size bytes);
/* guest.c */
HVMEM_CALLBACK hvmem_status hvmem__arm64_guest_entry(struct hvmem_backend *be, hvmem_u32 owed,
                                                     hvmem_u32 *value);

/* Registers as they were before another VMID was put in force. */
struct hvmem__arm64_vmid_state {
    hvmem_u64 daif;
    hvmem_u64 hcr;
    hvmem_u64 vttbr;
    hvmem_u64 tcr;
    hvmem_u64 sctlr;
    int switched; /* VTTBR_EL2 was written */
};

/*
 * Puts `id` in force for TLBI of EL1&0 (and clears TGE under VHE), interrupts masked, ISB done. The
 * caller has issued a DSB that completes earlier table walks and HCR_EL2's predecessors.
 */
void hvmem__arm64_vmid_enter(const struct hvmem_arm64 *m, hvmem_u64 quirks,
                             struct hvmem__arm64_vmid_state *state, hvmem_u32 id, hvmem_u64 root);
/* Restores everything; the caller has issued the DSB that completes its TLBI. Ends with an ISB. */
void hvmem__arm64_vmid_leave(const struct hvmem_arm64 *m, hvmem_u64 quirks,
                             const struct hvmem__arm64_vmid_state *state);

#endif
