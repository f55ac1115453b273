/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of hot pairs: allocate and free at once, through the public interface. */
#include "work.h"

#define SECONDS 1.5
#define ROUNDS  2000u
#define PAIRS   50000u

static double pair_ns(hvmem_u32 order)
{
    struct bench_opened opened;
    struct work_pair pair = {.opened = &opened, .order = order, .n = PAIRS};
    struct bench_side side = {.round = work_pair_round, .arg = &pair, .values = 1};
    double ns;

    bench_open(&opened, &bench_hvmem, BENCH_FRAMES_8_GIB, 0);
    bench_rounds(&side, 1, SECONDS, ROUNDS);
    ns = bench_median(&side.samples[0]);
    bench_rounds_free(&side, 1);
    bench_close(&opened);
    return ns;
}

/*
 * The order-0 pair in both forms of the public interface, and jemalloc's, in interleaved rounds: the
 * figures take the inline forms of hvmem/fast.h, which are what a hypervisor's hot path would use.
 */
enum form { FORM_INLINE, FORM_CALLS, FORM_MALLOC, FORM_MALLOCX, FORMS };

static void pair0_forms(struct bench_side *side, unsigned forms)
{
    static const struct bench_body *const bodies[FORMS] = {&bench_hvmem_inline, &bench_hvmem,
                                                           &bench_jemalloc, &bench_jemalloc_x};
    struct bench_opened opened[FORMS];
    struct work_pair pair[FORMS];
    unsigned i;

    for (i = 0; i < forms; i++) {
        bench_open(&opened[i], bodies[i], BENCH_FRAMES_8_GIB, 0);
        pair[i] = (struct work_pair){.opened = &opened[i], .n = PAIRS};
        side[i] = (struct bench_side){.round = work_pair_round, .arg = &pair[i], .values = 1};
    }
    bench_rounds(side, forms, 2 * SECONDS, ROUNDS);
    for (i = 0; i < forms; i++)
        bench_close(&opened[i]);
}

FIGURE(pair0_ns, "pair0.ns", "ns", "order-0 alloc + free, hot, one thread, inline forms")
{
    struct bench_side side[FORMS] = {{0}};
    double ns;

    pair0_forms(side, FORM_CALLS + 1);
    ns = bench_median(&side[FORM_INLINE].samples[0]);
    figure_comment("pair0: hvmem_alloc_page/hvmem_free_page inline %.2f ns, hvmem_alloc_order/"
                   "hvmem_free called %.2f ns",
                   ns, bench_median(&side[FORM_CALLS].samples[0]));
    bench_rounds_free(side, FORM_CALLS + 1);
    return ns;
}

FIGURE(pair9_ns, "pair9.ns", "ns", "order-9 alloc + free, hot, one thread")
{
    return pair_ns(9);
}

FIGURE(pair18_ns, "pair18.ns", "ns", "order-18 alloc + free, hot, one thread")
{
    return pair_ns(18);
}

FIGURE(pair0_vs_jemalloc, "pair0.vs_jemalloc", "ratio",
       "order-0 pair: hvmem inline over the faster of jemalloc's malloc/free and mallocx/sdallocx "
       "aligned")
{
    struct bench_side side[FORMS] = {{0}};
    const struct bench_samples *best, *calls = &side[FORM_CALLS].samples[0];
    double ratio;

    pair0_forms(side, FORMS);
    best = &side[FORM_MALLOC].samples[0];
    if (bench_median(&side[FORM_MALLOCX].samples[0]) < bench_median(best))
        best = &side[FORM_MALLOCX].samples[0];
    ratio = bench_median_ratio(&side[FORM_INLINE].samples[0], best);
    figure_comment("pair0: hvmem inline %.2f ns, called %.2f ns (ratio %.2f), jemalloc "
                   "malloc(4096)/free %.2f ns, mallocx/sdallocx aligned %.2f ns",
                   bench_median(&side[FORM_INLINE].samples[0]), bench_median(calls),
                   bench_median_ratio(calls, best), bench_median(&side[FORM_MALLOC].samples[0]),
                   bench_median(&side[FORM_MALLOCX].samples[0]));
    bench_rounds_free(side, FORMS);
    return ratio;
}

FIGURE(pair0_t2, "pair0.t2_over_t1", "ratio",
       "order-0 pair of each of two threads at once, over the pair of one thread alone")
{
    struct bench_opened opened;
    struct bench_team *team;
    struct work_pair pair[2] = {{.opened = &opened, .n = PAIRS}, {.opened = &opened, .n = PAIRS}};
    struct bench_side side[2] = {{.round = work_pair_round, .arg = &pair[0], .values = 1},
                                 {.round = work_pair_round, .arg = &pair[1], .values = 1}};
    double ratio;

    bench_open(&opened, &bench_hvmem, BENCH_FRAMES_8_GIB, 0);
    team = bench_team_start();
    pair[1].team = team;
    bench_rounds(side, 2, 2 * SECONDS, ROUNDS);
    ratio = bench_median_ratio(&side[1].samples[0], &side[0].samples[0]);
    figure_comment("pair0: one thread %.2f ns, each of two %.2f ns, of %zu rounds %zu undisturbed",
                   bench_median(&side[0].samples[0]), bench_median(&side[1].samples[0]),
                   side[1].samples[0].count, bench_samples_valid(&side[1].samples[0]));
    bench_team_stop(team);
    bench_rounds_free(side, 2);
    bench_close(&opened);
    return ratio;
}
