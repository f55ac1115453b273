/* SPDX-License-Identifier: BSD-2-Clause */
/* Brute force over the array: what fits, what is claimed, what a free must answer. */
#include "shadow.h"

struct shadow_frame *shadow_at(struct shadow *shadow, hvmem_mfn mfn)
{
    if (mfn < shadow->base || mfn - shadow->base >= shadow->span)
        return NULL;
    return &shadow->frame[mfn - shadow->base];
}

hvmem_u32 shadow_id(struct shadow *shadow, const struct hvmem_domain *domain)
{
    hvmem_u32 id;

    for (id = 1; domain != NULL && id <= SHADOW_MAX_DOMAINS; id++)
        if (shadow->domain[id].handle == domain)
            return id;
    return 0;
}

hvmem_u64 shadow_free_count(struct shadow *shadow, hvmem_node node)
{
    hvmem_u64 count = 0;
    hvmem_u64 i;

    for (i = 0; i < shadow->span; i++)
        count += shadow->frame[i].state == SHADOW_FREE &&
                 (node == HVMEM_NODE_ANY || shadow->frame[i].node == node);
    return count;
}

hvmem_u64 shadow_claims(struct shadow *shadow, hvmem_node node, bool node_claims_only)
{
    hvmem_u64 count = 0;
    hvmem_u32 id;
    hvmem_node at;

    for (id = 1; id <= SHADOW_MAX_DOMAINS; id++) {
        if (shadow->domain[id].handle == NULL)
            continue;
        if (!node_claims_only)
            count += shadow->domain[id].claim_any;
        for (at = 0; at < HVMEM_NODE_LIMIT; at++)
            if (node == HVMEM_NODE_ANY || node == at)
                count += shadow->domain[id].claim_node[at];
    }
    return count;
}

hvmem_u64 shadow_wanted(const struct hvmem_request *request)
{
    return request->count != 0 ? request->count : 1ull << request->order;
}

hvmem_u64 shadow_nodes(struct shadow *shadow, const struct hvmem_request *request)
{
    const struct shadow_domain *domain = &shadow->domain[shadow_id(shadow, request->domain)];
    hvmem_u64 nodes = ~0ull;

    if (request->node_mask != 0)
        nodes &= request->node_mask;
    if (request->domain != NULL && domain->node_mask != 0)
        nodes &= domain->node_mask;
    if ((request->flags & HVMEM_REQ_EXACT_NODE) && request->node < HVMEM_NODE_LIMIT)
        nodes &= 1ull << request->node;
    return nodes;
}

static bool free_on(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_node node)
{
    const struct shadow_frame *frame;
    hvmem_u64 i;

    for (i = 0; i < count; i++) {
        frame = shadow_at(shadow, mfn + i);
        if (frame == NULL || frame->state != SHADOW_FREE || frame->node != node)
            return false;
    }
    return true;
}

static hvmem_u32 order_for(hvmem_u64 count)
{
    hvmem_u32 order = 0;

    while ((1ull << order) < count)
        order++;
    return order;
}

bool shadow_fits(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node)
{
    hvmem_u64 count = shadow_wanted(request);
    hvmem_u32 align = request->count != 0 ? request->align : request->order;
    hvmem_u64 step = 1ull << align;
    hvmem_mfn lo = request->lo > shadow->base ? request->lo : shadow->base;
    hvmem_mfn hi = shadow->base + shadow->span;
    hvmem_mfn mfn;

    if (request->hi != 0 && request->hi < hi)
        hi = request->hi;
    if (order_for(count) > shadow->world->config.max_order)
        return false;
    for (mfn = (lo + step - 1) & ~(step - 1); mfn < hi && hi - mfn >= count; mfn += step) {
        if (request->colour_mask != 0 &&
            ((mfn >> request->colour_shift) & request->colour_mask) != request->colour)
            continue;
        if (free_on(shadow, mfn, count, node))
            return true;
    }
    return false;
}

bool shadow_unclaimed(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node)
{
    const struct shadow_domain *domain = &shadow->domain[shadow_id(shadow, request->domain)];
    hvmem_u64 wanted = shadow_wanted(request);
    bool draws = request->domain != NULL && !(request->flags & HVMEM_REQ_NO_CLAIM);
    hvmem_u64 from_node = draws ? domain->claim_node[node] : 0;
    hvmem_u64 from_any = draws ? domain->claim_any : 0;
    hvmem_u64 unpromised;

    if (from_node > wanted)
        from_node = wanted;
    if (from_any > wanted - from_node)
        from_any = wanted - from_node;
    /* What a domain draws on its own claims it may have, even if bad frames broke a promise. */
    unpromised = wanted - from_node;
    if (unpromised != 0 &&
        shadow_free_count(shadow, node) < shadow_claims(shadow, node, true) + unpromised)
        return false;
    unpromised -= from_any;
    return unpromised == 0 || shadow_free_count(shadow, HVMEM_NODE_ANY) >=
                                  shadow_claims(shadow, HVMEM_NODE_ANY, false) + unpromised;
}

