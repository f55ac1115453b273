/* SPDX-License-Identifier: BSD-2-Clause */
/* Gathers: what they invalidate, in which order, what they refuse, and what becomes of the frames. */
#include "gather_rig.h"

#include <string.h>

static struct gather_rig rig;

/* ---- random programs ---------------------------------------------------------------------------- */

static void run_kind(enum gather_kind kind, uint64_t steps)
{
    struct hvmem_mapping_stats stats;

    gather_rig_begin(&rig, kind, 0, (uint64_t)kind);
    gather_rig_run(&rig, steps);
    /* The program did what it is for. */
    REQUIRE_EQ(hvmem_mapping_get_stats(&rig.mapping[0], sizeof stats, &stats), HVMEM_OK);
    CHECK(stats.gathers > steps / 100 && stats.contended && stats.cancelled);
    CHECK(stats.flushes > stats.gathers / 8);
    if (!CHECK_EQ(rig.stale, 0) || !CHECK_EQ(rig.reused, 0))
        test_note("kind %d, %llu events", (int)kind, (unsigned long long)rig.logged);
    gather_rig_end(&rig);
}

TEST(random_programs_ask_with_own_ids, points)
{
    run_kind(GATHER_PCID, test_rounds(3000));
}

TEST(random_programs_ask_with_common_ids, points)
{
    run_kind(GATHER_TAGS, test_rounds(3000));
}

TEST(random_programs_broadcast, points)
{
    run_kind(GATHER_VMID, test_rounds(3000));
}

TEST(random_programs_flush_at_entry, points)
{
    run_kind(GATHER_SVM, test_rounds(3000));
}

/* Negative control: flushes that drop nothing are noticed. */
TEST(deaf_flushes_are_noticed, points)
{
    gather_rig_begin(&rig, GATHER_TAGS, GATHER_RIG_DEAF, 9);
    gather_rig_run(&rig, 3000);
    CHECK(rig.stale != 0);
    gather_rig_end(&rig);
}

/* ---- what is flushed, and when ------------------------------------------------------------------ */

static const struct gather_logged *entry(unsigned int at)
{
    return &rig.log[at % GATHER_LOG];
}

static void begin(enum gather_kind kind, unsigned flags)
{
    gather_rig_standard(&rig, kind, flags);
}

static struct hvmem_mapping_stats counts(int space)
{
    return gather_rig_stats(&rig, space);
}

static void map_pages(int space, uint64_t page, uint64_t pages)
{
    for (; pages; pages--, page++)
        REQUIRE(gather_rig_map(&rig, space, page, 0));
}

TEST(nothing_changed_nothing_flushed)
{
    begin(GATHER_TAGS, 0);
    map_pages(0, 5, 1);
    CHECK_EQ(gather_rig_unmap(&rig, 0, 100, 300), HVMEM_OK);
    CHECK_EQ(rig.logged, 0);
    CHECK_EQ(counts(0).unneeded, 1);
    gather_rig_end(&rig);
}

/* Unhook, CPUs, device, free: the frame is allocatable only after both were told. */
TEST(invalidates_cpus_then_devices_then_frees)
{
    hvmem_mfn mfn;

    begin(GATHER_TAGS, 0);
    map_pages(0, 5, 2);
    mfn = gather_rig_mapped(&rig, 0, 5);
    CHECK(gather_rig_access(&rig, 0, 5));
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(rig.logged, 4);
    CHECK_EQ(entry(0)->event, EVENT_ASK);
    CHECK_EQ(entry(0)->a, 3); /* the two that run it; not the lazy one */
    CHECK_EQ(entry(1)->event, EVENT_FLUSH);
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_RANGES);
    CHECK_EQ(entry(1)->b, 1);
    CHECK_EQ(entry(1)->range[0].start, 0x5000);
    CHECK_EQ(entry(1)->range[0].pages, 1);
    CHECK_EQ(entry(1)->range[0].level, 3);
    CHECK_EQ(entry(1)->range[0].flags, HVMEM_RANGE_LEAF);
    CHECK_EQ(entry(2)->event, EVENT_FLUSH);
    CHECK_EQ(entry(3)->event, EVENT_DEVICE);
    CHECK_EQ(entry(3)->a, 1);
    CHECK(gather_rig_block(&rig, mfn).state == HVMEM_BLOCK_FREE ||
          gather_rig_block(&rig, mfn).state == HVMEM_BLOCK_CACHED);
    CHECK(!gather_rig_access(&rig, 0, 5));
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

