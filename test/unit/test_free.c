/* SPDX-License-Identifier: BSD-2-Clause */
/* Partial, spanning and bulk frees; reserve and its release; everything given back restores the start. */
#include "expect.h"
#include "shadow.h"

#include <stdlib.h>
#include <string.h>

static struct shadow *shadow_with(hvmem_u64 frames, hvmem_u32 max_domains)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.max_order = 6;
    config.max_domains = max_domains;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    shadow = shadow_new(WORLD_NEW(&config, WORLD_BROADCAST), 0, 256);
    shadow_bank(shadow, 0, frames, 0, 0);
    return shadow;
}

/* Every run inside blocks of several orders and owners, cut out and then the rest. */
TEST(every_run_over_several_blocks)
{
    hvmem_mfn from;
    hvmem_u64 count;

    for (from = 0; from < 32; from++)
        for (count = 1; from + count <= 32; count++) {
            struct shadow *shadow = shadow_with(64, 4);
            static const struct {
                hvmem_mfn mfn;
                hvmem_u32 order;
                hvmem_u32 owner;
            } blocks[] = {{0, 3, 0}, {8, 1, 1}, {10, 1, 2}, {12, 2, 1}, {16, 4, 2}};
            size_t i;
            hvmem_mfn mfn;

            shadow_domain_new(shadow, 1, ~0ull, 0);
            shadow_domain_new(shadow, 2, ~0ull, 0);
            for (i = 0; i < 5; i++) {
                struct hvmem_request request =
                    expect_block(blocks[i].order, shadow->domain[blocks[i].owner].handle);

                request.lo = blocks[i].mfn;
                request.hi = blocks[i].mfn + (1ull << blocks[i].order);
                CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
            }
            CHECK_EQ(shadow_free_run(shadow, from, count), HVMEM_OK);
            shadow_check(shadow);
            CHECK_EQ(shadow_free_run(shadow, from, count), HVMEM_E_FREE);
            if (from != 0)
                CHECK_EQ(shadow_free_run(shadow, 0, from), HVMEM_OK);
            if (from + count != 32)
                CHECK_EQ(shadow_free_run(shadow, from + count, 32 - from - count), HVMEM_OK);
            CHECK_EQ(shadow_free_count(shadow, HVMEM_NODE_ANY), 64);
            if (!SHADOW_END(shadow))
                return;
        }
}

/* A run with one free, reserved-elsewhere or foreign frame is refused whole, wherever that frame is. */
TEST(spanning_free_is_checked_whole)
{
    hvmem_mfn hole;

    for (hole = 0; hole < 16; hole++) {
        struct world *world = WORLD_SIMPLE(0, 16);
        hvmem_mfn frames[16];

        REQUIRE_EQ(expect_take_all(world, frames, 16), 16);
        CHECK_EQ(hvmem_free(world->heap, hole, 0), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_free_run(world->heap, 0, 16), HVMEM_E_FREE);
        CHECK_EQ(hvmem_offline(world->heap, hole), HVMEM_OK);
        CHECK_REFUSED(world, hvmem_free_run(world->heap, 0, 16), HVMEM_E_OFFLINE);
        CHECK_REFUSED(world, hvmem_free_run(world->heap, hole < 15 ? hole + 1 : 14, 16),
                      hole < 15 ? HVMEM_E_FOREIGN : HVMEM_E_OFFLINE);
        WORLD_END(world);
    }
}

/* Runs over the seam of two banks and of two nodes. */
TEST(runs_across_banks)
{
    struct shadow *shadow = shadow_with(30, 0);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_u32 done;
    hvmem_mfn frames[90];
    hvmem_u32 i;

    shadow_bank(shadow, 30, 40, 0, 0);
    shadow_bank(shadow, 70, 20, 1, 0);
    shadow_check(shadow);
    CHECK_EQ(shadow_reserve(shadow, 25, 50), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(shadow_reserve(shadow, 20, 10), HVMEM_E_BUSY);
    CHECK_EQ(shadow_reserve(shadow, 80, 11), HVMEM_E_FOREIGN);
    CHECK_EQ(shadow_free_run(shadow, 28, 44), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(shadow_free_run(shadow, 25, 3), HVMEM_OK);
    CHECK_EQ(shadow_free_run(shadow, 72, 3), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 90, &done), HVMEM_OK);
    CHECK_EQ(shadow_free_run(shadow, 0, 91), HVMEM_E_FOREIGN);
    shadow_check(shadow);
    CHECK_EQ(shadow_free_run(shadow, 0, 90), HVMEM_OK);
    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 90, &done), HVMEM_OK);
    for (i = 0; i < 90; i += 9)
        CHECK_EQ(shadow_free_bulk(shadow, frames + i, 9, 0, &done), HVMEM_OK);
    SHADOW_END(shadow);
}

