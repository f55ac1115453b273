/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h: the inside of a heap: which structures exist, what guards each member, and the one
 * concept a file of the heap's internal interface.
 *
 * A heap is a directory of banks (bank.h), each belonging to one arena (arena.h). An arena is the
 * set of frames of one node that share a lock; blocks merge within it. In front of the arenas
 * stand the per-CPU caches (pcpu.h).
 */
#ifndef HVMEM_LIB_HEAP_H
#define HVMEM_LIB_HEAP_H

#include <hvmem/domain.h>
#include <hvmem/heap.h>

#include "frame.h"
#include "lazybits.h"
#include "lock.h"
#include "passage.h"

/* Arenas a node can have; a power of two. The arena of a frame is (mfn >> arena_order) modulo it. */
#define HVMEM__NODE_ARENAS 64u
#define HVMEM__NO_ARENA    0xffffu
#define HVMEM__NO_MFN      (~(hvmem_u64)0)

/*
 * A piece of RAM with its table: at most one span of 2^arena_order frames. Geometry is constant
 * while live. Counts and sets are guarded by the arena's lock.
 */
struct hvmem__bank {
    hvmem_mfn base;
    hvmem_u64 frames;
    hvmem__record *record; /* one a frame */
    struct hvmem__table *table;
    hvmem_u32 live;  /* 1 while in the directory; admin lock, and the arena's lock to clear it */
    hvmem_u32 arena; /* index; read without lock (hvmem__bank_lock()), as the node */
    hvmem_node node;
    struct hvmem__bank *next, *before; /* of the arena, by address, or NULL; arena lock */
    hvmem_mfn group_base;              /* the bank as the host gave it */
    hvmem_u64 group_frames;
    hvmem_u32 orders;      /* bit k: there are free blocks of order k */
    hvmem_u32 spread;      /* bit k: of them some in the bitmap, in_bitmap[k] != 0 */
    hvmem_u32 hotplug;     /* range for node look-up only; no table */
    hvmem_u32 leaving;     /* 1: not live any more, but its table is; admin lock */
    hvmem_u32 filling;     /* 1: being added, its frames become free one block after the other */
    hvmem_u32 marked;      /* 1: its table may be marked clean; arena lock, read at any time */
    hvmem_u32 climb;       /* levels of bitmaps that a block merges through in one hold (table.c) */
    hvmem_u64 free_frames; /* in free blocks whose head is in this bank */
    hvmem_u64 reserved_frames;
    hvmem_u64 offline_frames; /* OFFLINE, OFFLINING excluded */
    hvmem_u64 quarantine_frames;
    hvmem_u64 in_bitmap[HVMEM_ORDER_LIMIT + 1]; /* members of free[k] */
    struct hvmem__bits head;                    /* frames that start a block outside the free set */
    /* Blocks of each order, by index from base (sets.h). */
    struct hvmem__bits free[HVMEM_ORDER_LIMIT + 1];
};

struct hvmem__arena {
    struct hvmem_lock lock;
    hvmem_node node;
    hvmem_u32 slot;            /* place in its node's tables */
    struct hvmem__bank *first; /* banks by address */
    hvmem_u32 counted;         /* claims are being counted here (claim.h); arena lock */
    hvmem_u32 owing;           /* 1: a free block may owe a flush; arena lock */
    hvmem_u32 banks;           /* how many; arena lock */
    hvmem_u32 links;           /* banks added and removed so far; arena lock */
    hvmem_u32 plain;           /* 1: not counted, and few banks; arena lock */
    hvmem_u64 moves;           /* blocks that came to free sets or left them so far; arena lock */
    hvmem_u8 pad[HVMEM_LINE - 56];
};

/* Banks of an arena that one hold of its lock may pass without counting them. */
#define HVMEM__FEW_BANKS 16u

/*
 * may[k]: arenas that may have a free block of order >= k. INVARIANT: a clear bit is right. Bits are
 * set by whoever adds such a block and cleared only by a search that found none, both under the
 * arena's lock, so that in steady state nobody writes here. A search of many banks takes several holds: it
 * clears bits only if nothing in the arena moved meanwhile (hvmem__arena_searched()).
 */
struct hvmem__node {
    hvmem_u64 may[HVMEM_ORDER_LIMIT + 1];
    hvmem_u16 arena[HVMEM__NODE_ARENAS]; /* index or HVMEM__NO_ARENA; admin lock */
    hvmem_u64 spare;                     /* free and not claimed; claim lock */
    hvmem_u64 claimed;                   /* node claims outstanding; claim lock */
    hvmem_u64 banks;                     /* banks on this node; admin lock */
};

/*
 * Frames whose contents are being paid for just now, of allocated blocks that others may pay for as well
 * (touched.h): ranges that do not overlap, each within one chunk of 2^9 frames. A chunk has its line.
 */
#define HVMEM__HOLD_LINES 16u
#define HVMEM__HOLDS      6u
#define HVMEM__HOLD_ORDER 9u
struct hvmem__holds {
    struct hvmem_lock lock;
    hvmem_u32 count;
    hvmem_u32 reserved;
    hvmem_u64 range[HVMEM__HOLDS]; /* first frame << 10 | frames */
} __attribute__((aligned(HVMEM_LINE)));

struct hvmem__pcpu;
struct hvmem__cpu_time;

/* The flush clock (clock.h). Atomic. */
struct hvmem__clock {
    hvmem_u64 now;
    hvmem_u64 stamped;           /* a clock value that frames were stamped with lately */
    hvmem_u64 floor;             /* frames stamped below owe no flush */
    struct hvmem__cpu_time *cpu; /* [max_cpus] */
    hvmem_u32 mode;              /* HVMEM__CLOCK_*; constant after init */
} __attribute__((aligned(HVMEM_LINE)));

