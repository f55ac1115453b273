/* SPDX-License-Identifier: BSD-2-Clause */
/* The reports' allocator as events; see populate_before.h. */
#include "populate_before.h"

#include <math.h>
#include <string.h>

/* Bytes of a page's structure, all of which are written, and of a cache line. */
#define PAGE_STRUCT 32u
#define LINE        64u
/* Turns of straight code for each page: state, owner, stamp. */
#define PAGE_STEPS 3u

static void bill(struct before *b, enum hvmem_sim_event event, uint64_t count)
{
    hvmem_sim_bill_add(&b->bill, event, count);
    b->now += count * b->costs.ps[event];
}

/* Uniform in (0, 1]. */
static double draw(struct before *b)
{
    uint64_t x = b->random;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b->random = x;
    return ((double)(x >> 12) + 1) / 4503599627370496.0;
}

static void plan(struct before *b, unsigned cpu, uint64_t after)
{
    b->next[cpu] = after + 1 + (uint64_t)(-log(draw(b)) * (double)b->period);
}

/* What the other CPUs did until now. */
static void let_switch(struct before *b)
{
    unsigned cpu;

    for (cpu = 1; cpu < b->cpus && b->period; cpu++)
        while (b->next[cpu] <= b->now) {
            b->time[cpu] = ++b->clock;
            plan(b, cpu, b->next[cpu]);
        }
}

void before_init(struct before *b, const struct hvmem_sim_costs *costs, unsigned cpus, double rate)
{
    unsigned i;

    memset(b, 0, sizeof *b);
    b->costs = *costs;
    b->cpus = cpus;
    b->period = rate > 0 ? (uint64_t)(1e12 / rate) : 0;
    b->random = 0x9e3779b97f4a7c15u;
    b->clock = 1;
    for (i = 0; i < BEFORE_LAG; i++)
        b->stamp[i] = 1;
    for (i = 1; i < cpus && b->period; i++)
        plan(b, i, 0);
}

/* A word that others may have written since it was read last. */
static void read_shared(struct before *b, uint64_t value, uint64_t *seen,
                        enum hvmem_sim_event unchanged)
{
    bill(b, value != *seen ? HVMEM_SIM_LINE : unchanged, 1);
    *seen = value;
}

/* The filter over all CPUs, and the interrupts to those it leaves. */
static void filter(struct before *b, uint64_t stamp)
{
    struct hvmem_sim_bill shot;
    uint64_t asked = 0;
    unsigned cpu;

    for (cpu = 0; cpu < b->cpus; cpu++) {
        bill(b, HVMEM_SIM_STEP, 1);
        read_shared(b, b->time[cpu], &b->seen[cpu], HVMEM_SIM_FAR_HIT);
        asked += b->time[cpu] <= stamp;
    }
    if (!asked)
        return;
    b->clock++;
    for (cpu = 0; cpu < b->cpus; cpu++)
        if (b->time[cpu] <= stamp)
            b->time[cpu] = b->clock;
    hvmem_sim_bill_clear(&shot);
    hvmem_sim_bill_shootdown(&shot, asked);
    hvmem_sim_bill_shootdown(&b->bill, asked);
    b->now += hvmem_sim_bill_price(&shot, &b->costs);
    b->flushes++;
    b->asked += asked;
}

void before_allocate(struct before *b, unsigned order, int live)
{
    uint64_t pages = (uint64_t)1 << order;
    uint64_t *stamp = &b->stamp[b->allocations++ % BEFORE_LAG];
    uint64_t newest = *stamp;

    let_switch(b);
    /* The lock: its line is elsewhere if another CPU freed meanwhile. */
    bill(b, HVMEM_SIM_ATOMIC, 2);
    bill(b, live ? HVMEM_SIM_LINE : HVMEM_SIM_HIT, 1);
    /* Every page structure of the block, written by the CPU that freed it. */
    bill(b, HVMEM_SIM_STEP, PAGE_STEPS * pages);
    bill(b, HVMEM_SIM_LINE, (pages * PAGE_STRUCT + LINE - 1) / LINE);
    read_shared(b, b->clock, &b->seen_clock, HVMEM_SIM_HIT);
    filter(b, newest);
    *stamp = live ? b->clock : 1;
}

double before_seconds(struct before *b, unsigned order, int live, double count, unsigned samples)
{
    uint64_t start;
    unsigned i;

    for (i = 0; i < 2 * BEFORE_LAG; i++)
        before_allocate(b, order, live);
    hvmem_sim_bill_clear(&b->bill);
    b->flushes = 0;
    b->asked = 0;
    start = b->now;
    for (i = 0; i < samples; i++)
        before_allocate(b, order, live);
    return (double)(b->now - start) * 1e-12 / samples * count;
}
