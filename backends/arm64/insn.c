/* SPDX-License-Identifier: BSD-2-Clause */
/* The instruction layer of arm64 that needs no inlining; see insn.h. */
#include "insn.h"

#ifdef HVMEM_RECORD

void hvmem__a64_insn(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 operand)
{
    (void)hvmem_record_insn((struct hvmem_record *)m->config.machine, word, operand, 0);
}

hvmem_u64 hvmem__a64_read(const struct hvmem_arm64 *m, hvmem_u32 word)
{
    const struct hvmem_record *record = (const struct hvmem_record *)m->config.machine;
    hvmem_u64 index = 0;

    if (word == A64_CCSIDR_EL1)
        index = hvmem_record_get(record, A64_CSSELR_EL1, 0);
    return hvmem_record_get(record, word, (hvmem_u32)index);
}

void hvmem__a64_write(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 value)
{
    struct hvmem_record *record = (struct hvmem_record *)m->config.machine;

    (void)hvmem_record_insn(record, word, value, 0);
    (void)hvmem_record_set(record, word | A64_READ, 0, value);
}

#else

void hvmem__a64_insn(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 operand)
{
    register hvmem_u64 x0 __asm__("x0") = operand;

    (void)m;
    switch (word) {
        A64_CASE(A64_DSB_OSHST)
        A64_CASE(A64_DSB_OSH)
        A64_CASE(A64_DSB_NSHST)
        A64_CASE(A64_DSB_NSH)
        A64_CASE(A64_DSB_ISHST)
        A64_CASE(A64_DSB_ISH)
        A64_CASE(A64_DSB_SY)
        A64_CASE(A64_ISB)
        A64_CASE(A64_DAIFSET_IF)
        A64_CASE(A64_DC_CSW)
        A64_CASE(A64_DC_CISW)
        A64_CASE(A64_IC_IALLUIS)
        A64_CASE(A64_IC_IALLU)
        A64_TLBI_WORDS(A64_CASE)
    default:
        __builtin_trap();
    }
}

#    define A64_READ_CASE(word)                                                                    \
    case word:                                                                                     \
        __asm__ volatile(".inst " A64_TEXT(word) : "=r"(x0) : : "memory");                         \
        break;

hvmem_u64 hvmem__a64_read(const struct hvmem_arm64 *m, hvmem_u32 word)
{
    register hvmem_u64 x0 __asm__("x0") = 0;

    (void)m;
    switch (word) {
        A64_READ_CASE(A64_MIDR_EL1)
        A64_READ_CASE(A64_ISAR0_EL1)
        A64_READ_CASE(A64_ISAR1_EL1)
        A64_READ_CASE(A64_MMFR0_EL1)
        A64_READ_CASE(A64_MMFR1_EL1)
        A64_READ_CASE(A64_MMFR2_EL1)
        A64_READ_CASE(A64_CCSIDR_EL1)
        A64_READ_CASE(A64_CLIDR_EL1)
        A64_READ_CASE(A64_CTR_EL0)
        A64_READ_CASE(A64_DCZID_EL0)
        A64_READ_CASE(A64_DAIF)
        A64_READ_CASE(A64_HCR_EL2)
        A64_READ_CASE(A64_VTTBR_EL2)
        A64_READ_CASE(A64_SCTLR_EL1)
        A64_READ_CASE(A64_TCR_EL1)
        A64_READ_CASE(A64_SCTLR_EL12)
        A64_READ_CASE(A64_TCR_EL12)
    default:
        __builtin_trap();
    }
    return x0;
}

void hvmem__a64_write(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 value)
{
    register hvmem_u64 x0 __asm__("x0") = value;

    (void)m;
    switch (word) {
        A64_CASE(A64_W_CSSELR_EL1)
        A64_CASE(A64_W_DAIF)
        A64_CASE(A64_W_HCR_EL2)
        A64_CASE(A64_W_VTTBR_EL2)
        A64_CASE(A64_W_SCTLR_EL1)
        A64_CASE(A64_W_TCR_EL1)
        A64_CASE(A64_W_SCTLR_EL12)
        A64_CASE(A64_W_TCR_EL12)
    default:
        __builtin_trap();
    }
}

#endif
