/* SPDX-License-Identifier: BSD-2-Clause */
/* A domain whose tables are a stage 2: populated, started with tracking armed, torn down. */
#include "stage2_rig.h"

#include <hvmem/populate.h>

#include <string.h>

static struct stage2_rig rig;
static struct hvmem_domain_ops ops;

static void begin(uint32_t format, uint32_t flags)
{
    stage2_rig_prepare(&rig, format);
    rig.config.flags = flags;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
}

static hvmem_status populate(struct hvmem_extent *extents, hvmem_u64 count, hvmem_u64 *done)
{
    struct hvmem_populate request;
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&request, 0, sizeof request);
    memset(&cursor, 0, sizeof cursor);
    request.size = sizeof request;
    request.extents = extents;
    request.count = count;
    request.node = HVMEM_NODE_ANY;
    request.done = done;
    do
        status = hvmem_domain_populate(rig.domain, &request, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

/* Which no CPU runs. */
static void end_domain(void)
{
    struct hvmem_domain_stats stats;
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_domain_teardown(rig.domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(hvmem_domain_stats(rig.domain, &stats), HVMEM_OK);
    CHECK_EQ(stats.pages, 0);
    CHECK_EQ(hvmem_domain_destroy(rig.domain), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

static void teardown(void)
{
    rig_leave(&rig);
    end_domain();
}

TEST(populated_started_and_torn_down)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_extent extents[3];
    struct hvmem_stage2_leaf leaf;
    hvmem_u64 done;
    int i;

    for (i = 0; i < 3; i++) {
        begin(formats[i], HVMEM_S2_TRACK);
        memset(extents, 0, sizeof extents);
        extents[0].order = 9;
        extents[1].gfn = 512;
        extents[2].gfn = 0x40000;
        extents[2].order = 4;
        CHECK_EQ(populate(extents, 3, &done), HVMEM_OK);
        CHECK_EQ(done, 3);
        CHECK_EQ(hvmem_stage2_lookup(rig.s2, 7, &leaf), HVMEM_OK);
        CHECK_EQ(leaf.order, 9);
        CHECK_EQ(leaf.mfn, extents[0].mfn + 7);
        CHECK_EQ(rig_walk(&rig, 0x40003).address >> 12, extents[2].mfn + 3);
        CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
        /* The start armed tracking: everything is clean and untouched. */
        CHECK(hvmem_track_armed(rig.s2));
        CHECK_EQ(rig_walk(&rig, 7).kind, WALK_INVALID);
        CHECK(rig_access(&rig, 1, 0x7000, WALK_W) > 0);
        CHECK(rig_access(&rig, 0, 0x40003000, WALK_R) > 0);
        CHECK_EQ(rig_walk(&rig, 512).kind, WALK_INVALID);
        teardown();
    }
}

/* Tables that the domain is charged for can be given back as long as it lives. */
TEST(tables_go_back_while_the_domain_lives)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    int i;

    for (i = 0; i < 3; i++) {
        struct hvmem_domain_stats before, after;
        struct hvmem_request request = {.size = sizeof request, .order = 9, .node = HVMEM_NODE_ANY};
        struct hvmem_stage2_map map = {.size = sizeof map, .frames = 512, .rights = HVMEM_S2_RWX};
        hvmem_u64 done, tables;

        stage2_rig_prepare(&rig, formats[i]);
        rig.charged = 1;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        hvmem_stage2_ops(&ops);
        REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
        request.domain = rig.domain;
        REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &map.mfn), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_map(rig.s2, &map, NULL), HVMEM_OK);
        tables = rig_stats(&rig).tables;
        CHECK_EQ(hvmem_domain_stats(rig.domain, &before), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 3, 1, HVMEM_S2_R, NULL, &done), HVMEM_OK);
        CHECK_EQ(hvmem_domain_stats(rig.domain, &after), HVMEM_OK);
        CHECK(after.pages > before.pages);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 3, 1, HVMEM_S2_RWX, NULL, &done), HVMEM_OK);
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, &done), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).tables, tables);
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, &done), HVMEM_OK);
        CHECK(rig_stats(&rig).tables < tables);
        CHECK_EQ(rig.reported, 0);
        teardown();
    }
}

