/* SPDX-License-Identifier: BSD-2-Clause */
/* Google Benchmark for programs in C: a list of loops, each registered under its name. */
#ifndef BENCH_GBENCH_SHIM_H
#define BENCH_GBENCH_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shim_case {
    const char *name;
    /* begin() before and end() after the measurement; run() makes `batch` operations, repeatedly. */
    void (*begin)(struct shim_case *self);
    void (*run)(struct shim_case *self);
    void (*end)(struct shim_case *self);
    unsigned batch;
    void *arg;
};

/* Runs the cases that the command line (--benchmark_...) selects. The exit status for main(). */
int shim_main(int argc, char **argv, struct shim_case *cases, size_t count);

#ifdef __cplusplus
}
#endif

#endif
