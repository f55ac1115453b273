/* SPDX-License-Identifier: BSD-2-Clause */
/* World switch of the recorder: registers in hardware order at [RSI], all but RAX and RSP (VMCB). */
    .text
/* void metal__svm_enter(uint64_t vmcb_maddr, uint64_t regs[16]) */
    .globl metal__svm_enter
metal__svm_enter:
    pushq   %rbx
    pushq   %rbp
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    pushq   %rsi
    movq    %rdi, %rax
    movq    1*8(%rsi), %rcx
    movq    2*8(%rsi), %rdx
    movq    3*8(%rsi), %rbx
    movq    5*8(%rsi), %rbp
    movq    7*8(%rsi), %rdi
    movq    8*8(%rsi), %r8
    movq    9*8(%rsi), %r9
    movq    10*8(%rsi), %r10
    movq    11*8(%rsi), %r11
    movq    12*8(%rsi), %r12
    movq    13*8(%rsi), %r13
    movq    14*8(%rsi), %r14
    movq    15*8(%rsi), %r15
    movq    6*8(%rsi), %rsi
    /* No interrupt between the guest's state and the host's: it waits for STGI. */
    clgi
    vmload  %rax
    vmrun   %rax
    vmsave  %rax
    /* RAX and RSP are the host's again: the saved pointer lies on top. */
    xchgq   %rsi, (%rsp)
    movq    %rcx, 1*8(%rsi)
    movq    %rdx, 2*8(%rsi)
    movq    %rbx, 3*8(%rsi)
    movq    %rbp, 5*8(%rsi)
    movq    %rdi, 7*8(%rsi)
    movq    %r8, 8*8(%rsi)
    movq    %r9, 9*8(%rsi)
    movq    %r10, 10*8(%rsi)
    movq    %r11, 11*8(%rsi)
    movq    %r12, 12*8(%rsi)
    movq    %r13, 13*8(%rsi)
    movq    %r14, 14*8(%rsi)
    movq    %r15, 15*8(%rsi)
    popq    6*8(%rsi)
    stgi
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbp
    popq    %rbx
    ret

/* First code of the guest: RBX = function, RDI = its argument. */
    .globl metal__svm_guest
metal__svm_guest:
    call    *%rbx
    vmmcall
    ud2

    .section .note.GNU-stack, "", @progbits
