/* SPDX-License-Identifier: BSD-2-Clause */
/* Entries of every format: what hardware reads in them, and what they keep while they are invalid. */
#include "s2_format.h"
#include "stage2_walk.h"
#include "test_main.h"

#include <string.h>

static uint64_t page[512] __attribute__((aligned(4096)));

static const uint64_t *one_page(void *ctx, uint64_t table)
{
    (void)table;
    return ctx;
}

/* The entry as hardware reads it at a level. */
static struct walk_entry read_entry(const struct hvmem__s2_format *f, int level, uint64_t entry)
{
    struct walk_tables t = {(int)f->format, 0,   48, f->format == HVMEM_S2_ARM64 ? 48 : 52, 0,
                            one_page,       page};

    memset(page, 0, sizeof page);
    page[0] = entry;
    return walk_step(&t, 0, level, 0);
}

static void init(struct hvmem__s2_format *f, uint32_t format, uint32_t flags)
{
    REQUIRE(hvmem__s2_format_init(f, format, flags));
}

static void check_leaf(const struct hvmem__s2_format *f, int level, uint64_t address,
                       uint32_t rights, uint32_t type)
{
    uint64_t e = hvmem__s2_make_leaf(f, (uint32_t)level, address, rights, type);
    uint64_t marks = f->broken | f->unclean | f->touched | f->aged, off;
    struct walk_entry hw = read_entry(f, level, e);

    CHECK_EQ(hw.kind, WALK_LEAF);
    CHECK_EQ(hw.address, address);
    CHECK_EQ(hw.rights, rights);
    CHECK_EQ(hw.type, type);
    CHECK_EQ(hw.shift, hvmem__s2_order((uint32_t)level) + 12);
    CHECK(hvmem__s2_present(f, e) && hvmem__s2_valid(f, e));
    CHECK(!hvmem__s2_is_table(f, e, (uint32_t)level));
    /* Invalid: hardware sees nothing, the library all. */
    off = hvmem__s2_invalid(f, e);
    CHECK_EQ(read_entry(f, level, off).kind, WALK_INVALID);
    CHECK(hvmem__s2_present(f, off) && !hvmem__s2_valid(f, off));
    CHECK(!hvmem__s2_is_table(f, off, (uint32_t)level));
    CHECK_EQ(hvmem__s2_address(f, off), address);
    CHECK_EQ(hvmem__s2_rights(f, off), rights);
    CHECK_EQ(hvmem__s2_type(f, off), type);
    /* Marks change nothing of it, and validation gives the entry back without them. */
    CHECK_EQ(read_entry(f, level, off | marks).kind, WALK_INVALID);
    CHECK_EQ(hvmem__s2_rights(f, off | marks), rights);
    CHECK_EQ(hvmem__s2_address(f, off | marks), address);
    CHECK_EQ(hvmem__s2_validate(f, off | marks, (uint32_t)level), e);
    /* The aged mark may stay on a valid entry: hardware must not mind. */
    CHECK_EQ(read_entry(f, level, e | f->aged).kind, WALK_LEAF);
}

static void check_format(uint32_t format, uint32_t flags)
{
    struct hvmem__s2_format f;
    struct test_rng rng = test_rng(format);
    uint32_t rights, type;
    int level, i;

    init(&f, format, flags);
    for (level = 1; level <= 3; level++)
        for (rights = 1; rights <= 7; rights += 2)
            for (type = 0; type <= 2; type++)
                for (i = 0; i < 20; i++) {
                    uint64_t mask = format == HVMEM_S2_ARM64 ? 0xfffffffff000 : 0xffffffffff000;
                    uint64_t size = 4096ull << hvmem__s2_order((uint32_t)level);
                    uint64_t at = i == 0 ? 0 : i == 1 ? mask : test_random(&rng);

                    check_leaf(&f, level, at & mask & ~(size - 1), rights, type);
                }
}

TEST(arm64_leaves_are_read_as_meant)
{
    check_format(HVMEM_S2_ARM64, 0);
    check_format(HVMEM_S2_ARM64, HVMEM_S2_FORCE_WB);
}

