/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * recorded_paths: the library's own calls, at EL2's back-end, run at EL1 below the EL2 monitor, which
 * executes and logs every TLBI, DC and IC and every write of VTTBR_EL2; then the same calls in the same
 * world on the recording twin. Each call must have executed what the recorder gives, operands included, and
 * as many of each kind as the architecture asks for. Needs EL2.
 */
#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/agree.h"
#include "test/metal/arm64/twin.h"
#include "test/metal/arm64/world.h"
#include "test/metal/check.h"
#include "test/metal/subject.h"

#define LOG_MAX 16384u
#define ANY     0xFFu   /* op2 */
#define EACH    0xFFFFu /* batches: one an operation by IPA */

/* Guest frames. */
#define PAGES   0x100u /* 64 pages of the region */
#define BLOCK   0x200u /* 2 MiB of the region */
#define MEMORY  0x400u /* populated */
#define TOUCHED 0x480u /* populated for first touch */
#define FRAMES  8u

static struct world world;
static struct metal_monitor_op log[LOG_MAX];
static struct hvmem_record_event events[LOG_MAX];
static struct hvmem_record record;
static struct hvmem_arm64 state, twin_state;
static struct hvmem_backend backend, twin;
static struct hvmem_backend_ops recorder_ops, twin_ops;
static struct metal_monitor_el2 el2;
static uint32_t dline; /* lines of a page */

/* ---- the calls ---- */

static hvmem_status activate(struct world *w)
{
    struct hvmem_entry entry;
    hvmem_status status = hvmem_space_activate(w->space, 0, &entry);

    return status == HVMEM_OK ? hvmem_space_entered(w->ident, 0) : status;
}

static hvmem_status map(struct world *w, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_u64 frames)
{
    const struct hvmem_stage2_map request = {
        .size = sizeof request, .gfn = gfn, .mfn = mfn, .frames = frames, .rights = HVMEM_S2_RWX};

    return hvmem_stage2_map(w->s2, &request, NULL);
}

static hvmem_status map_pages(struct world *w)
{
    return map(w, PAGES, w->region + 512 + 1, 64); /* not aligned for more */
}

static hvmem_status map_block(struct world *w)
{
    return map(w, BLOCK, w->region, 512);
}

/* All frames but the root's owe everything: an earlier owner's. */
static hvmem_status leave_frames(struct world *w)
{
    struct hvmem_request request = {
        .size = sizeof request, .node = HVMEM_NODE_ANY, .order = 4, .domain = w->earlier};
    static struct {
        hvmem_mfn mfn;
        hvmem_order order;
    } taken[64];
    unsigned n = 0;
    hvmem_status status = HVMEM_OK;

    while (n < 64) {
        taken[n].order = request.order;
        if (hvmem_alloc(w->heap, &request, &taken[n].mfn) == HVMEM_OK)
            n++;
        else if (request.order-- == 0)
            break;
    }
    while (n-- > 0 && status == HVMEM_OK)
        status = hvmem_free_owned(w->heap, taken[n].mfn, taken[n].order, w->earlier, 0);
    return status;
}

