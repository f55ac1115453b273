/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exceptions of the image's own level: interrupts are served, faults inside a probe resume there,
 * everything else is printed and ends the image.
 */
#include "cpu.h"

__attribute__((noreturn)) void metal__arm_resume(uint64_t ip, uint64_t sp, uint64_t spsr);
int metal__arm_probe(uint64_t (*fn)(uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t *result,
                     uint64_t *ip_slot, uint64_t *sp_slot);

enum { VECTOR_SYNC = 0, VECTOR_IRQ = 1, VECTOR_FIQ = 2, VECTOR_SERROR = 3 };

static const char *vector_name(unsigned vector)
{
    switch (vector & 3) {
    case VECTOR_SYNC:
        return "synchronous exception";
    case VECTOR_IRQ:
        return "IRQ";
    case VECTOR_FIQ:
        return "FIQ";
    default:
        return "SError";
    }
}

static void take_interrupt(void)
{
    struct arm_cpu *cpu = this_cpu();
    const uint64_t ip = cpu->probe_ip; /* a fault in a called function is not the probe's */
    const uint64_t sp = cpu->probe_sp;

    cpu->probe_ip = 0;
    metal__arm_gic_take();
    cpu->probe_ip = ip;
    cpu->probe_sp = sp;
}

void metal__arm_trap(struct arm_frame *frame, unsigned vector)
{
    struct arm_cpu *cpu = this_cpu();

    if (vector == 4 + VECTOR_IRQ) {
        take_interrupt();
        return;
    }
    if (vector == 4 + VECTOR_SYNC && cpu->probe_ip != 0) {
        const uint64_t ip = cpu->probe_ip;

        cpu->probe_ip = 0;
        cpu->fault =
            (struct metal_fault){frame->esr >> 26 & 0x3F, frame->esr, frame->far, frame->elr};
        metal__arm_resume(ip, cpu->probe_sp, frame->spsr);
    }
    metal_printf("metal: %s (vector %u) on CPU %u at EL%u: esr 0x%lx elr 0x%lx far 0x%lx sp 0x%lx "
                 "lr 0x%lx\n",
                 vector_name(vector), vector, (unsigned)cpu->id, current_el(),
                 (unsigned long)frame->esr, (unsigned long)frame->elr, (unsigned long)frame->far,
                 (unsigned long)frame->sp, (unsigned long)frame->x[30]);
    metal_panic("unexpected exception");
}

/* ---- probes ---- */

static int probe(uint64_t (*fn)(uint64_t, uint64_t), uint64_t a, uint64_t b, uint64_t *result,
                 struct metal_fault *fault)
{
    struct arm_cpu *cpu = this_cpu();
    const int faulted = metal__arm_probe(fn, a, b, result, &cpu->probe_ip, &cpu->probe_sp);

    if (faulted && fault != NULL)
        *fault = cpu->fault;
    return faulted;
}

static uint64_t do_read(uint64_t va, uint64_t unused)
{
    (void)unused;
    return *(volatile uint64_t *)(uintptr_t)va;
}

static uint64_t do_write(uint64_t va, uint64_t value)
{
    *(volatile uint64_t *)(uintptr_t)va = value;
    return 0;
}

static uint64_t do_exec(uint64_t va, uint64_t unused)
{
    (void)unused;
    return ((uint64_t(*)(void))(uintptr_t)va)();
}

static uint64_t do_call(uint64_t fn, uint64_t arg)
{
    ((metal_call_fn)(uintptr_t)fn)((void *)(uintptr_t)arg);
    return 0;
}

int metal_probe_read(uintptr_t va, uint64_t *value, struct metal_fault *fault)
{
    return probe(do_read, va, 0, value, fault);
}

int metal_probe_write(uintptr_t va, uint64_t value, struct metal_fault *fault)
{
    return probe(do_write, va, value, NULL, fault);
}

int metal_probe_exec(uintptr_t va, uint64_t *value, struct metal_fault *fault)
{
    return probe(do_exec, va, 0, value, fault);
}

int metal_probe_call(metal_call_fn fn, void *arg, struct metal_fault *fault)
{
    return probe(do_call, (uint64_t)(uintptr_t)fn, (uint64_t)(uintptr_t)arg, NULL, fault);
}

/* ---- code made at run time ---- */

size_t metal_code_return(void *to, uint16_t value)
{
    uint32_t *code = to;

    code[0] = 0xD2800000u | (uint32_t)value << 5; /* movz x0, #value */
    code[1] = 0xD65F03C0u;                        /* ret */
    return 8;
}

void metal_code_visible(const void *at, size_t bytes)
{
    const uint64_t ctr = read_sysreg(ctr_el0);
    const uint64_t dline = 4ull << (ctr >> 16 & 0xF);
    const uint64_t iline = 4ull << (ctr & 0xF);
    const uint64_t start = metal_maddr(at);

    for (uint64_t va = start & ~(dline - 1); va < start + bytes; va += dline)
        __asm__ volatile("dc cvau, %0" ::"r"(va) : "memory");
    dsb(ish);
    for (uint64_t va = start & ~(iline - 1); va < start + bytes; va += iline)
        __asm__ volatile("ic ivau, %0" ::"r"(va) : "memory");
    dsb(ish);
    isb();
}
