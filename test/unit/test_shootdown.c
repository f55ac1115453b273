/* SPDX-License-Identifier: BSD-2-Clause */
/* Shootdown: whom it asks, what they do, hot-plug, nesting, global entries, and every refusal. */
#include "gather_rig.h"
#include "space.h"

#include <string.h>

static struct gather_rig rig;

static const struct gather_logged *entry(unsigned int at)
{
    return &rig.log[at % GATHER_LOG];
}

static void map_pages(int space, uint64_t page, uint64_t pages)
{
    for (; pages; pages--, page++)
        REQUIRE(gather_rig_map(&rig, space, page, 0));
}

/* A range of pages that changed. */
static struct hvmem_tlb_range pages_at(uint64_t page, uint64_t pages)
{
    struct hvmem_tlb_range range = {.start = page << 12,
                                    .pages = pages,
                                    .stride_shift = 12,
                                    .level = 3,
                                    .flags = HVMEM_RANGE_LEAF};

    return range;
}

static hvmem_status shoot(uint64_t page, uint64_t pages, hvmem_u32 flags)
{
    struct hvmem_tlb_range range = pages_at(page, pages);

    return hvmem_shootdown(&rig.mapping[0], &range, 1, flags);
}

/* ---- whom ---------------------------------------------------------------------------------------- */

TEST(asks_those_that_run_the_space)
{
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(0)->event, EVENT_ASK);
    CHECK_EQ(entry(0)->a, 3);
    CHECK_EQ(rig.logged, 3);
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_TABLES), HVMEM_OK);
    CHECK_EQ(entry(3)->a, 11); /* the lazy one too */
    CHECK_EQ(gather_rig_count(&rig, EVENT_DEVICE, 3), 1);
    CHECK_EQ(gather_rig_stats(&rig, 0).cpus, 5);
    CHECK_EQ(gather_rig_stats(&rig, 0).flushes, 2);
    gather_rig_end(&rig);
}

/* The caller alone: by itself; nobody: not at all; and nobody else flushes for it later. */
TEST(asks_nobody_without_need)
{
    gather_rig_begin(&rig, GATHER_PCID, GATHER_RIG_QUIET, 77);
    rig.logged = 0;
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(rig.logged, 0);
    gather_rig_switch(&rig, 2, 0);
    gather_rig_act(&rig, 2);
    rig.logged = 0;
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(rig.logged, 1);
    CHECK_EQ(entry(0)->event, EVENT_FLUSH);
    CHECK_EQ(entry(0)->cpu, 2);
    gather_rig_act(&rig, 1); /* from elsewhere it must be asked */
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(1)->event, EVENT_ASK);
    CHECK_EQ(entry(1)->a, 4);
    gather_rig_end(&rig);
}

/* Not asked: such a CPU flushes when it comes back to the space. */
TEST(others_flush_when_they_come_back)
{
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    map_pages(0, 5, 2);
    CHECK(gather_rig_access(&rig, 1, 5));
    gather_rig_switch(&rig, 1, 1);
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_FLUSH, 0), 1); /* on CPU 0 */
    gather_rig_switch(&rig, 1, 0);
    CHECK(!gather_rig_access(&rig, 1, 5));
    CHECK(gather_rig_access(&rig, 1, 6));
    gather_rig_check(&rig);
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

/* One change behind: the ranges. Two behind: everything. */
TEST(two_changes_behind_flush_the_space)
{
    hvmem_u64 change;

    gather_rig_standard(&rig, GATHER_TAGS, 0);
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_RANGES);
    REQUIRE_EQ(hvmem_space_changed(rig.space[0], &change), HVMEM_OK);
    CHECK_EQ(shoot(6, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(4)->a, HVMEM_FLUSH_SPACE);
    gather_rig_end(&rig);
}

/* SVM: the asked CPUs leave the guest, nothing is executed; the entry flushes. */
TEST(nested_tables_ask_by_kick_alone)
{
    gather_rig_standard(&rig, GATHER_SVM, 0);
    map_pages(0, 5, 2);
    gather_rig_act(&rig, 4);
    CHECK(gather_rig_access(&rig, 1, 5));
    rig.logged = 0;
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_FLUSH, 0), 0);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1);
    CHECK_EQ(rig.running[1], -1);
    gather_rig_switch(&rig, 1, 0);
    CHECK(!gather_rig_access(&rig, 1, 5));
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

/* ---- what ---------------------------------------------------------------------------------------- */

