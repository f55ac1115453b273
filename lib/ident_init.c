/* SPDX-License-Identifier: BSD-2-Clause */
/* Identifiers: configuration, CPUs that join and leave, statistics. Handing out is in ident.c. */
#include "ident.h"

#include "backendcall.h"
#include "cutter.h"

#define KNOWN_FLAGS                                                                                \
    (HVMEM_IDENT_PER_CPU | HVMEM_IDENT_BROADCAST | HVMEM_IDENT_ENTRY | HVMEM_IDENT_ROOTS)

static hvmem_u64 set_words(const struct hvmem_ident_config *config)
{
    return (config->first + config->ids + 63u) / 64u;
}

/* Whether the machine's tags can hold the highest number; a back-end may not say how wide they are. */
static int ids_fit(const struct hvmem_ident_config *config)
{
    const struct hvmem_backend_caps *caps = &config->backend->caps;
    hvmem_u32 last = config->first + config->ids - 1;

    if (config->regime == HVMEM_REGIME_USER)
        return !caps->user_id_bits || !(last >> caps->user_id_bits);
    return !caps->stage2_ids || last < caps->stage2_ids;
}

/* What the back-end must offer. */
static hvmem_status check_backend(const struct hvmem_ident_config *config)
{
    const struct hvmem_backend *be = config->backend;
    hvmem_u32 value;

    if (!be || !be->ops || !HVMEM__BACKEND_HAS(be, tlb_flush))
        return HVMEM_E_ARG;
    if (!ids_fit(config))
        return HVMEM_E_COUNT;
    if ((config->flags & HVMEM_IDENT_BROADCAST) && !(be->caps.features & HVMEM_CAP_BROADCAST))
        return HVMEM_E_UNSUPPORTED;
    if ((config->flags & HVMEM_IDENT_ENTRY) &&
        hvmem__backend_guest_entry(config->backend, HVMEM_ENTRY_FLUSH_ALL, &value) != HVMEM_OK)
        return HVMEM_E_UNSUPPORTED;
    return HVMEM_OK;
}

static hvmem_status check_config(const struct hvmem_ident_config *config)
{
    if (!config)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if (config->flags & ~KNOWN_FLAGS || !hvmem__host_regime_ok(config->host, config->lock_regime))
        return HVMEM_E_ARG;
    if ((config->flags & HVMEM_IDENT_PER_CPU) && (config->flags & HVMEM_IDENT_BROADCAST))
        return HVMEM_E_ARG;
    if (config->regime != HVMEM_REGIME_USER && config->regime != HVMEM_REGIME_STAGE2 &&
        config->regime != HVMEM_REGIME_GUEST)
        return HVMEM_E_ARG;
    if (!config->max_cpus || config->max_cpus > HVMEM_CPU_LIMIT)
        return HVMEM_E_CPU;
    if (!config->first || !config->ids || config->first > 0xffffu ||
        config->ids > 0x10000u - config->first)
        return HVMEM_E_COUNT;
    if (!(config->flags & HVMEM_IDENT_PER_CPU) && config->ids < config->max_cpus)
        return HVMEM_E_COUNT;
    return check_backend(config);
}

/* Cut the object's memory into its parts; with base NULL `ident` is left alone. Returns the bytes. */
static hvmem_size lay_out(hvmem_u8 *base, const struct hvmem_ident_config *config,
                          struct hvmem_ident *ident)
{
    struct hvmem__cutter cutter = {base, HVMEM_LINE, 0};
    struct hvmem__ident_cpu *cpus;
    hvmem_u64 *used;
    hvmem_u32 *held;

    hvmem__cut(&cutter, 1, sizeof *ident);
    cpus = hvmem__cut(&cutter, config->max_cpus, sizeof *cpus);
    used = hvmem__cut(&cutter, 2 * set_words(config), sizeof *used);
    held = hvmem__cut(&cutter, config->max_cpus, sizeof *held);
    if (base) {
        ident->cpus = cpus;
        ident->used = used;
        ident->words = (hvmem_u32)set_words(config);
        ident->pinned = used + ident->words;
        ident->host.held = held;
    }
    return cutter.used;
}

static hvmem_size total_bytes(const struct hvmem_ident_config *config)
{
    return lay_out(HVMEM_NULL, config, HVMEM_NULL);
}

hvmem_status hvmem_ident_size(const struct hvmem_ident_config *config, hvmem_size *bytes)
{
    hvmem_status status = check_config(config);

    if (status != HVMEM_OK)
        return status;
    if (!bytes)
        return HVMEM_E_ARG;
    *bytes = total_bytes(config);
    return HVMEM_OK;
}

/* Bits that hold the highest number. */
static hvmem_u32 number_bits(const struct hvmem_ident_config *config)
{
    return hvmem__highest(config->first + config->ids - 1) + 1;
}

