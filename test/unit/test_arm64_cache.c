/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arm64 cache maintenance through the recorder: which lines, in which form, between which barriers
 * (Arm ARM B2.7.4.2, D7.5); arithmetic of ranges (B44); set and way; zeroing.
 */
#include "arm64_rig.h"
#include "coverage.h"
#include "test_main.h"

#include <string.h>

#define DC_IVAC  0xd5087620
#define DC_CSW   0xd5087a40
#define DC_CISW  0xd5087e40
#define DC_ZVA   0xd50b7420
#define DC_CVAC  0xd50b7a20
#define DC_CVAU  0xd50b7b20
#define DC_CIVAC 0xd50b7e20
#define IC_ALLIS 0xd508711f
#define IC_ALL   0xd508751f
#define IC_IVAU  0xd50b7520
#define DSB_SY   0xd5033f9f
#define DSB_ISH  0xd5033b9f
#define DSB_NSH  0xd503379f
#define DSB_ST   0xd5033a9f
#define ISB      0xd5033fdf

static struct arm64_rig rig;

static void start(uint32_t level, uint64_t quirks, uint64_t ctr)
{
    rig_setup(&rig, level, 0, 12);
    rig.ids.ctr = 3u << 14 | 4u << 16 | 4 | ctr; /* 64-byte lines, PIPT */
    rig.ids.dczid = 4;
    rig.config.quirks_set = quirks;
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    hvmem_record_clear(&rig.log);
}

static hvmem_status dcache(uint32_t op, uintptr_t addr, size_t bytes)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->dcache(&rig.be, op, addr, bytes);
}

/* Takes the next `lines` events: all of this code, on lines from addr on. Returns the next index. */
static uint32_t lines(uint32_t at, uint32_t code, uint64_t addr, uint32_t count, uint32_t step)
{
    uint32_t i;

    for (i = 0; i < count; i++, at++) {
        REQUIRE(at < rig.log.count);
        CHECK_EQ(rig.events[at].code, code);
        CHECK_EQ(rig.events[at].operand[0], addr + (uint64_t)i * step);
    }
    return at;
}

static uint32_t plain(uint32_t at, uint32_t code)
{
    REQUIRE(at < rig.log.count);
    CHECK_EQ(rig.events[at].code, code);
    return at + 1;
}

static void end(uint32_t at)
{
    if (CHECK_EQ(rig.log.count, at))
        coverage_judged_arm64(&rig.log);
    CHECK_EQ(rig.log.lost, 0);
}

TEST(dcache_forms_and_barriers)
{
    static const uint32_t code[] = {DC_CVAC, DC_CIVAC, DC_IVAC, DC_CVAU};
    uint32_t op;

    for (op = 0; op < 4; op++) {
        start(HVMEM_ARM64_EL1, 0, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(plain(lines(0, code[op], 0x1000, 4, 64), op == HVMEM_DC_CLEAN_POU ? DSB_ISH : DSB_SY));
        /* Cortex-A53: a clean may be lost, so it invalidates too. */
        start(HVMEM_ARM64_EL1, HVMEM_QUIRK_CLEAN_IS_CIVAC, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(plain(lines(0, op == HVMEM_DC_INVALIDATE ? DC_IVAC : DC_CIVAC, 0x1000, 4, 64),
                  op == HVMEM_DC_CLEAN_POU ? DSB_ISH : DSB_SY));
        /* SI L1: both loops complete. */
        start(HVMEM_ARM64_EL1, HVMEM_QUIRK_CMO_TWICE, 0);
        CHECK_EQ(dcache(op, 0x1000, 128), HVMEM_OK);
        if (op != HVMEM_DC_CLEAN_POU)
            end(plain(
                lines(plain(lines(0, code[op], 0x1000, 2, 64), DSB_SY), code[op], 0x1000, 2, 64),
                DSB_SY));
    }
    /* IDC: nothing to clean for instruction fetch, stores must still be complete. */
    start(HVMEM_ARM64_EL1, 0, 1u << 28);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN_POU, 0x1000, 256), HVMEM_OK);
    end(plain(0, DSB_ISH));
}

static hvmem_status dcache_done(uint32_t op)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->dcache_done(&rig.be, op);
}

