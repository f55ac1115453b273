/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interleavings of switches, rollovers, changes, destroys against the model TLB (B41, B43): small
 * programs with few 4-bit ids on 2 to 4 CPUs, all schedules within a bound on preemptions; and long
 * random runs. The oracle is in test_machine.h.
 */
#include "test_machine.h"
#include "test_main.h"
#include "test_schedule.h"

#include <string.h>

enum what { END, SWITCH, IDLE, ACCESS, CHANGE, DESTROY, FLUSH_ALL, PIN };

struct op {
    unsigned char what;
    unsigned char space;
    unsigned char page;
};

#define OPS 8

struct race {
    struct machine machine;
    enum machine_kind kind;
    int cpus;
    uint32_t ids;
    int spaces;
    int used_up; /* numbers that other spaces took before */
    struct op program[MACHINE_CPUS][OPS];
    uint64_t refused; /* operations that found the space gone or busy, over all schedules */
    uint64_t accesses;
};

static struct race race;

static int yield_at_points(const char *name, void *context)
{
    (void)name;
    (void)context;
    test_yield();
    return 0;
}

static void begin(void *ctx)
{
    struct race *r = ctx;
    int cpu;
    int i;

    /* The highest numbers of four bits. */
    machine_begin(&r->machine, r->kind, r->cpus, 16 - r->ids, r->ids);
    for (i = 0; i < r->spaces + r->used_up; i++)
        machine_create(&r->machine, i);
    for (cpu = 0; cpu < r->cpus && r->used_up; cpu++) {
        for (i = 0; i < r->used_up; i++)
            REQUIRE_EQ(machine_switch(&r->machine, cpu, r->spaces + i), HVMEM_OK);
        REQUIRE_EQ(machine_idle(&r->machine, cpu), HVMEM_OK);
    }
    for (cpu = 0; cpu < r->cpus; cpu++)
        r->machine.cpu[cpu].busy = 1;
}

static void count_refusal(struct race *r, hvmem_status status)
{
    if (status != HVMEM_OK)
        r->refused++;
}

static void perform(struct race *r, int cpu, const struct op *op)
{
    struct machine *m = &r->machine;
    hvmem_u32 id;

    switch (op->what) {
    case SWITCH:
        count_refusal(r, machine_switch(m, cpu, op->space));
        break;
    case IDLE:
        count_refusal(r, machine_idle(m, cpu));
        break;
    case CHANGE:
        machine_change(m, cpu, op->space, op->page);
        break;
    case DESTROY:
        count_refusal(r, machine_destroy(m, cpu, op->space, 0));
        break;
    case FLUSH_ALL:
        hvmem_ident_flush_all(m->ident);
        break;
    case PIN:
        count_refusal(r, hvmem_space_pin(m->spaces[op->space].space, &id));
        break;
    default:
        break;
    }
}

static void body(int cpu, void *ctx)
{
    struct race *r = ctx;
    struct machine *m = &r->machine;
    int i;
    int page;

    for (i = 0; i < OPS && r->program[cpu][i].what != END; i++) {
        perform(r, cpu, &r->program[cpu][i]);
        for (page = 0; page < 2; page++)
            machine_access(m, cpu, page);
        count_refusal(r, machine_resume(m, cpu));
    }
    machine_serve(m, cpu);
    m->cpu[cpu].busy = 0;
}

static void step(void *ctx)
{
    struct race *r = ctx;

    machine_speculate(&r->machine, 1);
    machine_check_ids(&r->machine);
}

static int end(void *ctx)
{
    struct race *r = ctx;
    const struct machine *m = &r->machine;

    r->accesses += m->accesses;
    return m->cross || m->stale || m->wrong_id || m->ran_dead;
}

static const char *const names[] = {"end",    "switch",  "idle",      "access",
                                    "change", "destroy", "flush_all", "pin"};

static void print_program(const struct race *r)
{
    int cpu;
    int i;

    test_note("kind %d, %d CPUs, %u ids, %d spaces; cross %llu stale %llu wrong id %llu dead %llu",
              (int)r->kind, r->cpus, r->ids, r->spaces, (unsigned long long)r->machine.cross,
              (unsigned long long)r->machine.stale, (unsigned long long)r->machine.wrong_id,
              (unsigned long long)r->machine.ran_dead);
    for (cpu = 0; cpu < r->cpus; cpu++) {
        for (i = 0; i < OPS && r->program[cpu][i].what != END; i++)
            test_note("CPU %d: %s %d %d", cpu, names[r->program[cpu][i].what],
                      r->program[cpu][i].space, r->program[cpu][i].page);
    }
}