/* Bulk of every order, and single frees of its blocks in another order. */
TEST(bulk_of_every_order)
{
    struct test_rng rng = test_rng(5);
    hvmem_u32 order;

    for (order = 0; order <= 6; order++) {
        struct shadow *shadow = shadow_with(200, 1);
        struct hvmem_request request = expect_block(order, NULL);
        hvmem_mfn frames[200];
        hvmem_u32 got = 0;
        hvmem_u32 n = 0;

        CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 200, &got),
                 order == 0 ? HVMEM_OK : HVMEM_E_NOMEM);
        CHECK_EQ(got, 200u >> order);
        shadow_check(shadow);
        while (got > 0) {
            hvmem_u32 pick = (hvmem_u32)test_below(&rng, got);

            CHECK_EQ(shadow_free(shadow, frames[pick], order), HVMEM_OK);
            frames[pick] = frames[--got];
            if (++n % 16 == 0)
                shadow_check(shadow);
        }
        if (!SHADOW_END(shadow))
            return;
    }
}

/*
 * Lists longer than one lock section takes; one that holds a block twice ends there, and what comes
 * after it stays allocated.
 */
TEST(bulk_free_stops_where_it_must)
{
    struct shadow *shadow = shadow_with(200, 1);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn frames[200];
    hvmem_mfn twice;
    hvmem_u32 got = 0;
    hvmem_u32 done = 0;

    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 200, &got), HVMEM_OK);
    twice = frames[150];
    frames[150] = frames[40];
    CHECK_EQ(shadow_free_bulk(shadow, frames, 200, 0, &done), HVMEM_E_FREE);
    CHECK_EQ(done, 150);
    shadow_check(shadow);
    frames[150] = twice;
    CHECK_EQ(shadow_free_bulk(shadow, frames + 150, 50, 0, &done), HVMEM_OK);
    CHECK_EQ(done, 50);
    shadow_check(shadow);
    CHECK_EQ(shadow_free_bulk(shadow, frames, 0, 0, &done), HVMEM_OK);
    CHECK_EQ(done, 0);
    SHADOW_END(shadow);
}

/* Large blocks by bulk, freed frame by frame through free_run. */
TEST(large_block_in_single_frames)
{
    struct shadow *shadow = shadow_with(64, 1);
    struct hvmem_request request;
    hvmem_mfn mfn = 0;
    hvmem_mfn i;

    shadow_domain_new(shadow, 1, ~0ull, 0);
    request = expect_block(6, shadow->domain[1].handle);
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    for (i = 0; i < 64; i++) {
        CHECK_EQ(shadow_free_run(shadow, (i * 29 + 5) % 64, 1), HVMEM_OK);
        shadow_check(shadow);
    }
    CHECK_EQ(expect_domain(shadow->domain[1].handle).pages, 0);
    SHADOW_END(shadow);
}

TEST(free_owned_checks_the_owner)
{
    struct shadow *shadow = shadow_with(64, 3);
    struct hvmem_request request;
    hvmem_mfn mfn = 0;
    hvmem_u32 id;
    hvmem_u32 other;

    for (id = 1; id <= 2; id++)
        shadow_domain_new(shadow, id, ~0ull, 0);
    for (id = 0; id <= 2; id++)
        for (other = 0; other <= 2; other++) {
            request = expect_block(2, shadow->domain[id].handle);
            CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
            if (other != id)
                CHECK_EQ(shadow_free_owned(shadow, mfn, 2, other, 0), HVMEM_E_OWNER);
            CHECK_EQ(shadow_free_owned(shadow, mfn, HVMEM_ORDER_ANY, id, HVMEM_OWES_DCACHE),
                     HVMEM_OK);
            shadow_check(shadow);
        }
    SHADOW_END(shadow);
}

/* ---- blocks that change between the look at them and their free ----------------------------------- */

#define TRIES    16u   /* in a row, of one block */
#define PATIENCE 4096u /* of one of a run */

