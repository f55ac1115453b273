/* SPDX-License-Identifier: BSD-2-Clause */
/* Spaces: switching, changes and who is asked, flushes owed to the next entry, the end of a space. */
#include "test_machine.h"
#include "test_main.h"

#include "space.h"

#include <string.h>

static struct machine m;

/* The flushes the library issued, newest last. */
struct logged {
    hvmem_cpu cpu;
    struct hvmem_tlb_flush flush;
};
static struct logged logged[64];
static unsigned int flushes;

static void observe(void *ctx, hvmem_cpu cpu, const struct hvmem_tlb_flush *flush)
{
    (void)ctx;
    logged[flushes % 64].cpu = cpu;
    logged[flushes % 64].flush = *flush;
    flushes++;
}

static void begin(enum machine_kind kind, int cpus, int spaces)
{
    int i;

    machine_begin(&m, kind, cpus, 1, 15);
    m.tlb.config.observe = observe;
    for (i = 0; i < spaces; i++)
        machine_create(&m, i);
    flushes = 0;
}

static struct hvmem_space *space_of(int index)
{
    return m.spaces[index].space;
}

/* Activate without the machine's hardware; the caller says whether the entry happens. */
static struct hvmem_entry activate(int index, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    m.acting[0] = (int)cpu;
    REQUIRE_EQ(hvmem_space_activate(space_of(index), cpu, &entry), HVMEM_OK);
    return entry;
}

static void entered(hvmem_cpu cpu)
{
    REQUIRE_EQ(hvmem_space_entered(m.ident, cpu), HVMEM_OK);
}

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(refuses_bad_configurations)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_USER};
    static char memory[8192] __attribute__((aligned(64)));
    struct hvmem_ident_stats stats;
    struct hvmem_space *space = NULL;

    begin(MACHINE_ASID, 2, 0);
    CHECK_EQ(hvmem_space_size(NULL), 0);
    CHECK_EQ(hvmem_space_size(m.ident) % 64, 0);
    CHECK_EQ(hvmem_space_create(NULL, memory, sizeof memory, &config, &space), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_create(m.ident, memory, sizeof memory, NULL, &space), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_create(m.ident, memory, sizeof memory, &config, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_create(m.ident, memory, 64, &config, &space), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_space_create(m.ident, memory + 1, 4096, &config, &space), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_space_create(m.ident, NULL, 4096, &config, &space), HVMEM_E_BUFFER);
    config.regime = HVMEM_REGIME_HOST;
    CHECK_EQ(hvmem_space_create(m.ident, memory, 4096, &config, &space), HVMEM_E_ARG);
    config.regime = HVMEM_REGIME_USER;
    config.flags = 2;
    CHECK_EQ(hvmem_space_create(m.ident, memory, 4096, &config, &space), HVMEM_E_ARG);
    config.size = 0;
    CHECK_EQ(hvmem_space_create(m.ident, memory, 4096, &config, &space), HVMEM_E_VERSION);
    CHECK(space == NULL);
    hvmem_ident_get_stats(m.ident, &stats);
    CHECK_EQ(stats.refused, 8);
    CHECK_EQ(m.reported, 8);
}

