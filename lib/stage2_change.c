/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_change.c: unmapping, changing rights, ageing: one loop over the leaves of a range. */
#include "gather.h"
#include "stage2.h"

/* A run of entries of one table. */
struct run {
    struct hvmem__s2_path path;
    hvmem_u32 removed;
    hvmem_u32 gained; /* entries that only gained rights */
    hvmem_u32 budget;
};

/* Frames of the range in the leaf that holds work->at. */
static hvmem_u64 part(const struct hvmem__s2_work *work, hvmem_u32 level)
{
    hvmem_u64 rest = hvmem__s2_rest(work->at, level);

    return rest < work->end - work->at ? rest : work->end - work->at;
}

static void unmap_leaf(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, struct run *run,
                       hvmem_u64 *slot, hvmem_u64 leaf)
{
    hvmem_u32 level = run->path.level;

    hvmem__store_release(slot, (hvmem_u64)0);
    /* Decided on the old entry: a new one may be there any time. */
    if (hvmem__s2_cached(s2, leaf, run->path.walkable))
        hvmem__s2_tell(s2, work->gather, work->at, 1, level, leaf);
    if (leaf & s2->f.broken)
        hvmem__mapping_mended(&s2->mapping, 1);
    s2->leaves[hvmem__s2_size(level)]--;
    run->removed++;
}

/*
 * Unmap the leaf at `slot`, which holds work->at, and those behind it that differ in nothing but their
 * address, without a decision for each. Returns how many.
 */
static hvmem_u32 unmap_leaves(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, struct run *run,
                              hvmem_u64 *slot)
{
    hvmem_u32 level = run->path.level, order = hvmem__s2_order(level), n;
    hvmem_u32 limit = 512 - hvmem__s2_index(work->at, level);
    hvmem_u64 attributes = ~s2->f.address, like = *slot & attributes;
    hvmem_u64 whole = (work->end - work->at) >> order;

    if (((work->at >> order) << order) != work->at || !whole || (like & s2->f.unclean)) {
        unmap_leaf(s2, work, run, slot, *slot);
        return 1;
    }
    limit = limit < run->budget ? limit : run->budget;
    limit = limit < whole ? limit : (hvmem_u32)whole;
    for (n = 0; n < limit && (slot[n] & attributes) == like; n++)
        hvmem__store_release(&slot[n], (hvmem_u64)0);
    if (hvmem__s2_cached(s2, like, run->path.walkable))
        hvmem__s2_tell(s2, work->gather, work->at, n, level, like);
    if (like & s2->f.broken)
        hvmem__mapping_mended(&s2->mapping, n);
    s2->leaves[hvmem__s2_size(level)] -= n;
    run->removed += n;
    return n;
}

/* The rights that a protect gives a leaf. */
static hvmem_u32 rights_for(const struct hvmem_stage2 *s2, const struct hvmem__s2_work *work,
                            hvmem_u64 leaf)
{
    return hvmem__s2_allowed(s2, hvmem__s2_type(&s2->f, leaf), work->rights);
}

static void protect_leaf(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, struct run *run,
                         hvmem_u64 *slot, hvmem_u64 leaf)
{
    hvmem_u32 level = run->path.level, old = hvmem__s2_rights(&s2->f, leaf);
    hvmem_u32 rights = rights_for(s2, work, leaf);
    hvmem_u64 to = hvmem__s2_make_leaf(&s2->f, level, hvmem__s2_address(&s2->f, leaf), rights,
                                       hvmem__s2_type(&s2->f, leaf));

    if (old == rights)
        return;
    if (!hvmem__s2_valid(&s2->f, leaf))
        to = hvmem__s2_invalid(&s2->f, to);
    to |= leaf & (s2->f.broken | s2->f.unclean | s2->f.touched | s2->f.aged);
    hvmem__store_release(slot, to);
    /*
     * A gained right: on x86 the fault through the stale entry drops it; on arm64 it stays and would
     * fault for ever (Arm ARM D8.13.1).
     */
    if (!(old & ~rights) && s2->f.format != HVMEM_S2_ARM64)
        run->gained++;
    else if (hvmem__s2_cached(s2, leaf, run->path.walkable))
        hvmem__s2_tell(s2, work->gather, work->at, 1, level, leaf);
}

/*
 * A device that still holds an entry without the right that it gained cannot fault, and its access is lost.
 * Asked after the change: a device that is let in later finds it in the tables.
 */
