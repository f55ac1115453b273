/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which frames a guest may get: those that the heap does not know, the host's, its own, those that their
 * owner says are shared; none that another is given later, while the guest still has them.
 */
#include "stage2_rig.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

#define AT 0x40000u /* where nothing is mapped but what is to be replaced, behind it */

static struct stage2_rig rig;
static struct hvmem_domain *other;
static void *other_memory;

static hvmem_mfn block_of(struct hvmem_domain *domain, hvmem_order order)
{
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    hvmem_mfn mfn = 0;

    request.domain = domain;
    request.order = order;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    return mfn;
}

/* Whose the guest is: nobody says, its tables are charged to its domain, or its space is attached to it. */
enum whose { UNKNOWN, CHARGED, ATTACHED };

static void begin(uint32_t format, enum whose whose)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 2, .limit = ~(hvmem_u64)0};
    struct hvmem_domain_ops ops;
    hvmem_size bytes;

    stage2_rig_prepare(&rig, format);
    rig.charged = whose == CHARGED;
    rig.cached = 1;
    rig_answers(&rig);
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    bytes = hvmem_domain_size(rig.heap);
    other_memory = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_domain_create(rig.heap, other_memory, bytes, &config, &other), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    if (whose == ATTACHED)
        REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    REQUIRE_EQ(hvmem_stage2_reserve(rig.s2, 8), HVMEM_OK);
    REQUIRE_EQ(rig_map(&rig, AT + 1024, 1024, 0x1000, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
}

static void end(void)
{
    stage2_rig_close(&rig);
    free(other_memory);
}

/* No call gives the guest this frame, and the host is told why each time. */
static void refused(hvmem_mfn mfn, hvmem_status why)
{
    struct hvmem_stage2_map replace = {.size = sizeof replace, .flags = HVMEM_S2_REPLACE};
    uint64_t before = rig.reported, frames = rig_stats(&rig).frames;
    struct hvmem_domain_ops ops;
    hvmem_u32 outcome;
    hvmem_u64 done = 9;

    CHECK_EQ(rig_map(&rig, AT, 1, mfn, HVMEM_S2_R, HVMEM_S2_WB, &done), why);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_map(&rig, AT, 1, mfn, HVMEM_S2_R, HVMEM_S2_DEVICE, NULL), why);
    /* What it would replace stays. */
    replace.gfn = AT + 1024;
    replace.frames = 1;
    replace.mfn = mfn;
    replace.rights = HVMEM_S2_R;
    CHECK_EQ(hvmem_stage2_map(rig.s2, &replace, &done), why);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig.reported - before, 3);
    hvmem_stage2_ops(&ops);
    if (why != HVMEM_E_OWNER) {
        CHECK_EQ(ops.map(rig.s2, AT, mfn, 0), why);
        CHECK_EQ(ops.map_untouched(rig.s2, AT, mfn, 0), why);
    }
    rig.answer.lost = 0;
    rig.answer.mfn = mfn;
    CHECK_EQ(hvmem_stage2_fault(rig.s2, (uint64_t)AT << 12, HVMEM_S2_R, &outcome), why);
    CHECK_EQ(outcome, HVMEM_FAULT_UNMAPPED);
    CHECK_EQ(rig.answer.lost, why != HVMEM_E_QUARANTINE);
    CHECK_EQ(rig_stats(&rig).frames, frames);
}

static void allowed(hvmem_mfn mfn, hvmem_u64 n)
{
    CHECK_EQ(rig_map(&rig, AT, n, mfn, HVMEM_S2_R, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, AT, n, NULL, NULL), HVMEM_OK);
    rig.answer.mfn = mfn;
    CHECK(rig_access(&rig, 0, (uint64_t)AT << 12, WALK_W) >= 0);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, AT, 1, NULL, NULL), HVMEM_OK);
}

