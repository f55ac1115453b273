/* SPDX-License-Identifier: BSD-2-Clause */
/* The shadow's mirror of allocation, free and reserve: make the call, judge it, do the same here. */
#include "shadow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct shadow *shadow_new(struct world *world, hvmem_mfn base, hvmem_u64 span)
{
    struct shadow *shadow = calloc(1, sizeof *shadow);

    if (shadow == NULL)
        abort();
    shadow->world = world;
    shadow->base = base;
    shadow->span = span;
    shadow->frame = calloc(span, sizeof *shadow->frame);
    if (shadow->frame == NULL)
        abort();
    world_track(world, base, span);
    return shadow;
}

void shadow_delete(struct shadow *shadow)
{
    free(shadow->frame);
    free(shadow);
}

void shadow_fail(struct shadow *shadow, const char *format, ...)
{
    va_list arguments;
    int used;

    if (shadow->failure[0] != '\0')
        return;
    used = snprintf(shadow->failure, sizeof shadow->failure,
                    "step %llu: ", (unsigned long long)shadow->steps);
    va_start(arguments, format);
    vsnprintf(shadow->failure + used, sizeof shadow->failure - (size_t)used, format, arguments);
    va_end(arguments);
}

/* Some debt of a free frame could not be paid for want of an operation. */
static bool unpayable(const struct shadow *shadow)
{
    return (shadow->world->flags &
            (WORLD_NO_HOST | WORLD_NO_BACKEND | WORLD_NO_MAP | WORLD_NO_SETTLE)) != 0;
}

/* Why may the heap refuse this request with this code? */
static bool refusal_true(struct shadow *shadow, const struct hvmem_request *request,
                         hvmem_status status, unsigned failed_before)
{
    const struct shadow_domain *domain = &shadow->domain[shadow_id(shadow, request->domain)];
    hvmem_u64 nodes = shadow_nodes(shadow, request);
    bool fits = false;
    bool allowed = false;
    hvmem_node node;

    for (node = 0; node < HVMEM_NODE_LIMIT; node++) {
        if (!(nodes >> node & 1) || !shadow_fits(shadow, request, node))
            continue;
        fits = true;
        allowed = allowed || shadow_unclaimed(shadow, request, node);
    }
    switch (status) {
    case HVMEM_E_NOMEM:
        return !fits;
    case HVMEM_E_CLAIM:
        return fits && !allowed;
    case HVMEM_E_LIMIT:
        return request->domain != NULL && (domain->pages > domain->limit ||
                                           domain->limit - domain->pages < shadow_wanted(request));
    case HVMEM_E_DOMAIN:
        return request->domain != NULL && domain->state == HVMEM_DOMAIN_DYING;
    case HVMEM_E_PHASE:
        return (request->flags & HVMEM_REQ_DEFER_ALL) &&
               (request->domain == NULL || domain->state != HVMEM_DOMAIN_BUILDING);
    case HVMEM_E_WOULD_FLUSH:
        return (request->flags & HVMEM_REQ_NOFLUSH) != 0;
    case HVMEM_E_HOST:
        return shadow->world->fail_count != failed_before;
    case HVMEM_E_UNSUPPORTED:
        return unpayable(shadow);
    case HVMEM_E_NODE:
        for (node = 0; node < HVMEM_NODE_LIMIT; node++)
            for (hvmem_u64 i = 0; (nodes >> node & 1) && i < shadow->span; i++)
                if (shadow->frame[i].state != SHADOW_HOLE && shadow->frame[i].node == node)
                    return false;
        return true;
    default:
        return false;
    }
}

