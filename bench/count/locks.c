/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-locks: instructions between the acquisition and the release of library locks, over states
 * chosen to be bad: splits and merges through every order, dirt that differs between halves, arenas of
 * many small banks, random programs. Each hold is a section of its own, named after the state and the
 * call; the greatest of a name is the figure. See bench/count/run.
 */
#include "bench/common/random.h"
#include "bench/count/locked.h"
#include "bench/count/section.h"

#include <hvmem/backend.h>

#define BURST    400u /* frames through the caches */
#define PROGRAMS 150u /* steps of a random program */

/* ---- alloc and free ------------------------------------------------------------------------- */

/* From one whole block down to each order, and back up to it. */
static void through_every_order(struct heap *h)
{
    hvmem_u32 order;
    hvmem_mfn mfn = 0;

    for (order = 0; order <= LARGEST; order++) {
        COUNTED(name_of("alloc", order), hvmem_alloc_order(h->heap, order, &mfn));
        COUNTED(name_of("free", order), hvmem_free(h->heap, mfn, order));
    }
}

/*
 * A chain of halves that owe different things: each merge joins clean with dirty, so that both halves
 * must be remembered at every level; then each split tells them apart again.
 */
static void through_unequal_halves(struct heap *h)
{
    hvmem_mfn chain[LARGEST + 1];
    hvmem_u32 order;

    FIGURE_REQUIRE(hvmem_reserve(h->heap, FIRST, ARENA) == HVMEM_OK);
    for (order = 0; order < LARGEST; order++) {
        chain[order] = FIRST + ((hvmem_u64)1 << order);
        COUNTED("free_run", hvmem_free_run(h->heap, chain[order], (hvmem_u64)1 << order));
    }
    /* All but the first frame are free and clean, a block of each order. Dirt comes in from below. */
    for (order = 0; order < LARGEST; order += 2) {
        hvmem_mfn mfn;

        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, order, &mfn) == HVMEM_OK);
        COUNTED(name_of("free", order),
                hvmem_free_owned(h->heap, mfn, order, NULL,
                                 HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE));
    }
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST, 1));
    /* One mixed block is left: reserve and give back parts of it. */
    COUNTED("reserve", hvmem_reserve(h->heap, FIRST, 1));
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST, 1));
    COUNTED("reserve", hvmem_reserve(h->heap, FIRST + ARENA - 1, 1));
    COUNTED("free_run", hvmem_free_run(h->heap, FIRST + ARENA - 1, 1));
}

/*
 * The same through alloc and free: the first frame of a whole arena is allocated, every second of the
 * blocks left by the split is made to owe, and the frame comes back owing as well: each merge joins
 * debts that differ. Then an allocation splits what each level remembers.
 */
static void through_debts(struct heap *h, const char *allocating, const char *freeing)
{
    const hvmem_u32 owed = HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE;
    hvmem_mfn first, mfn;
    hvmem_u32 order;

    FIGURE_REQUIRE(hvmem_alloc_order(h->heap, 0, &first) == HVMEM_OK);
    for (order = 0; order < LARGEST; order += 2) {
        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, order, &mfn) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_free_owned(h->heap, mfn, order, NULL, owed) == HVMEM_OK);
    }
    COUNTED(freeing, hvmem_free_owned(h->heap, first, 0, NULL, HVMEM_OWES_TLB));
    COUNTED(allocating, hvmem_alloc_order(h->heap, 0, &first));
    COUNTED(freeing, hvmem_free(h->heap, first, 0));
}

struct live {
    hvmem_mfn mfn;
    hvmem_u32 order;
};

static void random_program(struct heap *h, hvmem_u64 seed)
{
    static struct live live[PROGRAMS * 9];
    struct bench_rng rng = {seed};
    unsigned count = 0, step;

    for (step = 0; step < PROGRAMS * 9; step++) {
        int counted = step >= PROGRAMS * 8; /* the rest only makes the state */
        hvmem_u32 order = bench_below(&rng, bench_below(&rng, 8) ? 6 : LARGEST);

        if (count == 0 || bench_below(&rng, 100) < 54) {
            counting = counted ? name_of("alloc", order) : NULL;
            if (hvmem_alloc_order(h->heap, order, &live[count].mfn) == HVMEM_OK)
                live[count++].order = order;
        } else {
            unsigned pick = bench_below(&rng, count);
            struct live block = live[pick];
            hvmem_status status;

            live[pick] = live[--count];
            counting = counted ? name_of("free", block.order) : NULL;
            status = hvmem_free(h->heap, block.mfn, block.order);
            FIGURE_REQUIRE(status == HVMEM_OK);
        }
        counting = NULL;
    }
    while (count-- > 0)
        FIGURE_REQUIRE(hvmem_free(h->heap, live[count].mfn, live[count].order) == HVMEM_OK);
}

