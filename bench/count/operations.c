/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-count-operations: instructions of single operations through the public interface, each in a
 * state that is the same in every run. Sections are named KIND.OPERATION; a section is one operation,
 * and the worst of its name is the figure. See bench/count/run.
 */
#include "bench/common/figure.h"
#include "bench/common/pages.h"
#include "bench/common/pool.h"
#include "bench/common/random.h"
#include "bench/count/section.h"

#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/populate.h>

#include <string.h>

#define FRAMES   ((hvmem_u64)1 << 20)
#define LARGEST  18u
#define REPEATS  4u
#define BULK     10000u
#define ROTATION 2048u /* frames that age in the cache of a CPU */

#define MIX_ORDERS    10u
#define MIX_STEPS     10000u
#define MIX_WARMUP    8u
#define RING          256u /* frames under way between two CPUs */
#define REMOTE_WARMUP 64u  /* by then the first has lost its token often enough */

static struct hvmem_heap *heap_of(struct bench_opened *opened)
{
    return opened->pool.state;
}

/* The pair is hot after the first; the sections after it count. */
#define COUNT_PAIR(heap, order, name)                                                              \
    do {                                                                                           \
        hvmem_mfn pair_mfn = 0;                                                                    \
        unsigned pair_round;                                                                       \
        for (pair_round = 0; pair_round <= REPEATS; pair_round++) {                                \
            hvmem_status taken, given;                                                             \
            if (pair_round > 0)                                                                    \
                section_begin();                                                                   \
            taken = hvmem_alloc_order(heap, order, &pair_mfn);                                     \
            given = hvmem_free(heap, pair_mfn, order);                                             \
            if (pair_round > 0)                                                                    \
                section_end(name);                                                                 \
            FIGURE_REQUIRE(taken == HVMEM_OK && given == HVMEM_OK);                                \
        }                                                                                          \
    } while (0)

/* Through the caches, as hosts use it. */
static void cached_pairs(void)
{
    struct bench_opened opened;

    bench_open(&opened, &bench_hvmem, FRAMES, 0);
    COUNT_PAIR(heap_of(&opened), 0, "pair0");
    COUNT_PAIR(heap_of(&opened), 9, "pair9");
    COUNT_PAIR(heap_of(&opened), LARGEST, "pair18");
    bench_close(&opened);
}

/* A rotation of a domain's frames, its one flush and the loop in it. */
static void owned_rotation(const struct bench_body *body, const char *name)
{
    struct bench_opened opened;
    unsigned i;

    bench_open(&opened, body, FRAMES, 0);
    for (i = 0; i < REPEATS; i++) {
        hvmem_u64 refused;

        if (i > 1)
            section_begin();
        refused = body->pair(&opened.pool, 0, ROTATION);
        if (i > 1)
            section_end(name);
        FIGURE_REQUIRE(refused == 0);
    }
    bench_close(&opened);
}

/*
 * Past the caches. Order 0 pairs with and without the split down from, and merge up to, the largest
 * order: with a spare frame free next to it the pair is the cheapest there is.
 */
static void bare_pairs(void)
{
    struct bench_opened opened;
    hvmem_mfn even, odd;

    bench_open(&opened, &bench_hvmem, FRAMES, BENCH_NO_CPU_CACHE);
    COUNT_PAIR(heap_of(&opened), LARGEST, "bare.pair18");
    COUNT_PAIR(heap_of(&opened), 0, "bare.pair0_split_merge");
    FIGURE_REQUIRE(hvmem_alloc_order(heap_of(&opened), 0, &even) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(heap_of(&opened), 0, &odd) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(heap_of(&opened), odd, 0) == HVMEM_OK);
    COUNT_PAIR(heap_of(&opened), 0, "bare.pair0");
    bench_close(&opened);
}

/* The worst split and merge, apart: an allocation that splits an order-18 block, a free that ends in
 * one. */
static void worst_split_merge(void)
{
    struct bench_opened opened;
    struct hvmem_heap *heap;
    hvmem_mfn mfn = 0;
    unsigned round;

    bench_open(&opened, &bench_hvmem, FRAMES, BENCH_NO_CPU_CACHE);
    heap = heap_of(&opened);
    for (round = 0; round < REPEATS; round++) {
        hvmem_status taken, given;

        section_begin();
        taken = hvmem_alloc_order(heap, 0, &mfn);
        section_end("bare.alloc0_split");
        section_begin();
        given = hvmem_free(heap, mfn, 0);
        section_end("bare.free0_merge");
        FIGURE_REQUIRE(taken == HVMEM_OK && given == HVMEM_OK);
    }
    bench_close(&opened);
}

