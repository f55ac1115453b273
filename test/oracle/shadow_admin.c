/* SPDX-License-Identifier: BSD-2-Clause */
/* The shadow's mirror of settle, offline, banks, domains and claims. */
#include "shadow.h"

static void judge(struct shadow *shadow, const char *call, hvmem_u64 what, hvmem_status got,
                  bool right)
{
    if (!right)
        shadow_fail(shadow, "%s(%#llx) gave %d", call, (unsigned long long)what, got);
}

hvmem_status shadow_settle(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_u32 owed)
{
    struct world *world = shadow->world;
    unsigned failed = world->fail_count;
    hvmem_status status = hvmem_settle(world->heap, mfn, count, owed);
    bool usable = count != 0 && mfn + count > mfn, dying = false;
    hvmem_u64 i;

    for (i = 0; usable && i < count; i++) {
        const struct shadow_frame *frame = shadow_at(shadow, mfn + i);

        usable = frame != NULL && frame->state != SHADOW_HOLE && frame->state != SHADOW_FREE &&
                 frame->state != SHADOW_OFFLINE;
        dying |= usable && shadow->domain[frame->owner].state == HVMEM_DOMAIN_DYING;
    }
    if (usable && dying)
        judge(shadow, "settle", mfn, status, status == HVMEM_E_DOMAIN || status == HVMEM_E_HOST);
    else if (status == HVMEM_E_HOST)
        judge(shadow, "settle", mfn, status, world->fail_count != failed);
    else if (status == HVMEM_E_UNSUPPORTED)
        judge(shadow, "settle", mfn, status,
              (world->flags & (WORLD_NO_BACKEND | WORLD_NO_MAP | WORLD_NO_SETTLE)) != 0);
    else
        judge(shadow, "settle", mfn, status, (status == HVMEM_OK) == usable);
    if (status != HVMEM_OK || shadow->failure[0] != '\0')
        return status;
    if (world_owed(world, mfn, count) & owed & ~HVMEM_OWES_FOREIGN)
        shadow_fail(shadow, "settle of %#llx: %#x is still owed", (unsigned long long)mfn,
                    world_owed(world, mfn, count) & owed);
    for (i = 0; i < count && (owed & HVMEM_OWES_SCRUB); i++)
        shadow_at(shadow, mfn + i)->maybe_dirty = 0;
    shadow_learn(shadow, mfn, count);
    return status;
}

hvmem_status shadow_offline(struct shadow *shadow, hvmem_mfn mfn)
{
    struct shadow_frame *frame = shadow_at(shadow, mfn);
    hvmem_status status = hvmem_offline(shadow->world->heap, mfn);
    unsigned state = frame == NULL ? SHADOW_HOLE : frame->state;

    switch (state) {
    case SHADOW_HOLE:
        judge(shadow, "offline", mfn, status, status == HVMEM_E_FOREIGN);
        break;
    case SHADOW_FREE:
        judge(shadow, "offline", mfn, status, status == HVMEM_OK);
        frame->state = SHADOW_OFFLINE;
        break;
    case SHADOW_RESERVED:
        judge(shadow, "offline", mfn, status, status == HVMEM_E_RESERVED);
        break;
    case SHADOW_USED:
        judge(shadow, "offline", mfn, status, status == HVMEM_AGAIN);
        frame->state = SHADOW_LEAVING;
        shadow_learn(shadow, frame->head, 1ull << frame->order);
        break;
    default:
        judge(shadow, "offline", mfn, status, status == HVMEM_E_OFFLINE);
        break;
    }
    return status;
}

hvmem_status shadow_online(struct shadow *shadow, hvmem_mfn mfn)
{
    struct shadow_frame *frame = shadow_at(shadow, mfn);
    hvmem_status status = hvmem_online(shadow->world->heap, mfn);
    unsigned state = frame == NULL ? SHADOW_HOLE : frame->state;

    switch (state) {
    case SHADOW_HOLE:
        judge(shadow, "online", mfn, status, status == HVMEM_E_FOREIGN);
        break;
    case SHADOW_OFFLINE:
        judge(shadow, "online", mfn, status, status == HVMEM_OK);
        frame->state = SHADOW_FREE;
        break;
    case SHADOW_LEAVING:
        judge(shadow, "online", mfn, status, status == HVMEM_OK);
        frame->state = SHADOW_USED;
        break;
    default:
        judge(shadow, "online", mfn, status, status == HVMEM_E_ARG);
        break;
    }
    return status;
}

