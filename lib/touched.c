/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * touched.c: paying an allocated block's contents part by part. Which parts are paid stands in the dirt of
 * its buddy nodes, as in free blocks: it changes under the arena's lock together with the record.
 */
#include "touched.h"

#include "cache.h"
#include "dirt.h"
#include "free.h"
#include "pcpu.h"
#include "sets.h"
#include "walk.h"

/* ---- who pays --------------------------------------------------------------------------------- */

#define FRAMES_BITS 10u
HVMEM_STATIC_ASSERT(((hvmem_u64)1 << HVMEM__HOLD_ORDER) < (hvmem_u64)1 << FRAMES_BITS,
                    chunk_fits_its_range);

static struct hvmem__holds *line_of(struct hvmem_heap *heap, hvmem_mfn mfn)
{
    return &heap->holds[(mfn >> HVMEM__HOLD_ORDER) % HVMEM__HOLD_LINES];
}

/* Of [mfn, *end) what nobody holds, from mfn on; 0: nothing. The line's lock held. */
static int free_part(const struct hvmem__holds *line, hvmem_mfn mfn, hvmem_mfn *end)
{
    hvmem_u32 i;

    for (i = 0; i < line->count; i++) {
        hvmem_mfn first = line->range[i] >> FRAMES_BITS;
        hvmem_mfn behind = first + (line->range[i] & (((hvmem_u64)1 << FRAMES_BITS) - 1));

        if (behind <= mfn || first >= *end)
            continue;
        if (first <= mfn)
            return 0;
        *end = first;
    }
    return line->count < HVMEM__HOLDS;
}

int hvmem__touch_hold(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames)
{
    struct hvmem__holds *line = line_of(heap, mfn);
    hvmem_mfn end = (mfn | (((hvmem_mfn)1 << HVMEM__HOLD_ORDER) - 1)) + 1;
    hvmem_u64 state;
    int ours;

    if (*frames < end - mfn)
        end = mfn + *frames;
    state = hvmem__lock(&heap->host, &line->lock, HVMEM__RANK_LEAF);
    ours = free_part(line, mfn, &end);
    if (ours) {
        *frames = end - mfn;
        hvmem__store(&line->range[line->count], mfn << FRAMES_BITS | *frames);
        line->count++;
    }
    hvmem__unlock(&heap->host, &line->lock, HVMEM__RANK_LEAF, state);
    return ours;
}

void hvmem__touch_release(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames)
{
    struct hvmem__holds *line = line_of(heap, mfn);
    hvmem_u64 state = hvmem__lock(&heap->host, &line->lock, HVMEM__RANK_LEAF);
    hvmem_u32 i = 0;

    while (i < line->count && line->range[i] != (mfn << FRAMES_BITS | frames))
        i++;
    HVMEM__ASSERT2(&heap->host, i < line->count);
    line->count--;
    hvmem__store(&line->range[i], line->range[line->count]);
    hvmem__unlock(&heap->host, &line->lock, HVMEM__RANK_LEAF, state);
}

/* ---- what is owed ----------------------------------------------------------------------------- */

/* The block outside the free sets that holds a frame. */
struct holder {
    struct hvmem__bank *bank;
    hvmem_mfn head;
    hvmem__record record;
};

/* Whether a bank that was found without the lock is the arena's still, and holds mfn. Arena lock held. */
static int is_in(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                 const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return b->live && hvmem__arena_of(heap, b) == arena && hvmem__bank_holds(b, mfn);
}

/* Arena lock held. 0: none. */
static int find(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                hvmem_mfn mfn, struct holder *h)
{
    if (!is_in(heap, arena, b, mfn) || !hvmem__arena_block(heap, arena, b, mfn, &h->head, &h->bank))
        return 0;
    h->record = hvmem__load(hvmem__record_at(h->bank, h->head));
    switch (hvmem__state_error(hvmem__rec_state(h->record))) {
    case HVMEM_OK:
    case HVMEM_E_RESERVED:
        return 1;
    default:
        return 0;
    }
}

