/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost.h: what events cost on the modelled machines, in one table, with the source of each value; and
 * bills: counts of events that a table prices. All times are in picoseconds; 64 bits hold 213 days.
 *
 * The values are of big server machines: they say what a count amounts to, they predict no machine.
 * What rests on them is also to be shown with each one halved and doubled.
 */
#ifndef HVMEM_SIM_COST_H
#define HVMEM_SIM_COST_H

#include <hvmem/backend.h>

/* Events. */
enum hvmem_sim_event {
    HVMEM_SIM_STEP,        /* one turn of a loop: compare, next bit */
    HVMEM_SIM_ATOMIC,      /* locked instruction on a line the CPU has */
    HVMEM_SIM_HIT,         /* load of a line in this CPU's nearer caches */
    HVMEM_SIM_FAR_HIT,     /* load of a line in the last-level cache, nobody else has written it */
    HVMEM_SIM_LINE,        /* load or store of a line that another CPU wrote */
    HVMEM_SIM_SWITCH_WORK, /* bookkeeping of one flush of the host's own, on the CPU that flushes */
    HVMEM_SIM_IPI_CALL,    /* asking CPUs for something and waiting: once a call */
    HVMEM_SIM_IPI_CPU,     /* for each CPU that is asked */
    HVMEM_SIM_INVLPG,      /* x86: one page on one CPU */
    HVMEM_SIM_FULL_FLUSH,  /* x86: everything on one CPU, globals too */
    HVMEM_SIM_REFILL,      /* an entry is loaded again after a flush */
    HVMEM_SIM_TLBI,        /* arm64: a broadcast operation, single or range; done at the DSB */
    HVMEM_SIM_DSB,         /* arm64: the barrier that waits for all CPUs */
    HVMEM_SIM_IC_ALL,      /* arm64: whole instruction cache of all CPUs, its DSB included */
    HVMEM_SIM_CLEAN_DIRTY, /* clean of a line that is dirty */
    HVMEM_SIM_CLEAN_CLEAN, /* of one that is cached and not dirty */
    HVMEM_SIM_CLEAN_NONE,  /* of one that is not cached */
    HVMEM_SIM_DC_CIVAC,  /* arm64: clean and invalidate of a line, as measured over whole blocks */
    HVMEM_SIM_ZERO_LINE, /* zeroing 64 bytes past the caches */
    HVMEM_SIM_EVENTS
};

/* Picoseconds an event. */
struct hvmem_sim_costs {
    hvmem_u64 ps[HVMEM_SIM_EVENTS];
};

/* How many of each event. */
struct hvmem_sim_bill {
    hvmem_u64 count[HVMEM_SIM_EVENTS];
};

/* The table. */
void hvmem_sim_costs_default(struct hvmem_sim_costs *costs);
/* One value times num / den. */
void hvmem_sim_costs_scale(struct hvmem_sim_costs *costs, enum hvmem_sim_event event, hvmem_u64 num,
                           hvmem_u64 den);
/* What the event is called, and where its value comes from. */
const char *hvmem_sim_cost_name(enum hvmem_sim_event event);
const char *hvmem_sim_cost_source(enum hvmem_sim_event event);

void hvmem_sim_bill_clear(struct hvmem_sim_bill *bill);
void hvmem_sim_bill_add(struct hvmem_sim_bill *bill, enum hvmem_sim_event event, hvmem_u64 count);
/* `cpus` CPUs are asked at once and waited for, each of which does a full flush meanwhile. */
void hvmem_sim_bill_shootdown(struct hvmem_sim_bill *bill, hvmem_u64 cpus);
/*
 * One batch as the back-ends issue it: with HVMEM_CAP_BROADCAST TLBI and DSB (by IPA: with VMALLE1 and
 * its DSB; HVMEM_QUIRK_REPEAT_TLBI: one more of each), else what one x86 CPU does.
 */
void hvmem_sim_bill_flush(struct hvmem_sim_bill *bill, const struct hvmem_backend_caps *caps,
                          const struct hvmem_tlb_flush *flush);
/* The sum, in picoseconds. */
hvmem_u64 hvmem_sim_bill_price(const struct hvmem_sim_bill *bill,
                               const struct hvmem_sim_costs *costs);

#endif
