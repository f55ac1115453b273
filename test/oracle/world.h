/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap under test with everything around it: a host and a back-end that watch every rule of the
 * two contracts and can fail on demand, table memory filled with garbage between canaries, and a
 * record per frame of what really is owed, kept by what the fake hardware was told to do.
 *
 * No dependency on the test harness, so that the fuzz target uses it too: a broken rule is kept in
 * world->failure, which the users look at.
 */
#ifndef HVMEM_TEST_WORLD_H
#define HVMEM_TEST_WORLD_H

#include <hvmem/domain.h>
#include <hvmem/heap.h>
#include <hvmem/map.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORLD_MAX_TABLES  256
#define WORLD_MAX_DOMAINS 64
#define WORLD_MAX_EVENTS  64

/* What the host offers (flags of world_new). */
#define WORLD_NO_HOST     0x01u /* no operations at all */
#define WORLD_HOST_LOCK   0x02u /* lock and unlock of the host's own */
#define WORLD_BARRIER     0x04u /* barrier_cpu */
#define WORLD_BROADCAST   0x08u /* the back-end reaches all CPUs by itself */
#define WORLD_NO_BACKEND  0x10u
#define WORLD_NO_SETTLE   0x20u /* no settle operation */
#define WORLD_NO_MAP      0x40u /* no frame_map operation */
#define WORLD_REAL_MEMORY 0x80u /* frames tracked by world_track have bytes */

struct world_report {
    hvmem_status code;
    hvmem_mfn mfn;
    hvmem_order order;
    hvmem_u64 info;
};

struct world_event {
    hvmem_u32 event;
    hvmem_u64 a;
    hvmem_u64 b;
};

struct world_table {
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem_node node;
    hvmem_u32 flags;
    unsigned char *memory;
    hvmem_size bytes;
    hvmem_size mapped; /* 0: from malloc, with a canary behind */
};

struct world_domain {
    struct hvmem_domain *handle;
    unsigned char *memory;
    hvmem_size bytes;
    hvmem_u32 id;
};

/* Counts of what the fake hardware and host were asked to do. */
struct world_counts {
    uint64_t tlb;       /* batches */
    uint64_t flushes;   /* whole flushes (HVMEM_FLUSH_ALL) */
    uint64_t zeroed;    /* bytes */
    uint64_t dcache;    /* bytes */
    uint64_t completed; /* calls of dcache_done */
    uint64_t icache;    /* calls, by address or all */
    uint64_t settled;   /* frames */
    uint64_t mapped;    /* calls of frame_map */
    uint64_t unmapped;
    uint64_t barriers;
    uint64_t calls; /* call_cpus */
    uint64_t reports;
    uint64_t events;
};

struct world {
    struct hvmem_heap *heap;
    struct hvmem_config config;
    unsigned flags;
    bool smp;
    unsigned char *memory;
    hvmem_size bytes;
    struct world_table tables[WORLD_MAX_TABLES];
    unsigned table_count;
    struct world_domain domains[WORLD_MAX_DOMAINS];
    unsigned domain_count;

    struct hvmem_host_ops host;
    struct hvmem_backend_ops backend_ops;
    struct hvmem_backend backend;
    pthread_mutex_t guard; /* counts, events and debts, when threads are used */
    struct world_counts counts;
    struct world_report report; /* the last one */
    struct world_event events[WORLD_MAX_EVENTS];
    uint64_t online; /* CPUs, bit n */

    /* The n-th fallible operation from now fails; 0: none. failed counts those that did. */
    unsigned fail_in;
    unsigned yields; /* each n-th question of yield_wanted is answered with yes; 0: none */
    unsigned yields_asked;
    unsigned fail_count;
    /* If set: asked before barrier_cpu does its work, what it fails with; called in waiting loops. */
    hvmem_status (*barrier)(struct world *world, hvmem_cpu cpu);
    void (*relaxing)(struct world *world);
    /* If set: called where a call of the library takes or has released a lock (WORLD_HOST_LOCK) or a pin
     * and has none: what another CPU does just then. */
    void (*between)(struct world *world);

    /* Debts by frame in [debt_base, debt_base + debt_frames): HVMEM_OWES_* without TLB ... */
    hvmem_mfn debt_base;
    hvmem_u64 debt_frames;
    unsigned char *debt;
    uint64_t *stale;        /* ... and the CPUs which may hold an earlier translation. */
    unsigned char *content; /* with WORLD_REAL_MEMORY */

    char failure[256]; /* the first broken rule; empty: none */
};

/* Defaults of the tests: max_order 10, caller serialises, 1 CPU, 16 banks, 8 domains. */
struct hvmem_config world_config(void);

/* A heap; NULL if it was refused (*status says why; may be NULL). Garbage as world_garbage says. */
struct world *world_new(const struct hvmem_config *config, unsigned flags, hvmem_status *status);
/* Check the canaries and give everything back. False if a rule was broken (printed). */
bool world_delete(struct world *world);
/* smp_enable and every CPU below config.max_cpus online. */
hvmem_status world_smp(struct world *world);

/* Add or remove a bank with a table of exactly the size asked. */
hvmem_status world_bank(struct world *world, hvmem_mfn base, hvmem_u64 frames, hvmem_node node,
                        hvmem_u32 flags);
hvmem_status world_remove(struct world *world, hvmem_mfn base, hvmem_u64 frames);
/* The table of the bank that holds this frame; NULL: none. */
struct world_table *world_table_of(struct world *world, hvmem_mfn mfn);
/* A domain; NULL if refused. limit ~0: none. */
struct hvmem_domain *world_domain(struct world *world, hvmem_u32 id, hvmem_u64 limit,
                                  hvmem_u64 node_mask, hvmem_status *status);
/* Destroy it and forget its memory. */
hvmem_status world_domain_gone(struct world *world, struct hvmem_domain *domain);

/* The calling thread's CPU. */
void world_set_cpu(hvmem_cpu cpu);
hvmem_cpu world_cpu(void);

/* Keep debts for this range from now on. */
void world_track(struct world *world, hvmem_mfn base, hvmem_u64 frames);
/* The frames were freed by an owner that leaves these debts. */
void world_owe(struct world *world, hvmem_mfn mfn, hvmem_u64 frames, hvmem_u32 owed);
/* The frames are out of the machine: nothing is owed for them. */
void world_forgive(struct world *world, hvmem_mfn mfn, hvmem_u64 frames);
/* The CPU left; before it joins again it flushes: it holds no translation any more. */
void world_forget_cpu(struct world *world, hvmem_cpu cpu);
/* What the frames really owe (OR). */
hvmem_u32 world_owed(struct world *world, hvmem_mfn mfn, hvmem_u64 frames);

/* Note a broken rule (printf form); only the first is kept. */
void world_fail(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Fill memory as the heap will find it: 0xA5, or with the environment variable HVMEM_TEST_FILL
 * set to "zero", "ones" or "random", that.
 */
void world_garbage(void *memory, size_t bytes);

/* Whether the core is bound to the world at compile time: its host has a this_cpu in any case. */
bool world_is_bound(void);

/* Filled in by world_new; for tests that configure a heap of their own. */
void world_host_ops(struct world *world);
void world_backend_ops(struct world *world);

/* Fails now? (counts down fail_in; environment.c asks at each fallible operation). */
bool world_fails(struct world *world);
/* First frame and count of a mapping made by frame_map; false: not such an address. */
bool world_mapped_frames(struct world *world, hvmem_uptr address, hvmem_size bytes,
                         hvmem_mfn *first, hvmem_u64 *frames);

#endif