/* All free memory was a guest's: it holds secrets and owes for them. */
static void use_all_memory(void)
{
    struct hvmem_request request;
    hvmem_mfn mfn[RIG_FRAMES / 512];
    int n = 0;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.order = 9;
    request.node = HVMEM_NODE_ANY;
    request.domain = rig.domain;
    while (n < RIG_FRAMES / 512 && hvmem_alloc(rig.heap, &request, &mfn[n]) == HVMEM_OK) {
        memset(rig.pool + ((mfn[n] - RIG_BASE) << 12), 0x5e, 512 * 4096);
        n++;
    }
    CHECK(n > 4);
    while (n > 0)
        CHECK_EQ(hvmem_free_owned(rig.heap, mfn[--n], 9, rig.domain, 0), HVMEM_OK);
}

static hvmem_mfn leaving;

/* Its owner frees the block while it is being paid for. */
static void leave_at_first_frame(struct stage2_rig *r, hvmem_mfn mfn)
{
    (void)mfn;
    r->on_zero = NULL;
    CHECK_EQ(hvmem_free_owned(r->heap, leaving, 9, r->domain, 0), HVMEM_OK);
}

/* What is nobody's any more is not marked as mapped elsewhere. */
TEST(block_that_leaves_meanwhile_is_not_foreign)
{
    struct hvmem_extent extent = {.order = 9, .flags = HVMEM_EXTENT_FIRST_TOUCH};

    begin(HVMEM_S2_ARM64, HVMEM_S2_FIRST_TOUCH);
    use_all_memory();
    CHECK_EQ(populate(&extent, 1, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, NULL), HVMEM_OK);
    leaving = extent.mfn;
    rig.on_zero = leave_at_first_frame;
    CHECK_EQ(hvmem_domain_foreign(rig.domain, leaving, 9), HVMEM_E_FREE);
    CHECK(rig.on_zero == NULL);
    teardown();
}

TEST(first_touch_extents_are_paid_by_the_fault)
{
    struct hvmem_extent extent;
    uint64_t lines;
    hvmem_u64 done;
    int i;

    begin(HVMEM_S2_ARM64, 0);
    use_all_memory();
    memset(&extent, 0, sizeof extent);
    extent.order = 9;
    extent.flags = HVMEM_EXTENT_FIRST_TOUCH;
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_OK);
    lines = rig.lines;
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    CHECK_EQ(rig.lines, lines); /* start leaves them alone */
    CHECK_EQ(rig_walk(&rig, 7).kind, WALK_INVALID);
    CHECK(rig_access(&rig, 1, 0x7000, WALK_W) >= 16);
    CHECK_EQ(rig.lines, lines + 32768);
    CHECK_EQ(rig.cleaned[extent.mfn - RIG_BASE], 64);
    for (i = 0; i < 512; i++) {
        const unsigned char *page = rig.pool + ((extent.mfn + (unsigned)i - RIG_BASE) << 12);

        CHECK(page[0] == 0 && page[4095] == 0); /* no secret is left */
    }
    teardown();
}

/* ---- what is paid leaves the record -------------------------------------------------------------- */

/* Order 9 mapped untouched at frame 0 of the guest, in stretches of 16 frames. */
static hvmem_mfn untouched_block(uint32_t flags)
{
    struct hvmem_extent extent;
    hvmem_u64 done;

    begin(HVMEM_S2_ARM64, flags);
    use_all_memory();
    memset(&extent, 0, sizeof extent);
    extent.order = 9;
    extent.flags = HVMEM_EXTENT_FIRST_TOUCH;
    REQUIRE_EQ(populate(&extent, 1, &done), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    return extent.mfn;
}

TEST(touched_block_may_be_mapped_foreign)
{
    hvmem_mfn mfn = untouched_block(0);
    struct hvmem_block block;

    CHECK(rig_access(&rig, 1, 0x7000, WALK_W) >= 16);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE), 0);
    CHECK_EQ(hvmem_domain_foreign(rig.domain, mfn, 9), HVMEM_OK);
    teardown();
}

static uint64_t zeroed[512];
static hvmem_mfn zero_base;

static void count_zeroed(struct stage2_rig *r, hvmem_mfn mfn)
{
    (void)r;
    zeroed[mfn - zero_base]++;
}

