/* SPDX-License-Identifier: BSD-2-Clause */
/* Set-up of SVM on a CPU and of a guest's control block; see svm_vmcb.h. */
#include "svm_vmcb.h"

#define MSR_VM_CR    0xc0010114u
#define MSR_HSAVE_PA 0xc0010117u
#define VM_CR_LOCKED (1ull << 4)

static uint8_t host_save[METAL_MAX_CPUS][4096] __attribute__((aligned(4096)));

extern uint8_t metal__svm_guest[];

int metal__svm_usable(void)
{
    if (cpuid(0x80000000, 0).a < 0x8000000a || (cpuid(0x80000001, 0).c >> 2 & 1) == 0 ||
        (cpuid(0x8000000a, 0).d & 1) == 0)
        return 0;
    if ((cpuid(0x80000001, 0).d >> 26 & 1) == 0) /* 1 GiB pages, for the nested map */
        return 0;
    return (rdmsr(MSR_VM_CR) & VM_CR_LOCKED) == 0;
}

void metal__svm_on(void)
{
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save[metal_cpu_id()]);
}

void metal__svm_off(void)
{
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) & ~EFER_SVME);
}

/* Every level as a user mapping, for that is how nested walks are made. */
void metal__svm_identity(uint64_t *pml4, uint64_t *pdpt)
{
    for (unsigned i = 0; i < 512; i++)
        pdpt[i] = (uint64_t)i << 30 | PTE_P | PTE_W | PTE_U | PTE_PS;
    pml4[0] = (uintptr_t)pdpt | PTE_P | PTE_W | PTE_U;
}

static void segment(uint8_t *vmcb, unsigned at, uint16_t selector, uint16_t attributes)
{
    *(vmcb_word16 *)(void *)(vmcb + at) = selector;
    *(vmcb_word16 *)(void *)(vmcb + at + 2) = attributes;
    *vmcb32(vmcb, at + 4) = 0xffffffffu;
    *vmcb64(vmcb, at + 8) = 0;
}

static void control_setup(uint8_t *vmcb, const uint64_t *nested_pml4)
{
    *vmcb32(vmcb, VMCB_INTERCEPT_EXC) = 0xffffffffu;
    *vmcb32(vmcb, VMCB_INTERCEPT_MISC) = VMCB_MISC_INTR | VMCB_MISC_NMI | VMCB_MISC_SHUTDOWN;
    *vmcb32(vmcb, VMCB_INTERCEPT_MISC2) = VMCB_MISC2_VMRUN | VMCB_MISC2_VMMCALL;
    *vmcb64(vmcb, VMCB_NESTED) = 1;
    *vmcb64(vmcb, VMCB_NESTED_CR3) = (uintptr_t)nested_pml4;
}

static void state_setup(uint8_t *vmcb, uint64_t flags)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) table;

    metal__vmcb_copy_cpu(vmcb);
    segment(vmcb, VMCB_CS, SEL_CODE64, 0x29b);
    segment(vmcb, VMCB_DS, SEL_DATA, 0xc93);
    segment(vmcb, VMCB_ES, SEL_DATA, 0xc93);
    segment(vmcb, VMCB_SS, SEL_DATA, 0xc93);
    __asm__ volatile("sgdt %0" : "=m"(table));
    *vmcb32(vmcb, VMCB_GDTR + 4) = table.limit;
    *vmcb64(vmcb, VMCB_GDTR + 8) = table.base;
    __asm__ volatile("sidt %0" : "=m"(table));
    *vmcb32(vmcb, VMCB_IDTR + 4) = table.limit;
    *vmcb64(vmcb, VMCB_IDTR + 8) = table.base;
    *vmcb64(vmcb, VMCB_EFER) = rdmsr(MSR_EFER);
    *vmcb64(vmcb, VMCB_CR0) = read_cr0();
    *vmcb64(vmcb, VMCB_CR3) = read_cr3();
    *vmcb64(vmcb, VMCB_CR4) = read_cr4();
    *vmcb64(vmcb, VMCB_DR7) = 0x400;
    *vmcb64(vmcb, VMCB_DR6) = 0xffff0ff0;
    *vmcb64(vmcb, VMCB_PAT) = rdmsr(MSR_PAT);
    *vmcb64(vmcb, VMCB_RFLAGS) = flags;
}

void metal__vmcb_restart(uint8_t *vmcb, uint64_t stack_top)
{
    *vmcb64(vmcb, VMCB_RIP) = (uintptr_t)metal__svm_guest;
    *vmcb64(vmcb, VMCB_RSP) = stack_top;
}

void metal__vmcb_make(uint8_t *vmcb, const uint64_t *nested_pml4, uint64_t flags,
                      uint64_t stack_top)
{
    for (unsigned i = 0; i < VMCB_BYTES; i += 8)
        *vmcb64(vmcb, i) = 0;
    control_setup(vmcb, nested_pml4);
    state_setup(vmcb, flags);
    metal__vmcb_restart(vmcb, stack_top);
}