hvmem_status shadow_bank(struct shadow *shadow, hvmem_mfn base, hvmem_u64 frames, hvmem_node node,
                         hvmem_u32 flags)
{
    hvmem_status status = world_bank(shadow->world, base, frames, node, flags);
    bool overlaps = false;
    hvmem_u64 i;

    for (i = 0; i < frames && shadow_at(shadow, base + i) != NULL; i++)
        overlaps = overlaps || shadow_at(shadow, base + i)->state != SHADOW_HOLE;
    if (status == HVMEM_E_COUNT) {
        judge(shadow, "bank_add", base, status,
              shadow->world->table_count >= shadow->world->config.max_banks / 2);
        return status;
    }
    judge(shadow, "bank_add", base, status, status == (overlaps ? HVMEM_E_OVERLAP : HVMEM_OK));
    if (status != HVMEM_OK || (flags & HVMEM_BANK_HOTPLUG) || shadow->failure[0] != '\0')
        return status;
    for (i = 0; i < frames; i++) {
        struct shadow_frame *frame = shadow_at(shadow, base + i);

        *frame = (struct shadow_frame){0};
        frame->state = SHADOW_FREE;
        frame->node = (unsigned char)node;
        frame->maybe_dirty = (flags & HVMEM_BANK_DIRTY) != 0;
    }
    return status;
}

hvmem_status shadow_remove(struct shadow *shadow, hvmem_mfn base, hvmem_u64 frames)
{
    const struct world_table *table = world_table_of(shadow->world, base);
    bool known = table != NULL && table->base == base && table->frames == frames;
    unsigned failed = shadow->world->fail_count;
    bool busy = false;
    hvmem_status status;
    hvmem_u64 i;

    for (i = 0; known && i < frames; i++)
        busy = busy || shadow_at(shadow, base + i)->state != SHADOW_FREE;
    status = world_remove(shadow->world, base, frames);
    if (status == HVMEM_E_CLAIM || status == HVMEM_E_BUSY)
        busy = busy ||
               shadow_free_count(shadow, HVMEM_NODE_ANY) <
                   shadow_claims(shadow, HVMEM_NODE_ANY, false) + frames ||
               (known && shadow_free_count(shadow, shadow_at(shadow, base)->node) <
                             shadow_claims(shadow, shadow_at(shadow, base)->node, true) + frames);
    judge(shadow, "bank_remove", base, status,
          (status == HVMEM_OK && known && !busy) || (status == HVMEM_E_FOREIGN && !known) ||
              ((status == HVMEM_E_BUSY || status == HVMEM_E_CLAIM) && busy) ||
              (status == HVMEM_E_HOST && shadow->world->fail_count != failed));
    if (status == HVMEM_OK && world_owed(shadow->world, base, frames) & HVMEM_OWES_TLB)
        shadow_fail(shadow, "bank_remove(%#llx) left frames in reach", (unsigned long long)base);
    for (i = 0; status == HVMEM_OK && i < frames; i++) {
        *shadow_at(shadow, base + i) = (struct shadow_frame){0};
        if (shadow->world->debt != NULL) {
            shadow->world->debt[base + i - shadow->world->debt_base] = 0;
            shadow->world->stale[base + i - shadow->world->debt_base] = 0;
        }
    }
    return status;
}

static bool node_has_memory(struct shadow *shadow, hvmem_node node)
{
    hvmem_u64 i;

    for (i = 0; i < shadow->span; i++)
        if (shadow->frame[i].state != SHADOW_HOLE && shadow->frame[i].node == node)
            return true;
    return false;
}

hvmem_status shadow_domain_new(struct shadow *shadow, hvmem_u32 id, hvmem_u64 limit,
                               hvmem_u64 node_mask)
{
    bool known = id >= 1 && id <= SHADOW_MAX_DOMAINS;
    hvmem_status status = HVMEM_OK;
    struct hvmem_domain *handle;
    bool memory = node_mask == 0;
    hvmem_node node;

    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        memory = memory || ((node_mask >> node & 1) && node_has_memory(shadow, node));
    handle = world_domain(shadow->world, id, limit, node_mask, &status);
    if (!known || id > shadow->world->config.max_domains || shadow->domain[id].handle != NULL)
        judge(shadow, "domain_create", id, status, status == HVMEM_E_DOMAIN);
    else if (!memory)
        judge(shadow, "domain_create", id, status, status == HVMEM_E_NODE);
    else
        judge(shadow, "domain_create", id, status, status == HVMEM_OK);
    if (status != HVMEM_OK || shadow->failure[0] != '\0')
        return status;
    shadow->domain[id] = (struct shadow_domain){0};
    shadow->domain[id].handle = handle;
    shadow->domain[id].limit = limit;
    shadow->domain[id].node_mask = node_mask;
    shadow->domain[id].state = HVMEM_DOMAIN_BUILDING;
    return status;
}

