/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A populate that stops while one large extent is mapped piece by piece: what is mapped by then, whatever
 * becomes of the rest, and that what a guest reached meanwhile is not handed on as it was.
 */
#include "stage2_rig.h"

#include "lib/domain.h"

#include <hvmem/populate.h>

#include <string.h>

enum { ORDER = 11, FRAMES = 1 << ORDER, PIECE = 512 };

static struct stage2_rig rig;
static struct hvmem_extent extent;
static struct hvmem_cursor cursor;
static hvmem_u64 done;

/* A guest that is mapped by pages, which it may write at once. */
static void begin(void)
{
    struct hvmem_domain_ops ops;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.largest = 0;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    memset(&extent, 0, sizeof extent);
    memset(&cursor, 0, sizeof cursor);
    extent.gfn = 0x1000;
    extent.order = ORDER;
    rig.yield_wanted = 1;
}

static void finish(void)
{
    struct hvmem_cursor teardown = {{0}};
    hvmem_status status;

    rig.yield_wanted = 0;
    rig_leave(&rig);
    do
        status = hvmem_domain_teardown(rig.domain, 0, &teardown);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(hvmem_domain_destroy(rig.domain), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
    CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

static hvmem_status populate(struct hvmem_cursor *c)
{
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY};

    request.extents = &extent;
    request.count = 1;
    request.done = &done;
    return hvmem_domain_populate(rig.domain, &request, c);
}

static uint64_t mapped(void)
{
    return rig_stats(&rig).frames;
}

/* Until so many frames are mapped. */
static void populate_to(uint64_t frames)
{
    int calls = 0;

    while (mapped() < frames && ++calls < 100)
        REQUIRE_EQ(populate(&cursor), HVMEM_AGAIN);
    REQUIRE_EQ(mapped(), frames);
}

/* The guest writes a secret to its first frame. Returns which. */
static hvmem_mfn write_secret(void)
{
    hvmem_mfn mfn = rig_walk(&rig, 0x1000).address >> 12;

    CHECK(rig_access(&rig, 0, 0x1000ull << 12, WALK_W) >= 0);
    memset(rig.pool + ((mfn - RIG_BASE) << 12), 0x5e, 4096);
    return mfn;
}

/* The host gets it zeroed, and no translation is left of it. */
static void check_forgotten(hvmem_mfn mfn)
{
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    hvmem_mfn got;

    CHECK_EQ(mapped(), 0);
    CHECK_EQ(rig_holds(&rig, 0, ~0ull), 0);
    request.lo = mfn;
    request.hi = mfn + 1;
    CHECK_EQ(hvmem_alloc(rig.heap, &request, &got), HVMEM_OK);
    CHECK_EQ(rig.pool[(mfn - RIG_BASE) << 12], 0);
    CHECK_EQ(hvmem_free(rig.heap, got, 0), HVMEM_OK);
}

TEST(stops_after_each_piece)
{
    uint64_t frames;

    begin();
    for (frames = PIECE; frames < FRAMES; frames += PIECE) {
        populate_to(frames);
        CHECK_EQ(done, 0);
        CHECK(!(extent.flags & HVMEM_EXTENT_DONE));
        CHECK_EQ(rig_walk(&rig, 0x1000 + frames - 1).kind, WALK_LEAF);
        CHECK(rig_walk(&rig, 0x1000 + frames).kind != WALK_LEAF);
    }
    CHECK_EQ(populate(&cursor), HVMEM_OK);
    CHECK_EQ(done, 1);
    CHECK(extent.flags & HVMEM_EXTENT_DONE);
    CHECK_EQ(rig_walk(&rig, 0x1000 + FRAMES - 1).address >> 12, extent.mfn + FRAMES - 1);
    finish();
}

/* As many pieces a call as the budget says. */
TEST(budget_counts_pieces)
{
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY, .budget = 2};
    hvmem_status status;
    uint64_t before;

    begin();
    rig.yield_wanted = 0;
    request.extents = &extent;
    request.count = 1;
    do {
        before = mapped();
        status = hvmem_domain_populate(rig.domain, &request, &cursor);
        CHECK(mapped() - before <= 2 * PIECE);
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(mapped(), FRAMES);
    finish();
}

/* A cursor names the populate and no more: replayed it goes on, forged it is refused. */
TEST(cursors_say_nothing_of_progress)
{
    struct hvmem_cursor old, bad;
    unsigned i;

    begin();
    populate_to(PIECE);
    old = cursor;
    populate_to(2 * PIECE);
    for (i = 0; i < 4; i++) {
        bad = old;
        bad.words[i] ^= 1ull << (7 * i);
        CHECK_EQ(populate(&bad), HVMEM_E_STALE);
    }
    CHECK_EQ(mapped(), 2 * PIECE);
    CHECK_EQ(populate(&old), HVMEM_AGAIN);
    CHECK_EQ(mapped(), 3 * PIECE);
    CHECK_EQ(populate(&cursor), HVMEM_OK);
    CHECK_EQ(populate(&old), HVMEM_E_STALE);
    finish();
}

TEST(given_up_half_way)
{
    hvmem_mfn mfn;

    begin();
    populate_to(2 * PIECE);
    mfn = write_secret();
    CHECK_EQ(hvmem_domain_populate_cancel(rig.domain), HVMEM_OK);
    CHECK_EQ(populate(&cursor), HVMEM_E_STALE);
    check_forgotten(mfn);
    finish();
}

/* The caller's array says something else of the extent now. */
TEST(moved_half_way)
{
    hvmem_mfn mfn;

    begin();
    populate_to(2 * PIECE);
    mfn = write_secret();
    extent.gfn += FRAMES;
    CHECK_EQ(populate(&cursor), HVMEM_E_STALE);
    CHECK_EQ(done, 0);
    check_forgotten(mfn);
    finish();
}

TEST(refused_half_way, points)
{
    hvmem_mfn mfn;

    begin();
    populate_to(2 * PIECE);
    mfn = write_secret();
    rig.fail_tables = 1;
    CHECK_EQ(populate(&cursor), HVMEM_E_NOMEM);
    CHECK_EQ(done, 0);
    check_forgotten(mfn);
    finish();
}

/* Of one piece a part was mapped, and a guest may have written there before it was taken back. */
static hvmem_mfn reached;

static int write_before_the_second_table(const char *name, void *ctx)
{
    static int tables;

    (void)ctx;
    if (strcmp(name, "stage2.table") != 0)
        return 0;
    tables++;
    if (mapped() == 0)
        return 0;
    reached = write_secret();
    return 1;
}

TEST(refused_within_a_piece, points)
{
    begin();
    /* A piece of 512 pages in two tables. */
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 0), HVMEM_OK);
    reached = 0;
    test_set_point_hook(write_before_the_second_table, NULL);
    CHECK_EQ(populate(&cursor), HVMEM_AGAIN);
    while (populate(&cursor) == HVMEM_AGAIN)
        ;
    CHECK(reached != 0);
    check_forgotten(reached);
    finish();
}

