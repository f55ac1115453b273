/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A machine for gathers: a heap whose frames are real page tables and pages of two spaces, CPUs and a
 * device that cache translations and table pointers as unkindly as the model TLB can, ids and spaces
 * of the library. The oracle: nothing that may be used reaches a frame that is not its space's any
 * more, nor a page that a finished gather promised to be gone. Needs HVMEM_TEST_POINTS for adversaries.
 */
#ifndef GATHER_RIG_H
#define GATHER_RIG_H

#include "backends/sim/tlb.h"
#include "test_main.h"

#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/space.h>

enum gather_kind {
    GATHER_PCID, /* numbers per CPU, CPUs are asked */
    GATHER_TAGS, /* one numbering, CPUs are asked */
    GATHER_VMID, /* one numbering, broadcast */
    GATHER_SVM,  /* numbers per CPU, asked CPUs leave the guest, the entry flushes */
    GATHER_KINDS
};

enum {
    GATHER_CPUS = 5,
    GATHER_SPACES = 2,
    GATHER_FRAMES = 8192,
    GATHER_BASE = 0x1000,
    GATHER_PAGES = 2048, /* pages of each space in use: four tables of the last level */
    GATHER_OPS = 3,      /* operations on a space at a time */
    GATHER_LOG = 4096
};

/* Ways to be different. */
#define GATHER_RIG_QUIET 1u /* nothing happens at test points by itself */
#define GATHER_RIG_PLAIN 2u /* the host has no call_cpus */
#define GATHER_RIG_DEAF  4u /* negative control: flushes drop nothing */

/* What happened, in order. */
enum gather_event { EVENT_FLUSH, EVENT_ASK, EVENT_DEVICE, EVENT_QUARANTINE };
struct gather_logged {
    enum gather_event event;
    hvmem_cpu cpu;
    uint64_t a, b; /* FLUSH: what, count; ASK: CPUs; DEVICE: count; others: frame */
    struct hvmem_tlb_range range[HVMEM_GATHER_RANGES];
};

/* One running unmap. */
struct gather_op {
    int open;
    int space;
    uint64_t page, pages, next; /* requested; the next to look at */
    struct hvmem_gather gather;
};

struct gather_rig {
    enum gather_kind kind;
    unsigned flags;
    struct test_rng rng;
    struct hvmem_heap *heap;
    struct hvmem_ident *ident;
    struct hvmem_sim_tlb *tlb;
    struct hvmem_space *space[GATHER_SPACES];
    struct hvmem_mapping mapping[GATHER_SPACES];
    struct hvmem_notifier device[GATHER_SPACES];
    hvmem_mfn root[GATHER_SPACES];
    uint64_t (*mem)[512];                /* contents of the frames that are tables */
    unsigned char owner[GATHER_FRAMES];  /* space + 1 while its own or gathered; 0 nobody's */
    unsigned short used[GATHER_FRAMES];  /* entries in a table */
    struct gather_op *by[GATHER_FRAMES]; /* the operation that gathered it */
    struct gather_op *finishing;
    struct gather_op op[GATHER_SPACES][GATHER_OPS];
    hvmem_cpu current;
    uint64_t online;
    int running[GATHER_CPUS]; /* space the hardware has loaded, -1 none */
    int wanted[GATHER_CPUS];  /* SVM: space to be entered again */
    int lazy[GATHER_CPUS];
    int depth;
    /* How the device behaves: 0 at once, > 0 after so many polls, < 0 this failure. */
    int device_status;
    uint64_t stale, reused; /* violations */
    uint64_t reported, quarantined;
    hvmem_status report;
    struct gather_logged log[GATHER_LOG];
    unsigned int logged;
    void (*on_ask)(struct gather_rig *rig); /* test's own, before CPUs are asked */
    void *memory[6 + GATHER_SPACES];
};

void gather_rig_begin(struct gather_rig *rig, enum gather_kind kind, unsigned flags,
                      uint64_t stream);
void gather_rig_end(struct gather_rig *rig);
/*
 * A quiet machine with an empty log: CPUs 0 and 1 run space 0, CPU 2 space 1, CPU 3 has space 0 loaded
 * lazily, CPU 4 runs nothing.
 */
void gather_rig_standard(struct gather_rig *rig, enum gather_kind kind, unsigned flags);
struct hvmem_mapping_stats gather_rig_stats(const struct gather_rig *rig, int space);
struct hvmem_block gather_rig_block(struct gather_rig *rig, hvmem_mfn mfn);

/* CPUs. */
void gather_rig_act(struct gather_rig *rig, hvmem_cpu cpu);
void gather_rig_switch(struct gather_rig *rig, hvmem_cpu cpu, int space);
void gather_rig_idle(struct gather_rig *rig, hvmem_cpu cpu);
void gather_rig_lazy(struct gather_rig *rig, hvmem_cpu cpu);
void gather_rig_offline(struct gather_rig *rig, hvmem_cpu cpu);
void gather_rig_online(struct gather_rig *rig, hvmem_cpu cpu);
void gather_rig_speculate(struct gather_rig *rig, unsigned each);
/* Whether the CPU reaches the page, caching what it finds. */
int gather_rig_access(struct gather_rig *rig, hvmem_cpu cpu, uint64_t page);

/* Tables. shift 0: a page; 9: a block. 0 if something is mapped there, or memory is short. */
int gather_rig_map(struct gather_rig *rig, int space, uint64_t page, unsigned shift);
/* What translates the page: its frame, or 0. */
hvmem_mfn gather_rig_mapped(struct gather_rig *rig, int space, uint64_t page);
/* An unmap begins; looks at up to `steps` entries; ends (finish, or cancel). */
struct gather_op *gather_rig_open(struct gather_rig *rig, int space, uint64_t page, uint64_t pages,
                                  hvmem_u32 flags);
void gather_rig_step(struct gather_rig *rig, struct gather_op *op, uint64_t steps);
hvmem_status gather_rig_close(struct gather_rig *rig, struct gather_op *op, int cancel);
/* All of it. */
hvmem_status gather_rig_unmap(struct gather_rig *rig, int space, uint64_t page, uint64_t pages);

/* Scan everything that may be used; counts violations. */
void gather_rig_check(struct gather_rig *rig);
/* The frames that an operation gathered are nobody's from now on: nothing may reach them. */
void gather_rig_disown(struct gather_rig *rig, const struct gather_op *op);
/* That many random steps. */
void gather_rig_run(struct gather_rig *rig, uint64_t steps);
/* Events of a kind since entry `from` of the log. */
unsigned int gather_rig_count(const struct gather_rig *rig, enum gather_event event,
                              unsigned int from);

#endif
