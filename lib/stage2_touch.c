/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_touch.c: the first touch of frames whose contents were left as an earlier owner had them:
 * scrub if they owe it, clean and invalidate, then let the guest in. 1 GiB goes by parts of 2 MiB; 2 MiB by
 * stretches, behind which the host is asked; after touch_lines lines the guest faults again.
 */
#include "stage2.h"
#include "touched.h"

/*
 * What the first touch of a leaf comes to at most (hvmem__s2_clean). The right to fetch may come later, when
 * nothing is paid any more.
 */
static hvmem_u32 most_of(const struct hvmem_stage2 *s2, hvmem_u64 leaf)
{
    hvmem_u32 what = HVMEM_OWES_SCRUB | HVMEM_OWES_ICACHE;

    return hvmem__s2_type(&s2->f, leaf) != HVMEM_S2_WB ? what | HVMEM_OWES_DCACHE : what;
}

/*
 * Scrub before clean before fetch. What is paid leaves the record of its block before the guest can reach
 * it: mapped untouched once more, elsewhere or again, it keeps what the guest wrote.
 */
static hvmem_status pay(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u64 frames, hvmem_u64 leaf)
{
    hvmem_u32 most = most_of(s2, leaf), uncached = most & HVMEM_OWES_DCACHE;
    hvmem_status status = HVMEM_OK;

    while (frames && !status) {
        hvmem_u64 part = frames;
        hvmem_u32 owed = hvmem__touch_debts(s2->heap, mfn, &part);

        status = hvmem__s2_clean(s2, mfn, part, (owed & most) | uncached);
        if (!status)
            status = hvmem__touch_paid(s2->heap, mfn, part, HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
        mfn += part;
        frames -= part;
    }
    return status;
}

/* Frames that one fault pays for. */
static hvmem_u32 allowed(const struct hvmem_stage2 *s2)
{
    hvmem_u32 line = s2->heap->backend ? s2->heap->backend->caps.dline : 0;
    hvmem_u64 frames = ((hvmem_u64)s2->touch_lines * (line ? line : 64u)) >> 12;

    return frames < 1 ? 1 : frames > 512 ? 512 : (hvmem_u32)frames;
}

/* Progress record of the leaf at gfn: its own, a free one or, for a single frame, an idle one. */
static struct hvmem__s2_touch *record_of(struct hvmem_stage2 *s2, hvmem_gfn gfn, int take_idle)
{
    struct hvmem__s2_touch *found = HVMEM_NULL, *idle = HVMEM_NULL;
    hvmem_u32 i;

    for (i = 0; i < HVMEM__S2_TOUCHES; i++) {
        struct hvmem__s2_touch *t = &s2->touch[i];

        if (t->gfn == gfn + 1)
            return t;
        if (!t->gfn)
            found = t;
        else if (!t->running)
            idle = t;
    }
    if (!found && take_idle)
        found = idle;
    if (found) {
        memset(found, 0, sizeof *found);
        found->gfn = gfn + 1;
    }
    return found;
}

struct stretch {
    struct hvmem__s2_touch *record;
    hvmem_gfn gfn; /* of the leaf */
    hvmem_mfn mfn; /* of the stretch */
    hvmem_u64 leaf;
    hvmem_u64 frames; /* at most, and those chosen */
    hvmem_u32 level;  /* NEED_SPLIT: of the leaf */
};

/*
 * Choose what to pay for, under the lock. HVMEM_AGAIN: *s is it. HVMEM_OK: nothing to do, *outcome says
 * what the guest gets.
 */
static hvmem_status begin(struct hvmem_stage2 *s2, hvmem_gfn gfn, struct stretch *s,
                          hvmem_u32 *outcome)
{
    struct hvmem__s2_path path;
    hvmem_u64 frames = s->frames, stretch;
    hvmem_u32 order, left;

    if (s2->state != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    hvmem__s2_walk(s2, gfn, &path);
    *outcome = HVMEM_FAULT_ENTER;
    if (!hvmem__s2_present(&s2->f, path.entry) || !(path.entry & s2->f.unclean))
        return HVMEM_OK;
    order = hvmem__s2_order(path.level);
    s->gfn = (gfn >> order) << order;
    s->level = path.level;
    s->record = path.level < 2 ? HVMEM_NULL : record_of(s2, s->gfn, path.level == 3);
    if (!s->record && path.level < 3)
        return HVMEM__S2_NEED_SPLIT;
    *outcome = HVMEM_FAULT_AGAIN;
    if (!s->record)
        return HVMEM_OK; /* every record is in use by another CPU */
    left = (1u << order) - s->record->next;
    if (!left || s->record->failed)
        return HVMEM_OK; /* others pay for the rest */
    s->mfn = (hvmem__s2_address(&s2->f, path.entry) >> 12) + s->record->next;
    stretch = hvmem__s2_stretch(s2, most_of(s2, path.entry));
    frames = frames < stretch ? frames : stretch;
    frames = frames < left ? frames : left;
    if (!hvmem__touch_hold(s2->heap, s->mfn, &frames)) {
        /* Somebody pays for it elsewhere. The leaf has not begun: its record is for others. */
        if (!s->record->next)
            s->record->gfn = 0;
        return HVMEM_OK;
    }
    s->frames = frames;
    s->leaf = path.entry;
    s->record->next += (hvmem_u32)frames;
    s->record->running++;
    return HVMEM_AGAIN;
}

/* Paid, or not: under the lock. While a stretch runs its leaf stays as it is. */
static void end(struct hvmem_stage2 *s2, const struct stretch *s, hvmem_status paid,
                hvmem_u32 *outcome)
{
    struct hvmem__s2_touch *t = s->record;
    struct hvmem__s2_path path;

    *outcome = HVMEM_FAULT_AGAIN;
    t->failed |= paid != HVMEM_OK;
    if (--t->running)
        return;
    if (t->failed) {
        t->gfn = 0;
        return;
    }
    hvmem__s2_walk(s2, s->gfn, &path);
    if (s2->state != HVMEM__S2_LIVE || t->next < 1u << hvmem__s2_order(path.level))
        return;
    t->gfn = 0;
    hvmem__s2_put(s2, &path, hvmem__s2_validate(&s2->f, path.entry, path.level));
    s2->repairs++;
    *outcome = HVMEM_FAULT_ENTER;
}

/* begin() with the splits that it takes. No lock held. */
static hvmem_status choose(struct hvmem_stage2 *s2, hvmem_gfn gfn, struct stretch *s,
                           hvmem_u32 *outcome)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 tries;
    hvmem_u64 state;

    /* Two splits at most: 1 GiB to 2 MiB, and to 4 KiB where no record is free. */
    for (tries = 0; tries < 4; tries++) {
        state = hvmem__s2_lock(s2);
        status = begin(s2, gfn, s, outcome);
        hvmem__s2_unlock(s2, state);
        if (status != HVMEM__S2_NEED_SPLIT)
            break;
        *outcome = HVMEM_FAULT_AGAIN;
        status = hvmem__s2_split(s2, gfn, s->level, HVMEM_NULL);
        if (status)
            return status == HVMEM__S2_NEED_WAIT ? HVMEM_OK : status;
    }
    return status;
}

hvmem_status hvmem__s2_first_touch(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 *outcome)
{
    hvmem_u64 left = allowed(s2), state;
    hvmem_status status;
    struct stretch s;

    memset(&s, 0, sizeof s);
    do {
        s.frames = left;
        status = choose(s2, gfn, &s, outcome);
        if (status != HVMEM_AGAIN)
            return status;
        status = pay(s2, s.mfn, s.frames, s.leaf);
        hvmem__touch_release(s2->heap, s.mfn, s.frames);
        state = hvmem__s2_lock(s2);
        end(s2, &s, status, outcome);
        hvmem__s2_unlock(s2, state);
        left -= s.frames;
    } while (left && !status && *outcome == HVMEM_FAULT_AGAIN && !hvmem__s2_stop(s2, 1));
    return status;
}
