/* SPDX-License-Identifier: BSD-2-Clause */
/* Interleavings of all three kinds of access to vCPUs; a shootdown aimed at a vCPU that moves. */
#include "test_main.h"
#include "test_schedule.h"
#include "test_vcpus.h"

#include "vcpu.h"

#include <string.h>

/* ---- interleavings ----------------------------------------------------------------------------- */

static int yield_at_points(const char *name, void *context)
{
    (void)name;
    (void)context;
    test_yield();
    return 0;
}

static void explore(void (*begin)(void *), void (*body)(int, void *), int (*end)(void *),
                    int threads, int preemptions)
{
    struct test_schedule schedule = {.threads = threads,
                                     .preemptions = preemptions,
                                     .max_runs = 60000,
                                     .begin = begin,
                                     .body = body,
                                     .end = end};
    struct test_explored explored;

    test_set_point_hook(yield_at_points, NULL);
    explored = test_explore(&schedule);
    test_set_point_hook(NULL, NULL);
    CHECK(!explored.stopped);
    CHECK(!explored.deadlock);
    CHECK(explored.complete);
    test_note("%llu schedules", (unsigned long long)explored.runs);
    CHECK(explored.runs > 100);
}

/* Enter wherever the vCPU is, if it is on this CPU. */
static void try_enter(int vcpu, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    if (hvmem_vcpu_enter(f.vcpu[vcpu], cpu, &entry) != HVMEM_OK)
        return;
    test_yield();
    hvmem_space_entered(f.m.ident, cpu);
    hvmem_vcpu_exit(f.vcpu[vcpu], cpu);
}

static void race_begin(void *ctx)
{
    (void)ctx;
    vcpus_begin(MACHINE_TAGS, 3, 0);
    vcpu_attach(0, 0);
    f.work[0].run = count_run;
    f.work[0].arg = &f.ran[0];
}

static void race_body(int cpu, void *ctx)
{
    hvmem_cpu kick;

    (void)ctx;
    if (cpu == 2) {
        CHECK_EQ(hvmem_vcpu_post(f.vcpu[0], &f.work[0], &kick), HVMEM_OK);
        return;
    }
    try_enter(0, (hvmem_cpu)cpu);
    if (cpu == 1)
        (void)hvmem_vcpu_migrate(f.vcpu[0], 1);
    try_enter(0, (hvmem_cpu)cpu);
}

static int race_end(void *ctx)
{
    hvmem_cpu where;

    (void)ctx;
    if (hvmem_vcpu_where(f.vcpu[0], &where) != HVMEM_OK || where > 1)
        return 1;
    try_enter(0, where);
    if (f.ran[0] != 1 || f.vcpus->cpus[where].first != f.vcpu[0] || f.vcpus->cpus[where].bound != 1)
        return 1;
    return f.vcpus->cpus[1 - where].first != NULL || f.vcpus->cpus[1 - where].bound != 0;
}

/* Posting while the vCPU enters and moves: the work runs exactly once, by the next entry. */
TEST(post_against_entry_and_migration, points)
{
    explore(race_begin, race_body, race_end, 3, 4);
}

static void cancel_body(int cpu, void *ctx)
{
    hvmem_cpu kick;
    hvmem_status status;

    (void)ctx;
    if (cpu == 0) {
        CHECK_EQ(hvmem_vcpu_post(f.vcpu[0], &f.work[0], &kick), HVMEM_OK);
        try_enter(0, 0);
        try_enter(0, 0);
    } else if (cpu == 1) {
        status = hvmem_vcpu_cancel(f.vcpu[0], &f.work[0], 1000000);
        CHECK_EQ(status, HVMEM_OK);
        CHECK(f.work[0].state != HVMEM__WORK_RUNNING);
    } else {
        (void)hvmem_vcpu_migrate(f.vcpu[0], 2);
    }
}

static int cancel_end(void *ctx)
{
    (void)ctx;
    return f.ran[0] > 1;
}

TEST(cancel_against_run_and_migration, points)
{
    explore(race_begin, cancel_body, cancel_end, 3, 4);
}

static void offline_body(int cpu, void *ctx)
{
    (void)ctx;
    if (cpu == 0)
        (void)hvmem_vcpu_migrate(f.vcpu[0], 1);
    else if (cpu == 1)
        (void)hvmem_vcpus_cpu_offline(f.vcpus, 1);
    else
        (void)hvmem_vcpus_cpu_offline(f.vcpus, 0);
}

