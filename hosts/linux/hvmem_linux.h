/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The Linux host of hvmem: user-space threads stand for CPUs, hwloc gives the topology (that of this
 * machine, or one described in a few words), mmap and libnuma give table memory. For demos, tests
 * and benchmarks; frames are numbers unless real memory behind them is asked for.
 */
#ifndef HVMEM_LINUX_H
#define HVMEM_LINUX_H

#include <hvmem/heap.h>
#include <hvmem/host.h>
#include <hvmem/map.h>

#include <stddef.h>

/* ---- threads as CPUs (cpu.c, call.c) -------------------------------------------------------- */

#define HVMEM_LINUX_MAX_CPUS 256u

#define HVMEM_LINUX_PIN     1u /* pin each thread to a CPU of this machine, in turn, if allowed */
#define HVMEM_LINUX_KICK    2u /* call_cpus interrupts its targets by a signal, as an IPI would */
#define HVMEM_LINUX_VERBOSE 4u /* print reports and events to stderr */

struct hvmem_linux_host;

struct hvmem_linux_host_config {
    hvmem_u32 cpus;            /* 1 .. HVMEM_LINUX_MAX_CPUS */
    hvmem_u32 flags;           /* HVMEM_LINUX_PIN, _KICK, _VERBOSE */
    hvmem_u32 call_timeout_ms; /* longest wait of call_cpus for one CPU; 0: 10,000 */
};

/* What the host was told and did; read at any time. */
struct hvmem_linux_counts {
    hvmem_u64 reports;      /* calls of `report` */
    hvmem_u64 events[8];    /* by HVMEM_EVENT_*; unknown ones under 0 */
    hvmem_u64 calls;        /* calls of `call_cpus` */
    hvmem_u64 called;       /* functions run on other CPUs by them */
    hvmem_u64 timeouts;     /* CPUs that did not answer in time */
    hvmem_u64 barriers;     /* calls of `barrier_cpu` */
    hvmem_u64 maps;         /* calls of `frame_map` that gave memory */
    hvmem_status last_code; /* of the last report */
    hvmem_mfn last_mfn;
};

/* Errors: HVMEM_E_ARG, HVMEM_E_CPU (number of CPUs), HVMEM_E_NOMEM. */
hvmem_status hvmem_linux_host_create(const struct hvmem_linux_host_config *config,
                                     struct hvmem_linux_host **host);
/* No thread may stand for one of its CPUs any more. NULL is ignored. */
void hvmem_linux_host_destroy(struct hvmem_linux_host *host);

/*
 * The operations of hvmem/host.h; the context to go with them is the host itself. Offered: this_cpu,
 * relax, barrier_cpu (where the kernel has membarrier's private expedited command; else absent, and
 * the library uses locked instructions), call_cpus, frame_map and frame_unmap (after
 * hvmem_linux_window), report, bug (prints and aborts), event. Valid as long as the host.
 */
const struct hvmem_host_ops *hvmem_linux_ops(struct hvmem_linux_host *host);

/*
 * The calling thread stands for `cpu` from now on, and no longer. One thread, one CPU. A thread
 * that never entered counts as CPU 0 for this_cpu and may not use call_cpus.
 * Errors: HVMEM_E_CPU (no such CPU), HVMEM_E_BUSY (CPU or thread is taken).
 */
hvmem_status hvmem_linux_enter(struct hvmem_linux_host *host, hvmem_cpu cpu);
void hvmem_linux_leave(void);

/*
 * Start one thread for each of the CPUs 0 .. cpus - 1; each enters, waits until all have, runs
 * fn(arg, cpu), goes on serving calls until all are done, and leaves. Returns when all have ended.
 * Errors: HVMEM_E_CPU, HVMEM_E_HOST (threads could not be started; fn was not run).
 */
hvmem_status hvmem_linux_run(struct hvmem_linux_host *host, hvmem_u32 cpus,
                             void (*fn)(void *arg, hvmem_cpu cpu), void *arg);

/* Run what other CPUs asked this thread's CPU to run (call_cpus). Returns how many. */
hvmem_u32 hvmem_linux_serve(void);

/* One turn of a wait: serves, pauses, and gives the processor away every 16th time. */
void hvmem_linux_relax(void);

void hvmem_linux_counts(const struct hvmem_linux_host *host, struct hvmem_linux_counts *counts);

/* ---- topology (topology.c) ------------------------------------------------------------------ */

struct hvmem_linux_node {
    hvmem_node id;   /* as the firmware gives it; may have holes */
    hvmem_u64 bytes; /* 0: a node without memory */
};

struct hvmem_linux_topology {
    hvmem_u32 cpus;
    hvmem_u32 nodes;
    hvmem_u32 distance_nodes; /* rows of distance: highest node id + 1 */
    hvmem_u32 synthetic;      /* 1: described, not found */
    struct hvmem_linux_node node[HVMEM_NODE_LIMIT];
    hvmem_u8 cpu_node[HVMEM_LINUX_MAX_CPUS];
    hvmem_u8 distance[HVMEM_NODE_LIMIT * HVMEM_NODE_LIMIT]; /* distance_nodes squared are used */
};

