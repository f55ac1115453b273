/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes which instructions a test has judged, for test/gates/coverage. */
#ifndef TEST_COVERAGE_H
#define TEST_COVERAGE_H

#include <hvmem/record.h>

/*
 * Every maintenance instruction in `log` was judged right. With the environment variable
 * HVMEM_COVERAGE set, each is appended once to the file it names, as a line "record ARCH NAME".
 * One thread at a time.
 */
void coverage_judged_arm64(const struct hvmem_record *log);
void coverage_judged_x86(const struct hvmem_record *log);

#endif
