/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handing the frame tables to a new heap in place: after quiesce, without it, with cached frames, with
 * another geometry, with damage; quarantine.
 */
#include "expect.h"
#include "lib/table.h"

#include <hvmem/clock.h>

#include <stdlib.h>
#include <string.h>

#define FRAMES 600u

struct hand_over {
    struct hvmem_config config;
    struct hvmem_bank bank;
    unsigned char *table;
    hvmem_size bytes;
    struct world *old;
    struct world *new;
    hvmem_mfn kept[5]; /* blocks of order i in use */
    hvmem_mfn bad;     /* out of service */
};

static void start(struct hand_over *over, unsigned caches)
{
    hvmem_u32 i;

    memset(over, 0, sizeof *over);
    over->config = world_config();
    over->config.lock_regime = HVMEM_LOCK_PLAIN;
    over->config.max_cpus = 2;
    over->config.flags = caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE;
    over->bank = (struct hvmem_bank){sizeof over->bank, HVMEM_BANK_DIRTY, 0x123, FRAMES, 0, 0};
    over->old = WORLD_NEW(&over->config, WORLD_BROADCAST | WORLD_BARRIER);
    REQUIRE_EQ(hvmem_bank_size(over->old->heap, &over->bank, &over->bytes), HVMEM_OK);
    over->table = aligned_alloc(64, over->bytes);
    REQUIRE(over->table != NULL);
    world_garbage(over->table, over->bytes);
    REQUIRE_EQ(hvmem_bank_add(over->old->heap, &over->bank, over->table, over->bytes), HVMEM_OK);
    REQUIRE_EQ(world_smp(over->old), HVMEM_OK);
    for (i = 0; i < 5; i++)
        REQUIRE_EQ(hvmem_alloc_order(over->old->heap, i, &over->kept[i]), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(over->old->heap, 0x123 + 500, 30), HVMEM_OK);
    for (over->bad = 0x123; expect_lookup(over->old, over->bad).state != HVMEM_BLOCK_FREE;)
        over->bad++;
    REQUIRE_EQ(hvmem_offline(over->old->heap, over->bad), HVMEM_OK);
}

/* The new heap takes the table over; *calls says in how many steps it came into service. */
static hvmem_status adopt(struct hand_over *over, unsigned *calls)
{
    hvmem_status status;
    hvmem_u64 cursor = 0;
    hvmem_mfn mfn = 9;

    *calls = 0;
    over->new = WORLD_NEW(&over->config, WORLD_BROADCAST);
    status = hvmem_bank_adopt(over->new->heap, &over->bank, over->table, over->bytes);
    if (status != HVMEM_OK)
        return status;
    /* Not in service yet: nothing can be had. */
    CHECK(hvmem_alloc_order(over->new->heap, 0, &mfn) < 0);
    do
        status = hvmem_adopt_finish(over->new->heap, &cursor);
    while (status == HVMEM_AGAIN && ++*calls < 100000);
    return status;
}

static void finish(struct hand_over *over)
{
    hvmem_u32 i;

    REQUIRE_EQ(world_smp(over->new), HVMEM_OK);
    CHECK_AUDIT(over->new);
    for (i = 0; i < 5; i++) {
        struct hvmem_block block = expect_lookup(over->new, over->kept[i]);

        CHECK_EQ(block.state, HVMEM_BLOCK_ALLOCATED);
        CHECK_EQ(block.order, i);
        CHECK_EQ(hvmem_free(over->new->heap, over->kept[i], i), HVMEM_OK);
    }
    CHECK_EQ(hvmem_free_run(over->new->heap, 0x123 + 500, 30), HVMEM_OK);
    CHECK_EQ(hvmem_online(over->new->heap, over->bad), HVMEM_OK);
    CHECK_EQ(hvmem_drain(over->new->heap), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(over->new->heap), FRAMES);
    WORLD_END(over->new);
    CHECK(world_delete(over->old));
    free(over->table);
}

