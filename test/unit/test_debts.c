/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Debts of frames: carried by free, merge, split and allocation; paid once, whole, in the right order
 * before a frame changes hands; never forgotten when paying fails.
 */
#include "expect.h"
#include "shadow.h"

#include <hvmem/cache.h>
#include <stdio.h>
#include <string.h>

static struct shadow *owing(hvmem_u32 owed_on_free, hvmem_u32 bank_flags, unsigned world_flags)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.max_order = 6;
    config.owed_on_free = owed_on_free;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    shadow = shadow_new(WORLD_NEW(&config, world_flags), 0, 64);
    shadow_bank(shadow, 0, 64, 0, bank_flags);
    shadow_domain_new(shadow, 1, ~0ull, 0);
    shadow_domain_new(shadow, 2, ~0ull, 0);
    return shadow;
}

static hvmem_status take(struct shadow *shadow, hvmem_u32 id, hvmem_order order, hvmem_u32 flags,
                         hvmem_mfn *mfn)
{
    struct hvmem_request request = expect_block(order, shadow->domain[id].handle);

    request.flags = flags;
    return shadow_alloc(shadow, &request, mfn);
}

/* Fresh memory owes nothing and nothing is done; what the host gives back stays so. */
TEST(fresh_memory_owes_nothing)
{
    struct shadow *shadow = owing(HVMEM_OWES_TLB | HVMEM_OWES_SCRUB, 0, WORLD_BROADCAST);
    struct world_counts none = shadow->world->counts;
    hvmem_mfn mfn = 0;
    unsigned i;

    for (i = 0; i < 3; i++) {
        CHECK_EQ(take(shadow, 0, 6, 0, &mfn), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, mfn).owed, 0);
        CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, mfn).owed, 0);
    }
    CHECK_EQ(memcmp(&none, &shadow->world->counts, sizeof none), 0);
    SHADOW_END(shadow);
}

/* Each kind alone and all together, with and without broadcast: paid before the next owner. */
TEST(each_kind_is_paid)
{
    static const unsigned flags[] = {0, WORLD_BROADCAST};
    unsigned which;
    size_t i;

    for (i = 0; i < 2; i++)
        for (which = 0; which <= 8; which++) {
            hvmem_u32 owed = which == 8 ? HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN : 1u << which;
            struct shadow *shadow;
            hvmem_mfn mfn = 0;
            struct world_counts *counts;

            if (owed == HVMEM_OWES_FOREIGN)
                continue;
            shadow = owing(owed, 0, flags[i]);
            counts = &shadow->world->counts;
            CHECK_EQ(take(shadow, 1, 4, 0, &mfn), HVMEM_OK);
            CHECK_EQ(shadow_free(shadow, mfn, 4), HVMEM_OK);
            CHECK_EQ(expect_lookup(shadow->world, mfn).owed & owed, owed);
            CHECK_EQ(counts->tlb + counts->zeroed + counts->dcache + counts->icache +
                         counts->settled,
                     0);
            CHECK_EQ(take(shadow, 2, 6, 0, &mfn), HVMEM_OK);
            CHECK_EQ(expect_lookup(shadow->world, mfn).owed & owed, 0);
            CHECK_EQ(counts->flushes != 0, (owed & HVMEM_OWES_TLB) != 0);
            CHECK_EQ(counts->zeroed != 0, (owed & HVMEM_OWES_SCRUB) != 0);
            CHECK_EQ(counts->dcache != 0, (owed & HVMEM_OWES_DCACHE) != 0);
            CHECK_EQ(counts->icache != 0, (owed & HVMEM_OWES_ICACHE) != 0);
            CHECK_EQ(counts->settled != 0, (owed & 0xe0u) != 0);
            SHADOW_END(shadow);
        }
}

