/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/host.h: everything the library asks of the environment it runs in. Together with
 * hvmem/backend.h this is the whole contract; nothing else in lib/ names a host facility.
 *
 * Common rules. Every operation is optional: with no operation at all (ops == NULL) a heap works on
 * one CPU with the caller serialising all calls (the boot mode). `host` is the pointer given at
 * init; the library passes it back and never looks behind it. Operations may not call back into
 * the same heap, except from `event` and `report` for read-only calls. Unless a paragraph says
 * otherwise they may be called with a library lock held and must not sleep.
 *
 * Two bindings of the same contract:
 *  - table: a `struct hvmem_host_ops` whose first member is its own size, so that a host built
 *    against an older header keeps working with a newer library;
 *  - header: compile lib/ with -DHVMEM_HOST_HEADER="<file>". That file may define any of the macros
 *    HVMEM_HOST_THIS_CPU(host), HVMEM_HOST_PIN(host), HVMEM_HOST_UNPIN(host, state),
 *    HVMEM_HOST_RELAX(host), HVMEM_HOST_IRQ_SAVE(host), HVMEM_HOST_IRQ_RESTORE(host, state),
 *    HVMEM_HOST_LOCK(host, lock), HVMEM_HOST_UNLOCK(host, lock); each replaces the table's
 *    operation of that name without an indirect call. What it does not define comes from the table.
 */
#ifndef HVMEM_HOST_H
#define HVMEM_HOST_H

#include <hvmem/status.h>
#include <hvmem/types.h>

/*
 * A lock word. The library embeds it in its own structures and zeroes it before use (zero =
 * unlocked). With the built-in implementation it is a ticket lock; a host that supplies its own
 * lock and unlock may use both words as it likes.
 */
struct hvmem_lock {
    hvmem_u32 next;    /* built-in: next ticket to hand out */
    hvmem_u32 serving; /* built-in: ticket that holds the lock */
};

/* Host events (operation `event`). */
#define HVMEM_EVENT_LOW_MEMORY  1u /* a = free frames, b = threshold; free fell to the threshold */
#define HVMEM_EVENT_MEMORY_OK   2u /* a = free frames, b = threshold; free rose above hysteresis */
#define HVMEM_EVENT_OFFLINED    3u /* a = mfn; a frame asked to go offline has left its owner */
#define HVMEM_EVENT_QUARANTINED 4u /* a = mfn, b = frames; a flush of CPUs or devices failed */

struct hvmem_host_ops {
    /* sizeof(struct hvmem_host_ops) of the host's build. Members beyond it are taken as absent. */
    hvmem_u32 size;
    hvmem_u32 reserved;

    /*
     * Number of the calling CPU, 0 .. max_cpus - 1. Called on every allocation and free once
     * hvmem_smp_enable() was called. Default: 0. Mandatory for more than one CPU.
     */
    hvmem_cpu (*this_cpu)(void *host);

    /*
     * Bracket the use of per-CPU state: between the two the caller stays on its CPU and no other
     * code of that CPU enters the library on the same heap (disable preemption, or interrupts if
     * the library is called from them). The value returned by pin is handed to unpin. Pins do not
     * nest. Default: nothing, which is right where code is never preempted.
     */
    hvmem_u64 (*pin)(void *host);
    void (*unpin)(void *host, hvmem_u64 state);

    /*
     * One turn of a spin loop: pause or yield, and serve whatever the host must serve while it
     * waits (queued messages). May be called with a library lock held. Also called, without one, by long
     * work that cannot stop, after yield_wanted said that it should. Default: a compiler barrier.
     */
    void (*relax)(void *host);

    /*
     * Disable interrupts on this CPU and return the previous state; restore it. Called around each
     * library lock in the regime HVMEM_LOCK_IRQSAVE, for which both are mandatory; never otherwise.
     */
    hvmem_u64 (*irq_save)(void *host);
    void (*irq_restore)(void *host, hvmem_u64 state);

    /*
     * Acquire and release a lock of the host's own kind (both or neither). Called only after
     * hvmem_smp_enable(). Default: the built-in ticket lock on the compiler's atomics.
     */
    void (*lock)(void *host, struct hvmem_lock *lock);
    void (*unlock)(void *host, struct hvmem_lock *lock);

