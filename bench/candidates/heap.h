/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A one-lock heap over whichever candidate set was included before (lists.h or bitmaps.h), bare and
 * behind a cache a CPU, with the same checks, debts and lock for both: what differs is the set.
 */
#ifndef BENCH_CANDIDATES_HEAP_H
#define BENCH_CANDIDATES_HEAP_H

#include "bench/bodies/body.h"

#include <string.h>

#define MAGS      2u
#define MAG_SLOTS 64u
#define MAG_BATCH 32u

/* The cache of the one CPU that uses it: orders 0 and 9, last in first out. */
struct magazine {
    uint32_t order;
    uint32_t count;
    uint32_t capacity;
    uint32_t batch;
    uint64_t slot[MAG_SLOTS];
};

struct cand {
    uint32_t lock;
    uint64_t frames;
    uint64_t clock;
    struct set set;
    struct magazine mag[MAGS];
};

/* ---- behind the lock ------------------------------------------------------------------------ */

/* The lock is held. */
static inline uint64_t cand_take(struct cand *cand, unsigned order, unsigned state)
{
    uint32_t fit = cand->set.nonempty >> order << order;
    uint64_t frame, record;
    unsigned k;

    if (fit == 0)
        return CAND_NONE;
    k = (unsigned)__builtin_ctz(fit);
    frame = set_first(&cand->set, k);
    record = set_leave(&cand->set, frame, k);
    while (k > order) {
        k--;
        set_enter(&cand->set, frame + ((uint64_t)1 << k), k, rec_with(record, k, CAND_FREE));
    }
    set_use(&cand->set, frame, rec_with(record, order, state));
    return frame;
}

/* Merge and enter a block that is in use. The lock is held. */
static inline void cand_give(struct cand *cand, uint64_t frame, unsigned order)
{
    uint64_t record = rec_with(*set_record(&cand->set, frame), order, CAND_FREE);

    set_unuse(&cand->set, frame);
    while (order < CAND_MAX_ORDER) {
        uint64_t buddy = frame ^ ((uint64_t)1 << order);
        uint64_t other;

        if (buddy >= cand->frames || !set_is_free(&cand->set, buddy, order))
            break;
        other = set_leave(&cand->set, buddy, order);
        order++;
        record = rec_merge(record, other, order, cand->clock);
        frame &= ~(((uint64_t)1 << order) - 1);
    }
    set_enter(&cand->set, frame, order, record);
}

/* Whether `frame` is the start of an allocated block of this order. */
static inline int cand_check(struct cand *cand, uint64_t frame, unsigned order)
{
    return order <= CAND_MAX_ORDER && frame < cand->frames && set_is_used(&cand->set, frame) &&
           (*set_record(&cand->set, frame) & 0xff) == (order | (unsigned)CAND_ALLOCATED << 5);
}

static inline int cand_alloc(struct cand *cand, unsigned order, uint64_t *frame)
{
    uint64_t got;

    if (order > CAND_MAX_ORDER)
        return -1;
    cand_lock(&cand->lock);
    got = cand_take(cand, order, CAND_ALLOCATED);
    cand_unlock(&cand->lock);
    if (got == CAND_NONE)
        return -1;
    *frame = got;
    return 0;
}

static inline int cand_free(struct cand *cand, uint64_t frame, unsigned order)
{
    int legal;

    cand_lock(&cand->lock);
    legal = cand_check(cand, frame, order);
    if (legal)
        cand_give(cand, frame, order);
    cand_unlock(&cand->lock);
    return legal ? 0 : -1;
}

/* ---- the cache in front --------------------------------------------------------------------- */

static inline struct magazine *cand_mag(struct cand *cand, unsigned order)
{
    if (order == 0)
        return &cand->mag[0];
    return order == 9 ? &cand->mag[1] : NULL;
}

static __attribute__((noinline, unused)) void mag_refill(struct cand *cand, struct magazine *mag)
{
    cand_lock(&cand->lock);
    if (mag->order == 0)
        mag->count = set_take_singles(&cand->set, mag->slot, mag->batch);
    while (mag->count < mag->batch) {
        uint64_t frame = cand_take(cand, mag->order, CAND_CACHED);

        if (frame == CAND_NONE)
            break;
        mag->slot[mag->count++] = frame;
    }
    cand_unlock(&cand->lock);
}

/* The oldest leave: the newest are hot. */
static __attribute__((noinline, unused)) void mag_drain(struct cand *cand, struct magazine *mag,
                                                        uint32_t n)
{
    uint32_t i;

    cand_lock(&cand->lock);
    for (i = 0; i < n; i++)
        cand_give(cand, mag->slot[i], mag->order);
    cand_unlock(&cand->lock);
    mag->count -= n;
    memmove(mag->slot, mag->slot + n, mag->count * sizeof mag->slot[0]);
}

static inline int front_alloc(struct cand *cand, unsigned order, uint64_t *frame)
{
    struct magazine *mag = cand_mag(cand, order);
    uint64_t *record;

    if (mag == NULL)
        return cand_alloc(cand, order, frame);
    if (mag->count == 0) {
        mag_refill(cand, mag);
        if (mag->count == 0)
            return -1;
    }
    *frame = mag->slot[--mag->count];
    record = set_record(&cand->set, *frame);
    *record = rec_with(*record, order, CAND_ALLOCATED);
    return 0;
}

static inline int front_free(struct cand *cand, uint64_t frame, unsigned order)
{
    struct magazine *mag = cand_mag(cand, order);
    uint64_t *record;

    if (mag == NULL)
        return cand_free(cand, frame, order);
    if (!cand_check(cand, frame, order))
        return -1;
    record = set_record(&cand->set, frame);
    *record = rec_with(*record, order, CAND_CACHED);
    if (mag->count == mag->capacity)
        mag_drain(cand, mag, mag->batch);
    mag->slot[mag->count++] = frame;
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static inline hvmem_size cand_bytes(const struct bench_setup *setup)
{
    return sizeof(struct cand) + 64 + set_bytes(setup->frames);
}

static inline struct cand *cand_open(const struct bench_setup *setup, void *memory)
{
    struct cand *cand = memory;
    uint64_t frame;

    memset(cand, 0, sizeof *cand);
    cand->frames = setup->frames;
    cand->mag[0] = (struct magazine){.order = 0, .capacity = MAG_SLOTS, .batch = MAG_BATCH};
    cand->mag[1] = (struct magazine){.order = 9, .capacity = 16, .batch = 8};
    set_init(&cand->set, (void *)(((uintptr_t)(cand + 1) + 63) & ~(uintptr_t)63), cand->frames);
    for (frame = cand->frames; frame > 0;) {
        frame -= (uint64_t)1 << CAND_MAX_ORDER;
        set_enter(&cand->set, frame, CAND_MAX_ORDER, rec_with(0, CAND_MAX_ORDER, CAND_FREE));
    }
    return cand;
}

static inline void cand_drain(struct bench_pool *pool)
{
    struct cand *cand = pool->state;
    unsigned i;

    for (i = 0; i < MAGS; i++)
        mag_drain(cand, &cand->mag[i], cand->mag[i].count);
}

static inline hvmem_u64 cand_superpages(struct bench_pool *pool)
{
    struct cand *cand = pool->state;
    hvmem_u64 found = 0;
    uint64_t frame;
    unsigned order;

    for (order = 9; order <= CAND_MAX_ORDER; order++) {
        for (frame = 0; frame < cand->frames; frame += (uint64_t)1 << order)
            found += (hvmem_u64)set_is_free(&cand->set, frame, order) << (order - 9);
    }
    return found;
}

#endif
