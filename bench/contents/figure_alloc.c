/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocation of large blocks that owe cache work: as the reports had it, a loop over the pages under
 * the heap's lock that cleans each; and deferred, with the work settled later, outside every lock.
 */
#include "bench/reference/buddy.h"
#include "machine.h"

#include <pthread.h>
#include <stdlib.h>

#define SECONDS 3.0
#define ROUNDS  25u
#define PAGE    4096u

struct allocation {
    struct contents machine;
    struct buddy *buddy;
    pthread_mutex_t lock;
    hvmem_order order;
    hvmem_u64 times; /* deferred pairs a round */
};

/* Before: the lock is held while every page of the block is cleaned and invalidated. ns a block. */
static void before_round(void *arg, double *values)
{
    struct allocation *a = arg;
    struct hvmem_backend *be = &a->machine.real;
    hvmem_u64 page;
    double start;
    uint32_t frame;

    start = contents_spent();
    pthread_mutex_lock(&a->lock);
    frame = buddy_alloc(a->buddy, a->order);
    FIGURE_REQUIRE(frame != BUDDY_NONE);
    for (page = 0; page < (hvmem_u64)1 << a->order; page++)
        (void)be->ops->dcache(be, HVMEM_DC_CLEAN_INVALIDATE,
                              (hvmem_uptr)a->machine.memory + (frame + page) * PAGE, PAGE);
    pthread_mutex_unlock(&a->lock);
    values[0] = contents_spent() - start;
    buddy_free(a->buddy, frame, a->order);
}

/* After: allocation with the debt left on the block. ns a block; the free is not timed. */
static void deferred_round(void *arg, double *values)
{
    struct allocation *a = arg;
    struct hvmem_domain *domain = contents_domain(&a->machine);
    double spent = 0;
    hvmem_u64 i;

    for (i = 0; i < a->times; i++) {
        double start = bench_now();
        hvmem_mfn mfn = contents_take(&a->machine, domain, a->order);

        spent += bench_now() - start;
        FIGURE_REQUIRE(hvmem_free(a->machine.heap, mfn, a->order) == HVMEM_OK);
    }
    contents_domain_gone(domain);
    values[0] = spent / (double)a->times;
}

static void start_domain(struct allocation *a, struct hvmem_domain *domain, hvmem_mfn mfn)
{
    struct hvmem_cursor cursor = {{0}};
    (void)a;
    (void)mfn;

    FIGURE_REQUIRE(hvmem_domain_start_step(domain, 0, &cursor) == HVMEM_OK);
}

static void settle_block(struct allocation *a, struct hvmem_domain *domain, hvmem_mfn mfn)
{
    hvmem_status status =
        hvmem_settle(a->machine.heap, mfn, (hvmem_u64)1 << a->order, HVMEM_OWES_ANY);
    (void)domain;

    FIGURE_REQUIRE(status == HVMEM_OK);
}

/* Allocation, and what settles it later, in stretches. values[0]: ns. */
static void settle_with(struct allocation *a, double *values,
                        void (*settle)(struct allocation *, struct hvmem_domain *, hvmem_mfn))
{
    struct hvmem_domain *domain = contents_domain(&a->machine);
    struct hvmem_block block;
    double start = contents_spent();
    hvmem_mfn mfn = contents_take(&a->machine, domain, a->order);

    FIGURE_REQUIRE(hvmem_lookup(a->machine.heap, mfn, &block) == HVMEM_OK);
    FIGURE_REQUIRE(block.owed == HVMEM_OWES_DCACHE);
    settle(a, domain, mfn);
    values[0] = contents_spent() - start;
    FIGURE_REQUIRE(hvmem_lookup(a->machine.heap, mfn, &block) == HVMEM_OK && block.owed == 0);
    FIGURE_REQUIRE(hvmem_free(a->machine.heap, mfn, a->order) == HVMEM_OK);
    contents_domain_gone(domain);
}

static void settle_round(void *arg, double *values)
{
    settle_with(arg, values, start_domain);
}

static void settle_call_round(void *arg, double *values)
{
    settle_with(arg, values, settle_block);
}

/* The bare loop of instructions over the same lines. */
static void bare_round(void *arg, double *values)
{
    struct allocation *a = arg;
    struct hvmem_backend *be = &a->machine.real;
    double start = contents_spent();

    (void)be->ops->dcache(be, HVMEM_DC_CLEAN_INVALIDATE, (hvmem_uptr)a->machine.memory,
                          (hvmem_size)PAGE << a->order);
    values[0] = contents_spent() - start;
}

static void open_allocation(struct allocation *a, hvmem_order order)
{
    void *memory = malloc(buddy_bytes((uint32_t)CONTENTS_FRAMES));

    contents_open(&a->machine, HVMEM_OWES_DCACHE, 0);
    contents_make_owe(&a->machine, 18);
    FIGURE_REQUIRE(memory != NULL);
    a->buddy = buddy_init(memory, (uint32_t)CONTENTS_FRAMES);
    pthread_mutex_init(&a->lock, NULL);
    a->order = order;
    a->times = 200;
}

static void close_allocation(struct allocation *a)
{
    free(a->buddy);
    pthread_mutex_destroy(&a->lock);
    contents_close(&a->machine);
}

/* Two sides in turn; the medians, and the ratio of the first over the second. */
static double compare(hvmem_order order, void (*first)(void *, double *),
                      void (*second)(void *, double *), const char *words, double *median)
{
    struct allocation a;
    struct bench_side sides[2] = {{.round = first, .arg = &a, .values = 1, .long_round = 1},
                                  {.round = second, .arg = &a, .values = 1, .long_round = 1}};
    double ratio;

    open_allocation(&a, order);
    bench_rounds(sides, 2, SECONDS, ROUNDS);
    ratio = bench_median_ratio(&sides[0].samples[0], &sides[1].samples[0]);
    *median = bench_median(&sides[0].samples[0]);
    figure_comment("order %u: %s: %.1f us against %.3f us", order, words, *median / 1000,
                   bench_median(&sides[1].samples[0]) / 1000);
    bench_rounds_free(sides, 2);
    close_allocation(&a);
    return ratio;
}

FIGURE(alloc18_before, "alloc18.lock_us_before", "us",
       "lock held by an order-18 allocation that cleans every page under it (reference)")
{
    double median;

    (void)compare(18, before_round, deferred_round, "clean in the lock, deferred", &median);
    return median / 1000;
}

FIGURE(alloc18_ratio, "alloc18.ratio", "times",
       "order-18 allocation that cleans every page in the lock, over a deferred one")
{
    double median;

    return compare(18, before_round, deferred_round, "clean in the lock, deferred", &median);
}

FIGURE(alloc9_ratio, "alloc9.ratio", "times", "the same for order 9")
{
    double median;

    return compare(9, before_round, deferred_round, "clean in the lock, deferred", &median);
}

FIGURE(alloc18_settle, "alloc18.settle_over_bare_loop", "ratio",
       "order-18 allocation and its settle by the start, over the bare loop on the same lines")
{
    double median;

    return compare(18, settle_round, bare_round, "allocation + settle, bare loop", &median);
}

FIGURE(alloc18_settle_call, "alloc18.settle_call_over_bare_loop", "ratio",
       "the same where hvmem_settle() pays, which holds each part against first touches meanwhile")
{
    double median;

    return compare(18, settle_call_round, bare_round, "allocation + hvmem_settle(), bare loop",
                   &median);
}
