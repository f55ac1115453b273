/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * settle.h: paying what frames owe. The order is written here once: TLB, host kinds, SCRUB, DCACHE,
 * ICACHE (flush before scrub before clean before hand-over). No library lock is held meanwhile.
 */
#ifndef HVMEM_LIB_SETTLE_H
#define HVMEM_LIB_SETTLE_H

#include "cache.h"
#include "domain.h"

/* Whether host and back-end can pay all of these debts. */
int hvmem__can_pay(const struct hvmem_heap *heap, hvmem_u32 owed);

/* Debts that need no work on this machine: D-cache where stage 2 forces write-back, and so on. */
hvmem_u32 hvmem__void_debts(const struct hvmem_heap *heap);

/* What frames of unknown content owe: they may hold, and have been fetched as, whatever freed ones were. */
hvmem_u32 hvmem__owed_by_unknown(const struct hvmem_heap *heap);

/*
 * What the frame of a table owes that is freed, whoever paid for it: the addresses in it are no guest's to
 * see, no more than an earlier owner's data are.
 */
hvmem_u32 hvmem__owed_by_table(const struct hvmem_heap *heap);

/*
 * Pay the host's kinds, SCRUB and DCACHE among `due` for a block that the caller holds, its flush paid
 * already, from byte *inside of its contents on. HVMEM_AGAIN: the budget says stop. On an error what
 * *inside does not say may not be considered paid. E_UNSUPPORTED, E_HOST.
 */
hvmem_status hvmem__pay_block(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                              hvmem__record record, hvmem_u32 due, hvmem_u64 *inside,
                              struct hvmem__budget *budget);

/*
 * SCRUB and DCACHE among `due` for frames [at, end) of one allocated block that a guest may touch meanwhile,
 * its flush paid: each part is held while it is paid for, and leaves the record (touched.h). untouched: only
 * parts that wait for their first touch, and HVMEM_AGAIN if the host wants the CPU back after one. E_HOST,
 * E_BUSY. No lock held.
 */
hvmem_status hvmem__pay_mapped(struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end, hvmem_u32 due,
                               int untouched);

/* The instruction caches of all CPUs, if this machine needs that. E_UNSUPPORTED, E_HOST. */
hvmem_status hvmem__pay_icache(struct hvmem_heap *heap);

/*
 * Raise *newest to the newest stamp in the allocated (or reserved) blocks that make up [mfn, mfn + count)
 * and owe a flush; *due is set to 1 if one does. *at is the frame where it stopped.
 */
hvmem_status hvmem__newest_stamp(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_mfn *at, int *due, hvmem_u64 *newest);

/* `asked` and every debt that must be paid before it. */
hvmem_u32 hvmem__with_earlier(hvmem_u32 asked);

/* What of `owed` can be paid now if the debts `deferred` stay: those before the first that stays. */
hvmem_u32 hvmem__payable(hvmem_u32 owed, hvmem_u32 deferred);

/*
 * Pay `owed`, and what must come before it, for the allocated (or reserved) blocks that make up
 * [mfn, mfn + count): at most one filtered flush, none if `flushed`. Their domain must have counted
 * them as deferred (domain.h); what owes nothing any more is taken off. *at is the frame where it
 * stopped.
 */
hvmem_status hvmem__settle_range(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count,
                                 hvmem_u32 owed, int flushed, hvmem_mfn *at);

/*
 * `due` of the block whose record was `seen` is paid: take it off the record, and off its domain's count.
 * E_FREE: the block is another by now. E_BUSY: it changed too often.
 */
hvmem_status hvmem__paid(struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn mfn,
                         hvmem__record seen, hvmem_u32 due);

/* What the blocks of the range have to settle. */
struct hvmem__tally hvmem__owing(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u64 count);

/* Debts a request's flags leave on the block. */
hvmem_u32 hvmem__deferred_by(hvmem_u32 request_flags);

#endif
