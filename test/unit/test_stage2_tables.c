/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages that a stage 2 has for tables are its own, whoever is charged for them: no call takes one by its
 * number while hardware may walk it, and all of them are free when the stage 2 is gone.
 */
#include "stage2_rig.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

#define MOST 64u

static struct stage2_rig rig;
static hvmem_mfn guest; /* a block of 2^9 frames, the guest's */
static hvmem_mfn lone;  /* a frame of its own before most tables */
static struct hvmem_block table[MOST];
static unsigned tables;
static int on_demand; /* the host gives what faults ask for */

/* Every block but the guest's is a table's. */
static void find_tables(void)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    tables = 0;
    while (hvmem_walk(rig.heap, &cursor, &block) == HVMEM_AGAIN)
        if (block.state == HVMEM_BLOCK_ALLOCATED && block.mfn != guest && block.mfn != lone &&
            tables < MOST)
            table[tables++] = block;
}

/* Tables of every level, some more in the pool; with `roots` several root tables side by side. */
static void open_tables(uint32_t format, hvmem_u32 charged, int roots)
{
    struct hvmem_request request = {.size = sizeof request, .order = 9, .node = HVMEM_NODE_ANY};

    stage2_rig_prepare(&rig, format);
    rig.charged = charged;
    if (on_demand)
        rig_answers(&rig);
    if (roots) {
        rig.config.input_bits = 33;
        rig.config.start_level = 2;
    }
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    request.domain = rig.domain;
    request.order = 0;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &lone), HVMEM_OK);
    request.order = 9;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &guest), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, 512, guest, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x7fe01, 3, guest, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 4), HVMEM_OK);
    find_tables();
    CHECK(tables >= 6 && tables < MOST);
}

