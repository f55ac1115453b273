/* SPDX-License-Identifier: BSD-2-Clause */
/* heap.c: configuration, layout and birth of a heap; CPUs that come and go; refusals. */
#include "heap.h"

#include "ageing.h"
#include "bank.h"
#include "clock.h"
#include "cutter.h"
#include "drain.h"
#include "flush.h"
#include "offline.h"
#include "pcpu.h"

/* Spans of frames that share an arena are at least 1 GiB and by default this many frames. */
#define ARENA_ORDER 20u

hvmem_status hvmem__refuse(struct hvmem_heap *heap, hvmem_status code, hvmem_mfn mfn,
                           hvmem_order order, hvmem_u64 info)
{
    if (heap && code <= HVMEM_E_ARG) {
        hvmem__count(heap, &heap->refused, 1);
        hvmem__host_report(&heap->host, code, mfn, order, info);
    }
    return code;
}

void hvmem_config_default(struct hvmem_config *config)
{
    if (!config)
        return;
    memset(config, 0, sizeof *config);
    config->size = sizeof *config;
    config->page_shift = 12;
    config->max_order = 18;
    config->lock_regime = HVMEM_LOCK_CALLER;
    config->max_cpus = 1;
    config->max_banks = 64;
    config->owed_on_free =
        HVMEM_OWES_TLB | HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE | HVMEM_OWES_SCRUB;
}

static hvmem_status check_nodes(const struct hvmem_config *config)
{
    hvmem_u32 i;

    if (config->distance_nodes > HVMEM_NODE_LIMIT || !config->distance_nodes != !config->distance)
        return HVMEM_E_NODE;
    for (i = 0; config->cpu_node && i < config->max_cpus; i++)
        if (config->cpu_node[i] >= HVMEM_NODE_LIMIT)
            return HVMEM_E_NODE;
    return HVMEM_OK;
}

static hvmem_status check_config(const struct hvmem_config *config)
{
    if (!config)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if ((config->flags & ~(HVMEM_CONFIG_NO_CPU_CACHE | HVMEM_CONFIG_NO_CLOCK)) ||
        config->lock_regime > HVMEM_LOCK_IRQSAVE || (config->owed_on_free & ~HVMEM_OWES_ANY) ||
        (config->page_shift != 12 && config->page_shift != 14 && config->page_shift != 16))
        return HVMEM_E_ARG;
    if (config->host && config->host->size < 2 * sizeof(hvmem_u32))
        return HVMEM_E_VERSION;
    if (config->max_order > HVMEM_ORDER_LIMIT || config->arena_order > 32)
        return HVMEM_E_ORDER;
    if (!config->max_cpus || config->max_cpus > HVMEM_CPU_LIMIT)
        return HVMEM_E_CPU;
    if (!config->max_banks || config->max_banks > 0xffffu || config->max_domains > 0xfffeu)
        return HVMEM_E_COUNT;
    return check_nodes(config);
}

/* ---- layout --------------------------------------------------------------------------------- */

/* Parts are two lines apart, for processors that fetch lines in pairs. */
#define PART_ALIGN (2 * HVMEM_LINE)

/* The parts of a heap's memory. Apart from the heap, which is far too large for anybody's stack. */
struct parts {
    struct hvmem__pcpu *pcpu;
    struct hvmem__cpu_time *times;
    struct hvmem__bank *bank;
    struct hvmem__arena *arena;
    struct hvmem_domain **domain;
    hvmem_u32 *order_of_banks;
    hvmem_u32 *token_cpu;
    hvmem_u64 *online;
    hvmem_mfn *bad;
    hvmem_u32 *held;
    hvmem_u8 *cpu_node;
    hvmem_u8 *distance;
    hvmem_mfn *ageing;
};

/* The one description of a heap's memory behind its first part. */
static void layout(struct hvmem__cutter *cutter, const struct hvmem_config *config, struct parts *p)
{
    p->pcpu = hvmem__cut(cutter, config->max_cpus, sizeof *p->pcpu);
    p->times = hvmem__cut(cutter, config->max_cpus, sizeof *p->times);
    p->bank = hvmem__cut(cutter, config->max_banks, sizeof *p->bank);
    p->arena = hvmem__cut(cutter, config->max_banks + HVMEM_NODE_LIMIT, sizeof *p->arena);
    p->domain = hvmem__cut(cutter, config->max_domains + 1u, sizeof *p->domain);
    p->order_of_banks = hvmem__cut(cutter, config->max_banks, sizeof *p->order_of_banks);
    p->token_cpu = hvmem__cut(cutter, HVMEM__TOKENS, sizeof *p->token_cpu);
    p->online = hvmem__cut(cutter, (config->max_cpus + 63) / 64, sizeof *p->online);
    p->bad = hvmem__cut(cutter, HVMEM__BAD_LIMIT, sizeof *p->bad);
    p->held = hvmem__cut(cutter, config->max_cpus, sizeof *p->held);
    p->ageing = hvmem__cut(cutter, config->max_cpus, hvmem__ageing_bytes(config->flags));
    p->cpu_node = hvmem__cut(cutter, config->max_cpus, 1);
    p->distance = hvmem__cut(cutter, (hvmem_u64)config->distance_nodes * config->distance_nodes, 1);
}

