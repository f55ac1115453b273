/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of the reports' way to create a domain of 135 GB on 128 CPUs, priced by the cost model. */
#include "scenario.h"

#include "bench/common/figure.h"

#include <stddef.h>

static double minutes(double rate, unsigned order, int live)
{
    return scenario_before(NULL, rate, order, live) / 60;
}

FIGURE(populate_before_minutes, "populate.before_minutes", "min",
       "create 135 GB, order 0, 128 CPUs at 100k switches a second each: the reports' way (model)")
{
    double value = minutes(SCENARIO_RATE, 0, 0);
    unsigned i;

    for (i = 0; i < SCENARIO_RATES; i++) {
        double rate = scenario_rate(i);

        figure_comment(
            "before, %6.0f switches/s a CPU: frames of a destroyed domain %.2f min (order 9"
            " %.3f), of live ones %.2f (order 9 %.3f)",
            rate, minutes(rate, 0, 0), minutes(rate, 9, 0), minutes(rate, 0, 1),
            minutes(rate, 9, 1));
    }
    FIGURE_REQUIRE(value >= 3 && value <= 7); /* the reports: 5 minutes */
    return value;
}
