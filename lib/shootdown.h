/* SPDX-License-Identifier: BSD-2-Clause */
/* shootdown.h: invalidation on every CPU and device that may hold translations of a mapping. */
#ifndef HVMEM_LIB_SHOOTDOWN_H
#define HVMEM_LIB_SHOOTDOWN_H

#include "mapping.h"

/* Besides HVMEM_SHOOT_*: entries may have been global, so that a flush of the space leaves some. */
#define HVMEM__SHOOT_GLOBAL 0x100u

/*
 * Forget the ranges (count 0: the whole space), which are sound, after they were changed; wait for
 * it. A space destroyed meanwhile counts as flushed. No lock held. Errors: HVMEM_E_HOST, E_TIMEOUT,
 * a notifier's own: nothing may be reused.
 */
hvmem_status hvmem__shoot(struct hvmem_mapping *mapping, const struct hvmem_tlb_range *ranges,
                          hvmem_u32 count, hvmem_u32 flags);

#endif
