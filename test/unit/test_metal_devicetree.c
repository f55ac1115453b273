/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The metal host's device-tree reader and what it makes of trees: unsorted memory nodes, holes in node
 * ids, reservations, PSCI, GIC, initrd, and every kind of malformed blob. The blobs are written here.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hosts/metal/common/args.c"
#include "hosts/metal/common/fdt.c"
#include "hosts/metal/arm64/machine.c"
#include "hosts/metal/common/numa.c"
#include "test/support/test_main.h"

/* ---- the parts of the host that the code under test calls ---- */

struct metal_boot metal__boot;
static char printed[8192];
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

static void host_reset(void)
{
    memset(&metal__boot, 0, sizeof metal__boot);
    ram.count = holes.count = affinity.count = 0;
    domain_count = distance_count = 0;
    printed_bytes = 0;
    printed[0] = 0;
}

/* ---- a writer of trees ---- */

static uint8_t blob[65536] __attribute__((aligned(8)));
static char strings[16384];
static uint32_t struct_bytes, strings_bytes;

#define STRUCT_AT 72u /* header 40, two reservation entries 32 */

static void put32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 24);
    to[1] = (uint8_t)(value >> 16);
    to[2] = (uint8_t)(value >> 8);
    to[3] = (uint8_t)value;
}

static void word(uint32_t value)
{
    put32(blob + STRUCT_AT + struct_bytes, value);
    struct_bytes += 4;
}

static void bytes(const void *data, uint32_t n)
{
    memcpy(blob + STRUCT_AT + struct_bytes, data, n);
    while (n % 4 != 0)
        blob[STRUCT_AT + struct_bytes + n++] = 0;
    struct_bytes += n;
}

static void begin(const char *name)
{
    word(1);
    bytes(name, (uint32_t)strlen(name) + 1);
}

static void end(void)
{
    word(2);
}

static void prop(const char *name, const void *data, uint32_t n)
{
    word(3);
    word(n);
    word(strings_bytes);
    memcpy(strings + strings_bytes, name, strlen(name) + 1);
    strings_bytes += (uint32_t)strlen(name) + 1;
    bytes(data, n);
}

static void prop_text(const char *name, const char *text)
{
    prop(name, text, (uint32_t)strlen(text) + 1);
}

static void prop_cells(const char *name, unsigned n, ...)
{
    uint8_t data[256];
    va_list args;

    va_start(args, n);
    for (unsigned i = 0; i < n; i++)
        put32(data + 4 * i, va_arg(args, uint32_t));
    va_end(args);
    prop(name, data, 4 * n);
}

static void tree_begin(void)
{
    memset(blob, 0, sizeof blob);
    struct_bytes = strings_bytes = 0;
    begin("");
    prop_cells("#address-cells", 1, 2u);
    prop_cells("#size-cells", 1, 2u);
}

/* Ends the tree and writes header and strings. Returns the blob's size. */
static uint32_t tree_end(void)
{
    uint32_t total;

    end();
    word(9);
    total = STRUCT_AT + struct_bytes + strings_bytes;
    memcpy(blob + STRUCT_AT + struct_bytes, strings, strings_bytes);
    put32(blob, METAL_FDT_MAGIC);
    put32(blob + 4, total);
    put32(blob + 8, STRUCT_AT);
    put32(blob + 12, STRUCT_AT + struct_bytes);
    put32(blob + 16, 40);
    put32(blob + 20, 17);
    put32(blob + 24, 16);
    put32(blob + 32, strings_bytes);
    put32(blob + 36, struct_bytes);
    return total;
}

static void memory(const char *name, uint32_t base, uint32_t size, int node)
{
    begin(name);
    prop_text("device_type", "memory");
    prop_cells("reg", 4, 0u, base, 0u, size);
    if (node >= 0)
        prop_cells("numa-node-id", 1, (uint32_t)node);
    end();
}