TEST(adopted_after_quiesce)
{
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct hand_over over;
        struct hvmem_stats before;
        struct hvmem_stats after;
        unsigned calls;

        start(&over, caches);
        REQUIRE_EQ(hvmem_quiesce(over.old->heap), HVMEM_OK);
        before = expect_stats(over.old, HVMEM_NODE_ANY);
        REQUIRE_EQ(adopt(&over, &calls), HVMEM_OK);
        after = expect_stats(over.new, HVMEM_NODE_ANY);
        CHECK_EQ(after.frames, before.frames);
        CHECK_EQ(after.free, before.free);
        CHECK_EQ(after.allocated, before.allocated);
        CHECK_EQ(after.reserved, before.reserved);
        CHECK_EQ(after.offline, before.offline);
        CHECK_EQ(after.quarantined, 0);
        CHECK_EQ(memcmp(after.free_blocks, before.free_blocks, sizeof after.free_blocks), 0);
        finish(&over);
    }
}

/* The old host died in the middle of its work: full audit, cached frames become free and owe. */
TEST(adopted_without_quiesce)
{
    unsigned caches;

    for (caches = 0; caches < 2; caches++) {
        struct hand_over over;
        struct hvmem_stats before;
        hvmem_mfn mfn = 0;
        unsigned calls;

        start(&over, caches);
        REQUIRE_EQ(hvmem_alloc_order(over.old->heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(over.old->heap, mfn, 0), HVMEM_OK);
        before = expect_stats(over.old, HVMEM_NODE_ANY);
        CHECK_EQ(before.cached != 0, caches);
        REQUIRE_EQ(adopt(&over, &calls), HVMEM_OK);
        CHECK_EQ(expect_stats(over.new, HVMEM_NODE_ANY).free +
                     expect_stats(over.new, HVMEM_NODE_ANY).quarantined,
                 before.free);
        CHECK_EQ(expect_stats(over.new, HVMEM_NODE_ANY).allocated, before.allocated);
        finish(&over);
    }
}

static void flush_all(struct hvmem_heap *heap)
{
    struct hvmem_flush_token token;

    CHECK_EQ(hvmem_flush_begin(heap, HVMEM_SCOPE_INNER, 0, &token), HVMEM_OK);
    CHECK_EQ(hvmem_flush_end(heap, &token), HVMEM_OK);
}

/*
 * How far the clock was when the old host died no table says. Frames that owe a flush owe none any more once the
 * new host has flushed everything.
 */
TEST(flush_of_the_new_host_is_enough)
{
    struct hvmem_request request = expect_block(0, NULL);
    struct hand_over over;
    unsigned calls, i;
    hvmem_mfn mfn;
    hvmem_u64 n;

    start(&over, 0);
    request.order = 4;
    request.domain = world_domain(over.old, 1, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_alloc(over.old->heap, &request, &mfn), HVMEM_OK);
    for (i = 0; i < 500; i++)
        flush_all(over.old->heap);
    CHECK_EQ(hvmem_free_owned(over.old->heap, mfn, 4, request.domain, HVMEM_OWES_TLB), HVMEM_OK);
    REQUIRE_EQ(adopt(&over, &calls), HVMEM_OK);
    REQUIRE_EQ(world_smp(over.new), HVMEM_OK);
    flush_all(over.new->heap);
    request = expect_block(0, NULL);
    request.flags = HVMEM_REQ_NOFLUSH;
    n = expect_stats(over.new, HVMEM_NODE_ANY).free;
    for (i = 0; i < n; i++)
        if (!CHECK_EQ(hvmem_alloc(over.new->heap, &request, &mfn), HVMEM_OK))
            break;
    WORLD_END(over.new);
    CHECK(world_delete(over.old));
    free(over.table);
}

/* A clean mark does not survive the next change. */
TEST(change_after_quiesce_clears_the_mark)
{
    struct hand_over over;
    hvmem_mfn mfn = 0;
    unsigned calls;

    start(&over, 1);
    REQUIRE_EQ(hvmem_quiesce(over.old->heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(over.old->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free(over.old->heap, mfn, 0), HVMEM_OK);
    REQUIRE_EQ(adopt(&over, &calls), HVMEM_OK);
    CHECK_EQ(expect_stats(over.new, HVMEM_NODE_ANY).free +
                 expect_stats(over.new, HVMEM_NODE_ANY).quarantined,
             expect_stats(over.old, HVMEM_NODE_ANY).free);
    finish(&over);
}

/* Nor does a free clear it less than an allocation does, through a cache or not. */
static void free_after_quiesce(unsigned caches, unsigned frees, hvmem_u32 order)
{
    struct hand_over over;
    hvmem_mfn mfn[3] = {0};
    struct hvmem_stats before;
    unsigned calls;
    unsigned i;

    start(&over, caches);
    /* The second time round they owe nothing, so that the fast path gives and takes them. */
    for (i = 0; i < 3; i++)
        REQUIRE_EQ(hvmem_alloc_order(over.old->heap, order, &mfn[i]), HVMEM_OK);
    for (i = 0; i < 3; i++)
        CHECK_EQ(hvmem_free(over.old->heap, mfn[i], order), HVMEM_OK);
    for (i = 0; i < 3; i++)
        REQUIRE_EQ(hvmem_alloc_order(over.old->heap, order, &mfn[i]), HVMEM_OK);
    REQUIRE_EQ(hvmem_quiesce(over.old->heap), HVMEM_OK);
    for (i = 0; i < frees; i++) {
        world_set_cpu(i == 2);
        CHECK_EQ(hvmem_free(over.old->heap, mfn[i], order), HVMEM_OK);
    }
    world_set_cpu(0);
    CHECK_AUDIT(over.old); /* no table says clean that has frames in a cache */
    before = expect_stats(over.old, HVMEM_NODE_ANY);
    REQUIRE_EQ(adopt(&over, &calls), HVMEM_OK);
    CHECK_EQ(expect_stats(over.new, HVMEM_NODE_ANY).free, before.free);
    for (i = frees; i < 3; i++)
        CHECK_EQ(hvmem_free(over.new->heap, mfn[i], order), HVMEM_OK);
    finish(&over);
}

/*
 * By the CPU that allocated them alone, so that nobody else clears the mark, and by another as well:
 * a cache that kept its hint of the bank would free without a look at the table.
 */
TEST(free_after_quiesce_clears_the_mark)
{
    static const hvmem_u32 orders[] = {0, 1, 3, 4};
    unsigned caches;
    unsigned frees;
    unsigned i;

    for (i = 0; i < 4; i++)
        for (caches = 0; caches < 2; caches++)
            for (frees = 1; frees <= 3; frees++)
                free_after_quiesce(caches, frees, orders[i]);
}

/* Another base, length, node, order, page size: refused, the table unchanged. */
TEST(other_geometry_is_refused)
{
    unsigned change;

    for (change = 0; change < 5; change++) {
        struct hand_over over;
        unsigned char *copy;
        hvmem_status status;
        unsigned calls;

        start(&over, 0);
        REQUIRE_EQ(hvmem_quiesce(over.old->heap), HVMEM_OK);
        copy = malloc(over.bytes);
        REQUIRE(copy != NULL);
        memcpy(copy, over.table, over.bytes);
        if (change == 0)
            over.bank.base++;
        if (change == 1)
            over.bank.frames--;
        if (change == 2)
            over.bank.node = 1;
        if (change == 3)
            over.config.max_order--;
        if (change == 4)
            over.config.page_shift = 14;
        status = adopt(&over, &calls);
        CHECK(status == HVMEM_E_GEOMETRY || status == HVMEM_E_BUFFER);
        CHECK_EQ(memcmp(copy, over.table, over.bytes), 0);
        CHECK_EQ(hvmem_free_frames(over.new->heap), 0);
        free(copy);
        CHECK(world_delete(over.new));
        CHECK(world_delete(over.old));
        free(over.table);
    }
}

/* A table that was never one. */
TEST(garbage_is_refused)
{
    struct hand_over over;
    struct test_rng rng = test_rng(1);
    unsigned round;
    unsigned calls;

    start(&over, 0);
    for (round = 0; round < 20; round++) {
        hvmem_size i;

        for (i = 0; i < over.bytes; i++)
            over.table[i] = (unsigned char)(round == 0 ? 0 : test_random(&rng));
        CHECK_EQ(adopt(&over, &calls), HVMEM_E_GEOMETRY);
        CHECK(world_delete(over.new));
    }
    CHECK(world_delete(over.old));
    free(over.table);
}

/* One bit of an unclean table damaged: refused as corrupt or taken, never a crash or a bad audit. */
static void damage(uint64_t at, unsigned bit)
{
    struct hand_over over;
    hvmem_status status;
    unsigned calls;

    start(&over, 0);
    over.table[at % over.bytes] ^= (unsigned char)(1u << bit);
    status = adopt(&over, &calls);
    if (!CHECK(status == HVMEM_OK || status == HVMEM_E_CORRUPT || status == HVMEM_E_GEOMETRY ||
               status == HVMEM_E_DOMAIN))
        test_note("byte %llu: status %d", (unsigned long long)at, status);
    if (status == HVMEM_OK)
        CHECK_AUDIT(over.new);
    else
        CHECK(hvmem_alloc_order(over.new->heap, 0, &(hvmem_mfn){0}) < 0);
    CHECK(world_delete(over.new));
    CHECK(world_delete(over.old));
    free(over.table);
}

TEST(damage_is_found_or_harmless)
{
    struct test_rng rng = test_rng(2);
    uint64_t round;

    for (round = 0; round < test_rounds(300); round++)
        damage(test_random(&rng), test_below(&rng, 8));
}

/* The header, a low and a high bit of each of its words. */
TEST(damaged_header_is_found_or_harmless)
{
    uint64_t word;

    for (word = 0; word < sizeof(struct hvmem__table) / 8; word++) {
        damage(8 * word, 3);
        damage(8 * word + 5, 2);
    }
}

TEST(adopt_arguments)
{
    struct hand_over over;
    hvmem_u64 cursor = 0;
    struct hvmem_heap *heap;

    start(&over, 0);
    heap = over.old->heap;
    CHECK_EQ(hvmem_quiesce(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_bank_adopt(NULL, &over.bank, over.table, over.bytes), HVMEM_E_ARG);
    CHECK_EQ(hvmem_adopt_finish(NULL, &cursor), HVMEM_E_ARG);
    CHECK_EQ(hvmem_quarantine_release(NULL, 0), HVMEM_E_ARG);
    CHECK_REFUSED(over.old, hvmem_adopt_finish(heap, &cursor), HVMEM_E_PHASE);
    CHECK_REFUSED(over.old, hvmem_adopt_finish(heap, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(over.old, hvmem_quarantine_release(heap, 0x123 + 400), HVMEM_E_ARG);
    CHECK_REFUSED_AT(over.old, hvmem_quarantine_release(heap, 1), HVMEM_E_FOREIGN, 1);
    over.new = WORLD_NEW(&over.config, 0);
    heap = over.new->heap;
    CHECK_REFUSED(over.new, hvmem_bank_adopt(heap, NULL, over.table, over.bytes), HVMEM_E_ARG);
    CHECK_REFUSED(over.new, hvmem_bank_adopt(heap, &over.bank, NULL, over.bytes), HVMEM_E_BUFFER);
    CHECK_REFUSED(over.new, hvmem_bank_adopt(heap, &over.bank, over.table + 4, over.bytes),
                  HVMEM_E_BUFFER);
    CHECK_REFUSED(over.new, hvmem_bank_adopt(heap, &over.bank, over.table, over.bytes - 1),
                  HVMEM_E_BUFFER);
    CHECK(world_delete(over.new));
    CHECK(world_delete(over.old));
    free(over.table);
}
