/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Banks that go while calls are under way that have found them: the table is the host's from then on, which
 * takes it out of the address space at once. Whoever reads it afterwards dies.
 */
#include "expect.h"
#include "pcpu.h"

#include <hvmem/cache.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define HOME         0u
#define LATE         1024u /* the bank that goes */
#define SPAN         64u

struct scene {
    struct world *world;
    struct hvmem_domain *domain;
    struct hvmem_domain *owner; /* of the block: the domain, or NULL */
    unsigned char *table;
    size_t bytes;
    hvmem_mfn mfn; /* the one block of the late bank that is in use */
    hvmem_order order;
    int gone;
    unsigned at, passed;
    pthread_t reader;
    int inside, waits, went;
};

static struct scene *now;

static struct hvmem_heap *heap_of(const struct scene *s)
{
    return s->world->heap;
}

/* ---- the stage -------------------------------------------------------------------------------- */

static void add_late(struct scene *s)
{
    struct hvmem_bank bank = {sizeof bank, HVMEM_BANK_DIRTY, LATE, SPAN, 0, 0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    hvmem_size bytes = 0;

    REQUIRE_EQ(hvmem_bank_size(heap_of(s), &bank, &bytes), HVMEM_OK);
    s->bytes = (bytes + page - 1) / page * page;
    s->table = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(s->table != MAP_FAILED);
    world_garbage(s->table, s->bytes);
    world_owe(s->world, LATE, SPAN, HVMEM_OWES_SCRUB);
    REQUIRE_EQ(hvmem_bank_add(heap_of(s), &bank, s->table, bytes), HVMEM_OK);
}

static void begin(struct scene *s, hvmem_order order, int owned)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request;

    config.max_order = 4;
    config.max_cpus = 3;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.owed_on_free = HVMEM_OWES_TLB;
    s->world = WORLD_NEW(&config, WORLD_HOST_LOCK | WORLD_BARRIER);
    world_track(s->world, 0, LATE + SPAN);
    REQUIRE_EQ(world_bank(s->world, HOME, SPAN, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(s->world), HVMEM_OK);
    s->domain = world_domain(s->world, 1, ~0ull, 0, NULL);
    s->owner = owned ? s->domain : NULL;
    add_late(s);
    request = expect_block(order, s->owner);
    request.lo = LATE;
    request.hi = LATE + SPAN;
    request.flags = owned ? HVMEM_REQ_DEFER_ALL : 0;
    REQUIRE_EQ(hvmem_alloc(heap_of(s), &request, &s->mfn), HVMEM_OK);
    s->order = order;
}

static int bank_goes(struct scene *s)
{
    if (hvmem_bank_remove(heap_of(s), LATE, SPAN) != HVMEM_OK)
        return 0;
    s->gone = 1;
    return mprotect(s->table, s->bytes, PROT_NONE) == 0;
}

/* Whoever has the block, or a part of it, gives it back. */
static void give_back(struct scene *s)
{
    struct hvmem_block block;
    hvmem_u64 i;

    for (i = 0; i < 1ull << s->order; i++) {
        block = expect_lookup(s->world, s->mfn + i);
        if (block.state == HVMEM_BLOCK_OFFLINE)
            CHECK_EQ(hvmem_online(heap_of(s), s->mfn + i), HVMEM_OK);
        else if (block.state != HVMEM_BLOCK_FREE && block.state != HVMEM_BLOCK_CACHED)
            CHECK_EQ(hvmem_free_run(heap_of(s), block.mfn, 1ull << block.order), HVMEM_OK);
    }
    (void)hvmem_online(heap_of(s), s->mfn);
}

static void end(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    s->world->between = NULL;
    world_set_cpu(0);
    if (!s->gone) {
        give_back(s);
        REQUIRE(bank_goes(s));
    }
    while (hvmem_domain_teardown(s->domain, 0, &cursor) == HVMEM_AGAIN)
        continue;
    CHECK_EQ(world_domain_gone(s->world, s->domain), HVMEM_OK);
    CHECK_EQ(hvmem_drain(heap_of(s)), HVMEM_OK);
    CHECK_EQ(expect_stats(s->world, HVMEM_NODE_ANY).free, SPAN);
    munmap(s->table, s->bytes);
    WORLD_END(s->world);
}

/* ---- calls, and the bank goes at each place where they hold nothing ------------------------------ */

static hvmem_status frees(struct scene *s)
{
    return hvmem_free(heap_of(s), s->mfn, s->order);
}

static hvmem_status frees_any(struct scene *s)
{
    return hvmem_free_owned(heap_of(s), s->mfn, HVMEM_ORDER_ANY, s->owner, HVMEM_OWES_ICACHE);
}

static hvmem_status frees_twice(struct scene *s)
{
    hvmem_u32 done = 0;
    hvmem_mfn both[2] = {s->mfn, s->mfn};

    return hvmem_free_bulk(heap_of(s), both, 2, s->order, &done);
}

static hvmem_status frees_run(struct scene *s)
{
    return hvmem_free_run(heap_of(s), s->mfn, 1);
}

static hvmem_status frees_scrubbed(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};

    return hvmem_free_scrubbed(heap_of(s), s->mfn, s->order, s->owner, 0, ~0ull, &cursor);
}

