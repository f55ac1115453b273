/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Populate: slices with one flush each, in the right order, in steps of any size; what fails leaves
 * what was mapped and nothing else; cursors that name nothing are refused.
 */
#include "expect.h"
#include "test/support/test_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES  2048u
#define DONOR   1u
#define TENANT  2u
#define EXTENTS 1536u

/* A heap whose frames all owe everything, freed by a domain that may still reach them. */
struct scene {
    struct world *world;
    struct hvmem_domain *donor, *tenant;
    struct test_tables tables;
    struct hvmem_extent extents[EXTENTS];
    struct hvmem_populate request;
    struct hvmem_cursor cursor;
    hvmem_u64 done;
    uint64_t unpaid; /* blocks that were mapped while they owed something that mattered */
    hvmem_u32 may_owe;
};

/* At the moment a block becomes visible nothing may be owed for it. */
static void mapping(void *context, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct scene *s = context;
    (void)gfn;

    s->unpaid += (world_owed(s->world, mfn, 1ull << order) & ~s->may_owe) != 0;
}

/*
 * Everything was owned by a domain that runs on, and was freed: half of it lies in the arenas, half in the
 * cache of this CPU.
 */
static void dirty_all(struct scene *s, hvmem_order order)
{
    struct hvmem_request request = expect_block(order, s->donor);
    hvmem_mfn mfn[FRAMES];
    size_t n = 0;

    while (n < FRAMES && hvmem_alloc(s->world->heap, &request, &mfn[n]) == HVMEM_OK)
        n++;
    while (n-- > 0) {
        world_owe(s->world, mfn[n], 1ull << order, s->world->config.owed_on_free);
        CHECK_EQ(hvmem_free(s->world->heap, mfn[n], order), HVMEM_OK);
        if (n << order == FRAMES / 2)
            CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
    }
    memset(&s->world->counts, 0, sizeof s->world->counts);
}

static struct scene *scene(hvmem_u64 count, hvmem_order order)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);
    hvmem_u64 i;

    REQUIRE(s != NULL);
    config.owed_on_free = HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN;
    config.max_cpus = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    s->world = WORLD_NEW(&config, 0);
    world_track(s->world, 0, FRAMES);
    CHECK_EQ(world_bank(s->world, 0, FRAMES, 0, 0), HVMEM_OK);
    s->donor = world_domain(s->world, DONOR, ~0ull, 0, NULL);
    s->tenant = world_domain(s->world, TENANT, ~0ull, 0, NULL);
    CHECK_EQ(world_smp(s->world), HVMEM_OK);
    dirty_all(s, 0);
    test_tables_init(&s->tables);
    s->tables.mapping = mapping;
    s->tables.context = s;
    s->may_owe = HVMEM_OWES_ICACHE;
    REQUIRE_EQ(hvmem_domain_attach(s->tenant, &s->tables.ops, &s->tables, NULL), HVMEM_OK);
    for (i = 0; i < count; i++) {
        s->extents[i].gfn = i << order;
        s->extents[i].order = order;
    }
    s->request.size = sizeof s->request;
    s->request.extents = s->extents;
    s->request.count = count;
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

/* Until it is done; the number of calls. */
static unsigned populate(struct scene *s, hvmem_status *status)
{
    unsigned calls = 0;

    do {
        *status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
        calls++;
    } while (*status == HVMEM_AGAIN && calls < 100000);
    return calls;
}

/* Exactly the extents before `done` are mapped, to frames that the tenant owns and that owe nothing. */
static void check_exact(struct scene *s)
{
    hvmem_u64 i, frames = 0;

    for (i = 0; i < s->request.count; i++) {
        struct hvmem_extent *e = &s->extents[i];
        struct hvmem_block block;

        CHECK_EQ((e->flags & HVMEM_EXTENT_DONE) != 0, i < s->done);
        if (i >= s->done)
            continue;
        CHECK_EQ(s->tables.map[e->gfn], e->mfn);
        block = expect_lookup(s->world, e->mfn);
        CHECK_EQ(block.owner, TENANT);
        CHECK_EQ(block.order, e->order);
        CHECK_EQ(block.owed & ~s->may_owe, 0);
        frames += 1ull << e->order;
    }
    CHECK_EQ(test_tables_mapped(&s->tables), frames);
    CHECK_EQ(expect_domain(s->tenant).pages, frames);
    CHECK_EQ(hvmem_free_frames(s->world->heap), FRAMES - frames);
}