hvmem_status hvmem_ident_init(void *memory, hvmem_size bytes,
                              const struct hvmem_ident_config *config, struct hvmem_ident **ident)
{
    hvmem_status status = check_config(config);
    struct hvmem_ident *made = memory;
    hvmem_u32 i;

    if (status != HVMEM_OK)
        return status;
    if (!ident)
        return HVMEM_E_ARG;
    if (!memory || (hvmem_uptr)memory % HVMEM_LINE || bytes < total_bytes(config))
        return HVMEM_E_BUFFER;
    memset(memory, 0, total_bytes(config));
    hvmem__host_bind(&made->host, config->host, config->host_ctx, config->lock_regime);
    if (config->lock_regime != HVMEM_LOCK_CALLER)
        hvmem__host_smp(&made->host);
    lay_out(memory, config, made);
    made->flags = config->flags;
    made->regime = config->regime;
    made->max_cpus = config->max_cpus;
    made->first = config->first;
    made->last = config->first + config->ids - 1;
    made->next = config->first;
    made->backend = config->backend;
    made->shift = number_bits(config);
    made->generation = (hvmem_u64)2 << made->shift;
    for (i = 0; i < made->max_cpus; i++) {
        made->cpus[i].generation = made->generation;
        made->cpus[i].next = made->first;
    }
    *ident = made;
    return HVMEM_OK;
}

/* ---- CPUs that join and leave ------------------------------------------------------------------ */

/* Whether a number above `last` is pinned or may be loaded. IDENT lock held. */
static int in_use_above(const struct hvmem_ident *ident, hvmem_u32 last)
{
    hvmem_u32 i;

    for (i = last + 1; i <= ident->last; i++) {
        if (ident->pinned[i >> 6] >> (i & 63) & 1)
            return 1;
    }
    for (i = 0; i < ident->max_cpus; i++) {
        if (hvmem__ident_number(ident, hvmem__load(&ident->cpus[i].active)) > last ||
            hvmem__ident_number(ident, ident->cpus[i].reserved) > last)
            return 1;
    }
    return 0;
}

/*
 * Hand out nothing above `last` any more. A space may hold such a number without running: then a
 * new generation takes it away, and only if no CPU switched to it meanwhile. IDENT lock held.
 */
static hvmem_status narrow(struct hvmem_ident *ident, hvmem_u32 last)
{
    hvmem_u32 wide = ident->last;

    if (last >= wide)
        return HVMEM_OK;
    if (last < ident->first)
        return HVMEM_E_COUNT;
    if (ident->flags & HVMEM_IDENT_PER_CPU) {
        hvmem__store(&ident->last, last);
        return HVMEM_OK;
    }
    if (last - ident->first + 1 < ident->max_cpus + ident->pins)
        return HVMEM_E_COUNT;
    if (in_use_above(ident, last))
        return HVMEM_E_BUSY;
    hvmem__ident_rollover(ident);
    if (in_use_above(ident, last))
        return HVMEM_E_BUSY;
    hvmem__store(&ident->last, last);
    return HVMEM_OK;
}

hvmem_status hvmem_ident_cpu_online(struct hvmem_ident *ident, hvmem_cpu cpu, hvmem_u32 last)
{
    struct hvmem__ident_cpu *me;
    hvmem_status status;
    hvmem_u64 state;

    if (!ident)
        return HVMEM_E_ARG;
    if (cpu >= ident->max_cpus)
        return hvmem__ident_refuse(ident, HVMEM_E_CPU);
    me = &ident->cpus[cpu];
    state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    status = hvmem__load(&me->online) ? HVMEM_E_CPU : narrow(ident, last);
    if (status == HVMEM_OK) {
        hvmem__store(&me->active, 0);
        me->reserved = 0;
        hvmem__store(&me->pending, 1);
        __atomic_store_n(&me->online, 1, __ATOMIC_RELEASE);
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__ident_refuse(ident, status);
}

hvmem_status hvmem_ident_cpu_offline(struct hvmem_ident *ident, hvmem_cpu cpu)
{
    struct hvmem__ident_cpu *me;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state;

    if (!ident)
        return HVMEM_E_ARG;
    if (cpu >= ident->max_cpus)
        return hvmem__ident_refuse(ident, HVMEM_E_CPU);
    me = &ident->cpus[cpu];
    state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    if (!hvmem__load(&me->online))
        status = HVMEM_E_CPU;
    else if (hvmem__load(&me->loaded) || hvmem__load(&me->leaving))
        status = HVMEM_E_BUSY;
    if (status == HVMEM_OK) {
        hvmem__store(&me->online, 0);
        hvmem__store(&me->active, 0);
        me->reserved = 0;
        me->owed_space = HVMEM_NULL;
    }
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
    return status == HVMEM_OK ? HVMEM_OK : hvmem__ident_refuse(ident, status);
}

hvmem_status hvmem_ident_flush_all(struct hvmem_ident *ident)
{
    if (!ident)
        return HVMEM_E_ARG;
    hvmem__ident_flush_all(ident);
    return HVMEM_OK;
}

hvmem_status hvmem_ident_get_stats(struct hvmem_ident *ident, struct hvmem_ident_stats *stats)
{
    hvmem_u64 state;
    hvmem_u32 i;

    if (!ident || !stats)
        return HVMEM_E_ARG;
    state = hvmem__lock(&ident->host, &ident->lock, HVMEM__RANK_IDENT);
    stats->rollovers = ident->rollovers;
    stats->assigned = ident->assigned;
    for (i = 0; i < ident->max_cpus; i++) {
        stats->rollovers += hvmem__load(&ident->cpus[i].rollovers);
        stats->assigned += hvmem__load(&ident->cpus[i].assigned);
    }
    stats->returned = ident->returned;
    stats->refused = hvmem__load(&ident->refused);
    stats->pinned = ident->pins;
    stats->last = hvmem__load(&ident->last);
    hvmem__unlock(&ident->host, &ident->lock, HVMEM__RANK_IDENT, state);
    return HVMEM_OK;
}
