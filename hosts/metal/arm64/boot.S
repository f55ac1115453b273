/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Entry of the boot CPU and of the CPUs that PSCI starts, at EL2 or EL1 with the MMU and caches off,
 * and the one sequence that turns them on. The same image serves both levels.
 */
#include "cpu.h"

/* Bits that must be one, with MMU and caches off (DDI 0487, SCTLR_EL1, SCTLR_EL2). */
#define SCTLR_EL1_OFF 0x30D00800
#define SCTLR_EL2_OFF 0x30C50830
#define SCTLR_ON      0x1005 /* I, C, M */

.macro load_const reg, value
    movz    \reg, #((\value) & 0xffff)
    movk    \reg, #(((\value) >> 16) & 0xffff), lsl #16
.endm

/* Known state of the exception level we were entered at; clobbers x9, x10. */
.macro level_setup
    msr     daifset, #0xf
    msr     spsel, #1
    mrs     x9, CurrentEL
    cmp     x9, #(2 << 2)
    b.eq    2f
    cmp     x9, #(1 << 2)
    b.eq    1f
0:  wfi                             /* EL3 has no firmware below it: not supported */
    b       0b
1:  load_const x10, SCTLR_EL1_OFF
    msr     sctlr_el1, x10
    msr     cpacr_el1, xzr
    isb
    b       3f
2:  load_const x10, SCTLR_EL2_OFF
    msr     sctlr_el2, x10
    mov     x10, #(1 << 31)         /* EL1 is AArch64 */
    orr     x10, x10, #(1 << 4)     /* IRQs are taken here, at EL2 */
    msr     hcr_el2, x10
    isb
    load_const x10, 0x33ff
    msr     cptr_el2, x10
    load_const x10, SCTLR_EL1_OFF
    msr     sctlr_el1, x10
    mov     x10, #3                 /* EL1 may read counter and timer */
    msr     cnthctl_el2, x10
    msr     cntvoff_el2, xzr
    msr     hstr_el2, xzr
    msr     vttbr_el2, xzr
    mrs     x10, midr_el1
    msr     vpidr_el2, x10
    mrs     x10, mpidr_el1
    msr     vmpidr_el2, x10
    isb
3:
.endm

.section .text.boot, "ax"
/*
 * Header of the flat form of the image (Linux, Documentation/arm64/booting): boot loaders that take it
 * pass the device tree in x0 and load an initrd. The ELF form enters at metal__arm_entry.
 */
    b       metal__arm_entry
    .word   0
    .quad   metal__image_offset         /* from the start of RAM */
    .quad   metal__image_bytes          /* memory wanted, zeroed data included */
    .quad   0xa                         /* little endian, 4 KiB pages, anywhere in RAM */
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .word   0

.globl metal__arm_entry
metal__arm_entry:
    mov     x20, x0                 /* device tree, or 0 */
    level_setup
    adrp    x0, metal__bss_start
    add     x0, x0, :lo12:metal__bss_start
    adrp    x1, metal__bss_end
    add     x1, x1, :lo12:metal__bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:  adrp    x0, metal__stacks
    add     x0, x0, :lo12:metal__stacks
    mov     x1, #CPU_STACK_BYTES
    add     x0, x0, x1
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x20
    b       metal__arm_main

/* A CPU started by PSCI: x0 = physical address of its struct arm_cpu. */
.globl metal__arm_secondary
metal__arm_secondary:
    mov     x19, x0
    level_setup
    ldr     x1, [x19, #CPU_STACK_TOP]
    mov     sp, x1
    mov     x0, x19
    bl      metal__arm_mmu_on
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    b       metal__arm_secondary_main

.section .text, "ax"
/*
 * void metal__arm_mmu_on(const struct arm_cpu *cpu)
 * The CPU may hold translations and lines from before its reset: both are dropped first. Uses no
 * memory but the record, which was cleaned to the point of coherency.
 */
.globl metal__arm_mmu_on
.balign 64
metal__arm_mmu_on:
    ldr     x1, [x0, #CPU_TTBR]
    ldr     x2, [x0, #CPU_TCR]
    ldr     x3, [x0, #CPU_MAIR]
    ldr     x4, [x0, #CPU_VECTORS]
    msr     tpidr_el1, x0
    mov     x5, #SCTLR_ON
    mrs     x6, CurrentEL
    tbz     x6, #3, 1f
    ldr     x7, [x0, #CPU_HCR]
    msr     hcr_el2, x7
    isb
    msr     mair_el2, x3
    msr     tcr_el2, x2
    msr     ttbr0_el2, x1
    msr     vbar_el2, x4
    isb
    dsb     nshst
    tlbi    alle2
    tlbi    alle1
    tlbi    vmalle1                 /* under VHE: of EL2&0 */
    ic      iallu
    dsb     nsh
    isb
    mrs     x6, sctlr_el2
    orr     x6, x6, x5
    msr     sctlr_el2, x6
    isb
    ret
1:  msr     mair_el1, x3
    msr     tcr_el1, x2
    msr     ttbr0_el1, x1
    msr     ttbr1_el1, xzr
    msr     vbar_el1, x4
    isb
    dsb     nshst
    tlbi    vmalle1
    ic      iallu
    dsb     nsh
    isb
    mrs     x6, sctlr_el1
    orr     x6, x6, x5
    msr     sctlr_el1, x6
    isb
    ret

.section .note.GNU-stack, "", %progbits
