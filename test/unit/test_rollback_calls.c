/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls of several steps, but for those that hand memory out (test_rollback.c): each fails at its k-th test
 * point, or at the k-th operation of host or back-end, for all k. Refused, it leaves the heap as it was,
 * debts that were paid before apart; and the same call then does what it should.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>

#include <stdlib.h>
#include <string.h>

#define SEAM   95u
#define FRAMES 256u

struct scene {
    struct world *world;
    struct hvmem_heap *heap;
    struct hvmem_domain *building, *running, *other;
    hvmem_mfn deferred; /* 16 frames of `building` that owe everything */
    hvmem_mfn theirs;   /* a frame that CPU 1 was given, and alone may free without asking */
    hvmem_mfn block;    /* 8 frames of `running` */
    hvmem_mfn offline;
    unsigned in, failed; /* test points */
};

static hvmem_mfn get(struct scene *s, struct hvmem_domain *domain, hvmem_order order, hvmem_mfn lo,
                     hvmem_u32 flags)
{
    struct hvmem_request request = expect_block(order, domain);
    hvmem_mfn mfn = 0;

    request.lo = lo;
    request.flags = flags;
    REQUIRE_EQ(hvmem_alloc(s->heap, &request, &mfn), HVMEM_OK);
    return mfn;
}

