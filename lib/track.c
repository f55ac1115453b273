/* SPDX-License-Identifier: BSD-2-Clause */
/* track.c: arming access tracking, ageing, and the frame of preemptible operations on a stage 2. */
#include <hvmem/track.h>

#include "stage2.h"

/* Frames of one call of hvmem_track_age(). */
#define AGE_FRAMES ((hvmem_u64)1 << 18)

/* ---- preemptible operations ----------------------------------------------------------------- */

hvmem_status hvmem__s2_enter(struct hvmem_stage2 *s2, struct hvmem__s2_open *open, hvmem_u64 kind,
                             struct hvmem_cursor *cursor)
{
    const hvmem_u64 *w = cursor->words;

    if (open->busy)
        return HVMEM_E_BUSY;
    if (!(w[0] | w[1] | w[2] | w[3])) {
        open->serial = hvmem__next_serial(s2->heap);
        open->at = 0;
        cursor->words[0] = kind;
        cursor->words[1] = open->serial;
    } else if (w[0] != kind || !open->serial || w[1] != open->serial || (w[2] | w[3])) {
        return HVMEM_E_STALE;
    }
    open->busy = 1;
    return HVMEM_OK;
}

void hvmem__s2_leave(struct hvmem__s2_open *open, hvmem_status status, struct hvmem_cursor *cursor)
{
    (void)cursor;
    open->busy = 0;
    if (!status)
        open->serial = 0;
}

/* ---- arming --------------------------------------------------------------------------------- */

int hvmem__s2_clear_root(struct hvmem_stage2 *s2, struct hvmem__s2_open *open)
{
    hvmem_u64 *root = hvmem__s2_table(s2, (hvmem_maddr)s2->root << 12);
    hvmem_u64 end = open->at + HVMEM_S2_SLICE;

    if (end > s2->root_entries)
        end = s2->root_entries;
    for (; open->at < end; open->at++) {
        hvmem_u64 entry = root[open->at];

        if (!hvmem__s2_present(&s2->f, entry))
            continue;
        /* A block that is broken just now becomes whole again untouched. */
        hvmem__store_release(&root[open->at],
                             hvmem__s2_invalid(&s2->f, entry) & ~(s2->f.aged | s2->f.touched));
    }
    return open->at == s2->root_entries;
}

hvmem_status hvmem_track_arm(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor)
{
    hvmem_status status;
    hvmem_u64 state;
    int last = 0;

    if (!s2 || !cursor)
        return HVMEM_E_ARG;
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    else if (s2->setway.open.serial || s2->disarm.serial || !hvmem__s2_may_fault(s2))
        status = HVMEM_E_BUSY;
    else
        status = hvmem__s2_enter(s2, &s2->arm, 'a', cursor);
    if (!status) {
        hvmem__store(&s2->armed, 1u);
        s2->arming = 1;
        last = hvmem__s2_clear_root(s2, &s2->arm);
    }
    hvmem__s2_unlock(s2, state);
    if (status)
        return hvmem__s2_refuse(s2, status, 0);
    /* Until this is done CPUs go on through what they hold, and nobody would see it. */
    status = last ? hvmem__s2_shoot(s2, HVMEM_NULL, 0, 0) : HVMEM_AGAIN;
    state = hvmem__s2_lock(s2);
    if (!status)
        s2->arming = s2->setway.all = 0;
    else if (status != HVMEM_AGAIN)
        hvmem__store(&s2->armed, 0u);
    hvmem__s2_leave(&s2->arm, status == HVMEM_AGAIN ? status : HVMEM_OK, cursor);
    hvmem__s2_unlock(s2, state);
    return status && status != HVMEM_AGAIN ? hvmem__s2_refuse(s2, status, 0) : status;
}

int hvmem_track_armed(const struct hvmem_stage2 *s2)
{
    return s2 && hvmem__load(&s2->armed) != 0;
}

/* ---- disarming ------------------------------------------------------------------------------ */

/*
 * Make entries of the table that holds slot[level] valid, from open->at on, at most *budget, and those above;
 * *budget is what is left of it.
 */
