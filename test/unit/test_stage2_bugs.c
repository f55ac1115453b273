/* SPDX-License-Identifier: BSD-2-Clause */
/* Reported bugs of second-stage tables (B36, B39), failures half-way, first touch, numbers of a guest. */
#include "stage2_rig.h"

#include <hvmem/populate.h>

#include <string.h>

static struct stage2_rig rig;

/* ---- B36: invalid for hardware is not unmapped ---------------------------------------------- */

static void gone_for_good(uint64_t gfn, int level)
{
    struct hvmem_stage2_leaf leaf;

    int i;

    CHECK_EQ(walk_raw(&rig.tables, gfn << 12, level), 0);
    /* A fault a level, which makes the tables above valid again, and not one that repairs the page. */
    for (i = 0; i < 3 && rig_fault(&rig, gfn, WALK_R) == HVMEM_FAULT_ENTER; i++)
        ;
    CHECK_EQ(rig_fault(&rig, gfn, WALK_R), HVMEM_FAULT_UNMAPPED);
    CHECK_EQ(rig_access(&rig, 0, gfn << 12, WALK_R), -1);
    CHECK_EQ(rig_access(&rig, 1, gfn << 12, WALK_R), -1);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, gfn, &leaf), HVMEM_E_FREE);
}

TEST(B36_a_tracked_entry_is_really_removed)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_stage2_leaf leaf;
    int i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        CHECK_EQ(rig_map(&rig, 0x100, 8, 0x9000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 512, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK_EQ(rig_walk(&rig, 0x100).kind, WALK_INVALID);
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, 0x100, &leaf), HVMEM_OK);
        CHECK_EQ(leaf.state, 0);
        /* Removed, untouched: a page, part of a block, a changed frame, changed rights. */
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x100, 1, NULL, NULL), HVMEM_OK);
        gone_for_good(0x100, 3);
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 600, 1, NULL, NULL), HVMEM_OK);
        gone_for_good(600, 3);
        CHECK(rig_access(&rig, 1, 601 << 12, WALK_W) > 0);
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x101, 1, NULL, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 0x101, 1, 0x7777, 7, 0, NULL), HVMEM_OK);
        CHECK(rig_access(&rig, 0, 0x101000, WALK_R) > 0);
        CHECK_EQ(rig_walk(&rig, 0x101).address, 0x7777000);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 0x102, 1, WALK_R, NULL, NULL), HVMEM_OK);
        CHECK_EQ(rig_access(&rig, 0, 0x102000, WALK_W), -1);
        CHECK(rig_access(&rig, 0, 0x102000, WALK_R) >= 0);
        CHECK_EQ(rig_stats(&rig).frames, 7 + 511);
        stage2_rig_finish(&rig);
    }
}

TEST(B36_armed_twice_and_touched_by_two_cpus_at_once)
{
    uint64_t repairs;
    hvmem_u32 a, b;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 16, 0x9000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    /* Both faulted before either was handled: root entry, table, page. */
    a = rig_fault(&rig, 3, WALK_R);
    b = rig_fault(&rig, 3, WALK_R);
    CHECK_EQ(a, HVMEM_FAULT_ENTER);
    CHECK_EQ(b, HVMEM_FAULT_ENTER);
    rig_fault(&rig, 3, WALK_R);
    repairs = rig_stats(&rig).repairs;
    CHECK_EQ(repairs, 1);
    rig_fault(&rig, 3, WALK_R);
    CHECK_EQ(rig_stats(&rig).repairs, 1);
    CHECK_EQ(rig_access(&rig, 0, 3 << 12, WALK_R), 0);
    CHECK_EQ(rig_access(&rig, 1, 3 << 12, WALK_R), 0);
    stage2_rig_finish(&rig);
}

TEST(B36_one_touched_entry_makes_the_range_young_once)
{
    uint64_t young, flushes;

    stage2_rig_begin(&rig, HVMEM_S2_EPT);
    CHECK_EQ(rig_map(&rig, 0x200, 512, 0x9001, 7, 0, NULL), HVMEM_OK); /* small entries */
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    CHECK(rig_access(&rig, 0, (uint64_t)(0x200 + 300) << 12, WALK_W) > 0);
    flushes = rig.flushes;
    CHECK_EQ(hvmem_track_age(rig.s2, 0x200, 512, HVMEM_AGE_CLEAR, &young), HVMEM_OK);
    CHECK_EQ(young, 1);
    CHECK_EQ(rig.flushes, flushes + 1);
    CHECK_EQ(rig_holds(&rig, 0x200, 512), 0);
    CHECK_EQ(hvmem_track_age(rig.s2, 0x200, 512, HVMEM_AGE_CLEAR, &young), HVMEM_OK);
    CHECK_EQ(young, 0);
    CHECK_EQ(rig.flushes, flushes + 1); /* nothing changed, nothing flushed */
    CHECK(rig_access(&rig, 1, (uint64_t)(0x200 + 300) << 12, WALK_W) > 0);
    CHECK_EQ(hvmem_track_age(rig.s2, 0x200, 512, 0, &young), HVMEM_OK);
    CHECK_EQ(young, 1);
    stage2_rig_finish(&rig);
}

