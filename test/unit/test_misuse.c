/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls at the wrong time and with handles of others: everything while tables are being taken over,
 * cursors that were forged, domains of another heap and dead ones, banks that come and go for ever.
 */
#include "expect.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>

#include <stdlib.h>
#include <string.h>

/* Where two banks touch: a free block lies in both. */
#define SEAM 96u
#define END  256u

/* An old heap with two banks that touch, quiesced, and a fresh one for its tables. */
struct pair {
    struct hvmem_config config;
    struct world *old;
    struct world *fresh;
    hvmem_mfn kept[2]; /* an order-3 block of each domain */
};

static struct hvmem_bank bank_at(hvmem_mfn base, hvmem_u64 frames)
{
    struct hvmem_bank bank = {sizeof bank, 0, base, frames, 0, 0};

    return bank;
}

static void start(struct pair *pair, hvmem_u32 regime)
{
    struct hvmem_request request;
    hvmem_u32 i;

    pair->config = world_config();
    pair->config.lock_regime = regime;
    pair->old = WORLD_NEW(&pair->config, WORLD_BROADCAST);
    pair->fresh = WORLD_NEW(&pair->config, WORLD_BROADCAST);
    REQUIRE_EQ(world_bank(pair->old, 0, SEAM, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(pair->old, SEAM, END - SEAM, 0, 0), HVMEM_OK);
    for (i = 0; i < 2; i++) {
        request = expect_block(3, world_domain(pair->old, i + 1, ~0ull, 0, NULL));
        REQUIRE_EQ(hvmem_alloc(pair->old->heap, &request, &pair->kept[i]), HVMEM_OK);
    }
    REQUIRE_EQ(hvmem_quiesce(pair->old->heap), HVMEM_OK);
}

static hvmem_status adopt(struct pair *pair, hvmem_mfn base)
{
    struct hvmem_bank bank = bank_at(base, base ? END - SEAM : SEAM);
    struct world_table *table = world_table_of(pair->old, base);

    return hvmem_bank_adopt(pair->fresh->heap, &bank, table->memory, table->bytes);
}

static hvmem_status finish(struct pair *pair)
{
    hvmem_status status;
    hvmem_u64 cursor = 0;

    do
        status = hvmem_adopt_finish(pair->fresh->heap, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK(status == HVMEM_OK || cursor == 0);
    return status;
}

/* The tables are the new heap's. */
static void end(struct pair *pair)
{
    CHECK(world_delete(pair->fresh)); /* (audited where it came into service) */
    CHECK(world_delete(pair->old));
}

static hvmem_status map_none(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx, (void)gfn, (void)mfn, (void)order;
    return HVMEM_OK;
}

TEST(nothing_else_while_adopting)
{
    struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map_none};
    struct hvmem_extent extent = {0};
    struct hvmem_populate populate = {.size = sizeof populate, .count = 1, .extents = &extent};
    struct hvmem_cursor cursor = {{0}};
    unsigned char table[4096] __attribute__((aligned(64)));
    struct hvmem_bank bank = bank_at(512, 64);
    struct hvmem_domain *domain[2];
    struct hvmem_heap *heap;
    struct pair pair;
    hvmem_mfn mfn = 0;
    hvmem_u32 got = 0;

    start(&pair, HVMEM_LOCK_PLAIN);
    heap = pair.fresh->heap;
    REQUIRE_EQ(adopt(&pair, 0), HVMEM_OK);
    REQUIRE_EQ(adopt(&pair, SEAM), HVMEM_OK);
    domain[0] = world_domain(pair.fresh, 1, ~0ull, 0, NULL);
    domain[1] = world_domain(pair.fresh, 2, ~0ull, 0, NULL);
    REQUIRE_EQ(hvmem_domain_attach(domain[0], &ops, NULL, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_bank_add(heap, &bank, table, sizeof table), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_bank_remove(heap, SEAM, END - SEAM), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_alloc_order(heap, 0, &mfn), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_alloc_order(heap, 4, &mfn), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_reserve(heap, 200, 8), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_free(heap, pair.kept[0], 3), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_free_owned(heap, pair.kept[0], 3, domain[0], 0), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_free_run(heap, pair.kept[0], 8), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_free_bulk(heap, pair.kept, 2, 3, &got), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_settle(heap, pair.kept[0], 8, HVMEM_OWES_ANY), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_offline(heap, 200), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_online(heap, 200), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_quarantine_release(heap, 200), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_quiesce(heap), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_smp_enable(heap), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_domain_claim(domain[0], HVMEM_NODE_ANY, 1), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_domain_start(domain[0]), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_domain_populate(domain[0], &populate, &cursor), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_domain_teardown(domain[1], 0, &cursor), HVMEM_E_PHASE);
    CHECK_EQ(pair.fresh->counts.reports, 19);
    CHECK_EQ(finish(&pair), HVMEM_OK);
    CHECK_AUDIT(pair.fresh);
    CHECK_EQ(hvmem_free_frames(heap), 240);
    CHECK_EQ(expect_domain(domain[0]).pages, 8);
    CHECK_EQ(hvmem_free_owned(heap, pair.kept[0], 3, domain[0], 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_owned(heap, pair.kept[1], 3, domain[1], 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(heap), 256);
    end(&pair);
}

/* The cursor is the library's: another is refused, and no bank comes once it has moved. */
TEST(forged_cursor_of_an_adoption)
{
    hvmem_u64 forged[] = {1, 64, 127, 1ull << 60, 2ull << 60, 3ull << 60, ~0ull};
    hvmem_u64 cursor = 0, old;
    struct pair pair;
    unsigned i;

    start(&pair, HVMEM_LOCK_CALLER);
    REQUIRE_EQ(adopt(&pair, 0), HVMEM_OK);
    REQUIRE_EQ(adopt(&pair, SEAM), HVMEM_OK);
    world_domain(pair.fresh, 1, ~0ull, 0, NULL);
    world_domain(pair.fresh, 2, ~0ull, 0, NULL);
    for (i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        cursor = forged[i];
        CHECK_EQ(hvmem_adopt_finish(pair.fresh->heap, &cursor), HVMEM_E_STALE);
        CHECK_EQ(cursor, forged[i]);
    }
    cursor = 0;
    CHECK_EQ(hvmem_adopt_finish(pair.fresh->heap, &cursor), HVMEM_AGAIN);
    CHECK_EQ(adopt(&pair, SEAM), HVMEM_E_PHASE);
    for (;;) {
        hvmem_status status;

        old = cursor;
        status = hvmem_adopt_finish(pair.fresh->heap, &cursor);
        if (status == HVMEM_OK)
            break;
        REQUIRE_EQ(status, HVMEM_AGAIN);
        /* Never the same step twice. */
        CHECK_EQ(hvmem_adopt_finish(pair.fresh->heap, &old), HVMEM_E_STALE);
    }
    CHECK_AUDIT(pair.fresh);
    CHECK_EQ(hvmem_free_frames(pair.fresh->heap), 240);
    end(&pair);
}

/* What was missing may be given after an error; nothing is counted twice. */
TEST(adoption_starts_over)
{
    struct hvmem_domain *first;
    struct pair pair;

    start(&pair, HVMEM_LOCK_CALLER);
    REQUIRE_EQ(adopt(&pair, 0), HVMEM_OK);
    first = world_domain(pair.fresh, 1, ~0ull, 0, NULL);
    world_domain(pair.fresh, 2, ~0ull, 0, NULL);
    /* The free block at the seam reaches into the bank that was forgotten. */
    CHECK_EQ(finish(&pair), HVMEM_E_CORRUPT);
    CHECK_EQ(hvmem_free_frames(pair.fresh->heap), 0);
    REQUIRE_EQ(adopt(&pair, SEAM), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_kill(first), HVMEM_OK);
    CHECK_EQ(hvmem_domain_destroy(first), HVMEM_E_PHASE);
    CHECK_EQ(finish(&pair), HVMEM_OK);
    CHECK_AUDIT(pair.fresh);
    CHECK_EQ(expect_domain(first).pages, 8);
    end(&pair);

    start(&pair, HVMEM_LOCK_CALLER);
    REQUIRE_EQ(adopt(&pair, SEAM), HVMEM_OK);
    CHECK_EQ(finish(&pair), HVMEM_E_CORRUPT);
    end(&pair);

    start(&pair, HVMEM_LOCK_CALLER);
    REQUIRE_EQ(adopt(&pair, 0), HVMEM_OK);
    REQUIRE_EQ(adopt(&pair, SEAM), HVMEM_OK);
    first = world_domain(pair.fresh, 1, ~0ull, 0, NULL);
    CHECK_EQ(finish(&pair), HVMEM_E_DOMAIN);
    CHECK_EQ(expect_domain(first).pages, 0);
    world_domain(pair.fresh, 2, ~0ull, 0, NULL);
    CHECK_EQ(finish(&pair), HVMEM_OK);
    CHECK_AUDIT(pair.fresh);
    CHECK_EQ(expect_domain(first).pages, 8);
    CHECK_EQ(hvmem_free_frames(pair.fresh->heap), 240);
    end(&pair);
}

/* A domain of another heap is no owner here, though it has the id. */
TEST(domain_of_another_heap)
{
    struct world *here = WORLD_SIMPLE(0, 64);
    struct world *there = WORLD_SIMPLE(0, 64);
    struct hvmem_domain *domain = world_domain(here, 1, ~0ull, 0, NULL);
    struct hvmem_domain *other = world_domain(there, 1, ~0ull, 0, NULL);
    struct hvmem_request request = expect_block(2, domain);
    struct hvmem_cursor cursor = {{0}};
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_alloc(here->heap, &request, &mfn), HVMEM_OK);
    CHECK_REFUSED_AT(here, hvmem_free_owned(here->heap, mfn, 2, other, 0), HVMEM_E_OWNER, mfn);
    CHECK_REFUSED_AT(here, hvmem_free_owned(here->heap, mfn, 2, NULL, 0), HVMEM_E_OWNER, mfn);
    CHECK_EQ(hvmem_free_scrubbed(here->heap, mfn, 2, other, 0, 0, &cursor), HVMEM_E_OWNER);
    request.domain = other;
    CHECK_REFUSED(here, hvmem_alloc(here->heap, &request, &mfn), HVMEM_E_DOMAIN);
    CHECK_EQ(hvmem_free_owned(here->heap, mfn, 2, domain, 0), HVMEM_OK);
    WORLD_END(here);
    WORLD_END(there);
}

/* A dead handle is refused, and does not bring down the domain that has its id now. */
TEST(handle_after_destroy)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_domain_config config = {sizeof config, 1, ~0ull, 0};
    hvmem_size bytes = hvmem_domain_size(world->heap);
    void *memory = aligned_alloc(64, bytes);
    struct hvmem_domain_stats stats;
    struct hvmem_domain *dead = NULL;
    struct hvmem_domain *heir;
    struct hvmem_request request;
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_domain_create(world->heap, memory, bytes, &config, &dead), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_kill(dead), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_destroy(dead), HVMEM_OK);
    heir = world_domain(world, 1, ~0ull, 0, NULL);
    CHECK_EQ(hvmem_domain_destroy(dead), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_kill(dead), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_start(dead), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_limit(dead, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_claim(dead, HVMEM_NODE_ANY, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_stats(dead, &stats), HVMEM_E_ARG);
    request = expect_block(0, dead);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_DOMAIN);
    request = expect_block(0, heir);
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free_owned(world->heap, mfn, 0, heir, 0), HVMEM_OK);
    free(memory);
    WORLD_END(world);
}

/* More places than banks at a time: each with its own span, on ever other nodes. */
TEST(banks_in_many_places)
{
    struct hvmem_config config = world_config();
    struct hvmem_domain *domain;
    struct hvmem_request request;
    struct world *world;
    hvmem_mfn mfn = 0;
    unsigned round;

    config.max_banks = 3;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    domain = world_domain(world, 1, ~0ull, 0, NULL);
    request = expect_block(2, domain);
    for (round = 0; round < 300; round++) {
        hvmem_mfn base = (hvmem_mfn)round << 20;
        hvmem_node node = round / 4 % 64;

        REQUIRE_EQ(world_bank(world, base, 64, node, 0), HVMEM_OK);
        REQUIRE_EQ(world_bank(world, base + 64, 64, node, 0), HVMEM_OK);
        CHECK_EQ(expect_lookup(world, base + 100).order, 7);
        if (!CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK))
            break;
        CHECK_EQ(mfn, base);
        CHECK_EQ(expect_lookup(world, mfn).node, node);
        CHECK_EQ(hvmem_free_owned(world->heap, mfn, 2, domain, 0), HVMEM_OK);
        CHECK_AUDIT(world);
        CHECK_EQ(world_remove(world, base + 64, 64), HVMEM_OK);
        CHECK_EQ(world_remove(world, base, 64), HVMEM_OK);
    }
    WORLD_END(world);
}

