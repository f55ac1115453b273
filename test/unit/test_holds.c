/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls that do their work in several holds of an arena's lock: what another CPU meets between two of them,
 * what a heap finds that takes the tables over there, and that nothing written is called clean. Real bytes.
 */
#include "expect.h"
#include "lib/table.h"
#include "other.h"

#include <hvmem/cache.h>
#include <stdlib.h>
#include <string.h>

#define ORDER  10u
#define FRAMES ((hvmem_u64)1 << ORDER)
#define PAGE   4096u
#define BANKS  (ORDER + 1)

/* Banks whose borders a block of every order lies across: every split and merge takes several holds. */
static struct world *world_of_seams(unsigned flags, hvmem_u32 bank_flags)
{
    struct hvmem_config config = world_config();
    struct world *world;
    unsigned i;

    config.owed_on_free = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB;
    config.max_order = config.arena_order = ORDER;
    config.max_cpus = 2;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, flags | WORLD_BROADCAST | WORLD_BARRIER | WORLD_REAL_MEMORY);
    world_track(world, 0, FRAMES);
    REQUIRE(world->content != NULL);
    memset(world->content, bank_flags & HVMEM_BANK_DIRTY ? 0x5e : 0, FRAMES * PAGE);
    REQUIRE_EQ(world_bank(world, 0, 1, 0, bank_flags), HVMEM_OK);
    for (i = 0; i < ORDER; i++)
        REQUIRE_EQ(world_bank(world, (hvmem_mfn)1 << i, (hvmem_u64)1 << i, 0, bank_flags),
                   HVMEM_OK);
    REQUIRE_EQ(world_smp(world), HVMEM_OK);
    return world;
}

static int is_zero(const struct world *world, hvmem_mfn mfn)
{
    const unsigned char *at = world->content + mfn * PAGE;

    return at[0] == 0 && memcmp(at, at + 1, PAGE - 1) == 0;
}

/* What the other caller took. */
static struct {
    unsigned count;
    hvmem_mfn frame[FRAMES];
    unsigned char seen[FRAMES];
} took;

/* It acts between two holds of a call, at this turn, and has taken nothing. */
static struct other *other_of(struct world *world, const char *point, unsigned turn,
                              void (*acts)(struct other *))
{
    static struct other other;

    memset(&took, 0, sizeof took);
    other_waits(&other, world, point, turn, acts);
    return &other;
}

/* Every frame that can be had, each once and zero. */
static void take_all(struct other *other)
{
    hvmem_mfn mfn;

    while (hvmem_alloc_order(other->world->heap, 0, &mfn) == HVMEM_OK) {
        if (!CHECK(mfn < FRAMES && !took.seen[mfn]++ &&
                   (!other->world->content || is_zero(other->world, mfn))))
            break;
        took.frame[took.count++] = mfn;
    }
}

static void free_all(struct other *other)
{
    while (took.count > 0)
        CHECK_EQ(hvmem_free(other->world->heap, took.frame[--took.count], 0), HVMEM_OK);
}

/* ---- tables taken over ------------------------------------------------------------------------ */

/* Another heap with the tables as they are now, whose frames have the bytes that they have now. */
static struct world *adopt_copy(struct world *old, unsigned char **copies)
{
    struct world *fresh =
        WORLD_NEW(&old->config, WORLD_BROADCAST | WORLD_BARRIER | WORLD_REAL_MEMORY);
    hvmem_u64 cursor = 0;
    hvmem_status status;
    unsigned i;

