/* SPDX-License-Identifier: BSD-2-Clause */
/* A stage 2 and the space that its guest runs in: one of each, and what is left when either goes first. */
#include "stage2_rig.h"

#include "lib/space.h"

#include <stdlib.h>
#include <string.h>

static struct stage2_rig rig;

/* Another space of the same object, and memory for a stage 2 of it. */
struct next {
    void *space_memory, *s2_memory;
    hvmem_size bytes;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
};

static void make_space(struct next *next)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_STAGE2};
    hvmem_size bytes = hvmem_space_size(rig.ident);

    next->space_memory = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_space_create(rig.ident, next->space_memory, bytes, &config, &next->space),
               HVMEM_OK);
    REQUIRE_EQ(hvmem_stage2_size(&rig.config, &next->bytes), HVMEM_OK);
    next->s2_memory = aligned_alloc(64, next->bytes);
}

static void drop_space(struct next *next)
{
    free(next->space_memory);
    free(next->s2_memory);
}

static hvmem_status init(struct next *next, struct hvmem_space *space)
{
    struct hvmem_stage2_config config = rig.config;

    config.space = space;
    return hvmem_stage2_init(next->s2_memory, next->bytes, &config, &next->s2);
}

static hvmem_status tear_down(struct hvmem_stage2 *s2)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;

    do
        status = hvmem_stage2_teardown(s2, &cursor);
    while (status == HVMEM_AGAIN);
    return status;
}

/* The CPU leaves the guest for none. */
static void leave(hvmem_cpu cpu)
{
    rig.tlb->current = cpu;
    CHECK_EQ(hvmem_space_deactivate(rig.ident, cpu), HVMEM_OK);
    hvmem_sim_tlb_set_loaded(rig.tlb, cpu, NULL);
    CHECK_EQ(hvmem_space_entered(rig.ident, cpu), HVMEM_OK);
}

static void enter(struct hvmem_space *space, hvmem_cpu cpu)
{
    struct hvmem_tlb_space tag;
    struct hvmem_entry entry;

    rig.tlb->current = cpu;
    CHECK_EQ(hvmem_space_activate(space, cpu, &entry), HVMEM_OK);
    CHECK_EQ(hvmem_space_id(space, cpu, &tag), HVMEM_OK);
    hvmem_sim_tlb_set_loaded(rig.tlb, cpu, &tag);
    CHECK_EQ(hvmem_space_entered(rig.ident, cpu), HVMEM_OK);
}

/* Whether the guest that the CPU runs gets at gfn without a fault. */
static int reaches(hvmem_cpu cpu, uint64_t gfn)
{
    struct hvmem_sim_entry entry;

    return hvmem_sim_tlb_access(rig.tlb, cpu, gfn, &entry) != 0;
}

/*
 * Intel: a CPU that ran the first guest and now runs none keeps what it has under the root's address. The next
 * stage 2 gets the same frame for its root, and its guest must find none of it.
 */
static void root_used_again(hvmem_u32 lazy)
{
    struct next next;
    hvmem_u64 root, again;

    stage2_rig_prepare(&rig, HVMEM_S2_EPT);
    rig.cpus = 1;
    rig.features &= ~(uint64_t)HVMEM_CAP_BROADCAST; /* what EPT has not */
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    make_space(&next);
    CHECK_EQ(hvmem_stage2_root(rig.s2, 0, &root), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x1000, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x5000, WALK_W) >= 0);
    leave(0);
    if (lazy)
        CHECK_EQ(hvmem_space_destroy(rig.space, HVMEM_DESTROY_LAZY), HVMEM_OK);
    CHECK_EQ(tear_down(rig.s2), HVMEM_OK);
    rig.s2 = NULL;
    CHECK_EQ(init(&next, next.space), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_root(next.s2, 0, &again), HVMEM_OK);
    CHECK_EQ(again, root); /* else nothing is shown */
    enter(next.space, 0);
    CHECK(!reaches(0, 5));
    leave(0);
    CHECK_EQ(tear_down(next.s2), HVMEM_OK);
    CHECK_EQ(hvmem_space_destroy(next.space, 0), HVMEM_OK);
    stage2_rig_close(&rig);
    drop_space(&next);
}

/* No other stage 2 comes to a space while it has one. */
static void one_at_a_time(uint32_t format, int loaded)
{
    struct next next;
    hvmem_u64 left, reported, root;

    stage2_rig_begin(&rig, format);
    make_space(&next);
    left = hvmem_free_frames(rig.heap);
    root = rig.space->root;
    reported = rig.reported;
    CHECK_EQ(init(&next, rig.space), HVMEM_E_SPACE);
    CHECK_EQ(rig.reported, reported + 1);
    CHECK_EQ(hvmem_free_frames(rig.heap), left);
    CHECK_EQ(rig.space->root, root);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x1000, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 1, 0x5000, WALK_W) >= 0);
    if (!loaded) {
        leave(0);
        leave(1);
    }
    CHECK_EQ(tear_down(rig.s2), HVMEM_OK);
    CHECK_EQ(init(&next, rig.space), HVMEM_OK);
    CHECK_EQ(tear_down(next.s2), HVMEM_OK);
    CHECK_EQ(init(&next, next.space), HVMEM_OK);
    CHECK_EQ(hvmem_space_destroy(next.space, 0), HVMEM_OK);
    CHECK_EQ(tear_down(next.s2), HVMEM_OK);
    CHECK_EQ(init(&next, next.space), HVMEM_E_SPACE);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
    drop_space(&next);
}

