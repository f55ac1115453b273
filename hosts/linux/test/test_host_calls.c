/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads as CPUs: numbers, calls between them with and without signals, bounds, barriers, window. */
#define _GNU_SOURCE
#include "test_main.h"

#include "hvmem_host_linux.h"
#include "hvmem_linux.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CPUS 4u

static struct hvmem_linux_host *make_host(uint32_t cpus, uint32_t flags, uint32_t timeout_ms)
{
    struct hvmem_linux_host_config config = {
        .cpus = cpus, .flags = flags, .call_timeout_ms = timeout_ms};
    struct hvmem_linux_host *host = NULL;

    REQUIRE_EQ(hvmem_linux_host_create(&config, &host), HVMEM_OK);
    return host;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static hvmem_status call(struct hvmem_linux_host *host, uint64_t set, void (*fn)(void *), void *arg)
{
    struct hvmem_cpuset cpus = {.words = &set, .cpus = 64};

    return hvmem_linux_ops(host)->call_cpus(host, &cpus, fn, arg);
}

struct shared {
    struct hvmem_linux_host *host;
    _Atomic uint32_t ran[CPUS];
    _Atomic uint32_t seen, stop;
    uint32_t rounds;
    uint64_t took_ms;
};

static void mark_cpu(void *arg)
{
    struct shared *shared = arg;

    atomic_fetch_add(&shared->ran[hvmem_linux__this_cpu], 1);
}

static void note_number(void *arg, hvmem_cpu cpu)
{
    struct shared *shared = arg;

    CHECK_EQ(hvmem_linux__this_cpu, cpu);
    CHECK_EQ(HVMEM_HOST_THIS_CPU(shared->host), cpu);
    CHECK_EQ(hvmem_linux_ops(shared->host)->this_cpu(shared->host), cpu);
    CHECK_EQ(hvmem_linux_enter(shared->host, cpu), HVMEM_E_BUSY);
    atomic_fetch_add(&shared->ran[cpu], 1);
}

TEST(each_thread_is_one_cpu, threads)
{
    struct shared shared = {.host = make_host(CPUS, HVMEM_LINUX_PIN, 0)};
    uint32_t i;

    CHECK_EQ(hvmem_linux_run(shared.host, CPUS, note_number, &shared), HVMEM_OK);
    for (i = 0; i < CPUS; i++)
        CHECK_EQ(atomic_load(&shared.ran[i]), 1);
    CHECK_EQ(hvmem_linux_enter(shared.host, 3), HVMEM_OK);
    CHECK_EQ(hvmem_linux__this_cpu, 3);
    hvmem_linux_leave();
    CHECK_EQ(hvmem_linux__this_cpu, 0);
    CHECK_EQ(hvmem_linux_enter(shared.host, CPUS), HVMEM_E_CPU);
    CHECK_EQ(hvmem_linux_run(shared.host, CPUS + 1, note_number, &shared), HVMEM_E_CPU);
    CHECK_EQ(hvmem_linux_run(shared.host, 0, note_number, &shared), HVMEM_E_CPU);
    hvmem_linux_host_destroy(shared.host);
}

static void call_others(void *arg, hvmem_cpu cpu)
{
    struct shared *shared = arg;
    uint64_t all = (1u << CPUS) - 1;
    uint32_t i;

    for (i = 0; i < shared->rounds; i++)
        CHECK_EQ(call(shared->host, i % 2 == 0 ? all : all & ~(1ull << cpu), mark_cpu, shared),
                 HVMEM_OK);
}

/* Everybody calls everybody at once: each waits and serves meanwhile, nothing is lost. */
static void all_call_all(uint32_t flags)
{
    struct shared shared = {.host = make_host(CPUS, flags, 0), .rounds = 50};
    struct hvmem_linux_counts counts;
    uint32_t i;

    CHECK_EQ(hvmem_linux_run(shared.host, CPUS, call_others, &shared), HVMEM_OK);
    for (i = 0; i < CPUS; i++)
        CHECK_EQ(atomic_load(&shared.ran[i]), (CPUS - 1) * shared.rounds + shared.rounds / 2);
    hvmem_linux_counts(shared.host, &counts);
    CHECK_EQ(counts.calls, CPUS * shared.rounds);
    CHECK_EQ(counts.called, CPUS * (CPUS - 1) * shared.rounds);
    CHECK_EQ(counts.timeouts, 0);
    hvmem_linux_host_destroy(shared.host);
}

TEST(calls_reach_cpus_that_wait, threads)
{
    all_call_all(0);
}

TEST(calls_reach_cpus_by_signal, threads)
{
    all_call_all(HVMEM_LINUX_KICK);
}

/* CPU 1 computes and never waits: only a signal can reach it. */
static void busy_target(void *arg, hvmem_cpu cpu)
{
    struct shared *shared = arg;
    uint64_t begin = now_ms();

    if (cpu == 1) {
        while (atomic_load(&shared->stop) == 0 && now_ms() - begin < 20000)
            sched_yield();
        return;
    }
    CHECK_EQ(call(shared->host, 2, mark_cpu, shared), (hvmem_status)shared->rounds);
    shared->took_ms = now_ms() - begin;
    atomic_store(&shared->stop, 1);
}

TEST(a_signal_reaches_a_busy_cpu)
{
    struct shared shared = {.host = make_host(2, HVMEM_LINUX_KICK, 15000)};

    shared.rounds = HVMEM_OK;
    CHECK_EQ(hvmem_linux_run(shared.host, 2, busy_target, &shared), HVMEM_OK);
    CHECK_EQ(atomic_load(&shared.ran[1]), 1);
    hvmem_linux_host_destroy(shared.host);
}

TEST(without_signal_a_busy_cpu_times_out, threads)
{
    struct shared shared = {.host = make_host(2, 0, 60)};
    struct hvmem_linux_counts counts;

    shared.rounds = (uint32_t)HVMEM_E_TIMEOUT;
    CHECK_EQ(hvmem_linux_run(shared.host, 2, busy_target, &shared), HVMEM_OK);
    CHECK(shared.took_ms >= 60);
    CHECK_EQ(atomic_load(&shared.ran[1]), 0); /* taken back, not run late */
    hvmem_linux_counts(shared.host, &counts);
    CHECK_EQ(counts.timeouts, 1);
    hvmem_linux_host_destroy(shared.host);
}

static void wait_for_stop(void *arg)
{
    struct shared *shared = arg;

    atomic_store(&shared->seen, 1);
    while (atomic_load(&shared->stop) == 0)
        sched_yield();
}

/* CPU 1 begins a call and does not end it in time. */
static void slow_call(void *arg, hvmem_cpu cpu)
{
    struct shared *shared = arg;

    if (cpu == 1)
        return; /* run's own wait serves */
    CHECK_EQ(call(shared->host, 2, wait_for_stop, shared), HVMEM_E_TIMEOUT);
    CHECK_EQ(atomic_load(&shared->seen), 1);
    CHECK_EQ(call(shared->host, 2, mark_cpu, shared), HVMEM_E_BUSY);
    atomic_store(&shared->stop, 1);
    while (call(shared->host, 2, mark_cpu, shared) == HVMEM_E_BUSY)
        sched_yield();
    CHECK_EQ(atomic_load(&shared->ran[1]), 1);
}

TEST(a_call_that_does_not_end_blocks_the_next, threads)
{
    struct shared shared = {.host = make_host(2, 0, 500)};

    CHECK_EQ(hvmem_linux_run(shared.host, 2, slow_call, &shared), HVMEM_OK);
    hvmem_linux_host_destroy(shared.host);
}

TEST(absent_cpus_are_skipped)
{
    struct shared shared = {.host = make_host(CPUS, 0, 100)};

    CHECK_EQ(call(shared.host, 1, mark_cpu, &shared), HVMEM_E_CPU); /* not entered */
    REQUIRE_EQ(hvmem_linux_enter(shared.host, 2), HVMEM_OK);
    CHECK_EQ(call(shared.host, 0xf, mark_cpu, &shared), HVMEM_OK);
    CHECK_EQ(atomic_load(&shared.ran[2]), 1);
    CHECK_EQ(atomic_load(&shared.ran[0]) + atomic_load(&shared.ran[1]), 0);
    CHECK_EQ(call(shared.host, 1u << CPUS, mark_cpu, &shared), HVMEM_OK);
    CHECK_EQ(call(shared.host, 1, NULL, &shared), HVMEM_E_ARG);
    CHECK_EQ(hvmem_linux_ops(shared.host)->call_cpus(shared.host, NULL, mark_cpu, &shared),
             HVMEM_E_ARG);
    hvmem_linux_leave();
    hvmem_linux_leave();
    hvmem_linux_host_destroy(shared.host);
}

/* Store buffering: with the barrier on one side only, both sides never read the old value. */
struct litmus {
    struct hvmem_linux_host *host;
    _Atomic uint32_t x, y, round, done;
    uint32_t rounds, read_x, read_y, both_old, with_barrier;
};

/* About as long as it takes the other CPU to see a new round: the two stores shall meet. */
static void linger(uint32_t turns)
{
    while (turns-- != 0)
        atomic_signal_fence(memory_order_seq_cst);
}

static void store_then_load(void *arg, hvmem_cpu cpu)
{
    struct litmus *litmus = arg;
    uint32_t i, turn;

    for (i = 1; i <= litmus->rounds; i++) {
        if (cpu == 0) {
            atomic_store_explicit(&litmus->x, 0, memory_order_relaxed);
            atomic_store_explicit(&litmus->y, 0, memory_order_relaxed);
            atomic_store(&litmus->done, 0);
            atomic_store(&litmus->round, i);
            linger(i % 256);
            atomic_store_explicit(&litmus->x, 1, memory_order_relaxed);
            if (litmus->with_barrier)
                CHECK_EQ(hvmem_linux_ops(litmus->host)->barrier_cpu(litmus->host, 1), HVMEM_OK);
            else
                atomic_signal_fence(memory_order_seq_cst);
            litmus->read_y = atomic_load_explicit(&litmus->y, memory_order_relaxed);
            while (atomic_load(&litmus->done) == 0)
                hvmem_linux_relax();
            litmus->both_old += litmus->read_x == 0 && litmus->read_y == 0;
        } else {
            for (turn = 0; atomic_load(&litmus->round) != i; turn++)
                if (turn % 1024 == 1023)
                    hvmem_linux_relax();
            atomic_store_explicit(&litmus->y, 1, memory_order_relaxed);
            atomic_signal_fence(memory_order_seq_cst);
            litmus->read_x = atomic_load_explicit(&litmus->x, memory_order_relaxed);
            atomic_store(&litmus->done, 1);
        }
    }
}

TEST(barrier_orders_the_other_cpu)
{
    struct litmus litmus = {.host = make_host(2, HVMEM_LINUX_PIN, 0)};
    struct hvmem_linux_counts counts;

    litmus.rounds = (uint32_t)test_rounds(2000);
    if (hvmem_linux_ops(litmus.host)->barrier_cpu == NULL) {
        test_note("this kernel has no private expedited membarrier: the operation is absent");
        CHECK(1);
    } else {
        /* The control: hardware may or may not show it, so it is told and not required. */
        CHECK_EQ(hvmem_linux_run(litmus.host, 2, store_then_load, &litmus), HVMEM_OK);
        test_note("without the barrier both CPUs read the old value in %u of %u rounds",
                  litmus.both_old, litmus.rounds);
        litmus.both_old = 0;
        atomic_store(&litmus.round, 0);
        litmus.with_barrier = 1;
        CHECK_EQ(hvmem_linux_run(litmus.host, 2, store_then_load, &litmus), HVMEM_OK);
        CHECK_EQ(litmus.both_old, 0);
        hvmem_linux_counts(litmus.host, &counts);
        CHECK_EQ(counts.barriers, litmus.rounds);
        CHECK_EQ(hvmem_linux_ops(litmus.host)->barrier_cpu(litmus.host, 2), HVMEM_E_CPU);
    }
    hvmem_linux_host_destroy(litmus.host);
}

TEST(reports_and_events_are_counted)
{
    struct hvmem_linux_host *host = make_host(1, 0, 0);
    const struct hvmem_host_ops *ops = hvmem_linux_ops(host);
    struct hvmem_linux_counts counts;

    CHECK_EQ(ops->size, sizeof *ops);
    ops->report(host, HVMEM_E_FREE, 0x1234, 3, 0);
    ops->event(host, HVMEM_EVENT_LOW_MEMORY, 1, 2);
    ops->event(host, 77, 1, 2);
    hvmem_linux_counts(host, &counts);
    CHECK_EQ(counts.reports, 1);
    CHECK_EQ(counts.last_code, HVMEM_E_FREE);
    CHECK_EQ(counts.last_mfn, 0x1234);
    CHECK_EQ(counts.events[HVMEM_EVENT_LOW_MEMORY], 1);
    CHECK_EQ(counts.events[0], 1);
    hvmem_linux_host_destroy(host);
}

TEST(bug_does_not_return)
{
    struct hvmem_linux_host *host = make_host(1, 0, 0);
    int status = 0;
    pid_t child = fork();

    REQUIRE(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        hvmem_linux_ops(host)->bug(host, "here");
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    hvmem_linux_host_destroy(host);
}

TEST(window_maps_its_frames_only)
{
    struct hvmem_linux_host *host = make_host(1, 0, 0);
    const struct hvmem_host_ops *ops = hvmem_linux_ops(host);
    char *first, *last;

    CHECK(ops->frame_map(host, 0x1000, 0) == NULL);
    CHECK_EQ(hvmem_linux_window(host, 0x1000, 64, 12), HVMEM_OK);
    first = ops->frame_map(host, 0x1000, 0);
    last = ops->frame_map(host, 0x103f, 0);
    REQUIRE(first != NULL && last != NULL);
    CHECK_EQ(last - first, 63 * 4096);
    memset(last, 0x5a, 4096);
    CHECK_EQ(((char *)ops->frame_map(host, 0x1000, 6))[63 * 4096], 0x5a);
    CHECK(ops->frame_map(host, 0xfff, 0) == NULL);
    CHECK(ops->frame_map(host, 0x1040, 0) == NULL);
    CHECK(ops->frame_map(host, 0x1020, 6) == NULL);
    CHECK(ops->frame_map(host, 0x1000, 63) == NULL);
    CHECK_EQ(hvmem_linux_window(host, 0x1000, 64, 11), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_linux_window(host, ~0ull, 64, 12), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_linux_window(host, 0, 0, 12), HVMEM_OK);
    CHECK(ops->frame_map(host, 0x1000, 0) == NULL);
    hvmem_linux_host_destroy(host);
}

TEST(bad_hosts_are_refused)
{
    struct hvmem_linux_host_config config = {.cpus = 1};
    struct hvmem_linux_host *host = NULL;

    CHECK_EQ(hvmem_linux_host_create(NULL, &host), HVMEM_E_ARG);
    CHECK_EQ(hvmem_linux_host_create(&config, NULL), HVMEM_E_ARG);
    config.cpus = 0;
    CHECK_EQ(hvmem_linux_host_create(&config, &host), HVMEM_E_CPU);
    config.cpus = HVMEM_LINUX_MAX_CPUS + 1;
    CHECK_EQ(hvmem_linux_host_create(&config, &host), HVMEM_E_CPU);
    config.cpus = 1;
    config.flags = 8;
    CHECK_EQ(hvmem_linux_host_create(&config, &host), HVMEM_E_ARG);
    CHECK(host == NULL);
    hvmem_linux_host_destroy(NULL);
}
