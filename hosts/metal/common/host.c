/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The operations of hvmem/host.h over the metal host. Code of an image is never preempted and
 * interrupts do not enter the library, so that no pinning is needed; locks are the built-in ones.
 */
#include "host.h"

static HVMEM_CALLBACK hvmem_cpu op_this_cpu(void *host)
{
    (void)host;
    return metal_cpu_id();
}

static HVMEM_CALLBACK void op_relax(void *host)
{
    (void)host;
    metal_relax();
}

static HVMEM_CALLBACK hvmem_u64 op_irq_save(void *host)
{
    (void)host;
    return metal_irq_save();
}

static HVMEM_CALLBACK void op_irq_restore(void *host, hvmem_u64 state)
{
    (void)host;
    metal_irq_restore(state);
}

static hvmem_status call_mask(uint64_t mask, metal_call_fn fn, void *arg)
{
    switch (metal_call_cpus(mask & metal_online(), fn, arg)) {
    case METAL_OK:
        return HVMEM_OK;
    case METAL_E_TIMEOUT:
        return HVMEM_E_TIMEOUT;
    default:
        return HVMEM_E_HOST;
    }
}

static HVMEM_CALLBACK void nothing(void *arg)
{
    (void)arg;
}

/* Taking the interrupt, and the atomics around the call, are the full barrier. */
static HVMEM_CALLBACK hvmem_status op_barrier_cpu(void *host, hvmem_cpu cpu)
{
    (void)host;
    return cpu < METAL_MAX_CPUS ? call_mask(1ull << cpu, nothing, NULL) : HVMEM_E_CPU;
}

static HVMEM_CALLBACK hvmem_status op_call_cpus(void *host, const struct hvmem_cpuset *cpus,
                                                HVMEM_CALLBACK void (*fn)(void *arg), void *arg)
{
    uint64_t mask = cpus->cpus > 0 ? cpus->words[0] : 0;

    (void)host;
    if (cpus->cpus < 64)
        mask &= (1ull << cpus->cpus) - 1;
    return call_mask(mask, fn, arg);
}

static HVMEM_CALLBACK void *op_frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    (void)host;
    (void)order;
    return metal_frame(mfn << METAL_PAGE_SHIFT);
}

static HVMEM_CALLBACK void op_frame_unmap(void *host, void *map, hvmem_order order)
{
    (void)host;
    (void)map;
    (void)order;
}

static HVMEM_CALLBACK void op_report(void *host, hvmem_status code, hvmem_mfn mfn,
                                     hvmem_order order, hvmem_u64 info)
{
    struct metal_host *h = host;

    __atomic_fetch_add(&h->reports, 1, __ATOMIC_RELAXED);
    h->last_report = code;
    h->last_mfn = mfn;
    if (h->report_lines == 0)
        return;
    h->report_lines--;
    metal_printf("hvmem: %s: frame 0x%llx order %u info 0x%llx\n", hvmem_status_words(code),
                 (unsigned long long)mfn, order, (unsigned long long)info);
}

static HVMEM_CALLBACK void op_bug(void *host, const char *where)
{
    (void)host;
    metal_panic(where);
}

static HVMEM_CALLBACK void op_event(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b)
{
    struct metal_host *h = host;
    const uint32_t known = sizeof h->events / sizeof h->events[0];

    (void)a;
    (void)b;
    __atomic_fetch_add(&h->events[event < known ? event : 0], 1, __ATOMIC_RELAXED);
}

void metal_host_ops(struct hvmem_host_ops *ops)
{
    *ops = (struct hvmem_host_ops){
        .size = sizeof *ops,
        .this_cpu = op_this_cpu,
        .relax = op_relax,
        .irq_save = op_irq_save,
        .irq_restore = op_irq_restore,
        .barrier_cpu = op_barrier_cpu,
        .call_cpus = op_call_cpus,
        .frame_map = op_frame_map,
        .frame_unmap = op_frame_unmap,
        .report = op_report,
        .bug = op_bug,
        .event = op_event,
    };
}
