/* SPDX-License-Identifier: BSD-2-Clause */
/* stage2_life.c: birth, what to load into the CPU, counts, and teardown in slices. */
#include <hvmem/space.h>

#include "free.h"
#include "settle.h"
#include "space.h"
#include "stage2.h"

/* Tables freed by one call of teardown, which looks at HVMEM_S2_SLICE entries. */
#define FREE_TABLES 16u

/* Without max_tables: one table for so many free frames. All that a guest may use takes one for 512. */
#define RESERVE_SHARE 16u

HVMEM_STATIC_ASSERT(FREE_TABLES <= 64, batch_of_teardown_fits_the_stack);

/* ---- geometry ------------------------------------------------------------------------------- */

/* Root entries of a stage 2 that starts at `level`: 2 .. 512, or up to 16 tables side by side. */
static hvmem_u64 root_entries(hvmem_u32 bits, hvmem_u32 level)
{
    hvmem_u32 below = 12 + hvmem__s2_order(level);

    return bits > below && bits - below <= 13 ? (hvmem_u64)1 << (bits - below) : 0;
}

/* Root tables' entries if it starts at that level; 0: that cannot be. */
static hvmem_u64 root_at(const struct hvmem_stage2_config *c, hvmem_u32 level)
{
    /* Below 44 bits of machine address there is no level 0 (Arm ARM D8.2.9: SL0 2 is reserved there). */
    if (!level && c->output_bits < 44)
        return 0;
    return root_entries(c->input_bits, level);
}

/* The start level that is meant; 3: none that works (Arm ARM D8.2.9, formats of VTCR_EL2.SL0). */
static hvmem_u32 start_of(const struct hvmem_stage2_config *c)
{
    hvmem_u32 level;

    if (c->format != HVMEM_S2_ARM64)
        return c->start_level == HVMEM_S2_LEVEL_AUTO || !c->start_level ? 0 : 3;
    if (c->start_level != HVMEM_S2_LEVEL_AUTO)
        return c->start_level < 3 && root_at(c, c->start_level) ? c->start_level : 3;
    /* The lowest level whose root is one table, else level 0, else tables side by side. */
    for (level = 2; level > 0; level--)
        if (root_at(c, level) && root_at(c, level) <= 512)
            return level;
    if (root_at(c, 0))
        return 0;
    return root_at(c, 1) ? 1 : 3;
}

static hvmem_status check_config(const struct hvmem_stage2_config *c)
{
    struct hvmem__s2_format f;
    hvmem_u32 arm = c->format == HVMEM_S2_ARM64;

    if (c->size != sizeof *c)
        return HVMEM_E_VERSION;
    if (!hvmem__s2_format_init(&f, c->format, c->flags) || !c->heap || !c->space ||
        (c->flags &
         ~(HVMEM_S2_TRACK | HVMEM_S2_FIRST_TOUCH | HVMEM_S2_FORCE_WB | HVMEM_S2_PREEMPTIBLE)))
        return HVMEM_E_ARG;
    if (c->largest != 0 && c->largest != 9 && c->largest != 18)
        return HVMEM_E_ORDER;
    if (c->input_bits < (arm ? 22u : 32u) || c->input_bits > 48 || c->output_bits < 32 ||
        c->output_bits > (arm ? 48u : 52u) || start_of(c) > 2)
        return HVMEM_E_ARG;
    if (arm && c->id_bits != 8 && c->id_bits != 16)
        return HVMEM_E_ARG;
    if (c->heap->page_shift != 12)
        return HVMEM_E_ARG;
    return HVMEM_OK;
}

hvmem_status hvmem_stage2_size(const struct hvmem_stage2_config *config, hvmem_size *bytes)
{
    hvmem_status status;

    if (!config || !bytes)
        return HVMEM_E_ARG;
    status = check_config(config);
    if (!status)
        *bytes = (hvmem_size)hvmem__round_up(sizeof(struct hvmem_stage2), HVMEM_LINE);
    return status;
}

/* ---- birth ---------------------------------------------------------------------------------- */

