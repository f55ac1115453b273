/* SPDX-License-Identifier: BSD-2-Clause */
/* Cleaning 1 GiB in stretches, scrubbing, and how often instruction caches are told. */
#include "machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_FRAMES ((hvmem_u64)2048) /* dirtied, then cleaned: it fits into the caches */
#define PAGE         4096u
#define SCRUB_FRAMES ((hvmem_u64)1 << 14)
#define EXTENTS      2048u

/* Every stretch of one clean of 1 GiB of dirty lines, timed. */
static void clean_all(struct contents *c, struct bench_samples *stretches)
{
    hvmem_mfn at;

    for (at = 0; at < CONTENTS_FRAMES; at += CHUNK_FRAMES) {
        struct hvmem_cursor cursor = {{0}};
        hvmem_status status;

        memset(c->memory + at * PAGE, (int)(at >> 11), CHUNK_FRAMES * PAGE);
        do {
            double start = bench_now();

            status = hvmem_cache_range(c->heap, CONTENTS_FIRST + at, CHUNK_FRAMES,
                                       HVMEM_DC_CLEAN_INVALIDATE, HVMEM_CACHE_STRETCH, &cursor);
            bench_samples_add(stretches, bench_now() - start);
        } while (status == HVMEM_AGAIN);
        FIGURE_REQUIRE(status == HVMEM_OK);
    }
}

/* What is wanted of them: 0 the longest in lines, else a quantile of the time of a stretch in ns. */
static double clean_1gib(double quantile, double *lines)
{
    struct bench_samples stretches = {0};
    struct contents c;
    double value;

    contents_open(&c, HVMEM_OWES_DCACHE, 0);
    c.longest = 0;
    clean_all(&c, &stretches);
    *lines = (double)c.longest / c.be.caps.dline;
    FIGURE_REQUIRE(stretches.count * *lines >= (double)(CONTENTS_FRAMES * PAGE / c.be.caps.dline));
    value = bench_quantile(&stretches, quantile);
    figure_comment("clean_1gib: %zu stretches of dirty lines: median %.2f us, 99.9 %% %.2f us",
                   stretches.count, bench_median(&stretches) / 1000,
                   bench_quantile(&stretches, 0.999) / 1000);
    bench_samples_free(&stretches);
    contents_close(&c);
    return value;
}

FIGURE(clean_stretch, "clean_1gib.max_stretch_lines", "lines",
       "most lines cleaned between two preemption checks, cleaning 1 GiB")
{
    double lines;

    (void)clean_1gib(0.5, &lines);
    return lines;
}

FIGURE(clean_line, "clean_1gib.ns_per_line", "ns", "a dirty line cleaned and invalidated, median")
{
    double lines, ns = clean_1gib(0.5, &lines);

    return ns / lines;
}

FIGURE(clean_p999, "clean_1gib.p999_us", "us", "time of a stretch, 99.9 % are shorter")
{
    double lines;

    return clean_1gib(0.999, &lines) / 1000;
}

/* ---- scrub ------------------------------------------------------------------------------------ */

struct scrubbing {
    struct contents machine;
    hvmem_mfn mfn;
};

static void scrub_round(void *arg, double *values)
{
    struct scrubbing *s = arg;
    struct contents *c = &s->machine;
    struct hvmem_domain *domain = contents_domain(c);
    struct hvmem_cursor cursor = {{0}};
    double start;

    s->mfn = contents_take(c, domain, 14);
    memset(c->memory + (s->mfn - CONTENTS_FIRST) * PAGE, 0x5e, SCRUB_FRAMES * PAGE);
    FIGURE_REQUIRE(hvmem_free(c->heap, s->mfn, 14) == HVMEM_OK);
    contents_domain_gone(domain);
    start = contents_spent();
    while (hvmem_scrub_step(c->heap, HVMEM_NODE_ANY, 512, &cursor) == HVMEM_AGAIN)
        ;
    values[0] = contents_spent() - start;
    FIGURE_REQUIRE(c->memory[(s->mfn - CONTENTS_FIRST) * PAGE] == 0);
    FIGURE_REQUIRE(c->memory[(s->mfn - CONTENTS_FIRST + SCRUB_FRAMES) * PAGE - 1] == 0);
}

