/* SPDX-License-Identifier: BSD-2-Clause */
/* Time, and rounds of several sides in turn; see rounds.h. */
#define _GNU_SOURCE
#include "rounds.h"

#include <math.h>
#include <stddef.h>
#include <sys/resource.h>
#include <time.h>

#define LEAST_ROUNDS 5u
#define ENOUGH       11u /* undisturbed rounds of every side, for which more time is spent */
#define PATIENCE     4   /* times the seconds asked for, at most */
#define TRIES        4u

double bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

long bench_switches(void)
{
    struct rusage usage;

    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

/* On a machine that is never quiet the last try stands: a median copes with some of those. */
static void one_round(struct bench_side *side, double *values)
{
    unsigned attempt;

    for (attempt = 0; attempt < TRIES; attempt++) {
        long before = bench_switches();

        side->round(side->arg, values);
        if (side->long_round || (bench_switches() == before && !isnan(values[0])))
            return;
    }
}

/* Rounds that count of the side that has fewest. */
static size_t fewest(const struct bench_side *sides, unsigned count)
{
    size_t least = (size_t)-1;
    unsigned i;

    for (i = 0; i < count; i++) {
        size_t valid = bench_samples_valid(&sides[i].samples[0]);

        least = valid < least ? valid : least;
    }
    return least;
}

void bench_rounds(struct bench_side *sides, unsigned count, double seconds, unsigned max_rounds)
{
    double values[BENCH_ROUND_VALUES];
    double start = bench_now();
    unsigned round, i, v;

    for (i = 0; i < count; i++)
        sides[i].round(sides[i].arg, values);
    for (round = 0; round < max_rounds; round++) {
        double spent = (bench_now() - start) / 1e9;

        if (round >= LEAST_ROUNDS && spent > seconds &&
            (fewest(sides, count) >= ENOUGH || spent > PATIENCE * seconds))
            break;
        for (i = 0; i < count; i++) {
            one_round(&sides[i], values);
            for (v = 0; v < sides[i].values; v++)
                bench_samples_add(&sides[i].samples[v], values[v]);
        }
    }
}

void bench_rounds_free(struct bench_side *sides, unsigned count)
{
    unsigned i, v;

    for (i = 0; i < count; i++) {
        for (v = 0; v < BENCH_ROUND_VALUES; v++)
            bench_samples_free(&sides[i].samples[v]);
    }
}
