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

/* ns a pair; *flushes a pair of the same run. */
static double reuse_pair(double *flushes)
{
    struct bench_opened opened;
    struct work_pair pair = {.opened = &opened, .n = PAIRS};
    struct bench_side side = {.round = work_pair_round, .arg = &pair, .values = 1};
    hvmem_u64 before;
    double ns, ignored;

    bench_open(&opened, &bench_hvmem_owned, BENCH_FRAMES_8_GIB, 0);
    work_pair_round(&pair, &ignored);
    before = bench_owned_flushes(&opened.pool);
    pair.n = 100 * ROTATION;
    work_pair_round(&pair, &ignored);
    FIGURE_REQUIRE(bench_owned_flushes(&opened.pool) - before == 100);
    *flushes = 1.0 / ROTATION;
    pair.n = PAIRS;
    bench_rounds(&side, 1, SECONDS, ROUNDS);
    ns = bench_median(&side.samples[0]);
    bench_rounds_free(&side, 1);
    bench_close(&opened);
    return ns;
}

FIGURE(reuse_pair_ns, "reuse.pair_ns", "ns",
       "order-0 pair of a domain's frames, hot, one thread; what flushes cost left out")
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
