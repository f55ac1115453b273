/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * track_setway.c: set/way operations of a guest, emulated on what it touched since the last ones.
 *
 * One leaf table after the other is re-armed: its touched entries are noted and made invalid, flushed,
 * and then their frames are cleaned. A store before the flush is in the cache when the clean comes; one
 * after it faults, which marks the entry for the next time. Cleaning first would lose a store between
 * the two. What is noted lives here, so an operation given up half-way loses nothing.
 */
#include <hvmem/track.h>

#include "stage2.h"

/* Phase: entries were cleared, their flush is still to come, whoever goes on. */
#define FLUSH_FAILED 1u

static int any_noted(const struct hvmem__s2_setway *w)
{
    hvmem_u64 all = 0;
    hvmem_u32 i;

    for (i = 0; i < 8; i++)
        all |= w->noted[i];
    return all != 0;
}

/* ---- re-arming ------------------------------------------------------------------------------ */

/* Note and clear the touched leaves from path.slot[level] to the end of its table. */
static void note_run(struct hvmem_stage2 *s2, struct hvmem__s2_path *path,
                     struct hvmem_gather *gather, struct hvmem_track_progress *progress)
{
    struct hvmem__s2_setway *w = &s2->setway;
    hvmem_u32 level = path->level, order = hvmem__s2_order(level), i;
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12), gfn = w->open.at;
    hvmem_u64 *slot = path->slot[level];

    w->level = level;
    w->base = (gfn >> (order + 9)) << (order + 9);
    w->cleaned = 0;
    do {
        hvmem_u64 leaf = *slot;

        i = hvmem__s2_index(gfn, level);
        if (hvmem__s2_present(&s2->f, leaf) && hvmem__s2_is_table(&s2->f, leaf, level))
            break;
        if (hvmem__s2_present(&s2->f, leaf) &&
            (hvmem__s2_valid(&s2->f, leaf) || (w->all && !(leaf & s2->f.unclean)) ||
             (leaf & (s2->f.aged | (leaf & s2->f.broken ? s2->f.touched : 0))))) {
            hvmem__store_release(slot,
                                 hvmem__s2_invalid(&s2->f, leaf) & ~(s2->f.aged | s2->f.touched));
            hvmem__s2_tell(s2, gather, gfn, 1, level, leaf);
            w->noted[i / 64] |= (hvmem_u64)1 << (i % 64);
            progress->noted += (hvmem_u64)1 << order;
        }
        slot++;
        gfn += hvmem__s2_rest(gfn, level);
    } while (gfn < end && hvmem__s2_index(gfn, level));
    w->open.at = gfn;
    progress->tables++;
}

/* Find the next table with leaves that hardware can reach; under the lock. */
static void rearm_step(struct hvmem_stage2 *s2, struct hvmem_gather *gather,
                       struct hvmem_track_progress *progress)
{
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12);
    struct hvmem__s2_setway *w = &s2->setway;
    struct hvmem__s2_path path;
    hvmem_u32 budget = HVMEM_S2_SLICE;

    hvmem__store(&s2->armed, 1u); /* what is mapped from here on is clean */
    while (w->open.at < end && budget--) {
        hvmem__s2_walk(s2, w->open.at, &path);
        if (hvmem__s2_present(&s2->f, path.entry) && (path.walkable || w->all)) {
            note_run(s2, &path, gather, progress);
            return;
        }
        /* An invalid table: nothing below it was touched, however deep. */
        while (!w->all && !path.walkable && path.level > s2->start_level &&
               !hvmem__s2_valid(&s2->f, *path.slot[path.level - 1]))
            path.level--;
        w->open.at += hvmem__s2_rest(w->open.at, path.level);
    }
}

/* Re-arm one table, flushed when it returns HVMEM_OK. */
static hvmem_status rearm(struct hvmem_stage2 *s2, struct hvmem_track_progress *progress)
{
    struct hvmem__s2_setway *w = &s2->setway;
    struct hvmem_gather gather;
    hvmem_gfn from = w->open.at;
    hvmem_status status;
    hvmem_u64 state;

    status = hvmem__s2_gather(s2, &gather, from, ((hvmem_gfn)1 << (s2->input_bits - 12)) - from);
    if (status)
        return status;
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    else if (!hvmem__s2_may_fault(s2))
        status = HVMEM_E_BUSY;
    else
        rearm_step(s2, &gather, progress);
    hvmem__s2_unlock(s2, state);
    w->open.phase = FLUSH_FAILED;
    if (!status)
        status = hvmem_gather_finish(&gather);
    else
        (void)hvmem_gather_cancel(&gather);
    if (!status)
        w->open.phase = 0;
    return status;
}

