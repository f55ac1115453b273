/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populate, counted: flush events and CPUs asked are exactly what is owed, slice by slice, and claims are
 * used up by exactly the frames that the domain keeps, wherever a populate fails.
 */
#include "expect.h"
#include "test/support/test_tables.h"

#include <hvmem/clock.h>

#include <stdlib.h>
#include <string.h>

#define NODE    1024u /* frames of each of two nodes */
#define FRAMES  (2 * NODE)
#define SLICE   HVMEM_POPULATE_SLICE
#define DONOR   1u
#define TENANT  2u
#define STRANGE 3u
#define CPUS    4u

struct scene {
    struct world *world;
    struct hvmem_domain *donor, *tenant, *stranger;
    struct test_tables tables;
    struct hvmem_extent extents[FRAMES];
    struct hvmem_populate request;
    struct hvmem_cursor cursor;
    hvmem_u64 done;
    hvmem_mfn mfn[FRAMES];
    uint64_t unpaid; /* blocks that were mapped while they owed something */
};

static void mapping(void *context, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct scene *s = context;
    (void)gfn;

    s->unpaid += world_owed(s->world, mfn, 1ull << order) != 0;
}

/* Frames that a domain frees owe `owed`. */
static struct scene *scene(hvmem_u32 owed)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);
    hvmem_node node;

    REQUIRE(s != NULL);
    config.owed_on_free = owed;
    config.max_cpus = CPUS;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    s->world = WORLD_NEW(&config, 0);
    world_track(s->world, 0, FRAMES);
    for (node = 0; node < 2; node++)
        CHECK_EQ(world_bank(s->world, node * NODE, NODE, node, 0), HVMEM_OK);
    s->donor = world_domain(s->world, DONOR, ~0ull, 0, NULL);
    s->tenant = world_domain(s->world, TENANT, ~0ull, 0, NULL);
    s->stranger = world_domain(s->world, STRANGE, ~0ull, 0, NULL);
    CHECK_EQ(world_smp(s->world), HVMEM_OK);
    test_tables_init(&s->tables);
    s->tables.mapping = mapping;
    s->tables.context = s;
    REQUIRE_EQ(hvmem_domain_attach(s->tenant, &s->tables.ops, &s->tables, NULL), HVMEM_OK);
    s->request.size = sizeof s->request;
    s->request.extents = s->extents;
    s->request.node = HVMEM_NODE_ANY;
    s->request.done = &s->done;
    return s;
}

static void scene_end(struct scene *s)
{
    CHECK(s->tables.broken == NULL);
    CHECK_EQ(s->unpaid, 0);
    CHECK_TORN_DOWN(s->world, s->tenant);
    CHECK_AUDIT(s->world);
    WORLD_END(s->world);
    free(s);
}

/* Extents of one order, count * 2^order frames in all. */
static void extents(struct scene *s, hvmem_u64 count, hvmem_u32 order)
{
    hvmem_u64 i;

    for (i = 0; i < count; i++)
        s->extents[i] = (struct hvmem_extent){.gfn = i << order, .order = order};
    s->request.count = count;
}

/* Blocks of a domain, or of the host (NULL), into s->mfn from index `at` on. */
static void take(struct scene *s, struct hvmem_domain *domain, hvmem_u64 at, hvmem_u64 count,
                 hvmem_u32 order)
{
    struct hvmem_request request = expect_block(order, domain);
    hvmem_u64 i;

    for (i = at; i < at + count; i++)
        CHECK_EQ(hvmem_alloc(s->world->heap, &request, &s->mfn[i]), HVMEM_OK);
}

/* CPU 1 gives them back; they owe what their owner leaves. */
static void give(struct scene *s, hvmem_u64 at, hvmem_u64 count, hvmem_u32 order, hvmem_u32 owed)
{
    hvmem_u64 i;

    world_set_cpu(1);
    for (i = at; i < at + count; i++) {
        world_owe(s->world, s->mfn[i], 1ull << order, owed);
        CHECK_EQ(hvmem_free(s->world->heap, s->mfn[i], order), HVMEM_OK);
    }
    world_set_cpu(0);
}

