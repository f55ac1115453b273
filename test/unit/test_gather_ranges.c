/* SPDX-License-Identifier: BSD-2-Clause */
/* The ranges of a gather: nothing told is ever lost, whatever the order and the number. */
#include "gather.h"

#include "test_main.h"

#include <string.h>

static struct hvmem_gather gather;

static void add(uint64_t start, unsigned shift, unsigned level, unsigned flags)
{
    struct hvmem_gather_range piece;

    memset(&piece, 0, sizeof piece);
    piece.start = start;
    piece.last = start + ((1ull << shift) - 1);
    piece.stride = (hvmem_u8)shift;
    piece.level = (hvmem_u8)level;
    piece.flags = (hvmem_u16)flags;
    hvmem__gather_add(&gather, &piece);
}

static void page(uint64_t number)
{
    add(number << 12, 12, 3, HVMEM_RANGE_LEAF);
}

static void clear(void)
{
    memset(&gather, 0, sizeof gather);
}

static const struct hvmem_gather_range *over(uint64_t addr)
{
    hvmem_u32 i;

    for (i = 0; i < gather.ranges; i++)
        if (gather.range[i].start <= addr && addr <= gather.range[i].last)
            return &gather.range[i];
    return NULL;
}

static void sound(void)
{
    hvmem_u32 i;

    CHECK(gather.ranges <= HVMEM_GATHER_RANGES);
    for (i = 0; i < gather.ranges; i++) {
        CHECK(gather.range[i].start <= gather.range[i].last);
        CHECK((gather.range[i].start & ((1ull << gather.range[i].stride) - 1)) == 0);
        if (i)
            CHECK(gather.range[i - 1].last < gather.range[i].start);
    }
}

TEST(neighbours_of_a_kind_grow_together)
{
    clear();
    page(7);
    page(9);
    CHECK_EQ(gather.ranges, 2);
    page(8);
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].start, 0x7000);
    CHECK_EQ(gather.range[0].last, 0x9fff);
    CHECK_EQ(gather.range[0].level, 3);
    CHECK_EQ(gather.range[0].flags, HVMEM_RANGE_LEAF);
    page(8); /* twice */
    CHECK_EQ(gather.ranges, 1);
}

/* Each part of a mixed batch keeps its own stride and level. */
TEST(B30_strides_are_kept_apart)
{
    clear();
    add(1ull << 30, 30, 1, HVMEM_RANGE_LEAF);
    add(2ull << 30, 21, 2, HVMEM_RANGE_LEAF);
    add((2ull << 30) + (1ull << 21), 12, 3, HVMEM_RANGE_LEAF);
    CHECK_EQ(gather.ranges, 3);
    CHECK_EQ(gather.range[0].stride, 30);
    CHECK_EQ(gather.range[0].level, 1);
    CHECK_EQ(gather.range[1].stride, 21);
    CHECK_EQ(gather.range[1].level, 2);
    CHECK_EQ(gather.range[2].stride, 12);
    CHECK_EQ(gather.range[2].level, 3);
}

/* Pages told, then the table over them: one range, walks included, level not certain. */
TEST(a_table_swallows_its_pages)
{
    clear();
    page(3);
    add(0, 21, HVMEM_LEVEL_UNKNOWN, 0);
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].stride, 12);
    CHECK_EQ(gather.range[0].level, HVMEM_LEVEL_UNKNOWN);
    CHECK_EQ(gather.range[0].flags, 0);
    CHECK_EQ(gather.range[0].last, 0x1fffff);
    add(0x3000, 12, 3, HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL);
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].flags, HVMEM_RANGE_GLOBAL);
}

static void walks(uint64_t addr, unsigned span)
{
    uint64_t in_span = (1ull << span) - 1;
    struct hvmem_gather_range piece;

    memset(&piece, 0, sizeof piece);
    piece.start = addr & ~0xfffull;
    piece.last = addr | 0xfff;
    piece.stride = 12;
    piece.level = HVMEM_LEVEL_UNKNOWN;
    hvmem__gather_add_walks(&gather, addr & ~in_span, addr | in_span, &piece);
}

/* An empty table costs one operation; one whose page was told costs none. */
TEST(walks_cost_at_most_one_operation)
{
    clear();
    walks(0x5000, 21);
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].start, 0x5000);
    CHECK_EQ(gather.range[0].last, 0x5fff);
    walks(0x7000, 30); /* the table above it: the same address will do */
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].last, 0x5fff);
    walks(1ull << 30, 30); /* another one */
    CHECK_EQ(gather.ranges, 2);
    clear();
    page(0x80);
    page(0x81);
    walks(0, 21);
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].start, 0x80000);
    CHECK_EQ(gather.range[0].last, 0x81fff);
    CHECK_EQ(gather.range[0].flags, 0);
    CHECK_EQ(gather.range[0].level, HVMEM_LEVEL_UNKNOWN);
    clear();
    add(0, 30, 1, HVMEM_RANGE_LEAF); /* steps too wide to hit it for certain */
    walks(0x200000, 21);
    CHECK_EQ(gather.range[0].stride, 12);
    CHECK_EQ(gather.range[0].flags, 0);
    /* Whole tables, page by page: they grow together. */
    clear();
    for (uint64_t number = 0; number < 2048; number++) {
        page(number);
        if ((number & 511) == 511)
            walks(number << 12, 21);
    }
    CHECK_EQ(gather.ranges, 1);
    CHECK_EQ(gather.range[0].last, 0x7fffff);
}

