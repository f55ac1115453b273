/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of fragmentation: how many large free blocks are left at half load after frames were freed
 * and allocated at random. Counts, not times: they repeat exactly.
 */
#include "work.h"

#include <stdlib.h>

#define FRAMES      BENCH_FRAMES_8_GIB
#define TURNS       20u
#define LARGE       9u /* order of a 2 MiB block */
#define COMPARED    4u /* order at which the hard plans compare */
#define LONG_FRAMES ((hvmem_u64)1 << 18)
#define LONG_TURNS  80u

/* How the heap is loaded and for how long it is stirred. */
struct plan {
    hvmem_u64 frames;
    unsigned turns;
    int hard; /* all filled and a random half freed; else half filled, in order */
};

struct churn {
    struct bench_opened opened;
    hvmem_u64 *frames; /* live ones are frames[0 .. live) */
    hvmem_u64 live;
    struct bench_rng rng;
};

static void churn_open(struct churn *churn, const struct bench_body *body, hvmem_u64 frames)
{
    bench_open(&churn->opened, body, frames, 0);
    churn->frames = malloc(frames * sizeof *churn->frames);
    FIGURE_REQUIRE(churn->frames != NULL);
    churn->live = 0;
    churn->rng.state = 3;
}

static void churn_close(struct churn *churn)
{
    free(churn->frames);
    bench_close(&churn->opened);
}

static void grow(struct churn *churn, hvmem_u64 n)
{
    struct bench_pool *pool = &churn->opened.pool;

    FIGURE_REQUIRE(pool->body->fill(pool, 0, churn->frames + churn->live, n) == 0);
    churn->live += n;
}

/* Frees n live frames chosen at random. */
static void shrink(struct churn *churn, hvmem_u64 n)
{
    struct bench_pool *pool = &churn->opened.pool;
    hvmem_u64 i;

    for (i = 0; i < n; i++) {
        hvmem_u64 last = churn->live - 1;
        hvmem_u64 pick = bench_below(&churn->rng, (uint32_t)churn->live);
        hvmem_u64 frame = churn->frames[pick];

        churn->frames[pick] = churn->frames[last];
        churn->frames[last] = frame;
        churn->live = last;
        FIGURE_REQUIRE(pool->body->release(pool, 0, &frame, 1) == 0);
    }
}

static void turn_over(struct churn *churn, unsigned turns)
{
    unsigned turn;

    for (turn = 0; turn < turns; turn++) {
        hvmem_u64 tenth = churn->live / 10;

        shrink(churn, tenth);
        grow(churn, tenth);
    }
}

/* Blocks of `order` that the free memory holds after the plan. */
static void stir(const struct bench_body *body, const struct plan *plan, double *blocks)
{
    struct churn churn;
    uint32_t order;

    churn_open(&churn, body, plan->frames);
    grow(&churn, plan->hard ? plan->frames : plan->frames / 2);
    if (plan->hard)
        shrink(&churn, plan->frames / 2);
    turn_over(&churn, plan->turns);
    body->drain(&churn.opened.pool);
    for (order = 0; order <= LARGE; order++)
        blocks[order] = (double)body->free_blocks(&churn.opened.pool, order);
    churn_close(&churn);
}

static double kept(const struct bench_body *body, const struct plan *plan)
{
    double blocks[LARGE + 1];

    stir(body, plan, blocks);
    return blocks[LARGE];
}

FIGURE(churn_blocks, "churn.blocks_kept", "blocks",
       "free 2 MiB blocks of 2,048 at best: half of 8 GiB filled in order, 20 x a random 10 % anew")
{
    static const struct plan plan = {FRAMES, TURNS, 0};

    figure_comment("churn: textbook buddy keeps %.0f", kept(&bench_reference, &plan));
    return kept(&bench_hvmem, &plan);
}

/*
 * At half load in random places no allocator that moves nothing has 2 MiB free: both would count 0. What
 * an allocator can do shows at smaller blocks, of which the textbook buddy still has some.
 */
static double ratio(const char *name, const struct plan *plan)
{
    double ours[LARGE + 1], theirs[LARGE + 1];
    uint32_t order;

    stir(&bench_hvmem, plan, ours);
    stir(&bench_reference, plan, theirs);
    for (order = 2; order <= LARGE; order++)
        figure_comment("%s: free blocks of order %u: hvmem %.0f, textbook %.0f", name, order,
                       ours[order], theirs[order]);
    FIGURE_REQUIRE(theirs[COMPARED] > 0);
    return ours[COMPARED] / theirs[COMPARED];
}

FIGURE(
    churn_hard, "churn_hard.ratio", "ratio",
    "all of 8 GiB filled, a random half freed, same churn: free 64 KiB blocks over the textbook's")
{
    static const struct plan plan = {FRAMES, TURNS, 1};

    return ratio("churn_hard", &plan);
}

FIGURE(churn_long, "churn_long.ratio", "ratio",
       "churn_hard over 1 GiB for 80 turns: no trace of the first filling is left")
{
    static const struct plan plan = {LONG_FRAMES, LONG_TURNS, 1};

    return ratio("churn_long", &plan);
}
