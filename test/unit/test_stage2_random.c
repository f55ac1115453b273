/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs on second-stage tables of every format: map, replace, unmap, change of rights, merge,
 * ageing, arming, disarming, set/way, failures of table allocation and of flushes, while two CPUs load what the
 * tables allow at any time, also in the middle of a call. After each step: no CPU holds a translation that the
 * shadow does not have, hardware's view by the independent walker is the shadow's, counts are exact.
 */
#include "stage2_rig.h"

#include <stdlib.h>
#include <string.h>

#define SPACE 0x100000u /* frames: 4 GiB */
#define HERE  0x80u     /* in a shadow word: mapped */

static struct stage2_rig rig;
static uint64_t shadow[SPACE];
static struct test_rng rng;
static int failed; /* a call of this step has told of a flush that failed */

static uint64_t word(uint64_t mfn, unsigned rights, unsigned type)
{
    return rig_frame_word(mfn, rights, type) | HERE;
}

/* Device memory of arm64 is never executable. */
static int is_forbidden(unsigned rights, unsigned type)
{
    return rig.config.format == HVMEM_S2_ARM64 && type == HVMEM_S2_DEVICE && (rights & HVMEM_S2_X);
}

/* ---- oracle --------------------------------------------------------------------------------- */

/* One translation of a TLB against the shadow. */
static int agrees(const struct hvmem_sim_entry *e, uint64_t gfn)
{
    uint64_t s = shadow[gfn], mfn = (e->frame >> 8) + (gfn - e->page);

    return (s & HERE) && s >> 8 == mfn && !(e->frame & 7 & ~s) &&
           (e->frame >> 3 & 3) == (s >> 3 & 3);
}

static void check_tlbs(void)
{
    hvmem_cpu cpu;
    uint64_t k;
    int i;

    for (cpu = 0; cpu < RIG_CPUS; cpu++)
        for (i = 0; i < RIG_SLOTS; i++) {
            const struct hvmem_sim_entry *e = &hvmem_sim_tlb_entries(rig.tlb, cpu)[i];
            uint64_t pages = (uint64_t)1 << e->shift;

            if (!e->valid || e->table)
                continue;
            for (k = 0; k<pages; k += pages> 16 ? 1 + test_below(&rng, pages / 8) : 1)
                if (!agrees(e, e->page + k)) {
                    test_note("cpu %u holds %llx order %u at %llx", cpu,
                              (unsigned long long)e->frame, e->shift,
                              (unsigned long long)(e->page + k));
                    CHECK(!"stale translation");
                    return;
                }
        }
}

static void check_frame(uint64_t gfn)
{
    struct hvmem_stage2_leaf leaf;
    struct walk_entry hw = rig_walk(&rig, gfn);
    hvmem_status status = hvmem_stage2_lookup(rig.s2, gfn, &leaf);
    uint64_t s = shadow[gfn];
    int ok;

    if (!(s & HERE)) {
        ok = status == HVMEM_E_FREE && hw.kind == WALK_INVALID;
    } else {
        ok = !status && word(leaf.mfn, leaf.rights, leaf.type) == s;
        ok &= hw.kind == (leaf.state & HVMEM_S2_TOUCHED ? WALK_LEAF : WALK_INVALID);
        if (hw.kind == WALK_LEAF)
            ok &= word(hw.address >> 12, hw.rights, hw.type) == s && hw.shift == leaf.order + 12;
    }
    if (!ok)
        test_note("gfn %llx: shadow %llx, status %d, hardware kind %d at %llx rights %x",
                  (unsigned long long)gfn, (unsigned long long)s, status, (int)hw.kind,
                  (unsigned long long)hw.address, hw.rights);
    CHECK(ok);
}

static void check_all(void)
{
    uint64_t gfn;

    for (gfn = 0; gfn < SPACE; gfn += shadow[gfn] & HERE || gfn % 16 ? 1 : 1 + test_below(&rng, 8))
        check_frame(gfn);
    rig_check_counts(&rig);
    CHECK_EQ(rig_conflicts(&rig), 0);
}

