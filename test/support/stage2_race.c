/* SPDX-License-Identifier: BSD-2-Clause */
/* The oracle and the calls of stage2_race.h. */
#include "stage2_race.h"

#include "lib/stage2.h"

#include <string.h>

static struct stage2_race *running;

void race_wrong(struct stage2_race *race, const char *what, uint64_t page)
{
    if (race->wrong != NULL)
        return;
    race->wrong = what;
    race->wrong_page = page;
}

/* ---- the oracle ----------------------------------------------------------------------------- */

/* Offset in the block of a frame that the tests look at; -1: none of them. */
static int in_block(const struct stage2_race *race, uint64_t mfn)
{
    return race->block && mfn - race->block < RACE_FRAMES ? (int)(mfn - race->block) : -1;
}

/* A translation that a CPU holds for the page. */
static void judge(struct stage2_race *race, const struct race_page *page,
                  const struct hvmem_sim_entry *e)
{
    uint64_t mfn = (e->frame >> 8) + (page->gfn - e->page);
    struct walk_entry now = rig_walk(&race->rig, page->gfn);
    int i, offset = in_block(race, mfn);

    for (i = 0; i < page->deads; i++)
        if (page->dead[i] == mfn)
            race_wrong(race, "a mapping that was taken away is still held", page->gfn);
    if (e->frame & 7 & ~page->rights)
        race_wrong(race, "a right that was taken away is still held", page->gfn);
    if (offset >= 0 && race->waits[offset])
        race_wrong(race, "a frame is reached before it is clean", page->gfn);
    if (now.kind == WALK_LEAF && race->rig.config.format == HVMEM_S2_ARM64 &&
        !(race->rig.features & HVMEM_CAP_BBM2) &&
        (now.shift != e->shift + 12u || now.address >> 12 != mfn))
        race_wrong(race, "made before the broken one was flushed", page->gfn);
    if (now.kind != WALK_LEAF && !race->clearing)
        race_wrong(race, "held, and not touched", page->gfn);
}

static void judge_all(struct stage2_race *race)
{
    hvmem_cpu cpu;
    hvmem_u32 i;
    int p;

    for (cpu = 0; cpu < race->rig.cpus; cpu++) {
        const struct hvmem_sim_entry *e = hvmem_sim_tlb_entries(race->rig.tlb, cpu);

        for (i = 0; i < race->rig.slots; i++, e++)
            for (p = 0; p < race->pages && e->valid && !e->table; p++)
                if (race->page[p].gfn - e->page < (uint64_t)1 << e->shift)
                    judge(race, &race->page[p], e);
    }
}

/* Where a device would be let in now nothing waits for a fault, which it cannot take. */
static void judge_devices(struct stage2_race *race)
{
    struct hvmem_stage2 *s2 = race->rig.s2;
    struct hvmem__s2_path path;
    int p;

    if (s2 == NULL || s2->state != HVMEM__S2_LIVE || s2->mapping.faults || s2->mapping.broken)
        return;
    for (p = 0; p < race->pages; p++) {
        hvmem__s2_walk(s2, race->page[p].gfn, &path);
        if (hvmem__s2_present(&s2->f, path.entry) &&
            !(path.walkable && hvmem__s2_valid(&s2->f, path.entry)))
            race_wrong(race, "a device that is let in now finds what faults", race->page[p].gfn);
    }
}

/* Between any two steps: judge, load what can be loaded, judge what was. */
static void step(void *ctx)
{
    struct stage2_race *race = ctx;
    struct hvmem_sim_entry e;
    hvmem_cpu cpu;
    int p;

    judge_all(race);
    judge_devices(race);
    for (cpu = 0; cpu < race->rig.cpus && !race->hardware_off; cpu++)
        for (p = 0; p < race->pages; p++)
            hvmem_sim_tlb_access(race->rig.tlb, cpu, race->page[p].gfn, &e);
    judge_all(race);
}

static void on_flush(struct stage2_rig *rig, const struct hvmem_tlb_flush *flush)
{
    (void)rig;
    (void)flush;
    test_yield();
}

/* The first line of a frame is cleaned; the rest follows before anybody else goes on. */
static void on_clean(struct stage2_rig *rig, hvmem_mfn mfn)
{
    struct stage2_race *race = running;
    int offset = in_block(race, mfn);

    (void)rig;
    if (offset < 0)
        return;
    if (offset < 2)
        test_yield();
    if (race->given[offset])
        race_wrong(race, "another owner's frame is cleaned", mfn);
    race->dirty[offset] = race->waits[offset] = 0;
}

/* As on_clean(), but whoever scrubs may be held up anywhere before the frame is zeroed. */
static void on_zero(struct stage2_rig *rig, hvmem_mfn mfn)
{
    struct stage2_race *race = running;
    int offset = in_block(race, mfn);

    (void)rig;
    if (offset < 0)
        return;
    if (offset < 2)
        test_yield();
    if (race->written[offset])
        race_wrong(race, "what the guest wrote is scrubbed", mfn);
    race->zeroed[offset]++;
}

