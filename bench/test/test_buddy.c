/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the textbook buddy: what is compared with must be right too. */
#include "bench/reference/buddy.h"
#include "test_main.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES 5000u /* no power of two: 4096 + 512 + 256 + 128 + 8 */

struct block {
    uint32_t frame;
    unsigned order;
};

static struct buddy *fresh(uint32_t frames)
{
    void *memory = malloc(buddy_bytes(frames));

    REQUIRE(memory != NULL);
    memset(memory, 0xa5, buddy_bytes(frames));
    return buddy_init(memory, frames);
}

/* Free blocks by the page structures; each must be aligned, inside, and disjoint from the others. */
static uint64_t count_free(const struct buddy *buddy, unsigned *blocks)
{
    uint64_t total = 0;
    uint32_t frame = 0;

    *blocks = 0;
    while (frame < buddy->frames) {
        if (buddy->page[frame].free) {
            unsigned order = buddy->page[frame].order;

            CHECK_EQ(frame & ((1u << order) - 1), 0);
            CHECK(frame + (1u << order) <= buddy->frames);
            total += 1u << order;
            frame += 1u << order;
            ++*blocks;
        } else {
            frame++;
        }
    }
    return total;
}

TEST(starts_with_the_largest_blocks)
{
    struct buddy *buddy = fresh(FRAMES);
    unsigned blocks;

    CHECK_EQ(count_free(buddy, &blocks), FRAMES);
    CHECK_EQ(blocks, 5);
    CHECK_EQ(buddy->free_frames, FRAMES);
    CHECK_EQ(buddy_alloc(buddy, 12), 0);
    CHECK_EQ(buddy_alloc(buddy, 9), 4096);
    CHECK_EQ(buddy_alloc(buddy, 9), BUDDY_NONE);
    CHECK_EQ(buddy_alloc(buddy, BUDDY_MAX_ORDER), BUDDY_NONE);
    free(buddy);
}

/* Splitting leaves one half a level, merging brings the whole back. */
TEST(splits_and_merges_through_every_order)
{
    struct buddy *buddy = fresh(1u << BUDDY_MAX_ORDER);
    unsigned blocks;
    uint32_t frame = buddy_alloc(buddy, 0);

    CHECK_EQ(frame, 0);
    CHECK_EQ(count_free(buddy, &blocks), (1u << BUDDY_MAX_ORDER) - 1);
    CHECK_EQ(blocks, BUDDY_MAX_ORDER);
    buddy_free(buddy, frame, 0);
    CHECK_EQ(count_free(buddy, &blocks), 1u << BUDDY_MAX_ORDER);
    CHECK_EQ(blocks, 1);
    CHECK_EQ(buddy->nonempty, 1u << BUDDY_MAX_ORDER);
    free(buddy);
}

/* A model with an owner a frame: no frame is given twice, all come back, the start is restored. */
TEST(random_blocks_never_overlap)
{
    static unsigned char owned[FRAMES];
    static struct block live[FRAMES];
    struct test_rng rng = test_rng(1);
    struct buddy *buddy = fresh(FRAMES);
    unsigned count = 0, blocks, before, step;
    uint64_t used = 0;
    uint32_t i;

    memset(owned, 0, sizeof owned);
    count_free(buddy, &before);
    for (step = 0; step < 20000; step++) {
        if (test_below(&rng, 100) < 52) {
            struct block block = {0, (unsigned)test_below(&rng, 8)};

            block.frame = buddy_alloc(buddy, block.order);
            if (block.frame == BUDDY_NONE)
                continue;
            REQUIRE(block.frame + (1u << block.order) <= FRAMES);
            CHECK_EQ(block.frame & ((1u << block.order) - 1), 0);
            for (i = 0; i < 1u << block.order; i++)
                CHECK_EQ(owned[block.frame + i]++, 0);
            used += 1u << block.order;
            live[count++] = block;
        } else if (count > 0) {
            unsigned pick = (unsigned)test_below(&rng, count);
            struct block block = live[pick];

            live[pick] = live[--count];
            memset(owned + block.frame, 0, 1u << block.order);
            used -= 1u << block.order;
            buddy_free(buddy, block.frame, block.order);
        }
        CHECK_EQ(buddy->free_frames, FRAMES - used);
    }
    CHECK_EQ(count_free(buddy, &blocks), FRAMES - used);
    while (count > 0) {
        count--;
        buddy_free(buddy, live[count].frame, live[count].order);
    }
    CHECK_EQ(count_free(buddy, &blocks), FRAMES);
    CHECK_EQ(blocks, before);
    free(buddy);
}

/* Whatever is freed, all of it or nothing: a full heap refuses each order. */
TEST(refuses_when_full)
{
    struct buddy *buddy = fresh(FRAMES);
    unsigned order;
    uint32_t got = 0;

    while (buddy_alloc(buddy, 0) != BUDDY_NONE)
        got++;
    CHECK_EQ(got, FRAMES);
    for (order = 0; order <= BUDDY_MAX_ORDER; order++)
        CHECK_EQ(buddy_alloc(buddy, order), BUDDY_NONE);
    buddy_free(buddy, 17, 0);
    CHECK_EQ(buddy_alloc(buddy, 0), 17);
    free(buddy);
}