/*
 * Two chains of halves of the same orders, so that no set is empty when a block enters it and no buddy
 * is alone in its set when it is taken out: bitmaps at every level. It is made by a window, the only thing
 * that splits a larger block where there are smaller ones; such a request looks through every set before.
 */
static void through_full_sets(struct heap *h, hvmem_u32 owed)
{
    struct hvmem_request request = {
        .size = sizeof request, .node = HVMEM_NODE_ANY, .hi = FIRST + ARENA / 2};
    hvmem_mfn half, other, mfn;
    hvmem_u32 order;

    FIGURE_REQUIRE(hvmem_alloc_order(h->heap, LARGEST - 1, &half) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(h->heap, 0, &other) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(h->heap, half, LARGEST - 1) == HVMEM_OK);
    COUNTED(name_of("alloc", 0), hvmem_alloc(h->heap, &request, &mfn));
    for (order = 0; owed && order < LARGEST - 1; order += 2) {
        hvmem_mfn buddy;

        request.order = order;
        FIGURE_REQUIRE(hvmem_alloc(h->heap, &request, &buddy) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_free_owned(h->heap, buddy, order, NULL, owed) == HVMEM_OK);
    }
    COUNTED(name_of("free", 0), hvmem_free(h->heap, mfn, 0));
    request.order = 0;
    if (owed)
        COUNTED(name_of("alloc", 0), hvmem_alloc(h->heap, &request, &mfn));
    else
        FIGURE_REQUIRE(hvmem_alloc(h->heap, &request, &mfn) == HVMEM_OK);
    COUNTED(name_of("free", 0), hvmem_free(h->heap, other, 0));
    COUNTED(name_of("free", 0), hvmem_free(h->heap, mfn, 0));
}

/* Many free blocks that owe a flush: one that owes none is looked for, then the first is split. */
static void through_owing_blocks(struct heap *h)
{
    enum { ORDER = LARGEST - 4, BLOCKS = 1 << 4 };
    hvmem_mfn block[BLOCKS], first, mfn;
    hvmem_u32 order;
    unsigned i;

    for (i = 0; i < BLOCKS; i++)
        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, ORDER, &block[i]) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(h->heap, block[0], ORDER) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(h->heap, 0, &first) == HVMEM_OK);
    for (order = 0; order < ORDER; order += 2) {
        FIGURE_REQUIRE(hvmem_alloc_order(h->heap, order, &mfn) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_free_owned(h->heap, mfn, order, NULL,
                                        HVMEM_OWES_SCRUB | HVMEM_OWES_TLB) == HVMEM_OK);
    }
    FIGURE_REQUIRE(hvmem_free_owned(h->heap, first, 0, NULL, HVMEM_OWES_TLB) == HVMEM_OK);
    for (i = 2; i < BLOCKS; i += 2)
        FIGURE_REQUIRE(hvmem_free_owned(h->heap, block[i], ORDER, NULL, HVMEM_OWES_TLB) ==
                       HVMEM_OK);
    COUNTED(name_of("alloc", 0), hvmem_alloc_order(h->heap, 0, &mfn));
    FIGURE_REQUIRE(hvmem_free(h->heap, mfn, 0) == HVMEM_OK);
    for (i = 1; i < BLOCKS; i += 2)
        COUNTED(name_of("free", ORDER), hvmem_free(h->heap, block[i], ORDER));
}

static void full_sets(void)
{
    struct heap h;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    kind = "sets.";
    through_full_sets(&h, 0);
    kind = "sets.debts.";
    through_full_sets(&h, HVMEM_OWES_SCRUB | HVMEM_OWES_TLB);
    kind = "owing.";
    through_owing_blocks(&h);
    close_heap(&h);
}

/* Banks whose borders every order crosses, and debts on top of that. */
static void doubling_banks(void)
{
    struct heap h;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, DOUBLING);
    kind = "seams.";
    through_every_order(&h);
    kind = "seams.debts.";
    through_debts(&h, name_of("alloc", 0), name_of("free", 0));
    close_heap(&h);
}

/* The largest blocks there can be. */
static void order_limit(void)
{
    struct heap h;
    hvmem_mfn mfn;
    unsigned turn;

    start(&h, HVMEM_CONFIG_NO_CPU_CACHE, HVMEM_ORDER_LIMIT);
    add_bank(&h, (hvmem_u64)1 << HVMEM_ORDER_LIMIT, (hvmem_u64)1 << HVMEM_ORDER_LIMIT);
    FIGURE_REQUIRE(hvmem_smp_enable(h.heap) == HVMEM_OK);
    kind = "order30.";
    for (turn = 0; turn < 2; turn++) {
        COUNTED(name_of("alloc", 0), hvmem_alloc_order(h.heap, 0, &mfn));
        COUNTED(name_of("free", 0), hvmem_free(h.heap, mfn, 0));
    }
    kind = "order30.debts.";
    through_debts(&h, name_of("alloc", 0), name_of("free", 0));
    close_heap(&h);
}