TEST(refuses_bad_calls)
{
    struct hvmem_tlb_space tag;
    struct hvmem_entry entry;
    hvmem_u64 words[1];
    hvmem_u64 change;
    hvmem_u32 count;

    begin(MACHINE_TAGS, 2, 2);
    CHECK_EQ(hvmem_space_activate(NULL, 0, &entry), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_activate(space_of(0), 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_activate(space_of(0), 2, &entry), HVMEM_E_CPU);
    CHECK_EQ(hvmem_ident_cpu_offline(m.ident, 1), HVMEM_OK);
    CHECK_EQ(hvmem_space_activate(space_of(0), 1, &entry), HVMEM_E_CPU);
    CHECK_EQ(hvmem_space_deactivate(m.ident, 0), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_deactivate(m.ident, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_space_lazy(m.ident, 0), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_entered(m.ident, 7), HVMEM_E_CPU);
    CHECK_EQ(hvmem_space_targets(space_of(0), 4, words, 1, &count), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_targets(space_of(0), 0, words, 0, &count), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_space_flush_here(space_of(0), 9, NULL, 0, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_space_destroy(space_of(0), 2), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_destroy(NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_changed(NULL, &change), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_id(space_of(0), 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_space_id(space_of(0), 0, &tag), HVMEM_OK);
    CHECK_EQ(tag.id, 0);
}

TEST(refuses_a_destroyed_space)
{
    struct hvmem_space *dead;
    struct hvmem_tlb_space tag;
    struct hvmem_entry entry;
    hvmem_u64 words[1];
    hvmem_u64 change;
    hvmem_u32 count;

    begin(MACHINE_TAGS, 2, 2);
    dead = space_of(0);
    activate(1, 0);
    entered(0);
    CHECK_EQ(hvmem_space_destroy(dead, 0), HVMEM_OK);
    CHECK_EQ(hvmem_space_activate(dead, 0, &entry), HVMEM_E_SPACE);
    CHECK_EQ(entry.id, 0);
    CHECK_EQ(hvmem_space_destroy(dead, 0), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_pin(dead, &count), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_unpin(dead), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_changed(dead, &change), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_targets(dead, 0, words, 1, &count), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_flush_here(dead, 0, NULL, 0, 1), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_id(dead, 0, &tag), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_space_destroy(space_of(1), 0), HVMEM_E_BUSY); /* what the CPU ran, it runs */
}

TEST(refuses_to_destroy_what_runs)
{
    begin(MACHINE_ASID, 2, 2);
    activate(0, 1);
    CHECK_EQ(hvmem_space_destroy(space_of(0), 0), HVMEM_E_BUSY);
    entered(1);
    CHECK_EQ(hvmem_space_destroy(space_of(0), 0), HVMEM_E_BUSY);
    activate(1, 1);
    CHECK_EQ(hvmem_space_destroy(space_of(0), 0), HVMEM_E_BUSY); /* the hardware may run it still */
    entered(1);
    CHECK_EQ(hvmem_space_destroy(space_of(0), 0), HVMEM_OK);
    CHECK_EQ(hvmem_ident_cpu_offline(m.ident, 1), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_space_deactivate(m.ident, 1), HVMEM_OK);
    CHECK_EQ(hvmem_ident_cpu_offline(m.ident, 1), HVMEM_E_BUSY);
    entered(1);
    CHECK_EQ(hvmem_ident_cpu_offline(m.ident, 1), HVMEM_OK);
}

/* ---- changes ----------------------------------------------------------------------------------- */

static hvmem_u32 targets(int index, hvmem_u32 flags)
{
    hvmem_u64 words[1];
    hvmem_u32 count;

    REQUIRE_EQ(hvmem_space_targets(space_of(index), flags, words, 1, &count), HVMEM_OK);
    CHECK_EQ(count, (hvmem_u32)__builtin_popcountll(words[0]));
    return (hvmem_u32)words[0];
}

TEST(asks_those_who_run_the_space)
{
    begin(MACHINE_PCID, 4, 2);
    activate(0, 0);
    entered(0);
    activate(0, 1);
    entered(1);
    activate(0, 2);
    entered(2);
    CHECK_EQ(targets(0, 0), 7);
    activate(1, 1);
    CHECK_EQ(targets(0, 0), 7); /* not known to have left it */
    entered(1);
    CHECK_EQ(targets(0, 0), 5);
    CHECK_EQ(targets(0, HVMEM_TARGETS_TRIM), 7);
    REQUIRE_EQ(hvmem_space_lazy(m.ident, 2), HVMEM_OK);
    CHECK_EQ(targets(0, 0), 1);
    CHECK_EQ(targets(0, HVMEM_TARGETS_TABLES), 5);
    CHECK_EQ(targets(1, 0), 2);
}

TEST(a_cpu_not_asked_flushes_when_it_returns)
{
    static const enum machine_kind kinds[] = {MACHINE_PCID, MACHINE_TAGS};
    hvmem_u64 change;
    size_t k;

    for (k = 0; k < 2; k++) {
        begin(kinds[k], 2, 2);
        activate(0, 0);
        activate(1, 0);
        entered(0);
        flushes = 0;
        CHECK_EQ(hvmem_space_changed(space_of(0), &change), HVMEM_OK);
        CHECK_EQ(change, 1);
        CHECK_EQ(targets(0, 0), 0);
        CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_FLUSH_GUEST);
        CHECK_EQ(flushes, 1);
        CHECK_EQ(logged[0].flush.what, HVMEM_FLUSH_SPACE);
        CHECK_EQ(logged[0].flush.space.id, activate(0, 0).id);
        CHECK_EQ(flushes, 1);
    }
}

TEST(a_lazy_cpu_flushes_when_it_uses_the_space_again)
{
    hvmem_u64 change;

    begin(MACHINE_PCID, 2, 1);
    activate(0, 0);
    entered(0);
    flushes = 0;
    REQUIRE_EQ(hvmem_space_lazy(m.ident, 0), HVMEM_OK);
    CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_NOTHING);
    REQUIRE_EQ(hvmem_space_lazy(m.ident, 0), HVMEM_OK);
    hvmem_space_changed(space_of(0), &change);
    CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_FLUSH_GUEST);
    CHECK_EQ(flushes, 1);
}

static hvmem_status flush_here(hvmem_cpu cpu, hvmem_u64 change)
{
    struct hvmem_tlb_range range = {.pages = 1, .stride_shift = 12, .level = 3};

    m.acting[0] = (int)cpu;
    return hvmem_space_flush_here(space_of(0), cpu, &range, 1, change);
}

TEST(flushes_ranges_only_when_one_change_behind)
{
    hvmem_u64 first;
    hvmem_u64 second;

    begin(MACHINE_TAGS, 2, 1);
    activate(0, 0);
    entered(0);
    flushes = 0;
    hvmem_space_changed(space_of(0), &first);
    CHECK_EQ(flush_here(0, first), HVMEM_OK);
    CHECK_EQ(logged[0].flush.what, HVMEM_FLUSH_RANGES);
    CHECK_EQ(flush_here(0, first), HVMEM_OK); /* up to date */
    CHECK_EQ(flushes, 1);
    hvmem_space_changed(space_of(0), &first);
    hvmem_space_changed(space_of(0), &second);
    CHECK_EQ(flush_here(0, first), HVMEM_OK); /* two behind: everything */
    CHECK_EQ(flushes, 2);
    CHECK_EQ(logged[1].flush.what, HVMEM_FLUSH_SPACE);
    CHECK_EQ(flush_here(0, second), HVMEM_OK);
    CHECK_EQ(flushes, 2);
}

TEST(a_cpu_that_left_drops_out)
{
    static const enum machine_kind kinds[] = {MACHINE_PCID, MACHINE_TAGS};
    hvmem_u64 change;
    size_t k;

    for (k = 0; k < 2; k++) {
        begin(kinds[k], 2, 2);
        activate(0, 0);
        activate(1, 0);
        entered(0);
        hvmem_space_changed(space_of(0), &change);
        CHECK_EQ(targets(0, HVMEM_TARGETS_TRIM), 1);
        flushes = 0;
        CHECK_EQ(flush_here(0, change), HVMEM_OK);
        CHECK_EQ(flushes, kinds[k] == MACHINE_PCID ? 0 : 1);
        CHECK_EQ(targets(0, HVMEM_TARGETS_TRIM), 0);
        CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_NOTHING);
        CHECK_EQ(targets(0, HVMEM_TARGETS_TRIM), 1);
    }
}

TEST(a_failed_flush_stays_owed)
{
    struct hvmem_entry entry;
    hvmem_u64 change;

    begin(MACHINE_PCID, 1, 2);
    m.tlb.fail = 1;
    CHECK_EQ(hvmem_space_activate(space_of(0), 0, &entry), HVMEM_E_HOST);
    CHECK_EQ(entry.id, 0);
    CHECK_EQ(hvmem_space_deactivate(m.ident, 0), HVMEM_E_SPACE); /* it runs nothing */
    CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_FLUSH_ALL);
    hvmem_space_changed(space_of(0), &change);
    m.tlb.fail = 1;
    CHECK_EQ(flush_here(0, change), HVMEM_E_HOST);
    CHECK_EQ(activate(0, 0).flushed, HVMEM_ENTRY_FLUSH_GUEST);
}

