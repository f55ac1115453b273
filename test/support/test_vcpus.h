/* SPDX-License-Identifier: BSD-2-Clause */
/* test_vcpus.h: a machine with one guest and its vCPUs, for tests of vcpu.h. One at a time. */
#ifndef HVMEM_TEST_VCPUS_H
#define HVMEM_TEST_VCPUS_H

#include "test_machine.h"

#define VCPUS 4

struct vcpu_fixture {
    struct machine m;
    struct hvmem_vcpus *vcpus;
    struct hvmem_space *space; /* of all vCPUs */
    struct hvmem_vcpu *vcpu[VCPUS];
    struct hvmem_vcpu_work work[VCPUS];
    int ran[VCPUS]; /* runs of each work */
    hvmem_cpu ran_on;
};

extern struct vcpu_fixture f;
extern char vcpus_memory[4096];
extern char vcpu_memory[VCPUS][256];

struct hvmem_vcpus_config vcpus_config(hvmem_u32 cpus);
/* A machine with all CPUs online, a space with these flags, no vCPU. */
void vcpus_begin(enum machine_kind kind, int cpus, hvmem_u32 flags);
void vcpu_attach(int vcpu, hvmem_cpu cpu);
/* Enter and complete the switch; what was flushed or asked of the entry. */
hvmem_u32 vcpu_enter(int vcpu, hvmem_cpu cpu);
void vcpu_leave(int vcpu, hvmem_cpu cpu);
hvmem_u32 vcpu_pass(int vcpu, hvmem_cpu cpu);
/* `run` of a work whose arg is one of f.ran. */
void count_run(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu);
/* Post f.work[work], which counts in f.ran[work]; check whom the library wants kicked. */
void vcpu_post(int vcpu, int work, hvmem_cpu expected_kick);

#endif
