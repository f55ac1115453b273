/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/record.h: the recorder. Back-ends built with -DHVMEM_RECORD issue no instruction; each one
 * becomes an event here instead, on any machine, with any feature set the caller claims. The log is
 * what tests compare with the architecture's rules and what a monitor compares with reality.
 */
#ifndef HVMEM_RECORD_H
#define HVMEM_RECORD_H

#include <hvmem/types.h>

/*
 * One instruction, in program order. `code`: arm64: the instruction word with Rt = x0 (31 if it
 * takes no operand); x86: HVMEM_X86_INSN_*. Operands: arm64: operand[0] = x0; x86: see the codes.
 */
struct hvmem_record_event {
    hvmem_u32 code;
    hvmem_u32 cpu;
    hvmem_u64 operand[2];
};

/* A register's value for reads, set by tests and by recorded writes. */
struct hvmem_record_reg {
    hvmem_u32 code;
    hvmem_u32 index;
    hvmem_u64 value;
};

#define HVMEM_RECORD_REGS 64u

/*
 * A log. The event array is the caller's; events beyond its capacity are counted in `lost`, so that
 * a test can tell a short log from a full one. `cpu` is stamped into events: set it to change CPUs.
 * `fail_code`: the instruction of that code reports failure (INVEPT, INVVPID); 0 = none.
 */
struct hvmem_record {
    struct hvmem_record_event *events;
    hvmem_u32 capacity;
    hvmem_u32 count;
    hvmem_u64 lost;
    hvmem_u32 cpu;
    hvmem_u32 regs;
    hvmem_u32 fail_code;
    hvmem_u32 reserved;
    hvmem_u64 fail_operand;
    struct hvmem_record_reg reg[HVMEM_RECORD_REGS];
};

/* x86 instruction codes; what stands in operand[0], operand[1] is named behind them. */
#define HVMEM_X86_INSN_INVLPG     1u  /* address */
#define HVMEM_X86_INSN_INVPCID    2u  /* type << 16 | PCID, address */
#define HVMEM_X86_INSN_CR3        3u  /* value written */
#define HVMEM_X86_INSN_CR4        4u  /* value written */
#define HVMEM_X86_INSN_INVLPGB    5u  /* RAX, ECX << 32 | EDX */
#define HVMEM_X86_INSN_TLBSYNC    6u  /* - */
#define HVMEM_X86_INSN_INVLPGA    7u  /* address, ASID */
#define HVMEM_X86_INSN_INVEPT     8u  /* type, EPTP */
#define HVMEM_X86_INSN_INVVPID    9u  /* type << 16 | VPID, address */
#define HVMEM_X86_INSN_CLFLUSH    10u /* address */
#define HVMEM_X86_INSN_CLFLUSHOPT 11u /* address */
#define HVMEM_X86_INSN_CLWB       12u /* address */
#define HVMEM_X86_INSN_WBINVD     13u /* - */
#define HVMEM_X86_INSN_WBNOINVD   14u /* - */
#define HVMEM_X86_INSN_MFENCE     15u /* - */
#define HVMEM_X86_INSN_SFENCE     16u /* - */
#define HVMEM_X86_INSN_CLZERO     17u /* address */
#define HVMEM_X86_INSN_MOVNTI     18u /* address of 64 bytes of 0 */
#define HVMEM_X86_INSN_SERIALIZE  19u /* - */
#define HVMEM_X86_INSN_CPUID      20u /* as serialising instruction */
#define HVMEM_X86_INSN_CLI        21u /* interrupts off, state kept */
#define HVMEM_X86_INSN_POPF       22u /* interrupts as before */
#define HVMEM_X86_INSN_STORE      23u /* address of 64 bytes of 0, ordinary stores */
/* Register keys of x86 for hvmem_record_set. */
#define HVMEM_X86_REG_CR3 0x103u
#define HVMEM_X86_REG_CR4 0x104u
/* arm64: ordinary stores of 64 bytes of 0; no system instruction word has this value. */
#define HVMEM_ARM64_INSN_STORE 1u

HVMEM_BEGIN_DECLS

/* Makes an empty log over `events`. */
HVMEM_API void hvmem_record_init(struct hvmem_record *record, struct hvmem_record_event *events,
                                 hvmem_u32 capacity);
/* Drops the events, keeps registers and CPU. */
HVMEM_API void hvmem_record_clear(struct hvmem_record *record);
/*
 * Gives a register the value reads return. arm64: code is the MRS word with Rt = x0, index the
 * CSSELR_EL1 value for CCSIDR_EL1 and else 0. Returns 0 when the table is full.
 */
HVMEM_API int hvmem_record_set(struct hvmem_record *record, hvmem_u32 code, hvmem_u32 index,
                               hvmem_u64 value);
/* The value a read returns; 0 for a register never set. */
HVMEM_API hvmem_u64 hvmem_record_get(const struct hvmem_record *record, hvmem_u32 code,
                                     hvmem_u32 index);
/* Appends one event; called by the recording builds' instruction layers. Returns 1 if it is to fail. */
HVMEM_API int hvmem_record_insn(struct hvmem_record *record, hvmem_u32 code, hvmem_u64 operand0,
                                hvmem_u64 operand1);

HVMEM_END_DECLS

#endif