/* ---- cleaning ------------------------------------------------------------------------------- */

/*
 * The next frames to clean, under the lock, the tables alive: *mfn, *frames (at most `most`). 0: nothing is
 * noted. Frames that were unmapped meanwhile are passed over: whoever gets them next pays for them; so is
 * what the guest sees uncached: it left nothing in a cache, and the host may not be able to map it.
 */
static int next_noted(struct hvmem_stage2 *s2, hvmem_u64 most, hvmem_mfn *mfn, hvmem_u64 *frames)
{
    struct hvmem__s2_setway *w = &s2->setway;
    hvmem_u64 size = (hvmem_u64)1 << hvmem__s2_order(w->level), span;
    struct hvmem__s2_path path;
    hvmem_gfn gfn;
    hvmem_u32 i = 0;

    for (;;) {
        while (i < 8 && !w->noted[i])
            i++;
        if (i == 8)
            return 0;
        if (w->cleaned >= size) {
            w->noted[i] &= w->noted[i] - 1;
            w->cleaned = 0;
            continue;
        }
        gfn = w->base +
              (((hvmem_u64)i * 64 + hvmem__lowest(w->noted[i])) << hvmem__s2_order(w->level)) +
              w->cleaned;
        hvmem__s2_walk(s2, gfn, &path);
        span = hvmem__s2_rest(gfn, path.level);
        if (span > size - w->cleaned)
            span = size - w->cleaned;
        if (hvmem__s2_present(&s2->f, path.entry) &&
            hvmem__s2_type(&s2->f, path.entry) == HVMEM_S2_WB)
            break;
        w->cleaned += span;
    }
    *mfn = (hvmem__s2_address(&s2->f, path.entry) >> 12) +
           (gfn & (((hvmem_u64)1 << hvmem__s2_order(path.level)) - 1));
    *frames = span < most ? span : most;
    return 1;
}

/* Up to `lines` lines of what is noted. HVMEM_AGAIN: there is more. */
static hvmem_status clean(struct hvmem_stage2 *s2, hvmem_u32 lines,
                          struct hvmem_track_progress *progress)
{
    hvmem_u32 line = s2->heap->backend ? s2->heap->backend->caps.dline : 0;
    hvmem_u64 budget = ((hvmem_u64)lines * (line ? line : 64u)) >> 12, frames = 0, state;
    hvmem_u64 stretch = hvmem__s2_stretch(s2, 0);
    hvmem_status status = HVMEM_OK;
    hvmem_mfn mfn = 0;
    int more = 0, stop = 0;

    for (budget = budget ? budget : 1;; budget -= frames) {
        state = hvmem__s2_lock(s2);
        s2->setway.cleaned += frames;
        if (s2->state != HVMEM__S2_LIVE)
            status = HVMEM_E_PHASE;
        else
            more = next_noted(s2, budget < stretch ? budget : stretch, &mfn, &frames);
        hvmem__s2_unlock(s2, state);
        if (status)
            return status;
        if (!more || !budget || stop)
            return more ? HVMEM_AGAIN : HVMEM_OK;
        status = hvmem__s2_clean(s2, mfn, frames, 0);
        if (status)
            return status;
        progress->cleaned += frames;
        stop = hvmem__s2_stop(s2, 1);
    }
}

/* ---- public --------------------------------------------------------------------------------- */

/*
 * After an arming whose flush failed CPUs may have gone on through what they held, and nobody saw it: flush,
 * and take everything for touched until a pass has been through all of it.
 */
