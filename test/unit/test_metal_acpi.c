/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The metal host's reading of ACPI tables and of firmware memory maps: nodes from the overlap of SRAT
 * with the map, root tables of both kinds, and every kind of bad entry, which is named while the rest
 * is used. The tables are written here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hosts/metal/common/args.c"
#include "hosts/metal/common/numa.c"
#include "hosts/metal/common/acpi.c"
#include "test/support/test_main.h"

#define MIB (1ull << 20)

/* ---- the parts of the host that the code under test calls ---- */

#define FIRMWARE_AT 0x7fe0000ull

struct metal_boot metal__boot;
static uint8_t firmware[65536];
static char printed[16384];
static size_t printed_bytes;

void metal_printf(const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(printed + printed_bytes, sizeof printed - printed_bytes, format, args);
    va_end(args);
    if (n > 0 && printed_bytes + (size_t)n < sizeof printed)
        printed_bytes += (size_t)n;
}

const void *metal__firmware(uint64_t maddr, uint64_t bytes)
{
    if (maddr < FIRMWARE_AT || bytes > sizeof firmware ||
        maddr - FIRMWARE_AT > sizeof firmware - bytes)
        return NULL;
    return firmware + (maddr - FIRMWARE_AT);
}

static void host_reset(void)
{
    memset(&metal__boot, 0, sizeof metal__boot);
    memset(&metal__acpi_found, 0, sizeof metal__acpi_found);
    ram.count = holes.count = affinity.count = 0;
    domain_count = distance_count = 0;
    printed_bytes = 0;
    printed[0] = 0;
}

/* ---- a writer of tables ---- */

static uint32_t used, table_start;

static void put(uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        firmware[used++] = (uint8_t)(i < 8 ? value >> (8 * i) : 0);
}

static void checksum_set(uint32_t start, uint32_t bytes, uint32_t at)
{
    uint8_t sum = 0;

    firmware[at] = 0;
    for (uint32_t i = 0; i < bytes; i++)
        sum = (uint8_t)(sum + firmware[start + i]);
    firmware[at] = (uint8_t)-sum;
}

/* Tables lie on odd addresses on purpose: firmware promises no alignment. */
static void table_begin(const char *signature)
{
    used |= 1;
    table_start = used;
    memset(firmware + used, 0, 36);
    memcpy(firmware + used, signature, 4);
    used += 36;
}

static uint64_t table_end(void)
{
    const uint32_t bytes = used - table_start;

    for (unsigned i = 0; i < 4; i++)
        firmware[table_start + 4 + i] = (uint8_t)(bytes >> (8 * i));
    checksum_set(table_start, bytes, table_start + 9);
    return FIRMWARE_AT + table_start;
}

static void madt_cpu(unsigned apic, unsigned flags)
{
    put(0, 1);
    put(8, 1);
    put(apic, 1);
    put(apic, 1);
    put(flags, 4);
}

static void srat_cpu(uint32_t domain, unsigned apic)
{
    put(0, 1);
    put(16, 1);
    put(domain & 0xff, 1);
    put(apic, 1);
    put(1, 4);
    put(0, 1);
    put(domain >> 8, 3);
    put(0, 4);
}

static void srat_memory(uint32_t domain, uint64_t base, uint64_t bytes, unsigned flags)
{
    put(1, 1);
    put(40, 1);
    put(domain, 4);
    put(0, 2);
    put(base, 8);
    put(bytes, 8);
    put(0, 4);
    put(flags, 4);
    put(0, 8);
}

static uint64_t usual_madt(void)
{
    table_begin("APIC");
    put(0xfee00000u, 4);
    put(1, 4);
    for (unsigned i = 0; i < 4; i++)
        madt_cpu(i, 1);
    madt_cpu(9, 0); /* not enabled */
    put(0xff, 1);   /* a kind nobody knows */
    put(6, 1);
    put(0, 4);
    return table_end();
}

/* Domains 3 and 70000: sparse and beyond a byte. Disabled entries of length 0 at the end. */
static uint64_t usual_srat(void)
{
    table_begin("SRAT");
    put(0, 12);
    for (unsigned i = 0; i < 4; i++)
        srat_cpu(i < 2 ? 70000 : 3, i);
    srat_memory(3, 0, 0xa0000, 1);
    srat_memory(3, MIB, 63 * MIB, 1);
    srat_memory(70000, 64 * MIB + 100, 64 * MIB - 100, 1);
    srat_memory(0, 0, 0, 0);
    srat_memory(0, 0, 0, 0);
    return table_end();
}

static uint64_t usual_slit(void)
{
    table_begin("SLIT");
    put(4, 8);
    for (unsigned from = 0; from < 4; from++)
        for (unsigned to = 0; to < 4; to++)
            put(from == to ? 10 : 17, 1);
    return table_end();
}

