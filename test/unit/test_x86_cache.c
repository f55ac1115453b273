/* SPDX-License-Identifier: BSD-2-Clause */
/* x86 cache maintenance and zeroing through the recorder: lines, forms, fences, arithmetic (B44). */
#include "x86_rig.h"
#include "coverage.h"
#include "test_main.h"

#include <string.h>

#define HAS_OPT    1u
#define HAS_CLWB   2u
#define HAS_CLZERO 4u
#define HAS_WBNO   8u
#define HAS_SER    16u
#define NO_CLFLUSH 32u

static struct x86_rig rig;

static void start(uint32_t has, uint32_t zero, uint32_t flags)
{
    x86_rig_setup(&rig, flags);
    rig.ids.leaf7_ebx = (has & HAS_OPT ? 1u << 23 : 0) | (has & HAS_CLWB ? 1u << 24 : 0);
    rig.ids.leaf7_edx = has & HAS_SER ? 1u << 14 : 0;
    rig.ids.ext8_ebx = (has & HAS_CLZERO ? 1 : 0) | (has & HAS_WBNO ? 1u << 9 : 0);
    if (has & NO_CLFLUSH)
        rig.ids.leaf1_edx = 0;
    rig.config.zero = zero;
    REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
    hvmem_record_clear(&rig.log);
}

/* Expects `count` events of one code on lines from addr on; returns the next index. */
static uint32_t lines(uint32_t at, uint32_t code, uint64_t addr, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++, at++) {
        REQUIRE(at < rig.log.count);
        CHECK_EQ(rig.events[at].code, code);
        CHECK_EQ(rig.events[at].operand[0], addr + (uint64_t)i * 64);
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
        coverage_judged_x86(&rig.log);
}

static hvmem_status dcache(uint32_t op, uintptr_t addr, size_t bytes)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->dcache(&rig.be, op, addr, bytes);
}

TEST(dcache_forms_and_fences)
{
    uint32_t op;

    for (op = HVMEM_DC_CLEAN; op <= HVMEM_DC_INVALIDATE; op++) {
        start(HAS_OPT | HAS_CLWB, 0, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(plain(lines(0, op == HVMEM_DC_CLEAN ? HVMEM_X86_INSN_CLWB : HVMEM_X86_INSN_CLFLUSHOPT,
                        0x1000, 4),
                  HVMEM_X86_INSN_SFENCE));
        start(HAS_OPT, 0, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(plain(lines(0, HVMEM_X86_INSN_CLFLUSHOPT, 0x1000, 4), HVMEM_X86_INSN_SFENCE));
        /* AMD before CLFLUSHOPT: ordered with nothing. */
        start(0, 0, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(plain(lines(plain(0, HVMEM_X86_INSN_MFENCE), HVMEM_X86_INSN_CLFLUSH, 0x1000, 4),
                  HVMEM_X86_INSN_MFENCE));
        rig.ids.vendor = 0x756e6547; /* Intel: ordered */
        REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_OK);
        end(lines(0, HVMEM_X86_INSN_CLFLUSH, 0x1000, 4));
        start(NO_CLFLUSH, 0, 0);
        CHECK_EQ(dcache(op, 0x1000, 256), HVMEM_E_UNSUPPORTED);
        end(0);
    }
    start(0, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN_POU, 0x1000, 256), HVMEM_OK); /* fetches snoop */
    end(0);
}

static hvmem_status dcache_done(uint32_t op)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->dcache_done(&rig.be, op);
}

/* What more calls follow is not waited for; the last of them, or the end, waits for all. */
TEST(one_fence_for_calls_left_open)
{
    uint32_t op;

    for (op = HVMEM_DC_CLEAN; op <= HVMEM_DC_INVALIDATE; op++) {
        start(HAS_OPT, 0, 0);
        CHECK_EQ(dcache(op | HVMEM_DC_MORE, 0x1000, 192), HVMEM_OK);
        end(lines(0, HVMEM_X86_INSN_CLFLUSHOPT, 0x1000, 3));
        CHECK_EQ(dcache_done(op), HVMEM_OK);
        end(plain(0, HVMEM_X86_INSN_SFENCE));
        CHECK_EQ(dcache(op, 0x10c0, 64), HVMEM_OK);
        end(plain(lines(0, HVMEM_X86_INSN_CLFLUSHOPT, 0x10c0, 1), HVMEM_X86_INSN_SFENCE));
        start(0, 0, 0);
        CHECK_EQ(dcache(op | HVMEM_DC_MORE, 0x1000, 128), HVMEM_OK);
        end(lines(plain(0, HVMEM_X86_INSN_MFENCE), HVMEM_X86_INSN_CLFLUSH, 0x1000, 2));
        CHECK_EQ(dcache_done(op), HVMEM_OK);
        end(plain(0, HVMEM_X86_INSN_MFENCE));
        rig.ids.vendor = 0x756e6547;
        REQUIRE_EQ(hvmem_x86_init(&rig.m, &rig.be, &rig.config), HVMEM_OK);
        CHECK_EQ(dcache(op | HVMEM_DC_MORE, 0x1000, 64), HVMEM_OK);
        end(lines(0, HVMEM_X86_INSN_CLFLUSH, 0x1000, 1));
        CHECK_EQ(dcache_done(op), HVMEM_OK);
        end(0);
    }
    start(HAS_OPT | HAS_CLWB, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN | HVMEM_DC_MORE, 0x1000, 64), HVMEM_OK);
    end(lines(0, HVMEM_X86_INSN_CLWB, 0x1000, 1));
    CHECK_EQ(dcache_done(HVMEM_DC_CLEAN), HVMEM_OK);
    end(plain(0, HVMEM_X86_INSN_SFENCE));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN_POU | HVMEM_DC_MORE, 0x1000, 64), HVMEM_OK);
    CHECK_EQ(dcache_done(HVMEM_DC_CLEAN_POU), HVMEM_OK);
    CHECK_EQ(dcache(4 | HVMEM_DC_MORE, 0x1000, 64), HVMEM_E_ARG);
    CHECK_EQ(dcache_done(4), HVMEM_E_ARG);
    CHECK_EQ(dcache_done(HVMEM_DC_CLEAN | HVMEM_DC_MORE), HVMEM_E_ARG);
    end(0);
}

