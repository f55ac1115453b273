/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h: the library's locks under the three regimes of hvmem/host.h, and their ranks.
 *
 * A lock is taken with hvmem__lock() and released with hvmem__unlock(), which carry the interrupt
 * state of the regime HVMEM_LOCK_IRQSAVE between them: the first returns it, the second needs it. Nothing
 * is done in HVMEM_LOCK_CALLER, and no atomic is used before smp is set.
 *
 * Ranks: a CPU takes locks in rising rank only; two of one rank never. Checked in debug builds.
 * docs/architecture.md explains the order; this enum is the order.
 */
#ifndef HVMEM_LIB_LOCK_H
#define HVMEM_LIB_LOCK_H

#include "hostcall.h"

enum hvmem__rank {
    HVMEM__RANK_PLACEMENT = 1, /* placement of one vCPU */
    HVMEM__RANK_VCPU_LIST,     /* one CPU's list of vCPUs */
    HVMEM__RANK_SPACE,         /* one translation space */
    HVMEM__RANK_STAGE2,        /* tables of one second stage */
    HVMEM__RANK_IDENT,         /* identifier allocator */
    HVMEM__RANK_ADMIN,         /* shape of a heap: banks, CPUs, domains, claims being switched */
    HVMEM__RANK_CACHE,         /* gate of one CPU's frame cache */
    HVMEM__RANK_ARENA,         /* free blocks of one arena */
    HVMEM__RANK_CLAIM,         /* claims and spare counts */
    HVMEM__RANK_LEAF           /* taken last, never followed by another */
};

/* Wait until the built-in lock serves `ticket`. */
void hvmem__lock_spin(const struct hvmem__host *host, struct hvmem_lock *lock, hvmem_u32 ticket);
void hvmem__lock_check(const struct hvmem__host *host, enum hvmem__rank rank, int taking);

/*
 * The lock word and nothing else: the host's where its header binds it, or the built-in one. Free, that costs
 * one locked instruction and a compare; to give it back costs none. Waiting is bounded by the holders'
 * sections, all of them bounded.
 */
HVMEM_INLINE void hvmem__lock_word(const struct hvmem__host *host, struct hvmem_lock *lock)
{
#ifdef HVMEM_HOST_LOCK
    HVMEM_HOST_LOCK(host->ctx, lock);
#else
    hvmem_u32 ticket = __atomic_fetch_add(&lock->next, 1, __ATOMIC_RELAXED);

    if (hvmem__unlikely(hvmem__load_acquire(&lock->serving) != ticket))
        hvmem__lock_spin(host, lock, ticket);
#endif
}

HVMEM_INLINE void hvmem__unlock_word(const struct hvmem__host *host, struct hvmem_lock *lock)
{
#ifdef HVMEM_HOST_UNLOCK
    HVMEM_HOST_UNLOCK(host->ctx, lock);
#else
    (void)host;
    hvmem__store_release(&lock->serving, lock->serving + 1);
#endif
}

/* Acquire, and release what was acquired, in any regime. Calls, for most of their users are cold. */
hvmem_u64 hvmem__lock(const struct hvmem__host *host, struct hvmem_lock *lock,
                      enum hvmem__rank rank);
void hvmem__unlock(const struct hvmem__host *host, struct hvmem_lock *lock, enum hvmem__rank rank,
                   hvmem_u64 state);

/* The same where the commonest case, the lock word alone, is worth being inline. */
HVMEM_INLINE hvmem_u64 hvmem__lock_hot(const struct hvmem__host *host, struct hvmem_lock *lock,
                                       enum hvmem__rank rank)
{
    if (hvmem__unlikely(!host->bare_locks))
        return hvmem__lock(host, lock, rank);
#if HVMEM_CHECK_LEVEL >= 2
    hvmem__lock_check(host, rank, 1);
#endif
    hvmem__lock_word(host, lock);
    return 0;
}

HVMEM_INLINE void hvmem__unlock_hot(const struct hvmem__host *host, struct hvmem_lock *lock,
                                    enum hvmem__rank rank, hvmem_u64 state)
{
    if (hvmem__unlikely(!host->bare_locks)) {
        hvmem__unlock(host, lock, rank, state);
        return;
    }
#if HVMEM_CHECK_LEVEL >= 2
    hvmem__lock_check(host, rank, 0);
#endif
    hvmem__unlock_word(host, lock);
}

/* Whether somebody holds the lock; true where it cannot be known. For assertions. */
HVMEM_INLINE int hvmem__lock_held(const struct hvmem__host *host, const struct hvmem_lock *lock)
{
#ifdef HVMEM_HOST_LOCK
    (void)host;
    (void)lock;
    return 1;
#else
    return !host->smp || host->ops.lock || hvmem__load(&lock->next) != hvmem__load(&lock->serving);
#endif
}

#endif
