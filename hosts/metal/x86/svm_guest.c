/* SPDX-License-Identifier: BSD-2-Clause */
/* The guests of svm_guest.h. */
#include "svm_guest.h"
#include "svm_vmcb.h"

#define RFLAGS_IF (1ull << 9)
#define RFLAGS_1  (1ull << 1)
#define RBX       3u
#define RDI       7u

static uint64_t *page(void)
{
    return metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
}

static void restart(struct metal_svm_guest *g)
{
    metal__vmcb_restart(g->vmcb, g->stack_top);
    g->regs[RBX] = (uintptr_t)g->fn;
    g->regs[RDI] = (uintptr_t)g->arg;
}

void metal_svm_guest_call(struct metal_svm_guest *g, metal_call_fn fn, void *arg)
{
    g->fn = fn;
    g->arg = arg;
    restart(g);
}

int metal_svm_guest_make(struct metal_svm_guest *g, metal_call_fn fn, void *arg)
{
    uint64_t *const pml4 = page();
    uint8_t *const stack = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);

    *g = (struct metal_svm_guest){.vmcb = metal_pages(VMCB_BYTES, METAL_PAGE_BYTES)};
    g->pdpt = page();
    if (pml4 == NULL || stack == NULL || g->vmcb == NULL || g->pdpt == NULL)
        return METAL_E_FULL;
    if (!metal__svm_usable())
        return METAL_E_LACK;
    metal__svm_on();
    metal__svm_identity(pml4, g->pdpt);
    g->stack_top = (uintptr_t)stack + METAL_PAGE_BYTES;
    metal__vmcb_make(g->vmcb, pml4, RFLAGS_IF | RFLAGS_1, g->stack_top);
    metal_svm_guest_call(g, fn, arg);
    return METAL_OK;
}

/* The large entry becomes a table of `shift`-sized pages that map the same; NULL without memory. */
static uint64_t *split(uint64_t *entry, unsigned shift)
{
    const uint64_t base = *entry & PTE_ADDRESS;
    uint64_t *const table = page();

    if (table == NULL)
        return NULL;
    for (uint64_t i = 0; i < 512; i++)
        table[i] = base | i << shift | PTE_P | PTE_W | PTE_U | (shift == METAL_2M ? PTE_PS : 0);
    *entry = (uintptr_t)table | PTE_P | PTE_W | PTE_U;
    return table;
}

int metal_svm_guest_place(struct metal_svm_guest *g, uint64_t gpa, uint64_t maddr)
{
    uint64_t *large;

    if (gpa >> 39 != 0 || (gpa & 0xfff) != 0 || (maddr & 0xfff) != 0)
        return METAL_E_INVAL;
    large = &g->pdpt[gpa >> 30];
    if (g->pd == NULL && (g->pd = split(large, METAL_2M)) == NULL)
        return METAL_E_FULL;
    if ((*large & PTE_ADDRESS) != (uintptr_t)g->pd)
        return METAL_E_INVAL;
    large = &g->pd[gpa >> 21 & 511];
    if (g->pt == NULL && (g->pt = split(large, METAL_4K)) == NULL)
        return METAL_E_FULL;
    if ((*large & PTE_ADDRESS) != (uintptr_t)g->pt)
        return METAL_E_INVAL;
    __atomic_store_n(&g->pt[gpa >> 12 & 511], maddr | PTE_P | PTE_W | PTE_U, __ATOMIC_SEQ_CST);
    return METAL_OK;
}

int metal_svm_guest_run(struct metal_svm_guest *g, uint32_t asid, uint8_t tlb_control)
{
    uint64_t exit;

    if (asid == 0)
        return METAL_E_INVAL;
    metal__vmcb_copy_cpu(g->vmcb);
    *vmcb32(g->vmcb, VMCB_ASID) = asid;
    g->vmcb[VMCB_TLB_CONTROL] = tlb_control;
    metal__svm_enter((uintptr_t)g->vmcb, g->regs);
    g->vmcb[VMCB_TLB_CONTROL] = 0;
    exit = *vmcb64(g->vmcb, VMCB_EXIT_CODE);
    switch (exit) {
    case EXIT_VMMCALL:
        restart(g);
        return METAL_SVM_RETURNED;
    case EXIT_INTR: /* taken by the host at STGI */
    case EXIT_NMI:
        return METAL_SVM_KICKED;
    default:
        metal_printf("metal: guest ended by exit 0x%llx (0x%llx, 0x%llx) at 0x%llx\n",
                     (unsigned long long)exit,
                     (unsigned long long)*vmcb64(g->vmcb, VMCB_EXIT_INFO1),
                     (unsigned long long)*vmcb64(g->vmcb, VMCB_EXIT_INFO2),
                     (unsigned long long)*vmcb64(g->vmcb, VMCB_RIP));
        return METAL_E_INVAL;
    }
}

void metal_svm_guests_begin(void)
{
    metal__svm_on();
}

void metal_svm_guests_end(void)
{
    metal__svm_off();
}