/* In steps, and beside a guest that touches the block: what is paid for stays so. */
static void maps_foreign(int wanted)
{
    hvmem_mfn mfn = untouched_block(HVMEM_S2_FIRST_TOUCH);
    unsigned char *page = rig.pool + ((mfn - RIG_BASE) << 12);
    struct hvmem_block block;
    hvmem_status status;
    hvmem_u32 outcome;
    unsigned i, calls = 0;

    zero_base = mfn;
    memset(zeroed, 0, sizeof zeroed);
    rig.on_zero = count_zeroed;
    rig.yield_wanted = wanted;
    /* A stretch is paid for by the guest, which writes there through another mapping. */
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_W, &outcome), HVMEM_OK);
    CHECK_EQ(outcome, HVMEM_FAULT_AGAIN);
    page[0] = 0x77;
    do {
        status = hvmem_domain_foreign(rig.domain, mfn, 9);
        calls++;
    } while (status == HVMEM_AGAIN && calls < 100);
    CHECK_EQ(status, HVMEM_OK);
    /* 8 frames each; the guest paid for a part of the first. */
    CHECK_EQ(calls, wanted ? 64 : 1);
    CHECK_EQ(page[0], 0x77);
    for (i = 0; i < 512; i++)
        CHECK_EQ(zeroed[i], 1);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE), 0);
    CHECK(block.owed & HVMEM_OWES_FOREIGN);
    CHECK(rig_access(&rig, 1, 0x7000, WALK_W) > 0);
    CHECK_EQ(page[0], 0x77);
    CHECK_EQ(zeroed[7], 1);
    rig.on_zero = NULL;
    teardown();
}

/* Frames that were zeroed and not cleaned since: what an earlier owner left in memory is there yet. */
static uint64_t hidden;

static void note_zeroed(struct stage2_rig *r, hvmem_mfn mfn)
{
    (void)r;
    hidden += !zeroed[mfn - zero_base];
    zeroed[mfn - zero_base] = 1;
}

static void note_cleaned(struct stage2_rig *r, hvmem_mfn mfn)
{
    (void)r;
    if (mfn - zero_base < 512) {
        hidden -= zeroed[mfn - zero_base];
        zeroed[mfn - zero_base] = 0;
    }
}

static hvmem_status foreign_in_steps(hvmem_mfn mfn, int *calls)
{
    hvmem_status status;

    do
        status = hvmem_domain_foreign(rig.domain, mfn, 9);
    while (status == HVMEM_AGAIN && ++*calls < 100);
    return status;
}

/*
 * A domain that is being built owes cleans as a whole: that is not paid again and again, nor in place of the
 * clean that comes after the scrub, also where the domain starts in between.
 */
static void maps_foreign_before_start(int starts, int settles)
{
    struct hvmem_extent extent;
    hvmem_u64 done;
    int calls = 0;

    begin(HVMEM_S2_ARM64, HVMEM_S2_FIRST_TOUCH);
    use_all_memory();
    memset(&extent, 0, sizeof extent);
    extent.order = 9;
    extent.flags = HVMEM_EXTENT_FIRST_TOUCH;
    REQUIRE_EQ(populate(&extent, 1, &done), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_dirtied(rig.domain, 0, 1), HVMEM_OK);
    rig.yield_wanted = 1;
    zero_base = extent.mfn;
    memset(zeroed, 0, sizeof zeroed);
    hidden = 0;
    rig.on_zero = note_zeroed;
    rig.on_clean = note_cleaned;
    if (settles)
        CHECK_EQ(hvmem_settle(rig.heap, extent.mfn, 512, HVMEM_OWES_ANY), HVMEM_OK);
    if (starts) {
        CHECK_EQ(hvmem_domain_foreign(rig.domain, extent.mfn, 9), HVMEM_AGAIN);
        CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    }
    CHECK_EQ(foreign_in_steps(extent.mfn, &calls), HVMEM_OK);
    CHECK_EQ(calls, 63 - starts);
    CHECK_EQ(hidden, 0);
    rig.on_zero = NULL;
    rig.on_clean = NULL;
    teardown();
}

TEST(untouched_block_is_paid_for_when_mapped_foreign)
{
    maps_foreign_before_start(0, 0);
    maps_foreign_before_start(1, 0);
    maps_foreign_before_start(0, 1);
    maps_foreign_before_start(1, 1);
    maps_foreign(0);
    maps_foreign(1);
}

