/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hostcall.h: how the core calls the host, in either binding of hvmem/host.h. Each operation has
 * its default here and nowhere else.
 */
#ifndef HVMEM_LIB_HOSTCALL_H
#define HVMEM_LIB_HOSTCALL_H

#include <hvmem/host.h>

#include "deps.h"

#ifdef HVMEM_HOST_HEADER
#    include HVMEM_HOST_HEADER
#endif

/*
 * A host as an object of the library sees it. Constant after init, except smp and bare_locks, which are set
 * once while only one CPU runs (hvmem__host_smp()).
 */
struct hvmem__host {
    struct hvmem_host_ops ops; /* copied; members the host's build did not have are NULL */
    void *ctx;
    hvmem_u32 regime; /* HVMEM_LOCK_* */
    hvmem_u32 smp;    /* 1: locks and atomics are in use */
    /* 1: a lock is its word alone, without interrupts or operations of the table. */
    hvmem_u32 bare_locks;
    /*
     * Debug builds: bit r of held[cpu] is set while that CPU holds a lock of rank r. NULL: not
     * checked. Written by the CPU itself only.
     */
    hvmem_u32 *held;
};

/* Copy a host's table, tolerating one of an older (shorter) or newer (longer) build. */
void hvmem__host_bind(struct hvmem__host *host, const struct hvmem_host_ops *ops, void *ctx,
                      hvmem_u32 regime);

/* Several CPUs from now on: locks and atomics are in use. */
void hvmem__host_smp(struct hvmem__host *host);

/* Whether the host offers what its lock regime needs. */
HVMEM_INLINE int hvmem__host_can_lock(const struct hvmem__host *host)
{
#if defined(HVMEM_HOST_IRQ_SAVE) && defined(HVMEM_HOST_IRQ_RESTORE)
    (void)host;
    return 1;
#else
    return host->regime != HVMEM_LOCK_IRQSAVE || (host->ops.irq_save && host->ops.irq_restore);
#endif
}

/* Whether the regime exists and a host with this table offers what it needs. */
int hvmem__host_regime_ok(const struct hvmem_host_ops *ops, hvmem_u32 regime);

HVMEM_INLINE hvmem_cpu hvmem__this_cpu(const struct hvmem__host *host)
{
#ifdef HVMEM_HOST_THIS_CPU
    return HVMEM_HOST_THIS_CPU(host->ctx);
#else
    return host->ops.this_cpu ? host->ops.this_cpu(host->ctx) : 0;
#endif
}

HVMEM_INLINE hvmem_u64 hvmem__pin(const struct hvmem__host *host)
{
#ifdef HVMEM_HOST_PIN
    return HVMEM_HOST_PIN(host->ctx);
#else
    return host->ops.pin ? host->ops.pin(host->ctx) : 0;
#endif
}

HVMEM_INLINE void hvmem__unpin(const struct hvmem__host *host, hvmem_u64 state)
{
#ifdef HVMEM_HOST_UNPIN
    HVMEM_HOST_UNPIN(host->ctx, state);
    (void)state;
#else
    if (host->ops.unpin)
        host->ops.unpin(host->ctx, state);
#endif
}

HVMEM_INLINE void hvmem__relax(const struct hvmem__host *host)
{
#ifdef HVMEM_HOST_RELAX
    HVMEM_HOST_RELAX(host->ctx);
#else
    if (host->ops.relax)
        host->ops.relax(host->ctx);
    else
        hvmem__compiler_barrier();
#endif
}

HVMEM_INLINE hvmem_u64 hvmem__irq_save(const struct hvmem__host *host)
{
#ifdef HVMEM_HOST_IRQ_SAVE
    return HVMEM_HOST_IRQ_SAVE(host->ctx);
#else
    return host->ops.irq_save ? host->ops.irq_save(host->ctx) : 0;
#endif
}

HVMEM_INLINE void hvmem__irq_restore(const struct hvmem__host *host, hvmem_u64 state)
{
#ifdef HVMEM_HOST_IRQ_RESTORE
    HVMEM_HOST_IRQ_RESTORE(host->ctx, state);
#else
    if (host->ops.irq_restore)
        host->ops.irq_restore(host->ctx, state);
#endif
}

/* A caller's mistake: tell the host. No library lock may be held. */
HVMEM_INLINE void hvmem__host_report(const struct hvmem__host *host, hvmem_status code,
                                     hvmem_mfn mfn, hvmem_order order, hvmem_u64 info)
{
    if (host->ops.report)
        host->ops.report(host->ctx, code, mfn, order, info);
}

/* Whether long work should stop here for now. */
HVMEM_INLINE int hvmem__yield_wanted(const struct hvmem__host *host)
{
    return host->ops.yield_wanted && host->ops.yield_wanted(host->ctx);
}

/* No library lock may be held. */
HVMEM_INLINE void hvmem__host_event(const struct hvmem__host *host, hvmem_u32 event, hvmem_u64 a,
                                    hvmem_u64 b)
{
    if (host->ops.event)
        host->ops.event(host->ctx, event, a, b);
}

/* An invariant of the library is broken. Does not return. */
void hvmem__bug(const struct hvmem__host *host, const char *where) __attribute__((noreturn));

/*
 * Assertions by level. 1: cheap, stays in release builds. 2: debug builds (lock held, ranges).
 * 3: whole-structure checks.
 */
#ifndef HVMEM_CHECK_LEVEL
#    define HVMEM_CHECK_LEVEL 1
#endif

#define HVMEM__ASSERT(host, condition)                                                             \
    do {                                                                                           \
        if (hvmem__unlikely(!(condition)))                                                         \
            hvmem__bug((host), __func__);                                                          \
    } while (0)

#if HVMEM_CHECK_LEVEL >= 2
#    define HVMEM__ASSERT2(host, condition) HVMEM__ASSERT(host, condition)
#else
#    define HVMEM__ASSERT2(host, condition)                                                        \
        do {                                                                                       \
            (void)(host);                                                                          \
        } while (0)
#endif

#endif
