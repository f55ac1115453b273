/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of guest entries: the lock of the CPU alone against a read-write lock of the guest before it, on
 * two CPUs at the same time; posting and moving.
 */
#include "guest.h"

#include "bench/common/figure.h"
#include "bench/common/rounds.h"
#include "bench/common/team.h"

#include <math.h>

#define SECONDS 2.0
#define ROUNDS  2000u
#define ENTRIES 20000u /* a round */

struct pass {
    struct guest *guest;
    struct bench_team *team;
    void (*work)(void *arg, unsigned cpu);
    unsigned wrong[2][32]; /* entries that did not find their vCPU; a line for each CPU */
};

static void enter_own(void *arg, unsigned cpu)
{
    struct pass *pass = arg;
    struct hvmem_vcpu *vcpu = pass->guest->vcpu[cpu];
    unsigned wrong = 0;
    unsigned i;

    for (i = 0; i < ENTRIES; i++) {
        hvmem_u64 state = hvmem__cpu_enter(vcpu->vcpus, cpu);

        wrong += hvmem__load(&vcpu->cpu) != cpu || vcpu->work != NULL;
        hvmem__cpu_leave(vcpu->vcpus, cpu, state);
    }
    pass->wrong[cpu][0] += wrong;
}

static void enter_word(void *arg, unsigned cpu)
{
    struct pass *pass = arg;
    unsigned i;

    for (i = 0; i < ENTRIES; i++)
        pass->wrong[cpu][0] += !rwlock_entry_word(&pass->guest->lock, pass->guest->vcpu[cpu], cpu);
}

static void enter_posix(void *arg, unsigned cpu)
{
    struct pass *pass = arg;
    unsigned i;

    for (i = 0; i < ENTRIES; i++)
        pass->wrong[cpu][0] += !rwlock_entry_posix(&pass->guest->lock, pass->guest->vcpu[cpu], cpu);
}

static void round_of(void *arg, double *values)
{
    struct pass *pass = arg;

    values[0] = bench_team_run(pass->team, pass->work, pass) / ENTRIES;
}

struct entries {
    double own, word, posix; /* ns, medians */
    double ratio;            /* of the better read-write lock over our own */
};

static void measure(struct entries *result)
{
    static void (*const works[3])(void *, unsigned) = {enter_own, enter_word, enter_posix};
    struct pass passes[3] = {{0}};
    struct bench_side sides[3] = {{0}};
    struct bench_team *team = bench_team_start();
    struct guest guest;
    unsigned i;

    guest_open(&guest, 8, 2);
    for (i = 0; i < 3; i++) {
        passes[i].guest = &guest;
        passes[i].team = team;
        passes[i].work = works[i];
        sides[i].round = round_of;
        sides[i].arg = &passes[i];
        sides[i].values = 1;
    }
    bench_rounds(sides, 3, SECONDS, ROUNDS);
    for (i = 0; i < 3; i++)
        FIGURE_REQUIRE(passes[i].wrong[0][0] == 0 && passes[i].wrong[1][0] == 0);
    result->own = bench_median(&sides[0].samples[0]);
    result->word = bench_median(&sides[1].samples[0]);
    result->posix = bench_median(&sides[2].samples[0]);
    result->ratio = bench_median_ratio(&sides[result->word <= result->posix ? 1 : 2].samples[0],
                                       &sides[0].samples[0]);
    bench_rounds_free(sides, 3);
    guest_close(&guest);
    bench_team_stop(team);
}

FIGURE(entry_ns, "entry.ns", "ns",
       "look at a vCPU at its entry, two CPUs at once: the CPU's lock alone")
{
    struct entries entries;

    measure(&entries);
    return entries.own;
}

FIGURE(entry_ns_rwlock, "entry.ns_rwlock", "ns",
       "the same with a read-write lock of the guest before it: the better of two kinds")
{
    struct entries entries;

    measure(&entries);
    figure_comment("one-word lock %.1f ns, pthread_rwlock %.1f ns", entries.word, entries.posix);
    return fmin(entries.word, entries.posix);
}

FIGURE(entry_ratio_2cpu, "entry.ratio_2cpu", "x",
       "entry.ns_rwlock over entry.ns, rounds in turn, two CPUs")
{
    struct entries entries;

    measure(&entries);
    figure_comment("own %.1f ns, one-word lock %.1f, pthread_rwlock %.1f", entries.own,
                   entries.word, entries.posix);
    return entries.ratio;
}

/* ---- kinds 2 and 3, one CPU ----------------------------------------------------------------------- */

static void migrate_round(void *arg, double *values)
{
    struct guest *guest = arg;
    double start = bench_now();
    unsigned i;

    for (i = 0; i < ENTRIES; i++)
        FIGURE_REQUIRE(hvmem_vcpu_migrate(guest->vcpu[0], ~i & 1) == HVMEM_OK);
    values[0] = (bench_now() - start) / ENTRIES;
}

static void post_round(void *arg, double *values)
{
    struct guest *guest = arg;
    double start = bench_now();
    hvmem_cpu kick;
    unsigned i;

    for (i = 0; i < ENTRIES; i++)
        FIGURE_REQUIRE(hvmem_vcpu_post_flush(guest->vcpu[1], &kick) == HVMEM_OK);
    values[0] = (bench_now() - start) / ENTRIES;
}

static double one_side(void (*round)(void *, double *))
{
    struct bench_side side = {.round = round, .values = 1};
    struct guest guest;
    double ns;

    guest_open(&guest, 8, 2);
    side.arg = &guest;
    bench_rounds(&side, 1, 1.0, ROUNDS);
    ns = bench_median(&side.samples[0]);
    bench_rounds_free(&side, 1);
    guest_close(&guest);
    return ns;
}

FIGURE(migrate_ns, "migrate.ns", "ns", "move a vCPU to another CPU, uncontended")
{
    return one_side(migrate_round);
}

FIGURE(post_flush_ns, "post_flush.ns", "ns", "post a flush to a vCPU wherever it is, uncontended")
{
    return one_side(post_round);
}