/* A success that nothing forbade? */
static void judge_success(struct shadow *shadow, const struct hvmem_request *request, hvmem_mfn mfn)
{
    hvmem_u64 count = shadow_wanted(request);
    hvmem_u32 align = request->count != 0 ? request->align : request->order;
    struct shadow_frame *first = shadow_at(shadow, mfn);
    hvmem_u32 id = shadow_id(shadow, request->domain);
    hvmem_u64 i;

    for (i = 0; i < count; i++) {
        struct shadow_frame *frame = shadow_at(shadow, mfn + i);

        if (frame == NULL || frame->state != SHADOW_FREE || frame->node != first->node) {
            shadow_fail(shadow, "%#llx + %llu handed out, but %#llx was not free on that node",
                        (unsigned long long)mfn, (unsigned long long)count,
                        (unsigned long long)(mfn + i));
            return;
        }
    }
    if ((mfn & ((1ull << align) - 1)) || mfn < request->lo ||
        (request->hi != 0 && mfn + count > request->hi) ||
        (request->colour_mask != 0 &&
         ((mfn >> request->colour_shift) & request->colour_mask) != request->colour))
        shadow_fail(shadow, "%#llx + %llu: outside its window, alignment or colour",
                    (unsigned long long)mfn, (unsigned long long)count);
    if (!(shadow_nodes(shadow, request) >> first->node & 1))
        shadow_fail(shadow, "%#llx is on node %u; flags %#x node %d mask %#llx, domain %#llx",
                    (unsigned long long)mfn, first->node, request->flags, (int)request->node,
                    (unsigned long long)request->node_mask,
                    (unsigned long long)shadow->domain[id].node_mask);
    if (!shadow_unclaimed(shadow, request, first->node))
        shadow_fail(shadow, "%#llx + %llu was claimed by others", (unsigned long long)mfn,
                    (unsigned long long)count);
    if (id != 0 && (shadow->domain[id].state == HVMEM_DOMAIN_DYING ||
                    shadow->domain[id].pages > shadow->domain[id].limit ||
                    shadow->domain[id].limit - shadow->domain[id].pages < count))
        shadow_fail(shadow, "domain %u is dying or beyond its limit", id);
    if ((request->flags & HVMEM_REQ_DEFER_ALL) &&
        (id == 0 || shadow->domain[id].state != HVMEM_DOMAIN_BUILDING))
        shadow_fail(shadow, "deferral accepted outside BUILDING");
}

/* The frames are used now; their debts are paid or stay, as the flags say. */
static void take(struct shadow *shadow, const struct hvmem_request *request, hvmem_mfn mfn)
{
    hvmem_u64 count = shadow_wanted(request);
    hvmem_u32 kept = shadow_deferred(request->flags);
    hvmem_u32 id = shadow_id(shadow, request->domain);
    hvmem_u32 owed = world_owed(shadow->world, mfn, count);
    struct shadow_frame *first;
    hvmem_u64 i;

    judge_success(shadow, request, mfn);
    if (shadow->failure[0] != '\0')
        return;
    first = shadow_at(shadow, mfn);
    shadow_use_claims(shadow, request, first->node);
    shadow->domain[id].pages += id != 0 ? count : 0;
    if (owed & ~kept & ~HVMEM_OWES_FOREIGN)
        shadow_fail(shadow, "%#llx + %llu handed out owing %#x", (unsigned long long)mfn,
                    (unsigned long long)count, owed & ~kept);
    for (i = 0; i < count; i++) {
        struct shadow_frame *frame = shadow_at(shadow, mfn + i);

        frame->state = SHADOW_USED;
        frame->owner = id;
        if (!(kept & HVMEM_OWES_SCRUB))
            frame->maybe_dirty = 0;
    }
    shadow_learn(shadow, mfn, count);
    if (request->count == 0 && (first->order != request->order || first->head != mfn))
        shadow_fail(shadow, "%#llx: asked for order %u, look-up says %u", (unsigned long long)mfn,
                    request->order, first->order);
}

hvmem_status shadow_alloc(struct shadow *shadow, const struct hvmem_request *request,
                          hvmem_mfn *mfn)
{
    const hvmem_mfn untouched = 0xdeadbeefdeadbeefu;
    unsigned failed = shadow->world->fail_count;
    hvmem_status status;

    *mfn = untouched;
    status = hvmem_alloc(shadow->world->heap, request, mfn);
    if (status == HVMEM_OK)
        take(shadow, request, *mfn);
    else if (!refusal_true(shadow, request, status, failed))
        shadow_fail(shadow, "allocation of %llu frames refused with %d for no reason",
                    (unsigned long long)shadow_wanted(request), status);
    else if (*mfn != untouched)
        shadow_fail(shadow, "refused allocation wrote its result");
    return status;
}

