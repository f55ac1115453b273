/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways of moves.h into a domain that is being built: hvmem_domain_populate, which must have flushed
 * before it maps the first frame, and a deferred debt that hvmem_domain_start pays.
 */
#include <hvmem/populate.h>

#include "test/metal/moves.h"

static struct hvmem_domain *built, *started;

/* ---- populate ---- */

static unsigned mapped;

/* The new owner's tables are a list of frames here. */
static HVMEM_CALLBACK hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx;
    CHECK_EQUAL(order, 0);
    CHECK(gfn < MOVE_FRAMES);
    moves.frame[gfn % MOVE_FRAMES] = mfn;
    if (mapped++ == 0 && moves.executes)
        CHECK_EQUAL(move_stale(move_all_cpus()), 0);
    return HVMEM_OK;
}

static int built_make(void)
{
    const struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map};

    built = move_domain(4);
    return built != NULL && CHECK_EQUAL(hvmem_domain_attach(built, &ops, NULL, NULL), HVMEM_OK);
}

int move_populate(void)
{
    struct hvmem_extent extents[MOVE_FRAMES];
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = MOVE_FRAMES, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    if (built == NULL && !built_make())
        return 0;
    mapped = 0;
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        extents[i] = (struct hvmem_extent){.gfn = i};
    do
        status = hvmem_domain_populate(built, &request, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQUAL(mapped, MOVE_FRAMES);
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        CHECK_EQUAL(extents[i].mfn, moves.frame[i]);
    return status == HVMEM_OK;
}

/* ---- start ---- */

static int domain_anew(void)
{
    if (started != NULL)
        CHECK(hvmem_domain_kill(started) == HVMEM_OK && hvmem_domain_destroy(started) == HVMEM_OK);
    started = move_domain(5);
    return started != NULL;
}

/* Nothing is flushed before the start, and A still reads what the builder writes. */
static int take_started(void)
{
    int good = domain_anew() && move_take(started, HVMEM_REQ_DEFER_ALL);

    move_write();
    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    CHECK_EQUAL(moves.batches, 0);
    return good & (hvmem_domain_start(started) == HVMEM_OK);
}

void move_run_built(void)
{
    const uint64_t cpus = moves.cpus;
    const struct path paths[] = {
        {"populated", move_free, move_populate, {1, 1}, {cpus, 0}, {cpus, 1}, 0},
        {"deferred to the start", move_free, take_started, {1, 1}, {cpus, 0}, {cpus, 1}, 0},
    };

    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        move_run(&paths[i]);
}
