/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The instruction layer of x86-64: real instructions, or events of the recorder when built with
 * -DHVMEM_RECORD. Everything above it is the same code in both builds. Newer instructions are given
 * as bytes with fixed registers, so that any assembler takes them (SDM vol. 2, APM vol. 3).
 */
#ifndef HVMEM_X86_INSN_H
#define HVMEM_X86_INSN_H

#include <hvmem/record.h>
#include <hvmem/x86.h>
#include "encode.h"

#ifdef HVMEM_RECORD

HVMEM_INLINE int insn_log(const struct hvmem_x86 *m, hvmem_u32 code, hvmem_u64 a, hvmem_u64 b)
{
    return hvmem_record_insn((struct hvmem_record *)m->config.machine, code, a, b);
}

#    define INSN_REAL(...)          /* nothing is issued */
#    define INSN_LOG(m, code, a, b) (void)insn_log(m, code, a, b)

#else

#    define INSN_REAL(...)          __asm__ volatile(__VA_ARGS__)
#    define INSN_LOG(m, code, a, b) (void)(m), (void)(a), (void)(b)

#endif

HVMEM_INLINE void insn_invlpg(const struct hvmem_x86 *m, hvmem_u64 addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_INVLPG, addr, 0);
    INSN_REAL(".byte 0x0f, 0x01, 0x38" : : "a"(addr) : "memory"); /* invlpg (%rax) */
}

HVMEM_INLINE void insn_invpcid(const struct hvmem_x86 *m, hvmem_u32 type, hvmem_u32 pcid,
                               hvmem_u64 addr)
{
    struct hvmem__x86_descriptor d = hvmem__x86_invpcid(pcid, addr);

    INSN_LOG(m, HVMEM_X86_INSN_INVPCID, (hvmem_u64)type << 16 | d.low, d.high);
    /* invpcid (%rax), %rcx */
    INSN_REAL(".byte 0x66, 0x0f, 0x38, 0x82, 0x08" : : "a"(&d), "c"((hvmem_u64)type) : "memory");
}

HVMEM_INLINE void insn_invlpgb(const struct hvmem_x86 *m, struct hvmem__x86_invlpgb r)
{
    INSN_LOG(m, HVMEM_X86_INSN_INVLPGB, r.rax, (hvmem_u64)r.ecx << 32 | r.edx);
    INSN_REAL(".byte 0x0f, 0x01, 0xfe" : : "a"(r.rax), "c"(r.ecx), "d"(r.edx) : "memory");
}

HVMEM_INLINE void insn_tlbsync(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_TLBSYNC, 0, 0);
    INSN_REAL(".byte 0x0f, 0x01, 0xff" : : : "memory");
}

HVMEM_INLINE void insn_invlpga(const struct hvmem_x86 *m, hvmem_u64 addr, hvmem_u32 asid)
{
    INSN_LOG(m, HVMEM_X86_INSN_INVLPGA, addr, asid);
    INSN_REAL(".byte 0x0f, 0x01, 0xdf" : : "a"(addr), "c"(asid) : "memory");
}

/* INVEPT and INVVPID: 0 when done, 1 when the CPU refused (VMfail: CF or ZF). */
HVMEM_INLINE int insn_invept(const struct hvmem_x86 *m, hvmem_u32 type, hvmem_u64 eptp)
{
#ifdef HVMEM_RECORD
    return insn_log(m, HVMEM_X86_INSN_INVEPT, type, hvmem__x86_invept(eptp).low);
#else
    struct hvmem__x86_descriptor d = hvmem__x86_invept(eptp);
    unsigned char failed;

    (void)m;
    __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0x80, 0x08\n\tsetbe %0"
                     : "=q"(failed)
                     : "a"(&d), "c"((hvmem_u64)type)
                     : "memory", "cc");
    return failed;
#endif
}

HVMEM_INLINE int insn_invvpid(const struct hvmem_x86 *m, hvmem_u32 type, hvmem_u32 vpid,
                              hvmem_u64 addr)
{
    struct hvmem__x86_descriptor d = hvmem__x86_invvpid(vpid, addr);
#ifdef HVMEM_RECORD
    return insn_log(m, HVMEM_X86_INSN_INVVPID, (hvmem_u64)type << 16 | d.low, d.high);
#else
    unsigned char failed;

    (void)m;
    __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0x81, 0x08\n\tsetbe %0"
                     : "=q"(failed)
                     : "a"(&d), "c"((hvmem_u64)type)
                     : "memory", "cc");
    return failed;
