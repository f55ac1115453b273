/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Teardown: one flush of the id, then everything back, in steps; what must still owe a flush does.
 */
#include "expect.h"
#include "test/support/test_tables.h"

#include <hvmem/space.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES 2048u
#define OWED   (HVMEM_OWES_TLB | HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE | HVMEM_OWES_SCRUB)

struct scene {
    struct world *world;
    struct hvmem_domain *tenant;
    struct test_tables tables;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    void *memory[2];
};

static void make_space(struct scene *s)
{
    struct hvmem_space_config space = {
        .size = sizeof space, .regime = HVMEM_REGIME_STAGE2, .root = 0x1000};
    struct hvmem_ident_config config = {.size = sizeof config,
                                        .flags = HVMEM_IDENT_BROADCAST,
                                        .regime = HVMEM_REGIME_STAGE2,
                                        .first = 1,
                                        .ids = 15,
                                        .max_cpus = 4,
                                        .lock_regime = HVMEM_LOCK_PLAIN,
                                        .host = &s->world->host,
                                        .host_ctx = s->world,
                                        .backend = &s->world->backend};
    hvmem_size bytes = 0;
    hvmem_cpu cpu;

    s->world->backend.caps.features |= HVMEM_CAP_STAGE2 | HVMEM_CAP_GUEST;
    s->world->backend.caps.stage2_id_bits = 8;
    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    s->memory[0] = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_ident_init(s->memory[0], bytes, &config, &s->ident), HVMEM_OK);
    for (cpu = 0; cpu < 4; cpu++)
        CHECK_EQ(hvmem_ident_cpu_online(s->ident, cpu, 0xffff), HVMEM_OK);
    bytes = hvmem_space_size(s->ident);
    s->memory[1] = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_space_create(s->ident, s->memory[1], bytes, &space, &s->space), HVMEM_OK);
}

static struct scene *scene(int with_space)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);

    REQUIRE(s != NULL);
    config.owed_on_free = OWED;
    config.max_cpus = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    s->world = WORLD_NEW(&config, WORLD_BROADCAST);
    world_track(s->world, 0, FRAMES);
    CHECK_EQ(world_bank(s->world, 0, FRAMES / 2, 0, 0), HVMEM_OK);
    CHECK_EQ(world_bank(s->world, FRAMES / 2, FRAMES / 2, 0, 0), HVMEM_OK);
    s->tenant = world_domain(s->world, 2, ~0ull, 0, NULL);
    CHECK_EQ(world_smp(s->world), HVMEM_OK);
    if (with_space)
        make_space(s);
    test_tables_init(&s->tables);
    CHECK_EQ(hvmem_domain_attach(s->tenant, &s->tables.ops, &s->tables, s->space), HVMEM_OK);
    return s;
}

/* The space runs on CPU 0 and leaves, so that it has an id with translations. */
static void run_and_leave(struct scene *s)
{
    struct hvmem_entry entry;

    CHECK_EQ(hvmem_space_activate(s->space, 0, &entry), HVMEM_OK);
    CHECK_EQ(hvmem_space_entered(s->ident, 0), HVMEM_OK);
    CHECK_EQ(hvmem_space_deactivate(s->ident, 0), HVMEM_OK);
    CHECK_EQ(hvmem_space_entered(s->ident, 0), HVMEM_OK);
}

static hvmem_mfn take(struct scene *s, hvmem_order order)
{
    struct hvmem_request request = expect_block(order, s->tenant);
    hvmem_mfn mfn = 0;

    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    return mfn;
}

static unsigned teardown(struct scene *s, hvmem_u32 flags, hvmem_status *status)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned calls = 0;

    do
        *status = hvmem_domain_teardown(s->tenant, flags, &cursor);
    while (++calls < 100000 && *status == HVMEM_AGAIN);
    return calls;
}

static void scene_end(struct scene *s)
{
    CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
    CHECK_EQ(expect_domain(s->tenant).pages, 0);
    CHECK_EQ(expect_domain(s->tenant).claimed, 0);
    CHECK_EQ(hvmem_free_frames(s->world->heap), FRAMES);
    CHECK_EQ(world_domain_gone(s->world, s->tenant), HVMEM_OK);
    CHECK(s->tables.broken == NULL);
    WORLD_END(s->world);
    free(s->memory[0]);
    free(s->memory[1]);
    free(s);
}

