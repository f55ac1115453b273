/* SPDX-License-Identifier: BSD-2-Clause */
/* The flush clock with stamps of 8 bits: random events on model CPUs, each clock value soon reused. */
#include "clock.h"
#include "clock_rig.h"

HVMEM_STATIC_ASSERT(HVMEM_STAMP_WIDTH == 8, stamps_are_narrow);

static struct clock_rig rig;

static void events(unsigned flags, uint64_t count)
{
    clock_rig_begin(&rig, flags, flags);
    clock_rig_run(&rig, count);
    if (!CHECK_EQ(rig.stale, 0))
        test_note("flags %#x, %llu blocks handed over", flags, (unsigned long long)rig.handed);
    CHECK(rig.heap->clock.now > 100 * (HVMEM__STAMP_MASK + 1)); /* it wrapped */
    CHECK(clock_rig_flushes(&rig) > 100);
    clock_rig_end(&rig);
}

TEST(B23_a_million_events_with_times_by_cpu, points, slow)
{
    events(CLOCK_RIG_NO_CACHE, test_rounds(500000));
    events(0, test_rounds(500000));
}

TEST(B23_a_million_events_with_one_time, points, slow)
{
    events(CLOCK_RIG_BROADCAST | CLOCK_RIG_NO_CACHE, test_rounds(500000));
    events(CLOCK_RIG_BROADCAST, test_rounds(500000));
}