static hvmem_status torn_down;

static void tear_down_meanwhile(struct stage2_rig *r, hvmem_mfn mfn)
{
    struct hvmem_cursor cursor;

    (void)mfn;
    r->on_zero = NULL;
    memset(&cursor, 0, sizeof cursor);
    do
        torn_down = hvmem_domain_teardown(r->domain, 0, &cursor);
    while (torn_down == HVMEM_AGAIN);
}

/* What is scrubbed for a foreign map must not be another owner's by then. */
TEST(teardown_waits_for_a_foreign_map)
{
    hvmem_mfn mfn = untouched_block(HVMEM_S2_FIRST_TOUCH);
    struct hvmem_block block;

    rig_leave(&rig);
    rig.on_zero = tear_down_meanwhile;
    CHECK_EQ(hvmem_domain_foreign(rig.domain, mfn, 9), HVMEM_OK);
    CHECK_EQ(torn_down, HVMEM_E_BUSY);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.owner, 1);
    CHECK(block.owed & HVMEM_OWES_FOREIGN);
    CHECK_EQ(hvmem_domain_foreign(rig.domain, mfn, 9), HVMEM_E_DOMAIN); /* it is dying */
    end_domain();
}

static hvmem_mfn deferred_block(void)
{
    struct hvmem_request request = {
        .size = sizeof request, .order = 9, .node = HVMEM_NODE_ANY, .flags = HVMEM_REQ_DEFER_ALL};
    struct hvmem_block block;
    hvmem_mfn mfn = 0;

    begin(HVMEM_S2_ARM64, 0);
    use_all_memory();
    request.domain = rig.domain;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK(block.owed & HVMEM_OWES_SCRUB);
    rig_leave(&rig);
    return mfn;
}

/* Nor what is scrubbed by a settle. */
TEST(teardown_waits_for_a_settle)
{
    hvmem_mfn mfn = deferred_block();
    struct hvmem_block block;

    rig.on_zero = tear_down_meanwhile;
    CHECK_EQ(hvmem_settle(rig.heap, mfn, 512, HVMEM_OWES_ANY), HVMEM_OK);
    CHECK_EQ(torn_down, HVMEM_E_BUSY);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.owner, 1);
    CHECK_EQ(block.owed, 0);
    CHECK_EQ(hvmem_settle(rig.heap, mfn, 512, HVMEM_OWES_ANY), HVMEM_E_DOMAIN); /* it is dying */
    end_domain();
}

static hvmem_mfn contested;
static struct hvmem_domain *heir;
static unsigned char heir_memory[65536] __attribute__((aligned(64)));

/* Before it begins: the block is another domain's, which writes to it. */
static int inherit(const char *name, void *ctx)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 2, .limit = ~(hvmem_u64)0};
    struct hvmem_request request = {
        .size = sizeof request, .order = 9, .node = HVMEM_NODE_ANY, .flags = HVMEM_REQ_DEFER_ALL};
    hvmem_mfn mfn = 0;

    (void)ctx;
    if (strcmp(name, "settle_enter") != 0)
        return 0;
    test_set_point_hook(NULL, NULL);
    tear_down_meanwhile(&rig, 0);
    REQUIRE_EQ(torn_down, HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_destroy(rig.domain), HVMEM_OK);
    REQUIRE(hvmem_domain_size(rig.heap) <= sizeof heir_memory);
    REQUIRE_EQ(hvmem_domain_create(rig.heap, heir_memory, sizeof heir_memory, &config, &heir),
               HVMEM_OK);
    request.domain = heir;
    request.lo = contested;
    request.hi = contested + 512;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    rig.pool[(contested - RIG_BASE) << 12] = 0x5a;
    return 0;
}

