/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each CPU needs of its own (GS block, TSS with stacks for the traps that may come anywhere),
 * interrupt flag, idling, and the cycle counter.
 */
#include "regs.h"

#define PIT_10MS     11932u /* of 1.193182 MHz */
#define PIT_TURNS    2000000u
#define CYCLES_GUESS 1000000u /* per ms, where the timer does not run */

#define IST_BYTES 4096u

extern uint64_t metal__gdt[];

static struct percpu percpu[METAL_MAX_CPUS] __attribute__((aligned(64)));
static uint64_t cycles_per_ms;

static void tss_setup(unsigned cpu)
{
    uint8_t *tss = percpu[cpu].tss;
    const uint64_t base = (uintptr_t)tss;
    const uint16_t no_io_map = sizeof percpu[cpu].tss;
    uint64_t *descriptor = &metal__gdt[SEL_TSS / 8 + 2 * cpu];
    const uint16_t selector = (uint16_t)(SEL_TSS + 16 * cpu);
    uint8_t *stack = metal_pages(IST_BYTES, IST_BYTES);
    uint64_t top;

    if (stack == NULL)
        metal_panic("no memory for a trap stack");
    top = (uintptr_t)stack + IST_BYTES;
    for (unsigned i = 0; i < 8; i++) /* IST1 at offset 36 */
        tss[36 + i] = (uint8_t)(top >> (8 * i));
    tss[102] = (uint8_t)no_io_map;
    tss[103] = (uint8_t)(no_io_map >> 8);
    descriptor[0] = (sizeof percpu[cpu].tss - 1) | (base & 0xffffff) << 16 | 0x89ull << 40 |
                    (base >> 24 & 0xff) << 56;
    descriptor[1] = base >> 32;
    __asm__ volatile("ltr %0" : : "r"(selector) : "memory");
}

void metal__percpu_setup(unsigned cpu)
{
    percpu[cpu].cpu = cpu;
    wrmsr(MSR_GS_BASE, (uintptr_t)&percpu[cpu]);
    write_cr4(read_cr4() | CR4_PGE);
    tss_setup(cpu);
    metal__idt_load();
}

unsigned metal_cpu_id(void)
{
    uint32_t cpu;

    __asm__ volatile("movl %%gs:0, %0" : "=r"(cpu));
    return cpu;
}

uint64_t metal_irq_save(void)
{
    uint64_t flags;

    __asm__ volatile("pushfq; popq %0; cli" : "=r"(flags) : : "memory");
    return flags >> 9 & 1;
}

void metal_irq_restore(uint64_t state)
{
    if (state != 0)
        metal_irq_enable();
}

void metal_irq_enable(void)
{
    __asm__ volatile("sti" : : : "memory");
}

/* STI keeps interrupts off for one more instruction, so none can slip in before HLT. */
void metal_idle(void)
{
    __asm__ volatile("sti; hlt; cli" : : : "memory");
}

void metal_relax(void)
{
    __asm__ volatile("pause" : : : "memory");
}

uint64_t metal_cycles(void)
{
    uint32_t lo, hi;

    __asm__ volatile("lfence; rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
    return lo | (uint64_t)hi << 32;
}

uint64_t metal_cycles_per_ms(void)
{
    return cycles_per_ms;
}

/* Counts cycles while channel 2 of the interval timer runs down 10 ms. */
void metal__clock_calibrate(void)
{
    const uint8_t gate = inb(0x61) & 0xfc;
    uint64_t start;
    unsigned turns = 0;

    outb(0x61, gate);
    outb(0x43, 0xb0); /* channel 2, both bytes, mode 0 */
    outb(0x42, PIT_10MS & 0xff);
    outb(0x42, PIT_10MS >> 8);
    outb(0x61, gate | 1);
    start = metal_cycles();
    while ((inb(0x61) & 0x20) == 0 && turns < PIT_TURNS)
        turns++;
    cycles_per_ms = (metal_cycles() - start) / 10;
    outb(0x61, gate);
    if (turns == PIT_TURNS || cycles_per_ms == 0) {
        metal_printf("metal: the interval timer does not run, 1 GHz assumed\n");
        cycles_per_ms = CYCLES_GUESS;
    }
}
