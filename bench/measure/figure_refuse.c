/* SPDX-License-Identifier: BSD-2-Clause */
/* Figure of refusal: how long "no memory" takes when 64 GiB are all in use. */
#include "work.h"

#define FRAMES  ((hvmem_u64)1 << 24)
#define LARGEST 18u
#define BLOCKS  (FRAMES >> LARGEST)
#define CALLS   20000u
#define SECONDS 0.7
#define ROUNDS  500u

struct refusal {
    struct bench_opened opened;
    hvmem_u32 order;
};

static void refusal_round(void *arg, double *values)
{
    struct refusal *refusal = arg;
    struct bench_pool *pool = &refusal->opened.pool;
    double start = bench_now();

    FIGURE_REQUIRE(pool->body->refuse(pool, refusal->order, CALLS) == CALLS);
    values[0] = (bench_now() - start) / CALLS;
}

FIGURE(refuse, "refuse.ns", "ns",
       "allocation refused, all of 64 GiB in use: worst of orders 0, 9, 18")
{
    static const hvmem_u32 orders[] = {0, 9, LARGEST};
    struct refusal refusal;
    hvmem_u64 frames[BLOCKS];
    double worst = 0;
    unsigned i;

    bench_open(&refusal.opened, &bench_hvmem, FRAMES, 0);
    FIGURE_REQUIRE(bench_hvmem.fill(&refusal.opened.pool, LARGEST, frames, BLOCKS) == 0);
    for (i = 0; i < 3; i++) {
        struct bench_side side = {.round = refusal_round, .arg = &refusal, .values = 1};
        double ns;

        refusal.order = orders[i];
        bench_rounds(&side, 1, SECONDS, ROUNDS);
        ns = bench_median(&side.samples[0]);
        figure_comment("refuse: order %u %.1f ns", orders[i], ns);
        if (ns > worst)
            worst = ns;
        bench_rounds_free(&side, 1);
    }
    FIGURE_REQUIRE(bench_hvmem.release(&refusal.opened.pool, LARGEST, frames, BLOCKS) == 0);
    bench_close(&refusal.opened);
    return worst;
}