TEST(policy_decides_by_operations)
{
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    CHECK_EQ(shoot(5, rig.mapping[0].policy.max_operations, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_RANGES);
    CHECK_EQ(shoot(5, rig.mapping[0].policy.max_operations + 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(4)->a, HVMEM_FLUSH_SPACE);
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], NULL, 0, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(entry(7)->a, HVMEM_FLUSH_SPACE);
    CHECK_EQ(gather_rig_stats(&rig, 0).whole, 2);
    gather_rig_end(&rig);
}

/* Exactly the pages, at every size. */
TEST(B34_range_covers_all_its_pages)
{
    static const uint64_t sizes[] = {1, 2, 3, 16, 31, 32, 33, 62, 63, 64, 65, 66, 511, 512, 513};
    enum { FIRST = 5 };
    unsigned int i;

    for (i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        enum gather_kind kind = i & 1 ? GATHER_VMID : GATHER_TAGS;
        uint64_t page;

        gather_rig_standard(&rig, kind, 0);
        map_pages(0, FIRST - 1, sizes[i] + 2);
        for (page = FIRST - 1; page < FIRST + sizes[i] + 1; page++)
            CHECK(gather_rig_access(&rig, 1, page));
        rig.logged = 0;
        CHECK_EQ(gather_rig_unmap(&rig, 0, FIRST, sizes[i]), HVMEM_OK);
        CHECK(!gather_rig_access(&rig, 1, FIRST));
        CHECK(!gather_rig_access(&rig, 1, FIRST + sizes[i] - 1));
        CHECK(gather_rig_access(&rig, 1, FIRST - 1) &&
              gather_rig_access(&rig, 1, FIRST + sizes[i]));
        for (page = 0; page < rig.logged; page++)
            if (entry((unsigned)page)->event == EVENT_FLUSH &&
                entry((unsigned)page)->a == HVMEM_FLUSH_RANGES)
                CHECK_EQ(entry((unsigned)page)->range[0].pages, sizes[i]);
        CHECK_EQ(rig.stale, 0);
        gather_rig_end(&rig);
    }
}

/* A back-end that refuses addresses has the space flushed instead. */
TEST(refused_ranges_become_the_space)
{
    gather_rig_standard(&rig, GATHER_VMID, 0);
    rig.tlb->fail = 1;
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(rig.logged, 2);
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_SPACE);
    rig.tlb->fail = 2;
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_E_HOST);
    CHECK_EQ(rig.report, HVMEM_E_HOST);
    gather_rig_end(&rig);
}

/*
 * A rollover between the look at the number and the batch, which makes the change visible: the new
 * number, under which something may have been cached until then, is flushed too; and no third time.
 */
static int roll_over(const char *name, void *context)
{
    hvmem_u64 *words = context;

    if (!strcmp(name, "shootdown_batch") && words[1])
        rig.space[0]->tag.word = words[--words[1]];
    return 0;
}