static hvmem_status forget(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                           hvmem_u64 *ticket)
{
    (void)ranges;
    (void)count;
    (void)ticket;
    ++*(int *)ctx;
    return HVMEM_OK;
}

TEST(B36_tables_shared_with_a_device_are_not_tracked)
{
    struct hvmem_track_progress progress;
    struct hvmem_notifier device;
    struct hvmem_cursor cursor;
    hvmem_u64 touched;
    int told = 0;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = &told;
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_E_BUSY);
    CHECK(!hvmem_track_armed(rig.s2));
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_track_setway(rig.s2, 0, &cursor, &progress), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 512, HVMEM_AGE_CLEAR, &touched), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 512, 0, &touched), HVMEM_OK);
    CHECK_EQ(touched, 512);
    CHECK_EQ(rig_walk(&rig, 5).kind, WALK_LEAF);
    CHECK(rig_access(&rig, 0, 0x5000, WALK_R) >= 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, NULL), HVMEM_OK);
    CHECK(told > 0);
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_stage2_teardown(rig.s2, &cursor), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    stage2_rig_finish(&rig);
}

/* ---- B39: failures half-way ----------------------------------------------------------------- */

TEST(B39_a_split_that_fails_leaves_the_block_mapped, points)
{
    struct hvmem_stage2_leaf leaf;
    uint64_t done, i, used;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 512, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 700 << 12, WALK_W) >= 0);
    used = rig_stats(&rig).tables;
    rig.fail_tables = 1;
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 700, 1, NULL, &done), HVMEM_E_NOMEM);
    CHECK_EQ(done, 0);
    for (i = 512; i < 1024; i++) {
        struct walk_entry e = rig_walk(&rig, i);

        CHECK(e.kind == WALK_LEAF && e.address == (0x10000 + i - 512) << 12 && e.shift == 21);
    }
    CHECK_EQ(rig_stats(&rig).tables, used);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 700, 1, NULL, &done), HVMEM_OK);
    CHECK_EQ(done, 1);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 700, &leaf), HVMEM_E_FREE);
    CHECK_EQ(rig_stats(&rig).frames, 511);
    stage2_rig_finish(&rig);
}

/* Fails the k-th table of one operation for all k; what is reported is what changed. */
static void fail_each(int unmap)
{
    uint64_t done, i, mapped, start = 0x3ff00, frames = 0x40300;
    hvmem_status status = HVMEM_E_NOMEM;
    struct hvmem_stage2_leaf leaf;
    int k;

    for (k = 1; status; k++) {
        stage2_rig_begin(&rig, HVMEM_S2_NPT);
        if (unmap)
            CHECK_EQ(rig_map(&rig, 0, 0xc0000, 0, 7, 0, NULL), HVMEM_OK);
        rig.fail_tables = k;
        if (unmap)
            status = hvmem_stage2_unmap(rig.s2, start + 1, frames, NULL, &done);
        else
            status = rig_map(&rig, start, frames, 0x100000 + start, 7, 0, &done);
        rig.fail_tables = 0;
        CHECK(status == HVMEM_OK || status == HVMEM_E_NOMEM);
        CHECK_EQ(status == HVMEM_OK, done == frames);
        mapped = rig_stats(&rig).frames;
        CHECK_EQ(mapped, unmap ? 0xc0000 - done : done);
        start += (uint64_t)unmap;
        for (i = start; i < start + frames; i += i % 0x200 ? 1 : 0x1ff)
            CHECK_EQ(hvmem_stage2_lookup(rig.s2, i, &leaf) == HVMEM_OK,
                     unmap ? i >= start + done : i < start + done);
        start -= (uint64_t)unmap;
        stage2_rig_finish(&rig);
        REQUIRE(k < 20);
    }
    CHECK(k > 2);
}

TEST(B39_map_fails_at_each_table, points)
{
    fail_each(0);
}

