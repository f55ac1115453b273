/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the arm64 files of the metal host share: system-register access, the per-CPU record, the trap
 * frame and the functions each file offers to the others. Not for programs.
 */
#ifndef METAL_ARM64_CPU_H
#define METAL_ARM64_CPU_H

/* Offsets that the assembly uses; checked against the structures in cpu.c. */
#define CPU_STACK_TOP   0
#define CPU_TTBR        8
#define CPU_TCR         16
#define CPU_MAIR        24
#define CPU_VECTORS     32
#define CPU_HCR         40
#define FRAME_ELR       248
#define FRAME_SPSR      256
#define FRAME_ESR       264
#define FRAME_FAR       272
#define FRAME_SP        280
#define FRAME_BYTES     288
#define CPU_STACK_BYTES 16384

#ifndef __ASSEMBLER__

#    include "../common/boot.h"

/* Register names are expanded first: encodings can have names. */
#    define SYSREG_TEXT_(name) #    name
#    define SYSREG_TEXT(name)  SYSREG_TEXT_(name)

#    define read_sysreg(name)                                                                      \
        ({                                                                                         \
            uint64_t value_;                                                                       \
            __asm__ volatile("mrs %0, " SYSREG_TEXT(name) : "=r"(value_)::"memory");               \
            value_;                                                                                \
        })
#    define write_sysreg(name, value)                                                              \
        __asm__ volatile("msr " SYSREG_TEXT(name) ", %0" ::"r"((uint64_t)(value)) : "memory")
#    define isb()       __asm__ volatile("isb" ::: "memory")
#    define dsb(domain) __asm__ volatile("dsb " #    domain ::: "memory")

/* One per CPU. TPIDR_EL1 points at it at both exception levels; a guest of the monitor that runs
 * the image's own functions inherits the pointer. */
struct arm_cpu {
    /* Read by a starting CPU before its MMU is on: cleaned to the point of coherency first. */
    uint64_t stack_top;
    uint64_t ttbr;
    uint64_t tcr;
    uint64_t mair;
    uint64_t vectors;
    uint64_t hcr; /* HCR_EL2, at EL2 */
    /* Ordinary data of the CPU itself. */
    uint64_t redistributor; /* GICR frame, 0 = not found */
    uint64_t mpidr;
    uint64_t probe_ip; /* where a caught fault resumes; 0 = faults are fatal */
    uint64_t probe_sp;
    struct metal_fault fault;
    uint64_t id;
} __attribute__((aligned(128)));

/* Registers at an exception, as vectors.S lays them down. */
struct arm_frame {
    uint64_t x[31];
    uint64_t elr;
    uint64_t spsr;
    uint64_t esr;
    uint64_t far;
    uint64_t sp;
};

extern struct arm_cpu metal__arm_cpu[METAL_MAX_CPUS];

static inline struct arm_cpu *this_cpu(void)
{
    return (struct arm_cpu *)read_sysreg(tpidr_el1);
}

/* 1 or 2. The register is read, so code that the monitor runs as a guest sees its own level. */
static inline unsigned current_el(void)
{
    return (unsigned)(read_sysreg(CurrentEL) >> 2) & 3u;
}

#    define HCR_TGE (1ull << 27)
#    define HCR_E2H (1ull << 34)

/* EL2 without the Virtualization Host Extensions: its tables have the EL2 format. */
static inline int is_plain_el2(void)
{
    return current_el() == 2 && (read_sysreg(hcr_el2) & HCR_E2H) == 0;
}

/* ---- boot.S, vectors.S ---- */

extern char metal__image_start[], metal__text_end[], metal__data_start[], metal__image_end[];
extern char metal__ram_start[];
extern char metal__stacks[METAL_MAX_CPUS][CPU_STACK_BYTES];
extern char metal__arm_vectors[], metal__arm_secondary[];
/* Turns on the MMU and caches of this CPU with the values in its record. */
void metal__arm_mmu_on(const struct arm_cpu *cpu);

/* ---- pl011.c ---- */

void metal__arm_console_at(uint64_t pl011);
/* Prints by semihosting when no UART is known yet, then ends. */
__attribute__((noreturn)) void metal__arm_early_panic(const char *reason);

/* ---- psci.c ---- */

enum arm_psci_conduit { ARM_PSCI_NONE, ARM_PSCI_SMC, ARM_PSCI_HVC };
void metal__arm_psci_use(enum arm_psci_conduit conduit);
int64_t metal__arm_psci(uint32_t id, uint64_t a1, uint64_t a2, uint64_t a3);
#    define PSCI_CPU_ON     0xC4000003u
#    define PSCI_SYSTEM_OFF 0x84000008u

/* ---- cpu.c ---- */

/* Cleans [at, at + bytes) to the point of coherency: data read with the MMU off. */
void metal__arm_clean(const void *at, uint64_t bytes);
/*
 * Drops cached lines of [at, at + bytes), whole lines, unwritten: what was stored with the MMU off is
 * in memory, and a line from before would hide it.
 */
void metal__arm_invalidate(const void *at, uint64_t bytes);
/* Fills the record of a CPU that is to start and cleans it. */
void metal__arm_cpu_prepare(unsigned cpu);
/* First C function of a started CPU, MMU on. */
__attribute__((noreturn)) void metal__arm_secondary_main(struct arm_cpu *cpu);

/* ---- gic.c ---- */

/* One region of redistributors; up to four are kept. */
void metal__arm_gic_at(uint64_t distributor, const uint64_t regions[][2], unsigned count);
int metal__arm_gic_start(void);     /* once */
int metal__arm_gic_cpu_start(void); /* on each CPU */
void metal__arm_gic_take(void);     /* from the IRQ vector */

/* ---- traps.c ---- */

void metal__arm_trap(struct arm_frame *frame, unsigned vector);

#endif
#endif
