/* SPDX-License-Identifier: BSD-2-Clause */
/* vCPUs: entry, work and flushes that follow them, migration. */
#include "test_main.h"
#include "test_schedule.h"
#include "test_vcpus.h"

#include "vcpu.h"

#include <string.h>

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(refuses_bad_configurations)
{
    struct hvmem_vcpus_config config = vcpus_config(2);
    hvmem_size bytes;

    CHECK_EQ(hvmem_vcpus_size(&config, &bytes), HVMEM_OK);
    CHECK_EQ(hvmem_vcpus_size(NULL, &bytes), HVMEM_E_ARG);
    CHECK_EQ(hvmem_vcpus_size(&config, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_vcpus_init(vcpus_memory, bytes - 1, &config, &f.vcpus), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_vcpus_init(vcpus_memory + 4, bytes, &config, &f.vcpus), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_vcpus_init(vcpus_memory, bytes, &config, NULL), HVMEM_E_ARG);
    config.max_cpus = 0;
    CHECK_EQ(hvmem_vcpus_size(&config, &bytes), HVMEM_E_CPU);
    config.max_cpus = 2;
    config.lock_regime = 9;
    CHECK_EQ(hvmem_vcpus_size(&config, &bytes), HVMEM_E_ARG);
    config.lock_regime = HVMEM_LOCK_IRQSAVE; /* this host cannot */
    CHECK_EQ(hvmem_vcpus_size(&config, &bytes), HVMEM_E_ARG);
    CHECK_EQ(hvmem_vcpus_init(vcpus_memory, bytes, &config, &f.vcpus), HVMEM_E_ARG);
    config.size = 1;
    CHECK_EQ(hvmem_vcpus_size(&config, &bytes), HVMEM_E_VERSION);
}

TEST(refuses_bad_calls)
{
    struct hvmem_vcpu_work none;
    struct hvmem_vcpu *made = NULL;
    struct hvmem_entry entry;
    hvmem_cpu cpu;

    vcpus_begin(MACHINE_TAGS, 2, 0);
    memset(&none, 0, sizeof none);
    CHECK_EQ(hvmem_vcpu_attach(f.vcpus, f.space, vcpu_memory[0], 256, 2, &made), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpu_attach(f.vcpus, NULL, vcpu_memory[0], 256, 0, &made), HVMEM_E_ARG);
    CHECK_EQ(hvmem_vcpu_attach(f.vcpus, f.space, vcpu_memory[0], 8, 0, &made), HVMEM_E_BUFFER);
    CHECK(made == NULL);
    vcpu_attach(0, 0);
    vcpu_attach(1, 0);
    CHECK_EQ(hvmem_space_destroy(f.space, 0), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpus_cpu_offline(f.vcpus, 0), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpus_cpu_offline(f.vcpus, 1), HVMEM_OK);
    CHECK_EQ(hvmem_vcpus_cpu_offline(f.vcpus, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_E_CPU); /* offline */
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 2), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpus_cpu_online(f.vcpus, 1), HVMEM_OK);
    CHECK_EQ(hvmem_vcpus_cpu_online(f.vcpus, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpu_enter(f.vcpu[0], 1, &entry), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpu_enter(f.vcpu[0], 5, &entry), HVMEM_E_CPU);
    vcpu_enter(0, 0);
    CHECK_EQ(hvmem_vcpu_enter(f.vcpu[1], 0, &entry), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpu_exit(f.vcpu[1], 0), HVMEM_E_CPU);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpu_detach(f.vcpu[0]), HVMEM_E_BUSY);
    vcpu_leave(0, 0);
    CHECK_EQ(hvmem_vcpu_post(f.vcpu[0], &none, &cpu), HVMEM_E_ARG);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    CHECK_EQ(hvmem_vcpu_detach(f.vcpu[0]), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[0], &f.work[0], 1), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_detach(f.vcpu[0]), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_detach(f.vcpu[0]), HVMEM_E_STALE);
    CHECK_EQ(hvmem_vcpu_enter(f.vcpu[0], 0, &entry), HVMEM_E_STALE);
    CHECK_EQ(hvmem_vcpu_where(f.vcpu[0], &cpu), HVMEM_E_STALE);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_E_STALE);
    CHECK_EQ(hvmem_vcpu_detach(f.vcpu[1]), HVMEM_OK);
    CHECK_EQ(hvmem_space_destroy(f.space, 0), HVMEM_E_BUSY); /* its CPU has it loaded */
    CHECK_EQ(hvmem_vcpus_refused(f.vcpus), 20);
}

