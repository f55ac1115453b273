/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scrub on free: whatever cursor a host hands in, and whoever else is at work on the block, no frame becomes
 * free as clean that still holds what its owner wrote. Real bytes.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>
#include <string.h>

#define FRAMES 512u
#define PAGE   4096u
#define ORDER  6u
#define BLOCK  64u

struct scene {
    struct world *world;
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    hvmem_mfn mfn;
    hvmem_u32 hits;
};

/* A block of the domain, written to all over. */
static void use(struct scene *scene)
{
    struct hvmem_request request = expect_block(ORDER, scene->domain);

    request.lo = 128;
    request.hi = 192;
    REQUIRE_EQ(hvmem_alloc(scene->heap, &request, &scene->mfn), HVMEM_OK);
    memset(scene->world->content + scene->mfn * PAGE, 0x5e, BLOCK * PAGE);
    world_owe(scene->world, scene->mfn, BLOCK, scene->world->config.owed_on_free);
}

/* Banks [0, seam) and [seam, FRAMES); 0: one bank. */
static struct scene scene_owing(hvmem_mfn seam, hvmem_u32 owed_on_free)
{
    struct hvmem_config config = world_config();
    struct scene scene = {0};

    config.owed_on_free = owed_on_free;
    config.max_order = 9;
    scene.world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_REAL_MEMORY);
    scene.heap = scene.world->heap;
    world_track(scene.world, 0, FRAMES);
    REQUIRE(scene.world->content != NULL);
    memset(scene.world->content, 0x5e, FRAMES * PAGE);
    if (seam)
        CHECK_EQ(world_bank(scene.world, 0, seam, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    CHECK_EQ(world_bank(scene.world, seam, FRAMES - seam, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    scene.domain = world_domain(scene.world, 1, ~0ull, 0, NULL);
    use(&scene);
    return scene;
}

static struct scene scene_at(hvmem_mfn seam)
{
    return scene_owing(seam, HVMEM_OWES_TLB | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
}

static hvmem_status step(struct scene *scene, hvmem_u64 budget, struct hvmem_cursor *cursor)
{
    return hvmem_free_scrubbed(scene->heap, scene->mfn, ORDER, scene->domain, 0, budget, cursor);
}

static hvmem_status finish(struct scene *scene, struct hvmem_cursor *cursor)
{
    hvmem_status status;
    unsigned calls = 0;

    do
        status = step(scene, 16, cursor);
    while (status == HVMEM_AGAIN && ++calls < 100);
    return status;
}

/* Whoever gets a frame now finds nothing in it. */
static void end(struct scene *scene)
{
    static const unsigned char zero[PAGE];
    hvmem_mfn mfn;

    CHECK_AUDIT(scene->world);
    while (hvmem_alloc_order(scene->heap, 0, &mfn) == HVMEM_OK) {
        CHECK_EQ(memcmp(scene->world->content + mfn * PAGE, zero, PAGE), 0);
        CHECK_EQ(world_owed(scene->world, mfn, 1), 0);
    }
    WORLD_END(scene->world);
}

/*
 * The operation was given up, the block has been free and is the domain's again, written anew. Where nothing
 * owes a flush its record is the same as then.
 */
static void earlier_operation(hvmem_u32 owed_on_free)
{
    struct scene scene = scene_owing(0, owed_on_free);
    struct hvmem_cursor cursor = {{0}}, old[3], fresh = {{0}};
    unsigned i;

    for (i = 0; i < 3; i++) {
        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        old[i] = cursor;
    }
    CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
    use(&scene);
    for (i = 0; i < 3; i++)
        CHECK_REFUSED(scene.world, step(&scene, 16, &old[i]), HVMEM_E_STALE);
    /* The same again while a new operation is as far as the old one was. */
    for (i = 0; i < 3; i++) {
        CHECK_EQ(step(&scene, 16, &fresh), HVMEM_AGAIN);
        CHECK_REFUSED(scene.world, step(&scene, 16, &old[i]), HVMEM_E_STALE);
    }
    CHECK_EQ(finish(&scene, &fresh), HVMEM_OK);
    CHECK_EQ(expect_domain(scene.domain).pages, 0);
    end(&scene);
}

TEST(cursor_of_an_earlier_operation)
{
    earlier_operation(HVMEM_OWES_TLB | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
    earlier_operation(HVMEM_OWES_SCRUB);
}

/* Every bit of a cursor in use, one at a time, and its words moved about. */
TEST(forged_progress)
{
    struct scene scene = scene_at(0);
    struct hvmem_cursor cursor = {{0}}, before, forged;
    unsigned bit;

    CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
    before = cursor;
    CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
    /* The cursor of the step before is as stale as any. */
    CHECK_REFUSED(scene.world, step(&scene, 16, &before), HVMEM_E_STALE);
    for (bit = 0; bit < 256; bit++) {
        forged = cursor;
        forged.words[bit / 64] ^= 1ull << bit % 64;
        CHECK_REFUSED(scene.world, step(&scene, 16, &forged), HVMEM_E_STALE);
    }
    for (bit = 0; bit < 256; bit++) {
        forged = cursor;
        forged.words[3] += (hvmem_u64)bit * PAGE / 2 + 1;
        CHECK_EQ(step(&scene, 16, &forged), HVMEM_E_STALE);
    }
    CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
    end(&scene);
}

/* Two blocks on their way at once: neither takes the other's progress. */
TEST(progress_of_another_block)
{
    struct scene scene = scene_at(0), other = scene;
    struct hvmem_request request = expect_block(ORDER, scene.domain);
    struct hvmem_cursor cursor = {{0}}, its = {{0}}, mixed;
    unsigned i;

    request.lo = 256;
    REQUIRE_EQ(hvmem_alloc(scene.heap, &request, &other.mfn), HVMEM_OK);
    memset(scene.world->content + other.mfn * PAGE, 0x5e, BLOCK * PAGE);
    world_owe(scene.world, other.mfn, BLOCK, scene.world->config.owed_on_free);
    CHECK_EQ(step(&other, 16, &its), HVMEM_AGAIN);
    CHECK_EQ(step(&other, 16, &its), HVMEM_AGAIN);
    CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
    for (i = 1; i < 16; i++) {
        unsigned word;

        mixed = cursor;
        for (word = 0; word < 4; word++)
            mixed.words[word] = i >> word & 1 ? its.words[word] : cursor.words[word];
        if (memcmp(&mixed, &cursor, sizeof mixed) != 0)
            CHECK_REFUSED(scene.world, step(&scene, 16, &mixed), HVMEM_E_STALE);
    }
    CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
    CHECK_EQ(finish(&other, &its), HVMEM_OK);
    end(&scene);
}

/* While a call is at work on the block nobody else frees it, in whatever way. */
static int meanwhile(const char *name, void *context)
{
    struct scene *scene = context;
    struct hvmem_cursor fresh = {{0}};

    if (strcmp(name, "contents") != 0 || scene->hits++)
        return 0;
    CHECK_EQ(step(scene, 0, &fresh), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free(scene->heap, scene->mfn, ORDER), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_owned(scene->heap, scene->mfn, ORDER, scene->domain, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(scene->heap, scene->mfn, 3), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_quiesce(scene->heap), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_domain_kill(scene->domain), HVMEM_OK);
    CHECK_EQ(hvmem_domain_teardown(scene->domain, 0, &fresh), HVMEM_E_BUSY);
    return 0;
}

TEST(two_at_once, points)
{
    struct scene scene = scene_at(0);
    struct hvmem_cursor cursor = {{0}};

    test_set_point_hook(meanwhile, &scene);
    CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
    scene.hits = 0;
    CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
    test_set_point_hook(NULL, NULL);
    CHECK(scene.hits > 0);
    CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
    CHECK_EQ(expect_domain(scene.domain).pages, 0);
    end(&scene);
}

/* Between two calls the block is its owner's: whoever frees it in another way frees it dirty. */
TEST(given_up)
{
    unsigned way;

    for (way = 0; way < 4; way++) {
        struct scene scene = scene_at(0);
        struct hvmem_cursor cursor = {{0}}, torn = {{0}};

        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        CHECK_AUDIT(scene.world);
        CHECK_EQ(expect_domain(scene.domain).pages, BLOCK);
        switch (way) {
        case 0:
            CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
            break;
        case 1:
            CHECK_EQ(hvmem_free_run(scene.heap, scene.mfn + BLOCK / 2, BLOCK / 2), HVMEM_OK);
            CHECK_EQ(step(&scene, 0, &cursor), HVMEM_E_WRONG_ORDER);
            CHECK_EQ(
                hvmem_free_scrubbed(scene.heap, scene.mfn, ORDER - 1, scene.domain, 0, 0, &cursor),
                HVMEM_E_STALE);
            CHECK_EQ(hvmem_free_run(scene.heap, scene.mfn, BLOCK / 2), HVMEM_OK);
            break;
        case 2:
            while (hvmem_domain_teardown(scene.domain, 0, &torn) == HVMEM_AGAIN)
                ;
            break;
        default:
            memset(&cursor, 0, sizeof cursor); /* from the start */
            CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        }
        CHECK_EQ(expect_domain(scene.domain).pages, 0);
        end(&scene);
    }
}

/* A frame that is to go out of service before, between or during the calls goes, and no other. */
static int goes_bad(const char *name, void *context)
{
    struct scene *scene = context;

    if (strcmp(name, "contents") == 0 && !scene->hits++)
        CHECK_EQ(hvmem_offline(scene->heap, scene->mfn + 9), HVMEM_AGAIN);
    return 0;
}

TEST(bad_frames_meanwhile, points)
{
    unsigned when;

    for (when = 0; when < 4; when++) {
        struct scene scene = scene_at(0);
        struct hvmem_cursor cursor = {{0}};

        if (when == 0)
            CHECK_EQ(hvmem_offline(scene.heap, scene.mfn + 9), HVMEM_AGAIN);
        if (when == 1)
            test_set_point_hook(goes_bad, &scene);
        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        if (when == 2)
            CHECK_EQ(hvmem_offline(scene.heap, scene.mfn + 9), HVMEM_AGAIN);
        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        if (when == 3)
            test_set_point_hook(goes_bad, &scene);
        CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(expect_stats(scene.world, HVMEM_NODE_ANY).offline, 1);
        CHECK_EQ(expect_lookup(scene.world, scene.mfn + 9).state, HVMEM_BLOCK_OFFLINE);
        CHECK_EQ(hvmem_online(scene.heap, scene.mfn + 9), HVMEM_OK);
        end(&scene);
    }
}

/* What fails leaves the block its owner's, owing what it owed; the next call begins again. */
TEST(fails_anywhere)
{
    hvmem_status status = HVMEM_E_HOST;
    unsigned k;

    for (k = 1; status != HVMEM_OK && k < 400; k++) {
        struct scene scene = scene_at(0);
        struct hvmem_cursor cursor = {{0}}, zero = {{0}};
        hvmem_u32 owed = expect_lookup(scene.world, scene.mfn).owed;

        scene.world->fail_in = k;
        status = finish(&scene, &cursor);
        scene.world->fail_in = 0;
        CHECK_EQ(memcmp(&cursor, &zero, sizeof zero), 0);
        if (status) {
            CHECK_EQ(status, HVMEM_E_HOST);
            CHECK_EQ(expect_lookup(scene.world, scene.mfn).owed, owed);
            CHECK_EQ(expect_lookup(scene.world, scene.mfn).state, HVMEM_BLOCK_ALLOCATED);
            CHECK_EQ(expect_domain(scene.domain).pages, BLOCK);
            CHECK_AUDIT(scene.world);
            CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        }
        end(&scene);
    }
    CHECK(k > 4);
}

/* A block in two banks, at every seam; and one frame, which never waits. */
TEST(across_banks)
{
    hvmem_mfn seam;

    for (seam = 129; seam < 192; seam += seam < 132 ? 1 : 13) {
        struct scene scene = scene_at(seam);
        struct hvmem_cursor cursor = {{0}};

        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        CHECK_AUDIT(scene.world);
        CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        end(&scene);
    }
}

TEST(single_frames)
{
    struct scene scene = scene_at(0);
    struct hvmem_request request = expect_block(0, scene.domain);
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn;

    REQUIRE_EQ(hvmem_alloc(scene.heap, &request, &mfn), HVMEM_OK);
    memset(scene.world->content + mfn * PAGE, 0x5e, PAGE);
    world_owe(scene.world, mfn, 1, scene.world->config.owed_on_free);
    scene.world->yields = 1;
    CHECK_EQ(hvmem_free_scrubbed(scene.heap, mfn, 0, scene.domain, 0, 1, &cursor), HVMEM_OK);
    CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
    end(&scene);
}

/* With everything left for later: what it owed before is counted as before, whichever way it goes. */
TEST(debts_of_a_domain_being_built)
{
    unsigned way;

    for (way = 0; way < 3; way++) {
        struct scene scene = scene_at(0);
        struct hvmem_request request = expect_block(ORDER, scene.domain);
        struct hvmem_cursor cursor = {{0}};
        hvmem_mfn half;

        CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
        /* Half of it clean: a MIXED block. */
        request.order = ORDER - 1;
        request.domain = NULL;
        request.lo = 128;
        request.hi = 160;
        REQUIRE_EQ(hvmem_alloc(scene.heap, &request, &half), HVMEM_OK);
        CHECK_EQ(hvmem_free(scene.heap, half, ORDER - 1), HVMEM_OK);
        request = expect_block(ORDER, scene.domain);
        request.lo = 128;
        request.hi = 192;
        request.flags = HVMEM_REQ_DEFER_ALL;
        REQUIRE_EQ(hvmem_alloc(scene.heap, &request, &scene.mfn), HVMEM_OK);
        memset(scene.world->content + scene.mfn * PAGE, 0x5e, BLOCK * PAGE);
        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        CHECK_AUDIT(scene.world);
        if (way == 0) {
            CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        } else {
            if (way == 2)
                CHECK_EQ(hvmem_domain_start(scene.domain), HVMEM_OK);
            world_owe(scene.world, scene.mfn, BLOCK, scene.world->config.owed_on_free);
            CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
        }
        CHECK_EQ(expect_domain(scene.domain).pages, 0);
        /* (A start finds out if any is counted that no block owes.) */
        if (way != 2)
            CHECK_EQ(hvmem_domain_start(scene.domain), HVMEM_OK);
        end(&scene);
    }
}

static hvmem_mfn mapped;

static hvmem_status note_mapped(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx, (void)gfn, (void)order;
    mapped = mfn;
    return HVMEM_OK;
}

/* What waits for its first touch, in a domain that is being built or runs: freed, given up, then started. */
TEST(debts_of_an_untouched_block)
{
    struct hvmem_domain_ops ops = {
        .size = sizeof ops, .map = note_mapped, .map_untouched = note_mapped};
    struct hvmem_extent extent = {0, 0, ORDER, HVMEM_EXTENT_FIRST_TOUCH};
    struct hvmem_populate populate = {
        .size = sizeof populate, .count = 1, .extents = &extent, .node = HVMEM_NODE_ANY};
    unsigned way;

    for (way = 0; way < 6; way++) {
        struct scene scene = scene_at(0);
        struct hvmem_cursor cursor = {{0}}, filling = {{0}};

        CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_attach(scene.domain, &ops, NULL, NULL), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_populate(scene.domain, &populate, &filling), HVMEM_OK);
        scene.mfn = mapped;
        CHECK(expect_lookup(scene.world, mapped).owed & HVMEM_OWES_SCRUB);
        if (way >= 3)
            CHECK_EQ(hvmem_domain_start(scene.domain), HVMEM_OK);
        CHECK_EQ(step(&scene, 16, &cursor), HVMEM_AGAIN);
        CHECK_AUDIT(scene.world);
        if (way % 3 == 1)
            CHECK_EQ(hvmem_free(scene.heap, scene.mfn, ORDER), HVMEM_OK);
        else
            CHECK_EQ(finish(&scene, &cursor), HVMEM_OK);
        if (way < 3)
            CHECK_EQ(hvmem_domain_start(scene.domain), HVMEM_OK);
        CHECK_EQ(expect_domain(scene.domain).pages, 0);
        end(&scene);
    }
}