TEST(B41_number_is_read_again_after_the_batch, points)
{
    hvmem_u64 words[4];

    gather_rig_standard(&rig, GATHER_VMID, 0);
    words[0] = rig.space[0]->tag.word + 3;
    words[1] = 1;
    test_set_point_hook(roll_over, words);
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(rig.logged, 2);
    CHECK_EQ(entry(0)->a, HVMEM_FLUSH_RANGES);
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_RANGES);
    CHECK_EQ(shoot(5, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    CHECK_EQ(rig.logged, 3);
    rig.space[0]->tag.word = words[0] - 3;
    gather_rig_end(&rig);
}

/* ---- B32: CPUs that come and go ------------------------------------------------------------------- */

static int when;
static void plug(struct gather_rig *r)
{
    if (when == 1) {
        gather_rig_offline(r, 1); /* it was among those to ask */
        gather_rig_online(r, 4);
        gather_rig_switch(r, 4, 0);
    }
}

static int plug_at(const char *name, void *context)
{
    const char *where = context;

    if (!strcmp(name, where)) {
        test_set_point_hook(NULL, NULL);
        when = 1;
        plug(&rig);
        when = 0;
    }
    return 0;
}

static void hot_plug(const char *where)
{
    static char name[32];

    gather_rig_standard(&rig, GATHER_TAGS, 0);
    gather_rig_offline(&rig, 4);
    map_pages(0, 5, 3);
    CHECK(gather_rig_access(&rig, 1, 5));
    strcpy(name, where);
    when = !strcmp(where, "call");
    rig.on_ask = plug;
    if (!when)
        test_set_point_hook(plug_at, name);
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK(!(rig.online >> 1 & 1) && (rig.online >> 4 & 1));
    when = 0;
    CHECK(!gather_rig_access(&rig, 0, 5));
    CHECK(!gather_rig_access(&rig, 4, 5));
    gather_rig_online(&rig, 1);
    gather_rig_switch(&rig, 1, 0);
    CHECK(!gather_rig_access(&rig, 1, 5));
    gather_rig_check(&rig);
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

TEST(B32_cpus_come_and_go_at_every_step, points)
{
    hot_plug("call");
    hot_plug("space_changed");
    hot_plug("shootdown_send");
    hot_plug("shootdown_asked");
    hot_plug("shootdown_devices");
}

/* An interrupt on the initiating CPU, or on one that is asked, makes a shootdown of its own. */
static void nested(struct gather_rig *r)
{
    r->on_ask = NULL;
    CHECK_EQ(shoot(9, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
}

static int nest_both; /* on this mapping too, not only on another */
static int nest_at(const char *name, void *context)
{
    if (!strcmp(name, (const char *)context)) {
        test_set_point_hook(NULL, NULL);
        CHECK_EQ(hvmem_shootdown(&rig.mapping[1], NULL, 0, HVMEM_SHOOT_CPUS), HVMEM_OK);
        if (nest_both)
            CHECK_EQ(shoot(9, 1, HVMEM_SHOOT_CPUS), HVMEM_OK);
    }
    return 0;
}

TEST(B32_nested_shootdowns_keep_their_own_targets, points)
{
    static char points[3][24] = {"space_changed", "shootdown_send", "shootdown_asked"};
    int i;

    for (i = 0; i < 7; i++) {
        nest_both = i > 3;
        gather_rig_standard(&rig, GATHER_TAGS, 0);
        map_pages(0, 5, 6);
        CHECK(gather_rig_access(&rig, 1, 5));
        CHECK(gather_rig_access(&rig, 1, 9));
        rig.logged = 0;
        if (i == 3)
            rig.on_ask = nested;
        else
            test_set_point_hook(nest_at, points[i & 3]);
        CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
        CHECK(!gather_rig_access(&rig, 1, 5));
        CHECK_EQ(rig.stale, 0);
        gather_rig_end(&rig);
    }
}

/* ---- global entries ------------------------------------------------------------------------------- */

TEST(global_entries_go_everywhere)
{
    struct hvmem_mapping_config config = {.size = sizeof config, .flags = HVMEM_MAPPING_GLOBALS};
    struct hvmem_tlb_range range = pages_at(5, 1);
    struct hvmem_mapping mapping;

    gather_rig_standard(&rig, GATHER_PCID, 0);
    config.heap = rig.heap;
    config.space = rig.space[0];
    REQUIRE_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_OK);
    range.flags |= HVMEM_RANGE_GLOBAL;
    CHECK_EQ(hvmem_shootdown(&mapping, &range, 1, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 2);
    CHECK_EQ(entry(3)->event, EVENT_ASK);
    CHECK_EQ(entry(3)->a, 31); /* all online, whatever they run */
    CHECK_EQ(entry(4)->a, HVMEM_FLUSH_ALL);
    CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_OK);
    gather_rig_end(&rig);
}

/* The end of a space flushes its number only: what others hold of its global entries is still to go. */
TEST(global_entries_outlive_their_space)
{
    static const enum gather_kind kinds[] = {GATHER_VMID, GATHER_TAGS};
    struct hvmem_mapping_config config = {.size = sizeof config, .flags = HVMEM_MAPPING_GLOBALS};
    unsigned i, at, all;

    for (i = 0; i < 2; i++) {
        struct hvmem_gather gather = {.self = 0};
        struct hvmem_mapping mapping;

        gather_rig_standard(&rig, kinds[i], 0);
        config.heap = rig.heap;
        config.space = rig.space[1];
        REQUIRE_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_OK);
        REQUIRE_EQ(hvmem_gather_begin(&gather, &mapping, 0, 0, 0x1000), HVMEM_OK);
        REQUIRE_EQ(hvmem_gather_entry(&gather, 0, 12, 3, HVMEM_ENTRY_GLOBAL), HVMEM_OK);
        gather_rig_idle(&rig, 2);
        REQUIRE_EQ(hvmem_space_destroy(rig.space[1], 0), HVMEM_OK);
        rig.logged = 0;
        CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
        for (at = all = 0; at < rig.logged; at++)
            all += entry(at)->event == EVENT_FLUSH && entry(at)->a == HVMEM_FLUSH_ALL;
        CHECK(all > 0);
        CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_OK);
        gather_rig_end(&rig);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------- */

TEST(refuses_bad_shootdowns)
{
    struct hvmem_tlb_range range = pages_at(5, 1);
    struct hvmem_mapping copy;
    uint64_t reported;

    gather_rig_standard(&rig, GATHER_TAGS, 0);
    copy = rig.mapping[0];
    CHECK_EQ(hvmem_shootdown(NULL, &range, 1, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_shootdown(&copy, &range, 1, 0), HVMEM_E_ARG);
    reported = rig.reported;
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], NULL, 1, 0), HVMEM_E_ARG);
    CHECK_EQ(shoot(5, 1, 4), HVMEM_E_ARG);
    CHECK_EQ(shoot(5, 0, 0), HVMEM_E_RANGE);
    CHECK_EQ(shoot((1ull << 52) - 1, 2, 0), HVMEM_E_RANGE);
    CHECK_EQ(shoot(0, (1ull << 52) + 1, 0), HVMEM_E_RANGE);
    CHECK_EQ(shoot(0, ~0ull, 0), HVMEM_E_RANGE);
    range.start = 0x5800;
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], &range, 1, 0), HVMEM_E_ALIGN);
    range = pages_at(5, 1);
    range.stride_shift = 11;
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], &range, 1, 0), HVMEM_E_ALIGN);
    range.stride_shift = 48;
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], &range, 1, 0), HVMEM_E_ALIGN);
    range.stride_shift = 12;
    range.flags = 8;
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], &range, 1, 0), HVMEM_E_ARG);
    CHECK_EQ(rig.reported, reported + 10);
    CHECK_EQ(rig.logged, 0);
    CHECK_EQ(shoot((1ull << 52) - 1, 1, 0), HVMEM_OK); /* the last page there is */
    CHECK_EQ(shoot(0, 1ull << 52, 0), HVMEM_OK);
    gather_rig_end(&rig);
}

