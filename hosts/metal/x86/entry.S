/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * First instructions of the booting CPU (PVH and multiboot: 32-bit protected mode, paging off) and
 * of every other one (start-up IPI: real mode), up to C in long mode.
 */
#include "regs.h"

#define CR4_PAE     0x20
#define EFER        0xc0000080
#define EFER_LME_NX 0x900
#define CR0_PG_WP_PE 0x80010001

    .section .text.entry, "ax"
    .code32
    .globl metal__entry_pvh, metal__entry_multiboot
/* PVH: EBX = start_info. Also taken by a loader that says multiboot in EAX but hands start_info: boot.c
 * looks at the magic there first. */
metal__entry_pvh:
    xorl    %eax, %eax
metal__entry_multiboot:
    cli
    cld
    movl    $metal__boot_stack_end, %esp
    movl    %eax, %ebp              /* loader's magic, or 0 */
    /* Identity map of the first 4 GiB by 2 MiB pages, all cacheable: refined in C. */
    movl    $metal__pml4, %edi
    movl    $metal__pdpt_low, %eax
    orl     $3, %eax
    movl    %eax, (%edi)
    movl    $metal__pdpt_low, %edi
    movl    $metal__pd_low, %eax
    orl     $3, %eax
    movl    $4, %ecx
1:  movl    %eax, (%edi)
    addl    $8, %edi
    addl    $4096, %eax
    loop    1b
    movl    $metal__pd_low, %edi
    movl    $0x83, %eax
    movl    $2048, %ecx
2:  movl    %eax, (%edi)
    addl    $8, %edi
    addl    $0x200000, %eax
    loop    2b
    call    long_mode
    lgdt    metal__gdt_pointer
    ljmp    $SEL_CODE64, $boot64

/* Paging and long mode on (compatibility mode until the far jump). */
long_mode:
    movl    %cr4, %eax
    orl     $CR4_PAE, %eax
    movl    %eax, %cr4
    movl    $metal__pml4, %eax
    movl    %eax, %cr3
    movl    $EFER, %ecx
    rdmsr
    orl     $EFER_LME_NX, %eax
    wrmsr
    movl    %cr0, %eax
    andl    $0x9fffffff, %eax       /* caches on: CD and NW off */
    orl     $CR0_PG_WP_PE, %eax
    movl    %eax, %cr0
    ret

/* A started CPU arrives here from its start page in 32-bit protected mode. Its stack is made from the
 * one pointer below: CPUs are started one at a time. */
ap32:
    movw    $SEL_DATA, %ax
    movw    %ax, %ds
    movw    %ax, %es
    movw    %ax, %ss
    movl    metal__ap_stack, %esp
    call    long_mode
    ljmp    $SEL_CODE64, $ap64

    .code64
load_segments:
    movw    $SEL_DATA, %ax
    movw    %ax, %ds
    movw    %ax, %es
    movw    %ax, %ss
    xorl    %eax, %eax
    movw    %ax, %fs
    movw    %ax, %gs
    ret

boot64:
    leaq    metal__boot_stack_end(%rip), %rsp
    call    load_segments
    movl    %ebp, %edi
    movl    %ebx, %esi
    xorl    %ebp, %ebp
    call    metal__x86_boot
    ud2

ap64:
    movq    metal__ap_stack(%rip), %rsp
    call    load_segments
    movl    metal__ap_cpu(%rip), %edi
    xorl    %ebp, %ebp
    call    metal__x86_secondary
    ud2

/* Copied to a page below 1 MiB. CS = page >> 4, IP = 0. */
    .section .rodata.ap, "a"
    .code16
    .globl metal__ap_page, metal__ap_page_end
metal__ap_page:
    cli
    movw    %cs, %ax
    movw    %ax, %ds
    lgdtl   ap_gdt_pointer - metal__ap_page
    movl    %cr0, %eax
    orl     $1, %eax
    movl    %eax, %cr0
    ljmpl   $SEL_CODE32, $ap32
    .balign 4
ap_gdt_pointer:
    .word   metal__gdt_end - metal__gdt - 1
    .long   metal__gdt
metal__ap_page_end:

    .section .data.gdt, "aw"
    .balign 16
    .globl metal__gdt
metal__gdt:
    .quad   0
    .quad   0x00af9b000000ffff      /* 64-bit code */
    .quad   0x00cf93000000ffff      /* data */
    .quad   0x00cf9b000000ffff      /* 32-bit code */
    .fill   64 * 2, 8, 0            /* a TSS for each CPU, filled in C */
metal__gdt_end:
metal__gdt_pointer:
    .word   metal__gdt_end - metal__gdt - 1
    .quad   metal__gdt

    .bss
    .balign 4096
    .globl metal__pml4, metal__pdpt_low, metal__pd_low
metal__pml4:
    .skip   4096
metal__pdpt_low:
    .skip   4096
metal__pd_low:
    .skip   4 * 4096
metal__boot_stack:
    .skip   STACK_BYTES
metal__boot_stack_end:

    .section .note.GNU-stack, "", @progbits
