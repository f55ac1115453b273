/* SPDX-License-Identifier: BSD-2-Clause */
/* The one file in C++: hands loops written in C to Google Benchmark; see shim.h. */
#include "shim.h"

#include <benchmark/benchmark.h>

static void measure(benchmark::State &state, shim_case *self)
{
    self->begin(self);
    while (state.KeepRunningBatch(self->batch))
        self->run(self);
    state.SetItemsProcessed(state.iterations());
    self->end(self);
}

extern "C" int shim_main(int argc, char **argv, shim_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++)
        benchmark::RegisterBenchmark(cases[i].name, measure, &cases[i]);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return 2;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
