/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_map.c: mapping by the largest entries that fit, and looking up. */
#include "cache.h"
#include "domain.h"
#include "gathered.h"
#include "stage2.h"

/* ---- mapping -------------------------------------------------------------------------------- */

struct piece {
    hvmem_gfn gfn, end;
    hvmem_gfn limit; /* where the frames end that were looked through: no step goes beyond */
    hvmem_mfn mfn;
    const struct hvmem_stage2_leaf *leaf;
    struct hvmem__mapper mapper;
    hvmem_u64 tables;  /* NEED_TABLES: how many */
    hvmem_u64 flushed; /* `removals` up to which a flush by this call is known to be done */
    int has_flushed;
};

/* Level of the largest leaf for the first frames of the piece. */
static hvmem_u32 level_for(const struct hvmem_stage2 *s2, const struct piece *p)
{
    hvmem_u32 level = s2->start_level > 1 ? s2->start_level : 1;

    for (; level < 3; level++) {
        hvmem_u64 span = (hvmem_u64)1 << hvmem__s2_order(level);

        if (hvmem__s2_order(level) <= s2->largest && !((p->gfn | p->mfn) & (span - 1)) &&
            p->limit - p->gfn >= span)
            break;
    }
    return level;
}

/* The leaf to write: untouched while tracking is armed, unclean where the first touch pays. */
static hvmem_u64 new_leaf(const struct hvmem_stage2 *s2, const struct piece *p, hvmem_u32 level)
{
    hvmem_u64 e = hvmem__s2_make_leaf(&s2->f, level, (hvmem_maddr)p->mfn << 12, p->leaf->rights,
                                      p->leaf->type);

    if (p->leaf->state & HVMEM_S2_UNCLEAN)
        return hvmem__s2_invalid(&s2->f, e) | s2->f.unclean;
    return s2->armed ? hvmem__s2_invalid(&s2->f, e) : e;
}

/* Hook tables in from path->level down to `level`; the pool has them. */
static void descend(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_gfn gfn,
                    hvmem_u32 level)
{
    while (path->level < level) {
        hvmem_maddr address = hvmem__s2_take(s2);

        hvmem__s2_put(s2, path, hvmem__s2_make_table(&s2->f, address));
        path->level++;
        path->slot[path->level] = hvmem__s2_table(s2, address) + hvmem__s2_index(gfn, path->level);
        path->entry = 0;
    }
}

/* Fill entries of one table from slot[level] on. Returns how many. */
static hvmem_u32 fill_entries(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, struct piece *p,
                              hvmem_u32 budget)
{
    hvmem_u32 level = path->level, n = 0;
    hvmem_u64 span = (hvmem_u64)1 << hvmem__s2_order(level);
    hvmem_u64 *slot = path->slot[level];

    do {
        hvmem__store_release(slot, new_leaf(s2, p, level));
        slot++;
        n++;
        p->gfn += span;
        p->mfn += span;
    } while (n < budget && hvmem__s2_index(p->gfn, level) != 0 && p->gfn < p->limit && !*slot &&
             level_for(s2, p) == level);
    hvmem__s2_add_count(s2, path, n);
    s2->leaves[hvmem__s2_size(level)] += n;
    return n;
}

/*
 * Whether others removed entries and have not flushed: a call that is under way or could not, or a caller
 * whose gather is still open. What is mapped now could be cached under two addresses. Only a flush of our
 * own that began after the removal is known to be over.
 */
static int may_be_cached(const struct hvmem_stage2 *s2, const struct piece *p)
{
    if (p->has_flushed && p->flushed == s2->removals)
        return 0;
    return s2->unflushed || hvmem__mapping_failed(&s2->mapping) ||
           (hvmem__load_acquire(&s2->mapping.lent) && p->gfn < s2->lent_end &&
            p->end > s2->lent_start);
}