    world_track(fresh, 0, FRAMES);
    memcpy(fresh->content, old->content, FRAMES * PAGE);
    for (i = 0; i < old->table_count; i++) {
        struct world_table *t = &old->tables[i];
        struct hvmem_bank bank = {sizeof bank, 0, t->base, t->frames, 0, 0};

        copies[i] = aligned_alloc(64, (t->bytes + 63) & ~(hvmem_size)63);
        REQUIRE(copies[i] != NULL);
        memcpy(copies[i], t->memory, t->bytes);
        REQUIRE_EQ(hvmem_bank_adopt(fresh->heap, &bank, copies[i], t->bytes), HVMEM_OK);
    }
    do
        status = hvmem_adopt_finish(fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    REQUIRE_EQ(status, HVMEM_OK);
    return fresh;
}

/* Whoever takes over finds every frame free, for nobody got one yet; none is called clean that is not zero. */
static void take_over(struct other *other)
{
    unsigned char *copies[WORLD_MAX_TABLES] = {NULL};
    struct world *fresh = adopt_copy(other->world, copies);
    hvmem_mfn mfn;
    unsigned i;

    CHECK_AUDIT(fresh);
    CHECK_EQ(expect_stats(fresh, HVMEM_NODE_ANY).free, FRAMES);
    for (mfn = 0; mfn < FRAMES; mfn++) {
        struct hvmem_block block = expect_lookup(fresh, mfn);

        CHECK(block.owed & HVMEM_OWES_SCRUB || is_zero(fresh, mfn));
    }
    test_set_point_hook(NULL, NULL);
    while (hvmem_alloc_order(fresh->heap, 0, &mfn) == HVMEM_OK)
        CHECK(is_zero(fresh, mfn));
    CHECK(world_delete(fresh));
    for (i = 0; i < other->world->table_count; i++)
        free(copies[i]);
}

/* ---- scrubbing -------------------------------------------------------------------------------- */

/* Scrub all that there is, and see that all of it is zero. */
static void scrub(struct world *world, hvmem_u64 budget)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned calls = 0;
    hvmem_status status;

    do
        status = hvmem_scrub_step(world->heap, HVMEM_NODE_ANY, budget, &cursor);
    while (status == HVMEM_AGAIN && ++calls < 10000);
    CHECK_EQ(status, HVMEM_OK);
}

/* What is on its way is nobody's to free, reserve or pay for; it has a block. */
static void try_everything(struct other *other)
{
    struct hvmem_heap *heap = other->world->heap;
    struct hvmem_block block;
    hvmem_mfn mfn;

    for (mfn = 0; mfn < FRAMES; mfn++) {
        REQUIRE_EQ(hvmem_lookup(heap, mfn, &block), HVMEM_OK);
        if (block.state != HVMEM_BLOCK_CACHED)
            continue;
        took.count++;
        CHECK(block.owed & HVMEM_OWES_SCRUB);
        CHECK(hvmem_free_run(heap, mfn, 1) < 0);
        CHECK(hvmem_free(heap, mfn, HVMEM_ORDER_ANY) < 0);
        CHECK(hvmem_settle(heap, mfn, 1, HVMEM_OWES_SCRUB) < 0);
        CHECK_EQ(hvmem_reserve(heap, mfn, 1), HVMEM_E_BUSY);
    }
    CHECK(took.count > 0 && took.count <= FRAMES / 2);
    took.count = 0;
}

static unsigned scrub_beside(unsigned turn, void (*acts)(struct other *))
{
    struct world *world = world_of_seams(0, HVMEM_BANK_DIRTY);
    struct other *other = other_of(world, "hand_again", turn, acts);
    hvmem_mfn mfn;

    scrub(world, 7);
    test_set_point_hook(NULL, NULL);
    CHECK_AUDIT(world);
    /* Those that others took are theirs; all others are free, clean and zero. */
    for (mfn = 0; mfn < FRAMES; mfn++)
        CHECK(is_zero(world, mfn));
    CHECK_EQ(hvmem_free_frames(world->heap), FRAMES - took.count);
    free_all(other);
    CHECK_FREE_BLOCKS(world, {0, ORDER});
    WORLD_END(world);
    return other->done;
}

TEST(scrub_carves_while_others_take_the_rest, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 12; turn++)
        done += scrub_beside(turn, take_all);
    CHECK(done > 3);
}

TEST(nobody_reaches_what_a_scrub_carves, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 8; turn++)
        done += scrub_beside(turn, try_everything);
    CHECK(done > 3);
}

TEST(tables_taken_over_while_a_scrub_carves, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 12; turn++)
        done += scrub_beside(turn, take_over);
    CHECK(done > 3);
}

/* Promised to the last frame: it is left alone; all but one: that much is kept for it. */
TEST(scrub_carves_within_promises, points)
{
    unsigned turn;

    for (turn = 0; turn < 6; turn++) {
        struct world *world = world_of_seams(0, HVMEM_BANK_DIRTY);
        struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
        struct other *other;

        REQUIRE_EQ(hvmem_domain_claim(domain, HVMEM_NODE_ANY, FRAMES - 100), HVMEM_OK);
        other = other_of(world, "hand_again", turn, take_all);
        scrub(world, 7);
        test_set_point_hook(NULL, NULL);
        take_all(other);
        CHECK_EQ(took.count, 100);
        CHECK_EQ(expect_domain(domain).claimed, FRAMES - 100);
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free, FRAMES - 100);
        WORLD_END(world);
    }
}

