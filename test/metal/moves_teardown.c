/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ways of moves.h in which A ends: hvmem_domain_teardown takes its pages out of the window and frees
 * its frames. Without a space they owe the next owner a flush; with one its last flush, of the id on every
 * CPU that holds it, is all there is. Emulators forget an id that a CPU leaves, so the CPUs go on in the
 * window under A's id, as the next space would to which the number is given.
 */
#include "test/metal/moves.h"
#include "test/metal/subject.h"

static struct hvmem_ident *ident;
static struct hvmem_space *space;
static void *space_memory;

/* ---- A's tables are its pages of the window ---- */

static HVMEM_CALLBACK hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx;
    (void)gfn;
    (void)mfn;
    (void)order;
    return HVMEM_E_UNSUPPORTED;
}

/* With a space, its id was flushed before its tables are touched. */
static HVMEM_CALLBACK hvmem_status unmap_all(void *ctx, struct hvmem_cursor *cursor)
{
    (void)cursor;
    CHECK_EQUAL(moves.batches != 0, ctx != NULL);
    move_unmap();
    return HVMEM_OK;
}

static void attach(struct hvmem_space *of)
{
    const struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map, .unmap_all = unmap_all};

    CHECK_EQUAL(hvmem_domain_attach(moves.a, &ops, of, of), HVMEM_OK);
}

static void map_without_space(void)
{
    move_map();
    attach(NULL);
}

static void map_with_space(void)
{
    const struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_USER};

    move_map();
    CHECK_EQUAL(hvmem_space_create(ident, space_memory, hvmem_space_size(ident), &config, &space),
                HVMEM_OK);
    attach(space);
    move_load(ident, space);
}

/* ---- ways ---- */

static int give_without_space(void)
{
    int good = move_tear_down();

    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    return good & (moves.batches == 0);
}

/* While a CPU runs it the space cannot end, and nothing is taken from the domain. */
static int give_with_space(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};

    CHECK_EQUAL(moves.host.reports, 0);
    moves.host.report_lines = 0;
    CHECK_EQUAL(hvmem_domain_teardown(moves.a, 0, &cursor), HVMEM_E_BUSY);
    moves.host.reports = 0;
    moves.host.report_lines = 8;
    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    move_unload(ident, 0);
    return move_tear_down();
}

static int take(void)
{
    return move_take(moves.running, 0);
}

static void leave_id(void *arg)
{
    (void)arg;
    subject_load_user(0);
}

void move_run_torn_down(void)
{
    const uint64_t cpus = moves.cpus;
    const struct path without[] = {
        {"torn down", give_without_space, take, {1, 1}, {cpus, 0}, {cpus, 1}, 0},
        {"torn down, populated",
         give_without_space,
         move_populate,
         {1, 1},
         {cpus, 0},
         {cpus, 1},
         0},
    };
    const struct path with[] = {
        {"torn down with its space", give_with_space, take, {0, 0}, {0, 0}, {cpus, 1}, 0},
        {"torn down with its space, populated",
         give_with_space,
         move_populate,
         {0, 0},
         {0, 0},
         {cpus, 1},
         0},
    };
    uint32_t id;

    moves.map = map_without_space;
    for (unsigned i = 0; i < sizeof without / sizeof without[0]; i++)
        move_run(&without[i]);
    moves.map = move_map;
    if (!subject_user_space(&id))
        return;
    /* One number on all CPUs: numbers of a CPU's own are not used again before it flushed everything. */
    ident = move_ident(0);
    if (ident == NULL)
        return;
    space_memory = metal_pages(hvmem_space_size(ident), METAL_PAGE_BYTES);
    moves.map = map_with_space;
    for (unsigned i = 0; i < sizeof with / sizeof with[0]; i++)
        move_run(&with[i]);
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), leave_id, NULL), METAL_OK);
    moves.map = move_map;
}
