/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls between whose lock sections another CPU does something else: each call with each of these, at each
 * place where the call holds no lock. Whatever either is answered with: nobody is told that the heap is
 * corrupt, no frame has two owners or debts, and at the end every frame is free again and every count 0.
 */
#include "expect.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

#define LOW    0u    /* 32 frames of node 0 */
#define MIDDLE 32u   /* 32 frames of node 0, all free at first */
#define FAR    1024u /* 32 frames of node 1 */
#define AWAY   2048u /* where a bank comes that was not there */
#define NEW    3072u /* and another */
#define SPAN   32u
#define HELD   8

struct scene {
    struct world *world;
    struct hvmem_domain *domain[3]; /* [1], [2] */
    hvmem_mfn own[HELD];            /* single frames that CPU 0 got for the host */
    hvmem_mfn other[HELD];          /* and CPU 1 */
    hvmem_mfn pair[2], four[2];     /* blocks of orders 1 and 2, of CPU 0 and CPU 1 */
    hvmem_mfn owned[HELD];          /* of domain 1, by the short way */
    hvmem_mfn block;                /* of domain 1, order 2 */
    hvmem_mfn spare;                /* of domain 2, order 2 */
    hvmem_mfn late;                 /* of the host, in the middle bank, while a call is about it */
    hvmem_mfn away;                 /* out of service */
    void *table;                    /* of the bank that the call adds */
    int parted;                     /* the call frees a part of four[1] */
    int taken; /* by what the other CPU did: these blocks are not ours any more */
    int sound;
    /* The window. */
    void (*meanwhile)(struct scene *s);
    unsigned at, passed;
};

static struct scene *now; /* the scene that is played */

static struct hvmem_heap *heap_of(const struct scene *s)
{
    return s->world->heap;
}

/* ---- the stage -------------------------------------------------------------------------------- */

static const hvmem_u8 node_of_cpu[3] = {0, 0, 1};

static hvmem_mfn host_block(struct scene *s, hvmem_cpu cpu, hvmem_order order)
{
    hvmem_mfn mfn = EXPECT_NO_MFN;

    world_set_cpu(cpu);
    REQUIRE_EQ(hvmem_alloc_order(heap_of(s), order, &mfn), HVMEM_OK);
    return mfn;
}

static hvmem_mfn domain_block(struct scene *s, unsigned id, hvmem_order order)
{
    struct hvmem_request request = expect_block(order, s->domain[id]);
    hvmem_mfn mfn = EXPECT_NO_MFN;

    REQUIRE_EQ(hvmem_alloc(heap_of(s), &request, &mfn), HVMEM_OK);
    return mfn;
}

static void free_owned(struct scene *s, hvmem_mfn mfn, hvmem_order order, unsigned id)
{
    world_owe(s->world, mfn, 1ull << order, HVMEM_OWES_TLB);
    (void)hvmem_free_owned(heap_of(s), mfn, order, s->domain[id], 0);
}

static void people(struct scene *s)
{
    int i;

    for (i = 0; i < HELD; i++) {
        s->own[i] = host_block(s, 0, 0);
        s->owned[i] = EXPECT_NO_MFN;
        world_set_cpu(0);
        REQUIRE_EQ(hvmem_alloc_owned(heap_of(s), s->domain[1], 0, &s->owned[i]), HVMEM_OK);
        s->other[i] = host_block(s, 1, 0);
    }
    for (i = 0; i < 2; i++) {
        s->pair[i] = host_block(s, (hvmem_cpu)i, 1);
        s->four[i] = host_block(s, (hvmem_cpu)i, 2);
    }
    world_set_cpu(1);
    s->block = domain_block(s, 1, 2);
    s->spare = domain_block(s, 2, 2);
    /* Some of each in caches, some that owe a flush. */
    for (i = 0; i < 2; i++) {
        world_set_cpu(0);
        REQUIRE_EQ(hvmem_free(heap_of(s), s->own[HELD - 1 - i], 0), HVMEM_OK);
        free_owned(s, s->owned[HELD - 1 - i], 0, 1);
        world_set_cpu(1);
        REQUIRE_EQ(hvmem_free(heap_of(s), s->other[HELD - 1 - i], 0), HVMEM_OK);
    }
    world_set_cpu(0);
}

