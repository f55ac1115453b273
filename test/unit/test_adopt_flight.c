/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps that end in the middle of a call of another CPU, quiesced or not: what the call held in nobody's name
 * is found in the tables, and free again under the next heap, owing whatever it may owe. Nothing is lost.
 */
#include "expect.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>

#define FRAMES 64u
#define HELD   8u
#define ORDER  6u
#define SPAN   (FRAMES / 2)

struct flight {
    struct hvmem_config config;
    struct world *old;
    int quiesces;        /* the heap is quiesced before it ends */
    unsigned at, passed; /* the place where it ends */
    int ended, in_call, clean;
    void *table[2]; /* as they were then */
    size_t bytes[2];
    hvmem_mfn held[HELD]; /* of the host all the time */
    hvmem_mfn given;      /* the call is about it */
};

static struct flight *now;

static struct hvmem_bank half(hvmem_mfn base)
{
    struct hvmem_bank bank = {sizeof bank, HVMEM_BANK_DIRTY, base, SPAN, 0, 0};

    return bank;
}

/* The heap ends here: its tables as they are. */
static void end_here(struct flight *f)
{
    unsigned i;

    f->ended = 1;
    if (f->quiesces && hvmem_quiesce(f->old->heap) != HVMEM_OK)
        return; /* it knows better: nothing to take over */
    f->clean = 1;
    for (i = 0; i < 2; i++) {
        struct world_table *table = world_table_of(f->old, i * SPAN);

        f->bytes[i] = table->bytes;
        f->table[i] = aligned_alloc(64, (table->bytes + 63) / 64 * 64);
        REQUIRE(f->table[i] != NULL);
        memcpy(f->table[i], table->memory, table->bytes);
    }
}

static void between(struct world *world)
{
    struct flight *f = now;
    hvmem_cpu cpu = world_cpu();

    if (!f->in_call || f->passed++ != f->at)
        return;
    world->between = NULL;
    world_set_cpu(1);
    end_here(f);
    world_set_cpu(cpu);
}

/* Scrubs flush, zero and give back without a lock taken at some of these places. */
static int at_point(const char *name, void *context)
{
    struct flight *f = context;

    if (strcmp(name, "scrub") == 0 && !f->ended)
        between(f->old);
    return 0;
}