/* 1536 frames in three slices: everything was freed before, so one flush does for all. */
TEST(one_flush_for_a_whole_populate)
{
    struct scene *s = scene(1536, 0);
    hvmem_status status;

    CHECK_EQ(populate(s, &status), 1);
    CHECK_EQ(status, HVMEM_OK);
    check_exact(s);
    CHECK_EQ(s->world->counts.calls, 1);
    CHECK_EQ(s->world->counts.zeroed, 1536u * 4096u);
    CHECK_EQ(s->world->counts.icache, 0);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(s->world->counts.icache, 1);
    CHECK_EQ(s->world->counts.calls, 1);
    CHECK_EQ(s->tables.started, 1);
    CHECK_EQ(world_owed(s->world, s->extents[0].mfn, 1), 0);
    scene_end(s);
}

/* Negative control of the watch: a block that owes is noticed when it is mapped. */
TEST(watch_sees_what_is_owed)
{
    struct scene *s = scene(1, 0);

    mapping(s, 0, 0, 0);
    CHECK_EQ(s->unpaid, 1);
    s->unpaid = 0;
    scene_end(s);
}

/* Running domains: all is paid before each slice is mapped, the instruction caches too. */
TEST(running_domain_gets_settled_frames)
{
    struct scene *s = scene(1024, 0);
    hvmem_status status;

    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    s->may_owe = 0;
    CHECK_EQ(populate(s, &status), 1);
    CHECK_EQ(status, HVMEM_OK);
    check_exact(s);
    CHECK_EQ(s->world->counts.icache, 2); /* once a slice */
    scene_end(s);
}

/* Every budget gives the same result, also within one block of order 10. */
TEST(any_budget)
{
    static const struct {
        hvmem_u64 count, budget;
        hvmem_order order;
    } cases[] = {{600, 1, 0}, {600, 7, 0}, {2, 1, 10}, {2, 300, 10}, {2, 0, 10}, {5, 3, 8}};
    unsigned i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct scene *s = scene(cases[i].count, cases[i].order);
        hvmem_status status;
        unsigned calls;

        s->request.budget = cases[i].budget;
        calls = populate(s, &status);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(calls > 1, cases[i].budget != 0);
        check_exact(s);
        CHECK_EQ(s->world->counts.calls, 1);
        CHECK_EQ(s->world->counts.zeroed, (cases[i].count << cases[i].order) * 4096);
        scene_end(s);
    }
}

/* B31: memory ends at some extent: the work for those before is done, the others get nothing. */
TEST(B31_out_of_memory_leaves_what_was_mapped)
{
    struct scene *s = scene(EXTENTS, 1);
    hvmem_status status;

    (void)populate(s, &status);
    CHECK_EQ(status, HVMEM_E_NOMEM);
    CHECK_EQ(s->done, FRAMES / 2);
    check_exact(s);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    scene_end(s);
}

/* B31: map fails at each of many extents: those before stay, the rest goes back owing what it owed. */
TEST(B31_map_fails_anywhere)
{
    static const unsigned at[] = {1, 2, 500, 512, 513, 600};
    unsigned i;

    for (i = 0; i < sizeof at / sizeof at[0]; i++) {
        struct scene *s = scene(600, 0);
        hvmem_status status;
        hvmem_mfn mfn;

        s->tables.map_fail = at[i];
        (void)populate(s, &status);
        CHECK_EQ(status, HVMEM_E_NOMEM);
        CHECK_EQ(s->done, at[i] - 1);
        check_exact(s);
        CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
        /* What went back is handed out without any debt that the world knows of. */
        while (hvmem_alloc_order(s->world->heap, 0, &mfn) == HVMEM_OK)
            CHECK_EQ(world_owed(s->world, mfn, 1), 0);
        scene_end(s);
    }
}

