/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Medians of samples, and the growing array that samples are kept in. A sample that is not a number
 * stands for a round that did not count: the statistics leave it out.
 */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>

/* Samples in the order they were taken; zero it before use. */
struct bench_samples {
    double *values;
    size_t count;
    size_t room;
};

/* Stops the program when memory runs out. */
void bench_samples_add(struct bench_samples *samples, double value);
void bench_samples_free(struct bench_samples *samples);

/* Samples that are numbers. */
size_t bench_samples_valid(const struct bench_samples *samples);

/* The value below which `share` (0 to 1) of the samples lie, by linear interpolation between the
 * two neighbours; NaN without a valid sample. */
double bench_quantile(const struct bench_samples *samples, double share);
double bench_median(const struct bench_samples *samples);

/* Median of above[i] / below[i] over the rounds in which both counted. Paired, so that a machine
 * that slows down for a while slows both sides of the same ratio. */
double bench_median_ratio(const struct bench_samples *above, const struct bench_samples *below);

#endif
