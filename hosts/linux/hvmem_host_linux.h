/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compile-time binding of hvmem/host.h to the Linux host (-DHVMEM_HOST_HEADER). A thread is a CPU
 * and never anything else, so the CPU number is one thread-local word and pinning is nothing.
 */
#ifndef HVMEM_HOST_LINUX_H
#define HVMEM_HOST_LINUX_H

#include <hvmem/types.h>

/* CPU of the calling thread; 0 before hvmem_linux_enter(). Written by the Linux host only. */
extern __thread hvmem_cpu hvmem_linux__this_cpu __attribute__((tls_model("initial-exec")));

void hvmem_linux_relax(void);

#define HVMEM_HOST_THIS_CPU(host)     ((void)(host), hvmem_linux__this_cpu)
#define HVMEM_HOST_PIN(host)          ((void)(host), (hvmem_u64)0)
#define HVMEM_HOST_UNPIN(host, state) ((void)(host), (void)(state))
#define HVMEM_HOST_RELAX(host)        ((void)(host), hvmem_linux_relax())

#endif