static hvmem_status validate_run(struct hvmem_stage2 *s2, struct hvmem__s2_open *open,
                                 struct hvmem__s2_path *path, hvmem_u32 *budget)
{
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12);
    hvmem_u32 level = path->level, above;
    hvmem_u64 *slot = path->slot[level];
    hvmem_status status = HVMEM_OK;

    /*
     * From below: once the entry above is valid, hardware sees what is below as it is, and no fault pushes
     * down what was made valid here.
     */
    for (; *budget && open->at < end; --*budget, slot++) {
        hvmem_u64 entry = *slot;

        if (hvmem__s2_present(&s2->f, entry)) {
            if (hvmem__s2_is_table(&s2->f, entry, level))
                break;
            if (entry & s2->f.unclean) {
                status = HVMEM__S2_NEED_SPLIT;
                break;
            }
            if (!hvmem__s2_valid(&s2->f, entry))
                hvmem__store_release(slot, entry & s2->f.broken
                                               ? entry | s2->f.touched
                                               : hvmem__s2_validate(&s2->f, entry, level));
        }
        open->at += hvmem__s2_rest(open->at, level);
        if (!hvmem__s2_index(open->at, level)) {
            --*budget;
            break;
        }
    }
    for (above = level; above > s2->start_level; above--)
        hvmem__store_release(path->slot[above - 1], *path->slot[above - 1] | s2->f.valid);
    return status;
}

/* One slice. A leaf that waits for its first touch is paid for here. */
static hvmem_status disarm_slice(struct hvmem_stage2 *s2)
{
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12);
    hvmem_status status = HVMEM_OK;
    struct hvmem__s2_path path;
    hvmem_u32 budget = HVMEM_S2_SLICE, outcome;
    hvmem_u64 state = hvmem__s2_lock(s2);

    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    while (s2->disarm.at < end && budget && !status) {
        hvmem__s2_walk(s2, s2->disarm.at, &path);
        status = validate_run(s2, &s2->disarm, &path, &budget);
    }
    hvmem__s2_unlock(s2, state);
    if (status == HVMEM__S2_NEED_SPLIT)
        status = hvmem__s2_first_touch(s2, s2->disarm.at, &outcome);
    if (status)
        return status;
    return s2->disarm.at < end ? HVMEM_AGAIN : HVMEM_OK;
}

hvmem_status hvmem_track_disarm(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor)
{
    hvmem_status status;
    hvmem_u64 state;

    if (!s2 || !cursor)
        return HVMEM_E_ARG;
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    else
        status = s2->arm.serial ? HVMEM_E_BUSY : hvmem__s2_enter(s2, &s2->disarm, 'd', cursor);
    if (!status) {
        hvmem__store(&s2->armed, 0u);
        if (!s2->disarm.at)
            s2->announced = hvmem__load(&s2->mapping.faults);
    }
    hvmem__s2_unlock(s2, state);
    if (status)
        return hvmem__s2_refuse(s2, status, 0);
    status = disarm_slice(s2);
    state = hvmem__s2_lock(s2);
    if (!status)
        hvmem__mapping_faultless(&s2->mapping, s2->announced);
    hvmem__s2_leave(&s2->disarm, status, cursor);
    hvmem__s2_unlock(s2, state);
    return status && status != HVMEM_AGAIN ? hvmem__s2_refuse(s2, status, 0) : status;
}

/* ---- ageing --------------------------------------------------------------------------------- */

hvmem_status hvmem_track_age(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                             hvmem_u32 flags, hvmem_u64 *touched)
{
    struct hvmem__s2_work work;
    hvmem_status status;
    hvmem_u64 done;

    if (!s2 || !touched)
        return HVMEM_E_ARG;
    *touched = 0;
    status = flags & ~HVMEM_AGE_CLEAR ? HVMEM_E_ARG : hvmem__s2_check_range(s2, gfn, frames);
    if (!status && frames > AGE_FRAMES)
        status = HVMEM_E_RANGE;
    if (!status) {
        memset(&work, 0, sizeof work);
        work.kind = flags & HVMEM_AGE_CLEAR ? HVMEM__S2_AGE_CLEAR : HVMEM__S2_AGE;
        status = hvmem__s2_change(s2, gfn, frames, HVMEM_NULL, &work, &done);
        *touched = work.frames;
    }
    return status ? hvmem__s2_refuse(s2, status, gfn) : HVMEM_OK;
}
