/* SPDX-License-Identifier: BSD-2-Clause */
/* magazine.c: the host's own blocks out of the magazines of this CPU, and back into them. */
#include "magazine.h"

#include "drain.h"
#include "free.h"
#include "plain.h"
#include "testpoint.h"

/* Fill an empty magazine of a middle order by half; whether it is not empty any more. Inside the section. */
static int refill(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__mag *mag,
                  hvmem_u32 order)
{
    hvmem_u32 got, i;

    if (order > heap->max_order || heap->adopting || HVMEM_TEST_POINT("refill"))
        return 0;
    if (hvmem__unlikely(!mag->capacity)) {
        if (hvmem__load(&heap->claims_active))
            return 0;
        hvmem__pcpu_set_open(pc, 1);
    }
    hvmem__pcpu_want_token(heap, pc);
    got = hvmem__plain_take_some(heap, mag->cached, mag->slot, mag->capacity / 2);
    /* The lowest address goes out first. */
    for (i = 0; i < got / 2; i++) {
        hvmem_mfn other = mag->slot[i];

        hvmem__store(&mag->slot[i], mag->slot[got - 1 - i]);
        hvmem__store(&mag->slot[got - 1 - i], other);
    }
    hvmem__store(&pc->filled, pc->filled | 1u << order);
    hvmem__store(&mag->count, got);
    return got != 0;
}

/* The bank that holds mfn, if this CPU knows it and serves its node. Inside the section. */
HVMEM_INLINE struct hvmem__bank *hvmem__near(const struct hvmem_heap *heap,
                                             const struct hvmem__pcpu *pc, hvmem_mfn mfn)
{
    struct hvmem__bank *b = pc->near[(mfn >> heap->arena_order) % HVMEM__NEAR];

    return hvmem__likely(b && hvmem__bank_holds(b, mfn)) ? b : (struct hvmem__bank *)HVMEM_NULL;
}

/*
 * Remember a bank that holds a block in this CPU's cache: near[] is true of its node and its table until
 * it is forgotten (a bank is added or removed, a table is made clean). Inside the section.
 */
static void learn(struct hvmem_heap *heap, struct hvmem__pcpu *pc, struct hvmem__bank *b)
{
    if (b->node != hvmem__pcpu_node(heap, pc))
        return;
    hvmem__table_changes(b->table);
    pc->near[(b->base >> heap->arena_order) % HVMEM__NEAR] = b;
}

/* The bank of a block that is in this CPU's cache. Inside the section. */
HVMEM_INLINE struct hvmem__bank *bank_of_cached(struct hvmem_heap *heap, struct hvmem__pcpu *pc,
                                                hvmem_mfn mfn)
{
    struct hvmem__bank *b = hvmem__near(heap, pc, mfn);

    if (hvmem__unlikely(!b)) {
        b = hvmem__pcpu_bank_of(heap, pc, mfn);
        learn(heap, pc, b);
    }
    return b;
}

