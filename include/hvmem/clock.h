/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/clock.h: the flush clock of a heap, for hosts that flush translations by themselves.
 *
 * The library knows when each CPU last dropped all its translations, and asks a CPU to flush for a
 * frame only if it has not done so since the frame's last translation was removed. A host that
 * flushes everything on a CPU anyway (context switch, id rollover, migration) can say so: bracket
 * that flush with hvmem_flush_begin() and hvmem_flush_end(), and frames freed before it need no
 * flush of their own on that CPU any more.
 *
 * What a bracketed flush must drop: every translation of the CPU outside the host's permanent
 * mappings: all ids, all guests, both stages (HVMEM_FLUSH_ALL). A flush of one id is no such flush.
 *
 * The stamp of a frame is the clock when it is freed. Before it frees, the host has removed the
 * last translation and made that visible to table walkers: x86 by a locked operation or MFENCE, arm64
 * by DSB ISHST. A DMB is not enough (Arm ARM D8.2: walks are ordered by DSB).
 *
 * Hardware that invalidates on all CPUs at once (HVMEM_CAP_BROADCAST) has one time for all of them;
 * else each CPU has its own. A heap made with HVMEM_CONFIG_NO_CLOCK keeps no times: whatever is owed
 * is flushed on every CPU, and the functions below do nothing.
 */
#ifndef HVMEM_CLOCK_H
#define HVMEM_CLOCK_H

#include <hvmem/config.h>

/* Flags of hvmem_flush_begin. */
/*
 * The flush is made for another reason, as often as that may be: where nothing was freed since the
 * clock last moved it is left alone, so that idle switches write no shared line.
 */
#define HVMEM_FLUSH_OPPORTUNISTIC 1u

/* A flush between begin and end. Filled and used by the library; valid on one CPU, for one end. */
struct hvmem_flush_token {
    hvmem_u64 time;
    hvmem_cpu cpu;
    hvmem_u16 scope;
    hvmem_u16 open;
};

HVMEM_BEGIN_DECLS

/*
 * This CPU is about to flush everything in `scope`: HVMEM_SCOPE_LOCAL itself, HVMEM_SCOPE_INNER all
 * CPUs (broadcast instructions, or a hypercall that flushes every CPU). Context: pinned to the CPU
 * until end, interrupts as they are; may nest in interrupts, takes no lock. A LOCAL flush on
 * broadcast hardware is accepted and gains nothing.
 * Errors: HVMEM_E_ARG (null, scope, flag), HVMEM_E_CPU (number of this CPU).
 */
HVMEM_API hvmem_status hvmem_flush_begin(struct hvmem_heap *heap, hvmem_u32 scope, hvmem_u32 flags,
                                         struct hvmem_flush_token *token);

/*
 * The flush is complete: arm64 after the DSB that follows the TLBI, INVLPGB after TLBSYNC. If it
 * failed drop the token. Errors: HVMEM_E_ARG (null), HVMEM_E_STALE (token not begun here, or
 * ended already), HVMEM_E_CPU (token of another CPU: the flush was not on this one; it is void).
 */
HVMEM_API hvmem_status hvmem_flush_end(struct hvmem_heap *heap, struct hvmem_flush_token *token);

HVMEM_END_DECLS

#endif
