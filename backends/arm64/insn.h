/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The instruction layer of arm64: real instructions, or events of the recorder when built with
 * -DHVMEM_RECORD. Everything above it is the same code in both builds. No immediate constraints on
 * function arguments: they fail at -O0.
 */
#ifndef HVMEM_ARM64_INSN_H
#define HVMEM_ARM64_INSN_H

#include <hvmem/arm64.h>
#include "words.h"

/* Issues one barrier, TLBI, set/way or whole-cache instruction by its word. */
void hvmem__a64_insn(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 operand);
/* Reads a register; word is the MRS form. */
hvmem_u64 hvmem__a64_read(const struct hvmem_arm64 *m, hvmem_u32 word);
/* Writes a register; word is the MSR form (A64_W_*). */
void hvmem__a64_write(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u64 value);

/* An instruction without operand. */
HVMEM_INLINE void insn_plain(const struct hvmem_arm64 *m, hvmem_u32 word)
{
    hvmem__a64_insn(m, word, 0);
}

#ifdef HVMEM_RECORD

#    include <hvmem/record.h>

/* Issues one DC or IC by address. */
HVMEM_INLINE void insn_line(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_uptr addr)
{
    (void)hvmem_record_insn((struct hvmem_record *)m->config.machine, word, addr, 0);
}

/* Zeroes 64 bytes by ordinary stores. */
HVMEM_INLINE void insn_store_zero(const struct hvmem_arm64 *m, hvmem_uptr addr)
{
    insn_line(m, HVMEM_ARM64_INSN_STORE, addr);
}

#else

#    define A64_TEXT_(x) #    x
#    define A64_TEXT(x)  A64_TEXT_(x)
#    define A64_CASE(word)                                                                         \
    case word:                                                                                     \
        __asm__ volatile(".inst " A64_TEXT(word) : : "r"(x0) : "memory");                          \
        break;

/* Issues one DC or IC by address; the loops of cache.c stay free of calls. */
HVMEM_INLINE void insn_line(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_uptr addr)
{
    register hvmem_u64 x0 __asm__("x0") = addr;

    (void)m;
    switch (word) {
        A64_CASE(A64_DC_IVAC)
        A64_CASE(A64_DC_ZVA)
        A64_CASE(A64_DC_CVAC)
        A64_CASE(A64_DC_CVAU)
        A64_CASE(A64_DC_CIVAC)
        A64_CASE(A64_IC_IVAU)
    default:
        /* A word without a case is a defect of this file; the tests issue every word. */
        __builtin_trap();
    }
}

/* Zeroes 64 bytes by ordinary stores. */
HVMEM_INLINE void insn_store_zero(const struct hvmem_arm64 *m, hvmem_uptr addr)
{
    (void)m;
    __asm__ volatile("stp xzr, xzr, [%0]\n\tstp xzr, xzr, [%0, #16]\n\t"
                     "stp xzr, xzr, [%0, #32]\n\tstp xzr, xzr, [%0, #48]"
                     :
                     : "r"(addr)
                     : "memory");
}

#endif

#endif