hvmem_status shadow_domain_start(struct shadow *shadow, hvmem_u32 id)
{
    struct shadow_domain *domain = &shadow->domain[id];
    struct world *world = shadow->world;
    unsigned failed = world->fail_count;
    hvmem_status status = hvmem_domain_start(domain->handle);
    hvmem_u32 owed = 0;
    hvmem_u64 i;

    if (domain->state != HVMEM_DOMAIN_BUILDING) {
        judge(shadow, "domain_start", id, status, status == HVMEM_E_PHASE);
        return status;
    }
    for (i = 0; i < shadow->span; i++)
        if (shadow->frame[i].owner == id)
            owed |= world_owed(world, shadow->base + i, 1);
    if (status == HVMEM_E_HOST)
        judge(shadow, "domain_start", id, status, world->fail_count != failed);
    else if (status == HVMEM_E_UNSUPPORTED)
        judge(shadow, "domain_start", id, status,
              (world->flags & (WORLD_NO_BACKEND | WORLD_NO_MAP | WORLD_NO_SETTLE)) != 0);
    else
        judge(shadow, "domain_start", id, status, status == HVMEM_OK && owed == 0);
    domain->may_owe = status != HVMEM_OK;
    if (status != HVMEM_OK)
        return status;
    domain->state = HVMEM_DOMAIN_RUNNING;
    for (i = 0; i < shadow->span; i++)
        if (shadow->frame[i].owner == id) {
            shadow->frame[i].maybe_dirty = 0;
            shadow_learn(shadow, shadow->base + i, 1);
        }
    return status;
}

bool shadow_domains_may_owe(const struct shadow *shadow)
{
    hvmem_u32 id;

    for (id = 1; id <= SHADOW_MAX_DOMAINS; id++)
        if (shadow->domain[id].handle != NULL && shadow->domain[id].may_owe)
            return true;
    return false;
}

hvmem_status shadow_domain_kill(struct shadow *shadow, hvmem_u32 id)
{
    struct shadow_domain *domain = &shadow->domain[id];
    hvmem_status status = hvmem_domain_kill(domain->handle);
    hvmem_node node;

    judge(shadow, "domain_kill", id, status,
          status == HVMEM_OK || (status == HVMEM_E_PHASE && domain->state == HVMEM_DOMAIN_DYING));
    if (status != HVMEM_OK)
        return status;
    domain->state = HVMEM_DOMAIN_DYING;
    domain->claim_any = 0;
    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        domain->claim_node[node] = 0;
    return status;
}

hvmem_status shadow_domain_gone(struct shadow *shadow, hvmem_u32 id)
{
    struct shadow_domain *domain = &shadow->domain[id];
    hvmem_status status = world_domain_gone(shadow->world, domain->handle);

    if (domain->state != HVMEM_DOMAIN_DYING)
        judge(shadow, "domain_destroy", id, status, status == HVMEM_E_PHASE);
    else if (domain->pages != 0)
        judge(shadow, "domain_destroy", id, status, status == HVMEM_E_BUSY);
    else
        judge(shadow, "domain_destroy", id, status, status == HVMEM_OK);
    if (status == HVMEM_OK)
        *domain = (struct shadow_domain){0};
    return status;
}

hvmem_status shadow_domain_limit(struct shadow *shadow, hvmem_u32 id, hvmem_u64 limit)
{
    hvmem_status status = hvmem_domain_limit(shadow->domain[id].handle, limit);

    judge(shadow, "domain_limit", id, status, status == HVMEM_OK);
    if (status == HVMEM_OK)
        shadow->domain[id].limit = limit;
    return status;
}

hvmem_status shadow_claim(struct shadow *shadow, hvmem_u32 id, hvmem_node node, hvmem_u64 frames)
{
    struct shadow_domain *domain = &shadow->domain[id];
    bool any = node == HVMEM_NODE_ANY;
    bool exists = any || (node < HVMEM_NODE_LIMIT && node_has_memory(shadow, node));
    hvmem_u64 *claim = any || !exists ? &domain->claim_any : &domain->claim_node[node];
    hvmem_u64 old = *claim;
    hvmem_status status = hvmem_domain_claim(domain->handle, node, frames);
    hvmem_u64 mine = 0;
    hvmem_node at;
    bool room;

    if (!exists || domain->state == HVMEM_DOMAIN_DYING) {
        judge(shadow, "claim", id, status,
              (status == HVMEM_E_NODE && !exists) ||
                  (status == HVMEM_E_DOMAIN && domain->state == HVMEM_DOMAIN_DYING));
        return status;
    }
    *claim = 0;
    room = frames <=
           shadow_free_count(shadow, HVMEM_NODE_ANY) - shadow_claims(shadow, HVMEM_NODE_ANY, false);
    if (!any && shadow_free_count(shadow, node) < shadow_claims(shadow, node, true) + frames)
        room = false;
    for (at = 0; at < HVMEM_NODE_LIMIT; at++)
        mine += domain->claim_node[at];
    mine += domain->claim_any + domain->pages;
    *claim = old;
    if (status == HVMEM_E_LIMIT)
        judge(shadow, "claim", id, status, mine > domain->limit || domain->limit - mine < frames);
    else
        judge(shadow, "claim", id, status, status == (room ? HVMEM_OK : HVMEM_E_NOMEM));
    if (status == HVMEM_OK)
        *claim = frames;
    return status;
}