/* Any operation of host or back-end fails: nothing is lost, nothing is reachable, and again is enough. */
TEST(fault_at_every_step)
{
    hvmem_status status = HVMEM_E_HOST;
    unsigned step;

    for (step = 1; status != HVMEM_OK && step < 2000; step++) {
        struct scene *s = scene(40, 2);
        hvmem_mfn mfn;

        s->world->fail_in = step;
        (void)populate(s, &status);
        CHECK(status == HVMEM_OK || status == HVMEM_E_HOST);
        check_exact(s);
        s->world->fail_in = 0;
        CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
        while (hvmem_alloc_order(s->world->heap, 0, &mfn) == HVMEM_OK)
            CHECK_EQ(world_owed(s->world, mfn, 1), 0);
        scene_end(s);
    }
    CHECK(step > 50);
    CHECK_EQ(status, HVMEM_OK);
}

/* Cursors of something else, forged ones, another request: refused, nothing changed. */
TEST(cursors_name_one_populate)
{
    struct scene *s = scene(600, 0);
    struct hvmem_cursor fresh = {{0}}, good, forged;
    struct hvmem_populate other;
    hvmem_status status;
    unsigned i;

    s->request.budget = 100;
    CHECK_EQ(hvmem_domain_populate(s->tenant, &s->request, &s->cursor), HVMEM_AGAIN);
    good = s->cursor;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &s->request, &fresh), HVMEM_E_BUSY);
    for (i = 0; i < 4; i++) {
        forged = good;
        forged.words[i] ^= 1;
        CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &s->request, &forged),
                      HVMEM_E_STALE);
    }
    other = s->request;
    other.count++;
    forged = good;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &other, &forged), HVMEM_E_STALE);
    CHECK_EQ(hvmem_domain_attach(s->donor, &s->tables.ops, &s->tables, NULL), HVMEM_OK);
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->donor, &s->request, &good), HVMEM_E_STALE);
    CHECK_REFUSED(s->world, hvmem_domain_start(s->tenant), HVMEM_E_BUSY);
    (void)populate(s, &status);
    CHECK_EQ(status, HVMEM_OK);
    check_exact(s);
    /* It is over: its cursor names nothing any more. */
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &s->request, &good), HVMEM_E_STALE);
    scene_end(s);
}

/* Requests and extents that are wrong. */
TEST(bad_requests)
{
    struct scene *s = scene(4, 0);
    struct hvmem_populate bad;
    hvmem_status status;
    static const struct {
        hvmem_gfn gfn;
        hvmem_u32 order, flags;
        hvmem_status status;
    } extents[] = {
        {0, 11, 0, HVMEM_E_ORDER},
        {0, 0xffffffffu, 0, HVMEM_E_ORDER},
        {1, 1, 0, HVMEM_E_ALIGN},
        {1ull << 40, 0, 0, HVMEM_E_RANGE},
        {~0ull, 0, 0, HVMEM_E_RANGE},
        {~0ull << 10, 10, 0, HVMEM_E_RANGE},
        {(1ull << 40) - 2, 2, 0, HVMEM_E_RANGE},
        {0, 0, 2, HVMEM_E_ARG},
    };
    unsigned i;

    CHECK_EQ(hvmem_domain_populate(NULL, &s->request, &s->cursor), HVMEM_E_ARG);
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, NULL, &s->cursor), HVMEM_E_ARG);
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &s->request, NULL), HVMEM_E_ARG);
    bad = s->request;
    bad.size--;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &bad, &s->cursor), HVMEM_E_VERSION);
    bad = s->request;
    bad.flags = 0x80;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &bad, &s->cursor), HVMEM_E_ARG);
    bad = s->request;
    bad.count = 0;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &bad, &s->cursor), HVMEM_E_COUNT);
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->donor, &s->request, &s->cursor),
                  HVMEM_E_UNSUPPORTED);
    for (i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        s->extents[3].gfn = extents[i].gfn;
        s->extents[3].order = extents[i].order;
        s->extents[3].flags = extents[i].flags;
        (void)populate(s, &status);
        CHECK_EQ(status, extents[i].status);
        CHECK_EQ(s->done, 3);
        CHECK_EQ(expect_domain(s->tenant).pages, 3 * (i + 1ull));
        memset(s->tables.map, 0xff, sizeof s->tables.map);
    }
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    bad = s->request;
    bad.flags = HVMEM_POPULATE_DEFER_DCACHE;
    CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &bad, &s->cursor), HVMEM_E_PHASE);
    scene_end(s);
}

