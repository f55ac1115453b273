/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/x86.h: makes an x86-64 back-end. Features and errata come from CPUID (and, at privilege level
 * 0, from model-specific registers) of the CPUs that are shown to it.
 *
 * What each request of hvmem/backend.h becomes (Intel SDM vol. 3 chapters 4 and 30, AMD APM vol. 2
 * 5.5 and 15.16):
 *   HOST ranges    INVLPG. With CR4.PCIDE = 1 INVLPG reaches the current PCID and globals alone:
 *                  ranges without HVMEM_RANGE_GLOBAL then flush everything of the host. With
 *                  the flag a host that uses PCIDs says that all their entries are global.
 *   HOST space     INVPCID 2; else CR4.PGE toggled; else CR3 reloaded (no globals, no PCID).
 *   USER ranges    INVLPG when the PCID is the current one, else INVPCID 0 (and INVLPG for
 *                  HVMEM_RANGE_GLOBAL); without INVPCID everything of the host.
 *   USER space     INVPCID 1; CR3 reload when the PCID is current; else everything of the host.
 *   USER regime    INVPCID 3; else everything of the host.
 *   STAGE2         VMX: INVEPT 1, 2 (there is no form by address). SVM: INVLPGB by ASID with nested
 *                  translations; without it HVMEM_E_UNSUPPORTED: use guest_entry. Ranges become the
 *                  space.
 *   GUEST          VMX: INVVPID 0, 1, 2. SVM: INVLPGA a page; INVLPGB; without it the space is
 *                  HVMEM_E_UNSUPPORTED: use guest_entry.
 *   ALL            the host's, and INVEPT 2 + INVVPID 2 or INVLPGB. SVM without INVLPGB: refused unless
 *                  HVMEM_X86_SVM_ENTRY_FLUSH.
 *   INNER          INVLPGB and TLBSYNC; refused without them. OUTER: refused.
 * Wider forms: more than HVMEM_X86_BATCH_OPS operations become the space.
 */
#ifndef HVMEM_X86_H
#define HVMEM_X86_H

#include <hvmem/backend.h>

#define HVMEM_X86_BATCH_OPS 4096u

/* Configuration flags. */
#define HVMEM_X86_USER 1u /* privilege level 3: cache operations only */
#define HVMEM_X86_VMX  2u /* VMXON was executed on every CPU: INVEPT and INVVPID may be used */
#define HVMEM_X86_SVM  4u /* EFER.SVME is set on every CPU */
/*
 * Promise: after HVMEM_FLUSH_ALL on a CPU its next VMRUN of each guest carries the TLB_CONTROL of
 * guest_entry(HVMEM_ENTRY_FLUSH_ALL). Makes HVMEM_FLUSH_ALL legal on SVM without INVLPGB.
 */
#define HVMEM_X86_SVM_ENTRY_FLUSH 8u

/* How to zero (struct hvmem_x86_config.zero). */
#define HVMEM_X86_ZERO_BEST        0u /* CLZERO, else non-temporal stores */
#define HVMEM_X86_ZERO_NONTEMPORAL 1u
#define HVMEM_X86_ZERO_STORES      2u /* ordinary stores: the frame is used at once */

/* CPUID words and registers that decide, as read on one CPU. 0 where the leaf does not exist. */
struct hvmem_x86_ids {
    hvmem_u32 vendor; /* EBX of leaf 0 */
    hvmem_u32 leaf1_eax;
    hvmem_u32 leaf1_ebx;
    hvmem_u32 leaf1_ecx;
    hvmem_u32 leaf1_edx;
    hvmem_u32 leaf7_ebx;
    hvmem_u32 leaf7_ecx;
    hvmem_u32 leaf7_edx;
    hvmem_u32 ext8_ebx; /* 8000_0008 */
    hvmem_u32 ext8_edx;
    hvmem_u32 exta_ebx; /* 8000_000A */
    hvmem_u32 exta_edx;
    hvmem_u32 microcode;    /* IA32_BIOS_SIGN_ID high half; 0 = not known */
    hvmem_u32 cache_bytes;  /* last-level cache; 0 = not known */
    hvmem_u64 ept_vpid_cap; /* IA32_VMX_EPT_VPID_CAP (0x48C), with HVMEM_X86_VMX */
    hvmem_u64 arch_caps;    /* IA32_ARCH_CAPABILITIES (0x10A); 0 = not known */
};

/*
 * Configuration. va_bits 0: 57 if the CPU has 5-level paging and CR4.LA57 is set, else 48. `ids`
 * NULL: the calling CPU's. quirks_* and features_clear as in hvmem/arm64.h. `machine`: struct
 * hvmem_record in recording builds.
 */
struct hvmem_x86_config {
    hvmem_u32 size; /* sizeof(struct hvmem_x86_config) */
    hvmem_u32 flags;
    hvmem_u32 va_bits;
    hvmem_u32 zero;
    hvmem_u64 quirks_set;
    hvmem_u64 quirks_clear;
    hvmem_u64 features_clear;
    const struct hvmem_x86_ids *ids;
    void *machine;
};

/* State of one back-end; members are the back-end's. */
struct hvmem_x86 {
    struct hvmem_backend_ops ops;
    struct hvmem_x86_config config;
    hvmem_u32 have; /* instructions that all CPUs have, internal */
    hvmem_u32 reserved;
};

HVMEM_BEGIN_DECLS

/*
 * Fills *m and *be. Context: the CPU that is read, at the privilege level it will be used at. Issues
 * no maintenance. Errors: HVMEM_E_ARG (null, unknown or contradictory flag), HVMEM_E_VERSION (size),
 * HVMEM_E_RANGE (va_bits), HVMEM_E_UNSUPPORTED (VMX or SVM flagged, but the CPU lacks it).
 */
HVMEM_API hvmem_status hvmem_x86_init(struct hvmem_x86 *m, struct hvmem_backend *be,
                                      const struct hvmem_x86_config *config);

/*
 * Merges another CPU (ids NULL: the calling one), before the back-end is given to a heap. Errors: HVMEM_E_ARG
 * (not a pair that init made).
 */
HVMEM_API hvmem_status hvmem_x86_add_cpu(struct hvmem_x86 *m, struct hvmem_backend *be,
                                         const struct hvmem_x86_ids *ids);

/*
 * HVMEM_E_CPU when merging this CPU would change anything, HVMEM_OK if not; changes nothing. HVMEM_E_ARG as
 * above.
 */
HVMEM_API hvmem_status hvmem_x86_check_cpu(const struct hvmem_x86 *m,
                                           const struct hvmem_backend *be,
                                           const struct hvmem_x86_ids *ids);

HVMEM_END_DECLS

#endif