/* The n-th frame of a block alone is such; none of the block is mapped with it. */
static void refused_within(hvmem_mfn block, hvmem_u64 n, hvmem_u64 of, hvmem_status why)
{
    hvmem_u64 done = 0;

    CHECK_EQ(rig_map(&rig, AT, of, block, HVMEM_S2_R, HVMEM_S2_WB, &done), why);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_map(&rig, AT, of - n, block + n, HVMEM_S2_R, HVMEM_S2_WB, NULL), why);
    CHECK_EQ(rig_map(&rig, AT, n + 1, block, HVMEM_S2_R, HVMEM_S2_WB, NULL), why);
    CHECK_EQ(rig_map(&rig, AT, n, block, HVMEM_S2_R, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, AT, n, NULL, NULL), HVMEM_OK);
}

static void nobody_owns(uint32_t format, enum whose whose)
{
    struct hvmem_gather gather = {0};
    hvmem_mfn mfn, first;

    begin(format, whose);
    /* Free in the heap, and in the cache of a CPU. */
    mfn = block_of(NULL, 5);
    first = block_of(rig.domain, 0);
    refused(RIG_BASE + RIG_FRAMES - 1, HVMEM_E_FREE);
    CHECK_EQ(hvmem_free_owned(rig.heap, first, 0, rig.domain, 0), HVMEM_OK);
    refused(first, HVMEM_E_FREE);
    CHECK_EQ(hvmem_free_run(rig.heap, mfn + 3, 1), HVMEM_OK);
    refused(mfn + 3, HVMEM_E_FREE);
    refused_within(mfn, 3, 32, HVMEM_E_FREE);
    /* Before frames of no bank. */
    CHECK_EQ(rig_map(&rig, AT, 8, RIG_BASE + RIG_FRAMES - 1, 7, 0, NULL), HVMEM_E_FREE);
    /* Out of service; but going there it is still its owner's. */
    CHECK_EQ(hvmem_offline(rig.heap, mfn + 3), HVMEM_OK);
    refused(mfn + 3, HVMEM_E_OFFLINE);
    refused_within(mfn, 3, 32, HVMEM_E_OFFLINE);
    CHECK_EQ(hvmem_online(rig.heap, mfn + 3), HVMEM_OK);
    refused(mfn + 3, HVMEM_E_FREE);
    refused_within(mfn, 3, 32, HVMEM_E_FREE);
    CHECK_EQ(hvmem_offline(rig.heap, mfn + 5), HVMEM_AGAIN);
    allowed(mfn + 5, 1);
    CHECK_EQ(hvmem_online(rig.heap, mfn + 5), HVMEM_OK);
    /* The host's, wherever it lies. */
    CHECK_EQ(hvmem_reserve(rig.heap, mfn + 3, 1), HVMEM_OK);
    allowed(mfn, 32);
    CHECK_EQ(hvmem_free_run(rig.heap, mfn + 3, 1), HVMEM_OK);
    /* In a gather, and where its flush did not come back. */
    first = block_of(rig.domain, 1);
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0, 4096), HVMEM_OK);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, first, 1, rig.domain, 0), HVMEM_OK);
    refused(first, HVMEM_E_GATHERED);
    refused(first + 1, HVMEM_E_GATHERED);
    rig.fail_flushes = 100;
    CHECK(hvmem_gather_finish(&gather) < 0);
    rig.fail_flushes = 0;
    CHECK_EQ(hvmem_shootdown(hvmem_stage2_mapping(rig.s2), NULL, 0, 0), HVMEM_OK);
    refused(first, HVMEM_E_QUARANTINE);
    refused(first + 1, HVMEM_E_QUARANTINE);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, first), HVMEM_OK);
    refused(first, HVMEM_E_FREE);
    end();
}

TEST(no_guest_maps_what_nobody_owns)
{
    unsigned whose;

    for (whose = UNKNOWN; whose <= ATTACHED; whose++) {
        nobody_owns(HVMEM_S2_ARM64, whose);
        nobody_owns(HVMEM_S2_NPT, whose);
        nobody_owns(HVMEM_S2_EPT, whose);
    }
}

static unsigned scrubbed;

/* A free block that is just being scrubbed. */
static void on_zero(struct stage2_rig *r, hvmem_mfn mfn)
{
    r->on_zero = NULL;
    refused(mfn, HVMEM_E_FREE);
    scrubbed++;
}

