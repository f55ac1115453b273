/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operands of x86 maintenance instructions, as pure functions: descriptors of INVPCID, INVEPT and
 * INVVPID, registers of INVLPGB and the split of a range by its count, TLB_CONTROL, canonical form.
 */
#ifndef HVMEM_X86_ENCODE_H
#define HVMEM_X86_ENCODE_H

#include <hvmem/backend.h>

/* INVPCID types (SDM vol. 2, INVPCID). */
#define HVMEM__INVPCID_ADDRESS    0u
#define HVMEM__INVPCID_PCID       1u
#define HVMEM__INVPCID_ALL        2u /* globals too */
#define HVMEM__INVPCID_NONGLOBALS 3u
/* INVEPT and INVVPID types (SDM vol. 3, 31.3). */
#define HVMEM__INVEPT_ONE      1u
#define HVMEM__INVEPT_ALL      2u
#define HVMEM__INVVPID_ADDRESS 0u
#define HVMEM__INVVPID_ONE     1u
#define HVMEM__INVVPID_ALL     2u

/* INVLPGB: flags in RAX (APM vol. 3, INVLPGB). */
#define HVMEM__INVLPGB_VA     1u
#define HVMEM__INVLPGB_PCID   2u
#define HVMEM__INVLPGB_ASID   4u
#define HVMEM__INVLPGB_GLOBAL 8u
#define HVMEM__INVLPGB_FINAL  16u
#define HVMEM__INVLPGB_NESTED 32u

/* The 16 bytes that INVPCID, INVVPID and INVEPT read from memory. */
struct hvmem__x86_descriptor {
    hvmem_u64 low;
    hvmem_u64 high;
};
struct hvmem__x86_descriptor hvmem__x86_invpcid(hvmem_u32 pcid, hvmem_u64 addr);
struct hvmem__x86_descriptor hvmem__x86_invvpid(hvmem_u32 vpid, hvmem_u64 addr);
struct hvmem__x86_descriptor hvmem__x86_invept(hvmem_u64 eptp);

/* Registers of one INVLPGB. */
struct hvmem__x86_invlpgb {
    hvmem_u64 rax;
    hvmem_u32 ecx;
    hvmem_u32 edx;
};
/* pages: 1.. of 4 KiB, or of 2 MiB if `large`; flags HVMEM__INVLPGB_*; without VA addr is not used. */
struct hvmem__x86_invlpgb hvmem__x86_invlpgb(hvmem_u64 addr, hvmem_u32 pages, int large,
                                             hvmem_u32 flags, hvmem_u32 asid, hvmem_u32 pcid);

/* Pages the next instruction takes out of `left`, at most `most` each; most >= 1. */
hvmem_u32 hvmem__x86_split(hvmem_u64 left, hvmem_u32 most);

/* TLB_CONTROL of the VMCB for HVMEM_ENTRY_* (APM vol. 2 15.16.1). */
hvmem_u32 hvmem__x86_tlb_control(hvmem_u32 owed, int flush_by_asid);

/* Are all addresses of [first, last] canonical, in one half, for a width of 48 or 57 bits? */
int hvmem__x86_canonical(hvmem_u64 first, hvmem_u64 last, hvmem_u32 va_bits);

/* Could hardware take this EPTP: memory type UC or WB, walk of 4 or 5, reserved bits 0 (SDM 25.6.11)? */
int hvmem__x86_eptp_ok(hvmem_u64 eptp);

#endif
