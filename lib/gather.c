/* SPDX-License-Identifier: BSD-2-Clause */
/* gather.c: unhook, invalidate, free. */
#include "gather.h"

#include "bank.h"
#include "gathered.h"
#include "settle.h"
#include "shootdown.h"

/* hvmem_gather.self, mixed with the address: a gather that is open, and one that is over. */
#define SELF_OPEN   0x6f70656eu
#define SELF_CLOSED 0x646f6e65u

/* hvmem_gather.phase. */
#define PHASE_OPEN    0u
#define PHASE_FREEING 1u /* invalidated; frames are being given back */

HVMEM_STATIC_ASSERT(sizeof(struct hvmem_gather) <= 1024, gather_fits_a_stack);

/* The two kinds of lists (hvmem_gather.first). */
#define LIST_FRAMES 0u
#define LIST_TABLES 1u

static int is_open(const struct hvmem_gather *gather)
{
    return gather->self == ((hvmem_uptr)gather ^ SELF_OPEN);
}

/* A mistake of the caller, with a gather that is open. */
static hvmem_status refuse(const struct hvmem_gather *gather, hvmem_status code, hvmem_mfn mfn)
{
    return hvmem__refuse(gather->mapping->heap, code, mfn, HVMEM_ORDER_ANY, gather->start);
}

/* What was told makes no sense: flush everything, so that nothing is missed. */
static hvmem_status refuse_wide(struct hvmem_gather *gather, hvmem_status code, hvmem_u64 addr)
{
    gather->flags |= HVMEM__GATHER_ALL | HVMEM__GATHER_TABLES;
    return hvmem__refuse(gather->mapping->heap, code, 0, HVMEM_ORDER_ANY, addr);
}

hvmem_status hvmem__gather_check(const struct hvmem_gather *gather)
{
    if (!gather)
        return HVMEM_E_ARG;
    if (!is_open(gather))
        return HVMEM_E_STALE;
    return gather->phase == PHASE_OPEN ? HVMEM_OK : refuse(gather, HVMEM_E_PHASE, 0);
}

