/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traps of x86-64: the interrupt table, the call interrupt, and faults caught for the probes. A fault
 * outside a probe is printed and ends the image.
 */
#include "regs.h"

#define NMI           2u
#define DOUBLE_FAULT  8u
#define PAGE_FAULT    14u
#define MACHINE_CHECK 18u

struct trap_frame {
    uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax;
    uint64_t vector, error, rip, cs, rflags, rsp, ss;
};

extern uint8_t metal__trap_stubs[], metal__probe_landing[];
int metal__probe_enter(metal_call_fn fn, void *arg, struct probe *probe);
void metal__trap(struct trap_frame *frame);

static uint64_t idt[256][2] __attribute__((aligned(16)));

void metal__traps_setup(void)
{
    for (unsigned v = 0; v < 256; v++) {
        const uint64_t stub = (uintptr_t)metal__trap_stubs + 16 * v;
        const int own_stack = v == NMI || v == DOUBLE_FAULT || v == MACHINE_CHECK;

        /* 64-bit interrupt gate: 0x8e; bits 34:32 choose the stack in the TSS. */
        idt[v][0] = (stub & 0xffff) | (uint64_t)SEL_CODE64 << 16 | (own_stack ? 1ull << 32 : 0) |
                    0x8eull << 40 | (stub >> 16 & 0xffff) << 48;
        idt[v][1] = stub >> 32;
    }
}

void metal__idt_load(void)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) pointer = {sizeof idt - 1, (uintptr_t)idt};

    __asm__ volatile("lidt %0" : : "m"(pointer));
}

static __attribute__((noreturn)) void fatal(const struct trap_frame *f)
{
    metal_printf("metal: trap %u error 0x%llx at 0x%llx, address 0x%llx, stack 0x%llx\n",
                 (unsigned)f->vector, (unsigned long long)f->error, (unsigned long long)f->rip,
                 (unsigned long long)read_cr2(), (unsigned long long)f->rsp);
    metal_panic("unexpected trap");
}

void metal__trap(struct trap_frame *frame)
{
    struct percpu *self = this_percpu();
    struct probe *probe = self->probe;

    if (frame->vector == VECTOR_CALL) {
        /* What the interrupt runs is not part of the interrupted probe. */
        self->probe = NULL;
        metal__apic_eoi();
        metal__ipi_received();
        self->probe = probe;
        return;
    }
    if (frame->vector == VECTOR_SPURIOUS)
        return;
    if (frame->vector >= 32 || frame->vector == NMI || frame->vector == DOUBLE_FAULT ||
        frame->vector == MACHINE_CHECK || probe == NULL)
        fatal(frame);
    probe->fault = (struct metal_fault){frame->vector, frame->error,
                                        frame->vector == PAGE_FAULT ? read_cr2() : 0, frame->rip};
    self->probe = NULL;
    frame->rip = (uintptr_t)metal__probe_landing;
    frame->rsp = probe->rsp;
}

int metal_probe_call(metal_call_fn fn, void *arg, struct metal_fault *fault)
{
    struct probe probe;
    const int faulted = metal__probe_enter(fn, arg, &probe);

    if (faulted && fault != NULL)
        *fault = probe.fault;
    return faulted;
}
