/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads as CPUs: switching, entering, posting, migrating, flushing, pinning, creating and destroying all
 * at once, for the thread sanitizer. The checks: no two CPUs have one id loaded for two spaces, work
 * posted runs, nothing is refused with a code that cannot be.
 */
#include "test_main.h"

#include <hvmem/space.h>
#include <hvmem/vcpu.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define CPUS   4
#define SPACES 12
#define VCPUS  6

static struct stress {
    struct hvmem_ident *ident;
    struct hvmem_vcpus *vcpus;
    struct hvmem_backend backend;
    struct hvmem_space *space[SPACES];
    struct hvmem_space *guest; /* the vCPUs' */
    struct hvmem_vcpu *vcpu[VCPUS];
    struct hvmem_vcpu_work work[VCPUS];
    uint64_t posted[VCPUS]; /* by the work's own thread */
    uint64_t ran[VCPUS];
    uint64_t loaded[CPUS]; /* id << 32 | space + 1: what the hardware runs */
    uint64_t asked[CPUS];  /* space + 1 and change of a request */
    int finished[CPUS];
    uint64_t rounds;
    pthread_rwlock_t slot[SPACES]; /* read: the handle may be used; write: it is replaced */
    void *space_memory[SPACES];
} t;

static __thread hvmem_cpu this_thread;

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return this_thread;
}

static void relax(void *host)
{
    (void)host;
    sched_yield();
}

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    return flush->size == sizeof *flush ? HVMEM_OK : HVMEM_E_ARG;
}

static const struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops,
                                                     .tlb_flush = tlb_flush};
static const struct hvmem_host_ops host_ops = {
    .size = sizeof host_ops, .this_cpu = this_cpu, .relax = relax};

static void *memory(hvmem_size bytes)
{
    void *made = aligned_alloc(64, (bytes + 63) / 64 * 64);

    REQUIRE(made != NULL);
    return made;
}

static struct hvmem_space *new_space(void *at)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_space *space = NULL;

    CHECK_EQ(hvmem_space_create(t.ident, at, hvmem_space_size(t.ident), &config, &space), HVMEM_OK);
    return space;
}

static void count_run(void *arg, struct hvmem_vcpu *vcpu, hvmem_cpu cpu)
{
    (void)vcpu;
    CHECK_EQ(cpu, this_thread);
    __atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_RELAXED);
}

