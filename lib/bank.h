/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bank.h: banks: the directory that finds the bank of a frame, adding and removing. Their tables:
 * table.h.
 *
 * The directory is an array of bank numbers sorted by base, guarded by a sequence count: readers
 * retry if it was odd or changed. A bank that was found is used under its arena's lock if it is still
 * there then (hvmem__bank_lock()), or by an owner of one of its frames (whose bank cannot be removed), or until
 * the end of the section (pcpu.h) in which it was found: a bank that goes leaves directory and arena first, and
 * then waits for every section.
 */
#ifndef HVMEM_LIB_BANK_H
#define HVMEM_LIB_BANK_H

#include "heap.h"
#include "table.h"
#include "testpoint.h"

/*
 * The bank that holds a frame, or NULL. Any context. Cost O(log banks). Unless the caller owns a frame of it,
 * is inside a section or has the admin lock it may go at once, and its slot be another bank's: see
 * hvmem__bank_lock().
 */
struct hvmem__bank *hvmem__bank_of(struct hvmem_heap *heap, hvmem_mfn mfn);

/* Validate what a caller gave. */
hvmem_status hvmem__bank_check(struct hvmem_heap *heap, const struct hvmem_bank *bank);

/* Whether a checked bank can be added: overlap, table memory, free slots. Admin lock held. */
hvmem_status hvmem__bank_admit(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table,
                               hvmem_size bytes);

/* A slot for one piece of a bank that was admitted. Admin lock held. */
struct hvmem__bank *hvmem__bank_make(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                     hvmem_mfn base, hvmem_u64 frames);

/*
 * Enter laid-out pieces into the directory and their arenas; leave again, or E_BUSY: some frames are not
 * RESERVED. Whoever holds the lock of their arena sees both or neither. Admin lock held.
 */
void hvmem__bank_link(struct hvmem_heap *heap, struct hvmem__bank *b);
hvmem_status hvmem__bank_unlink(struct hvmem_heap *heap, struct hvmem__bank *b);

/* Take the clean mark off the table of a bank which may have gone, its slot another's. No lock held. */
void hvmem__bank_unmark(struct hvmem_heap *heap, struct hvmem__bank *b);

/* Frames [mfn, mfn + frames) as one block-aligned step: largest order at mfn that fits. */
HVMEM_INLINE hvmem_u32 hvmem__fit(const struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_u32 order = hvmem__highest(frames);

    if (mfn) {
        hvmem_u32 align = hvmem__lowest(mfn);

        if (align < order)
            order = align;
    }
    return order < heap->max_order ? order : heap->max_order;
}

HVMEM_INLINE hvmem__record *hvmem__record_at(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return &b->record[mfn - b->base];
}

/* The same for loops: where the bank's records would be if they began with frame 0's. */
HVMEM_INLINE hvmem_uptr hvmem__records_of(const struct hvmem__bank *b)
{
    return (hvmem_uptr)b->record - (hvmem_uptr)b->base * sizeof(hvmem__record);
}

HVMEM_INLINE hvmem__record *hvmem__record_in(hvmem_uptr records, hvmem_mfn mfn)
{
    return (hvmem__record *)(records + (hvmem_uptr)mfn * sizeof(hvmem__record));
}

HVMEM_INLINE int hvmem__bank_holds(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return mfn - b->base < b->frames;
}

HVMEM_INLINE int hvmem__is_head(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return hvmem__bits_test(&b->head, mfn - b->base);
}

/* The banks of an arena changed, or whether claims are counted in it. Its lock is held. */
HVMEM_INLINE void hvmem__arena_changed(struct hvmem__arena *arena)
{
    arena->links++;
    arena->plain = !arena->counted && arena->banks <= HVMEM__FEW_BANKS;
}

/* Whether a search of the arena counts the banks that it passes. */
HVMEM_INLINE int hvmem__arena_many(const struct hvmem__arena *arena)
{
    return hvmem__load(&arena->banks) > HVMEM__FEW_BANKS;
}

HVMEM_INLINE struct hvmem__arena *hvmem__arena_of(struct hvmem_heap *heap,
                                                  const struct hvmem__bank *b)
{
    return &heap->arena[b->arena];
}

/*
 * Lock the arena of a bank that was found without it. NULL, with nothing locked, if the bank has gone: the
 * slot may be that of a bank of another arena by now, whose blocks this lock does not guard. Where it is one
 * of the same arena the caller finds out by its frames. No lock of rank ARENA or above held.
 */
HVMEM_INLINE struct hvmem__arena *hvmem__bank_lock(struct hvmem_heap *heap,
                                                   const struct hvmem__bank *b, hvmem_u64 *state)
{
    const hvmem_u32 number = hvmem__load(&b->arena);
    struct hvmem__arena *arena = &heap->arena[number];

    (void)HVMEM_TEST_POINT("bank_lock");
    *state = hvmem__lock_arena(heap, arena);
    if (hvmem__likely(hvmem__load_acquire(&b->live) && hvmem__load(&b->arena) == number))
        return arena;
    hvmem__unlock_arena(heap, arena, *state);
    return (struct hvmem__arena *)HVMEM_NULL;
}

#endif
