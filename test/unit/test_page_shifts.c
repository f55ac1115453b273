/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Page sizes of 4, 16 and 64 KiB, and no other, in every call that goes between bytes, guest frames of 4 KiB
 * and frames: memory maps, banks at the top of memory, cache work, scrubbing, populate and cleaning.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>
#include <hvmem/stage2.h>

#include <string.h>

#define EACH_SHIFT(shift) for (shift = 12; shift <= 16; shift += 2)

static int is_page_shift(hvmem_u32 shift)
{
    return shift == 12 || shift == 14 || shift == 16;
}

TEST(other_page_sizes_are_refused)
{
    hvmem_u32 shift;

    for (shift = 0; shift < 70; shift++) {
        const struct hvmem_map_piece ram = {0, 1 << 20, 0, 0};
        struct hvmem_map map = {sizeof map, shift, &ram, NULL, 1, 0};
        struct hvmem_config config = world_config();
        struct hvmem_bank bank;
        hvmem_u64 cursor = 0;
        hvmem_size bytes;

        config.page_shift = shift;
        CHECK_EQ(hvmem_heap_size(&config, &bytes), is_page_shift(shift) ? HVMEM_OK : HVMEM_E_ARG);
        CHECK_EQ(hvmem_map_next(&map, &cursor, &bank),
                 is_page_shift(shift) ? HVMEM_AGAIN : HVMEM_E_ARG);
        if (is_page_shift(shift))
            CHECK_EQ(bank.frames << shift, 1 << 20);
    }
}

/* Frame by frame: whole in one piece of RAM, and no byte of it kept out. */
static int usable(const struct hvmem_map *map, hvmem_mfn mfn)
{
    hvmem_u64 lo = mfn << map->page_shift, hi = (mfn + 1) << map->page_shift;
    hvmem_u32 i;
    int in = 0;

    for (i = 0; i < map->ram_count; i++)
        in |= map->ram[i].start <= lo && map->ram[i].start + map->ram[i].bytes >= hi;
    for (i = 0; i < map->keep_out_count; i++)
        if (map->keep_out[i].bytes && map->keep_out[i].start < hi &&
            map->keep_out[i].start + map->keep_out[i].bytes > lo)
            in = 0;
    return in;
}

TEST(memory_maps)
{
    struct test_rng rng = test_rng(12);
    hvmem_u32 shift, round, i;

    EACH_SHIFT(shift)
    for (round = 0; round < 200; round++) {
        struct hvmem_map_piece ram[4], out[3];
        struct hvmem_map map = {sizeof map, shift, ram, out, 4, 3};
        unsigned char listed[512] = {0};
        struct hvmem_bank bank;
        hvmem_u64 cursor = 0;
        hvmem_mfn mfn;

        for (i = 0; i < 7; i++) {
            struct hvmem_map_piece *p = i < 4 ? &ram[i] : &out[i - 4];

            p->start = test_below(&rng, 300ull << shift);
            p->bytes = test_below(&rng, (i < 4 ? 200ull : 8ull) << shift);
            if (test_below(&rng, 2))
                p->start = p->start >> shift << shift;
            if (test_below(&rng, 2))
                p->bytes = p->bytes >> shift << shift;
            p->node = 0;
            p->reserved = 0;
        }
        while (hvmem_map_next(&map, &cursor, &bank) == HVMEM_AGAIN)
            for (i = 0; i < bank.frames; i++)
                listed[bank.base + i]++;
        for (mfn = 0; mfn < 512; mfn++)
            CHECK_EQ(listed[mfn], usable(&map, mfn));
    }
}