/* What more calls follow is not waited for; the last of them, or the end, waits for all. */
TEST(one_barrier_for_calls_left_open)
{
    static const uint32_t code[] = {DC_CVAC, DC_CIVAC, DC_IVAC, DC_CVAU};
    uint32_t op, barrier;

    for (op = 0; op < 4; op++) {
        barrier = op == HVMEM_DC_CLEAN_POU ? DSB_ISH : DSB_SY;
        start(HVMEM_ARM64_EL1, 0, 0);
        CHECK_EQ(dcache(op | HVMEM_DC_MORE, 0x1000, 256), HVMEM_OK);
        end(lines(0, code[op], 0x1000, 4, 64));
        CHECK_EQ(dcache_done(op), HVMEM_OK);
        end(plain(0, barrier));
        CHECK_EQ(dcache(op, 0x1100, 64), HVMEM_OK);
        end(plain(lines(0, code[op], 0x1100, 1, 64), barrier));
    }
    /* SI L1: the barrier between the loops stays. */
    start(HVMEM_ARM64_EL1, HVMEM_QUIRK_CMO_TWICE, 0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN | HVMEM_DC_MORE, 0x1000, 128), HVMEM_OK);
    end(lines(plain(lines(0, DC_CVAC, 0x1000, 2, 64), DSB_SY), DC_CVAC, 0x1000, 2, 64));
    CHECK_EQ(dcache(4 | HVMEM_DC_MORE, 0x1000, 64), HVMEM_E_ARG);
    CHECK_EQ(dcache_done(4), HVMEM_E_ARG);
    CHECK_EQ(dcache_done(HVMEM_DC_CLEAN | HVMEM_DC_MORE), HVMEM_E_ARG);
    end(0);
}

TEST(B44_arithmetic_of_cache_ranges)
{
    start(HVMEM_ARM64_EL1, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, ~(uintptr_t)0xfff, 4096), HVMEM_OK);
    end(plain(lines(0, DC_CVAC, ~0xfffull, 64, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1000, 0), HVMEM_OK);
    end(0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1030, 0x20), HVMEM_OK);
    end(plain(lines(0, DC_CVAC, 0x1000, 2, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x103f, 2), HVMEM_OK);
    end(plain(lines(0, DC_CVAC, 0x1000, 2, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1000, 64), HVMEM_OK);
    end(plain(lines(0, DC_CVAC, 0x1000, 1, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, ~(uintptr_t)0xfff, 4097), HVMEM_E_RANGE);
    end(0);
    CHECK_EQ(dcache(4, 0x1000, 64), HVMEM_E_ARG);
    end(0);
}

/* Lines that hold a neighbour's bytes are written back, not dropped. */
TEST(B44_invalidate_keeps_neighbours)
{
    start(HVMEM_ARM64_EL1, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, 0x1030, 0xa0), HVMEM_OK); /* 0x1030 .. 0x10cf */
    end(plain(lines(lines(lines(0, DC_CIVAC, 0x1000, 1, 64), DC_CIVAC, 0x10c0, 1, 64), DC_IVAC,
                    0x1040, 2, 64),
              DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, 0x1010, 0x10), HVMEM_OK);
    end(plain(lines(0, DC_CIVAC, 0x1000, 1, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, 0x1000, 0x50), HVMEM_OK);
    end(plain(lines(lines(0, DC_CIVAC, 0x1040, 1, 64), DC_IVAC, 0x1000, 1, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, 0x1020, 0x40), HVMEM_OK);
    end(plain(lines(0, DC_CIVAC, 0x1000, 2, 64), DSB_SY));
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, ~(uintptr_t)0x3f, 64), HVMEM_OK);
    end(plain(lines(0, DC_IVAC, ~0x3full, 1, 64), DSB_SY));
    /* EL0 may not invalidate: write back as well. */
    start(HVMEM_ARM64_EL0, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_INVALIDATE, 0x1000, 64), HVMEM_OK);
    end(plain(lines(0, DC_CIVAC, 0x1000, 1, 64), DSB_SY));
}

/* CPUs with lines of 64 and 32 bytes: every 32-byte line is handled. */
TEST(B44_smallest_line_of_the_system)
{
    struct hvmem_arm64_ids small;

    start(HVMEM_ARM64_EL1, 0, 0);
    small = rig.ids;
    small.ctr = 3u << 14 | 3u << 16 | 3;
    CHECK_EQ(hvmem_arm64_check_cpu(&rig.m, &rig.be, &small), HVMEM_E_CPU);
    CHECK_EQ(hvmem_arm64_add_cpu(&rig.m, &rig.be, &small), HVMEM_OK);
    CHECK_EQ(hvmem_arm64_check_cpu(&rig.m, &rig.be, &small), HVMEM_OK);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1000, 128), HVMEM_OK);
    end(plain(lines(0, DC_CVAC, 0x1000, 4, 32), DSB_SY));
}