/* What a store went to is dirty. */
static void on_access(struct stage2_rig *rig, uint64_t gfn, uint64_t mfn, unsigned access)
{
    int offset = in_block(running, mfn);

    (void)rig;
    (void)gfn;
    if ((access & HVMEM_S2_W) && offset >= 0)
        running->dirty[offset] = running->written[offset] = 1;
}

static int at_point(const char *name, void *ctx)
{
    (void)ctx;
    if (strncmp(name, "stage2.", 7) == 0 || strcmp(name, "shootdown_devices") == 0)
        test_yield();
    return 0;
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void begin(void *ctx)
{
    struct stage2_race *race = ctx;
    const struct race_program *program = race->program;

    memset(race, 0, sizeof *race);
    race->program = program;
    running = race;
    stage2_rig_prepare(&race->rig, program->format);
    race->rig.features |= program->features;
    race->rig.config.flags = program->flags;
    race->rig.cpus = (hvmem_u32)program->threads;
    race->rig.slots = 32;
    if (program->prepare != NULL)
        program->prepare(race);
    REQUIRE_EQ(stage2_rig_open(&race->rig), HVMEM_OK);
    program->setup(race);
    race->rig.on_flush = on_flush;
    race->rig.on_clean = on_clean;
    race->rig.on_zero = on_zero;
    race->rig.on_access = on_access;
    test_set_point_hook(at_point, NULL);
}

static void body(int thread, void *ctx)
{
    struct stage2_race *race = ctx;

    race->program->thread[thread](race);
}

static int end(void *ctx)
{
    struct stage2_race *race = ctx;

    step(race);
    if (race->program->finish != NULL)
        race->program->finish(race);
    if (race->rig.s2 != NULL)
        rig_check_counts(&race->rig);
    if (race->block)
        CHECK_EQ(hvmem_free(race->rig.heap, race->block, 9), HVMEM_OK);
    stage2_rig_close(&race->rig);
    return race->wrong != NULL;
}

void race_explore(struct stage2_race *race, const struct race_program *program)
{
    struct test_schedule schedule = {.threads = program->threads,
                                     .preemptions = program->preemptions,
                                     .max_runs = program->most ? program->most : 1000000,
                                     .begin = begin,
                                     .body = body,
                                     .step = step,
                                     .end = end,
                                     .ctx = race};
    struct test_explored explored;

    race->program = program;
    explored = test_explore(&schedule);
    test_set_point_hook(NULL, NULL);
    CHECK(!explored.deadlock);
    if (explored.stopped)
        test_note("schedule %llu: %s, page %llx", (unsigned long long)explored.runs, race->wrong,
                  (unsigned long long)race->wrong_page);
    CHECK(!explored.stopped);
    test_note("%llu schedules", (unsigned long long)explored.runs);
    CHECK(explored.stopped || explored.deadlock || explored.runs >= program->least);
    CHECK(explored.stopped || explored.deadlock || program->most || explored.complete);
}

/* ---- calls ---------------------------------------------------------------------------------- */

void race_watch(struct stage2_race *race, uint64_t gfn)
{
    struct race_page *page = &race->page[race->pages++];

    REQUIRE(race->pages <= RACE_PAGES);
    page->gfn = gfn;
    page->rights = HVMEM_S2_RWX;
}

void race_block(struct stage2_race *race)
{
    hvmem_mfn mfn;

    REQUIRE_EQ(hvmem_alloc_order(race->rig.heap, 9, &mfn), HVMEM_OK);
    race->block = mfn;
}

void race_dirty_block(struct stage2_race *race)
{
    struct hvmem_request request;
    struct hvmem_block block;
    hvmem_mfn mfn;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.order = 9;
    request.node = HVMEM_NODE_ANY;
    request.domain = race->rig.domain;
    REQUIRE_EQ(hvmem_alloc(race->rig.heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_free_owned(race->rig.heap, mfn, 9, race->rig.domain, 0), HVMEM_OK);
    request.flags = HVMEM_REQ_DEFER_SCRUB | HVMEM_REQ_DEFER_DCACHE | HVMEM_REQ_DEFER_ICACHE;
    REQUIRE_EQ(hvmem_alloc(race->rig.heap, &request, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_lookup(race->rig.heap, mfn, &block), HVMEM_OK);
    REQUIRE(block.owed & HVMEM_OWES_SCRUB);
    race->block = mfn;
}

static int covers(const struct race_page *page, uint64_t gfn, uint64_t frames)
{
    return page->gfn >= gfn && page->gfn - gfn < frames;
}

static void add_dead(struct stage2_race *race, struct race_page *page, uint64_t mfn)
{
    if (mfn && page->deads < RACE_DEAD)
        page->dead[page->deads++] = mfn;
    else if (mfn)
        race_wrong(race, "too many mappings for the test", page->gfn);
}

/* A call that mapped: on return nothing else translates these pages. */
hvmem_status race_map(struct stage2_race *race, uint64_t gfn, uint64_t frames, uint64_t mfn)
{
    uint64_t done = 0;
    hvmem_status status = rig_map(&race->rig, gfn, frames, mfn, HVMEM_S2_RWX, 0, &done);
    int p;

    for (p = 0; p < race->pages; p++)
        if (covers(&race->page[p], gfn, done)) {
            add_dead(race, &race->page[p], race->page[p].mfn);
            race->page[p].mfn = mfn + (race->page[p].gfn - gfn);
        }
    return status;
}

hvmem_status race_unmap(struct stage2_race *race, uint64_t gfn, uint64_t frames)
{
    uint64_t before[RACE_PAGES], done = 0;
    hvmem_status status;
    int p;

    for (p = 0; p < race->pages; p++)
        before[p] = race->page[p].mfn;
    race->clearing++;
    status = hvmem_stage2_unmap(race->rig.s2, gfn, frames, NULL, &done);
    race->clearing--;
    for (p = 0; p < race->pages; p++)
        if (covers(&race->page[p], gfn, done) && before[p]) {
            add_dead(race, &race->page[p], before[p]);
            if (race->page[p].mfn == before[p])
                race->page[p].mfn = 0;
        }
    return status;
}

hvmem_status race_protect(struct stage2_race *race, uint64_t gfn, uint64_t frames, unsigned rights)
{
    hvmem_status status;
    uint64_t done = 0;
    int p;

    for (p = 0; p < race->pages; p++)
        if (covers(&race->page[p], gfn, frames))
            race->page[p].rights |= rights; /* gained at any time from now on */
    race->clearing++;
    status = hvmem_stage2_protect(race->rig.s2, gfn, frames, rights, NULL, &done);
    race->clearing--;
    for (p = 0; p < race->pages; p++)
        if (covers(&race->page[p], gfn, done))
            race->page[p].rights = rights;
    return status;
}

hvmem_status race_arm(struct stage2_race *race)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    race->clearing++;
    do
        status = hvmem_track_arm(race->rig.s2, &cursor);
    while (status == HVMEM_AGAIN);
    race->clearing--;
    return status;
}

hvmem_status race_disarm(struct stage2_race *race)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do {
        status = hvmem_track_disarm(race->rig.s2, &cursor);
        if (status == HVMEM_AGAIN)
            test_wait(); /* another CPU may be paying for what is next */
    } while (status == HVMEM_AGAIN);
    return status;
}

hvmem_status race_age(struct stage2_race *race, uint64_t gfn, uint64_t frames, uint64_t *touched)
{
    hvmem_status status;

    race->clearing++;
    status = hvmem_track_age(race->rig.s2, gfn, frames, HVMEM_AGE_CLEAR, touched);
    race->clearing--;
    return status;
}

hvmem_status race_setway(struct stage2_race *race)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    int calls = 0;

    memset(&cursor, 0, sizeof cursor);
    do {
        race->clearing++;
        status = hvmem_track_setway(race->rig.s2, 0, &cursor, NULL);
        race->clearing--;
    } while (status == HVMEM_AGAIN && ++calls < 100);
    return status;
}