/* A bank that is in use gives back what was taken of it: an event, which may look at the heap. */
static struct hvmem_heap *looked_at;
static hvmem_status audited;
static void (*world_event)(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b);

static void look(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b)
{
    const char *where = NULL;
    hvmem_mfn mfn = 0;

    audited = hvmem_audit(looked_at, &mfn, &where);
    world_event(host, event, a, b);
}

TEST(event_of_a_removal_that_fails)
{
    struct hvmem_config config = world_config();
    struct hvmem_request request = expect_run(1, 0, 255, 256);
    struct world *world;
    struct hvmem_heap *heap;
    hvmem_size bytes = 0;
    void *memory;
    hvmem_mfn mfn = 0;
    struct hvmem_bank bank = bank_at(0, 256);
    void *table;

    config.max_order = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.low_frames = 200;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    /* A heap of its own over the world's host, whose event operation is another. */
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    config = world->config;
    world_event = world->host.event;
    world->host.event = look;
    config.host = &world->host;
    config.host_ctx = world;
    config.backend = &world->backend;
    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    REQUIRE_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_OK);
    looked_at = heap;
    REQUIRE_EQ(hvmem_bank_size(heap, &bank, &bytes), HVMEM_OK);
    table = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_bank_add(heap, &bank, table, bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_smp_enable(heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc(heap, &request, &mfn), HVMEM_OK);
    audited = HVMEM_AGAIN;
    CHECK_EQ(hvmem_bank_remove(heap, 0, 256), HVMEM_E_BUSY);
    CHECK_EQ(audited, HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(heap), 255);
    free(table);
    free(memory);
    WORLD_END(world);
}