/* ---- work ------------------------------------------------------------------------------------ */

TEST(work_runs_once_before_the_next_entry)
{
    vcpus_begin(MACHINE_TAGS, 2, 0);
    vcpu_attach(0, 0);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    vcpu_post(0, 1, HVMEM_CPU_NONE);
    CHECK_EQ(f.ran[0], 0);
    vcpu_enter(0, 0);
    CHECK_EQ(f.ran[0], 1);
    CHECK_EQ(f.ran[1], 1);
    vcpu_post(0, 0, 0); /* entered: that CPU is to be kicked */
    CHECK_EQ(f.ran[0], 1);
    vcpu_leave(0, 0);
    vcpu_pass(0, 0);
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], 2);
}

TEST(work_follows_the_vcpu)
{
    hvmem_cpu where;

    vcpus_begin(MACHINE_TAGS, 3, 0);
    vcpu_attach(0, 0);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 2), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 2), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_where(f.vcpu[0], &where), HVMEM_OK);
    CHECK_EQ(where, 2);
    vcpu_post(0, 1, HVMEM_CPU_NONE);
    vcpu_pass(0, 2);
    CHECK_EQ(f.ran[0], 1);
    CHECK_EQ(f.ran[1], 1);
    CHECK_EQ(f.ran_on, 2);
    CHECK_EQ(hvmem_vcpus_cpu_offline(f.vcpus, 0), HVMEM_OK);
}

TEST(cancelled_work_does_not_run)
{
    vcpus_begin(MACHINE_TAGS, 1, 0);
    vcpu_attach(0, 0);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    vcpu_post(0, 1, HVMEM_CPU_NONE);
    vcpu_post(0, 2, HVMEM_CPU_NONE);
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[0], &f.work[2], 0), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[0], &f.work[0], 0), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[0], &f.work[0], 0), HVMEM_OK);
    vcpu_post(0, 3, HVMEM_CPU_NONE);
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], 0);
    CHECK_EQ(f.ran[1], 1);
    CHECK_EQ(f.ran[2], 0);
    CHECK_EQ(f.ran[3], 1);
}

static void post_again(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    hvmem_cpu kick;

    count_run(arg, vcpu, cpu);
    CHECK_EQ(hvmem_vcpu_post(vcpu, &f.work[0], &kick), HVMEM_OK);
    CHECK_EQ(kick, cpu);
}

static void cancel_itself(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    hvmem_cpu kick;

    count_run(arg, vcpu, cpu);
    CHECK_EQ(hvmem_vcpu_post(vcpu, &f.work[0], &kick), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_cancel(vcpu, &f.work[0], 10), HVMEM_E_BUSY);
}

TEST(work_may_post_and_cancel_itself)
{
    struct hvmem_entry entry;
    hvmem_cpu kick;

    vcpus_begin(MACHINE_TAGS, 1, 0);
    vcpu_attach(0, 0);
    f.work[0].run = post_again;
    f.work[0].arg = &f.ran[0];
    CHECK_EQ(hvmem_vcpu_post(f.vcpu[0], &f.work[0], &kick), HVMEM_OK);
    CHECK_EQ(hvmem_vcpu_enter(f.vcpu[0], 0, &entry), HVMEM_AGAIN);
    CHECK_EQ(f.ran[0], HVMEM_VCPU_WORK_LIMIT);
    CHECK_EQ(hvmem_vcpu_exit(f.vcpu[0], 0), HVMEM_E_CPU); /* it is not entered */
    f.work[0].run = cancel_itself;
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], HVMEM_VCPU_WORK_LIMIT + 1);
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], HVMEM_VCPU_WORK_LIMIT + 1);
}

/* ---- flushes --------------------------------------------------------------------------------- */

static void post_flush(int vcpu)
{
    hvmem_cpu kick;

    REQUIRE_EQ(hvmem_vcpu_post_flush(f.vcpu[vcpu], &kick), HVMEM_OK);
    CHECK_EQ(kick, HVMEM_CPU_NONE);
}

TEST(B43_vcpus_of_one_space_on_one_cpu)
{
    int i;

    vcpus_begin(MACHINE_VMID, 2, HVMEM_SPACE_PRIVATE_STAGE1);
    vcpu_attach(0, 0);
    vcpu_attach(1, 0);
    vcpu_pass(0, 0);
    for (i = 0; i < 4; i++)
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
    for (i = 0; i < 4; i++) {
        CHECK_EQ(vcpu_pass(1, 0), HVMEM_ENTRY_FLUSH_GUEST);
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_FLUSH_GUEST);
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
    }
}

