/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the statistics that figures are made of. */
#include "bench/common/rounds.h"
#include "bench/common/stats.h"
#include "test_main.h"

#include <math.h>

static struct bench_samples samples_of(const double *values, size_t count)
{
    struct bench_samples samples = {0};
    size_t i;

    for (i = 0; i < count; i++)
        bench_samples_add(&samples, values[i]);
    return samples;
}

TEST(median_of_odd_and_even_counts)
{
    static const double odd[] = {9, 1, 5};
    static const double even[] = {4, 1, 3, 2};
    struct bench_samples a = samples_of(odd, 3);
    struct bench_samples b = samples_of(even, 4);

    CHECK(bench_median(&a) == 5);
    CHECK(bench_median(&b) == 2.5);
    CHECK(bench_quantile(&b, 0) == 1);
    CHECK(bench_quantile(&b, 1) == 4);
    bench_samples_free(&a);
    bench_samples_free(&b);
}

TEST(rounds_that_do_not_count_are_left_out)
{
    static const double values[] = {NAN, 2, NAN, 4, 100};
    static const double nothing[] = {NAN, NAN};
    struct bench_samples a = samples_of(values, 5);
    struct bench_samples b = samples_of(nothing, 2);

    CHECK_EQ(bench_samples_valid(&a), 3);
    CHECK(bench_median(&a) == 4);
    CHECK_EQ(bench_samples_valid(&b), 0);
    CHECK(isnan(bench_median(&b)));
    bench_samples_free(&a);
    bench_samples_free(&b);
}

/* A machine that is ten times slower for some rounds changes neither ratio nor its median. */
TEST(ratio_is_of_rounds_not_of_medians)
{
    static const double above[] = {2, 20, 20, 2, NAN};
    static const double below[] = {4, 40, 40, 4, 1};
    struct bench_samples a = samples_of(above, 5);
    struct bench_samples b = samples_of(below, 5);

    CHECK(bench_median_ratio(&a, &b) == 0.5);
    bench_samples_free(&a);
    bench_samples_free(&b);
}

TEST(samples_grow_and_keep_their_order)
{
    struct bench_samples samples = {0};
    int i;

    for (i = 0; i < 1000; i++)
        bench_samples_add(&samples, i);
    CHECK_EQ(samples.count, 1000);
    for (i = 0; i < 1000; i++)
        CHECK(samples.values[i] == i);
    CHECK(bench_median(&samples) == 499.5);
    bench_samples_free(&samples);
    CHECK_EQ(samples.count, 0);
}

struct turns {
    char seen[64];
    unsigned count;
};

struct turn {
    struct turns *turns;
    char letter;
};

static void turn_round(void *arg, double *values)
{
    struct turn *turn = arg;

    if (turn->turns->count < sizeof turn->turns->seen)
        turn->turns->seen[turn->turns->count++] = turn->letter;
    values[0] = turn->letter;
    values[1] = NAN;
}

/* Sides alternate; the warm-up is run and not kept. A disturbed round may be repeated at once, which
 * the check allows: equal letters in a row count as one. */
TEST(rounds_alternate_between_sides)
{
    struct turns turns = {{0}, 0};
    struct turn a = {&turns, 'a'};
    struct turn b = {&turns, 'b'};
    struct bench_side side[2] = {{.round = turn_round, .arg = &a, .values = 2},
                                 {.round = turn_round, .arg = &b, .values = 1}};
    char letter = 'a';
    unsigned i, changes = 0;

    bench_rounds(side, 2, 0, 5);
    for (i = 0; i < turns.count; i++) {
        if (i > 0 && turns.seen[i] != turns.seen[i - 1])
            changes++;
        if (i == 0)
            CHECK_EQ(turns.seen[i], letter);
    }
    CHECK_EQ(changes, 2 * 6 - 1);
    CHECK_EQ(side[0].samples[0].count, 5);
    CHECK_EQ(side[1].samples[0].count, 5);
    CHECK(bench_median(&side[0].samples[0]) == 'a');
    CHECK_EQ(bench_samples_valid(&side[0].samples[1]), 0);
    bench_rounds_free(side, 2);
}
