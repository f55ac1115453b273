/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/arm64.h: makes an arm64 back-end. The exception level is a run-time argument; features and
 * errata come from the ID registers of the CPUs that are shown to it.
 *
 * What each regime of hvmem/backend.h becomes (Arm ARM D8.13-D8.14):
 *   HOST    EL1, VHE: VAAE1 (all ASIDs), VMALLE1. EL2: VAE2, ALLE2.
 *   USER    VAE1, ASIDE1, VMALLE1: EL1&0 at EL1; EL2&0 under VHE; at EL2 the EL1&0 regime of the
 *           VMID in force.
 *   STAGE2  (EL2, VHE) IPAS2E1 then VMALLE1; VMALLS12E1; ALLE1. The VMID is switched and restored
 *           with interrupts masked.
 *   GUEST   (EL2, VHE) VAAE1, VMALLE1 under the VMID; all VMs: ALLE1, which is wider (stage 2 too).
 *   ALL     EL1: VMALLE1, all that this level can name. EL2, VHE: ALLE1 and ALLE2.
 * Wider forms used in place of what is asked: a batch of more than HVMEM_ARM64_BATCH_OPS operations
 * invalidates the whole space (USER with HVMEM_RANGE_GLOBAL: VMALLE1, as ASIDE1 keeps globals).
 */
#ifndef HVMEM_ARM64_H
#define HVMEM_ARM64_H

#include <hvmem/backend.h>

/* Where the caller runs. */
#define HVMEM_ARM64_EL0 0u /* user space: cache operations of EL0 only */
#define HVMEM_ARM64_EL1 1u
#define HVMEM_ARM64_EL2 2u /* HCR_EL2.E2H = 0 */
#define HVMEM_ARM64_VHE 3u /* HCR_EL2.{E2H,TGE} = {1,1} */

#define HVMEM_ARM64_BATCH_OPS 4096u

/* Configuration flags. */
#define HVMEM_ARM64_LPA2_STAGE1 1u /* TCR.DS = 1 in the tables of HOST and USER */
#define HVMEM_ARM64_LPA2_STAGE2 2u /* VTCR_EL2.DS = 1 */
#define HVMEM_ARM64_NO_ZVA      4u /* DC ZVA must not be used (MMU off: memory is Device) */
/*
 * Promise (EL2, VHE): HCR_EL2.FWB is 1 and every stage 2 forces write-back wherever the CPUs have FEAT_S2FWB, and
 * devices of guests snoop, so that no access bypasses the caches. HVMEM_CAP_FWB is kept for nobody else.
 */
#define HVMEM_ARM64_FWB 8u

/* The ID registers that decide, as read on one CPU. */
struct hvmem_arm64_ids {
    hvmem_u64 midr;
    hvmem_u64 ctr;
    hvmem_u64 dczid;
    hvmem_u64 isar0;
    hvmem_u64 isar1;
    hvmem_u64 mmfr0;
    hvmem_u64 mmfr1;
    hvmem_u64 mmfr2;
};

/*
 * Configuration. Zero members take defaults: page_shift 12 (or 14, 16), stage2_shift 12 (granule of
 * stage 2, at most page_shift), va_bits 48, ipa_bits 48 (at most 52, above 48 with LPA2 or a granule
 * of 64 KiB only). quirks_set and
 * quirks_clear are HVMEM_QUIRK_* forced on and off, features_clear HVMEM_CAP_* to do without.
 * `ids` NULL: the registers of the calling CPU. `machine`: struct hvmem_record in recording
 * builds, not used otherwise.
 */
struct hvmem_arm64_config {
    hvmem_u32 size; /* sizeof(struct hvmem_arm64_config) */
    hvmem_u32 level;
    hvmem_u32 page_shift;
    hvmem_u32 stage2_shift;
    hvmem_u32 va_bits;
    hvmem_u32 ipa_bits;
    hvmem_u32 flags;
    hvmem_u32 reserved;
    hvmem_u64 quirks_set;
    hvmem_u64 quirks_clear;
    hvmem_u64 features_clear;
    const struct hvmem_arm64_ids *ids;
    void *machine;
};

/* State of one back-end; members are the back-end's. Lives as long as the hvmem_backend. */
struct hvmem_arm64 {
    struct hvmem_backend_ops ops;
    struct hvmem_arm64_config config;
};

HVMEM_BEGIN_DECLS

/*
 * Fills *m and *be. Context: the CPU whose registers are read, at config->level. Reads registers,
 * issues no maintenance. Errors: HVMEM_E_ARG (null, unknown level or flag, FWB below EL2, forced quirk unknown),
 * HVMEM_E_VERSION (size), HVMEM_E_ALIGN (page_shift), HVMEM_E_RANGE (va_bits, ipa_bits).
 */
HVMEM_API hvmem_status hvmem_arm64_init(struct hvmem_arm64 *m, struct hvmem_backend *be,
                                        const struct hvmem_arm64_config *config);

/*
 * Merges another CPU (ids NULL: the calling one): smallest lines and widths, features that all
 * have, quirks that any has. Before the back-end is given to a heap. Errors: HVMEM_E_ARG (not a pair that
 * init made).
 */
HVMEM_API hvmem_status hvmem_arm64_add_cpu(struct hvmem_arm64 *m, struct hvmem_backend *be,
                                           const struct hvmem_arm64_ids *ids);

/*
 * May this CPU join later? HVMEM_E_CPU when merging it would change anything, HVMEM_OK if not.
 * Changes nothing. HVMEM_E_ARG as above.
 */
HVMEM_API hvmem_status hvmem_arm64_check_cpu(const struct hvmem_arm64 *m,
                                             const struct hvmem_backend *be,
                                             const struct hvmem_arm64_ids *ids);

HVMEM_END_DECLS

#endif