/* The middle bank is free and in no cache: nothing was given out while it was there. */
static struct scene *scene_with(unsigned flags)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);

    REQUIRE(s != NULL);
    config.max_order = 4;
    config.arena_order = 5;
    config.max_cpus = 3;
    config.max_banks = 3;
    config.cpu_node = node_of_cpu;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.owed_on_free = HVMEM_OWES_TLB;
    s->world = WORLD_NEW(&config, WORLD_BARRIER | flags);
    world_set_cpu(0);
    REQUIRE_EQ(world_bank(s->world, LOW, SPAN, 0, 0), HVMEM_OK);
    world_track(s->world, 0, NEW + SPAN);
    s->domain[1] = world_domain(s->world, 1, ~0ull, 0, NULL);
    s->domain[2] = world_domain(s->world, 2, ~0ull, 0, NULL);
    REQUIRE_EQ(world_bank(s->world, FAR, SPAN, 1, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(s->world), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_start(s->domain[1]), HVMEM_OK);
    people(s);
    s->late = EXPECT_NO_MFN;
    s->away = FAR + SPAN - 1;
    REQUIRE_EQ(hvmem_offline(heap_of(s), s->away), HVMEM_OK);
    REQUIRE_EQ(world_bank(s->world, MIDDLE, SPAN, 0, 0), HVMEM_OK);
    now = s;
    return s;
}

/* Everybody gives everything back; then nothing may be missing. */
static void owe_all_of(struct scene *s, unsigned id)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    while (hvmem_walk(heap_of(s), &cursor, &block) == HVMEM_AGAIN)
        if (block.owner == id && block.state != HVMEM_BLOCK_FREE)
            world_owe(s->world, block.mfn, 1ull << block.order, HVMEM_OWES_TLB);
}

static void give_all_back(struct scene *s)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    CHECK_EQ(hvmem_drain(heap_of(s)), HVMEM_OK);
    while (hvmem_walk(heap_of(s), &cursor, &block) == HVMEM_AGAIN) {
        switch (block.state) {
        case HVMEM_BLOCK_FREE:
        case HVMEM_BLOCK_CACHED:
            break;
        case HVMEM_BLOCK_OFFLINE:
            CHECK_EQ(hvmem_online(heap_of(s), block.mfn), HVMEM_OK);
            break;
        default:
            if (block.owner == 0)
                CHECK_EQ(hvmem_free_run(heap_of(s), block.mfn, 1ull << block.order), HVMEM_OK);
            break;
        }
    }
}

static int scene_end(struct scene *s)
{
    struct hvmem_stats stats;
    unsigned id;
    int sound;

    s->world->between = NULL;
    world_set_cpu(0);
    for (id = 1; id <= 2; id++) {
        if (s->domain[id] == NULL)
            continue;
        owe_all_of(s, id);
        CHECK_TORN_DOWN(s->world, s->domain[id]);
    }
    give_all_back(s);
    give_all_back(s); /* frames that went offline when they were freed */
    CHECK_EQ(hvmem_drain(heap_of(s)), HVMEM_OK);
    stats = expect_stats(s->world, HVMEM_NODE_ANY);
    sound = test_check_eq(stats.free, stats.frames, "everything is free", __FILE__, __LINE__, 0);
    sound &= test_check_eq(stats.claimed, 0, "claims", __FILE__, __LINE__, 0);
    sound &= s->sound && s->world->failure[0] == '\0';
    WORLD_END(s->world);
    free(s->table);
    free(s);
    return sound;
}

static void got(struct scene *s, hvmem_status status, const hvmem_mfn *at, hvmem_u64 frames)
{
    hvmem_mfn mfn = *at;

    s->sound &= CHECK(status != HVMEM_E_CORRUPT);
    if (status == HVMEM_OK && !CHECK_EQ(world_owed(s->world, mfn, frames), 0)) {
        test_note("frame %#llx of %llu owes", (unsigned long long)mfn, (unsigned long long)frames);
        s->sound = 0;
    }
}

