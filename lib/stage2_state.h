/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_state.h: what a stage 2 consists of.
 *
 * INVARIANTS, under the lock:
 *  - a table below the root holds at least one present entry, and the entry that points to it says
 *    how many; so an empty table is found without a scan.
 *  - an entry may be cached by hardware if it and all above it are valid, or a gather that saw it
 *    valid is open (then overlapping gathers flush what they were asked for), or `arming` is set.
 *  - `held` counts tables from the heap until they go back to it: in use, in the pool, or unhooked
 *    and waiting for a flush.
 */
#ifndef HVMEM_LIB_STAGE2_STATE_H
#define HVMEM_LIB_STAGE2_STATE_H

#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/stage2.h>

#include "heap.h"
#include "s2_format.h"

#define HVMEM__S2_LIVE  1u
#define HVMEM__S2_DYING 2u
#define HVMEM__S2_GONE  3u

/* Tables kept ready when they come back from a gather. */
#define HVMEM__S2_POOL 16u
/* Times an operation starts over because others changed what it was about to. */
#define HVMEM__S2_TRIES 16u
/* Turns of the longest wait for another CPU that pays for a first touch. */
#define HVMEM__S2_WAITS 10000000u

/*
 * First touch of an unclean leaf in progress. While `running` is not 0 the leaf stays what it is: what
 * is paid for must not go to another owner, nor to the guest, half-way.
 */
#define HVMEM__S2_TOUCHES 8u
struct hvmem__s2_touch {
    hvmem_gfn gfn;     /* first of the leaf, plus 1; 0: free */
    hvmem_u32 next;    /* frames taken on so far */
    hvmem_u32 running; /* calls that pay for some of them */
    hvmem_u32 failed;  /* one could not: all over again */
    hvmem_u32 reserved;
};

/* A preemptible operation: its cursor holds `serial`. */
struct hvmem__s2_open {
    hvmem_u64 serial; /* of the open one, 0 none */
    hvmem_u64 at;
    hvmem_u32 busy; /* a call is under way */
    hvmem_u32 phase;
};

/* Set/way: frames of the leaf table that was re-armed last. */
struct hvmem__s2_setway {
    struct hvmem__s2_open open; /* at: gfn of the next table */
    hvmem_gfn base;             /* of the noted table */
    hvmem_u32 level;            /* of its entries */
    hvmem_u32 reserved;
    hvmem_u64 noted[8]; /* bit i: entry i is still to be cleaned */
    hvmem_u64 cleaned;  /* frames of the lowest noted entry that are clean */
    hvmem_u32 all;      /* what is untouched is not known: this pass notes all there is */
    hvmem_u32 spare;
};

struct hvmem_stage2 {
    /* Constant after init. */
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    struct hvmem__s2_format f;
    hvmem_u32 flags, start_level, input_bits, output_bits, id_bits, largest, touch_lines;
    hvmem_u32 root_order;
    hvmem_u32 must_break; /* a change of size needs break-before-make */
    hvmem_node node;
    hvmem_mfn root;
    hvmem_u64 root_entries;
    hvmem_u64 max_tables;
    hvmem_uptr direct_map;
    void *(*table_at)(void *ctx, hvmem_maddr table);
    struct hvmem_stage2_populate populate;
    void *ctx;
    struct hvmem_mapping mapping;

    struct hvmem_lock lock; /* rank STAGE2; guards all that follows */
    hvmem_u32 state;        /* HVMEM__S2_*; atomic to read */
    hvmem_u32 armed;        /* atomic to read */
    hvmem_u32 arming;       /* root entries were cleared and not flushed yet */
    hvmem_u32 unflushed;    /* gathers that removed entries and have not finished */
    hvmem_u64 removals;     /* steps that removed entries */
    /* What is in gathers of callers lies in there, while mapping.lent is not 0. */
    hvmem_gfn lent_start, lent_end;
    hvmem_u64 breaks[16]; /* entries made broken, by break_count() of stage2_split.c */
    hvmem_u64 held, used; /* tables */
    hvmem_u64 pool_count;
    hvmem_mfn pool; /* linked by the first word of each table */
    hvmem_u64 leaves[3];
    hvmem_u64 faults, repairs, pushed, splits, merges;
    hvmem_u64 announced; /* mapping.faults when the open disarm began */
    struct hvmem__s2_open arm, disarm, teardown;
    struct hvmem__s2_setway setway;
    struct hvmem__s2_touch touch[HVMEM__S2_TOUCHES];
};

#endif