/* A debt of 4 frames of 64, freed last, or first with a neighbour that owes nothing freed after it. */
static void debt_of_part(hvmem_mfn part, int first)
{
    const hvmem_u32 owed = HVMEM_OWES_TLB | HVMEM_OWES_DCACHE | HVMEM_OWES_HOST1;
    struct shadow *shadow = owing(owed, 0, WORLD_BROADCAST);
    struct hvmem_request request = expect_run(4, 2, part, part + 4);
    struct hvmem_request plain = expect_run(4, 2, part ^ 4, (part ^ 4) + 4);
    hvmem_mfn neighbour = 0;
    hvmem_mfn mfn = 0;

    request.domain = shadow->domain[1].handle;
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    if (first)
        CHECK_EQ(shadow_alloc(shadow, &plain, &neighbour), HVMEM_OK);
    CHECK_EQ(shadow_free(shadow, part, 2), HVMEM_OK);
    if (first)
        CHECK_EQ(shadow_free(shadow, neighbour, 2), HVMEM_OK);
    shadow_check(shadow);
    CHECK_EQ(expect_lookup(shadow->world, 0).owed, owed);
    CHECK_EQ(take(shadow, 2, 6, 0, &mfn), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.flushes, 1);
    SHADOW_END(shadow);
}

/* Whichever part of a block owes, the whole does. */
TEST(debt_of_any_part)
{
    hvmem_mfn part;

    for (part = 0; part < 64; part += 4) {
        debt_of_part(part, 0);
        debt_of_part(part, 1);
    }
}

/* One flush pays for a block of many pieces; statistics say so. */
TEST(one_flush_for_a_merged_block)
{
    struct shadow *shadow = owing(HVMEM_OWES_TLB, 0, WORLD_BROADCAST);
    struct hvmem_request request = expect_block(0, shadow->domain[1].handle);
    hvmem_mfn frames[64];
    hvmem_u32 got = 0;
    hvmem_mfn mfn = 0;

    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 64, &got), HVMEM_OK);
    CHECK_EQ(shadow_free_bulk(shadow, frames, 64, 0, &got), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.flushes, 0);
    CHECK_EQ(take(shadow, 2, 6, 0, &mfn), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.flushes, 1);
    CHECK_EQ(expect_stats(shadow->world, HVMEM_NODE_ANY).flushes, 1);
    CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
    /* A bulk allocation pays once a group of 16. */
    CHECK_EQ(shadow_alloc_bulk(shadow, &request, frames, 64, &got), HVMEM_OK);
    CHECK(shadow->world->counts.flushes <= 1 + 64 / 16);
    SHADOW_END(shadow);
}

/* One dirty frame does not make its neighbours dirty, wherever it is. */
TEST(scrub_stays_exact)
{
    hvmem_mfn dirty;

    for (dirty = 0; dirty < 64; dirty++) {
        struct shadow *shadow = owing(HVMEM_OWES_SCRUB, 0, WORLD_BROADCAST);
        struct hvmem_request request = expect_run(1, 0, dirty, dirty + 1);
        uint64_t page = 4096;
        hvmem_mfn mfn = 0;
        hvmem_mfn other;
        unsigned round;

        request.domain = shadow->domain[1].handle;
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_free(shadow, dirty, 0), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, 0).order, 6);
        CHECK_EQ(expect_lookup(shadow->world, 0).owed, HVMEM_OWES_SCRUB);
        /* All others, twice, in another order: nothing to scrub. */
        for (round = 0; round < 2; round++) {
            for (other = 0; other < 64; other++) {
                hvmem_mfn at = (other * (round ? 37 : 1)) % 64;

                request = expect_run(1, 0, at, at + 1);
                if (at != dirty)
                    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
            }
            CHECK_EQ(shadow->world->counts.zeroed, 0);
            for (other = 0; other < 64; other++)
                if (other != dirty)
                    CHECK_EQ(shadow_free(shadow, other, 0), HVMEM_OK);
        }
        request = expect_run(1, 0, dirty, dirty + 1);
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow->world->counts.zeroed, page);
        SHADOW_END(shadow);
    }
}

/* Boot memory owes a scrub for each frame, once. */
TEST(boot_memory_is_scrubbed_once)
{
    struct shadow *shadow = owing(0, HVMEM_BANK_DIRTY, WORLD_BROADCAST);
    hvmem_mfn mfn[4];
    hvmem_u32 order;
    unsigned i;

    CHECK_EQ(expect_lookup(shadow->world, 0).owed, HVMEM_OWES_SCRUB);
    for (order = 0; order < 4; order++)
        CHECK_EQ(take(shadow, 0, order, 0, &mfn[order]), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.zeroed, 15 * 4096);
    for (i = 0; i < 4; i++)
        CHECK_EQ(shadow_free(shadow, mfn[i], i), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, 6, 0, mfn), HVMEM_OK);
    CHECK(shadow->world->counts.zeroed >= 64 * 4096);
    CHECK_EQ(world_owed(shadow->world, 0, 64), 0);
    SHADOW_END(shadow);
}

