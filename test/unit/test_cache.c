/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cache work by frame: covered exactly, in stretches of a constant number of lines, with any budget and
 * line size; nothing where the machine needs nothing.
 */
#include "expect.h"

#include "lib/cache.h"

#include <hvmem/cache.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES 2048u

static struct log {
    uint64_t calls, bytes, longest, next, whole, icache, icache_all;
    uint64_t done;              /* calls of dcache_done */
    int gap;                    /* a stretch did not begin where the last one ended */
    hvmem_u32 open;             /* operation of lines that are not complete, with HVMEM_DC_MORE */
    int undone;                 /* dcache_done has failed */
    hvmem_uptr first, complete; /* where the lines begin, and up to where they are complete */
    int fail;                   /* the n-th call from now on of dcache or dcache_done fails */
} log_now;

static hvmem_status note(hvmem_uptr addr, hvmem_size bytes)
{
    log_now.gap |= log_now.calls != 0 && addr != log_now.next;
    if (log_now.calls == 0)
        log_now.first = addr;
    log_now.calls++;
    log_now.bytes += bytes;
    log_now.next = addr + bytes;
    if (bytes > log_now.longest)
        log_now.longest = bytes;
    return HVMEM_OK;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes)
{
    (void)be;
    if (log_now.fail != 0 && --log_now.fail == 0)
        return HVMEM_E_HOST;
    if ((op & ~HVMEM_DC_MORE) > HVMEM_DC_CLEAN_POU ||
        (log_now.open && log_now.open != (op | HVMEM_DC_MORE)))
        return HVMEM_E_ARG;
    log_now.open = op & HVMEM_DC_MORE ? op : 0;
    if (!log_now.open)
        log_now.complete = addr + bytes;
    return note(addr, bytes);
}

static hvmem_status dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    (void)be;
    log_now.undone = log_now.fail != 0 && --log_now.fail == 0;
    if (log_now.undone)
        return HVMEM_E_HOST;
    if (log_now.open != (op | HVMEM_DC_MORE))
        return HVMEM_E_ARG;
    log_now.open = 0;
    log_now.complete = log_now.next;
    log_now.done++;
    return HVMEM_OK;
}

static hvmem_status icache(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    (void)be;
    log_now.icache++;
    return note(addr, bytes);
}

static hvmem_status icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    (void)be;
    (void)scope;
    log_now.icache_all++;
    return HVMEM_OK;
}

static hvmem_status dcache_all(struct hvmem_backend *be, hvmem_u32 op)
{
    (void)be;
    log_now.whole++;
    return op <= HVMEM_DC_CLEAN_INVALIDATE ? HVMEM_OK : HVMEM_E_ARG;
}

static struct world *world_of_cpus(hvmem_u32 cpus, hvmem_u32 dline, hvmem_u32 iline,
                                   hvmem_u64 features, hvmem_u32 page_shift)
{
    struct hvmem_config config = world_config();
    struct world *world;

    config.page_shift = page_shift;
    config.max_cpus = cpus;
    world = WORLD_NEW(&config, WORLD_BROADCAST);
    world->backend_ops.dcache = dcache;
    world->backend_ops.dcache_done = dcache_done;
    world->backend_ops.icache = icache;
    world->backend_ops.icache_all = icache_all;
    world->backend_ops.dcache_all = dcache_all;
    world->backend.caps.dline = dline;
    world->backend.caps.iline = iline;
    world->backend.caps.features |= features;
    CHECK_EQ(world_bank(world, 0, FRAMES, 0, 0), HVMEM_OK);
    memset(&log_now, 0, sizeof log_now);
    return world;
}

static struct world *world_of_lines(hvmem_u32 dline, hvmem_u32 iline, hvmem_u64 features,
                                    hvmem_u32 page_shift)
{
    return world_of_cpus(1, dline, iline, features, page_shift);
}

static unsigned run(struct world *world, hvmem_mfn mfn, hvmem_u64 frames, hvmem_u32 op,
                    hvmem_u64 lines)
{
    struct hvmem_cursor cursor = {{0}};
    unsigned calls = 0;
    hvmem_status status;

    do {
        status = hvmem_cache_range(world->heap, mfn, frames, op, lines, &cursor);
        calls++;
    } while (status == HVMEM_AGAIN && calls < 100000);
    CHECK_EQ(status, HVMEM_OK);
    return calls;
}

/* The operation on everything reaches the caches of one CPU: where others may hold dirty lines it is not used. */
TEST(whole_cache_is_this_cpus_alone)
{
    const hvmem_u64 features = HVMEM_CAP_ICOHERENT | HVMEM_CAP_WHOLE_CACHE;
    const hvmem_u32 op = HVMEM_DC_CLEAN | HVMEM_CACHE_MAY_WHOLE;
    struct world *world = world_of_cpus(1, 64, 64, features, 12);

    world->backend.caps.cache_bytes = 63 * 4096;
    (void)run(world, 0, 64, HVMEM_DC_CLEAN, 0);
    CHECK_EQ(log_now.whole, 0);
    (void)run(world, 0, 64, op, 0);
    CHECK_EQ(log_now.whole, 1);
    (void)run(world, 0, 63, op, 0);
    CHECK_EQ(log_now.whole, 1);
    WORLD_END(world);
    world = world_of_cpus(2, 64, 64, features, 12);
    world->backend.caps.cache_bytes = 63 * 4096;
    (void)run(world, 0, 64, op, 0);
    CHECK_EQ(log_now.whole, 0);
    CHECK_EQ(log_now.bytes, 64 * 4096);
    WORLD_END(world);
}

