/* SPDX-License-Identifier: BSD-2-Clause */
/* Random numbers of the benchmarks: SplitMix64 from a fixed seed, so that counts repeat exactly. */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include <stdint.h>

struct bench_rng {
    uint64_t state;
};

static inline uint64_t bench_random(struct bench_rng *rng)
{
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound < 2^32; the bias of the multiplication is below 2^-32. */
static inline uint32_t bench_below(struct bench_rng *rng, uint32_t bound)
{
    return (uint32_t)(((bench_random(rng) >> 32) * bound) >> 32);
}

/* A random order of the n words. */
static inline void bench_shuffle(struct bench_rng *rng, uint64_t *words, uint32_t n)
{
    uint32_t i;

    for (i = n; i > 1; i--) {
        uint32_t j = bench_below(rng, i);
        uint64_t word = words[i - 1];

        words[i - 1] = words[j];
        words[j] = word;
    }
}

#endif
