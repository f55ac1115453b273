/* SPDX-License-Identifier: BSD-2-Clause */
/* Figure of remote frees: one thread allocates pages, another frees them. */
#include "work.h"

#include <string.h>

#define RING    256u  /* frames under way */
#define PAGES   4000u /* short: both threads must keep their CPUs */
#define SECONDS 1.5
#define ROUNDS  1000u

/* One producer, one consumer; each index has a line of its own. */
struct ring {
    hvmem_u32 filled __attribute__((aligned(64)));
    hvmem_u32 emptied __attribute__((aligned(64)));
    hvmem_u64 frame[RING] __attribute__((aligned(64)));
};

struct handover {
    struct bench_opened opened;
    struct bench_team *team;
    struct ring ring;
    hvmem_u64 refused[BENCH_CPUS];
};

static void produce(struct handover *handover)
{
    struct bench_pool *pool = &handover->opened.pool;
    struct ring *ring = &handover->ring;
    hvmem_u32 i;

    for (i = 0; i < PAGES; i++) {
        while (i - __atomic_load_n(&ring->emptied, __ATOMIC_ACQUIRE) >= RING)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        handover->refused[0] += pool->body->fill(pool, 0, &ring->frame[i % RING], 1);
        __atomic_store_n(&ring->filled, i + 1, __ATOMIC_RELEASE);
    }
}

static void consume(struct handover *handover)
{
    struct bench_pool *pool = &handover->opened.pool;
    struct ring *ring = &handover->ring;
    hvmem_u32 i;

    for (i = 0; i < PAGES; i++) {
        while (__atomic_load_n(&ring->filled, __ATOMIC_ACQUIRE) == i)
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        handover->refused[1] += pool->body->release(pool, 0, &ring->frame[i % RING], 1);
        __atomic_store_n(&ring->emptied, i + 1, __ATOMIC_RELEASE);
    }
}

static void handover_work(void *arg, unsigned cpu)
{
    if (cpu == 0)
        produce(arg);
    else
        consume(arg);
}

static void handover_round(void *arg, double *values)
{
    struct handover *handover = arg;

    handover->ring.filled = handover->ring.emptied = 0;
    values[0] = bench_team_run(handover->team, handover_work, handover) / PAGES;
    FIGURE_REQUIRE(handover->refused[0] + handover->refused[1] == 0);
}

FIGURE(remote0, "remote0.ns", "ns", "a page allocated by one thread and freed by another, per page")
{
    static const struct bench_body *const bodies[] = {&bench_hvmem, &bench_jemalloc};
    struct handover handover[2];
    struct bench_side side[2];
    struct bench_team *team = bench_team_start();
    double ns;
    unsigned i;

    memset(handover, 0, sizeof handover);
    memset(side, 0, sizeof side);
    for (i = 0; i < 2; i++) {
        bench_open(&handover[i].opened, bodies[i], BENCH_FRAMES_8_GIB, 0);
        handover[i].team = team;
        side[i].round = handover_round;
        side[i].arg = &handover[i];
        side[i].values = 1;
    }
    bench_rounds(side, 2, SECONDS, ROUNDS);
    figure_comment("remote0: jemalloc malloc(4096)/free %.1f ns",
                   bench_median(&side[1].samples[0]));
    ns = bench_median(&side[0].samples[0]);
    bench_team_stop(team);
    bench_rounds_free(side, 2);
    for (i = 0; i < 2; i++)
        bench_close(&handover[i].opened);
    return ns;
}