static void bare(const char *name, unsigned pieces)
{
    struct heap h;

    kind = name;
    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, pieces);
    through_every_order(&h);
    random_program(&h, 11);
    random_program(&h, 12);
    if (pieces == 1) {
        through_unequal_halves(&h);
        kind = "debts.";
        through_debts(&h, name_of("alloc", 0), name_of("free", 0));
    }
    close_heap(&h);
}

/* For a domain that is being built, all debts deferred: whole blocks of each order out of one that owes. */
static void deferred(void)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    struct hvmem_request request = {
        .size = sizeof request, .flags = HVMEM_REQ_DEFER_ALL, .node = HVMEM_NODE_ANY};
    struct heap h;
    hvmem_size bytes;
    hvmem_mfn mfn;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, 1);
    bytes = hvmem_domain_size(h.heap);
    FIGURE_REQUIRE(hvmem_domain_create(h.heap, take_memory(&h, bytes), bytes, &config,
                                       &request.domain) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(h.heap, LARGEST, &mfn) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free_owned(h.heap, mfn, LARGEST, NULL,
                                    HVMEM_OWES_SCRUB | HVMEM_OWES_TLB | HVMEM_OWES_DCACHE) ==
                   HVMEM_OK);
    kind = "deferred.";
    for (request.order = 0; request.order <= LARGEST; request.order++) {
        COUNTED(name_of("alloc", request.order), hvmem_alloc(h.heap, &request, &mfn));
        COUNTED(name_of("free", request.order), hvmem_free(h.heap, mfn, request.order));
    }
    /* While memory is promised to somebody, all of it is counted. */
    FIGURE_REQUIRE(hvmem_domain_claim(request.domain, HVMEM_NODE_ANY, 1) == HVMEM_OK);
    kind = "claims.";
    request.order = 0;
    COUNTED(name_of("alloc", 0), hvmem_alloc(h.heap, &request, &mfn));
    COUNTED(name_of("free", 0), hvmem_free(h.heap, mfn, 0));
    close_heap(&h);
}

/* ---- refill and drain ----------------------------------------------------------------------- */

/* Many blocks through the caches in three orders of freeing, owing and not: batches of every kind. */
static void cached(unsigned pieces, hvmem_u32 order)
{
    static hvmem_mfn frames[BURST];
    struct bench_rng rng = {13};
    unsigned count = order == 0 ? BURST : BURST / 2;
    struct heap h;
    unsigned turn, i;

    open_heap(&h, 0, pieces);
    for (turn = 0; turn < 3; turn++) {
        for (i = 0; i < count; i++)
            COUNTED("refill", hvmem_alloc_order(h.heap, order, &frames[i]));
        if (turn > 0)
            bench_shuffle(&rng, frames, count);
        for (i = 0; i < count; i++) {
            hvmem_u32 owed = turn == 2 && i % 2 ? HVMEM_OWES_SCRUB | HVMEM_OWES_TLB : 0;

            COUNTED("drain", hvmem_free_owned(h.heap, frames[i], order, NULL, owed));
        }
        COUNTED("drain_all", hvmem_drain(h.heap));
    }
    close_heap(&h);
}

/* Lists of blocks past the caches: split down from whole blocks, then back, in order and shuffled. */
static void bulk(unsigned pieces)
{
    static hvmem_mfn blocks[BURST];
    struct bench_rng rng = {14};
    hvmem_u32 order, done;
    struct heap h;

    open_heap(&h, HVMEM_CONFIG_NO_CPU_CACHE, pieces);
    for (order = 0; order < LARGEST; order += 3) {
        unsigned most = (unsigned)(ARENA >> order), n = most < BURST ? most : BURST, turn, i;

        for (turn = 0; turn < 2; turn++) {
            for (i = 0; i < n; i++)
                FIGURE_REQUIRE(hvmem_alloc_order(h.heap, order, &blocks[i]) == HVMEM_OK);
            if (turn > 0)
                bench_shuffle(&rng, blocks, n);
            COUNTED("free_bulk", hvmem_free_bulk(h.heap, blocks, n, order, &done));
            FIGURE_REQUIRE(done == n);
        }
    }
    close_heap(&h);
}

int main(void)
{
    unsigned i;

    for (i = 0; i < 4; i++)
        section_empty();
    bare("", 1);
    bare("seams4.", 4);
    bare("seams16.", PIECES);
    full_sets();
    doubling_banks();
    order_limit();
    deferred();
    cached(1, 0);
    cached(1, 9);
    cached(1, 1);
    cached(1, 6);
    cached(PIECES, 0);
    cached(PIECES, 1);
    cached(PIECES, 6);
    bulk(1);
    return 0;
}
