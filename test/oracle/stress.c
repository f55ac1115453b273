/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads as CPUs, the ownership check, and what threads meet and talk with. */
#include "stress.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct stress *stress_new(struct world *world, hvmem_mfn base, hvmem_u64 frames)
{
    struct stress *stress = calloc(1, sizeof *stress);

    if (stress == NULL)
        abort();
    stress->world = world;
    stress->base = base;
    stress->frames = frames;
    stress->owner = calloc(frames, sizeof *stress->owner);
    if (stress->owner == NULL)
        abort();
    pthread_mutex_init(&stress->lock, NULL);
    return stress;
}

void stress_delete(struct stress *stress)
{
    pthread_mutex_destroy(&stress->lock);
    free(stress->owner);
    free(stress);
}

void stress_fail(struct stress *stress, const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&stress->lock);
    if (stress->failure[0] == '\0') {
        va_start(arguments, format);
        vsnprintf(stress->failure, sizeof stress->failure, format, arguments);
        va_end(arguments);
    }
    pthread_mutex_unlock(&stress->lock);
    __atomic_store_n(&stress->stop, 1, __ATOMIC_RELAXED);
}

bool stress_stopped(struct stress *stress)
{
    return __atomic_load_n(&stress->stop, __ATOMIC_RELAXED) != 0;
}

struct start {
    struct stress *stress;
    unsigned thread;
    stress_body *body;
    void *argument;
    pthread_t id;
};

static void *thread_main(void *argument)
{
    struct start *start = argument;

    world_set_cpu(start->thread);
    start->body(start->stress, start->thread, start->argument);
    return NULL;
}

void stress_run(struct stress *stress, unsigned threads, stress_body *body, void *argument)
{
    struct start start[STRESS_MAX_THREADS];
    unsigned i;

    stress->threads = threads;
    for (i = 0; i < threads; i++) {
        start[i] = (struct start){stress, i, body, argument, 0};
        if (pthread_create(&start[i].id, NULL, thread_main, &start[i]) != 0)
            abort();
    }
    for (i = 0; i < threads; i++)
        pthread_join(start[i].id, NULL);
}

void stress_got(struct stress *stress, unsigned thread, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_u64 i;

    for (i = 0; i < count; i++) {
        hvmem_u64 at = mfn + i - stress->base;
        uint32_t before;

        if (mfn + i < stress->base || at >= stress->frames) {
            stress_fail(stress, "frame %#llx is outside every bank", (unsigned long long)(mfn + i));
            return;
        }
        /* Relaxed: the check must not order what the library should order. */
        before = __atomic_exchange_n(&stress->owner[at], thread + 1, __ATOMIC_RELAXED);
        if (before != 0)
            stress_fail(stress, "frame %#llx given to CPU %u, but CPU %u has it",
                        (unsigned long long)(mfn + i), thread, before - 1);
    }
}

void stress_gives(struct stress *stress, hvmem_mfn mfn, hvmem_u64 count)
{
    hvmem_u64 i;

    for (i = 0; i < count; i++)
        if (__atomic_exchange_n(&stress->owner[mfn + i - stress->base], 0, __ATOMIC_RELAXED) == 0)
            stress_fail(stress, "frame %#llx given back twice", (unsigned long long)(mfn + i));
}

void stress_meet(struct stress_gate *gate)
{
    unsigned round = __atomic_load_n(&gate->round, __ATOMIC_ACQUIRE);
    unsigned spins = 0;

    if (__atomic_add_fetch(&gate->arrived, 1, __ATOMIC_ACQ_REL) == gate->threads) {
        __atomic_store_n(&gate->arrived, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&gate->round, round + 1, __ATOMIC_RELEASE);
        return;
    }
    while (__atomic_load_n(&gate->round, __ATOMIC_ACQUIRE) == round)
        if (++spins > 200)
            sched_yield();
}

bool stress_send(struct stress_queue *queue, hvmem_mfn mfn, hvmem_u32 order)
{
    unsigned tail = __atomic_load_n(&queue->tail, __ATOMIC_RELAXED);

    if (tail - __atomic_load_n(&queue->head, __ATOMIC_ACQUIRE) == STRESS_QUEUE)
        return false;
    queue->mfn[tail % STRESS_QUEUE] = mfn;
    queue->order[tail % STRESS_QUEUE] = order;
    __atomic_store_n(&queue->tail, tail + 1, __ATOMIC_RELEASE);
    return true;
}

bool stress_receive(struct stress_queue *queue, hvmem_mfn *mfn, hvmem_u32 *order)
{
    unsigned head = __atomic_load_n(&queue->head, __ATOMIC_RELAXED);

    if (__atomic_load_n(&queue->tail, __ATOMIC_ACQUIRE) == head)
        return false;
    *mfn = queue->mfn[head % STRESS_QUEUE];
    *order = queue->order[head % STRESS_QUEUE];
    __atomic_store_n(&queue->head, head + 1, __ATOMIC_RELEASE);
    return true;
}
