/* SPDX-License-Identifier: BSD-2-Clause */
/* vCPUs: the helpers of the three kinds of access, entry, migration. Work is in vcpu_work.c. */
#include "vcpu.h"

#include "vcpu_work.h"

/* ---- kind 2 ---------------------------------------------------------------------------------- */

hvmem_status hvmem__vcpu_find(struct hvmem_vcpu *vcpu, struct hvmem__found *found)
{
    struct hvmem_vcpus *vcpus = vcpu->vcpus;

    found->placement_state = hvmem__lock(&vcpus->host, &vcpu->placement, HVMEM__RANK_PLACEMENT);
    found->cpu = hvmem__load(&vcpu->cpu);
    if (found->cpu == HVMEM_CPU_NONE) {
        hvmem__unlock(&vcpus->host, &vcpu->placement, HVMEM__RANK_PLACEMENT,
                      found->placement_state);
        return HVMEM_E_STALE;
    }
    (void)HVMEM_TEST_POINT("vcpu_found");
    found->cpu_state = hvmem__cpu_enter(vcpus, found->cpu);
    return HVMEM_OK;
}

void hvmem__vcpu_let_go(struct hvmem_vcpu *vcpu, const struct hvmem__found *found)
{
    hvmem__cpu_leave(vcpu->vcpus, found->cpu, found->cpu_state);
    hvmem__unlock(&vcpu->vcpus->host, &vcpu->placement, HVMEM__RANK_PLACEMENT,
                  found->placement_state);
}

/* ---- kind 3 ---------------------------------------------------------------------------------- */

hvmem_status hvmem__vcpu_bind(struct hvmem_vcpus *vcpus, hvmem_cpu cpu)
{
    struct hvmem__vcpu_cpu *list = &vcpus->cpus[cpu];
    hvmem_u32 online;
    hvmem_u64 state;

    /* Against hvmem_vcpus_cpu_offline(): it says LEAVING, then reads `bound`. */
    __atomic_fetch_add(&list->bound, 1, __ATOMIC_SEQ_CST);
    (void)HVMEM_TEST_POINT("vcpu_bound");
    online = __atomic_load_n(&list->online, __ATOMIC_SEQ_CST);
    if (online == HVMEM__VCPU_CPU_LEAVING) {
        state = hvmem__cpu_enter(vcpus, cpu);
        online = hvmem__load(&list->online);
        hvmem__cpu_leave(vcpus, cpu, state);
    }
    if (online == HVMEM__VCPU_CPU_ON)
        return HVMEM_OK;
    hvmem__vcpu_unbind(vcpus, cpu);
    return HVMEM_E_CPU;
}

void hvmem__vcpu_unbind(struct hvmem_vcpus *vcpus, hvmem_cpu cpu)
{
    __atomic_fetch_sub(&vcpus->cpus[cpu].bound, 1, __ATOMIC_SEQ_CST);
}

void hvmem__vcpu_place(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    struct hvmem__vcpu_cpu *list = &vcpu->vcpus->cpus[cpu];
    hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);

    vcpu->next = list->first;
    vcpu->link = &list->first;
    if (vcpu->next)
        vcpu->next->link = &vcpu->next;
    list->first = vcpu;
    hvmem__store(&vcpu->cpu, cpu);
    hvmem__cpu_leave(vcpu->vcpus, cpu, state);
}

/* Out of its CPU's list. The lock is taken and released. Placement lock held. */
static hvmem_status take_off(struct hvmem_vcpu *vcpu, hvmem_cpu cpu, int for_good)
{
    struct hvmem__vcpu_cpu *list = &vcpu->vcpus->cpus[cpu];
    hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);
    hvmem_status status = HVMEM_OK;

    if (list->entered == vcpu || (for_good && vcpu->work)) {
        status = HVMEM_E_BUSY;
    } else {
        /* What its guest invalidates elsewhere from now on stays cached here. */
        vcpu->flushes++;
        *vcpu->link = vcpu->next;
        if (vcpu->next)
            vcpu->next->link = vcpu->link;
        hvmem__store(&vcpu->cpu, HVMEM_CPU_NONE);
    }
    hvmem__cpu_leave(vcpu->vcpus, cpu, state);
    return status;
}

