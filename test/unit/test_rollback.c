/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Multi-step operations that fail at their k-th step, for all k: refused with everything as before, or
 * a documented partial result. Steps fail at the test points inside the library and in the host.
 */
#include "expect.h"
#include "shadow.h"

#include <string.h>

/* Fails the k-th test point that may fail; counts those that were passed. */
struct failing {
    unsigned in;
    unsigned failed;
};

static int fail_the_kth(const char *name, void *context)
{
    struct failing *failing = context;
    (void)name;

    if (failing->in == 0 || --failing->in != 0)
        return 0;
    failing->failed++;
    return 1;
}

enum how { BY_POINT, BY_HOST };

struct scene {
    struct shadow *shadow;
    struct world *world;
    struct failing failing;
};

/* 256 frames in two banks on two nodes, caches on, frames owing everything. */
static void scene_new(struct scene *scene, hvmem_u32 flags, hvmem_u32 max_order)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request;
    hvmem_mfn mfn;
    hvmem_mfn i;

    config.max_order = max_order;
    config.flags = flags;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 2;
    config.owed_on_free = HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN;
    memset(scene, 0, sizeof *scene);
    scene->world = WORLD_NEW(&config, WORLD_BARRIER);
    scene->shadow = shadow_new(scene->world, 0, 256);
    shadow_bank(scene->shadow, 0, 128, 0, 0);
    shadow_bank(scene->shadow, 128, 128, 1, HVMEM_BANK_DIRTY);
    REQUIRE_EQ(world_smp(scene->world), HVMEM_OK);
    shadow_domain_new(scene->shadow, 1, ~0ull, 0);
    shadow_domain_new(scene->shadow, 2, ~0ull, 0);
    request = expect_block(3, scene->shadow->domain[1].handle);
    while (shadow_alloc(scene->shadow, &request, &mfn) == HVMEM_OK)
        ;
    for (i = 0; i < 256; i++)
        if (scene->shadow->frame[i].state == SHADOW_USED && scene->shadow->frame[i].head == i)
            shadow_free(scene->shadow, i, 3);
    shadow_check(scene->shadow);
    REQUIRE_EQ(scene->shadow->failure[0], 0);
    memset(&scene->world->counts.reports, 0, sizeof scene->world->counts.reports);
}

static void arm(struct scene *scene, enum how how, unsigned k)
{
    scene->failing = (struct failing){how == BY_POINT ? k : 0, 0};
    scene->world->fail_in = how == BY_HOST ? k : 0;
    test_set_point_hook(fail_the_kth, &scene->failing);
}

static unsigned disarm(struct scene *scene)
{
    unsigned failed = scene->failing.failed + scene->world->fail_count;

    test_set_point_hook(NULL, NULL);
    scene->world->fail_in = 0;
    return failed;
}

static int scene_end(struct scene *scene, const char *what, unsigned k)
{
    bool good = SHADOW_END(scene->shadow);

    if (!good)
        test_note("%s failing at step %u", what, k);
    return good;
}

/*
 * One operation: returns its status. `partial` may say how many frames of a partial result it kept
 * (the shadow must have been told); refused whole otherwise.
 */
typedef hvmem_status operation(struct scene *scene);

/* For all k until it passes: after a failure the heap is as before. */
static void every_step(const char *what, operation *run, enum how how, hvmem_u32 flags,
                       int expect_steps)
{
    unsigned k;

    for (k = 1; k < 300; k++) {
        struct scene scene;
        struct snapshot *before;
        struct snapshot *after;
        const char *difference;
        hvmem_status status;
        unsigned failed;

        scene_new(&scene, flags, 7);
        CHECK_EQ(hvmem_drain(scene.world->heap), HVMEM_OK);
        before = snapshot_take(scene.world, false);
        arm(&scene, how, k);
        status = run(&scene);
        failed = disarm(&scene);
        if (status < 0) {
            CHECK(failed != 0);
            CHECK_EQ(hvmem_drain(scene.world->heap), HVMEM_OK);
            after = snapshot_take(scene.world, false);
            difference = snapshot_difference(before, after);
            /* A flush that was made before the failure may have paid debts: only they may differ. */
            if (!CHECK(difference == NULL ||
                       (how == BY_HOST && strcmp(difference, "the blocks") == 0)))
                test_note("%s failed at step %u and changed %s", what, k, difference);
            snapshot_delete(after);
            /* And it works when nothing fails. */
            CHECK_EQ(run(&scene), HVMEM_OK);
        }
        snapshot_delete(before);
        if (!scene_end(&scene, what, k))
            return;
        if (failed == 0) {
            CHECK_EQ(status, HVMEM_OK);
            if (expect_steps)
                CHECK(k > 1);
            return;
        }
    }
    CHECK(k < 300);
}