TEST(a_posted_flush_is_done_wherever_the_vcpu_left_translations)
{
    vcpus_begin(MACHINE_VMID, 2, HVMEM_SPACE_PRIVATE_STAGE1);
    vcpu_attach(0, 0);
    vcpu_pass(0, 0);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_OK);
    vcpu_pass(0, 1);
    post_flush(0);
    CHECK_EQ(vcpu_pass(0, 1), HVMEM_ENTRY_FLUSH_GUEST);
    CHECK_EQ(vcpu_pass(0, 1), HVMEM_ENTRY_NOTHING);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 0), HVMEM_OK);
    CHECK_EQ(vcpu_pass(0, 0),
             HVMEM_ENTRY_FLUSH_GUEST); /* what it left here is older than the post */
    CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
}

TEST(a_flush_for_shared_translations_reaches_every_vcpu)
{
    vcpus_begin(MACHINE_TAGS, 2, 0);
    vcpu_attach(0, 0);
    vcpu_attach(1, 1);
    vcpu_pass(0, 0);
    vcpu_pass(1, 1);
    post_flush(0);
    CHECK_EQ(vcpu_pass(1, 1), HVMEM_ENTRY_FLUSH_GUEST);
    CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_FLUSH_GUEST);
    CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
}

/*
 * A guest drops its own translations with instructions that act on the CPU it runs on. What it left
 * on another CPU before it moved is stale when it comes back, whether or not anyone ran there.
 */
TEST(B43_a_vcpu_that_returns_finds_nothing_it_left)
{
    static const enum machine_kind kinds[] = {MACHINE_VMID, MACHINE_TAGS, MACHINE_SVM};
    size_t k;

    for (k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        vcpus_begin(kinds[k], 2, HVMEM_SPACE_PRIVATE_STAGE1);
        vcpu_attach(0, 0);
        vcpu_pass(0, 0);
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
        CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_OK);
        vcpu_pass(0, 1);
        CHECK_EQ(vcpu_pass(0, 1), HVMEM_ENTRY_NOTHING);
        CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 0), HVMEM_OK);
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_FLUSH_GUEST);
        CHECK_EQ(vcpu_pass(0, 0), HVMEM_ENTRY_NOTHING);
    }
}

/* ---- work of another vCPU, calls from within work ---------------------------------------------- */

TEST(work_belongs_to_the_vcpu_it_was_posted_to)
{
    hvmem_cpu kick;

    vcpus_begin(MACHINE_TAGS, 2, 0);
    vcpu_attach(0, 0);
    vcpu_attach(1, 1);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    CHECK_EQ(hvmem_vcpu_post(f.vcpu[1], &f.work[0], &kick), HVMEM_E_ARG);
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[1], &f.work[0], 1), HVMEM_E_ARG);
    vcpu_pass(1, 1);
    CHECK_EQ(f.ran[0], 0);
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], 1);
    vcpu_post(1, 0, HVMEM_CPU_NONE); /* it has run: free for another */
    CHECK_EQ(hvmem_vcpu_cancel(f.vcpu[1], &f.work[0], 1), HVMEM_OK);
    vcpu_post(0, 0, HVMEM_CPU_NONE);
    vcpu_pass(1, 1);
    vcpu_pass(0, 0);
    CHECK_EQ(f.ran[0], 2);
    CHECK_EQ(hvmem_vcpus_refused(f.vcpus), 2);
}

static void leave_too_early(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    count_run(arg, vcpu, cpu);
    CHECK_EQ(hvmem_vcpu_exit(vcpu, cpu), HVMEM_E_CPU); /* it is not entered yet */
    CHECK_EQ(hvmem_vcpu_enter(vcpu, cpu, &entry), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpu_migrate(vcpu, 1), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_vcpu_detach(vcpu), HVMEM_E_BUSY);
}

TEST(work_cannot_undo_the_entry_that_runs_it)
{
    hvmem_cpu kick;

    vcpus_begin(MACHINE_TAGS, 2, 0);
    vcpu_attach(0, 0);
    f.work[0].run = leave_too_early;
    f.work[0].arg = &f.ran[0];
    CHECK_EQ(hvmem_vcpu_post(f.vcpu[0], &f.work[0], &kick), HVMEM_OK);
    vcpu_enter(0, 0);
    CHECK_EQ(hvmem_vcpu_migrate(f.vcpu[0], 1), HVMEM_E_BUSY); /* entered */
    vcpu_leave(0, 0);
    CHECK_EQ(f.ran[0], 1);
}
