/* SPDX-License-Identifier: BSD-2-Clause */
/* Short forms of calls that tests of second-stage tables make again and again (stage2_rig.h). */
#include "stage2_rig.h"

#include <string.h>

/* Calls that one operation of a test may take: none in the tree takes that many. */
#define MOST_CALLS 1000000u

void stage2_rig_begin(struct stage2_rig *rig, uint32_t format)
{
    stage2_rig_prepare(rig, format);
    REQUIRE_EQ(stage2_rig_open(rig), HVMEM_OK);
}

void stage2_rig_finish(struct stage2_rig *rig)
{
    rig_check_counts(rig);
    CHECK_EQ(rig_conflicts(rig), 0);
    stage2_rig_close(rig);
}

static hvmem_status give(void *ctx, hvmem_gfn gfn, hvmem_u32 access, struct hvmem_stage2_leaf *leaf)
{
    struct stage2_rig *rig = ctx;
    (void)gfn;
    (void)access;

    leaf->mfn = rig->answer.mfn;
    leaf->order = rig->answer.order;
    leaf->rights = HVMEM_S2_RWX;
    return HVMEM_OK;
}

static void lose(void *ctx, hvmem_gfn gfn, const struct hvmem_stage2_leaf *leaf)
{
    struct stage2_rig *rig = ctx;
    (void)gfn;

    rig->answer.lost += leaf->mfn == rig->answer.mfn;
}

void rig_answers(struct stage2_rig *rig)
{
    rig->config.populate.give = give;
    rig->config.populate.lost = lose;
    rig->config.ctx = rig;
}

void rig_set_apart(struct stage2_rig *rig, uint64_t mfn, uint64_t frames)
{
    REQUIRE_EQ(hvmem_reserve(rig->heap, mfn, frames), HVMEM_OK);
}

struct hvmem_stage2 *rig_second(struct stage2_rig *rig)
{
    static unsigned char memory[16384] __attribute__((aligned(64)));
    static unsigned char space_memory[16384] __attribute__((aligned(64)));
    struct hvmem_space_config space = {.size = sizeof space, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_stage2_config config = rig->config;
    struct hvmem_stage2 *s2 = NULL;

    REQUIRE_EQ(
        hvmem_space_create(rig->ident, space_memory, sizeof space_memory, &space, &config.space),
        HVMEM_OK);
    REQUIRE_EQ(hvmem_stage2_init(memory, sizeof memory, &config, &s2), HVMEM_OK);
    return s2;
}

hvmem_status rig_arm(struct stage2_rig *rig)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned calls = 0;

    do
        status = hvmem_track_arm(rig->s2, &cursor);
    while (status == HVMEM_AGAIN && ++calls < MOST_CALLS);
    return status;
}

hvmem_status rig_setway(struct stage2_rig *rig, uint32_t lines,
                        struct hvmem_track_progress *progress)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned calls = 0;

    memset(progress, 0, sizeof *progress);
    do
        status = hvmem_track_setway(rig->s2, lines, &cursor, progress);
    while (status == HVMEM_AGAIN && ++calls < MOST_CALLS);
    return status;
}

int rig_touched(struct stage2_rig *rig, uint64_t gfn)
{
    struct hvmem_stage2_leaf leaf;

    CHECK_EQ(hvmem_stage2_lookup(rig->s2, gfn, &leaf), HVMEM_OK);
    return leaf.state == HVMEM_S2_TOUCHED;
}

hvmem_u32 rig_fault(struct stage2_rig *rig, uint64_t gfn, unsigned access)
{
    hvmem_u32 outcome = ~0u;

    CHECK_EQ(hvmem_stage2_fault(rig->s2, gfn << 12, access, &outcome), HVMEM_OK);
    return outcome;
}

void rig_leave(struct stage2_rig *rig)
{
    hvmem_cpu cpu;

    for (cpu = 0; cpu < RIG_CPUS; cpu++) {
        rig->tlb->current = cpu;
        CHECK_EQ(hvmem_space_deactivate(rig->ident, cpu), HVMEM_OK);
        hvmem_sim_tlb_set_loaded(rig->tlb, cpu, NULL);
        CHECK_EQ(hvmem_space_entered(rig->ident, cpu), HVMEM_OK);
    }
    rig->tlb->current = 0;
}
