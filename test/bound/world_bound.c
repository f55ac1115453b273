/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of world_bound.h: each does what the world's table would, or the library's default
 * where the world offers nothing. A run in which one of them was never called proves nothing and fails.
 */
#include "world_bound.h"

#include "world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"this_cpu", "pin",       "unpin",  "relax",       "lock",
                                    "unlock",   "tlb_flush", "dcache", "dcache_done", "zero"};
enum { THIS_CPU, PIN, UNPIN, RELAX, LOCK, UNLOCK, TLB_FLUSH, DCACHE, DCACHE_DONE, ZERO, COUNT };
static unsigned long calls[COUNT];

static void called(int which)
{
    __atomic_fetch_add(&calls[which], 1, __ATOMIC_RELAXED);
}

static __attribute__((destructor)) void all_were_called(void)
{
    const char *needed = getenv("HVMEM_TEST_BOUND");
    int i;

    for (i = 0; needed != NULL && i < COUNT; i++) {
        if (calls[i] != 0 || i == RELAX)
            continue;
        printf("binding: %s was never called\n", names[i]);
        fflush(stdout);
        _Exit(1);
    }
}

bool world_is_bound(void)
{
    return true;
}

/* The table of the world, NULL for one without a host. */
static const struct hvmem_host_ops *table_of(void *host)
{
    struct world *world = host;

    return world != NULL && !(world->flags & WORLD_NO_HOST) ? &world->host : NULL;
}

hvmem_cpu world_bound_this_cpu(void *host)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(THIS_CPU);
    return ops != NULL && ops->this_cpu != NULL ? ops->this_cpu(host) : 0;
}

hvmem_u64 world_bound_pin(void *host)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(PIN);
    return ops != NULL && ops->pin != NULL ? ops->pin(host) : 0;
}

void world_bound_unpin(void *host, hvmem_u64 state)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(UNPIN);
    if (ops != NULL && ops->unpin != NULL)
        ops->unpin(host, state);
}

void world_bound_relax(void *host)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(RELAX);
    if (ops != NULL && ops->relax != NULL)
        ops->relax(host);
    else
        sched_yield();
}

void world_bound_lock(void *host, struct hvmem_lock *lock)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(LOCK);
    if (ops != NULL && ops->lock != NULL) {
        ops->lock(host, lock);
        return;
    }
    while (__atomic_exchange_n(&lock->next, 1, __ATOMIC_ACQUIRE) != 0)
        world_bound_relax(host);
}

void world_bound_unlock(void *host, struct hvmem_lock *lock)
{
    const struct hvmem_host_ops *ops = table_of(host);

    called(UNLOCK);
    if (ops != NULL && ops->unlock != NULL)
        ops->unlock(host, lock);
    else
        __atomic_store_n(&lock->next, 0, __ATOMIC_RELEASE);
}

hvmem_status world_bound_tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    called(TLB_FLUSH);
    return be->ops->tlb_flush != NULL ? be->ops->tlb_flush(be, flush) : HVMEM_E_UNSUPPORTED;
}

hvmem_status world_bound_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                                hvmem_size bytes)
{
    called(DCACHE);
    return be->ops->dcache != NULL ? be->ops->dcache(be, op, addr, bytes) : HVMEM_E_UNSUPPORTED;
}

hvmem_status world_bound_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    called(DCACHE_DONE);
    return be->ops->dcache_done != NULL ? be->ops->dcache_done(be, op) : HVMEM_E_UNSUPPORTED;
}

hvmem_status world_bound_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    called(ZERO);
    return be->ops->zero != NULL ? be->ops->zero(be, addr, bytes) : HVMEM_E_UNSUPPORTED;
}
