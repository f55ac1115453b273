/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2.h: the inside of a stage 2, its walk, and the steps that its operations consist of.
 *
 * INVARIANTS, under the lock:
 *  - a table below the root holds at least one present entry, and the entry that points to it says
 *    how many; so an empty table is found without a scan.
 *  - an entry may be cached by hardware if it and all above it are valid, or a gather that saw it
 *    valid is open (then overlapping gathers flush what they were asked for), or `arming` is set.
 *  - `held` counts tables from the heap until they go back to it: in use, in the pool, or unhooked
 *    and waiting for a flush.
 * An operation works in steps of at most HVMEM_S2_SLICE entries under the lock. A step that needs a
 * table, a split or a flush says so and changes nothing more; the operation gets it without the lock
 * and starts the step again from the root.
 */
#ifndef HVMEM_LIB_STAGE2_H
#define HVMEM_LIB_STAGE2_H

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

/* What a step needs before it can go on (never returned by a public function). */
#define HVMEM__S2_NEED_TABLES (-1000)
#define HVMEM__S2_NEED_SPLIT  (-1001)
#define HVMEM__S2_NEED_FLUSH  (-1002)
#define HVMEM__S2_NEED_WAIT   (-1003)

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
    hvmem_u64 breaks[16];   /* entries made broken, by hvmem__s2_break_slot() */
    hvmem_u64 held, used;   /* tables */
    hvmem_u64 pool_count;
    hvmem_mfn pool; /* linked by the first word of each table */
    hvmem_u64 leaves[3];
    hvmem_u64 faults, repairs, pushed, splits, merges;
    hvmem_u64 serials;
    struct hvmem__s2_open arm, disarm, teardown;
    struct hvmem__s2_setway setway;
    struct hvmem__s2_touch touch[HVMEM__S2_TOUCHES];
};

/* From the root to an absent entry or a leaf. */
struct hvmem__s2_path {
    hvmem_u64 *slot[4]; /* by level, from start_level to `level` */
    hvmem_u64 entry;    /* *slot[level] */
    hvmem_u32 level;
    hvmem_u32 walkable; /* all entries above are valid */
};

/* A piece of work on a range; the steps below move `at`. */
struct hvmem__s2_work {
    hvmem_gfn at, end;
    struct hvmem_gather *gather;
    hvmem_u32 kind;   /* HVMEM__S2_UNMAP .. */
    hvmem_u32 rights; /* PROTECT */
    hvmem_u64 frames; /* AGE: touched */
    hvmem_u64 tables; /* NEED_TABLES: how many */
    hvmem_u32 level;  /* NEED_SPLIT: of the leaf */
    hvmem_u32 removed;
};
#define HVMEM__S2_UNMAP     1u
#define HVMEM__S2_PROTECT   2u
#define HVMEM__S2_AGE       3u
#define HVMEM__S2_AGE_CLEAR 4u

HVMEM_INLINE hvmem_u64 hvmem__s2_lock(struct hvmem_stage2 *s2)
{
    return hvmem__lock(&s2->heap->host, &s2->lock, HVMEM__RANK_STAGE2);
}

HVMEM_INLINE void hvmem__s2_unlock(struct hvmem_stage2 *s2, hvmem_u64 state)
{
    hvmem__unlock(&s2->heap->host, &s2->lock, HVMEM__RANK_STAGE2, state);
}

HVMEM_INLINE hvmem_u64 *hvmem__s2_table(const struct hvmem_stage2 *s2, hvmem_maddr address)
{
    if (s2->table_at)
        return s2->table_at(s2->ctx, address);
    return (hvmem_u64 *)(s2->direct_map + (hvmem_uptr)address);
}

HVMEM_INLINE hvmem_u32 hvmem__s2_index(hvmem_gfn gfn, hvmem_u32 level)
{
    return (hvmem_u32)(gfn >> hvmem__s2_order(level)) & 511u;
}

/* Frames from gfn to the end of the entry of `level` that holds it. */
HVMEM_INLINE hvmem_u64 hvmem__s2_rest(hvmem_gfn gfn, hvmem_u32 level)
{
    hvmem_u64 span = (hvmem_u64)1 << hvmem__s2_order(level);

    return span - (gfn & (span - 1));
}

/* Which of leaves[] a leaf of the level is counted in. */
HVMEM_INLINE hvmem_u32 hvmem__s2_size(hvmem_u32 level)
{
    return 3u - level;
}

/* Whether hardware may hold the leaf at the end of the path. */
HVMEM_INLINE int hvmem__s2_cached(const struct hvmem_stage2 *s2, hvmem_u64 leaf, hvmem_u32 walkable)
{
    return s2->arming || (walkable && hvmem__s2_valid(&s2->f, leaf)) || (leaf & s2->f.broken) != 0;
}

