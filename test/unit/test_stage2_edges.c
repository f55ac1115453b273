/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Corners of tracking, changes of size and first touch where one call meets another in the middle, a flush
 * fails, or entries say what is no longer so.
 */
#include "stage2_rig.h"

#include <string.h>

#define GIB  0x40000u /* frames */
#define HOME (RIG_BASE + 1024)

static struct stage2_rig rig;

static int gets_in(uint64_t gfn, unsigned access)
{
    return rig_access(&rig, 0, gfn << 12, access) >= 0;
}

/* ---- in the middle of a call ------------------------------------------------------------------ */

static void (*intrusion)(void);
static const char *intrusion_at;
static int intrusion_in;

static int point(const char *name, void *ctx)
{
    void (*run)(void) = intrusion;

    (void)ctx;
    if (run == NULL || strcmp(name, intrusion_at) != 0 || --intrusion_in > 0)
        return 0;
    intrusion = NULL;
    run();
    return 0;
}

/* Another CPU's `run` at the n-th `name` from here on. */
static void intrude(void (*run)(void), const char *name, int n)
{
    intrusion = run;
    intrusion_at = name;
    intrusion_in = n;
    test_set_point_hook(point, NULL);
}

/* ---- arming ----------------------------------------------------------------------------------- */

/* More than 8 GiB: the counts of tables use bits that mark leaves. */
TEST(arming_keeps_what_tables_count)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    uint64_t i, n;
    unsigned f;

    for (f = 0; f < 3; f++)
        for (n = 1; n <= 512; n = n < 32 ? n + 1 : n * 2) {
            stage2_rig_prepare(&rig, formats[f]);
            rig.config.input_bits = 40;
            rig.config.output_bits = 48;
            rig.config.start_level = 0;
            REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
            CHECK_EQ(rig_map(&rig, 0, n * GIB, 1024 * GIB, 7, 0, NULL), HVMEM_OK);
            CHECK_EQ(rig_arm(&rig), HVMEM_OK);
            CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, GIB, NULL, NULL), HVMEM_OK);
            for (i = 1; i < n; i++)
                CHECK(!rig_touched(&rig, i * GIB));
            rig_check_counts(&rig);
            CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, n * GIB, NULL, NULL), HVMEM_OK);
            CHECK_EQ(rig_stats(&rig).tables, 1);
            stage2_rig_finish(&rig);
        }
}

TEST(arming_forgets_what_was_aged)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_track_progress progress;
    hvmem_u64 n;
    unsigned f;

    for (f = 0; f < 3; f++) {
        stage2_rig_begin(&rig, formats[f]);
        rig_set_apart(&rig, HOME, 2048);
        CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK(gets_in(3, WALK_R));
        CHECK_EQ(hvmem_track_age(rig.s2, 0, 16, HVMEM_AGE_CLEAR, &n), HVMEM_OK);
        CHECK_EQ(n, 1);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK(gets_in(5, WALK_R));
        CHECK_EQ(rig_setway(&rig, 0, &progress), HVMEM_OK);
        CHECK_EQ(progress.noted, 1);
        stage2_rig_finish(&rig);
    }
}

/* CPUs go on through what they hold, and no fault tells. */
TEST(setway_after_an_arming_that_failed_takes_all_for_touched)
{
    struct hvmem_track_progress progress;
    struct hvmem_cursor cursor;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(gets_in(3, WALK_W));
    memset(&cursor, 0, sizeof cursor);
    rig.fail_flushes = 100;
    CHECK(hvmem_track_arm(rig.s2, &cursor) < 0);
    rig.fail_flushes = 0;
    CHECK(gets_in(4, WALK_W)); /* pushes tables down */
    CHECK_EQ(rig_access(&rig, 0, 3 << 12, WALK_W), 0);
    rig.fail_flushes = 1;
    CHECK(rig_setway(&rig, 0, &progress) < 0);
    CHECK_EQ(rig_setway(&rig, 0, &progress), HVMEM_OK);
    CHECK_EQ(progress.noted, 16);
    CHECK_EQ(rig.cleaned[HOME + 3 - RIG_BASE], 64);
    CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    /* From then on it is known again. */
    CHECK(gets_in(9, WALK_W));
    CHECK_EQ(rig_setway(&rig, 0, &progress), HVMEM_OK);
    CHECK_EQ(progress.noted, 1);
    stage2_rig_finish(&rig);
}

