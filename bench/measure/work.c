/* SPDX-License-Identifier: BSD-2-Clause */
/* Rounds that several figures share; see work.h. */
#include "work.h"

#include <math.h>
#include <stdlib.h>

static void *array(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    FIGURE_REQUIRE(memory != NULL);
    return memory;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static void pair_work(void *arg, unsigned cpu)
{
    struct work_pair *pair = arg;
    struct bench_pool *pool = &pair->opened->pool;

    (void)cpu;
    FIGURE_REQUIRE(pool->body->pair(pool, pair->order, pair->n) == 0);
}

void work_pair_round(void *arg, double *values)
{
    struct work_pair *pair = arg;

    if (pair->team != NULL) {
        values[0] = bench_team_run(pair->team, pair_work, pair) / (double)pair->n;
    } else {
        double start = bench_now();

        pair_work(pair, 0);
        values[0] = (bench_now() - start) / (double)pair->n;
    }
}

/* ---- bulk ----------------------------------------------------------------------------------- */

/* Time of what counts. */
struct tally {
    double ns;
    hvmem_u64 blocks;
    double start;
    long switches;
};

static void stretch_begin(struct tally *tally)
{
    tally->switches = bench_switches();
    tally->start = bench_now();
}

static void stretch_end(struct tally *tally, hvmem_u64 blocks)
{
    double end = bench_now();

    if (bench_switches() != tally->switches)
        return;
    tally->ns += end - tally->start;
    tally->blocks += blocks;
}

static double tally_result(const struct tally *tally, hvmem_u64 n)
{
    return tally->blocks < n / 4 ? NAN : tally->ns / (double)tally->blocks;
}

double work_fill(struct bench_pool *pool, hvmem_u64 *frames, hvmem_u64 n)
{
    struct tally tally = {0};
    hvmem_u64 at, part;

    for (at = 0; at < n; at += part) {
        part = n - at < WORK_STRETCH ? n - at : WORK_STRETCH;
        stretch_begin(&tally);
        FIGURE_REQUIRE(pool->body->fill(pool, 0, frames + at, part) == 0);
        stretch_end(&tally, part);
    }
    return tally_result(&tally, n);
}

double work_release(struct bench_pool *pool, const hvmem_u64 *frames, hvmem_u64 n)
{
    struct tally tally = {0};
    hvmem_u64 at, part;

    for (at = 0; at < n; at += part) {
        part = n - at < WORK_STRETCH ? n - at : WORK_STRETCH;
        stretch_begin(&tally);
        FIGURE_REQUIRE(pool->body->release(pool, 0, frames + at, part) == 0);
        stretch_end(&tally, part);
    }
    return tally_result(&tally, n);
}

void work_bulk_init(struct work_bulk *bulk, struct bench_opened *opened, hvmem_u64 n)
{
    bulk->opened = opened;
    bulk->n = n;
    bulk->frames = array(n, sizeof *bulk->frames);
    bulk->rng.state = 1;
}

void work_bulk_end(struct work_bulk *bulk)
{
    free(bulk->frames);
}

void work_bulk_round(void *arg, double *values)
{
    struct work_bulk *bulk = arg;
    struct bench_pool *pool = &bulk->opened->pool;

    values[0] = work_fill(pool, bulk->frames, bulk->n);
    values[1] = work_release(pool, bulk->frames, bulk->n);
    FIGURE_REQUIRE(pool->body->fill(pool, 0, bulk->frames, bulk->n) == 0);
    bench_shuffle(&bulk->rng, bulk->frames, (uint32_t)bulk->n);
    values[2] = work_release(pool, bulk->frames, bulk->n);
}

/* ---- mix ------------------------------------------------------------------------------------ */

#define MIX_ORDERS 10u
#define MIX_WARMUP 8u /* steps a slot before the first round: half of the slots come to be full */

static void draw_steps(struct work_mix *mix)
{
    unsigned threads = mix->team != NULL ? BENCH_CPUS : 1;
    unsigned t, i;

    for (t = 0; t < threads; t++) {
        for (i = 0; i < WORK_MIX_STEPS; i++)
            mix->steps[t][i] =
                BENCH_STEP(bench_below(&mix->rng, mix->slots), bench_below(&mix->rng, MIX_ORDERS));
    }
}

static void mix_work(void *arg, unsigned cpu)
{
    struct work_mix *mix = arg;
    struct bench_pool *pool = &mix->opened->pool;

    mix->refused[cpu] = pool->body->mix(pool, mix->slot[cpu], mix->steps[cpu], WORK_MIX_STEPS);
}

void work_mix_init(struct work_mix *mix, struct bench_opened *opened, hvmem_u64 frames,
                   struct bench_team *team)
{
    unsigned threads = team != NULL ? BENCH_CPUS : 1;
    double values[BENCH_ROUND_VALUES];
    hvmem_u64 done = 0;
    unsigned t, i;

    mix->opened = opened;
    mix->team = team;
    mix->rng.state = 2;
    /* A block has (2^10 - 1) / 10 frames on average, and half of the slots are full. */
    mix->slots = (hvmem_u32)(frames * MIX_ORDERS / 1023u / threads);
    for (t = 0; t < threads; t++) {
        mix->slot[t] = array(mix->slots, sizeof *mix->slot[t]);
        mix->steps[t] = array(WORK_MIX_STEPS, sizeof *mix->steps[t]);
        for (i = 0; i < mix->slots; i++)
            mix->slot[t][i].order = BENCH_EMPTY;
    }
    for (done = 0; done < (hvmem_u64)MIX_WARMUP * mix->slots; done += WORK_MIX_STEPS)
        work_mix_round(mix, values);
}

/* Frees what is left, so that the allocator can be used again. */
void work_mix_end(struct work_mix *mix)
{
    struct bench_pool *pool = &mix->opened->pool;
    unsigned threads = mix->team != NULL ? BENCH_CPUS : 1;
    unsigned t, i;

    for (t = 0; t < threads; t++) {
        for (i = 0; i < mix->slots; i++) {
            const struct bench_slot *slot = &mix->slot[t][i];

            if (slot->order != BENCH_EMPTY)
                FIGURE_REQUIRE(pool->body->release(pool, slot->order, &slot->frame, 1) == 0);
        }
        free(mix->slot[t]);
        free(mix->steps[t]);
    }
}

void work_mix_round(void *arg, double *values)
{
    struct work_mix *mix = arg;

    draw_steps(mix);
    mix->refused[0] = mix->refused[1] = 0;
    if (mix->team != NULL) {
        values[0] = bench_team_run(mix->team, mix_work, mix) / WORK_MIX_STEPS;
    } else {
        double start = bench_now();

        mix_work(mix, 0);
        values[0] = (bench_now() - start) / WORK_MIX_STEPS;
    }
    FIGURE_REQUIRE(mix->refused[0] + mix->refused[1] == 0);
}
