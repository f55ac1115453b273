/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Start of a domain: every debt paid once, in order, whatever fails or interferes; what the builder
 * dirtied; cleaning by guest range.
 */
#include "expect.h"
#include "test/support/test_tables.h"

#include <hvmem/cache.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES 1024u
#define TENANT 2u
#define OWED   (HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN)

struct scene {
    struct world *world;
    struct hvmem_domain *donor, *tenant;
    struct test_tables tables;
    hvmem_status (*dcache)(struct hvmem_backend *, hvmem_u32, hvmem_uptr, hvmem_size);
    hvmem_status (*zero)(struct hvmem_backend *, hvmem_uptr, hvmem_size);
    uint64_t turn;
    uint64_t zeroed[FRAMES], cleaned[FRAMES]; /* the turn of the last */
    uint64_t longest;                         /* bytes of one operation */
};

/* The scene of the running case, for the back-end's operations. */
static struct scene *scene_now;

static void note(hvmem_uptr addr, hvmem_size bytes, uint64_t *when)
{
    hvmem_u64 frames, i;
    hvmem_mfn first;

    if (!world_mapped_frames(scene_now->world, addr, bytes, &first, &frames))
        return;
    for (i = 0; i < frames; i++)
        when[first + i] = scene_now->turn;
    if (bytes > scene_now->longest)
        scene_now->longest = bytes;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes)
{
    scene_now->turn++;
    note(addr, bytes, scene_now->cleaned);
    return scene_now->dcache(be, op, addr, bytes);
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    scene_now->turn++;
    note(addr, bytes, scene_now->zeroed);
    return scene_now->zero(be, addr, bytes);
}

static struct scene *scene(void)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);
    struct hvmem_request request;
    hvmem_mfn mfn;

    REQUIRE(s != NULL);
    scene_now = s;
    config.owed_on_free = OWED;
    config.max_cpus = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    s->world = WORLD_NEW(&config, 0);
    world_track(s->world, 0, FRAMES);
    CHECK_EQ(world_bank(s->world, 0, FRAMES, 0, 0), HVMEM_OK);
    s->donor = world_domain(s->world, 1, ~0ull, 0, NULL);
    s->tenant = world_domain(s->world, TENANT, ~0ull, 0, NULL);
    CHECK_EQ(world_smp(s->world), HVMEM_OK);
    request = expect_block(10, s->donor);
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    world_owe(s->world, 0, FRAMES, OWED);
    CHECK_EQ(hvmem_free(s->world->heap, mfn, 10), HVMEM_OK);
    memset(&s->world->counts, 0, sizeof s->world->counts);
    test_tables_init(&s->tables);
    CHECK_EQ(hvmem_domain_attach(s->tenant, &s->tables.ops, &s->tables, NULL), HVMEM_OK);
    s->dcache = s->world->backend_ops.dcache;
    s->zero = s->world->backend_ops.zero;
    s->world->backend_ops.dcache = dcache;
    s->world->backend_ops.zero = zero;
    return s;
}

static void scene_end(struct scene *s)
{
    hvmem_mfn mfn;

    CHECK_TORN_DOWN(s->world, s->tenant);
    /* Whatever is handed out now owes nothing that the world knows of. */
    while (hvmem_alloc_order(s->world->heap, 0, &mfn) == HVMEM_OK)
        CHECK_EQ(world_owed(s->world, mfn, 1), 0);
    CHECK(s->tables.broken == NULL);
    WORLD_END(s->world);
    free(s);
}

/* Blocks with every debt left on them: orders 0 to 5. */
static unsigned defer(struct scene *s, hvmem_mfn *mfn)
{
    unsigned n;

    for (n = 0; n < 24; n++) {
        struct hvmem_request request = expect_block(n % 6, s->tenant);

        request.flags = HVMEM_REQ_DEFER_ALL;
        CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn[n]), HVMEM_OK);
    }
    return n;
}

