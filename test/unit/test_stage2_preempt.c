/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls on huge ranges that stop between two steps where the host wants the CPU back, and what goes on behind them. */
#include "stage2_rig.h"

#include <hvmem/populate.h>

#include <string.h>

#define HOME   0x1000000u /* machine frames outside the heap */
#define FIRST  0x205u
#define FRAMES 4096u

static struct stage2_rig rig;

static void begin(unsigned flags, unsigned largest)
{
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.flags = flags;
    rig.config.largest = largest;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig.yield_wanted = 1;
}

/* One call, from frame `at` of the range on. */
typedef hvmem_status call(uint64_t at, struct hvmem_gather *gather, hvmem_u64 *done);

static hvmem_status maps(uint64_t at, struct hvmem_gather *gather, hvmem_u64 *done)
{
    (void)gather;
    return rig_map(&rig, FIRST + at, FRAMES - at, HOME + at, HVMEM_S2_RWX, 0, done);
}

static hvmem_status unmaps(uint64_t at, struct hvmem_gather *gather, hvmem_u64 *done)
{
    return hvmem_stage2_unmap(rig.s2, FIRST + at, FRAMES - at, gather, done);
}

static hvmem_status protects(uint64_t at, struct hvmem_gather *gather, hvmem_u64 *done)
{
    return hvmem_stage2_protect(rig.s2, FIRST + at, FRAMES - at, HVMEM_S2_R, gather, done);
}

static hvmem_status replaces(uint64_t at, struct hvmem_gather *gather, hvmem_u64 *done)
{
    struct hvmem_stage2_map map;

    (void)gather;
    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.flags = HVMEM_S2_REPLACE;
    map.gfn = FIRST + at;
    map.frames = FRAMES - at;
    map.mfn = HOME + 0x10000 + at;
    map.rights = HVMEM_S2_RWX;
    return hvmem_stage2_map(rig.s2, &map, done);
}

/* To the end, each call behind the last. Returns how many calls it took. */
static unsigned run(call *one, struct hvmem_gather *gather)
{
    hvmem_u64 at = 0, done;
    hvmem_status status;
    unsigned calls = 0;

    do {
        done = 0;
        status = one(at, gather, &done);
        CHECK(done > 0 && done <= 512 && at + done <= FRAMES);
        at += done;
        calls++;
    } while (status == HVMEM_AGAIN && calls < 100);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(at, FRAMES);
    return calls;
}

static void all_at(uint64_t mfn, unsigned rights)
{
    unsigned i;

    for (i = 0; i < FRAMES; i++) {
        struct hvmem_stage2_leaf leaf;

        REQUIRE_EQ(hvmem_stage2_lookup(rig.s2, FIRST + i, &leaf), HVMEM_OK);
        CHECK(leaf.mfn == mfn + i && leaf.rights == rights);
    }
}

TEST(calls_stop_after_each_step)
{
    struct hvmem_gather gather;

    begin(HVMEM_S2_PREEMPTIBLE, 0);
    CHECK_EQ(run(maps, NULL), 9); /* the first stops where it needs a table */
    all_at(HOME, HVMEM_S2_RWX);
    CHECK_EQ(run(protects, NULL), 8);
    all_at(HOME, HVMEM_S2_R);
    CHECK(run(replaces, NULL) >= 8);
    all_at(HOME + 0x10000, HVMEM_S2_RWX);
    CHECK_EQ(run(unmaps, NULL), 8);
    CHECK_EQ(rig_stats(&rig).frames, 0);
    /* Into one gather of the caller's. */
    CHECK_EQ(run(maps, NULL), 9); /* no step goes beyond the end of a table */
    memset(&gather, 0, sizeof gather);
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, (hvmem_u64)FIRST << 12,
                                (hvmem_u64)FRAMES << 12),
             HVMEM_OK);
    CHECK_EQ(run(unmaps, &gather), 8);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).frames, 0);
    CHECK_EQ(rig.reported, 0);
    rig_check_counts(&rig);
    stage2_rig_close(&rig);
}

