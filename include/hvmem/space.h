/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/space.h: translation spaces: which CPU runs which, with what id, and what must be flushed
 * before it may.
 *
 * Switching a CPU: hvmem_space_activate() (or hvmem_vcpu_enter()), load what the entry says,
 * hvmem_space_entered(). Leaving for code that needs no space: hvmem_space_deactivate(), load id 0,
 * hvmem_space_entered(). All three run on the CPU they name, which stays (pinned, and with the
 * interrupts that bring flush requests off from activate until the hardware was loaded).
 *
 * Memory ordering between a switch and a flush. The switching CPU stores its bit in the set of
 * holders and "I load S" (its own line), then loads S's change count and state. The flushing CPU
 * makes its table change visible, adds one to the count, then loads the holders and what each of
 * them runs (hvmem_space_targets). All of these are sequentially consistent, which puts a full
 * barrier between store and load on both sides. So either the switch sees the new count and
 * flushes, or the flush sees the CPU and asks it. Destroying is ordered the same way.
 *
 * Changing a live space's tables:
 *  - hardware without broadcast: change, hvmem_space_changed(), hvmem_space_targets(), ask those
 *    CPUs to run hvmem_space_flush_here() and wait for them. CPUs not asked flush when they switch.
 *  - hardware with broadcast and ids that are not PER_CPU: change, make it visible, *then* read the
 *    id with hvmem_space_id() and invalidate it: a rollover may give S another number, but only
 *    with a flush in between, and a number that a CPU has loaded is never taken from S.
 */
#ifndef HVMEM_SPACE_H
#define HVMEM_SPACE_H

#include <hvmem/ident.h>

struct hvmem_space;

/*
 * vCPUs of this space use the same id but first stages (or ASIDs) of their own: when another vCPU
 * ran last on a CPU, or this one ran elsewhere since, the guest's translations are flushed there.
 * Right for every guest that manages a first stage itself, with one vCPU too. To be entered by vCPU
 * only.
 */
#define HVMEM_SPACE_PRIVATE_STAGE1 1u

struct hvmem_space_config {
    hvmem_u32 size;   /* sizeof(struct hvmem_space_config) */
    hvmem_u32 flags;  /* HVMEM_SPACE_* */
    hvmem_u32 regime; /* HVMEM_REGIME_USER, _STAGE2 or _GUEST: whose tables these are */
    hvmem_u32 reserved;
    /*
     * struct hvmem_tlb_space.root: arm64 VTTBR without VMID, Intel EPTP, else 0. For second stages of the
     * library's hvmem_stage2_init() fills it in.
     */
    hvmem_u64 root;
};

/* How to load the space just activated. */
struct hvmem_entry {
    hvmem_u32 id;      /* number to load; never 0 after HVMEM_OK */
    hvmem_u32 owed;    /* HVMEM_ENTRY_* that the entry itself must honour (HVMEM_IDENT_ENTRY) */
    hvmem_u32 value;   /* what to put into the guest's entry structure for it (SVM TLB_CONTROL) */
    hvmem_u32 flushed; /* HVMEM_ENTRY_* already executed by the call */
    hvmem_u64 generation; /* of the id; for logs and tests */
};

/* hvmem_space_targets */
#define HVMEM_TARGETS_TABLES 1u /* table pages were freed: ask lazy CPUs too */
#define HVMEM_TARGETS_TRIM   2u /* also ask CPUs that only hold old translations: they drop out */

/* hvmem_space_destroy */
#define HVMEM_DESTROY_LAZY 1u /* no flush now: the id stays unused until a rollover */

HVMEM_BEGIN_DECLS

/* Bytes (64-byte aligned) of a space: 64 a CPU and a few lines. 0 if ident is NULL. */
HVMEM_API hvmem_size hvmem_space_size(const struct hvmem_ident *ident);

/*
 * Create a space without id in memory[0 .. bytes). The memory is the library's until destroy has
 * returned HVMEM_OK, every other call that was given the handle has returned too, and mappings and
 * stage 2s that were made on it are finished. Takes no id: cannot run out of them.
 * Errors: HVMEM_E_ARG (null, flag, regime), HVMEM_E_VERSION, HVMEM_E_BUFFER.
 */
HVMEM_API hvmem_status hvmem_space_create(struct hvmem_ident *ident, void *memory, hvmem_size bytes,
                                          const struct hvmem_space_config *config,
                                          struct hvmem_space **space);

/*
 * Destroy: when it returns HVMEM_OK no CPU can load the space's id again for it, and (unless LAZY)
 * its translations are gone: by broadcast, by the host's call_cpus on the CPUs that hold some, or,
 * where there is neither, by making every CPU flush all before its next switch. In the first two
 * cases the number is free at once. Call without locks, as for call_cpus.
 * Errors: HVMEM_E_SPACE (destroyed already), HVMEM_E_BUSY (a CPU runs it or has not called
 * hvmem_space_entered() since it left; it is pinned; vCPUs are attached), HVMEM_E_ARG.
 */