TEST(B44_arithmetic_of_cache_ranges)
{
    start(HAS_CLWB, 0, 0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, ~(uintptr_t)0xfff, 4096), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_CLWB, ~0xfffull, 64), HVMEM_X86_INSN_SFENCE));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1000, 0), HVMEM_OK);
    end(0);
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x1030, 0x20), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_CLWB, 0x1000, 2), HVMEM_X86_INSN_SFENCE));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, 0x103f, 2), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_CLWB, 0x1000, 2), HVMEM_X86_INSN_SFENCE));
    CHECK_EQ(dcache(HVMEM_DC_CLEAN, ~(uintptr_t)0, 2), HVMEM_E_RANGE);
    end(0);
    CHECK_EQ(dcache(4, 0x1000, 64), HVMEM_E_ARG);
    end(0);
}

TEST(whole_cache)
{
    start(HAS_WBNO, 0, 0);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN), HVMEM_OK);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN_INVALIDATE), HVMEM_OK);
    end(plain(plain(0, HVMEM_X86_INSN_WBNOINVD), HVMEM_X86_INSN_WBINVD));
    start(0, 0, 0);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN), HVMEM_OK);
    end(plain(0, HVMEM_X86_INSN_WBINVD));
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_INVALIDATE), HVMEM_E_ARG);
    start(0, 0, F_USER);
    CHECK_EQ(rig.be.ops->dcache_all(&rig.be, HVMEM_DC_CLEAN), HVMEM_E_LEVEL);
    end(0);
}

TEST(icache_serialises_and_nothing_else)
{
    start(HAS_SER, 0, 0);
    CHECK_EQ(rig.be.ops->icache(&rig.be, 0x1000, 64), HVMEM_OK);
    end(plain(0, HVMEM_X86_INSN_SERIALIZE));
    start(0, 0, 0);
    CHECK_EQ(rig.be.ops->icache(&rig.be, 0x1000, 64), HVMEM_OK);
    end(plain(0, HVMEM_X86_INSN_CPUID));
    CHECK_EQ(rig.be.ops->icache(&rig.be, 0x1000, 0), HVMEM_OK);
    CHECK_EQ(rig.be.ops->icache(&rig.be, ~(uintptr_t)0, 2), HVMEM_E_RANGE);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_INNER), HVMEM_OK);
    CHECK_EQ(rig.be.ops->icache_all(&rig.be, HVMEM_SCOPE_OUTER), HVMEM_E_ARG);
    end(1);
}

static hvmem_status zero(uintptr_t addr, size_t bytes)
{
    hvmem_record_clear(&rig.log);
    return rig.be.ops->zero(&rig.be, addr, bytes);
}

TEST(zeroing_forms_and_fences)
{
    start(HAS_CLZERO, HVMEM_X86_ZERO_BEST, 0);
    CHECK_EQ(zero(~(uintptr_t)0xff, 256), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_CLZERO, ~0xffull, 4), HVMEM_X86_INSN_SFENCE));
    start(HAS_CLZERO, HVMEM_X86_ZERO_NONTEMPORAL, 0);
    CHECK_EQ(zero(0x1000, 256), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_MOVNTI, 0x1000, 4), HVMEM_X86_INSN_SFENCE));
    start(0, HVMEM_X86_ZERO_BEST, 0);
    CHECK_EQ(zero(0x1000, 64), HVMEM_OK);
    end(plain(lines(0, HVMEM_X86_INSN_MOVNTI, 0x1000, 1), HVMEM_X86_INSN_SFENCE));
    start(HAS_CLZERO, HVMEM_X86_ZERO_STORES, 0);
    CHECK_EQ(zero(0x1000, 128), HVMEM_OK);
    end(lines(0, HVMEM_X86_INSN_STORE, 0x1000, 2));
    CHECK_EQ(zero(0x1008, 64), HVMEM_E_ALIGN);
    CHECK_EQ(zero(0x1000, 8), HVMEM_E_ALIGN);
    CHECK_EQ(zero(~(uintptr_t)0x3f, 128), HVMEM_E_RANGE);
    CHECK_EQ(zero(0x1000, 0), HVMEM_OK);
    end(0);
}
