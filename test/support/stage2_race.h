/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two or three CPUs at work on one second stage, in every order that the test points allow: after each
 * step hardware loads what the tables offer, and an oracle judges what the CPUs then hold:
 *   - what a finished call took away (a mapping, a right) is held by nobody,
 *   - tables never offer another translation than one still held, where a break is due before,
 *   - what is held was touched, but for a call that has cleared entries and not flushed yet,
 *   - a frame that waits for its first touch is not reached before it is clean, and not cleaned
 *     when it was given away; and it is not scrubbed any more once the guest wrote to it,
 *   - where the mapping would let a device in, no entry waits for a fault.
 */
#ifndef STAGE2_RACE_H
#define STAGE2_RACE_H

#include "stage2_rig.h"
#include "test_schedule.h"

enum { RACE_PAGES = 6, RACE_DEAD = 6, RACE_FRAMES = 16 };

/* A guest frame that hardware looks at all the time. */
struct race_page {
    uint64_t gfn;
    uint64_t mfn;             /* mapped by the last call on it, 0: none */
    uint64_t dead[RACE_DEAD]; /* mfns that it no longer translates to */
    int deads;
    unsigned rights; /* most that any CPU may hold */
};

struct stage2_race;

struct race_program {
    uint32_t format;
    uint64_t features;                         /* besides the format's */
    unsigned flags;                            /* of the stage 2 */
    int threads;                               /* in use of thread[] */
    int preemptions;                           /* most in one schedule */
    uint64_t least, most;                      /* schedules: at least; at most, 0: all there are */
    void (*prepare)(struct stage2_race *race); /* changes the configuration; may be NULL */
    void (*setup)(struct stage2_race *race);
    void (*thread[3])(struct stage2_race *race);
    void (*finish)(struct stage2_race *race); /* nobody is at work any more */
};

struct stage2_race {
    struct stage2_rig rig;
    const struct race_program *program;
    struct race_page page[RACE_PAGES];
    int pages;
    uint64_t block;    /* of 512 frames out of the heap, 0: none */
    int clearing;      /* calls that clear valid bits are under way */
    int hardware_off;  /* nothing is loaded any more */
    const char *wrong; /* what the oracle saw first */
    uint64_t wrong_page;
    /* By offset in the block. */
    uint8_t dirty[RACE_FRAMES];   /* written and not cleaned since */
    uint8_t waits[RACE_FRAMES];   /* must be cleaned before anybody reaches it */
    uint8_t given[RACE_FRAMES];   /* another owner's: nobody may clean it */
    uint8_t written[RACE_FRAMES]; /* holds what the guest wrote: nobody may scrub it */
    uint64_t zeroed[RACE_FRAMES];
    /* For the program. */
    hvmem_status status[3];
    uint64_t done[3];
    uint64_t count[4];
};

/* All schedules of the program. Checks that there were enough and none went wrong. */
void race_explore(struct stage2_race *race, const struct race_program *program);

/* The oracle's verdict by a program: the first stays. */
void race_wrong(struct stage2_race *race, const char *what, uint64_t page);
#define RACE_CHECK(race, condition)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            race_wrong(race, #condition, 0);                                                       \
    } while (0)

/* In setup: hardware looks at gfn; a block of 512 frames of the heap (race->block). */
void race_watch(struct stage2_race *race, uint64_t gfn);
void race_block(struct stage2_race *race);
/* The same, a domain's, with an earlier owner's contents in it: it owes SCRUB and DCACHE. */
void race_dirty_block(struct stage2_race *race);

/* Calls of the library, with what the oracle must know about them. */
hvmem_status race_map(struct stage2_race *race, uint64_t gfn, uint64_t frames, uint64_t mfn);
hvmem_status race_unmap(struct stage2_race *race, uint64_t gfn, uint64_t frames);
hvmem_status race_protect(struct stage2_race *race, uint64_t gfn, uint64_t frames, unsigned rights);
hvmem_status race_arm(struct stage2_race *race);
hvmem_status race_disarm(struct stage2_race *race);
hvmem_status race_age(struct stage2_race *race, uint64_t gfn, uint64_t frames, uint64_t *touched);
hvmem_status race_setway(struct stage2_race *race);
hvmem_status race_teardown(struct stage2_race *race);
/* One fault. */
hvmem_u32 race_fault(struct stage2_race *race, uint64_t gfn, unsigned access);
/* The guest on this thread's CPU gets through to the address, or 0. A store makes the frame dirty. */
int race_guest(struct stage2_race *race, uint64_t gfn, unsigned access);

/* What tables say now. */
int race_touched(struct stage2_race *race, uint64_t gfn);

#endif