/* What another frame is mapped over may still be cached. */
TEST(a_map_after_an_unmap_that_was_not_flushed_flushes)
{
    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(gets_in(5, WALK_R));
    rig.fail_flushes = 100;
    CHECK(hvmem_stage2_unmap(rig.s2, 5, 1, NULL, NULL) < 0);
    CHECK(rig_map(&rig, 5, 1, HOME + 100, 7, 0, NULL) < 0);
    CHECK_EQ(rig_walk(&rig, 5).kind, WALK_INVALID);
    rig.fail_flushes = 0;
    CHECK_EQ(rig_map(&rig, 5, 1, HOME + 100, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 5, 1), 0);
    CHECK(gets_in(5, WALK_R));
    CHECK_EQ(rig_conflicts(&rig), 0);
    stage2_rig_finish(&rig);
}

/* ---- cursors ---------------------------------------------------------------------------------- */

/* Of another guest's tables, though both are at the same kind of work. */
TEST(cursors_name_their_stage2)
{
    struct hvmem_cursor own, others, end;
    struct hvmem_stage2 *other;
    hvmem_status status;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.input_bits = 43; /* root entries for several calls */
    rig.config.start_level = 1;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, HOME, 2048);
    other = rig_second(&rig);
    memset(&own, 0, sizeof own);
    memset(&others, 0, sizeof others);
    CHECK_EQ(hvmem_track_arm(rig.s2, &own), HVMEM_AGAIN);
    CHECK_EQ(hvmem_track_arm(other, &others), HVMEM_AGAIN);
    CHECK_EQ(hvmem_track_arm(other, &own), HVMEM_E_STALE);
    CHECK_EQ(hvmem_track_arm(rig.s2, &others), HVMEM_E_STALE);
    CHECK_EQ(hvmem_track_arm(rig.s2, &own), HVMEM_AGAIN);
    memset(&end, 0, sizeof end);
    do
        status = hvmem_stage2_teardown(other, &end);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    stage2_rig_finish(&rig);
}

/* ---- changes of size -------------------------------------------------------------------------- */

/* 512 pages from gfn 0 on, not in one piece for the map to see. */
static void map_512(void)
{
    CHECK_EQ(rig_map(&rig, 0, 256, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 256, 256, HOME + 256, 7, 0, NULL), HVMEM_OK);
}

/* Its pages still say that they were touched before. */
TEST(a_merge_of_what_is_untouched_is_untouched)
{
    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    map_512();
    CHECK_EQ(rig_map(&rig, 512, 1, HOME + 512, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_touched(&rig, 3));
    CHECK_EQ(rig_arm(&rig), HVMEM_OK);
    CHECK(gets_in(512, WALK_R));
    CHECK(rig_touched(&rig, 512) && !rig_touched(&rig, 3));
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
    CHECK(!rig_touched(&rig, 3));
    stage2_rig_finish(&rig);
}

/* Pages may still be cached: the block is not to be used, whoever fails there next. */
TEST(a_split_that_fails_leaves_broken_what_a_merge_left_so)
{
    hvmem_u32 outcome;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    map_512();
    CHECK(gets_in(3, WALK_R));
    rig.fail_flushes = 100;
    CHECK(hvmem_stage2_merge(rig.s2, 0, 512, NULL) < 0);
    CHECK(hvmem_stage2_unmap(rig.s2, 7, 1, NULL, NULL) < 0);
    rig.fail_flushes = 0;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 5 << 12, WALK_R, &outcome), HVMEM_OK);
    CHECK_EQ(outcome, HVMEM_FAULT_AGAIN);
    CHECK_EQ(rig_conflicts(&rig), 0);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 512, NULL), HVMEM_OK);
    CHECK(gets_in(5, WALK_R));
    CHECK_EQ(rig_conflicts(&rig), 0);
    stage2_rig_finish(&rig);
}

