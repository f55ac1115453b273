/* SPDX-License-Identifier: BSD-2-Clause */
/* Runs: any count, alignment and window against brute force; windows and colours of single blocks. */
#include "expect.h"
#include "shadow.h"

#include <string.h>

static struct shadow *shadow_with(hvmem_mfn base, hvmem_u64 frames, hvmem_u64 span)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.max_order = 5;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    shadow = shadow_new(WORLD_NEW(&config, 0), 0, span);
    shadow_bank(shadow, base, frames, 0, 0);
    return shadow;
}

/* Every request on what is free now; each run goes back at once. */
static void every_request(struct shadow *shadow, hvmem_mfn limit)
{
    hvmem_u64 count;
    hvmem_u32 align;
    hvmem_mfn lo;
    hvmem_mfn hi;
    hvmem_mfn mfn;

    for (count = 1; count <= limit; count++)
        for (align = 0; align <= 5; align++)
            for (lo = 0; lo < limit; lo++)
                for (hi = lo + 1; hi <= limit + 1; hi++) {
                    struct hvmem_request request = expect_run(count, align, lo, hi);

                    if (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK)
                        shadow_free_run(shadow, mfn, count);
                    if (shadow->failure[0] != '\0') {
                        test_note("count %llu align %u window [%llu, %llu)",
                                  (unsigned long long)count, align, (unsigned long long)lo,
                                  (unsigned long long)hi);
                        return;
                    }
                }
}

TEST(every_window_and_alignment)
{
    static const unsigned reserved[] = {0, 1u << 9, 0x8421, 0x0ff0, 0xaaaa, 0x7001};
    size_t i;
    unsigned bit;

    for (i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        struct shadow *shadow = shadow_with(1, 17, 32);

        for (bit = 0; bit < 16; bit++)
            if (reserved[i] >> bit & 1)
                shadow_reserve(shadow, 1 + bit, 1);
        every_request(shadow, 18);
        if (!SHADOW_END(shadow))
            return;
    }
}

/* Random patterns on a larger bank of two nodes. */
TEST(random_windows)
{
    struct test_rng rng = test_rng(31);
    uint64_t round;
    uint64_t i;

    for (round = 0; round < test_rounds(40); round++) {
        struct shadow *shadow = shadow_with(5, 100, 256);
        hvmem_mfn mfn;

        shadow_bank(shadow, 105, 90, 1, 0);
        for (i = 0; i < 12; i++)
            shadow_reserve(shadow, test_below(&rng, 200), 1 + test_below(&rng, 6));
        for (i = 0; i < 400 && shadow->failure[0] == '\0'; i++) {
            hvmem_mfn lo = test_below(&rng, 210);
            struct hvmem_request request =
                expect_run(1 + test_below(&rng, 32), (hvmem_u32)test_below(&rng, 6), lo,
                           lo + 1 + test_below(&rng, 210 - lo));

            if (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK && test_below(&rng, 4) != 0)
                shadow_free_run(shadow, mfn, request.count);
            shadow_check(shadow);
        }
        if (!SHADOW_END(shadow))
            return;
    }
}

/* The tail beyond count stays free; the run goes back frame by frame. */
TEST(tail_is_given_back)
{
    hvmem_u64 count;

    for (count = 1; count <= 32; count++) {
        struct shadow *shadow = shadow_with(0, 32, 32);
        struct hvmem_request request = expect_run(count, 0, 0, 0);
        hvmem_mfn mfn = 0;
        hvmem_u64 i;

        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        shadow_check(shadow);
        CHECK_EQ(hvmem_free_frames(shadow->world->heap), 32 - count);
        for (i = count; i > 0; i--)
            shadow_free_run(shadow, mfn + i - 1, 1);
        if (!SHADOW_END(shadow))
            return;
    }
}

/* Blocks by order inside windows: a block must lie in it whole. */
TEST(blocks_in_windows)
{
    struct shadow *shadow = shadow_with(2, 60, 64);
    hvmem_u32 order;
    hvmem_mfn lo;
    hvmem_mfn hi;
    hvmem_mfn mfn;

    for (order = 0; order <= 5; order++)
        for (lo = 0; lo < 63; lo++)
            for (hi = lo + 1; hi <= 64; hi++) {
                struct hvmem_request request = expect_block(order, NULL);

                request.lo = lo;
                request.hi = hi;
                if (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK)
                    shadow_free(shadow, mfn, order);
            }
    SHADOW_END(shadow);
}

/* Each colour has just its frames, to the last one. */
TEST(colours)
{
    hvmem_u32 shift;
    hvmem_u64 colour;

    for (shift = 0; shift < 4; shift++) {
        struct shadow *shadow = shadow_with(3, 61, 64);

        for (colour = 0; colour < 4; colour++) {
            struct hvmem_request request = expect_block(0, NULL);
            hvmem_mfn mfn;

            request.colour_shift = shift;
            request.colour_mask = 3;
            request.colour = colour;
            while (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK)
                CHECK_EQ(mfn >> shift & 3, colour);
            shadow_check(shadow);
        }
        CHECK_EQ(hvmem_free_frames(shadow->world->heap), 0);
        SHADOW_END(shadow);
    }
}