/* Debts of the part of a block around mfn, which ends at *end; free ones owe nothing here. Arena lock held. */
static hvmem_u32 debts_around(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem_mfn *end)
{
    hvmem__record part;
    struct holder h;
    hvmem_u32 order;

    *end = mfn + 1;
    if (find(heap, arena, b, mfn, &h)) {
        part = hvmem__dirt_part(heap, h.bank, &h.head, h.record, mfn);
        *end = h.head + ((hvmem_u64)1 << hvmem__rec_order(part));
        return hvmem__rec_owed(part) | hvmem__owed_as_whole(heap, part);
    }
    if (is_in(heap, arena, b, mfn) && hvmem__arena_find(heap, arena, b, mfn, &h.head, &order))
        *end = h.head + ((hvmem_u64)1 << order);
    return 0;
}

hvmem_u32 hvmem__touch_debts(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 *frames)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);
    struct hvmem__arena *arena;
    hvmem_mfn end = mfn + 1;
    hvmem_u32 owed = 0;
    hvmem_u64 state;

    if (b) {
        arena = hvmem__arena_of(heap, b);
        state = hvmem__lock_arena(heap, arena);
        owed = debts_around(heap, arena, b, mfn, &end);
        hvmem__unlock_arena(heap, arena, state);
    } else if (!hvmem__bank_from(heap, mfn, &end)) {
        return 0;
    }
    if (end == mfn) /* in a bank that came meanwhile */
        end++;
    if (end - mfn < *frames)
        *frames = end - mfn;
    return owed;
}

/* ---- what is paid ----------------------------------------------------------------------------- */

struct paid {
    struct hvmem_heap *heap;
    struct hvmem__arena *arena;
    hvmem_mfn lo, hi;
    hvmem_u32 what; /* HVMEM_OWES_SCRUB, _DCACHE */
};

/* Dirt of a MIXED node whose halves have these marks now. Arena lock held. */
static hvmem__record join(struct hvmem__bank *b, hvmem__record *node, hvmem__record left,
                          hvmem__record right)
{
    if (left == right && left != HVMEM__MARK_MIXED)
        return left;
    hvmem__table_changes(b->table);
    hvmem__store(node, hvmem__node_make(left, right));
    return HVMEM__MARK_MIXED;
}

/*
 * [lo, hi) of the block or half at mfn becomes clean: its mark after that, given the one before. Recursion
 * depth <= max_order, about 2 * max_order calls. Arena lock held.
 */
static hvmem__record clean(const struct paid *p, struct hvmem__bank *b, hvmem_mfn mfn,
                           hvmem_u32 order, hvmem__record mark)
{
    hvmem_mfn end = mfn + ((hvmem_u64)1 << order), middle;
    hvmem__record left, right;
    hvmem__record *node;

    if (!mark || end <= p->lo || mfn >= p->hi)
        return mark;
    if (mfn >= p->lo && end <= p->hi)
        return 0;
    middle = mfn + ((hvmem_u64)1 << (order - 1));
    b = hvmem__arena_bank(p->heap, p->arena, b, middle);
    node = hvmem__record_at(b, middle);
    hvmem__split_marks(mark, node, &left, &right);
    left = clean(p, b, mfn, order - 1, left);
    return join(b, node, left, clean(p, b, middle, order - 1, right));
}

/*
 * The same of a whole block, with steps in place of calls down to where [lo, hi) lies in both halves or is all:
 * blocks are large, and what is paid for at a time is small.
 */