/* A block of 1 GiB that waits for its first touch. */
static hvmem_status give_gib(void *ctx, hvmem_gfn gfn, hvmem_u32 access,
                             struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)gfn;
    (void)access;
    leaf->mfn = GIB;
    leaf->order = 18;
    leaf->state = HVMEM_S2_UNCLEAN;
    return HVMEM_OK;
}

static void replace_by_a_clean_block(void)
{
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, GIB, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, GIB, 4 * GIB, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_access(&rig, 1, 5 << 12, WALK_R), 0);
}

TEST(a_first_touch_that_splits_a_block_in_use_flushes_it, points)
{
    hvmem_u32 outcome;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.features |= HVMEM_CAP_BBM2 | HVMEM_CAP_TTL;
    rig.config.populate.give = give_gib;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, WALK_R, &outcome), HVMEM_OK);
    intrude(replace_by_a_clean_block, "stage2.unlock", 2);
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0, WALK_R, &outcome), HVMEM_OK);
    REQUIRE(intrusion == NULL);
    CHECK_EQ(rig_stats(&rig).leaves[1], 512);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 0, 512), 0);
    stage2_rig_finish(&rig);
}

/* ---- devices ---------------------------------------------------------------------------------- */

static struct hvmem_notifier device;
static hvmem_status shared;

static hvmem_status invalidate(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                               hvmem_u64 *ticket)
{
    (void)ctx;
    (void)ranges;
    (void)count;
    (void)ticket;
    return HVMEM_OK;
}

/* All as it must be before a device walks the tables; then it does, if it may. */
static void disarm_and_share(void)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_track_disarm(rig.s2, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = invalidate;
    shared = hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device);
}

static hvmem_status call_setway(void)
{
    struct hvmem_track_progress progress;

    return rig_setway(&rig, 0, &progress);
}

static hvmem_status call_age(void)
{
    hvmem_u64 n;

    return hvmem_track_age(rig.s2, 0, 16, HVMEM_AGE_CLEAR, &n);
}

/* The call, with a device that comes at the n-th point: it comes not, or finds all as it must be. */
static int beside(hvmem_status (*call)(void), int n)
{
    int came;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(gets_in(3, WALK_R));
    shared = HVMEM_E_BUSY;
    intrude(disarm_and_share, "stage2.lock", n);
    (void)call();
    came = intrusion == NULL;
    intrusion = NULL;
    if (shared == HVMEM_OK) {
        CHECK_EQ(rig_walk(&rig, 3).kind, WALK_LEAF);
        CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
    }
    stage2_rig_finish(&rig);
    return came;
}

static int always(hvmem_status (*call)(void))
{
    int n = 1;

    while (beside(call, n))
        n++;
    return n;
}

TEST(nothing_is_cleared_beside_a_device_that_came_meanwhile, points)
{
    CHECK(always(call_setway) > 3);
    CHECK(always(call_age) > 1);
}

TEST(nothing_waits_beside_a_device_that_came_meanwhile, points)
{
    struct hvmem_stage2_leaf leaf;
    hvmem_status status, seen;
    int n = 1, came;

    do {
        stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
        rig.config.flags = HVMEM_S2_FIRST_TOUCH;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        rig_set_apart(&rig, HOME, 2048);
        shared = HVMEM_E_BUSY;
        intrude(disarm_and_share, "stage2.lock", n++);
        status = rig_map(&rig, 0, 16, HOME, 7, 0, NULL);
        came = intrusion == NULL;
        intrusion = NULL;
        memset(&leaf, 0, sizeof leaf);
        seen = hvmem_stage2_lookup(rig.s2, 3, &leaf);
        if (shared == HVMEM_OK) {
            CHECK_EQ(status, HVMEM_E_BUSY);
            CHECK_EQ(seen, HVMEM_E_FREE);
            CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
        }
        stage2_rig_finish(&rig);
    } while (came);
    CHECK(n > 3);
}