static hvmem_status populate_at(struct world *w, hvmem_gfn gfn, hvmem_u32 flags)
{
    struct hvmem_extent extents[FRAMES];
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    const struct hvmem_populate request = {
        .size = sizeof request, .extents = extents, .count = FRAMES, .node = HVMEM_NODE_ANY};
    hvmem_status status;

    for (unsigned i = 0; i < FRAMES; i++)
        extents[i] = (struct hvmem_extent){.gfn = gfn + i, .flags = flags};
    do
        status = hvmem_domain_populate(w->domain, &request, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status populate(struct world *w)
{
    return populate_at(w, MEMORY, 0);
}

static hvmem_status populate_untouched(struct world *w)
{
    return populate_at(w, TOUCHED, HVMEM_EXTENT_FIRST_TOUCH);
}

static hvmem_status start(struct world *w)
{
    hvmem_status status = hvmem_domain_dirtied(w->domain, MEMORY + 1, 2);

    return status == HVMEM_OK ? hvmem_domain_start(w->domain) : status;
}

/* Until it is resolved. */
static hvmem_status fault(struct world *w, hvmem_gfn gfn)
{
    hvmem_u32 outcome = HVMEM_FAULT_AGAIN;
    hvmem_status status = HVMEM_OK;

    for (unsigned i = 0; i < 8 && status == HVMEM_OK; i++)
        status = hvmem_stage2_fault(w->s2, gfn << METAL_PAGE_SHIFT, HVMEM_S2_R, &outcome);
    return status == HVMEM_OK && outcome != HVMEM_FAULT_ENTER ? HVMEM_E_PHASE : status;
}

static hvmem_status fault_all(struct world *w)
{
    hvmem_status status = fault(w, BLOCK);

    for (unsigned i = 0; i < FRAMES && status == HVMEM_OK; i++)
        status = fault(w, MEMORY + i);
    for (unsigned i = 0; i < 64 && status == HVMEM_OK; i++)
        status = fault(w, PAGES + i);
    return status;
}

static hvmem_status first_touch(struct world *w)
{
    hvmem_status status = HVMEM_OK;

    for (unsigned i = 0; i < FRAMES && status == HVMEM_OK; i++)
        status = fault(w, TOUCHED + i);
    return status;
}

static hvmem_status age(struct world *w)
{
    hvmem_u64 frames = 0;
    hvmem_status status = hvmem_track_age(w->s2, MEMORY, FRAMES, HVMEM_AGE_CLEAR, &frames);

    return status == HVMEM_OK && frames != FRAMES ? HVMEM_E_COUNT : status;
}

static hvmem_status arm(struct world *w)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    while ((status = hvmem_track_arm(w->s2, &cursor)) == HVMEM_AGAIN)
        ;
    return status;
}

/* Three pages touched since, of one table. */
static hvmem_status setway(struct world *w)
{
    struct hvmem_track_progress progress = {0, 0, 0};
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status = arm(w);

    for (unsigned i = 0; i < 3 && status == HVMEM_OK; i++)
        status = fault(w, MEMORY + 1 + i);
    while (status == HVMEM_OK &&
           (status = hvmem_track_setway(w->s2, 0, &cursor, &progress)) == HVMEM_AGAIN)
        status = HVMEM_OK;
    w->cleaned = progress.cleaned;
    return status;
}

static hvmem_status protect(struct world *w)
{
    return hvmem_stage2_protect(w->s2, PAGES, 64, HVMEM_S2_R, NULL, NULL);
}

static hvmem_status split(struct world *w)
{
    return hvmem_stage2_protect(w->s2, BLOCK + 7, 1, HVMEM_S2_R, NULL, NULL);
}

static hvmem_status merge(struct world *w)
{
    hvmem_status status = hvmem_stage2_protect(w->s2, BLOCK + 7, 1, HVMEM_S2_RWX, NULL, NULL);

    return status == HVMEM_OK ? hvmem_stage2_merge(w->s2, BLOCK, 512, NULL) : status;
}

static hvmem_status unmap_page(struct world *w)
{
    return hvmem_stage2_unmap(w->s2, PAGES, 1, NULL, NULL);
}

static hvmem_status unmap_pages(struct world *w)
{
    return hvmem_stage2_unmap(w->s2, PAGES, 64, NULL, NULL);
}

static hvmem_status unmap_block(struct world *w)
{
    return hvmem_stage2_unmap(w->s2, BLOCK, 512, NULL, NULL);
}

/* Two pages go back to the heap by the caller's gather. */
static hvmem_status gathered(struct world *w)
{
    hvmem_status status =
        hvmem_gather_begin(&w->gather, hvmem_stage2_mapping(w->s2), 0,
                           (hvmem_u64)MEMORY << METAL_PAGE_SHIFT, FRAMES << METAL_PAGE_SHIFT);

    for (unsigned i = 0; i < 2 && status == HVMEM_OK; i++) {
        struct hvmem_stage2_leaf leaf = {.mfn = 0};

        status = hvmem_stage2_lookup(w->s2, MEMORY + 5 * i, &leaf);
        if (status == HVMEM_OK)
            status = hvmem_stage2_unmap(w->s2, MEMORY + 5 * i, 1, &w->gather, NULL);
        if (status == HVMEM_OK)
            status = hvmem_gather_free(&w->gather, leaf.mfn, 0, w->domain, 0);
    }
    return status == HVMEM_OK ? hvmem_gather_finish(&w->gather) : status;
}

static hvmem_status clean(struct world *w)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    do
        status = hvmem_domain_clean(w->domain, MEMORY, FRAMES, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

static hvmem_status teardown(struct world *w)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status = hvmem_space_deactivate(w->ident, 0);

    if (status == HVMEM_OK)
        status = hvmem_space_entered(w->ident, 0);
    while (status == HVMEM_OK &&
           (status = hvmem_domain_teardown(w->domain, 0, &cursor)) == HVMEM_AGAIN)
        status = HVMEM_OK;
    return status;
}

/*
 * Exactly what each call must execute. by_ipa: operations by IPA, each batch of which ends with one VMALLE1
 * (without range operations: one for each page); vm: of the whole VMID; lines: of the data cache, in pages
 * of them; ic: invalidations of all instruction caches.
 */
static const struct step {
    const char *name;
    hvmem_status (*call)(struct world *w);
    unsigned by_ipa, by_ipa_single, batches, vm, pages, ic;
} steps[] = {
    {"make", world_make, 0, 0, 0, 0, 0, 0},
    {"earlier owner", leave_frames, 0, 0, 0, 0, 0, 0},
    {"first entry", activate, 0, 0, 0, 0, 0, 0},
    {"map pages", map_pages, 0, 0, 0, 0, 3, 0}, /* three tables, whose frames owe a clean */
    {"map block", map_block, 0, 0, 0, 0, 0, 0},
    {"populate", populate, 0, 0, 0, 0, FRAMES + 1, 0}, /* and a table */
    {"start", start, 0, 0, 0, 1, 2, 1}, /* what the builder dirtied; tracking is armed */
    {"faults", fault_all, 0, 0, 0, 0, 0, 0},
    {"age", age, 1, FRAMES, 1, 0, 0, 0},
    {"arm", arm, 0, 0, 0, 1, 0, 0},
    {"faults again", fault_all, 0, 0, 0, 0, 0, 0},
    {"protect", protect, 1, 64, 1, 0, 0, 0},
    {"split", split, 1, 2, EACH, 0, 1, 0}, /* a break only where it needs one; a table */
    {"merge", merge, 2, 513, 2, 0, 0, 0},
    {"unmap page", unmap_page, 1, 1, 1, 0, 0, 0},
    {"unmap pages", unmap_pages, 2, 63, 1, 0, 0, 0}, /* 62 by a range, the odd one singly */
    {"unmap block", unmap_block, 1, 1, 1, 0, 0, 0},
    {"gathered", gathered, 2, 2, 1, 0, 0, 0},
    {"set/way", setway, 2, 3, 1, 1, 3, 0},
    {"populate untouched", populate_untouched, 0, 0, 0, 0, 0, 1},
    {"first touch", first_touch, 0, 0, 0, 0, FRAMES, 0},
    {"clean", clean, 0, 0, 0, 0, FRAMES - 2, 0}, /* but for holes */
    {"teardown", teardown, 0, 0, 0, 1, 0, 0},
};
#define STEPS (sizeof steps / sizeof steps[0])

/* ---- the two runs ---- */

static struct {
    uint32_t at, count; /* in log */
    hvmem_status status;
} done[STEPS];
static unsigned current;

static void run_step(void *arg)
{
    done[current].status = steps[current].call(arg);
}

static hvmem_status twin_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    volatile uint64_t *words = (void *)addr;

    for (hvmem_size i = 0; i < bytes / 8; i++)
        words[i] = 0;
    return recorder_ops.zero(be, addr, bytes);
}

