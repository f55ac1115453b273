/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * run.h: runs of frames that are not one block: kept parts of a block, exact ranges, runs made of
 * several neighbouring blocks, and freeing any range.
 */
#ifndef HVMEM_LIB_RUN_H
#define HVMEM_LIB_RUN_H

#include "take.h"

/*
 * Of a block that has left the free sets keep the first `count` frames, marked with `record`, and
 * give the tail back. Claims are not touched (only `count` frames were taken). Arena lock held.
 */
void hvmem__run_keep(struct hvmem_heap *heap, struct hvmem__arena *arena, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record, hvmem_u64 count);

/*
 * Take a run of `count` frames aligned to 2^align that lies over several free blocks, when no
 * single block can hold it. E_NOMEM, E_CLAIM. Lock sections of a bounded number of candidates each.
 */
hvmem_status hvmem__run_search(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_u64 count,
                               hvmem_u32 align, hvmem_mfn *mfn);

/* The same across the border of two arenas of a node, when no arena has one. No lock held. */
hvmem_status hvmem__run_across(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_node node,
                               hvmem_u64 count, hvmem_u32 align, hvmem_mfn *mfn);

/*
 * The pieces of such a run (run_pieces.c). Take one, the block of `order` at mfn, out of the free block at head
 * (arena lock held, `near` a bank of it): HVMEM_OK, E_CLAIM, E_BUSY (a claim was set anew meanwhile). Then, no
 * lock held: all are there, in [mfn, end), and become what was asked for; or they go back, as if they had never
 * been asked for.
 */
hvmem_status hvmem__run_take_piece(struct hvmem_heap *heap, struct hvmem__arena *arena,
                                   struct hvmem__bank *near, struct hvmem__want *want,
                                   hvmem_mfn head, hvmem_u32 head_order, hvmem_mfn mfn,
                                   hvmem_u32 order);
void hvmem__run_keep_pieces(struct hvmem_heap *heap, const struct hvmem__want *want, hvmem_mfn mfn,
                            hvmem_mfn end);
void hvmem__run_return_pieces(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_mfn mfn,
                              hvmem_mfn end);

/*
 * Take exactly [mfn, mfn + count) as RESERVED, and taken out (HVMEM__TAKEN_OUT): nobody can free it, and if this
 * heap dies it is free. E_FOREIGN, E_BUSY, E_CLAIM; all or nothing. No lock held.
 */
hvmem_status hvmem__run_take_out(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/* All of it is free again, whatever it owes. No lock held. */
void hvmem__run_put_back(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/*
 * Free a range that was checked, of which nothing may have come to belong to another than `owner`
 * (E_OWNER). *at is where it stopped.
 */
#define HVMEM__ANY_OWNER (~(hvmem_u32)0)
hvmem_status hvmem__run_free(struct hvmem_heap *heap, hvmem_u32 owner, hvmem_mfn mfn,
                             hvmem_u64 count, hvmem_u32 owed, hvmem_mfn *at);

#endif