static void close_tables(void)
{
    stage2_rig_close(&rig);
    CHECK_EQ(hvmem_free_owned(rig.heap, guest, 9, rig.domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_owned(rig.heap, lone, 0, rig.domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
}

/* Each call that would take it is told that it is held. */
static void try_block(const struct hvmem_block *b)
{
    struct hvmem_domain *owner = b->owner ? rig.domain : NULL;
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_gather gather = {0};
    uint64_t before = rig.reported;
    hvmem_u32 done = 0;

    CHECK_EQ(hvmem_free(rig.heap, b->mfn, b->order), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free(rig.heap, b->mfn, HVMEM_ORDER_ANY), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_bulk(rig.heap, &b->mfn, 1, b->order, &done), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_owned(rig.heap, b->mfn, b->order, owner, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_owned(rig.heap, b->mfn, b->order, owner, HVMEM_OWES_SCRUB),
             HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(rig.heap, b->mfn, 1u << b->order), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(rig.heap, b->mfn, 1), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_scrubbed(rig.heap, b->mfn, b->order, owner, 0, 0, &cursor),
             HVMEM_E_GATHERED);
    if (owner)
        CHECK_EQ(hvmem_domain_foreign(owner, b->mfn, b->order), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0, 4096), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, b->mfn, b->order, owner, 0), HVMEM_E_GATHERED);
    if (!b->order)
        CHECK_EQ(hvmem_gather_table(&gather, b->mfn, 0, 3, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig.reported - before, 9 + !!owner + !b->order);
}

/* What the tables say. */
static void check_guest(void)
{
    hvmem_u64 i;

    for (i = 0; i < 512; i += 73)
        CHECK_EQ(rig_walk(&rig, i).address >> 12, guest + i);
    CHECK_EQ(rig_walk(&rig, 0x7fe02).address >> 12, guest + 1);
    CHECK(rig_access(&rig, 0, 0x1000, WALK_W) >= 0);
    rig_check_counts(&rig);
}

static void try_all(void)
{
    static unsigned char before[RIG_FRAMES * 4096];
    hvmem_u64 left = hvmem_free_frames(rig.heap);
    struct hvmem_block now;
    unsigned i;

    memcpy(before, rig.pool, sizeof before);
    for (i = 0; i < tables; i++) {
        struct hvmem_block was;

        CHECK_EQ(hvmem_lookup(rig.heap, table[i].mfn, &was), HVMEM_OK);
        try_block(&table[i]);
        CHECK_EQ(hvmem_lookup(rig.heap, table[i].mfn, &now), HVMEM_OK);
        CHECK_EQ(memcmp(&now, &was, sizeof now), 0);
    }
    CHECK_EQ(hvmem_free_frames(rig.heap), left);
    CHECK_EQ(memcmp(before, rig.pool, sizeof before), 0);
    check_guest();
}

static void every_call(uint32_t format, hvmem_u32 charged, int roots)
{
    hvmem_u64 done;

    open_tables(format, charged, roots);
    try_all();
    /* Given back to the pool through a gather, used again. */
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x7fe00, 512, NULL, &done), HVMEM_OK);
    find_tables();
    CHECK_EQ(rig_map(&rig, 0x7fe01, 3, guest, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    try_all();
    close_tables();
}

TEST(no_call_takes_a_table_by_its_number)
{
    hvmem_u32 charged;

    for (charged = 0; charged < 2; charged++) {
        every_call(HVMEM_S2_ARM64, charged, 0);
        every_call(HVMEM_S2_ARM64, charged, 1);
        every_call(HVMEM_S2_NPT, charged, 0);
        every_call(HVMEM_S2_EPT, charged, 0);
    }
}

/* ---- as a guest's frame --------------------------------------------------------------------------- */

/* Why a guest does not get these frames: the first of them that is free, or of a table. */
static hvmem_status why(hvmem_mfn mfn, hvmem_u64 frames)
{
    struct hvmem_block block;
    hvmem_u64 i;

    for (i = 0; i < frames; i++) {
        if (mfn + i < RIG_BASE || mfn + i >= RIG_BASE + RIG_FRAMES)
            continue;
        CHECK_EQ(hvmem_lookup(rig.heap, mfn + i, &block), HVMEM_OK);
        if (block.mfn == guest || block.mfn == lone)
            continue;
        return block.state == HVMEM_BLOCK_FREE ? HVMEM_E_FREE : HVMEM_E_GATHERED;
    }
    return HVMEM_OK;
}

/* No call makes it the guest's at gfn 0x40000 and behind, alone or in the middle of more. */
static void try_to_map(hvmem_mfn mfn)
{
    const hvmem_gfn at = 0x40000;
    struct hvmem_stage2_map replace = {.size = sizeof replace, .flags = HVMEM_S2_REPLACE};
    struct hvmem_domain_ops ops;
    hvmem_u64 done = 9, frames = rig_stats(&rig).frames;
    uint64_t before = rig.reported;
    hvmem_u32 outcome;

    hvmem_stage2_ops(&ops);
    CHECK_EQ(rig_map(&rig, at, 1, mfn, HVMEM_S2_R, HVMEM_S2_WB, &done), HVMEM_E_GATHERED);
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_map(&rig, at, 1, mfn, HVMEM_S2_R, HVMEM_S2_DEVICE, NULL), HVMEM_E_GATHERED);
    /* The last of a few, in a block of 2 MiB, and where one begins before the heap. */
    CHECK_EQ(rig_map(&rig, at + 1, 3, mfn - 2, HVMEM_S2_R, HVMEM_S2_WB, NULL), why(mfn - 2, 3));
    CHECK_EQ(rig_map(&rig, at, 512, mfn & ~511ull, HVMEM_S2_R, HVMEM_S2_WB, NULL),
             why(mfn & ~511ull, 512));
    CHECK_EQ(rig_map(&rig, at, 0x40000, RIG_BASE, HVMEM_S2_R, HVMEM_S2_WB, NULL),
             why(RIG_BASE, 0x40000));
    CHECK_EQ(ops.map(rig.s2, at, mfn, 0), HVMEM_E_GATHERED);
    CHECK_EQ(ops.map(rig.s2, at, mfn & ~15ull, 4), why(mfn & ~15ull, 16));
    CHECK_EQ(ops.map_untouched(rig.s2, at, mfn, 0), HVMEM_E_GATHERED);
    CHECK_EQ(rig_stats(&rig).frames, frames);
    /* What it would replace stays. */
    replace.frames = 512;
    replace.mfn = mfn & ~511ull;
    replace.rights = HVMEM_S2_R;
    CHECK_EQ(hvmem_stage2_map(rig.s2, &replace, &done), why(replace.mfn, 512));
    CHECK_EQ(done, 0);
    CHECK_EQ(rig_stats(&rig).frames, frames);
    CHECK_EQ(rig.reported - before, 9);
    rig.answer.lost = 0;
    for (rig.answer.order = 0; rig.answer.order <= 18; rig.answer.order += 9) {
        rig.answer.mfn = mfn >> rig.answer.order << rig.answer.order;
        CHECK_EQ(hvmem_stage2_fault(rig.s2, at << 12, HVMEM_S2_R, &outcome),
                 why(rig.answer.mfn, 1ull << rig.answer.order));
        CHECK_EQ(outcome, HVMEM_FAULT_UNMAPPED);
    }
    CHECK_EQ(rig.answer.lost, 3);
    CHECK_EQ(rig_stats(&rig).frames, frames);
}

static void no_guest_maps_one(uint32_t format, hvmem_u32 charged, int roots)
{
    struct hvmem_gather gather = {0};
    unsigned i, k, waiting = 0, behind = 0;
    hvmem_u64 done;

    on_demand = 1;
    open_tables(format, charged, roots);
    on_demand = 0;
    for (i = 0; i < tables; i++)
        for (k = 0; k < 1u << table[i].order; k++)
            try_to_map(table[i].mfn + k);
    /* Behind a frame that the guest may have. */
    for (i = 0; i < tables; i++) {
        if (table[i].mfn < lone)
            continue;
        behind++;
        CHECK_EQ(
            rig_map(&rig, 0x40000, table[i].mfn - lone + 1, lone, HVMEM_S2_R, HVMEM_S2_WB, NULL),
            why(lone, table[i].mfn - lone + 1));
        CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x40000, table[i].mfn - lone + 1, NULL, NULL),
                 HVMEM_OK);
    }
    CHECK(behind > 1);
    check_guest();
    /* Nor one that waits in a gather, to be a table again. */
    CHECK_EQ(hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0, 1ull << 32), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0x7fe00, 512, &gather, &done), HVMEM_OK);
    for (i = 0; i < tables; i++) {
        struct hvmem_block now;

        CHECK_EQ(hvmem_lookup(rig.heap, table[i].mfn, &now), HVMEM_OK);
        if (now.state != HVMEM_BLOCK_GATHERED)
            continue;
        try_to_map(table[i].mfn);
        waiting++;
    }
    CHECK(waiting != 0);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x7fe01, 3, guest, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    check_guest();
    close_tables();
}

