/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/policy.h: how to invalidate a set of ranges: nothing, by single-page operations, by range
 * operations, the whole space, or everything. A pure function of the ranges, of what the machine
 * can do, and of thresholds or measured costs. It issues nothing and may be replaced.
 */
#ifndef HVMEM_POLICY_H
#define HVMEM_POLICY_H

#include <hvmem/backend.h>

/* Decisions (struct hvmem_policy_choice.what), from the narrowest to the widest. */
#define HVMEM_CHOOSE_NOTHING 0u
#define HVMEM_CHOOSE_SINGLES 1u /* an operation for each stride of each range */
#define HVMEM_CHOOSE_RANGES  2u /* range operations for those ranges that then need fewer */
#define HVMEM_CHOOSE_SPACE   3u /* everything under the space's id */
#define HVMEM_CHOOSE_ALL     4u /* every translation */
#define HVMEM_CHOICES        5u

/*
 * What TLB work costs, in any one unit (cycles, nanoseconds). Where a wide flush also drops entries
 * that are still needed, the time to load them again belongs to its cost.
 */
struct hvmem_flush_costs {
    hvmem_u64 batch;  /* once for a batch by address; second stage: with VMALLE1 and its DSB */
    hvmem_u64 single; /* a single-page operation */
    hvmem_u64 range;  /* a range operation */
    hvmem_u64 space;  /* a whole space */
    hvmem_u64 all;    /* everything */
};

/* What was decided. */
struct hvmem_policy_choice {
    hvmem_u32 what;       /* HVMEM_CHOOSE_* */
    hvmem_u32 companions; /* 1: a by-IPA batch, which drags in one VMALLE1 (Arm ARM D8.14) */
    hvmem_u64 operations; /* invalidations without the companion */
    hvmem_u64 cost;       /* by the policy's costs; 0 if it has none */
};

struct hvmem_policy;

/*
 * Decide for `flush` (what = HVMEM_FLUSH_RANGES). Context: any; calls nothing and keeps nothing.
 * Errors: those of hvmem_policy_choose.
 */
typedef hvmem_status hvmem_policy_fn(const struct hvmem_policy *policy,
                                     const struct hvmem_backend_caps *caps,
                                     const struct hvmem_tlb_flush *flush,
                                     struct hvmem_policy_choice *choice);

/* Policy flags. */
#define HVMEM_POLICY_COSTS       1u /* decide by costs; else by max_pages and max_operations */
#define HVMEM_POLICY_LPA2_STAGE1 2u /* arm64: range bases are multiples of 64 KiB (TCR.DS = 1) */
#define HVMEM_POLICY_LPA2_STAGE2 4u /* the same for the second stage (VTCR.DS = 1) */

struct hvmem_policy {
    hvmem_u32 size; /* sizeof(struct hvmem_policy) */
    hvmem_u32 flags;
    /*
     * Most operations (not pages, not bytes) of one batch; above, the space is flushed. Holds with
     * costs too, where HVMEM_POLICY_OPERATIONS is right: then a batch by address is only chosen
     * while it is shorter than the wide flush. 1 .. HVMEM_POLICY_OPERATIONS.
     */
    hvmem_u32 max_operations;
    hvmem_u32 reserved;
    /* Without costs: most pages to be covered by TLBI range operations. */
    hvmem_u64 max_pages;
    struct hvmem_flush_costs costs[2]; /* of the first stage (host, user, guest), of the second */
    hvmem_policy_fn
        *choose; /* decides in place of hvmem_policy_choose; NULL: the library decides */
    void *ctx;   /* for choose */
};
#define HVMEM_POLICY_OPERATIONS 4096u

/* One measurement: a batch of `operations` (1 for SPACE and ALL) took `cost`. */
struct hvmem_policy_sample {
    hvmem_u32 what; /* HVMEM_CHOOSE_SINGLES .. HVMEM_CHOOSE_ALL */
    hvmem_u32 operations;
    hvmem_u64 cost;
};
#define HVMEM_POLICY_SAMPLES 256u /* most that a fit takes */

