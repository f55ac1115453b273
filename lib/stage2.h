/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2.h: the walk of a stage 2, and the steps that its operations consist of.
 *
 * An operation works in steps of at most HVMEM_S2_SLICE entries under the lock. A step that needs a
 * table, a split or a flush says so and changes nothing more; the operation gets it without the lock
 * and starts the step again from the root.
 */
#ifndef HVMEM_LIB_STAGE2_H
#define HVMEM_LIB_STAGE2_H

#include "mapping.h"
#include "stage2_state.h"
#include "testpoint.h"
#include "walk.h"

/* What a step needs before it can go on (never returned by a public function). */
#define HVMEM__S2_NEED_TABLES (-1000)
#define HVMEM__S2_NEED_SPLIT  (-1001)
#define HVMEM__S2_NEED_FLUSH  (-1002)
#define HVMEM__S2_NEED_WAIT   (-1003)
#define HVMEM__S2_NEED_ROOM   (-1004) /* in the gather, for tables of far frames */

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
    hvmem_u32 kind;     /* HVMEM__S2_UNMAP .. */
    hvmem_u32 rights;   /* PROTECT */
    hvmem_u64 frames;   /* AGE: touched */
    hvmem_u64 tables;   /* NEED_TABLES: how many */
    hvmem_u32 level;    /* NEED_SPLIT: of the leaf */
    hvmem_u32 own;      /* the gather ends with the call */
    hvmem_u32 may_stop; /* HVMEM_AGAIN between two steps if the host wants the CPU back */
    hvmem_u32 removed;
};
#define HVMEM__S2_UNMAP     1u
#define HVMEM__S2_PROTECT   2u
#define HVMEM__S2_AGE       3u
#define HVMEM__S2_AGE_CLEAR 4u

/* Between two steps other CPUs may do theirs: tests stop here. */
HVMEM_INLINE hvmem_u64 hvmem__s2_lock(struct hvmem_stage2 *s2)
{
    (void)HVMEM_TEST_POINT("stage2.lock");
    return hvmem__lock(&s2->heap->host, &s2->lock, HVMEM__RANK_STAGE2);
}