/* B27: 20 small pages, a block, a gap of 1 GiB, three small pages; then all in descending order. */
static void batch(int descending)
{
    int i;

    clear();
    for (i = 0; i < 24; i++) {
        int at = descending ? 23 - i : i;

        if (at < 20)
            page(0x100 + 2 * (uint64_t)at); /* every other one: no two touch */
        else if (at == 20)
            add(0x400000, 21, 2, HVMEM_RANGE_LEAF);
        else
            page((0x600000 >> 12) + (1ull << 18) + 3 * (uint64_t)at);
        sound();
    }
    for (i = 0; i < 20; i++)
        CHECK(over((0x100 + 2 * (uint64_t)i) << 12) != NULL);
    CHECK(over(0x400000) != NULL && over(0x5fffff) != NULL);
    for (i = 21; i < 24; i++)
        CHECK(over(0x600000 + (1ull << 30) + 3 * (uint64_t)i * 0x1000) != NULL);
}

TEST(B27_full_batch_loses_nothing)
{
    batch(0);
    /* The pages close together were joined, not the ones a block or a gigabyte away. */
    CHECK_EQ(over(0x400000)->stride, 21);
    CHECK(over(0x3ff000) == NULL);
    CHECK(over(0x40000000) == NULL);
    batch(1);
    CHECK_EQ(over(0x400000)->stride, 21);
}

TEST(B27_ends_of_the_address_space)
{
    struct hvmem_tlb_range out[HVMEM_GATHER_RANGES];

    clear();
    add(0, 12, 3, HVMEM_RANGE_LEAF);
    add(~0xfffull, 12, 3, HVMEM_RANGE_LEAF);
    CHECK_EQ(gather.ranges, 2); /* the last page does not touch the first */
    hvmem__gather_export(&gather, 12, out);
    CHECK_EQ(out[0].start, 0);
    CHECK_EQ(out[0].pages, 1);
    CHECK_EQ(out[1].start, ~0xfffull);
    CHECK_EQ(out[1].pages, 1);
    add(0, 63, HVMEM_LEVEL_UNKNOWN, 0);
    add(1ull << 63, 63, HVMEM_LEVEL_UNKNOWN, 0);
    CHECK_EQ(gather.ranges, 1);
    hvmem__gather_export(&gather, 12, out);
    CHECK_EQ(out[0].pages, 1ull << 52);
    CHECK_EQ(out[0].stride_shift, 12);
}

TEST(strides_are_what_back_ends_step_by)
{
    struct hvmem_tlb_range out[HVMEM_GATHER_RANGES];

    clear();
    add(0, 63, HVMEM_LEVEL_UNKNOWN, 0);
    hvmem__gather_export(&gather, 12, out);
    CHECK_EQ(out[0].stride_shift, 47);
}

/* Random entries against the list of all of them. */
TEST(random_entries_are_all_covered)
{
    struct test_rng rng = test_rng(1);
    uint64_t round, rounds = test_rounds(3000);
    struct {
        uint64_t start;
        unsigned shift, level, flags;
    } told[64];

    for (round = 0; round < rounds; round++) {
        unsigned n = 1 + (unsigned)test_below(&rng, 64), i;
        unsigned bits = 15 + (unsigned)test_below(&rng, 49);

        clear();
        for (i = 0; i < n; i++) {
            told[i].shift = 12 + 9 * (unsigned)test_below(&rng, 3);
            told[i].level = 3 - (told[i].shift - 12) / 9;
            told[i].flags = test_below(&rng, 5) ? HVMEM_RANGE_LEAF : 0;
            told[i].start = test_random(&rng) >> (64 - bits) >> told[i].shift << told[i].shift;
            add(told[i].start, told[i].shift, told[i].level, told[i].flags);
        }
        sound();
        for (i = 0; i < n; i++) {
            const struct hvmem_gather_range *range = over(told[i].start);

            REQUIRE(range != NULL);
            CHECK(told[i].start + ((1ull << told[i].shift) - 1) <= range->last);
            CHECK(range->stride <= told[i].shift);
            CHECK(range->level == told[i].level || range->level == HVMEM_LEVEL_UNKNOWN);
            CHECK(told[i].flags || !range->flags);
        }
    }
}
