/* SPDX-License-Identifier: BSD-2-Clause */
/* Figures of identifiers: switching a CPU between two spaces, and a rollover with 128 CPUs. */
#include "guest.h"

#include "bench/common/figure.h"
#include "bench/common/rounds.h"

#define SWITCHES  20000u
#define ROLLOVERS 50u
#define CPUS      128u

static void switch_round(void *arg, double *values)
{
    struct guest *guest = arg;
    struct hvmem_entry entry;
    double start = bench_now();
    unsigned i;

    for (i = 0; i < SWITCHES; i++) {
        FIGURE_REQUIRE(hvmem_space_activate(guest->spaces[i & 1], 0, &entry) == HVMEM_OK);
        hvmem_space_entered(guest->ident, 0);
    }
    values[0] = (bench_now() - start) / SWITCHES;
}

/* Every CPU runs a space; the numbers end. The flush itself costs nothing here. */
static void rollover_round(void *arg, double *values)
{
    struct guest *guest = arg;
    struct hvmem_entry entry;
    double spent = 0;
    hvmem_cpu cpu;
    unsigned i;

    for (i = 0; i < ROLLOVERS; i++) {
        double start;

        for (cpu = 0; cpu < guest->cpus; cpu++) {
            FIGURE_REQUIRE(hvmem_space_activate(guest->spaces[cpu & 1], cpu, &entry) == HVMEM_OK);
            hvmem_space_entered(guest->ident, cpu);
        }
        start = bench_now();
        hvmem_ident_flush_all(guest->ident);
        spent += bench_now() - start;
    }
    values[0] = spent / ROLLOVERS / 1000;
}

static double measure(void (*round)(void *, double *), hvmem_u32 bits, hvmem_u32 cpus)
{
    struct bench_side side = {.round = round, .values = 1};
    struct hvmem_ident_stats stats;
    struct guest guest;
    double value;

    guest_open(&guest, bits, cpus);
    side.arg = &guest;
    bench_rounds(&side, 1, 1.0, 2000);
    value = bench_median(&side.samples[0]);
    bench_rounds_free(&side, 1);
    hvmem_ident_get_stats(guest.ident, &stats);
    FIGURE_REQUIRE(stats.refused == 0 && (cpus == 1 || stats.rollovers >= ROLLOVERS));
    guest_close(&guest);
    return value;
}

FIGURE(id_switch_ns, "id.switch_ns", "ns",
       "switch a CPU to the other of two spaces, generation current (activate, entered)")
{
    return measure(switch_round, 16, 1);
}

FIGURE(id_rollover_us_8, "id.rollover_us_8", "us",
       "end of a generation of 255 ids, 128 CPUs run one")
{
    return measure(rollover_round, 8, CPUS);
}

FIGURE(id_rollover_us, "id.rollover_us", "us",
       "end of a generation of 65,535 ids, 128 CPUs run one")
{
    double narrow = measure(rollover_round, 8, CPUS);

    figure_comment("with 255 ids %.2f us", narrow);
    return measure(rollover_round, 16, CPUS);
}
