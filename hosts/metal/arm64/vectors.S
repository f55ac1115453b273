/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exception vectors for both levels: they lay down a struct arm_frame and call metal__arm_trap with
 * the vector's number (0-15). Exceptions from a guest at EL1 return into metal__arm_guest_enter
 * instead (monitor.S); the same vectors serve a guest that runs the image's own functions.
 */
#include "cpu.h"

.macro vector number
    .balign 128
    sub     sp, sp, #FRAME_BYTES
    stp     x0, x1, [sp]
    mov     x1, #\number
    b       save_and_call
.endm

.macro guest_vector number
    .balign 128
    stp     x0, x1, [sp, #-16]!
    mov     x1, #\number
    b       metal__arm_guest_exit
.endm

.section .text, "ax"
.globl metal__arm_vectors
.balign 2048
metal__arm_vectors:
    vector  0
    vector  1
    vector  2
    vector  3
    vector  4
    vector  5
    vector  6
    vector  7
    .balign 128
    stp     x0, x1, [sp, #-16]!
    b       metal__arm_guest_sync
    guest_vector 9
    guest_vector 10
    guest_vector 11
    vector  12
    vector  13
    vector  14
    vector  15

.balign 128
save_and_call:
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    add     x6, sp, #FRAME_BYTES
    str     x30, [sp, #240]
    str     x6, [sp, #FRAME_SP]
    mrs     x2, CurrentEL
    tbz     x2, #3, 1f
    mrs     x2, elr_el2
    mrs     x3, spsr_el2
    mrs     x4, esr_el2
    mrs     x5, far_el2
    b       2f
1:  mrs     x2, elr_el1
    mrs     x3, spsr_el1
    mrs     x4, esr_el1
    mrs     x5, far_el1
2:  str     x2, [sp, #FRAME_ELR]
    str     x3, [sp, #FRAME_SPSR]
    str     x4, [sp, #FRAME_ESR]
    str     x5, [sp, #FRAME_FAR]
    mov     x0, sp
    bl      metal__arm_trap

    ldr     x2, [sp, #FRAME_ELR]
    ldr     x3, [sp, #FRAME_SPSR]
    mrs     x4, CurrentEL
    tbz     x4, #3, 3f
    msr     elr_el2, x2
    msr     spsr_el2, x3
    b       4f
3:  msr     elr_el1, x2
    msr     spsr_el1, x3
4:  ldp     x2, x3, [sp, #16]
    ldp     x4, x5, [sp, #32]
    ldp     x6, x7, [sp, #48]
    ldp     x8, x9, [sp, #64]
    ldp     x10, x11, [sp, #80]
    ldp     x12, x13, [sp, #96]
    ldp     x14, x15, [sp, #112]
    ldp     x16, x17, [sp, #128]
    ldp     x18, x19, [sp, #144]
    ldp     x20, x21, [sp, #160]
    ldp     x22, x23, [sp, #176]
    ldp     x24, x25, [sp, #192]
    ldp     x26, x27, [sp, #208]
    ldp     x28, x29, [sp, #224]
    ldr     x30, [sp, #240]
    ldp     x0, x1, [sp]
    add     sp, sp, #FRAME_BYTES
    eret

/*
 * int metal__arm_probe(uint64_t (*fn)(uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t *result,
 *                      uint64_t *ip_slot, uint64_t *sp_slot)
 * Calls fn(a, b) with a way out: the trap handler resumes at the label below with the stack pointer of
 * the slot. Returns 0 and stores the result, or 1 after a fault.
 */
.globl metal__arm_probe
metal__arm_probe:
    stp     x29, x30, [sp, #-112]!
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    stp     x3, x4, [sp, #96]
    mov     x29, sp
    mov     x6, sp
    str     x6, [x5]
    adr     x6, 1f
    str     x6, [x4]
    mov     x6, x0
    mov     x0, x1
    mov     x1, x2
    blr     x6
    ldp     x3, x4, [sp, #96]
    str     xzr, [x4]
    cbz     x3, 3f
    str     x0, [x3]
3:  mov     x0, #0
    b       2f
1:  mov     x0, #1                  /* resumed here, the slot already cleared */
2:  ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp], #112
    ret

/* void metal__arm_resume(uint64_t ip, uint64_t sp, uint64_t spsr): leaves an exception for another place */
.globl metal__arm_resume
metal__arm_resume:
    mrs     x3, CurrentEL
    tbz     x3, #3, 1f
    msr     elr_el2, x0
    msr     spsr_el2, x2
    b       2f
1:  msr     elr_el1, x0
    msr     spsr_el1, x2
2:  mov     sp, x1
    eret

.section .note.GNU-stack, "", %progbits
