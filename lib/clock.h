/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h: stamps of the flush clock as frames store them.
 *
 * The clock is 64 bits wide and never wraps. A frame keeps only its low HVMEM__STAMP_BITS bits; they
 * decode to the newest time at or before `now` with those bits, which is at or after the true time:
 * a flush may be superfluous, never missed. The stamp must be read before the clock.
 */
#ifndef HVMEM_LIB_CLOCK_H
#define HVMEM_LIB_CLOCK_H

#include "frame.h"

/* Width in use; narrower in tests of wrapping (at most HVMEM__STAMP_BITS). */
#ifndef HVMEM_STAMP_WIDTH
#    define HVMEM_STAMP_WIDTH HVMEM__STAMP_BITS
#endif
HVMEM_STATIC_ASSERT(HVMEM_STAMP_WIDTH >= 1 && HVMEM_STAMP_WIDTH <= HVMEM__STAMP_BITS,
                    stamp_width_fits_record);
#define HVMEM__STAMP_MASK (((hvmem_u64)1 << HVMEM_STAMP_WIDTH) - 1)

static inline hvmem_u64 hvmem__stamp_decode(hvmem_u32 stamp, hvmem_u64 now)
{
    return now - ((now - stamp) & HVMEM__STAMP_MASK);
}

static inline hvmem_u32 hvmem__stamp_encode(hvmem_u64 time)
{
    return (hvmem_u32)(time & HVMEM__STAMP_MASK);
}

/* The stamp a merged block carries: the newer of those that count (blocks owing TLB work). */
static inline hvmem_u32 hvmem__stamp_newer(hvmem_u64 now, hvmem__record left, hvmem__record right)
{
    hvmem_u32 l = hvmem__rec_stamp(left), r = hvmem__rec_stamp(right);

    if (!(hvmem__rec_owed(left) & HVMEM_OWES_TLB))
        return hvmem__rec_owed(right) & HVMEM_OWES_TLB ? r : 0;
    if (!(hvmem__rec_owed(right) & HVMEM_OWES_TLB))
        return l;
    return hvmem__stamp_decode(l, now) >= hvmem__stamp_decode(r, now) ? l : r;
}

#endif
