/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-crowded: as bench-count-locks, the side that takes memory: heaps crowded with blocks that a
 * request may not have, with small blocks that a run does not fit into, with banks, and with what a split
 * has to tell apart. The names end with the call; those of runs and refills are sections of them.
 */
#include "bench/count/locked.h"
#include "bench/count/section.h"

#include <hvmem/backend.h>

#include <string.h>

#define ORDER 20u /* of the arena of most heaps here: its lower half is crowded */
#define HALF  ((hvmem_mfn)1 << (ORDER - 1))
#define START ((hvmem_mfn)1 << ORDER)
#define EACH  70u /* blocks that are in the way, of each order */
#define SETS  10u /* orders 0 to 9 */
#define CROWD 64u /* banks of one arena */

static struct hvmem_request block(hvmem_u32 order)
{
    struct hvmem_request request = {.size = sizeof request, .order = order, .node = HVMEM_NODE_ANY};

    return request;
}

static struct hvmem_request run_of(hvmem_u64 count)
{
    struct hvmem_request request = {.size = sizeof request, .count = count, .node = HVMEM_NODE_ANY};

    return request;
}

/* ---- blocks that a request may not have -------------------------------------------------------- */

static void give_clean(struct heap *h, hvmem_mfn mfn, hvmem_u64 frames)
{
    FIGURE_REQUIRE(hvmem_free_run(h->heap, mfn, frames) == HVMEM_OK);
}

/*
 * One bank, all of it in use but for blocks of orders 0 to 9 in the lower half, EACH of an order, that no
 * other is next to.
 */
static void open_crowded(struct heap *h, hvmem_u32 flags)
{
    hvmem_mfn at = START;
    hvmem_u32 order;
    unsigned i;

    start(h, flags, ORDER);
    add_bank(h, START, (hvmem_u64)1 << ORDER);
    FIGURE_REQUIRE(hvmem_smp_enable(h->heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_reserve(h->heap, START, (hvmem_u64)1 << ORDER) == HVMEM_OK);
    for (order = SETS; order-- > 0;) {
        for (i = 0; i < EACH; i++, at += (hvmem_u64)2 << order)
            give_clean(h, at, (hvmem_u64)1 << order);
    }
    FIGURE_REQUIRE(at < START + HALF);
}

/* Each of those blocks owes a flush. */
static void make_owing(struct heap *h)
{
    static hvmem_mfn taken[SETS][EACH];
    hvmem_u32 order;
    unsigned i;

    for (order = SETS; order-- > 0;) {
        struct hvmem_request request = block(order);

        request.flags = HVMEM_REQ_NO_CACHE;
        for (i = 0; i < EACH; i++)
            FIGURE_REQUIRE(hvmem_alloc(h->heap, &request, &taken[order][i]) == HVMEM_OK);
    }
    for (order = SETS; order-- > 0;) {
        for (i = 0; i < EACH; i++)
            FIGURE_REQUIRE(hvmem_free_owned(h->heap, taken[order][i], order, NULL,
                                            HVMEM_OWES_TLB) == HVMEM_OK);
    }
    FIGURE_REQUIRE(hvmem_drain(h->heap) == HVMEM_OK);
}

/* Colours of which the lower half has none. */
static void colours(void)
{
    struct hvmem_request request = block(0);
    struct heap h;
    hvmem_mfn mfn;

    request.colour_shift = ORDER - 1;
    request.colour_mask = request.colour = 1;
    open_crowded(&h, HVMEM_CONFIG_NO_CPU_CACHE);
    kind = "crowded.colour.none.";
    counting = name_of("alloc", 0);
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_E_NOMEM);
    counting = NULL;
    kind = "crowded.colour.";
    give_clean(&h, START + HALF, HALF);
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    FIGURE_REQUIRE(mfn == START + HALF);
    close_heap(&h);
}

/* A window above all of them; one that begins within the largest block. */
static void windows(void)
{
    struct hvmem_request request = block(0);
    struct heap h;
    hvmem_mfn mfn;

    open_crowded(&h, HVMEM_CONFIG_NO_CPU_CACHE);
    give_clean(&h, START + HALF, HALF);
    kind = "crowded.window.";
    request.hi = START + HALF - 1;
    request.lo = request.hi - 1;
    counting = name_of("alloc", 0);
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_E_NOMEM);
    counting = NULL;
    request.lo = START + 2 * HALF - 1;
    request.hi = 0;
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    close_heap(&h);
}