static void cpus(unsigned count)
{
    begin("cpus");
    prop_cells("#address-cells", 1, 1u);
    prop_cells("#size-cells", 1, 0u);
    for (unsigned i = 0; i < count; i++) {
        char name[16];

        snprintf(name, sizeof name, "cpu@%x", i);
        begin(name);
        prop_text("device_type", "cpu");
        prop_cells("reg", 1, (i / 16) << 8 | i % 16);
        prop_cells("numa-node-id", 1, i % 2 ? 7u : 2u);
        end();
    }
    end();
}

static struct arm_machine read_tree(uint32_t total)
{
    struct metal_fdt f;
    struct arm_machine m;

    REQUIRE_EQ(metal_fdt_open(&f, blob, total), METAL_FDT_OK);
    host_reset();
    metal__arm_machine_read(&f, &m);
    return m;
}

/* ---- whole trees ---- */

static uint32_t usual_tree(void)
{
    tree_begin();
    prop_text("compatible", "linux,dummy-virt");
    memory("memory@80000000", 0x80000000u, 0x40000000u, 7);
    memory("memory@40000000", 0x40000000u, 0x40000000u, 2);
    cpus(4);
    begin("distance-map");
    prop_text("compatible", "numa-distance-map-v1");
    prop_cells("distance-matrix", 6, 2u, 7u, 31u, 2u, 2u, 10u);
    end();
    begin("psci");
    prop("compatible", "arm,psci-1.0\0arm,psci-0.2", 26);
    prop_text("method", "hvc");
    end();
    begin("intc@8000000");
    prop_text("compatible", "arm,gic-v3");
    prop_cells("reg", 8, 0u, 0x08000000u, 0u, 0x10000u, 0u, 0x080A0000u, 0u, 0xF60000u);
    end();
    begin("pl011@9000000");
    prop("compatible", "arm,pl011\0arm,primecell", 24);
    prop_cells("reg", 4, 0u, 0x09000000u, 0u, 0x1000u);
    end();
    begin("reserved-memory");
    prop_cells("#address-cells", 1, 2u);
    prop_cells("#size-cells", 1, 2u);
    begin("secure@50000000");
    prop_cells("reg", 4, 0u, 0x50000000u, 0u, 0x100000u);
    end();
    end();
    begin("chosen");
    prop_text("bootargs", "selftest a=1");
    prop_cells("linux,initrd-start", 2, 0u, 0x48000000u);
    prop_cells("linux,initrd-end", 1, 0x48000123u);
    end();
    return tree_end();
}

TEST(reads_a_machine)
{
    const uint32_t total = usual_tree();
    struct arm_machine m = read_tree(total);

    CHECK_EQ(m.bad, 0);
    CHECK(m.is_virtual);
    CHECK_EQ(m.uart, 0x09000000);
    CHECK_EQ(m.conduit, 'h');
    CHECK_EQ(m.gicd, 0x08000000);
    CHECK_EQ(m.gicr_count, 1);
    CHECK_EQ(m.gicr[0][1], 0xF60000);
    metal__map_finish(1);
    CHECK_EQ(metal__boot.mem_count, 3); /* split by the reservation */
    CHECK_EQ(metal__boot.mem[0].base, 0x40000000);
    CHECK_EQ(metal__boot.mem[0].bytes, 0x10000000);
    CHECK_EQ(metal__boot.mem[1].base, 0x50100000);
    CHECK_EQ(metal__boot.mem[2].node, 1);
    CHECK_EQ(metal__boot.node_count, 2);
    CHECK_EQ(metal__boot.node_id[0], 2);
    CHECK_EQ(metal__boot.node_id[1], 7);
    CHECK_EQ(metal__boot.distance[0][1], 31);
    CHECK_EQ(metal__boot.distance[1][0], 31); /* left out: the other direction counts */
    CHECK_EQ(metal__boot.cpu_count, 4);
    CHECK_EQ(metal__boot.cpu[0].hw_id, 1); /* the booting one comes first */
    CHECK_EQ(metal__boot.cpu[0].node, 1);
    CHECK_EQ(metal__boot.module_count, 1);
    CHECK_EQ(metal__boot.module[0].base, 0x48000000);
    CHECK_EQ(metal__boot.module[0].bytes, 0x123);
    CHECK(strcmp(metal__boot.cmdline, "selftest a=1") == 0);
}