int hvmem__magazine_take(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn)
{
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    struct hvmem__mag *mag = &pc->mag[order];
    int done = 0;

    if (hvmem__section_begin(pc) && mag->count) {
        hvmem_mfn taken = mag->slot[mag->count - 1];
        struct hvmem__bank *b = bank_of_cached(heap, pc, taken);
        hvmem__record *at = hvmem__record_at(b, taken);

        done = hvmem__load(at) == mag->cached; /* or it owes something */
        if (hvmem__likely(done)) {
            if (b != pc->bank)
                hvmem__pcpu_remember(heap, pc, b);
            hvmem__store(at, mag->given);
            hvmem__store(&mag->count, mag->count - 1);
            *mfn = taken;
        }
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    return done;
}

int hvmem__magazine_take_middle(struct hvmem_heap *heap, hvmem_u32 order, hvmem_mfn *mfn)
{
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    struct hvmem__mag *mag = &pc->mag[order];
    int done = 0, filled = 0;

    if (hvmem__section_begin(pc)) {
        if (hvmem__unlikely(!mag->count))
            filled = refill(heap, pc, mag, order);
        if (hvmem__likely(mag->count)) {
            hvmem_mfn taken = mag->slot[mag->count - 1];

            hvmem__store(hvmem__record_at(bank_of_cached(heap, pc, taken), taken), mag->given);
            hvmem__store(&mag->count, mag->count - 1);
            *mfn = taken;
            done = 1;
        }
    }
    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    if (hvmem__unlikely(filled))
        hvmem__watch(heap);
    return done;
}

/* Of a record, what says whether a plain free may take the block: all but stamp and token. */
#define PLAIN_BITS 0x80000000ffffffffull

/*
 * Take the block of a plain free from its owner; whether it was one. Whoever hands out or frees such a
 * block changes its record as here, or finds it changed (frame.h). Inside the section.
 */
HVMEM_INLINE int claim(struct hvmem_heap *heap, const struct hvmem__pcpu *pc,
                       const struct hvmem__bank *b, hvmem_mfn mfn, const struct hvmem__mag *mag)
{
    hvmem__record *at = hvmem__record_at(b, mfn), record;

    if (hvmem__unlikely(heap->adopting || !hvmem__is_head(b, mfn)))
        return 0;
    record = hvmem__load(at);
    if (record == mag->given && pc->token) {
        hvmem__store(at, mag->cached);
        return 1;
    }
    (void)HVMEM_TEST_POINT("magazine_claim");
    /* Order, state, no debt, no owner; stamp and token may be anything, but it may be a stage 2's table. */
    return !((record ^ mag->given) & PLAIN_BITS) && !hvmem__biased_elsewhere(heap, pc, record) &&
           hvmem__frame_claim(&heap->host, at, record, mag->cached);
}

/* A block of a bank that this CPU does not know. Inside the section. */
static HVMEM_NOINLINE int free_far(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn mfn,
                                   const struct hvmem__mag *mag)
{
    struct hvmem__bank *b = hvmem__pcpu_bank_of(heap, pc, mfn);

    if (!b || !hvmem__is_head(b, mfn))
        return 0;
    hvmem__table_changes(b->table);
    if (!claim(heap, pc, b, mfn, mag))
        return 0;
    learn(heap, pc, b);
    hvmem__pcpu_put(heap, pc, b, mfn, mag->cached);
    return 1;
}

/* Inside the section. */
HVMEM_INLINE int free_near(struct hvmem_heap *heap, struct hvmem__pcpu *pc, hvmem_mfn mfn,
                           hvmem_u32 order)
{
    struct hvmem__mag *mag = &pc->mag[order];
    struct hvmem__bank *b = hvmem__near(heap, pc, mfn);

    if (hvmem__unlikely(!b))
        return free_far(heap, pc, mfn, mag);
    if (hvmem__unlikely(!claim(heap, pc, b, mfn, mag)))
        return 0;
    if (hvmem__unlikely(mag->count >= mag->capacity || !(pc->filled >> order & 1) ||
                        (!order && hvmem__load(&pc->fast.hot) != HVMEM_FAST_NONE))) {
        hvmem__pcpu_put(heap, pc, b, mfn, mag->cached);
        return 1;
    }
    hvmem__store(&mag->slot[mag->count], mfn);
    hvmem__store(&mag->count, mag->count + 1);
    return 1;
}

int hvmem__magazine_free(struct hvmem_heap *heap, hvmem_mfn mfn, hvmem_u32 order)
{
    hvmem_u64 pin;
    struct hvmem__pcpu *pc = hvmem__pcpu_own(heap, &pin);
    int done = hvmem__section_begin(pc) && free_near(heap, pc, mfn, order);

    hvmem__section_end(pc);
    hvmem__unpin(&heap->host, pin);
    if (hvmem__unlikely(done && heap->low_frames))
        hvmem__watch(heap);
    return done;
}