/* Nothing is owed for the tenant's blocks, in the records and in fact; per page: zeroed, then cleaned. */
static void check_settled(struct scene *s, const hvmem_mfn *mfn, unsigned n)
{
    while (n-- > 0) {
        hvmem_u64 i;

        CHECK_EQ(expect_lookup(s->world, mfn[n]).owed, 0);
        CHECK_EQ(world_owed(s->world, mfn[n], 1ull << (n % 6)), 0);
        for (i = 0; i < 1ull << (n % 6); i++)
            CHECK(s->zeroed[mfn[n] + i] != 0 && s->zeroed[mfn[n] + i] < s->cleaned[mfn[n] + i]);
    }
}

/* B45 as well: the last zero of a page comes before its clean, and that before the domain runs. */
TEST(B45_start_pays_each_debt_once)
{
    struct scene *s = scene();
    struct world_counts *counts = &s->world->counts;
    hvmem_mfn mfn[24];
    unsigned n = defer(s, mfn);

    CHECK_EQ(counts->calls + counts->zeroed + counts->dcache + counts->icache, 0);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    check_settled(s, mfn, n);
    CHECK_EQ(counts->calls, 1);
    CHECK_EQ(counts->icache, 1);
    CHECK_EQ(counts->zeroed, 252u * 4096u);
    CHECK_EQ(counts->dcache, 252u * 4096u);
    CHECK_EQ(s->tables.started, 1);
    CHECK_REFUSED(s->world, hvmem_domain_start(s->tenant), HVMEM_E_PHASE);
    CHECK_EQ(s->tables.started, 1);
    CHECK_EQ(counts->icache, 1);
    scene_end(s);
}

/* In steps of any size, by budget and by the host's wish; nothing else gets in meanwhile. */
TEST(start_in_steps)
{
    static const unsigned budgets[] = {1, 5, 100, 0};
    unsigned i;

    for (i = 0; i < 4; i++) {
        struct scene *s = scene();
        struct hvmem_request request = expect_block(0, s->tenant);
        struct hvmem_cursor cursor = {{0}}, other = {{0}};
        struct hvmem_extent extent = {0, 0, 0, 0};
        struct hvmem_populate populate = {sizeof populate, 0, &extent, 1,
                                          HVMEM_NODE_ANY,  0, 0,       NULL};
        hvmem_status status;
        unsigned steps = 0, n;
        hvmem_mfn mfn[24], none;

        n = defer(s, mfn);
        s->world->yields = budgets[i] ? 0 : 3;
        while ((status = hvmem_domain_start_step(s->tenant, budgets[i], &cursor)) == HVMEM_AGAIN) {
            steps++;
            CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_STARTING);
            CHECK_EQ(hvmem_alloc(s->world->heap, &request, &none), HVMEM_E_BUSY);
            CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &other), HVMEM_E_BUSY);
            CHECK_EQ(hvmem_domain_start_step(s->tenant, 0, &other), HVMEM_E_BUSY);
        }
        CHECK_EQ(status, HVMEM_OK);
        CHECK(steps > 1);
        check_settled(s, mfn, n);
        CHECK_EQ(s->world->counts.calls, 1);
        CHECK_EQ(s->world->counts.icache, 1);
        CHECK_EQ(s->world->counts.zeroed, 252u * 4096u);
        CHECK(s->longest <= HVMEM_CACHE_STRETCH * 64u);
        scene_end(s);
    }
}

/* A start that is given up, or taken over by the whole one. */
TEST(start_left_open)
{
    struct scene *s = scene();
    struct hvmem_cursor cursor = {{0}}, stale;
    hvmem_mfn mfn[24];
    unsigned n = defer(s, mfn);

    CHECK_EQ(hvmem_domain_start_step(s->tenant, 1, &cursor), HVMEM_AGAIN);
    stale = cursor;
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    check_settled(s, mfn, n);
    CHECK_REFUSED(s->world, hvmem_domain_start_step(s->tenant, 1, &stale), HVMEM_E_STALE);
    scene_end(s);
    s = scene();
    (void)defer(s, mfn);
    memset(&cursor, 0, sizeof cursor);
    CHECK_EQ(hvmem_domain_start_step(s->tenant, 1, &cursor), HVMEM_AGAIN);
    CHECK_EQ(hvmem_domain_kill(s->tenant), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start_step(s->tenant, 1, &cursor), HVMEM_E_DOMAIN);
    CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_DYING);
    scene_end(s);
}