/* ---- guests entered by an entry structure ------------------------------------------------------ */

TEST(svm_asks_the_entry_until_it_happened)
{
    struct hvmem_entry entry;
    hvmem_u64 change;

    begin(MACHINE_SVM, 2, 2);
    entry = activate(0, 0);
    CHECK_EQ(entry.owed, HVMEM_ENTRY_FLUSH_ALL);
    CHECK_EQ(entry.value, 1);
    CHECK_EQ(activate(1, 0).value, 1); /* the first entry never happened */
    entered(0);
    CHECK_EQ(activate(1, 0).value, 0);
    hvmem_space_changed(space_of(1), &change);
    CHECK_EQ(activate(1, 0).value, 3);
    CHECK_EQ(activate(1, 0).value, 3);
    entered(0);
    CHECK_EQ(activate(1, 0).owed, HVMEM_ENTRY_NOTHING);
    hvmem_space_changed(space_of(1), &change);
    CHECK_EQ(activate(1, 0).value, 3);
    activate(0, 0); /* another guest goes first: still owed to 1 */
    entered(0);
    CHECK_EQ(activate(1, 0).value, 3);
    CHECK_EQ(flushes, 0); /* nothing is executed outside the entry */
    CHECK_EQ(hvmem_ident_flush_all(m.ident), HVMEM_OK);
    CHECK_EQ(activate(1, 0).value, 1);
}