struct hvmem_heap {
    /* Constant after init. */
    struct hvmem__host host;
    struct hvmem_backend *backend;
    hvmem_u32 page_shift, max_order, arena_order, flags;
    hvmem_u32 max_cpus, max_banks, max_domains, owed_on_free;
    hvmem_u32 distance_nodes;
    hvmem_u64 low_frames, low_hysteresis;
    hvmem_u8 *distance;           /* [distance_nodes][distance_nodes] */
    hvmem_u8 *cpu_node;           /* [max_cpus] */
    struct hvmem__bank *bank;     /* [max_banks] */
    struct hvmem__arena *arena;   /* [max_banks + HVMEM_NODE_LIMIT], see arena_for() in bank.c */
    struct hvmem__pcpu *pcpu;     /* [max_cpus] */
    struct hvmem_domain **domain; /* [max_domains + 1], by id; admin lock */
    hvmem_u32 *order_of_banks;    /* [max_banks] live banks by base; directory (bank.h) */
    hvmem_u32 *token_cpu;         /* [tokens] (pcpu.h) */
    hvmem_u64 *online;            /* CPU set, a bit each; admin lock */

    struct hvmem_lock admin;
    hvmem_u32 next_bank;   /* where the search for a free slot starts; admin lock */
    hvmem_u32 hotplugs;    /* slots of ranges for node look-up only; admin lock */
    hvmem_u32 leaving;     /* slots of banks that are leaving; admin lock */
    hvmem_u32 sequence;    /* odd while the directory changes (bank.h) */
    hvmem_u32 banks;       /* live banks in order_of_banks */
    hvmem_u32 arenas;      /* arenas in use; never shrinks; admin lock */
    hvmem_u32 tokens_used; /* admin lock */
    hvmem_u32 low_state;   /* 1: LOW_MEMORY was told last; atomic */
    hvmem_u32 adopting;    /* tables are being taken over: nothing else is allowed (adopt.c) */
    hvmem_u64 adopt_at;    /* where its cursor stands */
    hvmem_u64 node_mask;   /* nodes with memory; admin lock, read at any time */

    hvmem_mfn *bad; /* [HVMEM__BAD_LIMIT] bad frames in use (offline.h); admin lock */
    hvmem_u32 bad_count;

    struct hvmem_lock claim_lock;
    hvmem_u32 claims_active; /* claim.h; admin lock */
    hvmem_u64 spare;         /* free frames not claimed; claim lock */
    hvmem_u64 claimed;       /* all outstanding claims; claim lock */
    hvmem_u64 claims_back;   /* times something drawn went back to one; claim lock */

    struct hvmem__clock clock;
    hvmem_u64 operations; /* serial of the operation in steps opened last; atomic */
    hvmem_u64 refused;    /* atomic */
    hvmem_u64 flushes;    /* atomic */
    hvmem_u64 flush_cpus; /* atomic */
    hvmem_u64 gathers;    /* open gathers that hold frames; atomic (gathered.h) */
    hvmem_u64 unmerged;   /* blocks given that are merged on under another hold; atomic (arena.h) */

    struct hvmem__passages cleans; /* hvmem_cache_range() */
    struct hvmem__holds holds[HVMEM__HOLD_LINES];
    struct hvmem__node node[HVMEM_NODE_LIMIT];
};

/* Count a refusal and, if the caller is to blame, report it. Returns `code`. No lock held. */
hvmem_status hvmem__refuse(struct hvmem_heap *heap, hvmem_status code, hvmem_mfn mfn,
                           hvmem_order order, hvmem_u64 info);

/* Atomic where several CPUs run, plain before. */
HVMEM_INLINE void hvmem__count(const struct hvmem_heap *heap, hvmem_u64 *counter, hvmem_u64 by)
{
    if (heap->host.smp)
        __atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
    else
        hvmem__store(counter, *counter + by);
}

/*
 * Debts of frames that come to owe these. Zeroes of a scrub may stay in a cache; where a new owner may
 * bypass the caches it would see what is behind them: whatever owes a scrub owes a clean too.
 */
HVMEM_INLINE hvmem_u32 hvmem__with_clean(const struct hvmem_heap *heap, hvmem_u32 owed)
{
    return owed & HVMEM_OWES_SCRUB ? owed | (heap->owed_on_free & HVMEM_OWES_DCACHE) : owed;
}

/* A serial that no other operation in steps has. */
HVMEM_INLINE hvmem_u64 hvmem__next_serial(struct hvmem_heap *heap)
{
    return heap->host.smp ? __atomic_add_fetch(&heap->operations, 1, __ATOMIC_RELAXED)
                          : ++heap->operations;
}

HVMEM_INLINE hvmem_u64 hvmem__lock_admin(struct hvmem_heap *heap)
{
    return hvmem__lock(&heap->host, &heap->admin, HVMEM__RANK_ADMIN);
}

HVMEM_INLINE void hvmem__unlock_admin(struct hvmem_heap *heap, hvmem_u64 state)
{
    hvmem__unlock(&heap->host, &heap->admin, HVMEM__RANK_ADMIN, state);
}

HVMEM_INLINE hvmem_u64 hvmem__lock_arena(struct hvmem_heap *heap, struct hvmem__arena *arena)
{
    return hvmem__lock_hot(&heap->host, &arena->lock, HVMEM__RANK_ARENA);
}

HVMEM_INLINE void hvmem__unlock_arena(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                      hvmem_u64 state)
{
    hvmem__unlock_hot(&heap->host, &arena->lock, HVMEM__RANK_ARENA, state);
}

#endif