static hvmem_status mirror(struct scene *scene, const struct hvmem_request *request,
                           hvmem_u64 frames, hvmem_mfn *mfn)
{
    hvmem_status status = hvmem_alloc(scene->world->heap, request, mfn);
    hvmem_u64 i;

    if (status != HVMEM_OK)
        return status;
    for (i = 0; i < frames; i++) {
        struct shadow_frame *frame = shadow_at(scene->shadow, *mfn + i);

        CHECK_EQ(frame->state, SHADOW_FREE);
        frame->state = SHADOW_USED;
        frame->owner = shadow_id(scene->shadow, request->domain);
        frame->maybe_dirty = 0;
        scene->shadow->domain[frame->owner].pages += frame->owner != 0;
    }
    shadow_learn(scene->shadow, *mfn, frames);
    CHECK_EQ(world_owed(scene->world, *mfn, frames), 0);
    return status;
}

static hvmem_status alloc_single(struct scene *scene)
{
    struct hvmem_request request = expect_block(0, scene->shadow->domain[2].handle);
    hvmem_mfn mfn;

    return mirror(scene, &request, 1, &mfn);
}

static hvmem_status alloc_block(struct scene *scene)
{
    struct hvmem_request request = expect_block(5, scene->shadow->domain[2].handle);
    hvmem_mfn mfn;

    return mirror(scene, &request, 32, &mfn);
}

static hvmem_status alloc_run(struct scene *scene)
{
    struct hvmem_request request = expect_run(45, 1, 3, 0);
    hvmem_mfn mfn;

    return mirror(scene, &request, 45, &mfn);
}

static hvmem_status reserve_across_banks(struct scene *scene)
{
    hvmem_status status = hvmem_reserve(scene->world->heap, 5, 240);
    hvmem_u64 i;

    for (i = 0; status == HVMEM_OK && i < 240; i++)
        shadow_at(scene->shadow, 5 + i)->state = SHADOW_RESERVED;
    if (status == HVMEM_OK)
        shadow_learn(scene->shadow, 5, 240);
    return status;
}

static hvmem_status drain(struct scene *scene)
{
    return hvmem_drain(scene->world->heap);
}

TEST(steps_of_a_single_frame, points)
{
    every_step("single", alloc_single, BY_POINT, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    every_step("single", alloc_single, BY_HOST, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    every_step("single, cached", alloc_single, BY_HOST, 0, 1);
}

TEST(steps_of_a_block, points)
{
    every_step("block", alloc_block, BY_POINT, 0, 1);
    every_step("block", alloc_block, BY_HOST, 0, 1);
}

TEST(steps_of_a_run, points)
{
    every_step("run", alloc_run, BY_POINT, 0, 1);
    every_step("run", alloc_run, BY_HOST, 0, 1);
}

TEST(B17_steps_of_reserve, points)
{
    every_step("reserve", reserve_across_banks, BY_POINT, 0, 1);
    every_step("reserve", reserve_across_banks, BY_HOST, 0, 0);
}

TEST(steps_of_drain, points)
{
    every_step("drain", drain, BY_POINT, 0, 0);
    every_step("drain", drain, BY_HOST, 0, 0);
}

/* Bulk keeps what it got: the count is exact for each step that fails. */
TEST(steps_of_bulk, points)
{
    enum how how;
    unsigned k;

    for (how = BY_POINT; how <= BY_HOST; how++)
        for (k = 1; k < 400; k++) {
            struct scene scene;
            struct hvmem_request request;
            hvmem_mfn frames[40];
            hvmem_u32 got = 0;
            hvmem_status status;
            hvmem_u32 i;
            unsigned failed;

            scene_new(&scene, 0, 7);
            request = expect_block(1, scene.shadow->domain[2].handle);
            arm(&scene, how, k);
            status = hvmem_alloc_bulk(scene.world->heap, &request, frames, 40, &got);
            failed = disarm(&scene);
            CHECK(got <= 40 && (status == HVMEM_OK) == (got == 40));
            for (i = 0; i < 2 * got; i++) {
                struct shadow_frame *frame = shadow_at(scene.shadow, frames[i / 2] + i % 2);

                CHECK_EQ(frame->state, SHADOW_FREE);
                frame->state = SHADOW_USED;
                frame->owner = 2;
                frame->maybe_dirty = 0;
                CHECK_EQ(world_owed(scene.world, frames[i / 2] + i % 2, 1), 0);
            }
            for (i = 0; i < got; i++)
                shadow_learn(scene.shadow, frames[i], 2);
            scene.shadow->domain[2].pages = 2 * got;
            if (!scene_end(&scene, "bulk", k))
                return;
            if (failed == 0)
                break;
        }
}

/* A failed removal leaves the bank as it was. */
TEST(steps_of_bank_removal, points)
{
    enum how how;
    unsigned k;

    for (how = BY_POINT; how <= BY_HOST; how++)
        for (k = 1; k < 100; k++) {
            struct scene scene;
            hvmem_status status;
            unsigned failed;

            scene_new(&scene, 0, 7);
            arm(&scene, how, k);
            status = shadow_remove(scene.shadow, 128, 128);
            failed = disarm(&scene);
            if (status != HVMEM_OK) {
                CHECK(failed != 0);
                scene.shadow->failure[0] = '\0';
                CHECK_EQ(shadow_remove(scene.shadow, 128, 128), HVMEM_OK);
            }
            if (!scene_end(&scene, "removal", k))
                return;
            if (failed == 0)
                break;
        }
}
