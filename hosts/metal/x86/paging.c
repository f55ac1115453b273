/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page tables of the image: RAM mapped one to one, and the test window, whose entries are written
 * without any invalidation.
 */
#include "regs.h"

#define GIB           (1ull << 30)
#define LOW_BYTES     (4 * GIB) /* mapped by entry.S with 2 MiB pages */
#define WINDOW_SLOT   64u       /* of the top table: RAM stays below 32 TiB */
#define WINDOW_BASE   ((uintptr_t)WINDOW_SLOT << 39)
#define WINDOW_TABLES 64u

extern uint64_t metal__pml4[512], metal__pdpt_low[512], metal__pd_low[2048];

static uint64_t window_pdpt[512] __attribute__((aligned(4096)));
static uint64_t window_table[WINDOW_TABLES][512] __attribute__((aligned(4096)));
static uint32_t window_tables_used;

void *metal_frame(uint64_t maddr)
{
    return (void *)(uintptr_t)maddr;
}

uint64_t metal_maddr(const void *pointer)
{
    return (uintptr_t)pointer;
}

static int has_1g_pages(void)
{
    return cpuid(0x80000000, 0).a >= 0x80000001 && (cpuid(0x80000001, 0).d >> 26 & 1) != 0;
}

/* Is there RAM in [base, base + bytes)? */
static int has_ram(uint64_t base, uint64_t bytes)
{
    for (uint32_t i = 0; i < metal__boot.mem_count; i++)
        if (metal__boot.mem[i].base < base + bytes &&
            base < metal__boot.mem[i].base + metal__boot.mem[i].bytes)
            return 1;
    return 0;
}

/* The entry of the table above for a present next table; NULL when memory for it is used up. */
static uint64_t *next_table(uint64_t *entry)
{
    uint64_t *table;

    if ((*entry & PTE_P) == 0) {
        table = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
        if (table == NULL)
            return NULL;
        *entry = (uintptr_t)table | PTE_P | PTE_W;
    }
    return metal_frame(*entry & PTE_ADDRESS);
}

static int map_gib(uint64_t base, int large)
{
    uint64_t *pdpt = base >> 39 < WINDOW_SLOT ? next_table(&metal__pml4[base >> 39]) : NULL;
    uint64_t *entry, *pd;

    if (pdpt == NULL)
        return METAL_E_FULL;
    entry = &pdpt[base >> 30 & 511];
    if (large) {
        *entry = base | PTE_P | PTE_W | PTE_PS;
        return METAL_OK;
    }
    pd = next_table(entry);
    if (pd == NULL)
        return METAL_E_FULL;
    for (unsigned i = 0; i < 512; i++)
        pd[i] = (base + ((uint64_t)i << 21)) | PTE_P | PTE_W | PTE_PS;
    return METAL_OK;
}

/* RAM from `end` upward is not reachable: taken off the map. */
static void drop_ram_from(uint64_t end)
{
    struct metal_boot *boot = &metal__boot;

    metal_printf("metal: RAM from 0x%llx on is not used: no memory for its page tables\n",
                 (unsigned long long)end);
    while (boot->mem_count > 0 && boot->mem[boot->mem_count - 1].base >= end)
        boot->mem_count--;
    if (boot->mem_count > 0) {
        struct metal_mem *last = &boot->mem[boot->mem_count - 1];

        if (last->base + last->bytes > end)
            last->bytes = end - last->base;
    }
}

void metal__paging_finish(void)
{
    const int large = has_1g_pages();
    const struct metal_mem *last;
    uint64_t top;

    if (metal__boot.mem_count == 0)
        return;
    last = &metal__boot.mem[metal__boot.mem_count - 1];
    top = last->base + last->bytes;
    for (unsigned i = 0; i < 2048; i++)
        if (!has_ram((uint64_t)i << 21, 1u << 21)) /* devices */
            metal__pd_low[i] |= PTE_PCD | PTE_PWT;
    for (uint64_t base = LOW_BYTES; base < top; base += GIB)
        if (has_ram(base, GIB) && map_gib(base, large) != METAL_OK) {
            drop_ram_from(base);
            break;
        }
    metal__pml4[WINDOW_SLOT] = (uintptr_t)window_pdpt | PTE_P | PTE_W;
    metal_flush_own();
}

const void *metal__firmware(uint64_t maddr, uint64_t bytes)
{
    if (maddr >= LOW_BYTES || bytes > LOW_BYTES - maddr)
        return NULL;
    return metal_frame(maddr);
}

