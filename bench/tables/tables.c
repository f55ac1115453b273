/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bench-tables: allocators beside each other, a column each, over the same loops; rounds of all of
 * them are interleaved. Without arguments: hvmem, jemalloc, glibc, the textbook buddy. With
 * --candidates: the two free-set candidates, bare behind one lock and behind a cache a CPU, with the
 * textbook buddy and hvmem for scale; docs/decisions/001-free-set.md has its figures from here.
 */
#include "bench/measure/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES  BENCH_FRAMES_8_GIB
#define BLOCKS  100000u
#define PAIRS   5000u
#define FEW     100u /* of 1 GiB: a malloc goes to the kernel for each */
#define SECONDS 5.0
#define ROUNDS  300u
#define TURNS   20u
#define UNKNOWN (-1.0)

#define MOST_BODIES 6u
static const struct bench_body *const field[] = {
    &bench_hvmem, &bench_jemalloc, &bench_jemalloc_x, &bench_glibc, &bench_reference,
};
static const struct bench_body *const candidates[] = {
    &bench_lists,         &bench_bitmaps,   &bench_lists_front,
    &bench_bitmaps_front, &bench_reference, &bench_hvmem,
};
static const struct bench_body *const *bodies = field;
static unsigned body_count = sizeof field / sizeof field[0];

static void row(const char *what, const double *values)
{
    unsigned i;

    printf("%-28s", what);
    for (i = 0; i < body_count; i++) {
        if (values[i] == UNKNOWN)
            printf(" %20s", "-");
        else
            printf(" %20.1f", values[i]);
    }
    printf("\n");
}

/* ---- times ---------------------------------------------------------------------------------- */

static void columns(const char *what, const struct bench_side *sides, unsigned value)
{
    double values[MOST_BODIES];
    unsigned i;

    for (i = 0; i < body_count; i++)
        values[i] = bench_median(&sides[i].samples[value]);
    row(what, values);
}

static void pairs(hvmem_u32 order)
{
    struct bench_opened opened[MOST_BODIES];
    struct work_pair work[MOST_BODIES];
    struct bench_side sides[MOST_BODIES] = {{0}};
    char what[64];
    unsigned i;

    for (i = 0; i < body_count; i++) {
        bench_open(&opened[i], bodies[i], FRAMES, 0);
        work[i] = (struct work_pair){.opened = &opened[i], .order = order};
        work[i].n = order < 18 ? PAIRS : FEW;
        sides[i] = (struct bench_side){.round = work_pair_round, .arg = &work[i], .values = 1};
    }
    bench_rounds(sides, body_count, SECONDS / 4, ROUNDS);
    snprintf(what, sizeof what, "pair, order %u, ns", order);
    columns(what, sides, 0);
    bench_rounds_free(sides, body_count);
    for (i = 0; i < body_count; i++)
        bench_close(&opened[i]);
}

static void bulk(void)
{
    struct bench_opened opened[MOST_BODIES];
    struct work_bulk work[MOST_BODIES];
    struct bench_side sides[MOST_BODIES] = {{0}};
    unsigned i;

    for (i = 0; i < body_count; i++) {
        bench_open(&opened[i], bodies[i], FRAMES, 0);
        work_bulk_init(&work[i], &opened[i], BLOCKS);
        sides[i] = (struct bench_side){
            .round = work_bulk_round, .arg = &work[i], .values = 3, .long_round = 1};
    }
    bench_rounds(sides, body_count, SECONDS, ROUNDS);
    columns("bulk 100k alloc, ns", sides, 0);
    columns("bulk 100k free, ns", sides, 1);
    columns("bulk 100k free at random, ns", sides, 2);
    bench_rounds_free(sides, body_count);
    for (i = 0; i < body_count; i++) {
        work_bulk_end(&work[i]);
        bench_close(&opened[i]);
    }
}

static void mix(void)
{
    struct bench_opened opened[MOST_BODIES];
    struct work_mix work[MOST_BODIES];
    struct bench_side sides[MOST_BODIES] = {{0}};
    unsigned i;

    for (i = 0; i < body_count; i++) {
        bench_open(&opened[i], bodies[i], FRAMES, 0);
        work_mix_init(&work[i], &opened[i], FRAMES, NULL);
        sides[i] = (struct bench_side){.round = work_mix_round, .arg = &work[i], .values = 1};
    }
    bench_rounds(sides, body_count, SECONDS, ROUNDS);
    columns("mix 0-9 at half load, ns", sides, 0);
    bench_rounds_free(sides, body_count);
    for (i = 0; i < body_count; i++) {
        work_mix_end(&work[i]);
        bench_close(&opened[i]);
    }
}