hvmem_status race_teardown(struct stage2_race *race)
{
    struct hvmem_cursor cursor;
    hvmem_status status;
    int calls = 0;
    hvmem_cpu cpu;
    hvmem_u32 i;

    memset(&cursor, 0, sizeof cursor);
    race->clearing++;
    do {
        status = hvmem_stage2_teardown(race->rig.s2, &cursor);
        if (status == HVMEM_E_BUSY)
            test_wait();
    } while ((status == HVMEM_AGAIN || status == HVMEM_E_BUSY) && ++calls < 2000);
    race->clearing--;
    if (status)
        return status;
    /* The root is the heap's again: nothing leads there. */
    race->hardware_off = 1;
    for (cpu = 0; cpu < race->rig.cpus; cpu++)
        for (i = 0; i < race->rig.slots; i++)
            if (hvmem_sim_tlb_entries(race->rig.tlb, cpu)[i].valid)
                race_wrong(race, "held after teardown", 0);
    return status;
}

hvmem_u32 race_fault(struct stage2_race *race, uint64_t gfn, unsigned access)
{
    hvmem_u32 outcome = 99;
    hvmem_status status = hvmem_stage2_fault(race->rig.s2, gfn << 12, access, &outcome);

    if (status && status != HVMEM_E_PHASE)
        race_wrong(race, "a fault that failed", gfn);
    return status ? 100 : outcome;
}

int race_guest(struct stage2_race *race, uint64_t gfn, unsigned access)
{
    return rig_access(&race->rig, (hvmem_cpu)test_thread(), gfn << 12, access) >= 0;
}

int race_touched(struct stage2_race *race, uint64_t gfn)
{
    return rig_walk(&race->rig, gfn).kind == WALK_LEAF;
}