struct flips {
    struct world *world;
    hvmem_mfn mfn[4]; /* first frames of blocks */
    unsigned left[4]; /* times each changes yet */
    unsigned count;
    int on;
};

/* The block that is about to be freed goes offline, or not any more. */
static int flip(const char *name, void *context)
{
    struct flips *f = context;
    unsigned i = 0;

    if (strcmp(name, "free_seen") != 0)
        return 0;
    while (i < f->count && expect_lookup(f->world, f->mfn[i]).state == HVMEM_BLOCK_FREE)
        i++;
    if (i == f->count || f->left[i] == 0)
        return 0;
    f->left[i]--;
    f->on = !f->on;
    if (f->on)
        CHECK_EQ(hvmem_offline(f->world->heap, f->mfn[i]), HVMEM_AGAIN);
    else
        CHECK_EQ(hvmem_online(f->world->heap, f->mfn[i]), HVMEM_OK);
    return 0;
}

/* Four blocks of order 3, in a row. */
static struct flips flips_with(unsigned first, unsigned others)
{
    struct flips f = {.world = WORLD_SIMPLE(0, 64), .count = 4};
    unsigned i;

    for (i = 0; i < 4; i++) {
        struct hvmem_request request = expect_block(3, NULL);

        request.lo = 8 * i;
        request.hi = 8 * i + 8;
        REQUIRE_EQ(hvmem_alloc(f.world->heap, &request, &f.mfn[i]), HVMEM_OK);
        f.left[i] = i ? others : first;
    }
    return f;
}

static void flips_end(struct flips *f)
{
    test_set_point_hook(NULL, NULL);
    CHECK_FREE_BLOCKS(f->world, {0, 6});
    WORLD_END(f->world);
}

/* Each block may change, again and again; how often others did does not count. */
TEST(run_of_blocks_that_change, points)
{
    struct flips f = flips_with(PATIENCE - 2, 2 * TRIES);

    test_set_point_hook(flip, &f);
    CHECK_EQ(hvmem_free_run(f.world->heap, 0, 32), HVMEM_OK);
    CHECK_EQ(f.left[3], 0);
    flips_end(&f);
}

/* In the end the call stops there, says so, and goes on from there when it is made again. */
TEST(block_of_a_run_that_changes_all_the_time, points)
{
    unsigned part;

    for (part = 0; part < 2; part++) {
        struct flips f = flips_with(0, PATIENCE);

        test_set_point_hook(flip, &f);
        CHECK_EQ(hvmem_free_run(f.world->heap, 0, 32 - part), HVMEM_E_BUSY);
        CHECK_EQ(f.left[1], 0);
        CHECK_EQ(expect_lookup(f.world, 0).state, HVMEM_BLOCK_FREE);
        CHECK_EQ(expect_lookup(f.world, 8).state, HVMEM_BLOCK_ALLOCATED);
        CHECK_EQ(expect_lookup(f.world, 8).order, 3);
        CHECK_EQ(expect_lookup(f.world, 31).state, HVMEM_BLOCK_ALLOCATED);
        CHECK_AUDIT(f.world);
        f.left[2] = f.left[3] = 0;
        CHECK_EQ(hvmem_free_run(f.world->heap, 8, 24 - part), HVMEM_OK);
        if (part)
            CHECK_EQ(hvmem_free_run(f.world->heap, 31, 1), HVMEM_OK);
        flips_end(&f);
    }
}

/* The same of a single block: 15 changes do not matter, with the 16th nothing is changed. */
TEST(block_that_changes_all_the_time, points)
{
    struct flips f = flips_with(TRIES - 2, TRIES);
    unsigned i;

    test_set_point_hook(flip, &f);
    CHECK_EQ(hvmem_free_owned(f.world->heap, 0, 3, NULL, 0), HVMEM_OK);
    CHECK_REFUSED_AT(f.world, hvmem_free_owned(f.world->heap, 8, 3, NULL, 0), HVMEM_E_BUSY, 8);
    CHECK_EQ(expect_lookup(f.world, 8).state, HVMEM_BLOCK_ALLOCATED);
    f.count = 0;
    for (i = 1; i < 4; i++)
        CHECK_EQ(hvmem_free_owned(f.world->heap, 8 * i, 3, NULL, 0), HVMEM_OK);
    flips_end(&f);
}
