/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Per-CPU records and the small services of a CPU: number, interrupt mask, waiting, counter, cleaning
 * of what a CPU reads before its MMU is on.
 */
#include "cpu.h"
#include "mmu.h"

struct arm_cpu metal__arm_cpu[METAL_MAX_CPUS];
char metal__stacks[METAL_MAX_CPUS][CPU_STACK_BYTES]
    __attribute__((aligned(4096), section(".bss.noinit")));

_Static_assert(offsetof(struct arm_cpu, stack_top) == CPU_STACK_TOP, "boot.S");
_Static_assert(offsetof(struct arm_cpu, ttbr) == CPU_TTBR, "boot.S");
_Static_assert(offsetof(struct arm_cpu, tcr) == CPU_TCR, "boot.S");
_Static_assert(offsetof(struct arm_cpu, mair) == CPU_MAIR, "boot.S");
_Static_assert(offsetof(struct arm_cpu, vectors) == CPU_VECTORS, "boot.S");
_Static_assert(offsetof(struct arm_cpu, hcr) == CPU_HCR, "boot.S");
_Static_assert(offsetof(struct arm_frame, elr) == FRAME_ELR, "vectors.S");
_Static_assert(offsetof(struct arm_frame, spsr) == FRAME_SPSR, "vectors.S");
_Static_assert(offsetof(struct arm_frame, esr) == FRAME_ESR, "vectors.S");
_Static_assert(offsetof(struct arm_frame, far) == FRAME_FAR, "vectors.S");
_Static_assert(offsetof(struct arm_frame, sp) == FRAME_SP, "vectors.S");
_Static_assert(sizeof(struct arm_frame) == FRAME_BYTES, "vectors.S");

void metal__arm_clean(const void *at, uint64_t bytes)
{
    const uint64_t line = 4ull << (read_sysreg(ctr_el0) >> 16 & 0xF);
    const uint64_t end = metal_maddr(at) + bytes;

    dsb(sy);
    for (uint64_t va = metal_maddr(at) & ~(line - 1); va < end; va += line)
        __asm__ volatile("dc cvac, %0" ::"r"(va) : "memory");
    dsb(sy);
}

void metal__arm_invalidate(const void *at, uint64_t bytes)
{
    const uint64_t line = 4ull << (read_sysreg(ctr_el0) >> 16 & 0xF);
    const uint64_t end = metal_maddr(at) + bytes;

    dsb(sy);
    for (uint64_t va = metal_maddr(at) & ~(line - 1); va < end; va += line)
        __asm__ volatile("dc ivac, %0" ::"r"(va) : "memory");
    dsb(sy);
}

void metal__arm_cpu_prepare(unsigned cpu)
{
    struct arm_cpu *c = &metal__arm_cpu[cpu];

    c->id = cpu;
    c->stack_top = metal_maddr(metal__stacks[cpu]) + CPU_STACK_BYTES;
    metal__arm_mmu_registers(c);
    metal__arm_clean(c, sizeof(*c));
}

void metal__arm_secondary_main(struct arm_cpu *cpu)
{
    if (metal__arm_gic_cpu_start() != METAL_OK)
        metal_printf("metal: CPU %u has no GIC redistributor\n", (unsigned)cpu->id);
    else
        metal__secondary((unsigned)cpu->id);
    for (;;)
        __asm__ volatile("wfi");
}

unsigned metal_cpu_id(void)
{
    return (unsigned)this_cpu()->id;
}

void metal_idle(void)
{
    dsb(sy);
    __asm__ volatile("wfi" ::: "memory");
    __asm__ volatile("msr daifclr, #2" ::: "memory");
    isb(); /* a pending interrupt is taken here */
    __asm__ volatile("msr daifset, #2" ::: "memory");
}

void metal_relax(void)
{
    __asm__ volatile("yield" ::: "memory");
}

uint64_t metal_irq_save(void)
{
    const uint64_t state = read_sysreg(daif);

    __asm__ volatile("msr daifset, #2" ::: "memory");
    return state;
}

void metal_irq_restore(uint64_t state)
{
    write_sysreg(daif, state);
}

void metal_irq_enable(void)
{
    __asm__ volatile("msr daifclr, #2" ::: "memory");
}

uint64_t metal_cycles(void)
{
    isb();
    return read_sysreg(cntvct_el0);
}

uint64_t metal_cycles_per_ms(void)
{
    return read_sysreg(cntfrq_el0) / 1000;
}