static void begin(hvmem_u32 flags, hvmem_u32 ids)
{
    struct hvmem_ident_config ident = {.size = sizeof ident, .flags = flags};
    struct hvmem_vcpus_config vcpus = {.size = sizeof vcpus, .max_cpus = CPUS};
    hvmem_size bytes;
    hvmem_cpu i;

    memset(&t, 0, sizeof t);
    t.backend.ops = &backend_ops;
    t.backend.caps.features = HVMEM_CAP_BROADCAST;
    ident.regime = HVMEM_REGIME_STAGE2;
    ident.first = 1;
    ident.ids = ids;
    ident.max_cpus = CPUS;
    ident.lock_regime = vcpus.lock_regime = HVMEM_LOCK_PLAIN;
    ident.host = vcpus.host = &host_ops;
    ident.backend = &t.backend;
    REQUIRE_EQ(hvmem_ident_size(&ident, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(memory(bytes), bytes, &ident, &t.ident), HVMEM_OK);
    REQUIRE_EQ(hvmem_vcpus_size(&vcpus, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_vcpus_init(memory(bytes), bytes, &vcpus, &t.vcpus), HVMEM_OK);
    for (i = 0; i < CPUS; i++) {
        REQUIRE_EQ(hvmem_ident_cpu_online(t.ident, i, 0xffff), HVMEM_OK);
        REQUIRE_EQ(hvmem_vcpus_cpu_online(t.vcpus, i), HVMEM_OK);
    }
    for (i = 0; i < SPACES; i++) {
        pthread_rwlock_init(&t.slot[i], NULL);
        t.space_memory[i] = memory(hvmem_space_size(t.ident));
        t.space[i] = new_space(t.space_memory[i]);
    }
    t.guest = new_space(memory(hvmem_space_size(t.ident)));
    for (i = 0; i < VCPUS; i++) {
        t.work[i].run = count_run;
        t.work[i].arg = &t.ran[i];
        REQUIRE_EQ(hvmem_vcpu_attach(t.vcpus, t.guest, memory(hvmem_vcpu_size()), hvmem_vcpu_size(),
                                     i % CPUS, &t.vcpu[i]),
                   HVMEM_OK);
    }
    t.rounds = test_rounds(40000);
}

/* What the hardware does with an entry; meanwhile nobody else may run another space on its id. */
static void load(hvmem_cpu cpu, hvmem_u32 id, uint64_t space)
{
    uint64_t mine = (uint64_t)id << 32 | space;
    hvmem_cpu i;

    __atomic_store_n(&t.loaded[cpu], id == 0 ? 0 : mine, __ATOMIC_SEQ_CST);
    for (i = 0; id != 0 && i < CPUS; i++) {
        uint64_t other = __atomic_load_n(&t.loaded[i], __ATOMIC_SEQ_CST);

        CHECK(other >> 32 != id || (uint32_t)other == space);
    }
    CHECK_EQ(hvmem_space_entered(t.ident, cpu), HVMEM_OK);
}

static void serve(hvmem_cpu cpu)
{
    uint64_t asked = __atomic_load_n(&t.asked[cpu], __ATOMIC_ACQUIRE);

    if (asked == 0)
        return;
    CHECK_EQ(hvmem_space_flush_here(t.space[(uint32_t)asked - 1], cpu, NULL, 0, asked >> 32),
             HVMEM_OK);
    __atomic_store_n(&t.asked[cpu], 0, __ATOMIC_RELEASE);
}

/* Ask `target` and wait; several may ask the same one. The slot is held for reading. */
static void ask(hvmem_cpu cpu, hvmem_cpu target, uint64_t request)
{
    uint64_t none = 0;

    while (!__atomic_compare_exchange_n(&t.asked[target], &none, request, 0, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
        none = 0;
        if (__atomic_load_n(&t.finished[target], __ATOMIC_ACQUIRE))
            return;
        serve(cpu);
        sched_yield();
    }
    while (__atomic_load_n(&t.asked[target], __ATOMIC_ACQUIRE) == request &&
           !__atomic_load_n(&t.finished[target], __ATOMIC_ACQUIRE)) {
        serve(cpu);
        sched_yield();
    }
}

static void change(hvmem_cpu cpu, int slot)
{
    hvmem_u64 words[1];
    hvmem_u64 count;
    hvmem_u32 targets;
    hvmem_cpu i;

    CHECK_EQ(hvmem_space_changed(t.space[slot], &count), HVMEM_OK);
    CHECK_EQ(hvmem_space_targets(t.space[slot], 0, words, 1, &targets), HVMEM_OK);
    for (i = 0; i < CPUS; i++) {
        if (words[0] >> i & 1)
            ask(cpu, i, count << 32 | (uint64_t)(slot + 1));
    }
}

static void switch_to(hvmem_cpu cpu, int slot)
{
    struct hvmem_entry entry;
    hvmem_status status = hvmem_space_activate(t.space[slot], cpu, &entry);

    CHECK(status == HVMEM_OK || status == HVMEM_E_NOID);
    if (status == HVMEM_OK)
        load(cpu, entry.id, (uint64_t)slot + 1);
}

static void idle(hvmem_cpu cpu)
{
    if (hvmem_space_deactivate(t.ident, cpu) == HVMEM_OK)
        load(cpu, 0, 0);
}

/* Destroy and make anew, with the slot's handle kept from others. */
static void replace(hvmem_cpu cpu, int slot)
{
    if (pthread_rwlock_trywrlock(&t.slot[slot]) != 0)
        return;
    idle(cpu);
    if (hvmem_space_destroy(t.space[slot], 0) == HVMEM_OK)
        t.space[slot] = new_space(t.space_memory[slot]);
    pthread_rwlock_unlock(&t.slot[slot]);
}

static void space_step(hvmem_cpu cpu, struct test_rng *rng)
{
    int slot = (int)test_below(rng, SPACES);
    hvmem_u32 id;

    if (test_below(rng, 8) == 0) {
        replace(cpu, slot);
        return;
    }
    if (pthread_rwlock_tryrdlock(&t.slot[slot]) != 0)
        return;
    switch (test_below(rng, 8)) {
    case 0:
        change(cpu, slot);
        break;
    case 1:
        idle(cpu);
        break;
    case 2:
        if (hvmem_space_pin(t.space[slot], &id) == HVMEM_OK)
            CHECK_EQ(hvmem_space_unpin(t.space[slot]), HVMEM_OK);
        break;
    default:
        switch_to(cpu, slot);
        break;
    }
    pthread_rwlock_unlock(&t.slot[slot]);
}

/* Work n belongs to CPU n: it posts and cancels it, at whichever vCPU. */
static void own_work(hvmem_cpu cpu, struct test_rng *rng)
{
    struct hvmem_vcpu *vcpu = t.vcpu[cpu];
    hvmem_cpu kick;

    if (test_below(rng, 4) == 0) {
        hvmem_status status = hvmem_vcpu_cancel(vcpu, &t.work[cpu], 100000);

        CHECK(status == HVMEM_OK || status == HVMEM_E_TIMEOUT);
        return;
    }
    CHECK_EQ(hvmem_vcpu_post(vcpu, &t.work[cpu], &kick), HVMEM_OK);
    CHECK(kick == HVMEM_CPU_NONE || kick < CPUS);
    t.posted[cpu]++;
}

static void vcpu_step(hvmem_cpu cpu, struct test_rng *rng)
{
    struct hvmem_vcpu *vcpu = t.vcpu[test_below(rng, VCPUS)];
    struct hvmem_entry entry;
    hvmem_status status;
    hvmem_cpu kick;

    switch (test_below(rng, 6)) {
    case 0:
        status = hvmem_vcpu_migrate(vcpu, (hvmem_cpu)test_below(rng, CPUS));
        CHECK(status == HVMEM_OK || status == HVMEM_E_BUSY);
        break;
    case 1:
        CHECK_EQ(hvmem_vcpu_post_flush(vcpu, &kick), HVMEM_OK);
        break;
    case 2:
        own_work(cpu, rng);
        break;
    default:
        status = hvmem_vcpu_enter(vcpu, cpu, &entry);
        CHECK(status == HVMEM_OK || status == HVMEM_E_CPU || status == HVMEM_E_NOID);
        if (status == HVMEM_OK) {
            load(cpu, entry.id, SPACES + 1);
            CHECK_EQ(hvmem_vcpu_exit(vcpu, cpu), HVMEM_OK);
        }
        break;
    }
}

static void *cpu_main(void *arg)
{
    hvmem_cpu cpu = (hvmem_cpu)(uintptr_t)arg;
    struct test_rng rng = test_rng(100 + cpu);
    uint64_t i;

    this_thread = cpu;
    for (i = 0; i < t.rounds; i++) {
        serve(cpu);
        if (test_below(&rng, 2))
            space_step(cpu, &rng);
        else
            vcpu_step(cpu, &rng);
    }
    __atomic_store_n(&t.finished[cpu], 1, __ATOMIC_RELEASE);
    serve(cpu);
    return NULL;
}

static void stress(hvmem_u32 flags, hvmem_u32 ids)
{
    struct hvmem_ident_stats stats;
    pthread_t threads[CPUS];
    uint64_t posted = 0;
    uint64_t ran = 0;
    uintptr_t i;

    begin(flags, ids);
    for (i = 0; i < CPUS; i++)
        REQUIRE_EQ(pthread_create(&threads[i], NULL, cpu_main, (void *)i), 0);
    for (i = 0; i < CPUS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < CPUS; i++) {
        posted += t.posted[i];
        ran += t.ran[i];
    }
    CHECK(ran > 0 && ran <= posted);
    hvmem_ident_get_stats(t.ident, &stats);
    CHECK(stats.rollovers > 0);
}

TEST(cpus_flush_after_a_rollover, threads)
{
    stress(0, 9);
}

TEST(rollover_is_broadcast, threads)
{
    stress(HVMEM_IDENT_BROADCAST, 9);
}
