/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bank.h: banks: the table of a piece of RAM, the directory that finds the bank of a frame, adding
 * and removing.
 *
 * The directory is an array of bank numbers sorted by base, guarded by a sequence count: readers
 * retry if it was odd or changed. A bank that was found is used under its arena's lock after
 * checking `live` again, or by an owner of one of its frames (whose bank cannot be removed).
 */
#ifndef HVMEM_LIB_BANK_H
#define HVMEM_LIB_BANK_H

#include "heap.h"

/*
 * What a table starts with. No pointers, so that another heap can adopt it. The records follow,
 * then the head set, then the free set of each order. Written by the heap that owns it.
 */
struct hvmem__table {
    hvmem_u64 magic; /* HVMEM__TABLE_MAGIC: version in the low byte */
    hvmem_u64 base;
    hvmem_u64 frames;
    hvmem_u32 node;
    hvmem_u32 page_shift;
    hvmem_u32 max_order;
    hvmem_u32 clean;    /* 1: quiesced and unchanged since */
    hvmem_u64 checksum; /* of the members above, clean excluded */
    /* What was counted at quiesce; means something while clean. */
    hvmem_u64 clock;
    hvmem_u64 reserved_frames, offline_frames, quarantine_frames;
    hvmem_u64 free_blocks[HVMEM_ORDER_LIMIT + 1];
    hvmem_u64 counts_checksum; /* of clock to free_blocks */
};
#define HVMEM__TABLE_MAGIC 0x68766d656d746201ull /* "hvmemtb", version 1 */

/* The bank that holds a frame, or NULL. Any context. Cost O(log banks). */
struct hvmem__bank *hvmem__bank_of(struct hvmem_heap *heap, hvmem_mfn mfn);

/* Validate what a caller gave. */
hvmem_status hvmem__bank_check(struct hvmem_heap *heap, const struct hvmem_bank *bank);

/* Geometry of the piece that starts at `at`: frames up to the span border or `end`. */
hvmem_u64 hvmem__piece_frames(const struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end);
hvmem_size hvmem__piece_bytes(const struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames);

/* Whether a checked bank can be added: overlap, table memory, free slots. Admin lock held. */
hvmem_status hvmem__bank_admit(struct hvmem_heap *heap, const struct hvmem_bank *bank, void *table,
                               hvmem_size bytes);

/* A slot for one piece of a bank that was admitted. Admin lock held. */
struct hvmem__bank *hvmem__bank_make(struct hvmem_heap *heap, const struct hvmem_bank *bank,
                                     hvmem_mfn base, hvmem_u64 frames);

/* Lay out bank b over its table memory. fresh: a new table; otherwise an adopted one. */
void hvmem__bank_layout(struct hvmem_heap *heap, struct hvmem__bank *b, void *table, int fresh);
hvmem_u64 hvmem__table_checksum(const struct hvmem__table *table);
hvmem_u64 hvmem__counts_checksum(const struct hvmem__table *table);

/*
 * Enter laid-out pieces into the directory and their arenas; leave again. Admin lock held.
 */
hvmem_status hvmem__bank_link(struct hvmem_heap *heap, struct hvmem__bank *b);
void hvmem__bank_unlink(struct hvmem_heap *heap, struct hvmem__bank *b);

/* Frames [mfn, mfn + frames) as one block-aligned step: largest order at mfn that fits. */
static inline hvmem_u32 hvmem__fit(const struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames)
{
    hvmem_u32 order = hvmem__highest(frames);

    if (mfn) {
        hvmem_u32 align = hvmem__lowest(mfn);

        if (align < order)
            order = align;
    }
    return order < heap->max_order ? order : heap->max_order;
}

static inline hvmem__record *hvmem__record_at(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return &b->record[mfn - b->base];
}

static inline int hvmem__bank_holds(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return mfn - b->base < b->frames;
}

/* Index of the block of order k at mfn in the bank's free set of that order. */
static inline hvmem_u64 hvmem__block_index(const struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 k)
{
    return (mfn >> k) - (b->base >> k);
}

static inline hvmem_mfn hvmem__block_mfn(const struct hvmem__bank *b, hvmem_u64 index, hvmem_u32 k)
{
    return ((b->base >> k) + index) << k;
}

static inline int hvmem__is_head(const struct hvmem__bank *b, hvmem_mfn mfn)
{
    return hvmem__bits_test(&b->head, mfn - b->base);
}

static inline struct hvmem__arena *hvmem__arena_of(struct hvmem_heap *heap,
                                                   const struct hvmem__bank *b)
{
    return &heap->arena[b->arena];
}

#endif
