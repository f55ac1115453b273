/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The player on an hvmem heap: its alloc, free and flush operations, for every host. Freestanding.
 */
#ifndef REPLAY_PLAYER_HEAP_H
#define REPLAY_PLAYER_HEAP_H

#include "player.h"

#include <hvmem/heap.h>

/* Context of the operations; filled by the host, shared by all CPUs that play. */
struct replay_heap {
    struct hvmem_heap *heap;

    /* Owner of the trace's user memory (REPLAY_USE_USER); NULL: the host itself owns everything. */
    struct hvmem_domain *user;
    hvmem_u32 user_flags; /* HVMEM_REQ_* of its requests */
    hvmem_u32 cpus;       /* CPU n of the trace is CPU n of the host, n < cpus <= 64 */

    /* Flushes: NULL backend: not made. `window`: the page-aligned addresses that stand for all. */
    struct hvmem_backend *backend;
    hvmem_u64 window;
    HVMEM_CALLBACK hvmem_status (*call_cpus)(void *host, const struct hvmem_cpuset *cpus,
                                             HVMEM_CALLBACK void (*fn)(void *arg), void *arg);
    void *host; /* first argument of call_cpus */

    HVMEM_CALLBACK hvmem_u64 (*clock)(void *host);
    HVMEM_CALLBACK void (*wait_turn)(void *host);
};

/*
 * Fill *ops with the operations on a heap; the context to give to replay_open() is the
 * struct replay_heap. A flush of other CPUs runs a local flush on each of them through call_cpus.
 */
void replay_heap_ops(struct replay_ops *ops);

#endif
