/* SPDX-License-Identifier: BSD-2-Clause */
/* request.h: checking what a caller asks for. */
#ifndef HVMEM_LIB_REQUEST_H
#define HVMEM_LIB_REQUEST_H

#include "claim.h"
#include "domain.h"

/*
 * HVMEM_OK, or what is wrong: a struct of another version, an unknown flag, members that contradict
 * each other or exceed the heap, a domain that is none of its. NULL is E_ARG. No lock held.
 */
hvmem_status hvmem__request_check(const struct hvmem_heap *heap, const struct hvmem_request *req);

/* Nodes that a checked request may be served from. No lock held. */
hvmem_u64 hvmem__request_nodes(const struct hvmem_heap *heap, const struct hvmem_request *req);

/* Whether the first choice among them moves on with every block. */
HVMEM_INLINE int hvmem__request_in_turn(const struct hvmem_request *req)
{
    return req->node == HVMEM_NODE_ANY && req->domain && req->domain->node_mask;
}

/* The node of the calling CPU. */
hvmem_node hvmem__own_node(const struct hvmem_heap *heap);

/*
 * hvmem_alloc() without report. drawn: NULL, or the caller has checked the request, and will pay what
 * it defers before anybody sees the frames, so that deferring is allowed in any state of the domain;
 * it is told which claims of the frames' node were used. bias: HVMEM__BIAS_HELD or _TABLE, whose they are
 * until they are let go of or given back, or 0.
 */
hvmem_status hvmem__alloc(struct hvmem_heap *heap, const struct hvmem_request *request,
                          hvmem_u32 bias, struct hvmem__drawn *drawn, hvmem_mfn *mfn);

#endif
