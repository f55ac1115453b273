/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pcpu.h: per-CPU caches of blocks up to order 9, entered without a locked instruction.
 *
 * THE SECTION. A CPU uses its own cache inside a section: it stores busy = 1, then loads `closed`.
 * If closed is 0 the cache and everything biased to this CPU are its alone until it stores busy = 0
 * (release). Another CPU that wants in takes the gate lock, stores closed = 1, asks the host for a
 * barrier on that CPU, and waits for busy = 0. Either the CPU saw closed = 1 and turned to the gate
 * lock, or the barrier came later and busy = 1 is seen: the barrier on the other side makes the
 * store-load order that the fast path does not pay for. Where the host has no barrier operation
 * closed stays 1 and every section takes the gate lock.
 *
 * A barrier that fails says nothing about what the CPU has seen: it may be inside with busy still in
 * its store buffer. Then nobody enters. closed stays raised for good (forced ASKED) and the call is
 * refused with E_HOST. The CPU's next section takes the gate lock, finds ASKED, and from then on
 * (forced KNOWN) is known to take it always, for `closed` never falls to 0 again: the lock is enough.
 * What had been asked of the cache meanwhile is done in that moment: it is emptied and its hints are
 * forgotten. A later barrier that succeeds proves the same.
 *
 * BIAS. A block allocated through CPU c's section carries c's current token in its record. Such a
 * block is freed by plain store, but only inside c's section. A CPU that frees somebody else's
 * biased block first revokes the token: it enters c's section from outside and gives c a new token
 * (or none for a while, if that happens often). From then on all blocks with the old token are freed
 * by compare-exchange by everyone. Tokens are never used twice, so that an old record cannot match.
 *
 * In front of the order-0 magazine stands one hot frame (hvmem/fast.h), so that a hot pair neither
 * counts nor indexes. It is used only while the CPU has a token, and moves into the magazine before
 * the token or the bank that `fast` describes changes.
 *
 * Frames in a cache are CACHED: outside the free sets, counted as free, found again by draining.
 * What is freed and owes something goes to the queues of ageing.h; frames of other nodes leave
 * through `out`, a batch that is given back to the arenas with one lock a section.
 *
 * MIDDLE ORDERS. Orders 1 to 8 have small magazines and nothing else: only the host's own blocks that owe
 * nothing go through them (magazine.h). What owes something goes home, requests take from the arenas.
 *
 * ORDER OF REUSE: the magazine; what is mature in the queue; while the queue is not full, as much clean
 * memory as it still has room for, small remainders before larger blocks; the oldest of the queue (one
 * flush for all in it); and last what is not mature in the arenas.
 */
#ifndef HVMEM_LIB_PCPU_H
#define HVMEM_LIB_PCPU_H

#include <hvmem/fast.h>

#include "bank.h"
#include "claim.h"

#define HVMEM__MAGS          10u   /* magazines: one for each order up to 9 */
#define HVMEM__MAG_ORDER1    9u    /* the order that has queues and requests, beside order 0 */
#define HVMEM__MAG_SLOTS     64u   /* capacity, order 0 */
#define HVMEM__MAG_SLOTS1    16u   /* capacity, order 9 */
#define HVMEM__MAG_MIDDLE    88u   /* all others: 11 MiB of 4 KiB frames (hvmem__mag_slots) */
#define HVMEM__OUT_SLOTS     64u   /* outgoing batch */
#define HVMEM__AGEING_SLOTS  2048u /* blocks that age, order 0: 8 MiB of 4 KiB frames */
#define HVMEM__AGEING_SLOTS1 16u   /* order 9 */
#define HVMEM__TOKENS        HVMEM__BIAS_SAYS /* tokens a heap has; 0 means none */
#define HVMEM__NEAR          64u /* banks remembered, by the low bits of the arena's number */
#define HVMEM__FILLED        (1u | 1u << HVMEM__MAG_ORDER1) /* always in pcpu.filled */
#define HVMEM__NO_CPU        0xffffffffu

/* One magazine. Changed inside the section only; `count` is read by anyone. */
struct hvmem__mag {
    hvmem_u32 count;
    hvmem_u32 capacity;   /* 0: shut */
    hvmem__record cached; /* record of a debt-free block in this magazine */
    hvmem__record given;  /* record it gets when it is handed out to the host itself */
    hvmem_mfn *slot;
};

