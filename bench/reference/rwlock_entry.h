/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The entry that was reported and given up, for comparison with lib/vcpu.h: one read-write lock for each guest,
 * which a move of a vCPU would take for writing. An entry takes it for reading, and then the lock of its CPU.
 * The read-write lock is one word, or pthread's.
 */
#ifndef BENCH_REFERENCE_RWLOCK_ENTRY_H
#define BENCH_REFERENCE_RWLOCK_ENTRY_H

#include "lib/vcpu.h"

#include <pthread.h>

struct rwlock_word {
    hvmem_u32 word; /* readers; the highest bit: a writer */
};
#define RWLOCK_WRITER 0x80000000u

/* One guest's lock of either kind, each on a line of its own. */
struct rwlock_guest {
    struct rwlock_word word __attribute__((aligned(64)));
    pthread_rwlock_t posix __attribute__((aligned(64)));
};

void rwlock_guest_init(struct rwlock_guest *guest);

static inline void rwlock_word_read(struct rwlock_word *lock)
{
    while (__atomic_add_fetch(&lock->word, 1, __ATOMIC_ACQUIRE) & RWLOCK_WRITER) {
        __atomic_sub_fetch(&lock->word, 1, __ATOMIC_RELAXED);
        while (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) & RWLOCK_WRITER)
            hvmem_linux_relax();
    }
}

static inline void rwlock_word_read_end(struct rwlock_word *lock)
{
    __atomic_sub_fetch(&lock->word, 1, __ATOMIC_RELEASE);
}

/* An entry: returns whether the vCPU is here and has no work. */
int rwlock_entry_word(struct rwlock_guest *guest, struct hvmem_vcpu *vcpu, hvmem_cpu cpu);
int rwlock_entry_posix(struct rwlock_guest *guest, struct hvmem_vcpu *vcpu, hvmem_cpu cpu);

#endif
