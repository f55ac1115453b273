/* SPDX-License-Identifier: BSD-2-Clause */
/* Access tracking: traps taken, exact "touched since", ageing; set/way operations that lose no store. */
#include "stage2_rig.h"

#include <hvmem/populate.h>

#include <string.h>

#define GIB  0x40000u /* frames */
#define HOME (RIG_BASE + 1024)
#define LOT  2048u /* frames of a guest with memory behind it */

static struct stage2_rig rig;

/* ---- traps ---------------------------------------------------------------------------------- */

/* Faults of a guest that touches every page of 1 GiB at gfn. */
static uint64_t touch_1_gib(uint64_t gfn)
{
    uint64_t end = gfn + GIB, traps = 0;
    hvmem_u32 outcome;

    for (; gfn < end; gfn++)
        while (rig_walk(&rig, gfn).kind != WALK_LEAF) {
            REQUIRE_EQ(hvmem_stage2_fault(rig.s2, gfn << 12, WALK_W, &outcome), HVMEM_OK);
            REQUIRE_EQ(outcome, HVMEM_FAULT_ENTER);
            traps++;
        }
    return traps;
}

TEST(traps_by_size_of_mapping)
{
    static const struct {
        unsigned largest;
        uint64_t traps, pushed;
    } known[] = {{18, 1, 0}, {9, 512, 1}, {0, 262145, 513}};
    unsigned i;

    for (i = 0; i < 3; i++) {
        stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
        rig.config.largest = known[i].largest;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, GIB, GIB, GIB, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(touch_1_gib(GIB), 0);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK_EQ(touch_1_gib(GIB), known[i].traps);
        CHECK_EQ(rig_stats(&rig).pushed, known[i].pushed);
        CHECK_EQ(touch_1_gib(GIB), 0);
        stage2_rig_finish(&rig);
    }
}

TEST(one_table_is_pushed_down_a_fault)
{
    uint64_t pushed, level;
    hvmem_u32 outcome;

    stage2_rig_begin(&rig, HVMEM_S2_NPT);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    for (level = 0; level < 3; level++) {
        pushed = rig_stats(&rig).pushed;
        CHECK_EQ(rig_walk(&rig, 3).kind, WALK_INVALID);
        CHECK_EQ(hvmem_stage2_fault(rig.s2, 3 << 12, WALK_R, &outcome), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).pushed, pushed + 1);
    }
    CHECK_EQ(rig_walk(&rig, 3).kind, WALK_LEAF);
    CHECK_EQ(rig_walk(&rig, 4).kind, WALK_INVALID);
    stage2_rig_finish(&rig);
}

/* ---- arming --------------------------------------------------------------------------------- */

TEST(arming_ends_with_a_flush_of_the_whole_id)
{
    uint64_t whole;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, LOT, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x5000, WALK_W) >= 0);
    CHECK(rig_access(&rig, 1, 0x205000, WALK_W) >= 0);
    whole = rig.whole;
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    CHECK_EQ(rig.whole, whole + 1);
    CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    CHECK(!rig_touched(&rig, 5) && !rig_touched(&rig, 0x205));
    /* Nobody gets by unseen. */
    CHECK(rig_access(&rig, 1, 0x205000, WALK_R) > 0);
    CHECK(rig_touched(&rig, 0x205) && !rig_touched(&rig, 5));
    stage2_rig_finish(&rig);
}

TEST(a_flush_that_fails_does_not_arm)
{
    struct hvmem_cursor cursor;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, LOT, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x5000, WALK_W) >= 0);
    memset(&cursor, 0, sizeof cursor);
    rig.fail_flushes = 2;
    CHECK(hvmem_track_arm(rig.s2, &cursor) < 0);
    rig.fail_flushes = 0;
    CHECK(!hvmem_track_armed(rig.s2));
    /* What a CPU still holds is known to be held. */
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 5, 1, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 5, 1), 0);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    stage2_rig_finish(&rig);
}

