/* SPDX-License-Identifier: BSD-2-Clause */
/* The comparison of the heap with the shadow's array: all that can be seen must agree. */
#include "shadow.h"

#include <string.h>

static unsigned block_state(const struct shadow_frame *frame)
{
    switch ((enum shadow_state)frame->state) {
    case SHADOW_USED:
        return HVMEM_BLOCK_ALLOCATED;
    case SHADOW_RESERVED:
        return HVMEM_BLOCK_RESERVED;
    case SHADOW_LEAVING:
        return HVMEM_BLOCK_OFFLINING;
    case SHADOW_OFFLINE:
        return HVMEM_BLOCK_OFFLINE;
    case SHADOW_HOLE:
    case SHADOW_FREE:
    default:
        return frame->cached ? HVMEM_BLOCK_CACHED : HVMEM_BLOCK_FREE;
    }
}

/* Does the block agree with every frame in it? A block with one leaving frame may say so whole. */
static void check_frames(struct shadow *shadow, const struct hvmem_block *block)
{
    hvmem_u64 i;

    for (i = 0; i < 1ull << block->order; i++) {
        struct shadow_frame *frame = shadow_at(shadow, block->mfn + i);
        bool used;

        if (frame == NULL || frame->state == SHADOW_HOLE || frame->node != block->node) {
            shadow_fail(shadow, "block %#llx order %u node %u: frame %llu is not of this node",
                        (unsigned long long)block->mfn, block->order, block->node,
                        (unsigned long long)i);
            return;
        }
        frame->cached = block->state == HVMEM_BLOCK_CACHED;
        used = frame->state == SHADOW_USED || frame->state == SHADOW_LEAVING;
        if (used &&
            (block->state == HVMEM_BLOCK_ALLOCATED || block->state == HVMEM_BLOCK_OFFLINING)) {
            if (block->owner != frame->owner || block->mfn != frame->head ||
                block->order != frame->order)
                shadow_fail(shadow, "block %#llx order %u owner %u: not as allocated",
                            (unsigned long long)block->mfn, block->order, block->owner);
        } else if (block_state(frame) != block->state || block->owner != 0) {
            shadow_fail(shadow, "frame %#llx: state %u owner %u, should be %u",
                        (unsigned long long)(block->mfn + i), block->state, block->owner,
                        block_state(frame));
        }
    }
}

static void check_owed(struct shadow *shadow, const struct hvmem_block *block)
{
    hvmem_u32 owed = world_owed(shadow->world, block->mfn, 1ull << block->order);
    bool maybe = false;
    hvmem_u64 i;

    if (owed & ~block->owed)
        shadow_fail(shadow, "block %#llx order %u state %u forgot debt %#x (says %#x)",
                    (unsigned long long)block->mfn, block->order, block->state, owed & ~block->owed,
                    block->owed);
    for (i = 0; i < 1ull << block->order; i++)
        maybe = maybe || shadow_at(shadow, block->mfn + i)->maybe_dirty;
    if ((block->owed & HVMEM_OWES_SCRUB) && !maybe)
        shadow_fail(shadow, "block %#llx order %u owes a scrub for no reason",
                    (unsigned long long)block->mfn, block->order);
}

/* Walk: each frame of each bank once, in order, each block as the array says. */
static void check_walk(struct shadow *shadow)
{
    hvmem_u64 cursor = 0;
    hvmem_mfn at = shadow->base;
    struct hvmem_block block;
    struct hvmem_block seen;
    hvmem_status status;

    while ((status = hvmem_walk(shadow->world->heap, &cursor, &block)) == HVMEM_AGAIN &&
           shadow->failure[0] == '\0') {
        if (block.order > shadow->world->config.max_order ||
            (block.mfn & ((1ull << block.order) - 1)) != 0 || block.mfn < at) {
            shadow_fail(shadow, "walk: block %#llx order %u after %#llx",
                        (unsigned long long)block.mfn, block.order, (unsigned long long)at);
            return;
        }
        for (; at < block.mfn; at++)
            if (shadow_at(shadow, at) != NULL && shadow_at(shadow, at)->state != SHADOW_HOLE) {
                shadow_fail(shadow, "walk left out frame %#llx", (unsigned long long)at);
                return;
            }
        check_frames(shadow, &block);
        if (shadow->failure[0] != '\0')
            return;
        check_owed(shadow, &block);
        at = block.mfn + (1ull << block.order);
        memset(&seen, 0, sizeof seen);
        if (hvmem_lookup(shadow->world->heap, at - 1, &seen) != HVMEM_OK || seen.mfn != block.mfn ||
            seen.order != block.order || seen.state != block.state || seen.owner != block.owner ||
            seen.owed != block.owed || seen.node != block.node)
            shadow_fail(shadow, "look-up of %#llx differs from walk", (unsigned long long)(at - 1));
    }
    for (; at - shadow->base < shadow->span; at++)
        if (shadow_at(shadow, at)->state != SHADOW_HOLE && shadow->failure[0] == '\0')
            shadow_fail(shadow, "walk ended before frame %#llx", (unsigned long long)at);
    if (status < 0)
        shadow_fail(shadow, "walk gave %d", status);
}

/* Order of the largest free block that starts here. */
static hvmem_u32 largest(struct shadow *shadow, hvmem_mfn mfn)
{
    const struct shadow_frame *first = shadow_at(shadow, mfn);
    hvmem_u32 order = 0;
    hvmem_u64 i;

    while (order < shadow->world->config.max_order && !(mfn & ((2ull << order) - 1))) {
        for (i = 1ull << order; i < 2ull << order; i++) {
            const struct shadow_frame *frame = shadow_at(shadow, mfn + i);

            if (frame == NULL || frame->state != SHADOW_FREE || frame->cached ||
                frame->node != first->node)
                return order;
        }
        order++;
    }
    return order;
}

