/* SPDX-License-Identifier: BSD-2-Clause */
/* The recorder of svm.h: a guest that is a second life of the image itself. */
#include "svm.h"
#include "svm_vmcb.h"

#define CR3_WRITE     (1u << 19)
#define CR4_WRITE     (1u << 20)
#define TLB_FLUSH_ALL 1u
#define ASID          1u
#define CR3_NO_FLUSH  (1ull << 63)

#define EXITS_MAX 1000000u
#define RAX       0u
#define RSP       4u

static uint8_t vmcb[VMCB_BYTES] __attribute__((aligned(4096)));
static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
static uint64_t nested_pml4[512] __attribute__((aligned(4096)));
static uint64_t nested_pdpt[512] __attribute__((aligned(4096)));
static uint32_t busy;

/* What the intercepted instruction would have done to the guest. */
static void carry_out(const struct metal_svm_op *op)
{
    switch (op->what) {
    case METAL_SVM_CR3:
        *vmcb64(vmcb, VMCB_CR3) = op->operand & ~CR3_NO_FLUSH;
        break;
    case METAL_SVM_CR4:
        *vmcb64(vmcb, VMCB_CR4) = op->operand;
        break;
    case METAL_SVM_WBINVD:
        __asm__ volatile("wbinvd" : : : "memory");
        break;
    default:
        break;
    }
    vmcb[VMCB_TLB_CONTROL] = TLB_FLUSH_ALL;
}

/* One intercepted instruction; 0 when it is one, in a known form. */
static int record(uint64_t regs[16], struct metal_svm_op *op)
{
    const uint64_t ip = *vmcb64(vmcb, VMCB_RIP);
    unsigned length;

    regs[RAX] = *vmcb64(vmcb, VMCB_RAX);
    regs[RSP] = *vmcb64(vmcb, VMCB_RSP);
    length = metal_svm_decode((const uint8_t *)(uintptr_t)ip, regs, ip, op);
    if (length == 0)
        return METAL_E_INVAL;
    *vmcb64(vmcb, VMCB_RIP) = ip + length;
    carry_out(op);
    return METAL_OK;
}

static int unexpected(uint64_t exit)
{
    metal_printf("metal: recorded function ended by exit 0x%llx (0x%llx, 0x%llx) at 0x%llx\n",
                 (unsigned long long)exit, (unsigned long long)*vmcb64(vmcb, VMCB_EXIT_INFO1),
                 (unsigned long long)*vmcb64(vmcb, VMCB_EXIT_INFO2),
                 (unsigned long long)*vmcb64(vmcb, VMCB_RIP));
    return METAL_E_INVAL;
}

static int run_guest(uint64_t regs[16], struct metal_svm_op *log, unsigned max, unsigned *count)
{
    for (unsigned exits = 0; exits < EXITS_MAX; exits++) {
        struct metal_svm_op op;
        uint64_t exit;

        metal__svm_enter((uintptr_t)vmcb, regs);
        vmcb[VMCB_TLB_CONTROL] = 0;
        exit = *vmcb64(vmcb, VMCB_EXIT_CODE);
        switch (exit) {
        case EXIT_VMMCALL:
            return METAL_OK;
        case EXIT_INTR: /* taken by the host at STGI */
        case EXIT_NMI:
            continue;
        case EXIT_CR3_WRITE:
        case EXIT_CR4_WRITE:
        case EXIT_INVLPG:
        case EXIT_INVLPGA:
        case EXIT_WBINVD:
            break;
        default:
            return unexpected(exit);
        }
        if (record(regs, &op) != METAL_OK)
            return unexpected(exit);
        if (*count < max)
            log[*count] = op;
        (*count)++;
    }
    return METAL_E_FULL;
}

int metal_svm_record(metal_call_fn fn, void *arg, struct metal_svm_op *log, unsigned max,
                     unsigned *count)
{
    uint64_t regs[16] = {0};
    uint64_t flags;
    int result;

    *count = 0;
    if (!metal__svm_usable())
        return METAL_E_LACK;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0)
        return METAL_E_INVAL;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    metal__svm_on();
    metal__svm_identity(nested_pml4, nested_pdpt);
    metal__vmcb_make(vmcb, nested_pml4, flags, (uintptr_t)stack + STACK_BYTES);
    *vmcb32(vmcb, VMCB_INTERCEPT_CR) = CR3_WRITE | CR4_WRITE;
    *vmcb32(vmcb, VMCB_INTERCEPT_MISC) |= VMCB_MISC_INVLPG | VMCB_MISC_INVLPGA;
    *vmcb32(vmcb, VMCB_INTERCEPT_MISC2) |= VMCB_MISC2_WBINVD;
    *vmcb32(vmcb, VMCB_ASID) = ASID;
    vmcb[VMCB_TLB_CONTROL] = TLB_FLUSH_ALL;
    regs[3] = (uintptr_t)fn;
    regs[7] = (uintptr_t)arg;
    result = run_guest(regs, log, max, count);
    metal__svm_off();
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return result;
}
