/* SPDX-License-Identifier: BSD-2-Clause */
/* Exhaustive small heaps: all allocation and free orders of small sets of blocks, audited. */
#include "expect.h"
#include "shadow.h"

#include <string.h>

#define MOST 5u

/* One program: allocate these orders in turn, free them in the order of the permutation. */
static int play(hvmem_mfn base, hvmem_u64 frames, const unsigned *orders, unsigned n,
                unsigned permutation)
{
    struct hvmem_config config = world_config();
    struct shadow *shadow;
    struct world *world;
    hvmem_mfn mfn[MOST];
    unsigned held[MOST];
    unsigned count = 0;
    unsigned i;
    int good;

    config.max_order = 4;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    shadow = shadow_new(world, 0, 32);
    shadow_bank(shadow, base, frames, 0, 0);
    for (i = 0; i < n; i++) {
        struct hvmem_request request = expect_block(orders[i], NULL);

        if (shadow_alloc(shadow, &request, &mfn[count]) == HVMEM_OK)
            held[count++] = orders[i];
        shadow_check(shadow);
    }
    while (count > 0) {
        unsigned pick = permutation % count;

        permutation /= count;
        shadow_free(shadow, mfn[pick], held[pick]);
        shadow_check(shadow);
        count--;
        memmove(&mfn[pick], &mfn[pick + 1], (count - pick) * sizeof mfn[0]);
        memmove(&held[pick], &held[pick + 1], (count - pick) * sizeof held[0]);
    }
    good = SHADOW_END(shadow);
    if (!good)
        test_note("bank %llu + %llu", (unsigned long long)base, (unsigned long long)frames);
    return good;
}

static void play_all(hvmem_mfn base, hvmem_u64 frames, unsigned n, unsigned kinds)
{
    unsigned orders[MOST];
    unsigned sets = 1;
    unsigned permutations = 1;
    unsigned set;
    unsigned permutation;
    unsigned i;

    for (i = 1; i <= n; i++) {
        sets *= kinds;
        permutations *= i;
    }
    for (set = 0; set < sets; set++)
        for (permutation = 0; permutation < permutations; permutation++) {
            unsigned left = set;

            for (i = 0; i < n; i++) {
                orders[i] = left % kinds;
                left /= kinds;
            }
            if (!play(base, frames, orders, n, permutation))
                return;
        }
}

TEST(three_blocks_all_orders)
{
    play_all(0, 16, 3, 5);
    play_all(3, 13, 3, 4);
}

TEST(four_blocks_all_orders)
{
    play_all(0, 16, 4, 3);
    play_all(5, 9, 4, 3);
}

TEST(five_blocks_all_orders, slow)
{
    play_all(0, 16, 5, 3);
    play_all(7, 11, 5, 2);
}

/* Every set of frames of a bank of 10 in use: what is left is merged as far as it can be. */
TEST(every_pattern_of_use)
{
    unsigned pattern;

    for (pattern = 0; pattern < 1024; pattern++) {
        struct hvmem_config config = world_config();
        struct world *world = WORLD_NEW(&config, 0);
        struct shadow *shadow = shadow_new(world, 0, 16);
        unsigned i;

        shadow_bank(shadow, 3, 10, 0, 0);
        for (i = 0; i < 10; i++)
            if (pattern >> i & 1)
                shadow_reserve(shadow, 3 + i, 1);
        shadow_check(shadow);
        for (i = 0; i < 10; i++)
            if (pattern >> (i * 3 % 10) & 1)
                shadow_free_run(shadow, 3 + i * 3 % 10, 1);
        shadow_check(shadow);
        if (!CHECK(shadow->failure[0] == '\0')) {
            test_note("pattern %#x: %s", pattern, shadow->failure);
            pattern = 1024;
        }
        shadow_delete(shadow);
        WORLD_END(world);
    }
}
