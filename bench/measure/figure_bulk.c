/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of bulk use: 100,000 blocks of order 0 by single calls, freed in order or at random. */
#include "work.h"

#define SECONDS 1.5
#define ROUNDS  500u
#define BLOCKS  100000u

static double bulk_ns(unsigned value)
{
    struct bench_opened opened;
    struct work_bulk bulk;
    struct bench_side side = {.round = work_bulk_round, .arg = &bulk, .values = 3, .long_round = 1};
    double ns;

    bench_open(&opened, &bench_hvmem, BENCH_FRAMES_8_GIB, 0);
    work_bulk_init(&bulk, &opened, BLOCKS);
    bench_rounds(&side, 1, SECONDS, ROUNDS);
    ns = bench_median(&side.samples[value]);
    bench_rounds_free(&side, 1);
    work_bulk_end(&bulk);
    bench_close(&opened);
    return ns;
}

FIGURE(bulk0_alloc, "bulk0.alloc_ns", "ns", "one of 100,000 order-0 allocations in a row")
{
    return bulk_ns(0);
}

FIGURE(bulk0_free, "bulk0.free_ns", "ns", "one of 100,000 order-0 frees, in order of allocation")
{
    return bulk_ns(1);
}

FIGURE(bulk0_free_random, "bulk0.free_random_ns", "ns", "one of 100,000 order-0 frees, shuffled")
{
    return bulk_ns(2);
}