static hvmem_status icache(uintptr_t addr, size_t bytes)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->icache(&rig.be, addr, bytes);
}

TEST(icache_by_range)
{
    uint32_t at;

    start(HVMEM_ARM64_EL1, 0, 0);
    CHECK_EQ(icache(0x1010, 0x40), HVMEM_OK);
    at = plain(lines(0, DC_CVAU, 0x1000, 2, 64), DSB_ISH);
    end(plain(plain(lines(at, IC_IVAU, 0x1000, 2, 64), DSB_ISH), ISB));
    start(HVMEM_ARM64_EL1, 0, 1u << 28); /* IDC */
    CHECK_EQ(icache(0x1000, 64), HVMEM_OK);
    end(plain(plain(lines(plain(0, DSB_ISH), IC_IVAU, 0x1000, 1, 64), DSB_ISH), ISB));
    start(HVMEM_ARM64_EL1, 0, 1u << 29); /* DIC */
    CHECK_EQ(icache(0x1000, 64), HVMEM_OK);
    end(plain(plain(lines(0, DC_CVAU, 0x1000, 1, 64), DSB_ISH), ISB));
    start(HVMEM_ARM64_EL1, 0, 3u << 28);
    CHECK_EQ(icache(0x1000, 64), HVMEM_OK);
    end(plain(plain(0, DSB_ISH), ISB));
    start(HVMEM_ARM64_EL1, HVMEM_QUIRK_HIDE_DIC, 3u << 28);
    CHECK_EQ(icache(0x1000, 64), HVMEM_OK);
    end(plain(plain(lines(plain(0, DSB_ISH), IC_IVAU, 0x1000, 1, 64), DSB_ISH), ISB));
    start(HVMEM_ARM64_EL1, HVMEM_QUIRK_VIPT_ICACHE, 0);
    CHECK_EQ(icache(0x1000, 64), HVMEM_OK);
    at = plain(lines(0, DC_CVAU, 0x1000, 1, 64), DSB_ISH);
    end(plain(plain(plain(at, IC_ALLIS), DSB_ISH), ISB));
    CHECK_EQ(icache(~(uintptr_t)0, 2), HVMEM_E_RANGE);
    end(0);
    CHECK_EQ(icache(0x1000, 0), HVMEM_OK);
    end(0);
}

TEST(icache_whole)
{
    start(HVMEM_ARM64_EL2, 0, 0);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_INNER), HVMEM_OK);
    end(plain(plain(plain(plain(0, DSB_ISH), IC_ALLIS), DSB_ISH), ISB));
    hvmem_record_clear(&rig.log);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_LOCAL), HVMEM_OK);
    end(plain(plain(plain(plain(0, DSB_ISH), IC_ALL), DSB_NSH), ISB));
    hvmem_record_clear(&rig.log);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_OUTER), HVMEM_E_ARG);
    end(0);
    start(HVMEM_ARM64_EL0, 0, 0);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_LOCAL), HVMEM_E_LEVEL);
    end(0);
}

/* Two data levels and one instruction-only level between; every set of every way once. */
TEST(set_and_way_walk)
{
    uint32_t at = 0, way, set, op, ccidx;

    for (op = 0; op < 2; op++)
        for (ccidx = 0; ccidx < 2; ccidx++) {
            uint32_t code = op ? DC_CISW : DC_CSW;

            rig_setup(&rig, HVMEM_ARM64_EL1, 0, 12);
            hvmem_record_set(&rig.log, 0xd5390020, 0, 3u << 24 | 4u << 6 | 1u << 3 | 3u);
            hvmem_record_set(&rig.log, 0xd5380740, 0, (uint64_t)ccidx << 20);
            hvmem_record_set(&rig.log, 0xd5390000, 0,
                             ccidx ? 3ull << 32 | 1 << 3 | 2 : 3ull << 13 | 1 << 3 | 2);
            hvmem_record_set(&rig.log, 0xd5390000, 4,
                             ccidx ? 7ull << 32 | 2 << 3 | 3 : 7ull << 13 | 2 << 3 | 3);
            REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
            CHECK_EQ(rig.be.ops->dcache_all(&rig.be, op), HVMEM_OK);
            at = plain(plain(plain(0, 0xd51a0000), ISB), DSB_SY);
            for (way = 0; way < 2; way++)
                for (set = 0; set < 4; set++)
                    at = lines(at, code, (uint64_t)way << 31 | set << 6, 1, 0);
            CHECK_EQ(rig.events[at].operand[0], 4);
            at = plain(plain(plain(at, 0xd51a0000), ISB), DSB_SY);
            for (way = 0; way < 3; way++)
                for (set = 0; set < 8; set++)
                    at = lines(at, code, (uint64_t)way << 30 | set << 7 | 4, 1, 0);
            end(plain(plain(plain(at, 0xd51a0000), DSB_SY), ISB));
        }
    hvmem_record_clear(&rig.log);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_INVALIDATE), HVMEM_E_ARG);
    start(HVMEM_ARM64_EL0, 0, 0);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN), HVMEM_E_LEVEL);
    end(0);
}

