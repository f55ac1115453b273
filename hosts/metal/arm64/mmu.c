/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage-1 tables of the image and of the test window (DDI 0487, D8.3). Entries only ever go from
 * invalid to valid in the identity part, which needs no invalidation; the window is the tests' own
 * and gets none by contract.
 */
#include "mmu.h"

#include "../common/boot.h"

#define ENTRIES       512u
#define TABLE_BYTES   4096u
#define HOST_TABLES   96u
#define WINDOW_TABLES 32u
#define WINDOW_BASE   0x400000000000ull /* root entry 128; RAM and devices lie below 64 TiB */

#define VALID       1ull
#define TABLE       2ull /* table at levels 0-2, page at level 3 */
#define ADDRESS     0x0000FFFFFFFFF000ull
#define ATTR_NORMAL (0ull << 2)
#define ATTR_DEVICE (1ull << 2)
#define AP_EL0      (1ull << 6) /* must be one at EL2 */
#define AP_READONLY (1ull << 7)
#define SH_INNER    (3ull << 8)
#define AF          (1ull << 10)
#define NG          (1ull << 11)
#define PXN         (1ull << 53)
#define UXN         (1ull << 54)

/* MAIR: 0 normal write-back, 1 Device-nGnRE. */
#define MAIR_VALUE 0x04FFull

typedef uint64_t table_t[ENTRIES];

static table_t host_pool[HOST_TABLES] __attribute__((aligned(4096)));
static table_t window_pool[WINDOW_TABLES] __attribute__((aligned(4096)));
static uint32_t host_used;   /* host_pool[0] is the root; written on the boot CPU only */
static uint32_t window_used; /* guarded by the caller: tests map from one CPU at a time */

static unsigned level_shift(unsigned level)
{
    return 39u - 9u * level;
}

static uint32_t index_at(uint64_t va, unsigned level)
{
    return (uint32_t)(va >> level_shift(level)) & (ENTRIES - 1);
}

/* Volatile access: the walkers of this and other CPUs read the tables. */
static uint64_t entry_read(const uint64_t *entry)
{
    return *(const volatile uint64_t *)entry;
}

static void entry_write(uint64_t *entry, uint64_t value)
{
    *(volatile uint64_t *)entry = value;
    dsb(ishst);
    isb();
}

static uint64_t *next_table(uint64_t entry)
{
    return (uint64_t *)(uintptr_t)(entry & ADDRESS);
}

static bool is_table(uint64_t entry, unsigned level)
{
    return level < 3 && (entry & (VALID | TABLE)) == (VALID | TABLE);
}

static uint64_t *take_table(table_t *pool, uint32_t *used, uint32_t limit)
{
    uint64_t *t;

    if (*used >= limit)
        return NULL;
    t = pool[(*used)++];
    for (uint32_t i = 0; i < ENTRIES; i++)
        t[i] = 0;
    return t;
}

static bool in_window(uint64_t va)
{
    return va >= WINDOW_BASE && va - WINDOW_BASE < METAL_WINDOW_BYTES;
}

/*
 * The entry for va at the given level. Missing tables are made (from the pool of va's part) when make
 * is set. NULL: no table leads there, or a larger entry stands in the way, or the pool is empty
 * (*full tells which).
 */
static uint64_t *entry_of(uint64_t va, unsigned level, bool make, bool *full)
{
    uint64_t *table = host_pool[0];

    *full = false;
    for (unsigned l = 0; l < level; l++) {
        uint64_t *entry = &table[index_at(va, l)];
        uint64_t value = entry_read(entry);

        if (!(value & VALID)) {
            uint64_t *fresh = NULL;

            if (make && in_window(va))
                fresh = take_table(window_pool, &window_used, WINDOW_TABLES);
            else if (make)
                fresh = take_table(host_pool, &host_used, HOST_TABLES);
            if (fresh == NULL) {
                *full = make;
                return NULL;
            }
            dsb(ishst);
            value = (uint64_t)(uintptr_t)fresh | VALID | TABLE;
            entry_write(entry, value);
        }
        if (!is_table(value, l))
            return NULL;
        table = next_table(value);
    }
    return &table[index_at(va, level)];
}