/* A settle that comes too late pays nothing for what has become another's. */
TEST(settle_after_a_teardown_pays_for_nobody, points)
{
    struct hvmem_block block;

    contested = deferred_block();
    test_set_point_hook(inherit, NULL);
    CHECK_EQ(hvmem_settle(rig.heap, contested, 512, HVMEM_OWES_ANY), HVMEM_E_DOMAIN);
    CHECK_EQ(hvmem_lookup(rig.heap, contested, &block), HVMEM_OK);
    CHECK_EQ(block.owner, 2);
    CHECK(block.owed & HVMEM_OWES_SCRUB);
    CHECK_EQ(rig.pool[(contested - RIG_BASE) << 12], 0x5a);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

/* Map frames of the block where the guest had them, to be paid for by first touch. */
static void map_again(hvmem_gfn gfn, hvmem_mfn mfn, hvmem_u64 frames)
{
    struct hvmem_stage2_map map;
    hvmem_u64 done;

    memset(&map, 0, sizeof map);
    map.size = sizeof map;
    map.gfn = gfn;
    map.mfn = mfn;
    map.frames = frames;
    map.rights = HVMEM_S2_RWX;
    REQUIRE_EQ(hvmem_stage2_map(rig.s2, &map, &done), HVMEM_OK);
}

TEST(mapped_again_a_touched_frame_keeps_its_data)
{
    hvmem_mfn mfn = untouched_block(HVMEM_S2_FIRST_TOUCH);
    unsigned char *page = rig.pool + ((mfn - RIG_BASE) << 12);
    hvmem_u64 done;

    /* The first page alone is touched. */
    REQUIRE_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, &done), HVMEM_OK);
    map_again(0, mfn, 1);
    CHECK(rig_access(&rig, 1, 0, WALK_W) > 0);
    CHECK_EQ(page[0], 0);
    page[0] = 0x77;
    /* All of it again: the touched page stays, the others are scrubbed. */
    REQUIRE_EQ(hvmem_stage2_unmap(rig.s2, 0, 1, NULL, &done), HVMEM_OK);
    map_again(0, mfn, 512);
    CHECK(rig_access(&rig, 1, 0x7000, WALK_W) > 0);
    CHECK_EQ(page[0], 0x77);
    CHECK_EQ(page[4096], 0);
    CHECK_EQ(page[511 * 4096 + 4095], 0);
    CHECK_EQ(hvmem_domain_foreign(rig.domain, mfn, 9), HVMEM_OK);
    teardown();
}

/* ---- what a first touch pays for while the guest goes away ---------------------------------------- */

static struct hvmem_cursor ending;
static hvmem_status ended;
static uint64_t free_meanwhile;
static unsigned cleans;

/* Another CPU, while this one is in the middle of a page. */
static void end_meanwhile(struct stage2_rig *r, hvmem_mfn mfn)
{
    int i;
    (void)mfn;

    if (cleans++ != 0)
        return;
    rig_leave(&rig);
    for (i = 0; i < 64 && (i == 0 || ended == HVMEM_AGAIN); i++)
        ended = hvmem_domain_teardown(r->domain, 0, &ending);
    free_meanwhile = hvmem_free_frames(r->heap);
}

TEST(teardown_waits_for_a_first_touch)
{
    struct hvmem_domain_stats stats;
    struct hvmem_extent extent;
    hvmem_u64 done, free_before;
    hvmem_u32 outcome;

    begin(HVMEM_S2_ARM64, 0);
    use_all_memory();
    memset(&extent, 0, sizeof extent);
    extent.order = 9;
    extent.flags = HVMEM_EXTENT_FIRST_TOUCH;
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    memset(&ending, 0, sizeof ending);
    free_before = hvmem_free_frames(rig.heap);
    cleans = 0;
    rig.on_clean = end_meanwhile;
    (void)hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_W, &outcome);
    rig.on_clean = NULL;
    CHECK_EQ(ended, HVMEM_AGAIN);
    CHECK_EQ(free_meanwhile, free_before); /* nobody can have got what was being scrubbed */
    while (ended == HVMEM_AGAIN)
        ended = hvmem_domain_teardown(rig.domain, 0, &ending);
    CHECK_EQ(ended, HVMEM_OK);
    CHECK_EQ(hvmem_domain_stats(rig.domain, &stats), HVMEM_OK);
    CHECK_EQ(stats.pages, 0);
    CHECK_EQ(hvmem_domain_destroy(rig.domain), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

/* ---- a map that fails, and whose undoing fails too ------------------------------------------------- */

/* Whether a block of that order is in quarantine; all that is there is released. */
static int quarantined(hvmem_u32 order)
{
    hvmem_mfn mfn = RIG_BASE;
    int found = 0;

    while (mfn < RIG_BASE + RIG_FRAMES) {
        struct hvmem_block block;

        REQUIRE_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
        mfn = block.mfn + (1ull << block.order);
        if (block.state != HVMEM_BLOCK_QUARANTINE)
            continue;
        found |= block.order == order;
        /* The guest had the one, addresses are in the others. */
        CHECK_EQ(block.owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE),
                 HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
        CHECK_EQ(hvmem_quarantine_release(rig.heap, block.mfn), HVMEM_OK);
    }
    return found;
}

TEST(half_a_block_that_cannot_be_flushed_is_withheld, points)
{
    struct hvmem_extent extent;
    hvmem_u64 done;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.largest = 0;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    memset(&extent, 0, sizeof extent);
    extent.order = 10;
    /* The table for the second half is not to be had, and the flush of the first half fails. */
    rig.fail_tables = 3;
    rig.fail_flushes = 2;
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_E_QUARANTINE);
    CHECK_EQ(done, 0);
    CHECK_EQ(extent.flags & HVMEM_EXTENT_DONE, 0);
    rig.fail_flushes = 0;
    CHECK(quarantined(10)); /* with the tables */
    /* A single failure leaves nothing behind. */
    rig.fail_tables = 1;
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_E_NOMEM);
    CHECK(!quarantined(10));
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_OK);
    teardown();
}

