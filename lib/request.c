/* SPDX-License-Identifier: BSD-2-Clause */
/* request.c: whether a request for memory makes sense to this heap, and which nodes it names. */
#include "request.h"

#include "pcpu.h"

#define KNOWN_FLAGS                                                                                \
    (HVMEM_REQ_EXACT_NODE | HVMEM_REQ_NOFLUSH | HVMEM_REQ_NO_CACHE | HVMEM_REQ_NO_CLAIM |          \
     HVMEM_REQ_DEFER_ALL)

static hvmem_status check_size(const struct hvmem_heap *heap, const struct hvmem_request *req)
{
    if (req->size != sizeof *req)
        return HVMEM_E_VERSION;
    if (heap->adopting)
        return HVMEM_E_PHASE;
    if (req->flags & ~KNOWN_FLAGS)
        return HVMEM_E_ARG;
    if (req->order > heap->max_order)
        return HVMEM_E_ORDER;
    if (req->count > (hvmem_u64)1 << heap->max_order)
        return HVMEM_E_COUNT;
    if (req->align > heap->max_order)
        return HVMEM_E_ALIGN;
    if ((req->count && req->order) || (!req->count && req->align))
        return HVMEM_E_ARG;
    return HVMEM_OK;
}

static hvmem_status check_place(const struct hvmem_heap *heap, const struct hvmem_request *req)
{
    hvmem_u64 with_memory = hvmem__load(&heap->node_mask);

    if (req->hi && req->hi <= req->lo)
        return HVMEM_E_RANGE;
    if (req->lo >> (HVMEM_MADDR_BITS - heap->page_shift))
        return HVMEM_E_RANGE;
    if (req->colour_mask && (req->order || req->count))
        return HVMEM_E_ARG;
    /* Colours are of frame numbers: the search counts on mask and colour having no bit beyond them. */
    if ((req->colour & ~req->colour_mask) ||
        req->colour_shift >= HVMEM_MADDR_BITS - heap->page_shift ||
        req->colour_mask >> (HVMEM_MADDR_BITS - heap->page_shift - req->colour_shift))
        return HVMEM_E_ARG;
    if (req->node != HVMEM_NODE_ANY && req->node >= HVMEM_NODE_LIMIT)
        return HVMEM_E_NODE;
    if (req->flags & HVMEM_REQ_EXACT_NODE &&
        (req->node == HVMEM_NODE_ANY || !(with_memory >> req->node & 1)))
        return HVMEM_E_NODE;
    if (req->node_mask && !(req->node_mask & with_memory))
        return HVMEM_E_NODE;
    return HVMEM_OK;
}

static hvmem_status check_domain(const struct hvmem_heap *heap, const struct hvmem_domain *domain)
{
    if (!domain)
        return HVMEM_OK;
    return domain->heap == heap && hvmem__domain_of(heap, domain->id) == domain ? HVMEM_OK
                                                                                : HVMEM_E_DOMAIN;
}

hvmem_status hvmem__request_check(const struct hvmem_heap *heap, const struct hvmem_request *req)
{
    hvmem_status status = req ? check_size(heap, req) : HVMEM_E_ARG;

    if (!status)
        status = check_place(heap, req);
    return status ? status : check_domain(heap, req->domain);
}

hvmem_u64 hvmem__request_nodes(const struct hvmem_heap *heap, const struct hvmem_request *req)
{
    hvmem_u64 nodes = hvmem__load(&heap->node_mask);

    /* (Where none of the domain's nodes has memory any more, others must do.) */
    if (req->domain && req->domain->node_mask & nodes)
        nodes &= req->domain->node_mask;
    if (req->node_mask)
        nodes &= req->node_mask;
    if (req->flags & HVMEM_REQ_EXACT_NODE)
        nodes &= (hvmem_u64)1 << req->node;
    return nodes;
}

hvmem_node hvmem__own_node(const struct hvmem_heap *heap)
{
    return heap->cpu_node[hvmem__pcpu_number(heap)];
}
