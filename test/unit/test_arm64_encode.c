/* SPDX-License-Identifier: BSD-2-Clause */
/* Operand encoders of arm64: instruction words, level hints, the greedy cover (B34), set/way. */
#include "backends/arm64/encode.h"
#include "backends/arm64/words.h"
#include "arm64_rules.h"
#include "test_main.h"

#include <stdio.h>
#include <stdlib.h>

TEST(tlbi_words_are_the_architecture_s)
{
    static const struct {
        enum hvmem__arm64_tlbi op;
        uint32_t scope;
        uint32_t word;
    } known[] = {
        {HVMEM__TLBI_VMALLE1, HVMEM_SCOPE_LOCAL, 0xd508871f},
        {HVMEM__TLBI_VMALLE1, HVMEM_SCOPE_INNER, 0xd508831f},
        {HVMEM__TLBI_VAE1, HVMEM_SCOPE_INNER, 0xd5088320},
        {HVMEM__TLBI_VAAE1, HVMEM_SCOPE_INNER, 0xd5088360},
        {HVMEM__TLBI_VALE1, HVMEM_SCOPE_INNER, 0xd50883a0},
        {HVMEM__TLBI_VAALE1, HVMEM_SCOPE_INNER, 0xd50883e0},
        {HVMEM__TLBI_ASIDE1, HVMEM_SCOPE_INNER, 0xd5088340},
        {HVMEM__TLBI_RVAE1, HVMEM_SCOPE_INNER, 0xd5088220},
        {HVMEM__TLBI_RVALE1, HVMEM_SCOPE_INNER, 0xd50882a0},
        {HVMEM__TLBI_RVAALE1, HVMEM_SCOPE_INNER, 0xd50882e0},
        {HVMEM__TLBI_ALLE1, HVMEM_SCOPE_INNER, 0xd50c839f},
        {HVMEM__TLBI_ALLE2, HVMEM_SCOPE_INNER, 0xd50c831f},
        {HVMEM__TLBI_VAE2, HVMEM_SCOPE_INNER, 0xd50c8320},
        {HVMEM__TLBI_VALE2, HVMEM_SCOPE_INNER, 0xd50c83a0},
        {HVMEM__TLBI_VMALLS12E1, HVMEM_SCOPE_INNER, 0xd50c83df},
        {HVMEM__TLBI_VMALLS12E1, HVMEM_SCOPE_LOCAL, 0xd50c87df},
        {HVMEM__TLBI_IPAS2E1, HVMEM_SCOPE_INNER, 0xd50c8020},
        {HVMEM__TLBI_IPAS2LE1, HVMEM_SCOPE_INNER, 0xd50c80a0},
        {HVMEM__TLBI_RIPAS2E1, HVMEM_SCOPE_INNER, 0xd50c8040},
        {HVMEM__TLBI_RIPAS2LE1, HVMEM_SCOPE_INNER, 0xd50c80c0},
        {HVMEM__TLBI_RVAE2, HVMEM_SCOPE_INNER, 0xd50c8220},
    };
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        CHECK_EQ(hvmem__arm64_tlbi_word(known[i].op, known[i].scope), known[i].word);
}

/* Every word that can be composed has its literal instruction, in the order of the list. */
TEST(every_tlbi_word_can_be_issued)
{
#define WORD(word) word,
    static const uint32_t listed[] = {A64_TLBI_WORDS(WORD)};
    static const enum hvmem__arm64_tlbi order[] = {
        HVMEM__TLBI_VMALLE1,    HVMEM__TLBI_VAE1,    HVMEM__TLBI_ASIDE1,   HVMEM__TLBI_VAAE1,
        HVMEM__TLBI_VALE1,      HVMEM__TLBI_VAALE1,  HVMEM__TLBI_RVAE1,    HVMEM__TLBI_RVAAE1,
        HVMEM__TLBI_RVALE1,     HVMEM__TLBI_RVAALE1, HVMEM__TLBI_ALLE2,    HVMEM__TLBI_VAE2,
        HVMEM__TLBI_VALE2,      HVMEM__TLBI_RVAE2,   HVMEM__TLBI_RVALE2,   HVMEM__TLBI_ALLE1,
        HVMEM__TLBI_VMALLS12E1, HVMEM__TLBI_IPAS2E1, HVMEM__TLBI_IPAS2LE1, HVMEM__TLBI_RIPAS2E1,
        HVMEM__TLBI_RIPAS2LE1,
    };
    uint32_t op, scope;

    REQUIRE_EQ(sizeof(listed) / sizeof(listed[0]), HVMEM__TLBI_COUNT * 3);
    REQUIRE_EQ(sizeof(order) / sizeof(order[0]), HVMEM__TLBI_COUNT);
    for (op = 0; op < HVMEM__TLBI_COUNT; op++)
        for (scope = 0; scope < 3; scope++) {
            struct arm64_tlbi t;

            CHECK_EQ(hvmem__arm64_tlbi_word(order[op], scope), listed[op * 3 + scope]);
            CHECK(arm64_decode_tlbi(listed[op * 3 + scope], &t));
            CHECK_EQ(t.scope, scope);
        }
}

