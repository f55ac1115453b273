/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The virtual machine control block of AMD SVM: offsets and bits (APM vol. 2, appendix B), exit codes
 * (appendix C), and the parts of its set-up that the recorder and the guests of tests share.
 */
#ifndef METAL_X86_SVM_VMCB_H
#define METAL_X86_SVM_VMCB_H

#include "regs.h"

#define VMCB_BYTES 4096u

#define VMCB_INTERCEPT_CR    0x000u
#define VMCB_INTERCEPT_EXC   0x008u
#define VMCB_INTERCEPT_MISC  0x00cu
#define VMCB_INTERCEPT_MISC2 0x010u
#define VMCB_ASID            0x058u
#define VMCB_TLB_CONTROL     0x05cu
#define VMCB_EXIT_CODE       0x070u
#define VMCB_EXIT_INFO1      0x078u
#define VMCB_EXIT_INFO2      0x080u
#define VMCB_NESTED          0x090u
#define VMCB_NESTED_CR3      0x0b0u
#define VMCB_ES              0x400u
#define VMCB_CS              0x410u
#define VMCB_SS              0x420u
#define VMCB_DS              0x430u
#define VMCB_GDTR            0x460u
#define VMCB_IDTR            0x480u
#define VMCB_EFER            0x4d0u
#define VMCB_CR4             0x548u
#define VMCB_CR3             0x550u
#define VMCB_CR0             0x558u
#define VMCB_DR7             0x560u
#define VMCB_DR6             0x568u
#define VMCB_RFLAGS          0x570u
#define VMCB_RIP             0x578u
#define VMCB_RSP             0x5d8u
#define VMCB_RAX             0x5f8u
#define VMCB_PAT             0x668u

#define VMCB_MISC_INTR     (1u << 0)
#define VMCB_MISC_NMI      (1u << 1)
#define VMCB_MISC_INVLPG   (1u << 25)
#define VMCB_MISC_INVLPGA  (1u << 26)
#define VMCB_MISC_SHUTDOWN (1u << 31)
#define VMCB_MISC2_VMRUN   (1u << 0)
#define VMCB_MISC2_VMMCALL (1u << 1)
#define VMCB_MISC2_WBINVD  (1u << 9)

#define EXIT_CR3_WRITE 0x13u
#define EXIT_CR4_WRITE 0x14u
#define EXIT_INTR      0x60u
#define EXIT_NMI       0x61u
#define EXIT_INVLPG    0x79u
#define EXIT_INVLPGA   0x7au
#define EXIT_VMMCALL   0x81u
#define EXIT_WBINVD    0x89u

typedef uint64_t __attribute__((may_alias)) vmcb_word64;
typedef uint32_t __attribute__((may_alias)) vmcb_word32;
typedef uint16_t __attribute__((may_alias)) vmcb_word16;

static inline vmcb_word64 *vmcb64(uint8_t *vmcb, unsigned at)
{
    return (vmcb_word64 *)(void *)(vmcb + at);
}

static inline vmcb_word32 *vmcb32(uint8_t *vmcb, unsigned at)
{
    return (vmcb_word32 *)(void *)(vmcb + at);
}

/* SVM with nested paging and 1 GiB pages, and not locked by firmware. */
int metal__svm_usable(void);

/* SVM on, with this CPU's own area for the host's state; off. */
void metal__svm_on(void);
void metal__svm_off(void);

/* Nested tables that map the lowest 512 GiB one to one. Both pages are zeroed before. */
void metal__svm_identity(uint64_t *pml4, uint64_t *pdpt);

/*
 * Makes *vmcb that of a guest which begins as a copy of this CPU, with these flags, at
 * metal__svm_guest: it calls the function in RBX with RDI, then VMMCALL. Every exception, interrupts,
 * VMRUN, VMMCALL and shutdown are intercepted; the caller may add to that.
 */
void metal__vmcb_make(uint8_t *vmcb, const uint64_t *nested_pml4, uint64_t flags,
                      uint64_t stack_top);

/* Back to the first instruction, on an empty stack. */
void metal__vmcb_restart(uint8_t *vmcb, uint64_t stack_top);

/* Segments and system registers that VMLOAD takes become this CPU's: exits leave them loaded. */
static inline void metal__vmcb_copy_cpu(uint8_t *vmcb)
{
    __asm__ volatile("vmsave %0" : : "a"((uintptr_t)vmcb) : "memory");
}

/* svm_enter.S: runs the guest until its next exit; registers by hardware number, but RAX and RSP. */
void metal__svm_enter(uint64_t vmcb_maddr, uint64_t regs[16]);

#endif