static void attach(struct hvmem_heap *heap, const struct parts *p)
{
    heap->pcpu = p->pcpu;
    heap->clock.cpu = p->times;
    heap->bank = p->bank;
    heap->arena = p->arena;
    heap->domain = p->domain;
    heap->order_of_banks = p->order_of_banks;
    heap->token_cpu = p->token_cpu;
    heap->online = p->online;
    heap->bad = p->bad;
    heap->host.held = p->held;
    heap->cpu_node = p->cpu_node;
    heap->distance = p->distance;
}

hvmem_status hvmem_heap_size(const struct hvmem_config *config, hvmem_size *bytes)
{
    hvmem_status status = bytes ? check_config(config) : HVMEM_E_ARG;
    struct hvmem__cutter cutter = {HVMEM_NULL, PART_ALIGN, 0};
    struct parts parts;

    if (status)
        return status;
    hvmem__cut(&cutter, 1, sizeof(struct hvmem_heap));
    layout(&cutter, config, &parts);
    *bytes = cutter.used;
    return HVMEM_OK;
}

/*
 * What frames of domains owe. Zeroes that stay in the data caches hide old code from loads alone where fetches do
 * not see these caches.
 */
static hvmem_u32 owed_by(const struct hvmem_config *config)
{
    const hvmem_u32 both = HVMEM_OWES_SCRUB | HVMEM_OWES_ICACHE;
    const struct hvmem_backend *be = config->backend;

    if ((config->owed_on_free & both) == both && be && be->caps.dline &&
        !(be->caps.features & (HVMEM_CAP_IDC | HVMEM_CAP_ICOHERENT)))
        return config->owed_on_free | HVMEM_OWES_DCACHE;
    return config->owed_on_free;
}

/* Members that come straight from the configuration. */
static void configure(struct hvmem_heap *heap, const struct hvmem_config *config)
{
    heap->backend = config->backend;
    heap->page_shift = config->page_shift;
    heap->max_order = config->max_order;
    heap->arena_order = config->arena_order ? config->arena_order : ARENA_ORDER;
    if (heap->arena_order < config->max_order)
        heap->arena_order = config->max_order;
    heap->flags = config->flags;
    heap->max_cpus = config->max_cpus;
    heap->max_banks = config->max_banks;
    heap->max_domains = config->max_domains;
    heap->owed_on_free = owed_by(config);
    heap->low_frames = config->low_frames;
    heap->low_hysteresis = config->low_hysteresis;
    heap->distance_nodes = config->distance_nodes;
    hvmem__clock_init(heap, config->flags);
    if (config->distance)
        memcpy(heap->distance, config->distance,
               (hvmem_size)config->distance_nodes * config->distance_nodes);
    if (config->cpu_node)
        memcpy(heap->cpu_node, config->cpu_node, config->max_cpus);
}

hvmem_status hvmem_heap_init(void *memory, hvmem_size bytes, const struct hvmem_config *config,
                             struct hvmem_heap **heap)
{
    struct hvmem__cutter cutter = {HVMEM_NULL, PART_ALIGN, 0};
    struct hvmem__host host;
    struct parts parts;
    hvmem_status status;
    hvmem_size need;
    hvmem_u32 i;

    status = heap ? hvmem_heap_size(config, &need) : HVMEM_E_ARG;
    if (status)
        return status;
    if (!memory || bytes < need || ((hvmem_uptr)memory & (HVMEM_LINE - 1)))
        return HVMEM_E_BUFFER;
    hvmem__host_bind(&host, config->host, config->host_ctx, config->lock_regime);
    if (!hvmem__host_can_lock(&host))
        return HVMEM_E_ARG;
    memset(memory, 0, need);
    cutter.base = memory;
    *heap = hvmem__cut(&cutter, 1, sizeof **heap);
    layout(&cutter, config, &parts);
    (*heap)->host = host;
    attach(*heap, &parts);
    configure(*heap, config);
    for (i = 0; i < HVMEM_NODE_LIMIT; i++)
        memset((*heap)->node[i].arena, 0xff, sizeof(*heap)->node[i].arena);
    for (i = 0; i < HVMEM__TOKENS; i++)
        (*heap)->token_cpu[i] = HVMEM__NO_CPU;
    hvmem__pcpu_init(*heap);
    for (i = 0; i < config->max_cpus; i++)
        hvmem__ageing_init(*heap, &(*heap)->pcpu[i],
                           parts.ageing +
                               i * (hvmem__ageing_bytes(config->flags) / sizeof *parts.ageing));
    (*heap)->online[0] = 1;
    return HVMEM_OK;
}

