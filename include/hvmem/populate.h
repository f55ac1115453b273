/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/populate.h: memory for a domain: many extents, allocated, settled and mapped with few flushes.
 *
 * A populate works in slices of HVMEM_POPULATE_SLICE extents: allocate them all with every debt deferred,
 * then one filtered TLB flush for all, then scrub and clean, then map. It can be preempted anywhere,
 * also within one large extent (while it is mapped: where ops.unit says how, hvmem/domain.h). Its state is
 * kept in the domain; a domain has one populate open at a time, and the caller's cursor only names it.
 */
#ifndef HVMEM_POPULATE_H
#define HVMEM_POPULATE_H

#include <hvmem/domain.h>

/* Extents of one slice. */
#define HVMEM_POPULATE_SLICE 512u

/*
 * Paid at the first touch of a vCPU rather than now: needs ops.map_untouched (hvmem/domain.h). What the host
 * writes there before is scrubbed then: images go to extents without it.
 */
#define HVMEM_EXTENT_FIRST_TOUCH 1u
/* Out: the extent is mapped and `mfn` says where it lies. */
#define HVMEM_EXTENT_DONE 0x80000000u

/* 2^order frames at gfn (in units of 4 KiB, aligned to the extent's size). */
struct hvmem_extent {
    hvmem_gfn gfn;
    hvmem_mfn mfn; /* out, with HVMEM_EXTENT_DONE */
    hvmem_u32 order;
    hvmem_u32 flags; /* HVMEM_EXTENT_* */
};

/*
 * Leave the clean of the data caches to hvmem_domain_start(), which does it by guest frame: a frame that is
 * mapped elsewhere before start must be told with its new gfn to hvmem_domain_dirtied(). Only in state
 * BUILDING. (The instruction-cache work of a domain that is being built always waits for start.)
 */
#define HVMEM_POPULATE_DEFER_DCACHE 1u
/* The extents together draw on no claim. */
#define HVMEM_POPULATE_NO_CLAIM 2u
/* Only memory of `node`. */
#define HVMEM_POPULATE_EXACT_NODE 4u

struct hvmem_populate {
    hvmem_u32 size;  /* sizeof(struct hvmem_populate) */
    hvmem_u32 flags; /* HVMEM_POPULATE_* */
    struct hvmem_extent *extents;
    hvmem_u64 count;
    hvmem_node node; /* preferred; HVMEM_NODE_ANY: as hvmem_alloc() chooses */
    hvmem_u32 reserved;
    hvmem_u64 budget; /* frames paid for, and pieces mapped, a call; 0: only the host decides */
    hvmem_u64 *done;  /* out, may be NULL: how many of the extents, in order, are mapped */
};

HVMEM_BEGIN_DECLS

/*
 * Give the domain memory at every extent. HVMEM_OK: all are mapped. HVMEM_AGAIN: call again with the
 * same request and cursor. Frames are charged to the domain from their allocation on; those allocated
 * and not yet mapped are the populate's: who frees, gathers or shares one by its number is told
 * HVMEM_E_GATHERED. State BUILDING or RUNNING (then everything is paid before a frame is mapped).
 *
 * On an error the populate is over and the cursor void: *done extents are mapped, settled and marked
 * DONE, the others have got no memory; frames allocated for them went back with what they still owe (that
 * which ops.map refused with config.owed_on_free besides: a part may have been mapped for a moment), and
 * claims that they had used are outstanding again. Errors: HVMEM_E_BUSY (another populate or a start is
 * open, or this one runs on another CPU: nothing changed), HVMEM_E_STALE (the cursor is not that of the
 * open populate, or the request is not the one that it was opened with: nothing changed), HVMEM_E_ARG,
 * HVMEM_E_VERSION, HVMEM_E_COUNT, HVMEM_E_PHASE, HVMEM_E_UNSUPPORTED (no ops.map); for an extent:
 * HVMEM_E_ORDER, HVMEM_E_ALIGN, HVMEM_E_RANGE, HVMEM_E_ARG (flag), those of hvmem_alloc(), and what ops.map
 * returned; HVMEM_E_QUARANTINE: a part of an extent was mapped and may still be reached, its block is in
 * quarantine. Context: as hvmem_alloc(); calls back into ops with no lock held.
 */
HVMEM_API hvmem_status hvmem_domain_populate(struct hvmem_domain *domain,
                                             const struct hvmem_populate *request,
                                             struct hvmem_cursor *cursor);

/*
 * Give up the open populate, whoever opened it: what is mapped stays, what is not goes back, its claims
 * outstanding again. An extent of which a part is mapped is unmapped. Errors: HVMEM_E_ARG, HVMEM_E_PHASE
 * (none is open), HVMEM_E_BUSY (it runs on another CPU just now), HVMEM_E_QUARANTINE (as above; it is over).
 */
HVMEM_API hvmem_status hvmem_domain_populate_cancel(struct hvmem_domain *domain);

HVMEM_END_DECLS

#endif