TEST(B39_unmap_fails_at_each_table, points)
{
    fail_each(1);
}

/* Rights of part of two blocks: two splits, either of which may find no table. */
/* Who is told of the table alone would free what is done, and a CPU may reach it still. */
static void fails_twice(uint32_t format, int protects)
{
    hvmem_status status;
    hvmem_u64 done = 0;

    stage2_rig_begin(&rig, format);
    CHECK_EQ(rig_map(&rig, 0, 3, 0x10001, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 512, 512, 0x20000, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x1000, WALK_W) >= 0);
    rig.fail_tables = 1;
    rig.fail_flushes = 100;
    status = protects ? hvmem_stage2_protect(rig.s2, 0, 517, HVMEM_S2_R, NULL, &done)
                      : hvmem_stage2_unmap(rig.s2, 0, 517, NULL, &done);
    CHECK_EQ(done, 512);
    CHECK(rig_holds(&rig, 1, 1) != 0);
    CHECK_EQ(status, HVMEM_E_HOST);
    /* Flushed it is the table alone. */
    rig.fail_flushes = 0;
    rig.fail_tables = 1;
    status = protects ? hvmem_stage2_protect(rig.s2, 0, 517, HVMEM_S2_R, NULL, &done)
                      : hvmem_stage2_unmap(rig.s2, 0, 517, NULL, &done);
    CHECK_EQ(status, HVMEM_E_NOMEM);
    CHECK_EQ(rig_holds(&rig, 1, 1), 0);
    stage2_rig_finish(&rig);
}

TEST(B39_a_flush_that_fails_is_told_before_a_table, points)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    int i;

    for (i = 0; i < 6; i++)
        fails_twice(formats[i / 2], i % 2);
}

TEST(B39_protect_fails_at_each_table, points)
{
    hvmem_status status = HVMEM_E_NOMEM;
    struct hvmem_stage2_leaf leaf;
    uint64_t done, i;
    int k;

    for (k = 1; status; k++) {
        stage2_rig_begin(&rig, HVMEM_S2_ARM64);
        CHECK_EQ(rig_map(&rig, 0, 1024, 0x10000, 7, 0, NULL), HVMEM_OK);
        rig.fail_tables = k;
        status = hvmem_stage2_protect(rig.s2, 300, 500, WALK_R, NULL, &done);
        rig.fail_tables = 0;
        CHECK_EQ(status, k == 3 ? HVMEM_OK : HVMEM_E_NOMEM);
        CHECK_EQ(done, k == 3 ? 500 : k == 2 ? 212 : 0);
        CHECK_EQ(rig_stats(&rig).frames, 1024);
        for (i = 0; i < 1024; i++) {
            CHECK_EQ(hvmem_stage2_lookup(rig.s2, i, &leaf), HVMEM_OK);
            CHECK_EQ(leaf.rights, i >= 300 && i < 300 + done ? WALK_R : 7);
            CHECK_EQ(leaf.mfn, 0x10000 + i);
        }
        stage2_rig_finish(&rig);
        REQUIRE(k < 20);
    }
}

TEST(B39_what_a_domain_maps_is_all_or_nothing, points)
{
    struct hvmem_domain_ops ops;
    hvmem_mfn mfn;
    hvmem_order order;

    stage2_rig_begin(&rig, HVMEM_S2_EPT);
    hvmem_stage2_ops(&ops);
    CHECK_EQ(ops.size, sizeof ops);
    /* Out of step with large leaves: two tables of pages; the second is refused. */
    rig.fail_tables = 4;
    CHECK_EQ(ops.map(rig.s2, 0x201, 0x9000, 9), HVMEM_E_NOMEM);
    CHECK_EQ(rig_stats(&rig).frames, 0);
    CHECK_EQ(rig_stats(&rig).tables, 1);
    CHECK_EQ(ops.map(rig.s2, 0x201, 0x9000, 9), HVMEM_OK);
    CHECK_EQ(ops.lookup(rig.s2, 0x205, &mfn, &order), HVMEM_OK);
    CHECK_EQ(mfn, 0x9004);
    CHECK_EQ(order, 0);
    CHECK_EQ(ops.lookup(rig.s2, 0x10000, &mfn, &order), HVMEM_E_FREE);
    CHECK_EQ(order, 9);
    CHECK_EQ(ops.map(rig.s2, 0x300, 0x9000, 2), HVMEM_E_BUSY);
    CHECK_EQ(ops.map(rig.s2, 0x300, 0x9000, 31), HVMEM_E_ORDER);
    CHECK_EQ(ops.started(rig.s2), HVMEM_OK);
    CHECK(!hvmem_track_armed(rig.s2));
    stage2_rig_finish(&rig);
}

