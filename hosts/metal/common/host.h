/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The metal host as the library sees it: the operations of hvmem/host.h, and a heap over all RAM that
 * firmware reported and nobody keeps.
 */
#ifndef METAL_HOST_H
#define METAL_HOST_H

#include <hvmem/heap.h>

#include "metal.h"

/* What the library told the host; host_ctx of a heap. */
struct metal_host {
    uint64_t reports; /* mistakes of the caller */
    int32_t last_report;
    uint32_t report_lines; /* reports still printed on the console; counts down */
    uint64_t last_mfn;
    uint64_t events[5]; /* by HVMEM_EVENT_*, [0] = unknown ones */
};

/*
 * Fills in the table. Regimes PLAIN and IRQSAVE both work, but no function run by metal_call_cpus may
 * enter a heap of regime PLAIN. A host operation called from inside such a function cannot call CPUs
 * itself (HVMEM_E_HOST).
 */
void metal_host_ops(struct hvmem_host_ops *ops);

struct metal_heap_options {
    struct hvmem_backend *backend; /* NULL: no frame owes anything */
    uint32_t max_domains;
    uint32_t lock_regime; /* HVMEM_LOCK_* */
    uint32_t max_order;   /* 0: the library's default */
    uint32_t bank_flags;  /* HVMEM_BANK_* of every bank */
};

struct metal_heap {
    struct hvmem_heap *heap;
    struct metal_host host;
    struct hvmem_host_ops ops;
    uint64_t frames;       /* given to the heap */
    uint64_t table_frames; /* RAM that the heap and its tables take */
    uint32_t banks;
    uint32_t banks_skipped; /* too small for their own table; reported */
};

/*
 * Makes a heap of all RAM of the boot information except its reserved ranges. Node numbers are those
 * of struct metal_mem. The tables lie at the end of each bank, the heap itself in the largest one. CPU 0
 * only, before other CPUs use the heap. Returns the library's status; the first refusal is printed.
 */
hvmem_status metal_heap_boot(struct metal_heap *h, const struct metal_heap_options *options);

/* Lets all online CPUs use the heap; call after metal_start_cpus, on CPU 0. */
hvmem_status metal_heap_smp(struct metal_heap *h);

/*
 * Calls fn for what of [first, first + frames) is no memory that a heap gives out: outside its banks, or
 * reserved there. 0 as soon as fn returns 0, else 1.
 */
int metal_heap_outside(struct hvmem_heap *heap, hvmem_mfn first, hvmem_u64 frames,
                       int (*fn)(void *arg, hvmem_mfn first, hvmem_u64 frames), void *arg);

#endif