TEST(top_of_memory)
{
    hvmem_u32 shift;

    EACH_SHIFT(shift)
    {
        struct hvmem_config config = world_config();
        const hvmem_mfn top = 1ull << (52 - shift);
        struct hvmem_request request = expect_block(0, NULL);
        struct hvmem_cursor cursor = {{0}};
        struct world *world;
        hvmem_mfn mfn;

        config.page_shift = shift;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        CHECK_EQ(world_bank(world, top - 8, 9, 0, 0), HVMEM_E_RANGE);
        CHECK_EQ(world_bank(world, top, 1, 0, 0), HVMEM_E_RANGE);
        REQUIRE_EQ(world_bank(world, top - 8, 8, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
        request.lo = top - 1;
        CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
        CHECK_EQ(mfn, top - 1);
        CHECK_EQ(world->counts.zeroed, 1ull << shift);
        request.lo = top;
        CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_RANGE);
        CHECK_EQ(hvmem_cache_range(world->heap, top - 3, 3, HVMEM_DC_CLEAN, 0, &cursor), HVMEM_OK);
        CHECK_EQ(world->counts.dcache, 4ull << shift); /* what was zeroed, and these */
        CHECK_REFUSED(world, hvmem_cache_range(world->heap, top - 3, 4, HVMEM_DC_CLEAN, 0, &cursor),
                      HVMEM_E_RANGE);
        CHECK_EQ(hvmem_scrub_step(world->heap, 0, 0, &cursor), HVMEM_OK);
        CHECK_EQ(world->counts.zeroed, 8ull << shift);
        WORLD_END(world);
    }
}

/* A budget is frames of this size: a call does at least that much and little more. */
TEST(budgets_are_frames)
{
    hvmem_u32 shift;

    EACH_SHIFT(shift)
    {
        struct hvmem_config config = world_config();
        struct hvmem_cursor cursor = {{0}};
        struct world *world;
        hvmem_u64 before;
        hvmem_status status;

        config.page_shift = shift;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        REQUIRE_EQ(world_bank(world, 0, 256, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
        do {
            before = world->counts.zeroed;
            status = hvmem_scrub_step(world->heap, 0, 32, &cursor);
            if (status == HVMEM_AGAIN)
                CHECK(world->counts.zeroed - before >= 32ull << shift &&
                      world->counts.zeroed - before <= (32ull << shift) + (64u << 10));
        } while (status == HVMEM_AGAIN);
        CHECK_EQ(world->counts.zeroed, 256ull << shift);
        WORLD_END(world);
    }
}

/* ---- guest frames ----------------------------------------------------------------------------- */

struct guest {
    hvmem_u32 shift; /* of guest frames in a frame */
    hvmem_mfn frame[64];
};

static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    struct guest *guest = ctx;
    hvmem_u32 i;

    CHECK_EQ(gfn & ((1ull << (order + guest->shift)) - 1), 0);
    for (i = 0; i < 1u << order; i++)
        guest->frame[(gfn >> guest->shift) + i] = mfn + i;
    return HVMEM_OK;
}

static hvmem_status lookup(void *ctx, hvmem_gfn gfn, hvmem_mfn *mfn, hvmem_order *order)
{
    struct guest *guest = ctx;

    *order = 0;
    *mfn = guest->frame[gfn >> guest->shift];
    return *mfn ? HVMEM_OK : HVMEM_E_FREE;
}

TEST(guest_frames)
{
    hvmem_u32 shift;

    EACH_SHIFT(shift)
    {
        struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map, .lookup = lookup};
        const hvmem_u32 g = shift - 12;
        struct hvmem_extent extents[2] = {{8ull << g, 0, 3, 0}, {1ull << g, 0, 0, 0}};
        struct hvmem_populate populate = {.size = sizeof populate,
                                          .count = 2,
                                          .extents = extents,
                                          .node = HVMEM_NODE_ANY,
                                          .flags = HVMEM_POPULATE_DEFER_DCACHE};
        struct hvmem_config config = world_config();
        struct hvmem_cursor cursor = {{0}};
        struct guest guest = {g, {0}};
        struct hvmem_domain *domain;
        struct world *world;
        hvmem_gfn gfn, n;

        config.page_shift = shift;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        REQUIRE_EQ(world_bank(world, 64, 64, 0, HVMEM_BANK_DIRTY), HVMEM_OK);
        domain = world_domain(world, 1, ~0ull, 0, NULL);
        REQUIRE_EQ(hvmem_domain_attach(domain, &ops, &guest, NULL), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_populate(domain, &populate, &cursor), HVMEM_OK);
        CHECK_EQ(world->counts.zeroed, 9ull << shift);
        CHECK_EQ(expect_domain(domain).pages, 9);
        CHECK(guest.frame[1] && guest.frame[8] && guest.frame[15] && !guest.frame[16]);
        if (g) { /* Not on a frame's limit. */
            memset(&cursor, 0, sizeof cursor);
            extents[1].gfn = (1ull << g) + 1;
            populate.count = 2;
            CHECK_EQ(hvmem_domain_populate(domain, &populate, &cursor), HVMEM_E_ALIGN);
            memset(&cursor, 0, sizeof cursor);
        }
        CHECK_EQ(hvmem_domain_start(domain), HVMEM_OK);
        /* Every range of guest frames is cleaned in whole frames, holes left out. */
        for (gfn = 0; gfn < 17ull << g; gfn += 1 + (gfn > 3))
            for (n = 1; n < 4ull << g; n += g ? 3 : 1) {
                hvmem_u64 before = world->counts.dcache, expected = 0;
                hvmem_mfn at;

                for (at = gfn >> g; at <= (gfn + n - 1) >> g; at++)
                    expected += guest.frame[at] ? 1ull << shift : 0;
                while (hvmem_domain_clean(domain, gfn, n, &cursor) == HVMEM_AGAIN)
                    ;
                CHECK_EQ(world->counts.dcache - before, expected);
            }
        CHECK_TORN_DOWN(world, domain);
        WORLD_END(world);
    }
}

/* Tables of a second stage are pages of 4 KiB. */
TEST(stage2_has_one_page_size)
{
    hvmem_u32 shift;

    EACH_SHIFT(shift)
    {
        struct hvmem_stage2_config s2 = {.size = sizeof s2,
                                         .format = HVMEM_S2_NPT,
                                         .input_bits = 48,
                                         .output_bits = 48,
                                         .start_level = HVMEM_S2_LEVEL_AUTO,
                                         .node = HVMEM_NODE_ANY};
        struct hvmem_config config = world_config();
        hvmem_u64 space[64] = {0};
        struct world *world;
        hvmem_size bytes;

        config.page_shift = shift;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
        s2.heap = world->heap;
        s2.space = (struct hvmem_space *)space;
        CHECK_EQ(hvmem_stage2_size(&s2, &bytes), shift == 12 ? HVMEM_OK : HVMEM_E_ARG);
        WORLD_END(world);
    }
}