static hvmem_status recover(struct hvmem_stage2 *s2)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state = hvmem__s2_lock(s2);
    hvmem_u32 lost = s2->arming;

    hvmem__s2_unlock(s2, state);
    if (lost)
        status = hvmem__s2_shoot(s2, HVMEM_NULL, 0, 0);
    if (!lost || status)
        return status;
    state = hvmem__s2_lock(s2);
    s2->arming = s2->state != HVMEM__S2_LIVE; /* teardown sets it too */
    s2->setway.all = 1;
    s2->setway.open.at = 0;
    hvmem__s2_unlock(s2, state);
    return HVMEM_OK;
}

static hvmem_status setway(struct hvmem_stage2 *s2, hvmem_u32 lines,
                           struct hvmem_track_progress *progress)
{
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12);
    struct hvmem__s2_setway *w = &s2->setway;
    hvmem_status status = HVMEM_OK;

    if (w->open.phase == FLUSH_FAILED)
        status = hvmem__s2_shoot(s2, HVMEM_NULL, 0, 0);
    if (!status)
        status = recover(s2);
    if (status)
        return status;
    w->open.phase = 0;
    if (!any_noted(w) && w->open.at < end)
        status = rearm(s2, progress);
    if (!status)
        status = clean(s2, lines, progress);
    if (status)
        return status;
    if (w->open.at < end)
        return HVMEM_AGAIN;
    w->all = 0;
    return HVMEM_OK;
}

hvmem_status hvmem_track_setway(struct hvmem_stage2 *s2, hvmem_u32 lines,
                                struct hvmem_cursor *cursor, struct hvmem_track_progress *progress)
{
    struct hvmem_track_progress count;
    hvmem_status status;
    hvmem_u64 state;

    if (!s2 || !cursor)
        return HVMEM_E_ARG;
    if (!s2->heap->backend)
        return hvmem__s2_refuse(s2, HVMEM_E_UNSUPPORTED, 0);
    memset(&count, 0, sizeof count);
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    else if (s2->arm.serial || s2->disarm.serial || hvmem__s2_shared(s2))
        status = HVMEM_E_BUSY;
    else
        status = hvmem__s2_enter(s2, &s2->setway.open, 's', cursor);
    hvmem__s2_unlock(s2, state);
    if (status)
        return hvmem__s2_refuse(s2, status, 0);
    status = setway(s2, lines ? lines : HVMEM_S2_TOUCH_LINES, &count);
    state = hvmem__s2_lock(s2);
    hvmem__s2_leave(&s2->setway.open, status, cursor);
    hvmem__s2_unlock(s2, state);
    if (progress) {
        progress->noted += count.noted;
        progress->cleaned += count.cleaned;
        progress->tables += count.tables;
    }
    return status && status != HVMEM_AGAIN ? hvmem__s2_refuse(s2, status, 0) : status;
}

/* Bits of a number that counts to n - 1. */
static hvmem_u32 bits_of(hvmem_u32 n)
{
    return n > 1 ? hvmem__highest(n - 1) + 1 : 0;
}

hvmem_status hvmem_track_setway_operand(const struct hvmem_setway_geometry *g, hvmem_u64 operand)
{
    hvmem_u32 level = (hvmem_u32)(operand >> 1) & 7u, shift, bits;
    hvmem_u64 set, way;

    if (!g || !g->levels || g->levels > 7)
        return HVMEM_E_ARG;
    if (level >= g->levels)
        return HVMEM_E_LEVEL;
    shift = g->level[level].line_shift;
    if (!g->level[level].sets || !g->level[level].ways || g->level[level].sets > 1u << 24 ||
        g->level[level].ways > 1u << 24 || shift < 4 || shift > 11 ||
        bits_of(g->level[level].ways) + bits_of(g->level[level].sets) + shift > 32)
        return HVMEM_E_ARG;
    /* Way in the topmost bits of 32, set from the line's shift on, the rest 0. */
    bits = bits_of(g->level[level].ways);
    way = bits ? (operand & 0xffffffffu) >> (32 - bits) : 0;
    set = (operand & 0xffffffffu & (((hvmem_u64)1 << (32 - bits)) - 1)) >> shift;
    if ((operand >> 32) || (operand & 1) || (operand & ((1u << shift) - 1) & ~15ull) ||
        way >= g->level[level].ways || set >= g->level[level].sets)
        return HVMEM_E_RANGE;
    return HVMEM_OK;
}
