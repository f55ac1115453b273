/* SPDX-License-Identifier: BSD-2-Clause */
/* vCPUs: configuration, CPUs that join and leave, attach and detach. */
#include "vcpu.h"

#include "cutter.h"

hvmem_status hvmem__vcpus_refuse(struct hvmem_vcpus *vcpus, hvmem_status code)
{
    __atomic_fetch_add(&vcpus->refused, 1, __ATOMIC_RELAXED);
    if (code <= HVMEM_E_ARG)
        hvmem__host_report(&vcpus->host, code, 0, HVMEM_ORDER_ANY, 0);
    return code;
}

static hvmem_status check_config(const struct hvmem_vcpus_config *config)
{
    if (!config)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if (!hvmem__host_regime_ok(config->host, config->lock_regime))
        return HVMEM_E_ARG;
    if (!config->max_cpus || config->max_cpus > HVMEM_CPU_LIMIT)
        return HVMEM_E_CPU;
    return HVMEM_OK;
}

/* Cut the object's memory into its parts; with base NULL `vcpus` is left alone. Returns the bytes. */
static hvmem_size lay_out(hvmem_u8 *base, const struct hvmem_vcpus_config *config,
                          struct hvmem_vcpus *vcpus)
{
    struct hvmem__cutter cutter = {base, HVMEM_LINE, 0};
    struct hvmem__vcpu_cpu *cpus;
    hvmem_u32 *held;

    hvmem__cut(&cutter, 1, sizeof *vcpus);
    cpus = hvmem__cut(&cutter, config->max_cpus, sizeof *cpus);
    held = hvmem__cut(&cutter, config->max_cpus, sizeof *held);
    if (base) {
        vcpus->cpus = cpus;
        vcpus->host.held = held;
    }
    return cutter.used;
}

static hvmem_size total_bytes(const struct hvmem_vcpus_config *config)
{
    return lay_out(HVMEM_NULL, config, HVMEM_NULL);
}

hvmem_status hvmem_vcpus_size(const struct hvmem_vcpus_config *config, hvmem_size *bytes)
{
    hvmem_status status = check_config(config);

    if (status != HVMEM_OK)
        return status;
    if (!bytes)
        return HVMEM_E_ARG;
    *bytes = total_bytes(config);
    return HVMEM_OK;
}

hvmem_status hvmem_vcpus_init(void *memory, hvmem_size bytes,
                              const struct hvmem_vcpus_config *config, struct hvmem_vcpus **vcpus)
{
    struct hvmem_vcpus *made = memory;
    hvmem_status status = check_config(config);

    if (status != HVMEM_OK)
        return status;
    if (!vcpus)
        return HVMEM_E_ARG;
    if (!memory || (hvmem_uptr)memory % HVMEM_LINE || bytes < total_bytes(config))
        return HVMEM_E_BUFFER;
    memset(memory, 0, total_bytes(config));
    made->max_cpus = config->max_cpus;
    hvmem__host_bind(&made->host, config->host, config->host_ctx, config->lock_regime);
    if (config->lock_regime != HVMEM_LOCK_CALLER)
        hvmem__host_smp(&made->host);
    lay_out(memory, config, made);
    *vcpus = made;
    return HVMEM_OK;
}

