/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scenario of the reports: a domain of 135 GB is created on one of 128 CPUs while the others keep
 * switching spaces. Times of events are the cost model's (backends/sim/cost.h); scrubbing is apart.
 */
#ifndef BENCH_SCENARIO_H
#define BENCH_SCENARIO_H

#include "bench/reference/populate_before.h"

#define SCENARIO_CPUS   128u
#define SCENARIO_FRAMES 35.4e6   /* of 4 KiB: 135 GB */
#define SCENARIO_RATE   100000.0 /* switches a second on each CPU at which the reports are met */
#define SCENARIO_RATES  4u

/* The rates looked at: 0, 1k, 10k, 100k. */
double scenario_rate(unsigned i);

/*
 * Seconds of the reports' way, in extents of 2^order frames. live: the frames come from domains that
 * go on running. costs NULL: the table.
 */
double scenario_before(const struct hvmem_sim_costs *costs, double rate, unsigned order, int live);

#endif