static uint64_t root_of(unsigned pointer_bytes, const uint64_t *tables, unsigned count)
{
    uint64_t root, rsdp;

    table_begin(pointer_bytes == 8 ? "XSDT" : "RSDT");
    for (unsigned i = 0; i < count; i++)
        put(tables[i], pointer_bytes);
    root = table_end();
    used = (used + 15) & ~15u;
    rsdp = used;
    memcpy(firmware + used, "RSD PTR ", 8);
    used += 8;
    put(0, 7);
    put(pointer_bytes == 8 ? 2 : 0, 1);
    put(pointer_bytes == 8 ? 0 : root, 4);
    put(36, 4);
    put(pointer_bytes == 8 ? root : 0, 8);
    put(0, 4);
    checksum_set((uint32_t)rsdp, 20, (uint32_t)rsdp + 8);
    checksum_set((uint32_t)rsdp, 36, (uint32_t)rsdp + 32);
    return FIRMWARE_AT + rsdp;
}

static uint64_t usual_tables(unsigned pointer_bytes)
{
    uint64_t tables[3];

    memset(firmware, 0, sizeof firmware);
    used = 0;
    tables[0] = usual_madt();
    tables[1] = usual_srat();
    tables[2] = usual_slit();
    return root_of(pointer_bytes, tables, 3);
}

static void usual_map(void)
{
    metal__map_add(0, 0x9fc00, METAL_MAP_RAM);
    metal__map_add(0x9fc00, 0x400, METAL_MAP_RESERVED);
    metal__map_add(0xf0000, 0x10000, METAL_MAP_RESERVED);
    metal__map_add(MIB, 127 * MIB, METAL_MAP_RAM);
    metal__map_add(0xfffc0000, 0x40000, METAL_MAP_RESERVED);
}

/* What holds whatever firmware says. */
static void check_invariants(void)
{
    const struct metal_boot *b = &metal__boot;

    CHECK(b->mem_count <= METAL_MAX_MEM && b->reserved_count <= METAL_MAX_RESERVED);
    CHECK(b->node_count >= 1 && b->node_count <= METAL_MAX_NODES);
    CHECK(b->cpu_count >= 1 && b->cpu_count <= METAL_MAX_CPUS);
    for (uint32_t i = 0; i < b->mem_count; i++) {
        CHECK(b->mem[i].bytes != 0 && ((b->mem[i].base | b->mem[i].bytes) & 0xfff) == 0);
        CHECK(b->mem[i].node < b->node_count);
        CHECK(i == 0 || b->mem[i].base >= b->mem[i - 1].base + b->mem[i - 1].bytes);
    }
    for (uint32_t i = 0; i < b->cpu_count; i++)
        CHECK(b->cpu[i].node < b->node_count);
    for (uint32_t i = 0; i < b->node_count; i++)
        for (uint32_t j = 0; j < b->node_count; j++)
            CHECK(i == j ? b->distance[i][j] == 10 : b->distance[i][j] >= 10);
}

/* ---- whole machines ---- */

static void check_usual(void)
{
    const struct metal_boot *b = &metal__boot;

    check_invariants();
    CHECK_EQ(metal__acpi_found.lapic, 0xfee00000u);
    CHECK_EQ(b->cpu_count, 4);
    CHECK_EQ(b->cpu[0].hw_id, 2); /* the booting one comes first */
    CHECK_EQ(b->cpu[0].node, 0);
    CHECK_EQ(b->cpu[1].hw_id, 0);
    CHECK_EQ(b->cpu[1].node, 1);
    CHECK_EQ(b->node_count, 2);
    CHECK_EQ(b->node_id[0], 3);
    CHECK_EQ(b->node_id[1], 70000);
    CHECK_EQ(b->distance[0][1], 20); /* SLIT has no row for domain 70000 */
    CHECK_EQ(b->mem_count, 3);
    CHECK_EQ(b->mem[0].bytes, 0x9f000);
    CHECK_EQ(b->mem[1].base, MIB);
    CHECK_EQ(b->mem[1].bytes,
             63 * MIB + 0x1000); /* the page on the border goes to the lower node */
    CHECK_EQ(b->mem[1].node, 0);
    CHECK_EQ(b->mem[2].bytes, 64 * MIB - 0x1000);
    CHECK_EQ(b->mem[2].node, 1);
    CHECK_EQ(b->map_bad, 0);
    CHECK_EQ(printed_bytes, 0);
}

TEST(rsdt_of_revision_0)
{
    host_reset();
    REQUIRE_EQ(metal__acpi(usual_tables(4)), METAL_OK);
    usual_map();
    metal__map_finish(2);
    check_usual();
    CHECK_EQ(metal__boot.reserved_count, 1); /* all tables lie in one page */
    CHECK_EQ(metal__boot.reserved[0].base, FIRMWARE_AT);
}