static hvmem_status settles(struct scene *s)
{
    return hvmem_settle(heap_of(s), s->mfn, 1ull << s->order, HVMEM_OWES_ANY);
}

static hvmem_status shares(struct scene *s)
{
    return hvmem_domain_foreign(s->domain, s->mfn, s->order);
}

static hvmem_status starts(struct scene *s)
{
    return hvmem_domain_start(s->domain);
}

static hvmem_status offlines(struct scene *s)
{
    return hvmem_offline(heap_of(s), s->mfn);
}

static hvmem_status offlines_and_on(struct scene *s)
{
    hvmem_status status = hvmem_offline(heap_of(s), s->mfn);

    (void)hvmem_online(heap_of(s), s->mfn);
    return status;
}

static hvmem_status releases(struct scene *s)
{
    return hvmem_quarantine_release(heap_of(s), s->mfn);
}

static hvmem_status looks(struct scene *s)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;
    hvmem_status status;

    (void)hvmem_lookup(heap_of(s), s->mfn, &block);
    do
        status = hvmem_walk(heap_of(s), &cursor, &block);
    while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status counts(struct scene *s)
{
    struct hvmem_stats stats;
    hvmem_node node;

    (void)hvmem_free_frames(heap_of(s));
    (void)hvmem_node_of(heap_of(s), s->mfn, &node);
    return hvmem_stats(heap_of(s), 0, sizeof stats, &stats);
}

static hvmem_status audits(struct scene *s)
{
    const char *where;
    hvmem_mfn mfn;

    return hvmem_audit(heap_of(s), &mfn, &where);
}

