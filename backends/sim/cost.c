/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of costs and the pricing of bills; see cost.h. */
#include "cost.h"

void *memset(void *to, int byte, hvmem_size bytes);

struct entry {
    const char *name;
    const char *source;
    hvmem_u64 ps;
};

static struct entry entry_of(const char *name, hvmem_u64 ps, const char *source)
{
    struct entry entry;

    entry.name = name;
    entry.source = source;
    entry.ps = ps;
    return entry;
}

/* Processor work: what no flush has a part in. */
static struct entry processor_entry(enum hvmem_sim_event event)
{
    switch (event) {
    case HVMEM_SIM_STEP:
        return entry_of("step", 1000, "assumed: 3 cycles at 3 GHz");
    case HVMEM_SIM_ATOMIC:
        return entry_of("atomic", 6700, "assumed: 20 cycles at 3 GHz");
    case HVMEM_SIM_HIT:
        return entry_of("hit", 4000,
                        "12 to 14 cycles of a second-level cache (AnandTech 2019, EPYC "
                        "7742 and Xeon 8280), 3.2 GHz");
    case HVMEM_SIM_FAR_HIT:
        return entry_of("far hit", 14000,
                        "34 to 46 cycles of a third-level cache (the same), 3 GHz");
    case HVMEM_SIM_LINE:
        return entry_of("line", 100000,
                        "assumed near a memory access: 113 to 134 ns on the same machines");
    case HVMEM_SIM_SWITCH_WORK:
        return entry_of("switch work", 20000, "assumed: a locked tick, a store, their calls");
    default:
        return entry_of("", 0, "");
    }
}

static struct entry flush_entry(enum hvmem_sim_event event)
{
    switch (event) {
    case HVMEM_SIM_IPI_CALL:
        return entry_of("IPI call", 1000000,
                        "line through 1.6 us at 4 CPUs, 14 us at 64, 50 us at 256 (secondary web "
                        "sources, no primary one found)");
    case HVMEM_SIM_IPI_CPU:
        return entry_of("IPI CPU", 195000, "slope of the same line");
    case HVMEM_SIM_INVLPG:
        return entry_of("INVLPG", 100000, "D. Hansen, linux-kernel 2014: about 100 ns, Ivy Bridge");
    case HVMEM_SIM_FULL_FLUSH:
        return entry_of("full flush", 690000,
                        "the same: 2283 cycles traced less 335 of tracing, 2.8 GHz");
    case HVMEM_SIM_REFILL:
        return entry_of("refill", 17100, "the same: data TLB miss 17.1 ns");
    case HVMEM_SIM_TLBI:
        return entry_of("TLBI", 72000,
                        "one part in 21 of TLBI + DSB, as 529 units to 11,100 (Zhenyu Ye, "
                        "linux-arm-kernel 2020)");
    case HVMEM_SIM_DSB:
        return entry_of("DSB", 1428000,
                        "TLBI + DSB 1.5 us: KVM unmap, 1.93 us a page less 0.43 with one range "
                        "operation (R. R. Ananta 2023); less the TLBI");
    default:
        return entry_of("", 0, "");
    }
}

static struct entry cache_entry(enum hvmem_sim_event event)
{
    switch (event) {
    case HVMEM_SIM_IC_ALL:
        return entry_of("IC all", 1500000, "assumed as a broadcast TLBI and its DSB");
    case HVMEM_SIM_CLEAN_DIRTY:
        return entry_of("clean, dirty", 5930, "own: CLFLUSHOPT 15.4 ticks of 2.596 GHz, 64 lines");
    case HVMEM_SIM_CLEAN_CLEAN:
        return entry_of("clean, clean", 5160, "own: 13.4 ticks");
    case HVMEM_SIM_CLEAN_NONE:
        return entry_of("clean, absent", 2970, "own: 7.7 ticks");
    case HVMEM_SIM_DC_CIVAC:
        return entry_of("DC CIVAC", 7500,
                        "reports: order 18 133 ms against 7.5 without, 2^24 lines; order 9 264 us "
                        "against 16, 2^15 lines");
    case HVMEM_SIM_ZERO_LINE:
        return entry_of("zero line", 6400, "assumed: 10 GB/s");
    default:
        return entry_of("unknown", 0, "none");
    }
}

static struct entry entry(enum hvmem_sim_event event)
{
    if (event <= HVMEM_SIM_SWITCH_WORK)
        return processor_entry(event);
    return event <= HVMEM_SIM_DSB ? flush_entry(event) : cache_entry(event);
}

