/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entry to and exit from a guest at EL1, and a table with every TLBI, DC and IC encoding, so that the
 * monitor can execute any of them by its number.
 */
#include "cpu.h"

#define VCPU_PC     248
#define VCPU_PSTATE 256
#define VCPU_ABORT  400

.section .text, "ax"
/*
 * unsigned metal__arm_guest_enter(struct metal_vcpu *v): interrupts masked, EL1 state loaded. Returns the
 * number of the vector that the guest left through.
 */
.globl metal__arm_guest_enter
metal__arm_guest_enter:
    sub     sp, sp, #112
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    stp     x29, x30, [sp, #96]
    str     x0, [sp]
    ldr     x1, [x0, #VCPU_PC]
    ldr     x2, [x0, #VCPU_PSTATE]
    msr     elr_el2, x1
    msr     spsr_el2, x2
    ldp     x2, x3, [x0, #16]
    ldp     x4, x5, [x0, #32]
    ldp     x6, x7, [x0, #48]
    ldp     x8, x9, [x0, #64]
    ldp     x10, x11, [x0, #80]
    ldp     x12, x13, [x0, #96]
    ldp     x14, x15, [x0, #112]
    ldp     x16, x17, [x0, #128]
    ldp     x18, x19, [x0, #144]
    ldp     x20, x21, [x0, #160]
    ldp     x22, x23, [x0, #176]
    ldp     x24, x25, [x0, #192]
    ldp     x26, x27, [x0, #208]
    ldp     x28, x29, [x0, #224]
    ldr     x30, [x0, #240]
    ldp     x0, x1, [x0]
    eret

/*
 * From the vector of synchronous exceptions, x0 and x1 on the stack. A stage-2 abort goes to the vCPU's
 * handler if it has one, on registers that a C function may change saved alone; anything else, and
 * what the handler does not resolve, is an exit.
 */
.globl metal__arm_guest_sync
metal__arm_guest_sync:
    mrs     x0, esr_el2
    ldr     x1, [sp, #16]
    ubfx    x0, x0, #26, #6
    and     x0, x0, #~4     /* EC 0x20 and 0x24 */
    cmp     x0, #0x20
    b.ne    1f
    ldr     x0, [x1, #VCPU_ABORT]
    cbz     x0, 1f
    stp     x2, x3, [sp, #-144]!
    stp     x4, x5, [sp, #16]
    stp     x6, x7, [sp, #32]
    stp     x8, x9, [sp, #48]
    stp     x10, x11, [sp, #64]
    stp     x12, x13, [sp, #80]
    stp     x14, x15, [sp, #96]
    stp     x16, x17, [sp, #112]
    stp     x18, x30, [sp, #128]
    mov     x0, x1
    bl      metal__arm_abort
    ldp     x4, x5, [sp, #16]
    ldp     x6, x7, [sp, #32]
    ldp     x8, x9, [sp, #48]
    ldp     x10, x11, [sp, #64]
    ldp     x12, x13, [sp, #80]
    ldp     x14, x15, [sp, #96]
    ldp     x16, x17, [sp, #112]
    ldp     x18, x30, [sp, #128]
    ldp     x2, x3, [sp], #144
    cbz     w0, 1f
    ldp     x0, x1, [sp], #16
    eret
1:  mov     x1, #8
    b       metal__arm_guest_exit

/* From the vectors: the guest's x0, x1 lie on the stack, x1 = vector; above them the vCPU's address. */
.globl metal__arm_guest_exit
metal__arm_guest_exit:
    ldr     x0, [sp, #16]
    stp     x2, x3, [x0, #16]
    stp     x4, x5, [x0, #32]
    stp     x6, x7, [x0, #48]
    stp     x8, x9, [x0, #64]
    stp     x10, x11, [x0, #80]
    stp     x12, x13, [x0, #96]
    stp     x14, x15, [x0, #112]
    stp     x16, x17, [x0, #128]
    stp     x18, x19, [x0, #144]
    stp     x20, x21, [x0, #160]
    stp     x22, x23, [x0, #176]
    stp     x24, x25, [x0, #192]
    stp     x26, x27, [x0, #208]
    stp     x28, x29, [x0, #224]
    str     x30, [x0, #240]
    ldp     x2, x3, [sp], #16
    stp     x2, x3, [x0]
    mrs     x2, elr_el2
    mrs     x3, spsr_el2
    str     x2, [x0, #VCPU_PC]
    str     x3, [x0, #VCPU_PSTATE]
    mov     x0, x1
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp, #96]
    add     sp, sp, #112
    ret

/* Where a guest's function returns to. */
.globl metal__arm_guest_return
metal__arm_guest_return:
    hvc     #0x7ea
    b       metal__arm_guest_return

/* Vectors of a guest that hands every exception to the monitor, its registers as they were. */
.globl metal__arm_forward_vectors
.balign 2048
metal__arm_forward_vectors:
.rept   16
    .balign 128
    hvc     #0x7eb
    b       .
.endr

/* uint64_t metal__arm_hvc_call(uint64_t value) */
.globl metal__arm_hvc_call
metal__arm_hvc_call:
    hvc     #1
    ret

/*
 * void metal__arm_sysops[3 * 16 * 8 * 8](uint64_t operand): CRn 7-9, CRm, op1, op2; each entry is the
 * operation with x0 and, eight bytes on, without a register.
 */
.globl metal__arm_sysops
.balign 16
metal__arm_sysops:
.set    crn, 7
.rept   3
.set    crm, 0
.rept   16
.set    op1, 0
.rept   8
.set    op2, 0
.rept   8
    .inst   0xd5080000 | (op1 << 16) | (crn << 12) | (crm << 8) | (op2 << 5)
    ret
    .inst   0xd508001f | (op1 << 16) | (crn << 12) | (crm << 8) | (op2 << 5)
    ret
.set    op2, op2 + 1
.endr
.set    op1, op1 + 1
.endr
.set    crm, crm + 1
.endr
.set    crn, crn + 1
.endr

.section .note.GNU-stack, "", %progbits