static void backends_make(void)
{
    static struct hvmem_arm64_ids ids;
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL2};

    CHECK_EQUAL(hvmem_arm64_init(&state, &backend, &config), HVMEM_OK);
    twin_ids(&ids);
    hvmem_record_init(&record, events, LOG_MAX);
    twin_learn(&record);
    config.ids = &ids;
    config.machine = &record;
    CHECK_EQUAL(twin_arm64_init(&twin_state, &twin, &config), HVMEM_OK);
    CHECK_EQUAL(twin.caps.features, backend.caps.features);
    recorder_ops = *twin.ops;
    twin_ops = recorder_ops;
    twin_ops.zero = twin_zero;
    twin.ops = &twin_ops;
}

/* 0: the log is full, or the guest ended otherwise than it should. */
static int execute_all(void)
{
    uint32_t used = 0;

    world.backend = &backend;
    for (current = 0; current < STEPS; current++) {
        const int64_t count =
            metal_monitor_record_el2(run_step, &world, &el2, log + used, LOG_MAX - used);

        if (!CHECK(count >= 0 && count <= LOG_MAX - used))
            return 0;
        if (!CHECK_EQUAL(done[current].status, HVMEM_OK))
            metal_printf("%s: status %d\n", steps[current].name, done[current].status);
        done[current].at = used;
        done[current].count = (uint32_t)count;
        used += (uint32_t)count;
    }
    return 1;
}

