/* SPDX-License-Identifier: BSD-2-Clause */
/* guest.h: ids, spaces and vCPUs on CPUs whose flushes cost nothing, for the figures of entries. */
#ifndef BENCH_MEASURE_GUEST_H
#define BENCH_MEASURE_GUEST_H

#include "bench/reference/rwlock_entry.h"

#define GUEST_SPACES 2

struct guest {
    struct hvmem_backend backend;
    struct hvmem_ident *ident;
    struct hvmem_vcpus *vcpus;
    struct hvmem_space *spaces[GUEST_SPACES];
    struct hvmem_vcpu *vcpu[2]; /* of spaces[0], on CPUs 0 and 1 */
    struct rwlock_guest lock;
    hvmem_u32 cpus;
    void *blocks[8];
    unsigned used;
};

/* One numbering, 2^bits - 1 ids, all CPUs online; two spaces; two vCPUs of the first. */
void guest_open(struct guest *guest, hvmem_u32 bits, hvmem_u32 cpus);
void guest_close(struct guest *guest);

#endif