/*
 * What boot memory, or memory that was removed, was fetched as stays in instruction caches that see no writes:
 * it owes what freed frames do there, and only there.
 */
TEST(instruction_lines_of_boot_memory)
{
    static const struct {
        uint64_t features;
        hvmem_u32 owed_on_free;
        int owes;
    } cases[] = {
        {0, HVMEM_OWES_TLB | HVMEM_OWES_ICACHE, 1},
        {HVMEM_CAP_IDC, HVMEM_OWES_ICACHE, 1},
        {HVMEM_CAP_DIC | HVMEM_CAP_IDC, HVMEM_OWES_ICACHE, 0},
        {HVMEM_CAP_ICOHERENT, HVMEM_OWES_ICACHE | HVMEM_OWES_DCACHE, 0},
        {0, HVMEM_OWES_TLB, 0}, /* the host sees to it */
    };
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn mfn = 0;

        config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
        config.owed_on_free = cases[i].owed_on_free;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        world->backend.caps.features |= cases[i].features;
        world_track(world, 0, 64);
        REQUIRE_EQ(world_bank(world, 0, 64, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
        if (cases[i].owes)
            world_owe(world, 0, 64, HVMEM_OWES_ICACHE);
        CHECK_EQ(expect_lookup(world, 0).owed & HVMEM_OWES_ICACHE,
                 cases[i].owes ? HVMEM_OWES_ICACHE : 0);
        REQUIRE_EQ(hvmem_alloc_order(world->heap, 2, &mfn), HVMEM_OK);
        if (!CHECK_EQ(world_owed(world, mfn, 4), 0) ||
            !CHECK_EQ(world->counts.icache != 0, cases[i].owes))
            test_note("case %zu", i);
        CHECK_EQ(expect_lookup(world, mfn).owed, 0);
        CHECK_EQ(hvmem_free(world->heap, mfn, 2), HVMEM_OK);
        WORLD_END(world);
    }
}

/*
 * Where a new owner may bypass the caches the zeroes of a scrub do not stay in one, whoever left the dirt:
 * boot memory, the host, the host that scrubs at once.
 */
TEST(zeroes_do_not_stay_in_a_cache)
{
    enum { BOOT, HOST, HOST_SCRUBS, WAYS };
    int way;

    for (way = 0; way < WAYS; way++) {
        struct shadow *shadow =
            owing(HVMEM_OWES_DCACHE, way == BOOT ? HVMEM_BANK_DIRTY : 0, WORLD_BROADCAST);
        struct world *world = shadow->world;
        struct hvmem_request request = expect_block(6, shadow->domain[1].handle);
        struct hvmem_cursor cursor = {{0}};
        hvmem_mfn mfn = 0;

        if (way != BOOT)
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 6, &mfn), HVMEM_OK);
        world_owe(world, 0, 64, HVMEM_OWES_SCRUB);
        if (way == HOST)
            CHECK_EQ(hvmem_free_owned(world->heap, mfn, 6, NULL, HVMEM_OWES_SCRUB), HVMEM_OK);
        if (way == HOST_SCRUBS)
            CHECK_EQ(hvmem_free_scrubbed(world->heap, mfn, 6, NULL, 0, 0, &cursor), HVMEM_OK);
        world_owe(world, 0, 64, HVMEM_OWES_DCACHE); /* from when they are zeroed */
        REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        if (!CHECK_EQ(world_owed(world, 0, 64), 0))
            test_note("way %d", way);
        CHECK_EQ(hvmem_free(world->heap, mfn, 6), HVMEM_OK);
        shadow_delete(shadow);
        WORLD_END(world);
    }
}