TEST(B39_a_flush_that_fails_leaves_the_block_mapped)
{
    uint64_t done;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 512, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 700 << 12, WALK_W) >= 0);
    rig.fail_flushes = 2;
    CHECK(hvmem_stage2_unmap(rig.s2, 700, 1, NULL, &done) != HVMEM_OK);
    rig.fail_flushes = 0;
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_walk(&rig, 700).kind, WALK_LEAF);
    CHECK_EQ(rig_walk(&rig, 700).shift, 21);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 700, 1, NULL, &done), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 700, 1), 0);
    stage2_rig_finish(&rig);
}

/* ---- tables: accounting and limits ---------------------------------------------------------- */

/* A wrong number takes nothing, whatever bounds it; what is asked for within bounds is there. */
TEST(a_reserve_does_not_empty_the_heap)
{
    static const uint64_t wrong[] = {~0ull, ~0ull >> 12, RIG_FRAMES, RIG_FRAMES / 16 + 1};
    uint64_t left, before;
    unsigned i;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.charged = 1;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    left = hvmem_free_frames(rig.heap);
    before = rig.reported;
    for (i = 0; i < 4; i++)
        CHECK_EQ(hvmem_stage2_reserve(rig.s2, wrong[i]), HVMEM_E_LIMIT);
    CHECK_EQ(hvmem_domain_limit(rig.domain, 8), HVMEM_OK); /* of which the root is one */
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 8), HVMEM_E_LIMIT);
    CHECK_EQ(rig_stats(&rig).pool, 0);
    CHECK_EQ(hvmem_free_frames(rig.heap), left);
    CHECK_EQ(rig.reported, before); /* nobody's mistake */
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 7), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).pool, 7);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 3), HVMEM_OK);
    CHECK_EQ(hvmem_domain_limit(rig.domain, ~0ull), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, hvmem_free_frames(rig.heap) / 16), HVMEM_OK);
    stage2_rig_finish(&rig);
    /* The limit may be above what there is. */
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.max_tables = 1u << 20;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    left = hvmem_free_frames(rig.heap);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, left + 1), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 1u << 20), HVMEM_E_LIMIT);
    CHECK_EQ(hvmem_free_frames(rig.heap), left);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 300), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).pool, 300);
    stage2_rig_finish(&rig);
}

TEST(tables_have_a_limit_and_an_owner)
{
    struct hvmem_domain_stats owner;
    uint64_t done;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.max_tables = 4;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 4), HVMEM_E_LIMIT); /* and none is taken */
    CHECK_EQ(rig_stats(&rig).pool, 0);
    CHECK_EQ(rig_map(&rig, 0, 1, 9, 7, 0, &done), HVMEM_OK); /* two more */
    CHECK_EQ(rig_map(&rig, 512, 1, 9, 7, 0, &done), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 1024, 1, 9, 7, 0, &done), HVMEM_E_LIMIT);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_stats(&rig).tables, 4);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 512, 1, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).tables + rig_stats(&rig).pool, 4);
    CHECK_EQ(rig_map(&rig, 1024, 1, 9, 7, 0, &done), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 1), HVMEM_E_LIMIT);
    stage2_rig_finish(&rig);
    rig.config.max_tables = 0;
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 5), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).pool, 5);
    CHECK_EQ(hvmem_domain_stats(rig.domain, &owner), HVMEM_OK);
    CHECK_EQ(owner.pages, 0); /* the host pays */
    stage2_rig_finish(&rig);
}

/* ---- first touch ---------------------------------------------------------------------------- */

TEST(first_touch_cleans_before_the_guest_gets_in)
{
    struct hvmem_stage2_leaf leaf;
    struct hvmem_domain_ops ops;
    int faults;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, RIG_BASE + 96, 1000);
    hvmem_stage2_ops(&ops);
    CHECK_EQ(ops.map_untouched(rig.s2, 0, RIG_BASE + 512, 9), HVMEM_OK);
    CHECK_EQ(ops.map_untouched(rig.s2, 0x300, RIG_BASE + 100, 0), HVMEM_OK);
    CHECK_EQ(rig_walk(&rig, 0).kind, WALK_INVALID);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 0, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.state, HVMEM_S2_UNCLEAN);
    CHECK_EQ(rig.lines, 0);
    faults = rig_access(&rig, 0, 0x300000, WALK_R);
    CHECK_EQ(faults, 1);
    CHECK_EQ(rig.lines, 64);
    CHECK_EQ(rig.cleaned[100], 64);
    /* 2 MiB in stretches of 2048 lines: not valid before the last. */
    faults = rig_access(&rig, 1, 0x7000, WALK_W);
    CHECK_EQ(faults, 32768 / 2048);
    CHECK_EQ(rig.cleaned[512], 64);
    CHECK_EQ(rig.cleaned[1023], 64);
    CHECK_EQ(rig.lines, 64 + 32768);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 0, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.state, HVMEM_S2_TOUCHED);
    CHECK_EQ(leaf.order, 9);
    CHECK_EQ(rig_access(&rig, 0, 0x9000, WALK_W), 0);
    stage2_rig_finish(&rig);
}