hvmem_u64 hvmem_vcpus_refused(const struct hvmem_vcpus *vcpus)
{
    return vcpus ? hvmem__load(&vcpus->refused) : 0;
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

hvmem_status hvmem_vcpus_cpu_online(struct hvmem_vcpus *vcpus, hvmem_cpu cpu)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;

    if (!vcpus)
        return HVMEM_E_ARG;
    if (cpu >= vcpus->max_cpus)
        return hvmem__vcpus_refuse(vcpus, HVMEM_E_CPU);
    state = hvmem__cpu_enter(vcpus, cpu);
    if (hvmem__load(&vcpus->cpus[cpu].online) == HVMEM__VCPU_CPU_OFF)
        __atomic_store_n(&vcpus->cpus[cpu].online, HVMEM__VCPU_CPU_ON, __ATOMIC_SEQ_CST);
    else
        status = HVMEM_E_CPU;
    hvmem__cpu_leave(vcpus, cpu, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__vcpus_refuse(vcpus, status);
}

hvmem_status hvmem_vcpus_cpu_offline(struct hvmem_vcpus *vcpus, hvmem_cpu cpu)
{
    struct hvmem__vcpu_cpu *list;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;

    if (!vcpus)
        return HVMEM_E_ARG;
    if (cpu >= vcpus->max_cpus)
        return hvmem__vcpus_refuse(vcpus, HVMEM_E_CPU);
    list = &vcpus->cpus[cpu];
    state = hvmem__cpu_enter(vcpus, cpu);
    if (hvmem__load(&list->online) == HVMEM__VCPU_CPU_OFF) {
        status = HVMEM_E_CPU;
    } else {
        /* Pairs with hvmem__vcpu_bind(): it counts itself, then reads `online`. */
        __atomic_store_n(&list->online, HVMEM__VCPU_CPU_LEAVING, __ATOMIC_SEQ_CST);
        (void)HVMEM_TEST_POINT("vcpu_cpu_leaving");
        if (__atomic_load_n(&list->bound, __ATOMIC_SEQ_CST))
            status = HVMEM_E_BUSY;
        __atomic_store_n(&list->online,
                         status == HVMEM_OK ? HVMEM__VCPU_CPU_OFF : HVMEM__VCPU_CPU_ON,
                         __ATOMIC_SEQ_CST);
    }
    hvmem__cpu_leave(vcpus, cpu, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__vcpus_refuse(vcpus, status);
}

/* ---- vCPUs ------------------------------------------------------------------------------------ */

hvmem_size hvmem_vcpu_size(void)
{
    return sizeof(struct hvmem_vcpu);
}

/* Bound to the CPU and counted in the space, or neither. */
static hvmem_status bind_both(struct hvmem_vcpus *vcpus, struct hvmem_space *space, hvmem_cpu cpu,
                              hvmem_u64 *serial)
{
    hvmem_status status = hvmem__vcpu_bind(vcpus, cpu);

    if (status != HVMEM_OK)
        return status;
    status = space->ident ? hvmem__space_attach(space, serial) : HVMEM_E_SPACE;
    if (status != HVMEM_OK)
        hvmem__vcpu_unbind(vcpus, cpu);
    return status;
}

hvmem_status hvmem_vcpu_attach(struct hvmem_vcpus *vcpus, struct hvmem_space *space, void *memory,
                               hvmem_size bytes, hvmem_cpu cpu, struct hvmem_vcpu **vcpu)
{
    struct hvmem_vcpu *made = memory;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 serial;

    if (!vcpus)
        return HVMEM_E_ARG;
    if (!space || !vcpu)
        status = HVMEM_E_ARG;
    else if (!memory || (hvmem_uptr)memory % HVMEM_LINE || bytes < sizeof *made)
        status = HVMEM_E_BUFFER;
    else if (cpu >= vcpus->max_cpus)
        status = HVMEM_E_CPU;
    else
        status = bind_both(vcpus, space, cpu, &serial);
    if (status != HVMEM_OK)
        return hvmem__vcpus_refuse(vcpus, status);
    memset(made, 0, sizeof *made);
    made->vcpus = vcpus;
    made->space = space;
    made->serial = serial;
    made->work_tail = &made->work;
    made->cpu = HVMEM_CPU_NONE;
    made->attached = 1;
    hvmem__vcpu_place(made, cpu);
    *vcpu = made;
    return HVMEM_OK;
}

hvmem_status hvmem_vcpu_detach(struct hvmem_vcpu *vcpu)
{
    hvmem_status status;

    if (!vcpu)
        return HVMEM_E_ARG;
    if (!vcpu->vcpus)
        return HVMEM_E_STALE;
    status = hvmem__vcpu_move(vcpu, HVMEM_CPU_NONE);
    if (status != HVMEM_OK)
        return hvmem__vcpus_refuse(vcpu->vcpus, status);
    hvmem__store(&vcpu->attached, 0);
    hvmem__space_detach(vcpu->space);
    return HVMEM_OK;
}
