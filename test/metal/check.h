/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks of the metal programs: a failed one prints where and what, the program goes on and fails at
 * its end. A file that includes this has its own count; the files of one program share one where all of them
 * define CHECK_SHARED before, and one of them defines the two counters.
 */
#ifndef TEST_METAL_CHECK_H
#define TEST_METAL_CHECK_H

#include "hosts/metal/common/metal.h"

#define CHECK_PRINT_MAX 20u /* a check in a loop must not print for ever */

#ifdef CHECK_SHARED
extern unsigned CHECK_SHARED(made), CHECK_SHARED(failed);
#    define checks_made   CHECK_SHARED(made)
#    define checks_failed CHECK_SHARED(failed)
#else
static unsigned checks_made, checks_failed;
#endif

static inline int check_one(int holds, const char *what, const char *file, int line, uint64_t a,
                            uint64_t b)
{
    __atomic_fetch_add(&checks_made, 1, __ATOMIC_RELAXED);
    if (!holds && __atomic_fetch_add(&checks_failed, 1, __ATOMIC_RELAXED) < CHECK_PRINT_MAX)
        metal_printf("%s:%d: %s does not hold (0x%llx, 0x%llx)\n", file, line, what,
                     (unsigned long long)a, (unsigned long long)b);
    return holds;
}

static inline int check_equal(uint64_t a, uint64_t b, const char *what, const char *file, int line)
{
    return check_one(a == b, what, file, line, a, b);
}

#define CHECK(condition) check_one((condition) ? 1 : 0, #condition, __FILE__, __LINE__, 0, 0)
#define CHECK_EQUAL(a, b)                                                                          \
    check_equal((uint64_t)(a), (uint64_t)(b), #a " == " #b, __FILE__, __LINE__)

/* The program's result. */
static inline int check_result(void)
{
    metal_printf("%u checks, %u failed\n", checks_made, checks_failed);
    return checks_failed == 0 && checks_made > 0 ? 0 : 1;
}

#endif