static void take_config(struct hvmem_stage2 *s2, const struct hvmem_stage2_config *c)
{
    const struct hvmem_backend *be = c->heap->backend;

    memset(s2, 0, sizeof *s2);
    s2->heap = c->heap;
    s2->domain = c->domain;
    (void)hvmem__s2_format_init(&s2->f, c->format, c->flags);
    s2->flags = c->flags;
    s2->start_level = start_of(c);
    s2->input_bits = c->input_bits;
    s2->output_bits = c->output_bits;
    s2->id_bits = c->id_bits;
    s2->largest = c->largest;
    s2->touch_lines = c->touch_lines ? c->touch_lines : HVMEM_S2_TOUCH_LINES;
    s2->node = c->node;
    s2->max_tables = c->max_tables;
    s2->direct_map = c->direct_map;
    s2->table_at = c->table_at;
    s2->populate = c->populate;
    s2->ctx = c->ctx;
    s2->root_entries = root_entries(c->input_bits, s2->start_level);
    if (!s2->root_entries)
        s2->root_entries = 1; /* x86: a root of which one entry is used */
    if (s2->root_entries > 512)
        s2->root_order = hvmem__highest(s2->root_entries) - 9;
    /* Without FEAT_BBM level 2, and on CPUs with errata, no entry changes its size while valid. */
    s2->must_break = c->format == HVMEM_S2_ARM64 && !(be && (be->caps.features & HVMEM_CAP_BBM2));
    if (be && (be->caps.quirks & HVMEM_QUIRK_BBM_REQUIRED))
        s2->must_break = 1;
}

/* The root, zeroed: one naturally aligned block (Arm ARM D8.2.9). */
static hvmem_status make_root(struct hvmem_stage2 *s2)
{
    hvmem_status status = hvmem__s2_frames(s2, s2->root_order, &s2->root);

    if (!status)
        s2->used = s2->held = (hvmem_u64)1 << s2->root_order;
    return status;
}

/* No lock held. Nothing walks the table (any more, which the one flush of a teardown has seen to): it owes none. */
static void free_table(struct hvmem_stage2 *s2, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem__s2_release(s2, mfn, order, HVMEM__GONE | hvmem__owed_by_table(s2->heap));
}

/* What to load, the id left out. */
static hvmem_u64 root_value(const struct hvmem_stage2 *s2)
{
    hvmem_u64 root = (hvmem_u64)s2->root << 12;

    /* EPTP: walks are write-back, four levels, no A/D flags (SDM vol. 3 25.6.11). */
    return s2->f.format == HVMEM_S2_EPT ? root | 3u << 3 | 6u : root;
}

/* Without FEAT_TTST T0SZ is 39 at most; above it walks fault, or take it for 39 (Arm ARM, VTCR_EL2.T0SZ). */
static int is_too_small(const struct hvmem_stage2_config *c)
{
    const struct hvmem_backend *be = c->heap->backend;

    return c->format == HVMEM_S2_ARM64 && c->input_bits < 25 &&
           !(be && (be->caps.features & HVMEM_CAP_SMALL_INPUT));
}

/*
 * With HVMEM_CAP_FWB the heap cleans nothing for guests whose accesses are write-back whatever they say: this
 * one's must be. Without it these attributes mean something else.
 */
static hvmem_status check_forced(const struct hvmem_stage2_config *c)
{
    const struct hvmem_backend *be = c->heap->backend;
    int can = be && (be->caps.features & HVMEM_CAP_FWB), forced = !!(c->flags & HVMEM_S2_FORCE_WB);

    if (c->format != HVMEM_S2_ARM64 || can == forced)
        return HVMEM_OK;
    return can ? HVMEM_E_ARG : HVMEM_E_UNSUPPORTED;
}

/* The space is this stage 2's, whose root is made; E_SPACE, and the root is no more: it cannot be. */
static hvmem_status take_space(struct hvmem_stage2 *s2, struct hvmem_space *space)
{
    /* EPT is invalidated by its root, arm64 stage 2 with it in force, and it is known only now. */
    hvmem_u64 root = s2->f.format != HVMEM_S2_NPT ? root_value(s2) : space->root;

    if (hvmem__space_take_tables(space, root, s2->f.format == HVMEM_S2_EPT))
        return HVMEM_OK;
    free_table(s2, s2->root, s2->root_order);
    return HVMEM_E_SPACE;
}