/* BULK allocations in a row, frees in order and in random order: a section each for all of them. */
static void bulk(void)
{
    static hvmem_u64 frames[BULK];
    struct bench_rng rng = {21};
    struct bench_opened opened;
    hvmem_u64 refused;
    unsigned turn;

    bench_open(&opened, &bench_hvmem, FRAMES, 0);
    for (turn = 0; turn < 2; turn++) {
        section_begin();
        refused = bench_hvmem.fill(&opened.pool, 0, frames, BULK);
        section_end("bulk.alloc_10000");
        if (turn > 0)
            bench_shuffle(&rng, frames, BULK);
        section_begin();
        refused += bench_hvmem.release(&opened.pool, 0, frames, BULK);
        if (turn > 0)
            section_end("bulk.free_random_10000");
        else
            section_end("bulk.free_10000");
        FIGURE_REQUIRE(refused == 0);
    }
    bench_close(&opened);
}

/*
 * Blocks of random orders 0-9 come and go at half load, as in the figure mix.ns: a section for MIX_STEPS
 * of them, the loop included. The steps before fill half of the slots.
 */
static void mix(void)
{
    static struct bench_slot slots[FRAMES * MIX_ORDERS / 1023u];
    static hvmem_u32 steps[MIX_STEPS];
    const hvmem_u32 count = sizeof slots / sizeof slots[0];
    struct bench_rng rng = {2};
    struct bench_opened opened;
    unsigned round, i;

    bench_open(&opened, &bench_hvmem, FRAMES, 0);
    for (i = 0; i < count; i++)
        slots[i].order = BENCH_EMPTY;
    for (round = 0; round < MIX_WARMUP + REPEATS; round++) {
        hvmem_u64 refused;

        for (i = 0; i < MIX_STEPS; i++)
            steps[i] = BENCH_STEP(bench_below(&rng, count), bench_below(&rng, MIX_ORDERS));
        if (round >= MIX_WARMUP)
            section_begin();
        refused = bench_hvmem.mix(&opened.pool, slots, steps, MIX_STEPS);
        if (round >= MIX_WARMUP)
            section_end("mix_10000");
        FIGURE_REQUIRE(refused == 0);
    }
    bench_close(&opened);
}

static void as_cpu(hvmem_cpu cpu)
{
    bench_leave();
    bench_enter(cpu);
}

/* Frames that one CPU allocates and another frees, as in the figure remote0.ns, RING under way. */
static void remote(void)
{
    static hvmem_u64 frames[RING];
    struct bench_opened opened;
    hvmem_u64 refused = 0;
    unsigned round;

    bench_open(&opened, &bench_hvmem, FRAMES, 0);
    for (round = 0; round < REMOTE_WARMUP + 4 * REPEATS; round++) {
        if (round >= REMOTE_WARMUP)
            section_begin();
        refused += bench_hvmem.fill(&opened.pool, 0, frames, RING);
        if (round >= REMOTE_WARMUP)
            section_end("remote0.alloc_256");
        as_cpu(1);
        if (round >= REMOTE_WARMUP)
            section_begin();
        refused += bench_hvmem.release(&opened.pool, 0, frames, RING);
        if (round >= REMOTE_WARMUP)
            section_end("remote0.free_256");
        as_cpu(0);
    }
    FIGURE_REQUIRE(refused == 0);
    bench_close(&opened);
}

static void refusals(void)
{
    struct bench_opened opened;
    hvmem_u64 frames[FRAMES >> LARGEST];
    hvmem_mfn mfn;
    hvmem_status status;

    bench_open(&opened, &bench_hvmem, FRAMES, 0);
    FIGURE_REQUIRE(bench_hvmem.fill(&opened.pool, LARGEST, frames, FRAMES >> LARGEST) == 0);
    (void)hvmem_alloc_order(heap_of(&opened), 0, &mfn);
    section_begin();
    status = hvmem_alloc_order(heap_of(&opened), 0, &mfn);
    section_end("refuse0");
    FIGURE_REQUIRE(status == HVMEM_E_NOMEM);
    section_begin();
    status = hvmem_free(heap_of(&opened), frames[0] + 1, 0);
    section_end("free_interior");
    FIGURE_REQUIRE(status == HVMEM_E_INTERIOR);
    FIGURE_REQUIRE(bench_hvmem.release(&opened.pool, LARGEST, frames, FRAMES >> LARGEST) == 0);
    bench_close(&opened);
}