/* Whatever fails: the domain is BUILDING, no debt was forgotten, and the next start pays the rest. */
TEST(start_fails_anywhere)
{
    hvmem_status status = HVMEM_E_HOST;
    unsigned step;

    for (step = 1; status != HVMEM_OK && step < 500; step++) {
        struct scene *s = scene();
        hvmem_mfn mfn[24];
        unsigned n = defer(s, mfn), i;

        CHECK_EQ(hvmem_domain_dirtied(s->tenant, 0, 64), HVMEM_OK);
        s->world->fail_in = step;
        status = hvmem_domain_start(s->tenant);
        CHECK(status == HVMEM_OK || status == HVMEM_E_HOST);
        s->world->fail_in = 0;
        for (i = 0; i < n; i++)
            CHECK_EQ(world_owed(s->world, mfn[i], 1ull << (i % 6)) &
                         ~expect_lookup(s->world, mfn[i]).owed,
                     0);
        if (status != HVMEM_OK) {
            CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_BUILDING);
            CHECK_EQ(s->tables.started, 0);
            CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
        }
        check_settled(s, mfn, n);
        CHECK_EQ(s->tables.started, 1);
        CHECK_EQ(s->world->counts.icache, 1);
        scene_end(s);
    }
    CHECK(step > 20);
}

/* The hook refuses: BUILDING, and deferring is allowed again; it never runs twice with success. */
TEST(hook_fails)
{
    struct scene *s = scene();
    hvmem_mfn mfn[24];
    unsigned n = defer(s, mfn);
    struct hvmem_request request = expect_block(0, s->tenant);

    s->tables.hook_fails = 1;
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_E_NOMEM);
    CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_BUILDING);
    check_settled(s, mfn, n);
    request.flags = HVMEM_REQ_DEFER_ALL;
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn[0]), HVMEM_OK);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(world_owed(s->world, mfn[0], 1), 0);
    CHECK_EQ(s->tables.started, 1);
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn[0]), HVMEM_E_PHASE);
    scene_end(s);
}

/* B45: what the builder wrote, more ranges than are kept, holes among them: every frame is cleaned. */
TEST(B45_builders_image_is_cleaned)
{
    struct scene *s = scene();
    struct hvmem_extent extents[64];
    struct hvmem_populate populate = {sizeof populate, 0, extents, 64, HVMEM_NODE_ANY, 0, 0, NULL};
    struct hvmem_cursor cursor = {{0}};
    uint64_t before;
    unsigned i;

    for (i = 0; i < 64; i++)
        extents[i] = (struct hvmem_extent){i * 100ull, 0, 0, 0};
    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_OK);
    before = s->turn;
    for (i = 63; i < 64; i -= 3)
        CHECK_EQ(hvmem_domain_dirtied(s->tenant, i * 100ull, 1), HVMEM_OK);
    CHECK_REFUSED(s->world, hvmem_domain_dirtied(s->tenant, 0, 0), HVMEM_E_RANGE);
    CHECK_REFUSED(s->world, hvmem_domain_dirtied(s->tenant, 1ull << 40, 1), HVMEM_E_RANGE);
    CHECK_REFUSED(s->world, hvmem_domain_dirtied(s->tenant, 1, ~0ull), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    for (i = 0; i < 64; i++)
        if (i % 3 == 0)
            CHECK(s->cleaned[extents[i].mfn] > before);
    CHECK_EQ(s->world->counts.icache, 1);
    CHECK_REFUSED(s->world, hvmem_domain_dirtied(s->tenant, 0, 1), HVMEM_E_PHASE);
    scene_end(s);
}

/* D-cache work left to start: frames go out unclean, start cleans them by guest range, a free owes it. */
TEST(dcache_left_to_start)
{
    struct scene *s = scene();
    struct hvmem_extent extent = {512, 0, 8, 0};
    struct hvmem_populate populate = {
        sizeof populate, HVMEM_POPULATE_DEFER_DCACHE, &extent, 1, HVMEM_NODE_ANY, 0, 0, NULL};
    struct hvmem_cursor cursor = {{0}};

    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_OK);
    CHECK_EQ(s->world->counts.dcache, 0);
    CHECK_EQ(world_owed(s->world, extent.mfn, 256), HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE);
    CHECK_EQ(expect_lookup(s->world, extent.mfn).owed, HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(s->world->counts.dcache, 256u * 4096u);
    CHECK_EQ(world_owed(s->world, extent.mfn, 256), 0);
    CHECK_EQ(expect_lookup(s->world, extent.mfn).owed, 0);
    scene_end(s);
}