/* The caller changes its array between two calls: blocks that were taken for it go back. */
TEST(array_changed_under_way)
{
    struct scene *s = scene(600, 0);
    hvmem_status status;

    s->request.budget = 10;
    CHECK_EQ(hvmem_domain_populate(s->tenant, &s->request, &s->cursor), HVMEM_AGAIN);
    s->extents[0].order = 5;
    s->request.budget = 0;
    (void)populate(s, &status);
    CHECK_EQ(status, HVMEM_E_STALE);
    CHECK_EQ(s->done, 0);
    s->extents[0].order = 0;
    check_exact(s);
    scene_end(s);
}

/* Cancelled or abandoned at every step: everything comes back. */
TEST(cancelled_anywhere)
{
    unsigned calls, i;

    for (calls = 1; calls < 60; calls++) {
        struct scene *s = scene(20, 3);
        hvmem_status status = HVMEM_AGAIN;

        s->request.budget = 11;
        for (i = 0; i < calls && status == HVMEM_AGAIN; i++)
            status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
        if (status == HVMEM_AGAIN && calls % 2) {
            CHECK_EQ(hvmem_domain_populate_cancel(s->tenant), HVMEM_OK);
            check_exact(s);
            CHECK_REFUSED(s->world, hvmem_domain_populate_cancel(s->tenant), HVMEM_E_PHASE);
            CHECK_REFUSED(s->world, hvmem_domain_populate(s->tenant, &s->request, &s->cursor),
                          HVMEM_E_STALE);
        }
        scene_end(s); /* or reclaimed by teardown */
    }
}

/* B31: another CPU starts, cancels or kills at every point of a populate: refused, or ordered before it. */
struct meddler {
    struct scene *s;
    unsigned turn; /* at which point it acts */
    unsigned seen;
    unsigned what;
    int mapping; /* that point was where an extent is mapped: the last step */
};

static int meddle(const char *name, void *context)
{
    struct meddler *m = context;
    struct hvmem_cursor cursor = {{0}};

    if (strncmp(name, "populate_", 9) != 0 || m->seen++ != m->turn)
        return 0;
    m->mapping = strcmp(name, "populate_map") == 0;
    if (m->what == 0)
        CHECK_EQ(hvmem_domain_start(m->s->tenant), HVMEM_E_BUSY);
    else if (m->what == 1)
        CHECK_EQ(hvmem_domain_populate_cancel(m->s->tenant), HVMEM_E_BUSY);
    else if (m->what == 2)
        CHECK_EQ(hvmem_domain_populate(m->s->tenant, &m->s->request, &cursor), HVMEM_E_BUSY);
    else
        CHECK_EQ(hvmem_domain_teardown(m->s->tenant, 0, &cursor), HVMEM_E_BUSY);
    return 0;
}

TEST(B31_others_at_every_point_of_a_populate, points)
{
    unsigned what, turn;

    for (what = 0; what < 4; what++)
        for (turn = 0;; turn++) {
            struct scene *s = scene(6, 2);
            struct meddler m = {s, turn, 0, what, 0};
            hvmem_status status;

            test_set_point_hook(meddle, &m);
            (void)populate(s, &status);
            test_set_point_hook(NULL, NULL);
            if (what < 3 || m.seen <= turn || m.mapping) {
                CHECK_EQ(status, HVMEM_OK);
                CHECK_EQ(s->done, 6);
            } else {
                CHECK_EQ(status, HVMEM_E_DOMAIN);
            }
            check_exact(s);
            if (what < 3)
                CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
            scene_end(s);
            if (m.seen <= turn)
                break;
        }
}

/* A step that fails at any point of a populate. */
static int fail_point(const char *name, void *context)
{
    struct meddler *m = context;

    return strncmp(name, "populate_", 9) == 0 && m->seen++ == m->turn;
}

TEST(fails_at_every_point, points)
{
    unsigned turn;

    for (turn = 0;; turn++) {
        struct scene *s = scene(6, 2);
        struct meddler m = {s, turn, 0, 0, 0};
        hvmem_status status;

        test_set_point_hook(fail_point, &m);
        (void)populate(s, &status);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(status == HVMEM_OK, m.seen <= turn);
        check_exact(s);
        scene_end(s);
        if (m.seen <= turn)
            break;
    }
    CHECK(turn > 12);
}