static hvmem_status init(void *memory, hvmem_size bytes, const struct hvmem_stage2_config *c)
{
    struct hvmem_mapping_config mapping;
    struct hvmem_stage2 *s2 = memory;
    hvmem_status status = check_config(c);

    if (!status)
        status = is_too_small(c) ? HVMEM_E_UNSUPPORTED : check_forced(c);
    if (status)
        return status;
    if (!memory || bytes < sizeof *s2 || ((hvmem_uptr)memory & (sizeof(hvmem_u64) - 1)))
        return HVMEM_E_BUFFER;
    take_config(s2, c);
    if (s2->max_tables && s2->max_tables < (hvmem_u64)1 << s2->root_order)
        return HVMEM_E_LIMIT;
    memset(&mapping, 0, sizeof mapping);
    mapping.size = sizeof mapping;
    mapping.heap = c->heap;
    mapping.space = c->space;
    mapping.policy = c->policy;
    mapping.table_free = hvmem__s2_table_free;
    mapping.ctx = s2;
    status = hvmem_mapping_init(&s2->mapping, &mapping);
    if (status)
        return status;
    s2->mapping.flags |= HVMEM__MAPPING_STAGE2;
    status = make_root(s2);
    if (!status)
        status = take_space(s2, c->space);
    if (status) {
        (void)hvmem_mapping_fini(&s2->mapping);
        return status;
    }
    s2->state = HVMEM__S2_LIVE;
    return HVMEM_OK;
}

hvmem_status hvmem_stage2_init(void *memory, hvmem_size bytes,
                               const struct hvmem_stage2_config *config, struct hvmem_stage2 **s2)
{
    hvmem_status status;

    if (!config || !s2)
        return HVMEM_E_ARG;
    status = init(memory, bytes, config);
    if (!status)
        *s2 = memory;
    else if (status != HVMEM_E_VERSION)
        (void)hvmem__refuse(config->heap, status, 0, HVMEM_ORDER_ANY, config->format);
    return status;
}

/* ---- what to load --------------------------------------------------------------------------- */

hvmem_status hvmem_stage2_root(const struct hvmem_stage2 *s2, hvmem_u32 id, hvmem_u64 *value)
{
    if (!s2 || !value)
        return HVMEM_E_ARG;
    if (hvmem__load(&s2->state) != HVMEM__S2_LIVE)
        return HVMEM_E_PHASE;
    if (s2->f.format == HVMEM_S2_ARM64 && id >> s2->id_bits)
        return HVMEM_E_RANGE;
    *value = root_value(s2);
    if (s2->f.format == HVMEM_S2_ARM64)
        *value |= (hvmem_u64)id << 48;
    return HVMEM_OK;
}

hvmem_u64 hvmem_stage2_control(const struct hvmem_stage2 *s2)
{
    hvmem_u64 value;

    if (!s2 || s2->f.format != HVMEM_S2_ARM64)
        return 0;
    /* RES1, walks inner shareable and write-back, 4 KiB granule (Arm ARM D19.2.161). */
    value = (hvmem_u64)1 << 31 | 3u << 12 | 1u << 10 | 1u << 8;
    value |= 64u - s2->input_bits;
    value |= (hvmem_u64)(2u - s2->start_level) << 6;
    return s2->id_bits == 16 ? value | 1u << 19 : value;
}

struct hvmem_mapping *hvmem_stage2_mapping(struct hvmem_stage2 *s2)
{
    return s2 ? &s2->mapping : HVMEM_NULL;
}

/* Whether so many more tables may be taken from the heap at once: a wrong number must not empty it. */
static hvmem_status may_reserve(const struct hvmem_stage2 *s2, hvmem_u64 more, hvmem_u64 held)
{
    hvmem_u64 free = hvmem_free_frames(s2->heap);

    if (s2->max_tables ? more > s2->max_tables - held : more > free / RESERVE_SHARE)
        return HVMEM_E_LIMIT;
    if (!hvmem__domain_may_have(s2->domain, more))
        return HVMEM_E_LIMIT;
    return more > free ? HVMEM_E_NOMEM : HVMEM_OK;
}