static void check_around(uint64_t gfn, uint64_t frames)
{
    int i;

    check_frame(gfn);
    check_frame(gfn + frames - 1);
    if (gfn)
        check_frame(gfn - 1);
    if (gfn + frames < SPACE)
        check_frame(gfn + frames);
    for (i = 0; i < 6; i++)
        check_frame(gfn + test_below(&rng, frames));
    check_frame(test_below(&rng, SPACE));
    check_tlbs();
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Whether a call may end so: there was no table, or a flush failed. */
static int may_fail(hvmem_status status)
{
    failed |= status == HVMEM_E_HOST;
    return status == HVMEM_E_NOMEM || status == HVMEM_E_HOST;
}

/* Tables wait there since no flush was done for them. */
static void empty_quarantine(void)
{
    struct hvmem_block block;
    hvmem_u64 at = 0;

    while (hvmem_walk(rig.heap, &at, &block) == HVMEM_AGAIN)
        if (block.state == HVMEM_BLOCK_QUARANTINE)
            CHECK_EQ(hvmem_quarantine_release(rig.heap, block.mfn), HVMEM_OK);
}

/* After a flush that failed, and was told of: everything is flushed, blocks that stayed broken are mended. */
static void recover(void)
{
    rig.fail_flushes = 0;
    if (!failed)
        return;
    failed = 0;
    CHECK_EQ(hvmem_shootdown(hvmem_stage2_mapping(rig.s2), NULL, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, SPACE, NULL), HVMEM_OK);
    empty_quarantine();
}

/* A replacement was given up: each frame is mapped as before, as asked for, or not. */
static void learn(const struct hvmem_stage2_map *map)
{
    struct hvmem_stage2_leaf leaf;
    uint64_t i, now, asked;

    for (i = 0; i < map->frames; i++) {
        now = hvmem_stage2_lookup(rig.s2, map->gfn + i, &leaf)
                  ? 0
                  : word(leaf.mfn, leaf.rights, leaf.type);
        asked = word(map->mfn + i, map->rights, map->type);
        if (now != 0 && now != shadow[map->gfn + i] && now != asked)
            CHECK(!"neither old nor new");
        shadow[map->gfn + i] = now;
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

static uint64_t place(void)
{
    static const uint64_t hot[] = {0, 0x3fe00, 0x80000, 0xffc00};

    if (test_below(&rng, 5) == 0)
        return test_below(&rng, SPACE);
    return hot[test_below(&rng, 4)] + test_below(&rng, 0x400);
}

static uint64_t extent(uint64_t *gfn)
{
    uint64_t kind = test_below(&rng, 1000), frames;

    if (kind < 600)
        frames = 1 + test_below(&rng, 8);
    else if (kind < 900)
        frames = 1 + test_below(&rng, 1500);
    else if (kind < 990)
        frames = 512 * (1 + test_below(&rng, 4));
    else if (kind < 997)
        frames = 1 + test_below(&rng, 0x8000);
    else
        frames = 0x40000 * (1 + test_below(&rng, 2));
    if (frames >= 512 && test_below(&rng, 2))
        *gfn &= frames >= 0x40000 ? ~0x3ffffull : ~0x1ffull;
    return frames < SPACE - *gfn ? frames : SPACE - *gfn;
}

static void fill(uint64_t gfn, uint64_t frames, uint64_t mfn, unsigned rights, unsigned type)
{
    uint64_t i;

    for (i = 0; i < frames; i++)
        shadow[gfn + i] = word(mfn + i, rights, type);
}

static void step_map(void)
{
    uint64_t gfn = place(), frames = extent(&gfn), first, done = 0, mfn;
    static const unsigned rights[] = {7, 7, 3, 5, 1};
    struct hvmem_stage2_map map;
    hvmem_status status;

    mfn = test_below(&rng, 4) ? gfn + 0x40000 * test_below(&rng, 64) : test_below(&rng, 1u << 24);
    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.gfn = gfn;
    map.frames = frames;
    map.mfn = mfn;
    map.rights = rights[test_below(&rng, 5)];
    map.type = test_below(&rng, 8) ? 0 : (unsigned)test_below(&rng, 3);
    map.flags = test_below(&rng, 3) ? 0 : HVMEM_S2_REPLACE;
    if (is_forbidden(map.rights, map.type)) {
        CHECK_EQ(hvmem_stage2_map(rig.s2, &map, &done), HVMEM_E_ARG);
        check_around(gfn, frames);
        map.rights &= ~HVMEM_S2_X;
    }
    for (first = 0; first < frames && !(shadow[gfn + first] & HERE); first++)
        ;
    status = hvmem_stage2_map(rig.s2, &map, &done);
    if (status == HVMEM_E_HOST && may_fail(status)) {
        CHECK(map.flags || done <= first);
        if (!map.flags)
            fill(gfn, done, mfn, map.rights, map.type);
        recover();
        if (map.flags)
            learn(&map);
        check_around(gfn, frames);
        return;
    }
    rig.fail_flushes = 0;
    if (map.flags && !(status == HVMEM_E_NOMEM && !done))
        memset(&shadow[gfn], 0, frames * sizeof shadow[0]);
    else if (map.flags)
        hvmem_stage2_unmap(rig.s2, gfn, frames, NULL, &done), done = 0;
    if (!map.flags) {
        CHECK(status == HVMEM_OK || status == HVMEM_E_NOMEM || status == HVMEM_E_BUSY);
        CHECK(status != HVMEM_OK || (first == frames && done == frames));
        CHECK(status != HVMEM_E_BUSY || first < frames);
        CHECK(done <= first);
    } else {
        CHECK(status == HVMEM_OK ? done == frames : status == HVMEM_E_NOMEM);
        if (status && !done) /* unmapped whole or in part: all of it is gone now */
            memset(&shadow[gfn], 0, frames * sizeof shadow[0]);
    }
    fill(gfn, done, mfn, map.rights, map.type);
    check_around(gfn, frames);
}

static void step_unmap(void)
{
    uint64_t gfn = place(), frames = extent(&gfn), done = 0;
    hvmem_status status, ended;
    struct hvmem_gather gather;

    if (test_below(&rng, 8)) {
        status = hvmem_stage2_unmap(rig.s2, gfn, frames, NULL, &done);
    } else {
        memset(&gather, 0, sizeof gather);
        CHECK_EQ(
            hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, gfn << 12, frames << 12),
            HVMEM_OK);
        status = hvmem_stage2_unmap(rig.s2, gfn, frames, &gather, &done);
        ended = hvmem_gather_finish(&gather);
        CHECK(!ended || may_fail(ended));
    }
    if (status && !may_fail(status))
        test_note("status %d done %llu of %llu", status, (unsigned long long)done,
                  (unsigned long long)frames);
    CHECK(status == HVMEM_OK ? done == frames : may_fail(status));
    memset(&shadow[gfn], 0, done * sizeof shadow[0]);
    recover();
    check_around(gfn, frames);
}

static void step_protect(void)
{
    static const unsigned rights[] = {7, 3, 5, 1};
    unsigned to = rights[test_below(&rng, 4)];
    uint64_t gfn = place(), frames = extent(&gfn), done = 0, i;
    hvmem_status status = hvmem_stage2_protect(rig.s2, gfn, frames, to, NULL, &done);

    CHECK(status == HVMEM_OK ? done == frames : may_fail(status));
    for (i = gfn; i < gfn + done; i++)
        if (shadow[i] & HERE)
            shadow[i] = (shadow[i] & ~7ull) |
                        (is_forbidden(to, shadow[i] >> 3 & 3) ? to & ~HVMEM_S2_X : to);
    recover();
    check_around(gfn, frames);
}

static void step_merge(void)
{
    uint64_t gfn = place() & ~0x1ffull, frames = extent(&gfn);
    hvmem_status status = hvmem_stage2_merge(rig.s2, gfn, frames, NULL);

    CHECK(!status || may_fail(status));
    recover();
    check_around(gfn, frames);
}

static void step_access(void)
{
    uint64_t gfn = place();
    unsigned access = 1u << test_below(&rng, 3);
    int faults = rig_access(&rig, (hvmem_cpu)test_below(&rng, RIG_CPUS), gfn << 12, access);
    struct hvmem_stage2_leaf leaf;

    CHECK_EQ(faults >= 0, (shadow[gfn] & HERE) && (shadow[gfn] & access));
    CHECK(faults <= 6);
    if (faults >= 0) {
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, gfn, &leaf), HVMEM_OK);
        /* A TLB hit is an access too, but of a translation that was touched before. */
        CHECK(leaf.state & HVMEM_S2_TOUCHED);
    }
}

