/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * table.h: the table of a piece of RAM: a header without pointers, the sets of blocks, the records.
 * It outlives the heap that wrote it: another heap with the same geometry can adopt it in place.
 */
#ifndef HVMEM_LIB_TABLE_H
#define HVMEM_LIB_TABLE_H

#include "heap.h"

/*
 * What a table starts with. No pointers, so that another heap can adopt it. Then come the upper
 * levels of all sets (lazybits.h), the level 0 of the free sets from the largest order down and of
 * the head set, and the records. Written by the heap that owns it.
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
    hvmem_u64 in_bitmap[HVMEM_ORDER_LIMIT + 1];
    /* Up to date at any time: of each order a free block that is not in its bitmap (sets.h). */
    hvmem_mfn front[HVMEM_ORDER_LIMIT + 1];
    hvmem_u64 counts_checksum; /* of clock to front */
};
#define HVMEM__TABLE_MAGIC 0x68766d656d746204ull /* "hvmemtb", version 4 */

/*
 * The table is about to change: the mark goes before the first change, for who dies between two leaves what
 * it has written. Called where a set or a count of a bank does (hvmem__add_frames()), where a block outside
 * the sets is entered or leaves (hvmem__arena_mark(), hvmem__arena_unmark()), and by whoever changes the
 * record of such a block, or what a record inside it holds, by another way; without the arena's lock after
 * the change too, for a quiesce may have set the mark meanwhile: where the block is another's by then, whose bank
 * may go, that is done by hvmem__bank_unmark() if the bank is `marked`.
 */
HVMEM_INLINE void hvmem__table_changes(struct hvmem__table *table)
{
    if (hvmem__unlikely(hvmem__load(&table->clean))) {
        hvmem__store(&table->clean, 0);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
}

/* Geometry of the piece that starts at `at`: frames up to the span border or `end`. */
hvmem_u64 hvmem__piece_frames(const struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end);
hvmem_size hvmem__piece_bytes(const struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames);

/* Lay out bank b over its table memory. fresh: a new table; otherwise an adopted one. */
void hvmem__bank_layout(struct hvmem_heap *heap, struct hvmem__bank *b, void *table, int fresh);

/* How far a block climbs in one hold of the arena's lock, claims being counted or not. That lock is held, or
 * nobody knows the bank yet. */
void hvmem__bank_measure(struct hvmem__bank *b, hvmem_u32 counted);
hvmem_u64 hvmem__table_checksum(const struct hvmem__table *table);
hvmem_u64 hvmem__counts_checksum(const struct hvmem__table *table);

/* Frames of a bank that one step of an adoption goes over. */
#define HVMEM__ADOPT_FRAMES ((hvmem_u64)1 << 18)

/*
 * Make the sets of an adopted table sound in themselves, for as many frames from *at on as one step takes:
 * who died within a change may have left a word without members, or one that no summary knows. Starts
 * at the bank's base, ends at its end.
 */
void hvmem__table_mend(const struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at);

/* Whether the fronts of a table's sets are blocks that it can have. */
int hvmem__fronts_sound(const struct hvmem__table *table);

#endif
