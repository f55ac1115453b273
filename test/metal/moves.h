/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames that move from domain A to domain B while every CPU holds A's translations of them: a heap
 * of a few frames, A's pages in the test window, and a back-end that can be told to execute nothing.
 * A way from A to B is a struct path; moves.c runs each of them.
 */
#ifndef TEST_METAL_MOVES_H
#define TEST_METAL_MOVES_H

#include <hvmem/clock.h>
#include <hvmem/domain.h>
#include <hvmem/heap.h>
#include <hvmem/space.h>

#include "hosts/metal/common/host.h"

#define CHECK_SHARED(name) move_checks_##name
#include "test/metal/check.h"

#define MOVE_FRAMES  8u
#define MOVE_DOMAINS 5u

struct moves {
    struct hvmem_heap *heap;
    struct metal_host host;
    struct hvmem_host_ops ops;
    struct hvmem_backend backend; /* the machine's, but for tlb_flush */
    struct hvmem_backend_ops backend_ops;
    struct hvmem_domain *a, *building, *running; /* owners */
    void *memory[MOVE_DOMAINS + 1];              /* of domains, by id */
    hvmem_mfn frame[MOVE_FRAMES];                /* those of the round */
    uint32_t executes; /* 0: an invalidation is claimed and not executed */
    uint32_t batches;  /* atomic: calls of tlb_flush, on all CPUs together */
    uint64_t asked;    /* atomic: CPUs that made one */
    uint32_t what;     /* atomic: bit for each HVMEM_FLUSH_* asked of them */
    uint32_t word;     /* what the new owner wrote last */
    uint32_t round;
    unsigned cpus;

    /* Set before move_start; else the frames are pages of the window in a heap of nothing else. */
    uint64_t pool;     /* frames of the heap, a power of two */
    void (*map)(void); /* A gets translations of its frames */
    void (*end)(void); /* the new owner gives them back; NULL: one by one */
    /* 1: this CPU reads the word at A's i-th page; 0: it cannot. */
    int (*reads)(unsigned i, uint64_t *value);
};

extern struct moves moves;

/* A step of a round: did the library do what it was asked? */
typedef int move_step(void);

struct path {
    const char *name;
    move_step *give; /* A loses its frames: entries go, frames are freed in some way */
    move_step *take; /* B gets all of them; all that is to be invalidated is when this is over */
    /* Exactly what the library must do for a round, on hardware with broadcast and without. */
    uint64_t flushes[2]; /* whole flushes counted by the heap */
    uint64_t cpus[2];    /* CPUs asked in them */
    uint64_t batches[2]; /* tlb_flush calls of the back-end */
    uint64_t clean;      /* CPUs that are fresh even if the library's flush is suppressed */
};

/* The window's page of the i-th frame. */
uintptr_t move_page(unsigned i);
/* A gets translations of its frames there. */
void move_map(void);
/* A's entries become invalid, visibly to walkers; nothing is invalidated. */
void move_unmap(void);
/* The new owner writes a word that was never there before into each frame. */
void move_write(void);
/*
 * Every CPU of the mask reads through each of A's pages. Returns the reads that still reached a frame
 * and its present contents; one that found anything else fails a check.
 */
unsigned move_stale(uint64_t mask);
uint64_t move_all_cpus(void);

/* A's entries go and its frames are freed one by one, as owing a flush. */
int move_free(void);
/* All frames are allocated for a domain; HVMEM_REQ_* for each. */
int move_take(struct hvmem_domain *domain, uint32_t flags);

/* A domain of this id (1 .. MOVE_DOMAINS), BUILDING; made anew where an earlier one of the id was. */
struct hvmem_domain *move_domain(uint32_t id);
/* Tears A down, to its end, and makes it anew; 0: the library refused. */
int move_tear_down(void);

/* Identifiers for the window, all CPUs online; HVMEM_IDENT_* in place of broadcast where there is none. */
struct hvmem_ident *move_ident(uint32_t flags);
/* Every CPU runs the space, and the window under its id. */
void move_load(struct hvmem_ident *ident, struct hvmem_space *space);
/* No CPU runs a space any more. id0: and the window is under id 0; else it goes on under the old id. */
void move_unload(struct hvmem_ident *ident, int id0);

/* Runs a path: rounds with the invalidation suppressed, then as many with it. */
void move_run(const struct path *path);

/* The ways into a domain that is being built. */
void move_run_built(void);
/* All frames populate the domain of id 4. */
int move_populate(void);
/* The ways through a gather; the window is made a space of its own. */
void move_run_gathered(void);
/* The ways through the teardown of A. */
void move_run_torn_down(void);

/* Makes the heap, the domains and the other CPUs; 0: could not. */
int move_start(void);

#endif
