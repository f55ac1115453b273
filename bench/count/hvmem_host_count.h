/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compile-time binding of hvmem/host.h for counting how long locks are held: one thread, CPU 0, and
 * locks that tell bench/count/locks.c instead of waiting.
 */
#ifndef HVMEM_HOST_COUNT_H
#define HVMEM_HOST_COUNT_H

#include <hvmem/types.h>

void bench_count_lock(const void *lock);
void bench_count_unlock(const void *lock);

#define HVMEM_HOST_THIS_CPU(host)     ((void)(host), (hvmem_cpu)0)
#define HVMEM_HOST_PIN(host)          ((void)(host), (hvmem_u64)0)
#define HVMEM_HOST_UNPIN(host, state) ((void)(host), (void)(state))
#define HVMEM_HOST_RELAX(host)        ((void)(host))
#define HVMEM_HOST_LOCK(host, lock)   ((void)(host), bench_count_lock(lock))
#define HVMEM_HOST_UNLOCK(host, lock) ((void)(host), bench_count_unlock(lock))

#endif