TEST(no_guest_maps_a_table)
{
    hvmem_u32 charged;

    for (charged = 0; charged < 2; charged++) {
        no_guest_maps_one(HVMEM_S2_ARM64, charged, 0);
        no_guest_maps_one(HVMEM_S2_ARM64, charged, 1);
        no_guest_maps_one(HVMEM_S2_NPT, charged, 0);
        no_guest_maps_one(HVMEM_S2_EPT, charged, 0);
    }
}

/* A bad frame below a table goes when the table does, and not before. */
TEST(table_of_a_bad_frame_stays)
{
    hvmem_u32 charged;

    for (charged = 0; charged < 2; charged++) {
        struct hvmem_block block;
        unsigned i;

        open_tables(HVMEM_S2_ARM64, charged, 1);
        for (i = 0; i < tables; i++)
            CHECK_EQ(hvmem_offline(rig.heap, table[i].mfn), HVMEM_AGAIN);
        try_all();
        CHECK_EQ(hvmem_online(rig.heap, table[0].mfn), HVMEM_OK);
        try_all();
        CHECK_EQ(hvmem_settle(rig.heap, table[0].mfn, 1u << table[0].order, HVMEM_OWES_ANY),
                 HVMEM_OK);
        try_all();
        stage2_rig_close(&rig);
        for (i = 1; i < tables; i++) {
            CHECK_EQ(hvmem_lookup(rig.heap, table[i].mfn, &block), HVMEM_OK);
            CHECK_EQ(block.state, HVMEM_BLOCK_OFFLINE);
            CHECK_EQ(hvmem_online(rig.heap, table[i].mfn), HVMEM_OK);
        }
        CHECK_EQ(hvmem_free_owned(rig.heap, guest, 9, rig.domain, 0), HVMEM_OK);
        CHECK_EQ(hvmem_free_owned(rig.heap, lone, 0, rig.domain, 0), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
    }
}

/* A domain that pays for the tables of a stage 2 which is not attached to it does not free them at its end. */
TEST(teardown_of_the_payer_waits_for_the_stage2)
{
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_domain_stats stats;
    hvmem_status status;
    unsigned pages = 0, i;

    open_tables(HVMEM_S2_EPT, 1, 0);
    for (i = 0; i < tables; i++)
        pages += 1u << table[i].order;
    do
        status = hvmem_domain_teardown(rig.domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_E_BUSY);
    CHECK_EQ(hvmem_domain_stats(rig.domain, &stats), HVMEM_OK);
    CHECK_EQ(stats.pages, pages);
    CHECK_EQ(rig_walk(&rig, 3).address >> 12, guest + 3);
    stage2_rig_close(&rig);
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_domain_teardown(rig.domain, 0, &cursor), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(rig.heap), RIG_FRAMES);
}