/* B44: any range, line size and budget, the smallest line of any kind counts. */
TEST(B44_exact_in_bounded_stretches)
{
    static const hvmem_u32 lines[] = {16, 32, 64, 128};
    static const struct {
        hvmem_mfn mfn;
        hvmem_u64 frames;
    } ranges[] = {{0, 1}, {1, 1}, {3, 5}, {511, 2}, {7, 1000}, {0, 2048}, {513, 1023}};
    static const hvmem_u64 budgets[] = {0, 1, 255, 256, 257, 5000};
    unsigned i, j, k;

    for (i = 0; i < 4; i++)
        for (j = 0; j < 7; j++)
            for (k = 0; k < 6; k++) {
                struct world *world = world_of_lines(lines[i], 64, 0, k % 2 ? 12 : 16);
                hvmem_u64 bytes = ranges[j].frames << world->config.page_shift;
                hvmem_u64 least = lines[i] < 64 ? lines[i] : 64;
                unsigned calls = run(world, ranges[j].mfn, ranges[j].frames,
                                     HVMEM_DC_CLEAN_INVALIDATE, budgets[k]);

                CHECK_EQ(log_now.bytes, bytes);
                CHECK(!log_now.gap);
                CHECK(log_now.longest <= HVMEM_CACHE_STRETCH * least);
                if (budgets[k] == 0)
                    CHECK_EQ(calls, 1);
                else
                    CHECK(calls >= bytes / ((budgets[k] + HVMEM_CACHE_STRETCH) * least));
                WORLD_END(world);
            }
}

/* B44: the top of the address space, ranges that wrap, empty ones. */
TEST(B44_top_of_the_address_space)
{
    struct world *world = world_of_lines(64, 64, 0, 12);
    struct hvmem_cursor cursor = {{0}};
    const hvmem_u64 top = 1ull << 40;

    CHECK_EQ(run(world, top - 1, 1, HVMEM_DC_CLEAN, 0), 1);
    CHECK_EQ(log_now.bytes, 4096);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, top - 1, 2, 0, 0, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, top, 1, 0, 0, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 1, ~0ull, 0, 0, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 1, 0, 0, 0, &cursor), HVMEM_E_RANGE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 1, 1, 4, 0, &cursor), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 1, 1, 33 + HVMEM_DC_INVALIDATE, 0, &cursor),
                  HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 1, 1, 0, 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_cache_range(NULL, 1, 1, 0, 0, &cursor), HVMEM_E_ARG);
    WORLD_END(world);
}

/* The host wants its CPU back after every stretch: so it is asked, and heeded. */
TEST(host_is_asked_after_each_stretch)
{
    struct world *world = world_of_lines(64, 64, 0, 12);

    world->yields = 1;
    CHECK_EQ(run(world, 0, 1024, HVMEM_DC_CLEAN, 0), 1024 * 64 / HVMEM_CACHE_STRETCH);
    CHECK_EQ(log_now.calls, 1024 * 64 / HVMEM_CACHE_STRETCH);
    CHECK_EQ(log_now.bytes, 1024 * 4096);
    WORLD_END(world);
}

/* Waited for is once a mapping, and wherever the call stops. */
TEST(lines_are_complete_wherever_it_stops)
{
    static const hvmem_u64 budgets[] = {0, 1024, 1025, 2048, 5000, 40000};
    unsigned i;

    for (i = 0; i < 6; i++) {
        struct world *world = world_of_lines(64, 64, 0, 12);
        struct hvmem_cursor cursor = {{0}};
        hvmem_status status;

        do {
            status = hvmem_cache_range(world->heap, 5, 1900, HVMEM_DC_CLEAN, budgets[i], &cursor);
            CHECK_EQ(log_now.open, 0);
        } while (status == HVMEM_AGAIN);
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(log_now.bytes, 1900 * 4096);
        CHECK(!log_now.gap);
        if (budgets[i] == 0)
            CHECK_EQ(log_now.done, 0); /* the last stretch of a mapping completes it */
        if (budgets[i] == 2048)
            CHECK(log_now.done >= 1900 / 32 / 2);
        WORLD_END(world);
    }
}

