/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The longest stretch (hvmem/cache.h): on every path that cleans, invalidates or zeroes no more than
 * HVMEM_CACHE_STRETCH lines lie between two looks at the host's wish, those of each operation counted; a
 * call that can stop does so once the host wants the CPU, and one that cannot gives it up in between.
 */
#include "stage2_rig.h"

#include "lib/heap.h"

#include <hvmem/cache.h>
#include <hvmem/populate.h>

#include <string.h>

enum { LINE = 64, BLOCK = 512 };

static struct stage2_rig rig;
static struct hvmem_domain_ops ops;
static struct hvmem_backend_ops spied;

static struct watch {
    uint64_t since, most, lines; /* lines since the last look, most of them, all of them */
    uint64_t late;               /* after the host said that it wants the CPU */
    uint64_t looks, relaxed;
    int answer; /* 0: never, 1: always, 2: now and then */
    int told;   /* the host said so in this call */
    hvmem_u32
        open; /* operation of lines left open (HVMEM_DC_MORE); when others ran, or a call was over */
    uint64_t forgotten, completed;
    struct test_rng rng;
} watch;

static void count(hvmem_size bytes)
{
    watch.lines += bytes / LINE;
    watch.since += bytes / LINE;
    if (watch.since > watch.most)
        watch.most = watch.since;
    if (watch.told)
        watch.late += bytes / LINE;
}

static hvmem_status spy_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                               hvmem_size bytes)
{
    (void)be;
    (void)addr;
    count(bytes);
    watch.forgotten += watch.open && watch.open != (op | HVMEM_DC_MORE);
    watch.open = op & HVMEM_DC_MORE ? op : 0;
    return HVMEM_OK;
}

static hvmem_status spy_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    (void)be;
    watch.forgotten += watch.open != (op | HVMEM_DC_MORE);
    watch.open = 0;
    watch.completed++;
    return HVMEM_OK;
}

static hvmem_status spy_range(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    (void)be;
    (void)addr;
    count(bytes);
    return HVMEM_OK;
}

static hvmem_u32 look(void *host)
{
    (void)host;
    watch.looks++;
    watch.since = 0;
    watch.told |= watch.answer == 1 || (watch.answer == 2 && test_below(&watch.rng, 3) == 0);
    return (hvmem_u32)watch.told;
}

static void turn(void *host)
{
    (void)host;
    watch.forgotten += watch.open != 0;
    watch.relaxed++;
    watch.told = 0;
}

/* What is free owes its clean and, each frame or every other one, its scrub. */
static void dirty_memory(unsigned every)
{
    static unsigned char got[RIG_FRAMES];
    hvmem_mfn mfn;
    unsigned i;

    for (i = 0; i < RIG_FRAMES; i++) {
        struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};

        request.lo = RIG_BASE + i;
        request.hi = request.lo + 1;
        request.domain = i % every ? NULL : rig.domain;
        got[i] = hvmem_alloc(rig.heap, &request, &mfn) == HVMEM_OK;
    }
    for (i = 0; i < RIG_FRAMES; i++)
        if (got[i])
            CHECK_EQ(hvmem_free_owned(rig.heap, RIG_BASE + i, 0, i % every ? NULL : rig.domain, 0),
                     HVMEM_OK);
}

static void begin(unsigned largest, unsigned every, int answer)
{
    stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
    rig.config.largest = largest;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    hvmem_stage2_ops(&ops);
    REQUIRE_EQ(hvmem_domain_attach(rig.domain, &ops, rig.s2, rig.space), HVMEM_OK);
    dirty_memory(every);
    CHECK_EQ(hvmem_stage2_reserve(rig.s2, 8), HVMEM_OK);
    spied = *rig.be.ops;
    spied.dcache = spy_dcache;
    spied.dcache_done = spy_dcache_done;
    spied.icache = spied.zero = spy_range;
    rig.be.ops = &spied;
    rig.heap->host.ops.yield_wanted = look;
    rig.heap->host.ops.relax = turn;
    memset(&watch, 0, sizeof watch);
    watch.answer = answer;
    watch.rng = test_rng(largest);
}

/*
 * The lines that were asked for, no more of them in a row than is allowed, none after the host's wish, and
 * none left open for others to find.
 */
