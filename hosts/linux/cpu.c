/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that stand for CPUs: entering, leaving, pinning, and running one function on each. */
#define _GNU_SOURCE
#include "host_internal.h"

#include <sched.h>
#include <stdlib.h>

__thread hvmem_cpu hvmem_linux__this_cpu __attribute__((tls_model("initial-exec")));
static __thread struct hvmem_linux_host *my_host;

struct hvmem_linux_host *linux__my_host(void)
{
    return my_host;
}

/* Best effort: where the system does not allow it the thread runs anywhere. */
static void pin_thread(uint32_t cpu)
{
    cpu_set_t allowed, one;
    int count, skip, i;

    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    count = CPU_COUNT(&allowed);
    if (count <= 0)
        return;
    skip = (int)(cpu % (uint32_t)count);
    for (i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &allowed) || skip-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        (void)sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

hvmem_status hvmem_linux_enter(struct hvmem_linux_host *host, hvmem_cpu cpu)
{
    struct host_cpu *slot;
    hvmem_status status = HVMEM_OK;

    if (host == NULL)
        return HVMEM_E_ARG;
    if (cpu >= host->cpus)
        return HVMEM_E_CPU;
    if (my_host != NULL)
        return HVMEM_E_BUSY;
    slot = &host->cpu[cpu];
    pthread_mutex_lock(&slot->gate);
    if (slot->online) {
        status = HVMEM_E_BUSY;
    } else {
        hvmem_linux__this_cpu = cpu;
        my_host = host;
        slot->thread = pthread_self();
        slot->online = 1;
    }
    pthread_mutex_unlock(&slot->gate);
    if (status == HVMEM_OK && (host->flags & HVMEM_LINUX_PIN) != 0)
        pin_thread(cpu);
    return status;
}

void hvmem_linux_leave(void)
{
    struct host_cpu *slot;

    if (my_host == NULL)
        return;
    slot = &my_host->cpu[hvmem_linux__this_cpu];
    pthread_mutex_lock(&slot->gate);
    slot->online = 0;
    pthread_mutex_unlock(&slot->gate);
    hvmem_linux_serve(); /* calls posted before the gate closed */
    my_host = NULL;
    hvmem_linux__this_cpu = 0;
}

struct run {
    struct hvmem_linux_host *host;
    void (*fn)(void *arg, hvmem_cpu cpu);
    void *arg;
    uint32_t cpus;
    _Atomic uint32_t arrived, finished, failed;
};

struct run_thread {
    struct run *run;
    hvmem_cpu cpu;
    pthread_t thread;
};

static void *run_one(void *argument)
{
    struct run_thread *self = argument;
    struct run *run = self->run;
    int entered = hvmem_linux_enter(run->host, self->cpu) == HVMEM_OK;

    if (!entered)
        atomic_store(&run->failed, 1);
    atomic_fetch_add(&run->arrived, 1);
    while (atomic_load(&run->arrived) < run->cpus)
        hvmem_linux_relax();
    if (!atomic_load(&run->failed))
        run->fn(run->arg, self->cpu);
    atomic_fetch_add(&run->finished, 1);
    while (atomic_load(&run->finished) < run->cpus)
        hvmem_linux_relax();
    if (entered)
        hvmem_linux_leave();
    return NULL;
}

/* Threads that do not exist count as arrived and finished, so that the others end. */
static void run_short(struct run *run, uint32_t missing)
{
    atomic_store(&run->failed, 1);
    atomic_fetch_add(&run->arrived, missing);
    atomic_fetch_add(&run->finished, missing);
}

hvmem_status hvmem_linux_run(struct hvmem_linux_host *host, hvmem_u32 cpus,
                             void (*fn)(void *arg, hvmem_cpu cpu), void *arg)
{
    struct run run = {.host = host, .fn = fn, .arg = arg, .cpus = cpus};
    struct run_thread *threads;
    uint32_t started, i;

    if (host == NULL || fn == NULL)
        return HVMEM_E_ARG;
    if (cpus == 0 || cpus > host->cpus)
        return HVMEM_E_CPU;
    threads = calloc(cpus, sizeof *threads);
    if (threads == NULL)
        return HVMEM_E_NOMEM;
    for (started = 0; started < cpus; started++) {
        threads[started].run = &run;
        threads[started].cpu = started;
        if (pthread_create(&threads[started].thread, NULL, run_one, &threads[started]) != 0)
            break;
    }
    if (started < cpus)
        run_short(&run, cpus - started);
    for (i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    free(threads);
    return atomic_load(&run.failed) ? HVMEM_E_HOST : HVMEM_OK;
}
