/* SPDX-License-Identifier: BSD-2-Clause */
/* host.c: binding a host's table, and the end of the road. */
#include "hostcall.h"

void hvmem__host_bind(struct hvmem__host *host, const struct hvmem_host_ops *ops, void *ctx,
                      hvmem_u32 regime)
{
    memset(host, 0, sizeof *host);
    if (ops) {
        hvmem_size known = ops->size < sizeof host->ops ? ops->size : sizeof host->ops;

        memcpy(&host->ops, ops, known);
    }
    if (regime == HVMEM_LOCK_CALLER) {
        /* Nothing can interfere, so nothing has to be held still. */
        host->ops.pin = HVMEM_NULL;
        host->ops.unpin = HVMEM_NULL;
    }
    host->ctx = ctx;
    host->regime = regime;
}

void hvmem__host_smp(struct hvmem__host *host)
{
    host->smp = 1;
    host->bare_locks = host->regime != HVMEM_LOCK_IRQSAVE;
#ifndef HVMEM_HOST_LOCK
    host->bare_locks &= !host->ops.lock;
#endif
#ifndef HVMEM_HOST_UNLOCK
    host->bare_locks &= !host->ops.unlock;
#endif
}

int hvmem__host_regime_ok(const struct hvmem_host_ops *ops, hvmem_u32 regime)
{
    struct hvmem__host host;

    if (regime > HVMEM_LOCK_IRQSAVE)
        return 0;
    hvmem__host_bind(&host, ops, HVMEM_NULL, regime);
    return hvmem__host_can_lock(&host);
}

void hvmem__bug(const struct hvmem__host *host, const char *where)
{
    if (host->ops.bug)
        host->ops.bug(host->ctx, where);
    __builtin_trap();
}
