/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mapping.h: the inside of a mapping.
 *
 * TURNS. The low bits of `turns` count the gathers that are open, the rest those ever begun. A gather
 * was alone if none was open when it began and none has begun when it looks again, after its last
 * look at the tables. It stops to count as open when its invalidation is complete. Both sides have a
 * full barrier: begin between counting itself and its first change of the tables, the end between
 * its last look at them and the count. So of two gathers that overlap, the one that finds an entry
 * absent because of the other knows that there was another.
 *
 * FAILURES. After an invalidation that failed nobody knows what is still cached, and entries that a
 * later gather finds absent may be among it. Until a flush of everything succeeded that began after
 * the failure was counted, all flush everything.
 */
#ifndef HVMEM_LIB_MAPPING_H
#define HVMEM_LIB_MAPPING_H

#include <hvmem/mapping.h>

#include "heap.h"
#include "space.h"

#define HVMEM__TURN_BEGUN ((hvmem_u64)1 << 20)
#define HVMEM__TURN_OPEN  (HVMEM__TURN_BEGUN - 1)
/* Most that may be open at a time; more may try at once without an overflow. */
#define HVMEM__TURN_LIMIT (HVMEM__TURN_BEGUN / 2)

#define HVMEM__MAPPING_SELF 0x6d617070u

/* Among hvmem_mapping.flags: a stage 2's, whose table pages are blocks with HVMEM__BIAS_TABLE. */
#define HVMEM__MAPPING_STAGE2 0x80000000u

HVMEM_INLINE int hvmem__mapping_valid(const struct hvmem_mapping *mapping)
{
    return mapping && mapping->self == ((hvmem_uptr)mapping ^ HVMEM__MAPPING_SELF);
}

/* Add to a word that several CPUs change; returns what it was. A full barrier where several run. */
HVMEM_INLINE hvmem_u64 hvmem__mapping_add(const struct hvmem_mapping *mapping, hvmem_u64 *word,
                                          hvmem_u64 by)
{
    hvmem_u64 old;

    if (mapping->heap->host.smp) {
        old = __atomic_fetch_add(word, by, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    } else {
        old = *word;
        hvmem__store(word, old + by);
    }
    return old;
}

/* Whether an invalidation failed and no flush of everything has made up for it. */
HVMEM_INLINE int hvmem__mapping_failed(const struct hvmem_mapping *mapping)
{
    return hvmem__load(&mapping->failures) != hvmem__load(&mapping->mended);
}

HVMEM_INLINE void hvmem__mapping_note(struct hvmem_mapping *mapping, hvmem_u64 *count, hvmem_u64 by)
{
    hvmem__count(mapping->heap, count, by);
}

HVMEM_INLINE hvmem_u64 hvmem__mapping_lock(struct hvmem_mapping *mapping)
{
    return hvmem__lock(&mapping->heap->host, &mapping->lock, HVMEM__RANK_LEAF);
}

HVMEM_INLINE void hvmem__mapping_unlock(struct hvmem_mapping *mapping, hvmem_u64 state)
{
    hvmem__unlock(&mapping->heap->host, &mapping->lock, HVMEM__RANK_LEAF, state);
}

/*
 * Entries are about to wait for a CPU's fault. 0: they must not, for a device walks the tables. From now on
 * no device is let in, until hvmem__mapping_faultless(). Where both may be called, asked under one lock
 * with the change of the entries: else a disarm in between takes it back. Mapping lock not held.
 */
int hvmem__mapping_may_fault(struct hvmem_mapping *mapping);

/*
 * An entry is about to be invalid while it changes its size. 0: it must not, for a device walks the tables.
 * No device is let in until hvmem__mapping_mended() was told of each such entry that it is so no more,
 * whoever made it valid again, or away with it. Mapping lock not held.
 */
int hvmem__mapping_may_break(struct hvmem_mapping *mapping);
void hvmem__mapping_mended(struct hvmem_mapping *mapping, hvmem_u64 entries);

/* No entry waits any more, if nothing was announced since `faults` had this value. Lock not held. */
void hvmem__mapping_faultless(struct hvmem_mapping *mapping, hvmem_u64 faults);

#endif
