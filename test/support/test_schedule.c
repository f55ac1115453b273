/* SPDX-License-Identifier: BSD-2-Clause */
/* Depth-first search over the interleavings of coroutines; see test_schedule.h. */
#include "test_schedule.h"

#include <string.h>
#include <ucontext.h>

#define STACK_BYTES (128 * 1024)
#define MAX_CHOICES 4096
#define MAX_WAITS   10000 /* turns in which nobody got on: a deadlock */

struct choice {
    int taken;
    int of;
};

static struct explorer {
    const struct test_schedule *schedule;
    ucontext_t main;
    ucontext_t contexts[TEST_SCHEDULE_THREADS];
    int done[TEST_SCHEDULE_THREADS];
    struct choice choices[MAX_CHOICES];
    int known; /* choices that are fixed for this run */
    int made;
    int current; /* -1: no schedule runs */
    int preemptions;
    int waits;
    int deadlock;
} explorer = {.current = -1};

static char stacks[TEST_SCHEDULE_THREADS][STACK_BYTES];

int test_thread(void)
{
    return explorer.current;
}

/* One of `of` ways to go on: what the search says, the first for the rest. */
static int choose(int of)
{
    struct choice *choice;

    if (of <= 1 || explorer.made == MAX_CHOICES)
        return 0;
    choice = &explorer.choices[explorer.made];
    if (explorer.made >= explorer.known) {
        choice->taken = 0;
        choice->of = of;
    }
    explorer.made++;
    return choice->taken;
}

/* The k-th thread after `from` that still runs, `from` itself last; -1 if none. */
static int other(int from, int k)
{
    int threads = explorer.schedule->threads;
    int i;

    for (i = 1; i <= threads; i++) {
        int thread = (from + i) % threads;

        if (!explorer.done[thread] && k-- == 0)
            return thread;
    }
    return -1;
}

static int running(void)
{
    int count = 0;
    int i;

    for (i = 0; i < explorer.schedule->threads; i++)
        count += !explorer.done[i];
    return count;
}

static void switch_to(int thread)
{
    int from = explorer.current;

    if (thread == from)
        return;
    explorer.current = thread;
    swapcontext(&explorer.contexts[from], &explorer.contexts[thread]);
}

static void step(void)
{
    if (explorer.schedule->step != NULL)
        explorer.schedule->step(explorer.schedule->ctx);
}

void test_yield(void)
{
    int way;

    if (explorer.current < 0)
        return;
    step();
    explorer.waits = 0;
    if (explorer.preemptions == 0)
        return;
    way = choose(running());
    if (way == 0)
        return;
    explorer.preemptions--;
    switch_to(other(explorer.current, way - 1));
}

/* Give up on the whole run: every thread ends where it is. */
static void abandon(void)
{
    explorer.deadlock = 1;
    explorer.current = -1;
    setcontext(&explorer.main);
}

void test_wait(void)
{
    if (explorer.current < 0)
        return;
    step();
    if (++explorer.waits > MAX_WAITS)
        abandon();
    switch_to(other(explorer.current, 0));
}

static void thread_main(int thread)
{
    int next;

    explorer.schedule->body(thread, explorer.schedule->ctx);
    explorer.done[thread] = 1;
    explorer.waits = 0;
    step();
    if (running() == 0) {
        explorer.current = -1;
        setcontext(&explorer.main);
    }
    next = other(thread, choose(running()));
    explorer.current = next;
    setcontext(&explorer.contexts[next]);
}

/* A thread's context, ready to start. */
static void prepare(int i)
{
    getcontext(&explorer.contexts[i]);
    explorer.contexts[i].uc_stack.ss_sp = stacks[i];
    explorer.contexts[i].uc_stack.ss_size = STACK_BYTES;
    explorer.contexts[i].uc_link = NULL;
    makecontext(&explorer.contexts[i], (void (*)(void))thread_main, 1, i);
}

static void run_once(void)
{
    int i;

    explorer.made = 0;
    explorer.waits = 0;
    explorer.preemptions = explorer.schedule->preemptions;
    memset(explorer.done, 0, sizeof explorer.done);
    for (i = 0; i < explorer.schedule->threads; i++)
        prepare(i);
    explorer.current = choose(explorer.schedule->threads);
    swapcontext(&explorer.main, &explorer.contexts[explorer.current]);
    explorer.current = -1;
}

/* Fix the choices of the next run; 0 if there is none. */
static int advance(void)
{
    int last = explorer.made;

    while (last > 0 && explorer.choices[last - 1].taken + 1 >= explorer.choices[last - 1].of)
        last--;
    if (last == 0)
        return 0;
    explorer.choices[last - 1].taken++;
    explorer.known = last;
    return 1;
}

struct test_explored test_explore(const struct test_schedule *schedule)
{
    struct test_explored result = {0};

    explorer.schedule = schedule;
    explorer.known = 0;
    explorer.deadlock = 0;
    do {
        schedule->begin(schedule->ctx);
        run_once();
        result.runs++;
        result.deadlock = explorer.deadlock;
        result.stopped = schedule->end(schedule->ctx) != 0;
        if (result.stopped || result.deadlock)
            return result;
        if (!advance()) {
            result.complete = 1;
            return result;
        }
    } while (result.runs < schedule->max_runs);
    return result;
}
