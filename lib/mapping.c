/* SPDX-License-Identifier: BSD-2-Clause */
/* mapping.c: mappings come and go, and so do the devices that share their tables. */
#include "mapping.h"

/* Turns of waiting for a notifier that is being called before remove gives up. */
#define REMOVE_TURNS 1000u

static hvmem_status check_config(const struct hvmem_mapping_config *config)
{
    const struct hvmem_ident *ident;

    if (!config)
        return HVMEM_E_ARG;
    if (config->size != sizeof *config)
        return HVMEM_E_VERSION;
    if ((config->flags & ~HVMEM_MAPPING_GLOBALS) || !config->heap || !config->space)
        return HVMEM_E_ARG;
    ident = config->space->ident;
    if (!ident || hvmem__load(&config->space->state) == HVMEM__SPACE_DEAD)
        return HVMEM_E_SPACE;
    if (!config->heap->backend || ident->backend != config->heap->backend)
        return HVMEM_E_ARG;
    if (config->policy && config->policy->size != sizeof *config->policy)
        return HVMEM_E_VERSION;
    if (ident->max_cpus > 1 && !ident->host.ops.call_cpus &&
        (!(ident->backend->caps.features & HVMEM_CAP_BROADCAST) ||
         (ident->flags & HVMEM_IDENT_PER_CPU)))
        return HVMEM_E_UNSUPPORTED;
    return HVMEM_OK;
}

hvmem_status hvmem_mapping_init(struct hvmem_mapping *mapping,
                                const struct hvmem_mapping_config *config)
{
    hvmem_status status = mapping ? check_config(config) : HVMEM_E_ARG;

    if (status)
        return hvmem__refuse(config ? config->heap : HVMEM_NULL, status, 0, HVMEM_ORDER_ANY, 0);
    memset(mapping, 0, sizeof *mapping);
    mapping->heap = config->heap;
    mapping->space = config->space;
    mapping->flags = config->flags;
    mapping->table_free = config->table_free;
    mapping->ctx = config->ctx;
    if (config->policy)
        mapping->policy = *config->policy;
    else
        (void)hvmem_policy_default(&mapping->policy, &config->heap->backend->caps);
    mapping->self = (hvmem_uptr)mapping ^ HVMEM__MAPPING_SELF;
    return HVMEM_OK;
}

