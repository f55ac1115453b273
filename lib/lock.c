/* SPDX-License-Identifier: BSD-2-Clause */
/* lock.c: taking and releasing locks under the three regimes, waiting, and the rank check. */
#include "lock.h"

void hvmem__lock_spin(const struct hvmem__host *host, struct hvmem_lock *lock, hvmem_u32 ticket)
{
    while (hvmem__load_acquire(&lock->serving) != ticket)
        hvmem__relax(host);
}

hvmem_u64 hvmem__lock(const struct hvmem__host *host, struct hvmem_lock *lock,
                      enum hvmem__rank rank)
{
    hvmem_u64 state = host->regime == HVMEM_LOCK_IRQSAVE ? hvmem__irq_save(host) : 0;

    if (host->smp) {
#if HVMEM_CHECK_LEVEL >= 2
        hvmem__lock_check(host, rank, 1);
#endif
#ifndef HVMEM_HOST_LOCK
        if (host->ops.lock)
            host->ops.lock(host->ctx, lock);
        else
#endif
            hvmem__lock_word(host, lock);
    }
    (void)rank;
    return state;
}

void hvmem__unlock(const struct hvmem__host *host, struct hvmem_lock *lock, enum hvmem__rank rank,
                   hvmem_u64 state)
{
    if (host->smp) {
#if HVMEM_CHECK_LEVEL >= 2
        hvmem__lock_check(host, rank, 0);
#endif
#ifndef HVMEM_HOST_UNLOCK
        if (host->ops.unlock)
            host->ops.unlock(host->ctx, lock);
        else
#endif
            hvmem__unlock_word(host, lock);
    }
    (void)rank;
    if (host->regime == HVMEM_LOCK_IRQSAVE)
        hvmem__irq_restore(host, state);
}

/* Ranks rise: taking asserts that no lock of this rank or above is held by this CPU. */
void hvmem__lock_check(const struct hvmem__host *host, enum hvmem__rank rank, int taking)
{
    hvmem_u32 *held;

    if (!host->held)
        return;
    held = &host->held[hvmem__this_cpu(host)];
    if (taking) {
        HVMEM__ASSERT(host, (*held >> rank) == 0);
        *held |= 1u << rank;
    } else {
        HVMEM__ASSERT(host, (*held >> rank) & 1u);
        *held &= ~(1u << rank);
    }
}
