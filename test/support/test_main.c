/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * main() of every test program: runs the registered cases through CUnit, all or one by name, and
 * carries their checks to it. CUnit itself is not thread-safe: a mutex stands in front of it.
 */
#include "test_main.h"

#include <CUnit/Basic.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAILURES_BEFORE_STOP 20

static struct test_case *first_case;
static struct test_case **last_link = &first_case;

static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t case_thread;
static int case_failures;
static int case_checked; /* some check ran: 0 or 1, atomic */

void test_register(struct test_case *test)
{
    *last_link = test;
    last_link = &test->next;
}

/* Ends the case; in a thread that the case started only that thread, for CUnit's jump is main's. */
static void stop_case(void)
{
    if (!pthread_equal(pthread_self(), case_thread))
        pthread_exit(NULL);
    CU_assertImplementation(CU_FALSE, 0, "case ended here", "", "", CU_TRUE);
}

static void fail(const char *text, const char *file, int line, int fatal)
{
    int failures;

    pthread_mutex_lock(&failure_lock);
    CU_assertImplementation(CU_FALSE, (unsigned int)line, text, file, "", CU_FALSE);
    failures = ++case_failures;
    pthread_mutex_unlock(&failure_lock);
    if (fatal || failures >= FAILURES_BEFORE_STOP)
        stop_case();
}

/* Reads before it writes, so that threads which check all the time share the line. */
static void note_checked(void)
{
    if (!__atomic_load_n(&case_checked, __ATOMIC_RELAXED))
        __atomic_store_n(&case_checked, 1, __ATOMIC_RELAXED);
}

int test_check(int holds, const char *text, const char *file, int line, int fatal)
{
    note_checked();
    if (!holds)
        fail(text, file, line, fatal);
    return holds;
}

int test_check_eq(uint64_t got, uint64_t expected, const char *text, const char *file, int line,
                  int fatal)
{
    char message[512];

    note_checked();
    if (got == expected)
        return 1;
    snprintf(message, sizeof message, "%s: got %lld (0x%llx), expected %lld (0x%llx)", text,
             (long long)got, (unsigned long long)got, (long long)expected,
             (unsigned long long)expected);
    fail(message, file, line, fatal);
    return 0;
}

void test_note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    printf("  note: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

static void before_case(void)
{
    case_failures = 0;
    __atomic_store_n(&case_checked, 0, __ATOMIC_RELAXED);
    case_thread = pthread_self();
    test_set_point_hook(NULL, NULL);
}

/* A case that checks nothing cannot fail, so it does. */
static void after_case(void)
{
    if (!__atomic_load_n(&case_checked, __ATOMIC_RELAXED))
        fail("the case made no check", __FILE__, __LINE__, 0);
}

static int list_cases(void)
{
    const struct test_case *test;

    for (test = first_case; test != NULL; test = test->next)
        printf("%s\n", test->name);
    return 0;
}

/* Registers `only`, or every case if it is NULL, with CUnit; returns how many. */
static int add_cases(CU_pSuite suite, const char *only)
{
    const struct test_case *test;
    int added = 0;

    for (test = first_case; test != NULL; test = test->next) {
        if (only != NULL && strcmp(only, test->name) != 0)
            continue;
        if (CU_add_test(suite, test->name, test->run) == NULL)
            return -1;
        added++;
    }
    return added;
}

static int run_cases(const char *program, const char *only)
{
    CU_pSuite suite;
    unsigned int failed;

    if (CU_initialize_registry() != CUE_SUCCESS)
        return 2;
    suite = CU_add_suite_with_setup_and_teardown(program, NULL, NULL, before_case, after_case);
    if (suite == NULL || add_cases(suite, only) <= 0) {
        fprintf(stderr, "%s: no case %s; --list prints them\n", program, only ? only : "at all");
        CU_cleanup_registry();
        return 2;
    }
    CU_basic_set_mode(CU_BRM_NORMAL);
    CU_basic_run_tests();
    failed = CU_get_number_of_tests_failed() + CU_get_number_of_suites_failed();
    if (failed != 0)
        printf("seed 0x%llx: repeat with HVMEM_SEED=0x%llx %s%s%s\n",
               (unsigned long long)test_seed(), (unsigned long long)test_seed(), program,
               only ? " --case " : "", only ? only : "");
    CU_cleanup_registry();
    return failed != 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_cases();
    if (argc == 3 && strcmp(argv[1], "--case") == 0)
        return run_cases(argv[0], argv[2]);
    if (argc == 1)
        return run_cases(argv[0], NULL);
    fprintf(stderr, "usage: %s [--list | --case NAME]\n", argv[0]);
    return 2;
}