    /*
     * Return only after the code running on `cpu` (or, where it idles, its next code) has passed a
     * full memory barrier since the call began: an interrupt whose handler does nothing is enough
     * (user space: membarrier). Called without library locks that `cpu` could be waiting for with
     * interrupts off; at a low, bounded rate. Lets a per-CPU cache work without locked
     * instructions. Default: per-CPU caches use locked instructions instead.
     *
     * HVMEM_OK is a promise. Anything else means that nothing is known of that CPU, and is right
     * where the message was not delivered, not answered in time, or there is no such CPU. The
     * library asks three times in all; then the CPU's cache works with locked instructions for the
     * life of the heap, and the call that needed the barrier is refused with HVMEM_E_HOST, as are
     * later ones that need that cache, until its CPU has called the library once or a barrier
     * succeeds. For a CPU that is not online in the heap the answer does not matter.
     */
    hvmem_status (*barrier_cpu)(void *host, hvmem_cpu cpu);

    /*
     * Run fn(arg) on every CPU of the set (the caller included, if it is in the set) and return
     * when all have finished. Called with no library lock held, interrupts as the caller of the
     * library had them. Mandatory where remote CPUs must be asked to flush: more than one CPU on
     * hardware without broadcast invalidation. CPUs of the set that are offline are skipped. Anything but
     * HVMEM_OK: some CPU may not have run it; the call that needed it fails with HVMEM_E_HOST.
     *
     * Ask the others first, then run the caller's own share, then wait: so the local flush takes no
     * time of its own. Serve the requests of other CPUs while waiting (or wait with interrupts on):
     * two CPUs that ask each other must both return. fn is short, takes no lock and may run in an
     * interrupt; arg and the set stay valid until the call returns. Calls may nest where interrupts
     * may call the library.
     */
    hvmem_status (*call_cpus)(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *arg),
                              void *arg);

    /*
     * Give a writable mapping of 2^order frames from mfn, and take it back. Called only to zero,
     * scrub, clean or verify frames, never by a plain allocation or free, with no library lock
     * held. NULL: the request fails with HVMEM_E_HOST. Default: such requests are refused with
     * HVMEM_E_UNSUPPORTED; where mappings last frame_unmap may be absent.
     */
    void *(*frame_map)(void *host, hvmem_mfn mfn, hvmem_order order);
    void (*frame_unmap)(void *host, void *map, hvmem_order order);

    /*
     * A caller broke a rule: `code` is what the call returns, mfn and order name the frame where
     * there is one (otherwise 0 and HVMEM_ORDER_ANY), info depends on the code. May panic, count,
     * or print. Called with no library lock held. Default: nothing.
     */
    void (*report)(void *host, hvmem_status code, hvmem_mfn mfn, hvmem_order order, hvmem_u64 info);

    /*
     * An invariant of the library itself does not hold. `where` is a stable short text. Must not
     * return; may be called with locks held. Default: a trap instruction.
     */
    void (*bug)(void *host, const char *where);

    /*
     * Something happened that a host may want to act on: HVMEM_EVENT_*. Called with no library lock
     * held, on the CPU whose call caused it. Default: nothing.
     */
    void (*event)(void *host, hvmem_u32 event, hvmem_u64 a, hvmem_u64 b);

    /*
     * Settle a maintenance obligation of the host's own kind (HVMEM_OWES_HOST0..2: memory-ownership
     * tables, key changes) for 2^order frames: `owed` holds one or more of the three bits. Called
     * with no library lock held, after the TLB work of the frames was done and before they are
     * handed over. Anything but HVMEM_OK: they owe it still, and the request fails with HVMEM_E_HOST.
     * Default: requests for frames that owe such work are refused.
     */
    hvmem_status (*settle)(void *host, hvmem_mfn mfn, hvmem_order order, hvmem_u32 owed);

    /*
     * Whether the CPU is wanted for something else (an interrupt is pending, a higher priority is
     * ready): asked between two stretches of long work (hvmem/cache.h), which then returns
     * HVMEM_AGAIN or, where it cannot, calls `relax` once. Called with no library lock held. Default:
     * never.
     */
    hvmem_u32 (*yield_wanted)(void *host);
};

/* Lock regimes (struct hvmem_config.lock_regime); all fixed at init. */
#define HVMEM_LOCK_CALLER                                                                          \
    0u /* the caller serialises every call on the heap; no atomics, no locks */
#define HVMEM_LOCK_PLAIN   1u /* library locks, interrupts untouched; never call from an interrupt */
#define HVMEM_LOCK_IRQSAVE 2u /* library locks with interrupts saved and disabled around them */

#endif