/* ---- exact ranges ----------------------------------------------------------------------------- */

static unsigned reserve_beside(unsigned turn, hvmem_mfn lo, hvmem_u64 count,
                               void (*acts)(struct other *))
{
    struct world *world = world_of_seams(0, HVMEM_BANK_DIRTY);
    struct other *other = other_of(world, "hand_again", turn, acts);
    hvmem_status status;
    hvmem_mfn mfn;

    status = hvmem_reserve(world->heap, lo, count);
    test_set_point_hook(NULL, NULL);
    /* Refused if others have some of it by now, exactly what was asked for otherwise. */
    CHECK(status == HVMEM_OK || (status == HVMEM_E_BUSY && took.count > 0));
    for (mfn = 0; mfn < FRAMES; mfn++) {
        int ours = !status && mfn - lo < count;

        CHECK_EQ(expect_lookup(world, mfn).state == HVMEM_BLOCK_RESERVED, ours);
        CHECK(!ours || (!took.seen[mfn] && expect_lookup(world, mfn).owed & HVMEM_OWES_SCRUB));
    }
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).reserved, status ? 0 : count);
    CHECK_AUDIT(world);
    free_all(other);
    if (!status)
        CHECK_EQ(hvmem_free_run(world->heap, lo, count), HVMEM_OK);
    CHECK_FREE_BLOCKS(world, {0, ORDER});
    WORLD_END(world);
    return other->done;
}

TEST(reserve_carves_while_others_take_the_rest, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 12; turn++) {
        done += reserve_beside(turn, 0, 1, take_all);
        done += reserve_beside(turn, 5, 300, take_all);
    }
    CHECK(done > 6);
}

TEST(tables_taken_over_while_a_reserve_carves, points)
{
    unsigned turn, done = 0;

    for (turn = 0; turn < 12; turn++) {
        done += reserve_beside(turn, 0, 1, take_over);
        done += reserve_beside(turn, 5, 300, take_over);
    }
    CHECK(done > 6);
}

/* ---- bad frames ------------------------------------------------------------------------------- */

static const hvmem_mfn bad[] = {0, 7, 300, 301, FRAMES - 1};
#define BAD (sizeof bad / sizeof bad[0])

/* As another CPU, what can be had at once. */
static void take_as_another(struct other *other)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;

    world_set_cpu(1);
    for (mfn = 0; mfn < FRAMES; mfn++) {
        struct hvmem_block block = expect_lookup(other->world, mfn);

        CHECK(block.state != HVMEM_BLOCK_ALLOCATED);
        if (block.state != HVMEM_BLOCK_FREE) {
            CHECK(hvmem_free(other->world->heap, mfn, HVMEM_ORDER_ANY) < 0);
            continue;
        }
        request.lo = mfn;
        request.hi = mfn + 1;
        CHECK_EQ(hvmem_alloc(other->world->heap, &request, &took.frame[took.count]), HVMEM_OK);
        CHECK(!took.seen[mfn]++ && is_zero(other->world, mfn));
        took.count++;
    }
    world_set_cpu(0);
}

/*
 * A dirty block with bad frames is freed, in many holds: of what is free already others take what they like,
 * but no bad frame, and none that is not zero; the rest is nobody's.
 */
TEST(others_take_parts_of_a_block_with_bad_frames, points)
{
    unsigned turn, i, done = 0;

    for (turn = 0; turn < 60; turn += 3) {
        struct world *world = world_of_seams(0, HVMEM_BANK_DIRTY);
        struct hvmem_domain *domain = world_domain(world, 1, ~0ull, 0, NULL);
        struct hvmem_request request = expect_block(ORDER, domain);
        struct other *other;
        hvmem_mfn mfn;

        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        memset(world->content, 0x5e, FRAMES * PAGE);
        world_owe(world, 0, FRAMES, world->config.owed_on_free);
        for (i = 0; i < BAD; i++)
            CHECK_EQ(hvmem_offline(world->heap, bad[i]), HVMEM_AGAIN);
        other = other_of(world, "offline_again", turn, take_as_another);
        CHECK_EQ(hvmem_free_owned(world->heap, mfn, ORDER, domain, 0), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        done += other->done && took.count;
        for (i = 0; i < BAD; i++) {
            CHECK(!took.seen[bad[i]]);
            CHECK_EQ(expect_lookup(world, bad[i]).state, HVMEM_BLOCK_OFFLINE);
        }
        CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).offline, BAD);
        CHECK_EQ(hvmem_free_frames(world->heap), FRAMES - BAD - took.count);
        CHECK_AUDIT(world);
        free_all(other);
        take_all(other_of(world, "", 0, NULL));
        for (i = 0; i < BAD; i++)
            CHECK_EQ(hvmem_online(world->heap, bad[i]), HVMEM_OK);
        WORLD_END(world);
    }
    CHECK(done > 6);
}