/* stage2_walk.c. All but fill under the lock. */
void hvmem__s2_walk(const struct hvmem_stage2 *s2, hvmem_gfn gfn, struct hvmem__s2_path *path);
/* Write *slot[level] of the path and keep the count of its table, if that changes. */
void hvmem__s2_put(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u64 entry);
/* Add to the count of the table that holds slot[level]; nothing for the root. */
void hvmem__s2_add_count(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u32 by);
/* Unhook the tables on the path that are empty, from that of slot[level] upwards. */
void hvmem__s2_prune(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_gfn gfn,
                     struct hvmem_gather *gather);
/* Frames of the heap for tables, zeroed. No lock held. Errors: those of hvmem_alloc(). */
hvmem_status hvmem__s2_frames(struct hvmem_stage2 *s2, hvmem_u32 order, hvmem_mfn *mfn);
/* A zeroed table out of the pool, which holds one. Returns its address. */
hvmem_maddr hvmem__s2_take(struct hvmem_stage2 *s2);
/* Bring the pool to `tables`. No lock held. HVMEM_E_LIMIT, HVMEM_E_PHASE, those of hvmem_alloc(). */
hvmem_status hvmem__s2_fill(struct hvmem_stage2 *s2, hvmem_u64 tables);
/* A table page that nobody walks goes back to the pool or the heap. No lock held. */
void hvmem__s2_give_back(struct hvmem_stage2 *s2, hvmem_mfn mfn);
/* table_free of the mapping. */
void hvmem__s2_table_free(void *ctx, hvmem_mfn mfn, hvmem_status status);
/*
 * An unclean leaf at gfn goes away or changes its size: its first-touch progress is void. 0: it is being
 * paid for just now, wait.
 */
int hvmem__s2_forget_touch(struct hvmem_stage2 *s2, hvmem_gfn gfn);
/* One turn of a wait for such a leaf; HVMEM_E_BUSY after HVMEM__S2_WAITS. No lock held. */
hvmem_status hvmem__s2_wait(struct hvmem_stage2 *s2, hvmem_u32 *waited);

/* Tell the gather of neighbours that differ in nothing but their address, from the leaf at gfn on. */
void hvmem__s2_tell(struct hvmem_stage2 *s2, struct hvmem_gather *gather, hvmem_gfn gfn,
                    hvmem_u64 entries, hvmem_u32 level, hvmem_u64 entry);
/* Whether a range of a guest's numbers is one; HVMEM_E_RANGE. */
hvmem_status hvmem__s2_check_range(const struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames);
/* As hvmem__refuse(); codes that are no mistake of the caller are not counted. */
hvmem_status hvmem__s2_refuse(struct hvmem_stage2 *s2, hvmem_status status, hvmem_u64 info);

/* stage2_map.c: map [gfn, gfn + frames) as `leaf` says, from its first frame on. No lock held. */
hvmem_status hvmem__s2_map(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                           const struct hvmem_stage2_leaf *leaf, hvmem_u64 *done);

/* stage2_change.c: do `work`, splitting where its range begins or ends in a leaf. No lock held. */
hvmem_status hvmem__s2_do(struct hvmem_stage2 *s2, struct hvmem__s2_work *work);
/* The same with a gather of its own over the range; *done frames. */
hvmem_status hvmem__s2_change(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                              struct hvmem_gather *gather, struct hvmem__s2_work *work,
                              hvmem_u64 *done);

/* stage2_split.c: make the leaf of `level` at gfn a table of smaller ones. No lock held. */
hvmem_status hvmem__s2_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                             struct hvmem_gather *gather);
/* A table from the pool in place of the leaf of the path, 512 parts of it. Under the lock. */
void hvmem__s2_make_parts(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u64 leaf);

/*
 * stage2_clean.c: clean and invalidate frames to the point of coherency; before that, scrub them, and
 * after it make them fit to be fetched, as `what` says (HVMEM_OWES_SCRUB, _ICACHE). No lock held.
 */
hvmem_status hvmem__s2_clean(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 what);

/* stage2_touch.c: pay for and validate the unclean leaf at gfn, a bounded part of it. No lock held. */
hvmem_status hvmem__s2_first_touch(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 *outcome);

/* Whether a device walks the tables. */
int hvmem__s2_shared(const struct hvmem_stage2 *s2);

/* track.c: open or continue a preemptible operation under the lock: E_BUSY, E_STALE. */
hvmem_status hvmem__s2_enter(struct hvmem_stage2 *s2, struct hvmem__s2_open *open, hvmem_u64 kind,
                             struct hvmem_cursor *cursor);
/* Leave it: HVMEM_AGAIN keeps it open. Under the lock. */
void hvmem__s2_leave(struct hvmem__s2_open *open, hvmem_status status, struct hvmem_cursor *cursor);

/* Clear the valid bit of up to HVMEM_S2_SLICE root entries from open->at; 1: that was the last. */
int hvmem__s2_clear_root(struct hvmem_stage2 *s2, struct hvmem__s2_open *open);

#endif
