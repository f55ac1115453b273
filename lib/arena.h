/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * arena.h: the free blocks of one arena: take, give, split and merge. Mechanism only: who may have
 * a block, and what becomes of its debts, is decided by the callers.
 *
 * INVARIANTS, under the arena's lock:
 *  - A free block of order k with first frame h is in the set of order k of the bank that holds h
 *    (sets.h). Blocks may reach into the next bank of the arena where two banks touch.
 *  - Maximal merging: of two free buddies below max_order one holds a frame that a call under way has given
 *    and will go on with (hvmem__merge_on()). When no call runs there are none.
 *  - free_frames of a bank equals its sets.
 *  - A block outside the free sets has its head bit set (or is on its way between two states in the
 *    hands of the CPU that holds the lock).
 * Every operation costs O(max_order) and writes one record a level.
 *
 * Every function here: the arena's lock is held (asserted in debug builds).
 */
#ifndef HVMEM_LIB_ARENA_H
#define HVMEM_LIB_ARENA_H

#include "bank.h"
#include "window.h"

/*
 * The bank that holds mfn among those of near's arena, or NULL. From `near` on by address: who goes
 * through an arena in one direction passes each bank once.
 */
HVMEM_INLINE struct hvmem__bank *hvmem__bank_near(struct hvmem__bank *near, hvmem_mfn mfn)
{
    while (near->base > mfn && near->before)
        near = near->before;
    while (near->next && near->next->base <= mfn)
        near = near->next;
    return hvmem__bank_holds(near, mfn) ? near : (struct hvmem__bank *)HVMEM_NULL;
}

/*
 * The same by the directory, in which a bank of the arena comes and goes under the arena's lock; `near`, of any
 * arena, and those beside it are tried first.
 */
struct hvmem__bank *hvmem__arena_bank_listed(struct hvmem_heap *heap,
                                             const struct hvmem__arena *arena, hvmem_mfn mfn);
struct hvmem__bank *hvmem__arena_bank_far(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                          struct hvmem__bank *near, hvmem_mfn mfn);

HVMEM_INLINE struct hvmem__bank *hvmem__arena_bank(struct hvmem_heap *heap,
                                                   const struct hvmem__arena *arena,
                                                   struct hvmem__bank *near, hvmem_mfn mfn)
{
    if (hvmem__likely(hvmem__bank_holds(near, mfn)))
        return near;
    return hvmem__arena_bank_far(heap, arena, near, mfn);
}

/*
 * Give a block back: merge it with its buddies and enter it. `record` carries its order and debts;
 * state, owner and bias are dropped. The head bit must be clear already, and b's mark gone
 * (hvmem__table_changes()). Returns how long that took, in merges of blocks that owe nothing; at least
 * HVMEM__GIVE_CUT if the work of one hold is used up and the block is entered at the order that it has
 * reached: without the lock hvmem__give_on() must follow. A block whose buddy is in use is never cut.
 */
hvmem_u32 hvmem__arena_give(struct hvmem_heap *heap, struct hvmem__arena *arena,
                            struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record);

/* The same of a block that is counted already (hvmem__frames_come()). */
hvmem_u32 hvmem__arena_merge(struct hvmem_heap *heap, struct hvmem__arena *arena,
                             struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record);

/* What cut gives return, small amounts of other work added to it or not; the order reached. */
#define HVMEM__GIVE_CUT 0x10000u
HVMEM_INLINE hvmem_u32 hvmem__give_cut(hvmem_u32 order)
{
    return HVMEM__GIVE_CUT | order << 20;
}
HVMEM_INLINE hvmem_u32 hvmem__give_order(hvmem_u32 work)
{
    return work >> 20;
}

/* What a give that is cut at `order` returns; until it is gone on with no table is marked clean. */
HVMEM_INLINE hvmem_u32 hvmem__leave_unmerged(struct hvmem_heap *heap, hvmem_u32 order)
{
    hvmem__count(heap, &heap->unmerged, 1);
    return hvmem__give_cut(order);
}

/* A block given back that is still to be merged, if work is not 0. */
struct hvmem__unmerged {
    hvmem_mfn mfn;
    hvmem_u32 work;
};

/*
 * Go on merging the block that holds mfn, a frame of the last block given, `work` what that returned: hold by
 * hold until it is merged, or somebody else has it. No arena lock held.
 */
void hvmem__merge_on(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 work);

HVMEM_INLINE void hvmem__give_on(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 work)
{
    if (hvmem__unlikely(work >= HVMEM__GIVE_CUT))
        hvmem__merge_on(heap, mfn, work);
}

/*
 * The smallest free block of at least `order` in the window, the one in the first bank and of the lowest
 * address: HVMEM_OK with *spot, the block left where it is, or HVMEM_E_NOMEM. HVMEM_AGAIN: the work of
 * this hold is used up; call again under another one, with the same window. window NULL: anywhere, which is
 * never cut; then among blocks of one order one that owes no flush is preferred, if it is among the first
 * few.
 */
