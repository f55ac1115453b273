/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads as CPUs, for the thread sanitizer: gathers on one mapping and shootdowns at each other, while
 * frames move between owners. Requests are served in relax() and while waiting, as on a machine whose
 * interrupts are on. Checks: everybody gets on, no frame has two owners, counts come out even.
 */
#include "test_heap.h"
#include "test_main.h"

#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/space.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CPUS   4
#define FRAMES 4096
#define BASE   0x1000

/* A request at one CPU by another: fn and arg, taken when done. */
struct request {
    void (*fn)(void *arg);
    void *arg;
    uint32_t waiting;
};

static struct stress {
    struct hvmem_heap *heap;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_mapping mapping;
    struct hvmem_notifier device;
    struct hvmem_backend backend;
    struct request request[CPUS][CPUS]; /* [to][from] */
    uint32_t finished;                  /* threads */
    unsigned char owner[FRAMES];
    uint64_t rounds, served, told;
    void *memory[4];
} t;

static __thread hvmem_cpu this_thread;

static void serve(hvmem_cpu cpu)
{
    hvmem_cpu from;

    for (from = 0; from < CPUS; from++) {
        struct request *r = &t.request[cpu][from];

        if (__atomic_load_n(&r->waiting, __ATOMIC_ACQUIRE)) {
            r->fn(r->arg);
            __atomic_fetch_add(&t.served, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&r->waiting, 0, __ATOMIC_RELEASE);
        }
    }
}

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return this_thread;
}

static void relax(void *host)
{
    (void)host;
    serve(this_thread);
    sched_yield();
}

/* Asks the others first, does its own share meanwhile, and serves while it waits. */
static hvmem_status call_cpus(void *host, const struct hvmem_cpuset *cpus, void (*fn)(void *),
                              void *arg)
{
    uint64_t left = cpus->words[0];
    hvmem_cpu cpu;

    (void)host;
    for (cpu = 0; cpu < CPUS; cpu++) {
        struct request *r = &t.request[cpu][this_thread];

        if (cpu == this_thread || !(left >> cpu & 1))
            continue;
        r->fn = fn;
        r->arg = arg;
        __atomic_store_n(&r->waiting, 1, __ATOMIC_RELEASE);
    }
    if (left >> this_thread & 1)
        fn(arg);
    for (cpu = 0; cpu < CPUS; cpu++) {
        while (__atomic_load_n(&t.request[cpu][this_thread].waiting, __ATOMIC_ACQUIRE))
            relax(NULL);
    }
    return HVMEM_OK;
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    return flush->size == sizeof *flush ? HVMEM_OK : HVMEM_E_ARG;
}

static hvmem_status invalidate(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                               hvmem_u64 *ticket)
{
    (void)ctx;
    (void)ranges;
    (void)count;
    (void)ticket;
    __atomic_fetch_add(&t.told, 1, __ATOMIC_RELAXED);
    return HVMEM_OK;
}

static const struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops,
                                                     .tlb_flush = tlb_flush};
static const struct hvmem_host_ops host_ops = {
    .size = sizeof host_ops, .this_cpu = this_cpu, .relax = relax, .call_cpus = call_cpus};

static void *memory(int slot, hvmem_size bytes)
{
    return t.memory[slot] = test_memory(bytes);
}

static void make_heap(void)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = FRAMES};
    struct hvmem_config config;
    hvmem_cpu cpu;

    hvmem_config_default(&config);
    config.max_order = 10;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = CPUS;
    config.host = &host_ops;
    config.backend = &t.backend;
    t.heap = test_heap(&config, &bank, t.memory);
    for (cpu = 1; cpu < CPUS; cpu++)
        REQUIRE_EQ(hvmem_cpu_online(t.heap, cpu), HVMEM_OK);
}

static void make_space(hvmem_u32 flags)
{
    struct hvmem_ident_config config = {.size = sizeof config,
                                        .flags = flags,
                                        .regime = HVMEM_REGIME_USER,
                                        .first = 1,
                                        .ids = 15,
                                        .max_cpus = CPUS,
                                        .lock_regime = HVMEM_LOCK_PLAIN,
                                        .host = &host_ops,
                                        .backend = &t.backend};
    struct hvmem_space_config space = {.size = sizeof space, .regime = HVMEM_REGIME_USER};
    struct hvmem_mapping_config mapping = {.size = sizeof mapping, .heap = t.heap};
    hvmem_size bytes;
    hvmem_cpu cpu;

    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(memory(2, bytes), bytes, &config, &t.ident), HVMEM_OK);
    for (cpu = 0; cpu < CPUS; cpu++)
        REQUIRE_EQ(hvmem_ident_cpu_online(t.ident, cpu, 0xffff), HVMEM_OK);
    bytes = hvmem_space_size(t.ident);
    REQUIRE_EQ(hvmem_space_create(t.ident, memory(3, bytes), bytes, &space, &t.space), HVMEM_OK);
    mapping.space = t.space;
    REQUIRE_EQ(hvmem_mapping_init(&t.mapping, &mapping), HVMEM_OK);
    t.device.size = sizeof t.device;
    t.device.invalidate = invalidate;
    REQUIRE_EQ(hvmem_notifier_add(&t.mapping, &t.device), HVMEM_OK);
}

