/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pcpu.h: per-CPU caches of single frames and of order-9 blocks, entered without a locked
 * instruction.
 *
 * THE SECTION. A CPU uses its own cache inside a section: it stores busy = 1, then loads `closed`.
 * If closed is 0 the cache and everything biased to this CPU are its alone until it stores busy = 0
 * (release). Another CPU that wants in takes the gate lock, stores closed = 1, asks the host for a
 * barrier on that CPU, and waits for busy = 0. Either the CPU saw closed = 1 and turned to the gate
 * lock, or the barrier came later and busy = 1 is seen: the barrier on the other side makes the
 * store-load order that the fast path does not pay for. Where the host has no barrier operation
 * closed stays 1 and every section takes the gate lock.
 *
 * BIAS. A block allocated through CPU c's section carries c's current token in its record. Such a
 * block is freed by plain store, but only inside c's section. A CPU that frees somebody else's
 * biased block first revokes the token: it enters c's section from outside and gives c a new token
 * (or none for a while, if that happens often). From then on all blocks with the old token are freed
 * by compare-exchange by everyone. Tokens are never used twice, so that an old record cannot match.
 *
 * Frames in a cache are CACHED: outside the free sets, counted as free, found again by draining.
 * Frames of other nodes and frames that owe something leave through `out`, a batch that is given
 * back to the arenas with one lock a section.
 */
#ifndef HVMEM_LIB_PCPU_H
#define HVMEM_LIB_PCPU_H

#include "bank.h"

#define HVMEM__MAGS       2u      /* magazines: order 0, order 9 */
#define HVMEM__MAG_ORDER1 9u      /* order of the second */
#define HVMEM__MAG_SLOTS  64u     /* capacity, order 0 */
#define HVMEM__MAG_SLOTS1 16u     /* capacity, order 9 */
#define HVMEM__OUT_SLOTS  64u     /* outgoing batch */
#define HVMEM__TOKENS     0x8000u /* tokens a heap has; 0 means none */
#define HVMEM__NO_CPU     0xffffffffu

/* One magazine. Changed inside the section only; `count` is read by anyone. */
struct hvmem__mag {
    hvmem_u32 count;
    hvmem_u32 capacity;
    hvmem__record cached; /* record of a debt-free block in this magazine */
    hvmem__record given;  /* record it gets when it is handed out to the host itself */
    hvmem_mfn *slot;
};

struct hvmem__pcpu {
    hvmem_u32 busy;   /* in the section; written by this CPU */
    hvmem_u32 closed; /* others want in, or sections take the gate; gate lock */
    hvmem_u32 token;  /* bias of what this CPU hands out; 0 = none; section */
    hvmem_u32 out_count;
    /* Bank this CPU met last; section. Constant geometry, so that no lock is needed to use it. */
    struct hvmem__bank *hint;
    struct hvmem__mag mag[HVMEM__MAGS];
    struct hvmem_lock gate;
    hvmem_u32 online;
    hvmem_u32 forced;      /* closed for good: no barrier operation */
    hvmem_u32 revocations; /* tokens lost; section */
    hvmem_u32 rest;        /* refills to go without a token; section */
    hvmem_mfn slot0[HVMEM__MAG_SLOTS];
    hvmem_mfn slot1[HVMEM__MAG_SLOTS1];
    hvmem_mfn out[HVMEM__OUT_SLOTS];
} __attribute__((aligned(128)));

/* How a section was entered, for leaving it. */
struct hvmem__section {
    struct hvmem__pcpu *pc;
    hvmem_u64 pin;
    hvmem_u64 lock_state;
    hvmem_u32 gated;
};

void hvmem__pcpu_init(struct hvmem_heap *heap);
hvmem_size hvmem__pcpu_tokens_bytes(void);

/* Enter this CPU's own section, and leave it. Pins the CPU. No lock of rank CACHE or above held. */
void hvmem__section_enter(struct hvmem_heap *heap, struct hvmem__section *s);
void hvmem__section_leave(struct hvmem_heap *heap, struct hvmem__section *s);

/* Enter and leave any CPU's section from outside. Not from inside a section. */
void hvmem__section_enter_other(struct hvmem_heap *heap, struct hvmem__section *s, hvmem_cpu cpu);

/* The node a cache serves: the nearest to its CPU that has memory. */
hvmem_node hvmem__pcpu_node(const struct hvmem_heap *heap, const struct hvmem__pcpu *pc);

/* Magazine of an order, or NULL. */
static inline struct hvmem__mag *hvmem__mag_of(struct hvmem_heap *heap, struct hvmem__pcpu *pc,
                                               hvmem_u32 order)
{
    if (heap->flags & HVMEM_CONFIG_NO_CPU_CACHE)
        return HVMEM_NULL;
    if (order == 0)
        return &pc->mag[0];
    return order == HVMEM__MAG_ORDER1 ? &pc->mag[1] : HVMEM_NULL;
}

/*
 * Take a block from this CPU's cache, refilling it if it is empty. Inside the section. Returns 0
 * if none is to be had on `node`; *status then tells E_NOMEM or E_CLAIM. The record still says
 * CACHED; the caller writes the new one.
 */
int hvmem__pcpu_take(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_u32 order,
                     struct hvmem_domain *domain, hvmem_mfn *mfn, hvmem__record **record,
                     hvmem_status *status);

/* Put a block whose record says CACHED into this CPU's cache. Inside the section. */
void hvmem__pcpu_put(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b,
                     hvmem_mfn mfn, hvmem__record record);

/*
 * Make sure that the block of this record is not biased to another CPU, so that it may be claimed
 * by compare-exchange. Not inside a section.
 */
void hvmem__unbias(struct hvmem_heap *heap, hvmem__record record);

/* Give back everything in all caches, or in one; forget bank hints (a bank is going away). */
void hvmem__pcpu_drain_all(struct hvmem_heap *heap);
void hvmem__pcpu_drain(struct hvmem_heap *heap, hvmem_cpu cpu);
void hvmem__pcpu_forget_banks(struct hvmem_heap *heap);

/* Whether any cache holds a block. */
int hvmem__pcpu_any(const struct hvmem_heap *heap);

/* Frames in all caches, on one node or anywhere. Exact when no call is running. */
hvmem_u64 hvmem__pcpu_cached(struct hvmem_heap *heap, hvmem_node node);

/* Several CPUs from now on: give tokens up, decide how sections work. */
void hvmem__pcpu_smp(struct hvmem_heap *heap);

#endif