static hvmem__record clean_block(const struct paid *p, struct hvmem__bank *b, hvmem_mfn mfn,
                                 hvmem_u32 order, hvmem__record mark)
{
    struct {
        struct hvmem__bank *bank;
        hvmem__record *node, left, right, *half; /* of them the one gone into */
    } path[HVMEM_ORDER_LIMIT];
    hvmem_u64 half = ((hvmem_u64)1 << order) >> 1;
    const hvmem__record whole = mark;
    hvmem_u32 depth = 0;

    for (; mark && half && p->hi - p->lo <= half; half >>= 1, depth++) {
        hvmem_mfn middle = mfn + half;
        int is_left = p->hi <= middle;

        if (!is_left && p->lo < middle)
            break;
        path[depth].bank = b = hvmem__arena_bank(p->heap, p->arena, b, middle);
        path[depth].node = hvmem__record_at(b, middle);
        hvmem__split_marks(mark, path[depth].node, &path[depth].left, &path[depth].right);
        path[depth].half = is_left ? &path[depth].left : &path[depth].right;
        mark = *path[depth].half;
        mfn = is_left ? mfn : middle;
    }
    mark = clean(p, b, mfn, order - depth, mark);
    while (depth-- > 0) {
        if (*path[depth].half == mark) /* nor does anything change above */
            return whole;
        *path[depth].half = mark;
        mark = join(path[depth].bank, path[depth].node, path[depth].left, path[depth].right);
    }
    return mark;
}

/* The record when [lo, hi) is paid. Arena lock held. */
static hvmem__record with_paid(const struct paid *p, const struct holder *h)
{
    hvmem_u32 order = hvmem__rec_order(h->record);
    hvmem__record to = h->record, mark = hvmem__mark_of(hvmem__rec_dirt(to));

    if (mark && p->what & HVMEM_OWES_SCRUB) {
        mark = clean_block(p, h->bank, h->head, order, mark);
        to = hvmem__rec_with_dirt(to, hvmem__mark_dirt(mark));
    }
    /* (Of an untouched one it leaves with the dirt.) */
    if (p->what & HVMEM_OWES_DCACHE && !hvmem__rec_untouched(to) && p->lo <= h->head &&
        p->hi >= h->head + ((hvmem_u64)1 << order))
        to = hvmem__rec_with_owed(to, hvmem__rec_owed(to) & ~HVMEM_OWES_DCACHE);
    return to;
}

/*
 * One try. HVMEM_AGAIN: the record changed meanwhile. What was written to the nodes stays and is true.
 * E_RESERVED: *h is biased to a CPU, whose it must not be.
 */
static hvmem_status record_paid(const struct paid *p, struct hvmem__bank *b, struct holder *h,
                                hvmem__record *to)
{
    hvmem_status status = HVMEM_OK;
    hvmem_u64 state = hvmem__lock_arena(p->heap, p->arena);
    hvmem_u32 token;

    *to = 0;
    if (find(p->heap, p->arena, b, p->lo, h) &&
        (hvmem__rec_owed(h->record) & (HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE))) {
        token = hvmem__rec_bias(h->record);
        if (token && token < HVMEM__TOKENS) {
            status = HVMEM_E_RESERVED;
        } else {
            hvmem__table_changes(h->bank->table);
            *to = with_paid(p, h);
            if (!hvmem__frame_claim(&p->heap->host, hvmem__record_at(h->bank, h->head), h->record,
                                    *to))
                status = HVMEM_AGAIN;
        }
    }
    hvmem__unlock_arena(p->heap, p->arena, state);
    return status;
}

hvmem_status hvmem__touch_paid(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                               hvmem_u32 paid)
{
    struct hvmem__bank *b = hvmem__bank_of(heap, mfn);
    struct paid p = {heap, HVMEM_NULL, mfn, mfn + frames, paid};
    hvmem_status status;
    struct holder h;
    hvmem__record to;
    hvmem_u32 tries;

    if (!b)
        return HVMEM_OK;
    p.arena = hvmem__arena_of(heap, b);
    for (tries = 0; tries < HVMEM__SEIZE_TRIES; tries++) {
        status = record_paid(&p, b, &h, &to);
        if (!status && to)
            hvmem__domain_changed(hvmem__domain_of(heap, hvmem__rec_owner(to)), h.record, to);
        if (!status)
            return HVMEM_OK;
        if (status == HVMEM_E_RESERVED)
            status =
                hvmem__seize(heap, h.bank, h.head, h.record, hvmem__rec_with_bias(h.record, 0));
        if (status == HVMEM_E_HOST)
            return status;
    }
    return HVMEM_E_BUSY;
}