/* Nothing that must be flushed for: past the caches, and by the refill of a cache. */
static void noflush(void)
{
    struct hvmem_request request = block(0);
    struct heap h;
    hvmem_mfn mfn;

    request.flags = HVMEM_REQ_NOFLUSH;
    open_crowded(&h, HVMEM_CONFIG_NO_CPU_CACHE);
    make_owing(&h);
    give_clean(&h, START + HALF, HALF);
    kind = "crowded.noflush.";
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    FIGURE_REQUIRE(mfn == START + HALF);
    close_heap(&h);

    open_crowded(&h, 0);
    make_owing(&h);
    give_clean(&h, START + HALF, HALF);
    COUNTED("crowded.refill", hvmem_alloc_order(h.heap, 0, &mfn));
    COUNTED("crowded.refill", hvmem_alloc_order(h.heap, 9, &mfn));
    COUNTED("crowded.refill", hvmem_alloc_order(h.heap, 5, &mfn));
    close_heap(&h);
    /* And with nothing else to be had. */
    open_crowded(&h, 0);
    make_owing(&h);
    COUNTED("crowded.refill", hvmem_alloc_order(h.heap, 0, &mfn));
    COUNTED("crowded.refill", hvmem_alloc_order(h.heap, 9, &mfn));
    close_heap(&h);
}

/* Every second frame owes: a block whose dirt differs down to its frames. */
static void mixed(hvmem_u32 flags)
{
    enum { BLOCK = 12 };
    struct hvmem_request request = block(BLOCK);
    hvmem_mfn mfn, i;
    hvmem_u32 order;
    struct heap h;

    open_heap(&h, flags, 1);
    request.flags = HVMEM_REQ_NO_CACHE;
    FIGURE_REQUIRE(hvmem_reserve(h.heap, FIRST + ((hvmem_u64)1 << BLOCK),
                                 ARENA - ((hvmem_u64)1 << BLOCK)) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_OK);
    for (i = 0; i < (hvmem_u64)1 << BLOCK; i++)
        FIGURE_REQUIRE(hvmem_free_run(h.heap, mfn + i, 1) == HVMEM_OK);
    request.order = 0;
    request.lo = mfn;
    for (i = 1; i < (hvmem_u64)1 << BLOCK; i += 2) {
        hvmem_mfn odd;

        request.lo = mfn + i;
        request.hi = mfn + i + 1;
        FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &odd) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_free_owned(h.heap, odd, 0, NULL, HVMEM_OWES_SCRUB) == HVMEM_OK);
    }
    FIGURE_REQUIRE(hvmem_drain(h.heap) == HVMEM_OK);
    kind = "crowded.mixed.";
    for (order = 0; order < 5; order++)
        COUNTED(flags & HVMEM_CONFIG_NO_CPU_CACHE ? name_of("alloc", order) : "crowded.refill",
                hvmem_alloc_order(h.heap, order, &mfn));
    close_heap(&h);
}

/* ---- runs -------------------------------------------------------------------------------------- */

/* Stretches of many blocks each that a run does not fit into, then one that it does. */
static void runs(void)
{
    enum { COUNT = 1023, STRETCHES = 40 };
    struct hvmem_request request = run_of(COUNT);
    hvmem_mfn at = START + 513, mfn;
    struct heap h;
    unsigned i;

    start(&h, HVMEM_CONFIG_NO_CPU_CACHE, ORDER);
    add_bank(&h, START, (hvmem_u64)1 << ORDER);
    FIGURE_REQUIRE(hvmem_smp_enable(h.heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_reserve(h.heap, START, (hvmem_u64)1 << ORDER) == HVMEM_OK);
    for (i = 0; i < STRETCHES; i++, at += 2048)
        give_clean(&h, at, COUNT - 1);
    counting = "crowded.alloc_run";
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_E_NOMEM);
    counting = NULL;
    give_clean(&h, at, COUNT);
    COUNTED("crowded.alloc_run", hvmem_alloc(h.heap, &request, &mfn));
    FIGURE_REQUIRE(mfn == at);
    /* Out of one block, whose tail goes back. */
    give_clean(&h, START + HALF, HALF);
    request.count = HALF / 2 + 1;
    COUNTED("crowded.alloc_run", hvmem_alloc(h.heap, &request, &mfn));
    request.count = HALF / 4 - 1;
    COUNTED("crowded.alloc_run", hvmem_alloc(h.heap, &request, &mfn));
    close_heap(&h);
}

