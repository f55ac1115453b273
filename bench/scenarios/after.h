/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The same scenario with this library: the real heap and populate, host and back-end of a model with
 * 128 CPUs. Time is what the library's own code takes on this machine, plus what the cost model says for
 * what other CPUs have a part in. The oracle looks at each frame that is mapped: every CPU has flushed
 * since its last translation was removed.
 */
#ifndef BENCH_SCENARIO_AFTER_H
#define BENCH_SCENARIO_AFTER_H

#include "scenario.h"

#include <hvmem/populate.h>

struct after_config {
    const struct hvmem_sim_costs *costs; /* NULL: the table */
    double rate;                         /* switches a second on each CPU but the first */
    unsigned order;                      /* of the extents */
    int live;        /* 1: live domains give back meanwhile; 0: a destroyed one's frames */
    uint64_t frames; /* created; the result is scaled to SCENARIO_FRAMES */
    int scrub;       /* frames that are given back owe a scrub as well */
    int deaf;        /* negative control of the oracle: flushes do nothing */
};

struct after_result {
    double seconds;             /* scaled; without scrubbing */
    double own;                 /* of these, the library's own code, measured */
    double scrub;               /* apart: seconds of zeroing by the model */
    struct hvmem_sim_bill bill; /* events, not scaled */
    double scale;               /* SCENARIO_FRAMES over the frames created */
    uint64_t slices, flushes, asked;
    uint64_t stale; /* frames that were mapped too early */
};

struct after_result after_run(const struct after_config *config);

#endif
