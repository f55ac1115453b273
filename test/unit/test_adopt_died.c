/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tables of a heap that died within a change, or was meant to harm: whatever is adopted hands out each
 * frame once and nothing else, finds every block, and owes what was owed.
 */
#include "expect.h"
#include "lib/gathered.h"
#include "lib/request.h"
#include "lib/sets.h"

#include <stdlib.h>
#include <string.h>

#define BASE   0x123u
#define FRAMES 70000u /* single frames have three levels of summaries */
#define TAKEN  3000u

struct died {
    struct hvmem_config config;
    struct world *old, *fresh;
    struct hvmem__bank *bank; /* of the old heap */
    hvmem_mfn base;
    hvmem_u64 frames;
};

static struct died died_new(hvmem_mfn base, hvmem_u64 frames, hvmem_u32 flags)
{
    struct died died = {0};

    died.config = world_config();
    died.config.lock_regime = HVMEM_LOCK_PLAIN;
    died.config.max_cpus = 2;
    died.config.flags = flags;
    died.base = base;
    died.frames = frames;
    died.old = WORLD_NEW(&died.config, WORLD_BROADCAST | WORLD_BARRIER);
    REQUIRE_EQ(world_bank(died.old, base, frames, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_smp(died.old), HVMEM_OK);
    died.bank = hvmem__bank_of(died.old->heap, base);
    died.fresh = WORLD_NEW(&died.config, WORLD_BROADCAST | WORLD_BARRIER);
    return died;
}

static hvmem_status adopt(const struct died *died)
{
    struct hvmem_bank bank = {sizeof bank, 0, died->base, died->frames, 0, 0};
    struct world_table *table = world_table_of(died->old, died->base);
    hvmem_u64 cursor = 0;
    hvmem_status status;

    status = hvmem_bank_adopt(died->fresh->heap, &bank, table->memory, table->bytes);
    if (status == HVMEM_OK)
        do
            status = hvmem_adopt_finish(died->fresh->heap, &cursor);
        while (status == HVMEM_AGAIN);
    return status;
}

static void died_end(struct died *died)
{
    CHECK(world_delete(died->fresh));
    CHECK(world_delete(died->old));
}

/* All that is free as single frames, each once, and back. */
static void use_all(const struct died *died)
{
    hvmem_u64 n = hvmem_free_frames(died->fresh->heap);
    hvmem_mfn *taken = calloc(died->frames + 1, sizeof *taken);
    unsigned char *seen = calloc(died->frames, 1);
    size_t count, i;

    REQUIRE(taken != NULL && seen != NULL);
    count = expect_take_all(died->fresh, taken, died->frames + 1);
    CHECK_EQ(count, n);
    for (i = 0; i < count; i++) {
        if (!CHECK(taken[i] - died->base < died->frames && !seen[taken[i] - died->base]++))
            break;
    }
    for (i = 0; i < count; i++)
        CHECK_EQ(hvmem_free(died->fresh->heap, taken[i], 0), HVMEM_OK);
    CHECK_AUDIT(died->fresh);
    free(taken);
    free(seen);
}

/* Half of the first frames are free, each a block of its own. */
static void scatter(const struct died *died)
{
    static hvmem_mfn mfn[TAKEN];
    unsigned i;

    for (i = 0; i < TAKEN; i++)
        REQUIRE_EQ(hvmem_alloc_order(died->old->heap, 0, &mfn[i]), HVMEM_OK);
    for (i = 0; i < TAKEN; i += 2)
        REQUIRE_EQ(hvmem_free(died->old->heap, mfn[i], 0), HVMEM_OK);
}

/* The first word of a set that means something. */
static hvmem_u64 valid_word(const struct hvmem__bits *bits)
{
    return hvmem__bits_first(bits) >> 6;
}

enum damage {
    WORD_EMPTY,         /* its last member left, the level above does not know yet */
    WORD_NOT_KNOWN,     /* a member came, the uppermost level does not know yet */
    SUMMARY_OF_NOTHING, /* all members of a summary left */
    MEMBER_BELOW,       /* a block that begins before its bank */
    MEMBER_BEYOND,
    WORD_BEYOND,
    DAMAGES
};

static void harm(struct hvmem__bits *set, enum damage damage)
{
    hvmem_u64 last = set->count - 1;

    switch (damage) {
    case WORD_EMPTY:
        set->level[0][valid_word(set)] = 0;
        break;
    case WORD_NOT_KNOWN:
        memset(set->level[set->levels - 1], 0, set->top_words * 8);
        break;
    case SUMMARY_OF_NOTHING:
        set->level[set->levels - 1][0] |= 1;
        set->level[set->levels - 2][0] = 0;
        break;
    case MEMBER_BELOW:
        set->level[0][0] = (set->level[1][0] & 1 ? set->level[0][0] : 0) | 1;
        set->level[1][0] |= 1;
        break;
    case MEMBER_BEYOND:
        if ((last & 63) == 63)
            break;
        set->level[0][last >> 6] = 1ull << 63;
        set->level[1][last >> 12] |= 1ull << (last >> 6 & 63);
        break;
    default:
        if ((last >> 6 & 63) != 63)
            set->level[1][last >> 12] |= 1ull << 63;
        break;
    }
}

static void harmed(hvmem_u32 order, enum damage damage)
{
    struct died died = died_new(BASE, FRAMES, HVMEM_CONFIG_NO_CPU_CACHE);
    hvmem_mfn mfn = 0;

    scatter(&died);
    if (order)
        REQUIRE_EQ(hvmem_alloc_order(died.old->heap, order, &mfn), HVMEM_OK);
    if (damage != MEMBER_BELOW || (BASE & ((1u << order) - 1)))
        harm(&died.bank->free[order], damage);
    CHECK_EQ(adopt(&died), HVMEM_OK);
    CHECK_AUDIT(died.fresh);
    use_all(&died);
    died_end(&died);
}

TEST(sets_half_changed)
{
    unsigned damage;

    for (damage = 0; damage < DAMAGES; damage++) {
        harmed(0, damage);
        harmed(10, damage);
    }
}

/* Dirt that says of single frames that a part of them is dirty: they are. */
TEST(dirt_without_end)
{
    struct died died = died_new(0, 1024, HVMEM_CONFIG_NO_CPU_CACHE);
    struct hvmem_request request = expect_block(9, NULL);
    hvmem__record *record = hvmem__record_at(died.bank, 0);
    hvmem_mfn mfn = 0;
    unsigned i;

    record[0] = hvmem__rec_with_mark(hvmem__rec_make(10, HVMEM_BLOCK_FREE, 0), HVMEM__MARK_MIXED);
    for (i = 1; i < 1024; i++)
        record[i] = hvmem__node_make(HVMEM__MARK_MIXED, HVMEM__MARK_MIXED);
    world_domain(died.fresh, 1, ~0ull, 0, NULL);
    CHECK_EQ(adopt(&died), HVMEM_OK);
    world_track(died.fresh, 0, 1024);
    world_owe(died.fresh, 0, 1024, HVMEM_OWES_SCRUB);
    CHECK_EQ(hvmem_alloc(died.fresh->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(world_owed(died.fresh, mfn, 512), 0);
    CHECK_EQ(hvmem_free(died.fresh->heap, mfn, 9), HVMEM_OK);
    use_all(&died);
    died_end(&died);
}

/* Frames that start blocks: none behind an empty word is overlooked. */
TEST(heads_half_changed)
{
    struct died died = died_new(BASE, FRAMES, 0);
    hvmem_mfn mfn[200];
    unsigned i;

    for (i = 0; i < 200; i++)
        REQUIRE_EQ(hvmem_alloc_order(died.old->heap, 0, &mfn[i]), HVMEM_OK);
    for (i = 190; i < 200; i++)
        REQUIRE_EQ(hvmem_free(died.old->heap, mfn[i], 0), HVMEM_OK);
    died.bank->head.level[0][valid_word(&died.bank->head)] = 0;
    CHECK_EQ(adopt(&died), HVMEM_OK);
    CHECK_EQ(expect_stats(died.fresh, 0).cached, 0);
    CHECK_EQ(expect_lookup(died.fresh, mfn[195]).state, HVMEM_BLOCK_FREE);
    CHECK_AUDIT(died.fresh);
    use_all(&died);
    died_end(&died);
}

/* One block twice in a set would be handed out twice. */
TEST(front_also_in_the_bitmap)
{
    struct died died = died_new(BASE, FRAMES, HVMEM_CONFIG_NO_CPU_CACHE);
    hvmem_mfn front;

    scatter(&died);
    front = died.bank->table->front[0];
    REQUIRE(front != HVMEM__NO_MFN);
    hvmem__bits_set(&died.bank->free[0], hvmem__set_index(died.bank, front, 0));
    CHECK_EQ(adopt(&died), HVMEM_E_CORRUPT);
    died_end(&died);
}

/* Frames out of service are single and nobody's, whatever is in quarantine is nobody's. */
TEST(owners_of_what_is_out_of_use)
{
    unsigned change;

    for (change = 0; change < 3; change++) {
        struct died died = died_new(BASE, FRAMES, HVMEM_CONFIG_NO_CPU_CACHE);
        hvmem_u32 state = change == 2 ? HVMEM_BLOCK_QUARANTINE : HVMEM_BLOCK_OFFLINE;
        hvmem_mfn mfn = 0;

        REQUIRE_EQ(hvmem_alloc_order(died.old->heap, change == 0 ? 3 : 0, &mfn), HVMEM_OK);
        REQUIRE(world_domain(died.fresh, 1, ~0ull, 0, NULL) != NULL);
        *hvmem__record_at(died.bank, mfn) =
            hvmem__rec_make(change == 0 ? 3 : 0, state, change != 0);
        CHECK_EQ(adopt(&died), HVMEM_E_CORRUPT);
        died_end(&died);
    }
}

/* What a gather's link says is no bias: the frame owes its contents like any other. */
TEST(gathered_frames_owe_their_contents)
{
    struct died died = died_new((hvmem_mfn)HVMEM__BIAS_UNTOUCHED << 16, 64, 0);
    struct hvmem__leaver leaver = {0};
    struct hvmem_request request;
    struct hvmem_domain *domain;
    hvmem_mfn mfn = 0, first = HVMEM__NO_MFN, rest[64];
    size_t count, i;

    request = expect_block(0, world_domain(died.old, 1, ~0ull, 0, NULL));
    REQUIRE_EQ(hvmem_alloc(died.old->heap, &request, &mfn), HVMEM_OK);
    leaver.domain = request.domain;
    REQUIRE_EQ(hvmem__gathered_take(died.old->heap, mfn, 0, &leaver, &first), HVMEM_OK);
    CHECK_EQ(hvmem__rec_bias(*hvmem__record_at(died.bank, mfn)), HVMEM__BIAS_UNTOUCHED);
    domain = world_domain(died.fresh, 1, ~0ull, 0, NULL);
    CHECK_EQ(adopt(&died), HVMEM_OK);
    REQUIRE_EQ(world_smp(died.fresh), HVMEM_OK);
    count = expect_take_all(died.fresh, rest, 64);
    CHECK_EQ(count, 63);
    world_track(died.fresh, died.base, died.frames);
    world_owe(died.fresh, mfn, 1, HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
    CHECK_EQ(hvmem_quarantine_release(died.fresh->heap, mfn), HVMEM_OK);
    request = expect_block(0, domain);
    CHECK_EQ(hvmem_alloc(died.fresh->heap, &request, &first), HVMEM_OK);
    CHECK_EQ(first, mfn);
    CHECK_EQ(world_owed(died.fresh, mfn, 1), 0);
    CHECK_EQ(expect_lookup(died.fresh, mfn).owed, 0);
    CHECK_EQ(hvmem_free(died.fresh->heap, mfn, 0), HVMEM_OK);
    for (i = 0; i < count; i++)
        CHECK_EQ(hvmem_free(died.fresh->heap, rest[i], 0), HVMEM_OK);
    died_end(&died);
}

/* A stage 2 died with its heap: what it had for tables is its owner's like any other block, clean table or not. */
TEST(tables_of_the_dead_are_blocks)
{
    hvmem_u32 i;

    for (i = 0; i < 4; i++) {
        struct died died = died_new(0, 64, 0);
        struct hvmem_domain *domain = world_domain(died.old, 1, ~0ull, 0, NULL);
        struct hvmem_request request = expect_block(i & 1 ? 2 : 0, domain);
        hvmem_mfn mfn[2] = {0, 0};
        hvmem_u32 owner;

        for (owner = 0; owner < 2; owner++) {
            request.domain = owner ? domain : NULL;
            REQUIRE_EQ(hvmem__alloc(died.old->heap, &request, HVMEM__BIAS_TABLE, NULL, &mfn[owner]),
                       HVMEM_OK);
            CHECK(hvmem__rec_table(*hvmem__record_at(died.bank, mfn[owner])));
        }
        if (i & 2)
            CHECK_EQ(hvmem_quiesce(died.old->heap), HVMEM_OK);
        domain = world_domain(died.fresh, 1, ~0ull, 0, NULL);
        CHECK_EQ(adopt(&died), HVMEM_OK);
        CHECK_AUDIT(died.fresh);
        REQUIRE_EQ(world_smp(died.fresh), HVMEM_OK);
        CHECK_EQ(expect_domain(domain).pages, 1u << request.order);
        CHECK_EQ(hvmem_free_owned(died.fresh->heap, mfn[0], request.order, NULL, 0), HVMEM_OK);
        CHECK_EQ(hvmem_free_owned(died.fresh->heap, mfn[1], request.order, domain, 0), HVMEM_OK);
        CHECK_EQ(expect_stats(died.fresh, 0).free, 64);
        died_end(&died);
    }
}
