/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/config.h: what a heap is made of: its configuration, the debts frames can have, birth, CPUs.
 */
#ifndef HVMEM_CONFIG_H
#define HVMEM_CONFIG_H

#include <hvmem/backend.h>
#include <hvmem/host.h>
#include <hvmem/status.h>
#include <hvmem/types.h>

struct hvmem_heap;
struct hvmem_domain;

/*
 * Obligations: maintenance a frame owes before it may be handed to another owner. Carried by every
 * block, merged by OR, inherited by split (SCRUB: exact per half), kept by an allocated block until
 * it is paid. Order of payment: TLB, host kinds, SCRUB, DCACHE, ICACHE.
 */
#define HVMEM_OWES_TLB     0x01u /* a CPU may still reach it through an earlier translation */
#define HVMEM_OWES_ICACHE  0x02u /* instruction caches may hold lines of earlier code */
#define HVMEM_OWES_DCACHE  0x04u /* dirty lines may hide behind caches (uncached new owner) */
#define HVMEM_OWES_SCRUB   0x08u /* holds data of an earlier owner */
#define HVMEM_OWES_FOREIGN 0x10u /* was mapped outside its owner's own spaces */
#define HVMEM_OWES_HOST0   0x20u /* three kinds defined by the host, */
#define HVMEM_OWES_HOST1   0x40u /* settled by its `settle` operation */
#define HVMEM_OWES_HOST2   0x80u
#define HVMEM_OWES_ANY     0xffu

#define HVMEM_CONFIG_NO_CPU_CACHE 1u /* no per-CPU caches: every call goes to the node heaps */
#define HVMEM_CONFIG_NO_CLOCK     2u /* no times of flushes: what is owed is flushed everywhere */

/*
 * LOW MEMORY. What is free (hvmem_free_frames(): caches included) is compared with the thresholds by every
 * call that goes past the CPU's cache, before it returns; with HVMEM_CONFIG_NO_CPU_CACHE by every call. What
 * a CPU takes from its own cache, or puts there, is not looked at, so that no CPU writes what another reads.
 * Thus LOW_MEMORY may come late, when free memory is below low_frames already by what stood in all caches
 * when a call looked last, MEMORY_OK likewise, and neither early (blocks on their way between a cache and a
 * node heap on another CPU at that moment apart). A CPU's cache holds at most 65 single frames, 16 blocks
 * of each order from 1 to 4 and of order 9, 8 of orders 5 and 6, 4 of orders 7 and 8 that owe nothing,
 * 2,048 and 16 of orders 0 and 9 that wait for a flush, and 64 on their way to other nodes.
 */
struct hvmem_config {
    hvmem_u32 size;        /* sizeof(struct hvmem_config) */
    hvmem_u32 flags;       /* HVMEM_CONFIG_* */
    hvmem_u32 page_shift;  /* log2 bytes a frame: 12, 14 or 16 */
    hvmem_u32 max_order;   /* largest block, 0 .. HVMEM_ORDER_LIMIT */
    hvmem_u32 lock_regime; /* HVMEM_LOCK_* */
    hvmem_u32 max_cpus;    /* 1 .. HVMEM_CPU_LIMIT */
    hvmem_u32 max_banks;   /* 1 .. 65535; a bank that crosses an arena border takes several */
    hvmem_u32 max_domains; /* 0 .. 65534; domain ids are 1 .. max_domains */
    hvmem_u32 arena_order; /* log2 frames of a span that shares a lock; 0: 20; at most 32 */
    hvmem_u32 reserved;
    /*
     * HVMEM_OWES_* every frame of a domain owes when it is freed. SCRUB and ICACHE bring DCACHE where fetches do
     * not see the data caches (neither HVMEM_CAP_IDC nor _ICOHERENT): zeroes there would leave old code.
     */
    hvmem_u32 owed_on_free;
    hvmem_u32 distance_nodes; /* rows of `distance` */
    const hvmem_u8 *distance; /* row-major matrix as in ACPI SLIT; NULL: 10 local, 20 remote */
    const hvmem_u8 *cpu_node; /* node of each CPU, max_cpus entries; NULL: all on node 0 */
    hvmem_u64 low_frames;     /* HVMEM_EVENT_LOW_MEMORY at or below this; 0 = never; see above */
    hvmem_u64 low_hysteresis; /* HVMEM_EVENT_MEMORY_OK above low_frames + low_hysteresis */
    const struct hvmem_host_ops *host; /* may be NULL; copied */
    void *host_ctx;
    struct hvmem_backend *backend; /* may be NULL where no frame ever owes anything; kept */
};

HVMEM_BEGIN_DECLS

/*
 * Fill in the defaults: page_shift 12, max_order 18, caller serialises, 1 CPU, 64 banks, 0 domains,
 * owed_on_free TLB | ICACHE | DCACHE | SCRUB. distance and cpu_node are only read during init.
 */
HVMEM_API void hvmem_config_default(struct hvmem_config *config);

/*
 * Bytes of memory a heap with this configuration needs (64-byte aligned), banks' tables excluded.
 * Errors: HVMEM_E_VERSION, HVMEM_E_ARG, HVMEM_E_ORDER, HVMEM_E_CPU, HVMEM_E_NODE, HVMEM_E_COUNT.
 */
HVMEM_API hvmem_status hvmem_heap_size(const struct hvmem_config *config, hvmem_size *bytes);

/*
 * Make a heap without banks in memory[0 .. bytes). The memory may hold anything; it belongs to the
 * heap until the host stops using the heap. One CPU; no atomics are used.
 * Errors: as hvmem_heap_size, HVMEM_E_BUFFER, HVMEM_E_ARG (also: the regime HVMEM_LOCK_IRQSAVE and a
 * host without the operations irq_save and irq_restore). Nothing is written then.
 */
HVMEM_API hvmem_status hvmem_heap_init(void *memory, hvmem_size bytes,
                                       const struct hvmem_config *config, struct hvmem_heap **heap);

/*
 * From now on several CPUs may call: locks, atomics and per-CPU caches are used. Call once, on one
 * CPU, when atomics work (MMU and caches on). Meaningless in the regime HVMEM_LOCK_CALLER, where
 * it is refused. Errors: HVMEM_E_PHASE (twice, regime, or during an adoption), HVMEM_E_UNSUPPORTED
 * (max_cpus > 1 and no this_cpu operation).
 */
HVMEM_API hvmem_status hvmem_smp_enable(struct hvmem_heap *heap);

/*
 * A CPU joins (before its first call) or leaves (after its last call, and after its last access to
 * memory outside the host's permanent mappings): leaving drains its cache. A CPU that calls online
 * for itself is counted, and then flushes all its translations; called for another CPU, that one
 * comes out of reset or has flushed everything since it left. In a heap fresh from init only the CPU
 * that called init is online; until hvmem_smp_enable() it goes by the number 0, whatever its own is: another
 * CPU of that number joins after that call.
 * Errors: HVMEM_E_CPU (number out of range, already in that state), HVMEM_E_HOST (online: the flush
 * failed).
 */
HVMEM_API hvmem_status hvmem_cpu_online(struct hvmem_heap *heap, hvmem_cpu cpu);
HVMEM_API hvmem_status hvmem_cpu_offline(struct hvmem_heap *heap, hvmem_cpu cpu);

HVMEM_END_DECLS

#endif
