/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Devices beside a guest: its own, mapped through to it, which no cache holds and which is not there for the
 * library to touch; and devices that walk the tables and cannot fault.
 */
#include "stage2_rig.h"

#include <hvmem/populate.h>

#include <string.h>

#define HOME (RIG_BASE + 1024)
#define MMIO 0x9000u /* frames that the host cannot map */

static struct stage2_rig rig;

static hvmem_status forget(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                           hvmem_u64 *ticket)
{
    (void)ranges;
    (void)count;
    (void)ticket;
    ++*(int *)ctx;
    return HVMEM_OK;
}

static struct hvmem_notifier device_that_counts(int *told)
{
    struct hvmem_notifier device;

    memset(&device, 0, sizeof device);
    device.size = sizeof device;
    device.invalidate = forget;
    device.ctx = told;
    return device;
}

/* ---- device memory ---------------------------------------------------------------------------- */

/* Registers of a device, and a frame buffer, among what a guest touched: there is nothing to clean. */
TEST(set_way_leaves_device_memory_alone)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_track_progress progress;
    int i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        rig_set_apart(&rig, HOME, 2048);
        CHECK_EQ(rig_map(&rig, 8, 4, HOME, 7, HVMEM_S2_WB, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 12, 2, MMIO, 3, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 512, 512, MMIO & ~511u, 3, HVMEM_S2_NC, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 14, 1, HOME + 4, 7, HVMEM_S2_WB, NULL), HVMEM_OK);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        CHECK(rig_access(&rig, 0, 9 << 12, HVMEM_S2_W) > 0);
        CHECK(rig_access(&rig, 0, 12 << 12, HVMEM_S2_W) > 0);
        CHECK(rig_access(&rig, 0, 13 << 12, HVMEM_S2_R) > 0);
        CHECK(rig_access(&rig, 1, 14 << 12, HVMEM_S2_W) > 0);
        CHECK(rig_access(&rig, 1, 600 << 12, HVMEM_S2_W) > 0);
        CHECK_EQ(rig_setway(&rig, 0, &progress), HVMEM_OK);
        CHECK_EQ(progress.noted, 4 + 512);
        CHECK_EQ(progress.cleaned, 2);
        CHECK_EQ(rig.cleaned[HOME + 1 - RIG_BASE], 64);
        CHECK_EQ(rig.cleaned[HOME + 4 - RIG_BASE], 64);
        CHECK_EQ(rig.lines, 128);
        stage2_rig_finish(&rig);
    }
}

static void attach(void)
{
    struct hvmem_domain_ops ops;

    hvmem_stage2_ops(&ops);
    CHECK_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
}

/* A guest that cleans all it has, and a builder that says that it wrote everywhere. */
TEST(cleans_by_guest_frame_pass_over_device_memory)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    attach();
    CHECK_EQ(rig_map(&rig, 8, 4, HOME, 7, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 12, 2, MMIO, 3, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 14, 1, HOME + 4, 3, HVMEM_S2_NC, NULL), HVMEM_OK);
    /* Frames of the heap that the guest sees as a device's: what the host wrote there is in caches. */
    CHECK_EQ(rig_map(&rig, 15, 1, HOME + 5, 3, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_domain_clean(rig.domain, 0, 1u << 20, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(rig.lines, 6 * 64);
    CHECK_EQ(hvmem_domain_dirtied(rig.domain, 0, 1u << 20), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(rig.domain), HVMEM_OK);
    CHECK_EQ(rig.lines, 12 * 64);
    stage2_rig_finish(&rig);
}

/* Arm ARM B2.7.2: only what is not executable is not fetched from ahead of time. */
TEST(device_memory_is_never_executable_on_arm64)
{
    struct hvmem_stage2_leaf leaf;
    uint64_t done;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    rig_set_apart(&rig, HOME, 2048);
    CHECK_EQ(rig_map(&rig, 8, 4, MMIO, 7, HVMEM_S2_DEVICE, NULL), HVMEM_E_ARG);
    CHECK_EQ(rig_map(&rig, 8, 4, MMIO, 5, HVMEM_S2_DEVICE, NULL), HVMEM_E_ARG);
    CHECK_EQ(rig_map(&rig, 8, 4, MMIO, 1, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 12, 4, HOME, 1, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 512, 512, MMIO & ~511u, 3, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
    /* A range of a guest's that has both in it. */
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 8, 600, 7, NULL, &done), HVMEM_OK);
    CHECK_EQ(done, 600);
    CHECK_EQ(hvmem_stage2_lookup(rig.s2, 8, &leaf), HVMEM_OK);
    CHECK_EQ(leaf.rights, 3);
    CHECK_EQ(rig_walk(&rig, 8).rights, 3);
    CHECK_EQ(rig_walk(&rig, 13).rights, 7);
    CHECK_EQ(rig_walk(&rig, 600).rights, 3);
    CHECK_EQ(rig_walk(&rig, 600).shift, 21); /* nothing changed: not split */
    stage2_rig_finish(&rig);
    /* Where fetches ahead do not go there a guest may run from a device's memory. */
    stage2_rig_begin(&rig, HVMEM_S2_EPT);
    CHECK_EQ(rig_map(&rig, 8, 4, MMIO, 5, HVMEM_S2_DEVICE, NULL), HVMEM_OK);
    stage2_rig_finish(&rig);
}

static unsigned answer_rights;
static int lost;

static hvmem_status give(void *ctx, hvmem_gfn gfn, hvmem_u32 access, struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)access;
    CHECK_EQ(leaf->rights, HVMEM_S2_RWX); /* unless said */
    leaf->mfn = MMIO + gfn;
    leaf->type = HVMEM_S2_DEVICE;
    leaf->rights = answer_rights;
    return HVMEM_OK;
}

static void lose(void *ctx, hvmem_gfn gfn, const struct hvmem_stage2_leaf *leaf)
{
    (void)ctx;
    (void)gfn;
    (void)leaf;
    lost++;
}

TEST(device_memory_on_demand_is_not_executable_on_arm64)
{
    hvmem_u32 outcome;

    lost = 0;
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.populate.give = give;
    rig.config.populate.lost = lose;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    answer_rights = 7;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_R, &outcome), HVMEM_E_ARG);
    CHECK_EQ(outcome, HVMEM_FAULT_UNMAPPED);
    CHECK_EQ(lost, 1);
    answer_rights = 3;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_R, &outcome), HVMEM_OK);
    CHECK_EQ(rig_walk(&rig, 7).rights, 3);
    stage2_rig_finish(&rig);
}

