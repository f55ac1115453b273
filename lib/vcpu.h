/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * vcpu.h: vCPUs, the CPUs' lists, and the three ways to get at them. Each kind of access is a helper
 * here and exists nowhere else:
 *  1. hvmem__cpu_enter / _leave: this CPU's vCPUs. The CPU's lock; nothing shared is written.
 *  2. hvmem__vcpu_find / _let_go: one vCPU wherever it is. Its placement lock, then its CPU's.
 *  3. hvmem__vcpu_move: migration. The placement lock all along; the old CPU's lock, released; the
 *     new CPU's lock. Never both, so that no order between CPUs' locks exists.
 *
 * INVARIANT: vcpu.cpu is c exactly while the vCPU is in c's list; it becomes c, and ceases to be c,
 * under c's lock, and changes at all only under the placement lock as well. So the holder of either
 * c's lock or the placement lock can rely on "vcpu.cpu == c".
 */
#ifndef HVMEM_LIB_VCPU_H
#define HVMEM_LIB_VCPU_H

#include <hvmem/vcpu.h>

#include "space.h"

#define HVMEM__WORK_IDLE    0u
#define HVMEM__WORK_QUEUED  1u
#define HVMEM__WORK_RUNNING 2u

struct hvmem__vcpu_cpu {
    struct hvmem_lock lock; /* rank VCPU_LIST; guards all of this line and its vCPUs' first line */
    struct hvmem_vcpu *entered;
    struct hvmem_vcpu *first; /* vCPUs placed here */
    struct hvmem_vcpu_work *running;
    hvmem_u32 online; /* HVMEM__VCPU_CPU_*; changes under the lock, read without */
    hvmem_u32 bound;  /* vCPUs placed here or on their way here; atomic */
    hvmem_u64 unused[3];
};
#define HVMEM__VCPU_CPU_OFF     0u
#define HVMEM__VCPU_CPU_ON      1u
#define HVMEM__VCPU_CPU_LEAVING 2u /* being decided under the lock: OFF, or ON again */
HVMEM_STATIC_ASSERT(sizeof(struct hvmem__vcpu_cpu) == HVMEM_LINE, vcpu_cpu_is_a_line);

struct hvmem_vcpus {
    struct hvmem__host host;
    struct hvmem__vcpu_cpu *cpus;
    hvmem_u32 max_cpus;
    hvmem_u32 reserved;
    hvmem_u64 refused; /* atomic */
};

struct hvmem_vcpu {
    /* Read by its entries; written by kinds 2 and 3, under the CPU's lock. */
    hvmem_u32 cpu; /* HVMEM_CPU_NONE: between two CPUs, or detached */
    hvmem_u32 attached;
    struct hvmem_vcpu_work *work; /* queue, oldest first */
    struct hvmem_vcpu_work **work_tail;
    struct hvmem_space *space;
    struct hvmem_vcpus *vcpus;
    hvmem_u64 serial;  /* in its space */
    hvmem_u64 flushes; /* posted, and moves */
    hvmem_u64 unused;
    /* Never read by an entry. */
    struct hvmem_lock placement; /* rank PLACEMENT */
    struct hvmem_vcpu *next;     /* in the CPU's list */
    struct hvmem_vcpu **link;
    hvmem_u64 unused_b[5];
};
HVMEM_STATIC_ASSERT(sizeof(struct hvmem_vcpu) == 2 * HVMEM_LINE, vcpu_is_two_lines);

/* Count and report a mistake of the caller; returns it. No lock may be held. */
hvmem_status hvmem__vcpus_refuse(struct hvmem_vcpus *vcpus, hvmem_status code);

/* Kind 1: the calling CPU's list. */
HVMEM_INLINE hvmem_u64 hvmem__cpu_enter(const struct hvmem_vcpus *vcpus, hvmem_cpu cpu)
{
    return hvmem__lock(&vcpus->host, &vcpus->cpus[cpu].lock, HVMEM__RANK_VCPU_LIST);
}

HVMEM_INLINE void hvmem__cpu_leave(const struct hvmem_vcpus *vcpus, hvmem_cpu cpu, hvmem_u64 state)
{
    hvmem__unlock(&vcpus->host, &vcpus->cpus[cpu].lock, HVMEM__RANK_VCPU_LIST, state);
}

/* Kind 2: where a vCPU is, and its CPU's list, both held still. */
struct hvmem__found {
    hvmem_u64 placement_state;
    hvmem_u64 cpu_state;
    hvmem_cpu cpu;
};

/* HVMEM_E_STALE, and nothing held, if it is detached. */
hvmem_status hvmem__vcpu_find(struct hvmem_vcpu *vcpu, struct hvmem__found *found);
void hvmem__vcpu_let_go(struct hvmem_vcpu *vcpu, const struct hvmem__found *found);

/* Keep `cpu` online for a vCPU about to be placed there; and no longer. HVMEM_E_CPU. */
hvmem_status hvmem__vcpu_bind(struct hvmem_vcpus *vcpus, hvmem_cpu cpu);
void hvmem__vcpu_unbind(struct hvmem_vcpus *vcpus, hvmem_cpu cpu);

/* Put a bound vCPU into the CPU's list. Takes the CPU's lock. Placement lock held (or a new vCPU). */
void hvmem__vcpu_place(struct hvmem_vcpu *vcpu, hvmem_cpu cpu);

/*
 * Kind 3: to `cpu`, or off all of them (HVMEM_CPU_NONE: detach, refused while work is queued).
 * HVMEM_E_STALE, HVMEM_E_CPU (offline), HVMEM_E_BUSY (entered).
 */
hvmem_status hvmem__vcpu_move(struct hvmem_vcpu *vcpu, hvmem_cpu cpu);

#endif