TEST(xsdt_of_revision_2)
{
    host_reset();
    REQUIRE_EQ(metal__acpi(usual_tables(8)), METAL_OK);
    usual_map();
    metal__map_finish(2);
    check_usual();
}

TEST(slit_gives_distances)
{
    uint64_t tables[2];

    host_reset();
    memset(firmware, 0, sizeof firmware);
    used = 0;
    table_begin("SRAT");
    put(0, 12);
    srat_memory(0, 0, 64 * MIB, 1);
    srat_memory(2, 64 * MIB, 64 * MIB, 1);
    tables[0] = table_end();
    table_begin("SLIT");
    put(3, 8);
    for (unsigned i = 0; i < 9; i++) {
        static const uint8_t rows[9] = {10, 99, 31, 99, 10, 99, 5 /* below 10 */, 99, 10};

        put(rows[i], 1);
    }
    tables[1] = table_end();
    REQUIRE_EQ(metal__acpi(root_of(4, tables, 2)), METAL_OK);
    usual_map();
    metal__map_finish(0);
    check_invariants();
    CHECK_EQ(metal__boot.node_count, 2);
    CHECK_EQ(metal__boot.distance[0][1], 31);
    CHECK_EQ(metal__boot.distance[1][0], 31); /* the bad value: the other direction counts */
    CHECK(strstr(printed, "below 10") != NULL);
}

TEST(no_tables_is_one_node_one_cpu)
{
    host_reset();
    memset(firmware, 0, sizeof firmware);
    CHECK_EQ(metal__acpi(FIRMWARE_AT), METAL_E_INVAL);
    CHECK_EQ(metal__acpi(1), METAL_E_INVAL);
    usual_map();
    metal__map_finish(7);
    check_invariants();
    CHECK_EQ(metal__boot.cpu_count, 1);
    CHECK_EQ(metal__boot.cpu[0].hw_id, 7);
    CHECK_EQ(metal__boot.node_count, 1);
}

/* ---- bad entries ---- */

TEST(bad_map_entries_are_named_and_the_rest_is_used)
{
    host_reset();
    metal__map_add(0, 0, METAL_MAP_RAM);
    metal__map_add(~0ull - 0xfff, 0x2000, METAL_MAP_RAM);
    metal__map_add(1ull << 52, 0x1000, METAL_MAP_RAM);
    metal__map_add(MIB, 4 * MIB, METAL_MAP_RAM);
    metal__map_add(3 * MIB, 4 * MIB, METAL_MAP_RAM);           /* overlaps entry 3 */
    metal__map_add(2 * MIB + 100, 50, METAL_MAP_RESERVED);     /* inside RAM: its page is lost */
    metal__map_add(~0ull - 0xfff, 0x1000, METAL_MAP_RESERVED); /* above any RAM: no contradiction */
    metal__map_add(5 * MIB, 0x1000, METAL_MAP_CARVED);         /* on purpose: not reported */
    metal__map_finish(0);
    check_invariants();
    CHECK_EQ(metal__boot.map_entries, 8);
    CHECK_EQ(metal__boot.map_bad, 5);
    CHECK(strstr(printed, "map entry 0 ") != NULL);
    CHECK(strstr(printed, "map entry 1 ") != NULL);
    CHECK(strstr(printed, "map entry 2 ") != NULL);
    CHECK(strstr(printed, "map entry 4 ") != NULL);
    CHECK(strstr(printed, "map entry 5 ") != NULL);
    CHECK(strstr(printed, "map entry 3 ") == NULL);
    CHECK_EQ(metal__boot.mem_count, 3);
    CHECK_EQ(metal__boot.mem[0].bytes, MIB);
    CHECK_EQ(metal__boot.mem[1].base, 2 * MIB + 0x1000);
    CHECK_EQ(metal__boot.mem[1].bytes, 3 * MIB - 0x1000);
    CHECK_EQ(metal__boot.mem[2].base, 5 * MIB + 0x1000);
    CHECK_EQ(metal__boot.mem[2].base + metal__boot.mem[2].bytes, 7 * MIB);
}

TEST(bad_tables_are_named_and_the_rest_is_used)
{
    uint64_t tables[4];

    host_reset();
    memset(firmware, 0, sizeof firmware);
    used = 0;
    tables[0] = usual_srat();
    firmware[tables[0] - FIRMWARE_AT + 60] ^= 1; /* checksum */
    tables[1] = 0x10;                            /* out of reach */
    tables[2] = usual_madt();
    table_begin("SLIT");
    put(1000, 8); /* does not fit */
    tables[3] = table_end();
    REQUIRE_EQ(metal__acpi(root_of(4, tables, 4)), METAL_OK);
    usual_map();
    metal__map_finish(0);
    check_invariants();
    CHECK_EQ(metal__boot.cpu_count, 4);
    CHECK_EQ(metal__boot.node_count, 1);
    CHECK(strstr(printed, "bad length or checksum") != NULL);
    CHECK(strstr(printed, "out of reach") != NULL);
    CHECK(strstr(printed, "SLIT of 1000 domains") != NULL);
}