static void tell_devices(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, hvmem_gfn from,
                         hvmem_u32 level)
{
    hvmem_u32 order = hvmem__s2_order(level);

    if (s2->heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (hvmem__s2_shared(s2))
        hvmem__s2_tell(s2, work->gather, from, ((work->at - 1) >> order) - (from >> order) + 1,
                       level, 0);
}

static void age_leaf(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, struct run *run,
                     hvmem_u64 *slot, hvmem_u64 leaf)
{
    hvmem_u32 level = run->path.level;

    if (!hvmem__s2_touched(s2, leaf, run->path.walkable))
        return;
    work->frames += part(work, level);
    if (work->kind != HVMEM__S2_AGE_CLEAR)
        return;
    hvmem__store_release(slot, (hvmem__s2_invalid(&s2->f, leaf) & ~s2->f.touched) | s2->f.aged);
    hvmem__s2_tell(s2, work->gather, work->at, 1, level, leaf);
}

/* Whether the change needs the leaf in parts. */
static int needs_split(const struct hvmem_stage2 *s2, const struct hvmem__s2_work *work,
                       hvmem_u32 level, hvmem_u64 leaf)
{
    hvmem_u64 span = (hvmem_u64)1 << hvmem__s2_order(level);

    if (work->kind >= HVMEM__S2_AGE || part(work, level) == span)
        return 0;
    return work->kind == HVMEM__S2_UNMAP ||
           hvmem__s2_rights(&s2->f, leaf) != rights_for(s2, work, leaf);
}

/* Entries of the table of path.slot[level], from work->at on. */
static hvmem_status do_run(struct hvmem_stage2 *s2, struct hvmem__s2_work *work, struct run *run)
{
    hvmem_u32 level = run->path.level;
    hvmem_u64 *slot = run->path.slot[level];

    for (;;) {
        hvmem_u32 done = 1; /* entries */
        hvmem_u64 entry = *slot;

        if (hvmem__s2_present(&s2->f, entry)) {
            if (hvmem__s2_is_table(&s2->f, entry, level))
                return HVMEM_OK;
            if (needs_split(s2, work, level, entry)) {
                work->level = level;
                return HVMEM__S2_NEED_SPLIT;
            }
            if (work->kind == HVMEM__S2_UNMAP && (entry & s2->f.unclean) &&
                !hvmem__s2_forget_touch(s2, work->at))
                return HVMEM__S2_NEED_WAIT;
            if (work->kind == HVMEM__S2_UNMAP)
                done = unmap_leaves(s2, work, run, slot);
            else if (work->kind == HVMEM__S2_PROTECT)
                protect_leaf(s2, work, run, slot, entry);
            else
                age_leaf(s2, work, run, slot, entry);
        }
        work->at += (hvmem_u64)(done - 1) << hvmem__s2_order(level);
        work->at += part(work, level);
        slot += done;
        run->budget -= done;
        if (!run->budget || work->at >= work->end || !hvmem__s2_index(work->at, level))
            return HVMEM_OK;
    }
}

/*
 * Whether the tables of the path, should they become empty, go into the gather without a flush: frames of
 * more than HVMEM_GATHER_WINDOWS spans of 2^32 do not fit at once.
 */
static int has_room(const struct hvmem_stage2 *s2, const struct hvmem__s2_work *work,
                    const struct hvmem__s2_path *path)
{
    hvmem_u32 level, n = 0;
    hvmem_mfn tables[3];

    if (work->kind != HVMEM__S2_UNMAP)
        return 1;
    for (level = s2->start_level; level < path->level; level++)
        tables[n++] = hvmem__s2_address(&s2->f, *path->slot[level]) >> 12;
    return hvmem__gather_has_room(work->gather, tables, n);
}

/*
 * [from, work->at) was removed into a gather of the caller's, with tables up to the entry of `level`: whoever
 * maps there before it is finished flushes by himself.
 */
static void lend(struct hvmem_stage2 *s2, const struct hvmem__s2_work *work, hvmem_gfn from,
                 hvmem_u32 level)
{
    hvmem_gfn first = (from >> hvmem__s2_order(level)) << hvmem__s2_order(level);
    hvmem_gfn end = from + hvmem__s2_rest(from, level);

    end = end > work->at ? end : work->at;
    if (hvmem__gather_lend(work->gather)) {
        s2->lent_start = first;
        s2->lent_end = end;
        return;
    }
    s2->lent_start = first < s2->lent_start ? first : s2->lent_start;
    s2->lent_end = end > s2->lent_end ? end : s2->lent_end;
}

/* Up to HVMEM_S2_SLICE entries, and the tables that become empty. */
static hvmem_status do_step(struct hvmem_stage2 *s2, struct hvmem__s2_work *work)
{
    hvmem_status status = HVMEM_OK;
    struct run run;
    hvmem_gfn from;

    if (s2->state != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    if (work->kind == HVMEM__S2_AGE_CLEAR && !hvmem__s2_may_fault(s2))
        return HVMEM_E_BUSY;
    run.budget = HVMEM_S2_SLICE;
    while (work->at < work->end && run.budget && !status) {
        from = work->at;
        run.removed = run.gained = 0;
        hvmem__s2_walk(s2, from, &run.path);
        if (!has_room(s2, work, &run.path))
            return HVMEM__S2_NEED_ROOM;
        status = do_run(s2, work, &run);
        if (run.gained)
            tell_devices(s2, work, from, run.path.level);
        if (!run.removed)
            continue;
        if (work->own && !work->removed) {
            work->removed = 1;
            s2->unflushed++;
        }
        s2->removals++;
        hvmem__s2_add_count(s2, &run.path, (hvmem_u32)0 - run.removed);
        hvmem__s2_prune(s2, &run.path, from, work->gather);
        if (!work->own)
            lend(s2, work, from, run.path.level);
    }
    return status;
}

hvmem_status hvmem__s2_do(struct hvmem_stage2 *s2, struct hvmem__s2_work *work)
{
    hvmem_status status = HVMEM_OK;
    hvmem_gfn from = work->at;
    hvmem_u32 waited = 0;
    hvmem_u64 state;

    while (work->at < work->end && !status) {
        state = hvmem__s2_lock(s2);
        status = do_step(s2, work);
        hvmem__s2_unlock(s2, state);
        if (status == HVMEM__S2_NEED_SPLIT)
            status = hvmem__s2_split(s2, work->at, work->level, work->gather);
        if (status == HVMEM__S2_NEED_WAIT)
            status = hvmem__s2_stop(s2, work->may_stop) ? HVMEM_AGAIN : hvmem__s2_wait(s2, &waited);
        if (status == HVMEM__S2_NEED_ROOM) {
            hvmem__gather_settle(work->gather);
            status = HVMEM_OK;
        }
        if (!status && work->at > from && work->at < work->end &&
            hvmem__s2_stop(s2, work->may_stop))
            status = HVMEM_AGAIN;
    }
    return status;
}

/* What the steps counted as removed and not flushed is flushed now. */
static void flushed(struct hvmem_stage2 *s2, const struct hvmem__s2_work *work)
{
    hvmem_u64 state;

    if (!work->removed)
        return;
    state = hvmem__s2_lock(s2);
    s2->unflushed--;
    hvmem__s2_unlock(s2, state);
}

hvmem_status hvmem__s2_change(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                              struct hvmem_gather *gather, struct hvmem__s2_work *work,
                              hvmem_u64 *done)
{
    struct hvmem_gather own;
    hvmem_status status = HVMEM_OK, ended;

    work->at = gfn;
    work->end = gfn + frames;
    work->gather = gather ? gather : &own;
    work->own = !gather;
    if (!gather) {
        status = hvmem__s2_gather(s2, &own, gfn, frames);
        if (status)
            return status;
    } else {
        status = hvmem__gather_check(gather);
        if (!status && gather->mapping != &s2->mapping)
            status = HVMEM_E_ARG;
        if (status)
            return status;
    }
    status = hvmem__s2_do(s2, work);
    if (!gather) {
        ended = status < 0 ? hvmem_gather_cancel(&own) : hvmem_gather_finish(&own);
        /* First of all errors: what is done may still be reached. */
        status = ended ? ended : status;
    }
    flushed(s2, work);
    *done = work->at - gfn;
    return status;
}

static hvmem_status change(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                           struct hvmem_gather *gather, hvmem_u32 kind, hvmem_u32 rights,
                           hvmem_u64 *done)
{
    struct hvmem__s2_work work;
    hvmem_status status;
    hvmem_u64 n = 0;

    if (done)
        *done = 0;
    if (!s2)
        return HVMEM_E_ARG;
    memset(&work, 0, sizeof work);
    work.kind = kind;
    work.rights = rights;
    work.may_stop = s2->flags & HVMEM_S2_PREEMPTIBLE;
    status = hvmem__s2_check_range(s2, gfn, frames);
    if (!status)
        status = hvmem__s2_change(s2, gfn, frames, gather, &work, &n);
    if (done)
        *done = n;
    return status < 0 ? hvmem__s2_refuse(s2, status, gfn) : status;
}

hvmem_status hvmem_stage2_unmap(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                struct hvmem_gather *gather, hvmem_u64 *done)
{
    return change(s2, gfn, frames, gather, HVMEM__S2_UNMAP, 0, done);
}

hvmem_status hvmem_stage2_protect(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                  hvmem_u32 rights, struct hvmem_gather *gather, hvmem_u64 *done)
{
    if (done)
        *done = 0;
    if (!s2)
        return HVMEM_E_ARG;
    if (!(rights & HVMEM_S2_R) || (rights & ~HVMEM_S2_RWX))
        return hvmem__s2_refuse(s2, HVMEM_E_ARG, rights);
    return change(s2, gfn, frames, gather, HVMEM__S2_PROTECT, rights, done);
}