hvmem_status hvmem_mapping_fini(struct hvmem_mapping *mapping)
{
    if (!hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    if ((hvmem__load_acquire(&mapping->turns) & HVMEM__TURN_OPEN) ||
        hvmem__load_acquire(&mapping->freeing) || hvmem__load(&mapping->notifiers))
        return hvmem__refuse(mapping->heap, HVMEM_E_BUSY, 0, HVMEM_ORDER_ANY, 0);
    mapping->self = 0;
    return HVMEM_OK;
}

/* ---- notifiers ------------------------------------------------------------------------------ */

/* The link that points to the notifier, or the last one, which is NULL. Mapping lock held. */
static struct hvmem_notifier **link_to(struct hvmem_mapping *mapping,
                                       const struct hvmem_notifier *notifier)
{
    struct hvmem_notifier **link = &mapping->notifiers;

    while (*link && *link != notifier)
        link = &(*link)->next;
    return link;
}

hvmem_status hvmem_notifier_add(struct hvmem_mapping *mapping, struct hvmem_notifier *notifier)
{
    hvmem_status status = HVMEM_OK;
    struct hvmem_notifier **link;
    hvmem_u64 state;

    if (!hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    if (!notifier || !notifier->invalidate)
        return hvmem__refuse(mapping->heap, HVMEM_E_ARG, 0, HVMEM_ORDER_ANY, 0);
    if (notifier->size != sizeof *notifier)
        return hvmem__refuse(mapping->heap, HVMEM_E_VERSION, 0, HVMEM_ORDER_ANY, notifier->size);
    state = hvmem__mapping_lock(mapping);
    link = link_to(mapping, notifier);
    if (*link) {
        status = HVMEM_E_ARG;
    } else if (mapping->faults || mapping->broken) {
        status = HVMEM_E_BUSY;
    } else {
        notifier->next = HVMEM_NULL;
        notifier->calls = 0;
        hvmem__store(link, notifier);
    }
    hvmem__mapping_unlock(mapping, state);
    return status ? hvmem__refuse(mapping->heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

int hvmem__mapping_may_fault(struct hvmem_mapping *mapping)
{
    hvmem_u64 state = hvmem__mapping_lock(mapping);
    int may = !mapping->notifiers;

    if (may)
        hvmem__store(&mapping->faults, mapping->faults + 1);
    hvmem__mapping_unlock(mapping, state);
    return may;
}

int hvmem__mapping_may_break(struct hvmem_mapping *mapping)
{
    hvmem_u64 state = hvmem__mapping_lock(mapping);
    int may = !mapping->notifiers;

    mapping->broken += (hvmem_u64)may;
    hvmem__mapping_unlock(mapping, state);
    return may;
}

void hvmem__mapping_mended(struct hvmem_mapping *mapping, hvmem_u64 entries)
{
    hvmem_u64 state = hvmem__mapping_lock(mapping);

    HVMEM__ASSERT2(&mapping->heap->host, entries <= mapping->broken);
    mapping->broken -= entries;
    hvmem__mapping_unlock(mapping, state);
}

void hvmem__mapping_faultless(struct hvmem_mapping *mapping, hvmem_u64 faults)
{
    hvmem_u64 state = hvmem__mapping_lock(mapping);

    if (mapping->faults == faults)
        hvmem__store(&mapping->faults, 0);
    hvmem__mapping_unlock(mapping, state);
}

/* Unlink it unless it is being called: then its `next` is needed. */
static hvmem_status try_remove(struct hvmem_mapping *mapping, struct hvmem_notifier *notifier)
{
    hvmem_u64 state = hvmem__mapping_lock(mapping);
    struct hvmem_notifier **link = link_to(mapping, notifier);
    hvmem_status status = HVMEM_OK;

    if (!*link)
        status = HVMEM_E_ARG;
    else if (notifier->calls)
        status = HVMEM_E_BUSY;
    else
        hvmem__store(link, notifier->next);
    hvmem__mapping_unlock(mapping, state);
    return status;
}

hvmem_status hvmem_notifier_remove(struct hvmem_mapping *mapping, struct hvmem_notifier *notifier)
{
    hvmem_status status;
    hvmem_u32 turn;

    if (!hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    status = notifier ? try_remove(mapping, notifier) : HVMEM_E_ARG;
    for (turn = 0; status == HVMEM_E_BUSY && turn < REMOVE_TURNS; turn++) {
        hvmem__relax(&mapping->heap->host);
        status = try_remove(mapping, notifier);
    }
    return status ? hvmem__refuse(mapping->heap, status, 0, HVMEM_ORDER_ANY, 0) : HVMEM_OK;
}

hvmem_status hvmem_mapping_get_stats(const struct hvmem_mapping *mapping, hvmem_size size,
                                     struct hvmem_mapping_stats *stats)
{
    if (!hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    if (!stats || size != sizeof *stats)
        return hvmem__refuse(mapping->heap, stats ? HVMEM_E_VERSION : HVMEM_E_ARG, 0,
                             HVMEM_ORDER_ANY, size);
    stats->gathers = hvmem__load(&mapping->turns) / HVMEM__TURN_BEGUN;
    stats->cancelled = hvmem__load(&mapping->stats.cancelled);
    stats->unneeded = hvmem__load(&mapping->stats.unneeded);
    stats->contended = hvmem__load(&mapping->stats.contended);
    stats->early = hvmem__load(&mapping->stats.early);
    stats->flushes = hvmem__load(&mapping->stats.flushes);
    stats->whole = hvmem__load(&mapping->stats.whole);
    stats->cpus = hvmem__load(&mapping->stats.cpus);
    stats->notified = hvmem__load(&mapping->stats.notified);
    stats->failed = hvmem__load(&mapping->stats.failed);
    stats->quarantined = hvmem__load(&mapping->stats.quarantined);
    return HVMEM_OK;
}
