/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random programs of a hypervisor on the model machine (sim_rig.h): whatever is handed over nobody else
 * reaches, and nobody sees what an earlier owner left. Each way to be wrong is found.
 */
#include "sim_rig.h"

#include <stdio.h>

static struct sim_rig rig;

/* Everything that these programs are to prove harmless did happen; short runs may be unlucky. */
static void occurred(unsigned flags, unsigned cpus, uint64_t steps)
{
    const struct sim_done *done = &rig.done;
    int all;

    if (steps < 20000)
        return;
    all = CHECK(done->torn_blocks > steps / 2000) & CHECK(done->scrubbed > steps / 200) &
          CHECK(done->untouched > steps / 500) & CHECK(done->touched > steps / 500) &
          CHECK(done->lazy > steps / 2000);
    if (steps >= 60000)
        all &= CHECK(done->torn_foreign > steps / 60000);
    if (cpus <= 8)
        all &= CHECK(done->lazy_again > steps / 5000) & CHECK(done->tables_of_lazy > steps / 20000);
    if (!all)
        test_note("flags %#x, %u CPUs, %llu steps", flags, cpus, (unsigned long long)steps);
}

static void run(unsigned flags, unsigned cpus, uint64_t stream, uint64_t steps)
{
    sim_rig_begin(&rig, flags, cpus, stream);
    sim_rig_run(&rig, steps);
    if (!(CHECK_EQ(rig.stale, 0) & CHECK_EQ(rig.leaked, 0) & CHECK_EQ(rig.m.recycled, 0)))
        test_note("flags %#x, %u CPUs, stream %llu: %llu blocks handed over", flags, cpus,
                  (unsigned long long)stream, (unsigned long long)rig.handed);
    CHECK(rig.handed > steps / 50 && rig.populated > steps / 500);
    CHECK(rig.started > steps / 10000 && rig.ended > steps / 20000);
    occurred(flags, cpus, steps);
    sim_rig_end(&rig);
}

static const unsigned kinds[] = {0,
                                 SIM_DEVICES,
                                 SIM_NO_CLOCK | SIM_DEVICES,
                                 SIM_NO_CACHE,
                                 SIM_BROADCAST,
                                 SIM_BROADCAST | SIM_DEVICES,
                                 SIM_BROADCAST | SIM_FLAWED | SIM_NO_CACHE,
                                 SIM_BROADCAST | SIM_FORCED | SIM_DEVICES,
                                 SIM_BROADCAST | SIM_FORCED | SIM_POU,
                                 SIM_BROADCAST | SIM_CACHED,
                                 SIM_BROADCAST | SIM_ARM64 | SIM_NO_CACHE,
                                 SIM_BROADCAST | SIM_ARM64 | SIM_FLAWED};
#define KINDS (sizeof kinds / sizeof kinds[0])

TEST(random_programs_on_every_kind_of_machine)
{
    unsigned i;

    for (i = 0; i < KINDS; i++)
        run(kinds[i], 5, i, test_rounds(60000));
}

TEST(random_programs_on_few_and_many_cpus)
{
    run(0, 1, 1, test_rounds(30000));
    run(0, 2, 2, test_rounds(60000));
    run(0, 70, 3, test_rounds(60000));
    run(SIM_BROADCAST, 256, 4, test_rounds(20000));
}

/* ---- 10^7 steps in all, half of them the same in every run -------------------------------------- */

static void run_twice(unsigned flags, unsigned cpus, uint64_t stream, uint64_t steps)
{
    run(flags | SIM_FIXED, cpus, stream, steps / 2);
    run(flags, cpus, stream, steps / 2);
}

TEST(five_million_steps_with_times_by_cpu, slow)
{
    printf("  fresh seed %#llx\n", (unsigned long long)test_seed());
    run_twice(SIM_DEVICES, 5, 10, test_rounds(2000000));
    run_twice(SIM_NO_CACHE, 3, 11, test_rounds(1000000));
    run_twice(0, 8, 12, test_rounds(1000000));
    run_twice(SIM_NO_CLOCK | SIM_DEVICES, 4, 13, test_rounds(500000));
    run_twice(0, 64, 14, test_rounds(500000));
}

TEST(five_million_steps_with_one_time, slow)
{
    printf("  fresh seed %#llx\n", (unsigned long long)test_seed());
    run_twice(SIM_BROADCAST | SIM_DEVICES, 5, 20, test_rounds(2000000));
    run_twice(SIM_BROADCAST | SIM_FLAWED, 4, 21, test_rounds(1000000));
    run_twice(SIM_BROADCAST | SIM_ARM64 | SIM_FLAWED, 4, 24, test_rounds(500000));
    run_twice(SIM_BROADCAST | SIM_FORCED | SIM_DEVICES, 5, 22, test_rounds(1000000));
    run_twice(SIM_BROADCAST | SIM_NO_CACHE, 128, 23, test_rounds(500000));
}

/* ---- negative controls ------------------------------------------------------------------------ */

/* A way to be wrong is found soon: as something that reaches a frame, or that was seen in it. */
static void find(unsigned flags, int reached, int seen, int walked)
{
    uint64_t stale = 0, leaked = 0, recycled = 0, stream;

    for (stream = 0; stream < 8; stream++) {
        sim_rig_begin(&rig, flags, 4, stream);
        sim_rig_run(&rig, 60000);
        stale += rig.stale;
        leaked += rig.leaked;
        recycled += rig.m.recycled;
        sim_rig_end(&rig);
    }
    if (!CHECK((stale && reached) || (leaked && seen) || (recycled && walked)))
        test_note("flags %#x: nothing was found", flags);
}

TEST(the_oracle_finds_what_is_done_wrong)
{
    find(SIM_BAD_FREE, 1, 0, 0);
    find(SIM_BAD_FOREIGN, 1, 0, 0);
    find(SIM_BAD_TABLE | SIM_BROADCAST, 1, 0, 1);
    find(SIM_BAD_ID, 1, 0, 0);
    find(SIM_BAD_DEVICE | SIM_DEVICES, 1, 0, 0);
    find(SIM_BAD_SCRUB, 0, 1, 0);
    find(SIM_BAD_QUIRK | SIM_BROADCAST | SIM_FLAWED, 1, 0, 0);
    find(SIM_BAD_QUIRK | SIM_BROADCAST | SIM_FLAWED | SIM_ARM64, 1, 0, 0);
    find(SIM_BAD_TABLE | SIM_BROADCAST | SIM_ARM64, 1, 0, 1);
}