/* A hysteresis that cannot be reached: told once, not at every call. */
TEST(low_memory_hysteresis_without_end)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;
    unsigned i;

    config.low_frames = 60;
    config.low_hysteresis = ~0ull - 20;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    for (i = 0; i < 8; i++)
        CHECK_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_EQ(world->counts.events, 1);
    WORLD_END(world);
}

/* A mask as wide as frame numbers names one frame; a wider one, or shifted beyond them, is refused. */
TEST(colour_as_wide_as_frame_numbers)
{
    struct world *world = WORLD_SIMPLE(8, 64);
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn = 99;

    request.colour_mask = ~0ull;
    request.colour = 50;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ARG);
    request.colour_mask = (1ull << 40) - 1;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(mfn, 50);
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    request.colour = 5;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    request.colour_shift = 1;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ARG);
    request.colour_mask = request.colour = 1;
    request.colour_shift = 39;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    request.colour_shift = 40;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_ARG);
    WORLD_END(world);
}

/* The nodes of a request are chosen among its domain's, not instead of them. */
TEST(request_cannot_leave_the_nodes_of_its_domain)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_request request;
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    REQUIRE_EQ(world_bank(world, 1 << 20, 64, 1, 0), HVMEM_OK);
    request = expect_block(0, world_domain(world, 1, ~0ull, 1, NULL));
    request.node_mask = 2;
    CHECK_REFUSED(world, hvmem_alloc(world->heap, &request, &mfn), HVMEM_E_NOMEM);
    request.node_mask = 3;
    CHECK_EQ(hvmem_alloc(world->heap, &request, &mfn), HVMEM_OK);
    CHECK_EQ(expect_lookup(world, mfn).node, 0);
    WORLD_END(world);
}