/* ---- claims ------------------------------------------------------------------------------------ */

/* All that is free is promised to another. */
static void claimed(void)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    struct hvmem_request request = block(0);
    struct hvmem_domain *domain;
    struct heap h;
    hvmem_size bytes;
    hvmem_mfn mfn;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    bytes = hvmem_domain_size(h.heap);
    FIGURE_REQUIRE(hvmem_domain_create(h.heap, take_memory(&h, bytes), bytes, &config, &domain) ==
                   HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_claim(domain, HVMEM_NODE_ANY, ARENA) == HVMEM_OK);
    kind = "crowded.claimed.";
    counting = name_of("alloc", 0);
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_E_CLAIM);
    counting = NULL;
    request.domain = domain;
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    close_heap(&h);
}

/* ---- banks ------------------------------------------------------------------------------------- */

/* An arena of many banks, the last of which alone has anything free. */
static void many_banks(hvmem_u32 flags)
{
    struct hvmem_request request = block(0);
    struct heap h;
    hvmem_mfn mfn;
    hvmem_u64 frames = ARENA / CROWD;
    unsigned char *tables;
    unsigned i;

    start(&h, flags, LARGEST);
    tables = take_memory(&h, ARENA * 16);
    for (i = 0; i < CROWD; i++) {
        struct hvmem_bank bank = {
            .size = sizeof bank, .base = FIRST + i * frames, .frames = frames - (i < CROWD - 1)};
        hvmem_size bytes;

        FIGURE_REQUIRE(hvmem_bank_size(h.heap, &bank, &bytes) == HVMEM_OK);
        bytes = (bytes + 4095) / 4096 * 4096;
        FIGURE_REQUIRE(hvmem_bank_add(h.heap, &bank, tables, bytes) == HVMEM_OK);
        tables += bytes;
    }
    FIGURE_REQUIRE(hvmem_smp_enable(h.heap) == HVMEM_OK);
    kind = "crowded.banks.";
    if (!(flags & HVMEM_CONFIG_NO_CPU_CACHE)) {
        COUNTED("crowded.banks.refill", hvmem_alloc_order(h.heap, 0, &mfn));
        COUNTED("crowded.banks.refill", hvmem_alloc_order(h.heap, 5, &mfn));
        COUNTED("crowded.banks.refill", hvmem_alloc_order(h.heap, 9, &mfn));
        close_heap(&h);
        return;
    }
    COUNTED(name_of("alloc", 0), hvmem_alloc_order(h.heap, 0, &mfn));
    COUNTED(name_of("alloc", 11), hvmem_alloc_order(h.heap, 11, &mfn));
    request.lo = FIRST + ARENA - 4;
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    request.lo = 0;
    request.colour_shift = LARGEST;
    request.colour_mask = 1;
    request.colour = 1;
    counting = name_of("alloc", 0);
    FIGURE_REQUIRE(hvmem_alloc(h.heap, &request, &mfn) == HVMEM_E_NOMEM);
    counting = NULL;
    for (i = 0; i < CROWD - 1; i++)
        (void)hvmem_reserve(h.heap, FIRST + i * frames, frames - 1);
    COUNTED(name_of("alloc", 0), hvmem_alloc_order(h.heap, 0, &mfn));
    request = run_of(frames / 2 + 1);
    COUNTED("crowded.banks.alloc_run", hvmem_alloc(h.heap, &request, &mfn));
    request = run_of(frames / 4 + 1);
    COUNTED("crowded.banks.alloc_run", hvmem_alloc(h.heap, &request, &mfn));
    close_heap(&h);
}

int main(void)
{
    unsigned i;

    for (i = 0; i < 4; i++)
        section_empty();
    colours();
    windows();
    noflush();
    mixed(HVMEM_CONFIG_NO_CPU_CACHE);
    mixed(0);
    runs();
    claimed();
    many_banks(HVMEM_CONFIG_NO_CPU_CACHE);
    many_banks(0);
    return 0;
}