/* ---- CPUs ----------------------------------------------------------------------------------- */

hvmem_status hvmem_smp_enable(struct hvmem_heap *heap)
{
    hvmem_cpu cpu;

    if (!heap)
        return HVMEM_E_ARG;
    if (heap->host.smp || heap->host.regime == HVMEM_LOCK_CALLER || heap->adopting)
        return hvmem__refuse(heap, HVMEM_E_PHASE, 0, HVMEM_ORDER_ANY, 0);
#ifndef HVMEM_HOST_THIS_CPU
    if (heap->max_cpus > 1 && !heap->host.ops.this_cpu)
        return hvmem__refuse(heap, HVMEM_E_UNSUPPORTED, 0, HVMEM_ORDER_ANY, 0);
#endif
    cpu = hvmem__this_cpu(&heap->host);
    if (cpu >= heap->max_cpus)
        return hvmem__refuse(heap, HVMEM_E_CPU, 0, HVMEM_ORDER_ANY, cpu);
    (void)hvmem__pcpu_drain_all(heap); /* one CPU runs */
    hvmem__pcpu_smp(heap);
    hvmem__clock_smp(heap, cpu);
    /* The boot CPU was taken for CPU 0. Others that have joined already stay. */
    heap->online[0] &= ~(hvmem_u64)1;
    heap->online[cpu / 64] |= (hvmem_u64)1 << (cpu % 64);
    hvmem__host_smp(&heap->host);
    return HVMEM_OK;
}

/* Change a CPU's membership. Returns whether it changed. */
static int set_online(struct hvmem_heap *heap, hvmem_cpu cpu, int online)
{
    hvmem_u64 bit = (hvmem_u64)1 << (cpu % 64), state = hvmem__lock_admin(heap), old;

    old = heap->online[cpu / 64];
    hvmem__store_release(&heap->online[cpu / 64], online ? old | bit : old & ~bit);
    /* Whoever closed its cache without seeing it here is seen by it (hvmem__section_enter_other). */
    if (online && heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    hvmem__unlock_admin(heap, state);
    return (old & bit ? 1 : 0) != online;
}

/*
 * A CPU joins: it flushes, unless it is called for by another and so promised to hold no translation, and its
 * time says so.
 */
static hvmem_status join(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    hvmem_u64 time = hvmem__clock_tick(heap);
    hvmem_status status = HVMEM_OK;

    if (heap->backend && hvmem__clock_cpu(heap) == cpu)
        status = hvmem__flush_local(heap);
    /* A back-end that cannot flush: no frame that owes a flush is ever handed over. */
    if (status == HVMEM_E_UNSUPPORTED || status == HVMEM_E_LEVEL)
        return HVMEM_OK;
    if (!status && heap->clock.mode == HVMEM__CLOCK_PER_CPU)
        hvmem__clock_publish(heap, cpu, time);
    return status ? HVMEM_E_HOST : HVMEM_OK;
}

hvmem_status hvmem_cpu_online(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    hvmem_status status = HVMEM_E_CPU;
    int own;

    if (!heap)
        return HVMEM_E_ARG;
    if (cpu < heap->max_cpus && !(hvmem__load(&heap->online[cpu / 64]) >> (cpu % 64) & 1)) {
        /*
         * It is counted before it flushes: what it loads after that is asked for. Another one, which may
         * not answer yet, is counted when its time says what was promised for it.
         */
        own = hvmem__clock_cpu(heap) == cpu;
        status = own && !set_online(heap, cpu, 1) ? HVMEM_E_CPU : join(heap, cpu);
        if (!own && !status && !set_online(heap, cpu, 1))
            status = HVMEM_E_CPU;
        if (own && status == HVMEM_E_HOST)
            (void)set_online(heap, cpu, 0);
    }
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, cpu) : HVMEM_OK;
}

hvmem_status hvmem_cpu_offline(struct hvmem_heap *heap, hvmem_cpu cpu)
{
    if (!heap)
        return HVMEM_E_ARG;
    if (cpu >= heap->max_cpus || !set_online(heap, cpu, 0))
        return hvmem__refuse(heap, HVMEM_E_CPU, 0, HVMEM_ORDER_ANY, cpu);
    (void)hvmem__pcpu_drain(heap, cpu); /* offline it can always be entered */
    return HVMEM_OK;
}

hvmem_status hvmem_drain(struct hvmem_heap *heap)
{
    hvmem_status status;

    if (!heap)
        return HVMEM_E_ARG;
    status = hvmem__pcpu_drain_all(heap);
    return status ? hvmem__refuse(heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}
