/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_split.c: changing the size of entries, break before make.
 *
 * Break: the entry becomes invalid and `broken` and keeps its contents; flush; make: it becomes what it
 * is to be. The lock is not held during the flush. Whoever meets a broken entry and must change its size
 * takes it for one that it broke itself: it flushes, and makes if `breaks` says that nobody broke
 * such an entry again since. A fault there is retried. Nobody leaves an entry of his broken, but for a
 * merge whose flush failed: its table is gone, and the entry waits for the next merge or split there.
 *
 * A device's access to a broken entry is lost, not retried: where one walks the tables nothing is broken
 * (HVMEM_E_BUSY), and while anything is none is let in. Each broken entry is counted in the mapping
 * (hvmem__mapping_may_break), under the lock, until it is none any more.
 */
#include "gather.h"
#include "stage2.h"

/* Which counter of breaks the entry belongs to. */
static hvmem_u64 *break_count(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level)
{
    return &s2->breaks[(gfn >> hvmem__s2_order(level)) & 15u];
}

static hvmem_u64 broken_of(const struct hvmem_stage2 *s2, hvmem_u64 leaf)
{
    return hvmem__s2_invalid(&s2->f, leaf) | s2->f.broken |
           (hvmem__s2_valid(&s2->f, leaf) ? s2->f.touched : 0);
}

/* The broken leaf of the path becomes what it was before. Under the lock. */
static void mend(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u32 level)
{
    hvmem_u64 leaf = path->entry;

    hvmem__s2_put(s2, path,
                  leaf & s2->f.touched ? hvmem__s2_validate(&s2->f, leaf, level)
                                       : leaf & ~s2->f.broken);
    hvmem__mapping_mended(&s2->mapping, 1);
}

void hvmem__s2_make_parts(struct hvmem_stage2 *s2, struct hvmem__s2_path *path, hvmem_u64 leaf)
{
    hvmem_u32 level = path->level + 1, i;
    hvmem_maddr address = hvmem__s2_take(s2);
    hvmem_u64 *table = hvmem__s2_table(s2, address);
    hvmem_u64 part =
        hvmem__s2_make_leaf(&s2->f, level, hvmem__s2_address(&s2->f, leaf),
                            hvmem__s2_rights(&s2->f, leaf), hvmem__s2_type(&s2->f, leaf));

    if (!hvmem__s2_valid(&s2->f, leaf) && !(leaf & s2->f.touched))
        part = hvmem__s2_invalid(&s2->f, part);
    part |= leaf & (s2->f.unclean | s2->f.aged);
    for (i = 0; i < 512; i++)
        table[i] = part + ((hvmem_u64)i << (hvmem__s2_order(level) + 12));
    s2->leaves[hvmem__s2_size(path->level)]--;
    s2->leaves[hvmem__s2_size(level)] += 512;
    s2->splits++;
    hvmem__s2_put(s2, path,
                  hvmem__s2_with_count(&s2->f, hvmem__s2_make_table(&s2->f, address), 512));
}

/* Whether the path still ends in the leaf of `level`. */
static int is_leaf_at(const struct hvmem_stage2 *s2, const struct hvmem__s2_path *path,
                      hvmem_u32 level)
{
    return path->level == level && hvmem__s2_present(&s2->f, path->entry);
}

/* A break of this call's, or one that it met, and what is to be flushed for it. */
struct breaking {
    hvmem_u64 seq; /* the count of breaks */
    hvmem_u32 flush;
    int own;
};
#define FLUSH_NONE  0u
#define FLUSH_ENTRY 1u /* that block */
#define FLUSH_BELOW 2u /* whatever there was: who broke it may have merged a table */

/*
 * What is to be flushed for an entry that is to change its size. One that is invalid may have been valid
 * when another call changed it whose gather is open yet; one that is open is the caller's.
 */
static hvmem_u32 flush_for(const struct hvmem_stage2 *s2, const struct hvmem__s2_path *path)
{
    if (path->entry & s2->f.broken)
        return FLUSH_BELOW;
    if (hvmem__s2_cached(s2, path->entry, path->walkable) ||
        (hvmem__load_acquire(&s2->mapping.turns) & HVMEM__TURN_OPEN) > 1)
        return FLUSH_ENTRY;
    return FLUSH_NONE;
}

/*
 * A block drops out of every TLB, in whatever pieces it is kept there, by one operation at any of its
 * addresses: what is invalidated are copies of its table entry (Arm ARM D8.14; SDM vol. 3 4.10.2.3).
 */
