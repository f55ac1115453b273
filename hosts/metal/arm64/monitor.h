/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The EL2 monitor: runs code at EL1 below an image that was booted at EL2. metal_guest_run is one
 * entry and its exit; metal_guest_call runs a C function of the image to its end with a handler for
 * the exits; metal_monitor_record runs one with every TLBI, DC and IC trapped, logged and executed
 * on its behalf. An image at EL1 or under VHE gets METAL_E_LACK.
 */
#ifndef METAL_ARM64_MONITOR_H
#define METAL_ARM64_MONITOR_H

#include <stdint.h>

#include "../common/metal.h"

/* EL1 state of a virtual CPU besides its general registers, in the order it is loaded. */
#define METAL_VCPU_REGISTERS(X)                                                                    \
    X(sctlr_el1)                                                                                   \
    X(tcr_el1)                                                                                     \
    X(mair_el1)                                                                                    \
    X(ttbr0_el1)                                                                                   \
    X(ttbr1_el1)                                                                                   \
    X(vbar_el1)                                                                                    \
    X(contextidr_el1)                                                                              \
    X(cpacr_el1)                                                                                   \
    X(sp_el1)                                                                                      \
    X(elr_el1)                                                                                     \
    X(spsr_el1)                                                                                    \
    X(esr_el1)                                                                                     \
    X(far_el1)                                                                                     \
    X(tpidr_el1)

/*
 * A virtual CPU. Owned by the caller, run by one CPU at a time. The first three members, and those of
 * aborts, are laid out for monitor.S.
 */
struct metal_vcpu {
    uint64_t x[31];
    uint64_t pc;
    uint64_t pstate;
#define METAL_VCPU_MEMBER(name) uint64_t name;
    METAL_VCPU_REGISTERS(METAL_VCPU_MEMBER)
#undef METAL_VCPU_MEMBER
    uint64_t hcr;   /* whole HCR_EL2; RW and IMO are added */
    uint64_t vtcr;  /* used when hcr has VM */
    uint64_t vttbr; /* VMID included; loaded also without VM: TLBIs of the guest are by this VMID */
    /*
     * Not NULL: called for each stage-2 abort, METAL_ACCESS_*, with the guest's EL1 state still
     * loaded, its registers not in x, and interrupts masked. 0: the guest goes on at once; else the
     * abort is an exit.
     */
    int (*abort)(void *context, uint64_t ipa, unsigned access);
    void *abort_context;
    uint64_t host_tpidr; /* the monitor's: TPIDR_EL1 outside the guest */
};
#define METAL_ACCESS_READ  1u
#define METAL_ACCESS_WRITE 2u
#define METAL_ACCESS_FETCH 4u

enum metal_exit_kind {
    METAL_EXIT_HVC,    /* imm = the instruction's number; pc is behind it */
    METAL_EXIT_SMC,    /* pc is at it */
    METAL_EXIT_WFI,    /* WFI or WFE, pc is at it */
    METAL_EXIT_SYSREG, /* trapped system register or operation, pc is at it: op, rt, is_read */
    METAL_EXIT_DATA,   /* stage-2 data abort: ipa, far, is_write */
    METAL_EXIT_FETCH,  /* stage-2 instruction abort: ipa, far */
    METAL_EXIT_OTHER,  /* anything else: esr */
};

/* A system operation as op0, op1, CRn, CRm, op2. */
struct metal_sysop {
    uint8_t op0, op1, crn, crm, op2;
};

struct metal_guest_exit {
    enum metal_exit_kind kind;
    uint32_t imm;
    struct metal_sysop op;
    uint8_t rt; /* general register, 31 = none */
    uint8_t is_read;
    uint8_t is_write; /* aborts: the access was a write */
    uint8_t on_walk;  /* aborts: made by the guest's own table walk, ipa is the table's */
    uint8_t
        status; /* aborts: ISS[5:0], 0b0001LL translation, 0b0010LL access flag, 0b0011LL permission */
    uint64_t esr, far;
    uint64_t ipa; /* aborts: byte address; page offset from FAR */
};

