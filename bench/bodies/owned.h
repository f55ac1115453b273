/* SPDX-License-Identifier: BSD-2-Clause */
/* owned.h: what the two bodies of a domain's blocks share: a heap with one running domain. */
#ifndef BENCH_OWNED_H
#define BENCH_OWNED_H

#include "body.h"

#include <hvmem/backend.h>
#include <hvmem/heap.h>

/* State of the pool; in front of the heap's own memory. */
struct owned {
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    struct hvmem_backend backend;
    struct hvmem_backend_ops ops;
    hvmem_u64 domain_memory[4096];
};

#endif