TEST(first_touch_waits_for_every_large_leaf_at_once)
{
    int i, round;

    stage2_rig_begin(&rig, HVMEM_S2_NPT);
    rig_set_apart(&rig, RIG_BASE + 96, 1000);
    /* More leaves in progress than there are records: one goes by pages. */
    for (i = 0; i < 12; i++) {
        struct hvmem_stage2_leaf leaf;
        struct hvmem_domain_ops ops;

        hvmem_stage2_ops(&ops);
        CHECK_EQ(ops.map_untouched(rig.s2, (uint64_t)i * 512, RIG_BASE + 512, 9), HVMEM_OK);
        CHECK(rig_fault(&rig, (uint64_t)i * 512 + 3, WALK_R) == HVMEM_FAULT_AGAIN || i >= 8);
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, (uint64_t)i * 512 + 3, &leaf), HVMEM_OK);
        CHECK(i < 8 ? leaf.order == 9 : i > 8 || leaf.order == 0);
    }
    for (round = 0; round < 12; round++)
        CHECK(rig_access(&rig, 0, (uint64_t)round * 512 << 12, WALK_R) >= 0);
    stage2_rig_finish(&rig);
}

static void disarm(void)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    int calls = 0;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_track_disarm(rig.s2, &cursor);
    while (status == HVMEM_AGAIN && ++calls < 10000);
    CHECK_EQ(status, HVMEM_OK);
}

TEST(first_touch_after_dma_is_refused)
{
    struct hvmem_notifier device;
    struct hvmem_domain_ops ops;
    int told = 0;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, RIG_BASE + 96, 1000);
    hvmem_stage2_ops(&ops);
    CHECK_EQ(ops.map_untouched(rig.s2, 0, RIG_BASE + 512, 9), HVMEM_OK);
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    /* Before a device may walk the tables everything is cleaned and valid. */
    disarm();
    CHECK_EQ(rig.lines, 32768);
    CHECK_EQ(rig_walk(&rig, 100).kind, WALK_LEAF);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = &told;
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(ops.map_untouched(rig.s2, 512, RIG_BASE + 512, 9), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    stage2_rig_finish(&rig);
}

/* Behind where a disarm has got to a frame is mapped that waits: its end does not let a device in. */
TEST(first_touch_mapped_beside_a_disarm_keeps_devices_out)
{
    struct hvmem_notifier device;
    struct hvmem_domain_ops ops;
    struct hvmem_cursor cursor;
    hvmem_status status;
    int told = 0;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, RIG_BASE + 96, 1000);
    hvmem_stage2_ops(&ops);
    CHECK_EQ(ops.map_untouched(rig.s2, 0x300, RIG_BASE + 512, 0), HVMEM_OK);
    CHECK_EQ(ops.map_untouched(rig.s2, 0x700, RIG_BASE + 513, 0), HVMEM_OK);
    memset(&cursor, 0, sizeof cursor);
    while (rig.cleaned[512] == 0)
        REQUIRE_EQ(hvmem_track_disarm(rig.s2, &cursor), HVMEM_AGAIN);
    CHECK_EQ(ops.map_untouched(rig.s2, 5, RIG_BASE + 514, 0), HVMEM_OK);
    do
        status = hvmem_track_disarm(rig.s2, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = &told;
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_E_BUSY);
    disarm();
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    stage2_rig_finish(&rig);
}

