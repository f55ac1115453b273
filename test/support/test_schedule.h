/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_schedule.h: all interleavings of a few threads, by running them as coroutines of one thread.
 * A thread gives way at test_yield() (each test point can be made one) and in loops that wait, at
 * test_wait(). Every choice is recorded and the next run differs in the last one that can: a depth
 * first search over schedules, with a bound on how often a thread is preempted where it could go on.
 */
#ifndef HVMEM_TEST_SCHEDULE_H
#define HVMEM_TEST_SCHEDULE_H

#include <stdint.h>

#define TEST_SCHEDULE_THREADS 4

struct test_schedule {
    int threads;                         /* 1 .. TEST_SCHEDULE_THREADS */
    int preemptions;                     /* most in one schedule */
    uint64_t max_runs;                   /* stop after so many schedules */
    void (*begin)(void *ctx);            /* before each schedule */
    void (*body)(int thread, void *ctx); /* each thread */
    void (*step)(void *ctx);             /* at each point where threads may change; may be NULL */
    int (*end)(void *ctx);               /* after each; not 0: stop, this schedule is the result */
    void *ctx;
};

/* Results. */
struct test_explored {
    uint64_t runs;
    int complete; /* all schedules within the bound were run */
    int stopped;  /* `end` returned not 0 */
    int deadlock; /* a schedule in which all threads waited */
};

struct test_explored test_explore(const struct test_schedule *schedule);

/* From a thread of the schedule; outside of one they do nothing. */
void test_yield(void);
void test_wait(void);
/* The calling thread's number, -1 outside of a schedule. */
int test_thread(void);

#endif