TEST(calls_stop_where_both_want_it)
{
    hvmem_u64 done;

    begin(0, 0);
    CHECK_EQ(maps(0, NULL, &done), HVMEM_OK);
    CHECK_EQ(unmaps(0, NULL, &done), HVMEM_OK);
    stage2_rig_close(&rig);
    begin(HVMEM_S2_PREEMPTIBLE, 0);
    rig.yield_wanted = 0;
    CHECK_EQ(maps(0, NULL, &done), HVMEM_OK);
    CHECK_EQ(protects(0, NULL, &done), HVMEM_OK);
    CHECK_EQ(replaces(0, NULL, &done), HVMEM_OK);
    CHECK_EQ(unmaps(0, NULL, &done), HVMEM_OK);
    CHECK_EQ(done, FRAMES);
    stage2_rig_close(&rig);
}

/* 1 GiB in parts, of which two tables hold pages. */
TEST(merges_stop_after_each_block)
{
    const hvmem_u64 gfn = 0x40000, gib = 1u << 18;
    struct hvmem_stage2_leaf leaf;
    hvmem_u64 done, at;

    begin(HVMEM_S2_PREEMPTIBLE, 18);
    rig.yield_wanted = 0;
    CHECK_EQ(rig_map(&rig, gfn, gib, HOME, HVMEM_S2_RWX, 0, NULL), HVMEM_OK);
    for (at = 5; at < 1024; at += 512) {
        CHECK_EQ(hvmem_stage2_protect(rig.s2, gfn + at, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, gfn + at, 1, HVMEM_S2_RWX, NULL, &done), HVMEM_OK);
    }
    rig.yield_wanted = 1;
    CHECK_EQ(hvmem_stage2_merge(rig.s2, gfn, gib, &done), HVMEM_AGAIN);
    CHECK_EQ(done, 512);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, gfn + 512, gib - 512, &done), HVMEM_AGAIN);
    CHECK_EQ(done, 512);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, gfn + 1024, gib - 1024, &done), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).leaves[0], 0);
    /* And once over the whole. */
    CHECK_EQ(hvmem_stage2_merge(rig.s2, gfn, gib, &done), HVMEM_OK);
    CHECK_EQ(done, gib);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, gfn, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.order, 18);
    stage2_rig_close(&rig);
}

/* What a domain maps is mapped whole. */
TEST(blocks_of_a_domain_are_mapped_whole)
{
    struct hvmem_populate request;
    struct hvmem_domain_ops ops;
    struct hvmem_extent extent;
    struct hvmem_cursor cursor;
    hvmem_status status;
    int calls = 0;

    begin(HVMEM_S2_PREEMPTIBLE, 0);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    memset(&request, 0, sizeof request);
    memset(&extent, 0, sizeof extent);
    memset(&cursor, 0, sizeof cursor);
    extent.order = 11;
    request.size = sizeof request;
    request.extents = &extent;
    request.count = 1;
    request.node = HVMEM_NODE_ANY;
    do
        status = hvmem_domain_populate(rig.domain, &request, &cursor);
    while (status == HVMEM_AGAIN && ++calls < 1000);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).frames, 2048);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 2048, NULL, NULL), HVMEM_AGAIN);
    CHECK_EQ(hvmem_free_owned(rig.heap, extent.mfn, 11, rig.domain, 0), HVMEM_OK);
    stage2_rig_close(&rig);
}

/* ---- a first touch that another CPU pays for ---------------------------------------------------- */

static hvmem_status meanwhile[2];

static void changes_meanwhile(struct stage2_rig *r, hvmem_mfn mfn)
{
    hvmem_u64 done = 7;

    (void)mfn;
    if (meanwhile[0] != HVMEM_E_ARG)
        return;
    meanwhile[0] = hvmem_stage2_unmap(r->s2, 0, 512, NULL, &done);
    CHECK_EQ(done, 0);
    meanwhile[1] = hvmem_stage2_protect(r->s2, 5, 1, HVMEM_S2_R, NULL, &done);
    CHECK_EQ(done, 0);
}

TEST(waits_for_a_first_touch_stop)
{
    hvmem_u32 outcome;

    begin(HVMEM_S2_PREEMPTIBLE | HVMEM_S2_FIRST_TOUCH, 18);
    rig_set_apart(&rig, RIG_BASE + 512, 512);
    CHECK_EQ(rig_map(&rig, 0, 512, RIG_BASE + 512, HVMEM_S2_RWX, 0, NULL), HVMEM_OK);
    meanwhile[0] = HVMEM_E_ARG;
    rig.on_clean = changes_meanwhile;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_R, &outcome), HVMEM_OK);
    CHECK_EQ(meanwhile[0], HVMEM_AGAIN);
    CHECK_EQ(meanwhile[1], HVMEM_AGAIN);
    stage2_rig_close(&rig);
}
