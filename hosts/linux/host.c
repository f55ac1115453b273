/* SPDX-License-Identifier: BSD-2-Clause */
/* Making and ending a Linux host, and the short operations of its table. */
#define _GNU_SOURCE
#include "host_internal.h"

#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static hvmem_cpu op_this_cpu(void *host)
{
    (void)host;
    return hvmem_linux__this_cpu;
}

static void op_relax(void *host)
{
    (void)host;
    hvmem_linux_relax();
}

/*
 * membarrier(2): the private expedited command returns after every running thread of this process
 * has passed a full barrier; a thread that does not run passes one when it is scheduled.
 */
static hvmem_status op_barrier_cpu(void *host, hvmem_cpu cpu)
{
    struct hvmem_linux_host *self = host;

    if (cpu >= self->cpus)
        return HVMEM_E_CPU;
    atomic_fetch_add_explicit(&self->barriers, 1, memory_order_relaxed);
    if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
        return HVMEM_E_HOST;
    return HVMEM_OK;
}

/* Registers this process for the command above; 0 where the kernel does not offer it. */
static int barrier_available(void)
{
    long commands = syscall(__NR_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

    if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
        return 0;
    return syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

static void op_report(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order,
                      hvmem_u64 info)
{
    struct hvmem_linux_host *self = host;

    atomic_fetch_add_explicit(&self->reports, 1, memory_order_relaxed);
    atomic_store_explicit(&self->last_code, code, memory_order_relaxed);
    atomic_store_explicit(&self->last_mfn, mfn, memory_order_relaxed);
    if ((self->flags & HVMEM_LINUX_VERBOSE) != 0)
        fprintf(stderr, "hvmem: refused: %s (mfn 0x%" PRIx64 ", order %u, info 0x%" PRIx64 ")\n",
                hvmem_status_words(code), (uint64_t)mfn, order, (uint64_t)info);
}

static void op_bug(void *host, const char *where)
{
    (void)host;
    fprintf(stderr, "hvmem: internal error: %s\n", where);
    abort();
}

static void op_event(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b)
{
    struct hvmem_linux_host *self = host;

    atomic_fetch_add_explicit(&self->events[event < 8 ? event : 0], 1, memory_order_relaxed);
    if ((self->flags & HVMEM_LINUX_VERBOSE) != 0)
        fprintf(stderr, "hvmem: event %u (%" PRIu64 ", %" PRIu64 ")\n", event, (uint64_t)a,
                (uint64_t)b);
}

static void fill_ops(struct hvmem_host_ops *ops)
{
    memset(ops, 0, sizeof *ops);
    ops->size = sizeof *ops;
    ops->this_cpu = op_this_cpu;
    ops->relax = op_relax;
    ops->barrier_cpu = barrier_available() ? op_barrier_cpu : NULL;
    ops->call_cpus = linux__call_cpus;
    ops->frame_map = linux__frame_map;
    ops->frame_unmap = linux__frame_unmap;
    ops->report = op_report;
    ops->bug = op_bug;
    ops->event = op_event;
}

hvmem_status hvmem_linux_host_create(const struct hvmem_linux_host_config *config,
                                     struct hvmem_linux_host **host)
{
    struct hvmem_linux_host *self;
    size_t bytes;
    uint32_t i;

    if (config == NULL || host == NULL ||
        (config->flags & ~(HVMEM_LINUX_PIN | HVMEM_LINUX_KICK | HVMEM_LINUX_VERBOSE)) != 0)
        return HVMEM_E_ARG;
    if (config->cpus == 0 || config->cpus > HVMEM_LINUX_MAX_CPUS)
        return HVMEM_E_CPU;
    bytes = sizeof *self + config->cpus * sizeof self->cpu[0];
    self = aligned_alloc(_Alignof(struct hvmem_linux_host), bytes);
    if (self == NULL)
        return HVMEM_E_NOMEM;
    memset(self, 0, bytes);
    self->cpus = config->cpus;
    self->flags = config->flags;
    self->call_timeout_ms = config->call_timeout_ms == 0 ? 10000 : config->call_timeout_ms;
    for (i = 0; i < self->cpus; i++)
        pthread_mutex_init(&self->cpu[i].gate, NULL);
    if ((self->flags & HVMEM_LINUX_KICK) != 0 && linux__kick_setup() != 0)
        self->flags &= ~HVMEM_LINUX_KICK; /* relax still serves calls, only later */
    fill_ops(&self->ops);
    *host = self;
    return HVMEM_OK;
}

void hvmem_linux_host_destroy(struct hvmem_linux_host *host)
{
    uint32_t i;

    if (host == NULL)
        return;
    hvmem_linux_window(host, 0, 0, 12);
    for (i = 0; i < host->cpus; i++)
        pthread_mutex_destroy(&host->cpu[i].gate);
    free(host);
}

const struct hvmem_host_ops *hvmem_linux_ops(struct hvmem_linux_host *host)
{
    return &host->ops;
}

void hvmem_linux_counts(const struct hvmem_linux_host *host, struct hvmem_linux_counts *counts)
{
    uint32_t i;

    counts->reports = atomic_load(&host->reports);
    for (i = 0; i < 8; i++)
        counts->events[i] = atomic_load(&host->events[i]);
    counts->calls = atomic_load(&host->calls);
    counts->called = atomic_load(&host->called);
    counts->timeouts = atomic_load(&host->timeouts);
    counts->barriers = atomic_load(&host->barriers);
    counts->maps = atomic_load(&host->maps);
    counts->last_code = atomic_load(&host->last_code);
    counts->last_mfn = atomic_load(&host->last_mfn);
}