/* ---- what another CPU does -------------------------------------------------------------------- */

static void other_bank(struct scene *s, hvmem_mfn base, hvmem_node node)
{
    if (world_remove(s->world, MIDDLE, SPAN) == HVMEM_OK)
        CHECK_EQ(world_bank(s->world, base, SPAN, node, 0), HVMEM_OK);
}

static void moves_bank(struct scene *s)
{
    other_bank(s, AWAY, 1);
}

static void changes_node(struct scene *s)
{
    other_bank(s, MIDDLE, 1);
}

static void removes_bank(struct scene *s)
{
    (void)world_remove(s->world, MIDDLE, SPAN);
}

static void vacates_bank(struct scene *s)
{
    hvmem_mfn late = s->late;

    s->late = EXPECT_NO_MFN;
    if (late != EXPECT_NO_MFN)
        s->sound &= CHECK_EQ(hvmem_free(heap_of(s), late, 2), HVMEM_OK);
    other_bank(s, AWAY, 1);
}

static void allocates(struct scene *s)
{
    hvmem_mfn mfn;

    while (hvmem_alloc_order(heap_of(s), 1, &mfn) == HVMEM_OK)
        got(s, HVMEM_OK, &mfn, 2);
}

/* The other part of a block that the call frees a part of. */
static void frees_rest(struct scene *s)
{
    if (s->parted)
        s->sound &= CHECK_EQ(hvmem_free_run(heap_of(s), s->four[1] + 3, 1), HVMEM_OK);
}

static void frees(struct scene *s)
{
    int i;

    for (i = 0; i < HELD - 2; i++)
        if (s->own[i] != EXPECT_NO_MFN)
            (void)hvmem_free(heap_of(s), s->own[i], 0);
    if (s->block != EXPECT_NO_MFN)
        free_owned(s, s->block, 2, 1);
    s->taken = 1;
}

static void drains(struct scene *s)
{
    CHECK_EQ(hvmem_drain(heap_of(s)), HVMEM_OK);
}

static void offlines(struct scene *s)
{
    (void)hvmem_offline(heap_of(s), MIDDLE + 5);
    (void)hvmem_offline(heap_of(s), s->block + 1);
    (void)hvmem_offline(heap_of(s), s->own[0]);
    (void)hvmem_online(heap_of(s), s->away);
}

static void claims(struct scene *s)
{
    if (s->domain[2] != NULL)
        (void)hvmem_domain_claim(s->domain[2], HVMEM_NODE_ANY, 40);
}

static void claims_and_not(struct scene *s)
{
    claims(s);
    if (s->domain[2] != NULL)
        (void)hvmem_domain_claim(s->domain[2], HVMEM_NODE_ANY, 0);
}

static void ends_domain(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    owe_all_of(s, 2);
    do
        status = hvmem_domain_teardown(s->domain[2], 0, &cursor);
    while (status == HVMEM_AGAIN);
    if (status == HVMEM_OK && world_domain_gone(s->world, s->domain[2]) == HVMEM_OK)
        s->domain[2] = NULL;
}

static void quiesces(struct scene *s)
{
    (void)hvmem_quiesce(heap_of(s));
}

static void reserves(struct scene *s)
{
    (void)hvmem_reserve(heap_of(s), MIDDLE + 3, 9);
}

static void limits(struct scene *s)
{
    CHECK_EQ(hvmem_domain_limit(s->domain[1], 3), HVMEM_OK);
}

static void cpu_leaves(struct scene *s)
{
    world_forget_cpu(s->world, 1);
    s->world->online &= ~2ull;
    if (hvmem_cpu_offline(heap_of(s), 1) == HVMEM_OK)
        CHECK_EQ(hvmem_cpu_online(heap_of(s), 1), HVMEM_OK);
    s->world->online |= 2;
}

static void works_for_domain(struct scene *s)
{
    hvmem_mfn mfn;
    int i;

    for (i = 0; i < 3; i++)
        if (hvmem_alloc_owned(heap_of(s), s->domain[1], 0, &mfn) == HVMEM_OK) {
            CHECK_EQ(world_owed(s->world, mfn, 1), 0);
            free_owned(s, mfn, 0, 1);
        }
}

