/* SPDX-License-Identifier: BSD-2-Clause */
/* The shared checks of expect.h. */
#include "expect.h"

#include <stdlib.h>
#include <string.h>

struct refusal refusal_begin(struct world *world)
{
    bool quiet = world->config.lock_regime == HVMEM_LOCK_CALLER;
    struct refusal refusal = {world, snapshot_take(world, quiet), world->counts.reports};

    refusal.reports = world->counts.reports;
    return refusal;
}

static void check_report(const struct refusal *refusal, hvmem_status code, hvmem_mfn mfn,
                         const char *text, const char *file, int line)
{
    const struct world *world = refusal->world;
    uint64_t reports = world->counts.reports - refusal->reports;
    bool mistake = code <= HVMEM_E_ARG;

    if (world->flags & WORLD_NO_HOST)
        return;
    if (!test_check_eq(reports, mistake, "reports", file, line, 0)) {
        test_note("%s gave %d: wrong number of reports", text, code);
        return;
    }
    if (!mistake)
        return;
    test_check_eq((uint64_t)world->report.code, (uint64_t)code, "code reported", file, line, 0);
    if (mfn != EXPECT_NO_MFN)
        test_check_eq(world->report.mfn, mfn, "frame reported", file, line, 0);
}

void refusal_end(struct refusal *refusal, hvmem_status got, hvmem_status code, hvmem_mfn mfn,
                 const char *text, const char *file, int line)
{
    struct world *world = refusal->world;
    struct snapshot *after;
    const char *difference;

    if (!test_check_eq((uint64_t)got, (uint64_t)code, text, file, line, 0)) {
        snapshot_delete(refusal->before);
        return;
    }
    check_report(refusal, code, mfn, text, file, line);
    after = snapshot_take(world, refusal->before->tables != NULL);
    /* A block taken and given back leaves other bytes in records that mean nothing. */
    if (code > HVMEM_E_ARG || code == HVMEM_E_UNSUPPORTED) {
        free(after->tables);
        after->tables = NULL;
    }
    difference = snapshot_difference(refusal->before, after);
    if (!test_check(difference == NULL, text, file, line, 0))
        test_note("%s gave %d as it should, but changed %s", text, code, difference);
    if (code <= HVMEM_E_ARG && !test_check_eq(after->all.refused - refusal->before->all.refused, 1,
                                              "calls counted", file, line, 0))
        test_note("%s gave %d: not counted once", text, code);
    snapshot_delete(after);
    snapshot_delete(refusal->before);
}

void expect_audit(struct world *world, const char *file, int line)
{
    hvmem_mfn mfn = 0;
    const char *where = "";
    hvmem_status status = hvmem_audit(world->heap, &mfn, &where);

    if (!test_check_eq((uint64_t)status, HVMEM_OK, "audit", file, line, 0))
        test_note("audit: frame %#llx: %s", (unsigned long long)mfn, where);
    if (!test_check(world->failure[0] == '\0', "rules of host and back-end", file, line, 0))
        test_note("%s", world->failure);
}

struct world *expect_world(const struct hvmem_config *config, unsigned flags, const char *file,
                           int line)
{
    hvmem_status status = HVMEM_OK;
    struct world *world = world_new(config, flags, &status);

    test_check_eq((uint64_t)status, HVMEM_OK, "heap made", file, line, 1);
    return world;
}

void expect_end(struct world *world, const char *file, int line)
{
    expect_audit(world, file, line);
    test_check(world_delete(world), "world left whole", file, line, 0);
}

bool expect_shadow_end(struct shadow *shadow, const char *file, int line)
{
    struct world *world = shadow->world;
    bool good;

    shadow_check(shadow);
    good = test_check(shadow->failure[0] == '\0', "heap and shadow agree", file, line, 0);
    if (!good)
        test_note("%s", shadow->failure);
    shadow_delete(shadow);
    expect_end(world, file, line);
    return good;
}

void expect_torn_down(struct world *world, struct hvmem_domain *domain, const char *file, int line)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned calls = 0;

    do
        status = hvmem_domain_teardown(domain, 0, &cursor);
    while (status == HVMEM_AGAIN && ++calls < 1000000);
    test_check_eq((uint64_t)status, HVMEM_OK, "domain torn down", file, line, 1);
    test_check_eq((uint64_t)world_domain_gone(world, domain), HVMEM_OK, "domain gone", file, line,
                  0);
}

struct world *expect_simple(hvmem_mfn base, hvmem_u64 frames, const char *file, int line)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.flags |= HVMEM_CONFIG_NO_CPU_CACHE;
    world = expect_world(&config, 0, file, line);
    test_check_eq((uint64_t)world_bank(world, base, frames, 0, 0), HVMEM_OK, "bank added", file,
                  line, 1);
    return world;
}

struct hvmem_request expect_block(hvmem_order order, struct hvmem_domain *domain)
{
    struct hvmem_request request;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.order = order;
    request.node = HVMEM_NODE_ANY;
    request.domain = domain;
    return request;
}

struct hvmem_request expect_run(hvmem_u64 count, hvmem_u32 align, hvmem_mfn lo, hvmem_mfn hi)
{
    struct hvmem_request request = expect_block(0, NULL);

    request.count = count;
    request.align = align;
    request.lo = lo;
    request.hi = hi;
    return request;
}

struct hvmem_stats expect_stats(struct world *world, hvmem_node node)
{
    struct hvmem_stats stats;

    memset(&stats, 0, sizeof stats);
    CHECK_EQ(hvmem_stats(world->heap, node, sizeof stats, &stats), HVMEM_OK);
    return stats;
}

struct hvmem_block expect_lookup(struct world *world, hvmem_mfn mfn)
{
    struct hvmem_block block;

    memset(&block, 0xff, sizeof block);
    CHECK_EQ(hvmem_lookup(world->heap, mfn, &block), HVMEM_OK);
    return block;
}

hvmem_node expect_node(struct world *world, hvmem_mfn mfn)
{
    hvmem_node node = HVMEM_NODE_ANY;

    CHECK_EQ(hvmem_node_of(world->heap, mfn, &node), HVMEM_OK);
    return node;
}

struct hvmem_domain_stats expect_domain(struct hvmem_domain *domain)
{
    struct hvmem_domain_stats stats;

    memset(&stats, 0xff, sizeof stats);
    CHECK_EQ(hvmem_domain_stats(domain, &stats), HVMEM_OK);
    return stats;
}

size_t expect_take_all(struct world *world, hvmem_mfn *frames, size_t room)
{
    size_t got = 0;
    hvmem_mfn mfn;

    while (got < room && hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
        frames[got++] = mfn;
    return got;
}

void expect_free_blocks(struct world *world, const struct expect_free_block *blocks,
                        const char *file, int line)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    while (hvmem_walk(world->heap, &cursor, &block) == HVMEM_AGAIN) {
        if (block.state != HVMEM_BLOCK_FREE)
            continue;
        if (!test_check(blocks->order >= 0, "no more free blocks", file, line, 0)) {
            test_note("free block %#llx order %u not expected", (unsigned long long)block.mfn,
                      block.order);
            return;
        }
        if (!test_check_eq(block.mfn, blocks->mfn, "free block starts", file, line, 0) ||
            !test_check_eq(block.order, (uint64_t)blocks->order, "its order", file, line, 0))
            return;
        blocks++;
    }
    test_check(blocks->order < 0, "all free blocks found", file, line, 0);
}