static hvmem_status ends_domain(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    do
        status = hvmem_domain_teardown(s->domain, 0, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status scrubs(struct scene *s)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    do
        status = hvmem_scrub_step(heap_of(s), HVMEM_NODE_ANY, 1, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status quiesces(struct scene *s)
{
    return hvmem_quiesce(heap_of(s));
}

static const struct {
    const char *name;
    hvmem_status (*run)(struct scene *s);
} calls[] = {
    {"free", frees},
    {"free any order", frees_any},
    {"free twice", frees_twice},
    {"free run", frees_run},
    {"free scrubbed", frees_scrubbed},
    {"settle", settles},
    {"share", shares},
    {"start", starts},
    {"offline", offlines},
    {"offline and online", offlines_and_on},
    {"quarantine release", releases},
    {"look", looks},
    {"count", counts},
    {"audit", audits},
    {"tear down", ends_domain},
    {"scrub", scrubs},
    {"quiesce", quiesces},
};

static void between(struct world *world)
{
    struct scene *s = now;
    hvmem_cpu cpu = world_cpu();

    if (s->passed++ != s->at)
        return;
    world->between = NULL;
    world_set_cpu(2);
    world_owe(world, s->mfn, 1ull << s->order, HVMEM_OWES_TLB);
    (void)hvmem_free_owned(heap_of(s), s->mfn, s->order, s->owner, 0);
    (void)bank_goes(s);
    world_set_cpu(cpu);
}

static unsigned play(hvmem_status (*run)(struct scene *s), hvmem_order order, int owned)
{
    unsigned at, went = 0;

    for (at = 0;; at++) {
        struct scene s = {.at = at};

        begin(&s, order, owned);
        now = &s;
        s.world->between = between;
        CHECK(run(&s) != HVMEM_E_CORRUPT);
        went += (unsigned)s.gone;
        end(&s);
        if (s.passed <= at)
            return went;
    }
}

TEST(bank_goes_at_any_place)
{
    hvmem_order orders[] = {0, 2};
    unsigned c, o;
    int owned;

    for (c = 0; c < COUNT(calls); c++)
        for (o = 0; o < COUNT(orders); o++)
            for (owned = 0; owned < 2; owned++)
                if (!CHECK(play(calls[c].run, orders[o], owned) != 0))
                    test_note("%s, order %u, owned %d", calls[c].name, orders[o], owned);
}

/* ---- a call that is inside its CPU's cache when the bank goes ------------------------------------ */

/* The removal waits for somebody, in a loop. */
static void waiting(struct world *world)
{
    (void)world;
    __atomic_store_n(&now->waits, 1, __ATOMIC_RELEASE);
}

/* The second of two frees. */
static void *reader(void *context)
{
    struct scene *s = context;
    hvmem_status status;

    world_set_cpu(0);
    status = hvmem_free_owned(heap_of(s), s->mfn, s->order, s->domain, 0);
    CHECK(status == HVMEM_E_RESERVED || status == HVMEM_E_FOREIGN);
    return NULL;
}

static int point(const char *name, void *context)
{
    struct scene *s = context;

    if (strcmp(name, "bank_leaves") == 0) {
        REQUIRE_EQ(pthread_create(&s->reader, NULL, reader, s), 0);
        while (!__atomic_load_n(&s->inside, __ATOMIC_ACQUIRE))
            sched_yield();
    } else if (strcmp(name, "read_head") == 0 && !s->inside) {
        __atomic_store_n(&s->inside, 1, __ATOMIC_RELEASE);
        while (!__atomic_load_n(&s->waits, __ATOMIC_ACQUIRE) &&
               !__atomic_load_n(&s->went, __ATOMIC_ACQUIRE))
            sched_yield();
        CHECK(!__atomic_load_n(&s->went, __ATOMIC_ACQUIRE));
    }
    return 0;
}

/* Who frees a block once more has found its bank, and is about to read the record when the bank goes. */
TEST(bank_waits_for_who_reads_its_table, threads, points)
{
    hvmem_order orders[] = {0, 2};
    unsigned i;

    for (i = 0; i < COUNT(orders); i++) {
        struct scene s = {0};

        begin(&s, orders[i], 1);
        CHECK_EQ(hvmem_free_owned(heap_of(&s), s.mfn, s.order, s.domain, 0), HVMEM_OK);
        CHECK_EQ(hvmem_drain(heap_of(&s)), HVMEM_OK);
        now = &s;
        s.world->relaxing = waiting;
        world_set_cpu(2);
        test_set_point_hook(point, &s);
        CHECK_EQ(hvmem_bank_remove(heap_of(&s), LATE, SPAN), HVMEM_OK);
        s.gone = 1;
        __atomic_store_n(&s.went, 1, __ATOMIC_RELEASE);
        REQUIRE(s.inside != 0);
        pthread_join(s.reader, NULL);
        test_set_point_hook(NULL, NULL);
        end(&s);
    }
}

/* ---- a bank that cannot go comes back ------------------------------------------------------------ */

static hvmem_status fails_once(struct world *world, hvmem_cpu cpu)
{
    (void)cpu;
    /* While the bank is on its way out nothing can come in its place. */
    now->waits += world_bank(world, LATE, SPAN, 0, 0) == HVMEM_E_OVERLAP;
    return HVMEM_E_HOST;
}

TEST(bank_that_cannot_go_is_back)
{
    struct scene s = {0};

    begin(&s, 0, 0);
    CHECK_EQ(hvmem_free(heap_of(&s), s.mfn, 0), HVMEM_OK);
    CHECK_EQ(hvmem_drain(heap_of(&s)), HVMEM_OK);
    now = &s;
    s.world->barrier = fails_once;
    CHECK_EQ(hvmem_bank_remove(heap_of(&s), LATE, SPAN), HVMEM_E_HOST);
    CHECK(s.waits != 0);
    CHECK_EQ(expect_stats(s.world, HVMEM_NODE_ANY).frames, 2 * SPAN);
    CHECK_EQ(expect_stats(s.world, HVMEM_NODE_ANY).free, 2 * SPAN);
    CHECK_EQ(expect_lookup(s.world, LATE).state, HVMEM_BLOCK_FREE);
    CHECK_AUDIT(s.world);
    s.world->barrier = NULL;
    end(&s);
}

/* ---- somebody frees what he does not own --------------------------------------------------------- */

static int freeing(const char *name, void *context)
{
    struct scene *s = context;

    if (strcmp(name, "bank_leaves") == 0) {
        s->waits++;
        CHECK_EQ(hvmem_free_run(heap_of(s), LATE + 1, 2), HVMEM_E_FREE);
        CHECK_EQ(expect_lookup(s->world, LATE + 1).state, HVMEM_BLOCK_CACHED);
    }
    return 0;
}

/* Once all of a bank is out of the free sets nobody can free a part of it: the rest would stay out for good. */
TEST(bank_that_goes_is_nobodys_to_free, points)
{
    struct scene s = {0};

    begin(&s, 0, 0);
    CHECK_EQ(hvmem_free(heap_of(&s), s.mfn, 0), HVMEM_OK);
    test_set_point_hook(freeing, &s);
    CHECK(bank_goes(&s));
    test_set_point_hook(NULL, NULL);
    CHECK_EQ(s.waits, 1);
    end(&s);
}
