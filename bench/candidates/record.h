/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The 8-byte record that both free-set candidates keep a frame: order 0-4, state 5-7, owed 8-15,
 * owner 16-31, stamp 32-47, as the core's. And the one lock that both stand behind.
 */
#ifndef BENCH_CANDIDATES_RECORD_H
#define BENCH_CANDIDATES_RECORD_H

#include <stdint.h>

#define CAND_MAX_ORDER 18u
#define CAND_NONE      UINT64_MAX

enum cand_state { CAND_FREE, CAND_ALLOCATED, CAND_CACHED };

static inline unsigned rec_state(uint64_t record)
{
    return (unsigned)(record >> 5) & 7u;
}

/* Debts, owner and stamp stay. */
static inline uint64_t rec_with(uint64_t record, unsigned order, unsigned state)
{
    return (record & ~(uint64_t)0xff) | order | (uint64_t)state << 5;
}

/* Union of two halves: debts OR, the stamp that is newer seen from `clock`, no owner. */
static inline uint64_t rec_merge(uint64_t left, uint64_t right, unsigned order, uint64_t clock)
{
    uint64_t age_left = (clock - (left >> 32)) & 0xffff;
    uint64_t age_right = (clock - (right >> 32)) & 0xffff;
    uint64_t newer = age_left < age_right ? left : right;

    return ((left | right) & 0xff00) | (newer & ((uint64_t)0xffff << 32)) | order;
}

static inline void cand_lock(uint32_t *lock)
{
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE) != 0) {
        while (__atomic_load_n(lock, __ATOMIC_RELAXED) != 0)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
    }
}

static inline void cand_unlock(uint32_t *lock)
{
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

#endif