/* ---- churn ---------------------------------------------------------------------------------- */

/* Whether the allocator manages frames by tables of its own, so that blocks can be counted. */
static int has_tables(const struct bench_body *body)
{
    struct bench_setup setup = {.frames = FRAMES, .cpus = BENCH_CPUS};

    return body->bytes(&setup) > 0;
}

struct churn {
    struct bench_opened opened;
    hvmem_u64 *frames;
    struct bench_rng rng;
    double alloc_ns, free_ns, kept;
};

/* Frees a random tenth and allocates as many, in two timed halves; the table is cold to the caches. */
static void turn(struct churn *churn, hvmem_u64 live, double *free_ns, double *alloc_ns)
{
    struct bench_pool *pool = &churn->opened.pool;
    hvmem_u64 tenth = live / 10;
    hvmem_u64 i;

    for (i = 0; i < tenth; i++) {
        hvmem_u64 pick = bench_below(&churn->rng, (uint32_t)(live - i));
        hvmem_u64 frame = churn->frames[pick];

        churn->frames[pick] = churn->frames[live - i - 1];
        churn->frames[live - i - 1] = frame;
    }
    *free_ns = work_release(pool, churn->frames + live - tenth, tenth);
    *alloc_ns = work_fill(pool, churn->frames + live - tenth, tenth);
}

static void churn_one(struct churn *churn, const struct bench_body *body)
{
    struct bench_samples allocs = {0}, frees = {0};
    double free_ns, alloc_ns;
    unsigned i;

    bench_open(&churn->opened, body, FRAMES, 0);
    churn->frames = malloc(FRAMES * sizeof *churn->frames);
    FIGURE_REQUIRE(churn->frames != NULL);
    churn->rng.state = 3;
    FIGURE_REQUIRE(body->fill(&churn->opened.pool, 0, churn->frames, FRAMES / 2) == 0);
    for (i = 0; i < TURNS; i++) {
        turn(churn, FRAMES / 2, &free_ns, &alloc_ns);
        bench_samples_add(&frees, free_ns);
        bench_samples_add(&allocs, alloc_ns);
    }
    churn->free_ns = bench_median(&frees);
    churn->alloc_ns = bench_median(&allocs);
    body->drain(&churn->opened.pool);
    churn->kept = (double)body->free_superpages(&churn->opened.pool);
    bench_samples_free(&frees);
    bench_samples_free(&allocs);
    free(churn->frames);
    bench_close(&churn->opened);
}

static void churns(void)
{
    double alloc_ns[MOST_BODIES], free_ns[MOST_BODIES], kept[MOST_BODIES];
    unsigned i;

    for (i = 0; i < body_count; i++) {
        struct churn churn;

        alloc_ns[i] = free_ns[i] = kept[i] = UNKNOWN;
        if (!has_tables(bodies[i]))
            continue;
        churn_one(&churn, bodies[i]);
        alloc_ns[i] = churn.alloc_ns;
        free_ns[i] = churn.free_ns;
        kept[i] = churn.kept;
    }
    row("churn 8 GiB, alloc, ns", alloc_ns);
    row("churn 8 GiB, free, ns", free_ns);
    row("free 2 MiB blocks of 2048", kept);
}

static void bytes_a_frame(void)
{
    double values[MOST_BODIES];
    unsigned i;

    for (i = 0; i < body_count; i++) {
        struct bench_setup setup = {.frames = FRAMES, .cpus = BENCH_CPUS};

        /* hvmem's query is an upper bound here; the figure frame_bytes is exact. */
        values[i] =
            has_tables(bodies[i]) ? (double)bodies[i]->bytes(&setup) / (double)FRAMES : UNKNOWN;
    }
    row("bytes a frame", values);
}

int main(int argc, char **argv)
{
    unsigned i;

    if (argc == 2 && strcmp(argv[1], "--candidates") == 0) {
        bodies = candidates;
        body_count = sizeof candidates / sizeof candidates[0];
    } else if (argc != 1) {
        fprintf(stderr, "usage: %s [--candidates]\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%-28s", "");
    for (i = 0; i < body_count; i++)
        printf(" %20s", bodies[i]->name);
    printf("\n");
    pairs(0);
    pairs(9);
    pairs(18);
    bulk();
    mix();
    churns();
    bytes_a_frame();
    return 0;
}