/* The part of a leaf that says what kind of entry it is at this level. */
static uint64_t leaf_kind(unsigned level)
{
    return level == 3 ? VALID | TABLE : VALID;
}

/*
 * Access bits. At EL2, and for guests of the monitor that share the tables, AP[1] is one; an image at
 * EL1 or under VHE keeps it zero, because what EL0 may write EL1 may not execute.
 */
static uint64_t leaf_access(bool writable, bool executable)
{
    uint64_t bits = AF | (writable ? 0 : AP_READONLY);

    if (is_plain_el2())
        return bits | AP_EL0 | (executable ? 0 : UXN);
    return bits | UXN | (executable ? 0 : PXN);
}

static uint64_t leaf_of(enum arm_attr attr)
{
    switch (attr) {
    case ARM_ATTR_CODE:
        return leaf_access(false, true) | ATTR_NORMAL | SH_INNER;
    case ARM_ATTR_RODATA:
        return leaf_access(false, false) | ATTR_NORMAL | SH_INNER;
    case ARM_ATTR_DEVICE:
        return leaf_access(true, false) | ATTR_DEVICE;
    default:
        return leaf_access(true, false) | ATTR_NORMAL | SH_INNER;
    }
}

/* One step of a mapping: the largest free entry at va that ends by `end`. Returns bytes done, 0 = full. */
static uint64_t map_step(uint64_t va, uint64_t end, uint64_t leaf)
{
    bool full = false;

    for (unsigned level = 1; level <= 3; level++) {
        uint64_t bytes = 1ull << level_shift(level);
        uint64_t *entry;

        if ((va & (bytes - 1)) != 0 || end - va < bytes)
            continue;
        entry = entry_of(va, level, true, &full);
        if (full)
            return 0;
        if (entry != NULL && is_table(entry_read(entry), level))
            continue; /* finer mappings stand here: fill between them */
        if (entry != NULL && !(entry_read(entry) & VALID))
            entry_write(entry, va | leaf | leaf_kind(level));
        return bytes;
    }
    return 0;
}

bool metal__arm_mmu_map(uint64_t base, uint64_t bytes, enum arm_attr attr)
{
    uint64_t va = base & ~(uint64_t)(TABLE_BYTES - 1);
    uint64_t end = (base + bytes + TABLE_BYTES - 1) & ~(uint64_t)(TABLE_BYTES - 1);
    uint64_t leaf = leaf_of(attr);

    if (bytes == 0)
        return true;
    if (base + bytes < base || end > WINDOW_BASE || end <= va)
        return false;
    while (va < end) {
        uint64_t done = map_step(va, end, leaf);

        if (done == 0)
            return false;
        va += done;
    }
    return true;
}

static void map_image(const char *from, const char *to, enum arm_attr attr)
{
    uint64_t base = (uint64_t)(uintptr_t)from;

    if (!metal__arm_mmu_map(base, (uint64_t)(uintptr_t)to - base, attr))
        metal__arm_early_panic("image does not fit the table pool\n");
}

void metal__arm_mmu_init(void)
{
    host_used = 0;
    window_used = 0;
    (void)take_table(host_pool, &host_used, HOST_TABLES);
    map_image(metal__image_start, metal__text_end, ARM_ATTR_CODE);
    map_image(metal__text_end, metal__data_start, ARM_ATTR_RODATA);
    map_image(metal__data_start, metal__image_end, ARM_ATTR_DATA);
}

uint64_t metal__arm_mmu_root(void)
{
    return (uint64_t)(uintptr_t)host_pool[0];
}

uint64_t metal__arm_mmu_tcr(unsigned el)
{
    uint64_t range = read_sysreg(id_aa64mmfr0_el1) & 0xF;
    uint64_t walk = 16u | (1u << 8) | (1u << 10) | (3u << 12); /* 48 bits, WB, inner shareable */

    if (range > 5)
        range = 5; /* 52-bit outputs need LPA2 entries, which these are not */
    if (el == 2)
        return walk | (range << 16) | (1ull << 23) | (1ull << 31);
    return walk | (range << 32) | (1ull << 23); /* EPD1: no upper half */
}