/* ---- merges ----------------------------------------------------------------------------------- */

/* The block that was freed and is merged in part, all of it, its first frame, or its buddy. */
static void take_merged(struct other *other)
{
    hvmem_order order = expect_lookup(other->world, 0).order;
    struct hvmem_request request = expect_block(order, NULL);

    if (other->mfn == 1)
        request.order = 0;
    else if (other->mfn == 2)
        request.lo = (hvmem_mfn)1 << order;
    request.hi = request.lo + ((hvmem_mfn)1 << request.order);
    if (hvmem_alloc(other->world->heap, &request, &took.frame[0]) == HVMEM_OK)
        took.frame[FRAMES - 1] = ++took.count ? request.order : 0;
}

/* A free goes on with its merge under the next hold: what of it is another's by then it leaves alone. */
TEST(half_merged_block_is_taken, points)
{
    unsigned what, turn, done = 0;

    for (what = 0; what < 3; what++)
        for (turn = 0; turn < 8; turn++) {
            struct world *world = world_of_seams(0, 0);
            struct other *other;
            hvmem_mfn mfn;

            REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
            REQUIRE_EQ(mfn, 0);
            other = other_of(world, "merge_on", turn, take_merged);
            other->mfn = what;
            CHECK_EQ(hvmem_free(world->heap, 0, 0), HVMEM_OK);
            test_set_point_hook(NULL, NULL);
            CHECK_AUDIT(world); /* what is left is merged as far as it can be */
            if (took.count) {
                hvmem_order order = (hvmem_order)took.frame[FRAMES - 1];

                done++;
                CHECK_EQ(expect_lookup(world, took.frame[0]).state, HVMEM_BLOCK_ALLOCATED);
                CHECK_EQ(hvmem_free_frames(world->heap), FRAMES - ((hvmem_u64)1 << order));
                CHECK_EQ(hvmem_free(world->heap, took.frame[0], order), HVMEM_OK);
            }
            CHECK_FREE_BLOCKS(world, {0, ORDER});
            WORLD_END(world);
        }
    CHECK(done > 6);
}

/* While a merge is to go on no table is clean: whoever adopted it would have two free buddies. */
static int quiesces(const char *name, void *context)
{
    struct other *other = context;

    if (strcmp(name, "merge_on") == 0) {
        other->turns++;
        CHECK_EQ(hvmem_quiesce(other->world->heap), HVMEM_E_BUSY);
    }
    return 0;
}

TEST(half_merged_block_is_not_quiesced, points)
{
    struct world *world = world_of_seams(0, 0);
    struct other other = {.world = world};
    hvmem_mfn mfn;

    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    test_set_point_hook(quiesces, &other);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    CHECK(other.turns != 0);
    CHECK_EQ(hvmem_quiesce(world->heap), HVMEM_OK);
    WORLD_END(world);
}

/* ---- refills ---------------------------------------------------------------------------------- */

#define MANY  24u /* banks of one arena: a search counts those that it passes */
#define EVERY 32u

/* As another CPU, past the caches, most of what is free. */
static void take_most(struct other *other)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_u64 left = expect_stats(other->world, HVMEM_NODE_ANY).free;

    world_set_cpu(1);
    request.flags = HVMEM_REQ_NO_CACHE;
    for (; left > MANY; left--) {
        hvmem_mfn mfn;

        REQUIRE_EQ(hvmem_alloc(other->world->heap, &request, &mfn), HVMEM_OK);
        CHECK(mfn < FRAMES && !took.seen[mfn]++);
    }
    world_set_cpu(0);
}

