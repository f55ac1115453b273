/* SPDX-License-Identifier: BSD-2-Clause */
/* Stage-2 tables for guests of the monitor (DDI 0487, D8.3, stage 2; formats of 4 KiB granule). */
#include "stage2.h"

#include "cpu.h"

#define ENTRIES 512u
#define VALID   1ull
#define TABLE   2ull
#define ADDRESS 0x0000FFFFFFFFF000ull
#define NORMAL  (0xFull << 2) /* write-back */
#define DEVICE  (1ull << 2)   /* nGnRE */
#define READ    (1ull << 6)
#define WRITE   (1ull << 7)
#define INNER   (3ull << 8)
#define AF      (1ull << 10)
#define XN      (1ull << 54)

int metal_s2_init(struct metal_s2 *s2)
{
    uint64_t range = read_sysreg(id_aa64mmfr0_el1) & 0xF;

    if (!is_plain_el2())
        return METAL_E_LACK;
    if (range > 5)
        range = 5;
    s2->root = metal_pages(8192, 8192);
    if (s2->root == NULL)
        return METAL_E_FULL;
    /* T0SZ, start level 1, write-back inner-shareable walks, physical size; bit 31 must be one. */
    s2->vtcr = (64 - METAL_S2_IPA_BITS) | (1u << 6) | (1u << 8) | (1u << 10) | (3u << 12) |
               (range << 16) | (1ull << 31);
    return METAL_OK;
}

static unsigned level_of(unsigned size_shift)
{
    return (39u - size_shift) / 9u; /* 30 -> 1, 21 -> 2, 12 -> 3 */
}

static void entry_write(uint64_t *entry, uint64_t value)
{
    *(volatile uint64_t *)entry = value;
    dsb(ishst);
}

/* As metal_s2_entry; *full: a table was missing and no memory is left for it. */
static uint64_t *find(struct metal_s2 *s2, uint64_t ipa, unsigned level, int make, int *full)
{
    uint64_t *entry = &s2->root[ipa >> 30];

    *full = 0;
    for (unsigned l = 1; l < level; l++) {
        uint64_t value = *(volatile uint64_t *)entry;

        if (!(value & VALID)) {
            void *table = make ? metal_pages(4096, 4096) : NULL;

            if (table == NULL) {
                *full = make;
                return NULL;
            }
            dsb(ishst);
            value = metal_maddr(table) | VALID | TABLE;
            entry_write(entry, value);
        }
        if (!(value & TABLE))
            return NULL;
        entry = (uint64_t *)metal_frame(value & ADDRESS) +
                (ipa >> (39u - 9u * (l + 1)) & (ENTRIES - 1));
    }
    return entry;
}

static int size_ok(unsigned size_shift)
{
    return size_shift == METAL_4K || size_shift == METAL_2M || size_shift == METAL_1G;
}

int metal_s2_map(struct metal_s2 *s2, uint64_t ipa, uint64_t maddr, unsigned size_shift,
                 unsigned flags)
{
    const uint64_t mask = (1ull << size_shift) - 1;
    uint64_t value = 0;
    uint64_t *entry;
    int full;

    if (!size_ok(size_shift) || ((ipa | maddr) & mask) != 0 || ipa >> METAL_S2_IPA_BITS != 0 ||
        (maddr & ~ADDRESS) != 0)
        return METAL_E_INVAL;
    entry = find(s2, ipa, level_of(size_shift), 1, &full);
    if (entry == NULL)
        return full ? METAL_E_FULL : METAL_E_INVAL;
    if (size_shift != METAL_4K && (*entry & (VALID | TABLE)) == (VALID | TABLE))
        return METAL_E_INVAL;
    if (flags != 0)
        value = maddr | VALID | (size_shift == METAL_4K ? TABLE : 0) |
                (flags & METAL_S2_DEVICE ? DEVICE : NORMAL | INNER) |
                (flags & METAL_S2_R ? READ : 0) | (flags & METAL_S2_W ? WRITE : 0) |
                (flags & METAL_S2_X ? 0 : XN) | (flags & METAL_S2_AF ? AF : 0);
    entry_write(entry, value);
    return METAL_OK;
}

/* Identity for [base, end), page aligned. */
static int map_range(struct metal_s2 *s2, uint64_t base, uint64_t end, unsigned flags)
{
    while (base < end) {
        unsigned shift = METAL_1G;
        int rc = METAL_E_INVAL;

        /* The largest size that fits and has no table in its way. */
        for (; shift >= METAL_4K && rc == METAL_E_INVAL; shift -= 9u)
            if ((base & ((1ull << shift) - 1)) == 0 && end - base >= 1ull << shift)
                rc = metal_s2_map(s2, base, base, shift, flags);
        if (rc != METAL_OK)
            return rc;
        base += 1ull << (shift + 9u);
    }
    return METAL_OK;
}

int metal_s2_map_all(struct metal_s2 *s2)
{
    const struct metal_boot *boot = metal_boot_info();
    int rc =
        metal_s2_map(s2, 0, 0, METAL_1G, METAL_S2_R | METAL_S2_W | METAL_S2_AF | METAL_S2_DEVICE);

    for (uint32_t i = 0; i < boot->mem_count && rc == METAL_OK; i++)
        rc = map_range(s2, boot->mem[i].base, boot->mem[i].base + boot->mem[i].bytes, METAL_S2_RWX);
    return rc;
}

uint64_t *metal_s2_entry(struct metal_s2 *s2, uint64_t ipa, unsigned size_shift)
{
    int full;

    if (!size_ok(size_shift) || ipa >> METAL_S2_IPA_BITS != 0)
        return NULL;
    return find(s2, ipa, level_of(size_shift), 0, &full);
}

uint64_t metal_s2_vttbr(const struct metal_s2 *s2, uint16_t vmid)
{
    return metal_maddr(s2->root) | (uint64_t)vmid << 48;
}