TEST(console_and_arguments_come_early)
{
    struct metal_fdt f;
    struct arm_machine m;

    REQUIRE_EQ(metal_fdt_open(&f, blob, usual_tree()), METAL_FDT_OK);
    host_reset();
    metal__arm_machine_early(&f, &m);
    CHECK_EQ(m.uart, 0x09000000);
    REQUIRE(m.bootargs != NULL);
    CHECK(strcmp(m.bootargs, "selftest a=1") == 0);
    CHECK_EQ(m.gicd, 0);
    CHECK_EQ(metal__boot.map_entries, 0);
    CHECK_EQ(printed_bytes, 0);
}

TEST(refuses_cpus_beyond_the_limit)
{
    tree_begin();
    memory("memory", 0x40000000u, 0x1000000u, -1);
    cpus(METAL_MAX_CPUS + 6);
    (void)read_tree(tree_end());
    metal__map_finish(0);
    CHECK_EQ(metal__boot.cpu_count, METAL_MAX_CPUS);
    CHECK_EQ(metal__boot.cpu_refused, 6);
    CHECK(strstr(printed, "CPU 0x405 refused") != NULL);
}

TEST(bad_entries_are_named_and_skipped)
{
    struct arm_machine m;

    tree_begin();
    memory("memory@0", 0x40000000u, 0, 0); /* empty */
    begin("memory@1");                     /* wraps */
    prop_text("device_type", "memory");
    prop_cells("reg", 4, 0xFFFFFFFFu, 0xFFFFF000u, 0u, 0x2000u);
    end();
    begin("memory@2"); /* reg of an odd length */
    prop_text("device_type", "memory");
    prop_cells("reg", 3, 0u, 0x80000000u, 0u);
    end();
    begin("memory@3"); /* switched off */
    prop_text("device_type", "memory");
    prop_text("status", "disabled");
    prop_cells("reg", 4, 0u, 0xC0000000u, 0u, 0x1000000u);
    end();
    memory("memory@40000000", 0x40000000u, 0x2000000u, 0);
    memory("memory@41000000", 0x41000000u, 0x2000000u, 0); /* overlaps */
    begin("distance-map");
    prop_text("compatible", "numa-distance-map-v1");
    prop_cells("distance-matrix", 4, 0u, 0u, 10u, 1u);
    end();
    begin("psci");
    prop_text("compatible", "arm,psci-1.0");
    prop_text("method", "telepathy");
    end();
    begin("chosen");
    prop_cells("linux,initrd-start", 1, 0x48000000u);
    prop_cells("linux,initrd-end", 1, 0x47000000u);
    end();
    m = read_tree(tree_end());
    metal__map_finish(0);
    CHECK_EQ(m.bad, 4); /* memory@2, distance-map, psci, chosen */
    CHECK_EQ(m.conduit, 0);
    CHECK_EQ(metal__boot.map_bad, 3); /* empty, wrapping, overlapping */
    CHECK_EQ(metal__boot.module_count, 0);
    CHECK_EQ(metal__boot.mem_count, 1);
    CHECK_EQ(metal__boot.mem[0].base, 0x40000000);
    CHECK_EQ(metal__boot.mem[0].bytes, 0x3000000);
    CHECK(strstr(printed, "'memory@2'") != NULL);
    CHECK(strstr(printed, "'psci': unknown method") != NULL);
}

