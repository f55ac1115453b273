/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * credit.h: frames that are charged to a domain in advance, so that a CPU which allocates and frees
 * for one domain again and again writes no shared line: domain.pages = frames owned + all credits.
 *
 * A cache holds credit for one domain at a time, the last that asked. It belongs to the section
 * (pcpu.h), is given only to a RUNNING domain, and is taken back when the domain is killed, when its
 * limit is in the way, and before its claims are compared with the limit.
 *
 * READY. The blocks of the CPU's queue before `ready` are mature, owe nothing but the flush that is paid
 * by that, and are paid for out of the credit: hvmem_alloc_owned() hands them out without another
 * look. Whatever else takes from the queue, or the loss of the token, ends that (hvmem__credit_unready()).
 */
#ifndef HVMEM_LIB_CREDIT_H
#define HVMEM_LIB_CREDIT_H

#include "domain.h"
#include "pcpu.h"

/*
 * This CPU works for the domain: a credit, a token if it may have one, and what is mature made ready.
 * No lock, no section held.
 */
void hvmem__credit_open(struct hvmem_heap *heap, struct hvmem_domain *domain, hvmem_u32 order);

/* How many blocks of a queue are ready; by another CPU as of about now. */
HVMEM_INLINE hvmem_u64 hvmem__credit_ready(const struct hvmem_cpu_queue *queue)
{
    hvmem_u64 head = hvmem__load(&queue->head), ready = hvmem__load(&queue->ready);

    return ready > head ? ready - head : 0;
}

/* Blocks of this order in the queue wait for anybody again; the credit is not touched. Inside the section. */
HVMEM_INLINE void hvmem__credit_unready(struct hvmem__pcpu *pc, hvmem_u32 order)
{
    struct hvmem_cpu_queue *queue = hvmem__ageing_of(pc, order);

    hvmem__store(&pc->fast.credit, pc->fast.credit + (hvmem__credit_ready(queue) << order));
    hvmem__store(&queue->ready, 0);
}

/*
 * A part of more than a cache should hold (HVMEM_FAST_CREDIT) goes back; whether it did. Inside the
 * section.
 */
int hvmem__credit_trim(struct hvmem__pcpu *pc);

/* Give this cache's credit back. Inside the section. */
void hvmem__credit_close(struct hvmem__pcpu *pc);

/* Frames of all credits of a domain; exact when no call is running. */
hvmem_u64 hvmem__credit_sum(const struct hvmem_heap *heap, const struct hvmem_domain *domain);

/* Take all credits of a domain back; whether there were any. No lock, no section held. */
int hvmem__credit_recall(struct hvmem_heap *heap, const struct hvmem_domain *domain);

#endif
