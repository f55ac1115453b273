/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Table pages out of more spans of 2^32 frames than a gather keeps apart: the unmap flushes on the way, and
 * never with the lock of the tables held (the rig checks that at every flush, in debug builds).
 */
#include "stage2_rig.h"

#include <stdlib.h>
#include <string.h>

#define SPANS 12

static struct stage2_rig rig;
static uint64_t far_table[SPANS][512] __attribute__((aligned(4096)));
static void *bank_memory[SPANS];

/* One frame in each span of 2^32 from the second on. */
static void *table_at(void *ctx, hvmem_maddr table)
{
    uint64_t mfn = table >> 12;

    (void)ctx;
    if (mfn >> 32)
        return far_table[(mfn >> 32) - 1];
    return rig.pool + ((mfn - RIG_BASE) << 12);
}

static const uint64_t *walker_at(void *ctx, uint64_t table)
{
    return table_at(ctx, table);
}

static void add_bank(int i)
{
    struct hvmem_bank bank;
    hvmem_size bytes;

    memset(&bank, 0, sizeof bank);
    bank.size = sizeof bank;
    bank.base = (hvmem_mfn)(i + 1) << 32;
    bank.frames = 1;
    REQUIRE_EQ(hvmem_bank_size(rig.heap, &bank, &bytes), HVMEM_OK);
    bank_memory[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
    REQUIRE_EQ(hvmem_bank_add(rig.heap, &bank, bank_memory[i], bytes), HVMEM_OK);
}

/* A page in each of SPANS tables, each table in its own span. */
static void begin(uint32_t format)
{
    hvmem_mfn mfn;
    int i;

    stage2_rig_prepare(&rig, format);
    rig.config.table_at = table_at;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    rig.tables.at = walker_at;
    /* A page in a table of its own keeps those above; then the near memory is used up. */
    CHECK_EQ(rig_map(&rig, 512 * SPANS, 1, 0x1000, 7, 0, NULL), HVMEM_OK);
    while (hvmem_alloc_order(rig.heap, 0, &mfn) == HVMEM_OK)
        ;
    for (i = 0; i < SPANS; i++) {
        add_bank(i);
        CHECK_EQ(rig_map(&rig, 512u * (unsigned)i, 1, 0x1000, 7, 0, NULL), HVMEM_OK);
        CHECK(rig_access(&rig, 0, (uint64_t)i << 21, WALK_R) >= 0);
    }
    CHECK_EQ(hvmem_free_frames(rig.heap), 0);
}

static uint64_t early(void)
{
    struct hvmem_mapping_stats stats;

    CHECK_EQ(hvmem_mapping_get_stats(hvmem_stage2_mapping(rig.s2), sizeof stats, &stats), HVMEM_OK);
    return stats.early;
}

static void finish(void)
{
    struct hvmem_stage2_stats stats = rig_stats(&rig);
    int i;

    CHECK_EQ(rig_holds(&rig, 0, 512 * SPANS), 0);
    CHECK_EQ(stats.frames, 1);
    CHECK_EQ(stats.pool + hvmem_free_frames(rig.heap), SPANS);
    rig_check_counts(&rig);
    stage2_rig_close(&rig);
    for (i = 0; i < SPANS; i++)
        free(bank_memory[i]);
}

static void unmap_all(uint32_t format)
{
    struct hvmem_gather gather;
    hvmem_u64 done;

    begin(format);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512 * SPANS, NULL, &done), HVMEM_OK);
    CHECK_EQ(done, 512 * SPANS);
    CHECK_EQ(early(), 1);
    CHECK_EQ(rig.flushes, 2);
    finish();
    /* The same through a gather of the caller's, which goes on after it. */
    begin(format);
    memset(&gather, 0, sizeof gather);
    CHECK_EQ(
        hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.s2), 0, 0, (hvmem_u64)SPANS << 21),
        HVMEM_OK);
    CHECK_EQ(hvmem_stage2_unmap(rig.s2, 0, 512 * SPANS, &gather, &done), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(early(), 1);
    finish();
}

TEST(tables_of_many_spans_are_flushed_without_the_lock)
{
    unmap_all(HVMEM_S2_ARM64);
    unmap_all(HVMEM_S2_NPT);
    unmap_all(HVMEM_S2_EPT);
}
