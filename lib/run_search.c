/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run_search.c: runs of frames that are allocated: the front of a block, and a run over several free blocks,
 * when no single block can hold it. This is looked for and taken in steps, as many under one hold of the
 * arena's lock as its work allows (run_pieces.c); if a piece has gone to another meanwhile, the others go back.
 */
#include "run.h"

#include "clock.h"
#include "sets.h"
#include "testpoint.h"

/*
 * Work of one hold, in tens of instructions; of a look into a set and into one order of a look-up; of a
 * split by one order, whatever it meets; of a piece of the run.
 */
#define RUN_WORK   HVMEM__PER_HOLD(330u)
#define SET_WORK   8u
#define FIND_WORK  3u
#define FAR_WORK   6u /* the same where there are other banks */
#define SPLIT_WORK 9u
#define PIECE_WORK 15u
/* Times a run is looked for once more in a stretch of which another took a part. */
#define RETRIES 4u

/* What the next step is. */
enum step {
    SEEK, /* the next free block that a run can be part of */
    UP,   /* one more free block above it */
    DOWN, /* or below */
    CHECK,
    TAKE
};

struct seeker {
    struct hvmem_heap *heap;
    struct hvmem__want *want;
    hvmem_u64 count;
    hvmem_u32 align;
    hvmem_u32 least; /* order of the blocks that a run has at least one of */
    struct hvmem__bank *bank;
    struct hvmem__arena *arena;
    enum step step;
    hvmem_u32 retries;
    hvmem_mfn from;        /* where the next block is looked for */
    hvmem_mfn first, last; /* the block that was found */
    hvmem_mfn lo, hi;      /* the free stretch around it, as far as it is known */
    hvmem_mfn start, at;   /* the run, and the end of what was checked or taken of it */
    struct hvmem__hold hold;
};

/* ---- the front of a block ---------------------------------------------------------------------- */

/* A part of a block that has left the free sets is free again. It has no buddy to merge with. Arena lock held. */
static void enter(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                  hvmem_mfn mfn, hvmem__record record)
{
    const hvmem_u32 order = hvmem__rec_order(record), owed = hvmem__rec_owed(record);
    hvmem__record left = hvmem__rec_make(order, HVMEM_BLOCK_FREE, 0);

    b = hvmem__arena_bank(heap, arena, b, mfn);
    left = hvmem__rec_with_owed(left, owed & ~HVMEM_OWES_SCRUB);
    if (owed & HVMEM__OWES_FLUSH)
        left = hvmem__rec_with_stamp(left, hvmem__rec_stamp(record));
    hvmem__add_frames(b, (hvmem_u64)1 << order);
    hvmem__enter(b, mfn, order,
                 hvmem__rec_with_mark(left, hvmem__mark_of(hvmem__rec_dirt(record))));
    hvmem__arena_offer(heap, arena, order);
}

void hvmem__run_keep(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record, hvmem_u64 count)
{
    const hvmem_mfn end = mfn + count;
    hvmem_u64 size = (hvmem_u64)1 << hvmem__rec_order(record);
    hvmem__record left, right;

    /* Down to where the run ends: what is below is kept, what is above goes back. */
    while (mfn + size > end) {
        size >>= 1;
        hvmem__split_record(heap, arena, b, mfn, record, &left, &right);
        record = left;
        if (end <= mfn + size) {
            enter(heap, arena, b, mfn + size, right);
            continue;
        }
        hvmem__arena_mark(b, mfn, left);
        mfn += size;
        b = hvmem__arena_bank(heap, arena, b, mfn);
        record = right;
    }
    hvmem__arena_mark(b, mfn, record);
}

/* ---- steps -------------------------------------------------------------------------------------- */

/* The free block that holds mfn. Arena lock held. */
static int find(const struct seeker *s, hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order)
{
    return hvmem__arena_find(s->heap, s->arena, s->bank, mfn, head, order);
}

/* Work of the next step; taking a piece is more (take()). */
static hvmem_u32 step_work(const struct seeker *s)
{
    if (s->step == SEEK)
        return (1 + hvmem__weight(s->bank->orders >> s->least)) * SET_WORK;
    return (s->heap->max_order + 2) * (s->arena->banks > 1 ? FAR_WORK : FIND_WORK);
}