/* A CPU with a level more than the one that made the back-end: it is its own caches that are walked. */
TEST(set_and_way_walk_of_the_calling_cpu)
{
    uint32_t i, levels = 0;

    rig_setup(&rig, HVMEM_ARM64_EL2, 0, 12);
    hvmem_record_set(&rig.log, 0xd5390020, 0, 1u << 24 | 3u);
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    REQUIRE_EQ(hvmem_arm64_add_cpu(&rig.m, &rig.be, &rig.ids), HVMEM_OK);
    hvmem_record_set(&rig.log, 0xd5390020, 0, 2u << 24 | 4u << 3 | 3u);
    hvmem_record_set(&rig.log, 0xd5380740, 0, 1u << 20); /* its CCSIDR_EL1 has the wide layout */
    hvmem_record_set(&rig.log, 0xd5390000, 0, 2);
    hvmem_record_set(&rig.log, 0xd5390000, 2, 1ull << 32 | 2);
    hvmem_record_clear(&rig.log);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN_INVALIDATE), HVMEM_OK);
    for (i = 0; i < rig.log.count; i++)
        if (rig.events[i].code == DC_CISW)
            levels += rig.events[i].operand[0] & 2 ? 16 : 1;
    CHECK_EQ(levels, 2 * 16 + 1); /* one line of the first, two sets of the second */
}

static hvmem_status zero(uintptr_t addr, size_t bytes)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->zero(&rig.be, addr, bytes);
}

TEST(zeroing_uses_whole_blocks_only)
{
    uint32_t at;

    start(HVMEM_ARM64_EL1, 0, 0);
    CHECK_EQ(zero(0x1000, 256), HVMEM_OK);
    end(plain(lines(0, DC_ZVA, 0x1000, 4, 64), DSB_ST));
    rig.ids.dczid = 7; /* blocks of 512 bytes */
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(zero(0x10c0, 0x5c0), HVMEM_OK); /* 0x10c0 .. 0x167f */
    at = lines(0, HVMEM_ARM64_INSN_STORE, 0x10c0, 5, 64);
    at = lines(at, DC_ZVA, 0x1200, 2, 512);
    end(plain(lines(at, HVMEM_ARM64_INSN_STORE, 0x1600, 2, 64), DSB_ST));
    CHECK_EQ(zero(0x1040, 0x80), HVMEM_OK); /* inside one block */
    end(plain(lines(0, HVMEM_ARM64_INSN_STORE, 0x1040, 2, 64), DSB_ST));
    CHECK_EQ(zero(~(uintptr_t)0x1ff, 512), HVMEM_OK);
    end(plain(lines(0, DC_ZVA, ~0x1ffull, 1, 512), DSB_ST));
    rig.ids.dczid = 4 | 1 << 4; /* prohibited */
    REQUIRE_EQ(hvmem_arm64_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    CHECK_EQ(zero(0x1000, 128), HVMEM_OK);
    end(plain(lines(0, HVMEM_ARM64_INSN_STORE, 0x1000, 2, 64), DSB_ST));
    CHECK_EQ(rig.be.caps.features & HVMEM_CAP_FAST_ZERO, 0);
    CHECK_EQ(zero(0x1008, 64), HVMEM_E_ALIGN);
    CHECK_EQ(zero(0x1000, 65), HVMEM_E_ALIGN);
    CHECK_EQ(zero(~(uintptr_t)0x3f, 128), HVMEM_E_RANGE);
    CHECK_EQ(zero(0x1000, 0), HVMEM_OK);
    end(0);
}