static void finish(uint64_t lines)
{
    struct hvmem_cursor cursor = {{0}};

    CHECK_EQ(watch.lines, lines);
    CHECK(watch.most <= HVMEM_CACHE_STRETCH);
    CHECK_EQ(watch.late, 0);
    CHECK_EQ(watch.forgotten, 0);
    rig.heap->host.ops.yield_wanted = NULL;
    rig_leave(&rig);
    while (hvmem_domain_teardown(rig.domain, 0, &cursor) == HVMEM_AGAIN)
        ;
    CHECK_EQ(hvmem_domain_destroy(rig.domain), HVMEM_OK);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

/* A call to be made again until it is done. */
typedef hvmem_status step_fn(struct hvmem_cursor *cursor);

static unsigned steps(step_fn *step)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned calls = 0;

    do {
        watch.since = 0;
        watch.told = 0;
        status = step(&cursor);
        watch.forgotten += watch.open != 0;
    } while (++calls < 100000 && status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    watch.told = 0;
    return calls;
}

/* A block of the domain with what `flags` defer. */
static hvmem_mfn block(hvmem_order order, hvmem_u32 flags)
{
    struct hvmem_request request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    hvmem_mfn mfn = 0;

    request.order = order;
    request.domain = rig.domain;
    request.flags = flags;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    return mfn;
}

/* ---- by frame and by block ------------------------------------------------------------------------ */

static hvmem_mfn at;
static hvmem_u32 op;

static hvmem_status step_range(struct hvmem_cursor *cursor)
{
    return hvmem_cache_range(rig.heap, RIG_BASE + 3, 1000, op, 0, cursor);
}

static hvmem_status step_scrub(struct hvmem_cursor *cursor)
{
    return hvmem_scrub_step(rig.heap, HVMEM_NODE_ANY, 0, cursor);
}

static hvmem_status step_free(struct hvmem_cursor *cursor)
{
    return hvmem_free_scrubbed(rig.heap, at, 9, rig.domain, 0, 0, cursor);
}

TEST(frames_whoever_has_them)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        op = HVMEM_DC_CLEAN;
        (void)steps(step_range);
        op = HVMEM_CACHE_ICACHE;
        (void)steps(step_range);
        finish(2000 * 64);
    }
}

TEST(free_memory_scrubbed_by_idle_cpus)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        uint64_t free;

        begin(9, 2, answer);
        free = hvmem_free_frames(rig.heap);
        (void)steps(step_scrub);
        finish(free / 2 * 64);
    }
}

TEST(blocks_scrubbed_on_free)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        at = block(9, HVMEM_REQ_DEFER_ALL);
        (void)steps(step_free);
        finish(BLOCK * 64);
    }
}

/* ---- the life of a domain ------------------------------------------------------------------------- */

static struct hvmem_extent extents[1024];
static hvmem_u64 extent_count;

static hvmem_status step_populate(struct hvmem_cursor *cursor)
{
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY};

    request.extents = extents;
    request.count = extent_count;
    return hvmem_domain_populate(rig.domain, &request, cursor);
}

static hvmem_status step_start(struct hvmem_cursor *cursor)
{
    return hvmem_domain_start_step(rig.domain, 0, cursor);
}

static hvmem_status step_clean(struct hvmem_cursor *cursor)
{
    return hvmem_domain_clean(rig.domain, 0, 2048, cursor);
}

static hvmem_status step_foreign(struct hvmem_cursor *cursor)
{
    (void)cursor;
    return hvmem_domain_foreign(rig.domain, at, 9);
}

static void extents_of(hvmem_u64 n, hvmem_u32 order, hvmem_u32 flags)
{
    hvmem_u64 i;

    memset(extents, 0, sizeof extents);
    for (i = 0; i < n; i++) {
        extents[i].gfn = i << order;
        extents[i].order = order;
        extents[i].flags = flags;
    }
    extent_count = n;
}

/* Small extents, large ones, and such of which every other frame is dirty. */
TEST(a_populate)
{
    static const struct {
        unsigned n, order, every;
    } kinds[] = {{600, 0, 1}, {2, 9, 1}, {1, 10, 2}};
    unsigned i;
    int answer;

    for (i = 0; i < 3; i++)
        for (answer = 0; answer < 3; answer++) {
            uint64_t frames = (uint64_t)kinds[i].n << kinds[i].order;

            begin(9, kinds[i].every, answer);
            extents_of(kinds[i].n, kinds[i].order, 0);
            (void)steps(step_populate);
            finish(frames * 64 + frames / kinds[i].every * 64);
        }
}