/* A domain that was adopted is dirty from end to end, whatever its tables can map. */
TEST(start_of_a_domain_that_is_dirty_everywhere)
{
    struct hvmem_extent extent;
    hvmem_u64 done;

    begin(HVMEM_S2_ARM64, 0);
    memset(&extent, 0, sizeof extent);
    extent.order = 3;
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_OK);
    CHECK_EQ(hvmem_domain_dirtied(rig.domain, 0, 1ull << (HVMEM_MADDR_BITS - 12)), HVMEM_OK);
    rig.lines = 0;
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    CHECK_EQ(rig.lines, 8 * 64);
    teardown();
}

/* ---- a map that was undone ------------------------------------------------------------------------ */

static hvmem_mfn written; /* where the guest wrote, 0: nowhere */

static void write_secret(struct stage2_rig *r, uint64_t gfn, uint64_t mfn, unsigned access)
{
    (void)gfn;
    if (!(access & HVMEM_S2_W))
        return;
    memset(r->pool + ((mfn - RIG_BASE) << 12), 0x5e, 4096);
    written = mfn;
}

/* Another CPU of the guest, between any two steps, gets at its first page as soon as it can. */
static int runs_beside(const char *name, void *ctx)
{
    static int inside;

    (void)ctx;
    if (!inside && !written && strcmp(name, "stage2.unlock") == 0) {
        inside = 1;
        (void)rig_access(&rig, 1, 0, HVMEM_S2_W);
        rig.tlb->current = 0;
        inside = 0;
    }
    return 0;
}

/* Half of the extent is mapped when the rest meets a page that is there: what the guest wrote goes to nobody. */
static void undone(uint32_t format, uint32_t flags)
{
    struct hvmem_extent page, extent;
    struct hvmem_block block;
    hvmem_u64 done;

    begin(format, HVMEM_S2_FIRST_TOUCH);
    memset(&page, 0, sizeof page);
    page.gfn = 512 + 3;
    CHECK_EQ(populate(&page, 1, &done), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    memset(&extent, 0, sizeof extent);
    extent.order = 10;
    extent.flags = flags;
    written = 0;
    rig.on_access = write_secret;
    test_set_point_hook(runs_beside, NULL);
    CHECK_EQ(populate(&extent, 1, &done), HVMEM_E_BUSY);
    test_set_point_hook(NULL, NULL);
    rig.on_access = NULL;
    CHECK(written);
    CHECK_EQ(rig_holds(&rig, 0, 512), 0);
    REQUIRE_EQ(hvmem_lookup(rig.heap, written, &block), HVMEM_OK);
    CHECK_EQ(block.owner, 0);
    CHECK_EQ(block.owed & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE),
             HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
    teardown();
}

TEST(block_whose_map_was_undone_is_scrubbed, points)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    int i;

    for (i = 0; i < 3; i++) {
        undone(formats[i], 0);
        undone(formats[i], HVMEM_EXTENT_FIRST_TOUCH);
    }
}
