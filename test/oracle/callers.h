/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * callers.h: a host and two domains, one that runs and one that is being built, who use three banks which
 * meet in the middle of blocks: allocate, free by every call and by gathers, populate, reserve, take frames
 * out of service, settle, scrub, start and end a domain, take a CPU away. One call at a time, any, so that tests
 * can look at the tables in between, or within: their pages are their own. The world keeps what frames owe, from
 * before the call that frees them on.
 */
#ifndef HVMEM_TEST_CALLERS_H
#define HVMEM_TEST_CALLERS_H

#include "test_tables.h"
#include "test_main.h"
#include "world.h"

#include <hvmem/gather.h>

#define CALLERS_FRAMES 512u
#define CALLERS_BANKS  3u
#define CALLERS_HELD   24u

struct callers_held {
    hvmem_mfn mfn;
    hvmem_u64 frames;
    struct hvmem_domain *domain;
};

struct callers {
    struct world *world; /* its first tables are those of the banks, by address */
    struct hvmem_heap *heap;
    struct test_rng rng;
    struct hvmem_domain *domain[2];
    struct callers_held held[CALLERS_HELD + 16]; /* calls under way may bring some more */
    unsigned count;
    unsigned char left[CALLERS_FRAMES]; /* 1: was given up; for tests to clear */
    unsigned alone;                     /* a call is under way beside which few others may come */
    unsigned marking;                   /* another frame becomes the bad one, or none */
    hvmem_mfn bad;                      /* EXPECT_NO_MFN: none was told to go */
    struct hvmem_cursor scrub;
    struct hvmem_space *space;  /* frames are gathered from a mapping of it */
    void *memory[2];            /* of the space, and its identifiers */
    struct test_tables *tables; /* of the first domain */
    hvmem_gfn gfn;              /* from which on nothing is mapped in them */
};

/*
 * All that is random follows from `stream`; it also says whether there are caches, what frees owe, and, with
 * CALLERS_TWO, that there may be two calls at a time.
 */
#define CALLERS_TWO 0x10000u
struct callers callers_new(uint64_t stream);
void callers_end(struct callers *c);

/* Add the i-th bank to a world. */
void callers_bank(struct world *world, unsigned i);
struct hvmem_bank callers_bank_at(unsigned i);

/* Nobody has a frame any more: all are free but the bad one. */
void callers_release_all(struct callers *c);

/* One call of any kind, of any CPU. */
void callers_call(struct callers *c);

/* The same, and at places where it has no lock whole calls of the other CPU. */
void callers_call_two(struct callers *c);

#endif
