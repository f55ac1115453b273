/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The architecture's rules for x86 TLB maintenance, as a judge of recorder logs: legality of operands
 * under the control registers, restored state, and which translations a log removes (SDM vol. 3 4.10
 * and 30.4, APM vol. 2 5.5 and 15.16). It shares no code with the back-end.
 */
#ifndef X86_RULES_H
#define X86_RULES_H

#include <hvmem/record.h>
#include <hvmem/x86.h>

#include <stdint.h>

/* What was asked, the registers before the call, and what the CPU has. */
struct x86_case {
    const struct hvmem_record *log;
    const struct hvmem_tlb_flush *flush;
    uint64_t cr3;
    uint64_t cr4;
    uint32_t invlpgb_pages; /* most pages one INVLPGB takes; 0: it has none */
    int has_invpcid;
    int misses_globals; /* the INVLPG erratum */
};

/* Who holds an entry. */
enum {
    X86_HOST,  /* host linear, by PCID */
    X86_VPID,  /* guest linear, by VPID (tag) */
    X86_EPT,   /* guest-physical, by EPTP (root) */
    X86_GUEST, /* SVM guest linear, by ASID (tag) */
    X86_NESTED /* SVM guest-physical, by ASID (tag) */
};

struct x86_entry {
    int kind;
    uint32_t tag;
    uint64_t root;
    uint32_t pcid;
    int global;
    int table;
    uint64_t base;
    uint64_t bytes;
};

/* NULL: every rule holds. Else the first that is broken, in words. */
const char *x86_rules_tlb(const struct x86_case *c);
/* Does the log remove the entry? */
int x86_removes(const struct x86_case *c, const struct x86_entry *entry);

#endif
