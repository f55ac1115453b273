/* SPDX-License-Identifier: BSD-2-Clause */
/* The fixture of test_vcpus.h. */
#include "test_vcpus.h"

#include "test_main.h"
#include "test_schedule.h"

#include <string.h>

struct vcpu_fixture f;
char vcpus_memory[4096] __attribute__((aligned(64)));
char vcpu_memory[VCPUS][256] __attribute__((aligned(64)));
static char space_memory[4096] __attribute__((aligned(64)));

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return test_thread() >= 0 ? (hvmem_cpu)test_thread() : 0;
}

static void relax(void *host)
{
    (void)host;
    test_wait();
}

static const struct hvmem_host_ops host_ops = {
    .size = sizeof host_ops, .this_cpu = this_cpu, .relax = relax};

struct hvmem_vcpus_config vcpus_config(hvmem_u32 cpus)
{
    struct hvmem_vcpus_config config = {.size = sizeof config, .max_cpus = cpus};

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.host = &host_ops;
    return config;
}

void vcpu_attach(int vcpu, hvmem_cpu cpu)
{
    REQUIRE_EQ(hvmem_vcpu_attach(f.vcpus, f.space, vcpu_memory[vcpu], 256, cpu, &f.vcpu[vcpu]),
               HVMEM_OK);
}

void vcpus_begin(enum machine_kind kind, int cpus, hvmem_u32 flags)
{
    struct hvmem_space_config config = {.size = sizeof config, .flags = flags};
    struct hvmem_vcpus_config vcpus = vcpus_config((hvmem_u32)cpus);
    int i;

    machine_begin(&f.m, kind, cpus, 1, 15);
    config.regime = kind == MACHINE_PCID ? HVMEM_REGIME_USER : HVMEM_REGIME_STAGE2;
    REQUIRE_EQ(hvmem_space_create(f.m.ident, space_memory, sizeof space_memory, &config, &f.space),
               HVMEM_OK);
    REQUIRE_EQ(hvmem_vcpus_init(vcpus_memory, sizeof vcpus_memory, &vcpus, &f.vcpus), HVMEM_OK);
    for (i = 0; i < cpus; i++)
        REQUIRE_EQ(hvmem_vcpus_cpu_online(f.vcpus, (hvmem_cpu)i), HVMEM_OK);
    memset(f.work, 0, sizeof f.work);
    memset(f.ran, 0, sizeof f.ran);
}

hvmem_u32 vcpu_enter(int vcpu, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    f.m.acting[0] = (int)cpu;
    REQUIRE_EQ(hvmem_vcpu_enter(f.vcpu[vcpu], cpu, &entry), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_entered(f.m.ident, cpu), HVMEM_OK);
    return entry.flushed | entry.owed;
}

void vcpu_leave(int vcpu, hvmem_cpu cpu)
{
    REQUIRE_EQ(hvmem_vcpu_exit(f.vcpu[vcpu], cpu), HVMEM_OK);
}

hvmem_u32 vcpu_pass(int vcpu, hvmem_cpu cpu)
{
    hvmem_u32 flushed = vcpu_enter(vcpu, cpu);

    vcpu_leave(vcpu, cpu);
    return flushed;
}

void count_run(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    int *ran = arg;

    (void)vcpu;
    __atomic_fetch_add(ran, 1, __ATOMIC_RELAXED);
    f.ran_on = cpu;
}

void vcpu_post(int vcpu, int work, hvmem_cpu expected_kick)
{
    hvmem_cpu kick = 99;

    f.work[work].run = count_run;
    f.work[work].arg = &f.ran[work];
    REQUIRE_EQ(hvmem_vcpu_post(f.vcpu[vcpu], &f.work[work], &kick), HVMEM_OK);
    CHECK_EQ(kick, expected_kick);
}
