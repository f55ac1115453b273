/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap on a machine of model CPUs that do their worst: at every test point of the flush clock, and
 * between any two steps, CPUs load whatever the tables allow, flush, switch and free. The oracle: when
 * frames are handed over no CPU holds a translation of theirs. Needs HVMEM_TEST_POINTS.
 */
#ifndef CLOCK_RIG_H
#define CLOCK_RIG_H

#include "backends/sim/tlb.h"
#include "test_main.h"

#include <hvmem/bank.h>
#include <hvmem/clock.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>

enum {
    CLOCK_CPUS = 5,
    CLOCK_TENANTS = 3,
    CLOCK_SLOTS = 8,      /* blocks a tenant can have */
    CLOCK_SLOT_PAGES = 4, /* pages each can map */
    CLOCK_FRAMES = 64
};

/* Ways to be wrong or different. */
#define CLOCK_RIG_BROADCAST 1u
#define CLOCK_RIG_OFF       2u /* HVMEM_CONFIG_NO_CLOCK */
#define CLOCK_RIG_NO_CACHE  4u
#define CLOCK_RIG_DEAF      8u  /* negative control: flushes drop nothing */
#define CLOCK_RIG_QUIET     16u /* nothing happens at test points by itself */

struct clock_slot {
    hvmem_mfn mfn;
    hvmem_u32 order;
    int used; /* 1: mapped; 2: being freed */
};

struct clock_rig {
    struct hvmem_heap *heap;
    struct hvmem_sim_tlb *tlb;
    struct test_rng rng;
    unsigned flags;
    hvmem_cpu current;
    uint64_t online;
    int loaded[CLOCK_CPUS]; /* tenant, or -1 */
    struct clock_slot slot[CLOCK_TENANTS][CLOCK_SLOTS];
    int depth;          /* adversaries at work */
    uint64_t handed;    /* blocks handed over */
    uint64_t stale;     /* translations of theirs that a CPU still held */
    uint64_t asked;     /* CPUs that call_cpus ran */
    const char *broken; /* a call that must succeed did not */
    void *memory[3];
};

void clock_rig_begin(struct clock_rig *rig, unsigned flags, uint64_t stream);
void clock_rig_end(struct clock_rig *rig);

/* Steps of CPU `cpu`; they may be nested at test points, as another CPU. */
hvmem_status clock_rig_alloc(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int slot,
                             hvmem_u32 order);
void clock_rig_free(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int slot);
/* Run another tenant (-1: none), with a full flush if `flush`. */
void clock_rig_switch(struct clock_rig *rig, hvmem_cpu cpu, int tenant, int flush);
/* A full flush of the host's own; flags as hvmem_flush_begin. */
void clock_rig_flush(struct clock_rig *rig, hvmem_cpu cpu, hvmem_u32 flags);
void clock_rig_offline(struct clock_rig *rig, hvmem_cpu cpu);
void clock_rig_online(struct clock_rig *rig, hvmem_cpu cpu);
/* CPUs load what nobody asked for: each about `each` translations. */
void clock_rig_speculate(struct clock_rig *rig, unsigned each);

/* That many random steps. */
void clock_rig_run(struct clock_rig *rig, uint64_t steps);

/* Translations of these frames that a CPU which runs may use. */
uint64_t clock_rig_holders(struct clock_rig *rig, hvmem_mfn mfn, hvmem_u64 frames);
hvmem_u64 clock_rig_flushes(struct clock_rig *rig);

#endif