static void step_track(void)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    uint64_t gfn = place(), frames = extent(&gfn), touched;
    uint64_t kind = test_below(&rng, 10);

    rig.fail_flushes = 0;
    memset(&cursor, 0, sizeof cursor);
    if (kind < 6) {
        if (frames > 0x40000)
            frames = 0x40000;
        CHECK_EQ(hvmem_track_age(rig.s2, gfn, frames, HVMEM_AGE_CLEAR, &touched), HVMEM_OK);
        CHECK(touched <= frames);
        CHECK_EQ(rig_holds(&rig, gfn, frames), 0);
        CHECK_EQ(hvmem_track_age(rig.s2, gfn, frames, 0, &touched), HVMEM_OK);
        CHECK_EQ(touched, 0);
    } else if (kind < 9) {
        do
            status = hvmem_track_arm(rig.s2, &cursor);
        while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    } else {
        do
            status = hvmem_track_disarm(rig.s2, &cursor);
        while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
    }
    check_around(gfn, frames);
}

/* In the middle of calls too. */
static void speculate(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    struct hvmem_sim_entry e;
    hvmem_cpu cpu = r->tlb->current;
    int i;

    (void)flush;
    for (i = 0; i < 6; i++)
        hvmem_sim_tlb_access(r->tlb, (hvmem_cpu)test_below(&rng, RIG_CPUS), place(), &e);
    hvmem_sim_tlb_speculate(r->tlb, 1, 20);
    r->tlb->current = cpu;
}