const char *hvmem_sim_cost_name(enum hvmem_sim_event event)
{
    return entry(event).name;
}

const char *hvmem_sim_cost_source(enum hvmem_sim_event event)
{
    return entry(event).source;
}

void hvmem_sim_costs_default(struct hvmem_sim_costs *costs)
{
    hvmem_u32 i;

    for (i = 0; i < HVMEM_SIM_EVENTS; i++)
        costs->ps[i] = entry((enum hvmem_sim_event)i).ps;
}

void hvmem_sim_costs_scale(struct hvmem_sim_costs *costs, enum hvmem_sim_event event, hvmem_u64 num,
                           hvmem_u64 den)
{
    costs->ps[event] = costs->ps[event] * num / den;
}

/* ---- bills ----------------------------------------------------------------------------------- */

void hvmem_sim_bill_clear(struct hvmem_sim_bill *bill)
{
    memset(bill, 0, sizeof *bill);
}

void hvmem_sim_bill_add(struct hvmem_sim_bill *bill, enum hvmem_sim_event event, hvmem_u64 count)
{
    bill->count[event] += count;
}

void hvmem_sim_bill_shootdown(struct hvmem_sim_bill *bill, hvmem_u64 cpus)
{
    if (!cpus)
        return;
    bill->count[HVMEM_SIM_IPI_CALL]++;
    bill->count[HVMEM_SIM_IPI_CPU] += cpus;
    bill->count[HVMEM_SIM_FULL_FLUSH]++; /* the slowest one's: they flush at the same time */
}

/* Operations of a request for ranges, as the flags ask. */
static hvmem_u64 operations(const struct hvmem_backend_caps *caps,
                            const struct hvmem_tlb_flush *flush)
{
    hvmem_u64 sum = 0;
    hvmem_u32 i;

    for (i = 0; i < flush->count; i++) {
        const struct hvmem_tlb_range *range = &flush->ranges[i];
        hvmem_u32 shift =
            range->stride_shift > caps->page_shift ? range->stride_shift - caps->page_shift : 0;
        hvmem_u64 singles = (range->pages + ((hvmem_u64)1 << shift) - 1) >> shift;
        hvmem_u64 max = caps->max_range_pages > 1 ? caps->max_range_pages : 1;
        hvmem_u64 pieces = range->pages / max, left = range->pages % max, step;

        /* Greedy cover: one operation a scale, the odd page apart (arm64 FEAT_TLBIRANGE). */
        for (step = (hvmem_u64)1 << 16; left && step > 1; step >>= 5)
            if (left / step) {
                pieces++;
                left %= step;
            }
        pieces += left & 1;
        if (!(caps->features & HVMEM_CAP_RANGE) || (flush->flags & HVMEM_TLB_SINGLES) ||
            singles < pieces)
            pieces = singles;
        sum += pieces;
    }
    return sum;
}

void hvmem_sim_bill_flush(struct hvmem_sim_bill *bill, const struct hvmem_backend_caps *caps,
                          const struct hvmem_tlb_flush *flush)
{
    int by_address = flush->what == HVMEM_FLUSH_RANGES;
    hvmem_u64 count = by_address ? operations(caps, flush) : 1;

    if (!(caps->features & HVMEM_CAP_BROADCAST)) {
        hvmem_sim_bill_add(bill, by_address ? HVMEM_SIM_INVLPG : HVMEM_SIM_FULL_FLUSH, count);
        return;
    }
    hvmem_sim_bill_add(bill, HVMEM_SIM_TLBI, count);
    hvmem_sim_bill_add(bill, HVMEM_SIM_DSB, 1);
    if (by_address && flush->space.regime == HVMEM_REGIME_STAGE2) {
        hvmem_sim_bill_add(bill, HVMEM_SIM_TLBI, 1);
        hvmem_sim_bill_add(bill, HVMEM_SIM_DSB, 1);
    }
    if (caps->quirks & HVMEM_QUIRK_REPEAT_TLBI) {
        hvmem_sim_bill_add(bill, HVMEM_SIM_TLBI, 1);
        hvmem_sim_bill_add(bill, HVMEM_SIM_DSB, 1);
    }
}

hvmem_u64 hvmem_sim_bill_price(const struct hvmem_sim_bill *bill,
                               const struct hvmem_sim_costs *costs)
{
    hvmem_u64 sum = 0;
    hvmem_u32 i;

    for (i = 0; i < HVMEM_SIM_EVENTS; i++)
        sum += bill->count[i] * costs->ps[i];
    return sum;
}