TEST(as_many_banks_as_the_header_says)
{
    struct hvmem_config config = world_config();
    hvmem_size bytes = 0;

    config.max_banks = 65535;
    CHECK_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
}

/* Sizes of the largest bank there can be, in the smallest spans: without a step a span. */
TEST(size_of_the_largest_bank)
{
    struct hvmem_config config = world_config();
    struct hvmem_bank bank = bank_at(1, (1ull << 40) - 1);
    struct world *world;
    hvmem_size whole = 0, one = 0, first = 0;

    config.max_order = 0;
    config.arena_order = 1;
    world = WORLD_NEW(&config, 0);
    CHECK_EQ(hvmem_bank_size(world->heap, &bank, &whole), HVMEM_OK);
    bank = bank_at(2, 2);
    CHECK_EQ(hvmem_bank_size(world->heap, &bank, &one), HVMEM_OK);
    bank = bank_at(1, 1);
    CHECK_EQ(hvmem_bank_size(world->heap, &bank, &first), HVMEM_OK);
    CHECK_EQ(whole, first + ((1ull << 39) - 1) * one);
    WORLD_END(world);
}

/* CPUs that join before several may call are in the set afterwards: a flush must reach them. */
TEST(cpus_that_join_early)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.max_cpus = 4;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_OK);
    world_set_cpu(2);
    CHECK_EQ(hvmem_smp_enable(world->heap), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_cpu_online(world->heap, 2), HVMEM_E_CPU);
    CHECK_EQ(hvmem_cpu_online(world->heap, 0), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_offline(world->heap, 1), HVMEM_OK);
    CHECK_EQ(hvmem_cpu_offline(world->heap, 3), HVMEM_E_CPU);
    world_set_cpu(0);
    WORLD_END(world);
}
