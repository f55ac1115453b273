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

/* No CPU runs the guest any more. */
static void leave(void)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < RIG_CPUS; cpu++) {
        rig.tlb->current = cpu;
        CHECK_EQ(hvmem_space_deactivate(rig.ident, cpu), HVMEM_OK);
        hvmem_sim_tlb_set_loaded(rig.tlb, cpu, NULL);
        CHECK_EQ(hvmem_space_entered(rig.ident, cpu), HVMEM_OK);
    }
    rig.tlb->current = 0;
}

static void teardown(void)
{
    struct hvmem_domain_stats stats;
    struct hvmem_cursor cursor;
    hvmem_status status;

    leave();
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
