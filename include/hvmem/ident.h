/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/ident.h: the identifiers (PCID, ASID, VMID, VPID) that tag translations in a TLB, handed to
 * spaces by generations: more spaces may live than identifiers exist.
 *
 * An object hands out the ids first .. first + ids - 1; id 0 is never among them, it tags what runs
 * when no space does. Within one generation a number belongs to one space. When none is left the
 * generation ends (rollover): numbers that a CPU still has loaded stay with their spaces, pinned
 * ones too, all others become free, and every CPU forgets all translations of the regime before it
 * first uses a number of the new generation. Generation and number share 64 bits, and pins may take
 * only so many numbers that this is good for 2^56 rollovers or 2^62 hand-outs: it does not wrap.
 *
 * The memory is the caller's. Calls need working atomics. Where several id types exist side by side
 * (guests' VMIDs and processes' ASIDs; PCIDs numbered per CPU and others for broadcast), make one
 * object for each, over disjoint numbers if they share a number space.
 */
#ifndef HVMEM_IDENT_H
#define HVMEM_IDENT_H

#include <hvmem/backend.h>
#include <hvmem/host.h>
#include <hvmem/status.h>
#include <hvmem/types.h>

struct hvmem_ident;

/*
 * Each CPU numbers by itself (SVM ASIDs, x86 PCIDs without INVLPGB): one number may mean different
 * spaces on different CPUs. Without the flag a space has the same number everywhere (arm64; PCIDs
 * that INVLPGB names), which hardware broadcast needs.
 */
#define HVMEM_IDENT_PER_CPU 1u
/* A rollover invalidates by one broadcast, instead of each CPU before its next switch. */
#define HVMEM_IDENT_BROADCAST 2u
/* Invalidation is asked of the entry to a guest (op guest_entry: SVM), not executed before it. */
#define HVMEM_IDENT_ENTRY 4u
/*
 * Second stages are cached by their root, not by id (Intel EPT): "all" covers both. A root's frame may have been
 * another's: a CPU flushes for it when it first enters the space.
 */
#define HVMEM_IDENT_ROOTS 8u

struct hvmem_ident_config {
    hvmem_u32 size;        /* sizeof(struct hvmem_ident_config) */
    hvmem_u32 flags;       /* HVMEM_IDENT_* */
    hvmem_u32 regime;      /* HVMEM_REGIME_USER, _STAGE2 or _GUEST: what a rollover invalidates */
    hvmem_u32 first;       /* lowest id, >= 1 */
    hvmem_u32 ids;         /* how many, 1 .. 65536 - first; for a width of b bits (1 << b) - 1 */
    hvmem_u32 max_cpus;    /* 1 .. HVMEM_CPU_LIMIT; without PER_CPU at most `ids` */
    hvmem_u32 lock_regime; /* HVMEM_LOCK_* */
    hvmem_u32 reserved;
    const struct hvmem_host_ops *host; /* may be NULL; copied */
    void *host_ctx;
    struct hvmem_backend *backend; /* mandatory; kept */
};

struct hvmem_ident_stats {
    hvmem_u64 rollovers; /* generations ended (PER_CPU: on all CPUs together) */
    hvmem_u64 assigned;  /* times a space got a number or took one over into a new generation */
    hvmem_u64 returned;  /* numbers given back by hvmem_space_destroy within their generation */
    hvmem_u64 refused;   /* refused calls on the object, its spaces included */
    hvmem_u32 pinned;    /* pinned ids */
    hvmem_u32 last;      /* highest id in use by the narrowest CPU seen */
};

HVMEM_BEGIN_DECLS

/*
 * Bytes (64-byte aligned) of an object with this configuration: 128 a CPU and two bits an id.
 * Errors: HVMEM_E_ARG (null, unknown flag, regime HOST, PER_CPU with BROADCAST, no back-end, a lock
 * regime that the host cannot), HVMEM_E_VERSION, HVMEM_E_COUNT (ids 0, above 65535 in all or above
 * what the back-end's tags hold, or fewer than CPUs without PER_CPU),
 * HVMEM_E_CPU (max_cpus), HVMEM_E_UNSUPPORTED (BROADCAST or ENTRY and the back-end cannot).
 */
HVMEM_API hvmem_status hvmem_ident_size(const struct hvmem_ident_config *config, hvmem_size *bytes);

/*
 * Make an object in memory[0 .. bytes), 64-byte aligned. No CPU is online in it.
 * Errors: as hvmem_ident_size; HVMEM_E_BUFFER.
 */
HVMEM_API hvmem_status hvmem_ident_init(void *memory, hvmem_size bytes,
                                        const struct hvmem_ident_config *config,
                                        struct hvmem_ident **ident);

/*
 * A CPU joins; `last` is the highest id it can load (0xffff for "as configured"). The narrowest CPU
 * decides for all: numbers above are not handed out from then on. The CPU flushes before its first
 * space runs. Errors: HVMEM_E_CPU (number, already online), HVMEM_E_COUNT (`last` leaves too few
 * ids), HVMEM_E_BUSY (an id above `last` is pinned or may be loaded on a CPU).
 */
HVMEM_API hvmem_status hvmem_ident_cpu_online(struct hvmem_ident *ident, hvmem_cpu cpu,
                                              hvmem_u32 last);

/*
 * A CPU leaves: after it deactivated its space and loaded id 0.
 * Errors: HVMEM_E_CPU (number, not online), HVMEM_E_BUSY (a space is active or not yet left).
 */
HVMEM_API hvmem_status hvmem_ident_cpu_offline(struct hvmem_ident *ident, hvmem_cpu cpu);

/*
 * All contexts: every CPU forgets every translation of the regime before it next switches to a
 * space (BROADCAST: before the call returns). CPUs that run one now go on with what they have until
 * they are made to switch; kick them first if that matters. Any CPU.
 */
HVMEM_API hvmem_status hvmem_ident_flush_all(struct hvmem_ident *ident);

/* Counts; exact when nothing runs. Errors: HVMEM_E_ARG. */
HVMEM_API hvmem_status hvmem_ident_get_stats(struct hvmem_ident *ident,
                                             struct hvmem_ident_stats *stats);

HVMEM_END_DECLS

#endif