TEST(broadcast_is_one_batch)
{
    begin(GATHER_VMID, 0);
    map_pages(0, 5, 40);
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 20), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_FLUSH, 0), 1);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 0);
    CHECK_EQ(entry(0)->range[0].pages, 20);
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

/* A space that no CPU ever ran has nothing cached; the device has. */
TEST(space_that_never_ran_asks_nobody)
{
    gather_rig_begin(&rig, GATHER_VMID, GATHER_RIG_QUIET, 77);
    map_pages(0, 5, 2);
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_FLUSH, 0), 0);
    CHECK_EQ(gather_rig_count(&rig, EVENT_DEVICE, 0), 1);
    gather_rig_end(&rig);
}

/*
 * The second gather finds absent what the first removed and has not flushed. When it is over the range
 * must be gone all the same.
 */
static void second_gather(enum gather_kind kind)
{
    struct gather_op *first, *second;

    begin(kind, 0);
    map_pages(0, 5, 8);
    CHECK(gather_rig_access(&rig, 1, 7));
    first = gather_rig_open(&rig, 0, 6, 4, 0);
    gather_rig_step(&rig, first, 4);
    second = gather_rig_open(&rig, 0, 7, 1, 0);
    gather_rig_step(&rig, second, 1);
    CHECK(gather_rig_access(&rig, 1, 7)); /* stale, and harmless: its frame is held */
    CHECK_EQ(gather_rig_close(&rig, second, 0), HVMEM_OK);
    CHECK(!gather_rig_access(&rig, 1, 7));
    CHECK_EQ(gather_rig_close(&rig, first, 0), HVMEM_OK);
    CHECK_EQ(rig.stale, 0);
    CHECK_EQ(counts(0).contended, 2);
    gather_rig_end(&rig);
}

TEST(B29_second_gather_flushes_what_it_found_absent)
{
    second_gather(GATHER_TAGS);
    second_gather(GATHER_VMID);
    second_gather(GATHER_PCID);
}

