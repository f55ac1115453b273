/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The recorder of svm.h: a guest that is a second life of the image itself. Offsets and bits of the
 * VMCB are APM vol. 2, appendix B; exit codes appendix C.
 */
#include "regs.h"
#include "svm.h"

#define MSR_VM_CR    0xc0010114u
#define MSR_HSAVE_PA 0xc0010117u
#define VM_CR_LOCKED (1ull << 4)

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

#define CR3_WRITE     (1u << 19)
#define CR4_WRITE     (1u << 20)
#define MISC_INTR     (1u << 0)
#define MISC_NMI      (1u << 1)
#define MISC_INVLPG   (1u << 25)
#define MISC_INVLPGA  (1u << 26)
#define MISC_SHUTDOWN (1u << 31)
#define MISC2_VMRUN   (1u << 0)
#define MISC2_VMMCALL (1u << 1)
#define MISC2_WBINVD  (1u << 9)
#define TLB_FLUSH_ALL 1u
#define ASID          1u
#define CR3_NO_FLUSH  (1ull << 63)

#define EXIT_CR3_WRITE 0x13u
#define EXIT_CR4_WRITE 0x14u
#define EXIT_INTR      0x60u
#define EXIT_NMI       0x61u
#define EXIT_INVLPG    0x79u
#define EXIT_INVLPGA   0x7au
#define EXIT_VMMCALL   0x81u
#define EXIT_WBINVD    0x89u

#define EXITS_MAX 1000000u
#define RAX       0u
#define RSP       4u

typedef uint64_t __attribute__((may_alias)) word64;
typedef uint32_t __attribute__((may_alias)) word32;
typedef uint16_t __attribute__((may_alias)) word16;

static uint8_t vmcb[4096] __attribute__((aligned(4096)));
static uint8_t host_save[4096] __attribute__((aligned(4096)));
static uint8_t stack[STACK_BYTES] __attribute__((aligned(16)));
static uint64_t nested_pml4[512] __attribute__((aligned(4096)));
static uint64_t nested_pdpt[512] __attribute__((aligned(4096)));
static uint32_t busy;

void metal__svm_enter(uint64_t vmcb_maddr, uint64_t regs[16]);
extern uint8_t metal__svm_guest[];

static word64 *field64(unsigned at)
{
    return (word64 *)(void *)(vmcb + at);
}

static word32 *field32(unsigned at)
{
    return (word32 *)(void *)(vmcb + at);
}

static void segment(unsigned at, uint16_t selector, uint16_t attributes)
{
    *(word16 *)(void *)(vmcb + at) = selector;
    *(word16 *)(void *)(vmcb + at + 2) = attributes;
    *field32(at + 4) = 0xffffffffu;
    *field64(at + 8) = 0;
}

static int svm_usable(void)
{
    if (cpuid(0x80000000, 0).a < 0x8000000a || (cpuid(0x80000001, 0).c >> 2 & 1) == 0 ||
        (cpuid(0x8000000a, 0).d & 1) == 0)
        return 0;
    if ((cpuid(0x80000001, 0).d >> 26 & 1) == 0) /* 1 GiB pages, for the nested map */
        return 0;
    return (rdmsr(MSR_VM_CR) & VM_CR_LOCKED) == 0;
}

/* One to one; every level as a user mapping, for that is how nested walks are made. */
static void nested_setup(void)
{
    for (unsigned i = 0; i < 512; i++)
        nested_pdpt[i] = (uint64_t)i << 30 | PTE_P | PTE_W | PTE_U | PTE_PS;
    nested_pml4[0] = (uintptr_t)nested_pdpt | PTE_P | PTE_W | PTE_U;
}

static void control_setup(void)
{
    *field32(VMCB_INTERCEPT_CR) = CR3_WRITE | CR4_WRITE;
    *field32(VMCB_INTERCEPT_EXC) = 0xffffffffu;
    *field32(VMCB_INTERCEPT_MISC) =
        MISC_INTR | MISC_NMI | MISC_INVLPG | MISC_INVLPGA | MISC_SHUTDOWN;
    *field32(VMCB_INTERCEPT_MISC2) = MISC2_VMRUN | MISC2_VMMCALL | MISC2_WBINVD;
    *field32(VMCB_ASID) = ASID;
    *field64(VMCB_NESTED) = 1;
    *field64(VMCB_NESTED_CR3) = (uintptr_t)nested_pml4;
}