/* All schedules of the program, or the first max_runs. Returns how many ran. */
static uint64_t explore(struct race *r, int preemptions, uint64_t max_runs)
{
    struct test_schedule schedule = {.threads = r->cpus,
                                     .preemptions = preemptions,
                                     .max_runs = max_runs,
                                     .begin = begin,
                                     .body = body,
                                     .step = step,
                                     .end = end,
                                     .ctx = r};
    struct test_explored explored;

    test_set_point_hook(yield_at_points, NULL);
    explored = test_explore(&schedule);
    test_set_point_hook(NULL, NULL);
    CHECK(!explored.deadlock);
    if (!CHECK(!explored.stopped) || explored.deadlock)
        print_program(r);
    return explored.runs;
}

static void race_begin(struct race *r, int kind, int cpus, uint32_t ids, int spaces)
{
    void *memory = r->machine.memory;

    memset(r, 0, sizeof *r);
    r->machine.memory = memory;
    r->kind = (enum machine_kind)kind;
    r->cpus = cpus;
    r->ids = ids;
    r->spaces = spaces;
}

/* ---- programs ---------------------------------------------------------------------------------- */

/* Switches that use the numbers up while another CPU switches and a change is on its way. */
static void rollover_against_switch(int preemptions, uint64_t least)
{
    static const struct op cpu0[] = {{SWITCH, 0, 0}, {SWITCH, 1, 0}, {SWITCH, 0, 0}};
    static const struct op cpu1[] = {{SWITCH, 2, 0}, {SWITCH, 3, 0}, {CHANGE, 0, 1}};
    uint64_t runs = 0;
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        race_begin(&race, kind, 2, 5, 4);
        race.used_up = 3;
        memcpy(race.program[0], cpu0, sizeof cpu0);
        memcpy(race.program[1], cpu1, sizeof cpu1);
        runs += explore(&race, preemptions, 60000);
        CHECK_EQ(race.refused, 0);
    }
    test_note("%llu schedules", (unsigned long long)runs);
    CHECK(runs > least);
    machine_free(&race.machine);
}

TEST(B41_rollover_against_switch_and_change, points)
{
    rollover_against_switch(3, 20000);
}

TEST(B41_rollover_against_switch_and_change_deeper, points, slow)
{
    rollover_against_switch(4, 150000);
}

/* A rollover hands out the very number that a CPU is about to switch to without the lock. */
TEST(B41_switch_without_lock_against_rollover, points)
{
    static const struct op cpu0[] = {{SWITCH, 4, 0}, {SWITCH, 3, 0}};
    static const struct op cpu1[] = {{SWITCH, 0, 0}, {SWITCH, 1, 0}, {SWITCH, 2, 0}};
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        race_begin(&race, kind, 2, 5, 3);
        race.used_up = 3; /* spaces 3, 4 and 5 have the lowest numbers */
        memcpy(race.program[0], cpu0, sizeof cpu0);
        memcpy(race.program[1], cpu1, sizeof cpu1);
        explore(&race, 3, 60000);
        CHECK_EQ(race.refused, 0);
    }
    machine_free(&race.machine);
}

TEST(B41_change_while_its_space_gets_a_new_number, points)
{
    static const struct op cpu0[] = {{SWITCH, 0, 0}, {IDLE, 0, 0}, {SWITCH, 0, 0}};
    static const struct op cpu1[] = {{SWITCH, 1, 0}, {SWITCH, 2, 0}, {SWITCH, 3, 0}};
    static const struct op cpu2[] = {{CHANGE, 0, 0}, {CHANGE, 0, 1}};
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        race_begin(&race, kind, 3, 7, 4);
        race.used_up = 5;
        memcpy(race.program[0], cpu0, sizeof cpu0);
        memcpy(race.program[1], cpu1, sizeof cpu1);
        memcpy(race.program[2], cpu2, sizeof cpu2);
        explore(&race, 2, 20000);
        CHECK_EQ(race.refused, 0);
    }
    machine_free(&race.machine);
}

