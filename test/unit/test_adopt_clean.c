/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The clean mark of every table: whatever one call changes in a table after a quiesce, the mark of that
 * table goes first, also where a block lies in two of them; and another heap adopts what was left.
 */
#include "callers.h"
#include "expect.h"
#include "lib/gathered.h"
#include "lib/table.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- what is written first --------------------------------------------------------------------- */

/*
 * Who dies leaves what it has written. So the first that a call writes to a table must be that the mark is
 * gone: the tables are read-only until then, and whoever writes to another place is caught.
 */
static struct world *watched;
static unsigned shut, count;        /* bit i: the i-th table; how many there are */
static volatile sig_atomic_t wrong; /* a word of a table that was written first */

static void written(int number, siginfo_t *info, void *context)
{
    size_t mark = __builtin_offsetof(struct hvmem__table, clean);
    unsigned i;
    (void)context;

    for (i = 0; i < count; i++) {
        struct world_table *t = &watched->tables[i];
        size_t at = (size_t)((unsigned char *)info->si_addr - t->memory);

        if (at >= t->mapped || !(shut >> i & 1))
            continue;
        if (at != mark)
            wrong = (sig_atomic_t)at;
        shut &= ~(1u << i);
        mprotect(t->memory, t->mapped, PROT_READ | PROT_WRITE);
        return;
    }
    signal(number, SIG_DFL);
}

static void shut_tables(struct world *world)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    unsigned i;

    watched = world;
    count = world->table_count;
    wrong = 0;
    shut = (1u << count) - 1;
    for (i = 0; i < count; i++)
        mprotect(world->tables[i].memory, world->tables[i].mapped, PROT_READ);
    action.sa_sigaction = written;
    sigaction(SIGSEGV, &action, NULL);
}

static void open_tables(void)
{
    unsigned i;

    signal(SIGSEGV, SIG_DFL);
    for (i = 0; i < count; i++)
        mprotect(watched->tables[i].memory, watched->tables[i].mapped, PROT_READ | PROT_WRITE);
}

/* One call after a quiesce: each table as it was, or no longer marked. Returns whether any was changed. */
static int changes(struct callers *scene)
{
    unsigned char *before[CALLERS_BANKS];
    unsigned i, changed = 0;

    REQUIRE_EQ(hvmem_quiesce(scene->heap), HVMEM_OK);
    for (i = 0; i < CALLERS_BANKS; i++) {
        struct world_table *t = &scene->world->tables[i];

        CHECK_EQ(((struct hvmem__table *)t->memory)->clean, 1);
        before[i] = malloc(t->bytes);
        REQUIRE(before[i] != NULL);
        memcpy(before[i], t->memory, t->bytes);
    }
    shut_tables(scene->world);
    callers_call(scene);
    CHECK_EQ(wrong, 0);
    open_tables();
    for (i = 0; i < CALLERS_BANKS; i++) {
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
static void adopt(struct callers *scene)
{
    struct hvmem_stats old = expect_stats(scene->world, HVMEM_NODE_ANY), now;
    struct world *fresh = WORLD_NEW(&scene->world->config, WORLD_BROADCAST);
    hvmem_status status;
    hvmem_u64 cursor = 0;
    unsigned i;

    for (i = 0; i < 2; i++)
        world_domain(fresh, i + 1, ~0ull, 0, NULL);
    for (i = 0; i < CALLERS_BANKS; i++) {
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
        struct callers scene = callers_new(stream);

        for (i = 0; i < 30; i++)
            changed += (unsigned)changes(&scene);
        CHECK_AUDIT(scene.world);
        adopt(&scene);
        callers_end(&scene);
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
    callers_bank(world, 0);
    table = (struct hvmem__table *)world->tables[0].memory;
    REQUIRE_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
    CHECK_EQ(table->clean, 1);
    shut_tables(world);
    callers_bank(world, 1); /* frames 94 and 95 are one block now */
    CHECK_EQ(wrong, 0);
    open_tables();
    CHECK_EQ(table->clean, 0);
    WORLD_END(world);
}

/* A block that leaves quarantine. */
TEST(mark_goes_before_quarantine_ends)
{
    struct callers scene = callers_new(1);
    struct hvmem__leaver leaver = {.anybody = 1};
    hvmem_mfn mfn, list = HVMEM__NO_MFN;

    REQUIRE_EQ(hvmem_alloc_order(scene.heap, 0, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem__gathered_take(scene.heap, mfn, 0, &leaver, &list), HVMEM_OK);
    CHECK_EQ(hvmem__gathered_quarantine(scene.heap, list, 0), 1);
    REQUIRE_EQ(hvmem_quiesce(scene.heap), HVMEM_OK);
    shut_tables(scene.world);
    CHECK_EQ(hvmem_quarantine_release(scene.heap, mfn), HVMEM_OK);
    CHECK_EQ(wrong, 0);
    open_tables();
    CHECK_AUDIT(scene.world);
    callers_end(&scene);
}