hvmem_status hvmem_stage2_reserve(struct hvmem_stage2 *s2, hvmem_u64 tables)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state, pool, held;

    if (!s2)
        return HVMEM_E_ARG;
    state = hvmem__s2_lock(s2);
    pool = s2->pool_count;
    held = s2->held;
    hvmem__s2_unlock(s2, state);
    /* What can never be is refused before anything is taken. */
    if (tables > pool)
        status = may_reserve(s2, tables - pool, held);
    if (!status)
        status = hvmem__s2_fill(s2, tables);
    return status ? hvmem__s2_refuse(s2, status, tables) : HVMEM_OK;
}

hvmem_status hvmem_stage2_stats(struct hvmem_stage2 *s2, struct hvmem_stage2_stats *stats)
{
    hvmem_u64 state;
    hvmem_u32 i;

    if (!s2 || !stats)
        return HVMEM_E_ARG;
    if (stats->size != sizeof *stats)
        return hvmem__s2_refuse(s2, HVMEM_E_VERSION, stats->size);
    state = hvmem__s2_lock(s2);
    stats->root_tables = 1u << s2->root_order;
    stats->tables = s2->used;
    stats->pool = s2->pool_count;
    stats->max_tables = s2->max_tables;
    stats->frames = 0;
    for (i = 0; i < 3; i++) {
        stats->leaves[i] = s2->leaves[i];
        stats->frames += s2->leaves[i] << (9 * i);
    }
    stats->faults = s2->faults;
    stats->repairs = s2->repairs;
    stats->pushed = s2->pushed;
    stats->splits = s2->splits;
    stats->merges = s2->merges;
    hvmem__s2_unlock(s2, state);
    return HVMEM_OK;
}

/* ---- teardown ------------------------------------------------------------------------------- */

/* Whether the table of entries of `level` ends where teardown has got to. */
static int ends_here(const struct hvmem_stage2 *s2, hvmem_gfn at, hvmem_u32 level)
{
    if (level == s2->start_level)
        return 0;
    return at >> (s2->input_bits - 12) != 0 ||
           hvmem__s2_rest(at, level - 1) == (hvmem_u64)1 << hvmem__s2_order(level - 1);
}

/*
 * Unhook tables from the leaves upwards, from open->at on, under the lock. Nothing below the root can be
 * reached by hardware any more. 1: there are no more.
 */
static int unhook(struct hvmem_stage2 *s2, struct hvmem__s2_open *open, hvmem_mfn *freed,
                  hvmem_u32 *n)
{
    hvmem_gfn end = (hvmem_gfn)1 << (s2->input_bits - 12);
    hvmem_u32 budget = HVMEM_S2_SLICE, level;
    struct hvmem__s2_path path;

    while (open->at < end && *n < FREE_TABLES && budget--) {
        hvmem__s2_walk(s2, open->at, &path);
        level = path.level;
        /* A table of pages has no tables below; and behind the last entry each table is done. */
        if (level == 3)
            open->at |= 511u;
        open->at += hvmem__s2_rest(open->at, level);
        for (; ends_here(s2, open->at, level) && *n < FREE_TABLES; level--) {
            freed[(*n)++] = hvmem__s2_address(&s2->f, *path.slot[level - 1]) >> 12;
            hvmem__store(path.slot[level - 1], (hvmem_u64)0);
        }
        /* Cut off in the middle of a row of tables that end here: the rest looks absent, and waits. */
        if (ends_here(s2, open->at, level))
            open->at = (open->at < end ? open->at : end) - 1;
    }
    return open->at >= end;
}

/* A table out of the pool, or HVMEM__NO_MFN: then everything is counted as gone. Under the lock. */
static hvmem_mfn drain_pool(struct hvmem_stage2 *s2)
{
    if (s2->pool_count) {
        hvmem_mfn mfn = hvmem__s2_take(s2) >> 12;

        s2->used--;
        s2->held--;
        return mfn;
    }
    s2->used = s2->held = 0;
    memset(s2->leaves, 0, sizeof s2->leaves);
    hvmem__store(&s2->state, HVMEM__S2_GONE);
    return HVMEM__NO_MFN;
}

/*
 * The last slice: the mapping, the pool and the root. No lock held. HVMEM_E_BUSY: a call that began
 * before is still getting a table, or has a gather open.
 */
