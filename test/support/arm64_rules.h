/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The architecture's rules for arm64 maintenance, as a judge of recorder logs: order of barriers,
 * scope, VMID switch, errata, and which translations a log removes (Arm ARM D8.13-D8.14). It shares
 * no code with the back-end.
 */
#ifndef ARM64_RULES_H
#define ARM64_RULES_H

#include <hvmem/arm64.h>
#include <hvmem/record.h>

#include <stdint.h>

/* What was asked, and the registers before the call. */
struct arm64_case {
    const struct hvmem_record *log;
    const struct hvmem_tlb_flush *flush;
    uint32_t level;
    int lpa2; /* of the regime asked for */
    uint64_t quirks;
    uint64_t vttbr;
    uint64_t hcr;
    uint64_t tcr;
    uint64_t sctlr;
    uint64_t daif;
};

/* Regimes of entries. */
enum { ARM64_EL10, ARM64_EL2_REGIME, ARM64_S2 };

/* One translation that a CPU may hold. */
struct arm64_entry {
    int regime;
    uint32_t vmid;
    uint32_t asid;
    int global;
    int table;      /* a cached walk, not a leaf */
    uint32_t level; /* where its leaf sits */
    uint64_t base;
    uint64_t bytes;
};

/* NULL: every rule holds for this TLB log. Else the first rule that is broken, in words. */
const char *arm64_rules_tlb(const struct arm64_case *c);
/* Does the log remove the entry? */
int arm64_removes(const struct arm64_case *c, const struct arm64_entry *entry);

/* One decoded TLBI. */
struct arm64_tlbi {
    uint32_t op1, op2, crm; /* as for the inner-shareable form */
    uint32_t scope;         /* HVMEM_SCOPE_* */
    int range;
};
/* 0: the word is no TLBI. */
int arm64_decode_tlbi(uint32_t word, struct arm64_tlbi *t);

/* First address and bytes that a range operand covers; lpa2 as configured. 0: malformed. */
int arm64_decode_range(uint64_t operand, int lpa2, uint64_t *base, uint64_t *bytes);

#endif
