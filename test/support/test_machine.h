/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_machine.h: a machine for tests of ids, spaces and vCPUs: CPUs with the model TLB, spaces with
 * small page tables, and the oracle: no access may hit a translation of another space, or one that
 * a completed change of the tables took away. Works in one thread, or with CPUs as the threads of
 * test_schedule.h, which then serve flush requests when they are between two operations.
 */
#ifndef HVMEM_TEST_MACHINE_H
#define HVMEM_TEST_MACHINE_H

#include "backends/sim/tlb.h"
#include "test_schedule.h"

#include <hvmem/space.h>
#include <hvmem/vcpu.h>

#include <stddef.h>
#include <stdint.h>

#define MACHINE_CPUS   4
#define MACHINE_SPACES 40
#define MACHINE_PAGES  4
#define MACHINE_SLOTS  64
#define MACHINE_NONE   (-1)

/* Ways in which machines number, flush and change. */
enum machine_kind {
    MACHINE_ASID,  /* arm64 ASID: one numbering, each CPU flushes after a rollover, TLBI IS */
    MACHINE_VMID,  /* arm64 VMID, INVLPGB: one numbering, rollover and changes broadcast */
    MACHINE_PCID,  /* x86 PCID: numbers per CPU, changes by request */
    MACHINE_TAGS,  /* one numbering, changes by request (x86 VPID) */
    MACHINE_SVM,   /* SVM ASID: numbers per CPU, flushed by the entry */
    MACHINE_SVM_1, /* the same, hardware cannot flush a single ASID */
    MACHINE_KINDS
};

struct machine_space {
    struct hvmem_space *space; /* NULL: not created */
    void *memory;
    uint64_t serial;
    uint32_t version[MACHINE_PAGES]; /* of the page's mapping */
    uint32_t oldest[MACHINE_PAGES];  /* smallest that may still be hit */
    int pins;
};

struct machine_cpu {
    int running;   /* index of the space the hardware has loaded, or MACHINE_NONE */
    int in_guest;  /* accesses are made */
    int switching; /* told to load something else, which the hardware may not have done */
    /* A request by another CPU: acknowledged by setting it back to NONE. */
    int asked_space;
    uint64_t asked_change;
    int asked_page;
    int busy; /* its thread runs a program: it serves requests itself */
};

struct machine {
    enum machine_kind kind;
    int cpus;
    uint32_t first, ids;
    struct hvmem_sim_tlb tlb;
    struct hvmem_ident *ident;
    struct machine_space spaces[MACHINE_SPACES];
    struct machine_cpu cpu[MACHINE_CPUS];
    uint64_t serials;
    uint64_t cross;    /* hits of another space's translation */
    uint64_t stale;    /* hits of a translation that a completed change removed */
    uint64_t wrong_id; /* id 0 loaded, or one id for two spaces */
    uint64_t ran_dead; /* a destroyed space was loaded */
    uint64_t accesses;
    uint64_t reported;                     /* calls of the host's report */
    int acting[TEST_SCHEDULE_THREADS + 1]; /* CPU as which a thread acts; [0]: the test itself */
    void *memory;
    size_t bytes;
};
#define MACHINE_BYTES (256u << 10)

/*
 * A machine with ids first .. first + ids - 1 and all CPUs online. Its memory is kept for the next
 * set-up (tests that run one 10^5 times); machine_free gives it back.
 */
void machine_begin(struct machine *m, enum machine_kind kind, int cpus, uint32_t first,
                   uint32_t ids);
void machine_free(struct machine *m);

/* Operations of CPU `cpu`. Indices are of m->spaces. The library's status where it can refuse. */
void machine_create(struct machine *m, int space);
hvmem_status machine_destroy(struct machine *m, int cpu, int space, uint32_t flags);
hvmem_status machine_switch(struct machine *m, int cpu, int space);
hvmem_status machine_idle(struct machine *m, int cpu);
/* Choose a space and give the switch up: the hardware goes on with what it had, out of the guest. */
hvmem_status machine_give_up(struct machine *m, int cpu, int space);
/* Enter again what was left by a request; access one page; change the mapping of one. */
hvmem_status machine_resume(struct machine *m, int cpu);
void machine_access(struct machine *m, int cpu, int page);
void machine_change(struct machine *m, int cpu, int space, int page);
/* Translations nobody asked for, on every CPU. */
void machine_speculate(struct machine *m, int each);
/* Serve what other CPUs asked of this one. */
void machine_serve(struct machine *m, int cpu);
/*
 * With one numbering: no two CPUs have one id loaded for two spaces, not even during a switch; CPUs
 * that run one space run it under one id.
 */
void machine_check_ids(struct machine *m);

#endif
