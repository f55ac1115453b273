/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads as CPUs on one heap, and the ownership check: each frame has a word that the thread which
 * was given the frame exchanges for its mark, and clears before it frees. A frame that two threads
 * hold at once is seen by the exchange, whoever came second.
 */
#ifndef HVMEM_TEST_STRESS_H
#define HVMEM_TEST_STRESS_H

#include "world.h"

#include <pthread.h>

#define STRESS_MAX_THREADS 8u

struct stress {
    struct world *world;
    hvmem_mfn base; /* frames watched: [base, base + frames) */
    hvmem_u64 frames;
    uint32_t *owner; /* a word a frame; 0: nobody */
    unsigned threads;
    int stop;          /* set when a thread saw a fault: the others end early */
    char failure[160]; /* the first */
    pthread_mutex_t lock;
};

typedef void stress_body(struct stress *stress, unsigned thread, void *argument);

struct stress *stress_new(struct world *world, hvmem_mfn base, hvmem_u64 frames);
void stress_delete(struct stress *stress);
/* Run body(stress, i, argument) on `threads` threads; thread i is CPU i. Returns when all ended. */
void stress_run(struct stress *stress, unsigned threads, stress_body *body, void *argument);
/* The thread got these frames / is about to free them. */
void stress_got(struct stress *stress, unsigned thread, hvmem_mfn mfn, hvmem_u64 count);
void stress_gives(struct stress *stress, hvmem_mfn mfn, hvmem_u64 count);
void stress_fail(struct stress *stress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool stress_stopped(struct stress *stress);

/* A meeting point of `threads` threads, without a lock (spins and yields). */
struct stress_gate {
    unsigned threads;
    unsigned arrived;
    unsigned round;
};
void stress_meet(struct stress_gate *gate);

/* A bounded queue of blocks between two threads. Returns false if it is full or empty. */
#define STRESS_QUEUE 64u
struct stress_queue {
    unsigned head;
    unsigned tail;
    hvmem_mfn mfn[STRESS_QUEUE];
    hvmem_u32 order[STRESS_QUEUE];
};
bool stress_send(struct stress_queue *queue, hvmem_mfn mfn, hvmem_u32 order);
bool stress_receive(struct stress_queue *queue, hvmem_mfn *mfn, hvmem_u32 *order);

#endif
