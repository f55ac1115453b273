/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frame.h: the record of a frame, 8 bytes, and its accessors. Nothing else knows the bit layout.
 *
 *   bits  0-4   order of the block
 *         5-7   state, HVMEM_BLOCK_*
 *         8-15  owed, HVMEM_OWES_*
 *        16-31  owner: domain id, 0 = the host itself
 *        32-47  stamp: low bits of the flush clock when its last translation was removed
 *        48-63  bias: token of the CPU that may free the block without a locked instruction;
 *               0 = none; with the top bit set no token but what HVMEM__BIAS_* say
 *        32-63  in state GATHERED instead of both: link, the low bits of the next block's frame
 *               number (gathered.h)
 *
 * Whose record counts:
 *  - head bit set: the frame starts a block that is not in the free set; its record describes it.
 *  - free bit of order k set: the frame starts a free block; owed, stamp and MIXED of its record
 *    describe the block (state and owner are 0, order is k).
 *  - otherwise the frame is inside a block and its record means nothing, except: a frame that is
 *    the first of the right half of a MIXED buddy node holds that node's dirt (dirt.h); the second
 *    frame of a block with HVMEM__BIAS_SCRUBBING holds how much of it was scrubbed (scrubbed.c).
 * Only such records are ever read; the table starts with unknown content.
 *
 * Who may change it: under the arena's lock, but for blocks that go through caches: those of orders 0
 * and 9, and of the orders between them the host's own. Of those ALLOCATED -> anything is by
 * compare-exchange (hvmem__frame_claim), or by plain store on the CPU whose token is in `bias`
 * (pcpu.h); CACHED -> anything by the CPU that has the frame in its cache, inside its section. GATHERED ->
 * anything by whoever runs the gather. A populate takes HELD away by compare-exchange, of any order.
 */
#ifndef HVMEM_LIB_FRAME_H
#define HVMEM_LIB_FRAME_H

#include <hvmem/heap.h>

#include "deps.h"
#include "hostcall.h"

typedef hvmem_u64 hvmem__record;

/*
 * What `bias` says that is no token (pcpu.h), bit by bit. HELD, UNTOUCHED and TABLE are said of blocks in
 * use, the former two of a domain's. Such a block has no token, as others may.
 */
#define HVMEM__BIAS_SAYS      0x8000u /* in all of them; from here on nothing is a token */
#define HVMEM__BIAS_MIXED     0x8001u /* SCRUB is owed by a part of the block only */
#define HVMEM__BIAS_HELD      0x8002u /* an open populate took it and has not mapped it yet */
#define HVMEM__BIAS_UNTOUCHED 0x8004u /* mapped for first touch, which pays for the contents */
#define HVMEM__BIAS_SCRUBBING 0x8008u /* see HVMEM__TAKEN_OUT */
#define HVMEM__BIAS_TABLE     0x8010u /* a stage 2 has it for its tables, until it gives it back */
#define HVMEM__STAMP_BITS     16u

HVMEM_STATIC_ASSERT(HVMEM_ORDER_LIMIT < 32, order_fits_5_bits);
HVMEM_STATIC_ASSERT(HVMEM_BLOCK_QUARANTINE < 8, state_fits_3_bits);
HVMEM_STATIC_ASSERT(HVMEM_OWES_ANY == 0xffu, owed_fits_8_bits);

HVMEM_INLINE hvmem_u32 hvmem__rec_order(hvmem__record r)
{
    return (hvmem_u32)(r & 31u);
}

HVMEM_INLINE hvmem_u32 hvmem__rec_state(hvmem__record r)
{
    return (hvmem_u32)(r >> 5) & 7u;
}

HVMEM_INLINE hvmem_u32 hvmem__rec_owed(hvmem__record r)
{
    return (hvmem_u32)(r >> 8) & 0xffu;
}

HVMEM_INLINE hvmem_u32 hvmem__rec_owner(hvmem__record r)
{
    return (hvmem_u32)(r >> 16) & 0xffffu;
}

