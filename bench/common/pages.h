/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory for tables and pools of the benchmarks: page-aligned, resident, filled with 0xA5. */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include <stddef.h>

/* Maps `bytes` and writes 0xA5 to all of it; *touch_ms (may be NULL) says how long the first touch
 * took. From 1 GiB on large pages are asked for: a kernel maps such tables so. NULL when the machine
 * has not got the memory. */
void *bench_pages_get(size_t bytes, double *touch_ms);
void bench_pages_put(void *pages, size_t bytes);

#endif