/* The other one began and ended in between: its own flush was complete before anybody relied on it. */
TEST(B29_gather_that_began_later_counts)
{
    struct gather_op *first, *second;

    begin(GATHER_TAGS, 0);
    map_pages(0, 5, 8);
    first = gather_rig_open(&rig, 0, 6, 4, 0);
    second = gather_rig_open(&rig, 0, 7, 1, 0);
    gather_rig_step(&rig, second, 1);
    CHECK_EQ(gather_rig_close(&rig, second, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_close(&rig, first, 0), HVMEM_OK);
    CHECK_EQ(counts(0).contended, 2);
    /* Alone again: only what was told. */
    CHECK_EQ(gather_rig_unmap(&rig, 0, 100, 1), HVMEM_OK);
    CHECK_EQ(counts(0).contended, 2);
    CHECK_EQ(counts(0).unneeded, 1);
    gather_rig_end(&rig);
}

/* One entry changed, in a gather of its own; what it must be told, and to whom. */
static void change(const struct hvmem_pte *before, const struct hvmem_pte *after, hvmem_u32 owed)
{
    struct hvmem_gather gather;
    hvmem_u32 told;

    gather.self = 0;
    rig.logged = 0;
    REQUIRE_EQ(hvmem_gather_begin(&gather, &rig.mapping[0], 0, 0, 0x1000), HVMEM_OK);
    REQUIRE_EQ(hvmem_gather_change(&gather, 0, 12, 3, before, after, 0, &told), HVMEM_OK);
    REQUIRE_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(told, owed);
    CHECK_EQ(rig.logged != 0, told);
    /* What was a table may have been walked through. */
    if (told && rig.logged > 1 && entry(1)->event == EVENT_DEVICE)
        CHECK_EQ(!!(entry(1)->range[0].flags & HVMEM_RANGE_LEAF), before->kind == HVMEM_PTE_LEAF);
}

/*
 * Old by new state: told exactly when old was present and the frame changes, a right is lost, ... and where a
 * device walks the tables also when one is gained.
 */
TEST(B29_decides_by_the_old_state)
{
    static const struct hvmem_pte states[] = {
        {HVMEM_PTE_ABSENT, 0, 0, 0},
        {HVMEM_PTE_LEAF, HVMEM_PTE_READ, 0, 0x77},
        {HVMEM_PTE_LEAF, HVMEM_PTE_READ | HVMEM_PTE_WRITE, 0, 0x77},
        {HVMEM_PTE_LEAF, HVMEM_PTE_READ | HVMEM_PTE_EXEC, 0, 0x77},
        {HVMEM_PTE_TABLE, 0, 0, 0x77},
        {HVMEM_PTE_LEAF, HVMEM_PTE_READ, 0, 0x78},
        {HVMEM_PTE_LEAF, HVMEM_PTE_READ, 9, 0x77},
    };
    /* Row: before; column: after. */
    static const char *const owed[] = {
        "0000000", /* absent */
        "10++111", /* r */
        "1101111", /* rw */
        "1110111", /* rx */
        "1111011", /* table */
        "1111101", /* another frame */
        "1111110", /* another type */
    };
    unsigned i, j, device;

    begin(GATHER_TAGS, 0);
    for (device = 2; device-- > 0;) {
        for (i = 0; i < 7; i++)
            for (j = 0; j < 7; j++)
                change(&states[i], &states[j], owed[i][j] == '1' || (owed[i][j] == '+' && device));
        if (device)
            REQUIRE_EQ(hvmem_notifier_remove(&rig.mapping[0], &rig.device[0]), HVMEM_OK);
    }
    REQUIRE_EQ(hvmem_notifier_add(&rig.mapping[0], &rig.device[0]), HVMEM_OK);
    gather_rig_end(&rig);
}

/* The table page of the last leaf: a flush of cached walks over its span before it is reusable. */
static void table_goes(enum gather_kind kind)
{
    struct hvmem_sim_entry found;

    begin(kind, 0);
    map_pages(0, 5, 1);
    CHECK(gather_rig_access(&rig, 1, 5));
    CHECK(hvmem_sim_tlb_access(rig.tlb, 3, 5, &found)); /* by speculation: it is lazy */
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(rig.stale, 0); /* no pointer to the freed tables in CPU 3 either */
    CHECK(!gather_rig_access(&rig, 1, 5));
    CHECK(!hvmem_sim_tlb_access(rig.tlb, 3, 5, &found));
    gather_rig_end(&rig);
}

TEST(B26_lazy_cpus_forget_freed_tables)
{
    table_goes(GATHER_TAGS);
    CHECK_EQ(entry(0)->a, 11);                 /* the lazy one was asked */
    CHECK_EQ(entry(1)->a, HVMEM_FLUSH_RANGES); /* by the one page: no more is needed */
    CHECK_EQ(entry(1)->range[0].pages, 1);
    CHECK_EQ(entry(1)->range[0].flags & HVMEM_RANGE_LEAF, 0);
    table_goes(GATHER_VMID);
    table_goes(GATHER_PCID);
}

/* One CPU, the last user, is no reason to leave walks out. */
TEST(B26_single_user_flushes_walks)
{
    gather_rig_begin(&rig, GATHER_TAGS, GATHER_RIG_QUIET, 77);
    gather_rig_switch(&rig, 0, 0);
    rig.logged = 0;
    map_pages(0, 5, 1);
    CHECK(gather_rig_access(&rig, 0, 5));
    CHECK_EQ(gather_rig_unmap(&rig, 0, 5, 1), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 0); /* alone: nobody is asked */
    CHECK_EQ(entry(0)->event, EVENT_FLUSH);
    CHECK_EQ(entry(0)->range[0].flags & HVMEM_RANGE_LEAF, 0);
    CHECK_EQ(rig.stale, 0);
    gather_rig_end(&rig);
}

/* The second begins while the first one's flush is under way. */
static int begin_meanwhile(const char *name, void *context)
{
    struct gather_op *second;

    if (!strcmp(name, (const char *)context)) {
        test_set_point_hook(NULL, NULL);
        second = gather_rig_open(&rig, 0, 7, 1, 0);
        gather_rig_step(&rig, second, 1);
        CHECK_EQ(gather_rig_close(&rig, second, 0), HVMEM_OK);
        CHECK(!gather_rig_access(&rig, 1, 7));
    }
    return 0;
}

TEST(B29_open_until_flushed, points)
{
    static char points[][24] = {"shootdown_batch", "shootdown_send", "shootdown_devices"};
    static const enum gather_kind kinds[] = {GATHER_VMID, GATHER_TAGS, GATHER_TAGS};
    struct gather_op *first;
    int i;

    for (i = 0; i < 3; i++) {
        begin(kinds[i], 0);
        map_pages(0, 5, 8);
        CHECK(gather_rig_access(&rig, 1, 7));
        first = gather_rig_open(&rig, 0, 6, 4, 0);
        gather_rig_step(&rig, first, 4);
        test_set_point_hook(begin_meanwhile, points[i]);
        CHECK_EQ(gather_rig_close(&rig, first, 0), HVMEM_OK);
        CHECK_EQ(counts(0).contended, 1); /* the second; the first had looked before */
        CHECK_EQ(rig.stale, 0);
        gather_rig_end(&rig);
    }
}