/* ---- devices that walk the tables ------------------------------------------------------------- */

/* One call of a disarm, with a guest at work between two. */
TEST(a_disarm_beside_a_guest_leaves_nothing_that_faults)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_notifier device;
    struct hvmem_cursor cursor;
    hvmem_status status;
    int told = 0, i, calls;
    uint64_t gfn;

    for (i = 0; i < 3; i++) {
        stage2_rig_prepare(&rig, formats[i]);
        rig.config.flags = HVMEM_S2_FIRST_TOUCH;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        rig_set_apart(&rig, HOME, 2048);
        CHECK_EQ(rig_map(&rig, 0, 32, HOME, 7, HVMEM_S2_WB, NULL), HVMEM_OK);
        for (gfn = 0; gfn < 10; gfn++)
            CHECK(rig_access(&rig, 0, gfn << 12, HVMEM_S2_W) > 0);
        CHECK_EQ(rig_arm(&rig), HVMEM_OK);
        memset(&cursor, 0, sizeof cursor);
        for (calls = 0; (status = hvmem_track_disarm(rig.s2, &cursor)) == HVMEM_AGAIN; calls++)
            if (calls == 0)
                CHECK(rig_access(&rig, 1, 20 << 12, HVMEM_S2_R) > 0);
        CHECK_EQ(status, HVMEM_OK);
        device = device_that_counts(&told);
        CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
        for (gfn = 0; gfn < 32; gfn++)
            CHECK_EQ(rig_walk(&rig, gfn).kind, WALK_LEAF);
        CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
        stage2_rig_finish(&rig);
    }
}

/* A CPU drops an entry that is too tight by its fault; a device's write is lost. */
TEST(a_device_is_told_of_rights_that_were_gained)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_notifier device;
    uint64_t flushes;
    int told, i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        rig_set_apart(&rig, HOME, 2048);
        CHECK_EQ(rig_map(&rig, 0, 8, HOME, HVMEM_S2_R, HVMEM_S2_WB, NULL), HVMEM_OK);
        device = device_that_counts(&told);
        CHECK_EQ(hvmem_notifier_add(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
        told = 0;
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 2, 1, 3, NULL, NULL), HVMEM_OK);
        CHECK(told > 0);
        CHECK_EQ(hvmem_notifier_remove(hvmem_stage2_mapping(rig.s2), &device), HVMEM_OK);
        flushes = rig.flushes;
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 3, 1, 3, NULL, NULL), HVMEM_OK);
        CHECK_EQ(rig.flushes - flushes, formats[i] == HVMEM_S2_ARM64 ? 1 : 0);
        stage2_rig_finish(&rig);
    }
}
