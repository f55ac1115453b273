/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/mapping.h: what all changes to the tables of one space share: where its frames live, how
 * long invalidations are, which devices walk the same tables; and invalidation at once.
 *
 * Rule: change the tables first, then call. The removal must be done with ordinary stores, or
 * stronger; the call makes it visible to table walkers before it invalidates (x86: the locked
 * operation of the change count; arm64: DSB ISHST, the first instruction of the back-end's batch).
 *
 * x86 and every other machine without broadcast: the CPUs that run the space are asked through the
 * host operation call_cpus; a CPU that is not asked flushes when it next switches to the space. A
 * CPU that has it loaded lazily is asked only if table pages are freed. The set of CPUs is a
 * private snapshot on the caller's stack: calls may nest in interrupts. With HVMEM_IDENT_ENTRY
 * (SVM) asking means making the guest leave: its next entry flushes. Broadcast: one batch; where a
 * rollover changed the space's number meanwhile, a second one. A space that never had a number is in no
 * TLB: nothing is issued for it, so the host makes its first tables visible by a barrier of its own (arm64:
 * DSB) before it loads them.
 */
#ifndef HVMEM_MAPPING_H
#define HVMEM_MAPPING_H

#include <hvmem/config.h>
#include <hvmem/policy.h>
#include <hvmem/space.h>

/*
 * A table page was unhooked and invalidated: `status` HVMEM_OK, it may be reused at once. Otherwise
 * nobody knows whether a CPU or device still walks it: it must not be touched; if it belongs to the
 * heap it is in quarantine already. No library lock is held.
 */
typedef void hvmem_table_free_fn(void *ctx, hvmem_mfn mfn, hvmem_status status);

/*
 * Entries may be global (x86 G, arm64 nG = 0; first stages only): where CPUs are asked, a flush of the
 * whole space then is a flush of everything on every CPU that has not had one since.
 */
#define HVMEM_MAPPING_GLOBALS 1u

struct hvmem_mapping_config {
    hvmem_u32 size;  /* sizeof(struct hvmem_mapping_config) */
    hvmem_u32 flags; /* HVMEM_MAPPING_* */
    struct hvmem_heap *heap;
    struct hvmem_space *space;
    const struct hvmem_policy *policy; /* copied; NULL: hvmem_policy_default() of the machine */
    hvmem_table_free_fn *table_free;   /* NULL: table pages are frames of the heap, freed to it */
    void *ctx;                         /* for table_free */
};

/*
 * A device, or another agent, that caches translations of these tables. The structure is the
 * caller's and must stay until hvmem_notifier_remove() has returned HVMEM_OK.
 */
struct hvmem_notifier {
    hvmem_u32 size;  /* sizeof(struct hvmem_notifier) */
    hvmem_u32 polls; /* most calls of poll for one invalidation; 0: HVMEM_NOTIFIER_POLLS */
    /*
     * Forget the ranges (count 0: everything of the space), table walks included. Called after the
     * CPUs have forgotten, with no library lock held; from several CPUs at once if gathers run on
     * several. HVMEM_OK: done, also by the device. HVMEM_AGAIN: begun; ask poll. Anything else:
     * failed. Must bound its own waits. *ticket (0 before) is the notifier's own until the end of
     * this invalidation.
     */
    hvmem_status (*invalidate)(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                               hvmem_u64 *ticket);
    /* HVMEM_OK, HVMEM_AGAIN or a failure; after `polls` times AGAIN it counts as HVMEM_E_TIMEOUT. */
    hvmem_status (*poll)(void *ctx, hvmem_u64 *ticket);
    void *ctx;
    struct hvmem_notifier *next; /* the library's */
    hvmem_u32 calls;             /* the library's */
    hvmem_u32 reserved;
};
#define HVMEM_NOTIFIER_POLLS 1000000u

struct hvmem_mapping_stats {
    hvmem_u64 gathers;     /* begun */
    hvmem_u64 cancelled;   /* of these, ended by hvmem_gather_cancel() */
    hvmem_u64 unneeded;    /* gathers that owed no invalidation */
    hvmem_u64 contended;   /* gathers that flushed their whole request because of another one */
    hvmem_u64 early;       /* settlements in the middle of a gather */
    hvmem_u64 flushes;     /* invalidations of CPUs: batches broadcast, or rounds of asking */
    hvmem_u64 whole;       /* of these, of the whole space */
    hvmem_u64 cpus;        /* CPUs asked, the calling one included; broadcast asks none */
    hvmem_u64 notified;    /* invalidations of devices */
    hvmem_u64 failed;      /* invalidations of CPUs or devices that failed or timed out */
    hvmem_u64 quarantined; /* frames that went to quarantine because of that */
};

/* Memory is the caller's, contents the library's. */
struct hvmem_mapping {
    hvmem_uptr self; /* guards against copies and use before init */
    struct hvmem_heap *heap;
    struct hvmem_space *space;
    hvmem_table_free_fn *table_free;
    void *ctx;
    hvmem_u32 flags;
    hvmem_u32 lent; /* gathers of callers that hold removals of a stage 2; atomic */
    struct hvmem_policy policy;
    struct hvmem_notifier *notifiers; /* under lock */
    hvmem_u64 faults;                 /* times entries were left for a CPU's fault; under lock */
    hvmem_u64 broken; /* entries that are invalid while they change size; under lock */
    struct hvmem_lock lock;
    hvmem_u64 turns;    /* gathers open, and ever begun: lib/mapping.h */
    hvmem_u64 freeing;  /* gathers that have flushed and not freed all yet */
    hvmem_u64 failures; /* invalidations that failed; while != mended everything is flushed whole */
    hvmem_u64 mended;
    struct hvmem_mapping_stats stats; /* atomic */
};

/* Flags of hvmem_shootdown. */
#define HVMEM_SHOOT_TABLES 1u /* table pages will be reused: ask lazy CPUs too */
#define HVMEM_SHOOT_CPUS   2u /* CPUs only, no notifier */

HVMEM_BEGIN_DECLS

/*
 * Errors: HVMEM_E_ARG (null, flag, a space of an object whose back-end is not the heap's),
 * HVMEM_E_VERSION (config or policy), HVMEM_E_SPACE (dead), HVMEM_E_UNSUPPORTED (several CPUs and
 * neither broadcast nor the host operation call_cpus).
 */
HVMEM_API hvmem_status hvmem_mapping_init(struct hvmem_mapping *mapping,
                                          const struct hvmem_mapping_config *config);

/* The memory is the caller's again. Errors: HVMEM_E_ARG, HVMEM_E_BUSY (open gathers, notifiers). */
HVMEM_API hvmem_status hvmem_mapping_fini(struct hvmem_mapping *mapping);

/*
 * A device starts to walk the tables (call before it does), or stopped (after its translations are
 * gone): what is gathered later is told to it, or not any more.
 * Errors: HVMEM_E_ARG (null, no invalidate, added already; remove: not added), HVMEM_E_VERSION,
 * HVMEM_E_BUSY (add: entries wait for a fault, which a device cannot take: hvmem_track_disarm() first; or a
 * block is just changing its size by break-before-make: try again, and where a merge failed merge again;
 * remove: it is being called, try again). While a device is there nothing is changed by break-before-make
 * (hvmem/stage2.h); HVMEM_CAP_BBM2 is then true only if the device's walks bear it too (SMMU_IDR3.BBML 2).
 */
HVMEM_API hvmem_status hvmem_notifier_add(struct hvmem_mapping *mapping,
                                          struct hvmem_notifier *notifier);
HVMEM_API hvmem_status hvmem_notifier_remove(struct hvmem_mapping *mapping,
                                             struct hvmem_notifier *notifier);

/*
 * The tables were changed: forget the ranges (count 0: the whole space) on every CPU and device that
 * may hold them, and return when that is done. Longest wait: the slowest CPU asked, or the
 * notifiers' polls. Context: no lock held that an asked CPU may wait for; with IPIs interrupts on,
 * or the host's relax and call_cpus serve requests while they wait: so two that ask each other both
 * return. May be called from an interrupt in the regimes that allow calls from there.
 * Where the back-end refuses ranges the whole space is flushed.
 * Errors: HVMEM_E_ARG (null, flag), HVMEM_E_RANGE (empty, wraps), HVMEM_E_ALIGN (page, stride),
 * HVMEM_E_SPACE (dead), HVMEM_E_HOST (a CPU did not flush), HVMEM_E_TIMEOUT (a notifier). After the
 * last two the old translations may still be in use: free nothing; all later calls and gathers flush
 * the whole space until one succeeds.
 */
HVMEM_API hvmem_status hvmem_shootdown(struct hvmem_mapping *mapping,
                                       const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                                       hvmem_u32 flags);

/* Counts so far. Errors: HVMEM_E_ARG, HVMEM_E_VERSION (size). */
HVMEM_API hvmem_status hvmem_mapping_get_stats(const struct hvmem_mapping *mapping, hvmem_size size,
                                               struct hvmem_mapping_stats *stats);

HVMEM_END_DECLS

#endif
