/* SPDX-License-Identifier: BSD-2-Clause */
/* State of a Linux host, shared by cpu.c, call.c, host.c and memory.c. */
#ifndef HOST_INTERNAL_H
#define HOST_INTERNAL_H

#include "hvmem_linux.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define INBOX_WORDS (HVMEM_LINUX_MAX_CPUS / 64u)

/*
 * One CPU. `online` changes under `gate`, and whoever posts to the CPU holds `gate`: so a bit in
 * `inbox` is always seen by the thread, at the latest when it leaves, and a signal never goes to a
 * thread that has ended.
 */
struct host_cpu {
    _Alignas(128) pthread_mutex_t gate;
    int online;
    pthread_t thread;
    _Atomic uint64_t inbox[INBOX_WORDS]; /* bit n: CPU n has a call for this one */

    /* The call this CPU makes; stays until `pending` is 0. */
    _Alignas(128) void (*fn)(void *arg);
    void *arg;
    _Atomic uint32_t pending; /* CPUs that have not finished it */
};

struct hvmem_linux_host {
    struct hvmem_host_ops ops;
    uint32_t cpus, flags, call_timeout_ms;

    /* Real memory behind frames; changed only while no CPU uses the heap. */
    char *window;
    size_t window_bytes;
    hvmem_mfn window_base;
    hvmem_u64 window_frames;
    uint32_t window_shift;

    _Atomic uint64_t reports, calls, called, timeouts, barriers, maps;
    _Atomic uint64_t events[8];
    _Atomic int32_t last_code;
    _Atomic uint64_t last_mfn;

    struct host_cpu cpu[];
};

extern __thread hvmem_cpu hvmem_linux__this_cpu __attribute__((tls_model("initial-exec")));

/* The host of the calling thread; NULL before hvmem_linux_enter(). */
struct hvmem_linux_host *linux__my_host(void);

/* Signal that asks a thread to serve its calls; installs the handler. 0 on success. */
int linux__kick_setup(void);
int linux__kick_signal(void);

/* Operations of the table that live outside host.c. */
hvmem_status linux__call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *arg),
                              void *arg);
void *linux__frame_map(void *host, hvmem_mfn mfn, hvmem_order order);
void linux__frame_unmap(void *host, void *map, hvmem_order order);

#endif
