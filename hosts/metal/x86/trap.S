/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entry of every vector (one 16-byte stub each, saved registers as struct trap_frame in trap.c), and
 * the call that survives a fault.
 */
#include "regs.h"

    .text
    .globl metal__trap_stubs
    .balign 16
metal__trap_stubs:
    .set    vector, 0
    .rept   256
    .balign 16
    /* The CPU pushes an error code for these only (SDM vol. 3, table 6-1). */
    .if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    pushq   $0
    .endif
    pushq   $vector
    jmp     trap_common
    .set    vector, vector + 1
    .endr

trap_common:
    pushq   %rax
    pushq   %rcx
    pushq   %rdx
    pushq   %rbx
    pushq   %rbp
    pushq   %rsi
    pushq   %rdi
    pushq   %r8
    pushq   %r9
    pushq   %r10
    pushq   %r11
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    cld
    movq    %rsp, %rdi
    /* The CPU aligned the stack before it pushed 5 words; 17 more follow: 22 words, aligned. */
    call    metal__trap
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %r11
    popq    %r10
    popq    %r9
    popq    %r8
    popq    %rdi
    popq    %rsi
    popq    %rbp
    popq    %rbx
    popq    %rdx
    popq    %rcx
    popq    %rax
    addq    $16, %rsp
    iretq

/* int metal__probe_enter(metal_call_fn fn, void *arg, struct probe *probe) */
    .globl metal__probe_enter, metal__probe_landing
metal__probe_enter:
    pushq   %rbx
    pushq   %rbp
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    pushfq
    movq    %rsp, (%rdx)
    movq    %rdx, %gs:PERCPU_PROBE
    movq    %rdi, %rax
    movq    %rsi, %rdi
    call    *%rax
    movq    $0, %gs:PERCPU_PROBE
    xorl    %eax, %eax
    jmp     1f
/* A fault continues here with the stack of metal__probe_enter (trap.c). */
metal__probe_landing:
    movl    $1, %eax
1:  popfq
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbp
    popq    %rbx
    ret

    .section .note.GNU-stack, "", @progbits
