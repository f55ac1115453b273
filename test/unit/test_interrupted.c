/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations in steps whose blocks go away between two steps: freed by their owner, which named them
 * itself, and in somebody else's hands when the operation goes on.
 */
#include "expect.h"
#include "test/support/test_tables.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

#define FRAMES 1024u
#define DONOR  1u
#define TENANT 2u
#define OWED   (HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN)

struct scene {
    struct world *world;
    struct hvmem_domain *donor, *tenant;
    struct test_tables tables;
    struct hvmem_extent extents[8];
    struct hvmem_populate request;
    struct hvmem_cursor cursor;
    hvmem_u64 done;
};

/* All memory was the donor's, who runs on, and owes everything; as one block. */
static struct scene *scene(hvmem_u32 owed)
{
    struct hvmem_config config = world_config();
    struct scene *s = calloc(1, sizeof *s);
    struct hvmem_request request;
    hvmem_mfn mfn;

    REQUIRE(s != NULL);
    config.owed_on_free = owed;
    config.max_cpus = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    s->world = WORLD_NEW(&config, 0);
    world_track(s->world, 0, FRAMES);
    CHECK_EQ(world_bank(s->world, 0, FRAMES, 0, 0), HVMEM_OK);
    s->donor = world_domain(s->world, DONOR, ~0ull, 0, NULL);
    s->tenant = world_domain(s->world, TENANT, ~0ull, 0, NULL);
    CHECK_EQ(world_smp(s->world), HVMEM_OK);
    request = expect_block(10, s->donor);
    CHECK_EQ(hvmem_alloc(s->world->heap, &request, &mfn), HVMEM_OK);
    world_owe(s->world, 0, FRAMES, owed);
    CHECK_EQ(hvmem_free(s->world->heap, mfn, 10), HVMEM_OK);
    test_tables_init(&s->tables);
    REQUIRE_EQ(hvmem_domain_attach(s->tenant, &s->tables.ops, &s->tables, NULL), HVMEM_OK);
    return s;
}

static void scene_end(struct scene *s)
{
    CHECK_TORN_DOWN(s->world, s->tenant);
    CHECK(s->tables.broken == NULL);
    CHECK_AUDIT(s->world);
    WORLD_END(s->world);
    free(s);
}

/* ---- start ------------------------------------------------------------------------------------ */

