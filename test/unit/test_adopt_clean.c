/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clean mark of every table: whatever one call changes in a table after a quiesce, the mark of that
 * table goes first, also where a block lies in two of them; and another heap adopts what was left.
 */
#include "expect.h"
#include "lib/gathered.h"
#include "lib/table.h"
#include "test/support/test_tables.h"

#include <hvmem/cache.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FRAMES 512u
#define BANKS  3u
#define HELD   24u

static const hvmem_mfn border[BANKS + 1] = {0, 95, 290, FRAMES};

struct held {
    hvmem_mfn mfn;
    hvmem_u64 frames;
    struct hvmem_domain *domain;
};

struct scene {
    struct world *world;
    struct hvmem_heap *heap;
    struct test_rng rng;
    struct hvmem_domain *domain[2];
    struct held held[HELD];
    unsigned count;
    hvmem_mfn bad; /* EXPECT_NO_MFN: none was told to go */
    struct hvmem_cursor scrub;
    struct test_tables *tables; /* of the first domain */
    hvmem_gfn gfn;              /* from which on nothing is mapped in them */
};

/* ---- what is written first --------------------------------------------------------------------- */

/*
 * Who dies leaves what it has written. So the first that a call writes to a table must be that the mark is
 * gone: the tables are read-only until then, and whoever writes to another place is caught.
 */
static struct watched {
    unsigned char *memory;
    size_t bytes; /* whole pages */
    int shut;
} watched[BANKS];
static volatile sig_atomic_t wrong; /* a word of a table that was written first */

static void written(int number, siginfo_t *info, void *context)
{
    size_t mark = __builtin_offsetof(struct hvmem__table, clean);
    unsigned i;
    (void)context;

    for (i = 0; i < BANKS; i++) {
        struct watched *w = &watched[i];
        size_t at = (size_t)((unsigned char *)info->si_addr - w->memory);

        if (at >= w->bytes || !w->shut)
            continue;
        if (at != mark)
            wrong = (sig_atomic_t)at;
        w->shut = 0;
        mprotect(w->memory, w->bytes, PROT_READ | PROT_WRITE);
        return;
    }
    signal(number, SIG_DFL);
}

static void shut_tables(int shut)
{
    static struct sigaction before;
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    unsigned i;

    action.sa_sigaction = written;
    wrong = 0;
    for (i = 0; i < BANKS; i++) {
        watched[i].shut = shut && watched[i].bytes;
        mprotect(watched[i].memory, watched[i].bytes, PROT_READ | (shut ? 0 : PROT_WRITE));
    }
    sigaction(SIGSEGV, shut ? &action : &before, shut ? &before : NULL);
}

