/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interleaved rounds: sides A, B, ... are measured in turn, A B A B ..., so that whatever else the
 * machine does falls on all of them. A round in which the scheduler took the CPU away is measured
 * again (a bounded number of times): it says nothing of the code.
 */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include "stats.h"

#define BENCH_ROUND_VALUES 4

/* A side: round() makes one round of about a millisecond and writes `values` numbers, NaN where
 * the round must not count. samples[i] gathers the i-th number of every round. */
struct bench_side {
    void (*round)(void *arg, double *values);
    void *arg;
    unsigned values;     /* 1 .. BENCH_ROUND_VALUES */
    unsigned long_round; /* 1: leaves out by itself what was disturbed, and is never repeated */
    struct bench_samples samples[BENCH_ROUND_VALUES];
};

/* Runs the sides in turn for about `seconds` and at most `max_rounds`; longer (four times) while fewer
 * than eleven rounds of a side count. The first round of each warms up and is not kept. */
void bench_rounds(struct bench_side *sides, unsigned count, double seconds, unsigned max_rounds);
void bench_rounds_free(struct bench_side *sides, unsigned count);

/* Monotonic time in nanoseconds. */
double bench_now(void);

/* Involuntary context switches of the calling thread so far. */
long bench_switches(void);

#endif