/* How far the block that was freed had been paid for says nothing of the next one. */
TEST(start_goes_on_behind_a_block_that_was_freed)
{
    struct scene *s = scene(OWED);
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn[2], first;
    hvmem_status status;
    unsigned i;

    for (i = 0; i < 2; i++) {
        struct hvmem_request request = expect_block(9, s->tenant);

        request.flags = HVMEM_REQ_DEFER_ALL;
        REQUIRE_EQ(hvmem_alloc(s->world->heap, &request, &mfn[i]), HVMEM_OK);
    }
    first = mfn[0] < mfn[1] ? mfn[0] : mfn[1];
    REQUIRE_EQ(hvmem_domain_start_step(s->tenant, 100, &cursor), HVMEM_AGAIN);
    CHECK_EQ(world_owed(s->world, first, 64) & HVMEM_OWES_SCRUB, 0); /* in the middle of it */
    CHECK(world_owed(s->world, first + 256, 256) & HVMEM_OWES_SCRUB);
    CHECK_EQ(hvmem_free_owned(s->world->heap, first, 9, s->tenant, 0), HVMEM_OK);
    do
        status = hvmem_domain_start_step(s->tenant, 100, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(world_owed(s->world, first ^ 512, 512), 0);
    scene_end(s);
}

/* ---- populate --------------------------------------------------------------------------------- */

static void prepare(struct scene *s, hvmem_u32 order, hvmem_u64 budget)
{
    hvmem_u64 i;

    for (i = 0; i < 8; i++) {
        s->extents[i].gfn = i << order;
        s->extents[i].order = order;
    }
    s->request.size = sizeof s->request;
    s->request.extents = s->extents;
    s->request.count = 8;
    s->request.node = HVMEM_NODE_ANY;
    s->request.budget = budget;
    s->request.done = &s->done;
}

static int is_mapped(const struct scene *s, hvmem_mfn mfn)
{
    int i;

    for (i = 0; i < 8; i++)
        if ((s->extents[i].flags & HVMEM_EXTENT_DONE) && s->extents[i].mfn == mfn)
            return 1;
    return 0;
}

/* The first block that a populate holds; FRAMES: it holds none. */
static hvmem_mfn held(struct scene *s, hvmem_u32 order)
{
    hvmem_mfn mfn = 0;

    while (mfn < FRAMES && (expect_lookup(s->world, mfn).owner != TENANT || is_mapped(s, mfn)))
        mfn += 1u << order;
    return mfn < FRAMES ? mfn : FRAMES;
}

/* Every call that takes a block by its number, by the tenant that guessed it and by the host. */
static void try_all(struct scene *s, hvmem_mfn mfn, hvmem_u32 order)
{
    struct hvmem_block before = expect_lookup(s->world, mfn), after;
    struct hvmem_heap *heap = s->world->heap;
    struct hvmem_cursor cursor = {{0}};

    CHECK_EQ(hvmem_free_owned(heap, mfn, order, s->tenant, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free(heap, mfn, HVMEM_ORDER_ANY), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(heap, mfn, (hvmem_u64)1 << order), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(heap, mfn, 1), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_scrubbed(heap, mfn, order, s->tenant, 0, 0, &cursor), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_domain_foreign(s->tenant, mfn, order), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_owned(heap, mfn, order, s->donor, 0), HVMEM_E_OWNER);
    after = expect_lookup(s->world, mfn);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
}

/*
 * B31: after every step of a populate nobody gets one of its blocks by its number, be it of pages of a cached
 * order or larger, paid for at once or at first touch; and it is freed like any other once it is mapped.
 */
TEST(B31_a_block_of_a_populate_is_nobody_elses)
{
    static const hvmem_u32 owed[] = {OWED, HVMEM_OWES_TLB, 0};
    unsigned what, turn, after, i, tried = 0, freed = 0;

    for (what = 0; what < 3; what++)
        for (turn = 0; turn < 8; turn++)
            for (after = 1; after < 16; after++) {
                struct scene *s = scene(owed[what]);
                hvmem_u32 order = turn & 4 ? 0 : 1;
                hvmem_status status = HVMEM_AGAIN;
                hvmem_mfn mfn;

                prepare(s, order, 3);
                for (i = 0; i < 8 && turn & 2; i++)
                    s->extents[i].flags = HVMEM_EXTENT_FIRST_TOUCH;
                for (i = 0; i < after && status == HVMEM_AGAIN; i++)
                    status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
                mfn = status == HVMEM_AGAIN ? held(s, order) : FRAMES;
                if (mfn != FRAMES) {
                    tried++;
                    try_all(s, mfn, order);
                }
                if (status == HVMEM_AGAIN && turn & 1) {
                    CHECK_EQ(hvmem_domain_populate_cancel(s->tenant), HVMEM_OK);
                    CHECK(mfn == FRAMES || expect_lookup(s->world, mfn).owner != TENANT);
                } else if (status == HVMEM_AGAIN) {
                    do
                        status = hvmem_domain_populate(s->tenant, &s->request, &s->cursor);
                    while (status == HVMEM_AGAIN);
                    CHECK_EQ(status, HVMEM_OK);
                }
                for (i = 0; status == HVMEM_OK && i < 8; i++, freed++)
                    CHECK_EQ(
                        hvmem_free_owned(s->world->heap, s->extents[i].mfn, order, s->tenant, 0),
                        HVMEM_OK);
                scene_end(s);
            }
    CHECK(tried > 48);
    CHECK(freed > 48);
}