static hvmem_status finish(struct hvmem_stage2 *s2)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state = hvmem__s2_lock(s2);
    hvmem_mfn mfn;

    if (s2->held != s2->pool_count + ((hvmem_u64)1 << s2->root_order))
        status = HVMEM_E_BUSY;
    hvmem__s2_unlock(s2, state);
    if (!status)
        status = hvmem_mapping_fini(&s2->mapping);
    if (status)
        return status;
    do {
        state = hvmem__s2_lock(s2);
        mfn = drain_pool(s2);
        hvmem__s2_unlock(s2, state);
        if (mfn != HVMEM__NO_MFN)
            free_table(s2, mfn, 0);
    } while (mfn != HVMEM__NO_MFN);
    hvmem__space_drop_tables(s2->mapping.space);
    free_table(s2, s2->root, s2->root_order);
    return HVMEM_OK;
}

/* Whether a CPU pays for a first touch just now: scrubs a frame that must not be freed under its hands. */
static int touching(struct hvmem_stage2 *s2)
{
    hvmem_u64 state = hvmem__s2_lock(s2);
    hvmem_u32 i, running = 0;

    for (i = 0; i < HVMEM__S2_TOUCHES; i++)
        running |= s2->touch[i].running;
    hvmem__s2_unlock(s2, state);
    return running != 0;
}

/* One slice. phase 0: root entries, 1: flush, 2: tables, 3: the rest. */
static hvmem_status tear(struct hvmem_stage2 *s2, struct hvmem__s2_open *open)
{
    hvmem_mfn freed[FREE_TABLES];
    hvmem_status status;
    hvmem_u32 n = 0, i;
    hvmem_u64 state;

    if (open->phase == 0) {
        state = hvmem__s2_lock(s2);
        s2->arming = 1;
        open->phase = hvmem__s2_clear_root(s2, open) ? 1 : 0;
        hvmem__s2_unlock(s2, state);
        return HVMEM_AGAIN;
    }
    if (open->phase == 1) {
        /* None begins any more: the state says DYING. */
        if (touching(s2))
            return HVMEM_AGAIN;
        /* A space that was destroyed has been flushed by that, and cannot be loaded again. */
        status = HVMEM_E_SPACE;
        if (hvmem__load(&s2->mapping.space->state) != HVMEM__SPACE_DEAD)
            status = hvmem_shootdown(&s2->mapping, HVMEM_NULL, 0, HVMEM_SHOOT_TABLES);
        if (status && status != HVMEM_E_SPACE)
            return status;
        open->at = 0;
        open->phase = 2;
        return HVMEM_AGAIN;
    }
    if (open->phase == 2) {
        state = hvmem__s2_lock(s2);
        if (unhook(s2, open, freed, &n))
            open->phase = 3;
        s2->used -= n;
        s2->held -= n;
        hvmem__s2_unlock(s2, state);
        for (i = 0; i < n; i++)
            free_table(s2, freed[i], 0);
        return HVMEM_AGAIN;
    }
    return finish(s2);
}

hvmem_status hvmem_stage2_teardown(struct hvmem_stage2 *s2, struct hvmem_cursor *cursor)
{
    hvmem_status status;
    hvmem_u64 state;
    int fresh;

    if (!s2 || !cursor)
        return HVMEM_E_ARG;
    fresh = !cursor->words[0];
    state = hvmem__s2_lock(s2);
    if (s2->state == HVMEM__S2_GONE)
        status = HVMEM_E_PHASE;
    else if (hvmem__s2_shared(s2))
        status = HVMEM_E_BUSY;
    else
        status = hvmem__s2_enter(s2, &s2->teardown, 't', cursor);
    if (!status) {
        hvmem__store(&s2->state, HVMEM__S2_DYING);
        /* A new cursor takes over where an abandoned one stopped. */
        if (fresh && s2->teardown.phase)
            s2->teardown.phase = 1;
    }
    hvmem__s2_unlock(s2, state);
    if (status)
        return hvmem__s2_refuse(s2, status, 0);
    status = tear(s2, &s2->teardown);
    state = hvmem__s2_lock(s2);
    hvmem__s2_leave(&s2->teardown, status, cursor);
    hvmem__s2_unlock(s2, state);
    return status == HVMEM_AGAIN ? status : status ? hvmem__s2_refuse(s2, status, 0) : HVMEM_OK;
}