struct hvmem__pcpu {
    /* First: its address is the handle. Section, hot frame, queues (ageing.h), credit (credit.h). */
    struct hvmem_cpu_cache fast;
    struct hvmem__bank *bank; /* whose geometry `fast` holds; constant while it is live; section */
    hvmem_u32 token;          /* bias of what this CPU hands out; 0 = none; section */
    hvmem_u32 out_count;
    struct hvmem__mag mag[HVMEM__MAGS];
    struct hvmem_lock gate;
    struct hvmem__bank *met; /* bank this CPU took a block from past its cache; a hint, atomic */
    hvmem_u32 online;
    hvmem_u32 forced;      /* HVMEM__FORCED_*; gate lock; KNOWN is final and read by anyone */
    hvmem_u32 filled;      /* bit k: the magazine of order k may hold blocks; section */
    hvmem_u32 revocations; /* tokens lost; section */
    hvmem_u32 rest;        /* refills to go without a token; section */
    struct hvmem__bank *near[HVMEM__NEAR]; /* banks of its node, their tables not clean; section */
    hvmem_mfn slot[HVMEM__MAG_SLOTS + HVMEM__MAG_MIDDLE + HVMEM__MAG_SLOTS1];
    hvmem_mfn out[HVMEM__OUT_SLOTS];
    hvmem_u8 out_order[HVMEM__OUT_SLOTS]; /* of these: for who counts them from another CPU */
} __attribute__((aligned(128)));

/* Whether a cache is closed for good (pcpu.forced). */
#define HVMEM__FORCED_NOT   0u
#define HVMEM__FORCED_ASKED 1u /* closed, but its CPU may not have seen it: a barrier failed */
#define HVMEM__FORCED_KNOWN 2u /* its CPU has seen it, or the host has no barrier operation */

/* How a section was entered, for leaving it. */
struct hvmem__section {
    struct hvmem__pcpu *pc;
    hvmem_u64 pin;
    hvmem_u64 lock_state;
    hvmem_u32 gated; /* HVMEM__GATED_* */
};
#define HVMEM__GATED_NOT    0u /* own section, free of locks */
#define HVMEM__GATED_OWN    1u /* own section, through the gate lock */
#define HVMEM__GATED_OTHER  2u /* from outside, through the gate lock */
#define HVMEM__GATED_NOBODY 3u /* from outside while only one CPU runs: nothing to undo */

void hvmem__pcpu_init(struct hvmem_heap *heap);

/* The calling CPU's own cache; pinned. */
HVMEM_INLINE struct hvmem__pcpu *hvmem__pcpu_own(struct hvmem_heap *heap, hvmem_u64 *pin)
{
    hvmem_cpu cpu = 0;

    *pin = hvmem__pin(&heap->host);
    if (hvmem__likely(heap->host.smp)) {
        cpu = hvmem__this_cpu(&heap->host);
        HVMEM__ASSERT(&heap->host, cpu < heap->max_cpus);
    }
    return &heap->pcpu[cpu];
}

/* The CPU that this is just now, not pinned: for hints, of which any CPU's will do. */
HVMEM_INLINE hvmem_cpu hvmem__pcpu_number(const struct hvmem_heap *heap)
{
    hvmem_cpu cpu = heap->host.smp ? hvmem__this_cpu(&heap->host) : 0;

    HVMEM__ASSERT(&heap->host, cpu < heap->max_cpus);
    return cpu;
}

/*
 * The bank that a CPU met last past its cache, if it holds mfn, else what the directory says. As
 * hvmem__bank_of(): to be checked again under the arena's lock.
 */
HVMEM_INLINE struct hvmem__bank *hvmem__pcpu_bank_of(struct hvmem_heap *heap,
                                                     const struct hvmem__pcpu *pc, hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__load(&pc->met);

    if (hvmem__likely(b != HVMEM_NULL) &&
        hvmem__likely(mfn - hvmem__load(&b->base) < hvmem__load(&b->frames)))
        return b;
    return hvmem__bank_of(heap, mfn);
}

/* The two halves of the fast section. A caller that finds it closed ends it and takes the gate. */
HVMEM_INLINE int hvmem__section_begin(struct hvmem__pcpu *pc)
{
    return hvmem__likely(hvmem_fast_open(&pc->fast));
}

HVMEM_INLINE void hvmem__section_end(struct hvmem__pcpu *pc)
{
    hvmem_fast_close(&pc->fast);
}

