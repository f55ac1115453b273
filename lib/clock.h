/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * clock.h: the flush clock: stamps as frames store them, times of CPUs, and the filter between them.
 *
 * The clock is 64 bits wide and never wraps. A frame keeps only its low HVMEM__STAMP_BITS bits; they
 * decode to the newest time at or before `now` with those bits, which is at or after the true time:
 * a flush may be superfluous, never missed. The stamp must be read before the clock.
 *
 * RULES. A flush ticks before it begins and publishes that tick as its CPU's time after it ended. A
 * frame is stamped with the clock read after its last translation is gone for table walkers. Hence:
 * a CPU with time t holds nothing of a frame stamped s < t, and needs a flush if t <= s. A flush that
 * does not tick may publish the clock it read at its beginning: that claims nothing about frames
 * stamped with this value.
 *
 * FLOOR. `floor` is a lower bound of all CPUs' times: frames stamped below it owe no flush to
 * anybody. It is raised only by a scan that read the clock first and the set of CPUs after it: a CPU
 * that joins later flushes when it joins, after that clock. On broadcast hardware floor is the one
 * time there is. It never falls.
 */
#ifndef HVMEM_LIB_CLOCK_H
#define HVMEM_LIB_CLOCK_H

#include <hvmem/clock.h>

#include "heap.h"
#include "testpoint.h"

/* Width in use; narrower in tests of wrapping (at most HVMEM__STAMP_BITS). */
#ifndef HVMEM_STAMP_WIDTH
#    define HVMEM_STAMP_WIDTH HVMEM__STAMP_BITS
#endif
HVMEM_STATIC_ASSERT(HVMEM_STAMP_WIDTH >= 1 && HVMEM_STAMP_WIDTH <= HVMEM__STAMP_BITS,
                    stamp_width_fits_record);
#define HVMEM__STAMP_MASK (((hvmem_u64)1 << HVMEM_STAMP_WIDTH) - 1)

/* Debts that only a flush of translations pays: blocks with one of them carry a stamp. */
#define HVMEM__OWES_FLUSH (HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN)

/* How a heap keeps times (struct hvmem__clock.mode); fixed at init. */
#define HVMEM__CLOCK_PER_CPU   0u
#define HVMEM__CLOCK_BROADCAST 1u
#define HVMEM__CLOCK_OFF       2u

/* When a CPU last flushed everything. Written by that CPU; by others before it joins. */
struct hvmem__cpu_time {
    hvmem_u64 time;
    hvmem_u64 unused[7];
};
HVMEM_STATIC_ASSERT(sizeof(struct hvmem__cpu_time) == HVMEM_LINE, cpu_time_is_a_line);

HVMEM_INLINE hvmem_u64 hvmem__stamp_decode(hvmem_u32 stamp, hvmem_u64 now)
{
    return now - ((now - stamp) & HVMEM__STAMP_MASK);
}

HVMEM_INLINE hvmem_u32 hvmem__stamp_encode(hvmem_u64 time)
{
    return (hvmem_u32)(time & HVMEM__STAMP_MASK);
}

/*
 * The youth of a record's stamp is the larger the younger it is: its upper bits are all bits set less the
 * age, what is below them is of no account. 0 if the record owes no flush. The stamp a merged block
 * carries is the youngest of its parts'.
 */
HVMEM_INLINE hvmem_u64 hvmem__stamp_youth(hvmem__record record, hvmem_u64 now)
{
    if (!(record & (hvmem__record)HVMEM__OWES_FLUSH << 8))
        return 0;
    return (record << (32 - HVMEM_STAMP_WIDTH)) - ((now + 1) << (64 - HVMEM_STAMP_WIDTH));
}

/* The stamp of that youth. */
HVMEM_INLINE hvmem_u32 hvmem__stamp_of_youth(hvmem_u64 youth, hvmem_u64 now)
{
    return (hvmem_u32)((youth + ((now + 1) << (64 - HVMEM_STAMP_WIDTH))) >>
                       (64 - HVMEM_STAMP_WIDTH));
}