HVMEM_INLINE void hvmem__s2_unlock(struct hvmem_stage2 *s2, hvmem_u64 state)
{
    hvmem__unlock(&s2->heap->host, &s2->lock, HVMEM__RANK_STAGE2, state);
    (void)HVMEM_TEST_POINT("stage2.unlock");
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

/* Of these rights those that memory of the type may have: fetches ahead of time must not reach arm64 devices. */
HVMEM_INLINE hvmem_u32 hvmem__s2_allowed(const struct hvmem_stage2 *s2, hvmem_u32 type,
                                         hvmem_u32 rights)
{
    return type == HVMEM_S2_DEVICE && s2->f.format == HVMEM_S2_ARM64 ? rights & ~HVMEM_S2_X
                                                                     : rights;
}

/* The order of what one table of the largest leaves maps. */
HVMEM_INLINE hvmem_order hvmem__s2_unit(const struct hvmem_stage2 *s2)
{
    hvmem_u32 top = hvmem__s2_order(s2->start_level > 1 ? s2->start_level : 1);

    return (s2->largest < top ? s2->largest : top) + 9;
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

/* Whether the leaf at the end of the path was touched since tracking was armed: broken, before it was. */
HVMEM_INLINE int hvmem__s2_touched(const struct hvmem_stage2 *s2, hvmem_u64 leaf,
                                   hvmem_u32 walkable)
{
    return walkable &&
           (leaf & s2->f.broken ? (leaf & s2->f.touched) != 0 : hvmem__s2_valid(&s2->f, leaf));
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
/* Table pages that nobody walks go back to the heap, no longer counted as held; owed: as hvmem__free_checked(). */
void hvmem__s2_release(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u32 order, hvmem_u32 owed);
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

/*
 * Begin a gather of the library's own over a range, before the lock is taken. HVMEM_E_PHASE: the tables
 * are being torn down, or are gone and the mapping with them.
 */
hvmem_status hvmem__s2_gather(struct hvmem_stage2 *s2, struct hvmem_gather *gather, hvmem_gfn gfn,
                              hvmem_u64 frames);
/* As hvmem_shootdown(). HVMEM_E_PHASE: the tables are gone, and the mapping with them. No lock held. */
hvmem_status hvmem__s2_shoot(struct hvmem_stage2 *s2, const struct hvmem_tlb_range *ranges,
                             hvmem_u32 count, hvmem_u32 flags);
/* Tell the gather of neighbours that differ in nothing but their address, from the leaf at gfn on. */
void hvmem__s2_tell(struct hvmem_stage2 *s2, struct hvmem_gather *gather, hvmem_gfn gfn,
                    hvmem_u64 entries, hvmem_u32 level, hvmem_u64 entry);
/* Whether a call that may be preempted is to stop between two steps. */
HVMEM_INLINE int hvmem__s2_stop(const struct hvmem_stage2 *s2, hvmem_u32 may_stop)
{
    return may_stop && hvmem__yield_wanted(&s2->heap->host);
}

/* Whether a range of a guest's numbers is one; HVMEM_E_RANGE. */
hvmem_status hvmem__s2_check_range(const struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames);
/* As hvmem__refuse(); codes that are no mistake of the caller are not counted. */
hvmem_status hvmem__s2_refuse(struct hvmem_stage2 *s2, hvmem_status status, hvmem_u64 info);

/* stage2_map.c: whose blocks the caller of the stage 2 may map. */
struct hvmem__mapper hvmem__s2_mapper(const struct hvmem_stage2 *s2);
/* Map a block that the mapper may, all or nothing. E_QUARANTINE: it may still be reached. No lock held. */
hvmem_status hvmem__s2_map_block(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                 const struct hvmem_stage2_leaf *leaf,
                                 const struct hvmem__mapper *mapper);

/* stage2_change.c: do `work`, splitting where its range begins or ends in a leaf. No lock held. */
hvmem_status hvmem__s2_do(struct hvmem_stage2 *s2, struct hvmem__s2_work *work);
/* The same with a gather of its own over the range; *done frames. */
hvmem_status hvmem__s2_change(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                              struct hvmem_gather *gather, struct hvmem__s2_work *work,
                              hvmem_u64 *done);

/*
 * stage2_split.c: make the leaf of `level` at gfn a table of smaller ones. NEED_WAIT: it is being paid for.
 * No lock held.
 */
hvmem_status hvmem__s2_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                             struct hvmem_gather *gather);
/* A table from the pool in place of the leaf of the path, 512 parts of it. Under the lock. */
void hvmem__s2_make_parts(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u64 leaf);

/*
 * stage2_clean.c: clean and invalidate frames to the point of coherency, unless the guest cannot but see
 * the caches (with HVMEM_OWES_DCACHE in `what` it can: they are mapped uncached); before that, scrub them,
 * and after it make them fit to be fetched, as `what` says (HVMEM_OWES_SCRUB, _ICACHE). No lock held.
 */
hvmem_status hvmem__s2_clean(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames,
                             hvmem_u32 what);
/* The work that comes to on this machine (HVMEM__WORK_*), and the frames of a stretch of it: at least one. */
hvmem_u32 hvmem__s2_work(const struct hvmem_stage2 *s2, hvmem_u32 what);
hvmem_u64 hvmem__s2_stretch(const struct hvmem_stage2 *s2, hvmem_u32 what);

/* stage2_touch.c: pay for and validate the unclean leaf at gfn, a bounded part of it. No lock held. */
hvmem_status hvmem__s2_first_touch(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 *outcome);

/*
 * As hvmem__mapping_may_fault(), under the lock of the tables, which whoever takes an announcement back
 * holds: what was announced since the last disarm began holds, and lets no device in.
 */
HVMEM_INLINE int hvmem__s2_may_fault(struct hvmem_stage2 *s2)
{
    if (hvmem__load(&s2->mapping.faults) && !s2->disarm.serial)
        return 1;
    return hvmem__mapping_may_fault(&s2->mapping);
}

/* Whether a device walks the tables. */
int hvmem__s2_shared(const struct hvmem_stage2 *s2);

/*
 * track.c: open or continue a preemptible operation under the lock: E_BUSY, E_STALE. A new one keeps the
 * phase of one that was given up.
 */
hvmem_status hvmem__s2_enter(struct hvmem_stage2 *s2, struct hvmem__s2_open *open, hvmem_u64 kind,
                             struct hvmem_cursor *cursor);
/* Leave it: HVMEM_AGAIN keeps it open. Under the lock. */
void hvmem__s2_leave(struct hvmem__s2_open *open, hvmem_status status, struct hvmem_cursor *cursor);

/* Clear the valid bit of up to HVMEM_S2_SLICE root entries from open->at; 1: that was the last. */
int hvmem__s2_clear_root(struct hvmem_stage2 *s2, struct hvmem__s2_open *open);

#endif