/* Out of quarantine with what is there: tables, and blocks, of which this counts the frames. */
static uint64_t release_all(void)
{
    struct hvmem_block block;
    uint64_t frames = 0;
    hvmem_mfn mfn;

    for (mfn = RIG_BASE; mfn < RIG_BASE + RIG_FRAMES; mfn = block.mfn + (1ull << block.order)) {
        REQUIRE_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
        if (block.state != HVMEM_BLOCK_QUARANTINE)
            continue;
        frames += block.order ? 1ull << block.order : 0;
        CHECK_EQ(hvmem_quarantine_release(rig.heap, block.mfn), HVMEM_OK);
    }
    return frames;
}

/* What cannot be flushed is withheld, and said to be. */
TEST(given_up_and_not_flushed)
{
    struct hvmem_block block;
    hvmem_mfn mfn;

    begin();
    populate_to(2 * PIECE);
    mfn = write_secret();
    rig.fail_flushes = 100;
    CHECK_EQ(hvmem_domain_populate_cancel(rig.domain), HVMEM_E_QUARANTINE);
    rig.fail_flushes = 0;
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.state, HVMEM_BLOCK_QUARANTINE);
    CHECK_EQ(block.order, ORDER);
    CHECK_EQ(release_all(), FRAMES);
    finish();
}

/* A domain that ends takes its tables down first. */
TEST(torn_down_half_way)
{
    begin();
    populate_to(2 * PIECE);
    (void)write_secret();
    finish();
    begin();
    populate_to(2 * PIECE);
    (void)write_secret();
    CHECK_EQ(hvmem_domain_kill(rig.domain), HVMEM_OK);
    CHECK_EQ(populate(&cursor), HVMEM_E_DOMAIN);
    finish();
}

/* ---- how long the undoing takes -------------------------------------------------------------------- */

static uint64_t left_mapped, longest_undone;
static unsigned turns;

static void count_turn(void)
{
    uint64_t now = mapped();

    if (left_mapped - now > longest_undone)
        longest_undone = left_mapped - now;
    left_mapped = now;
    turns++;
}

/* Who gives up a populate in the middle of an extent gives way to others after each piece. */
TEST(a_cancel_gives_way_after_each_piece)
{
    begin();
    populate_to(3 * PIECE);
    left_mapped = 3 * PIECE;
    longest_undone = turns = 0;
    rig.relax = count_turn;
    CHECK_EQ(hvmem_domain_populate_cancel(rig.domain), HVMEM_OK);
    rig.relax = NULL;
    CHECK_EQ(mapped(), 0);
    CHECK_EQ(left_mapped, 0);
    CHECK(turns >= 3);
    CHECK_EQ(longest_undone, PIECE);
    finish();
}
