/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ports, model-specific and control registers of x86-64, descriptors and the per-CPU block of the
 * metal host.
 */
#ifndef METAL_X86_REGS_H
#define METAL_X86_REGS_H

/* Selectors; entry.S holds the table. TSS of CPU n: SEL_TSS + 16 * n. */
#define SEL_CODE64 0x08
#define SEL_DATA   0x10
#define SEL_CODE32 0x18
#define SEL_TSS    0x20

#define VECTOR_CALL     0x40 /* metal_call_cpus */
#define VECTOR_SPURIOUS 0xff

/* Offsets in struct percpu, for assembly. */
#define PERCPU_PROBE 8

#define STACK_BYTES 16384

#ifndef __ASSEMBLER__

#    include "../common/boot.h"

#    define MSR_APIC_BASE 0x1bu
#    define MSR_EFER      0xc0000080u
#    define MSR_GS_BASE   0xc0000101u
#    define MSR_PAT       0x277u

#    define EFER_SVME (1ull << 12)

#    define CR4_PGE (1ull << 7)

#    define PTE_P       (1ull << 0)
#    define PTE_W       (1ull << 1)
#    define PTE_U       (1ull << 2)
#    define PTE_PWT     (1ull << 3)
#    define PTE_PCD     (1ull << 4)
#    define PTE_PS      (1ull << 7)
#    define PTE_G       (1ull << 8)
#    define PTE_NX      (1ull << 63)
#    define PTE_ADDRESS 0x000ffffffffff000ull

/* Where a fault inside a probe continues; filled by metal__probe_enter. */
struct probe {
    uint64_t rsp;
    uint64_t rflags;
    struct metal_fault fault;
};

/* Each CPU's GS points at its own. */
struct percpu {
    uint64_t cpu;
    struct probe *probe; /* NULL: a fault is fatal */
    uint8_t tss[104];
};

static inline void outb(uint16_t port, uint8_t value)
{
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static inline uint8_t inb(uint16_t port)
{
    uint8_t value;

    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static inline uint64_t rdmsr(uint32_t msr)
{
    uint32_t lo, hi;

    __asm__ volatile("rdmsr" : "=a"(lo), "=d"(hi) : "c"(msr));
    return lo | (uint64_t)hi << 32;
}

static inline void wrmsr(uint32_t msr, uint64_t value)
{
    __asm__ volatile("wrmsr"
                     :
                     : "c"(msr), "a"((uint32_t)value), "d"((uint32_t)(value >> 32))
                     : "memory");
}

struct cpuid {
    uint32_t a, b, c, d;
};

static inline struct cpuid cpuid(uint32_t leaf, uint32_t sub)
{
    struct cpuid r;

    __asm__ volatile("cpuid" : "=a"(r.a), "=b"(r.b), "=c"(r.c), "=d"(r.d) : "a"(leaf), "c"(sub));
    return r;
}

#    define METAL_X86_CR(n)                                                                        \
        static inline uint64_t read_cr##n(void)                                                    \
        {                                                                                          \
            uint64_t value;                                                                        \
                                                                                                   \
            __asm__ volatile("mov %%cr" #n ", %0" : "=r"(value) : : "memory");                     \
            return value;                                                                          \
        }                                                                                          \
        static inline void write_cr##n(uint64_t value)                                             \
        {                                                                                          \
            __asm__ volatile("mov %0, %%cr" #n : : "r"(value) : "memory");                         \
        }
METAL_X86_CR(0)
METAL_X86_CR(2)
METAL_X86_CR(3)
METAL_X86_CR(4)

static inline struct percpu *this_percpu(void)
{
    return (struct percpu *)(uintptr_t)rdmsr(MSR_GS_BASE);
}

/* ---- between the files of hosts/metal/x86 ---- */

void metal__percpu_setup(unsigned cpu); /* GS, TSS, IDT of the CPU that calls */
void metal__traps_setup(void);          /* fills the IDT, once */
void metal__idt_load(void);
void metal__console_setup(void);
void metal__apic_setup(void); /* this CPU's local APIC on */
void metal__apic_eoi(void);
uint32_t metal__apic_id(void);
void metal__clock_calibrate(void);
void metal__paging_finish(void);     /* identity map of all RAM, after the map is known */
void metal__start_page_choose(void); /* reserves a page below 1 MiB for starting CPUs */

/* Boot data of the two protocols; metal__pvh returns the RSDP's address or 0. */
uint64_t metal__pvh(uint64_t maddr);
void metal__multiboot(uint64_t maddr);

#endif
#endif