/* B43 as well: the id is flushed before it can be given out again. One flush; frames owe none. */
TEST(B43_teardown_pays_once)
{
    struct scene *s = scene(1);
    struct hvmem_ident_stats ids;
    hvmem_mfn mfn[40];
    hvmem_status status;
    unsigned i;

    for (i = 0; i < 40; i++)
        mfn[i] = take(s, i % 5);
    run_and_leave(s);
    memset(&s->world->counts, 0, sizeof s->world->counts);
    (void)teardown(s, 0, &status);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(s->world->counts.flushes, 0);
    CHECK(s->world->counts.tlb >= 1 && s->world->counts.tlb <= 2); /* the id, and its VMALLE1 */
    CHECK_EQ(hvmem_ident_get_stats(s->ident, &ids), HVMEM_OK);
    CHECK_EQ(ids.returned, 1);
    CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
    for (i = 0; i < 40; i++)
        CHECK_EQ(expect_lookup(s->world, mfn[i]).owed, OWED & ~HVMEM_OWES_TLB);
    scene_end(s);
}

/* Mapped elsewhere: those frames owe a flush all the same. */
TEST(foreign_frames_owe_a_flush)
{
    struct scene *s = scene(1);
    hvmem_mfn plain, foreign;
    hvmem_status status;

    plain = take(s, 3);
    foreign = take(s, 10);
    CHECK_EQ(hvmem_domain_foreign(s->tenant, foreign, 10), HVMEM_OK);
    CHECK_REFUSED(s->world, hvmem_domain_foreign(s->tenant, plain, 4), HVMEM_E_WRONG_ORDER);
    CHECK_EQ(expect_lookup(s->world, foreign).owed, HVMEM_OWES_FOREIGN);
    /* It is a mark, no debt: nothing settles it while it is owned. */
    CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
    CHECK_EQ(hvmem_settle(s->world->heap, foreign, 1024, HVMEM_OWES_ANY), HVMEM_OK);
    CHECK_EQ(expect_lookup(s->world, foreign).owed, HVMEM_OWES_FOREIGN);
    (void)teardown(s, 0, &status);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
    CHECK_EQ(expect_lookup(s->world, plain).owed & HVMEM_OWES_TLB, 0);
    CHECK_EQ(expect_lookup(s->world, foreign).owed, OWED | HVMEM_OWES_FOREIGN);
    scene_end(s);
}

/* Nobody says that the ids are gone: every frame owes its flush. With the word of the host none does. */
TEST(ids_not_known_to_be_gone)
{
    unsigned gone;

    for (gone = 0; gone < 2; gone++) {
        struct scene *s = scene(0);
        hvmem_mfn mfn = take(s, 4);
        hvmem_status status;

        (void)teardown(s, gone ? HVMEM_TEARDOWN_IDS_GONE : 0, &status);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(hvmem_drain(s->world->heap), HVMEM_OK);
        CHECK_EQ(expect_lookup(s->world, mfn).owed & HVMEM_OWES_TLB, gone ? 0 : HVMEM_OWES_TLB);
        scene_end(s);
    }
}

/* What frames owed before they were the domain's they still owe: its id says nothing about that. */
TEST(debts_of_earlier_owners_stay)
{
    struct scene *s = scene(1);
    struct hvmem_domain *donor = world_domain(s->world, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(10, donor);
    hvmem_status status;
    hvmem_mfn mfn;

    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    world_owe(s->world, mfn, 1024, OWED);
    CHECK_EQ(hvmem_free(s->world->heap, mfn, 10), HVMEM_OK);
    request.domain = s->tenant;
    request.flags = HVMEM_REQ_DEFER_ALL;
    request.lo = mfn;
    request.hi = mfn + 1024;
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    (void)teardown(s, 0, &status);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(expect_lookup(s->world, mfn).owed, OWED);
    CHECK_EQ(hvmem_alloc_order(s->world->heap, 10, &mfn), HVMEM_OK);
    CHECK_EQ(world_owed(s->world, mfn, 1024), 0);
    CHECK_EQ(hvmem_free(s->world->heap, mfn, 10), HVMEM_OK);
    CHECK_EQ(hvmem_domain_kill(donor), HVMEM_OK);
    CHECK_EQ(world_domain_gone(s->world, donor), HVMEM_OK);
    scene_end(s);
}

/* In steps, with tables that go in steps, a claim and a populate left open. */
TEST(in_steps_with_everything_open)
{
    struct scene *s = scene(0);
    struct hvmem_extent extents[64];
    struct hvmem_populate populate = {sizeof populate, 0, extents, 64, HVMEM_NODE_ANY, 0, 90, NULL};
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned i;

    for (i = 0; i < 64; i++)
        extents[i] = (struct hvmem_extent){i * 16ull, 0, 4, 0};
    CHECK_EQ(hvmem_domain_claim(s->tenant, HVMEM_NODE_ANY, 1500), HVMEM_OK);
    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_AGAIN);
    for (i = 0; i < 300; i++)
        (void)take(s, 0);
    s->tables.unmap_steps = 5;
    s->world->yields = 2;
    CHECK(teardown(s, 0, &status) > 100);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(s->tables.unmaps, 5);
    CHECK_EQ(hvmem_domain_populate(s->tenant, &populate, &cursor), HVMEM_E_STALE);
    scene_end(s);
}