/* Take some frames, mark them, and give them up through a gather. */
static void turn(struct test_rng *rng)
{
    hvmem_u32 flags = test_below(rng, 2) ? HVMEM_GATHER_PREEMPTIBLE : 0;
    unsigned int n = 1 + (unsigned)test_below(rng, 12);
    struct hvmem_gather gather;
    hvmem_mfn mfn;

    gather.self = 0;
    CHECK_EQ(hvmem_gather_begin(&gather, &t.mapping, flags, 0, 1 << 24), HVMEM_OK);
    for (; n; n--) {
        hvmem_u32 order = (hvmem_u32)test_below(rng, 3);

        if (hvmem_alloc_order(t.heap, order, &mfn) != HVMEM_OK)
            break;
        CHECK_EQ(__atomic_exchange_n(&t.owner[mfn - BASE], this_thread + 1, __ATOMIC_RELAXED), 0);
        __atomic_store_n(&t.owner[mfn - BASE], 0, __ATOMIC_RELAXED);
        if (test_below(rng, 4))
            CHECK_EQ(hvmem_gather_entry(&gather, test_below(rng, 4096) << 12, 12, 3, 0), HVMEM_OK);
        if (!order && !test_below(rng, 4))
            CHECK_EQ(hvmem_gather_table(&gather, mfn, 0, 3, HVMEM_TABLE_TOLD), HVMEM_OK);
        else
            CHECK_EQ(hvmem_gather_free(&gather, mfn, order, NULL, 0), HVMEM_OK);
        if (!test_below(rng, 16))
            CHECK_EQ(hvmem_shootdown(&t.mapping, NULL, 0, 0), HVMEM_OK);
    }
    while (hvmem_gather_finish(&gather) == HVMEM_AGAIN)
        serve(this_thread);
}

static void *run(void *arg)
{
    hvmem_cpu cpu = (hvmem_cpu)(uintptr_t)arg;
    struct test_rng rng = test_rng(cpu + 1);
    struct hvmem_entry entry;
    uint64_t round;

    this_thread = cpu;
    for (round = 0; round < t.rounds; round++) {
        serve(cpu);
        switch (test_below(&rng, 8)) {
        case 0:
            CHECK_EQ(hvmem_space_activate(t.space, cpu, &entry), HVMEM_OK);
            CHECK_EQ(hvmem_space_entered(t.ident, cpu), HVMEM_OK);
            break;
        case 1:
            if (hvmem_space_lazy(t.ident, cpu) != HVMEM_E_SPACE && !test_below(&rng, 2)) {
                CHECK_EQ(hvmem_space_deactivate(t.ident, cpu), HVMEM_OK);
                CHECK_EQ(hvmem_space_entered(t.ident, cpu), HVMEM_OK);
            }
            break;
        default:
            turn(&rng);
            break;
        }
    }
    if (hvmem_space_deactivate(t.ident, cpu) == HVMEM_OK)
        CHECK_EQ(hvmem_space_entered(t.ident, cpu), HVMEM_OK);
    /* Whoever is still at work may ask: serve until nobody is. */
    __atomic_fetch_add(&t.finished, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&t.finished, __ATOMIC_SEQ_CST) < CPUS)
        relax(NULL);
    return NULL;
}

static void stress(hvmem_u64 features, hvmem_u32 flags)
{
    pthread_t thread[CPUS];
    const char *where = NULL;
    struct hvmem_mapping_stats stats;
    hvmem_mfn mfn;
    uintptr_t cpu;
    int i;

    memset(&t, 0, sizeof t);
    t.rounds = test_rounds(1500);
    t.backend.ops = &backend_ops;
    t.backend.caps.size = sizeof t.backend.caps;
    t.backend.caps.page_shift = 12;
    t.backend.caps.features = features | HVMEM_CAP_USER_IDS | HVMEM_CAP_USER_RANGE;
    make_heap();
    make_space(flags);
    for (cpu = 0; cpu < CPUS; cpu++)
        REQUIRE_EQ(pthread_create(&thread[cpu], NULL, run, (void *)cpu), 0);
    for (cpu = 0; cpu < CPUS; cpu++)
        pthread_join(thread[cpu], NULL);
    if (!CHECK_EQ(hvmem_audit(t.heap, &mfn, &where), HVMEM_OK))
        test_note("%s", where);
    CHECK_EQ(hvmem_free_frames(t.heap), FRAMES);
    REQUIRE_EQ(hvmem_mapping_get_stats(&t.mapping, sizeof stats, &stats), HVMEM_OK);
    CHECK(stats.flushes && stats.notified == t.told);
    CHECK_EQ(hvmem_quiesce(t.heap), HVMEM_OK);
    CHECK_EQ(hvmem_notifier_remove(&t.mapping, &t.device), HVMEM_OK);
    CHECK_EQ(hvmem_mapping_fini(&t.mapping), HVMEM_OK);
    for (i = 0; i < 4; i++)
        free(t.memory[i]);
}

TEST(B32_initiators_at_each_other_all_get_on, threads)
{
    stress(0, HVMEM_IDENT_PER_CPU);
    stress(0, 0);
}

TEST(gathers_on_broadcast_hardware, threads)
{
    stress(HVMEM_CAP_BROADCAST, 0);
}