TEST(mappings_made_while_armed_start_untouched)
{
    struct hvmem_domain_ops ops;

    stage2_rig_prepare(&rig, HVMEM_S2_EPT);
    rig.config.flags = HVMEM_S2_TRACK;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, HOME, 2048);
    hvmem_stage2_ops(&ops);
    CHECK_EQ(ops.map(rig.s2, 0, HOME, 3), HVMEM_OK);
    CHECK(rig_touched(&rig, 0));
    CHECK_EQ(ops.started(rig.s2), HVMEM_OK);
    CHECK(hvmem_track_armed(rig.s2));
    CHECK_EQ(ops.map(rig.s2, 64, HOME + 64, 3), HVMEM_OK);
    CHECK(!rig_touched(&rig, 0) && !rig_touched(&rig, 64));
    CHECK(rig_access(&rig, 0, 64 << 12, WALK_R) > 0);
    CHECK(rig_touched(&rig, 64) && !rig_touched(&rig, 65) && !rig_touched(&rig, 0));
    stage2_rig_finish(&rig);
}

/* Leaves of three sizes; which were touched is known exactly at every moment. */
static void exact(uint32_t format, uint64_t steps)
{
    static const uint64_t bases[] = {0, 0x200, 0x400, 0x40000, 0x80000};
    static const unsigned orders[] = {0, 9, 9, 18, 0};
    static uint8_t was[0x400 + 0x400];
    struct test_rng rng = test_rng(format);
    uint64_t i, k, gfn, young;

    stage2_rig_begin(&rig, format);
    memset(was, 0, sizeof was);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x90001, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x200, 1024, 0x90200, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x40000, 0x40000, 0x40000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x80000, 700, 0x90001, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    for (i = 0; i < steps; i++) {
        k = test_below(&rng, 5);
        gfn = bases[k] + test_below(&rng, orders[k] ? (uint64_t)1 << orders[k] : 512);
        /* One number a leaf. */
        young = orders[k] ? 512 + k : (k == 4 ? 600 : 0) + (gfn & 511);
        switch (test_below(&rng, 40)) {
        case 0:
            CHECK_EQ(rig_arm(&rig), HVMEM_OK);
            memset(was, 0, sizeof was);
            break;
        case 1:
            CHECK_EQ(hvmem_track_age(rig.s2, gfn, 1, HVMEM_AGE_CLEAR, &gfn), HVMEM_OK);
            CHECK_EQ(gfn, was[young]);
            was[young] = 0;
            break;
        case 2:
        case 3:
        case 4:
        case 5:
            CHECK(rig_access(&rig, (hvmem_cpu)test_below(&rng, 2), gfn << 12, WALK_R) >= 0);
            was[young] = 1;
            break;
        default:
            CHECK_EQ(rig_touched(&rig, gfn), was[young]);
            break;
        }
    }
    stage2_rig_finish(&rig);
}

TEST(touched_since_is_exact)
{
    exact(HVMEM_S2_ARM64, test_rounds(20000));
    exact(HVMEM_S2_NPT, test_rounds(20000));
    exact(HVMEM_S2_EPT, test_rounds(20000));
}

TEST(touched_since_is_exact_for_long, slow)
{
    exact(HVMEM_S2_ARM64, test_rounds(1000000));
    exact(HVMEM_S2_EPT, test_rounds(1000000));
}

/* ---- set/way -------------------------------------------------------------------------------- */

/* Frames with dirty lines in a cache, by guest frame. */
static uint8_t dirty[LOT];
static struct test_rng writer;
static int writes;

static void write_guest(hvmem_cpu cpu, uint64_t gfn)
{
    CHECK(rig_access(&rig, cpu, gfn << 12, WALK_W) >= 0);
    dirty[gfn] = 1;
}

/* A frame's first line is cleaned: the other CPU writes right behind it, here or elsewhere. */
static void clean_and_write(struct stage2_rig *r, hvmem_mfn mfn)
{
    hvmem_cpu cpu = r->tlb->current;

    if (mfn >= HOME && mfn < HOME + LOT)
        dirty[mfn - HOME] = 0;
    if (writes > 0 && test_below(&writer, 4) == 0) {
        writes--;
        write_guest(1, test_below(&writer, 2) ? mfn - HOME : test_below(&writer, LOT));
    }
    r->tlb->current = cpu;
}

/* The last store through an old translation, before it is flushed. */
static void write_at_flush(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    struct hvmem_sim_entry e;
    uint64_t gfn = test_below(&writer, LOT);

    (void)flush;
    if (hvmem_sim_tlb_access(r->tlb, 1, gfn, &e) && e.frame >> 8)
        dirty[gfn] = 1;
}

static uint64_t dirty_frames(void)
{
    uint64_t i, n = 0;

    for (i = 0; i < LOT; i++)
        n += dirty[i];
    return n;
}