TEST(first_touch_is_refused_beside_a_device)
{
    uint64_t touched;
    struct hvmem_notifier device;
    struct hvmem_stage2_leaf leaf;
    struct hvmem_stage2_map map;
    int told = 0;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.flags = HVMEM_S2_FIRST_TOUCH;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = &told;
    CHECK_EQ(rig_map(&rig, 2, 1, 0x10002, 7, 0, NULL), HVMEM_OK);
    /* Nor is a device let in while what is mapped waits for a fault, or for being aged. */
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 2, 1, NULL, NULL), HVMEM_OK);
    disarm();
    CHECK_EQ(rig_map(&rig, 0, 1, 0x10000, 7, HVMEM_S2_NC, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 1, HVMEM_AGE_CLEAR, &touched), HVMEM_OK);
    CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_E_BUSY);
    disarm();
    REQUIRE_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 1, 1, 0x10001, 7, 0, NULL), HVMEM_E_BUSY);
    /* Refused before what is there goes away. */
    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.mfn = 0x10001;
    map.frames = 1;
    map.rights = 7;
    map.flags = HVMEM_S2_REPLACE;
    CHECK_EQ(hvmem_stage2_map(rig.s2, &map, NULL), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 0, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.mfn, 0x10000);
    CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 1, 1, 0x10001, 7, 0, NULL), HVMEM_OK);
    stage2_rig_finish(&rig);
}

TEST(B39_a_merge_whose_flush_fails_stays_broken)
{
    struct hvmem_stage2_leaf leaf;
    uint64_t done;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 512, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 700, 1, WALK_R, NULL, &done), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 700, 1, 7, NULL, &done), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 700 << 12, WALK_W) >= 0);
    CHECK_EQ(rig_walk(&rig, 700).shift, 12);
    rig.fail_flushes = 100;
    CHECK(hvmem_stage2_merge(rig.s2, 512, 512, &done) != HVMEM_OK);
    rig.fail_flushes = 0;
    /* The page may still be cached: the block must not be valid beside it. */
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 700, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.order, 9);
    CHECK_EQ(rig_walk(&rig, 700).kind, WALK_INVALID);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 512, 512, &done), HVMEM_OK);
    CHECK_EQ(rig_walk(&rig, 700).kind, WALK_LEAF);
    CHECK_EQ(rig_walk(&rig, 700).shift, 21);
    CHECK(rig_access(&rig, 0, 700 << 12, WALK_W) >= 0);
    stage2_rig_finish(&rig);
}

/* ---- on demand ------------------------------------------------------------------------------ */

static int given, lost;
static hvmem_status answer;
static hvmem_u32 give_order, give_state;

static hvmem_status give(void *ctx, hvmem_gfn gfn, hvmem_u32 access, struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)access;
    given++;
    leaf->order = give_order;
    leaf->mfn = give_order ? 0x40000 : 0x5000 + gfn;
    leaf->rights = WALK_R | WALK_W;
    leaf->state = give_state;
    return answer;
}

static void lose(void *ctx, hvmem_gfn gfn, const struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)gfn;
    (void)leaf;
    lost++;
}

TEST(frames_on_demand)
{
    given = lost = 0;
    stage2_rig_prepare(&rig, HVMEM_S2_EPT);
    rig.config.populate.give = give;
    rig.config.populate.lost = lose;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    answer = HVMEM_AGAIN;
    give_order = 0;
    CHECK_EQ(rig_fault(&rig, 7, WALK_R), HVMEM_FAULT_AGAIN);
    answer = HVMEM_E_NOMEM;
    CHECK_EQ(rig_fault(&rig, 7, WALK_R), HVMEM_FAULT_UNMAPPED);
    answer = HVMEM_OK;
    CHECK(rig_access(&rig, 0, 0x7000, WALK_W) >= 0);
    CHECK_EQ(rig_walk(&rig, 7).address, 0x5007000);
    CHECK_EQ(rig_access(&rig, 0, 0x7000, WALK_X), -1);
    CHECK_EQ(given, 3);
    /* A large answer where something is mapped already. */
    give_order = 9;
    CHECK_EQ(rig_fault(&rig, 8, WALK_R), HVMEM_FAULT_ENTER);
    CHECK_EQ(lost, 1);
    CHECK(rig_access(&rig, 0, 0x400000, WALK_R) >= 0);
    CHECK_EQ(rig_walk(&rig, 0x400).shift, 21);
    stage2_rig_finish(&rig);
}