TEST(refuses_dead_spaces)
{
    struct hvmem_gather gather = {.self = 0}, late = {.self = 0};

    gather_rig_standard(&rig, GATHER_TAGS, 0);
    REQUIRE_EQ(hvmem_gather_begin(&late, &rig.mapping[1], 0, 0, 0x1000), HVMEM_OK);
    REQUIRE_EQ(hvmem_gather_entry(&late, 0, 12, 3, 0), HVMEM_OK);
    gather_rig_idle(&rig, 2);
    REQUIRE_EQ(hvmem_space_destroy(rig.space[1], 0), HVMEM_OK);
    CHECK_EQ(hvmem_shootdown(&rig.mapping[1], NULL, 0, 0), HVMEM_E_SPACE);
    CHECK_EQ(hvmem_gather_begin(&gather, &rig.mapping[1], 0, 0, 0x1000), HVMEM_E_SPACE);
    rig.logged = 0;
    CHECK_EQ(hvmem_gather_finish(&late), HVMEM_OK); /* flushed when it died; the device is told */
    CHECK_EQ(gather_rig_count(&rig, EVENT_DEVICE, 0), 1);
    gather_rig_end(&rig);
}

TEST(refuses_bad_mappings)
{
    struct hvmem_mapping_config config = {.size = sizeof config};
    struct hvmem_policy policy;
    struct hvmem_mapping mapping;
    struct hvmem_notifier notifier = {.size = sizeof notifier};
    struct hvmem_mapping_stats stats;

    memset(&mapping, 0, sizeof mapping);
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    CHECK_EQ(hvmem_mapping_init(NULL, &config), HVMEM_E_ARG);
    CHECK_EQ(hvmem_mapping_init(&mapping, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_E_ARG);
    config.heap = rig.heap;
    CHECK_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_E_ARG);
    config.space = rig.space[0];
    config.flags = 2;
    CHECK_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_E_ARG);
    config.flags = 0;
    config.size--;
    CHECK_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_E_VERSION);
    config.size++;
    REQUIRE_EQ(hvmem_policy_default(&policy, &rig.tlb->backend.caps), HVMEM_OK);
    policy.size--;
    config.policy = &policy;
    CHECK_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_E_VERSION);
    CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_E_ARG);
    CHECK_EQ(hvmem_notifier_add(&mapping, &notifier), HVMEM_E_ARG);
    CHECK_EQ(hvmem_notifier_add(&rig.mapping[0], NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_notifier_add(&rig.mapping[0], &notifier), HVMEM_E_ARG);
    notifier = rig.device[0];
    notifier.size--;
    CHECK_EQ(hvmem_notifier_add(&rig.mapping[0], &notifier), HVMEM_E_VERSION);
    CHECK_EQ(hvmem_notifier_add(&rig.mapping[0], &rig.device[0]), HVMEM_E_ARG);
    CHECK_EQ(hvmem_notifier_remove(&rig.mapping[0], &notifier), HVMEM_E_ARG);
    CHECK_EQ(hvmem_notifier_remove(&rig.mapping[0], NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_mapping_fini(&rig.mapping[0]), HVMEM_E_BUSY); /* a notifier is left */
    CHECK_EQ(hvmem_mapping_get_stats(&rig.mapping[0], 8, &stats), HVMEM_E_VERSION);
    CHECK_EQ(hvmem_mapping_get_stats(&rig.mapping[0], sizeof stats, NULL), HVMEM_E_ARG);
    gather_rig_end(&rig);
}