/* First touch: nothing is paid, the frames keep their debts, start leaves them alone. */
TEST(first_touch_waits)
{
    struct scene *s = scene();
    struct hvmem_extent extents[2] = {{512, 0, 8, HVMEM_EXTENT_FIRST_TOUCH}, {0, 0, 2, 0}};
    struct hvmem_populate populate = {sizeof populate, 0, extents, 2, HVMEM_NODE_ANY, 0, 0, NULL};
    struct hvmem_cursor cursor = {{0}};
    const hvmem_u32 contents = HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE;

    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_OK);
    CHECK_EQ(s->world->counts.zeroed, 4u * 4096u);
    CHECK(s->tables.map[512] & TABLES_UNTOUCHED);
    CHECK(!(s->tables.map[0] & TABLES_UNTOUCHED));
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(s->world->counts.zeroed, 4u * 4096u);
    CHECK_EQ(expect_lookup(s->world, extents[0].mfn).owed, contents);
    CHECK_EQ(world_owed(s->world, extents[0].mfn, 256), contents);
    /* A part of it is freed: it owes all that it did. */
    CHECK_EQ(hvmem_free_run(s->world->heap, extents[0].mfn + 17, 100), HVMEM_OK);
    CHECK_EQ(expect_lookup(s->world, extents[0].mfn).owed, contents);
    scene_end(s);
}

/* B31: start at the moment a deferring call has entered, and the other way round: one of them is refused. */
static int interfere(const char *name, void *context)
{
    struct scene *s = context;
    struct hvmem_request request = expect_block(0, s->tenant);
    hvmem_mfn mfn;

    test_set_point_hook(NULL, NULL);
    request.flags = HVMEM_REQ_DEFER_ALL;
    if (strcmp(name, "domain_enter") == 0)
        CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_E_BUSY);
    else if (strcmp(name, "start_publish") == 0)
        CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_E_BUSY);
    else
        test_set_point_hook(interfere, context);
    return 0;
}

TEST(B31_start_against_deferral, points)
{
    struct scene *s = scene();
    struct hvmem_request request = expect_block(3, s->tenant);
    hvmem_mfn mfn;

    request.flags = HVMEM_REQ_DEFER_ALL;
    test_set_point_hook(interfere, s);
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    test_set_point_hook(interfere, s);
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(world_owed(s->world, mfn, 8), 0);
    scene_end(s);
}