/* A CPU enters a space that another destroys: it runs it or is refused, and no id is shared. */
TEST(B43_destroy_while_entering, points)
{
    static const struct op cpu0[] = {{SWITCH, 1, 0}, {SWITCH, 0, 0}, {SWITCH, 2, 0}};
    static const struct op cpu1[] = {{DESTROY, 0, 0}, {SWITCH, 3, 0}, {SWITCH, 1, 0}};
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        race_begin(&race, kind, 2, 3, 4);
        memcpy(race.program[0], cpu0, sizeof cpu0);
        memcpy(race.program[1], cpu1, sizeof cpu1);
        explore(&race, 3, 60000);
        CHECK(race.refused > 0); /* in some schedules one of the two comes too late */
    }
    machine_free(&race.machine);
}

/* The last free number is one that came back: whoever gets it must not meet the dead space under it. */
TEST(B43_an_id_comes_back_after_its_flush, points)
{
    static const struct op cpu0[] = {{SWITCH, 0, 0}, {SWITCH, 1, 0}, {SWITCH, 2, 0},
                                     {SWITCH, 3, 0}, {SWITCH, 4, 0}, {SWITCH, 5, 0}};
    static const struct op cpu1[] = {{DESTROY, 0, 0}};
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        race_begin(&race, kind, 2, 5, 6);
        memcpy(race.program[0], cpu0, sizeof cpu0);
        memcpy(race.program[1], cpu1, sizeof cpu1);
        explore(&race, 2, 60000);
    }
    machine_free(&race.machine);
}

static struct op random_op(struct test_rng *rng, int spaces, int with_end)
{
    static const unsigned char whats[] = {SWITCH, SWITCH, SWITCH, SWITCH, CHANGE,
                                          CHANGE, CHANGE, IDLE,   ACCESS, FLUSH_ALL};
    struct op op;

    op.what = whats[test_below(rng, with_end ? 10 : 9)];
    op.space = (unsigned char)test_below(rng, (uint64_t)spaces);
    op.page = (unsigned char)test_below(rng, 2);
    return op;
}

/* Random programs, each with all its schedules of one preemption and many of two. */
TEST(B41_random_programs, points)
{
    struct test_rng rng = test_rng(41);
    uint64_t programs = test_rounds(120);
    uint64_t accesses = 0;
    uint64_t runs = 0;
    uint64_t n;

    for (n = 0; n < programs; n++) {
        int cpu;
        int i;

        race_begin(&race, (int)(n % MACHINE_KINDS), 2 + (int)test_below(&rng, 3),
                   4 + (uint32_t)test_below(&rng, 2), 3 + (int)test_below(&rng, 5));
        for (cpu = 0; cpu < race.cpus; cpu++) {
            for (i = 0; i < 3; i++)
                race.program[cpu][i] = random_op(&rng, race.spaces, 1);
        }
        runs += explore(&race, 2, 600);
        accesses += race.accesses;
    }
    CHECK(runs > 100 * programs);
    CHECK(accesses > 2 * runs);
    machine_free(&race.machine);
}

/* ---- long runs --------------------------------------------------------------------------------- */

/* Pin a space, or let go of it; at most four at a time. */
static void random_pin(struct machine *m, struct machine_space *s)
{
    struct hvmem_ident_stats stats;
    hvmem_u32 id;

    hvmem_ident_get_stats(m->ident, &stats);
    if (s->pins > 0) {
        CHECK_EQ(hvmem_space_unpin(s->space), HVMEM_OK);
        s->pins--;
    } else if (stats.pinned < 4 && hvmem_space_pin(s->space, &id) == HVMEM_OK) {
        s->pins++;
    }
}

/*
 * A switch, before which the CPU may have chosen other spaces and thought better of it. Such a CPU holds
 * two numbers and wants a third: with few ids there may be none, until it chooses nothing.
 */
static void random_switch(struct machine *m, struct test_rng *rng, int cpu, int space)
{
    uint64_t given_up = test_below(rng, 8) ? 0 : test_below(rng, 6);
    hvmem_status status = HVMEM_OK;
    int chosen = 0;

    for (; given_up > 0 && status == HVMEM_OK; given_up--) {
        int other = (int)test_below(rng, MACHINE_SPACES);

        if (m->spaces[other].space == NULL)
            continue;
        status = machine_give_up(m, cpu, other);
        CHECK(status == HVMEM_OK || (chosen && status == HVMEM_E_NOID));
        chosen = 1;
        machine_speculate(m, 4);
        machine_check_ids(m);
    }
    status = machine_switch(m, cpu, space);
    if (chosen && status == HVMEM_E_NOID) {
        CHECK_EQ(machine_idle(m, cpu), HVMEM_OK);
        status = machine_switch(m, cpu, space);
    }
    CHECK_EQ(status, HVMEM_OK);
}