/* ---- looking ----------------------------------------------------------------------------------- */

/* The next block of order >= least. E_NOMEM at the end of the bank or of the window. Arena lock held. */
static hvmem_status seek(struct seeker *s)
{
    const struct hvmem__bank *b = s->bank;
    hvmem_mfn ceiling = s->want->window ? s->want->window->hi : HVMEM__NO_MFN, end;
    hvmem_u32 order = 0;

    if (ceiling > b->base + b->frames)
        ceiling = b->base + b->frames;
    s->first = hvmem__bank_next(b, s->from, b->orders >> s->least << s->least, &order, &end);
    if (s->first == HVMEM__NO_MFN && end < ceiling) {
        s->from = end;
        return HVMEM_AGAIN;
    }
    if (s->first >= ceiling)
        return HVMEM_E_NOMEM;
    s->last = s->from = s->first + ((hvmem_u64)1 << order);
    s->lo = s->first;
    s->hi = s->last;
    s->step = UP;
    return HVMEM_AGAIN;
}

/* The stretch is known, as far as it matters: where in it the run can be, if it can. */
static void place(struct seeker *s)
{
    const struct hvmem__window *window = s->want->window;
    hvmem_mfn lo = window && window->lo > s->lo ? window->lo : s->lo;
    hvmem_mfn hi = window && window->hi < s->hi ? window->hi : s->hi;

    s->at = s->start = hvmem__round_up(lo, (hvmem_u64)1 << s->align);
    s->step = SEEK;
    if (s->start < hi && hi - s->start >= s->count)
        s->step = window && window->avoid ? CHECK : TAKE;
}

/*
 * The stretch grows by a free neighbour, over `count` frames on each side at most: every run of free
 * frames that meets the block lies inside. Arena lock held.
 */
static void grow(struct seeker *s)
{
    hvmem_mfn head;
    hvmem_u32 order;

    if (s->step == UP) {
        if (s->hi - s->last < s->count && find(s, s->hi, &head, &order))
            s->hi = head + ((hvmem_u64)1 << order);
        else
            s->step = DOWN;
    } else if (s->first - s->lo < s->count && s->lo > 0 && find(s, s->lo - 1, &head, &order)) {
        s->lo = head;
    } else {
        place(s);
    }
}

/* Whether the window forbids the free block at head for the flush that it owes. Arena lock held. */
static int forbidden(const struct seeker *s, hvmem_mfn head)
{
    const struct hvmem__window *window = s->want->window;
    const struct hvmem__bank *b = hvmem__arena_bank(s->heap, s->arena, s->bank, head);

    return window && window->avoid &&
           hvmem__immature(s->heap, hvmem__load_acquire(hvmem__record_at(b, head)));
}

/* One more block of the run is looked at for what it owes. Arena lock held. */
static void check(struct seeker *s)
{
    hvmem_u32 order;
    hvmem_mfn head;

    if (!find(s, s->at, &head, &order) || forbidden(s, head)) {
        s->step = SEEK;
        return;
    }
    s->at = head + ((hvmem_u64)1 << order);
    if (s->at - s->start >= s->count) {
        s->at = s->start;
        s->step = TAKE;
    }
}

/* ---- taking ------------------------------------------------------------------------------------ */

/*
 * One more piece of the run. HVMEM_OK: it was the last. E_CLAIM; E_BUSY: another has it. HVMEM_AGAIN: go
 * on. Arena lock held.
 */
static hvmem_status take(struct seeker *s)
{
    hvmem_mfn end = s->start + s->count, head;
    hvmem_u32 order, size;
    hvmem_status status;

    if (!find(s, s->at, &head, &order) || forbidden(s, head))
        return HVMEM_E_BUSY;
    size = hvmem__fit(s->heap, s->at, end - s->at);
    if (size > order)
        size = order;
    if (!hvmem__hold_allows(&s->hold, (order - size) * SPLIT_WORK)) {
        s->hold.work = 0; /* under the next hold */
        return HVMEM_AGAIN;
    }
    status = hvmem__run_take_piece(s->heap, s->arena, s->bank, s->want, head, order, s->at, size);
    if (status)
        return status;
    hvmem__spend(&s->hold.work, PIECE_WORK + (order - size) * SPLIT_WORK);
    s->at += (hvmem_u64)1 << size;
    return s->at == end ? HVMEM_OK : HVMEM_AGAIN;
}

