/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of mixed use: random orders 0-9 at half load of 8 GiB. */
#include "work.h"

#define SECONDS 2.0
#define ROUNDS  2000u

static double mix_ns(struct bench_team *(*start)(void))
{
    struct bench_opened opened;
    struct work_mix mix;
    struct bench_side side = {.round = work_mix_round, .arg = &mix, .values = 1};
    struct bench_team *team;
    double ns;

    bench_open(&opened, &bench_hvmem, BENCH_FRAMES_8_GIB, 0);
    team = start != NULL ? start() : NULL;
    work_mix_init(&mix, &opened, BENCH_FRAMES_8_GIB, team);
    bench_rounds(&side, 1, SECONDS, ROUNDS);
    ns = bench_median(&side.samples[0]);
    figure_comment("mix: %u slots a thread, of %zu rounds %zu undisturbed", mix.slots,
                   side.samples[0].count, bench_samples_valid(&side.samples[0]));
    bench_rounds_free(&side, 1);
    opened.pool.body->drain(&opened.pool);
    figure_comment("mix: free 2 MiB blocks afterwards, live blocks in place: %llu",
                   (unsigned long long)opened.pool.body->free_superpages(&opened.pool));
    work_mix_end(&mix);
    if (team != NULL)
        bench_team_stop(team);
    bench_close(&opened);
    return ns;
}

FIGURE(mix_one, "mix.ns", "ns", "one alloc or free of random orders 0-9 at 50 % live")
{
    return mix_ns(NULL);
}

FIGURE(mix_two, "mix.t2_ns", "ns", "the same for each of two threads at once on one heap")
{
    return mix_ns(bench_team_start);
}