/* The guest begins as a copy of this CPU. */
static void state_setup(uint64_t flags)
{
    struct {
        uint16_t limit;
        uint64_t base;
    } __attribute__((packed)) table;

    __asm__ volatile("vmsave %0" : : "a"((uintptr_t)vmcb) : "memory");
    segment(VMCB_CS, SEL_CODE64, 0x29b);
    segment(VMCB_DS, SEL_DATA, 0xc93);
    segment(VMCB_ES, SEL_DATA, 0xc93);
    segment(VMCB_SS, SEL_DATA, 0xc93);
    __asm__ volatile("sgdt %0" : "=m"(table));
    *field32(VMCB_GDTR + 4) = table.limit;
    *field64(VMCB_GDTR + 8) = table.base;
    __asm__ volatile("sidt %0" : "=m"(table));
    *field32(VMCB_IDTR + 4) = table.limit;
    *field64(VMCB_IDTR + 8) = table.base;
    *field64(VMCB_EFER) = rdmsr(MSR_EFER);
    *field64(VMCB_CR0) = read_cr0();
    *field64(VMCB_CR3) = read_cr3();
    *field64(VMCB_CR4) = read_cr4();
    *field64(VMCB_DR7) = 0x400;
    *field64(VMCB_DR6) = 0xffff0ff0;
    *field64(VMCB_PAT) = rdmsr(MSR_PAT);
    *field64(VMCB_RFLAGS) = flags;
    *field64(VMCB_RIP) = (uintptr_t)metal__svm_guest;
    *field64(VMCB_RSP) = (uintptr_t)stack + STACK_BYTES;
}

/* What the intercepted instruction would have done to the guest. */
static void carry_out(const struct metal_svm_op *op)
{
    switch (op->what) {
    case METAL_SVM_CR3:
        *field64(VMCB_CR3) = op->operand & ~CR3_NO_FLUSH;
        break;
    case METAL_SVM_CR4:
        *field64(VMCB_CR4) = op->operand;
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
    const uint64_t ip = *field64(VMCB_RIP);
    unsigned length;

    regs[RAX] = *field64(VMCB_RAX);
    regs[RSP] = *field64(VMCB_RSP);
    length = metal_svm_decode((const uint8_t *)(uintptr_t)ip, regs, ip, op);
    if (length == 0)
        return METAL_E_INVAL;
    *field64(VMCB_RIP) = ip + length;
    carry_out(op);
    return METAL_OK;
}

static int unexpected(uint64_t exit)
{
    metal_printf("metal: recorded function ended by exit 0x%llx (0x%llx, 0x%llx) at 0x%llx\n",
                 (unsigned long long)exit, (unsigned long long)*field64(VMCB_EXIT_INFO1),
                 (unsigned long long)*field64(VMCB_EXIT_INFO2),
                 (unsigned long long)*field64(VMCB_RIP));
    return METAL_E_INVAL;
}

static int run_guest(uint64_t regs[16], struct metal_svm_op *log, unsigned max, unsigned *count)
{
    for (unsigned exits = 0; exits < EXITS_MAX; exits++) {
        struct metal_svm_op op;
        uint64_t exit;

        metal__svm_enter((uintptr_t)vmcb, regs);
        vmcb[VMCB_TLB_CONTROL] = 0;
        exit = *field64(VMCB_EXIT_CODE);
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
    if (!svm_usable())
        return METAL_E_LACK;
    if (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0)
        return METAL_E_INVAL;
    __asm__ volatile("pushfq; popq %0" : "=r"(flags));
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) | EFER_SVME);
    wrmsr(MSR_HSAVE_PA, (uintptr_t)host_save);
    for (unsigned i = 0; i < sizeof vmcb; i += 8)
        *field64(i) = 0;
    nested_setup();
    control_setup();
    state_setup(flags);
    vmcb[VMCB_TLB_CONTROL] = TLB_FLUSH_ALL;
    regs[3] = (uintptr_t)fn;
    regs[7] = (uintptr_t)arg;
    result = run_guest(regs, log, max, count);
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) & ~EFER_SVME);
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return result;
}
