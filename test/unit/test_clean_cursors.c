/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cleans in steps whose cursors a guest may have in its hands: whatever it makes of them, a range that is
 * said to be clean was cleaned from its beginning to its end since the first call.
 */
#include "stage2_rig.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>

#include <string.h>

enum { ORDER = 11, FRAMES = 1 << ORDER };

static struct stage2_rig rig;
static hvmem_mfn home;

static void begin(void)
{
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    struct hvmem_extent extent = {.order = ORDER};
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_domain_ops ops;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    request.extents = &extent;
    request.count = 1;
    REQUIRE_EQ(hvmem_domain_populate(rig.domain, &request, &cursor), HVMEM_OK);
    home = extent.mfn;
}

static void finish(void)
{
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, FRAMES, NULL, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_free_owned(rig.heap, home, ORDER, rig.domain, 0), HVMEM_OK);
    stage2_rig_close(&rig);
}

/* The two calls, on part of the block. */
typedef hvmem_status clean_fn(uint64_t first, uint64_t frames, struct hvmem_cursor *cursor);

static hvmem_status clean_guest(uint64_t first, uint64_t frames, struct hvmem_cursor *cursor)
{
    return hvmem_domain_clean(rig.domain, first, frames, cursor);
}

static hvmem_status clean_frames(uint64_t first, uint64_t frames, struct hvmem_cursor *cursor)
{
    return hvmem_cache_range(rig.heap, home + first, frames, HVMEM_DC_CLEAN_INVALIDATE, 16384,
                             cursor);
}

static clean_fn *const cleans[] = {clean_guest, clean_frames};

static int clean_since(uint64_t first, uint64_t frames)
{
    uint64_t i;

    for (i = first; i < first + frames; i++)
        if (rig.cleaned[home - RIG_BASE + i] < 64)
            return 0;
    return 1;
}

static void dirty_all(void)
{
    memset(rig.cleaned, 0, sizeof rig.cleaned);
}

/* A cursor of an earlier clean, from anywhere within it. */
TEST(replayed_cursors_are_refused)
{
    unsigned k, i, calls;

    for (k = 0; k < 2; k++) {
        struct hvmem_cursor cursor = {{0}}, seen[16];
        hvmem_status status;

        begin();
        calls = 0;
        do {
            status = cleans[k](0, FRAMES, &cursor);
            seen[calls++] = cursor;
        } while (status == HVMEM_AGAIN && calls < 16);
        CHECK_EQ(status, HVMEM_OK);
        CHECK(calls > 4);
        for (i = 0; i + 1 < calls; i++) {
            dirty_all();
            CHECK_EQ(cleans[k](0, FRAMES, &seen[i]), HVMEM_E_STALE);
        }
        finish();
    }
}

/* Whatever the guest writes into the cursor between two calls. */
TEST(forged_cursors_leave_nothing_out)
{
    struct test_rng rng = test_rng(6);
    unsigned k, round;

    for (k = 0; k < 2; k++) {
        begin();
        for (round = 0; round < 300; round++) {
            uint64_t first = test_below(&rng, FRAMES - 600), frames = 300 + test_below(&rng, 300);
            struct hvmem_cursor cursor = {{0}};
            hvmem_status status;

            dirty_all();
            while ((status = cleans[k](first, frames, &cursor)) == HVMEM_AGAIN) {
                unsigned word = (unsigned)test_below(&rng, 4);

                switch (test_below(&rng, 4)) {
                case 0:
                    cursor.words[word] += 1ull << test_below(&rng, 64);
                    break;
                case 1:
                    cursor.words[word] += test_below(&rng, frames << 12);
                    break;
                case 2:
                    cursor.words[word] = first + test_below(&rng, frames);
                    break;
                default:
                    break;
                }
            }
            if (status == HVMEM_OK)
                CHECK(clean_since(first, frames));
            else /* and those that it lost count as under way for a while */
                CHECK(status == HVMEM_E_STALE || status == HVMEM_E_BUSY);
        }
        finish();
    }
}

/* Idle scrubbing keeps its position in the cursor: what a forged one passes over stays dirty, and is scrubbed. */
TEST(forged_scrubs_leave_what_is_dirty)
{
    struct test_rng rng = test_rng(7);
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn;
    unsigned i;

    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    for (i = 0; i < 40; i++) {
        struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY, .order = 6};

        request.domain = rig.domain;
        REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
        memset(rig.pool + ((mfn - RIG_BASE) << 12), 0x5e, 64 << 12);
        CHECK_EQ(hvmem_free_owned(rig.heap, mfn, 6, rig.domain, 0), HVMEM_OK);
        if (hvmem_scrub_step(rig.heap, HVMEM_NODE_ANY, 16, &cursor) == HVMEM_AGAIN)
            cursor.words[2] +=
                test_below(&rng, 3) ? test_below(&rng, RIG_FRAMES) : test_random(&rng);
    }
    while (hvmem_alloc_order(rig.heap, 0, &mfn) == HVMEM_OK) {
        const unsigned char *page = rig.pool + ((mfn - RIG_BASE) << 12);

        CHECK(page[0] != 0x5e && page[4095] != 0x5e);
    }
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

/* Several at a time, one cursor each; one that another range has is refused. */
TEST(cleans_side_by_side)
{
    unsigned k, i, done;

    for (k = 0; k < 2; k++) {
        struct hvmem_cursor cursor[HVMEM_CLEANS] = {{{0}}}, one, other;
        hvmem_status status[HVMEM_CLEANS];

        begin();
        dirty_all();
        for (i = 0; i < HVMEM_CLEANS; i++)
            CHECK_EQ(status[i] = cleans[k](i, FRAMES - i, &cursor[i]), HVMEM_AGAIN);
        other = cursor[1];
        CHECK_EQ(cleans[k](0, FRAMES, &other), HVMEM_E_STALE);
        for (done = 0; done < HVMEM_CLEANS;)
            for (i = 0; i < HVMEM_CLEANS; i++) {
                if (status[i] != HVMEM_AGAIN)
                    continue;
                status[i] = cleans[k](i, FRAMES - i, &cursor[i]);
                CHECK(status[i] == HVMEM_OK || status[i] == HVMEM_AGAIN);
                done += status[i] != HVMEM_AGAIN;
            }
        CHECK(clean_since(0, FRAMES));
        /* As many as are kept are under way: another waits, until some of them are forgotten. */
        for (i = 0; i < HVMEM_CLEANS; i++) {
            memset(&cursor[i], 0, sizeof cursor[i]);
            CHECK_EQ(cleans[k](i, FRAMES - i, &cursor[i]), HVMEM_AGAIN);
        }
        memset(&one, 0, sizeof one);
        CHECK_EQ(cleans[k](0, FRAMES, &one), HVMEM_E_BUSY);
        CHECK_EQ(cleans[k](0, 100, &one), HVMEM_OK);
        for (i = 0; i < 1000 && cleans[k](0, FRAMES, &one) != HVMEM_AGAIN; i++)
            memset(&one, 0, sizeof one);
        CHECK(i > 0 && i < 1000);
        while (cleans[k](0, FRAMES, &one) == HVMEM_AGAIN)
            ;
        finish();
    }
}
