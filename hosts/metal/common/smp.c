/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work on other CPUs: bringing them up, calls by IPI, and longer jobs run from the idle loop. The
 * architecture only starts a CPU and raises the one interrupt.
 */
#include "boot.h"

#define CALL_TIMEOUT_MS  10000u
#define START_TIMEOUT_MS 1000u

/*
 * A CPU that calls others owns call[itself] until every bit of `pending` is gone. A target finds the
 * callers in its inbox; the bit of a caller there means call[caller] is valid for it.
 */
struct call {
    metal_call_fn fn;
    void *arg;
    uint64_t pending; /* targets that have not run fn yet */
    uint32_t busy;    /* a call of this CPU is open */
} __attribute__((aligned(64)));

struct job {
    metal_call_fn fn; /* set last by the giver, cleared by the CPU after it ran */
    void *arg;
    uint64_t inbox; /* callers of metal_call_cpus that this CPU has not served */
} __attribute__((aligned(64)));

static struct call call[METAL_MAX_CPUS];
static struct job job[METAL_MAX_CPUS];
static uint64_t online = 1;
static void (*start_fn)(unsigned cpu);

uint64_t metal_online(void)
{
    return __atomic_load_n(&online, __ATOMIC_ACQUIRE);
}

static uint64_t bit_of(unsigned cpu)
{
    return 1ull << cpu;
}

/* Runs the calls that wait for this CPU. Interrupts off. */
static void serve(unsigned cpu)
{
    uint64_t callers = __atomic_exchange_n(&job[cpu].inbox, 0, __ATOMIC_ACQUIRE);

    while (callers != 0) {
        struct call *c = &call[__builtin_ctzll(callers)];

        callers &= callers - 1;
        c->fn(c->arg);
        __atomic_fetch_and(&c->pending, ~bit_of(cpu), __ATOMIC_RELEASE);
    }
}

void metal__ipi_received(void)
{
    serve(metal_cpu_id());
}

/* Hands call[self] to every CPU of `others`. Interrupts off. */
static void call_send(unsigned self, uint64_t others)
{
    for (uint64_t left = others; left != 0; left &= left - 1) {
        const unsigned cpu = (unsigned)__builtin_ctzll(left);

        __atomic_fetch_or(&job[cpu].inbox, bit_of(self), __ATOMIC_SEQ_CST);
        metal__ipi_send(cpu);
    }
}

/* Waits until every target ran call[self]. Interrupts off. */
static int call_wait(unsigned self)
{
    const uint64_t limit = metal_cycles_per_ms() * CALL_TIMEOUT_MS;
    const uint64_t start = metal_cycles();

    while (__atomic_load_n(&call[self].pending, __ATOMIC_ACQUIRE) != 0) {
        serve(self);
        metal_relax();
        if (metal_cycles() - start > limit)
            return METAL_E_TIMEOUT;
    }
    return METAL_OK;
}

int metal_call_cpus(uint64_t mask, metal_call_fn fn, void *arg)
{
    const uint64_t irq = metal_irq_save();
    const unsigned self = metal_cpu_id();
    int result;

    /* A call from within a called function would overwrite call[self] while it is open. A call that
     * timed out stays open for ever: its target may still come for it. */
    if ((mask & ~metal_online()) != 0 || call[self].busy) {
        metal_irq_restore(irq);
        return METAL_E_INVAL;
    }
    call[self].busy = 1;
    call[self].fn = fn;
    call[self].arg = arg;
    __atomic_store_n(&call[self].pending, mask & ~bit_of(self), __ATOMIC_RELEASE);
    call_send(self, mask & ~bit_of(self));
    if ((mask & bit_of(self)) != 0)
        fn(arg); /* while the others work */
    result = call_wait(self);
    if (result == METAL_OK)
        call[self].busy = 0;
    metal_irq_restore(irq);
    return result;
}

static int jobs_left(uint64_t mask)
{
    for (; mask != 0; mask &= mask - 1)
        if (__atomic_load_n(&job[__builtin_ctzll(mask)].fn, __ATOMIC_ACQUIRE) != NULL)
            return 1;
    return 0;
}

int metal_run_cpus(uint64_t mask, metal_call_fn fn, void *arg)
{
    const uint64_t others = mask & ~bit_of(0);
    uint64_t irq;

    if ((mask & ~metal_online()) != 0 || metal_cpu_id() != 0 || fn == NULL)
        return METAL_E_INVAL;
    for (uint64_t left = others; left != 0; left &= left - 1) {
        const unsigned cpu = (unsigned)__builtin_ctzll(left);

        job[cpu].arg = arg;
        __atomic_store_n(&job[cpu].fn, fn, __ATOMIC_SEQ_CST);
        metal__ipi_send(cpu);
    }
    if ((mask & bit_of(0)) != 0)
        fn(arg);
    irq = metal_irq_save();
    while (jobs_left(others))
        metal_idle(); /* each CPU raises an interrupt here when it is done */
    metal_irq_restore(irq);
    return METAL_OK;
}

void metal__secondary(unsigned cpu)
{
    metal__boot.cpu[cpu].online = 1;
    __atomic_fetch_or(&online, bit_of(cpu), __ATOMIC_SEQ_CST);
    if (start_fn != NULL) {
        metal_irq_enable();
        start_fn(cpu);
        (void)metal_irq_save();
    }
    for (;;) {
        const metal_call_fn fn = __atomic_load_n(&job[cpu].fn, __ATOMIC_ACQUIRE);

        if (fn == NULL) {
            metal_idle();
            continue;
        }
        metal_irq_enable();
        fn(job[cpu].arg);
        (void)metal_irq_save();
        __atomic_store_n(&job[cpu].fn, NULL, __ATOMIC_SEQ_CST);
        metal__ipi_send(0);
    }
}

static int wait_online(unsigned cpu)
{
    const uint64_t limit = metal_cycles_per_ms() * START_TIMEOUT_MS;
    const uint64_t start = metal_cycles();

    while ((metal_online() & bit_of(cpu)) == 0) {
        metal_relax();
        if (metal_cycles() - start > limit)
            return METAL_E_TIMEOUT;
    }
    return METAL_OK;
}

unsigned metal_start_cpus(void (*fn)(unsigned cpu))
{
    unsigned count = 1;

    start_fn = fn;
    metal__boot.cpu[0].online = 1;
    for (unsigned cpu = 1; cpu < metal__boot.cpu_count; cpu++) {
        if (metal__cpu_start(cpu) == 0 && wait_online(cpu) == METAL_OK)
            count++;
        else
            metal_printf("metal: CPU %u (hardware id 0x%llx) does not come up\n", cpu,
                         (unsigned long long)metal__boot.cpu[cpu].hw_id);
    }
    return count;
}