/* ---- what is invalidated ----------------------------------------------------------------------- */

/* INVEPT drops what was cached under the EPTP it names (SDM vol. 3 30.3), and the host loads this one. */
TEST(ept_is_invalidated_by_the_root_that_is_loaded)
{
    struct hvmem_tlb_space tag;
    hvmem_u64 eptp = 0;

    stage2_rig_begin(&rig, HVMEM_S2_EPT);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(hvmem_stage2_root(rig.s2, 0, &eptp), HVMEM_OK);
    CHECK_EQ(hvmem_space_id(rig.space, 0, &tag), HVMEM_OK);
    CHECK_EQ(tag.root, eptp);
    CHECK_EQ(eptp & 0xfff, 0x1e);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(gets_in(3, WALK_R));
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 3, 1, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 3, 1), 0);
    stage2_rig_finish(&rig);
}

static uint64_t named; /* root that the last batch named */

static void note_root(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    (void)r;
    named = flush->space.root;
}

/* On arm64 the root goes into VTTBR_EL2 while another VMID is in force for the TLBI. */
TEST(arm64_root_is_in_force_during_invalidations)
{
    hvmem_u64 vttbr = 0;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(hvmem_stage2_root(rig.s2, 0, &vttbr), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, 16, HOME, 7, 0, NULL), HVMEM_OK);
    CHECK(gets_in(3, WALK_R));
    rig.on_flush = note_root;
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 3, 1, NULL, NULL), HVMEM_OK);
    CHECK_EQ(named, vttbr);
    stage2_rig_finish(&rig);
}

/* ---- memory that the guest sees past the caches ----------------------------------------------- */

static hvmem_u32 given_type;

static hvmem_status give_page(void *ctx, hvmem_gfn gfn, hvmem_u32 access,
                              struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)access;
    leaf->mfn = HOME + gfn;
    leaf->type = given_type;
    leaf->rights = HVMEM_S2_R | HVMEM_S2_W;
    leaf->state = HVMEM_S2_UNCLEAN;
    return HVMEM_OK;
}

/* Lines that a first touch of a page cleans, on a machine whose stage 2 forces write-back. */
static uint64_t lines_of(hvmem_u32 type, uint64_t features)
{
    uint64_t lines;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.features |= HVMEM_CAP_FWB | features;
    rig.config.flags = HVMEM_S2_FORCE_WB;
    rig.config.populate.give = give_page;
    given_type = type;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig_set_apart(&rig, HOME, 2048);
    CHECK(gets_in(3, WALK_R));
    lines = rig.lines;
    stage2_rig_finish(&rig);
    return lines;
}

/* Where the heap cleans nothing for guests they must not see past the caches. */
TEST(B45_write_back_is_forced_where_nothing_is_cleaned)
{
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.features |= HVMEM_CAP_FWB;
    CHECK_EQ(stage2_rig_open(&rig), HVMEM_E_ARG);
    stage2_rig_close(&rig);
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.flags = HVMEM_S2_FORCE_WB;
    CHECK_EQ(stage2_rig_open(&rig), HVMEM_E_UNSUPPORTED);
    stage2_rig_close(&rig);
}

TEST(B45_forced_write_back_leaves_out_only_what_nobody_sees)
{
    CHECK_EQ(lines_of(HVMEM_S2_WB, HVMEM_CAP_IDC), 0);
    CHECK_EQ(lines_of(HVMEM_S2_NC, HVMEM_CAP_IDC), 64);
    CHECK_EQ(lines_of(HVMEM_S2_DEVICE, HVMEM_CAP_IDC), 64);
    /* Fetches do not see the data caches. */
    CHECK_EQ(lines_of(HVMEM_S2_WB, 0), 64);
}