static hvmem_u32 page_shift(const struct hvmem_gather *gather)
{
    return gather->mapping->heap->backend->caps.page_shift;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static hvmem_status check_begin(const struct hvmem_mapping *mapping, hvmem_u32 flags,
                                hvmem_u64 start, hvmem_u64 bytes)
{
    if (flags & ~(HVMEM_GATHER_WHOLE | HVMEM_GATHER_PREEMPTIBLE))
        return HVMEM_E_ARG;
    if (hvmem__load(&mapping->space->state) == HVMEM__SPACE_DEAD)
        return HVMEM_E_SPACE;
    if (flags & HVMEM_GATHER_WHOLE)
        return start || bytes ? HVMEM_E_ARG : HVMEM_OK;
    return !bytes || bytes - 1 > ~(hvmem_u64)0 - start ? HVMEM_E_RANGE : HVMEM_OK;
}

hvmem_status hvmem_gather_begin(struct hvmem_gather *gather, struct hvmem_mapping *mapping,
                                hvmem_u32 flags, hvmem_u64 start, hvmem_u64 bytes)
{
    hvmem_status status;
    hvmem_u64 turns, in_page;

    if (!gather || !hvmem__mapping_valid(mapping))
        return HVMEM_E_ARG;
    status = is_open(gather) ? HVMEM_E_PHASE : check_begin(mapping, flags, start, bytes);
    if (status)
        return hvmem__refuse(mapping->heap, status, 0, HVMEM_ORDER_ANY, start);
    turns = hvmem__mapping_add(mapping, &mapping->turns, HVMEM__TURN_BEGUN + 1);
    if ((turns & HVMEM__TURN_OPEN) >= HVMEM__TURN_LIMIT) {
        hvmem__mapping_add(mapping, &mapping->turns, (hvmem_u64)0 - 1);
        return hvmem__refuse(mapping->heap, HVMEM_E_COUNT, 0, HVMEM_ORDER_ANY, start);
    }
    memset(gather, 0, sizeof *gather);
    gather->mapping = mapping;
    gather->flags = flags;
    gather->phase = PHASE_OPEN;
    /* A turn that no later look can match if another gather is open already. */
    gather->turn = turns & HVMEM__TURN_OPEN ? ~(hvmem_u64)0 : turns / HVMEM__TURN_BEGUN + 1;
    in_page = ((hvmem_u64)1 << mapping->heap->backend->caps.page_shift) - 1;
    gather->start = start & ~in_page;
    gather->last = (flags & HVMEM_GATHER_WHOLE ? ~(hvmem_u64)0 : start + (bytes - 1)) | in_page;
    gather->self = (hvmem_uptr)gather ^ SELF_OPEN;
    return HVMEM_OK;
}

/* ---- entries -------------------------------------------------------------------------------- */

/* Flags an entry of this mapping may have. */
static hvmem_u32 known_flags(const struct hvmem_gather *gather)
{
    return HVMEM_ENTRY_EXEC |
           (gather->mapping->flags & HVMEM_MAPPING_GLOBALS ? HVMEM_ENTRY_GLOBAL : 0);
}

hvmem_status hvmem__gather_run(struct hvmem_gather *gather, hvmem_u64 addr, hvmem_u64 entries,
                               hvmem_u32 shift, hvmem_u32 level, hvmem_u32 flags)
{
    hvmem_status status = hvmem__gather_check(gather);
    struct hvmem_gather_range piece;

    if (status)
        return status;
    if ((flags & ~known_flags(gather)) || (level > 3 && level != HVMEM_LEVEL_UNKNOWN))
        return refuse_wide(gather, HVMEM_E_ARG, addr);
    if (shift < page_shift(gather) || shift > 63)
        return refuse_wide(gather, HVMEM_E_ORDER, addr);
    if (addr & (((hvmem_u64)1 << shift) - 1))
        return refuse_wide(gather, HVMEM_E_ALIGN, addr);
    piece.start = addr;
    piece.last = addr + ((entries << shift) - 1);
    piece.stride = (hvmem_u8)shift;
    piece.level = (hvmem_u8)level;
    piece.flags = HVMEM_RANGE_LEAF;
    piece.reserved = 0;
    if (flags & HVMEM_ENTRY_EXEC)
        gather->flags |= HVMEM__GATHER_EXEC;
    if (flags & HVMEM_ENTRY_GLOBAL) {
        piece.flags |= HVMEM_RANGE_GLOBAL;
        gather->flags |= HVMEM__GATHER_GLOBAL;
    }
    hvmem__gather_add(gather, &piece);
    return HVMEM_OK;
}

hvmem_status hvmem_gather_entry(struct hvmem_gather *gather, hvmem_u64 addr, hvmem_u32 shift,
                                hvmem_u32 level, hvmem_u32 flags)
{
    return hvmem__gather_run(gather, addr, 1, shift, level, flags);
}

/* Whether a change must be flushed: by what was there before. CPUs find rights that are gained, devices not. */
static int owes(const struct hvmem_gather *gather, const struct hvmem_pte *before,
                const struct hvmem_pte *after)
{
    if (before->kind == HVMEM_PTE_ABSENT)
        return 0; /* never cached */
    if (before->rights != after->rights && hvmem__load(&gather->mapping->notifiers))
        return 1;
    return before->kind != after->kind || before->mfn != after->mfn ||
           before->attributes != after->attributes || (before->rights & ~after->rights);
}

/* Everything below an entry that was a table: pages, and walks that ended in it. */
static void add_subtree(struct hvmem_gather *gather, hvmem_u64 start, hvmem_u64 last,
                        hvmem_u32 stride)
{
    struct hvmem_gather_range piece;

    piece.start = start;
    piece.last = last;
    piece.stride = (hvmem_u8)stride;
    piece.level = HVMEM_LEVEL_UNKNOWN;
    piece.flags = 0;
    piece.reserved = 0;
    gather->flags |= HVMEM__GATHER_TABLES;
    hvmem__gather_add(gather, &piece);
}

hvmem_status hvmem_gather_change(struct hvmem_gather *gather, hvmem_u64 addr, hvmem_u32 shift,
                                 hvmem_u32 level, const struct hvmem_pte *before,
                                 const struct hvmem_pte *after, hvmem_u32 flags, hvmem_u32 *told)
{
    hvmem_status status = hvmem__gather_check(gather);

    if (told)
        *told = 1;
    if (status)
        return status;
    if (!before || !after || before->kind > HVMEM_PTE_TABLE || after->kind > HVMEM_PTE_TABLE ||
        (flags & ~HVMEM_ENTRY_GLOBAL))
        return refuse_wide(gather, HVMEM_E_ARG, addr);
    if (!owes(gather, before, after)) {
        if (told)
            *told = 0;
        return HVMEM_OK;
    }
    if (before->rights & HVMEM_PTE_EXEC)
        flags |= HVMEM_ENTRY_EXEC;
    status = hvmem_gather_entry(gather, addr, shift, level, flags);
    if (!status && before->kind == HVMEM_PTE_TABLE)
        add_subtree(gather, addr, addr + (((hvmem_u64)1 << shift) - 1), page_shift(gather));
    return status;
}

/* ---- invalidating --------------------------------------------------------------------------- */

/* Whether another gather was open on the mapping at any time since this one began. */
static int was_alone(const struct hvmem_gather *gather)
{
    struct hvmem_mapping *mapping = gather->mapping;

    if (mapping->heap->host.smp)
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return hvmem__load(&mapping->turns) / HVMEM__TURN_BEGUN == gather->turn;
}

/* All that was requested: another gather may have removed it, and its tables, and not flushed yet. */
static void add_request(struct hvmem_gather *gather)
{
    hvmem__mapping_note(gather->mapping, &gather->mapping->stats.contended, 1);
    add_subtree(gather, gather->start, gather->last, page_shift(gather));
    if (gather->mapping->flags & HVMEM_MAPPING_GLOBALS)
        gather->flags |= HVMEM__GATHER_GLOBAL;
}

/* Invalidate what was told so far, or all that was requested. */
static void invalidate(struct hvmem_gather *gather)
{
    struct hvmem_tlb_range ranges[HVMEM_GATHER_RANGES];
    struct hvmem_mapping *mapping = gather->mapping;
    hvmem_u32 shoot = 0, count;

    gather->settled = HVMEM_OK;
    if (!was_alone(gather))
        add_request(gather);
    if (!gather->ranges && !(gather->flags & HVMEM__GATHER_ALL) &&
        !hvmem__mapping_failed(mapping)) {
        hvmem__mapping_note(mapping, &mapping->stats.unneeded, 1);
        return;
    }
    hvmem__gather_export(gather, page_shift(gather), ranges);
    count = gather->flags & (HVMEM__GATHER_ALL | HVMEM_GATHER_WHOLE) ? 0 : gather->ranges;
    if (gather->flags & HVMEM__GATHER_TABLES)
        shoot |= HVMEM_SHOOT_TABLES;
    if ((gather->flags & HVMEM__GATHER_GLOBAL) ||
        (!count && (mapping->flags & HVMEM_MAPPING_GLOBALS)))
        shoot |= HVMEM__SHOOT_GLOBAL;
    gather->settled = hvmem__shoot(mapping, ranges, count, shoot);
    if (gather->settled && !gather->failed)
        gather->failed = gather->settled;
    gather->ranges = 0;
    gather->flags &= ~(HVMEM__GATHER_ALL | HVMEM__GATHER_TABLES | HVMEM__GATHER_GLOBAL);
}

/* ---- freeing -------------------------------------------------------------------------------- */

/* The first block of a list: out of the gather, to where it belongs. */
static void release(struct hvmem_gather *gather, hvmem_u32 list, hvmem_mfn mfn)
{
    struct hvmem_mapping *mapping = gather->mapping;
    struct hvmem_heap *heap = mapping->heap;

    if (gather->settled) {
        hvmem_u32 owed = list == LIST_TABLES ? hvmem__owed_by_table(heap) : 0;
        hvmem_u64 frames =
            hvmem__gathered_quarantine(heap, mfn, owed | HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN);

        hvmem__mapping_note(mapping, &mapping->stats.quarantined, frames);
        if (list == LIST_TABLES && mapping->table_free)
            mapping->table_free(mapping->ctx, mfn, gather->settled);
    } else if (list == LIST_TABLES && mapping->table_free) {
        hvmem__gathered_restore(heap, mfn,
                                mapping->flags & HVMEM__MAPPING_STAGE2 ? HVMEM__BIAS_TABLE : 0);
        mapping->table_free(mapping->ctx, mfn, HVMEM_OK);
    } else {
        hvmem__gathered_free(heap, mfn);
    }
}

/* Table pages that are not the heap's. At most HVMEM_GATHER_TABLES. */
static void release_tables(struct hvmem_gather *gather)
{
    struct hvmem_mapping *mapping = gather->mapping;

    while (gather->tables)
        mapping->table_free(mapping->ctx, gather->table[--gather->tables], gather->settled);
}

/* Release up to *budget blocks. Returns whether nothing is left. */
static int release_some(struct hvmem_gather *gather, hvmem_u32 list, hvmem_u64 *budget)
{
    struct hvmem_heap *heap = gather->mapping->heap;

    while (gather->windows[list]) {
        hvmem_mfn *first = &gather->first[list][gather->windows[list] - 1], mfn;

        for (; *first != HVMEM__NO_MFN; --*budget) {
            if (!*budget)
                return 0;
            mfn = *first;
            *first = hvmem__gathered_next(heap, mfn);
            release(gather, list, mfn);
        }
        gather->windows[list]--;
    }
    return 1;
}

/* Everything that was invalidated, or a slice. Tables first: walkers' memory is the scarcer. */
static int release_all(struct hvmem_gather *gather, hvmem_u64 budget)
{
    release_tables(gather);
    return release_some(gather, LIST_TABLES, &budget) && release_some(gather, LIST_FRAMES, &budget);
}

void hvmem__gather_settle(struct hvmem_gather *gather)
{
    hvmem__mapping_note(gather->mapping, &gather->mapping->stats.early, 1);
    invalidate(gather);
    (void)release_all(gather, ~(hvmem_u64)0);
}

/* ---- taking --------------------------------------------------------------------------------- */

/* The window of a frame among those in use, or the first that is not. */
static hvmem_u32 window_of(const struct hvmem_gather *gather, hvmem_u32 list, hvmem_mfn mfn)
{
    hvmem_u32 i;

    for (i = 0; i < gather->windows[list]; i++)
        if (gather->first[list][i] >> HVMEM__LINK_BITS == mfn >> HVMEM__LINK_BITS)
            break;
    return i;
}

int hvmem__gather_has_room(const struct hvmem_gather *gather, const hvmem_mfn *tables,
                           hvmem_u32 count)
{
    hvmem_u32 used = gather->windows[LIST_TABLES], fresh = 0, i;

    for (i = 0; i < count; i++)
        fresh += window_of(gather, LIST_TABLES, tables[i]) == used;
    return used + fresh <= HVMEM_GATHER_WINDOWS;
}

/* The list that a frame belongs to: one of this gather's, or a new one. Settles early if need be. */
static hvmem_mfn *list_for(struct hvmem_gather *gather, hvmem_u32 list, hvmem_mfn mfn)
{
    hvmem_u32 i = window_of(gather, list, mfn);

    if (i < gather->windows[list])
        return &gather->first[list][i];
    if (i == HVMEM_GATHER_WINDOWS) {
        hvmem__gather_settle(gather);
        i = 0;
    }
    gather->first[list][i] = HVMEM__NO_MFN;
    return &gather->first[list][i];
}

/* A block of the heap goes into one of the lists. */
static hvmem_status take(struct hvmem_gather *gather, hvmem_u32 list, hvmem_mfn mfn,
                         hvmem_order order, const struct hvmem__leaver *leaver)
{
    struct hvmem_heap *heap = gather->mapping->heap;
    hvmem_mfn *first = list_for(gather, list, mfn);
    hvmem_u32 at = (hvmem_u32)(first - gather->first[list]);
    hvmem_status status;

    if (!gather->counted) {
        hvmem__count(heap, &heap->gathers, 1);
        gather->counted = 1;
    }
    status = hvmem__gathered_take(heap, mfn, order, leaver, first);
    if (!status && at == gather->windows[list])
        gather->windows[list]++;
    return status;
}

hvmem_status hvmem_gather_free(struct hvmem_gather *gather, hvmem_mfn mfn, hvmem_order order,
                               struct hvmem_domain *domain, hvmem_u32 owed)
{
    hvmem_status status = hvmem__gather_check(gather);
    struct hvmem__leaver leaver;

    if (status)
        return status;
    if (owed & ~HVMEM_OWES_ANY)
        return refuse(gather, HVMEM_E_ARG, mfn);
    leaver.domain = domain;
    leaver.anybody = leaver.held = leaver.table = 0;
    leaver.owed = owed & ~HVMEM_OWES_TLB;
    leaver.owed_by_owner = hvmem__gather_owed(gather);
    status = take(gather, LIST_FRAMES, mfn, order, &leaver);
    return status ? refuse(gather, status, mfn) : HVMEM_OK;
}

/*
 * What a table of this level translates, addr in it. A page holds 2^(page_shift - 3) entries. If its
 * entries were told only the walks through it are left.
 */
static void add_table(struct hvmem_gather *gather, hvmem_u64 addr, hvmem_u32 level, hvmem_u32 flags)
{
    hvmem_u32 page = page_shift(gather), span = page + (page - 3) * (4 - level);
    hvmem_u64 in_span = span > 63 ? ~(hvmem_u64)0 : ((hvmem_u64)1 << span) - 1;
    struct hvmem_gather_range piece;

    if (!(flags & HVMEM_TABLE_TOLD)) {
        add_subtree(gather, addr & ~in_span, addr | in_span, page);
        return;
    }
    piece.start = addr & ~(((hvmem_u64)1 << page) - 1);
    piece.last = addr | (((hvmem_u64)1 << page) - 1);
    piece.stride = (hvmem_u8)page;
    piece.level = HVMEM_LEVEL_UNKNOWN;
    piece.flags = 0;
    piece.reserved = 0;
    gather->flags |= HVMEM__GATHER_TABLES;
    hvmem__gather_add_walks(gather, addr & ~in_span, addr | in_span, &piece);
}

hvmem_status hvmem__gather_table(struct hvmem_gather *gather, hvmem_mfn mfn, hvmem_u64 addr,
                                 hvmem_u32 level, hvmem_u32 flags, int own)
{
    hvmem_status status = hvmem__gather_check(gather);
    struct hvmem_mapping *mapping;
    struct hvmem__leaver leaver;

    if (status)
        return status;
    mapping = gather->mapping;
    if (level > 3 || (flags & ~HVMEM_TABLE_TOLD))
        return refuse_wide(gather, HVMEM_E_ARG, addr);
    add_table(gather, addr, level, flags);
    if (mapping->table_free && !hvmem__bank_of(mapping->heap, mfn)) {
        if (gather->tables == HVMEM_GATHER_TABLES) {
            hvmem__gather_settle(gather);
            add_table(gather, addr, level, flags);
        }
        gather->table[gather->tables++] = mfn;
        return HVMEM_OK;
    }
    memset(&leaver, 0, sizeof leaver);
    leaver.anybody = 1;
    leaver.table = own;
    if (!mapping->table_free) { /* freed here */
        leaver.owed = hvmem__owed_by_table(mapping->heap);
        leaver.owed_by_owner = hvmem__gather_owed(gather);
    }
    status = take(gather, LIST_TABLES, mfn, 0, &leaver);
    if (!status)
        add_table(gather, addr, level, flags); /* once more: it may have settled early */
    return status ? refuse(gather, status, mfn) : HVMEM_OK;
}

hvmem_status hvmem_gather_table(struct hvmem_gather *gather, hvmem_mfn mfn, hvmem_u64 addr,
                                hvmem_u32 level, hvmem_u32 flags)
{
    return hvmem__gather_table(gather, mfn, addr, level, flags, 0);
}

/* ---- the end -------------------------------------------------------------------------------- */

static hvmem_status end(struct hvmem_gather *gather)
{
    struct hvmem_mapping *mapping = gather->mapping;
    struct hvmem_heap *heap = mapping->heap;
    int slices = !!(gather->flags & HVMEM_GATHER_PREEMPTIBLE);

    if (gather->phase == PHASE_OPEN) {
        invalidate(gather);
        hvmem__mapping_add(mapping, &mapping->freeing, 1);
        gather->phase = PHASE_FREEING;
        /* Complete: whoever begins from now on finds what this one removed absent and flushed. */
        hvmem__mapping_add(mapping, &mapping->turns, (hvmem_u64)0 - 1);
        if (gather->flags & HVMEM__GATHER_LENT)
            (void)hvmem__mapping_lend(mapping, (hvmem_u32)0 - 1);
    }
    if (!release_all(gather, slices ? HVMEM_GATHER_SLICE : ~(hvmem_u64)0))
        return HVMEM_AGAIN;
    if (gather->counted)
        hvmem__count(heap, &heap->gathers, (hvmem_u64)0 - 1);
    gather->self = (hvmem_uptr)gather ^ SELF_CLOSED;
    hvmem__mapping_add(mapping, &mapping->freeing, (hvmem_u64)0 - 1);
    if (gather->failed)
        return hvmem__refuse(heap, gather->failed, 0, HVMEM_ORDER_ANY, gather->start);
    return HVMEM_OK;
}

hvmem_status hvmem_gather_finish(struct hvmem_gather *gather)
{
    if (!gather)
        return HVMEM_E_ARG;
    return is_open(gather) ? end(gather) : HVMEM_E_STALE;
}

hvmem_status hvmem_gather_cancel(struct hvmem_gather *gather)
{
    if (!gather)
        return HVMEM_E_ARG;
    if (!is_open(gather))
        return HVMEM_E_STALE;
    if (gather->phase == PHASE_OPEN)
        hvmem__mapping_note(gather->mapping, &gather->mapping->stats.cancelled, 1);
    return end(gather);
}
