/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The figure of flushes that hot reuse of a domain's frames needs, counted on the model machine: 8 CPUs
 * run the domain and load what they like while CPU 0 allocates a frame, maps it, unmaps and frees it
 * again and again. The oracle looks at every hand-over; that there was something to flush is counted.
 */
#include "backends/sim/machine.h"
#include "bench/common/figure.h"

#include <hvmem/bank.h>
#include <hvmem/domain.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>

#include <stdlib.h>

#define CPUS      8u
#define FRAMES    16384u
#define FIRST     0x1000u
#define ROTATION  2048u /* frames that age in the cache of a CPU: 8 MiB */
#define ROTATIONS 20u
#define SERIAL    7u /* of the domain, to the model */

static struct hvmem_sim_machine machine;

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return machine.current;
}

static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *arg),
                              void *arg)
{
    (void)host;
    return hvmem_sim_call_cpus(&machine, cpus, fn, arg);
}

static void *memory_of(hvmem_size bytes)
{
    void *memory = aligned_alloc(128, (bytes + 127) / 128 * 128);

    FIGURE_REQUIRE(memory != NULL);
    return memory;
}

static void make_machine(void)
{
    struct hvmem_sim_machine_config config = {
        .cpus = CPUS, .slots = 32, .base = FIRST, .frames = FRAMES, .seed = 1};
    hvmem_cpu cpu;

    hvmem_sim_machine_init(&machine, memory_of(hvmem_sim_machine_bytes(&config)), &config);
    for (cpu = 1; cpu < CPUS; cpu++)
        hvmem_sim_set_online(&machine, cpu, 1);
}

static struct hvmem_heap *make_heap(void)
{
    static const struct hvmem_host_ops host = {
        .size = sizeof host, .this_cpu = this_cpu, .call_cpus = call_cpus};
    struct hvmem_bank bank = {.size = sizeof bank, .base = FIRST, .frames = FRAMES};
    struct hvmem_config config;
    struct hvmem_heap *heap;
    hvmem_size bytes;
    hvmem_cpu cpu;

    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = CPUS;
    config.host = &host;
    config.backend = &machine.backend;
    config.max_domains = 1;
    config.owed_on_free = HVMEM_OWES_TLB;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(memory_of(bytes), bytes, &config, &heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_size(heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(heap, &bank, memory_of(bytes), bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_smp_enable(heap) == HVMEM_OK);
    for (cpu = 1; cpu < CPUS; cpu++) {
        machine.current = cpu;
        FIGURE_REQUIRE(hvmem_cpu_online(heap, cpu) == HVMEM_OK);
    }
    machine.current = 0;
    return heap;
}

static struct hvmem_domain *make_domain(struct hvmem_heap *heap)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    struct hvmem_domain *domain;
    hvmem_size bytes = hvmem_domain_size(heap);

    FIGURE_REQUIRE(hvmem_domain_create(heap, memory_of(bytes), bytes, &config, &domain) ==
                   HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_start(domain) == HVMEM_OK);
    return domain;
}

/* The domain's tables, which every CPU walks. */
static void make_space(struct hvmem_heap *heap, struct hvmem_sim_space *space)
{
    hvmem_mfn root, table;
    hvmem_cpu cpu;

    FIGURE_REQUIRE(hvmem_alloc_order(heap, 0, &root) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_alloc_order(heap, 0, &table) == HVMEM_OK);
    hvmem_sim_space_create(&machine, space, 0, 1, root);
    hvmem_sim_use_table(&machine, table, space->serial);
    hvmem_sim_hook(&machine, space, 0, table);
    for (cpu = 0; cpu < CPUS; cpu++)
        hvmem_sim_load(&machine, cpu, space);
}

static hvmem_u64 flushes_of(struct hvmem_heap *heap)
{
    struct hvmem_stats stats;

    FIGURE_REQUIRE(hvmem_stats(heap, HVMEM_NODE_ANY, sizeof stats, &stats) == HVMEM_OK);
    return stats.flushes;
}

/* Pairs; returns how many frames were freed while a CPU still reached them. */
static hvmem_u64 pairs(struct hvmem_heap *heap, struct hvmem_domain *domain,
                       const struct hvmem_sim_space *space, hvmem_u64 n)
{
    hvmem_u64 stale = 0, i;
    hvmem_mfn mfn;

    for (i = 0; i < n; i++) {
        hvmem_u64 page = i % HVMEM_SIM_FANOUT;

        FIGURE_REQUIRE(hvmem_alloc_owned(heap, domain, 0, &mfn) == HVMEM_OK);
        FIGURE_REQUIRE(hvmem_sim_reached(&machine, mfn, 1) == 0);
        hvmem_sim_use_data(&machine, mfn, 1, SERIAL);
        hvmem_sim_map(&machine, space, page, mfn, 0);
        hvmem_sim_speculate(&machine, 24);
        hvmem_sim_unmap(&machine, space, page);
        stale += hvmem_sim_reached(&machine, mfn, 1) != 0;
        hvmem_sim_use_none(&machine, mfn, 1);
        FIGURE_REQUIRE(hvmem_free_owned(heap, mfn, 0, domain, 0) == HVMEM_OK);
    }
    return stale;
}

FIGURE(reuse_flushes, "reuse.flushes_per_10k", "flushes",
       "flushes for 10,000 order-0 allocations of a domain, hot reuse, each hand-over checked")
{
    struct hvmem_sim_space space = {{0}, 0, 0};
    struct hvmem_domain *domain;
    struct hvmem_heap *heap;
    hvmem_u64 before, flushes, stale;

    make_machine();
    heap = make_heap();
    domain = make_domain(heap);
    make_space(heap, &space);
    (void)pairs(heap, domain, &space, 2 * ROTATION);
    before = flushes_of(heap);
    stale = pairs(heap, domain, &space, ROTATIONS * ROTATION);
    flushes = flushes_of(heap) - before;
    /* One for each rotation is owed: fewer would be as wrong as more. */
    FIGURE_REQUIRE(flushes == ROTATIONS);
    FIGURE_REQUIRE(stale >= ROTATIONS); /* or there was nothing to flush */
    figure_comment("%llu pairs, %llu flushes, %llu frames freed while a CPU could reach them",
                   (unsigned long long)(ROTATIONS * ROTATION), (unsigned long long)flushes,
                   (unsigned long long)stale);
    return (double)flushes * 10000 / (ROTATIONS * ROTATION);
}