/* Enter this CPU's own section, and leave it. Pins the CPU. No lock of rank CACHE or above held. */
void hvmem__section_enter(struct hvmem_heap *heap, struct hvmem__section *s);
void hvmem__section_leave(struct hvmem_heap *heap, struct hvmem__section *s);

/*
 * Enter any CPU's section from outside; left in the same way. Not from inside a section, no lock
 * held. E_HOST: the host cannot tell what that CPU has seen; not entered, nothing to leave.
 */
hvmem_status hvmem__section_enter_other(struct hvmem_heap *heap, struct hvmem__section *s,
                                        hvmem_cpu cpu);

/* The node a cache serves: the nearest to its CPU that has memory. */
hvmem_node hvmem__pcpu_node_far(const struct hvmem_heap *heap, const struct hvmem__pcpu *pc);

HVMEM_INLINE hvmem_node hvmem__pcpu_node(const struct hvmem_heap *heap,
                                         const struct hvmem__pcpu *pc)
{
    hvmem_node home = heap->cpu_node[pc - heap->pcpu];

    if (hvmem__likely(hvmem__load(&heap->node_mask) >> home & 1))
        return home;
    return hvmem__pcpu_node_far(heap, pc);
}

/* Whether blocks of an order go through caches whoever they are for and whatever they owe. */
HVMEM_INLINE int hvmem__cacheable(const struct hvmem_heap *heap, hvmem_u32 order)
{
    return (order == 0 || order == HVMEM__MAG_ORDER1) && !(heap->flags & HVMEM_CONFIG_NO_CPU_CACHE);
}

/* Queue of an order that is cacheable. */
HVMEM_INLINE struct hvmem_cpu_queue *hvmem__ageing_of(struct hvmem__pcpu *pc, hvmem_u32 order)
{
    return order ? &pc->fast.queue[1] : &pc->fast.queue[0];
}

/* What a CPU's cache handed out. */
struct hvmem__taken {
    hvmem_mfn mfn;
    hvmem__record *at;    /* still says CACHED; the caller writes the new record */
    hvmem__record record; /* what it said, without a flush that is paid already */
    hvmem_u64 flush_for;  /* if it owes a flush: its stamp or a newer one of the queue; else 0 */
};

/*
 * Take a block from this CPU's cache, refilling it if it is empty, in the order of reuse above.
 * noflush: only one that owes no flush any more. nodes: where it may lie; while a node nearer to this CPU
 * gets its first memory, others' blocks are in the cache. Inside the section. Returns 0 if none is to be
 * had; *status then tells E_NOMEM or E_CLAIM.
 */
int hvmem__pcpu_take(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order, int noflush,
                     hvmem_u64 nodes, struct hvmem_domain *domain, struct hvmem__drawn *drawn,
                     struct hvmem__taken *taken, hvmem_status *status);

/* Make the bank, which holds a block in this CPU's cache, the one of the short ways. Inside the section. */
void hvmem__pcpu_remember(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b);

/* Put a block whose record says CACHED into this CPU's cache. Inside the section. */
void hvmem__pcpu_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record);

/* Whether a record's bias names a token that is alive and not this section's own. */
HVMEM_INLINE int hvmem__biased_elsewhere(struct hvmem_heap *heap, const struct hvmem__pcpu *pc,
                                         hvmem__record record)
{
    hvmem_u32 token = hvmem__rec_bias(record);

    return token && token < HVMEM__TOKENS && token != pc->token &&
           hvmem__load_acquire(&heap->token_cpu[token]) != HVMEM__NO_CPU;
}

/*
 * Make sure that the block of this record is not biased to another CPU, so that it may be claimed
 * by compare-exchange. Not inside a section. E_HOST: it may still be.
 */
hvmem_status hvmem__unbias(struct hvmem_heap *heap, hvmem__record record);

/* Work out what blocks of the credit's domain are given out as. Inside the section. */
void hvmem__pcpu_name_owner(struct hvmem__pcpu *pc);
/* A token for this CPU, if it has none and may have one now. Inside the section. */
void hvmem__pcpu_want_token(struct hvmem_heap *heap, struct hvmem__pcpu *pc);

/* Several CPUs from now on: give tokens up, decide how sections work. */
void hvmem__pcpu_smp(struct hvmem_heap *heap);

#endif
