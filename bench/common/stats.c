/* SPDX-License-Identifier: BSD-2-Clause */
/* Order statistics over samples; see stats.h. */
#include "stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_samples_add(struct bench_samples *samples, double value)
{
    if (samples->count == samples->room) {
        size_t room = samples->room == 0 ? 64 : 2 * samples->room;
        double *grown = realloc(samples->values, room * sizeof *grown);

        if (grown == NULL) {
            fprintf(stderr, "bench: no memory for samples\n");
            exit(1);
        }
        samples->values = grown;
        samples->room = room;
    }
    samples->values[samples->count++] = value;
}

void bench_samples_free(struct bench_samples *samples)
{
    free(samples->values);
    memset(samples, 0, sizeof *samples);
}

size_t bench_samples_valid(const struct bench_samples *samples)
{
    size_t valid = 0;
    size_t i;

    for (i = 0; i < samples->count; i++)
        valid += !isnan(samples->values[i]);
    return valid;
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

static struct bench_samples sorted_copy(const struct bench_samples *samples)
{
    struct bench_samples copy = {0};
    size_t i;

    for (i = 0; i < samples->count; i++) {
        if (!isnan(samples->values[i]))
            bench_samples_add(&copy, samples->values[i]);
    }
    if (copy.count > 1)
        qsort(copy.values, copy.count, sizeof *copy.values, compare);
    return copy;
}

double bench_quantile(const struct bench_samples *samples, double share)
{
    struct bench_samples sorted = sorted_copy(samples);
    double result = NAN;

    if (sorted.count > 0) {
        double place = share * (double)(sorted.count - 1);
        size_t below = (size_t)place;
        size_t above = below + 1 < sorted.count ? below + 1 : below;
        double part = place - (double)below;

        result = sorted.values[below] * (1 - part) + sorted.values[above] * part;
    }
    bench_samples_free(&sorted);
    return result;
}

double bench_median(const struct bench_samples *samples)
{
    return bench_quantile(samples, 0.5);
}

double bench_median_ratio(const struct bench_samples *above, const struct bench_samples *below)
{
    size_t rounds = above->count < below->count ? above->count : below->count;
    struct bench_samples ratios = {0};
    double result;
    size_t i;

    for (i = 0; i < rounds; i++)
        bench_samples_add(&ratios, above->values[i] / below->values[i]);
    result = bench_median(&ratios);
    bench_samples_free(&ratios);
    return result;
}