HVMEM_INLINE hvmem_u32 hvmem__rec_stamp(hvmem__record r)
{
    return (hvmem_u32)(r >> 32) & 0xffffu;
}

HVMEM_INLINE hvmem_u32 hvmem__rec_bias(hvmem__record r)
{
    return (hvmem_u32)(r >> 48);
}

HVMEM_INLINE hvmem__record hvmem__rec_make(hvmem_u32 order, hvmem_u32 state, hvmem_u32 owner)
{
    return (hvmem__record)order | (hvmem__record)state << 5 | (hvmem__record)owner << 16;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_order(hvmem__record r, hvmem_u32 order)
{
    return (r & ~(hvmem__record)31u) | order;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_state(hvmem__record r, hvmem_u32 state)
{
    return (r & ~((hvmem__record)7u << 5)) | (hvmem__record)state << 5;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_owed(hvmem__record r, hvmem_u32 owed)
{
    return (r & ~((hvmem__record)0xffu << 8)) | (hvmem__record)owed << 8;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_owner(hvmem__record r, hvmem_u32 owner)
{
    return (r & ~((hvmem__record)0xffffu << 16)) | (hvmem__record)owner << 16;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_stamp(hvmem__record r, hvmem_u32 stamp)
{
    return (r & ~((hvmem__record)0xffffu << 32)) | (hvmem__record)(stamp & 0xffffu) << 32;
}

HVMEM_INLINE hvmem__record hvmem__rec_with_bias(hvmem__record r, hvmem_u32 bias)
{
    return (r & ~((hvmem__record)0xffffu << 48)) | (hvmem__record)bias << 48;
}

/* Only in state GATHERED, where neither stamp nor bias nor MIXED exist. */
HVMEM_INLINE hvmem_u32 hvmem__rec_link(hvmem__record r)
{
    return (hvmem_u32)(r >> 32);
}

HVMEM_INLINE hvmem__record hvmem__rec_with_link(hvmem__record r, hvmem_u32 link)
{
    return (r & 0xffffffffu) | (hvmem__record)link << 32;
}

/*
 * Dirt of a block or of half a buddy node; of a MIXED one the record at its right half's start tells more.
 */
#define HVMEM__DIRT_CLEAN 0u
#define HVMEM__DIRT_DIRTY 1u
#define HVMEM__DIRT_MIXED 2u

/*
 * SCRUBBING: its owner frees it in steps, its second frame's record says how far that is (scrubbed.c). RESERVED:
 * free to everybody but the call that has taken it out: scrub.c, run.c until all is there, removal.c.
 */
#define HVMEM__TAKEN_OUT ((hvmem__record)HVMEM__BIAS_SCRUBBING << 48)
HVMEM_INLINE int hvmem__rec_taken_out(hvmem__record r)
{
    return hvmem__rec_state(r) == HVMEM_BLOCK_RESERVED && !(~r & HVMEM__TAKEN_OUT);
}

/* Which of HELD, UNTOUCHED and TABLE a block in use says, less _SAYS; mostly none. (A link is no bias.) */
HVMEM_INLINE hvmem_u32 hvmem__rec_said(hvmem__record r)
{
    if (hvmem__likely(!(r >> 63)) || (hvmem__rec_state(r) != HVMEM_BLOCK_ALLOCATED &&
                                      hvmem__rec_state(r) != HVMEM_BLOCK_OFFLINING))
        return 0;
    return hvmem__rec_bias(r) & ~HVMEM__BIAS_SAYS &
           (HVMEM__BIAS_HELD | HVMEM__BIAS_UNTOUCHED | HVMEM__BIAS_TABLE);
}

/* Mapped untouched: first touches pay for its contents; its dirt tells what is left to pay (touched.h). */
HVMEM_INLINE int hvmem__rec_untouched(hvmem__record r)
{
    return (hvmem__rec_said(r) & HVMEM__BIAS_UNTOUCHED) != 0;
}

/* A populate's until it is mapped: a slot's frames are nobody else's when they are mapped or given back. */
HVMEM_INLINE int hvmem__rec_held(hvmem__record r)
{
    return (hvmem__rec_said(r) & HVMEM__BIAS_HELD) != 0;
}

/* A stage 2's, in use as a table or ready for it: until hardware walks it no more, and it is given back. */
HVMEM_INLINE int hvmem__rec_table(hvmem__record r)
{
    return (hvmem__rec_said(r) & HVMEM__BIAS_TABLE) != 0;
}

/* Either: who would free, gather or share it by its number is refused. */
HVMEM_INLINE int hvmem__rec_kept(hvmem__record r)
{
    return (hvmem__rec_said(r) & (HVMEM__BIAS_HELD | HVMEM__BIAS_TABLE)) != 0;
}

HVMEM_INLINE hvmem_u32 hvmem__rec_dirt(hvmem__record r)
{
    if (!(hvmem__rec_owed(r) & HVMEM_OWES_SCRUB))
        return HVMEM__DIRT_CLEAN;
    return (hvmem__rec_bias(r) & HVMEM__BIAS_MIXED) == HVMEM__BIAS_MIXED ? HVMEM__DIRT_MIXED
                                                                         : HVMEM__DIRT_DIRTY;
}

/* The same without some of the bits that say something, tokens apart. */
HVMEM_INLINE hvmem__record hvmem__rec_unsay(hvmem__record r, hvmem_u32 bits)
{
    hvmem_u32 bias = hvmem__rec_bias(r) & ~(bits & ~HVMEM__BIAS_SAYS);

    return hvmem__rec_with_bias(r, bias == HVMEM__BIAS_SAYS ? 0 : bias);
}

/* An untouched block stays so, unless it becomes clean: then it owes no clean either. One kept stays kept. */
HVMEM_INLINE hvmem__record hvmem__rec_with_dirt(hvmem__record r, hvmem_u32 dirt)
{
    hvmem_u32 owed = hvmem__rec_owed(r) & ~HVMEM_OWES_SCRUB, kept = hvmem__rec_said(r);

    if (dirt != HVMEM__DIRT_CLEAN)
        owed |= HVMEM_OWES_SCRUB;
    if (hvmem__unlikely(kept != 0)) {
        if (dirt == HVMEM__DIRT_CLEAN && kept & HVMEM__BIAS_UNTOUCHED) {
            owed &= ~HVMEM_OWES_DCACHE;
            kept &= ~HVMEM__BIAS_UNTOUCHED;
        }
        kept |= kept ? HVMEM__BIAS_SAYS : 0;
    }
    if (dirt == HVMEM__DIRT_MIXED)
        kept |= HVMEM__BIAS_MIXED;
    return hvmem__rec_with_owed(hvmem__rec_with_bias(r, kept), owed);
}

/*
 * What of an allocated block's debts waits for a settle. Not so: the contents of untouched blocks,
 * which wait for their first touch, and the mark of a block that its owner has mapped elsewhere, which
 * is FOREIGN without TLB (debts of earlier owners come with TLB) and becomes due when it is freed.
 */
HVMEM_INLINE hvmem_u32 hvmem__rec_debts(hvmem__record r)
{
    hvmem_u32 owed = hvmem__rec_owed(r);

    if (hvmem__unlikely(hvmem__rec_untouched(r)))
        owed &= ~(HVMEM_OWES_SCRUB | HVMEM_OWES_DCACHE);
    if (hvmem__rec_owner(r) && !(owed & HVMEM_OWES_TLB))
        owed &= ~HVMEM_OWES_FOREIGN;
    return owed;
}

/*
 * Change a record from `from` to `to` if it still is `from`. With smp by compare-exchange, so that
 * of two CPUs that free one block exactly one succeeds.
 */
HVMEM_INLINE int hvmem__frame_claim(const struct hvmem__host *host, hvmem__record *record,
                                    hvmem__record from, hvmem__record to)
{
    if (host->smp)
        return __atomic_compare_exchange_n(record, &from, to, 0, __ATOMIC_ACQ_REL,
                                           __ATOMIC_RELAXED);
    if (hvmem__load(record) != from)
        return 0;
    hvmem__store(record, to);
    return 1;
}

#endif
