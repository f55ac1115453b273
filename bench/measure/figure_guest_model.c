/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report's case, modelled: a guest of 92 vCPUs, one on each of 92 CPUs. Lines move between caches as
 * in MESI: a write that does not own its line, and a read without a copy, cost one transfer. The lines
 * that each operation touches are those of lib/vcpu.c, and of bench/reference/rwlock_entry.c for the
 * lock of the guest on entries, posts (both for reading) and migrations (for writing).
 */
#include "bench/common/figure.h"

#include <stdint.h>
#include <string.h>

#define CPUS    92u
#define ENTRIES 2000000u /* measured */
/* A post each 100 entries, a migration each 1000: 10 kHz of entries a vCPU, 100 and 10 a second. */
#define ENTRIES_A_POST      100u
#define ENTRIES_A_MIGRATION 1000u

struct line {
    int owner;           /* CPU with the only copy, modified; -1: none */
    uint64_t sharers[2]; /* CPUs with a copy */
};

static struct model {
    struct line guest, cpu[CPUS], vcpu[CPUS], placement[CPUS];
    unsigned on[CPUS]; /* CPU of each vCPU */
    uint64_t transfers;
    uint64_t random;
} m;

static int has(const struct line *line, unsigned cpu)
{
    return (int)(line->sharers[cpu / 64] >> cpu % 64 & 1);
}

static void read_line(struct line *line, unsigned cpu)
{
    if (has(line, cpu))
        return;
    m.transfers++;
    line->owner = -1;
    line->sharers[cpu / 64] |= (uint64_t)1 << cpu % 64;
}

static void write_line(struct line *line, unsigned cpu)
{
    if (line->owner == (int)cpu)
        return;
    m.transfers++;
    line->owner = (int)cpu;
    memset(line->sharers, 0, sizeof line->sharers);
    line->sharers[cpu / 64] = (uint64_t)1 << cpu % 64;
}

static unsigned below(unsigned bound)
{
    m.random = m.random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((m.random >> 33) % bound);
}

/*
 * Nothing happens between the lock and the unlock of an entry: of the guest's lock only the first of its
 * two writes is charged, which favours it.
 */
static void enter(unsigned vcpu, int locked)
{
    unsigned cpu = m.on[vcpu];

    if (locked)
        write_line(&m.guest, cpu);
    write_line(&m.cpu[cpu], cpu);
    read_line(&m.vcpu[vcpu], cpu);
    if (locked)
        write_line(&m.guest, cpu);
}

static void post(unsigned vcpu, unsigned from, int locked)
{
    write_line(locked ? &m.guest : &m.placement[vcpu], from);
    read_line(&m.vcpu[vcpu], from);
    write_line(&m.cpu[m.on[vcpu]], from);
    write_line(&m.vcpu[vcpu], from);
    if (locked)
        write_line(&m.guest, from);
}

static void migrate(unsigned vcpu, unsigned to, int locked)
{
    unsigned by = m.on[vcpu];

    write_line(locked ? &m.guest : &m.placement[vcpu], by);
    write_line(&m.cpu[by], by);
    write_line(&m.vcpu[vcpu], by);
    write_line(&m.cpu[to], by);
    m.on[vcpu] = to;
}

/* Transfers an entry, everything that happened meanwhile included. */
static double run(int locked)
{
    unsigned i;

    memset(&m, 0, sizeof m);
    m.random = 92;
    m.guest.owner = -1;
    for (i = 0; i < CPUS; i++) {
        m.cpu[i].owner = m.vcpu[i].owner = m.placement[i].owner = -1;
        m.on[i] = i;
    }
    for (i = 0; i < ENTRIES; i++) {
        if (i == ENTRIES / 10)
            m.transfers = 0;
        enter(below(CPUS), locked);
        if (i % ENTRIES_A_POST == 0)
            post(below(CPUS), below(CPUS), locked);
        if (i % ENTRIES_A_MIGRATION == 0)
            migrate(below(CPUS), below(CPUS), locked);
    }
    return (double)m.transfers / (ENTRIES - ENTRIES / 10);
}

FIGURE(entry_model_92vcpu_ratio, "entry.model_92vcpu_ratio", "x",
       "modelled line transfers an entry: lock of the guest on entries over the CPU's lock alone")
{
    double own = run(0);
    double locked = run(1);

    FIGURE_REQUIRE(own > 0);
    figure_comment("transfers an entry: %.3f and %.3f; a post in %u entries, a migration in %u",
                   own, locked, ENTRIES_A_POST, ENTRIES_A_MIGRATION);
    return locked / own;
}