/* A vCPU still runs: BUSY, nothing is freed, and later it works. */
TEST(busy_while_it_runs)
{
    struct scene *s = scene(1);
    struct hvmem_cursor cursor = {{0}}, forged = {{1, 2, 3, 4}};
    struct hvmem_entry entry;
    hvmem_status status;

    (void)take(s, 5);
    CHECK_REFUSED(s->world, hvmem_domain_teardown(s->tenant, 2, &cursor), HVMEM_E_ARG);
    CHECK_REFUSED(s->world, hvmem_domain_teardown(s->tenant, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(s->world, hvmem_domain_teardown(s->tenant, 0, &forged), HVMEM_E_STALE);
    CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_BUILDING);
    CHECK_EQ(hvmem_space_activate(s->space, 1, &entry), HVMEM_OK);
    CHECK_EQ(hvmem_space_entered(s->ident, 1), HVMEM_OK);
    (void)teardown(s, 0, &status);
    CHECK_EQ(status, HVMEM_E_BUSY);
    CHECK_EQ(expect_domain(s->tenant).pages, 32);
    CHECK_EQ(expect_domain(s->tenant).state, HVMEM_DOMAIN_DYING);
    CHECK_EQ(hvmem_space_deactivate(s->ident, 1), HVMEM_OK);
    CHECK_EQ(hvmem_space_entered(s->ident, 1), HVMEM_OK);
    (void)teardown(s, 0, &status);
    CHECK_EQ(status, HVMEM_OK);
    scene_end(s);
}

/* A step that fails at any point: again is enough, and the tables are taken down once. */
static int fail_at(const char *name, void *context)
{
    unsigned *left = context;

    return strcmp(name, "teardown_step") == 0 && *left != 0 && --*left == 0;
}

TEST(fails_at_any_step, points)
{
    unsigned at;

    for (at = 1; at < 6; at++) {
        struct scene *s = scene(1);
        hvmem_status status;
        unsigned left = at;

        (void)take(s, 7);
        test_set_point_hook(fail_at, &left);
        (void)teardown(s, 0, &status);
        CHECK_EQ(status, left ? HVMEM_OK : HVMEM_E_BUSY);
        test_set_point_hook(NULL, NULL);
        (void)teardown(s, 0, &status);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(s->tables.unmaps, 1);
        scene_end(s);
    }
}

/* Another CPU tears the domain down at test point `at` of an allocation. */
struct killer {
    struct scene *s;
    const char *at;
    hvmem_status status;
    unsigned calls;
};

static int tear_down(const char *name, void *context)
{
    struct killer *killer = context;

    if (strcmp(name, killer->at) != 0 || killer->calls++ != 0)
        return 0;
    world_set_cpu(1);
    (void)teardown(killer->s, 0, &killer->status);
    world_set_cpu(0);
    return 0;
}

/*
 * What an allocation is still paying for is not freed under its hands, in whatever state the domain was: it
 * would scrub what is the next owner's.
 */
TEST(waits_for_an_allocation_that_pays, points)
{
    static const char *const at[] = {"domain_enter", "settle"};
    unsigned i;

    for (i = 0; i < 8; i++) {
        struct killer killer = {scene(1), at[i % 2], HVMEM_OK, 0};
        struct scene *s = killer.s;
        struct hvmem_request request = expect_block(5, s->tenant);
        const unsigned running = i / 2 % 2, bulk = i / 4;
        hvmem_mfn mfn = 0, all = take(s, 9), next;
        hvmem_status status;
        hvmem_u32 got;

        CHECK_EQ(hvmem_free_owned(s->world->heap, all, 9, s->tenant, OWED), HVMEM_OK);
        request.lo = all;
        request.hi = all + 512;
        if (running)
            CHECK_EQ(hvmem_domain_start(s->tenant), HVMEM_OK);
        test_set_point_hook(tear_down, &killer);
        status = bulk ? hvmem_alloc_bulk(s->world->heap, &request, &mfn, 1, &got)
                      : hvmem_alloc(s->world->heap, &request, &mfn);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(killer.calls, 1);
        CHECK_EQ(killer.status, HVMEM_E_BUSY);
        /* One that saw the end of the domain got nothing; nobody was given what it pays for. */
        CHECK_EQ(status, i % 2 ? HVMEM_OK : HVMEM_E_DOMAIN);
        if (!status) {
            CHECK_EQ(expect_lookup(s->world, mfn).owner, 2);
            CHECK_EQ(hvmem_alloc_order(s->world->heap, 5, &next), HVMEM_OK);
            CHECK(next != mfn);
            CHECK_EQ(hvmem_free(s->world->heap, next, 5), HVMEM_OK);
        }
        (void)teardown(s, 0, &status);
        CHECK_EQ(status, HVMEM_OK);
        scene_end(s);
    }
}
