/* SPDX-License-Identifier: BSD-2-Clause */
/* An arm64 back-end on a recorder with chosen features, and checks of what its logs leave in a TLB. */
#ifndef ARM64_RIG_H
#define ARM64_RIG_H

#include "arm64_rules.h"

enum { ARM64_RIG_EVENTS = 16384 };

struct arm64_rig {
    struct hvmem_record log;
    struct hvmem_record_event events[ARM64_RIG_EVENTS];
    struct hvmem_arm64_ids ids;
    struct hvmem_arm64_config config;
    struct hvmem_arm64 m;
    struct hvmem_backend be;
    struct arm64_case judged;
    struct hvmem_tlb_flush flush;
    struct hvmem_tlb_range ranges[4];
};

#define F_OUTER  1u
#define F_RANGE  2u
#define F_TTL    4u
#define F_SAME   8u /* the VMID is in force already */
#define F_REPEAT 16u
#define F_AT     32u
#define F_LPA2   64u
#define F_ALL    128u

/* Makes the back-end at HVMEM_ARM64_* with F_*; page_shift 12, 14, 16. */
void rig_setup(struct arm64_rig *r, uint32_t level, uint32_t flags, uint32_t page_shift);
/* Fills the request (id 0x55); ranges and count are the caller's. */
void rig_ask(struct arm64_rig *r, uint32_t what, uint32_t scope, uint32_t regime);
/* Issues it into an empty log. */
hvmem_status rig_go(struct arm64_rig *r);
/* An entry of the asked space around addr. */
struct arm64_entry rig_entry_of(const struct arm64_rig *r, uint64_t addr, uint32_t shift);
/* Is everything gone that the request names? */
int rig_all_gone(const struct arm64_rig *r);
/* Checks rules and effect of the log; 0 when a rule is broken. */
int rig_judge(const struct arm64_rig *r);

#endif