static void scrubs(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    while (hvmem_scrub_step(heap_of(s), HVMEM_NODE_ANY, 1, &cursor) == HVMEM_AGAIN)
        continue;
}

struct act {
    const char *name;
    void (*run)(struct scene *s);
};

static const struct act acts[] = {
    {"moves a bank", moves_bank},
    {"changes a bank's node", changes_node},
    {"removes a bank", removes_bank},
    {"vacates a bank", vacates_bank},
    {"allocates", allocates},
    {"frees", frees},
    {"frees the rest of a block", frees_rest},
    {"drains", drains},
    {"takes frames offline", offlines},
    {"claims", claims},
    {"claims and cancels", claims_and_not},
    {"ends a domain", ends_domain},
    {"quiesces", quiesces},
    {"reserves", reserves},
    {"limits", limits},
    {"lets a CPU go and come", cpu_leaves},
    {"works for a domain", works_for_domain},
    {"scrubs", scrubs},
};

static void between(struct world *world)
{
    struct scene *s = now;
    hvmem_cpu cpu = world_cpu();

    if (s->passed++ != s->at)
        return;
    world->between = NULL;
    world_set_cpu(2);
    s->meanwhile(s);
    world_set_cpu(cpu);
}

/* ---- the calls -------------------------------------------------------------------------------- */

static void answered(hvmem_status status)
{
    CHECK(status != HVMEM_E_CORRUPT);
}

static void request(struct scene *s, const struct hvmem_request *what)
{
    hvmem_mfn mfn = 0;
    hvmem_status status = hvmem_alloc(heap_of(s), what, &mfn);
    hvmem_node node = 0;

    got(s, status, &mfn, what->count ? what->count : 1ull << what->order);
    if (status == HVMEM_OK && what->flags & HVMEM_REQ_EXACT_NODE) {
        CHECK_EQ(hvmem_node_of(heap_of(s), mfn, &node), HVMEM_OK);
        s->sound &= CHECK_EQ(node, what->node);
    }
}

static void alloc_orders(struct scene *s)
{
    hvmem_order order;
    hvmem_mfn mfn = 0;

    for (order = 0; order <= 4; order++)
        got(s, hvmem_alloc_order(heap_of(s), order, &mfn), &mfn, 1ull << order);
}

static void alloc_for_domain(struct scene *s)
{
    hvmem_order order;

    for (order = 0; order <= 4; order += 2) {
        struct hvmem_request what = expect_block(order, s->domain[1]);

        request(s, &what);
    }
}

static void alloc_for_another(struct scene *s)
{
    struct hvmem_request what = expect_block(1, s->domain[2]);

    what.flags = HVMEM_REQ_DEFER_ALL;
    s->meanwhile = s->meanwhile == ends_domain ? drains : s->meanwhile; /* the handle is in use */
    (void)hvmem_domain_claim(s->domain[2], HVMEM_NODE_ANY, 6);
    {
        hvmem_mfn mfn = 0;

        answered(hvmem_alloc(heap_of(s), &what, &mfn));
    }
}

static void alloc_exact(struct scene *s)
{
    struct hvmem_request what = expect_block(0, NULL);
    hvmem_node node;

    for (node = 0; node < 2; node++) {
        what.flags = HVMEM_REQ_EXACT_NODE;
        what.node = node;
        request(s, &what);
        what.flags |= HVMEM_REQ_NO_CACHE;
        request(s, &what);
    }
}

static void alloc_coloured(struct scene *s)
{
    struct hvmem_request what = expect_block(0, NULL);

    what.colour_mask = 3;
    what.colour = 2;
    request(s, &what);
}

static void alloc_runs(struct scene *s)
{
    struct hvmem_request what = expect_run(11, 0, 0, 0);

    request(s, &what);
    what.lo = 3;
    what.hi = MIDDLE + SPAN;
    what.count = 13;
    request(s, &what);
}