static void memset_round(void *arg, double *values)
{
    struct scrubbing *s = arg;
    unsigned char *at = s->machine.memory + (s->mfn - CONTENTS_FIRST) * PAGE;
    double start;

    memset(at, 0x5e, SCRUB_FRAMES * PAGE);
    start = contents_spent();
    memset(at, 0, SCRUB_FRAMES * PAGE);
    values[0] = contents_spent() - start;
}

FIGURE(scrub, "scrub.vs_memset", "ratio",
       "64 MiB of dirty free memory scrubbed in steps, over memset of the same")
{
    struct scrubbing s;
    struct bench_side sides[2] = {{.round = scrub_round, .arg = &s, .values = 1, .long_round = 1},
                                  {.round = memset_round, .arg = &s, .values = 1, .long_round = 1}};
    double ratio;

    contents_open(&s.machine, HVMEM_OWES_SCRUB, 0);
    s.mfn = CONTENTS_FIRST;
    bench_rounds(sides, 2, 2.0, 40);
    ratio = bench_median_ratio(&sides[0].samples[0], &sides[1].samples[0]);
    figure_comment("scrub: %.2f ms against %.2f ms", bench_median(&sides[0].samples[0]) / 1e6,
                   bench_median(&sides[1].samples[0]) / 1e6);
    bench_rounds_free(sides, 2);
    contents_close(&s.machine);
    return ratio;
}

/* ---- instruction caches ----------------------------------------------------------------------- */

static hvmem_status map(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    hvmem_mfn *table = ctx;
    (void)order;

    table[gfn] = mfn;
    return HVMEM_OK;
}

static hvmem_status lookup(void *ctx, hvmem_gfn gfn, hvmem_mfn *mfn, hvmem_order *order)
{
    const hvmem_mfn *table = ctx;

    *order = 0;
    if (gfn >= EXTENTS || table[gfn] == 0)
        return HVMEM_E_FREE;
    *mfn = table[gfn];
    return HVMEM_OK;
}

FIGURE(icache, "icache.invalidates_per_domain", "invalidations",
       "whole I-cache invalidations of one domain: 2048 frames populated, an image, start")
{
    static struct hvmem_extent extents[EXTENTS];
    static hvmem_mfn table[EXTENTS];
    struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map, .lookup = lookup};
    struct hvmem_populate populate = {
        .size = sizeof populate, .extents = extents, .count = EXTENTS, .node = HVMEM_NODE_ANY};
    struct hvmem_cursor cursor = {{0}};
    struct hvmem_domain *domain;
    struct hvmem_block block;
    struct contents c;
    double count;
    unsigned i;

    contents_open(&c, HVMEM_OWES_ANY & 0x0fu, 0);
    contents_make_owe(&c, 9);
    domain = contents_domain(&c);
    for (i = 0; i < EXTENTS; i++)
        extents[i] = (struct hvmem_extent){.gfn = i};
    FIGURE_REQUIRE(hvmem_domain_attach(domain, &ops, table, NULL) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_populate(domain, &populate, &cursor) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_dirtied(domain, 0, 64) == HVMEM_OK);
    FIGURE_REQUIRE(c.icache_alls == 0);
    FIGURE_REQUIRE(hvmem_domain_start(domain) == HVMEM_OK);
    count = (double)c.icache_alls;
    for (i = 0; i < EXTENTS; i++) {
        FIGURE_REQUIRE(hvmem_lookup(c.heap, extents[i].mfn, &block) == HVMEM_OK);
        FIGURE_REQUIRE(block.owed == 0 && block.owner == 1);
    }
    contents_close(&c);
    return count;
}