/* An address limit as a device has it: 32 bits of a bank that crosses them. */
TEST(address_limit_of_32_bits)
{
    const hvmem_mfn border = 1ull << 20;
    struct world *world = WORLD_SIMPLE(border - 100, 1000);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn = 0;
    unsigned got = 0;

    request.hi = border;
    while (hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK) {
        CHECK(mfn < border);
        got++;
    }
    CHECK_EQ(got, 100);
    request.hi = 0;
    request.lo = border;
    request.order = 6;
    REQUIRE_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK(mfn >= border);
    request.lo = border + 5000;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    WORLD_END(world);
}

/* A run that must not wait for a flush is made of frames that need none, where there are such. */
TEST(run_without_flush)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request = expect_run(4, 0, 0, 0);
    struct hvmem_domain *domain;
    struct world *world;
    hvmem_mfn mfn = 0;

    config.max_order = 2;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    domain = world_domain(world, 1, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_reserve(world->heap, 32, 32), HVMEM_OK);
    request.domain = domain;
    while (hvmem_alloc(world->heap, &request, &mfn) == HVMEM_OK)
        continue;
    /* None of them holds an aligned block of four. */
    REQUIRE_EQ(hvmem_free_run(world->heap, 2, 4), HVMEM_OK);
    request.domain = NULL;
    request.flags = HVMEM_REQ_NOFLUSH;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_WOULD_FLUSH);
    REQUIRE_EQ(hvmem_free_run(world->heap, 34, 4), HVMEM_OK);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 34);
    CHECK_EQ(world->counts.flushes, 0);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_WOULD_FLUSH);
    request.flags = 0;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 2);
    CHECK_EQ(world->counts.flushes, 1);
    WORLD_END(world);
}

/* Arenas of 32 frames, blocks of up to 32: a run may lie across a border, and only there. */
static struct shadow *small_arenas(hvmem_u64 frames)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;

    config.max_order = 5;
    config.arena_order = 5;
    config.max_banks = 64;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    shadow = shadow_new(WORLD_NEW(&config, WORLD_BROADCAST), 0, 256);
    shadow_bank(shadow, 3, frames, 0, 0);
    return shadow;
}

TEST(every_window_and_alignment_across_arenas)
{
    static const struct {
        hvmem_mfn mfn;
        hvmem_u64 frames;
    } taken[] = {{3, 10}, {20, 3}, {50, 2}, {66, 1}};
    struct shadow *shadow = small_arenas(67);
    size_t i;

    for (i = 0; i < sizeof taken / sizeof taken[0]; i++)
        shadow_reserve(shadow, taken[i].mfn, taken[i].frames);
    for (i = 0; i < 6 && shadow->failure[0] == '\0'; i++) {
        hvmem_u64 count;
        hvmem_mfn lo, hi, mfn;

        for (count = 1; count <= 32; count++)
            for (lo = 0; lo < 70; lo += 3)
                for (hi = lo + 1; hi <= 72; hi += 2) {
                    struct hvmem_request request = expect_run(count, (hvmem_u32)i, lo, hi);

                    if (shadow_alloc(shadow, &request, &mfn) == HVMEM_OK)
                        shadow_free_run(shadow, mfn, count);
                }
    }
    SHADOW_END(shadow);
}

/* It is charged to the domain, draws on its claims, and goes back whole where it may not be flushed for. */
TEST(run_across_arenas_is_charged_and_claimed)
{
    struct shadow *shadow = small_arenas(93);
    struct hvmem_request request = expect_run(20, 0, 0, 0);
    struct hvmem_domain_stats stats;
    hvmem_mfn mfn = 0, other = 0;

    shadow_reserve(shadow, 3, 19);
    shadow_reserve(shadow, 45, 51);
    REQUIRE_EQ(shadow_domain_new(shadow, 1, 20, 0), HVMEM_OK);
    REQUIRE_EQ(shadow_domain_new(shadow, 2, ~0ull, 0), HVMEM_OK);
    request.domain = shadow->domain[1].handle;
    request.flags = HVMEM_REQ_DEFER_ALL;
    CHECK_EQ(shadow_claim(shadow, 1, HVMEM_NODE_ANY, 5), HVMEM_OK);
    CHECK_EQ(shadow_claim(shadow, 2, 0, 4), HVMEM_OK);
    CHECK(shadow_alloc(shadow, &request, &mfn) < 0);
    CHECK_EQ(shadow_claim(shadow, 2, 0, 0), HVMEM_OK);
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    stats = expect_domain(shadow->domain[1].handle);
    CHECK_EQ(stats.pages, 20);
    CHECK_EQ(stats.claimed, 0);
    shadow_check(shadow);
    CHECK_EQ(shadow_free_run(shadow, mfn, 20), HVMEM_OK);
    /* Now it owes a flush. */
    request.domain = shadow->domain[2].handle;
    request.flags = HVMEM_REQ_NOFLUSH;
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_E_WOULD_FLUSH);
    shadow_check(shadow);
    /* One across the next border does not. */
    CHECK_EQ(shadow_free_run(shadow, 58, 25), HVMEM_OK);
    CHECK_EQ(shadow_alloc(shadow, &request, &other), HVMEM_OK);
    CHECK(other >= 58);
    shadow_check(shadow);
    request.flags = 0;
    CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
    CHECK_EQ(shadow_free_run(shadow, mfn, 20), HVMEM_OK);
    CHECK_EQ(shadow_free_run(shadow, other, 20), HVMEM_OK);
    SHADOW_END(shadow);
}