void metal__arm_mmu_registers(struct arm_cpu *cpu)
{
    cpu->ttbr = metal__arm_mmu_root();
    cpu->mair = MAIR_VALUE;
    cpu->tcr = metal__arm_mmu_tcr(is_plain_el2() ? 2 : 1);
    cpu->hcr = current_el() == 2 ? read_sysreg(hcr_el2) : 0;
    cpu->vectors = (uint64_t)(uintptr_t)metal__arm_vectors;
}

/* ---- the test window ---- */

uintptr_t metal_window(void)
{
    return WINDOW_BASE;
}

/* Level of an entry of this size, 0 = no such size. */
static unsigned level_of(unsigned size_shift)
{
    switch (size_shift) {
    case METAL_4K:
        return 3;
    case METAL_2M:
        return 2;
    case METAL_1G:
        return 1;
    default:
        return 0;
    }
}

static int window_entry(uintptr_t va, unsigned size_shift, bool make, uint64_t **entry)
{
    unsigned level = level_of(size_shift);
    bool full;

    if (level == 0 || !in_window(va) || (va & ((1ull << size_shift) - 1)) != 0)
        return METAL_E_INVAL;
    *entry = entry_of(va, level, make, &full);
    if (full)
        return METAL_E_FULL;
    if (*entry == NULL || is_table(entry_read(*entry), level))
        return METAL_E_INVAL;
    return METAL_OK;
}

int metal_map(uintptr_t va, uint64_t maddr, unsigned size_shift, unsigned flags)
{
    uint64_t *entry;
    uint64_t value = 0;
    int rc;

    if (level_of(size_shift) == 0 || (maddr & ((1ull << size_shift) - 1)) != 0 ||
        (maddr & ~ADDRESS) != 0)
        return METAL_E_INVAL;
    rc = window_entry(va, size_shift, true, &entry);
    if (rc != METAL_OK)
        return rc;
    if (flags & METAL_P) {
        value = maddr | leaf_kind(level_of(size_shift)) | ATTR_NORMAL | SH_INNER |
                leaf_access((flags & METAL_W) != 0, (flags & METAL_X) != 0);
        if (!is_plain_el2() && !(flags & METAL_G))
            value |= NG;
    }
    entry_write(entry, value);
    return METAL_OK;
}

uint64_t metal_pte(uintptr_t va, unsigned size_shift)
{
    uint64_t *entry;

    return window_entry(va, size_shift, false, &entry) == METAL_OK ? entry_read(entry) : 0;
}

int metal_pte_write(uintptr_t va, unsigned size_shift, uint64_t raw)
{
    uint64_t *entry;
    int rc = window_entry(va, size_shift, true, &entry);

    if (rc == METAL_OK)
        entry_write(entry, raw);
    return rc;
}

/* All CPUs, all of the regime the image runs in; at EL2 that of its guests too. */
static void flush_everywhere(void)
{
    dsb(ishst);
    if (is_plain_el2())
        __asm__ volatile("tlbi alle2is\n\ttlbi alle1is" ::: "memory");
    else
        __asm__ volatile("tlbi vmalle1is" ::: "memory");
    dsb(ish);
    isb();
}

void metal_window_clear(void)
{
    uint64_t *entry = &host_pool[0][index_at(WINDOW_BASE, 0)];

    entry_write(entry, 0);
    flush_everywhere();
    window_used = 0;
}

void metal_flush_own(void)
{
    dsb(nshst);
    if (is_plain_el2())
        __asm__ volatile("tlbi alle2\n\ttlbi alle1" ::: "memory");
    else
        __asm__ volatile("tlbi vmalle1" ::: "memory");
    dsb(nsh);
    isb();
}

/* ---- identity ---- */

void *metal_frame(uint64_t maddr)
{
    return (void *)(uintptr_t)maddr;
}

uint64_t metal_maddr(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}
