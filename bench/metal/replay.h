/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Parts of the metal program "replay": the heap of the machine's RAM, a back-end that counts what it is
 * asked before it hands it on, what is seen at the peak of a trace, and the result as JSON.
 */
#ifndef BENCH_METAL_REPLAY_H
#define BENCH_METAL_REPLAY_H

#include "hosts/common/player_heap.h"
#include "hosts/metal/common/host.h"

#define REPLAY_METAL_BLOCKS 1024u /* blocks of an empty heap */
#define REPLAY_METAL_ROUNDS 32u
#define REPLAY_METAL_KINDS  128u /* different requests to the back-end; a power of two */

/* The real back-end behind a counter; requests are told apart by what, scope, regime and pages. */
struct replay_counter {
    struct hvmem_backend backend; /* give this one away */
    struct hvmem_backend_ops ops;
    struct hvmem_backend *real;
    uint64_t key[REPLAY_METAL_KINDS]; /* 0 = free */
    uint64_t count[REPLAY_METAL_KINDS];
    uint64_t whole, ranges, pages; /* requests for everything or a space; ranges and their pages */
    uint64_t uncounted;            /* requests that found no place in key[] */
};

void replay_counter_init(struct replay_counter *counter, struct hvmem_backend *real);
void replay_counter_clear(struct replay_counter *counter);
/* Prints {"NAME": COUNT, ...}: the instructions that the requests become, as the recorder tells. */
void replay_counter_print(const struct replay_counter *counter);

/* What is seen when both CPUs stand at the peak. */
struct replay_peak {
    uint64_t pages, regions, regions_least, free_large, possible_large;
};

/* One way of playing one trace. */
struct replay_run {
    const char *trace; /* name, `trace_length` long */
    size_t trace_length;
    const void *bytes;
    size_t size;
    int debts; /* user memory belongs to a domain that defers what its frames owe */
    int dump;  /* print all blocks at the peak */

    struct metal_heap heap;
    struct replay_counter counter;
    struct replay_heap player;
    struct replay_ops ops;
    struct replay replay;
    void *slots;
    hvmem_mfn slots_at;
    hvmem_order slots_order;

    struct hvmem_block initial[REPLAY_METAL_BLOCKS];
    uint32_t initial_count;

    struct replay_peak peak;
    struct replay_result result;          /* of the last round */
    uint64_t busy[REPLAY_METAL_ROUNDS];   /* cycles of both CPUs, waits left out */
    uint64_t passed[REPLAY_METAL_ROUNDS]; /* cycles from the first start to the last end */
    uint32_t rounds;
    uint64_t settle;
};

/* replay_look.c. All return 0, or print what is wrong. */
int replay_remember(struct replay_run *run); /* the blocks of the heap as they are now */
int replay_restored(struct replay_run *run); /* drained, audited, the same blocks */
int replay_audit(struct replay_run *run);
int replay_look(struct replay_run *run); /* at the peak: fills run->peak, dumps */

/* replay_print.c: one line that begins with "json " for each line of the result. */
void replay_print(const struct replay_run *run);

#endif
