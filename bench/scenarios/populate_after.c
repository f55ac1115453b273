/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of the creation of a domain by this library against the reports' way, both on the model of 128
 * CPUs. The library's own code is measured here, what other CPUs have a part in is priced; scrubbing is
 * apart. A count is of a run whose oracle passed, and whose oracle sees flushes that do nothing.
 */
#include "after.h"

#include "bench/common/figure.h"

#include <math.h>
#include <stddef.h>

#define ORDER0_FRAMES (1u << 19)
#define ORDER9_FRAMES (1u << 22)

static struct after_result creation(double rate, unsigned order, int live)
{
    struct after_config config = {.rate = rate, .order = order, .live = live};
    struct after_result result;

    config.frames = order ? ORDER9_FRAMES : ORDER0_FRAMES;
    result = after_run(&config);
    FIGURE_REQUIRE(result.stale == 0);
    return result;
}

/* The same with flushes that do nothing: the oracle has to say so. */
static void control(void)
{
    struct after_config config = {.live = 1, .frames = 1u << 16, .deaf = 1};

    FIGURE_REQUIRE(after_run(&config).stale != 0);
}

static double compare(double rate, unsigned order, int live)
{
    struct after_result after = creation(rate, order, live);
    double before = scenario_before(NULL, rate, order, live);

    figure_comment("%s, order %u, %6.0f switches/s a CPU: before %.2f s, after %.3f s (own code "
                   "%.3f), %llu slices, %llu flushes, %.1f CPUs asked each: %.1f x",
                   live ? "live domains" : "destroyed one", order, rate, before, after.seconds,
                   after.own, (unsigned long long)after.slices, (unsigned long long)after.flushes,
                   after.flushes ? (double)after.asked / (double)after.flushes : 0,
                   before / after.seconds);
    return before / after.seconds;
}

FIGURE(populate_time_ratio, "populate.time_ratio", "x",
       "create 135 GB of frames that live domains give back: the reports' way over ours, 100k "
       "switches")
{
    struct after_config scrubbed = {.rate = SCENARIO_RATE, .live = 1, .scrub = 1};
    unsigned i;

    scrubbed.frames = ORDER0_FRAMES / 4;
    for (i = 0; i + 1 < SCENARIO_RATES; i++)
        compare(scenario_rate(i), 0, 1);
    compare(SCENARIO_RATE, 0, 0);
    compare(SCENARIO_RATE, 9, 0);
    compare(SCENARIO_RATE, 9, 1);
    figure_comment("scrubbing, apart: %.1f s", after_run(&scrubbed).scrub);
    return compare(SCENARIO_RATE, 0, 1);
}

/* The ratio with a table of other costs; the events of our run are priced anew. */
static double priced(const struct after_result *after, const struct hvmem_sim_costs *costs)
{
    double events = (double)hvmem_sim_bill_price(&after->bill, costs) * 1e-12 * after->scale;

    return scenario_before(costs, SCENARIO_RATE, 0, 1) / (after->own + events);
}

FIGURE(populate_time_ratio_worst, "populate.time_ratio_worst", "x",
       "the same, each cost of the model halved and doubled, in turn and all at once: the least")
{
    struct after_result after = creation(SCENARIO_RATE, 0, 1);
    struct hvmem_sim_costs table, corner;
    double worst = INFINITY, together;
    unsigned event, way;

    hvmem_sim_costs_default(&table);
    corner = table;
    for (event = 0; event < HVMEM_SIM_EVENTS; event++) {
        double ratio[2];

        for (way = 0; way < 2; way++) {
            struct hvmem_sim_costs costs = table;

            hvmem_sim_costs_scale(&costs, (enum hvmem_sim_event)event, way ? 2 : 1, way ? 1 : 2);
            ratio[way] = priced(&after, &costs);
            worst = fmin(worst, ratio[way]);
        }
        if (fabs(ratio[0] - ratio[1]) < 0.01)
            continue;
        hvmem_sim_costs_scale(&corner, (enum hvmem_sim_event)event, ratio[1] < ratio[0] ? 2 : 1,
                              ratio[1] < ratio[0] ? 1 : 2);
        figure_comment("%-10s halved %.1f x, doubled %.1f x",
                       hvmem_sim_cost_name((enum hvmem_sim_event)event), ratio[0], ratio[1]);
    }
    together = priced(&after, &corner);
    figure_comment("one at a time %.1f x; all at once, each in its worse direction, %.1f x", worst,
                   together);
    return fmin(worst, together);
}

FIGURE(populate_flush_events_after, "populate.flush_events_after", "flushes",
       "filtered flushes of the creation of 2 GiB whose frames live domains give back meanwhile")
{
    struct after_result live = creation(SCENARIO_RATE, 0, 1), gone = creation(0, 0, 0);

    control();
    figure_comment("%llu slices; CPUs asked %llu; frames of a destroyed domain: %llu flush",
                   (unsigned long long)live.slices, (unsigned long long)live.asked,
                   (unsigned long long)gone.flushes);
    FIGURE_REQUIRE(live.flushes >= 1 && gone.flushes == 1); /* owed, so not none */
    return (double)live.flushes;
}

FIGURE(populate_slices, "populate.slices", "slices", "slices of that creation, 512 extents each")
{
    return (double)creation(SCENARIO_RATE, 0, 1).slices;
}