/* Making a heap of 16 GiB ready: 16 arenas; the table holds 0xA5. */
static void start(void)
{
    struct bench_opened opened = {.bytes = 0};
    struct bench_setup setup = {.frames = (hvmem_u64)1 << 22, .cpus = 1};
    int status;

    opened.bytes = bench_hvmem.bytes(&setup);
    opened.memory = bench_pages_get(opened.bytes, NULL);
    FIGURE_REQUIRE(opened.memory != NULL);
    section_begin();
    status = bench_hvmem.open(&opened.pool, &setup, opened.memory, opened.bytes);
    section_end("start_16gib");
    FIGURE_REQUIRE(status == 0);
    bench_close(&opened);
}

/* ---- populate ------------------------------------------------------------------------------- */

static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx;
    (void)gfn;
    (void)mfn;
    (void)order;
    return HVMEM_OK;
}

/* One slice for a domain that is being built. */
static hvmem_status one_slice(struct hvmem_domain *domain, hvmem_u64 slice, hvmem_u32 order)
{
    static struct hvmem_extent extents[HVMEM_POPULATE_SLICE];
    struct hvmem_populate request = {.size = sizeof request,
                                     .extents = extents,
                                     .count = HVMEM_POPULATE_SLICE,
                                     .node = HVMEM_NODE_ANY};
    struct hvmem_cursor cursor;
    hvmem_status status;
    hvmem_u64 i;

    memset(&cursor, 0, sizeof cursor);
    for (i = 0; i < HVMEM_POPULATE_SLICE; i++)
        extents[i] = (struct hvmem_extent){.gfn = (slice * HVMEM_POPULATE_SLICE + i) << order,
                                           .order = order};
    section_begin();
    status = hvmem_domain_populate(domain, &request, &cursor);
    return status;
}

/*
 * Slices of blocks that a live domain gave back, all that there is: the first flushes for them, which
 * does for the second as well. The call-back that maps is counted with them.
 */
static void populate(hvmem_u32 order, const char *flushed, const char *mature)
{
    static const struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map};
    static hvmem_u64 memory[4096], frames[2 * HVMEM_POPULATE_SLICE];
    struct hvmem_domain_config config = {.size = sizeof config, .id = 2, .limit = ~0ull};
    hvmem_u64 n = 2 * HVMEM_POPULATE_SLICE;
    struct bench_opened opened;
    struct hvmem_domain *domain;
    struct hvmem_heap *heap;
    hvmem_status first, second;

    bench_open(&opened, &bench_hvmem_owned, n << order, 0);
    heap = bench_owned_heap(&opened.pool);
    FIGURE_REQUIRE(hvmem_domain_size(heap) <= sizeof memory);
    FIGURE_REQUIRE(hvmem_domain_create(heap, memory, sizeof memory, &config, &domain) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_attach(domain, &ops, NULL, NULL) == HVMEM_OK);
    FIGURE_REQUIRE(bench_hvmem_owned.fill(&opened.pool, order, frames, n) == 0);
    FIGURE_REQUIRE(bench_hvmem_owned.release(&opened.pool, order, frames, n) == 0);
    FIGURE_REQUIRE(hvmem_drain(heap) == HVMEM_OK);
    first = one_slice(domain, 0, order);
    section_end(flushed);
    second = one_slice(domain, 1, order);
    section_end(mature);
    FIGURE_REQUIRE(first == HVMEM_OK && second == HVMEM_OK);
    bench_close(&opened);
}

int main(void)
{
    unsigned i;

    for (i = 0; i < REPEATS; i++)
        section_empty();
    start();
    cached_pairs();
    owned_rotation(&bench_hvmem_owned, "owned.pairs_2048");
    owned_rotation(&bench_hvmem_owned_inline, "owned.pairs_2048_inline");
    bare_pairs();
    worst_split_merge();
    bulk();
    mix();
    remote();
    refusals();
    populate(0, "populate0_512_owing", "populate0_512");
    populate(9, "populate9_512_owing", "populate9_512");
    return 0;
}
