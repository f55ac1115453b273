/* SPDX-License-Identifier: BSD-2-Clause */
/* lock.c: waiting for the built-in ticket lock and the rank check. */
#include "lock.h"

void hvmem__lock_spin(const struct hvmem__host *host, struct hvmem_lock *lock, hvmem_u32 ticket)
{
    while (hvmem__load_acquire(&lock->serving) != ticket)
        hvmem__relax(host);
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
