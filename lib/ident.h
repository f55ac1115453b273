/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ident.h: identifiers by generations, as the space module uses them.
 *
 * A tag is one word, generation and number: generation << shift | id. Generation 1 with number 0 is
 * the tag of a CPU that runs no space; 0 means "none". Allocation starts in generation 2.
 *
 * INVARIANTS, common numbering (without HVMEM_IDENT_PER_CPU):
 *  - bit n of `used` is set if in the current generation a space owns number n, or a CPU may still
 *    have n loaded for one, or it is pinned.
 *  - cpu.active is the tag the CPU switched to last; 0 since a rollover, then cpu.reserved is what
 *    it was, or 0 if the CPU ran none. Leaving 0 takes the lock, and pays `pending` first.
 *  - a number that some CPU reserves stays with its space in the new generation.
 *  - between a switch and hvmem_space_entered() the hardware may still run the old space: until then
 *    cpu.leaving_tag keeps that number from being handed out by a rollover (own numbering too).
 * Own numbering: a CPU's active, reserved, generation and next are its own; others only set pending.
 */
#ifndef HVMEM_LIB_IDENT_H
#define HVMEM_LIB_IDENT_H

#include <hvmem/ident.h>

#include "deps.h"
#include "lock.h"
#include "testpoint.h"

struct hvmem_space;

/* One CPU. The first line is read by others (flush targets, rollover); the second is its own. */
struct hvmem__ident_cpu {
    hvmem_u64 active;            /* tag switched to last; 0: rollover happened since */
    hvmem_u64 reserved;          /* tag kept over the rollover; changes under the lock */
    struct hvmem_space *loaded;  /* space the CPU runs */
    struct hvmem_space *leaving; /* space the hardware may still run until the switch is complete */
    hvmem_u32 pending;           /* everything must be forgotten before the next switch */
    hvmem_u32 lazy;              /* `loaded` is loaded but not used */
    hvmem_u32 online;
    hvmem_u32 unused_a;
    hvmem_u64 leaving_tag; /* tag of `leaving`; 0 once the switch is complete */
    hvmem_u64 unused_b;

    hvmem_u64 generation; /* own numbering: generation, shifted */
    hvmem_u32 next;       /* own numbering: next number to hand out */
    hvmem_u32 owed_all;   /* a pending flush was taken over and is not done yet */
    hvmem_u64 rollovers;  /* own numbering */
    hvmem_u64 assigned;   /* own numbering */
    /* What to note in the space's cell once the entry has flushed (HVMEM_IDENT_ENTRY). */
    struct hvmem_space *owed_space;
    hvmem_u64 seen;
    hvmem_u64 runner;
    hvmem_u64 runner_flushes;
};
HVMEM_STATIC_ASSERT(sizeof(struct hvmem__ident_cpu) == 2 * HVMEM_LINE, ident_cpu_is_two_lines);

/* What a space owns, common numbering. Changes under the IDENT lock; word is read without. */
struct hvmem__ident_tag {
    hvmem_u64 word;
    hvmem_u32 pinned; /* the number is this space's for good */
    hvmem_u32 reserved;
};

struct hvmem_ident {
    /* Read by every switch, written at rollover only. */
    hvmem_u64 generation; /* shifted */
    hvmem_u32 flags;
    hvmem_u32 shift; /* bits of a number */
    hvmem_u32 max_cpus;
    hvmem_u32 regime;
    hvmem_u32 first;
    hvmem_u32 last; /* highest number handed out */
    struct hvmem__ident_cpu *cpus;
    struct hvmem_backend *backend;
    hvmem_u64 unused[2];

    struct hvmem__host host;

    struct hvmem_lock lock; /* rank IDENT; guards what follows */
    hvmem_u64 *used;
    hvmem_u64 *pinned;
    hvmem_u32 words; /* of each set */
    hvmem_u32 next;
    hvmem_u32 in_use; /* bits of `used` from first to last */
    hvmem_u32 pins;
    hvmem_u64 rollovers;
    hvmem_u64 assigned;
    hvmem_u64 returned;
    hvmem_u64 refused; /* atomic */
};

HVMEM_INLINE hvmem_u32 hvmem__ident_number(const struct hvmem_ident *ident, hvmem_u64 tag)
{
    return (hvmem_u32)(tag & (((hvmem_u64)1 << ident->shift) - 1));
}