/* Counts of one node or all, derived from the array: merged as far as merging is allowed. */
static struct hvmem_stats counts(struct shadow *shadow, hvmem_node node)
{
    struct hvmem_stats want;
    hvmem_mfn mfn;

    memset(&want, 0, sizeof want);
    for (mfn = shadow->base; mfn - shadow->base < shadow->span; mfn++) {
        const struct shadow_frame *frame = shadow_at(shadow, mfn);

        if (frame->state == SHADOW_HOLE || (node != HVMEM_NODE_ANY && frame->node != node))
            continue;
        want.frames++;
        want.free += frame->state == SHADOW_FREE;
        want.cached += frame->state == SHADOW_FREE && frame->cached;
        want.allocated += frame->state == SHADOW_USED || frame->state == SHADOW_LEAVING;
        want.reserved += frame->state == SHADOW_RESERVED;
        want.offline += frame->state == SHADOW_OFFLINE;
    }
    for (mfn = shadow->base; mfn - shadow->base < shadow->span;) {
        const struct shadow_frame *frame = shadow_at(shadow, mfn);
        hvmem_u32 order;

        if (frame->state != SHADOW_FREE || frame->cached) {
            mfn++;
            continue;
        }
        order = largest(shadow, mfn);
        want.free_blocks[order] += node == HVMEM_NODE_ANY || frame->node == node;
        mfn += 1ull << order;
    }
    return want;
}

static void check_counts(struct shadow *shadow, hvmem_node node)
{
    const struct hvmem_stats want = counts(shadow, node);
    struct hvmem_stats got;

    memset(&got, 0xee, sizeof got);
    if (hvmem_stats(shadow->world->heap, node, sizeof got, &got) != HVMEM_OK) {
        shadow_fail(shadow, "stats of node %u refused", node);
        return;
    }
    if (got.frames != want.frames || got.free != want.free || got.cached != want.cached ||
        got.allocated != want.allocated || got.reserved != want.reserved ||
        got.offline != want.offline)
        shadow_fail(shadow,
                    "node %d: frames %llu free %llu cached %llu allocated %llu reserved %llu "
                    "offline %llu; should be %llu %llu %llu %llu %llu %llu",
                    (int)node, (unsigned long long)got.frames, (unsigned long long)got.free,
                    (unsigned long long)got.cached, (unsigned long long)got.allocated,
                    (unsigned long long)got.reserved, (unsigned long long)got.offline,
                    (unsigned long long)want.frames, (unsigned long long)want.free,
                    (unsigned long long)want.cached, (unsigned long long)want.allocated,
                    (unsigned long long)want.reserved, (unsigned long long)want.offline);
    for (unsigned order = 0; order <= HVMEM_ORDER_LIMIT; order++)
        if (got.free_blocks[order] != want.free_blocks[order])
            shadow_fail(shadow, "node %d: %llu free blocks of order %u, should be %llu", (int)node,
                        (unsigned long long)got.free_blocks[order], order,
                        (unsigned long long)want.free_blocks[order]);
    if (node == HVMEM_NODE_ANY && (got.claimed != shadow_claims(shadow, node, false) ||
                                   hvmem_free_frames(shadow->world->heap) != want.free))
        shadow_fail(shadow, "claimed %llu, free_frames %llu; should be %llu, %llu",
                    (unsigned long long)got.claimed,
                    (unsigned long long)hvmem_free_frames(shadow->world->heap),
                    (unsigned long long)shadow_claims(shadow, node, false),
                    (unsigned long long)want.free);
}

static void check_domains(struct shadow *shadow)
{
    struct hvmem_domain_stats stats;
    hvmem_u32 id;

    for (id = 1; id <= SHADOW_MAX_DOMAINS; id++) {
        const struct shadow_domain *domain = &shadow->domain[id];
        hvmem_u64 claimed = domain->claim_any;
        hvmem_node node;

        if (domain->handle == NULL)
            continue;
        for (node = 0; node < HVMEM_NODE_LIMIT; node++)
            claimed += domain->claim_node[node];
        if (hvmem_domain_stats(domain->handle, &stats) != HVMEM_OK || stats.id != id ||
            stats.pages != domain->pages || stats.limit != domain->limit ||
            stats.claimed != claimed || stats.state != domain->state)
            shadow_fail(
                shadow, "domain %u: pages %llu claimed %llu state %u; should be %llu %llu %u", id,
                (unsigned long long)stats.pages, (unsigned long long)stats.claimed, stats.state,
                (unsigned long long)domain->pages, (unsigned long long)claimed, domain->state);
    }
}

void shadow_check(struct shadow *shadow)
{
    hvmem_mfn mfn = 0;
    const char *where = "";
    hvmem_u64 nodes = 0;
    hvmem_node node;
    hvmem_u64 i;

    shadow->steps++;
    if (shadow->world->failure[0] != '\0')
        shadow_fail(shadow, "%s", shadow->world->failure);
    if (shadow->failure[0] != '\0')
        return;
    if (hvmem_audit(shadow->world->heap, &mfn, &where) != HVMEM_OK)
        shadow_fail(shadow, "audit: frame %#llx: %s", (unsigned long long)mfn, where);
    check_walk(shadow);
    for (i = 0; i < shadow->span; i++)
        if (shadow->frame[i].state != SHADOW_HOLE)
            nodes |= 1ull << shadow->frame[i].node;
    check_counts(shadow, HVMEM_NODE_ANY);
    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        if (nodes >> node & 1)
            check_counts(shadow, node);
    check_domains(shadow);
}
