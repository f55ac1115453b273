/* SPDX-License-Identifier: BSD-2-Clause */
/* bench-google: the loops of bench/bodies under Google Benchmark, for every allocator. */
#include "shim.h"

#include "bench/measure/work.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH 1000u

static const struct bench_body *const bodies[] = {
    &bench_hvmem, &bench_jemalloc, &bench_jemalloc_x, &bench_glibc, &bench_reference,
};
#define BODIES (sizeof bodies / sizeof bodies[0])

/* One allocator and what is done to it; open only while it is measured. */
struct job {
    const struct bench_body *body;
    hvmem_u32 order;
    struct bench_opened opened;
    struct work_mix mix;
};

static void pair_begin(struct shim_case *self)
{
    struct job *job = self->arg;

    bench_open(&job->opened, job->body, BENCH_FRAMES_8_GIB, 0);
}

static void pair_run(struct shim_case *self)
{
    struct job *job = self->arg;

    FIGURE_REQUIRE(job->body->pair(&job->opened.pool, job->order, BATCH) == 0);
}

static void pair_end(struct shim_case *self)
{
    struct job *job = self->arg;

    bench_close(&job->opened);
}

static void mix_begin(struct shim_case *self)
{
    struct job *job = self->arg;

    pair_begin(self);
    work_mix_init(&job->mix, &job->opened, BENCH_FRAMES_8_GIB, NULL);
}

/* Drawing the steps is inside the time; bench/figures mix.ns leaves it out. */
static void mix_run(struct shim_case *self)
{
    struct job *job = self->arg;
    double values[BENCH_ROUND_VALUES];

    work_mix_round(&job->mix, values);
}

static void mix_end(struct shim_case *self)
{
    struct job *job = self->arg;

    work_mix_end(&job->mix);
    pair_end(self);
}

#define KINDS 4u

static void describe(struct shim_case *one, struct job *job, unsigned kind)
{
    static const hvmem_u32 orders[] = {0, 9, 18};
    static char names[BODIES * KINDS][64];
    static unsigned used;
    char *name = names[used++];

    one->name = name;
    one->arg = job;
    if (kind < 3) {
        job->order = orders[kind];
        snprintf(name, sizeof names[0], "pair/order:%u/%s", job->order, job->body->name);
        one->begin = pair_begin;
        one->run = pair_run;
        one->end = pair_end;
        one->batch = BATCH;
    } else {
        snprintf(name, sizeof names[0], "mix/%s", job->body->name);
        one->begin = mix_begin;
        one->run = mix_run;
        one->end = mix_end;
        one->batch = WORK_MIX_STEPS;
    }
}

int main(int argc, char **argv)
{
    static struct job jobs[BODIES * KINDS];
    static struct shim_case cases[BODIES * KINDS];
    unsigned kind, i, count = 0;

    for (kind = 0; kind < KINDS; kind++) {
        for (i = 0; i < BODIES; i++) {
            jobs[count].body = bodies[i];
            describe(&cases[count], &jobs[count], kind);
            count++;
        }
    }
    return shim_main(argc, argv, cases, count);
}