static hvmem_status flush_broken(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                                 hvmem_u32 what)
{
    hvmem_u32 order = hvmem__s2_order(level);
    struct hvmem_tlb_range range;

    if (what == FLUSH_NONE)
        return HVMEM_OK;
    memset(&range, 0, sizeof range);
    range.start = (gfn >> order) << order << 12;
    range.pages = (hvmem_u64)1 << order;
    range.stride_shift = (hvmem_u8)(what == FLUSH_ENTRY ? order + 12 : 12);
    range.level = (hvmem_u8)(what == FLUSH_ENTRY ? level : HVMEM_LEVEL_UNKNOWN);
    range.flags = what == FLUSH_ENTRY ? HVMEM_RANGE_LEAF : 0;
    return hvmem__s2_shoot(s2, &range, 1, what == FLUSH_ENTRY ? 0 : HVMEM_SHOOT_TABLES);
}

/*
 * Break, under the lock. HVMEM_OK: nothing (more) is to be done. HVMEM_AGAIN: flush, then make. Where the
 * machine needs no break an operation at gfn, by the gather, takes the block along: it names no level.
 */
static hvmem_status start_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                                struct hvmem_gather *gather, struct breaking *breaking)
{
    struct hvmem__s2_path path;

    if (s2->state != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    hvmem__s2_walk(s2, gfn, &path);
    if (!is_leaf_at(s2, &path, level))
        return HVMEM_OK;
    if (!s2->pool_count)
        return HVMEM__S2_NEED_TABLES;
    if ((path.entry & s2->f.unclean) &&
        !hvmem__s2_forget_touch(s2, (gfn >> hvmem__s2_order(level)) << hvmem__s2_order(level)))
        return HVMEM__S2_NEED_WAIT;
    /* Unclean entries were never valid. */
    if ((path.entry & s2->f.unclean) || !s2->must_break) {
        if (hvmem__s2_cached(s2, path.entry, path.walkable))
            (void)hvmem__gather_run(gather, gfn << 12, 1, 12, HVMEM_LEVEL_UNKNOWN,
                                    HVMEM_ENTRY_EXEC);
        hvmem__s2_make_parts(s2, &path, path.entry);
        return HVMEM_OK;
    }
    breaking->flush = flush_for(s2, &path);
    breaking->own = !(path.entry & s2->f.broken);
    if (breaking->own) {
        if (!hvmem__mapping_may_break(&s2->mapping))
            return HVMEM_E_BUSY;
        ++*break_count(s2, gfn, level);
        hvmem__s2_put(s2, &path, broken_of(s2, path.entry));
    }
    breaking->seq = *break_count(s2, gfn, level);
    return HVMEM_AGAIN;
}

/* Make, under the lock; `flushed`: the flush's status. HVMEM_AGAIN: start over. */
static hvmem_status end_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                              const struct breaking *breaking, hvmem_status flushed)
{
    struct hvmem__s2_path path;

    if (s2->state != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    hvmem__s2_walk(s2, gfn, &path);
    if (!is_leaf_at(s2, &path, level) || !(path.entry & s2->f.broken) ||
        *break_count(s2, gfn, level) != breaking->seq)
        return flushed ? flushed : HVMEM_AGAIN;
    /* A merge may have broken it: then what is cached may be smaller. */
    if (flushed && !breaking->own)
        return flushed;
    if (!flushed && s2->pool_count) {
        hvmem__s2_make_parts(s2, &path, path.entry);
        hvmem__mapping_mended(&s2->mapping, 1);
        return HVMEM_OK;
    }
    /* The same block again: whatever is still cached says the same. */
    mend(s2, &path, level);
    return flushed ? flushed : HVMEM_AGAIN;
}

static hvmem_status try_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                              struct hvmem_gather *gather)
{
    struct breaking breaking = {0, FLUSH_NONE, 0};
    hvmem_status status, ended;
    hvmem_u64 state;

    state = hvmem__s2_lock(s2);
    status = start_split(s2, gfn, level, gather, &breaking);
    hvmem__s2_unlock(s2, state);
    if (status != HVMEM_AGAIN)
        return status == HVMEM__S2_NEED_TABLES ? HVMEM_AGAIN : status;
    ended = flush_broken(s2, gfn, level, breaking.flush);
    state = hvmem__s2_lock(s2);
    status = end_split(s2, gfn, level, &breaking, ended);
    hvmem__s2_unlock(s2, state);
    return status;
}