/* Bits of HCR_EL2 (DDI 0487, D17.2.48) for metal_vcpu.hcr. */
#define METAL_HCR_VM   (1ull << 0) /* stage 2 on */
#define METAL_HCR_IMO  (1ull << 4) /* always on: IRQs are the host's */
#define METAL_HCR_TWI  (1ull << 13)
#define METAL_HCR_TSC  (1ull << 19) /* SMC */
#define METAL_HCR_TSW  (1ull << 22) /* DC by set/way */
#define METAL_HCR_TPC  (1ull << 23) /* DC by address to the point of coherency */
#define METAL_HCR_TPU  (1ull << 24) /* IC, DC CVAU */
#define METAL_HCR_TTLB (1ull << 25) /* TLBI */
#define METAL_HCR_TVM  (1ull << 26) /* writes of SCTLR_EL1, TCR_EL1 and their like */
#define METAL_HCR_RW   (1ull << 31) /* always on: EL1 is AArch64 */
/* Every TLBI, DC (but ZVA) and IC of EL1. */
#define METAL_HCR_RECORD (METAL_HCR_TTLB | METAL_HCR_TPC | METAL_HCR_TPU | METAL_HCR_TSW)

/* ---- the core ---- */

/*
 * A vCPU that will run fn(arg) at EL1 with interrupts masked on this stack, on the image's own identity
 * tables and vectors, stage 2 off. When fn returns, the guest exits by HVC METAL_HVC_RETURN.
 * METAL_E_LACK: the image does not run at EL2, or under VHE.
 */
int metal_guest_init(struct metal_vcpu *v, metal_call_fn fn, void *arg, void *stack_top);
#define METAL_HVC_RETURN  0x7EAu
#define METAL_HVC_FORWARD 0x7EBu /* of metal_monitor_record_el2 */

/*
 * Enters the guest on this CPU and fills *exit when it comes back; interrupts of the host are served on
 * the way and are no exits. Nothing is invalidated, and a register that already has the right value is
 * not written: what TLBs hold survives an exit and the next entry.
 */
int metal_guest_run(struct metal_vcpu *v, struct metal_guest_exit *exit);

/* Called for each exit of metal_guest_call. 0: enter again; else the call ends with that value. */
typedef int (*metal_exit_fn)(void *context, struct metal_vcpu *v, const struct metal_guest_exit *e);

/*
 * Runs until fn has returned (METAL_OK) or the handler ends it. Without a handler, and for exits the
 * handler answers with METAL_GUEST_UNHANDLED, the exit is printed and the call ends with METAL_E_INVAL.
 */
int metal_guest_call(struct metal_vcpu *v, metal_exit_fn handler, void *context);
#define METAL_GUEST_UNHANDLED 0x7FFFFFFF

/* This CPU's stack for guests: its upper end. */
void *metal_guest_stack(void);

/* HVC with a number from guest code: an exit METAL_EXIT_HVC whose x0 is `value`; returns x0. */
uint64_t metal_guest_hvc(uint16_t number, uint64_t value);
#define METAL_HVC_CALL 1u /* the one number metal_guest_hvc may use so far */

/* ---- the recorder of what really executed ---- */

struct metal_monitor_op {
    struct metal_sysop op;
    uint8_t has_operand; /* the instruction named a register other than xzr */
    uint16_t cpu;
    uint64_t operand; /* 0 when it has none */
    uint64_t pc;
};

/*
 * Runs fn(arg) with stage 2 off. Result: operations executed, which may exceed max (the log keeps the
 * first max); error < 0 (as metal_guest_call).
 */
int64_t metal_monitor_record(metal_call_fn fn, void *arg, struct metal_monitor_op *log,
                             uint32_t max);

/* The same for a vCPU that was made by metal_guest_init and, for example, given stage-2 tables. */
int64_t metal_monitor_record_vcpu(struct metal_vcpu *v, struct metal_monitor_op *log, uint32_t max);

/*
 * As metal_monitor_record, for code that is written for EL2: what EL1 does not have (TLBI of EL2 and of
 * second stages, VTTBR_EL2, HCR_EL2) is undefined there, and the guest's vectors hand it to the monitor. A
 * TLBI is executed and logged; a register written is logged and kept in *el2, where reads find it. A write
 * of TCR_EL1 or SCTLR_EL1, which are the guest's own here, is logged and dropped.
 */
struct metal_monitor_el2 {
    uint64_t vttbr, hcr;
};
int64_t metal_monitor_record_el2(metal_call_fn fn, void *arg, struct metal_monitor_el2 *el2,
                                 struct metal_monitor_op *log, uint32_t max);

/* Executes a TLBI, DC or IC by its encoding at EL2. METAL_E_INVAL: not one of these. */
int metal_monitor_execute(const struct metal_sysop *op, int has_operand, uint64_t operand);

#endif