hvmem_status hvmem__arena_search(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                 struct hvmem__window *window, hvmem_u32 order,
                                 struct hvmem__spot *spot);

/*
 * Whether a search that found nothing went over all of the arena, whose sets were as they are from its first
 * hold on: then there is no block of its order or above.
 */
HVMEM_INLINE int hvmem__arena_searched(const struct hvmem__arena *arena,
                                       const struct hvmem__window *w)
{
    return w && w->anywhere && w->place.links == arena->links && w->place.moves == arena->moves;
}

/* The same anywhere, in an arena of few banks, without that preference. */
hvmem_status hvmem__arena_first(const struct hvmem__arena *arena, hvmem_u32 order,
                                struct hvmem__spot *spot);

/*
 * Take the free block of order k at mfn, which owes nothing, as the block of `order`, lower than k, that it
 * begins with: 0, with nothing changed, if one hold of the lock is too short for that split. The caller sets
 * the head bit and the record.
 */
int hvmem__arena_split_plain(struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 k, hvmem_u32 order);

/* Whether the arena has a free block of at least this order. */
int hvmem__arena_has(const struct hvmem__arena *arena, hvmem_u32 order);

/*
 * The first block in the sets of `orders` of bank b that begins in [from, *end), and its order, or NO_MFN; *end
 * is how far was looked: one hold has time for that, and perhaps not for all of a large bank.
 */
hvmem_mfn hvmem__bank_next(const struct hvmem__bank *b, hvmem_mfn from, hvmem_u32 orders,
                           hvmem_u32 *order, hvmem_mfn *end);

/* The free block that holds mfn: its head and order; 0 if mfn is not free. */
int hvmem__arena_find(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                      hvmem_mfn mfn, hvmem_mfn *head, hvmem_u32 *order);

/*
 * Take the block [mfn, mfn + 2^order) out of the free block at head of head_order that holds it.
 * Returns its debts as a free record.
 */
hvmem__record hvmem__arena_carve(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                 struct hvmem__bank *b, hvmem_mfn head, hvmem_u32 head_order,
                                 hvmem_mfn mfn, hvmem_u32 order);

/*
 * How far the first hold of a split goes, at least by one order: to which order the free block at mfn, whose
 * record says its order, is split for the one of `order` that holds target.
 */
hvmem_u32 hvmem__split_stop(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                            hvmem_mfn target, hvmem_u32 order);

/*
 * Split a block of bank b that is in nobody's sets, its head bit clear, down to the one of `order` that holds
 * target; what is left over becomes free. Returns the record of what remains, as a free block's.
 */
hvmem__record hvmem__arena_split(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record,
                                 hvmem_mfn target, hvmem_u32 order);

/* Records of the two halves of a block that is split: debts inherited, dirt told apart. */
void hvmem__split_record(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                         hvmem_mfn mfn, hvmem__record whole, hvmem__record *left,
                         hvmem__record *right);

/* Enter a block that is not free: set its head bit and record. For one that was just taken from b's sets: */
HVMEM_INLINE void hvmem__arena_mark_taken(struct hvmem__bank *b, hvmem_mfn mfn,
                                          hvmem__record record)
{
    hvmem__store_release(hvmem__record_at(b, mfn), record);
    hvmem__bits_set(&b->head, mfn - b->base);
}

/* For any: it may come from sets of another bank. */
HVMEM_INLINE void hvmem__arena_mark(struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record)
{
    hvmem__table_changes(b->table);
    hvmem__arena_mark_taken(b, mfn, record);
}

/* A block leaves those outside the sets: its head bit is cleared. */
HVMEM_INLINE void hvmem__arena_unmark(struct hvmem__bank *b, hvmem_mfn mfn)
{
    hvmem__table_changes(b->table);
    hvmem__bits_clear(&b->head, mfn - b->base);
}

/* The block outside the free sets that holds mfn: its head; 0 if there is none. */
int hvmem__arena_block(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                       hvmem_mfn mfn, hvmem_mfn *head, struct hvmem__bank **head_bank);

/* The node of this arena may now have free blocks of `order`: it is told, unless it knows. */
void hvmem__arena_tell(struct hvmem_heap *heap, const struct hvmem__arena *arena, hvmem_u32 order);
HVMEM_INLINE void hvmem__arena_offer(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                                     hvmem_u32 order)
{
    if (hvmem__unlikely(!(hvmem__load(&heap->node[arena->node].may[order]) >> arena->slot & 1)))
        hvmem__arena_tell(heap, arena, order);
}

/* The arena has no free block of this order or above: tell its node. */
void hvmem__arena_exhausted(struct hvmem_heap *heap, const struct hvmem__arena *arena,
                            hvmem_u32 order);

#endif
