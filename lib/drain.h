/* SPDX-License-Identifier: BSD-2-Clause */
/* drain.h: blocks out of the per-CPU caches, back to their arenas; and what is true of all caches. */
#ifndef HVMEM_LIB_DRAIN_H
#define HVMEM_LIB_DRAIN_H

#include "arena.h"
#include "pcpu.h"

/*
 * Give back everything in all caches, or in one; forget bank hints (a bank is going away). E_HOST:
 * a cache could not be entered; it does the same by itself before its CPU uses it again.
 */
hvmem_status hvmem__pcpu_drain_all(struct hvmem_heap *heap);
hvmem_status hvmem__pcpu_drain(struct hvmem_heap *heap, hvmem_cpu cpu);
hvmem_status hvmem__pcpu_forget_banks(struct hvmem_heap *heap);

/* Move the hot frame into the magazine. Inside the section. */
void hvmem__pcpu_spill(struct hvmem_heap *heap, struct hvmem__pcpu *pc);

/*
 * Empty all caches and keep them empty: claims are short. A cache opens again by itself when it is
 * asked for a block and claims hold. No lock held, not inside a section. E_HOST: as when draining.
 */
hvmem_status hvmem__pcpu_shut(struct hvmem_heap *heap);

/* Whether any cache holds a block. */
int hvmem__pcpu_any(const struct hvmem_heap *heap);

/* Frames in all caches, on one node or anywhere. Exact when no call is running. */
hvmem_u64 hvmem__pcpu_cached(struct hvmem_heap *heap, hvmem_node node);

/* ---- inside a section ----------------------------------------------------------------------------- */

void hvmem__pcpu_flush_out(struct hvmem_heap *heap, struct hvmem__pcpu *pc);

/*
 * Give blocks back to their arenas: one lock a section, a section ends after some work or
 * where the arena changes; neighbours among single frames go as one block. Their records say CACHED.
 * Inside the section.
 */
void hvmem__pcpu_give_back(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 count);

/* The same where the gate is held: to merge the last block on is left for later, in *rest. */
void hvmem__pcpu_give_some(struct hvmem_heap *heap, const hvmem_mfn *blocks, hvmem_u32 count,
                           struct hvmem__unmerged *rest);

/* Give back the oldest `count` blocks of a magazine. Inside the section. */
void hvmem__pcpu_shed(struct hvmem_heap *heap, struct hvmem__mag *mag, hvmem_u32 count);

/*
 * Empty a cache, keep it empty, forget its hint and its credit. Inside the section, whose gate is opened
 * now and then if there is one.
 */
void hvmem__pcpu_clear(struct hvmem_heap *heap, struct hvmem__section *s);

/* Let the magazines take blocks in, or no more. Inside the section. */
void hvmem__pcpu_set_open(struct hvmem__pcpu *pc, int open);

#endif
