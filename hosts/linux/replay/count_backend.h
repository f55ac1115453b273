/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A back-end for user space: no instruction is issued, every request is checked as the contract of
 * hvmem/backend.h says and counted by kind. Any number of threads may use it.
 */
#ifndef COUNT_BACKEND_H
#define COUNT_BACKEND_H

#include <hvmem/backend.h>

#include <stdatomic.h>
#include <stdint.h>

struct recorders;

struct count_backend {
    struct hvmem_backend backend; /* give its address to the heap */
    _Atomic uint64_t all;         /* whole flushes: HVMEM_FLUSH_ALL, _SPACE, _REGIME */
    _Atomic uint64_t ranges;      /* range batches */
    _Atomic uint64_t pages;       /* strides in them */
    _Atomic uint64_t broadcast;   /* of all batches, those not local to a CPU */
    _Atomic uint64_t icache;      /* I-cache requests */
    _Atomic uint64_t dcache_bytes;
    _Atomic uint64_t zeroed_bytes;
    _Atomic uint64_t refused; /* requests that broke the contract */
    /* NULL, or who is asked to do each TLB request (recorders.h); set after init, kept by clear. */
    hvmem_status (*forward)(struct recorders *recorders, const struct hvmem_tlb_flush *flush);
    struct recorders *recorders;
};

/* features: HVMEM_CAP_* the back-end shall claim. */
void count_backend_init(struct count_backend *counter, hvmem_u64 features);
void count_backend_clear(struct count_backend *counter);

#endif
