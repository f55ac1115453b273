/* SPDX-License-Identifier: BSD-2-Clause */
/* flush.h: flushes of translations that frames owe. */
#ifndef HVMEM_LIB_FLUSH_H
#define HVMEM_LIB_FLUSH_H

#include "heap.h"

/*
 * Make sure that every CPU has flushed everything since the clock read `stamp`: asks those that have
 * not, by one filtered flush, or nobody. No lock held. E_UNSUPPORTED, E_HOST.
 */
hvmem_status hvmem__flush_for(struct hvmem_heap *heap, hvmem_u64 stamp);

/* Everything on this CPU. The back-end's errors. */
hvmem_status hvmem__flush_local(struct hvmem_heap *heap);

#endif