static void begin_setway(unsigned largest, uint32_t format)
{
    stage2_rig_prepare(&rig, format);
    rig.config.largest = largest;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, LOT, HOME, 7, 0, NULL), HVMEM_OK);
    memset(dirty, 0, sizeof dirty);
    writer = test_rng(largest + format);
    writes = 0;
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
}

TEST(setway_cleans_what_was_touched_and_nothing_else)
{
    struct hvmem_track_progress p;

    begin_setway(0, HVMEM_S2_ARM64);
    rig.on_clean = clean_and_write;
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(p.noted, 0);
    CHECK_EQ(rig.lines, 0);
    write_guest(0, 5);
    write_guest(1, 700);
    write_guest(1, LOT - 1);
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(p.noted, 3);
    CHECK_EQ(p.cleaned, 3);
    CHECK_EQ(rig.lines, 3 * 64);
    CHECK_EQ(dirty_frames(), 0);
    /* Re-armed: nothing is left for the next, and stores are seen again. */
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(p.noted, 0);
    write_guest(0, 700);
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(p.cleaned, 1);
    CHECK_EQ(dirty_frames(), 0);
    stage2_rig_finish(&rig);
}

TEST(setway_loses_no_store_made_meanwhile)
{
    static const unsigned largest[] = {0, 9, 0, 9};
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_track_progress p;
    int i, round, k;

    for (i = 0; i < 4; i++) {
        begin_setway(largest[i], formats[i]);
        rig.on_clean = clean_and_write;
        rig.on_flush = write_at_flush;
        for (round = 0; round < 40; round++) {
            for (k = 0; k < 20; k++)
                write_guest((hvmem_cpu)test_below(&writer, 2), test_below(&writer, LOT));
            writes = 10;
            CHECK_EQ(rig_setway(&rig, largest[i] ? 4096 : 64, &p), HVMEM_OK);
            writes = 0;
            /* The stores in between are dirty still, and known to be. */
            CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
            CHECK_EQ(dirty_frames(), 0);
        }
        stage2_rig_finish(&rig);
    }
}

TEST(setway_is_preempted_after_its_budget)
{
    struct hvmem_track_progress p;
    struct hvmem_cursor cursor;
    uint64_t lines, most = 0;
    hvmem_status status;
    int i, calls = 0;

    begin_setway(9, HVMEM_S2_ARM64);
    for (i = 0; i < 4; i++)
        write_guest(0, (uint64_t)i * 512 + 9);
    memset(&cursor, 0, sizeof cursor);
    memset(&p, 0, sizeof p);
    do {
        lines = rig.lines;
        status = hvmem_track_setway(rig.s2, 1000, &cursor, &p);
        calls++;
        most = rig.lines - lines > most ? rig.lines - lines : most;
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK(most <= 1000);
    CHECK_EQ(p.cleaned, LOT);
    CHECK(calls >= (int)(LOT * 64 / 1000));
    stage2_rig_finish(&rig);
}

TEST(setway_given_up_half_way_is_taken_over)
{
    struct hvmem_track_progress p;
    struct hvmem_cursor cursor;

    begin_setway(9, HVMEM_S2_ARM64);
    rig.on_clean = clean_and_write;
    write_guest(0, 9);
    write_guest(0, 1000);
    memset(&cursor, 0, sizeof cursor);
    memset(&p, 0, sizeof p);
    CHECK_EQ(hvmem_track_setway(rig.s2, 640, &cursor, &p), HVMEM_AGAIN);
    CHECK_EQ(p.noted, 1024);
    CHECK_EQ(p.cleaned, 10);
    /* Part of what was noted goes away meanwhile. */
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 600, 24, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(dirty_frames(), 0);
    CHECK_EQ(p.cleaned, 1024 - 10 - 24);
    CHECK_EQ(hvmem_track_setway(rig.s2, 640, &cursor, &p), HVMEM_E_STALE);
    stage2_rig_finish(&rig);
}

TEST(setway_after_a_failed_flush_flushes_first)
{
    struct hvmem_track_progress p;
    struct hvmem_cursor cursor;
    uint64_t flushes;

    begin_setway(0, HVMEM_S2_ARM64);
    rig.on_clean = clean_and_write;
    write_guest(0, 9);
    memset(&cursor, 0, sizeof cursor);
    memset(&p, 0, sizeof p);
    rig.fail_flushes = 3;
    CHECK(hvmem_track_setway(rig.s2, 0, &cursor, &p) < 0);
    CHECK_EQ(rig.lines, 0);
    rig.fail_flushes = 0;
    flushes = rig.flushes;
    CHECK_EQ(hvmem_track_setway(rig.s2, 0, &cursor, &p), HVMEM_AGAIN);
    CHECK(rig.flushes > flushes);
    CHECK_EQ(p.cleaned, 1);
    while (hvmem_track_setway(rig.s2, 0, &cursor, &p) == HVMEM_AGAIN)
        ;
    CHECK_EQ(dirty_frames(), 0);
    stage2_rig_finish(&rig);
}

TEST(ageing_hides_nothing_from_setway)
{
    struct hvmem_track_progress p;
    uint64_t young;

    begin_setway(0, HVMEM_S2_EPT);
    rig.on_clean = clean_and_write;
    write_guest(0, 77);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, LOT, HVMEM_AGE_CLEAR, &young), HVMEM_OK);
    CHECK_EQ(young, 1);
    CHECK(!rig_touched(&rig, 77));
    CHECK_EQ(rig_setway(&rig, 0, &p), HVMEM_OK);
    CHECK_EQ(p.cleaned, 1);
    CHECK_EQ(dirty_frames(), 0);
    stage2_rig_finish(&rig);
}

