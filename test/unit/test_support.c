/* SPDX-License-Identifier: BSD-2-Clause */
/* The test harness tested: random numbers repeat, test points reach their hook, threads may check. */
#include "test_main.h"

#include <pthread.h>
#include <string.h>

TEST(streams_repeat_and_differ)
{
    struct test_rng a = test_rng(1);
    struct test_rng b = test_rng(1);
    struct test_rng c = test_rng(2);
    int i;

    for (i = 0; i < 100; i++) {
        uint64_t from_a = test_random(&a);

        CHECK_EQ(test_random(&b), from_a);
        CHECK(test_random(&c) != from_a);
        CHECK(test_below(&a, 7) < 7);
        test_random(&b);
    }
    CHECK_EQ(test_below(&a, 0), 0);
    CHECK_EQ(test_below(&a, 1), 0);
}

static int count_named(const char *name, void *context)
{
    int *count = context;

    *count += strcmp(name, "named") == 0;
    return *count;
}

TEST(points_reach_the_hook)
{
    int count = 0;

    CHECK_EQ(hvmem__test_point("named"), 0);
    test_set_point_hook(count_named, &count);
    CHECK_EQ(hvmem__test_point("other"), 0);
    CHECK_EQ(hvmem__test_point("named"), 1);
}

static void *check_in_thread(void *argument)
{
    uint64_t *done = argument;
    int i;

    for (i = 0; i < 1000; i++)
        CHECK(i >= 0);
    *done = 1;
    return NULL;
}

TEST(checks_from_threads, threads)
{
    pthread_t threads[4];
    uint64_t done[4] = {0};
    int i;

    for (i = 0; i < 4; i++)
        REQUIRE_EQ(pthread_create(&threads[i], NULL, check_in_thread, &done[i]), 0);
    for (i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(done[i], 1);
    }
}