/*
 * Stamp of a frame whose last translation is gone. `stamped` remembers that this clock value was
 * given out, for flushes that tick only if there is a reason; an older value may overwrite a newer
 * one, which costs such a flush its effect and nothing else.
 */
HVMEM_INLINE hvmem_u64 hvmem__stamp_read(struct hvmem_heap *heap)
{
    hvmem_u64 now = hvmem__load(&heap->clock.now);

    if (hvmem__unlikely(hvmem__load(&heap->clock.stamped) != now))
        hvmem__store(&heap->clock.stamped, now);
    (void)HVMEM_TEST_POINT("clock_stamp");
    return now;
}

HVMEM_INLINE hvmem_u32 hvmem__stamp_now(struct hvmem_heap *heap)
{
    return hvmem__stamp_encode(hvmem__stamp_read(heap));
}

/* The time that a record's stamp stands for at most. The record was loaded before, with acquire. */
HVMEM_INLINE hvmem_u64 hvmem__stamp_time(const struct hvmem_heap *heap, hvmem__record record)
{
    return hvmem__stamp_decode(hvmem__rec_stamp(record), hvmem__load(&heap->clock.now));
}

/* A record whose flush is paid. */
HVMEM_INLINE hvmem__record hvmem__flush_paid(hvmem__record record)
{
    return hvmem__rec_with_stamp(
        hvmem__rec_with_owed(record, hvmem__rec_owed(record) & ~HVMEM__OWES_FLUSH), 0);
}

/* Number of the calling CPU where times are kept by CPU; 0 while only one runs. */
HVMEM_INLINE hvmem_cpu hvmem__clock_cpu(const struct hvmem_heap *heap)
{
    return heap->host.smp || heap->host.regime == HVMEM_LOCK_CALLER ? hvmem__this_cpu(&heap->host)
                                                                    : 0;
}

/* Set up the clock of a heap that was just cleared. */
void hvmem__clock_init(struct hvmem_heap *heap, hvmem_u32 config_flags);

/* The boot CPU turns out to be `cpu`; one CPU runs. */
void hvmem__clock_smp(struct hvmem_heap *heap, hvmem_cpu cpu);

/* Move the clock and return its new value: the time of a flush that begins after the call. */
hvmem_u64 hvmem__clock_tick(struct hvmem_heap *heap);

/* A flush of this CPU (by number) or, with broadcast hardware, of all, that began at `time` is done. */
void hvmem__clock_publish(struct hvmem_heap *heap, hvmem_cpu cpu, hvmem_u64 time);

/* Whether a frame stamped at this time owes no flush to any CPU, as far as is known without asking. */
HVMEM_INLINE int hvmem__clock_mature(const struct hvmem_heap *heap, hvmem_u64 stamp)
{
    return heap->clock.mode != HVMEM__CLOCK_OFF && stamp < hvmem__load_acquire(&heap->clock.floor);
}

/* The block of this record may still be reached by a CPU, as far as is known without asking. */
HVMEM_INLINE int hvmem__immature(const struct hvmem_heap *heap, hvmem__record record)
{
    return (hvmem__rec_owed(record) & HVMEM__OWES_FLUSH) &&
           !hvmem__clock_mature(heap, hvmem__stamp_time(heap, record));
}

/*
 * The CPUs that need a flush for `stamp`, into words[0 .. (max_cpus + 63) / 64), and the floor
 * raised. Returns how many. With the clock off: all online.
 */
hvmem_u32 hvmem__clock_scan(struct hvmem_heap *heap, hvmem_u64 stamp, hvmem_u64 *words);

/*
 * Raise the floor to what the CPUs have flushed by themselves. Looks at every CPU that is online. May be
 * called inside a section.
 */
void hvmem__clock_raise_floor(struct hvmem_heap *heap);

#endif