TEST(npt_leaves_are_read_as_meant)
{
    check_format(HVMEM_S2_NPT, 0);
}

TEST(ept_leaves_are_read_as_meant)
{
    check_format(HVMEM_S2_EPT, 0);
    check_format(HVMEM_S2_EPT, HVMEM_S2_FORCE_WB);
}

TEST(tables_are_read_as_meant_with_every_count)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem__s2_format f;
    struct walk_entry hw;
    uint32_t i, count;
    int level;

    for (i = 0; i < 3; i++) {
        init(&f, formats[i], 0);
        for (level = 0; level < 3; level++)
            for (count = 0; count <= 512; count++) {
                uint64_t e =
                    hvmem__s2_with_count(&f, hvmem__s2_make_table(&f, 0x123456789000), count);

                hw = read_entry(&f, level, e);
                CHECK_EQ(hw.kind, WALK_TABLE);
                CHECK_EQ(hw.address, 0x123456789000);
                CHECK_EQ(hw.rights, 7);
                CHECK_EQ(hvmem__s2_count(&f, e), count);
                CHECK(hvmem__s2_present(&f, e) && hvmem__s2_valid(&f, e));
                CHECK(hvmem__s2_is_table(&f, e, (uint32_t)level));
                e = hvmem__s2_invalid(&f, e);
                CHECK_EQ(read_entry(&f, level, e).kind, WALK_INVALID);
                CHECK(hvmem__s2_is_table(&f, e, (uint32_t)level));
                CHECK(hvmem__s2_present(&f, e) && !hvmem__s2_valid(&f, e));
                CHECK_EQ(hvmem__s2_count(&f, e), count);
                CHECK_EQ(hvmem__s2_address(&f, e), 0x123456789000);
            }
    }
}

/* Known descriptors, worked out by hand from the manuals. */
TEST(known_words)
{
    struct hvmem__s2_format f;

    init(&f, HVMEM_S2_ARM64, 0);
    /* Page, WB 0xf << 2, S2AP RW, SH inner, AF, XN clear; presence in bit 55. */
    CHECK_EQ(hvmem__s2_make_leaf(&f, 3, 0x80001000, 7, HVMEM_S2_WB), 0x00800000800017ff);
    /* 2 MiB device block, read-only, never executed. */
    CHECK_EQ(hvmem__s2_make_leaf(&f, 2, 0x40000000, 1, HVMEM_S2_DEVICE), 0x00c0000040000645);
    CHECK_EQ(hvmem__s2_make_table(&f, 0x7000), 0x0080000000007003);
    init(&f, HVMEM_S2_ARM64, HVMEM_S2_FORCE_WB);
    CHECK_EQ(hvmem__s2_make_leaf(&f, 1, 0x40000000, 7, HVMEM_S2_WB) & 0x3c, 6 << 2);
    init(&f, HVMEM_S2_NPT, 0);
    CHECK_EQ(hvmem__s2_make_leaf(&f, 3, 0x80001000, 7, HVMEM_S2_WB), 0x80001267);
    CHECK_EQ(hvmem__s2_make_leaf(&f, 2, 0x40000000, 1, HVMEM_S2_DEVICE), 0x80000000400002fd);
    CHECK_EQ(hvmem__s2_make_table(&f, 0x7000), 0x7227);
    init(&f, HVMEM_S2_EPT, 0);
    CHECK_EQ(hvmem__s2_make_leaf(&f, 3, 0x80001000, 7, HVMEM_S2_WB), 0x0070000080001837);
    CHECK_EQ(hvmem__s2_make_leaf(&f, 2, 0x40000000, 3, HVMEM_S2_NC), 0x003000004000088b);
    CHECK_EQ(hvmem__s2_make_table(&f, 0x7000), 0x7807);
}

TEST(no_other_format)
{
    struct hvmem__s2_format f;

    CHECK(!hvmem__s2_format_init(&f, 0, 0));
    CHECK(!hvmem__s2_format_init(&f, 4, 0));
}
