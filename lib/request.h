/* SPDX-License-Identifier: BSD-2-Clause */
/* request.h: checking what a caller asks for. */
#ifndef HVMEM_LIB_REQUEST_H
#define HVMEM_LIB_REQUEST_H

#include "heap.h"

/*
 * HVMEM_OK, or what is wrong: a struct of another version, an unknown flag, members that contradict
 * each other or exceed the heap, a domain that is none of its. NULL is E_ARG. No lock held.
 */
hvmem_status hvmem__request_check(const struct hvmem_heap *heap, const struct hvmem_request *req);

/*
 * hvmem_alloc() without report. holds: the caller has checked the request, and will pay what it defers
 * before anybody sees the frames, so that deferring is allowed in any state of the domain.
 */
hvmem_status hvmem__alloc(struct hvmem_heap *heap, const struct hvmem_request *request, int holds,
                          hvmem_mfn *mfn);

#endif