TEST(no_guest_maps_what_is_being_scrubbed)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn;

    begin(HVMEM_S2_ARM64, CHARGED);
    mfn = block_of(rig.domain, 3);
    CHECK_EQ(hvmem_free_owned(rig.heap, mfn, 3, rig.domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(rig.heap), HVMEM_OK);
    rig.on_zero = on_zero;
    scrubbed = 0;
    while (hvmem_scrub_step(rig.heap, HVMEM_NODE_ANY, 64, &cursor) == HVMEM_AGAIN)
        ;
    CHECK_EQ(scrubbed, 1);
    end();
}

/* A block that its owner is freeing in steps: what flushes there were are over. */
TEST(no_guest_maps_what_is_being_freed)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn;

    begin(HVMEM_S2_ARM64, CHARGED);
    mfn = block_of(rig.domain, 9);
    allowed(mfn, 512);
    CHECK_EQ(hvmem_free_scrubbed(rig.heap, mfn, 9, rig.domain, 0, 8, &cursor), HVMEM_AGAIN);
    refused(mfn, HVMEM_E_GATHERED);
    refused(mfn + 300, HVMEM_E_GATHERED);
    while (hvmem_free_scrubbed(rig.heap, mfn, 9, rig.domain, 0, 64, &cursor) == HVMEM_AGAIN)
        ;
    refused(mfn, HVMEM_E_FREE);
    end();
}

static void whose_is_it(uint32_t format, enum whose whose)
{
    hvmem_mfn foreign, own, hosts;

    begin(format, whose);
    own = block_of(rig.domain, 9);
    hosts = block_of(NULL, 4);
    foreign = block_of(other, 2);
    allowed(own, 512);
    allowed(hosts, 16);
    if (whose == UNKNOWN) {
        allowed(foreign, 4);
    } else {
        refused(foreign, HVMEM_E_OWNER);
        refused(foreign + 3, HVMEM_E_OWNER);
        CHECK_EQ(hvmem_domain_foreign(other, foreign, 2), HVMEM_OK);
        allowed(foreign, 4);
    }
    CHECK_EQ(hvmem_free_owned(rig.heap, foreign, 2, other, 0), HVMEM_OK);
    refused(foreign, HVMEM_E_FREE);
    /* The next owner has not said so. */
    foreign = block_of(other, 2);
    if (whose != UNKNOWN)
        refused(foreign, HVMEM_E_OWNER);
    end();
}

TEST(no_guest_maps_what_another_has_not_shared)
{
    unsigned whose;

    for (whose = UNKNOWN; whose <= ATTACHED; whose++) {
        whose_is_it(HVMEM_S2_ARM64, whose);
        whose_is_it(HVMEM_S2_NPT, whose);
        whose_is_it(HVMEM_S2_EPT, whose);
    }
}

/* A deferred flush of an earlier owner that shared it is not the word of this one. */
TEST(an_old_debt_is_no_word_of_the_owner)
{
    struct hvmem_request request = {
        .size = sizeof request, .order = 2, .node = HVMEM_NODE_ANY, .flags = HVMEM_REQ_DEFER_TLB};
    struct hvmem_block block;
    hvmem_mfn mfn;

    begin(HVMEM_S2_ARM64, CHARGED);
    mfn = block_of(other, 2);
    CHECK_EQ(hvmem_domain_foreign(other, mfn, 2), HVMEM_OK);
    CHECK_EQ(hvmem_free_owned(rig.heap, mfn, 2, other, 0), HVMEM_OK);
    request.domain = other;
    request.lo = mfn;
    request.hi = mfn + 4;
    CHECK_EQ(hvmem_drain(rig.heap), HVMEM_OK);
    CHECK_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_lookup(rig.heap, mfn, &block), HVMEM_OK);
    CHECK_EQ(block.owed & (HVMEM_OWES_FOREIGN | HVMEM_OWES_TLB),
             HVMEM_OWES_FOREIGN | HVMEM_OWES_TLB);
    refused(mfn, HVMEM_E_OWNER);
    end();
}