/* How to measure on this machine (hvmem_policy_calibrate). */
struct hvmem_policy_probe {
    hvmem_u32 size;   /* sizeof(struct hvmem_policy_probe) */
    hvmem_u32 scope;  /* HVMEM_SCOPE_* */
    hvmem_u32 pages;  /* pages of the area, 4 .. HVMEM_POLICY_OPERATIONS */
    hvmem_u32 rounds; /* each measurement is the least of so many, 1 .. 1000 */
    hvmem_u64 start;  /* first address of the area in the space; flushed, never accessed */
    struct hvmem_tlb_space space;
    hvmem_u64 (*counter)(void *ctx); /* cycle counter or clock of any unit; monotone */
    /* Use a working set whose translations a wide flush drops; NULL: reloading costs nothing. */
    void (*touch)(void *ctx);
    void *ctx;
};

HVMEM_BEGIN_DECLS

/*
 * Thresholds for a machine. Operations: one page's worth of entries (512 with 4 KiB) where TLBI
 * reach all CPUs in single pages or in ranges of up to 2^21 pages, as a bound on the length of a
 * batch; 33 for INVLPG and INVLPGB, whose whole flush is cheap (98.6 % of flushes were not longer where Linux
 * chose that number: "x86: mm: set TLB flush tunable to sane value (33)", D. Hansen, 2014).
 * Pages: 2^21, which takes at most 5 range operations, 20 with LPA2.
 * Errors: HVMEM_E_ARG (null).
 */
HVMEM_API hvmem_status hvmem_policy_default(struct hvmem_policy *policy,
                                            const struct hvmem_backend_caps *caps);

/*
 * Decide how to do `flush`. ranges may be in any order; the work of each is counted as the
 * back-ends issue it. SPACE is offered only where it drops all that the ranges may hold (global
 * entries of a tagged space need ALL). Freed tables and unknown levels do not change the count:
 * the same operations are issued in their non-leaf form, without a hint. With costs the choice is
 * the cheapest possible one within max_operations; otherwise by address up to the thresholds.
 * Context: any. Errors, *choice unchanged: HVMEM_E_ARG (null, a range's flag, stride), HVMEM_E_VERSION,
 * HVMEM_E_RANGE (empty or wrapping range), HVMEM_E_COUNT (max_operations).
 */
HVMEM_API hvmem_status hvmem_policy_choose(const struct hvmem_policy *policy,
                                           const struct hvmem_backend_caps *caps,
                                           const struct hvmem_tlb_flush *flush,
                                           struct hvmem_policy_choice *choice);

/* Turn a request for ranges into the one decided: changes what, count and flags of *flush. */
HVMEM_API void hvmem_policy_apply(const struct hvmem_policy_choice *choice,
                                  struct hvmem_tlb_flush *flush);

/*
 * Costs out of measurements: batch and single by least squares over SINGLES (at least two different
 * sizes), range from RANGES (none: as single), space and all as the mean (none: all as space).
 * Errors, *costs unchanged: HVMEM_E_ARG (null, kind), HVMEM_E_COUNT (too few, too many, or an
 * operation count above HVMEM_POLICY_OPERATIONS), HVMEM_E_RANGE (a cost above 2^32).
 */
HVMEM_API hvmem_status hvmem_policy_fit(struct hvmem_flush_costs *costs,
                                        const struct hvmem_policy_sample *samples, hvmem_u32 count);

/*
 * Measure costs[stage 2 or not] of the policy by flushing the probe's area with the back-end, and
 * decide by costs from then on, without another limit than HVMEM_POLICY_OPERATIONS. Issues about 20 *
 * rounds batches. Context: as struct hvmem_backend_ops.tlb_flush, interrupts off if the counter is to be
 * trusted; x86: costs of this CPU alone, to which a host that asks others adds the price of asking in
 * `batch`, `space` and `all`. Errors, policy unchanged: HVMEM_E_ARG, HVMEM_E_VERSION, HVMEM_E_COUNT (pages,
 * rounds), HVMEM_E_RANGE (a measurement above 2^32), the back-end's.
 */
HVMEM_API hvmem_status hvmem_policy_calibrate(struct hvmem_policy *policy, struct hvmem_backend *be,
                                              const struct hvmem_policy_probe *probe);

HVMEM_END_DECLS

#endif