/* Reserved frames keep what they owe; a deferred block keeps it through a free without a settle. */
TEST(debts_survive_reserve_and_deferral)
{
    const hvmem_u32 owed = HVMEM_OWES_TLB | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE;
    struct shadow *shadow = owing(owed, 0, WORLD_BROADCAST);
    hvmem_mfn mfn = 0;

    CHECK_EQ(take(shadow, 1, 3, 0, &mfn), HVMEM_OK);
    CHECK_EQ(shadow_free(shadow, mfn, 3), HVMEM_OK);
    CHECK_EQ(shadow_reserve(shadow, 0, 64), HVMEM_OK);
    CHECK_EQ(expect_lookup(shadow->world, mfn).owed & owed, owed);
    shadow_check(shadow);
    CHECK_EQ(shadow_free_run(shadow, 0, 64), HVMEM_OK);
    CHECK_EQ(take(shadow, 2, 6, HVMEM_REQ_DEFER_ALL, &mfn), HVMEM_OK);
    CHECK_EQ(expect_lookup(shadow->world, mfn).owed & owed, owed);
    CHECK_EQ(shadow->world->counts.flushes, 0);
    shadow_check(shadow);
    CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
    CHECK_EQ(expect_lookup(shadow->world, mfn).owed & owed, owed);
    CHECK_EQ(take(shadow, 0, 6, 0, &mfn), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.flushes, 1);
    CHECK_EQ(shadow->world->counts.zeroed, 64 * 4096);
    SHADOW_END(shadow);
}

/*
 * Each deferral flag leaves its kind and those that must be paid after it: a frame is not scrubbed
 * while a CPU may still write to it.
 */
TEST(each_deferral_flag)
{
    static const struct {
        hvmem_u32 flag;
        hvmem_u32 left;
    } kinds[] = {
        {HVMEM_REQ_DEFER_TLB, HVMEM_OWES_ANY},
        {HVMEM_REQ_DEFER_HOST, 0xe0u | HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE},
        {HVMEM_REQ_DEFER_SCRUB, HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE},
        {HVMEM_REQ_DEFER_DCACHE, HVMEM_OWES_DCACHE | HVMEM_OWES_ICACHE},
        {HVMEM_REQ_DEFER_ICACHE, HVMEM_OWES_ICACHE},
    };
    const hvmem_u32 all = HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN;
    unsigned i;

    for (i = 0; i < 5; i++) {
        struct shadow *shadow = owing(all, 0, WORLD_BROADCAST);
        hvmem_mfn mfn = 0;

        CHECK_EQ(take(shadow, 1, 6, 0, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
        CHECK_EQ(take(shadow, 2, 6, kinds[i].flag, &mfn), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, mfn).owed & all, kinds[i].left & all);
        CHECK_EQ(shadow_settle(shadow, mfn, 64, all), HVMEM_OK);
        CHECK_EQ(expect_lookup(shadow->world, mfn).owed & all, 0);
        CHECK_EQ(shadow_domain_start(shadow, 2), HVMEM_OK);
        CHECK_EQ(shadow->world->counts.flushes, 1);
        SHADOW_END(shadow);
    }
}

/* A dirty frame in a large block: that frame is scrubbed, not the block. */
TEST(scrub_is_paid_exactly)
{
    hvmem_mfn dirty;

    for (dirty = 0; dirty < 64; dirty += 7) {
        struct shadow *shadow = owing(HVMEM_OWES_SCRUB, 0, WORLD_BROADCAST);
        struct hvmem_request request = expect_run(1, 0, dirty, dirty + 1);
        hvmem_mfn mfn = 0;

        request.domain = shadow->domain[1].handle;
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_free(shadow, dirty, 0), HVMEM_OK);
        CHECK_EQ(take(shadow, 2, 6, 0, &mfn), HVMEM_OK);
        CHECK_EQ(shadow->world->counts.zeroed, 4096);
        SHADOW_END(shadow);
    }
}

/* Only immature memory left and the caller cannot flush. */
TEST(noflush_refuses_rather_than_flush)
{
    struct shadow *shadow = owing(HVMEM_OWES_TLB, 0, WORLD_BROADCAST);
    hvmem_mfn mfn = 0;
    hvmem_mfn low = 0;

    CHECK_EQ(take(shadow, 0, 5, 0, &low), HVMEM_OK);
    CHECK_EQ(take(shadow, 1, 5, 0, &mfn), HVMEM_OK);
    CHECK_EQ(shadow_free(shadow, mfn, 5), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, 0, HVMEM_REQ_NOFLUSH, &mfn), HVMEM_E_WOULD_FLUSH);
    CHECK_EQ(shadow->world->counts.flushes, 0);
    shadow_check(shadow);
    CHECK_EQ(take(shadow, 2, 5, HVMEM_REQ_NOFLUSH | HVMEM_REQ_DEFER_TLB, &mfn), HVMEM_OK);
    CHECK_EQ(shadow->world->counts.flushes, 0);
    CHECK_EQ(shadow_free(shadow, mfn, 5), HVMEM_OK);
    CHECK_EQ(shadow_free(shadow, low, 5), HVMEM_OK);
    CHECK_EQ(take(shadow, 0, 0, 0, &mfn), HVMEM_OK);
    SHADOW_END(shadow);
}

