/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compile-time binding of hvmem/host.h and hvmem/backend.h to the worlds of the tests: the core calls
 * functions instead of table members. They watch the same rules, and count that they were called.
 */
#ifndef HVMEM_TEST_WORLD_BOUND_H
#define HVMEM_TEST_WORLD_BOUND_H

#include <hvmem/backend.h>
#include <hvmem/host.h>

hvmem_cpu world_bound_this_cpu(void *host);
hvmem_u64 world_bound_pin(void *host);
void world_bound_unpin(void *host, hvmem_u64 state);
void world_bound_relax(void *host);
void world_bound_lock(void *host, struct hvmem_lock *lock);
void world_bound_unlock(void *host, struct hvmem_lock *lock);
hvmem_status world_bound_tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush);
hvmem_status world_bound_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                                hvmem_size bytes);
hvmem_status world_bound_dcache_done(struct hvmem_backend *be, hvmem_u32 op);
hvmem_status world_bound_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes);

#define HVMEM_HOST_THIS_CPU(host)     world_bound_this_cpu(host)
#define HVMEM_HOST_PIN(host)          world_bound_pin(host)
#define HVMEM_HOST_UNPIN(host, state) world_bound_unpin(host, state)
#define HVMEM_HOST_RELAX(host)        world_bound_relax(host)
#define HVMEM_HOST_LOCK(host, lock)   world_bound_lock(host, lock)
#define HVMEM_HOST_UNLOCK(host, lock) world_bound_unlock(host, lock)

#define HVMEM_BACKEND_TLB_FLUSH(be, flush)        world_bound_tlb_flush(be, flush)
#define HVMEM_BACKEND_DCACHE(be, op, addr, bytes) world_bound_dcache(be, op, addr, bytes)
#define HVMEM_BACKEND_DCACHE_DONE(be, op)         world_bound_dcache_done(be, op)
#define HVMEM_BACKEND_ZERO(be, addr, bytes)       world_bound_zero(be, addr, bytes)

#endif
