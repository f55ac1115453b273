/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * call_cpus: functions run on the threads of other CPUs. The caller leaves a bit in the inbox of each
 * target; a target looks when it waits (relax) and, with HVMEM_LINUX_KICK, when a signal stops it.
 */
#define _GNU_SOURCE
#include "host_internal.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define TURNS_PER_YIELD 16u

static uint32_t serve(struct hvmem_linux_host *host, hvmem_cpu cpu)
{
    uint32_t served = 0;
    uint32_t word;

    for (word = 0; word < INBOX_WORDS; word++) {
        _Atomic uint64_t *inbox = &host->cpu[cpu].inbox[word];
        uint64_t from;

        if (atomic_load_explicit(inbox, memory_order_relaxed) == 0)
            continue;
        from = atomic_exchange_explicit(inbox, 0, memory_order_acq_rel);
        for (; from != 0; from &= from - 1) {
            uint32_t caller = word * 64u + (uint32_t)__builtin_ctzll(from);
            struct host_cpu *call = &host->cpu[caller];

            call->fn(call->arg);
            atomic_fetch_add_explicit(&host->called, 1, memory_order_relaxed);
            atomic_fetch_sub_explicit(&call->pending, 1, memory_order_release);
            served++;
        }
    }
    return served;
}

hvmem_u32 hvmem_linux_serve(void)
{
    struct hvmem_linux_host *host = linux__my_host();

    return host == NULL ? 0 : serve(host, hvmem_linux__this_cpu);
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

void hvmem_linux_relax(void)
{
    static __thread uint32_t turns;

    hvmem_linux_serve();
    if (++turns % TURNS_PER_YIELD == 0)
        sched_yield();
    else
        pause_cpu();
}

/* ---- kick ---- */

int linux__kick_signal(void)
{
    return SIGRTMIN + 5;
}

static void on_kick(int signal)
{
    (void)signal;
    hvmem_linux_serve();
}

int linux__kick_setup(void)
{
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = on_kick;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(linux__kick_signal(), &action, NULL);
}

/* ---- calling ---- */

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static int in_set(const struct hvmem_cpuset *cpus, hvmem_cpu cpu)
{
    return cpu < cpus->cpus && (cpus->words[cpu / 64u] >> (cpu % 64u) & 1u) != 0;
}

/* Leave the caller's bit with an online target. */
static void post(struct hvmem_linux_host *host, hvmem_cpu caller, hvmem_cpu target)
{
    struct host_cpu *slot = &host->cpu[target];

    pthread_mutex_lock(&slot->gate);
    if (slot->online) {
        atomic_fetch_add_explicit(&host->cpu[caller].pending, 1, memory_order_relaxed);
        atomic_fetch_or_explicit(&slot->inbox[caller / 64u], (uint64_t)1 << caller % 64u,
                                 memory_order_release);
        if ((host->flags & HVMEM_LINUX_KICK) != 0)
            pthread_kill(slot->thread, linux__kick_signal());
    }
    pthread_mutex_unlock(&slot->gate);
}

/* Take the bit back from every target that has not begun; returns how many that were. */
static uint32_t retract(struct hvmem_linux_host *host, hvmem_cpu caller)
{
    uint64_t bit = (uint64_t)1 << caller % 64u;
    uint32_t taken = 0;
    uint32_t cpu;

    for (cpu = 0; cpu < host->cpus; cpu++)
        if ((atomic_fetch_and_explicit(&host->cpu[cpu].inbox[caller / 64u], ~bit,
                                       memory_order_acq_rel) &
             bit) != 0)
            taken++;
    atomic_fetch_sub_explicit(&host->cpu[caller].pending, taken, memory_order_relaxed);
    return taken;
}

/* Serves this CPU's own calls meanwhile: two callers may ask each other. 0: all have finished. */
static int wait_pending(struct hvmem_linux_host *host, hvmem_cpu caller)
{
    _Atomic uint32_t *pending = &host->cpu[caller].pending;
    uint64_t end = now_ms() + host->call_timeout_ms;

    while (atomic_load_explicit(pending, memory_order_acquire) != 0) {
        hvmem_linux_relax();
        if (now_ms() > end)
            return -1;
    }
    return 0;
}

/*
 * A target that does not answer in time loses the call before it begins (HVMEM_E_TIMEOUT); one that
 * has begun and does not end keeps `fn` and `arg`, and this CPU cannot call again until it ends
 * (HVMEM_E_BUSY).
 */
hvmem_status linux__call_cpus(void *context, const struct hvmem_cpuset *cpus, void (*fn)(void *arg),
                              void *arg)
{
    struct hvmem_linux_host *host = context;
    hvmem_cpu self = hvmem_linux__this_cpu;
    uint32_t cpu, lost;

    if (cpus == NULL || cpus->words == NULL || fn == NULL)
        return HVMEM_E_ARG;
    if (linux__my_host() != host)
        return HVMEM_E_CPU;
    if (atomic_load_explicit(&host->cpu[self].pending, memory_order_acquire) != 0)
        return HVMEM_E_BUSY;
    atomic_fetch_add_explicit(&host->calls, 1, memory_order_relaxed);
    host->cpu[self].fn = fn;
    host->cpu[self].arg = arg;
    for (cpu = 0; cpu < host->cpus; cpu++)
        if (cpu != self && in_set(cpus, cpu))
            post(host, self, cpu);
    if (in_set(cpus, self))
        fn(arg);
    if (wait_pending(host, self) == 0)
        return HVMEM_OK;
    lost = retract(host, self);
    atomic_fetch_add_explicit(&host->timeouts, lost, memory_order_relaxed);
    if (wait_pending(host, self) != 0)
        atomic_fetch_add_explicit(&host->timeouts, 1, memory_order_relaxed);
    return HVMEM_E_TIMEOUT;
}