static unsigned count_of(const struct metal_monitor_op *ops, uint32_t count, struct metal_sysop op)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < count; i++)
        n += ops[i].op.op0 == op.op0 && ops[i].op.op1 == op.op1 && ops[i].op.crn == op.crn &&
             ops[i].op.crm == op.crm && (op.op2 == ANY || ops[i].op.op2 == op.op2);
    return n;
}

static void check_counts(const struct step *s, const struct metal_monitor_op *ops, uint32_t count)
{
    const int range = (backend.caps.features & HVMEM_CAP_RANGE) != 0;
    const unsigned by_ipa = count_of(ops, count, (struct metal_sysop){1, 4, 8, 0, ANY});
    const unsigned stage1 = count_of(ops, count, (struct metal_sysop){1, 0, 8, 3, 0});
    const unsigned vm = count_of(ops, count, (struct metal_sysop){1, 4, 8, 3, 6});
    const unsigned lines = count_of(ops, count, (struct metal_sysop){1, 3, 7, 14, 1});
    const unsigned ic = count_of(ops, count, (struct metal_sysop){1, 0, 7, 1, 0});

    metal_printf("%s: by IPA %u, VMALLE1IS %u, VMALLS12E1IS %u, DC CIVAC %u, IC IALLUIS %u\n",
                 s->name, by_ipa, stage1, vm, lines, ic);
    CHECK_EQUAL(by_ipa, range ? s->by_ipa : s->by_ipa_single);
    CHECK_EQUAL(stage1, s->batches == EACH ? by_ipa : s->batches);
    CHECK_EQUAL(vm, s->vm);
    CHECK_EQUAL(lines, s->pages * dline);
    CHECK_EQUAL(ic, s->ic);
}

static unsigned compare_all(void)
{
    unsigned compared = 0;

    world.backend = &twin;
    twin_learn(&record); /* the guest's registers are loaded still */
    for (current = 0; current < STEPS; current++) {
        struct metal_monitor_op *const ops = log + done[current].at;
        const uint32_t count = done[current].count;
        const hvmem_status status = done[current].status;

        hvmem_record_clear(&record);
        run_step(&world);
        CHECK_EQUAL(done[current].status, status);
        CHECK_EQUAL(record.lost, 0);
        if (!CHECK_EQUAL(first_difference(ops, count, &record), count))
            metal_printf("%s: differs\n", steps[current].name);
        check_counts(&steps[current], ops, count);
        if (count == 0)
            continue;
        CHECK(comparison_can_fail(ops, count, &record));
        print_agreement("el2", ops, count, steps[current].name);
        compared += count;
    }
    return compared;
}

static void nothing(void *arg)
{
    (void)arg;
}

static int recorded_paths(void)
{
    unsigned compared;

    if (!is_plain_el2()) {
        CHECK_EQUAL(metal_monitor_record_el2(nothing, NULL, &el2, log, LOG_MAX), METAL_E_LACK);
        return check_result();
    }
    backends_make();
    dline = METAL_PAGE_BYTES / backend.caps.dline;
    if (!CHECK(world_memory(&world)) || !execute_all())
        return check_result();
    compared = compare_all();
    metal_printf("%u instructions of %u calls executed as recorded\n", compared, (unsigned)STEPS);
    return check_result();
}

METAL_PROGRAM(recorded_paths, recorded_paths);
