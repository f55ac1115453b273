/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/vcpu.h: vCPUs placed on CPUs, work that follows them (pending flushes, deferred batches),
 * and the three kinds of access to it, none of which shares a lock between all vCPUs of a guest.
 *
 *  1. this CPU's vCPUs, at every entry and exit: the CPU's own lock only; no other line is written.
 *  2. one vCPU wherever it is (post, cancel): its placement lock, then the lock of its CPU.
 *  3. migration: its placement lock; the old CPU's lock, released; the new CPU's. Never both.
 */
#ifndef HVMEM_VCPU_H
#define HVMEM_VCPU_H

#include <hvmem/space.h>

struct hvmem_vcpus; /* the CPUs' lists: one object for a machine */
struct hvmem_vcpu;

struct hvmem_vcpus_config {
    hvmem_u32 size;        /* sizeof(struct hvmem_vcpus_config) */
    hvmem_u32 max_cpus;    /* 1 .. HVMEM_CPU_LIMIT */
    hvmem_u32 lock_regime; /* HVMEM_LOCK_* */
    hvmem_u32 reserved;
    const struct hvmem_host_ops *host; /* may be NULL; copied */
    void *host_ctx;
};

/*
 * A piece of work for a vCPU, run on the vCPU's CPU before its next entry. The structure is the
 * caller's, zeroed before first use, and may be reused once it has run or was cancelled. `run` is
 * called without library locks, on the entering CPU, and may post again, itself included.
 */
struct hvmem_vcpu_work {
    void (*run)(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu);
    void *arg;
    struct hvmem_vcpu_work *next; /* the library's, as all below */
    struct hvmem_vcpu *vcpu;      /* whose it is while queued or running; else NULL */
    hvmem_u32 state;
    hvmem_u32 again;
};

/* kick: no CPU needs to be made to leave the guest. */
#define HVMEM_CPU_NONE 0xffffffffu

HVMEM_BEGIN_DECLS

/*
 * Bytes (64-byte aligned), 64 a CPU. Errors: HVMEM_E_ARG (null, lock regime unknown or one the host
 * cannot), HVMEM_E_VERSION, HVMEM_E_CPU.
 */
HVMEM_API hvmem_status hvmem_vcpus_size(const struct hvmem_vcpus_config *config, hvmem_size *bytes);

/* Make the object; no CPU is online. Errors: as hvmem_vcpus_size, HVMEM_E_BUFFER. */
HVMEM_API hvmem_status hvmem_vcpus_init(void *memory, hvmem_size bytes,
                                        const struct hvmem_vcpus_config *config,
                                        struct hvmem_vcpus **vcpus);

/* Refused calls on the object and its vCPUs. */
HVMEM_API hvmem_u64 hvmem_vcpus_refused(const struct hvmem_vcpus *vcpus);

/*
 * A CPU accepts vCPUs, or no longer. Errors: HVMEM_E_CPU (number, already so), HVMEM_E_BUSY (vCPUs
 * are still placed on it).
 */
HVMEM_API hvmem_status hvmem_vcpus_cpu_online(struct hvmem_vcpus *vcpus, hvmem_cpu cpu);
HVMEM_API hvmem_status hvmem_vcpus_cpu_offline(struct hvmem_vcpus *vcpus, hvmem_cpu cpu);

/* Bytes (64-byte aligned) of a vCPU. */
HVMEM_API hvmem_size hvmem_vcpu_size(void);

/*
 * Make a vCPU of `space`, placed on `cpu`. The memory stays readable as that of a space does.
 * Errors: HVMEM_E_ARG, HVMEM_E_BUFFER, HVMEM_E_CPU (number, offline), HVMEM_E_SPACE (destroyed).
 */
HVMEM_API hvmem_status hvmem_vcpu_attach(struct hvmem_vcpus *vcpus, struct hvmem_space *space,
                                         void *memory, hvmem_size bytes, hvmem_cpu cpu,
                                         struct hvmem_vcpu **vcpu);