void shadow_use_claims(struct shadow *shadow, const struct hvmem_request *request, hvmem_node node)
{
    struct shadow_domain *domain = &shadow->domain[shadow_id(shadow, request->domain)];
    hvmem_u64 left = shadow_wanted(request);
    hvmem_u64 use;

    if (request->domain == NULL || (request->flags & HVMEM_REQ_NO_CLAIM))
        return;
    use = left < domain->claim_node[node] ? left : domain->claim_node[node];
    domain->claim_node[node] -= use;
    left -= use;
    use = left < domain->claim_any ? left : domain->claim_any;
    domain->claim_any -= use;
}

hvmem_status shadow_free_code(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order,
                              hvmem_u32 domain_id)
{
    const struct shadow_frame *frame = shadow_at(shadow, mfn);

    if (order != HVMEM_ORDER_ANY && order > shadow->world->config.max_order)
        return HVMEM_E_ORDER;
    if (frame == NULL)
        return HVMEM_E_FOREIGN;
    switch ((enum shadow_state)frame->state) {
    case SHADOW_HOLE:
        return HVMEM_E_FOREIGN;
    case SHADOW_FREE:
        return HVMEM_E_FREE;
    case SHADOW_RESERVED:
        return HVMEM_E_RESERVED;
    case SHADOW_OFFLINE:
        return HVMEM_E_OFFLINE;
    case SHADOW_USED:
    case SHADOW_LEAVING:
    default:
        break;
    }
    if (frame->head != mfn)
        return HVMEM_E_INTERIOR;
    if (order != HVMEM_ORDER_ANY && order != frame->order)
        return HVMEM_E_WRONG_ORDER;
    if (domain_id != ~0u && frame->owner != domain_id)
        return HVMEM_E_OWNER;
    return HVMEM_OK;
}

void shadow_freed(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_u32 owed)
{
    hvmem_u64 i;

    for (i = 0; i < count; i++) {
        struct shadow_frame *frame = shadow_at(shadow, mfn + i);
        hvmem_u32 leaves = owed;

        if (frame->owner != 0) {
            leaves |= shadow->world->config.owed_on_free;
            shadow->domain[frame->owner].pages--;
        }
        world_owe(shadow->world, mfn + i, 1, leaves);
        if (world_owed(shadow->world, mfn + i, 1) & HVMEM_OWES_SCRUB)
            frame->maybe_dirty = 1;
        frame->state = frame->state == SHADOW_LEAVING ? SHADOW_OFFLINE : SHADOW_FREE;
        frame->owner = 0;
    }
}

/* What is deferred keeps what must be paid after it: TLB, host kinds, SCRUB, DCACHE, ICACHE. */
hvmem_u32 shadow_deferred(hvmem_u32 flags)
{
    hvmem_u32 owed = 0;

    if (flags & HVMEM_REQ_DEFER_TLB)
        return HVMEM_OWES_ANY;
    if (flags & HVMEM_REQ_DEFER_ICACHE)
        owed |= HVMEM_OWES_ICACHE;
    if (flags & HVMEM_REQ_DEFER_DCACHE)
        owed |= HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE;
    if (flags & HVMEM_REQ_DEFER_SCRUB)
        owed |= HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE;
    if (flags & HVMEM_REQ_DEFER_HOST)
        owed |= HVMEM_OWES_ANY & ~(HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN);
    return owed;
}

void shadow_learn(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn end = mfn + count;

    while (mfn < end) {
        struct shadow_frame *frame = shadow_at(shadow, mfn);
        struct hvmem_block block = {0};
        hvmem_u64 i;

        if (frame == NULL || (frame->state != SHADOW_USED && frame->state != SHADOW_LEAVING &&
                              frame->state != SHADOW_RESERVED)) {
            mfn++;
            continue;
        }
        if (hvmem_lookup(shadow->world->heap, mfn, &block) != HVMEM_OK || block.mfn > mfn ||
            block.order > shadow->world->config.max_order ||
            (block.mfn & ((1ull << block.order) - 1)) != 0 ||
            mfn - block.mfn >= (1ull << block.order)) {
            shadow_fail(shadow, "frame %#llx: look-up gives block %#llx order %u",
                        (unsigned long long)mfn, (unsigned long long)block.mfn, block.order);
            return;
        }
        for (i = 0; i < 1ull << block.order; i++) {
            struct shadow_frame *part = shadow_at(shadow, block.mfn + i);

            if (part == NULL || part->owner != frame->owner || part->node != frame->node ||
                (part->state == SHADOW_FREE) || part->state == SHADOW_HOLE ||
                (part->state == SHADOW_RESERVED) != (frame->state == SHADOW_RESERVED)) {
                shadow_fail(shadow, "block %#llx order %u holds frames of others",
                            (unsigned long long)block.mfn, block.order);
                return;
            }
            part->head = block.mfn;
            part->order = (unsigned char)block.order;
        }
        mfn = block.mfn + (1ull << block.order);
    }
}
