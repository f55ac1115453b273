/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ageing.h: the queues in which cached blocks that owe something wait, one for each order that goes
 * through caches, beside the magazines of those that owe nothing.
 *
 * A block that owes a flush enters at the young end and is handed out at the old one. It is mature
 * once every CPU that could reach it has flushed since its stamp (clock.h); then its flush is paid.
 * Blocks that owe other things only are mature at once. Without the queue the frame freed last would
 * be allocated next, and each allocation would cost a flush; with it one flush makes a whole queue
 * mature.
 *
 * BOUND. A queue takes 8 MiB of single frames, or 16 blocks of order 9, on each CPU. Until it is full
 * an allocation rather splits clean memory than flushes, so that a flush pays for a whole rotation, and
 * takes no more of it than the queue has room for. When it is full the oldest is flushed for: a hot pair
 * does not walk on through clean memory.
 *
 * All of it belongs to the section of its CPU (pcpu.h); `count` is read by anyone. The blocks are
 * CACHED and their records hold what they owe: nothing of a debt is kept here.
 */
#ifndef HVMEM_LIB_AGEING_H
#define HVMEM_LIB_AGEING_H

#include "arena.h"
#include "pcpu.h"

/* Bytes of the queues of one CPU, and their places in that memory. */
hvmem_size hvmem__ageing_bytes(hvmem_u32 config_flags);
void hvmem__ageing_init(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn *slots);

/* Blocks in a queue; by another CPU as of about now. */
HVMEM_INLINE hvmem_u32 hvmem__ageing_count(const struct hvmem_cpu_queue *queue)
{
    hvmem_u64 head = hvmem__load(&queue->head), count = hvmem__load(&queue->tail) - head;

    return hvmem__likely(count <= queue->mask + 1) ? (hvmem_u32)count : 0;
}

/* Of `count` blocks from place `at` on, how many come before the queue wraps. */
HVMEM_INLINE hvmem_u32 hvmem__ageing_before_wrap(const struct hvmem_cpu_queue *queue, hvmem_u32 at,
                                                 hvmem_u32 count)
{
    hvmem_u32 places = (hvmem_u32)queue->mask + 1 - at;

    return count < places ? count : places;
}

/* Put a block that owes something in; from a full queue the oldest go to their arenas. */
void hvmem__ageing_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn mfn,
                       hvmem__record record);

/*
 * Blocks freed at clock value `now` can go straight into the queue (hvmem_fast_age). Only where a flush is
 * all that freed blocks come to owe. Whether that is new. Inside the section.
 */
int hvmem__ageing_stamp(struct hvmem__pcpu *pc, hvmem_u32 order, hvmem_u64 now);

/* The oldest block; the queue is not empty. */
hvmem_mfn hvmem__ageing_take(struct hvmem__pcpu *pc, hvmem_u32 order);

/*
 * Whether the oldest block is mature. Asks for the times of all CPUs only if it seems not to be; and if
 * it is not, marks what a flush for `newest` would make mature.
 */
int hvmem__ageing_ripe(struct hvmem_heap *heap, struct hvmem_cpu_queue *queue);

/* Of the oldest blocks, how many are known to be mature and to owe nothing but that flush. */
hvmem_u32 hvmem__ageing_plain(const struct hvmem_heap *heap, const struct hvmem_cpu_queue *queue);

/* Give up to `count` of the oldest blocks back to their arenas; to merge the last one on is left, in *rest. */
void hvmem__ageing_shed(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                        hvmem_u32 count, struct hvmem__unmerged *rest);

#endif