static hvmem_status map_step(struct hvmem_stage2 *s2, struct piece *p)
{
    hvmem_u32 budget = HVMEM_S2_SLICE, level;
    struct hvmem__s2_path path;

    if (s2->state != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    if (may_be_cached(s2, p)) {
        p->flushed = s2->removals;
        return HVMEM__S2_NEED_FLUSH;
    }
    /* A device cannot fault (and would see the earlier owner's data). */
    if ((p->leaf->state & HVMEM_S2_UNCLEAN) && !hvmem__s2_may_fault(s2))
        return HVMEM_E_BUSY;
    while (p->gfn < p->limit && budget) {
        level = level_for(s2, p);
        hvmem__s2_walk(s2, p->gfn, &path);
        if (hvmem__s2_present(&s2->f, path.entry) || path.level > level)
            return HVMEM_E_BUSY;
        p->tables = level - path.level;
        if (p->tables > s2->pool_count)
            return HVMEM__S2_NEED_TABLES;
        descend(s2, &path, p->gfn, level);
        budget -= fill_entries(s2, &path, p, budget);
    }
    return HVMEM_OK;
}

/* Flush the rest of the range, whatever others have under way there. */
static hvmem_status flush_rest(struct hvmem_stage2 *s2, struct piece *p)
{
    struct hvmem_gather gather;
    hvmem_status status;

    /* The other gather is open: the rule of overlapping gathers makes this one flush its range. */
    status = hvmem__s2_gather(s2, &gather, p->gfn, p->end - p->gfn);
    if (!status)
        status = hvmem_gather_finish(&gather);
    p->has_flushed = !status;
    return status;
}

/*
 * Whether the guest may get the frames: else it would keep its access to what another is given, or reach a page
 * of tables and with it everything. No lock held.
 */
static hvmem_status check_frames(const struct hvmem_stage2 *s2, const struct hvmem__mapper *mapper,
                                 hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_status status;
    hvmem_mfn at = mfn;

    for (;;) {
        status = hvmem__may_map(s2->heap, mapper, &at, mfn + frames);
        if (status != HVMEM_AGAIN)
            return status;
        hvmem__give_way(s2->heap);
    }
}

/*
 * Look through the frames that the next step may map: those of one table of the entries that it begins
 * with, or of one entry of 1 GiB. No lock held.
 */
static hvmem_status next_frames(const struct hvmem_stage2 *s2, struct piece *p)
{
    hvmem_u64 span, rest;
    hvmem_u32 order;

    if (p->gfn < p->limit)
        return HVMEM_OK;
    p->limit = p->end;
    order = hvmem__s2_order(level_for(s2, p));
    span = (hvmem_u64)1 << (order < 18 ? order + 9 : order);
    rest = span - (p->gfn & (span - 1));
    if (p->end - p->gfn > rest)
        p->limit = p->gfn + rest;
    return check_frames(s2, &p->mapper, p->mfn, p->limit - p->gfn);
}

/* [gfn, gfn + frames) as `leaf` says, from its first frame on. HVMEM_AGAIN: may_stop. No lock held. */
static hvmem_status map_frames(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                               const struct hvmem_stage2_leaf *leaf,
                               const struct hvmem__mapper *mapper, hvmem_u32 may_stop,
                               hvmem_u64 *done)
{
    struct piece p = {gfn, gfn + frames, gfn, leaf->mfn, leaf, *mapper, 0, 0, 0};
    hvmem_gfn asked = gfn;
    hvmem_status status = HVMEM_OK;
    hvmem_u32 tries = 0;
    hvmem_u64 state;

    while (p.gfn < p.end && !status) {
        status = next_frames(s2, &p);
        if (status)
            break;
        state = hvmem__s2_lock(s2);
        status = map_step(s2, &p);
        hvmem__s2_unlock(s2, state);
        if (status == HVMEM__S2_NEED_TABLES) {
            /* Others may take what is got here: then it is asked for again. */
            status = hvmem__s2_fill(s2, p.tables);
            if (!status && ++tries > HVMEM__S2_TRIES * 64)
                status = HVMEM_E_BUSY;
        } else if (status == HVMEM__S2_NEED_FLUSH) {
            status = tries++ < HVMEM__S2_TRIES ? flush_rest(s2, &p) : HVMEM_E_BUSY;
        } else {
            tries = 0;
        }
        /* A step that needs a table has filled those before it. */
        if (!status && p.gfn > asked && p.gfn < p.end) {
            asked = p.gfn;
            if (hvmem__s2_stop(s2, may_stop))
                status = HVMEM_AGAIN;
        }
    }
    *done = p.gfn - gfn;
    return status;
}

hvmem_status hvmem__s2_map_block(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                 const struct hvmem_stage2_leaf *leaf,
                                 const struct hvmem__mapper *mapper)
{
    hvmem_u64 done = 0, gone;
    hvmem_status status = map_frames(s2, gfn, (hvmem_u64)1 << leaf->order, leaf, mapper, 0, &done);
    struct hvmem__s2_work undo;

    if (!status || !done)
        return status;
    /* Leaves that this call made are unmapped whole: that needs no table. */
    memset(&undo, 0, sizeof undo);
    undo.kind = HVMEM__S2_UNMAP;
    if (!hvmem__s2_change(s2, gfn, done, HVMEM_NULL, &undo, &gone))
        return status;
    /* (One that is no block of the heap's is the caller's to withhold.) */
    hvmem__gathered_withhold(s2->heap, leaf->mfn, leaf->order);
    return HVMEM_E_QUARANTINE;
}

static hvmem_status check_map(const struct hvmem_stage2 *s2, const struct hvmem_stage2_map *r)
{
    hvmem_u64 top = (hvmem_u64)1 << (s2->output_bits - 12);
    hvmem_status status;

    if (r->size != sizeof *r)
        return HVMEM_E_VERSION;
    if ((r->flags & ~HVMEM_S2_REPLACE) || !(r->rights & HVMEM_S2_R) ||
        (r->rights & ~HVMEM_S2_RWX) || r->type > HVMEM_S2_DEVICE ||
        r->rights != hvmem__s2_allowed(s2, r->type, r->rights))
        return HVMEM_E_ARG;
    status = hvmem__s2_check_range(s2, r->gfn, r->frames);
    if (!status && (r->mfn >= top || r->frames > top - r->mfn))
        status = HVMEM_E_RANGE;
    return status;
}

struct hvmem__mapper hvmem__s2_mapper(const struct hvmem_stage2 *s2)
{
    struct hvmem__mapper mapper;

    mapper.guest = hvmem__load(&s2->mapping.space->guest);
    mapper.payer = s2->domain ? s2->domain->id : 0;
    return mapper;
}

/* Whether the first touch pays for what is mapped. */
static int touch_pays(const struct hvmem_stage2 *s2, const struct hvmem_stage2_map *request)
{
    return (s2->flags & HVMEM_S2_FIRST_TOUCH) && request->type == HVMEM_S2_WB;
}

hvmem_status hvmem_stage2_map(struct hvmem_stage2 *s2, const struct hvmem_stage2_map *request,
                              hvmem_u64 *done)
{
    struct hvmem_stage2_leaf leaf;
    hvmem_u64 n = 0, frames;
    hvmem_status status, unmapped = HVMEM_OK;
    struct hvmem__mapper mapper;

    if (done)
        *done = 0;
    if (!s2 || !request)
        return HVMEM_E_ARG;
    status = check_map(s2, request);
    mapper = hvmem__s2_mapper(s2);
    /* Before anything is unmapped; what decides is the looks that are taken when it is mapped. */
    if (!status && (request->flags & HVMEM_S2_REPLACE))
        status = check_frames(s2, &mapper, request->mfn, request->frames);
    if (!status && touch_pays(s2, request) && hvmem__s2_shared(s2))
        status = HVMEM_E_BUSY;
    frames = request->frames;
    if (!status && (request->flags & HVMEM_S2_REPLACE))
        unmapped = hvmem_stage2_unmap(s2, request->gfn, frames, HVMEM_NULL, &frames);
    /* Stopped: what is unmapped is mapped, a step of it at least. */
    if (unmapped < 0 || (unmapped && !frames))
        status = unmapped;
    if (!status) {
        memset(&leaf, 0, sizeof leaf);
        leaf.mfn = request->mfn;
        leaf.rights = request->rights;
        leaf.type = request->type;
        if (touch_pays(s2, request))
            leaf.state = HVMEM_S2_UNCLEAN;
        status = map_frames(s2, request->gfn, frames, &leaf, &mapper,
                            s2->flags & HVMEM_S2_PREEMPTIBLE, &n);
        status = status ? status : unmapped;
    }
    if (done)
        *done = n;
    return status < 0 ? hvmem__s2_refuse(s2, status, request->gfn) : status;
}

/* ---- look-up -------------------------------------------------------------------------------- */

hvmem_status hvmem_stage2_lookup(struct hvmem_stage2 *s2, hvmem_gfn gfn,
                                 struct hvmem_stage2_leaf *leaf)
{
    struct hvmem__s2_path path;
    hvmem_u64 state, mask;
    hvmem_status status;

    if (!s2 || !leaf)
        return HVMEM_E_ARG;
    status = hvmem__s2_check_range(s2, gfn, 1);
    if (status)
        return hvmem__s2_refuse(s2, status, gfn);
    state = hvmem__s2_lock(s2);
    if (s2->state != HVMEM__S2_LIVE) {
        hvmem__s2_unlock(s2, state);
        return hvmem__s2_refuse(s2, HVMEM_E_PHASE, gfn);
    }
    hvmem__s2_walk(s2, gfn, &path);
    hvmem__s2_unlock(s2, state);
    leaf->order = hvmem__s2_order(path.level);
    if (!hvmem__s2_present(&s2->f, path.entry))
        return HVMEM_E_FREE;
    mask = ((hvmem_u64)1 << leaf->order) - 1;
    leaf->mfn = (hvmem__s2_address(&s2->f, path.entry) >> 12) + (gfn & mask);
    leaf->rights = hvmem__s2_rights(&s2->f, path.entry);
    leaf->type = hvmem__s2_type(&s2->f, path.entry);
    leaf->state = hvmem__s2_touched(s2, path.entry, path.walkable) ? HVMEM_S2_TOUCHED : 0;
    if (path.entry & s2->f.unclean)
        leaf->state |= HVMEM_S2_UNCLEAN;
    return HVMEM_OK;
}
