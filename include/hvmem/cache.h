/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/cache.h: work on the contents of frames in bounded steps: cache maintenance and scrubbing.
 *
 * STRETCH. Between two looks at the budget and at the host's `yield_wanted` operation never more than
 * HVMEM_CACHE_STRETCH cache lines are cleaned, invalidated or zeroed, those of each operation counted,
 * whatever the call that leads to it: a neighbour with a period of 100 us survives the clean of 1 GiB. No
 * library lock is held meanwhile. A call that can stop does so after the stretch (hvmem_domain_foreign(),
 * which keeps its progress by frame, after a frame if that is more). One that cannot (hvmem_alloc() of
 * what it must pay for, hvmem_settle(), hvmem_domain_start(), zeroing tables) takes a turn of the host's
 * `relax` instead where the CPU is wanted, and goes on.
 */
#ifndef HVMEM_CACHE_H
#define HVMEM_CACHE_H

#include <hvmem/config.h>

#define HVMEM_CACHE_STRETCH 1024u

/* Operations besides HVMEM_DC_* (hvmem/backend.h): instruction fetch sees what was stored. */
#define HVMEM_CACHE_ICACHE 16u
/*
 * Or'ed to HVMEM_DC_CLEAN or _CLEAN_INVALIDATE: the whole cache may be cleaned by one operation (WBINVD)
 * instead, if the range is larger than the cache. Milliseconds without a look at anything. Never done
 * unless asked for, nor where the heap has more than one CPU: the operation reaches this CPU's cache alone.
 */
#define HVMEM_CACHE_MAY_WHOLE 32u

/*
 * Cleans in steps that the heap (hvmem_cache_range()) and each domain (hvmem_domain_clean()) keep the
 * progress of. A cursor only names one; what a guest may write into it, or repeats, is HVMEM_E_STALE, and a
 * range is not said to be clean of which a part was left out. More at a time: HVMEM_E_BUSY, nothing is
 * known to be clean; try again, those that nobody goes on with give their place away.
 */
#define HVMEM_CLEANS 16u

HVMEM_BEGIN_DECLS

/*
 * Cache operation `op` on frames [mfn, mfn + frames), at most about budget_lines lines a call (0: until
 * the host wants the CPU back): HVMEM_AGAIN, call again. The frames need not belong to the heap, whose
 * debts know nothing of it. After an error the operation is over and the cursor zero.
 * Nothing is issued where the machine needs nothing (no data cache to maintain; coherent instruction
 * caches).
 * Errors: HVMEM_E_ARG (op, null), HVMEM_E_RANGE (empty, wraps, beyond the address width), HVMEM_E_STALE,
 * HVMEM_E_BUSY, HVMEM_E_UNSUPPORTED (back-end or frame_map missing), HVMEM_E_HOST.
 */
HVMEM_API hvmem_status hvmem_cache_range(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 frames,
                                         hvmem_u32 op, hvmem_u64 budget_lines,
                                         struct hvmem_cursor *cursor);

/*
 * Scrub free memory of a node (HVMEM_NODE_ANY: of all), for idle CPUs and for boot: about `budget`
 * frames a call (0: until the host wants the CPU back). Takes dirty free blocks out, flushes what a
 * CPU could still reach (one filtered flush), zeroes them and gives them back clean, so that hot
 * allocations find clean memory. HVMEM_AGAIN: more to do; HVMEM_OK: this pass has looked at every free
 * block once. Frames in per-CPU caches are drained first. What a forged cursor makes it pass over stays
 * dirty, and is scrubbed before somebody gets it.
 * Errors: HVMEM_E_ARG, HVMEM_E_NODE, HVMEM_E_STALE, HVMEM_E_UNSUPPORTED, HVMEM_E_HOST: the block at
 * hand went back as dirty as it was.
 */
HVMEM_API hvmem_status hvmem_scrub_step(struct hvmem_heap *heap, hvmem_node node, hvmem_u64 budget,
                                        struct hvmem_cursor *cursor);

/*
 * Scrub on free: as hvmem_free_owned(), but the block is made unreachable (one filtered flush) and
 * zeroed first, and becomes free clean. In bounded steps: HVMEM_AGAIN, the block still belongs to its
 * owner, who must not use it any more, but may free it in another way: dirty then. A single frame takes one
 * call. While a call is at work on a block all others that would free it are refused; what was done is
 * kept with the block, so that no cursor, whatever it holds, frees what was not scrubbed.
 * Errors: as hvmem_free_owned() (HVMEM_E_GATHERED also: another CPU is in such a call for it),
 * hvmem_settle(), HVMEM_E_STALE (the cursor is not that of the last call for this block, or the block has
 * changed hands since: nothing changed, a zero cursor begins anew), HVMEM_E_BUSY (it changed too often).
 */
HVMEM_API hvmem_status hvmem_free_scrubbed(struct hvmem_heap *heap, hvmem_mfn mfn,
                                           hvmem_order order, struct hvmem_domain *domain,
                                           hvmem_u32 owed, hvmem_u64 budget,
                                           struct hvmem_cursor *cursor);

HVMEM_END_DECLS

#endif