TEST(a_space_has_one_stage2_at_a_time)
{
    int loaded;

    for (loaded = 0; loaded < 2; loaded++) {
        one_at_a_time(HVMEM_S2_ARM64, loaded);
        one_at_a_time(HVMEM_S2_NPT, loaded);
        one_at_a_time(HVMEM_S2_EPT, loaded);
    }
}

/* A space whose flushes do not reach the tables. */
static void unfit(uint32_t format, uint32_t regime, uint32_t flags, hvmem_status expected)
{
    struct hvmem_ident_config config = {.size = sizeof config, .regime = regime, .flags = flags};
    struct hvmem_space_config space = {.size = sizeof space, .regime = regime};
    struct hvmem_ident *ident, *of_rig;
    struct next next;
    hvmem_size bytes;
    void *memory;

    stage2_rig_begin(&rig, format);
    config.first = 1;
    config.ids = 250;
    config.max_cpus = RIG_CPUS;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.host = &rig.ident->host.ops;
    config.host_ctx = rig.ident->host.ctx;
    config.backend = &rig.be;
    REQUIRE_EQ(hvmem_ident_size(&config, &bytes), HVMEM_OK);
    memory = aligned_alloc(64, bytes);
    REQUIRE_EQ(hvmem_ident_init(memory, bytes, &config, &ident), HVMEM_OK);
    of_rig = rig.ident;
    rig.ident = ident;
    make_space(&next);
    rig.ident = of_rig;
    REQUIRE_EQ(hvmem_space_destroy(next.space, 0), HVMEM_OK);
    REQUIRE_EQ(
        hvmem_space_create(ident, next.space_memory, hvmem_space_size(ident), &space, &next.space),
        HVMEM_OK);
    CHECK_EQ(init(&next, next.space), expected);
    if (!expected)
        CHECK_EQ(tear_down(next.s2), HVMEM_OK);
    drop_space(&next);
    stage2_rig_close(&rig);
    free(memory);
}

TEST(a_space_must_be_one_of_second_stages)
{
    const uint32_t all = HVMEM_IDENT_BROADCAST, roots = all | HVMEM_IDENT_ROOTS;

    unfit(HVMEM_S2_ARM64, HVMEM_REGIME_STAGE2, all, HVMEM_OK);
    unfit(HVMEM_S2_ARM64, HVMEM_REGIME_USER, all, HVMEM_E_SPACE);
    unfit(HVMEM_S2_NPT, HVMEM_REGIME_GUEST, all, HVMEM_E_SPACE);
    unfit(HVMEM_S2_EPT, HVMEM_REGIME_STAGE2, all, HVMEM_E_SPACE);
    unfit(HVMEM_S2_EPT, HVMEM_REGIME_GUEST, roots, HVMEM_E_SPACE);
    unfit(HVMEM_S2_EPT, HVMEM_REGIME_STAGE2, roots, HVMEM_OK);
}

static hvmem_u64 root_gone;
static unsigned named;

static void on_flush(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    (void)r;
    named += flush->space.root == root_gone;
}

/*
 * arm64 puts the root in force to invalidate: not that of tables that are gone, whose frame another may have.
 * Where a CPU had it loaded to the end the flush is due.
 */
static void destroyed_after(int loaded)
{
    struct hvmem_ident_stats stats;
    hvmem_cpu cpu;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x1000, HVMEM_S2_RWX, HVMEM_S2_WB, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 1, 0x5000, WALK_W) >= 0);
    root_gone = rig.space->root;
    for (cpu = 0; cpu < RIG_CPUS; cpu++)
        if (!loaded || cpu)
            leave(cpu);
    CHECK_EQ(tear_down(rig.s2), HVMEM_OK);
    if (loaded)
        leave(0);
    named = 0;
    rig.on_flush = on_flush;
    CHECK_EQ(hvmem_space_destroy(rig.space, 0), HVMEM_OK);
    CHECK_EQ(named, loaded);
    /* Either way its number is free at once. */
    CHECK_EQ(hvmem_ident_get_stats(rig.ident, &stats), HVMEM_OK);
    CHECK_EQ(stats.returned, 1);
    rig.s2 = NULL;
    stage2_rig_close(&rig);
}

TEST(destroy_names_no_root_that_is_gone)
{
    destroyed_after(0);
    destroyed_after(1);
}

TEST(ept_root_used_again_brings_nothing_back)
{
    root_used_again(0);
    root_used_again(1);
}