static void begin(struct flight *f)
{
    unsigned i;

    f->config = world_config();
    f->config.max_order = ORDER;
    f->config.max_cpus = 2;
    f->config.lock_regime = HVMEM_LOCK_PLAIN;
    f->config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
    f->old = WORLD_NEW(&f->config, WORLD_HOST_LOCK | WORLD_BARRIER | WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(f->old, 0, SPAN, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    REQUIRE_EQ(world_bank(f->old, SPAN, SPAN, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
    REQUIRE_EQ(world_smp(f->old), HVMEM_OK);
    for (i = 0; i < HELD; i++)
        REQUIRE_EQ(hvmem_alloc_order(f->old->heap, 0, &f->held[i]), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(f->old->heap, 3, &f->given), HVMEM_OK);
}

/* What the next heap has: all frames, but for those that were in use all the time and those of the call. */
static void take_over(struct flight *f, hvmem_u64 least)
{
    struct world *fresh = WORLD_NEW(&f->config, WORLD_BROADCAST | WORLD_BARRIER);
    struct hvmem_stats stats;
    struct hvmem_block block;
    hvmem_u64 cursor = 0, walk = 0;
    hvmem_status status;
    unsigned i;

    for (i = 0; i < 2; i++) {
        struct hvmem_bank bank = half(i * SPAN);

        REQUIRE_EQ(hvmem_bank_adopt(fresh->heap, &bank, f->table[i], f->bytes[i]), HVMEM_OK);
    }
    do
        status = hvmem_adopt_finish(fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_AUDIT(fresh);
    stats = expect_stats(fresh, HVMEM_NODE_ANY);
    CHECK_EQ(stats.reserved, 0);
    CHECK_EQ(stats.quarantined, 0);
    if (!CHECK(stats.free >= least))
        test_note("%llu frames are free, %llu allocated", (unsigned long long)stats.free,
                  (unsigned long long)stats.allocated);
    while (hvmem_walk(fresh->heap, &walk, &block) == HVMEM_AGAIN)
        CHECK(block.state == HVMEM_BLOCK_FREE || block.state == HVMEM_BLOCK_ALLOCATED);
    for (i = 0; i < HELD; i++)
        CHECK_EQ(hvmem_free(fresh->heap, f->held[i], 0), HVMEM_OK);
    CHECK(world_delete(fresh));
}

static void finish(struct flight *f)
{
    f->old->between = NULL;
    world_set_cpu(0);
    WORLD_END(f->old);
    free(f->table[0]);
    free(f->table[1]);
}

/* ---- the calls --------------------------------------------------------------------------------- */

static void scrubs(struct flight *f)
{
    struct hvmem_cursor cursor = {{0}};

    while (hvmem_scrub_step(f->old->heap, HVMEM_NODE_ANY, 3, &cursor) == HVMEM_AGAIN)
        continue;
}

static void allocates(struct flight *f)
{
    hvmem_mfn mfn;

    (void)hvmem_alloc_order(f->old->heap, 0, &mfn);
    (void)hvmem_alloc_order(f->old->heap, 2, &mfn);
}

static void frees(struct flight *f)
{
    (void)hvmem_free(f->old->heap, f->given, 3);
}

static void drains(struct flight *f)
{
    (void)hvmem_free(f->old->heap, f->given, 3);
    (void)hvmem_drain(f->old->heap);
}

static const struct {
    const char *name;
    void (*run)(struct flight *f);
    hvmem_u64 in_use; /* frames that may be allocated besides those held */
} calls[] = {
    {"scrub", scrubs, 8},
    {"alloc", allocates, 8 + 1 + 4},
    {"free", frees, 8},
    {"drain", drains, 8},
};

static unsigned play(unsigned call, int quiesces)
{
    unsigned taken = 0, at;

    for (at = 0;; at++) {
        struct flight f = {.at = at, .quiesces = quiesces};

        begin(&f);
        now = &f;
        f.old->between = between;
        test_set_point_hook(at_point, &f);
        f.in_call = 1;
        calls[call].run(&f);
        f.in_call = 0;
        test_set_point_hook(NULL, NULL);
        f.old->between = NULL;
        if (f.clean) {
            take_over(&f, FRAMES - HELD - calls[call].in_use);
            taken++;
        }
        finish(&f);
        if (!f.ended)
            return taken;
    }
}

TEST(nothing_is_lost_with_a_heap_that_ends_in_a_call)
{
    unsigned call;
    int quiesces;

    for (call = 0; call < sizeof calls / sizeof calls[0]; call++)
        for (quiesces = 0; quiesces < 2; quiesces++)
            if (!CHECK(play(call, quiesces) > 1))
                test_note("%s, quiesced: %d", calls[call].name, quiesces);
}

/* ---- what a block in flight owes ------------------------------------------------------------------ */

static int scrub_point(const char *name, void *context)
{
    struct flight *f = context;

    if (strcmp(name, "scrub") == 0 && !f->ended) {
        world_set_cpu(1);
        end_here(f);
        world_set_cpu(0);
    }
    return 0;
}

TEST(block_being_scrubbed_comes_back_dirty, points)
{
    int quiesces;

    for (quiesces = 0; quiesces < 2; quiesces++) {
        struct flight f = {.quiesces = quiesces};
        struct hvmem_cursor cursor = {{0}};
        struct hvmem_block block;
        struct world *fresh;
        hvmem_u64 at = 0;
        unsigned i;

        begin(&f);
        test_set_point_hook(scrub_point, &f);
        CHECK_EQ(hvmem_scrub_step(f.old->heap, HVMEM_NODE_ANY, 1, &cursor), HVMEM_AGAIN);
        test_set_point_hook(NULL, NULL);
        REQUIRE(f.clean);
        fresh = WORLD_NEW(&f.config, WORLD_BROADCAST | WORLD_BARRIER);
        for (i = 0; i < 2; i++) {
            struct hvmem_bank bank = half(i * SPAN);

            REQUIRE_EQ(hvmem_bank_adopt(fresh->heap, &bank, f.table[i], f.bytes[i]), HVMEM_OK);
        }
        while (hvmem_adopt_finish(fresh->heap, &at) == HVMEM_AGAIN)
            continue;
        CHECK_AUDIT(fresh);
        CHECK_EQ(expect_stats(fresh, HVMEM_NODE_ANY).reserved, 0);
        at = 0;
        while (hvmem_walk(fresh->heap, &at, &block) == HVMEM_AGAIN)
            if (block.state == HVMEM_BLOCK_FREE)
                CHECK(block.owed & HVMEM_OWES_SCRUB);
        CHECK(world_delete(fresh));
        finish(&f);
    }
}