/* A refill is cut: what it has got and gets is nobody else's, who takes most of the rest meanwhile. */
TEST(refill_goes_on_when_others_took_the_rest, points)
{
    unsigned turn, i, done = 0;

    for (turn = 0; turn < 6; turn++) {
        struct hvmem_config config = world_config();
        const struct other *other;
        struct world *world;
        hvmem_mfn mfn;

        config.max_order = config.arena_order = ORDER;
        config.max_banks = MANY;
        config.max_cpus = 2;
        config.lock_regime = HVMEM_LOCK_PLAIN;
        world = WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
        for (i = 0; i < MANY; i++)
            REQUIRE_EQ(world_bank(world, (hvmem_mfn)i * EVERY, EVERY - 1, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        /* Blocks of one frame each, so that one hold does not get all. */
        for (i = 0; i < MANY * EVERY; i += 2)
            (void)hvmem_reserve(world->heap, i, 1);
        world_set_cpu(0);
        other = other_of(world, "refill_again", turn, take_most);
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        test_set_point_hook(NULL, NULL);
        done += other->done;
        CHECK(!took.seen[mfn]++);
        while (hvmem_alloc_order(world->heap, 0, &mfn) == HVMEM_OK)
            if (!CHECK(mfn < FRAMES && !took.seen[mfn]++))
                break;
        CHECK_EQ(hvmem_free_frames(world->heap), 0);
        for (i = 0; i < MANY * EVERY; i++)
            CHECK_EQ(took.seen[i], i % 2 && i % EVERY != EVERY - 1);
        CHECK_AUDIT(world);
        WORLD_END(world);
    }
    CHECK(done > 0);
}

/* ---- the clean mark --------------------------------------------------------------------------- */

/* Tables at the moment of a quiesce. */
static struct quiesced {
    struct world *world;
    unsigned turn, turns;
    int done;
    unsigned char *copies[BANKS];
} quiesced;

static void quiesce(struct world *world)
{
    unsigned i;

    if (quiesced.turns++ != quiesced.turn)
        return;
    world->between = NULL;
    world_set_cpu(1);
    quiesced.done = hvmem_quiesce(world->heap) == HVMEM_OK;
    world_set_cpu(0);
    for (i = 0; i < BANKS; i++)
        memcpy(quiesced.copies[i], world->tables[i].memory, world->tables[i].bytes);
}

/* A table that says of itself that it is clean is the one that was quiesced, wherever in a call that was. */
static void quiesce_within(hvmem_status (*call)(struct world *world), unsigned turns)
{
    unsigned i, done = 0;

    memset(&quiesced, 0, sizeof quiesced);
    for (quiesced.turn = 0; quiesced.turn < turns; quiesced.turn++) {
        struct world *world = world_of_seams(WORLD_HOST_LOCK, 0);
        hvmem_mfn mfn;

        quiesced.turns = 0;
        quiesced.done = 0;
        for (i = 0; i < BANKS; i++) {
            quiesced.copies[i] = malloc(world->tables[i].bytes);
            REQUIRE(quiesced.copies[i] != NULL);
        }
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
        world->between = quiesce;
        CHECK_EQ(call(world), HVMEM_OK);
        world->between = NULL;
        done += quiesced.done;
        for (i = 0; i < BANKS; i++) {
            const struct hvmem__table *table = (void *)world->tables[i].memory;

            CHECK(!quiesced.done || !table->clean ||
                  memcmp(quiesced.copies[i], table, world->tables[i].bytes) == 0);
            free(quiesced.copies[i]);
        }
        WORLD_END(world);
    }
    CHECK(done > 6);
}

static hvmem_status take_run(struct world *world)
{
    struct hvmem_request request = expect_run(FRAMES - 1, 0, 0, 0);
    hvmem_mfn mfn;

    return hvmem_alloc(world->heap, &request, &mfn);
}

static hvmem_status reserve_some(struct world *world)
{
    return hvmem_reserve(world->heap, 5, 300);
}

static hvmem_status scrub_some(struct world *world)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status = hvmem_scrub_step(world->heap, 0, 9, &cursor);

    return status == HVMEM_AGAIN ? HVMEM_OK : status;
}

TEST(clean_mark_goes_when_a_run_is_taken)
{
    quiesce_within(take_run, 60);
}

TEST(clean_mark_goes_when_a_range_is_taken)
{
    quiesce_within(reserve_some, 60);
}

TEST(clean_mark_goes_when_memory_is_scrubbed)
{
    quiesce_within(scrub_some, 60);
}