TEST(svm_without_flush_by_asid_takes_a_new_number)
{
    struct hvmem_entry before;
    struct hvmem_entry after;
    hvmem_u64 change;

    begin(MACHINE_SVM_1, 1, 1);
    before = activate(0, 0);
    entered(0);
    hvmem_space_changed(space_of(0), &change);
    after = activate(0, 0);
    CHECK_EQ(after.owed, HVMEM_ENTRY_NOTHING);
    CHECK_EQ(after.value, 0);
    CHECK(after.id != before.id);
}

/* Second stages cached by root: all contexts are both regimes, a change is told by the root. */
TEST(ept_flushes_roots_and_tags)
{
    static char memory[1 << 16] __attribute__((aligned(64)));
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_ident_config ident_config = {.size = sizeof ident_config};
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_entry entry;
    hvmem_u64 change;

    begin(MACHINE_TAGS, 1, 0);
    ident_config.flags = HVMEM_IDENT_ROOTS;
    ident_config.regime = HVMEM_REGIME_GUEST;
    ident_config.first = 1;
    ident_config.ids = 7;
    ident_config.max_cpus = 1;
    ident_config.backend = &m.tlb.backend;
    REQUIRE_EQ(hvmem_ident_init(memory, 8192, &ident_config, &ident), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_cpu_online(ident, 0, 7), HVMEM_OK);
    config.root = 0x1234001e;
    REQUIRE_EQ(hvmem_space_create(ident, memory + 8192, 8192, &config, &space), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_activate(space, 0, &entry), HVMEM_OK);
    CHECK_EQ(flushes, 2);
    CHECK_EQ(logged[0].flush.space.regime, HVMEM_REGIME_GUEST);
    CHECK_EQ(logged[1].flush.space.regime, HVMEM_REGIME_STAGE2);
    CHECK_EQ(logged[1].flush.what, HVMEM_FLUSH_REGIME);
    hvmem_space_changed(space, &change);
    REQUIRE_EQ(hvmem_space_activate(space, 0, &entry), HVMEM_OK);
    CHECK_EQ(flushes, 3);
    CHECK_EQ(logged[2].flush.space.regime, HVMEM_REGIME_STAGE2);
    CHECK_EQ(logged[2].flush.space.root, 0x1234001e);
}