/*
 * Take a vCPU off. Errors: HVMEM_E_STALE (detached already), HVMEM_E_BUSY (entered, or work queued:
 * cancel it first).
 */
HVMEM_API hvmem_status hvmem_vcpu_detach(struct hvmem_vcpu *vcpu);

/*
 * Kind 1. On its CPU: run the vCPU's work, then activate its space for it (hvmem_space_activate).
 * From HVMEM_OK until hvmem_vcpu_exit() it is entered: it does not move, and posts name this CPU to
 * be kicked. HVMEM_AGAIN: HVMEM_VCPU_WORK_LIMIT pieces ran and more are queued; call again.
 * Errors: HVMEM_E_STALE (detached), HVMEM_E_CPU (number, or placed on another CPU), HVMEM_E_BUSY
 * (a vCPU is entered on this CPU), those of hvmem_space_activate; then it is not entered.
 */
HVMEM_API hvmem_status hvmem_vcpu_enter(struct hvmem_vcpu *vcpu, hvmem_cpu cpu,
                                        struct hvmem_entry *entry);
#define HVMEM_VCPU_WORK_LIMIT 64u

/*
 * Kind 1. The guest was left, or the entry given up: no hvmem_space_entered() is needed then, what
 * was owed stays owed. The space stays active on the CPU. Errors: HVMEM_E_CPU (not entered, or not
 * yet: called by work of the entry).
 */
HVMEM_API hvmem_status hvmem_vcpu_exit(struct hvmem_vcpu *vcpu, hvmem_cpu cpu);

/*
 * Kind 2. Queue work; queued already: once is enough; running: it will run again. *kick: CPU on
 * which the vCPU is entered and which must leave the guest for the work to run soon, or
 * HVMEM_CPU_NONE. Errors: HVMEM_E_STALE (detached), HVMEM_E_ARG (null; queued or running for another
 * vCPU).
 */
HVMEM_API hvmem_status hvmem_vcpu_post(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work,
                                       hvmem_cpu *kick);

/*
 * Kind 2. The guest's own translations (first stage under its tag) of this vCPU are flushed before
 * its next entry, on whichever CPU holds some by then. *kick as above. Errors: HVMEM_E_STALE,
 * HVMEM_E_ARG.
 */
HVMEM_API hvmem_status hvmem_vcpu_post_flush(struct hvmem_vcpu *vcpu, hvmem_cpu *kick);

/*
 * Kind 2. Take work back; when it returns HVMEM_OK the work is neither queued nor running. Waits,
 * without locks, for a run in progress. Errors: HVMEM_E_STALE, HVMEM_E_ARG (null; queued or running
 * for another vCPU), HVMEM_E_BUSY (called from that run itself; it will not run again),
 * HVMEM_E_TIMEOUT (`spins` turns of relax went by, or it was posted again meanwhile).
 */
HVMEM_API hvmem_status hvmem_vcpu_cancel(struct hvmem_vcpu *vcpu, struct hvmem_vcpu_work *work,
                                         hvmem_u64 spins);

/*
 * Kind 3. Place the vCPU on another CPU; its queued work goes with it. With
 * HVMEM_SPACE_PRIVATE_STAGE1 a CPU where it ran before flushes the guest's translations when it
 * returns: meanwhile the guest may have invalidated some where it was. Errors: HVMEM_E_STALE,
 * HVMEM_E_CPU (number, offline), HVMEM_E_BUSY (entered).
 */
HVMEM_API hvmem_status hvmem_vcpu_migrate(struct hvmem_vcpu *vcpu, hvmem_cpu cpu);

/* Kind 2. The CPU it is placed on. Errors: HVMEM_E_STALE, HVMEM_E_ARG. */
HVMEM_API hvmem_status hvmem_vcpu_where(struct hvmem_vcpu *vcpu, hvmem_cpu *cpu);

HVMEM_END_DECLS

#endif
