/* SPDX-License-Identifier: BSD-2-Clause */
/* Seeds and random numbers of the tests (SplitMix64), and the scale of long loops. */
#include "test_main.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static pthread_once_t seed_once = PTHREAD_ONCE_INIT;
static uint64_t seed;

static void choose_seed(void)
{
    const char *given = getenv("HVMEM_SEED");
    struct timespec now;

    if (given != NULL && *given != '\0') {
        seed = strtoull(given, NULL, 0);
        return;
    }
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
    const char *given = getenv("HVMEM_TEST_SCALE");
    uint64_t percent = given != NULL && *given != '\0' ? strtoull(given, NULL, 10) : 100;
    uint64_t scaled = rounds / 100 * percent + rounds % 100 * percent / 100;

    return scaled == 0 ? 1 : scaled;
}