/* The tag of a CPU that runs no space. */
HVMEM_INLINE hvmem_u64 hvmem__ident_idle(const struct hvmem_ident *ident)
{
    return (hvmem_u64)1 << ident->shift;
}

HVMEM_INLINE int hvmem__ident_current(const struct hvmem_ident *ident, hvmem_u64 tag)
{
    return !((tag ^ hvmem__load(&ident->generation)) >> ident->shift);
}

/*
 * The CPU's hardware runs on `tag` until it has loaded the next one. Before `active` changes, so that
 * a rollover sees it in one place or the other. A tag that is noted already stays (a switch before
 * this one was not finished), but for a newer word of its number. On the CPU itself.
 */
HVMEM_INLINE void hvmem__ident_leave_tag(const struct hvmem_ident *ident,
                                         struct hvmem__ident_cpu *me, hvmem_u64 tag)
{
    hvmem_u32 noted = hvmem__ident_number(ident, me->leaving_tag);
    hvmem_u32 number = hvmem__ident_number(ident, tag);

    if (number && (!noted || noted == number))
        hvmem__store(&me->leaving_tag, tag);
}

/* Count and report a mistake of the caller; returns it. No lock may be held. */
hvmem_status hvmem__ident_refuse(struct hvmem_ident *ident, hvmem_status code);

/* Common numbering, tag out of date or rollover happened. Takes the IDENT lock. */
hvmem_status hvmem__ident_take_slow(struct hvmem_ident *ident, hvmem_cpu cpu,
                                    struct hvmem__ident_tag *tag);

/* Own numbering. On the CPU itself, no lock. `retire`: the number must not be used again. */
hvmem_status hvmem__ident_take_own(struct hvmem_ident *ident, hvmem_cpu cpu, hvmem_u64 *tag,
                                   int retire);

/*
 * Common numbering: make *tag valid in the current generation and the CPU's active one.
 * HVMEM_E_NOID changes nothing the CPU runs on. cpu.owed_all tells of a flush to do first.
 * On the CPU itself; no lock held.
 */
HVMEM_INLINE hvmem_status hvmem__ident_take(struct hvmem_ident *ident, hvmem_cpu cpu,
                                            struct hvmem__ident_tag *tag)
{
    struct hvmem__ident_cpu *me = &ident->cpus[cpu];
    hvmem_u64 now = hvmem__load(&me->active);
    hvmem_u64 want = hvmem__load(&tag->word);

    /*
     * Only a rollover changes `active` besides this CPU, and only to 0: if the exchange succeeds,
     * the rollover that follows finds `want` here and keeps the number for us. The generation may
     * be read before: were it old, a rollover would have put 0 here since `now` was read.
     */
    if (hvmem__likely(now && hvmem__ident_current(ident, want))) {
        if (now == want)
            return HVMEM_OK;
        hvmem__ident_leave_tag(ident, me, now);
        (void)HVMEM_TEST_POINT("ident_before_exchange");
        if (__atomic_compare_exchange_n(&me->active, &now, want, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return HVMEM_OK;
    }
    return hvmem__ident_take_slow(ident, cpu, tag);
}

/*
 * The CPU runs no space any more. `ran`: its hardware ran the active tag, and does until it has
 * loaded id 0. On the CPU itself; may take the IDENT lock.
 */
void hvmem__ident_drop(struct hvmem_ident *ident, hvmem_cpu cpu, int ran);

/*
 * Give a number back within its generation: no CPU has it loaded, none holds a translation tagged
 * with it. Takes the IDENT lock.
 */
void hvmem__ident_release(struct hvmem_ident *ident, hvmem_u64 tag);

/* Pin the number of a space (giving it one first); unpin. Take the IDENT lock. */
hvmem_status hvmem__ident_pin(struct hvmem_ident *ident, struct hvmem__ident_tag *tag);
void hvmem__ident_unpin(struct hvmem_ident *ident, struct hvmem__ident_tag *tag);

/* Every CPU forgets everything before its next switch. Takes the IDENT lock. */
void hvmem__ident_flush_all(struct hvmem_ident *ident);

/* Common numbering: end the generation. IDENT lock held. */
void hvmem__ident_rollover(struct hvmem_ident *ident);

/* Invalidate the whole regime (and what ROOTS adds). No lock needed. */
hvmem_status hvmem__ident_flush_regime(struct hvmem_ident *ident, hvmem_u32 scope);

#endif
