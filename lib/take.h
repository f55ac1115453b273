/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * take.h: blocks out of the arenas of the nodes, claims accounted, and back into them.
 */
#ifndef HVMEM_LIB_TAKE_H
#define HVMEM_LIB_TAKE_H

#include "arena.h"
#include "claim.h"
#include "domain.h"

/* What to take (a checked request). */
struct hvmem__want {
    struct hvmem_domain *domain;  /* whose claims may be used; NULL: none */
    struct hvmem__window *window; /* NULL: anywhere */
    hvmem_u64 node_mask;          /* nodes allowed, all with memory */
    hvmem_node node;              /* first choice */
    hvmem_u32 order;
    hvmem_u64 count;           /* frames to keep, the tail of the block goes back; 0: all of it */
    hvmem__record keep;        /* state and owner of the new block */
    struct hvmem__drawn drawn; /* out: claims used, on node drawn_on */
    hvmem_node drawn_on;
};

/*
 * Take one block (or run) from the nearest allowed node. On success it is outside the free sets
 * with its head bit set, record `keep` and its debts. Returns HVMEM_OK, E_NOMEM or E_CLAIM.
 * No lock held. Steps: a search of each arena that may have such a block.
 */
hvmem_status hvmem__take(struct hvmem_heap *heap, struct hvmem__want *want, hvmem_mfn *mfn,
                         hvmem__record *record);

/* What a batch may consist of. */
enum hvmem__supply {
    HVMEM__SUPPLY_SMALL, /* owing no flush, from blocks of that order or small remainders */
    HVMEM__SUPPLY_CLEAN, /* owing no flush, larger blocks are split */
    HVMEM__SUPPLY_ANY
};

/* Blocks of one order that are taken together, and what they cost. */
struct hvmem__batch {
    hvmem_node node;
    hvmem_u32 order;
    enum hvmem__supply of;
    hvmem_u32 owed;              /* out: debts that any of the blocks has */
    hvmem_u32 cut;               /* out: 1: too many blocks that owe a flush are in the way */
    struct hvmem_domain *domain; /* whose claims may be used; NULL: none */
    hvmem__record keep;          /* state and owner of the blocks */
    struct hvmem__drawn drawn;   /* out: claims used, on `node` */
    struct hvmem__tally tally;   /* out: what the blocks owe */
};

/* A batch of anything, on node 0, that draws on no claim. */
HVMEM_INLINE void hvmem__batch_init(struct hvmem__batch *batch, hvmem_u32 order, hvmem__record keep)
{
    batch->node = 0;
    batch->order = order;
    batch->of = HVMEM__SUPPLY_ANY;
    batch->owed = batch->cut = 0;
    batch->drawn.domain = (struct hvmem_domain *)HVMEM_NULL;
    batch->drawn.frames = batch->drawn.from_node = batch->drawn.from_any = batch->drawn.when = 0;
    batch->domain = (struct hvmem_domain *)HVMEM_NULL;
    batch->keep = keep & ~(hvmem__record)31u;
    batch->tally.frames = batch->tally.flush = batch->tally.newest = 0;
}

/*
 * Take up to n blocks from the first arena of the batch's node that has any, as many as it gives. They
 * keep their debts, but for flushes that all CPUs have done since. *got is 0 only with a status. What they
 * owe and the claims they used is added to the batch. Holds of the arena's lock of bounded work.
 */
hvmem_status hvmem__take_batch(struct hvmem_heap *heap, struct hvmem__batch *batch,
                               hvmem_mfn *blocks, hvmem_u32 n, hvmem_u32 *got);

/* The same out of one arena, within what claims leave. No lock of rank ARENA or above held. */
hvmem_status hvmem__batch_from(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__batch *batch, hvmem_mfn *blocks, hvmem_u32 n,
                               hvmem_u32 *got);

/*
 * Give a block that is outside the free sets back: its head bit is cleared, claims are accounted.
 * Returns the work of merging (hvmem__arena_give). Arena lock held.
 */
hvmem_u32 hvmem__return_block(struct hvmem_heap *heap, struct hvmem__arena *arena,
                              struct hvmem__bank *b, hvmem_mfn mfn, hvmem__record record);

/*
 * The same for 2^order single frames that make a block within bank b and owe nothing.
 * Arena lock held.
 */
hvmem_u32 hvmem__return_frames(struct hvmem_heap *heap, struct hvmem__arena *arena,
                               struct hvmem__bank *b, hvmem_mfn mfn, hvmem_u32 order);

/* Nearest node to `from` in mask; mask must not be 0. */
hvmem_node hvmem__nearest(const struct hvmem_heap *heap, hvmem_node from, hvmem_u64 mask);

/* Slots of a node's arenas that may have a block of `order`. */
HVMEM_INLINE hvmem_u64 hvmem__candidates(const struct hvmem_heap *heap, hvmem_node node,
                                         hvmem_u32 order)
{
    return hvmem__load(&heap->node[node].may[order]);
}

/* Where a CPU starts among the arenas of a node, so that CPUs rarely meet. */
HVMEM_INLINE hvmem_u32 hvmem__first_slot(hvmem_cpu cpu)
{
    return cpu & (HVMEM__NODE_ARENAS - 1);
}

/* The next candidate at or after slot `first`, cyclically; there must be one. */
HVMEM_INLINE hvmem_u32 hvmem__next_slot(hvmem_u64 candidates, hvmem_u32 first)
{
    hvmem_u64 at_or_after = candidates & ~(((hvmem_u64)1 << first) - 1);

    return hvmem__lowest(at_or_after ? at_or_after : candidates);
}

HVMEM_INLINE struct hvmem__arena *hvmem__arena_at(struct hvmem_heap *heap, hvmem_node node,
                                                  hvmem_u32 slot)
{
    return &heap->arena[hvmem__load_acquire(&heap->node[node].arena[slot])];
}

#endif