/* ---- a bank ------------------------------------------------------------------------------------ */

/* Steps under one hold of the lock. As take(), or E_NOMEM: there is no run in this bank. Arena lock held. */
static hvmem_status hold(struct seeker *s)
{
    hvmem_status status = HVMEM_AGAIN;

    hvmem__hold_begin(&s->hold, RUN_WORK);
    for (; status == HVMEM_AGAIN; s->hold.moved = 1) {
        const hvmem_u32 work = step_work(s);

        if (!hvmem__hold_allows(&s->hold, work))
            return HVMEM_AGAIN;
        hvmem__spend(&s->hold.work, work);
        if (s->step == SEEK)
            status = seek(s);
        else if (s->step == TAKE)
            status = take(s);
        else if (s->step == CHECK)
            check(s);
        else
            grow(s);
    }
    return status;
}

/* Another took a part of the run: it is looked for once more where it was, and then behind. */
static void start_over(struct seeker *s)
{
    s->step = SEEK;
    if (s->retries++ < RETRIES)
        s->from = s->first;
}

/* A run in the bank, if it is one of the node. E_NOMEM, E_CLAIM: nothing was taken. No lock held. */
static hvmem_status search_bank(struct seeker *s, hvmem_node node)
{
    hvmem_status status;

    do {
        hvmem_u64 state;

        status = HVMEM_E_NOMEM;
        s->arena = hvmem__bank_lock(s->heap, s->bank, &state);
        if (s->arena) {
            s->want->drawn_on = s->arena->node;
            if (s->bank->node == node)
                status = hold(s);
            hvmem__unlock_arena(s->heap, s->arena, state);
        }
        if (!status) {
            hvmem__run_keep_pieces(s->heap, s->want, s->start, s->at);
        } else if (status != HVMEM_AGAIN && s->step == TAKE) {
            hvmem__run_return_pieces(s->heap, s->want, s->start, s->at);
            s->at = s->start;
        }
        if (status == HVMEM_E_BUSY) {
            start_over(s);
            status = HVMEM_AGAIN;
        }
        (void)HVMEM_TEST_POINT("run_again");
    } while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status search_node(struct seeker *s, hvmem_node node)
{
    const struct hvmem__window *window = s->want->window;
    hvmem_u64 largest = (hvmem_u64)1 << s->heap->max_order;
    hvmem_status status = HVMEM_E_NOMEM;
    hvmem_u32 i;

    for (i = 0; i < s->heap->max_banks && status == HVMEM_E_NOMEM; i++) {
        s->bank = &s->heap->bank[i];
        if (!hvmem__load(&s->bank->live) || hvmem__load(&s->bank->node) != node)
            continue;
        s->step = SEEK;
        s->retries = 0;
        s->from = window && window->lo > largest ? window->lo - largest : 0;
        status = search_bank(s, node);
    }
    return status;
}

hvmem_status hvmem__run_search(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_u64 count,
                               hvmem_u32 align, hvmem_mfn *mfn)
{
    hvmem_u32 order = hvmem__order_for(count);
    hvmem_u64 nodes = want->node_mask;
    hvmem_status status = HVMEM_E_NOMEM, one;
    struct seeker s;

    memset(&s, 0, sizeof s);
    s.heap = heap;
    s.want = want;
    s.count = count;
    s.align = align;
    s.least = order > 2 ? order - 2 : 0;
    memset(&want->drawn, 0, sizeof want->drawn);
    while (nodes) {
        hvmem_node node = hvmem__nearest(heap, want->node, nodes);

        nodes &= ~((hvmem_u64)1 << node);
        one = search_node(&s, node);
        if (one == HVMEM_E_NOMEM)
            one = hvmem__run_across(heap, want, node, count, align, &s.start);
        if (!one) {
            *mfn = s.start;
            return HVMEM_OK;
        }
        if (one == HVMEM_E_CLAIM)
            status = one;
    }
    return status;
}
