/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that follows a vCPU: posted to wherever it is, run at its next entry, cancelled. Also the
 * pending flush, which is a count that entries compare.
 */
#include "vcpu_work.h"

/* ---- the queue; the CPU's lock is held --------------------------------------------------------- */

static void append(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work)
{
    work->next = HVMEM_NULL;
    hvmem__store(&work->state, HVMEM__WORK_QUEUED);
    *vcpu->work_tail = work;
    vcpu->work_tail = &work->next;
}

/* Nobody's again; its owner may free it from here on. Who cancels waits for the last store. */
static void let_go(struct hvmem_vcpu_work *work)
{
    hvmem__store(&work->state, HVMEM__WORK_IDLE);
    hvmem__store_release(&work->vcpu, HVMEM_NULL);
}

static struct hvmem_vcpu_work *take_first(struct hvmem_vcpu *vcpu)
{
    struct hvmem_vcpu_work *work = vcpu->work;

    vcpu->work = work->next;
    if (!vcpu->work)
        vcpu->work_tail = &vcpu->work;
    return work;
}

static void unlink_work(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work)
{
    struct hvmem_vcpu_work **at = &vcpu->work;

    while (*at && *at != work)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = work->next;
    if (vcpu->work_tail == &work->next)
        vcpu->work_tail = at;
}

HVMEM_NOINLINE hvmem_status hvmem__vcpu_run_work(struct hvmem_vcpu *vcpu, hvmem_cpu cpu,
                                                 hvmem_u64 *state)
{
    struct hvmem_vcpus *vcpus = vcpu->vcpus;
    struct hvmem__vcpu_cpu *list = &vcpus->cpus[cpu];
    hvmem_u32 done;

    for (done = 0; vcpu->work; done++) {
        struct hvmem_vcpu_work *work;

        if (done == HVMEM_VCPU_WORK_LIMIT)
            return HVMEM_AGAIN;
        work = take_first(vcpu);
        list->running = work;
        work->again = 0;
        hvmem__store(&work->state, HVMEM__WORK_RUNNING);
        hvmem__cpu_leave(vcpus, cpu, *state);
        work->run(work->arg, vcpu, cpu);
        (void)HVMEM_TEST_POINT("vcpu_work_ran");
        *state = hvmem__cpu_enter(vcpus, cpu);
        list->running = HVMEM_NULL;
        if (work->again)
            append(vcpu, work);
        else
            let_go(work);
    }
    return HVMEM_OK;
}

/* ---- posting ----------------------------------------------------------------------------------- */

/* The CPU to kick so that the vCPU passes through its entry again. Found. */
static hvmem_cpu whom_to_kick(const struct hvmem_vcpu *vcpu, const struct hvmem__found *found)
{
    return vcpu->vcpus->cpus[found->cpu].entered == vcpu ? found->cpu : HVMEM_CPU_NONE;
}

static hvmem_status refuse_or_ok(const struct hvmem_vcpu *vcpu, hvmem_status status)
{
    return status == HVMEM_OK ? HVMEM_OK : hvmem__vcpus_refuse(vcpu->vcpus, status);
}

/* The vCPU is found. */
static hvmem_status post_found(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work)
{
    struct hvmem_vcpu *owner = HVMEM_NULL;

    if (__atomic_compare_exchange_n(&work->vcpu, &owner, vcpu, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE))
        append(vcpu, work);
    else if (owner != vcpu)
        return HVMEM_E_ARG;
    else if (hvmem__load(&work->state) == HVMEM__WORK_RUNNING)
        work->again = 1;
    return HVMEM_OK;
}

hvmem_status hvmem_vcpu_post(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work, hvmem_cpu *kick)
{
    struct hvmem__found found;
    hvmem_status status;

    if (!vcpu || !work || !kick)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    if (!work->run)
        return hvmem__vcpus_refuse(vcpu->vcpus, HVMEM_E_ARG);
    status = hvmem__vcpu_find(vcpu, &found);
    if (status == HVMEM_OK) {
        status = post_found(vcpu, work);
        if (status == HVMEM_OK)
            *kick = whom_to_kick(vcpu, &found);
        hvmem__vcpu_let_go(vcpu, &found);
    }
    return refuse_or_ok(vcpu, status);
}

hvmem_status hvmem_vcpu_post_flush(struct hvmem_vcpu *vcpu, hvmem_cpu *kick)
{
    struct hvmem__found found;
    hvmem_status status;
    hvmem_u64 count;

    if (!vcpu || !kick)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    status = hvmem__vcpu_find(vcpu, &found);
    if (status == HVMEM_OK) {
        /* Translations that all vCPUs of the space share are flushed as the space's are. */
        if (vcpu->space->flags & HVMEM_SPACE_PRIVATE_STAGE1)
            vcpu->flushes++;
        else
            status = hvmem_space_changed(vcpu->space, &count);
        *kick = whom_to_kick(vcpu, &found);
        hvmem__vcpu_let_go(vcpu, &found);
    }
    return refuse_or_ok(vcpu, status);
}

hvmem_status hvmem_vcpu_where(struct hvmem_vcpu *vcpu, hvmem_cpu *cpu)
{
    struct hvmem__found found;
    hvmem_status status;

    if (!vcpu || !cpu)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    status = hvmem__vcpu_find(vcpu, &found);
    if (status == HVMEM_OK) {
        *cpu = found.cpu;
        hvmem__vcpu_let_go(vcpu, &found);
    }
    return refuse_or_ok(vcpu, status);
}

/* ---- cancelling -------------------------------------------------------------------------------- */

/* Wait until a run is over, and with it the work's bond to the vCPU. No lock held. */
static hvmem_status wait_for_run(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work,
                                 hvmem_u64 spins)
{
    while (hvmem__load_acquire(&work->vcpu) == vcpu) {
        if (!spins--)
            return HVMEM_E_TIMEOUT;
        hvmem__relax(&vcpu->vcpus->host);
    }
    return HVMEM_OK;
}

/* The vCPU is found. HVMEM_AGAIN: the work runs on another CPU. */
static hvmem_status cancel_found(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work,
                                 hvmem_cpu cpu)
{
    struct hvmem_vcpu *owner = hvmem__load_acquire(&work->vcpu);

    if (!owner)
        return HVMEM_OK;
    if (owner != vcpu)
        return HVMEM_E_ARG;
    if (hvmem__load(&work->state) == HVMEM__WORK_QUEUED) {
        unlink_work(vcpu, work);
        let_go(work);
        return HVMEM_OK;
    }
    work->again = 0;
    return hvmem__this_cpu(&vcpu->vcpus->host) == cpu ? HVMEM_E_BUSY : HVMEM_AGAIN;
}

hvmem_status hvmem_vcpu_cancel(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work,
                               hvmem_u64 spins)
{
    struct hvmem__found found;
    hvmem_status status;

    if (!vcpu || !work)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    status = hvmem__vcpu_find(vcpu, &found);
    if (status == HVMEM_OK) {
        status = cancel_found(vcpu, work, found.cpu);
        hvmem__vcpu_let_go(vcpu, &found);
    }
    if (status == HVMEM_AGAIN)
        status = wait_for_run(vcpu, work, spins);
    return refuse_or_ok(vcpu, status);
}