static void alloc_run_over_blocks(struct scene *s)
{
    struct hvmem_request what = expect_run(13, 0, MIDDLE + 17, AWAY + 15);

    what.flags = HVMEM_REQ_EXACT_NODE;
    what.node = 0;
    request(s, &what);
}

static void alloc_bulk(struct scene *s)
{
    struct hvmem_request what = expect_block(1, s->domain[1]);
    hvmem_mfn frames[20];
    hvmem_u32 n = 0, i;

    answered(hvmem_alloc_bulk(heap_of(s), &what, frames, 20, &n));
    for (i = 0; i < n; i++)
        CHECK_EQ(world_owed(s->world, frames[i], 2), 0);
}

static void alloc_owned(struct scene *s)
{
    hvmem_mfn mfn = 0;
    int i;

    for (i = 0; i < 3; i++)
        got(s, hvmem_alloc_owned(heap_of(s), s->domain[1], 0, &mfn), &mfn, 1);
}

static void reserve(struct scene *s)
{
    answered(hvmem_reserve(heap_of(s), MIDDLE + 1, 20));
    answered(hvmem_reserve(heap_of(s), LOW + 30, 5));
}

static void free_host(struct scene *s)
{
    int i;

    for (i = 0; i < 3 && !s->taken; i++) {
        hvmem_mfn mfn = s->own[i];

        s->own[i] = EXPECT_NO_MFN;
        CHECK_EQ(hvmem_free(heap_of(s), mfn, 0), HVMEM_OK);
    }
}

static void free_remote(struct scene *s)
{
    CHECK_EQ(hvmem_free(heap_of(s), s->other[0], 0), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap_of(s), s->pair[1], 1), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap_of(s), s->four[1], HVMEM_ORDER_ANY), HVMEM_OK);
    CHECK_EQ(hvmem_free(heap_of(s), s->four[0], 2), HVMEM_OK);
}

static void free_domain(struct scene *s)
{
    hvmem_mfn block = s->block;
    int i;

    for (i = 0; i < 3; i++) {
        world_owe(s->world, s->owned[i], 1, HVMEM_OWES_TLB);
        CHECK_EQ(hvmem_free_owned(heap_of(s), s->owned[i], 0, s->domain[1], 0), HVMEM_OK);
    }
    if (s->taken)
        return;
    s->block = EXPECT_NO_MFN;
    world_owe(s->world, block, 4, HVMEM_OWES_TLB);
    CHECK_EQ(hvmem_free_owned(heap_of(s), block, 2, s->domain[1], 0), HVMEM_OK);
}

static void free_part(struct scene *s)
{
    s->parted = 1;
    CHECK_EQ(hvmem_free_run(heap_of(s), s->four[1] + 1, 2), HVMEM_OK);
}

static void free_list(struct scene *s)
{
    hvmem_u32 done = 0;

    CHECK_EQ(hvmem_free_bulk(heap_of(s), s->other, HELD - 2, 0, &done), HVMEM_OK);
    CHECK_EQ(done, HELD - 2);
    CHECK_EQ(hvmem_free_bulk(heap_of(s), s->pair, 2, 1, &done), HVMEM_OK);
}

