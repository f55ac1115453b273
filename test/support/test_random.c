/* SPDX-License-Identifier: BSD-2-Clause */
/* Seeds and random numbers of the tests (SplitMix64), and the scale of long loops. */
#include "test_main.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed;

/* Whether the environment has this number; what is none ends the program. */
static int given(const char *name, int base, uint64_t *number)
{
    const char *text = getenv(name);
    char *end;

    if (text == NULL || *text == '\0')
        return 0;
    *number = strtoull(text, &end, base);
    if (*end != '\0') {
        fprintf(stderr, "%s=%s: not a number\n", name, text);
        _Exit(2);
    }
    return 1;
}

static void choose_seed(void)
{
    struct timespec now;

    if (given("HVMEM_SEED", 0, &seed))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t test_seed(void)
{
    pthread_once(&seed_once, choose_seed);
    return seed;
}

struct test_rng test_rng(uint64_t stream)
{
    struct test_rng rng;

    rng.state = test_seed() ^ (stream * 0xd1342543de82ef95u);
    test_random(&rng);
    return rng;
}

uint64_t test_random(struct test_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t test_below(struct test_rng *rng, uint64_t bound)
{
    return bound == 0 ? 0 : test_random(rng) % bound;
}

uint64_t test_rounds(uint64_t rounds)
{
    uint64_t percent = 100, scaled;

    (void)given("HVMEM_TEST_SCALE", 10, &percent);
    scaled = rounds / 100 * percent + rounds % 100 * percent / 100;

    return scaled == 0 ? 1 : scaled;
}