hvmem_status shadow_alloc_bulk(struct shadow *shadow, const struct hvmem_request *request,
                               hvmem_mfn *frames, hvmem_u32 n, hvmem_u32 *got)
{
    unsigned failed = shadow->world->fail_count;
    hvmem_status status;
    hvmem_u32 i;

    *got = ~0u;
    status = hvmem_alloc_bulk(shadow->world->heap, request, frames, n, got);
    if (*got > n || (status == HVMEM_OK) != (*got == n)) {
        shadow_fail(shadow, "bulk: status %d with %u of %u", status, *got, n);
        return status;
    }
    for (i = 0; i < *got && shadow->failure[0] == '\0'; i++)
        take(shadow, request, frames[i]);
    if (status != HVMEM_OK && !refusal_true(shadow, request, status, failed))
        shadow_fail(shadow,
                    "bulk: stopped with %d after %u of %u for no reason; order %u flags %#x "
                    "node %d domain %u",
                    status, *got, n, request->order, request->flags, (int)request->node,
                    shadow_id(shadow, request->domain));
    return status;
}

/* After a free that succeeded: the block that starts here is gone. */
static void release_block(struct shadow *shadow, hvmem_mfn mfn, hvmem_u32 owed)
{
    hvmem_u64 count = 1ull << shadow_at(shadow, mfn)->order;

    shadow_freed(shadow, mfn, count, owed);
}

static void judge(struct shadow *shadow, const char *call, hvmem_mfn mfn, hvmem_status got,
                  hvmem_status expected)
{
    if (got != expected)
        shadow_fail(shadow, "%s of %#llx gave %d, not %d", call, (unsigned long long)mfn, got,
                    expected);
}

/* What the heap believes a block owes spreads over all its frames when it is freed. */
static void spread_scrub(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn end = mfn + count;
    struct hvmem_block block;
    hvmem_u64 i;

    while (mfn < end && hvmem_lookup(shadow->world->heap, mfn, &block) == HVMEM_OK) {
        for (i = 0; (block.owed & HVMEM_OWES_SCRUB) && i < 1ull << block.order; i++)
            if (shadow_at(shadow, block.mfn + i) != NULL)
                shadow_at(shadow, block.mfn + i)->maybe_dirty = 1;
        mfn = block.mfn + (1ull << block.order);
    }
}

hvmem_status shadow_free(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order)
{
    hvmem_status expected = shadow_free_code(shadow, mfn, order, ~0u);
    hvmem_status status;

    if (expected == HVMEM_OK)
        spread_scrub(shadow, mfn, 1);
    status = hvmem_free(shadow->world->heap, mfn, order);
    judge(shadow, "free", mfn, status, expected);
    if (status == HVMEM_OK && expected == HVMEM_OK)
        release_block(shadow, mfn, 0);
    return status;
}

hvmem_status shadow_free_owned(struct shadow *shadow, hvmem_mfn mfn, hvmem_order order,
                               hvmem_u32 id, hvmem_u32 owed)
{
    hvmem_status expected = shadow_free_code(shadow, mfn, order, id);
    hvmem_status status;

    if (expected == HVMEM_OK)
        spread_scrub(shadow, mfn, 1);
    status = hvmem_free_owned(shadow->world->heap, mfn, order, shadow->domain[id].handle, owed);
    judge(shadow, "free_owned", mfn, status, expected);
    if (status == HVMEM_OK && expected == HVMEM_OK)
        release_block(shadow, mfn, owed);
    return status;
}

/* Every code that some frame of the run gives reason for; OK only if there is none. */
static bool run_code_true(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count, hvmem_status code)
{
    bool clean = true;
    hvmem_u64 i;

    if (count == 0 || mfn + count < mfn || (mfn + count) >> (HVMEM_MADDR_BITS - 12) > 1)
        return code == HVMEM_E_RANGE || code == HVMEM_E_COUNT;
    for (i = 0; i < count; i++) {
        const struct shadow_frame *frame = shadow_at(shadow, mfn + i);

        if (frame == NULL || frame->state == SHADOW_HOLE) {
            if (code == HVMEM_E_FOREIGN)
                return true;
            return code != HVMEM_OK && i != 0 ? run_code_true(shadow, mfn, i, code) : false;
        }
        if ((frame->state == SHADOW_FREE && code == HVMEM_E_FREE) ||
            (frame->state == SHADOW_OFFLINE && code == HVMEM_E_OFFLINE))
            return true;
        clean = clean && frame->state != SHADOW_FREE && frame->state != SHADOW_OFFLINE;
    }
    return clean && code == HVMEM_OK;
}