/* One step of a random CPU. Spaces are destroyed and created anew as well. */
static void random_step(struct machine *m, struct test_rng *rng)
{
    int cpu = (int)test_below(rng, (uint64_t)m->cpus);
    int space = (int)test_below(rng, MACHINE_SPACES);
    uint64_t dice = test_below(rng, 100);

    if (m->spaces[space].space == NULL) {
        machine_create(m, space);
    } else if (dice < 40) {
        machine_access(m, cpu, (int)test_below(rng, MACHINE_PAGES));
    } else if (dice < 75) {
        random_switch(m, rng, cpu, space);
    } else if (dice < 90) {
        machine_change(m, cpu, space, (int)test_below(rng, MACHINE_PAGES));
    } else if (dice < 93) {
        (void)machine_idle(m, cpu);
    } else if (dice < 97) {
        (void)machine_destroy(m, cpu, space, (uint32_t)test_below(rng, 2));
    } else if (dice < 98) {
        hvmem_ident_flush_all(m->ident);
    } else if (dice < 99) {
        random_pin(m, &m->spaces[space]);
    } else {
        machine_speculate(m, 2);
    }
    CHECK_EQ(machine_resume(m, cpu), HVMEM_OK);
    machine_check_ids(m);
}

/* 10^7 steps over all kinds of machine, with few ids, many, and just as many as CPUs need. */
TEST(ten_million_steps_without_a_cross_space_hit, slow)
{
    static const uint32_t ids[] = {9, 15, 60, 255};
    static struct machine m;
    struct test_rng rng = test_rng(43);
    uint64_t each = test_rounds(10000000) / (MACHINE_KINDS * 4) + 1;
    uint64_t rollovers = 0;
    uint64_t i;
    int n;

    for (n = 0; n < MACHINE_KINDS * 4; n++) {
        struct hvmem_ident_stats stats;

        machine_begin(&m, (enum machine_kind)(n / 4), MACHINE_CPUS, 1, ids[n % 4]);
        for (i = 0; i < each; i++)
            random_step(&m, &rng);
        CHECK_EQ(m.cross, 0);
        CHECK_EQ(m.stale, 0);
        CHECK_EQ(m.wrong_id, 0);
        CHECK(m.accesses > each / 4);
        hvmem_ident_get_stats(m.ident, &stats);
        rollovers += stats.rollovers;
    }
    test_note("%llu rollovers", (unsigned long long)rollovers);
    CHECK(rollovers > 1000);
    machine_free(&m);
}

TEST(random_steps_without_a_cross_space_hit)
{
    static struct machine m;
    struct test_rng rng = test_rng(44);
    uint64_t i;
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        machine_begin(&m, (enum machine_kind)kind, MACHINE_CPUS, 1, 13);
        for (i = 0; i < 30000; i++)
            random_step(&m, &rng);
        CHECK_EQ(m.cross, 0);
        CHECK_EQ(m.stale, 0);
        CHECK_EQ(m.wrong_id, 0);
    }
    machine_free(&m);
}

/* ---- the oracle can fail ------------------------------------------------------------------------ */

/* Without the flush of a change the oracle sees a stale hit; with a foreign tag a cross-space one. */
TEST(the_oracle_sees_missing_flushes)
{
    static struct machine m;
    struct hvmem_tlb_space tag;

    machine_begin(&m, MACHINE_ASID, 2, 1, 15);
    machine_create(&m, 0);
    machine_create(&m, 1);
    CHECK_EQ(machine_switch(&m, 0, 0), HVMEM_OK);
    machine_access(&m, 0, 1);
    m.spaces[0].oldest[1] = ++m.spaces[0].version[1];
    machine_access(&m, 0, 1);
    CHECK_EQ(m.stale, 1);
    CHECK_EQ(machine_switch(&m, 1, 1), HVMEM_OK);
    tag = m.tlb.loaded[0].space;
    tag.root = 2;
    hvmem_sim_tlb_set_loaded(&m.tlb, 0, &tag);
    m.cpu[0].running = 1;
    machine_access(&m, 0, 1);
    CHECK_EQ(m.cross, 1);
    machine_check_ids(&m);
    CHECK_EQ(m.wrong_id, 1);
    machine_free(&m);
}
