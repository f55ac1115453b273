/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What instruction caches hold of frames that a second stage maps: an earlier owner's code is gone before a
 * guest can fetch it, and what a guest may have fetched is owed when its frame leaves.
 */
#include "stage2_rig.h"

#include <string.h>

#define PAGE 0x205u

static struct stage2_rig rig;
static hvmem_mfn frame;

/* A frame of the domain, with every debt that an earlier owner left, or paid for. */
static void take_frame(uint32_t flags)
{
    struct hvmem_request request;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.node = HVMEM_NODE_ANY;
    request.domain = rig.domain;
    request.flags = flags;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &frame), HVMEM_OK);
}

static void begin(uint32_t format, uint32_t flags, uint32_t alloc_flags)
{
    stage2_rig_prepare(&rig, format);
    rig.owed = HVMEM_OWES_ICACHE;
    rig.config.flags = flags;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    take_frame(0);
    REQUIRE_EQ(hvmem_free_owned(rig.heap, frame, 0, rig.domain, 0), HVMEM_OK);
    take_frame(alloc_flags);
}

static hvmem_u32 owed(void)
{
    struct hvmem_block block;

    CHECK_EQ(hvmem_lookup(rig.heap, frame, &block), HVMEM_OK);
    return block.owed;
}

static int gets_in(unsigned access)
{
    return rig_access(&rig, 0, (uint64_t)PAGE << 12, access) >= 0;
}

static void protect(unsigned rights)
{
    CHECK_EQ(hvmem_stage2_protect(rig.s2, PAGE, 1, rights, NULL, NULL), HVMEM_OK);
}

/* ---- frames that leave ------------------------------------------------------------------------ */

static void arms(void)
{
    struct hvmem_cursor cursor;

    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_track_arm(rig.s2, &cursor), HVMEM_OK);
}

static void ages(void)
{
    hvmem_u64 touched;

    CHECK_EQ(hvmem_track_age(rig.s2, PAGE, 1, HVMEM_AGE_CLEAR, &touched), HVMEM_OK);
    CHECK_EQ(touched, 1);
}

static void loses_the_right(void)
{
    protect(HVMEM_S2_R);
}

static void nothing(void)
{
}

/* Unmapped into a gather that frees it. */
static void leaves(void)
{
    struct hvmem_gather gather;

    memset(&gather, 0, sizeof gather);
    REQUIRE_EQ(
        hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, (hvmem_u64)PAGE << 12, 4096),
        HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, PAGE, 1, &gather, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, frame, 0, rig.domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
}

/* The guest fetched from it, whatever its entry says in the end. */
TEST(frame_that_was_executed_owes_it)
{
    static void (*const between[])(void) = {nothing, arms, ages, loses_the_right};
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    size_t i, f;

    for (f = 0; f < 3; f++)
        for (i = 0; i < 4; i++) {
            begin(formats[f], 0, 0);
            REQUIRE_EQ(rig_map(&rig, PAGE, 1, frame, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
            CHECK(gets_in(HVMEM_S2_X));
            between[i]();
            leaves();
            CHECK(owed() & HVMEM_OWES_ICACHE);
            stage2_rig_close(&rig);
        }
}

/* ---- frames that come ------------------------------------------------------------------------- */

/* The right to fetch may come after the first touch, which is when the frame is paid for. */
TEST(first_touch_of_what_becomes_executable_later)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    size_t f;

    for (f = 0; f < 3; f++) {
        begin(formats[f], HVMEM_S2_FIRST_TOUCH,
              HVMEM_REQ_DEFER_SCRUB | HVMEM_REQ_DEFER_DCACHE | HVMEM_REQ_DEFER_ICACHE);
        CHECK(owed() & HVMEM_OWES_ICACHE);
        REQUIRE_EQ(rig_map(&rig, PAGE, 1, frame, HVMEM_S2_R | HVMEM_S2_W, HVMEM_S2_WB, NULL),
                   HVMEM_OK);
        CHECK(gets_in(HVMEM_S2_W));
        protect(HVMEM_S2_RWX);
        CHECK(gets_in(HVMEM_S2_X));
        CHECK(rig.fetched[frame - RIG_BASE] > 0);
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, PAGE, 1, NULL, NULL), HVMEM_OK);
        stage2_rig_close(&rig);
    }
}