/* Paying fails at each step in turn: the frames go back with what they owe, counts exact. */
TEST(failed_payment_changes_nothing)
{
    static const unsigned flags[] = {0, WORLD_BROADCAST};
    size_t i;
    unsigned step;

    for (i = 0; i < 2; i++) {
        hvmem_status status = HVMEM_E_HOST;

        for (step = 1; status != HVMEM_OK && step < 100; step++) {
            struct shadow *shadow = owing(HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN, 0, flags[i]);
            hvmem_mfn mfn = 0;

            CHECK_EQ(take(shadow, 1, 6, 0, &mfn), HVMEM_OK);
            CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
            shadow->world->fail_in = step;
            status = take(shadow, 2, 3, 0, &mfn);
            shadow_check(shadow);
            if (status != HVMEM_OK) {
                CHECK_EQ(status, HVMEM_E_HOST);
                CHECK_EQ(expect_domain(shadow->domain[2].handle).pages, 0);
                CHECK_EQ(hvmem_free_frames(shadow->world->heap), 64);
                CHECK_EQ(take(shadow, 2, 3, 0, &mfn), HVMEM_OK);
            } else {
                CHECK(step > 4);
            }
            SHADOW_END(shadow);
        }
        CHECK_EQ(status, HVMEM_OK);
    }
}

/* Settle fails at each step in turn: what was not paid is still owed. */
TEST(failed_settle_keeps_the_rest)
{
    hvmem_status status = HVMEM_E_HOST;
    unsigned step;

    for (step = 1; status != HVMEM_OK && step < 100; step++) {
        const hvmem_u32 all = HVMEM_OWES_ANY & ~HVMEM_OWES_FOREIGN;
        struct shadow *shadow = owing(all, 0, WORLD_BROADCAST);
        hvmem_mfn mfn = 0;

        CHECK_EQ(take(shadow, 1, 6, 0, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_free(shadow, mfn, 6), HVMEM_OK);
        CHECK_EQ(take(shadow, 2, 4, HVMEM_REQ_DEFER_ALL, &mfn), HVMEM_OK);
        shadow->world->fail_in = step;
        status = shadow_settle(shadow, mfn, 16, all);
        shadow_check(shadow);
        if (status != HVMEM_OK && step % 2 != 0)
            CHECK_EQ(shadow_settle(shadow, mfn, 16, all), HVMEM_OK);
        CHECK_EQ(shadow_domain_start(shadow, 2), HVMEM_OK);
        SHADOW_END(shadow);
    }
    CHECK_EQ(status, HVMEM_OK);
}

/* Real bytes: a secret written by one owner is never read by the next. */
TEST(no_secret_byte_survives)
{
    struct test_rng rng = test_rng(77);
    struct shadow *shadow = owing(HVMEM_OWES_TLB | HVMEM_OWES_SCRUB, HVMEM_BANK_DIRTY,
                                  WORLD_BROADCAST | WORLD_REAL_MEMORY);
    struct world *world = shadow->world;
    unsigned round;

    memset(world->content, 0x77, 64 * 4096);
    for (round = 0; round < 600 && shadow->failure[0] == '\0'; round++) {
        hvmem_u32 id = (hvmem_u32)test_below(&rng, 3);
        hvmem_u32 order = (hvmem_u32)test_below(&rng, 5);
        hvmem_mfn mfn = test_below(&rng, 64);

        if (shadow->frame[mfn].state == SHADOW_USED) {
            shadow_free(shadow, shadow->frame[mfn].head, HVMEM_ORDER_ANY);
        } else if (take(shadow, id, order, 0, &mfn) == HVMEM_OK) {
            size_t bytes = (size_t)4096 << order;
            size_t i;

            /* The host's own bytes (0xee) may stay; the domains' and those from before may not. */
            for (i = 0; i < bytes; i++)
                if (world->content[mfn * 4096 + i] == 0x53 ||
                    world->content[mfn * 4096 + i] == 0x77)
                    break;
            CHECK_EQ(i, bytes);
            memset(world->content + mfn * 4096, id == 0 ? 0xee : 0x53, bytes);
        }
    }
    SHADOW_END(shadow);
}