/* One fault maps no more than one table of entries: what would take 262,144 is refused. */
TEST(blocks_on_demand_are_one_step)
{
    static const struct {
        hvmem_u32 largest, order;
        uint32_t entries; /* 0: refused */
    } kinds[] = {{0, 9, 512}, {0, 18, 0}, {9, 9, 1}, {9, 18, 512}, {18, 18, 1}};
    hvmem_u32 outcome;
    unsigned i;

    for (i = 0; i < 5; i++) {
        given = lost = 0;
        give_state = 0;
        answer = HVMEM_OK;
        give_order = kinds[i].order;
        stage2_rig_prepare(&rig, HVMEM_S2_EPT);
        rig.config.largest = kinds[i].largest;
        rig.config.populate.give = give;
        rig.config.populate.lost = lose;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, WALK_R, &outcome),
                 kinds[i].entries ? HVMEM_OK : HVMEM_E_ORDER);
        CHECK_EQ(outcome, kinds[i].entries ? HVMEM_FAULT_ENTER : HVMEM_FAULT_UNMAPPED);
        CHECK_EQ(lost, !kinds[i].entries);
        CHECK_EQ(rig_stats(&rig).frames, kinds[i].entries ? 1ull << kinds[i].order : 0);
        CHECK_EQ(rig_stats(&rig).leaves[kinds[i].largest / 9], kinds[i].entries);
        stage2_rig_finish(&rig);
    }
}

TEST(unclean_frames_on_demand_are_refused_beside_a_device)
{
    struct hvmem_notifier device;
    hvmem_u32 outcome;
    int told = 0;

    given = lost = 0;
    answer = HVMEM_OK;
    give_order = 0;
    give_state = HVMEM_S2_UNCLEAN;
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.populate.give = give;
    rig.config.populate.lost = lose;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = &told;
    REQUIRE_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_R, &outcome), HVMEM_E_BUSY);
    CHECK_EQ(outcome, HVMEM_FAULT_UNMAPPED);
    CHECK_EQ(lost, 1);
    CHECK_EQ(rig_stats(&rig).frames, 0);
    give_state = 0;
    CHECK_EQ(rig_fault(&rig, 7, WALK_R), HVMEM_FAULT_ENTER);
    CHECK_EQ(rig_stats(&rig).frames, 1);
    CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    stage2_rig_finish(&rig);
}

/* ---- numbers of a guest --------------------------------------------------------------------- */

TEST(a_gather_that_is_over_takes_nothing)
{
    struct hvmem_gather gather;
    hvmem_u64 done = 7;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 5, 1, 0x1000, WALK_R, 0, NULL), HVMEM_OK);
    memset(&gather, 0, sizeof gather);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 5, 1, &gather, &done), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0x5000, 4096), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 5, 1, &gather, &done), HVMEM_E_STALE);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 5, 1, WALK_R, &gather, &done), HVMEM_E_STALE);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_walk(&rig, 5).kind, WALK_LEAF);
    stage2_rig_close(&rig);
}

/* What is mapped beside a caller's open gather costs a flush where it was removed, and nowhere else. */
TEST(only_what_a_gather_holds_is_flushed_before_a_map)
{
    struct hvmem_gather gather;
    hvmem_u64 done;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, RIG_BASE + 96, 1000);
    CHECK_EQ(rig_map(&rig, 0x200, 16, 0x1000, WALK_R, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x500, 1, 0x1000, WALK_R, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x205000, WALK_R) >= 0);
    rig.flushes = 0;
    memset(&gather, 0, sizeof gather);
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0x205000, 4096),
             HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x205, 1, &gather, &done), HVMEM_OK);
    CHECK_EQ(rig.flushes, 0);
    CHECK_EQ(rig_map(&rig, 0x504, 2, 0x1000, WALK_R, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig.flushes, 0);
    CHECK_EQ(rig_map(&rig, 0x205, 1, RIG_BASE + 99, WALK_R, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig.flushes, 1);
    CHECK_EQ(rig_holds(&rig, 0x205, 1), 0);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    rig.flushes = 0;
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x205, 1, NULL, &done), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x205, 1, 0x1000, WALK_R, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig.flushes, 1); /* the unmap's own */
    stage2_rig_close(&rig);
}