TEST(a_record_of_length_0_ends_its_table)
{
    uint64_t tables[1];

    host_reset();
    memset(firmware, 0, sizeof firmware);
    used = 0;
    table_begin("APIC");
    put(0, 8);
    madt_cpu(0, 1);
    put(0, 2); /* length 0 */
    madt_cpu(1, 1);
    tables[0] = table_end();
    REQUIRE_EQ(metal__acpi(root_of(4, tables, 1)), METAL_OK);
    metal__map_finish(0);
    CHECK_EQ(metal__boot.cpu_count, 1);
    CHECK(strstr(printed, "bad length, the rest is ignored") != NULL);
}

TEST(more_cpus_than_built_for_and_than_configured)
{
    host_reset();
    for (unsigned i = 0; i < METAL_MAX_CPUS + 3; i++) {
        metal__cpu_add(i);
        metal__cpu_add(i); /* listed twice */
    }
    metal__map_finish(5);
    check_invariants();
    CHECK_EQ(metal__boot.cpu_count, METAL_MAX_CPUS);
    CHECK_EQ(metal__boot.cpu[0].hw_id, 5);
    CHECK(metal__boot.cpu_refused >= 3);

    host_reset();
    metal__cmdline("selftest maxcpus=2");
    for (unsigned i = 0; i < 8; i++)
        metal__cpu_add(i);
    metal__map_finish(5);
    CHECK_EQ(metal__boot.cpu_count, 2);
    CHECK_EQ(metal__boot.cpu_refused, 6);
    CHECK_EQ(metal__boot.cpu[0].hw_id, 5);
}

TEST(more_nodes_than_configured)
{
    host_reset();
    for (unsigned i = 0; i < METAL_MAX_NODES + 2; i++)
        metal__affinity_add(i, i * MIB, MIB);
    metal__map_add(0, (METAL_MAX_NODES + 2) * MIB, METAL_MAP_RAM);
    metal__map_finish(0);
    check_invariants();
    CHECK_EQ(metal__boot.node_count, METAL_MAX_NODES);
    CHECK(strstr(printed, "more than") != NULL);
}

TEST(tables_too_full_lose_memory_and_say_so)
{
    host_reset();
    for (unsigned i = 0; i < 2 * METAL_MAX_MEM; i++)
        metal__map_add(i * 2 * MIB, MIB, METAL_MAP_RAM);
    for (unsigned i = 0; i < 2 * METAL_MAX_RESERVED; i++)
        metal__reserve(i * 2 * MIB + 0x1000, 0x1000, "test");
    metal__map_finish(0);
    check_invariants();
    CHECK_EQ(metal__boot.mem_count, METAL_MAX_MEM);
    CHECK(strstr(printed, "not used: more than") != NULL);
    /* What was not remembered as reserved is no RAM any more. */
    for (uint32_t i = 0; i < metal__boot.mem_count; i++) {
        const uint64_t at = METAL_MAX_RESERVED * 2 * MIB + 0x1000;

        CHECK(at < metal__boot.mem[i].base ||
              at >= metal__boot.mem[i].base + metal__boot.mem[i].bytes);
    }
}

/* Damaged tables: everything ends, nothing is read beyond them (under the sanitizer), invariants hold. */
TEST(damaged_tables_end)
{
    struct test_rng rng = test_rng(1);

    for (uint64_t round = 0; round < test_rounds(3000); round++) {
        const unsigned pointer_bytes = test_below(&rng, 2) ? 8 : 4;
        const uint64_t rsdp = usual_tables(pointer_bytes);
        const unsigned changes = 1 + (unsigned)test_below(&rng, 4);

        host_reset();
        for (unsigned i = 0; i < changes; i++)
            firmware[test_below(&rng, used)] = (uint8_t)test_random(&rng);
        /* Half of them with right checksums, or most damage would stop at the door. */
        for (uint32_t at = 1; test_below(&rng, 2) && at + 36 < used; at += 2) {
            const uint32_t bytes = get32(firmware + at + 4);

            if (bytes >= 36 && bytes < used - at)
                checksum_set(at, bytes, at + 9);
        }
        (void)metal__acpi(rsdp);
        for (unsigned i = 0; i < 6; i++)
            metal__map_add(test_random(&rng) >> test_below(&rng, 60),
                           test_random(&rng) >> test_below(&rng, 60),
                           (uint32_t)test_below(&rng, 4));
        metal__map_finish(test_below(&rng, 5));
        check_invariants();
    }
}