TEST(single_page_operands)
{
    CHECK_EQ(hvmem__arm64_va(0xffff800012345000, 0xabcd, 0), 0xabcdull << 48 | 0xff800012345);
    CHECK_EQ(hvmem__arm64_va(0x1000, 7, 0x7), 7ull << 48 | 7ull << 44 | 1);
    CHECK_EQ(hvmem__arm64_ipa(0xfffffffffffff000, 0xf), 0xfull << 44 | 0xffffffffff);
    CHECK_EQ(hvmem__arm64_asid(0x1234), 0x1234000000000000);
}

TEST(level_hints_are_never_wrong)
{
    CHECK_EQ(hvmem__arm64_ttl(12, 3, 0), 0x7);
    CHECK_EQ(hvmem__arm64_ttl(12, 2, 0), 0x6);
    CHECK_EQ(hvmem__arm64_ttl(12, 1, 0), 0x5);
    CHECK_EQ(hvmem__arm64_ttl(14, 3, 0), 0xb);
    CHECK_EQ(hvmem__arm64_ttl(14, 1, 0), 0); /* reserved there */
    CHECK_EQ(hvmem__arm64_ttl(14, 1, 1), 0x9);
    CHECK_EQ(hvmem__arm64_ttl(16, 2, 0), 0xe);
    CHECK_EQ(hvmem__arm64_ttl(12, 0, 1), 0);
    CHECK_EQ(hvmem__arm64_ttl(12, HVMEM_LEVEL_UNKNOWN, 0), 0);
}

/*
 * Walks a cover by its encoded operands alone and compares with [page, page + pages): each operation
 * must begin where the last ended. Returns the number of operations.
 */
static uint32_t check_cover(uint64_t page, uint64_t pages, uint32_t shift, int lpa2)
{
    struct hvmem__arm64_cover cover;
    struct hvmem__arm64_step step;
    uint64_t at = page, base, bytes, operand;
    uint32_t count = 0;

    hvmem__arm64_cover_start(&cover, page, pages, shift, lpa2);
    while (hvmem__arm64_cover_next(&cover, &step)) {
        count++;
        if (step.single) {
            operand = hvmem__arm64_va(step.page << shift, 0, 0);
            base = (operand & 0xfffffffffff) << 12;
            bytes = 1ull << shift;
        } else {
            REQUIRE(step.num <= 31 && step.scale <= 3);
            operand = hvmem__arm64_range(&step, shift, lpa2, 0, 0);
            REQUIRE(arm64_decode_range(operand, lpa2, &base, &bytes));
            CHECK_EQ(operand >> 46 & 3, (shift - 10) / 2);
        }
        if (!CHECK_EQ(base, at << shift))
            return count;
        at += bytes >> shift;
        REQUIRE(count < 100000);
    }
    CHECK_EQ(at, page + pages);
    CHECK_EQ(hvmem__arm64_cover_count(page, pages, shift, lpa2, 1000000), count);
    return count;
}

TEST(B34_range_covers_exactly_the_pages)
{
    static const uint64_t counts[] = {1,
                                      2,
                                      3,
                                      62,
                                      63,
                                      64,
                                      65,
                                      66,
                                      2047,
                                      2048,
                                      2049,
                                      65535,
                                      65536,
                                      65537,
                                      (1 << 21) - 1,
                                      1 << 21,
                                      (1 << 21) + 1,
                                      (1 << 22) + 3};
    uint32_t i, shift;
    int lpa2;

    for (shift = 12; shift <= 16; shift += 2)
        for (lpa2 = 0; lpa2 <= 1; lpa2++)
            for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                check_cover(0, counts[i], shift, lpa2);
                check_cover(5, counts[i], shift, lpa2);
                check_cover(1 << 21, counts[i], shift, lpa2);
            }
}