/* Placement lock held. */
static hvmem_status move_locked(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    hvmem_cpu from = hvmem__load(&vcpu->cpu);
    hvmem_status status;

    if (from == HVMEM_CPU_NONE)
        return HVMEM_E_STALE;
    if (from == cpu)
        return HVMEM_OK;
    if (cpu == HVMEM_CPU_NONE) {
        status = take_off(vcpu, from, 1);
    } else {
        status = hvmem__vcpu_bind(vcpu->vcpus, cpu);
        if (status != HVMEM_OK)
            return status;
        (void)HVMEM_TEST_POINT("vcpu_bind_kept");
        status = take_off(vcpu, from, 0);
        (void)HVMEM_TEST_POINT("vcpu_between");
        if (status == HVMEM_OK)
            hvmem__vcpu_place(vcpu, cpu);
        else
            hvmem__vcpu_unbind(vcpu->vcpus, cpu);
    }
    if (status == HVMEM_OK)
        hvmem__vcpu_unbind(vcpu->vcpus, from);
    return status;
}

hvmem_status hvmem__vcpu_move(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    const struct hvmem__host *host = &vcpu->vcpus->host;
    hvmem_u64 state = hvmem__lock(host, &vcpu->placement, HVMEM__RANK_PLACEMENT);
    hvmem_status status = move_locked(vcpu, cpu);

    hvmem__unlock(host, &vcpu->placement, HVMEM__RANK_PLACEMENT, state);
    return status;
}

/* ---- kind 1 ---------------------------------------------------------------------------------- */

/*
 * Enter the vCPU into its CPU, under the CPU's lock alone. What was posted before is in `runner` and
 * in the queue; what is posted later finds the vCPU entered and names the CPU to be kicked.
 */
static hvmem_status begin_entry(struct hvmem_vcpu *vcpu, hvmem_cpu cpu,
                                struct hvmem__runner *runner)
{
    struct hvmem__vcpu_cpu *list = &vcpu->vcpus->cpus[cpu];
    hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);
    hvmem_cpu placed = hvmem__load(&vcpu->cpu);
    hvmem_status status = HVMEM_OK;

    if (hvmem__unlikely(placed != cpu)) {
        status = hvmem__load(&vcpu->attached) ? HVMEM_E_CPU : HVMEM_E_STALE;
    } else if (hvmem__unlikely(list->entered != HVMEM_NULL)) {
        status = HVMEM_E_BUSY;
    } else {
        list->entered = vcpu;
        if (hvmem__unlikely(vcpu->work != HVMEM_NULL))
            status = hvmem__vcpu_run_work(vcpu, cpu, &state);
        if (status != HVMEM_OK)
            list->entered = HVMEM_NULL;
        runner->serial = vcpu->serial;
        runner->flushes = vcpu->flushes;
    }
    hvmem__cpu_leave(vcpu->vcpus, cpu, state);
    return status;
}

/* Returns whether the vCPU was entered; while it runs work it is not yet. */
static int end_entry(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    struct hvmem__vcpu_cpu *list = &vcpu->vcpus->cpus[cpu];
    hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);
    int entered = list->entered == vcpu && !list->running;

    if (entered)
        list->entered = HVMEM_NULL;
    hvmem__cpu_leave(vcpu->vcpus, cpu, state);
    return entered;
}

hvmem_status hvmem_vcpu_enter(struct hvmem_vcpu *vcpu, hvmem_cpu cpu, struct hvmem_entry *entry)
{
    struct hvmem__runner runner;
    hvmem_status status;

    if (!vcpu || !entry)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    if (cpu >= vcpu->vcpus->max_cpus)
        return hvmem__vcpus_refuse(vcpu->vcpus, HVMEM_E_CPU);
    status = begin_entry(vcpu, cpu, &runner);
    if (status != HVMEM_OK)
        return status == HVMEM_AGAIN ? status : hvmem__vcpus_refuse(vcpu->vcpus, status);
    status = hvmem__space_activate(vcpu->space, cpu, &runner, entry);
    if (hvmem__unlikely(status != HVMEM_OK))
        (void)end_entry(vcpu, cpu);
    return status;
}

hvmem_status hvmem_vcpu_exit(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    if (!vcpu)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    if (cpu >= vcpu->vcpus->max_cpus || !end_entry(vcpu, cpu))
        return hvmem__vcpus_refuse(vcpu->vcpus, HVMEM_E_CPU);
    return HVMEM_OK;
}

hvmem_status hvmem_vcpu_migrate(struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    hvmem_status status;

    if (!vcpu)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    status = cpu < vcpu->vcpus->max_cpus ? hvmem__vcpu_move(vcpu, cpu) : HVMEM_E_CPU;
    return status == HVMEM_OK ? HVMEM_OK : hvmem__vcpus_refuse(vcpu->vcpus, status);
}