TEST(a_start)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        unsigned i;

        begin(9, 2, answer);
        (void)block(10, HVMEM_REQ_DEFER_ALL);
        for (i = 0; i < 64; i++)
            (void)block(0, HVMEM_REQ_DEFER_ALL);
        watch.lines = 0;
        (void)steps(step_start);
        CHECK(watch.lines >= (1024 + 512 + 64) * 64);
        finish(watch.lines);
    }
}

TEST(cleans_of_what_the_builder_wrote)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        extents_of(600, 0, 0);
        (void)steps(step_populate);
        CHECK_EQ(hvmem_domain_dirtied(rig.domain, 0, 500), HVMEM_OK);
        watch.lines = 0;
        (void)steps(step_start);
        (void)steps(step_clean);
        finish(1100 * 64);
    }
}

TEST(maps_elsewhere)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        extents_of(1, 9, HVMEM_EXTENT_FIRST_TOUCH);
        (void)steps(step_populate);
        at = extents[0].mfn;
        (void)steps(step_foreign);
        finish(2 * BLOCK * 64);
    }
}

/* ---- what the guest causes ------------------------------------------------------------------------ */

static hvmem_status step_touch(struct hvmem_cursor *cursor)
{
    hvmem_u32 outcome;
    hvmem_status status = hvmem_stage2_fault(rig.s2, 0x7000, HVMEM_S2_W, &outcome);

    (void)cursor;
    return status || outcome == HVMEM_FAULT_ENTER ? status : HVMEM_AGAIN;
}

static hvmem_status step_setway(struct hvmem_cursor *cursor)
{
    return hvmem_track_setway(rig.s2, 0, cursor, NULL);
}

static hvmem_status step_disarm(struct hvmem_cursor *cursor)
{
    return hvmem_track_disarm(rig.s2, cursor);
}

TEST(first_touch)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        extents_of(1, 9, HVMEM_EXTENT_FIRST_TOUCH);
        (void)steps(step_populate);
        (void)steps(step_touch);
        finish(2 * BLOCK * 64);
    }
}

TEST(first_touches_of_a_disarm)
{
    int answer;

    for (answer = 0; answer < 3; answer++) {
        begin(9, 1, answer);
        extents_of(2, 9, HVMEM_EXTENT_FIRST_TOUCH);
        (void)steps(step_populate);
        (void)steps(step_disarm);
        finish(2 * 2 * BLOCK * 64);
    }
}

TEST(set_and_way)
{
    static const unsigned largest[] = {0, 9};
    unsigned i, gfn;
    int answer;

    for (i = 0; i < 2; i++)
        for (answer = 0; answer < 3; answer++) {
            struct hvmem_cursor cursor = {{0}};

            begin(largest[i], 1, answer);
            extents_of(2, 9, 0);
            (void)steps(step_populate);
            watch.lines = 0;
            CHECK_EQ(hvmem_track_arm(rig.s2, &cursor), HVMEM_OK);
            for (gfn = 0; gfn < 2 * BLOCK; gfn++)
                CHECK(rig_access(&rig, 0, (uint64_t)gfn << 12, WALK_W) >= 0);
            (void)steps(step_setway);
            finish(2 * BLOCK * 64);
        }
}

/* ---- calls that cannot stop ----------------------------------------------------------------------- */

static hvmem_status step_settle(struct hvmem_cursor *cursor)
{
    (void)cursor;
    return hvmem_settle(rig.heap, at, BLOCK, HVMEM_OWES_ANY);
}

static hvmem_status step_alloc(struct hvmem_cursor *cursor)
{
    (void)cursor;
    (void)block(9, 0);
    return HVMEM_OK;
}

static hvmem_status step_start_whole(struct hvmem_cursor *cursor)
{
    (void)cursor;
    return hvmem_domain_start(rig.domain);
}

/* They give the CPU away where they are, as a wait does. */
TEST(calls_that_cannot_stop_give_way)
{
    static step_fn *const calls[] = {step_settle, step_alloc, step_start_whole};
    unsigned i;
    int answer;

    for (i = 0; i < 3; i++)
        for (answer = 0; answer < 2; answer++) {
            begin(9, 1, answer);
            if (calls[i] != step_alloc)
                at = block(9, HVMEM_REQ_DEFER_ALL);
            CHECK_EQ(steps(calls[i]), 1);
            CHECK_EQ(watch.relaxed, answer ? watch.looks : 0);
            /* What is not the last stretch of a mapping is completed where the CPU is given away. */
            CHECK_EQ(watch.completed, answer ? BLOCK * 64 / (HVMEM_CACHE_STRETCH / 2) - 1 : 0);
            finish(2 * BLOCK * 64);
        }
}