static void run(uint32_t format, uint64_t features, uint64_t steps)
{
    uint64_t i, kind, every = steps / 4 > 20000 ? 20000 : steps / 4;

    memset(shadow, 0, sizeof shadow);
    rng = test_rng(format + features);
    stage2_rig_prepare(&rig, format);
    rig.fragments = 1;
    rig.features |= features;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig.on_flush = speculate;
    for (i = 0; i < steps; i++) {
        rig.tlb->current = (hvmem_cpu)test_below(&rng, RIG_CPUS);
        rig.fail_tables = test_below(&rng, 10) == 0 ? 1 + (int)test_below(&rng, 3) : 0;
        rig.fail_flushes = test_below(&rng, 12) == 0 ? 1 + (int)test_below(&rng, 3) : 0;
        kind = test_below(&rng, 100);
        if (kind < 25)
            step_map();
        else if (kind < 45)
            step_unmap();
        else if (kind < 58)
            step_protect();
        else if (kind < 62)
            step_merge();
        else if (kind < 97)
            step_access();
        else
            step_track();
        rig.fail_flushes = 0;
        if (i % every == every - 1)
            check_all();
    }
    rig.fail_tables = 0;
    check_all();
    stage2_rig_close(&rig);
}

TEST(arm64_program, points)
{
    run(HVMEM_S2_ARM64, 0, test_rounds(20000));
}

TEST(arm64_program_without_break, points)
{
    run(HVMEM_S2_ARM64, HVMEM_CAP_BBM2, test_rounds(20000));
}

TEST(npt_program, points)
{
    run(HVMEM_S2_NPT, 0, test_rounds(20000));
}

TEST(ept_program, points)
{
    run(HVMEM_S2_EPT, 0, test_rounds(20000));
}

TEST(arm64_long_program, slow)
{
    run(HVMEM_S2_ARM64, 0, test_rounds(1000000));
}

TEST(npt_long_program, slow)
{
    run(HVMEM_S2_NPT, 0, test_rounds(1000000));
}

TEST(ept_long_program, slow)
{
    run(HVMEM_S2_EPT, 0, test_rounds(1000000));
}