TEST(setway_operands_name_a_line)
{
    struct hvmem_setway_geometry g;

    memset(&g, 0, sizeof g);
    g.levels = 2;
    g.level[0].sets = 64;
    g.level[0].ways = 4;
    g.level[0].line_shift = 6;
    g.level[1].sets = 1024;
    g.level[1].ways = 11; /* not a power of two: shift of 4 bits */
    g.level[1].line_shift = 6;
    CHECK_EQ(hvmem_track_setway_operand(&g, 0), HVMEM_OK);
    CHECK_EQ(hvmem_track_setway_operand(&g, 3u << 30 | 63u << 6), HVMEM_OK);
    CHECK_EQ(hvmem_track_setway_operand(&g, 3u << 30 | 64u << 6), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, 2 | 10u << 28 | 1023u << 6), HVMEM_OK);
    CHECK_EQ(hvmem_track_setway_operand(&g, 2 | 11u << 28), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, 2 | 1024u << 6), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, 4), HVMEM_E_LEVEL);
    CHECK_EQ(hvmem_track_setway_operand(&g, 14), HVMEM_E_LEVEL);
    CHECK_EQ(hvmem_track_setway_operand(&g, 1), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, 1 << 4), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, 1ull << 32), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_setway_operand(&g, ~0ull), HVMEM_E_LEVEL);
    g.level[0].line_shift = 3;
    CHECK_EQ(hvmem_track_setway_operand(&g, 0), HVMEM_E_ARG);
    g.levels = 8;
    CHECK_EQ(hvmem_track_setway_operand(&g, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_track_setway_operand(NULL, 0), HVMEM_E_ARG);
}

/* ---- work of one call ------------------------------------------------------------------------ */

/* Valid entries of tables of 2 MiB blocks: how many such blocks one call of a disarm makes valid at most. */
static uint64_t valid_blocks(uint64_t tables)
{
    uint64_t gfn, n = 0;

    for (gfn = 0; gfn < tables * GIB; gfn += 512)
        n += rig_walk(&rig, gfn).kind == WALK_LEAF;
    return n;
}

TEST(a_disarm_does_one_table_a_call)
{
    enum { TABLES = 8 };
    struct hvmem_cursor cursor;
    uint64_t before, after, i;
    hvmem_status status;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.input_bits = 36;
    rig.config.largest = 9;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    for (i = 0; i < TABLES; i++)
        CHECK_EQ(rig_map(&rig, i * GIB, GIB, 0x100000 + i * GIB, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    /* All tables are pushed down: nothing is valid. */
    for (i = 0; i < TABLES; i++)
        CHECK(rig_access(&rig, 0, (i * GIB) << 12, HVMEM_S2_R) >= 0);
    before = valid_blocks(TABLES);
    CHECK_EQ(before, TABLES);
    memset(&cursor, 0, sizeof cursor);
    do {
        status = hvmem_track_disarm(rig.s2, &cursor);
        after = valid_blocks(TABLES);
        CHECK(after - before <= 512);
        before = after;
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(after, 512 * TABLES);
    stage2_rig_finish(&rig);
}