HVMEM_API hvmem_status hvmem_space_destroy(struct hvmem_space *space, hvmem_u32 flags);

/*
 * Make `cpu`, the calling CPU, run the space. No lock is taken and only this CPU's own lines are
 * written while the space's id is of the current generation and the CPU is among its holders.
 * Errors, nothing changed: HVMEM_E_SPACE (destroyed), HVMEM_E_CPU (number, offline), HVMEM_E_ARG
 * (PRIVATE_STAGE1), HVMEM_E_NOID (pins and CPUs hold every number: a CPU holds one, and between a
 * switch and hvmem_space_entered() two. Cannot happen with 2 * max_cpus + 1 ids besides the pinned
 * ones; with fewer, try again; deactivate first where a switch was chosen and given up).
 * Back-end errors: the CPU runs no space, as after deactivate; what was owed stays owed.
 */
HVMEM_API hvmem_status hvmem_space_activate(struct hvmem_space *space, hvmem_cpu cpu,
                                            struct hvmem_entry *entry);

/* The CPU runs no space; it must load id 0 next. Errors: HVMEM_E_CPU, HVMEM_E_SPACE (none active). */
HVMEM_API hvmem_status hvmem_space_deactivate(struct hvmem_ident *ident, hvmem_cpu cpu);

/*
 * The space stays loaded but is not used until it is activated again (a kernel thread on borrowed
 * tables): flushes skip the CPU unless tables are freed. Errors: as hvmem_space_deactivate.
 */
HVMEM_API hvmem_status hvmem_space_lazy(struct hvmem_ident *ident, hvmem_cpu cpu);

/*
 * The hardware now runs with what the last activate or deactivate said, and what entry.owed named
 * was done by it. Until this call the space left behind counts as loaded, and owed work is asked
 * for again. Errors: HVMEM_E_CPU.
 */
HVMEM_API hvmem_status hvmem_space_entered(struct hvmem_ident *ident, hvmem_cpu cpu);

/*
 * Keep the space's number for good (devices that share the tables). Counted: unpin as often.
 * Errors: HVMEM_E_SPACE, HVMEM_E_NOID (as many pins as leave the CPUs one number each),
 * HVMEM_E_UNSUPPORTED (PER_CPU ids); unpin: HVMEM_E_PHASE (not pinned).
 */
HVMEM_API hvmem_status hvmem_space_pin(struct hvmem_space *space, hvmem_u32 *id);
HVMEM_API hvmem_status hvmem_space_unpin(struct hvmem_space *space);

/*
 * The tag to invalidate for the space; with PER_CPU ids that of `cpu`, the calling CPU. Read it
 * after the table change is visible. id 0: it never had one, nothing is cached.
 * Errors: HVMEM_E_SPACE, HVMEM_E_CPU, HVMEM_E_ARG.
 */
HVMEM_API hvmem_status hvmem_space_id(const struct hvmem_space *space, hvmem_cpu cpu,
                                      struct hvmem_tlb_space *tag);

/*
 * The tables changed, and the change is visible: every CPU flushes before it next switches to the
 * space ("flush before next entry"). *count is the change's number.
 * Errors: HVMEM_E_SPACE, HVMEM_E_ARG.
 */
HVMEM_API hvmem_status hvmem_space_changed(struct hvmem_space *space, hvmem_u64 *count);

/*
 * A private snapshot of the CPUs to ask after hvmem_space_changed(): those that run the space (the
 * calling one too if it does). words: (max_cpus + 63) / 64 words. *targets: how many.
 * Errors: HVMEM_E_SPACE, HVMEM_E_ARG, HVMEM_E_BUFFER (too few words).
 */
HVMEM_API hvmem_status hvmem_space_targets(const struct hvmem_space *space, hvmem_u32 flags,
                                           hvmem_u64 *words, hvmem_u32 word_count,
                                           hvmem_u32 *targets);

/*
 * What a CPU in the snapshot does, on itself: nothing if it is up to date; the ranges if `change`
 * is the only one it has not seen; else the whole space. With HVMEM_IDENT_ENTRY leaving the guest is
 * enough and nothing is executed. A CPU that does not run the space forgets it and drops out.
 * ranges NULL: whole space. Errors: HVMEM_E_SPACE, HVMEM_E_CPU, the back-end's.
 */
HVMEM_API hvmem_status hvmem_space_flush_here(struct hvmem_space *space, hvmem_cpu cpu,
                                              const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                                              hvmem_u64 change);

HVMEM_END_DECLS

#endif