/* ---- the end of a space -------------------------------------------------------------------------- */

/* The id is invalidated wherever it may be cached, and only then given to another space. */
TEST(B43_an_id_is_flushed_before_it_is_given_out)
{
    struct hvmem_ident_stats stats;
    hvmem_u32 id;
    int i;

    begin(MACHINE_ASID, 2, 20);
    for (i = 0; i < 4; i++) {
        activate(i, 0);
        activate(i, 1);
        entered(0);
        entered(1);
    }
    id = activate(4, 0).id;
    entered(0);
    activate(4, 1);
    entered(1);
    activate(0, 0);
    activate(0, 1);
    entered(0);
    entered(1);
    flushes = 0;
    CHECK_EQ(hvmem_space_destroy(space_of(4), 0), HVMEM_OK);
    CHECK_EQ(flushes, 1);
    CHECK_EQ(logged[0].flush.what, HVMEM_FLUSH_SPACE);
    CHECK_EQ(logged[0].flush.scope, HVMEM_SCOPE_INNER);
    CHECK_EQ(logged[0].flush.space.id, id);
    for (i = 5; i < 16; i++)
        CHECK_EQ(activate(i, 0).flushed, HVMEM_ENTRY_NOTHING);
    hvmem_ident_get_stats(m.ident, &stats);
    CHECK_EQ(stats.rollovers, 0); /* 15 spaces live: the 15th took the number that came back */
    CHECK_EQ(stats.returned, 1);
    CHECK_EQ(flushes, 1);
}

TEST(B43_a_lazy_end_keeps_the_id_until_the_rollover)
{
    struct hvmem_ident_stats stats;
    hvmem_u32 id;
    int i;

    begin(MACHINE_ASID, 1, 20);
    id = activate(0, 0).id;
    activate(1, 0);
    entered(0);
    flushes = 0;
    CHECK_EQ(hvmem_space_destroy(space_of(0), HVMEM_DESTROY_LAZY), HVMEM_OK);
    CHECK_EQ(flushes, 0);
    for (i = 2; i < 15; i++)
        CHECK(activate(i, 0).id != id);
    CHECK_EQ(flushes, 0);
    CHECK_EQ(activate(15, 0).flushed, HVMEM_ENTRY_FLUSH_ALL);
    hvmem_ident_get_stats(m.ident, &stats);
    CHECK_EQ(stats.rollovers, 1);
}

/* 10 000 spaces come and go over 15 ids, some refused half-way, some destroyed while in use. */
TEST(B43_ids_do_not_run_out)
{
    struct test_rng rng = test_rng(7);
    int kind;
    int i;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        begin((enum machine_kind)kind, 2, 0);
        for (i = 0; i < 10000; i++) {
            int cpu = i & 1;

            machine_create(&m, cpu);
            if (test_below(&rng, 4) == 0)
                m.tlb.fail = 1;
            if (machine_switch(&m, cpu, cpu) != HVMEM_OK) {
                m.tlb.fail = 0;
                REQUIRE_EQ(machine_switch(&m, cpu, cpu), HVMEM_OK);
            }
            m.tlb.fail = 0;
            machine_access(&m, cpu, 0);
            CHECK_EQ(machine_destroy(&m, cpu, cpu, 0), HVMEM_E_BUSY);
            REQUIRE_EQ(machine_idle(&m, cpu), HVMEM_OK);
            REQUIRE_EQ(machine_destroy(&m, cpu, cpu, (hvmem_u32)test_below(&rng, 2)), HVMEM_OK);
        }
        CHECK_EQ(m.cross, 0);
        CHECK_EQ(m.wrong_id, 0);
    }
    machine_free(&m);
}