hvmem_status shadow_free_run(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_mfn from = mfn;
    hvmem_mfn to = mfn + count;
    hvmem_status status;

    if (run_code_true(shadow, mfn, count, HVMEM_OK)) {
        const struct shadow_frame *last = shadow_at(shadow, mfn + count - 1);

        from = shadow_at(shadow, mfn)->head;
        to = last->head + (1ull << last->order);
        spread_scrub(shadow, mfn, count);
    }
    status = hvmem_free_run(shadow->world->heap, mfn, count);
    if (!run_code_true(shadow, mfn, count, status))
        shadow_fail(shadow, "free_run of %#llx + %llu gave %d", (unsigned long long)mfn,
                    (unsigned long long)count, status);
    else if (status == HVMEM_OK) {
        shadow_freed(shadow, mfn, count, 0);
        shadow_learn(shadow, from, mfn - from);
        shadow_learn(shadow, mfn + count, to - (mfn + count));
    }
    return status;
}

hvmem_status shadow_free_bulk(struct shadow *shadow, const hvmem_mfn *frames, hvmem_u32 n,
                              hvmem_order order, hvmem_u32 *done)
{
    hvmem_status status;
    hvmem_u32 i;

    for (i = 0; i < n; i++)
        if (shadow_free_code(shadow, frames[i], order, ~0u) == HVMEM_OK)
            spread_scrub(shadow, frames[i], 1);
    *done = ~0u;
    status = hvmem_free_bulk(shadow->world->heap, frames, n, order, done);
    if (*done > n || (status == HVMEM_OK) != (*done == n)) {
        shadow_fail(shadow, "free_bulk: status %d with %u of %u", status, *done, n);
        return status;
    }
    for (i = 0; i < *done && shadow->failure[0] == '\0'; i++) {
        judge(shadow, "free_bulk", frames[i], HVMEM_OK,
              shadow_free_code(shadow, frames[i], order, ~0u));
        if (shadow->failure[0] == '\0')
            release_block(shadow, frames[i], 0);
    }
    if (*done < n && shadow->failure[0] == '\0')
        judge(shadow, "free_bulk", frames[*done], status,
              shadow_free_code(shadow, frames[*done], order, ~0u));
    return status;
}

/* Would fewer frames be left, in all or on a node of the run, than are promised? */
static bool breaks_claims(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_u64 wanted[HVMEM_NODE_LIMIT] = {0};
    hvmem_node node;
    hvmem_u64 i;

    if (shadow_free_count(shadow, HVMEM_NODE_ANY) <
        shadow_claims(shadow, HVMEM_NODE_ANY, false) + count)
        return true;
    for (i = 0; i < count && shadow_at(shadow, mfn + i) != NULL; i++)
        wanted[shadow_at(shadow, mfn + i)->node]++;
    for (node = 0; node < HVMEM_NODE_LIMIT; node++)
        if (wanted[node] != 0 &&
            shadow_free_count(shadow, node) < shadow_claims(shadow, node, true) + wanted[node])
            return true;
    return false;
}

hvmem_status shadow_reserve(struct shadow *shadow, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_status status = hvmem_reserve(shadow->world->heap, mfn, count);
    bool foreign = false;
    bool busy = false;
    bool right;
    hvmem_u64 i;

    if (count == 0 || mfn + count < mfn) {
        right = status == HVMEM_E_RANGE || status == HVMEM_E_COUNT;
    } else {
        for (i = 0; i < count && !(foreign && busy); i++) {
            const struct shadow_frame *frame = shadow_at(shadow, mfn + i);

            foreign = foreign || frame == NULL || frame->state == SHADOW_HOLE;
            busy = busy || (frame != NULL && frame->state > SHADOW_FREE);
            if (frame == NULL)
                break;
        }
        right = (status == HVMEM_E_FOREIGN && foreign) || (status == HVMEM_E_BUSY && busy) ||
                (status == HVMEM_OK && !foreign && !busy);
    }
    if (!right && status == HVMEM_E_CLAIM)
        right = breaks_claims(shadow, mfn, count);
    if (!right)
        shadow_fail(shadow, "reserve of %#llx + %llu gave %d", (unsigned long long)mfn,
                    (unsigned long long)count, status);
    if (status != HVMEM_OK || shadow->failure[0] != '\0')
        return status;
    for (i = 0; i < count; i++) {
        shadow_at(shadow, mfn + i)->state = SHADOW_RESERVED;
        shadow_at(shadow, mfn + i)->owner = 0;
    }
    shadow_learn(shadow, mfn, count);
    return status;
}
