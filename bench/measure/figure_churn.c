/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of fragmentation: how many free 2 MiB blocks are left at half load of 8 GiB after frames
 * were freed and allocated at random. Counts, not times: they repeat exactly.
 */
#include "work.h"

#include <stdlib.h>

#define FRAMES BENCH_FRAMES_8_GIB
#define TURNS  20u

struct churn {
    struct bench_opened opened;
    hvmem_u64 *frames; /* live ones are frames[0 .. live) */
    hvmem_u64 live;
    struct bench_rng rng;
};

static void churn_open(struct churn *churn, const struct bench_body *body)
{
    bench_open(&churn->opened, body, FRAMES, 0);
    churn->frames = malloc(FRAMES * sizeof *churn->frames);
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

static void turn_over(struct churn *churn)
{
    unsigned turn;

    for (turn = 0; turn < TURNS; turn++) {
        hvmem_u64 tenth = churn->live / 10;

        shrink(churn, tenth);
        grow(churn, tenth);
    }
}

static double kept(const struct bench_body *body, int hard)
{
    struct churn churn;
    double found;

    churn_open(&churn, body);
    grow(&churn, hard ? FRAMES : FRAMES / 2);
    if (hard)
        shrink(&churn, FRAMES / 2);
    turn_over(&churn);
    body->drain(&churn.opened.pool);
    found = (double)body->free_superpages(&churn.opened.pool);
    churn_close(&churn);
    return found;
}

FIGURE(churn_blocks, "churn.blocks_kept", "blocks",
       "free 2 MiB blocks of 2,048 at best: half of 8 GiB filled in order, 20 x a random 10 % anew")
{
    figure_comment("churn: textbook buddy keeps %.0f", kept(&bench_reference, 0));
    return kept(&bench_hvmem, 0);
}

FIGURE(churn_hard, "churn_hard.ratio", "ratio",
       "all filled, a random half freed, same churn: free 2 MiB blocks over the textbook buddy's")
{
    double ours = kept(&bench_hvmem, 1);
    double theirs = kept(&bench_reference, 1);

    figure_comment("churn_hard: free 2 MiB blocks: hvmem %.0f, textbook %.0f (0 counts as 1)", ours,
                   theirs);
    return ours / (theirs < 1 ? 1 : theirs);
}