/*
 * This machine's topology (description NULL), or a synthetic one in hwloc's words: "numa:4 pu:2",
 * "pack:3 [numa(memory=1GB indexes=0,2,7)] core:4 pu:1". CPUs beyond the limit are left out.
 * A machine that tells no memory per node is one node 0 with all memory.
 * Errors: HVMEM_E_ARG (description not understood), HVMEM_E_NODE (node id beyond the limit),
 * HVMEM_E_HOST.
 */
hvmem_status hvmem_linux_topology(const char *description, struct hvmem_linux_topology *topology);

/* ---- memory maps in a file (memory_map.c) ---------------------------------------------------- */

#define HVMEM_LINUX_MAP_PIECES 64u

/* One section of a file of memory maps; the form is described in test/data/README.md. */
struct hvmem_linux_map {
    char name[64];
    hvmem_u32 ram_count;
    hvmem_u32 hotplug_count;
    hvmem_u32 distance_nodes;
    struct hvmem_map_piece ram[HVMEM_LINUX_MAP_PIECES];
    struct hvmem_map_piece hotplug[HVMEM_LINUX_MAP_PIECES];
    hvmem_u8 distance[HVMEM_NODE_LIMIT * HVMEM_NODE_LIMIT];
};

/*
 * Read section number `index` of the file. HVMEM_AGAIN: *map was filled; HVMEM_OK: no such section,
 * the file has fewer. Errors: HVMEM_E_HOST (file), HVMEM_E_ARG (a line is malformed: its number is
 * in *line), HVMEM_E_NODE, HVMEM_E_COUNT (too many pieces). line may be NULL.
 */
hvmem_status hvmem_linux_map_read(const char *path, hvmem_u32 index, struct hvmem_linux_map *map,
                                  unsigned *line);

/* ---- heaps (memory.c, heap.c) --------------------------------------------------------------- */

#define HVMEM_LINUX_PREFAULT 1u /* touch all table memory now, so that no page fault is measured */
#define HVMEM_LINUX_FRAMES   2u /* real memory behind the frames, for scrubbing (frame_map) */
#define HVMEM_LINUX_DIRTY    4u /* banks are added as HVMEM_BANK_DIRTY; tables hold 0xA5 */
#define HVMEM_LINUX_SMP      8u /* library locks, hvmem_smp_enable, all CPUs of the topology online */

/* First frame of a heap made from a topology; nodes follow each other at multiples of 1 GiB. */
#define HVMEM_LINUX_FIRST_MFN 0x100000u

struct hvmem_linux_heap_config {
    const struct hvmem_linux_topology *topology; /* CPUs and nodes; must not be NULL */
    const struct hvmem_linux_map *map;           /* banks and distances; NULL: from the topology */
    hvmem_u64 node_frames; /* topology: frames of each node that has memory; 0: as it says */
    hvmem_u32 flags;       /* HVMEM_LINUX_PREFAULT .. HVMEM_LINUX_SMP */
    hvmem_u32 reserved;
    struct hvmem_linux_host *host;   /* may be NULL: no host operations, one CPU */
    const struct hvmem_config *base; /* what else the heap shall be; NULL: the defaults */
};

struct hvmem_linux_heap {
    struct hvmem_heap *heap;
    struct hvmem_linux_host *host;
    hvmem_u64 frames;      /* in all banks */
    hvmem_u64 heap_bytes;  /* memory of the heap itself */
    hvmem_u64 table_bytes; /* of all banks */
    hvmem_u32 areas;       /* mappings to give back, private */
    hvmem_u32 reserved;
    struct {
        void *start;
        size_t bytes;
    } area[2 * HVMEM_LINUX_MAP_PIECES + 2];
};

/*
 * Make a heap with all its banks. The topology, map and base may go away afterwards; the host must
 * stay. Errors: HVMEM_E_ARG, HVMEM_E_UNSUPPORTED (SMP without a host), HVMEM_E_NOMEM, HVMEM_E_COUNT
 * (too many banks), HVMEM_E_HOST, and those of hvmem_heap_init, hvmem_bank_add, hvmem_smp_enable,
 * hvmem_cpu_online; nothing is left behind.
 */
hvmem_status hvmem_linux_heap_create(const struct hvmem_linux_heap_config *config,
                                     struct hvmem_linux_heap *heap);
/* Gives all memory back; the heap must not be in use. */
void hvmem_linux_heap_destroy(struct hvmem_linux_heap *heap);

/*
 * Anonymous memory, page aligned, on a node of this machine if it has that node (HVMEM_NODE_ANY:
 * anywhere); NULL if there is none.
 */
void *hvmem_linux_pages(size_t bytes, hvmem_node node, int prefault);

/*
 * Put real memory behind [base, base + frames): frame_map gives it from now on. One window a host;
 * frames 0 takes it away. Errors: HVMEM_E_RANGE, HVMEM_E_NOMEM.
 */
hvmem_status hvmem_linux_window(struct hvmem_linux_host *host, hvmem_mfn base, hvmem_u64 frames,
                                hvmem_u32 page_shift);

#endif