TEST(too_deep_a_tree_ends_early)
{
    struct arm_machine m;

    tree_begin();
    memory("memory", 0x40000000u, 0x1000000u, -1);
    for (unsigned i = 0; i < METAL_FDT_MAX_DEPTH; i++)
        begin("a");
    for (unsigned i = 0; i < METAL_FDT_MAX_DEPTH; i++)
        end();
    m = read_tree(tree_end());
    CHECK_EQ(m.bad, 1);
    CHECK_EQ(metal__boot.map_entries, 1);
    CHECK(strstr(printed, "malformed") != NULL);
}

/* ---- blobs ---- */

TEST(header_is_checked)
{
    const uint32_t total = usual_tree();
    struct metal_fdt f = {.blob = NULL};

    CHECK_EQ(metal_fdt_open(&f, blob, 39), METAL_FDT_E_SIZE);
    CHECK_EQ(metal_fdt_open(&f, blob, total - 1), METAL_FDT_E_SIZE);
    blob[0] ^= 1;
    CHECK_EQ(metal_fdt_open(&f, blob, total), METAL_FDT_E_MAGIC);
    blob[0] ^= 1;
    put32(blob + 24, 18);
    CHECK_EQ(metal_fdt_open(&f, blob, total), METAL_FDT_E_VERSION);
    put32(blob + 24, 16);
    for (unsigned at = 8; at <= 36; at += 4) {
        const uint32_t old = metal_fdt_cell(blob + at);

        if (at == 20 || at == 24 || at == 28)
            continue; /* versions, boot CPU */
        put32(blob + at, 0xFFFFFFF0u);
        CHECK_EQ(metal_fdt_open(&f, blob, total), METAL_FDT_E_SIZE);
        put32(blob + at, old);
    }
    CHECK(f.blob == NULL);
    CHECK_EQ(metal_fdt_open(&f, blob, total), METAL_FDT_OK);
}

/* Whatever one changed byte does, the walk stays inside the blob (sanitizers watch) and ends. */
TEST(corrupt_blobs_end)
{
    const uint32_t total = usual_tree();
    struct test_rng rng = test_rng(0);
    uint8_t *copy = malloc(total);
    const uint64_t rounds = test_rounds(20000);

    REQUIRE(copy != NULL);
    for (uint64_t i = 0; i < rounds; i++) {
        struct metal_fdt f;
        struct metal_fdt_cursor c;
        struct metal_fdt_item item;
        uint32_t calls = 0;
        struct arm_machine m;

        memcpy(copy, blob, total);
        for (unsigned k = 0; k < 1 + i % 3; k++)
            copy[40 + test_below(&rng, total - 40)] = (uint8_t)test_random(&rng);
        if (metal_fdt_open(&f, copy, total) != METAL_FDT_OK)
            continue;
        metal_fdt_start(&f, &c);
        do {
            metal_fdt_next(&f, &c, &item);
            calls++;
        } while (item.token != METAL_FDT_DONE && item.token != METAL_FDT_BAD);
        CHECK(calls <= total / 4 + 1);
        metal_fdt_next(&f, &c, &item);
        CHECK_EQ(item.token, METAL_FDT_BAD);
        host_reset();
        metal__arm_machine_read(&f, &m);
        metal__map_finish(0);
        CHECK(metal__boot.mem_count <= METAL_MAX_MEM);
    }
    free(copy);
}

TEST(words_and_names)
{
    static const uint8_t list[] = "okay\0ok";
    struct metal_fdt_item item = {METAL_FDT_PROP, 0, "status", list, sizeof list};

    CHECK(metal_fdt_has_word(&item, "ok"));
    CHECK(metal_fdt_has_word(&item, "okay"));
    CHECK(!metal_fdt_has_word(&item, "o"));
    item.bytes = 4; /* not ended */
    CHECK(!metal_fdt_has_word(&item, "okay"));
    CHECK(metal_fdt_is_node("cpu@0", "cpu"));
    CHECK(metal_fdt_is_node("cpu", "cpu"));
    CHECK(!metal_fdt_is_node("cpus", "cpu"));
}