/* ---- what tables leave behind ------------------------------------------------------------------ */

/* Words of a frame that are not 0. */
static unsigned words_in(hvmem_mfn mfn)
{
    const uint64_t *words = (const uint64_t *)(rig.pool + ((mfn - RIG_BASE) << 12));
    unsigned i, found = 0;

    for (i = 0; i < 512; i++)
        found += words[i] != 0;
    return found;
}

/* Every frame that was a table goes to the domain, clean to memory: how many did. */
static unsigned guest_gets(const uint8_t *was_table)
{
    struct hvmem_request request;
    unsigned got = 0;
    hvmem_mfn mfn;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.node = HVMEM_NODE_ANY;
    request.domain = rig.domain;
    memset(rig.cleaned, 0, sizeof rig.cleaned);
    while (hvmem_alloc(rig.heap, &request, &mfn) == HVMEM_OK) {
        if (!was_table[mfn - RIG_BASE])
            continue;
        got++;
        CHECK_EQ(words_in(mfn), 0);
        CHECK_EQ(rig.cleaned[mfn - RIG_BASE], 64);
    }
    return got;
}

/*
 * Tables that the host pays for hold machine addresses: no guest finds them in its memory, nor behind the
 * caches, whether they are freed one by one or by a teardown.
 */
TEST(tables_leave_no_addresses_behind)
{
    static uint8_t was_table[RIG_FRAMES];
    uint64_t gib, i, tables;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    memset(was_table, 0, sizeof was_table);
    for (gib = 0; gib < 4; gib++)
        for (i = 0; i < 10; i++)
            CHECK_EQ(rig_map(&rig, gib * GIB + i * 512, 1, HOME, HVMEM_S2_RWX, HVMEM_S2_WB, NULL),
                     HVMEM_OK);
    tables = rig_stats(&rig).tables;
    for (i = 0; i < RIG_FRAMES; i++) {
        struct hvmem_block block;

        CHECK_EQ(hvmem_lookup(rig.heap, RIG_BASE + i, &block), HVMEM_OK);
        was_table[i] = block.state == HVMEM_BLOCK_ALLOCATED;
        tables -= was_table[i];
    }
    CHECK_EQ(tables, 0);
    tables = rig_stats(&rig).tables;
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 2 * GIB, NULL, NULL),
             HVMEM_OK); /* more than the pool takes */
    CHECK(rig_stats(&rig).tables + rig_stats(&rig).pool < tables);
    stage2_rig_close(&rig);
    CHECK_EQ(guest_gets(was_table), tables);
}

/* The same of tables that are not the library's own: a gather frees the host's, and a domain's. */
TEST(gathered_tables_leave_no_addresses_behind)
{
    static uint8_t was_table[RIG_FRAMES];
    struct hvmem_mapping_config config;
    struct hvmem_request request;
    struct hvmem_mapping mapping;
    struct hvmem_gather gather;
    hvmem_mfn table[2];
    int i;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.heap = rig.heap;
    config.space = rig.space;
    REQUIRE_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_OK);
    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.node = HVMEM_NODE_ANY;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &table[0]), HVMEM_OK);
    request.domain = rig.domain;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &table[1]), HVMEM_OK);
    memset(&gather, 0, sizeof gather);
    REQUIRE_EQ(hvmem_gather_begin(&gather, &mapping, 0, 0, 1ull << 30), HVMEM_OK);
    memset(was_table, 0, sizeof was_table);
    for (i = 0; i < 2; i++) {
        memset(rig.pool + ((table[i] - RIG_BASE) << 12), 0x67, 4096);
        was_table[table[i] - RIG_BASE] = 1;
        CHECK_EQ(hvmem_gather_table(&gather, table[i], (uint64_t)i << 21, 3, 0), HVMEM_OK);
    }
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_OK);
    stage2_rig_close(&rig);
    CHECK_EQ(guest_gets(was_table), 2);
}