/* Where a stretch fails those before it are completed; where that fails too it is an error as well. */
TEST(lines_are_complete_after_a_failure)
{
    int fail, failures = 0, undone = 0;

    for (fail = 1; fail < 80; fail++) {
        struct world *world = world_of_lines(64, 64, 0, 12);
        struct hvmem_cursor cursor = {{0}};
        hvmem_status status;

        log_now.fail = fail;
        do
            status = hvmem_cache_range(world->heap, 0, 1000, HVMEM_DC_CLEAN, 3000, &cursor);
        while (status == HVMEM_AGAIN);
        failures += status == HVMEM_E_HOST;
        undone += log_now.undone;
        CHECK(status == HVMEM_E_HOST || (status == HVMEM_OK && !log_now.undone));
        CHECK(log_now.open == 0 || log_now.undone);
        WORLD_END(world);
    }
    CHECK(failures > 60);
    CHECK(undone > 10);
}

/* What a failed call says is done is complete; from there on it can be gone on with. */
TEST(progress_is_of_complete_lines)
{
    const struct hvmem__work work = {HVMEM__WORK_DCACHE, HVMEM_DC_CLEAN};
    int fail, undone = 0, kept = 0;

    for (fail = 1; fail < 60; fail++) {
        struct world *world = world_of_lines(64, 64, 0, 12);
        struct hvmem__budget budget;
        hvmem_status status = HVMEM_AGAIN;
        hvmem_u64 done = 0;
        unsigned calls;

        log_now.fail = fail;
        for (calls = 0; status && calls < 100; calls++) {
            budget = hvmem__budget_lines(world->heap, 3000);
            status = hvmem__contents(world->heap, 0, 1000, &work, &done, &budget);
            CHECK(done <= log_now.complete - log_now.first || !log_now.complete);
            CHECK(done == 0 || log_now.complete);
            undone += status == HVMEM_E_HOST && log_now.undone;
            kept += status == HVMEM_E_HOST && done != 0;
            log_now.undone = 0;
            if (log_now.open && status == HVMEM_E_HOST)
                log_now.open = 0; /* lost with the failure */
        }
        CHECK_EQ(status, HVMEM_OK);
        CHECK_EQ(done, 1000 * 4096);
        CHECK_EQ(log_now.complete - log_now.first, 1000 * 4096);
        WORLD_END(world);
    }
    CHECK(undone > 5);
    CHECK(kept > 20);
}

/* Cursors of another range, operation or kind, and such that claim too much. */
TEST(cursors)
{
    struct world *world = world_of_lines(64, 64, 0, 12);
    struct hvmem_cursor cursor = {{0}}, bad;
    unsigned i;

    CHECK_EQ(hvmem_cache_range(world->heap, 0, 64, HVMEM_DC_CLEAN, 256, &cursor), HVMEM_AGAIN);
    for (i = 0; i < 3; i++) {
        bad = cursor;
        bad.words[i]++;
        CHECK_REFUSED(world, hvmem_cache_range(world->heap, 0, 64, HVMEM_DC_CLEAN, 256, &bad),
                      HVMEM_E_STALE);
    }
    bad = cursor;
    bad.words[3] = 64 * 4096;
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 0, 64, HVMEM_DC_CLEAN, 256, &bad),
                  HVMEM_E_STALE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 0, 65, HVMEM_DC_CLEAN, 256, &cursor),
                  HVMEM_E_STALE);
    CHECK_REFUSED(world, hvmem_cache_range(world->heap, 0, 64, HVMEM_DC_INVALIDATE, 256, &cursor),
                  HVMEM_E_STALE);
    WORLD_END(world);
}

/* Capabilities: nothing, one whole operation if asked, or an aliasing instruction cache. */
TEST(what_the_machine_needs)
{
    struct world *world = world_of_lines(0, 64, 0, 12);

    (void)run(world, 0, 64, HVMEM_DC_CLEAN, 0);
    CHECK_EQ(log_now.calls, 0);
    (void)run(world, 0, 64, HVMEM_CACHE_ICACHE, 0);
    CHECK(log_now.icache > 0);
    WORLD_END(world);
    world = world_of_lines(64, 64, HVMEM_CAP_ICOHERENT | HVMEM_CAP_WHOLE_CACHE, 12);
    (void)run(world, 0, 64, HVMEM_CACHE_ICACHE, 0);
    (void)run(world, 0, 64, HVMEM_DC_CLEAN_POU, 0);
    CHECK_EQ(log_now.calls, 0);
    WORLD_END(world);
    world = world_of_lines(64, 64, HVMEM_CAP_DIC | HVMEM_CAP_IDC, 12);
    (void)run(world, 0, 64, HVMEM_CACHE_ICACHE, 0);
    CHECK_EQ(log_now.calls, 0);
    WORLD_END(world);
    world = world_of_lines(64, 64, 0, 12);
    world->backend.caps.quirks = HVMEM_QUIRK_VIPT_ICACHE;
    (void)run(world, 0, 64, HVMEM_CACHE_ICACHE, 1000);
    CHECK_EQ(log_now.icache, 0);
    CHECK_EQ(log_now.bytes, 64 * 4096);
    CHECK_EQ(log_now.icache_all, 1);
    WORLD_END(world);
}