hvmem_status hvmem__s2_split(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                             struct hvmem_gather *gather)
{
    hvmem_status status = HVMEM_AGAIN, ended = HVMEM_OK;
    hvmem_u32 tries, order = hvmem__s2_order(level);
    struct hvmem_gather own;

    /* While a gather is open a teardown does not end. */
    if (!gather) {
        ended = hvmem__s2_gather(s2, &own, (gfn >> order) << order, (hvmem_u64)1 << order);
        if (ended)
            return ended;
    }
    for (tries = 0; status == HVMEM_AGAIN && tries < HVMEM__S2_TRIES; tries++) {
        status = hvmem__s2_fill(s2, 1);
        if (!status)
            status = try_split(s2, gfn, level, gather ? gather : &own);
    }
    if (!gather)
        ended = hvmem_gather_finish(&own);
    return status == HVMEM_AGAIN ? HVMEM_E_BUSY : status ? status : ended;
}

/* ---- merging -------------------------------------------------------------------------------- */

/* Whether the 512 entries continue each other; *any: the valid and aged bits found in them. */
static int continuous(const struct hvmem_stage2 *s2, const hvmem_u64 *table, hvmem_u32 level,
                      hvmem_u64 *any)
{
    hvmem_u64 step = (hvmem_u64)1 << (hvmem__s2_order(level) + 12);
    hvmem_u64 ignored = s2->f.valid | s2->f.aged, expected = table[0] & ~ignored;
    hvmem_u32 i;

    if (hvmem__s2_is_table(&s2->f, table[0], level) ||
        (table[0] & (s2->f.broken | s2->f.unclean)) ||
        (hvmem__s2_address(&s2->f, table[0]) & ((step << 9) - 1)))
        return 0;
    *any = 0;
    for (i = 0; i < 512; i++, expected += step) {
        if ((table[i] & ~ignored) != expected)
            return 0;
        *any |= table[i] & ignored;
    }
    return 1;
}

/* What start_merge() came to. */
#define MERGE_NONE  0
#define MERGE_BEGUN 1
#define MERGE_MET                                                                                  \
    2 /* it is there and broken; what was there before is not known: flush everything */
#define MERGE_BUSY 3 /* a device walks the tables */

/* Under the lock: put a leaf of `level` in place of the table there, broken if it must be. */
static int start_merge(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level,
                       struct hvmem_gather *gather, hvmem_u64 *seq)
{
    struct hvmem__s2_path path;
    hvmem_u64 *table, old, leaf, any;
    hvmem_u32 i;

    if (s2->state != HVMEM__S2_LIVE)
        return MERGE_NONE;
    hvmem__s2_walk(s2, gfn, &path);
    /* Left by a merge whose flush failed, or of one under way. */
    if (is_leaf_at(s2, &path, level) && (path.entry & s2->f.broken)) {
        *seq = *break_count(s2, gfn, level);
        return MERGE_MET;
    }
    if (path.level != level + 1 || !hvmem__s2_present(&s2->f, path.entry))
        return MERGE_NONE;
    old = *path.slot[level];
    table = hvmem__s2_table(s2, hvmem__s2_address(&s2->f, old));
    if (hvmem__s2_count(&s2->f, old) != 512 || !continuous(s2, table, level + 1, &any))
        return MERGE_NONE;
    if (s2->must_break && !hvmem__mapping_may_break(&s2->mapping))
        return MERGE_BUSY;
    leaf =
        hvmem__s2_make_leaf(&s2->f, level, hvmem__s2_address(&s2->f, table[0]),
                            hvmem__s2_rights(&s2->f, table[0]), hvmem__s2_type(&s2->f, table[0]));
    /* What says touched below an invalid entry is from before arming. */
    if (!hvmem__s2_valid(&s2->f, old))
        any = 0;
    if (!(any & s2->f.valid))
        leaf = hvmem__s2_invalid(&s2->f, leaf) | (any & s2->f.aged);
    path.level = level;
    path.entry = old;
    ++*break_count(s2, gfn, level);
    *seq = *break_count(s2, gfn, level);
    hvmem__s2_put(s2, &path, s2->must_break ? broken_of(s2, leaf) : leaf);
    for (i = 0; i < 512; i++)
        if (hvmem__s2_cached(s2, table[i], path.walkable))
            hvmem__s2_tell(s2, gather, gfn + ((hvmem_u64)i << hvmem__s2_order(level + 1)), 1,
                           level + 1, table[i]);
    (void)hvmem__gather_table(gather, hvmem__s2_address(&s2->f, old) >> 12, gfn << 12, level + 1,
                              HVMEM_TABLE_TOLD, 1);
    s2->used--;
    s2->leaves[hvmem__s2_size(level + 1)] -= 512;
    s2->leaves[hvmem__s2_size(level)]++;
    s2->merges++;
    return MERGE_BEGUN;
}

