/* SPDX-License-Identifier: BSD-2-Clause */
/* What the figures of the scenario share; see scenario.h. */
#include "scenario.h"

double scenario_rate(unsigned i)
{
    static const double rates[SCENARIO_RATES] = {0, 1000, 10000, 100000};

    return rates[i];
}

double scenario_before(const struct hvmem_sim_costs *costs, double rate, unsigned order, int live)
{
    struct hvmem_sim_costs table;
    struct before before;

    hvmem_sim_costs_default(&table);
    before_init(&before, costs ? costs : &table, SCENARIO_CPUS, rate);
    return before_seconds(&before, order, live, SCENARIO_FRAMES / (double)(1u << order), 20000);
}
