/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap over real memory with the real cache instructions of this machine, for figures of work on
 * contents. Every operation on the data cache passes a counter.
 */
#ifndef BENCH_CONTENTS_MACHINE_H
#define BENCH_CONTENTS_MACHINE_H

#include "bench/common/figure.h"
#include "bench/common/pages.h"
#include "bench/common/rounds.h"

#include <hvmem/cache.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/populate.h>

#define CONTENTS_FIRST  0x100000u
#define CONTENTS_FRAMES ((hvmem_u64)1 << 18) /* 1 GiB */

struct contents {
    struct hvmem_heap *heap;
    struct hvmem_backend be;      /* what the heap uses */
    struct hvmem_backend_ops ops; /* counting */
    struct hvmem_backend real;    /* this machine's */
    unsigned char *memory;        /* CONTENTS_FRAMES frames */
    void *heap_memory, *table, *domain_memory;
    size_t heap_bytes, table_bytes, domain_bytes;
    hvmem_u64 longest;     /* bytes of one data-cache operation */
    hvmem_u64 icache_alls; /* whole invalidations of instruction caches */
};

/*
 * Nanoseconds of this thread's own on its CPU: rounds over 1 GiB are too long for a busy machine to
 * leave them alone.
 */
double contents_spent(void);

/* Opens it; what the frames of domains owe when they are freed; bank flags. */
void contents_open(struct contents *c, hvmem_u32 owed_on_free, hvmem_u32 bank_flags);
void contents_close(struct contents *c);
/* A domain in state BUILDING; one at a time. */
struct hvmem_domain *contents_domain(struct contents *c);
void contents_domain_gone(struct hvmem_domain *domain);
/* A block of the domain, everything deferred. */
hvmem_mfn contents_take(struct contents *c, struct hvmem_domain *domain, hvmem_order order);
/* All memory in blocks of `order` once through the hands of a domain, so that it owes. */
void contents_make_owe(struct contents *c, hvmem_order order);

#endif