/* Clean by guest range: holes skipped, whole range covered, cursors of other ranges refused. */
TEST(clean_by_guest_range)
{
    struct scene *s = scene();
    struct hvmem_extent extents[2] = {{0, 0, 9, 0}, {1024, 0, 0, 0}};
    struct hvmem_populate populate = {sizeof populate, 0, extents, 2, HVMEM_NODE_ANY, 0, 0, NULL};
    struct hvmem_cursor cursor = {{0}}, other;
    hvmem_status status;
    uint64_t before;
    unsigned calls = 0, i;

    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_OK);
    before = s->turn;
    do {
        status = hvmem_domain_clean(s->tenant, 7, (1ull << 40) - 7, &cursor);
        other = cursor;
        other.words[1]++;
        if (status == HVMEM_AGAIN)
            CHECK_EQ(hvmem_domain_clean(s->tenant, 7, (1ull << 40) - 7, &other), HVMEM_E_STALE);
    } while (status == HVMEM_AGAIN && ++calls < 100000);
    CHECK_EQ(status, HVMEM_OK);
    CHECK(calls >= 1); /* 506 frames are more lines than one call cleans */
    for (i = 0; i < 512; i++)
        CHECK_EQ(s->cleaned[extents[0].mfn + i] > before, i >= 7);
    CHECK(s->cleaned[extents[1].mfn] > before);
    CHECK(s->longest <= HVMEM_CACHE_STRETCH * 64u);
    CHECK_REFUSED(s->world, hvmem_domain_clean(s->tenant, 0, 0, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(s->world, hvmem_domain_clean(s->tenant, ~0ull, 2, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(s->world, hvmem_domain_clean(s->donor, 0, 1, &cursor), HVMEM_E_UNSUPPORTED);
    scene_end(s);
}

/*
 * Threads: two leave debts, one populates, one starts: whoever is told that it may defer has its debts
 * paid before the domain runs. Rounds of a new domain each.
 */
#define ROUNDS 150u

struct contest {
    struct scene *s;
    pthread_barrier_t line;
    hvmem_mfn mine[2][8];
    unsigned count[2];
    unsigned running; /* the start succeeded */
};

static void leave_debts(struct contest *c, unsigned thread)
{
    struct hvmem_request request = expect_block(thread, c->s->tenant);
    hvmem_status status = HVMEM_OK;

    request.flags = HVMEM_REQ_DEFER_ALL;
    for (c->count[thread] = 0; c->count[thread] < 8 && status == HVMEM_OK;) {
        hvmem_mfn *mfn = &c->mine[thread][c->count[thread]];

        status = hvmem_alloc(c->s->world->heap, &request, mfn);
        if (status == HVMEM_OK)
            c->count[thread]++;
        else
            CHECK(status == HVMEM_E_BUSY || status == HVMEM_E_PHASE);
    }
}

static void start_often(struct contest *c)
{
    hvmem_status status = HVMEM_E_BUSY;

    while (status == HVMEM_E_BUSY)
        status = hvmem_domain_start(c->s->tenant);
    CHECK_EQ(status, HVMEM_OK);
    __atomic_store_n(&c->running, 1, __ATOMIC_SEQ_CST);
}

static void populate_once(struct contest *c)
{
    struct hvmem_extent extents[8];
    struct hvmem_populate populate = {sizeof populate, 0, extents, 8, HVMEM_NODE_ANY, 0, 3, NULL};
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned i;

    for (i = 0; i < 8; i++)
        extents[i] = (struct hvmem_extent){i, 0, 0, 0};
    do
        status = hvmem_domain_populate(c->s->tenant, &populate, &cursor);
    while (status == HVMEM_AGAIN || status == HVMEM_E_BUSY);
    CHECK_EQ(status, HVMEM_OK);
}

struct runner {
    struct contest *c;
    unsigned role;
};

static void *run(void *arg)
{
    struct runner *r = arg;

    world_set_cpu(r->role);
    pthread_barrier_wait(&r->c->line);
    if (r->role < 2)
        leave_debts(r->c, r->role);
    else if (r->role == 2)
        start_often(r->c);
    else
        populate_once(r->c);
    return NULL;
}

TEST(start_races_with_allocations, threads)
{
    uint64_t rounds = test_rounds(ROUNDS), round;

    for (round = 0; round < rounds; round++) {
        struct contest c = {.s = scene()};
        struct runner runners[4];
        pthread_t threads[4];
        unsigned i, n;

        c.s->world->backend_ops.dcache = c.s->dcache;
        c.s->world->backend_ops.zero = c.s->zero;
        pthread_barrier_init(&c.line, NULL, 4);
        for (i = 0; i < 4; i++) {
            runners[i] = (struct runner){&c, i};
            REQUIRE_EQ(pthread_create(&threads[i], NULL, run, &runners[i]), 0);
        }
        for (i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        world_set_cpu(0);
        CHECK_EQ(c.running, 1);
        for (i = 0; i < 2; i++)
            for (n = 0; n < c.count[i]; n++) {
                CHECK_EQ(expect_lookup(c.s->world, c.mine[i][n]).owed, 0);
                CHECK_EQ(world_owed(c.s->world, c.mine[i][n], 1ull << i), 0);
            }
        for (i = 0; i < 8; i++)
            CHECK_EQ(world_owed(c.s->world, c.s->tables.map[i], 1), 0);
        CHECK_EQ(c.s->tables.started, 1);
        pthread_barrier_destroy(&c.line);
        scene_end(c.s);
    }
}
