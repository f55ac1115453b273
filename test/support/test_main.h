/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a test file includes: TEST() to define a case, checks, random numbers, test points.
 *
 * A case is written and listed in one place, on one line that starts with TEST(:
 *
 *     TEST(B03_refuses_double_free)
 *     {
 *         CHECK_EQ(hvmem_free(...), HVMEM_E_...);
 *     }
 *
 *     TEST(two_cpus_pass_frames, threads, slow)      labels follow the name
 *
 * Each case becomes a ctest test of its own (unit.FILE.NAME). Labels with a meaning:
 *   slow     left out by test/quick; may take five times as long
 *   threads  also run under the thread sanitizer
 *   points   needs HVMEM_TEST_POINT; left out of builds without them
 * The program runs all its cases, or one with --case NAME; --list prints them.
 */
#ifndef HVMEM_TEST_MAIN_H
#define HVMEM_TEST_MAIN_H

#include <stddef.h>
#include <stdint.h>

struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

/* Called before main by what TEST() expands to; cases run in the order of the file. */
void test_register(struct test_case *test);

#define TEST(...) TEST_NAMED(__VA_ARGS__, no_label)
#define TEST_NAMED(name, ...)                                                                      \
    static void name(void);                                                                        \
    __attribute__((constructor)) static void test_register_##name(void)                            \
    {                                                                                              \
        static struct test_case test = {#name, name, NULL};                                        \
        test_register(&test);                                                                      \
    }                                                                                              \
    static void name(void)

/*
 * Checks. They may be used from any thread a case started and joins. CHECK notes the failure and
 * goes on (after 20 failures the case ends); REQUIRE ends the case, or the calling thread.
 * The _EQ forms print both values; signed codes are fine.
 */
#define CHECK(condition)   test_check(!!(condition), #condition, __FILE__, __LINE__, 0)
#define REQUIRE(condition) test_check(!!(condition), #condition, __FILE__, __LINE__, 1)
#define CHECK_EQ(got, expected)                                                                    \
    test_check_eq((uint64_t)(got), (uint64_t)(expected), #got " == " #expected, __FILE__,          \
                  __LINE__, 0)
#define REQUIRE_EQ(got, expected)                                                                  \
    test_check_eq((uint64_t)(got), (uint64_t)(expected), #got " == " #expected, __FILE__,          \
                  __LINE__, 1)

/* The result, for a caller that wants to print more, is whether the check held. */
int test_check(int holds, const char *text, const char *file, int line, int fatal);
int test_check_eq(uint64_t got, uint64_t expected, const char *text, const char *file, int line,
                  int fatal);

/* A line of context for failures of this case (printf form); does not fail by itself. */
void test_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Random numbers. The seed of the run is fresh each time, printed when a case fails, and taken from
 * the environment variable HVMEM_SEED if that is set. Each case starts from the same seed, whether
 * it runs alone or after others; a stream number gives threads sequences of their own.
 */
struct test_rng {
    uint64_t state;
};

uint64_t test_seed(void);
struct test_rng test_rng(uint64_t stream);
uint64_t test_random(struct test_rng *rng);
/* Uniform in [0, bound); bound 0 gives 0. */
uint64_t test_below(struct test_rng *rng, uint64_t bound);

/* `rounds`, scaled by HVMEM_TEST_SCALE percent (environment, default 100), at least 1. */
uint64_t test_rounds(uint64_t rounds);

/*
 * Test points. In test builds HVMEM_TEST_POINT(name) in the core calls hvmem__test_point("name"),
 * which calls the hook if one is set. A pause point ignores the result; a fault point fails the step
 * when it is not 0. The hook is cleared before each case and may be called from several threads.
 */
typedef int test_point_hook(const char *name, void *context);
void test_set_point_hook(test_point_hook *hook, void *context);
int hvmem__test_point(const char *name);

#endif