/* Toggling CR4.PGE drops everything, globals and all PCIDs too (SDM vol. 3, 4.10.4.1). */
void metal_flush_own(void)
{
    const uint64_t irq = metal_irq_save();
    const uint64_t cr4 = read_cr4();

    write_cr4(cr4 & ~CR4_PGE);
    write_cr4(cr4 | CR4_PGE);
    if ((cr4 & CR4_PGE) == 0)
        write_cr4(cr4);
    metal_irq_restore(irq);
}

uintptr_t metal_window(void)
{
    return WINDOW_BASE;
}

/* Finds the entry for va at this size. With `make`, missing tables are added on the way. */
static int window_entry(uintptr_t va, unsigned size_shift, int make, uint64_t **entry)
{
    uint64_t *table = window_pdpt;
    unsigned shift = METAL_1G;

    if (va < WINDOW_BASE || va - WINDOW_BASE >= METAL_WINDOW_BYTES ||
        (size_shift != METAL_4K && size_shift != METAL_2M && size_shift != METAL_1G) ||
        (va & ((1ull << size_shift) - 1)) != 0)
        return METAL_E_INVAL;
    for (; shift > size_shift; shift -= 9) {
        uint64_t *e = &table[va >> shift & 511];

        if ((*e & (PTE_P | PTE_PS)) == (PTE_P | PTE_PS))
            return METAL_E_INVAL;
        if ((*e & PTE_P) == 0) {
            if (!make || window_tables_used == WINDOW_TABLES)
                return METAL_E_FULL;
            *e = (uintptr_t)window_table[window_tables_used++] | PTE_P | PTE_W;
        }
        table = metal_frame(*e & PTE_ADDRESS);
    }
    *entry = &table[va >> shift & 511];
    return METAL_OK;
}

static int is_table(uint64_t raw, unsigned size_shift)
{
    return size_shift != METAL_4K && (raw & (PTE_P | PTE_PS)) == PTE_P;
}

int metal_pte_write(uintptr_t va, unsigned size_shift, uint64_t raw)
{
    uint64_t *entry;
    const int result = window_entry(va, size_shift, 1, &entry);

    if (result != METAL_OK)
        return result;
    if (is_table(*entry, size_shift))
        return METAL_E_INVAL;
    /* Locked: visible to every walker when the function returns. */
    __atomic_exchange_n(entry, raw, __ATOMIC_SEQ_CST);
    return METAL_OK;
}

int metal_map(uintptr_t va, uint64_t maddr, unsigned size_shift, unsigned flags)
{
    uint64_t raw = maddr | PTE_P | (size_shift != METAL_4K ? PTE_PS : 0);

    if (size_shift > METAL_1G || (maddr & ((1ull << size_shift) - 1)) != 0 ||
        (maddr & ~PTE_ADDRESS) != 0)
        return METAL_E_INVAL;
    if (size_shift == METAL_1G && !has_1g_pages())
        return METAL_E_LACK;
    if ((flags & METAL_W) != 0)
        raw |= PTE_W;
    if ((flags & METAL_X) == 0)
        raw |= PTE_NX;
    if ((flags & METAL_G) != 0)
        raw |= PTE_G;
    return metal_pte_write(va, size_shift, (flags & METAL_P) != 0 ? raw : 0);
}

uint64_t metal_pte(uintptr_t va, unsigned size_shift)
{
    uint64_t *entry;

    return window_entry(va, size_shift, 0, &entry) == METAL_OK ? *entry : 0;
}

static void flush_call(void *arg)
{
    (void)arg;
    metal_flush_own();
}

void metal_window_clear(void)
{
    for (unsigned i = 0; i < METAL_WINDOW_BYTES / GIB; i++)
        window_pdpt[i] = 0;
    if (metal_call_cpus(metal_online(), flush_call, NULL) != METAL_OK)
        metal_panic("a CPU does not flush");
    for (uint32_t i = 0; i < window_tables_used; i++)
        for (unsigned k = 0; k < 512; k++)
            window_table[i][k] = 0;
    window_tables_used = 0;
}

size_t metal_code_return(void *to, uint16_t value)
{
    uint8_t *code = to;

    code[0] = 0xb8; /* mov $value, %eax */
    code[1] = (uint8_t)value;
    code[2] = (uint8_t)(value >> 8);
    code[3] = 0;
    code[4] = 0;
    code[5] = 0xc3; /* ret */
    return 6;
}

/* Instruction fetch of x86 sees stores; the CALL to new code is the serialisation that is needed. */
void metal_code_visible(const void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
    __asm__ volatile("" : : : "memory");
}