static int offline_end(void *ctx)
{
    hvmem_cpu where;

    (void)ctx;
    return hvmem_vcpu_where(f.vcpu[0], &where) != HVMEM_OK ||
           f.vcpus->cpus[where].online != HVMEM__VCPU_CPU_ON;
}

/* A vCPU always is on a CPU that is online, whoever leaves while it moves. */
TEST(migration_against_cpus_that_leave, points)
{
    explore(race_begin, offline_body, offline_end, 3, 4);
}

/* ---- a shootdown aimed at a vCPU that moves ----------------------------------------------------- */

/* Translations of the vCPUs' space on each CPU: version seen there, as the model's TLB would. */
static struct {
    int table;     /* version of the mapping */
    int oldest;    /* smallest version that may be used since the change returned */
    int cached[3]; /* -1: nothing */
    int in_guest[3];
    int asked[3];
    int done[3];
    hvmem_u64 change;
    int stale;
} shot;

static hvmem_status shot_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    (void)flush;
    test_yield();
    shot.cached[f.m.acting[test_thread() + 1]] = -1;
    return HVMEM_OK;
}

static const struct hvmem_backend_ops shot_ops = {.size = sizeof shot_ops, .tlb_flush = shot_flush};
static struct hvmem_backend shot_backend;

static void shot_begin(void *ctx)
{
    int i;

    race_begin(ctx);
    memset(&shot, 0, sizeof shot);
    for (i = 0; i < 3; i++)
        shot.cached[i] = -1;
    shot_backend = *f.m.ident->backend;
    shot_backend.ops = &shot_ops;
    f.m.ident->backend = &shot_backend;
    vcpu_enter(0, 0);
    shot.cached[0] = 0;
    vcpu_leave(0, 0);
}

static void shot_serve(int cpu)
{
    int before = f.m.acting[test_thread() + 1];

    if (!shot.asked[cpu])
        return;
    f.m.acting[test_thread() + 1] = cpu;
    CHECK_EQ(hvmem_space_flush_here(f.space, (hvmem_cpu)cpu, NULL, 0, shot.change), HVMEM_OK);
    f.m.acting[test_thread() + 1] = before;
    shot.asked[cpu] = 0;
}

/* Run the guest for one access, interrupts on. */
static void shot_guest(int cpu)
{
    struct hvmem_entry entry;

    shot_serve(cpu);
    if (hvmem_vcpu_enter(f.vcpu[0], (hvmem_cpu)cpu, &entry) != HVMEM_OK)
        return;
    hvmem_space_entered(f.m.ident, (hvmem_cpu)cpu);
    test_yield();
    shot_serve(cpu);
    if (shot.cached[cpu] < 0)
        shot.cached[cpu] = shot.table;
    shot.stale += shot.cached[cpu] < shot.oldest;
    test_yield();
    shot_serve(cpu);
    hvmem_vcpu_exit(f.vcpu[0], (hvmem_cpu)cpu);
}

static void shot_body(int cpu, void *ctx)
{
    hvmem_u64 words[1];
    hvmem_u32 count;
    int i;

    (void)ctx;
    if (cpu < 2) {
        shot_guest(cpu);
        if (cpu == 1)
            (void)hvmem_vcpu_migrate(f.vcpu[0], 1);
        shot_guest(cpu);
        shot_serve(cpu);
        shot.done[cpu] = 1;
        return;
    }
    shot.table = 1;
    CHECK_EQ(hvmem_space_changed(f.space, &shot.change), HVMEM_OK);
    CHECK_EQ(hvmem_space_targets(f.space, 0, words, 1, &count), HVMEM_OK);
    for (i = 0; i < 2; i++)
        shot.asked[i] = (int)(words[0] >> i & 1);
    for (i = 0; i < 2; i++) {
        while (shot.asked[i]) {
            if (shot.done[i])
                shot_serve(i);
            else
                test_wait();
        }
    }
    shot.oldest = 1;
}

static int shot_end(void *ctx)
{
    (void)ctx;
    return shot.stale != 0;
}

TEST(vcpu_moves_during_a_shootdown_aimed_at_it, points)
{
    explore(shot_begin, shot_body, shot_end, 3, 4);
    machine_free(&f.m);
}
