/* SPDX-License-Identifier: BSD-2-Clause */
/* Gathers: what they invalidate, in which order, what they refuse, and what becomes of the frames. */
#include "gather_rig.h"

#include <string.h>

static struct gather_rig rig;

/* ---- random programs ---------------------------------------------------------------------------- */

static void run_kind(enum gather_kind kind, uint64_t steps)
{
    struct hvmem_mapping_stats stats;

    gather_rig_begin(&rig, kind, 0, (uint64_t)kind);
    gather_rig_run(&rig, steps);
    /* The program did what it is for. */
    REQUIRE_EQ(hvmem_mapping_get_stats(&rig.mapping[0], sizeof stats, &stats), HVMEM_OK);
    CHECK(stats.gathers > steps / 100 && stats.contended && stats.cancelled);
    CHECK(stats.flushes > stats.gathers / 8);
    if (!CHECK_EQ(rig.stale, 0) || !CHECK_EQ(rig.reused, 0))
        test_note("kind %d, %llu events", (int)kind, (unsigned long long)rig.logged);
    gather_rig_end(&rig);
}

TEST(random_programs_ask_with_own_ids, points)
{
    run_kind(GATHER_PCID, test_rounds(3000));
}

TEST(random_programs_ask_with_common_ids, points)
{
    run_kind(GATHER_TAGS, test_rounds(3000));
}

TEST(random_programs_broadcast, points)
{
    run_kind(GATHER_VMID, test_rounds(3000));
}

TEST(random_programs_flush_at_entry, points)
{
    run_kind(GATHER_SVM, test_rounds(3000));
}

/* Negative control: flushes that drop nothing are noticed. */
TEST(deaf_flushes_are_noticed, points)
{
    gather_rig_begin(&rig, GATHER_TAGS, GATHER_RIG_DEAF, 9);
    gather_rig_run(&rig, 3000);
    CHECK(rig.stale != 0);
    gather_rig_end(&rig);
}
