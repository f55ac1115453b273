/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ACPI tables: CPUs from MADT, nodes from SRAT, distances from SLIT, found by RSDP through XSDT or
 * RSDT (ACPI specification, 5.2). Nothing is believed beyond a table's checked length.
 */
#include "boot.h"

#define HEADER_BYTES 36u
#define TABLES_MAX   128u
#define TABLE_LIMIT  (16u << 20) /* a longer table is taken for garbage */

struct metal__acpi_found metal__acpi_found;

static uint32_t get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static int sums_to_zero(const uint8_t *p, uint32_t bytes)
{
    uint8_t sum = 0;

    for (uint32_t i = 0; i < bytes; i++)
        sum = (uint8_t)(sum + p[i]);
    return sum == 0;
}

static int is_signature(const uint8_t *p, const char *name, unsigned length)
{
    for (unsigned i = 0; i < length; i++)
        if (p[i] != (uint8_t)name[i])
            return 0;
    return 1;
}

/* The table at this address if its length and checksum are right, else NULL and a report. */
static const uint8_t *table_at(uint64_t maddr)
{
    const uint8_t *t = metal__firmware(maddr, HEADER_BYTES);
    uint32_t length;

    if (t == NULL) {
        metal_printf("metal: ACPI table at 0x%llx out of reach\n", (unsigned long long)maddr);
        return NULL;
    }
    length = get32(t + 4);
    if (length < HEADER_BYTES || length > TABLE_LIMIT || metal__firmware(maddr, length) == NULL ||
        !sums_to_zero(t, length)) {
        metal_printf("metal: ACPI table at 0x%llx has a bad length or checksum, ignored\n",
                     (unsigned long long)maddr);
        return NULL;
    }
    metal__reserve(maddr, length, "ACPI table");
    return t;
}

static void madt_record(const uint8_t *r, unsigned length)
{
    switch (r[0]) {
    case 0:
        if (length >= 8 && (get32(r + 4) & 1) != 0)
            metal__cpu_add(r[3]);
        break;
    case 9:
        if (length >= 16 && (get32(r + 8) & 1) != 0)
            metal__cpu_add(get32(r + 4));
        break;
    case 11:
        if (length >= 76 && (get32(r + 12) & 1) != 0)
            metal__cpu_add(get64(r + 68));
        break;
    case 12:
        if (length >= 16)
            metal__acpi_found.gicd = get64(r + 8);
        break;
    case 14:
        if (length >= 16 && metal__acpi_found.gicr == 0) {
            metal__acpi_found.gicr = get64(r + 4);
            metal__acpi_found.gicr_bytes = get32(r + 12);
        }
        break;
    default:
        break;
    }
}

/* MPIDR of the GICC record with this ACPI processor uid, ~0 when there is none. */
static uint64_t mpidr_of(const uint8_t *madt, uint32_t uid)
{
    for (uint32_t at = 44; madt != NULL && at + 2 <= get32(madt + 4);) {
        const uint8_t *r = madt + at;

        if (r[1] < 2 || at + r[1] > get32(madt + 4))
            break;
        if (r[0] == 11 && r[1] >= 76 && get32(r + 8) == uid)
            return get64(r + 68);
        at += r[1];
    }
    return ~0ull;
}

static void srat_record(const uint8_t *r, unsigned length, const uint8_t *madt)
{
    switch (r[0]) {
    case 0:
        if (length >= 16 && (get32(r + 4) & 1) != 0)
            metal__cpu_domain(r[3], r[2] | (get32(r + 8) & 0xffffff00u));
        break;
    case 1:
        if (length >= 40 && (get32(r + 28) & 1) != 0)
            metal__affinity_add(get32(r + 2), get64(r + 8), get64(r + 16));
        break;
    case 2:
        if (length >= 24 && (get32(r + 12) & 1) != 0)
            metal__cpu_domain(get32(r + 8), get32(r + 4));
        break;
    case 3:
        if (length >= 18 && (get32(r + 10) & 1) != 0)
            metal__cpu_domain(mpidr_of(madt, get32(r + 6)), get32(r + 2));
        break;
    default:
        break;
    }
}

/* Walks the records of MADT (madt = NULL while it is that table itself) or SRAT. */
static void records(const uint8_t *table, uint32_t first, const uint8_t *madt, int srat)
{
    const uint32_t length = get32(table + 4);

    for (uint32_t at = first; at + 2 <= length;) {
        const uint8_t *r = table + at;

        if (r[1] < 2 || at + r[1] > length) {
            metal_printf("metal: %s record at offset %u has a bad length, the rest is ignored\n",
                         srat ? "SRAT" : "MADT", at);
            return;
        }
        if (srat)
            srat_record(r, r[1], madt);
        else
            madt_record(r, r[1]);
        at += r[1];
    }
}

static void slit(const uint8_t *table)
{
    const uint64_t length = get32(table + 4);
    const uint64_t n = length >= 44 ? get64(table + 36) : 0;

    if (n == 0 || n > 4096 || 44 + n * n > length) {
        metal_printf("metal: SLIT of %llu domains does not fit its length, ignored\n",
                     (unsigned long long)n);
        return;
    }
    for (uint32_t from = 0; from < n; from++)
        for (uint32_t to = 0; to < n; to++)
            if (from != to && metal__domain_exists(from) && metal__domain_exists(to))
                metal__distance(from, to, table[44 + from * n + to]);
}

/* Finds the tables by RSDT (4-byte pointers) or XSDT (8-byte). */
static void root_table(const uint8_t *root, unsigned pointer_bytes)
{
    const uint8_t *madt = NULL, *srat_table = NULL, *slit_table = NULL;
    const uint32_t count = (get32(root + 4) - HEADER_BYTES) / pointer_bytes;

    for (uint32_t i = 0; i < count && i < TABLES_MAX; i++) {
        const uint8_t *p = root + HEADER_BYTES + i * pointer_bytes;
        const uint8_t *t = table_at(pointer_bytes == 8 ? get64(p) : get32(p));

        if (t == NULL)
            continue;
        if (is_signature(t, "APIC", 4))
            madt = t;
        else if (is_signature(t, "SRAT", 4))
            srat_table = t;
        else if (is_signature(t, "SLIT", 4))
            slit_table = t;
    }
    if (madt != NULL && get32(madt + 4) >= 44) {
        metal__acpi_found.lapic = get32(madt + 36);
        records(madt, 44, NULL, 0);
    }
    if (srat_table != NULL)
        records(srat_table, 48, madt, 1);
    if (slit_table != NULL)
        slit(slit_table);
}

int metal__acpi(uint64_t rsdp)
{
    const uint8_t *p = metal__firmware(rsdp, 20);
    const uint8_t *root;

    if (p == NULL || !is_signature(p, "RSD PTR ", 8) || !sums_to_zero(p, 20))
        return METAL_E_INVAL;
    metal__reserve(rsdp, 36, "RSDP");
    if (p[15] >= 2 && metal__firmware(rsdp, 36) != NULL && get64(p + 24) != 0 &&
        sums_to_zero(p, 36)) {
        root = table_at(get64(p + 24));
        if (root != NULL && is_signature(root, "XSDT", 4)) {
            root_table(root, 8);
            return METAL_OK;
        }
    }
    root = table_at(get32(p + 16));
    if (root == NULL || !is_signature(root, "RSDT", 4))
        return METAL_E_INVAL;
    root_table(root, 4);
    return METAL_OK;
}