/* A CPU flushes everything by itself. */
static void flush_self(struct scene *s, hvmem_cpu cpu)
{
    struct hvmem_tlb_flush flush = {
        .size = sizeof flush, .what = HVMEM_FLUSH_ALL, .scope = HVMEM_SCOPE_LOCAL};
    struct hvmem_flush_token token;

    world_set_cpu(cpu);
    CHECK_EQ(hvmem_flush_begin(s->world->heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
    CHECK_EQ(s->world->backend.ops->tlb_flush(&s->world->backend, &flush), HVMEM_OK);
    CHECK_EQ(hvmem_flush_end(s->world->heap, &token), HVMEM_OK);
    world_set_cpu(0);
}

/* ---- flushes --------------------------------------------------------------------------------- */

/* What a slice must cost. */
struct price {
    uint64_t events, asked;
};

/* One call, which the budget makes one slice. */
static void one_slice(struct scene *s, struct price price, hvmem_u64 slice)
{
    struct hvmem_stats before = expect_stats(s->world, HVMEM_NODE_ANY), after;
    uint64_t calls = s->world->counts.calls;

    CHECK_EQ(hvmem_domain_populate(s->tenant, &s->request, &s->cursor),
             (slice + 1) * SLICE < s->request.count ? HVMEM_AGAIN : HVMEM_OK);
    CHECK_EQ(s->done, (slice + 1) * SLICE);
    after = expect_stats(s->world, HVMEM_NODE_ANY);
    CHECK_EQ(after.flushes - before.flushes, price.events);
    CHECK_EQ(after.flush_cpus - before.flush_cpus, price.asked);
    CHECK_EQ(s->world->counts.calls - calls, price.events);
}

/*
 * Four slices, each of exactly the frames that another CPU gave back before it: one flush where some CPU
 * has not flushed since, of those CPUs alone, and none where nothing is owed.
 */
TEST(flushes_are_what_each_slice_owes)
{
    struct scene *s = scene(HVMEM_OWES_TLB);
    hvmem_cpu cpu;

    extents(s, FRAMES, 0);
    s->request.budget = 2 * SLICE; /* taken, and mapped */
    take(s, s->donor, 0, 3 * SLICE, 0);
    take(s, NULL, 3 * SLICE, SLICE, 0);
    give(s, 0, SLICE, 0, HVMEM_OWES_TLB);
    one_slice(s, (struct price){1, CPUS}, 0);
    give(s, SLICE, SLICE, 0, HVMEM_OWES_TLB);
    flush_self(s, 0);
    flush_self(s, 2);
    one_slice(s, (struct price){1, CPUS - 2}, 1);
    give(s, 3 * SLICE, SLICE, 0, 0); /* the host's own */
    one_slice(s, (struct price){0, 0}, 2);
    give(s, 2 * SLICE, SLICE, 0, HVMEM_OWES_TLB);
    for (cpu = 0; cpu < CPUS; cpu++)
        flush_self(s, cpu);
    one_slice(s, (struct price){0, 0}, 3);
    scene_end(s);
}

/* One frame of a slice owes: one flush. Then one that was given back before that flush: none. */
TEST(one_frame_that_owes_is_one_flush)
{
    struct scene *s = scene(HVMEM_OWES_TLB);

    extents(s, 3 * SLICE, 0);
    s->request.budget = 2 * SLICE;
    take(s, s->donor, 0, 2, 0);
    take(s, NULL, 2, FRAMES - 2, 0);
    give(s, 0, 1, 0, HVMEM_OWES_TLB);
    give(s, 2, SLICE - 1, 0, 0);
    /* Not of this slice, but flushed for by it. */
    CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
    one_slice(s, (struct price){1, CPUS}, 0);
    give(s, 2 + SLICE, SLICE, 0, 0);
    one_slice(s, (struct price){0, 0}, 1);
    give(s, 1, 1, 0, HVMEM_OWES_TLB);
    give(s, 2 + 2 * SLICE, SLICE - 1, 0, 0);
    one_slice(s, (struct price){1, CPUS}, 2);
    scene_end(s);
}

/* A flush that fails is owed on: what goes back is flushed for by whoever gets it. */
TEST(failed_flush_leaves_the_debt)
{
    struct scene *s = scene(HVMEM_OWES_TLB);
    hvmem_status status = HVMEM_E_HOST;
    unsigned step;

    extents(s, SLICE, 0);
    take(s, NULL, SLICE, FRAMES - SLICE, 0); /* nothing else is free that it could merge with */
    for (step = 1; status == HVMEM_E_HOST && step < 100; step++) {
        hvmem_u64 i;

        take(s, s->donor, 0, SLICE, 0);
        give(s, 0, SLICE, 0, HVMEM_OWES_TLB);
        CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
        s->world->fail_in = step;
        status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
        s->world->fail_in = 0;
        if (status == HVMEM_OK)
            break;
        CHECK_EQ(status, HVMEM_E_HOST);
        CHECK_EQ(s->done, 0);
        for (i = 0; i < SLICE; i++) {
            take(s, NULL, i, 1, 0);
            CHECK_EQ(world_owed(s->world, s->mfn[i], 1), 0);
        }
        for (i = 0; i < SLICE; i++)
            CHECK_EQ(hvmem_free(s->world->heap, s->mfn[i], 0), HVMEM_OK);
    }
    CHECK_EQ(status, HVMEM_OK);
    CHECK(step > 1);
    scene_end(s);
}

/* ---- claims ---------------------------------------------------------------------------------- */

#define ON_NODE  50u /* claimed on node 0 */
#define ON_OTHER 30u /* and on node 1, where nothing is taken */
#define ANYWHERE 45u
#define EXTENTS  40u
#define ORDER    2u

static struct scene *claimed(hvmem_u32 owed)
{
    struct scene *s = scene(owed);

    take(s, s->donor, 0, FRAMES >> ORDER, ORDER);
    give(s, 0, FRAMES >> ORDER, ORDER, owed);
    CHECK_EQ(hvmem_domain_claim(s->tenant, 0, ON_NODE), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(s->tenant, 1, ON_OTHER), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(s->tenant, HVMEM_NODE_ANY, ANYWHERE), HVMEM_OK);
    extents(s, EXTENTS, ORDER);
    return s;
}

/* Claims used up are those of what the domain has, and exactly the rest is promised. */
static void check_claims(struct scene *s)
{
    hvmem_u64 kept = expect_domain(s->tenant).pages, node = kept < ON_NODE ? kept : ON_NODE;
    hvmem_u64 any = kept - node < ANYWHERE ? kept - node : ANYWHERE;
    hvmem_u64 left = ON_NODE + ON_OTHER + ANYWHERE - node - any;

    CHECK_EQ(kept, s->done << ORDER);
    CHECK_EQ(expect_domain(s->tenant).claimed, left);
    CHECK_EQ(expect_stats(s->world, 0).claimed, ON_NODE - node);
    CHECK_EQ(expect_stats(s->world, 1).claimed, ON_OTHER);
    CHECK_EQ(expect_stats(s->world, HVMEM_NODE_ANY).claimed, left);
    CHECK_EQ(hvmem_free_frames(s->world->heap), FRAMES - kept);
    CHECK_EQ(hvmem_domain_claim(s->stranger, HVMEM_NODE_ANY, FRAMES - kept - left + 1),
             HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_claim(s->stranger, HVMEM_NODE_ANY, FRAMES - kept - left), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(s->stranger, HVMEM_NODE_ANY, 0), HVMEM_OK);
}

static hvmem_status populate(struct scene *s)
{
    hvmem_status status;
    unsigned calls = 0;

    do
        status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
    while (status == HVMEM_AGAIN && ++calls < 1000);
    return status;
}

/* It ended early: claims are as they were for what is not mapped, and enough for the rest. */
static void again(struct scene *s)
{
    hvmem_u64 before = s->done;

    check_claims(s);
    if (before == EXTENTS)
        return;
    s->request.extents += before;
    s->request.count -= before;
    memset(&s->cursor, 0, sizeof s->cursor);
    CHECK_EQ(populate(s), HVMEM_OK);
    s->done += before;
    check_claims(s);
}

static const hvmem_u32 debts[] = {HVMEM_OWES_TLB, HVMEM_OWES_TLB | HVMEM_OWES_SCRUB};

/* Any operation of host or back-end fails. */
TEST(B31_failed_populate_gives_claims_back)
{
    unsigned i, step;

    for (i = 0; i < 2; i++) {
        hvmem_status status = HVMEM_E_HOST;

        for (step = 1; status != HVMEM_OK && step < 2000; step++) {
            struct scene *s = claimed(debts[i]);

            s->world->fail_in = step;
            status = populate(s);
            CHECK(status == HVMEM_OK || status == HVMEM_E_HOST);
            s->world->fail_in = 0;
            again(s);
            scene_end(s);
        }
        CHECK_EQ(status, HVMEM_OK);
        CHECK(step > (i ? 40u : 2u));
    }
}

/* The map of each extent is refused. */
TEST(B31_refused_map_gives_claims_back)
{
    unsigned at, i;

    for (i = 0; i < 2; i++)
        for (at = 1; at <= EXTENTS; at++) {
            struct scene *s = claimed(debts[i]);

            s->request.budget = at % 3 ? 0 : 7;
            s->tables.map_fail = at;
            CHECK_EQ(populate(s), HVMEM_E_NOMEM);
            CHECK_EQ(s->done, at - 1);
            again(s);
            scene_end(s);
        }
}

/* Cancelled after any number of calls. */
TEST(B31_cancelled_populate_gives_claims_back)
{
    unsigned calls, i;

    for (calls = 1; calls < 30; calls++) {
        struct scene *s = claimed(debts[calls % 2]);
        hvmem_status status = HVMEM_AGAIN;

        s->request.budget = 5;
        for (i = 0; i < calls && status == HVMEM_AGAIN; i++)
            status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
        if (status == HVMEM_AGAIN)
            CHECK_EQ(hvmem_domain_populate_cancel(s->tenant), HVMEM_OK);
        again(s);
        scene_end(s);
    }
}

/* A step fails at every point. */
struct turn {
    unsigned turn, seen;
};

static int fail_point(const char *name, void *context)
{
    struct turn *t = context;

    return strncmp(name, "populate_", 9) == 0 && t->seen++ == t->turn;
}

TEST(B31_claims_come_back_from_every_point, points)
{
    struct turn t = {0, 0};

    do {
        struct scene *s = claimed(debts[t.turn % 2]);

        t.seen = 0;
        test_set_point_hook(fail_point, &t);
        (void)populate(s);
        test_set_point_hook(NULL, NULL);
        again(s);
        scene_end(s);
    } while (t.seen > t.turn++);
    CHECK(t.turn > EXTENTS);
}

static void start(struct scene *s, unsigned calls)
{
    while (calls--)
        CHECK_EQ(hvmem_domain_populate(s->tenant, &s->request, &s->cursor), HVMEM_AGAIN);
}

/*
 * A claim is set anew while blocks that it gave are not mapped yet; given up, these are nobody's, and what
 * was taken after that goes back to the claim it came from.
 */
TEST(claim_set_anew_under_a_populate)
{
    static const hvmem_u64 anew[] = {0, 7, ON_NODE + 20};
    unsigned before, more, i;

    for (before = 1; before < 14; before++)
        for (more = 0; more < 5; more++)
            for (i = 0; i < 2 * 3; i++) {
                struct scene *s = claimed(HVMEM_OWES_TLB);
                hvmem_u64 left = ON_OTHER + anew[i % 3] + (i < 3 ? ANYWHERE : ON_NODE);

                s->request.budget = 2;
                start(s, before);
                CHECK_EQ(hvmem_domain_claim(s->tenant, i < 3 ? 0 : HVMEM_NODE_ANY, anew[i % 3]),
                         HVMEM_OK);
                start(s, more);
                CHECK_EQ(expect_domain(s->tenant).pages, (2 * (before + more)) << ORDER);
                CHECK_EQ(hvmem_domain_populate_cancel(s->tenant), HVMEM_OK);
                CHECK_EQ(s->done, 0);
                CHECK_EQ(expect_domain(s->tenant).claimed, left);
                CHECK_EQ(expect_stats(s->world, HVMEM_NODE_ANY).claimed, left);
                CHECK_EQ(expect_stats(s->world, 0).claimed, i < 3 ? anew[i % 3] : ON_NODE);
                CHECK_EQ(hvmem_domain_claim(s->stranger, HVMEM_NODE_ANY, FRAMES - left), HVMEM_OK);
                scene_end(s);
            }
}

/*
 * A node has less than was asked for at once: of clean frames first, then of any. What it gave uses up
 * its claim, the rest another's.
 */
TEST(claims_of_a_node_that_runs_out)
{
    struct scene *s = scene(HVMEM_OWES_TLB);

    take(s, s->donor, 0, 20, 0);
    take(s, NULL, 20, NODE - 30, 0);
    give(s, 0, 20, 0, HVMEM_OWES_TLB);
    CHECK_EQ(hvmem_domain_claim(s->tenant, 0, 30), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(s->tenant, 1, 20), HVMEM_OK);
    CHECK_EQ(hvmem_domain_claim(s->tenant, HVMEM_NODE_ANY, 7), HVMEM_OK);
    extents(s, 40, 0);
    CHECK_EQ(populate(s), HVMEM_OK);
    CHECK_EQ(expect_stats(s->world, 0).free, 0);
    CHECK_EQ(expect_stats(s->world, 0).claimed, 0);
    CHECK_EQ(expect_stats(s->world, 1).claimed, 10);
    CHECK_EQ(expect_domain(s->tenant).claimed, 17);
    CHECK_EQ(hvmem_domain_claim(s->stranger, 1, NODE - 10 - 17 + 1), HVMEM_E_NOMEM);
    CHECK_EQ(hvmem_domain_claim(s->stranger, 1, NODE - 10 - 17), HVMEM_OK);
    scene_end(s);
}
