/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clean mark of every table: whatever one call changes in a table after a quiesce, the mark of that
 * table is gone, also where a block lies in two of them; and another heap adopts what was left.
 */
#include "expect.h"
#include "lib/table.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

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
};

static struct scene scene_new(uint64_t stream)
{
    struct hvmem_config config = world_config();
    struct scene scene = {0};
    unsigned i;

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_order = 8;
    config.max_cpus = 2;
    config.flags = stream & 1 ? HVMEM_CONFIG_NO_CPU_CACHE : 0;
    scene.world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
    scene.heap = scene.world->heap;
    scene.rng = test_rng(stream);
    scene.bad = EXPECT_NO_MFN;
    for (i = 0; i < BANKS; i++)
        REQUIRE_EQ(world_bank(scene.world, border[i], border[i + 1] - border[i], 0,
                              i == 1 ? HVMEM_BANK_DIRTY : 0),
                   HVMEM_OK);
    REQUIRE_EQ(world_smp(scene.world), HVMEM_OK);
    for (i = 0; i < 2; i++) {
        scene.domain[i] = world_domain(scene.world, i + 1, ~0ull, 0, NULL);
        if (i)
            REQUIRE_EQ(hvmem_domain_start(scene.domain[i]), HVMEM_OK);
    }
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
    switch (test_below(&scene->rng, 12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        allocate(scene);
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
    one_call(scene);
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
    uint64_t stream, rounds = test_rounds(120);
    unsigned changed = 0, i;

    for (stream = 0; stream < rounds; stream++) {
        struct scene scene = scene_new(stream);

        for (i = 0; i < 30; i++)
            changed += (unsigned)changes(&scene);
        CHECK_AUDIT(scene.world);
        adopt(&scene);
        CHECK(world_delete(scene.world));
    }
    CHECK(changed > rounds * 10);
}
