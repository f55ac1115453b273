/* SPDX-License-Identifier: BSD-2-Clause */
/* Random programs on the model machine (sim_rig.h) with stamps of 8 bits, each clock value soon reused. */
#include "clock.h"
#include "sim_rig.h"

HVMEM_STATIC_ASSERT(HVMEM_STAMP_WIDTH == 8, stamps_are_narrow);

static struct sim_rig rig;

static void events(unsigned flags, uint64_t count)
{
    sim_rig_begin(&rig, flags, 4, flags);
    sim_rig_run(&rig, count);
    CHECK_EQ(rig.stale, 0);
    CHECK_EQ(rig.leaked, 0);
    CHECK(rig.heap->clock.now > count / 50); /* it wrapped */
    if (count >= 20000)
        CHECK(rig.done.torn_blocks && rig.done.scrubbed && rig.done.touched && rig.done.lazy_again);
    sim_rig_end(&rig);
}

TEST(machines_with_narrow_stamps)
{
    events(0, test_rounds(40000));
    events(SIM_BROADCAST, test_rounds(40000));
}

TEST(a_million_steps_with_narrow_stamps, points, slow)
{
    events(SIM_NO_CACHE, test_rounds(250000));
    events(SIM_DEVICES, test_rounds(250000));
    events(SIM_BROADCAST | SIM_NO_CACHE, test_rounds(250000));
    events(SIM_BROADCAST, test_rounds(250000));
}