TEST(B34_largest_range_is_one_operation)
{
    struct hvmem__arm64_cover cover;
    struct hvmem__arm64_step step;

    hvmem__arm64_cover_start(&cover, 0, 1 << 21, 12, 0);
    REQUIRE(hvmem__arm64_cover_next(&cover, &step));
    CHECK_EQ(step.single, 0);
    CHECK_EQ(step.num, 31);
    CHECK_EQ(step.scale, 3);
    CHECK_EQ(hvmem__arm64_cover_next(&cover, &step), 0);
}

/* Bases that an LPA2 operand cannot hold are reached by single pages. */
TEST(B34_lpa2_bases_are_aligned)
{
    struct hvmem__arm64_cover cover;
    struct hvmem__arm64_step step;

    hvmem__arm64_cover_start(&cover, 5, 4096, 12, 1);
    while (hvmem__arm64_cover_next(&cover, &step))
        CHECK(step.single || step.page % 16 == 0);
}

/*
 * Random ranges against the exact cover, and the most operations any takes: 5; 20 with LPA2 at
 * 4 KiB (15 single pages to the first legal base, 4 ranges, 1 page); 8 with LPA2 at 16 KiB.
 */
TEST(worst_number_of_operations)
{
    static const struct {
        uint32_t shift;
        int lpa2;
        uint32_t worst;
    } bars[] = {{12, 0, 5}, {14, 0, 5}, {16, 0, 5}, {12, 1, 20}, {14, 1, 8}, {16, 1, 5}};
    struct test_rng rng = test_rng(34);
    uint64_t rounds = test_rounds(20000), r;
    uint32_t i;

    for (i = 0; i < sizeof(bars) / sizeof(bars[0]); i++) {
        uint32_t worst = check_cover(1, 31 + 31 * 64 + 31 * 2048ull + 31 * 65536 - 16,
                                     bars[i].shift, bars[i].lpa2);

        for (r = 0; r < rounds; r++) {
            uint64_t page = test_below(&rng, 1ull << 30);
            uint64_t pages = 1 + (test_random(&rng) >> (43 + test_below(&rng, 21)));
            uint32_t count;

            if (pages > 1 << 21)
                pages = 1 << 21;
            count = check_cover(page, pages, bars[i].shift, bars[i].lpa2);
            worst = count > worst ? count : worst;
        }
        if (!CHECK_EQ(worst, bars[i].worst))
            test_note("granule shift %u, lpa2 %d", bars[i].shift, bars[i].lpa2);
        if (getenv("HVMEM_PRINT_FIGURES"))
            printf("encode.range_ops_worst.%u.%s %u ops\n", 1u << (bars[i].shift - 10),
                   bars[i].lpa2 ? "lpa2" : "plain", worst);
    }
}

TEST(set_way_operands)
{
    struct hvmem__arm64_geometry g;

    /* 32 KiB, 4 ways, 128 sets, 64-byte lines: LineSize 2, ways-1 3, sets-1 127. */
    hvmem__arm64_geometry(&g, 127ull << 13 | 3 << 3 | 2, 0);
    CHECK_EQ(g.line_shift, 6);
    CHECK_EQ(g.ways, 3);
    CHECK_EQ(g.sets, 127);
    CHECK_EQ(hvmem__arm64_set_way(&g, 1, 5, 3), 3ull << 30 | 5 << 6);
    CHECK_EQ(hvmem__arm64_set_way(&g, 3, 0, 0), 2 << 1);
    /* Wide layout, 12 ways (4 bits), 2048 sets. */
    hvmem__arm64_geometry(&g, 2047ull << 32 | 11 << 3 | 2, 1);
    CHECK_EQ(g.ways, 11);
    CHECK_EQ(g.sets, 2047);
    CHECK_EQ(hvmem__arm64_set_way(&g, 2, 2047, 11), 11ull << 28 | 2047 << 6 | 1 << 1);
    /* Direct mapped: no way field at all. */
    hvmem__arm64_geometry(&g, 63ull << 13 | 0 << 3 | 2, 0);
    CHECK_EQ(hvmem__arm64_set_way(&g, 1, 63, 0), 63 << 6);
}