#endif
}

HVMEM_INLINE void insn_clflush(const struct hvmem_x86 *m, hvmem_uptr addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_CLFLUSH, addr, 0);
    INSN_REAL(".byte 0x0f, 0xae, 0x38" : : "a"(addr) : "memory");
}

HVMEM_INLINE void insn_clflushopt(const struct hvmem_x86 *m, hvmem_uptr addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_CLFLUSHOPT, addr, 0);
    INSN_REAL(".byte 0x66, 0x0f, 0xae, 0x38" : : "a"(addr) : "memory");
}

HVMEM_INLINE void insn_clwb(const struct hvmem_x86 *m, hvmem_uptr addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_CLWB, addr, 0);
    INSN_REAL(".byte 0x66, 0x0f, 0xae, 0x30" : : "a"(addr) : "memory");
}

HVMEM_INLINE void insn_wbinvd(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_WBINVD, 0, 0);
    INSN_REAL("wbinvd" : : : "memory");
}

HVMEM_INLINE void insn_wbnoinvd(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_WBNOINVD, 0, 0);
    INSN_REAL(".byte 0xf3, 0x0f, 0x09" : : : "memory");
}

HVMEM_INLINE void insn_mfence(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_MFENCE, 0, 0);
    INSN_REAL(".byte 0x0f, 0xae, 0xf0" : : : "memory");
}

HVMEM_INLINE void insn_sfence(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_SFENCE, 0, 0);
    INSN_REAL(".byte 0x0f, 0xae, 0xf8" : : : "memory");
}

/* Zeroes the 64-byte line at addr. */
HVMEM_INLINE void insn_clzero(const struct hvmem_x86 *m, hvmem_uptr addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_CLZERO, addr, 0);
    INSN_REAL(".byte 0x0f, 0x01, 0xfc" : : "a"(addr) : "memory");
}

/* Zeroes 64 bytes past the caches. MOVNTI needs no vector register. */
HVMEM_INLINE void insn_zero_nontemporal(const struct hvmem_x86 *m, hvmem_uptr addr)
{
    INSN_LOG(m, HVMEM_X86_INSN_MOVNTI, addr, 0);
    INSN_REAL("movnti %1, (%0)\n\tmovnti %1, 8(%0)\n\tmovnti %1, 16(%0)\n\t"
              "movnti %1, 24(%0)\n\tmovnti %1, 32(%0)\n\tmovnti %1, 40(%0)\n\t"
              "movnti %1, 48(%0)\n\tmovnti %1, 56(%0)"
              :
              : "r"(addr), "r"(0ull)
              : "memory");
}

/* Zeroes bytes (a multiple of 64) by ordinary stores. */
HVMEM_INLINE void insn_zero_stores(const struct hvmem_x86 *m, hvmem_uptr addr, hvmem_size bytes)
{
#ifdef HVMEM_RECORD
    for (; bytes; bytes -= 64, addr += 64)
        INSN_LOG(m, HVMEM_X86_INSN_STORE, addr, 0);
#else
    hvmem_size words = bytes / 8;

    (void)m;
    __asm__ volatile("rep stosq" : "+D"(addr), "+c"(words) : "a"(0ull) : "memory");
#endif
}

/* Registers are rarely touched: real functions, see insn.c. */
hvmem_u64 hvmem__x86_read_cr3(const struct hvmem_x86 *m);
hvmem_u64 hvmem__x86_read_cr4(const struct hvmem_x86 *m);
void hvmem__x86_write_cr3(const struct hvmem_x86 *m, hvmem_u64 value);
void hvmem__x86_write_cr4(const struct hvmem_x86 *m, hvmem_u64 value);
/* Interrupts off; returns the flags for the restore. */
hvmem_u64 hvmem__x86_irq_save(const struct hvmem_x86 *m);
void hvmem__x86_irq_restore(const struct hvmem_x86 *m, hvmem_u64 flags);
/* SERIALIZE, or CPUID where that is missing. */
void hvmem__x86_serialize(const struct hvmem_x86 *m, int has_serialize);
/* CPUID and RDMSR of the calling CPU; all zero in recording builds (the IDs are given there). */
void hvmem__x86_read_ids(const struct hvmem_x86 *m, struct hvmem_x86_ids *ids);

#endif