static void free_scrubbed(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    do
        status = hvmem_free_scrubbed(heap_of(s), s->four[0], 2, NULL, 0, 1, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
}

static void settle(struct scene *s)
{
    CHECK_EQ(hvmem_settle(heap_of(s), s->four[0], 4, HVMEM_OWES_ANY), HVMEM_OK);
}

static void foreign(struct scene *s)
{
    answered(hvmem_domain_foreign(s->domain[1], s->block, 2));
}

static void offline_free(struct scene *s)
{
    answered(hvmem_offline(heap_of(s), MIDDLE + 7));
}

/* A block in use in the middle bank. */
static void come_late(struct scene *s)
{
    void (*hook)(struct world * world) = s->world->between;
    struct hvmem_request what = expect_block(2, NULL);
    hvmem_mfn mfn = EXPECT_NO_MFN;

    s->world->between = NULL;
    what.lo = MIDDLE;
    what.hi = MIDDLE + SPAN;
    REQUIRE_EQ(hvmem_alloc(heap_of(s), &what, &mfn), HVMEM_OK);
    s->late = mfn;
    s->world->between = hook;
}

static void offline_late(struct scene *s)
{
    come_late(s);
    answered(hvmem_offline(heap_of(s), s->late + 1));
}

static void look_late(struct scene *s)
{
    struct hvmem_block block;

    come_late(s);
    answered(hvmem_lookup(heap_of(s), s->late + 1, &block));
    answered(hvmem_quarantine_release(heap_of(s), s->late == EXPECT_NO_MFN ? MIDDLE : s->late));
}

static void offline_used(struct scene *s)
{
    answered(hvmem_offline(heap_of(s), s->block + 2));
    answered(hvmem_offline(heap_of(s), s->own[1]));
}

static void online(struct scene *s)
{
    answered(hvmem_online(heap_of(s), s->away));
}

static void drain(struct scene *s)
{
    CHECK_EQ(hvmem_drain(heap_of(s)), HVMEM_OK);
}

static void look(struct scene *s)
{
    struct hvmem_stats stats;
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_status status;

    CHECK_EQ(hvmem_stats(heap_of(s), HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_OK);
    (void)hvmem_free_frames(heap_of(s));
    status = hvmem_lookup(heap_of(s), MIDDLE + 9, &block);
    CHECK(status == HVMEM_OK || status == HVMEM_E_FOREIGN);
    while ((status = hvmem_walk(heap_of(s), &cursor, &block)) == HVMEM_AGAIN)
        continue;
    CHECK_EQ(status, HVMEM_OK);
}

static void remove_bank(struct scene *s)
{
    answered(world_remove(s->world, MIDDLE, SPAN));
}

static void add_bank(struct scene *s)
{
    struct hvmem_bank bank = {sizeof bank, 0, NEW, SPAN, 0, 0};
    hvmem_size bytes = 0;

    REQUIRE_EQ(hvmem_bank_size(heap_of(s), &bank, &bytes), HVMEM_OK);
    REQUIRE(s->table == NULL);
    s->table = aligned_alloc(64, bytes);
    REQUIRE(s->table != NULL);
    world_garbage(s->table, bytes);
    if (world_remove(s->world, MIDDLE, SPAN) == HVMEM_OK)
        answered(hvmem_bank_add(heap_of(s), &bank, s->table, bytes));
}

static void scrub(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    while ((status = hvmem_scrub_step(heap_of(s), HVMEM_NODE_ANY, 3, &cursor)) == HVMEM_AGAIN)
        continue;
    answered(status);
}

static void claim(struct scene *s)
{
    s->meanwhile = s->meanwhile == ends_domain ? drains : s->meanwhile; /* the handle is in use */
    answered(hvmem_domain_claim(s->domain[2], 0, 7));
    answered(hvmem_domain_claim(s->domain[2], HVMEM_NODE_ANY, 20));
    answered(hvmem_domain_claim(s->domain[2], 0, 0));
}

static void teardown(struct scene *s)
{
    s->meanwhile = s->meanwhile == ends_domain ? drains : s->meanwhile;
    ends_domain(s);
}

static void quiesce(struct scene *s)
{
    answered(hvmem_quiesce(heap_of(s)));
}

static void cpu_goes(struct scene *s)
{
    s->meanwhile = s->meanwhile == cpu_leaves ? drains : s->meanwhile;
    cpu_leaves(s);
}

static const struct act calls[] = {
    {"alloc_order", alloc_orders},
    {"alloc for a domain", alloc_for_domain},
    {"alloc on a claim", alloc_for_another},
    {"alloc on a node", alloc_exact},
    {"alloc by colour", alloc_coloured},
    {"alloc of runs", alloc_runs},
    {"alloc of a run over blocks", alloc_run_over_blocks},
    {"alloc_bulk", alloc_bulk},
    {"alloc_owned", alloc_owned},
    {"reserve", reserve},
    {"free", free_host},
    {"free of another CPU's", free_remote},
    {"free_owned", free_domain},
    {"free_run of a part", free_part},
    {"free_bulk", free_list},
    {"free_scrubbed", free_scrubbed},
    {"settle", settle},
    {"foreign", foreign},
    {"offline", offline_free},
    {"offline of frames in use", offline_used},
    {"offline in a bank that goes", offline_late},
    {"looking at a bank that goes", look_late},
    {"online", online},
    {"drain", drain},
    {"looking", look},
    {"bank_remove", remove_bank},
    {"bank_add", add_bank},
    {"scrub_step", scrub},
    {"claim", claim},
    {"teardown", teardown},
    {"quiesce", quiesce},
    {"cpu_offline and online", cpu_goes},
};

/* ---- each with each ---------------------------------------------------------------------------- */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Whether there was such a place. */
static int play(const struct act *call, const struct act *act, unsigned at)
{
    struct scene *s = scene_with(WORLD_HOST_LOCK);
    int reached;

    s->sound = 1;
    s->meanwhile = act->run;
    s->at = at;
    s->world->between = between;
    call->run(s);
    reached = s->passed > at;
    if (!scene_end(s))
        test_note("%s while another CPU %s at place %u", call->name, act->name, at);
    return reached;
}

TEST(each_call_with_each_act)
{
    unsigned call, act, at;

    for (call = 0; call < COUNT(calls); call++)
        for (act = 0; act < COUNT(acts); act++)
            for (at = 0; play(&calls[call], &acts[act], at); at++)
                continue;
}

/* ---- locks ------------------------------------------------------------------------------------ */

static int move_within_node(const char *name, void *context)
{
    struct scene *s = context;

    if (strcmp(name, "bank_lock") != 0 || s->passed++ != s->at)
        return 0;
    test_set_point_hook(NULL, NULL);
    if (world_remove(s->world, MIDDLE, SPAN) == HVMEM_OK)
        CHECK_EQ(world_bank(s->world, AWAY, SPAN, 0, 0), HVMEM_OK);
    return 0;
}

/* The slot of a bank is another's, of another arena: its sets are not changed under the lock of the first. */
TEST(slot_of_another_arena_is_left_alone, points)
{
    void (*const which[])(struct scene *) = {alloc_run_over_blocks, reserve, scrub, look, teardown};
    unsigned i, at;

    for (i = 0; i < COUNT(which); i++)
        for (at = 0;; at++) {
            struct scene *s = scene_with(0);
            unsigned passed;

            s->at = at;
            test_set_point_hook(move_within_node, s);
            which[i](s);
            test_set_point_hook(NULL, NULL);
            passed = s->passed;
            (void)scene_end(s);
            if (passed <= at)
                break;
        }
}

/* ---- counting --------------------------------------------------------------------------------- */

#define BEYOND (1ull << 35)

struct homeward {
    struct world *world;
    hvmem_mfn frame[2];
    hvmem_order order[2];
};

static void send_home(struct homeward *h, int which)
{
    hvmem_cpu cpu = world_cpu();

    world_set_cpu(1);
    CHECK_EQ(hvmem_free(h->world->heap, h->frame[which], h->order[which]), HVMEM_OK);
    world_set_cpu(cpu);
}

static int goes_on(const char *name, void *context)
{
    struct homeward *h = context;

    if (strcmp(name, "cached_out") != 0)
        return 0;
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(hvmem_drain(h->world->heap), HVMEM_OK);
    send_home(h, 1);
    return 0;
}

/*
 * Blocks of another node on their way home are counted while their CPU sends them off and puts others in
 * their place: no record is looked for in the table of another bank.
 */
TEST(blocks_on_their_way_home_are_counted_beside_their_cpu, points)
{
    const hvmem_node nodes[] = {HVMEM_NODE_ANY, 1};
    struct hvmem_config config = world_config();
    unsigned i;

    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    for (i = 0; i < COUNT(nodes); i++) {
        struct hvmem_request what = expect_block(0, NULL);
        struct homeward h = {WORLD_NEW(&config, WORLD_BARRIER), {0, 0}, {0, 3}};
        struct hvmem_stats stats;
        int which;

        REQUIRE_EQ(world_bank(h.world, 4096, SPAN, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_bank(h.world, LOW, SPAN, 1, 0), HVMEM_OK);
        REQUIRE_EQ(world_bank(h.world, BEYOND, SPAN, 1, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(h.world), HVMEM_OK);
        for (which = 0; which < 2; which++) {
            what.order = h.order[which];
            what.lo = which == 0 ? LOW : BEYOND;
            what.hi = what.lo + SPAN;
            REQUIRE_EQ(hvmem_alloc(h.world->heap, &what, &h.frame[which]), HVMEM_OK);
        }
        send_home(&h, 0);
        test_set_point_hook(goes_on, &h);
        CHECK_EQ(hvmem_stats(h.world->heap, nodes[i], sizeof stats, &stats), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        stats = expect_stats(h.world, HVMEM_NODE_ANY);
        CHECK_EQ(stats.free, 3 * SPAN);
        CHECK_EQ(stats.cached, 8);
        WORLD_END(h.world);
    }
}

/* ---- a node that gets memory -------------------------------------------------------------------- */

/* A CPU of that node, in whose cache frames of another one are, asks for a frame of its own node. */
static void wants_its_node(struct scene *s)
{
    struct hvmem_request what = expect_block(0, NULL);

    what.flags = HVMEM_REQ_EXACT_NODE;
    what.node = 1;
    request(s, &what);
}

TEST(node_that_gets_memory_gives_its_own)
{
    struct hvmem_config config = world_config();
    hvmem_mfn mfn = 0;
    unsigned at;

    config.max_cpus = 3;
    config.cpu_node = node_of_cpu;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    for (at = 0;; at++) {
        struct scene s = {.meanwhile = wants_its_node, .sound = 1, .at = at};

        s.world = WORLD_NEW(&config, WORLD_HOST_LOCK | WORLD_BARRIER);
        REQUIRE_EQ(world_bank(s.world, LOW, SPAN, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(s.world), HVMEM_OK);
        world_set_cpu(2);
        REQUIRE_EQ(hvmem_alloc_order(s.world->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(s.world->heap, mfn, 0), HVMEM_OK);
        world_set_cpu(0);
        now = &s;
        s.world->between = between;
        CHECK_EQ(world_bank(s.world, FAR, SPAN, 1, 0), HVMEM_OK);
        s.world->between = NULL;
        if (!s.sound)
            test_note("at place %u", at);
        WORLD_END(s.world);
        if (s.passed <= at)
            break;
    }
}

/* ---- a bank that is being added ---------------------------------------------------------------- */

struct arrival {
    struct world *world;
    unsigned looks;
};

/* Another CPU looks around, and frees what it does not have. */
static int looks_around(const char *name, void *context)
{
    struct arrival *arrival = context;
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_status status;
    hvmem_u32 walked = 0;

    if (strcmp(name, "bank_fill") != 0)
        return 0;
    arrival->looks++;
    CHECK_EQ(hvmem_lookup(arrival->world->heap, MIDDLE + SPAN - 1, &block), HVMEM_E_FOREIGN);
    CHECK_EQ(hvmem_free(arrival->world->heap, MIDDLE + SPAN - 1, 0), HVMEM_E_FOREIGN);
    while ((status = hvmem_walk(arrival->world->heap, &cursor, &block)) == HVMEM_AGAIN)
        walked++;
    CHECK_EQ(status, HVMEM_OK);
    CHECK(walked >= 2); /* those before and behind it */
    return 0;
}

TEST(frames_of_a_bank_that_comes_are_foreign, points)
{
    struct hvmem_config config = world_config();
    struct arrival arrival = {NULL, 0};

    config.max_order = 3;
    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    arrival.world = WORLD_NEW(&config, WORLD_BARRIER);
    REQUIRE_EQ(world_bank(arrival.world, LOW, SPAN, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(arrival.world, FAR, SPAN, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(arrival.world), HVMEM_OK);
    test_set_point_hook(looks_around, &arrival);
    CHECK_EQ(world_bank(arrival.world, MIDDLE, SPAN, 0, 0), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(arrival.looks, 4);
    CHECK_EQ(expect_lookup(arrival.world, MIDDLE + SPAN - 1).state, HVMEM_BLOCK_FREE);
    WORLD_END(arrival.world);
}
