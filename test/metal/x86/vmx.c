/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * vmx: INVEPT and INVVPID execute with the operands that the back-end gives them, for a CPU in VMX
 * operation. Nothing is stale across a VM exit in any emulator, so that this shows the encodings and
 * the success of each, and that an operand the CPU would refuse is refused before. Without VMX the
 * back-end must refuse to be made for it.
 */
#include "hosts/metal/x86/regs.h"
#include "test/metal/check.h"
#include "test/metal/forms.h"
#include "test/metal/x86/pair.h"

#define MSR_FEATURE_CONTROL 0x3au
#define MSR_VMX_BASIC       0x480u
#define MSR_CR0_FIXED0      0x486u
#define MSR_CR4_FIXED0      0x488u
#define CR4_VMXE            (1ull << 13)

static struct x86_pair pair;

/* Returns 0 when this CPU is in VMX operation. */
static int vmx_on(void)
{
    uint32_t *region = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    const uint64_t maddr = metal_maddr(region);
    const uint64_t control = rdmsr(MSR_FEATURE_CONTROL);
    uint8_t failed;

    if ((control & 1) == 0)
        wrmsr(MSR_FEATURE_CONTROL, control | 5); /* outside SMX allowed, locked */
    else if ((control & 4) == 0)
        return 1;
    write_cr0(read_cr0() | rdmsr(MSR_CR0_FIXED0));
    write_cr4(read_cr4() | rdmsr(MSR_CR4_FIXED0) | CR4_VMXE);
    *region = (uint32_t)rdmsr(MSR_VMX_BASIC) & 0x7fffffffu;
    __asm__ volatile("vmxon %1; setbe %0" : "=q"(failed) : "m"(maddr) : "cc", "memory");
    return failed;
}

static void check_one_form(const struct form *f, uint32_t regime, uint32_t id, uint64_t root)
{
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush =
        request(f, HVMEM_SCOPE_LOCAL, regime, id, &range, 0x7fff00000000ull);
    const char *last = NULL;

    if (regime == HVMEM_REGIME_STAGE2)
        range.start = 0x1234000;
    flush.space.root = root;
    x86_pair_learn(&pair);
    CHECK_EQUAL(pair.backend.ops->tlb_flush(&pair.backend, &flush), HVMEM_OK);
    CHECK_EQUAL(pair.twin.ops->tlb_flush(&pair.twin, &flush), HVMEM_OK);
    metal_printf("executed x86-64:");
    for (hvmem_u32 i = 0; i < pair.record.count; i++) {
        const char *name = x86_pair_insn_name(&pair.events[i]);

        if (name != NULL && name != last)
            metal_printf(" %s", name);
        last = name;
    }
    metal_printf(": %s %s\n", regime == HVMEM_REGIME_STAGE2 ? "stage2" : "guest", f->name);
}

static void check_refused(uint32_t regime, uint32_t id, uint64_t root)
{
    struct hvmem_tlb_range range;
    struct hvmem_tlb_flush flush = request(&forms[4], HVMEM_SCOPE_LOCAL, regime, id, &range, 0);

    flush.space.root = root;
    CHECK_EQUAL(pair.backend.ops->tlb_flush(&pair.backend, &flush), HVMEM_E_SPACE);
}

static int vmx(void)
{
    const struct hvmem_x86_config config = {.size = sizeof config, .flags = HVMEM_X86_VMX};
    const uint64_t eptp = 0x100000 | 3 << 3 | 6; /* four levels, write-back */
    const int has_vmx = (cpuid(1, 0).c >> 5 & 1) != 0;
    struct hvmem_x86 state;
    struct hvmem_backend backend;

    CHECK(!metal_arg_is("need", "vmx") || has_vmx);
    if (!has_vmx) {
        CHECK_EQUAL(hvmem_x86_init(&state, &backend, &config), HVMEM_E_UNSUPPORTED);
        return check_result();
    }
    if (!CHECK_EQUAL(vmx_on(), 0))
        return check_result();
    x86_pair_make(&pair, &config);
    for (unsigned i = 0; i < FORM_COUNT; i++) {
        check_one_form(&forms[i], HVMEM_REGIME_STAGE2, 7, eptp);
        check_one_form(&forms[i], HVMEM_REGIME_GUEST, 7, 0);
    }
    check_refused(HVMEM_REGIME_GUEST, 0, 0);
    check_refused(HVMEM_REGIME_GUEST, 0x10000, 0);
    check_refused(HVMEM_REGIME_STAGE2, 7, 0);
    __asm__ volatile("vmxoff" : : : "cc");
    return check_result();
}

METAL_PROGRAM(vmx, vmx);
