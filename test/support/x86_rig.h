/* SPDX-License-Identifier: BSD-2-Clause */
/* An x86 back-end on a recorder with chosen features, and checks of what its logs leave in a TLB. */
#ifndef X86_RIG_H
#define X86_RIG_H

#include "x86_rules.h"

enum { X86_RIG_EVENTS = 16384 };

struct x86_rig {
    struct hvmem_record log;
    struct hvmem_record_event events[X86_RIG_EVENTS];
    struct hvmem_x86_ids ids;
    struct hvmem_x86_config config;
    struct hvmem_x86 m;
    struct hvmem_backend be;
    struct x86_case judged;
    struct hvmem_tlb_flush flush;
    struct hvmem_tlb_range ranges[4];
    uint32_t flags;
};

#define F_INVPCID 1u
#define F_PGE     2u  /* CR4.PGE is 1 */
#define F_PCIDE   4u  /* CR4.PCIDE is 1 */
#define F_CURRENT 8u  /* CR3 holds the PCID asked for */
#define F_INVLPGB 16u /* 8 pages an instruction, nested too */
#define F_VMX     32u
#define F_SVM     64u
#define F_GLOBALS 128u /* INVLPG may miss globals */
#define F_ALL     256u
#define F_USER    512u
#define F_SUPER   1024u /* INVLPG of large pages is unreliable */

void x86_rig_setup(struct x86_rig *r, uint32_t flags);
/* Fills the request (id 5, or 0 for USER without PCID); ranges and count are the caller's. */
void x86_rig_ask(struct x86_rig *r, uint32_t what, uint32_t scope, uint32_t regime);
hvmem_status x86_rig_go(struct x86_rig *r);
/* Is everything gone that the request names? */
int x86_rig_all_gone(const struct x86_rig *r);

#endif