/* The leaf that start_merge() put there becomes usable, unless somebody changed it meanwhile. */
static void end_merge(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level, hvmem_u64 seq)
{
    struct hvmem__s2_path path;

    /* A teardown has not waited for this call: there may be no tables any more. */
    if (s2->state != HVMEM__S2_LIVE)
        return;
    hvmem__s2_walk(s2, gfn, &path);
    if (is_leaf_at(s2, &path, level) && (path.entry & s2->f.broken) &&
        *break_count(s2, gfn, level) == seq)
        mend(s2, &path, level);
}

/* Merge the table at gfn into a leaf of `level` if that can be. *merged is set to 1 where it could. */
static hvmem_status merge_one(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u32 level, int *merged)
{
    struct hvmem_gather gather;
    hvmem_status status;
    hvmem_u64 state, seq = 0;
    int begun;

    status = hvmem__s2_gather(s2, &gather, gfn, (hvmem_u64)1 << hvmem__s2_order(level));
    if (status)
        return status;
    state = hvmem__s2_lock(s2);
    begun = start_merge(s2, gfn, level, &gather, &seq);
    hvmem__s2_unlock(s2, state);
    *merged |= begun != MERGE_NONE;
    status = hvmem_gather_finish(&gather);
    if (begun == MERGE_BUSY)
        return HVMEM_E_BUSY;
    if (begun == MERGE_MET && !status)
        status = hvmem__s2_shoot(s2, HVMEM_NULL, 0, HVMEM_SHOOT_TABLES);
    /* After a flush that failed the smaller entries may still be cached: the leaf stays broken. */
    if (begun != MERGE_NONE && !status) {
        state = hvmem__s2_lock(s2);
        end_merge(s2, gfn, level, seq);
        hvmem__s2_unlock(s2, state);
    }
    return status;
}

/* The 2 MiB table that ends at `last`, and with the last of a 1 GiB range from gfn on that of 1 GiB. */
static hvmem_status merge_at(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_gfn last, int *merged)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u32 level;

    *merged = 0;
    for (level = 2; level >= 1 && level >= s2->start_level && !status; level--) {
        hvmem_u32 order = hvmem__s2_order(level);
        hvmem_u64 span = (hvmem_u64)1 << order;

        if ((last & (span - 1)) || last < span || last - span < gfn || order > s2->largest)
            break;
        status = merge_one(s2, last - span, level, merged);
    }
    return status;
}

hvmem_status hvmem_stage2_merge(struct hvmem_stage2 *s2, hvmem_gfn gfn, hvmem_u64 frames,
                                hvmem_u64 *done)
{
    hvmem_status status;
    hvmem_gfn at, end, last;
    int merged;

    if (done)
        *done = 0;
    if (!s2)
        return HVMEM_E_ARG;
    status = hvmem__s2_check_range(s2, gfn, frames);
    if (!status && hvmem__load(&s2->state) != HVMEM__S2_LIVE)
        status = HVMEM_E_PHASE;
    if (status)
        return hvmem__s2_refuse(s2, status, gfn);
    end = gfn + frames;
    for (at = gfn; at < end && !status; at = last) {
        last = at + hvmem__s2_rest(at, 2) < end ? at + hvmem__s2_rest(at, 2) : end;
        status = merge_at(s2, gfn, last, &merged);
        if (done && !status)
            *done = last - gfn;
        /* In the middle of 1 GiB only behind a merge: else its own would never come. */
        if (!status && last < end && (merged || hvmem__s2_rest(last, 1) == (hvmem_u64)1 << 18) &&
            hvmem__s2_stop(s2, s2->flags & HVMEM_S2_PREEMPTIBLE))
            status = HVMEM_AGAIN;
    }
    return status < 0 ? hvmem__s2_refuse(s2, status, at) : status;
}
