/* SPDX-License-Identifier: BSD-2-Clause */
/* Two threads begun together; see team.h. */
#define _GNU_SOURCE
#include "team.h"
#include "figure.h"
#include "pool.h"
#include "rounds.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct bench_team {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards round and stop */
    pthread_cond_t wake;
    unsigned round;
    int stop;
    void (*work)(void *arg, unsigned cpu);
    void *arg;
    double helper_ns;    /* valid once `done` was seen */
    int ready, go, done; /* atomic */
};

static void spin_until(const int *flag)
{
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static double timed(struct bench_team *team, unsigned cpu)
{
    long switches = bench_switches();
    double start = bench_now();
    double end;

    team->work(team->arg, cpu);
    end = bench_now();
    return bench_switches() == switches ? end - start : NAN;
}

/* 1 when there is a round to run, 0 when it is over. */
static int next_round(struct bench_team *team, unsigned *seen)
{
    int more;

    pthread_mutex_lock(&team->mutex);
    while (team->round == *seen && !team->stop)
        pthread_cond_wait(&team->wake, &team->mutex);
    *seen = team->round;
    more = !team->stop;
    pthread_mutex_unlock(&team->mutex);
    return more;
}

static void *helper(void *arg)
{
    struct bench_team *team = arg;
    unsigned seen = 0;

    bench_enter(1);
    while (next_round(team, &seen)) {
        __atomic_store_n(&team->ready, 1, __ATOMIC_RELEASE);
        spin_until(&team->go);
        team->helper_ns = timed(team, 1);
        __atomic_store_n(&team->done, 1, __ATOMIC_RELEASE);
    }
    bench_leave();
    return NULL;
}

/* Each thread on a CPU of its own; where that is not allowed the scheduler decides. */
static void pin(pthread_t thread, unsigned cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    (void)pthread_setaffinity_np(thread, sizeof set, &set);
}

struct bench_team *bench_team_start(void)
{
    struct bench_team *team = calloc(1, sizeof *team);

    FIGURE_REQUIRE(team != NULL);
    bench_start_host();
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        figure_fail("two threads at a time need two CPUs");
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->wake, NULL);
    FIGURE_REQUIRE(pthread_create(&team->thread, NULL, helper, team) == 0);
    pin(pthread_self(), 0);
    pin(team->thread, 1);
    return team;
}

void bench_team_stop(struct bench_team *team)
{
    cpu_set_t all;
    unsigned cpu;

    pthread_mutex_lock(&team->mutex);
    team->stop = 1;
    pthread_cond_signal(&team->wake);
    pthread_mutex_unlock(&team->mutex);
    pthread_join(team->thread, NULL);
    CPU_ZERO(&all);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
        CPU_SET(cpu, &all);
    (void)pthread_setaffinity_np(pthread_self(), sizeof all, &all);
    free(team);
}

double bench_team_run(struct bench_team *team, void (*work)(void *arg, unsigned cpu), void *arg)
{
    double own;

    team->work = work;
    team->arg = arg;
    team->ready = team->go = team->done = 0;
    pthread_mutex_lock(&team->mutex);
    team->round++;
    pthread_cond_signal(&team->wake);
    pthread_mutex_unlock(&team->mutex);
    spin_until(&team->ready);
    __atomic_store_n(&team->go, 1, __ATOMIC_RELEASE);
    own = timed(team, 0);
    spin_until(&team->done);
    return (own + team->helper_ns) / 2;
}
