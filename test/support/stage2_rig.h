/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest's second stage on a heap with real memory, two model CPUs with TLBs that load what the tables
 * allow, a counter of cache lines cleaned by frame, and a shadow of what should be mapped.
 */
#ifndef STAGE2_RIG_H
#define STAGE2_RIG_H

#include "backends/sim/tlb.h"
#include "stage2_walk.h"
#include "test_main.h"

#include <hvmem/domain.h>
#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>
#include <hvmem/space.h>
#include <hvmem/track.h>

/* CPUs, and slots of the TLB of each, unless a test wants others. */
enum { RIG_FRAMES = 4096, RIG_BASE = 0x8000000, RIG_CPUS = 2, RIG_SLOTS = 96 };

/* What the host gives on demand, all rights with it, and how often it was said lost. */
struct rig_answer {
    hvmem_mfn mfn;
    hvmem_order order;
    unsigned lost;
};

struct stage2_rig {
    struct hvmem_stage2_config config; /* defaults set by stage2_rig_prepare() */
    uint64_t features, quirks;         /* of the back-end */
    hvmem_u32 cpus, slots;             /* RIG_CPUS and RIG_SLOTS unless changed before open */
    hvmem_u32 fragments;               /* CPUs keep pieces of large entries */
    hvmem_u32 charged;                 /* the domain pays for the tables */
    hvmem_u32 cached;                  /* CPUs keep free frames */
    hvmem_u32 owed;                    /* on free, besides SCRUB and DCACHE */
    hvmem_u32 line;                    /* bytes of a cache line, as the library is told; 0: 64 */
    struct hvmem_heap *heap;
    struct hvmem_domain *domain;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
    struct hvmem_sim_tlb *tlb;
    struct hvmem_backend be;
    struct walk_tables tables;
    unsigned char *pool;
    struct rig_answer answer; /* with rig_answers() */
    /* What happened. */
    uint64_t flushes, whole, ranges, single_pages; /* batches; of them whole; ranges in batches */
    struct hvmem_tlb_range last_range;
    uint64_t reported;
    uint32_t cleaned[RIG_FRAMES]; /* lines, by frame */
    uint32_t fetched[RIG_FRAMES]; /* times made fit to be fetched, by frame */
    uint64_t lines;
    void (*on_flush)(struct stage2_rig *rig, const struct hvmem_tlb_flush *flush);
    void (*on_clean)(struct stage2_rig *rig, hvmem_mfn mfn);
    void (*on_zero)(struct stage2_rig *rig, hvmem_mfn mfn); /* before each frame */
    void (*on_access)(struct stage2_rig *rig, uint64_t gfn, uint64_t mfn, unsigned access);
    /* Threads as CPUs: who this is, a turn of a wait, mutual exclusion over TLBs and counts. */
    hvmem_cpu (*cpu)(void);
    void (*relax)(void);
    void (*guard)(int on);
    void *arg;
    int fail_tables;  /* the n-th table allocation from now fails (1: the next) */
    int fail_flushes; /* so many flushes fail */
    int yield_wanted; /* the host always wants the CPU back */
    uint64_t malformed;
};

/* Defaults for a format: 32 input bits, everything off; change config, then open. */
void stage2_rig_prepare(struct stage2_rig *rig, uint32_t format);
/* HVMEM_OK, or what hvmem_stage2_init() said. */
hvmem_status stage2_rig_open(struct stage2_rig *rig);
/* Tear down, and check that every frame came back. */
void stage2_rig_close(struct stage2_rig *rig);

/* Prepared and opened, or the case ends; at the end also counts and conflicts are checked. */
void stage2_rig_begin(struct stage2_rig *rig, uint32_t format);
void stage2_rig_finish(struct stage2_rig *rig);

/* The host has these frames of the heap for its own ends: guests may get them. */
void rig_set_apart(struct stage2_rig *rig, uint64_t mfn, uint64_t frames);
/* No CPU runs the guest any more. */
void rig_leave(struct stage2_rig *rig);

/* One more stage 2 of the same kind, in a space of its own that no CPU runs. */
struct hvmem_stage2 *rig_second(struct stage2_rig *rig);

/* Calls made until they are through, with a fresh cursor (stage2_rig_calls.c). */
/* Faults are answered by rig->answer. Before open. */
void rig_answers(struct stage2_rig *rig);
hvmem_status rig_arm(struct stage2_rig *rig);
hvmem_status rig_setway(struct stage2_rig *rig, uint32_t lines,
                        struct hvmem_track_progress *progress);
/* Whether the guest touched gfn, which is mapped, since tracking was armed. */
int rig_touched(struct stage2_rig *rig, uint64_t gfn);
/* The outcome of a fault, which the library must take. */
hvmem_u32 rig_fault(struct stage2_rig *rig, uint64_t gfn, unsigned access);

/* The guest accesses an address on a CPU until it succeeds: faults taken, or -1: it cannot. */
int rig_access(struct stage2_rig *rig, hvmem_cpu cpu, uint64_t gpa, unsigned access);
/* As hardware sees it now, without TLB. */
struct walk_entry rig_walk(struct stage2_rig *rig, uint64_t gfn);
hvmem_status rig_map(struct stage2_rig *rig, uint64_t gfn, uint64_t frames, uint64_t mfn,
                     unsigned rights, unsigned type, uint64_t *done);
/* Translations that a CPU holds of [gfn, gfn + frames) (~0: of all), leaves only. */
uint64_t rig_holds(struct stage2_rig *rig, uint64_t gfn, uint64_t frames);
/* CPUs hold translations that overlap and disagree in size or frame. */
uint64_t rig_conflicts(struct stage2_rig *rig);
/* What the TLB model carries of a leaf. */
uint64_t rig_frame_word(uint64_t mfn, unsigned rights, unsigned type);
struct hvmem_stage2_stats rig_stats(struct stage2_rig *rig);
/* Entries told by the tables themselves: present leaves by size, tables; compared with the stats. */
void rig_check_counts(struct stage2_rig *rig);

#endif