/* A bank whose table has pages of its own. */
static void bank(struct world *world, unsigned i)
{
    struct hvmem_bank bank = {
        sizeof bank, i == 1 ? HVMEM_BANK_DIRTY : 0, border[i], border[i + 1] - border[i], 0, 0};
    struct world_table table = {bank.base, bank.frames, 0, bank.flags, NULL, 0, 0};

    REQUIRE_EQ(hvmem_bank_size(world->heap, &bank, &table.bytes), HVMEM_OK);
    table.mapped = (table.bytes + 4095) & ~(hvmem_size)4095;
    table.memory =
        mmap(NULL, table.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(table.memory != MAP_FAILED);
    world_garbage(table.memory, table.bytes);
    REQUIRE_EQ(hvmem_bank_add(world->heap, &bank, table.memory, table.bytes), HVMEM_OK);
    world->tables[world->table_count++] = table;
    watched[i] = (struct watched){table.memory, table.mapped, 0};
}

/* ---- calls ------------------------------------------------------------------------------------ */

static struct scene scene_new(uint64_t stream)
{
    struct hvmem_config config = world_config();
    struct scene scene = {0};
    unsigned i;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_order = 8;
    config.max_cpus = 2;
    config.flags = stream & 1 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    if (stream & 2) /* what a domain owes as a whole would forbid a quiesce */
        config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
    scene.world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
    scene.heap = scene.world->heap;
    scene.rng = test_rng(stream);
    scene.bad = EXPECT_NO_MFN;
    for (i = 0; i < BANKS; i++)
        bank(scene.world, i);
    REQUIRE_EQ(world_smp(scene.world), HVMEM_OK);
    for (i = 0; i < 2; i++) {
        scene.domain[i] = world_domain(scene.world, i + 1, ~0ull, 0, NULL);
        if (i)
            REQUIRE_EQ(hvmem_domain_start(scene.domain[i]), HVMEM_OK);
    }
    scene.tables = calloc(1, sizeof *scene.tables);
    REQUIRE(scene.tables != NULL);
    test_tables_init(scene.tables);
    REQUIRE_EQ(hvmem_domain_attach(scene.domain[0], &scene.tables->ops, scene.tables, NULL),
               HVMEM_OK);
    return scene;
}

static void hold(struct scene *scene, hvmem_mfn mfn, hvmem_u64 frames, struct hvmem_domain *domain)
{
    scene->held[scene->count++] = (struct held){mfn, frames, domain};
}

static void drop(struct scene *scene, unsigned at)
{
    scene->held[at] = scene->held[--scene->count];
}

static void allocate(struct scene *scene)
{
    static const hvmem_order orders[] = {0, 1, 3, 5, 6, 7, 8};
    struct hvmem_domain *who =
        test_below(&scene->rng, 3) ? scene->domain[test_below(&scene->rng, 2)] : NULL;
    struct hvmem_request request;
    hvmem_mfn mfn;

    if (scene->count == HELD)
        return;
    if (test_below(&scene->rng, 2))
        request = expect_block(orders[test_below(&scene->rng, 7)], who);
    else
        request = expect_run(1 + test_below(&scene->rng, 200), 0, 0, 0);
    request.domain = who;
    if (test_below(&scene->rng, 2))
        request.lo = test_below(&scene->rng, FRAMES);
    if (hvmem_alloc(scene->heap, &request, &mfn) == HVMEM_OK)
        hold(scene, mfn, request.count ? request.count : (hvmem_u64)1 << request.order, who);
}

static void allocate_some(struct scene *scene)
{
    struct hvmem_domain *who =
        test_below(&scene->rng, 2) ? scene->domain[test_below(&scene->rng, 2)] : NULL;
    struct hvmem_request request = expect_block((hvmem_order)test_below(&scene->rng, 3), who);
    hvmem_mfn mfn[5];
    hvmem_u32 got = 0, i;

    if (scene->count + 5 > HELD)
        return;
    if (test_below(&scene->rng, 2))
        got = hvmem_alloc_order(scene->heap, request.order, mfn) == HVMEM_OK;
    else
        hvmem_alloc_bulk(scene->heap, &request, mfn, 5, &got);
    for (i = 0; i < got; i++)
        hold(scene, mfn[i], (hvmem_u64)1 << request.order,
             expect_lookup(scene->world, mfn[i]).owner ? who : NULL);
}

static void populate(struct scene *scene)
{
    struct hvmem_extent extents[4] = {{0}};
    struct hvmem_populate request = {.size = sizeof request, .extents = extents, .count = 4};
    struct hvmem_cursor cursor = {{0}};
    hvmem_u64 done = 0, i;

    if (scene->world->config.owed_on_free & HVMEM_OWES_ICACHE || scene->count + 4 > HELD ||
        scene->gfn + 4 * 8 > TABLES_GFNS)
        return;
    for (i = 0; i < 4; i++) {
        extents[i].gfn = scene->gfn + 8 * i;
        extents[i].order = (hvmem_order)test_below(&scene->rng, 4);
        extents[i].flags = test_below(&scene->rng, 4) ? 0 : HVMEM_EXTENT_FIRST_TOUCH;
    }
    request.node = HVMEM_NODE_ANY;
    request.done = &done;
    while (hvmem_domain_populate(scene->domain[0], &request, &cursor) == HVMEM_AGAIN)
        continue;
    for (i = 0; i < done; i++)
        hold(scene, scene->tables->map[extents[i].gfn] & ~TABLES_UNTOUCHED,
             (hvmem_u64)1 << extents[i].order, scene->domain[0]);
    scene->gfn += 4 * 8;
}

/* The block of a holding, if it is one; by its number, one way or another. */
static int release_block(struct scene *scene, const struct held *h)
{
    struct hvmem_block block = expect_lookup(scene->world, h->mfn);
    hvmem_u32 done;

    if (block.state == HVMEM_BLOCK_RESERVED || block.mfn != h->mfn ||
        (hvmem_u64)1 << block.order != h->frames)
        return 0;
    switch (test_below(&scene->rng, 3)) {
    case 0:
        CHECK_EQ(hvmem_free(scene->heap, h->mfn, block.order), HVMEM_OK);
        return 1;
    case 1:
        CHECK_EQ(hvmem_free_bulk(scene->heap, &h->mfn, 1, block.order, &done), HVMEM_OK);
        return 1;
    default:
        CHECK_EQ(hvmem_free_owned(scene->heap, h->mfn, block.order, h->domain, 0), HVMEM_OK);
        return 1;
    }
}

static void release(struct scene *scene)
{
    unsigned at;
    struct held *h;
    hvmem_u64 cut;

    if (!scene->count)
        return;
    at = (unsigned)test_below(&scene->rng, scene->count);
    h = &scene->held[at];
    cut = test_below(&scene->rng, 2) ? h->frames : 1 + test_below(&scene->rng, h->frames);
    if (cut == h->frames) {
        if (test_below(&scene->rng, 3) == 0 || !release_block(scene, h))
            CHECK_EQ(hvmem_free_run(scene->heap, h->mfn, h->frames), HVMEM_OK);
        drop(scene, at);
    } else if (test_below(&scene->rng, 2)) { /* its end */
        CHECK_EQ(hvmem_free_run(scene->heap, h->mfn + (h->frames - cut), cut), HVMEM_OK);
        h->frames -= cut;
    } else {
        CHECK_EQ(hvmem_free_run(scene->heap, h->mfn, cut), HVMEM_OK);
        h->mfn += cut;
        h->frames -= cut;
    }
}

static void reserve(struct scene *scene)
{
    hvmem_mfn mfn = test_below(&scene->rng, FRAMES - 1);
    hvmem_u64 count = 1 + test_below(&scene->rng, FRAMES - mfn < 150 ? FRAMES - mfn : 150);

    if (scene->count < HELD && hvmem_reserve(scene->heap, mfn, count) == HVMEM_OK)
        hold(scene, mfn, count, NULL);
}

static void offline(struct scene *scene)
{
    if (scene->bad != EXPECT_NO_MFN) {
        CHECK_EQ(hvmem_online(scene->heap, scene->bad), HVMEM_OK);
        scene->bad = EXPECT_NO_MFN;
        return;
    }
    scene->bad = test_below(&scene->rng, FRAMES);
    if (hvmem_offline(scene->heap, scene->bad) < 0)
        scene->bad = EXPECT_NO_MFN;
}

/* Of a block: scrub on free in one or several steps, a settle, or a mark as mapped elsewhere. */
static void work(struct scene *scene)
{
    unsigned at = 0, kind = (unsigned)test_below(&scene->rng, 3);
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_block block;
    struct held *h;

    if (!scene->count)
        return;
    at = (unsigned)test_below(&scene->rng, scene->count);
    h = &scene->held[at];
    block = expect_lookup(scene->world, h->mfn);
    if (block.state == HVMEM_BLOCK_RESERVED || block.mfn != h->mfn ||
        (hvmem_u64)1 << block.order != h->frames)
        return;
    if (kind == 0 && hvmem_free_scrubbed(scene->heap, h->mfn, block.order, h->domain, 0, 16,
                                         &cursor) == HVMEM_OK)
        drop(scene, at);
    if (kind == 1)
        CHECK_EQ(hvmem_settle(scene->heap, h->mfn, h->frames, HVMEM_OWES_ANY), HVMEM_OK);
    if (kind == 2 && h->domain)
        CHECK_EQ(hvmem_domain_foreign(h->domain, h->mfn, block.order), HVMEM_OK);
}

static void scrub(struct scene *scene)
{
    CHECK(hvmem_scrub_step(scene->heap, HVMEM_NODE_ANY, 40, &scene->scrub) >= 0);
}

static void one_call(struct scene *scene)
{
    world_set_cpu((hvmem_cpu)test_below(&scene->rng, 2));
    switch (test_below(&scene->rng, 13)) {
    case 0:
    case 1:
        allocate_some(scene);
        break;
    case 2:
    case 3:
        allocate(scene);
        break;
    case 12:
        populate(scene);
        break;
    case 4:
    case 5:
    case 6:
        release(scene);
        break;
    case 7:
    case 8:
        reserve(scene);
        break;
    case 9:
        offline(scene);
        break;
    case 10:
        work(scene);
        break;
    default:
        scrub(scene);
    }
    world_set_cpu(0);
}

/* One call after a quiesce: each table as it was, or no longer marked. Returns whether any was changed. */
static int changes(struct scene *scene)
{
    unsigned char *before[BANKS];
    unsigned i, changed = 0;

    REQUIRE_EQ(hvmem_quiesce(scene->heap), HVMEM_OK);
    for (i = 0; i < BANKS; i++) {
        struct world_table *t = &scene->world->tables[i];

        CHECK_EQ(((struct hvmem__table *)t->memory)->clean, 1);
        before[i] = malloc(t->bytes);
        REQUIRE(before[i] != NULL);
        memcpy(before[i], t->memory, t->bytes);
    }
    shut_tables(1);
    one_call(scene);
    CHECK_EQ(wrong, 0);
    shut_tables(0);
    for (i = 0; i < BANKS; i++) {
        struct world_table *t = &scene->world->tables[i];

        if (memcmp(before[i], t->memory, t->bytes) != 0) {
            CHECK_EQ(((struct hvmem__table *)t->memory)->clean, 0);
            changed = 1;
        }
        free(before[i]);
    }
    return (int)changed;
}

/* Another heap takes the tables as they are. */
static void adopt(struct scene *scene)
{
    struct hvmem_stats old = expect_stats(scene->world, HVMEM_NODE_ANY), now;
    struct world *fresh = WORLD_NEW(&scene->world->config, WORLD_BROADCAST);
    hvmem_status status;
    hvmem_u64 cursor = 0;
    unsigned i;

    for (i = 0; i < 2; i++)
        world_domain(fresh, i + 1, ~0ull, 0, NULL);
    for (i = 0; i < BANKS; i++) {
        struct world_table *t = &scene->world->tables[i];
        struct hvmem_bank bank = {sizeof bank, t->flags, t->base, t->frames, 0, 0};

        REQUIRE_EQ(hvmem_bank_adopt(fresh->heap, &bank, t->memory, t->bytes), HVMEM_OK);
    }
    do
        status = hvmem_adopt_finish(fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    REQUIRE_EQ(status, HVMEM_OK);
    CHECK_AUDIT(fresh);
    now = expect_stats(fresh, HVMEM_NODE_ANY);
    CHECK_EQ(now.free, old.free);
    CHECK_EQ(now.allocated, old.allocated);
    CHECK_EQ(now.reserved, old.reserved);
    CHECK_EQ(now.offline, old.offline);
    CHECK_EQ(now.quarantined, 0);
    CHECK(world_delete(fresh));
}

TEST(changed_tables_are_not_marked)
{
    uint64_t stream, rounds = test_rounds(600);
    unsigned changed = 0, i;

    for (stream = 0; stream < rounds; stream++) {
        struct scene scene = scene_new(stream);

        for (i = 0; i < 30; i++)
            changed += (unsigned)changes(&scene);
        CHECK_AUDIT(scene.world);
        adopt(&scene);
        CHECK(world_delete(scene.world));
        free(scene.tables);
    }
    CHECK(changed > rounds * 10);
}

/* A bank that is added merges with what is free in its neighbour. */
TEST(mark_of_the_neighbour_goes_first)
{
    struct hvmem_config config = world_config();
    struct world *world;
    struct hvmem__table *table;

    config.max_order = 8;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    memset(watched, 0, sizeof watched);
    bank(world, 0);
    table = (struct hvmem__table *)world->tables[0].memory;
    REQUIRE_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
    CHECK_EQ(table->clean, 1);
    shut_tables(1);
    bank(world, 1); /* frames 94 and 95 are one block now */
    CHECK_EQ(wrong, 0);
    shut_tables(0);
    CHECK_EQ(table->clean, 0);
    WORLD_END(world);
}

/* A block that leaves quarantine. */
TEST(mark_goes_before_quarantine_ends)
{
    struct scene scene = scene_new(1);
    struct hvmem__leaver leaver = {.anybody = 1};
    hvmem_mfn mfn, list = HVMEM__NO_MFN;

    REQUIRE_EQ(hvmem_alloc_order(scene.heap, 0, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem__gathered_take(scene.heap, mfn, 0, &leaver, &list), HVMEM_OK);
    CHECK_EQ(hvmem__gathered_quarantine(scene.heap, list, 0), 1);
    REQUIRE_EQ(hvmem_quiesce(scene.heap), HVMEM_OK);
    shut_tables(1);
    CHECK_EQ(hvmem_quarantine_release(scene.heap, mfn), HVMEM_OK);
    CHECK_EQ(wrong, 0);
    shut_tables(0);
    WORLD_END(scene.world);
    free(scene.tables);
}
