/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The local APIC by its memory-mapped registers (SDM vol. 3, chapter 11): identity, interrupts to
 * other CPUs, and starting them by INIT and start-up IPIs.
 */
#include "regs.h"

#define APIC_ID       0x20u
#define APIC_TPR      0x80u
#define APIC_EOI      0xb0u
#define APIC_SPURIOUS 0xf0u
#define APIC_ICR_LOW  0x300u
#define APIC_ICR_HIGH 0x310u
#define APIC_TIMER    0x320u
#define APIC_LINT0    0x350u
#define APIC_LINT1    0x360u

#define APIC_ENABLE (1ull << 11)
#define APIC_X2     (1ull << 10)
#define LVT_MASKED  (1u << 16)
#define ICR_PENDING (1u << 12)
#define ICR_FIXED   0x4000u
#define ICR_INIT    0x4500u
#define ICR_STARTUP 0x4600u
#define ICR_TURNS   10000000u
#define XAPIC_IDS   255u /* 255 is broadcast */

extern uint8_t metal__ap_page[], metal__ap_page_end[];

/* For entry.S: the stack and index of the CPU that is being started. */
uint64_t metal__ap_stack;
uint32_t metal__ap_cpu;

static uintptr_t apic_base;
static uint64_t start_page;

static uint32_t apic_read(uint32_t at)
{
    return *(volatile uint32_t *)(apic_base + at);
}

static void apic_write(uint32_t at, uint32_t value)
{
    *(volatile uint32_t *)(apic_base + at) = value;
}

uint32_t metal__apic_id(void)
{
    return apic_read(APIC_ID) >> 24;
}

void metal__apic_eoi(void)
{
    apic_write(APIC_EOI, 0);
}

void metal__apic_setup(void)
{
    uint64_t base = rdmsr(MSR_APIC_BASE);

    if ((base & APIC_X2) != 0) {
        /* Only by way of "off" back to memory-mapped registers. */
        base &= ~(APIC_X2 | APIC_ENABLE);
        wrmsr(MSR_APIC_BASE, base);
    }
    wrmsr(MSR_APIC_BASE, base | APIC_ENABLE);
    if (apic_base == 0) {
        apic_base = base & 0xfffff000u;
        /* Both interrupt controllers of the PC silent: firmware leaves its timer on vector 8. */
        outb(0x21, 0xff);
        outb(0xa1, 0xff);
    }
    apic_write(APIC_TPR, 0);
    apic_write(APIC_TIMER, LVT_MASKED);
    apic_write(APIC_LINT0, LVT_MASKED);
    apic_write(APIC_LINT1, LVT_MASKED);
    apic_write(APIC_SPURIOUS, 0x100 | VECTOR_SPURIOUS);
}

/* The two halves of the command register belong together: interrupts off meanwhile. */
static int icr_send(uint64_t hw_id, uint32_t command)
{
    const uint64_t irq = metal_irq_save();
    unsigned turns = 0;

    while ((apic_read(APIC_ICR_LOW) & ICR_PENDING) != 0 && turns++ < ICR_TURNS)
        metal_relax();
    apic_write(APIC_ICR_HIGH, (uint32_t)hw_id << 24);
    apic_write(APIC_ICR_LOW, command);
    metal_irq_restore(irq);
    return turns < ICR_TURNS ? METAL_OK : METAL_E_TIMEOUT;
}

void metal__ipi_send(unsigned cpu)
{
    if (icr_send(metal__boot.cpu[cpu].hw_id, ICR_FIXED | VECTOR_CALL) != METAL_OK)
        metal_panic("an interrupt to another CPU is never delivered");
}

static void delay_us(uint64_t us)
{
    const uint64_t start = metal_cycles();
    const uint64_t cycles = metal_cycles_per_ms() * us / 1000;

    while (metal_cycles() - start < cycles)
        metal_relax();
}

static int page_is_reserved(uint64_t page)
{
    for (uint32_t i = 0; i < metal__boot.reserved_count; i++)
        if (page >= metal__boot.reserved[i].base &&
            page < metal__boot.reserved[i].base + metal__boot.reserved[i].bytes)
            return 1;
    return 0;
}

void metal__start_page_choose(void)
{
    for (uint32_t i = 0; i < metal__boot.mem_count; i++) {
        const struct metal_mem *m = &metal__boot.mem[i];

        for (uint64_t page = m->base; page < m->base + m->bytes && page < 0x9f000; page += 0x1000)
            if (page != 0 && !page_is_reserved(page)) {
                start_page = page;
                metal__reserve(page, METAL_PAGE_BYTES, "CPU start page");
                return;
            }
    }
    metal_printf("metal: no free page below 1 MiB: other CPUs cannot be started\n");
}

int metal__cpu_start(unsigned cpu)
{
    const uint64_t hw_id = metal__boot.cpu[cpu].hw_id;
    uint8_t *stack = metal_pages(STACK_BYTES, METAL_PAGE_BYTES);
    uint8_t *page = metal_frame(start_page);

    if (start_page == 0 || stack == NULL || hw_id >= XAPIC_IDS)
        return METAL_E_LACK;
    metal__ap_stack = (uintptr_t)stack + STACK_BYTES;
    metal__ap_cpu = cpu;
    for (size_t i = 0; i < (size_t)(metal__ap_page_end - metal__ap_page); i++)
        ((volatile uint8_t *)page)[i] = metal__ap_page[i];
    if (icr_send(hw_id, ICR_INIT) != METAL_OK)
        return METAL_E_TIMEOUT;
    delay_us(10000);
    for (unsigned i = 0; i < 2 && (metal_online() >> cpu & 1) == 0; i++) {
        if (icr_send(hw_id, ICR_STARTUP | (uint32_t)(start_page >> 12)) != METAL_OK)
            return METAL_E_TIMEOUT;
        delay_us(200);
    }
    return METAL_OK;
}