static void scene_new(struct scene *s)
{
    struct hvmem_config config = world_config();
    struct hvmem_request run = expect_run(20, 0, 80, 100);
    hvmem_mfn mfn;
    hvmem_u32 i;

    memset(s, 0, sizeof *s);
    config.max_order = 7;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.owed_on_free = HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN;
    s->world = WORLD_NEW(&config, WORLD_BARRIER);
    s->heap = s->world->heap;
    world_track(s->world, 0, 512);
    REQUIRE_EQ(world_bank(s->world, 0, SEAM, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(s->world, SEAM, FRAMES - SEAM, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    REQUIRE_EQ(world_smp(s->world), HVMEM_OK);
    s->building = world_domain(s->world, 1, ~0ull, 0, NULL);
    s->running = world_domain(s->world, 2, ~0ull, 0, NULL);
    s->other = world_domain(s->world, 3, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_domain_start(s->running), HVMEM_OK);
    /* Two owners side by side over the seam, and a domain's frames that were freed. */
    run.domain = s->running;
    REQUIRE_EQ(hvmem_alloc(s->heap, &run, &mfn), HVMEM_OK);
    run = expect_run(20, 0, 100, 120);
    run.domain = s->other;
    REQUIRE_EQ(hvmem_alloc(s->heap, &run, &mfn), HVMEM_OK);
    for (i = 0; i < 4; i++)
        CHECK_EQ(hvmem_free(s->heap, get(s, s->running, 4, 128, 0), 4), HVMEM_OK);
    s->deferred = get(s, s->building, 4, 128, HVMEM_REQ_DEFER_ALL);
    s->block = get(s, s->running, 3, 0, 0);
    s->offline = 250;
    REQUIRE_EQ(hvmem_offline(s->heap, s->offline), HVMEM_OK);
    world_set_cpu(1);
    REQUIRE_EQ(hvmem_alloc_order(s->heap, 0, &s->theirs), HVMEM_OK);
    world_set_cpu(0);
}

/* ---- the calls -------------------------------------------------------------------------------- */

static hvmem_status settle(struct scene *s)
{
    return hvmem_settle(s->heap, s->deferred, 16, HVMEM_OWES_ANY);
}

static hvmem_status free_theirs(struct scene *s)
{
    return hvmem_free(s->heap, s->theirs, 0);
}

static hvmem_status free_run(struct scene *s)
{
    return hvmem_free_run(s->heap, 85, 30);
}

static hvmem_status free_scrubbed(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    return hvmem_free_scrubbed(s->heap, s->block, 3, s->running, 0, 0, &cursor);
}

static hvmem_status offline_used(struct scene *s)
{
    hvmem_status status = hvmem_offline(s->heap, s->theirs);

    return status == HVMEM_AGAIN ? HVMEM_OK : status;
}

static hvmem_status offline_free(struct scene *s)
{
    return hvmem_offline(s->heap, 240);
}

static hvmem_status online(struct scene *s)
{
    return hvmem_online(s->heap, s->offline);
}

static hvmem_status quiesce(struct scene *s)
{
    return hvmem_quiesce(s->heap);
}

static hvmem_status drain(struct scene *s)
{
    return hvmem_drain(s->heap);
}

static hvmem_status bank_add(struct scene *s)
{
    return world_bank(s->world, FRAMES, 64, 1, HVMEM_BANK_DIRTY);
}

static hvmem_status domain_create(struct scene *s)
{
    hvmem_status status;

    (void)world_domain(s->world, 5, 100, 0, &status);
    return status;
}

static hvmem_status claim(struct scene *s)
{
    return hvmem_domain_claim(s->other, HVMEM_NODE_ANY, 40);
}

static hvmem_status claim_node(struct scene *s)
{
    return hvmem_domain_claim(s->other, 0, 40);
}

static hvmem_status cpu_leaves(struct scene *s)
{
    hvmem_status status = hvmem_cpu_offline(s->heap, 1);

    if (!status)
        world_forget_cpu(s->world, 1);
    return status;
}

static hvmem_status cpu_comes(struct scene *s)
{
    static int gone;
    hvmem_status status = HVMEM_OK;

    if (!gone)
        status = cpu_leaves(s);
    if (status)
        return status;
    gone = 1;
    world_set_cpu(1);
    status = hvmem_cpu_online(s->heap, 1);
    world_set_cpu(0);
    gone = status != HVMEM_OK;
    return status;
}

static hvmem_status start(struct scene *s)
{
    return hvmem_domain_start(s->building);
}

static hvmem_status foreign(struct scene *s)
{
    return hvmem_domain_foreign(s->building, s->deferred, 4);
}

static hvmem_status alloc_owned(struct scene *s)
{
    hvmem_mfn mfn;

    return hvmem_alloc_owned(s->heap, s->running, 0, &mfn);
}

static hvmem_status scrub(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    return hvmem_scrub_step(s->heap, HVMEM_NODE_ANY, 0, &cursor);
}

static hvmem_status cache(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    return hvmem_cache_range(s->heap, 0, 64, HVMEM_DC_CLEAN, 0, &cursor);
}

static hvmem_status kill_and_destroy(struct scene *s)
{
    hvmem_status status = hvmem_domain_kill(s->other);

    return status ? status : hvmem_free_run(s->heap, 100, 20);
}

/* ---- all their steps -------------------------------------------------------------------------- */

static const struct {
    const char *name;
    hvmem_status (*run)(struct scene *s);
    /* What may differ after a refusal. */
    enum { NOTHING, DEBTS, CPUS } may;
    int fails; /* it must have been made to fail */
} calls[] = {
    {"settle", settle, DEBTS, 1},
    {"free of another CPU's frame", free_theirs, NOTHING, 1},
    {"free of a run", free_run, NOTHING, 0},
    {"scrub on free", free_scrubbed, NOTHING, 1},
    {"offline of a frame in use", offline_used, NOTHING, 1},
    {"offline of a free frame", offline_free, NOTHING, 0},
    {"online", online, NOTHING, 0},
    {"quiesce", quiesce, NOTHING, 1},
    {"drain", drain, NOTHING, 0},
    {"bank added", bank_add, NOTHING, 0},
    {"domain created", domain_create, NOTHING, 0},
    {"claim", claim, NOTHING, 0},
    {"claim on a node", claim_node, NOTHING, 0},
    {"CPU leaves", cpu_leaves, CPUS, 0},
    {"CPU comes", cpu_comes, CPUS, 1},
    {"start", start, DEBTS, 1},
    {"foreign", foreign, DEBTS, 1},
    {"alloc for a domain", alloc_owned, DEBTS, 1},
    {"scrub", scrub, DEBTS, 1},
    {"cache", cache, NOTHING, 1},
    {"kill", kill_and_destroy, NOTHING, 0},
};
#define CALLS (sizeof calls / sizeof calls[0])

static int fail_the_kth(const char *name, void *context)
{
    struct scene *s = context;

    (void)name;
    if (s->in == 0 || --s->in != 0)
        return 0;
    s->failed++;
    return 1;
}

/* Debts and how free memory is cut by them: of each frame the rest must be the same, and no debt new. */
static const char *frames_differ(const struct snapshot *before, const struct snapshot *after)
{
    size_t i, k = 0;

    for (i = 0; i < before->count; i++) {
        const struct hvmem_block *b = &before->blocks[i];
        hvmem_mfn at = b->mfn, end = b->mfn + ((hvmem_mfn)1 << b->order);

        while (at < end) {
            const struct hvmem_block *a = &after->blocks[k];

            while (k < after->count && a->mfn + ((hvmem_mfn)1 << a->order) <= at)
                a = &after->blocks[++k];
            if (k == after->count || a->mfn > at)
                return "frames are missing";
            if (a->state != b->state || a->owner != b->owner || a->node != b->node)
                return "state or owner";
            if (b->state != HVMEM_BLOCK_FREE && (a->order != b->order || a->owed & ~b->owed))
                return "order or a new debt";
            at = a->mfn + ((hvmem_mfn)1 << a->order);
        }
    }
    return NULL;
}

static const char *difference(const struct snapshot *before, const struct snapshot *after,
                              int debts)
{
    const char *text = snapshot_difference(before, after);

    if (text == NULL || !debts || strcmp(text, "the blocks") != 0)
        return text;
    return frames_differ(before, after);
}

static int one(size_t call, int by_host, unsigned k)
{
    struct snapshot *before, *after;
    struct scene s;
    hvmem_status status;
    const char *text;
    unsigned failed;

    scene_new(&s);
    CHECK_EQ(hvmem_drain(s.heap), HVMEM_OK);
    before = snapshot_take(s.world, false);
    s.in = by_host ? 0 : k;
    s.world->fail_in = by_host ? k : 0;
    s.world->fail_count = 0;
    test_set_point_hook(fail_the_kth, &s);
    status = calls[call].run(&s);
    test_set_point_hook(NULL, NULL);
    s.world->fail_in = 0;
    failed = s.failed + s.world->fail_count;
    if (status < 0) {
        CHECK(failed != 0);
        CHECK_EQ(hvmem_drain(s.heap), HVMEM_OK);
        after = snapshot_take(s.world, false);
        text = difference(before, after, by_host || calls[call].may == DEBTS);
        if (!CHECK(text == NULL))
            test_note("%s failed at its %s %u with %d and changed %s", calls[call].name,
                      by_host ? "operation" : "point", k, status, text);
        snapshot_delete(after);
        CHECK_AUDIT(s.world);
        status = calls[call].run(&s);
    }
    if (!CHECK_EQ(status, HVMEM_OK))
        test_note("%s after %s %u", calls[call].name, by_host ? "operation" : "point", k);
    CHECK_AUDIT(s.world);
    snapshot_delete(before);
    WORLD_END(s.world);
    return failed != 0;
}

TEST(each_call_fails_at_each_step, points)
{
    size_t call;

    for (call = 0; call < CALLS; call++) {
        unsigned failures = 0, k;
        int by_host;

        for (by_host = 0; by_host < 2; by_host++) {
            for (k = 1; k < 300 && one(call, by_host, k); k++)
                failures++;
            CHECK(k < 300);
        }
        if (calls[call].fails && !CHECK(failures != 0))
            test_note("%s never failed", calls[call].name);
    }
}
