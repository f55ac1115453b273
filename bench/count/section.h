/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting instructions: a program brackets what it wants counted, valgrind's callgrind counts it and
 * writes one profile a section, bench/count/run adds the profiles up by name. Without valgrind the
 * brackets are a few instructions that do nothing.
 */
#ifndef BENCH_COUNT_SECTION_H
#define BENCH_COUNT_SECTION_H

#include <valgrind/callgrind.h>

/* callgrind is started with --collect-atstart=no. Sections do not nest. */
static inline void section_begin(void)
{
    CALLGRIND_TOGGLE_COLLECT;
}

/* The instructions since section_begin() belong to `name`. */
#define section_end(name)                                                                          \
    do {                                                                                           \
        CALLGRIND_TOGGLE_COLLECT;                                                                  \
        CALLGRIND_DUMP_STATS_AT(name);                                                             \
    } while (0)

/* What the brackets themselves count; run subtracts it from every section. */
static inline void section_empty(void)
{
    section_begin();
    section_end("empty");
}

#endif
