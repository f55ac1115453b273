/* SPDX-License-Identifier: BSD-2-Clause */
/* What every path of moves.h needs: heap and domains, the back-end between, looks and rounds. */
#include "test/metal/moves.h"

#include "test/metal/subject.h"

#define ROUNDS 40u

struct moves moves;
unsigned move_checks_made, move_checks_failed;

/* ---- the back-end: the machine's, but that it can claim work and not do it ---- */

/* x86 without PCIDs: whatever a space is numbered, its translations carry the one tag there is. */
static hvmem_status spy_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct hvmem_tlb_flush untagged = *flush;

    if (flush->space.regime == HVMEM_REGIME_USER && be->caps.user_id_bits == 0)
        untagged.space.id = 0;
    __atomic_fetch_add(&moves.batches, 1, __ATOMIC_RELAXED);
    __atomic_fetch_or(&moves.asked, 1ull << metal_cpu_id(), __ATOMIC_RELAXED);
    __atomic_fetch_or(&moves.what, 1u << flush->what, __ATOMIC_RELAXED);
    if (!__atomic_load_n(&moves.executes, __ATOMIC_RELAXED))
        return HVMEM_OK;
    return subject_backend()->ops->tlb_flush(be, &untagged);
}

/* ---- A's pages ---- */

/* Elsewhere in each round: small emulated TLBs have few sets, and code and stacks use some of them. */
uintptr_t move_page(unsigned i)
{
    return metal_window() + 0x155000 + (moves.round % 64 + i * 3ul) * METAL_PAGE_BYTES;
}

void move_map(void)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        metal_map(move_page(i), moves.frame[i] << METAL_PAGE_SHIFT, METAL_4K, METAL_P | METAL_W);
}

static int window_reads(unsigned i, uint64_t *value)
{
    return metal_probe_read(move_page(i), value, NULL) == 0;
}

void move_unmap(void)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        metal_map(move_page(i), 0, METAL_4K, 0);
}

static volatile uint64_t *words_of(unsigned i)
{
    return metal_frame(moves.frame[i] << METAL_PAGE_SHIFT);
}

void move_write(void)
{
    moves.word++;
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        *words_of(i) = moves.word + ((uint64_t)i << 32);
}

static unsigned looks, stale, wrong; /* atomic */

/* Frames may have come to B in any order: a read must find the word of some frame of the round. */
static void look(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        uint64_t value;

        __atomic_fetch_add(&looks, 1, __ATOMIC_RELAXED);
        if (!moves.reads(i, &value))
            continue;
        __atomic_fetch_add(&stale, 1, __ATOMIC_RELAXED);
        if ((value & 0xFFFFFFFF) != (moves.word & 0xFFFFFFFF) || value >> 32 >= MOVE_FRAMES)
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
}

unsigned move_stale(uint64_t mask)
{
    looks = stale = wrong = 0;
    CHECK_EQUAL(metal_call_cpus(mask, look, NULL), METAL_OK);
    CHECK_EQUAL(wrong, 0);
    return stale;
}

uint64_t move_all_cpus(void)
{
    return (1ull << moves.cpus) - 1;
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

/* ---- steps ---- */

int move_free(void)
{
    int good = 1;

    move_unmap();
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_free_owned(moves.heap, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    return good;
}

int move_take(struct hvmem_domain *domain, uint32_t flags)
{
    struct hvmem_request request = {
        .size = sizeof request, .flags = flags, .node = HVMEM_NODE_ANY, .domain = domain};
    int good = 1;

    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        if (moves.pool > MOVE_FRAMES && moves.frame[i] != 0) { /* these and no others */
            request.lo = moves.frame[i];
            request.hi = moves.frame[i] + 1;
        }
        good &= hvmem_alloc(moves.heap, &request, &moves.frame[i]) == HVMEM_OK;
    }
    return good;
}

/* ---- rounds ---- */

/* The frames go back to A, every CPU loads A's translations and no other. */
static void begin(void)
{
    moves.round++;
    __atomic_store_n(&moves.executes, 1, __ATOMIC_RELAXED);
    CHECK(move_take(moves.a, 0));
    moves.map();
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), forget, NULL), METAL_OK);
    move_write();
    CHECK_EQUAL(move_stale(move_all_cpus()), MOVE_FRAMES * moves.cpus);
}

static void end(void)
{
    if (moves.end != NULL) {
        moves.end();
        return;
    }
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        CHECK_EQUAL(hvmem_free(moves.heap, moves.frame[i], 0), HVMEM_OK);
}

struct tally {
    uint64_t stale, looks;
};

/* One round; what the library did is compared with the path. */
static void round_of(const struct path *p, int executes, struct tally *t)
{
    const int broadcast = (moves.backend.caps.features & HVMEM_CAP_BROADCAST) != 0;
    const uint64_t dirty = move_all_cpus() & ~p->clean;
    struct hvmem_stats before, after;

    begin();
    CHECK_EQUAL(hvmem_stats(moves.heap, HVMEM_NODE_ANY, sizeof before, &before), HVMEM_OK);
    __atomic_store_n(&moves.batches, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&moves.asked, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&moves.what, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&moves.executes, (uint32_t)executes, __ATOMIC_RELAXED);
    CHECK(p->give());
    CHECK(p->take());
    move_write();
    t->stale += move_stale(executes ? move_all_cpus() : dirty);
    t->looks += looks;
    if (!executes)
        CHECK_EQUAL(move_stale(p->clean), 0);
    CHECK_EQUAL(hvmem_stats(moves.heap, HVMEM_NODE_ANY, sizeof after, &after), HVMEM_OK);
    CHECK_EQUAL(after.flushes - before.flushes, p->flushes[broadcast]);
    CHECK_EQUAL(after.flush_cpus - before.flush_cpus, p->cpus[broadcast]);
    CHECK_EQUAL(moves.batches, p->batches[broadcast]);
    end();
}

