/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of hot reuse of a domain's frames, which owe a flush each time they are freed: time a pair
 * without what flushes cost, and with each priced by the cost model. How many flushes are needed is
 * counted under the oracle (bench/scenarios/reuse.c); here it is checked to be the same.
 */
#include "backends/sim/cost.h"
#include "work.h"

#define SECONDS  1.5
#define ROUNDS   2000u
#define PAIRS    50000u
#define ROTATION 2048u /* frames that age in the cache of a CPU */
#define CPUS     128u

/* The pair in both forms of the public interface, in interleaved rounds; the figure is the inline one. */
enum form { FORM_INLINE, FORM_CALLS, FORMS };

/* One flush a rotation is owed: fewer would be as wrong as more. */
static void require_rotations(struct work_pair *pair)
{
    hvmem_u64 before;
    double ignored;

    work_pair_round(pair, &ignored);
    before = bench_owned_flushes(&pair->opened->pool);
    pair->n = 100 * ROTATION;
    work_pair_round(pair, &ignored);
    FIGURE_REQUIRE(bench_owned_flushes(&pair->opened->pool) - before == 100);
    pair->n = PAIRS;
}

/* ns a pair; *flushes a pair of the same run. */
static double reuse_pair(double *flushes)
{
    static const struct bench_body *const bodies[FORMS] = {&bench_hvmem_owned_inline,
                                                           &bench_hvmem_owned};
    struct bench_side side[FORMS] = {{0}};
    struct bench_opened opened[FORMS];
    struct work_pair pair[FORMS];
    unsigned i;
    double ns;

    for (i = 0; i < FORMS; i++) {
        bench_open(&opened[i], bodies[i], BENCH_FRAMES_8_GIB, 0);
        pair[i] = (struct work_pair){.opened = &opened[i], .n = PAIRS};
        require_rotations(&pair[i]);
        side[i] = (struct bench_side){.round = work_pair_round, .arg = &pair[i], .values = 1};
    }
    *flushes = 1.0 / ROTATION;
    bench_rounds(side, FORMS, 2 * SECONDS, ROUNDS);
    ns = bench_median(&side[FORM_INLINE].samples[0]);
    figure_comment("reuse: hvmem_alloc_page_owned/hvmem_free_page_owned inline %.2f ns, "
                   "hvmem_alloc_owned/hvmem_free_owned called %.2f ns",
                   ns, bench_median(&side[FORM_CALLS].samples[0]));
    bench_rounds_free(side, FORMS);
    for (i = 0; i < FORMS; i++)
        bench_close(&opened[i]);
    return ns;
}

FIGURE(reuse_pair_ns, "reuse.pair_ns", "ns",
       "order-0 pair of a domain's frames, hot, one thread, inline forms; flushes left out")
{
    double flushes, ns = reuse_pair(&flushes);

    figure_comment("%.2f flushes for 10,000 pairs in the same run", flushes * 10000);
    return ns;
}

FIGURE(reuse_pair_ns_128cpu, "reuse.pair_ns_128cpu", "ns",
       "the same with each flush priced as a shootdown of 128 CPUs by the cost model")
{
    struct hvmem_sim_costs costs;
    struct hvmem_sim_bill bill;
    double flushes, ns = reuse_pair(&flushes), flush_ns;

    hvmem_sim_costs_default(&costs);
    hvmem_sim_bill_clear(&bill);
    hvmem_sim_bill_shootdown(&bill, CPUS - 1);
    flush_ns = (double)hvmem_sim_bill_price(&bill, &costs) / 1000;
    figure_comment("pair %.2f ns; a shootdown of %u others %.0f ns, a flush each %.0f pairs", ns,
                   CPUS - 1, flush_ns, 1 / flushes);
    return ns + flushes * flush_ns;
}
