/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * backendcall.h: how the core calls the back-end, in either binding of hvmem/backend.h. A member
 * that the back-end's build did not have counts as absent: E_UNSUPPORTED.
 */
#ifndef HVMEM_LIB_BACKENDCALL_H
#define HVMEM_LIB_BACKENDCALL_H

#include <hvmem/backend.h>

#include "deps.h"

#ifdef HVMEM_BACKEND_HEADER
#    include HVMEM_BACKEND_HEADER
#endif

/* Whether the table is long enough to hold `member` and the member is set. */
#define HVMEM__BACKEND_HAS(be, member)                                                             \
    ((be)->ops->size >=                                                                            \
         __builtin_offsetof(struct hvmem_backend_ops, member) + sizeof((be)->ops->member) &&       \
     (be)->ops->member)

HVMEM_INLINE hvmem_status hvmem__backend_tlb_flush(struct hvmem_backend *be,
                                                   const struct hvmem_tlb_flush *flush)
{
#ifdef HVMEM_BACKEND_TLB_FLUSH
    return HVMEM_BACKEND_TLB_FLUSH(be, flush);
#else
    return HVMEM__BACKEND_HAS(be, tlb_flush) ? be->ops->tlb_flush(be, flush) : HVMEM_E_UNSUPPORTED;
#endif
}

HVMEM_INLINE hvmem_status hvmem__backend_dcache(struct hvmem_backend *be, hvmem_u32 op,
                                                hvmem_uptr addr, hvmem_size bytes)
{
#ifdef HVMEM_BACKEND_DCACHE
    return HVMEM_BACKEND_DCACHE(be, op, addr, bytes);
#else
    return HVMEM__BACKEND_HAS(be, dcache) ? be->ops->dcache(be, op, addr, bytes)
                                          : HVMEM_E_UNSUPPORTED;
#endif
}

/* Whether calls of dcache may be left open (HVMEM_DC_MORE). Both operations are bound, or neither is. */
HVMEM_INLINE int hvmem__backend_has_more(const struct hvmem_backend *be)
{
#if defined(HVMEM_BACKEND_DCACHE) && defined(HVMEM_BACKEND_DCACHE_DONE)
    (void)be;
    return 1;
#elif defined(HVMEM_BACKEND_DCACHE)
    (void)be;
    return 0;
#else
    return HVMEM__BACKEND_HAS(be, dcache_done) ? 1 : 0;
#endif
}

HVMEM_INLINE hvmem_status hvmem__backend_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
#if defined(HVMEM_BACKEND_DCACHE) && defined(HVMEM_BACKEND_DCACHE_DONE)
    return HVMEM_BACKEND_DCACHE_DONE(be, op);
#else
    return HVMEM__BACKEND_HAS(be, dcache_done) ? be->ops->dcache_done(be, op) : HVMEM_E_UNSUPPORTED;
#endif
}

HVMEM_INLINE hvmem_status hvmem__backend_icache(struct hvmem_backend *be, hvmem_uptr addr,
                                                hvmem_size bytes)
{
#ifdef HVMEM_BACKEND_ICACHE
    return HVMEM_BACKEND_ICACHE(be, addr, bytes);
#else
    return HVMEM__BACKEND_HAS(be, icache) ? be->ops->icache(be, addr, bytes) : HVMEM_E_UNSUPPORTED;
#endif
}

HVMEM_INLINE hvmem_status hvmem__backend_icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    return HVMEM__BACKEND_HAS(be, icache_all) ? be->ops->icache_all(be, scope)
                                              : HVMEM_E_UNSUPPORTED;
}

HVMEM_INLINE hvmem_status hvmem__backend_zero(struct hvmem_backend *be, hvmem_uptr addr,
                                              hvmem_size bytes)
{
#ifdef HVMEM_BACKEND_ZERO
    return HVMEM_BACKEND_ZERO(be, addr, bytes);
#else
    return HVMEM__BACKEND_HAS(be, zero) ? be->ops->zero(be, addr, bytes) : HVMEM_E_UNSUPPORTED;
#endif
}

HVMEM_INLINE hvmem_status hvmem__backend_guest_entry(struct hvmem_backend *be, hvmem_u32 owed,
                                                     hvmem_u32 *value)
{
    return HVMEM__BACKEND_HAS(be, guest_entry) ? be->ops->guest_entry(be, owed, value)
                                               : HVMEM_E_UNSUPPORTED;
}

#endif