void move_run(const struct path *p)
{
    struct tally without = {0, 0}, with = {0, 0};

    for (unsigned i = 0; i < ROUNDS; i++)
        round_of(p, 0, &without);
    for (unsigned i = 0; i < ROUNDS; i++)
        round_of(p, 1, &with);
    metal_printf("%s %s: stale reads without the flush %llu of %llu, with it %llu of %llu\n",
                 subject_level(), p->name, (unsigned long long)without.stale,
                 (unsigned long long)without.looks, (unsigned long long)with.stale,
                 (unsigned long long)with.looks);
    /* Not all: an entry may be driven out by what the round itself uses. */
    CHECK(without.looks > 0 && without.stale >= without.looks / 2);
    CHECK_EQUAL(with.stale, 0);
}

/* ---- making it ---- */

static int heap_make(void)
{
    const uint64_t bytes_of_pool = moves.pool * METAL_PAGE_BYTES;
    struct hvmem_bank bank = {.size = sizeof bank, .frames = moves.pool};
    struct hvmem_config config;
    hvmem_size bytes = 0;
    void *memory;

    metal_host_ops(&moves.ops);
    moves.host.report_lines = 8;
    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = moves.cpus;
    config.max_banks = 4;
    config.max_domains = MOVE_DOMAINS;
    config.max_order = 3;
    config.host = &moves.ops;
    config.host_ctx = &moves.host;
    config.backend = &moves.backend;
    if (!CHECK_EQUAL(hvmem_heap_size(&config, &bytes), HVMEM_OK))
        return 0;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    if (memory == NULL ||
        !CHECK_EQUAL(hvmem_heap_init(memory, bytes, &config, &moves.heap), HVMEM_OK))
        return 0;
    memory = metal_pages(bytes_of_pool, bytes_of_pool);
    if (memory == NULL)
        return 0;
    bank.base = metal_maddr(memory) >> METAL_PAGE_SHIFT;
    if (!CHECK_EQUAL(hvmem_bank_size(moves.heap, &bank, &bytes), HVMEM_OK))
        return 0;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    return memory != NULL &&
           CHECK_EQUAL(hvmem_bank_add(moves.heap, &bank, memory, bytes), HVMEM_OK);
}

struct hvmem_domain *move_domain(uint32_t id)
{
    const struct hvmem_domain_config config = {.size = sizeof config, .id = id, .limit = ~0ull};
    const hvmem_size bytes = hvmem_domain_size(moves.heap);
    struct hvmem_domain *domain = NULL;

    if (moves.memory[id] == NULL)
        moves.memory[id] = metal_pages(bytes, METAL_PAGE_BYTES);
    CHECK_EQUAL(hvmem_domain_create(moves.heap, moves.memory[id], bytes, &config, &domain),
                HVMEM_OK);
    return domain;
}

int move_tear_down(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    struct hvmem_domain_stats stats;
    hvmem_status status;

    do
        status = hvmem_domain_teardown(moves.a, 0, &cursor);
    while (status == HVMEM_AGAIN);
    if (!CHECK_EQUAL(status, HVMEM_OK) ||
        !CHECK_EQUAL(hvmem_domain_stats(moves.a, &stats), HVMEM_OK))
        return 0;
    CHECK_EQUAL(stats.pages, 0);
    if (!CHECK_EQUAL(hvmem_domain_destroy(moves.a), HVMEM_OK))
        return 0;
    moves.a = move_domain(1);
    return moves.a != NULL;
}

int move_start(void)
{
    moves.cpus = metal_start_cpus(NULL);
    if (moves.cpus < 2) {
        metal_printf("needs two CPUs\n");
        return 0;
    }
    if (moves.pool == 0) {
        moves.pool = MOVE_FRAMES;
        moves.map = move_map;
        moves.reads = window_reads;
    }
    moves.backend = *subject_backend();
    moves.backend_ops = *moves.backend.ops;
    moves.backend_ops.tlb_flush = spy_flush;
    moves.backend.ops = &moves.backend_ops;
    moves.executes = 1;
    if (!heap_make() || !CHECK_EQUAL(hvmem_smp_enable(moves.heap), HVMEM_OK))
        return 0;
    for (unsigned cpu = 1; cpu < moves.cpus; cpu++)
        CHECK_EQUAL(hvmem_cpu_online(moves.heap, cpu), HVMEM_OK);
    moves.a = move_domain(1);
    moves.building = move_domain(2);
    moves.running = move_domain(3);
    return moves.a != NULL && moves.building != NULL && moves.running != NULL &&
           CHECK_EQUAL(hvmem_domain_start(moves.running), HVMEM_OK);
}