TEST(numbers_of_a_guest_are_refused)
{
    uint64_t top = 1ull << 20, done = 7, value, reported;
    struct hvmem_track_progress progress;
    struct hvmem_stage2_leaf leaf;
    struct hvmem_cursor cursor, other;
    hvmem_u32 outcome;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 3, 1, 5, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, top, 1, NULL, &done), HVMEM_E_RANGE);
    CHECK_EQ(done, 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, top - 1, 2, NULL, &done), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 5, ~0ull, NULL, &done), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, ~0ull, 2, NULL, &done), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 0, 7, NULL, &done), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 1, 2, NULL, &done), HVMEM_E_ARG);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 1, 9, NULL, &done), HVMEM_E_ARG);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, top, 1, &done), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, top, &leaf), HVMEM_E_RANGE);
    CHECK_EQ(rig_map(&rig, 0, 1, 1ull << 36, 7, 0, NULL), HVMEM_E_RANGE);
    CHECK_EQ(rig_map(&rig, 0, 2, (1ull << 36) - 1, 7, 0, NULL), HVMEM_E_RANGE);
    CHECK_EQ(rig_map(&rig, 0, 1, ~0ull, 7, 0, NULL), HVMEM_E_RANGE);
    CHECK_EQ(rig_map(&rig, 0, 1, 5, 6, 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(rig_map(&rig, 0, 1, 5, 7, 3, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 0x40001, 0, &value), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 1, 2, &value), HVMEM_E_ARG);
    reported = rig.reported;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 1ull << 32, WALK_R, &outcome), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, ~0ull, WALK_R, &outcome), HVMEM_E_RANGE);
    CHECK_EQ(rig.reported, reported); /* a guest cannot fill the host's log */
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, 0, &outcome), HVMEM_E_ARG);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, 8, &outcome), HVMEM_E_ARG);
    CHECK_EQ(rig_fault(&rig, 0, WALK_R), HVMEM_FAULT_UNMAPPED);
    CHECK_EQ(rig_walk(&rig, 3).kind, WALK_LEAF);
    /* Cursors: forged, of another kind, over. */
    memset(&cursor, 0, sizeof cursor);
    cursor.words[0] = 's';
    cursor.words[1] = 1;
    CHECK_EQ(hvmem_track_setway(rig.s2, 0, &cursor, &progress), HVMEM_E_STALE);
    CHECK_EQ(hvmem_track_arm(rig.s2, &cursor), HVMEM_E_STALE);
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_track_disarm(rig.s2, &cursor), HVMEM_AGAIN);
    other = cursor;
    other.words[3] = 1;
    CHECK_EQ(hvmem_track_disarm(rig.s2, &other), HVMEM_E_STALE);
    other = cursor;
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_track_disarm(rig.s2, &cursor), HVMEM_AGAIN);
    CHECK_EQ(hvmem_track_disarm(rig.s2, &other), HVMEM_E_STALE);
    while (hvmem_track_disarm(rig.s2, &cursor) == HVMEM_AGAIN)
        ;
    CHECK_EQ(hvmem_track_disarm(rig.s2, &cursor), HVMEM_E_STALE);
    CHECK_EQ(rig_stats(&rig).frames, 1);
    stage2_rig_finish(&rig);
}

TEST(a_torn_down_stage2_refuses)
{
    struct hvmem_cursor cursor;
    struct hvmem_stage2_leaf leaf;
    hvmem_u32 outcome;
    hvmem_u64 root, touched;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 3, 5, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x1000, WALK_R) >= 0);
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_stage2_teardown(rig.s2, &cursor), HVMEM_AGAIN);
    CHECK_EQ(rig_map(&rig, 9, 3, 5, 7, 0, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 1, NULL, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 0, &leaf), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, WALK_R, &outcome), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_root(rig.s2, 1, &root), HVMEM_E_PHASE);
    CHECK_EQ(rig_arm(&rig), HVMEM_E_PHASE);
    /* Abandoned, and taken over. */
    memset(&cursor, 0, sizeof cursor);
    while (hvmem_stage2_teardown(rig.s2, &cursor) == HVMEM_AGAIN)
        ;
    CHECK_EQ(rig_map(&rig, 9, 3, 5, 7, 0, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 1, NULL, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 1, WALK_R, NULL, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_track_age(rig.s2, 0, 1, 0, &touched), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 1), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, WALK_R, &outcome), HVMEM_E_PHASE);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

TEST(teardown_frees_every_table_in_slices)
{
    struct hvmem_cursor cursor;
    hvmem_u64 before;
    uint64_t i, slices = 0;
    hvmem_status status;

    stage2_rig_begin(&rig, HVMEM_S2_NPT);
    before = hvmem_free_frames(rig.heap);
    for (i = 0; i < 200; i++)
        CHECK_EQ(rig_map(&rig, i * 0x1400, 3, 5, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_stats(&rig).tables > 200);
    CHECK(before - hvmem_free_frames(rig.heap) > 200);
    memset(&cursor, 0, sizeof cursor);
    do {
        status = hvmem_stage2_teardown(rig.s2, &cursor);
        slices++;
        if (slices == 5) { /* given up and begun anew */
            CHECK_EQ(status, HVMEM_AGAIN);
            memset(&cursor, 0, sizeof cursor);
        }
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK(slices > 10);
    CHECK_EQ(hvmem_free_frames(rig.heap), before + 1);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}
