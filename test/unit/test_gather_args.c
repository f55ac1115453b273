/* SPDX-License-Identifier: BSD-2-Clause */
/* Gathers used wrongly: a code for each, counted, reported, and nothing missed or leaked. */
#include "gather_rig.h"
#include "test_heap.h"

#include <stdlib.h>
#include <string.h>

static struct gather_rig rig;
static struct hvmem_gather gather;

static void begin(void)
{
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    gather.self = 0;
}

static void open_gather(void)
{
    REQUIRE_EQ(hvmem_gather_begin(&gather, &rig.mapping[0], 0, 0x4000, 0x1000), HVMEM_OK);
}

/* The gather that was told nonsense flushes everything, tables included. */
static void ends_whole(void)
{
    rig.logged = 0;
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig.log[0].event, EVENT_ASK);
    CHECK_EQ(rig.log[0].a, 11);
    CHECK_EQ(rig.log[1].a, HVMEM_FLUSH_SPACE);
}

TEST(refuses_bad_begins)
{
    struct hvmem_mapping *mapping;
    struct hvmem_gather copy;
    uint64_t reported;

    begin();
    mapping = &rig.mapping[0];
    CHECK_EQ(hvmem_gather_begin(NULL, mapping, 0, 0, 0x1000), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_begin(&gather, NULL, 0, 0, 0x1000), HVMEM_E_ARG);
    reported = rig.reported;
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, 4, 0, 0x1000), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, HVMEM_GATHER_WHOLE, 0, 0x1000), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, HVMEM_GATHER_WHOLE, 0x1000, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, 0, 0x1000, 0), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, 0, ~0xfffull, 0x1001), HVMEM_E_RANGE);
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, 0, 1, ~0ull), HVMEM_OK); /* up to the top */
    CHECK_EQ(hvmem_gather_begin(&gather, mapping, 0, 0, 0x1000), HVMEM_E_PHASE);
    CHECK_EQ(rig.report, HVMEM_E_PHASE);
    CHECK_EQ(rig.reported, reported + 6);
    copy = gather;
    CHECK_EQ(hvmem_gather_entry(&copy, 0, 12, 3, 0), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_finish(&copy), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_cancel(&gather), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_table(&gather, 0, 0, 3, 0), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_free(&gather, 0, 0, NULL, 0), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_change(&gather, 0, 12, 3, NULL, NULL, 0, NULL), HVMEM_E_STALE);
    CHECK_EQ(hvmem_gather_entry(NULL, 0, 12, 3, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_finish(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_cancel(NULL), HVMEM_E_ARG);
    gather_rig_end(&rig);
}

/* Dropped with frames in it: found when its memory is used again, and settled by cancel. */
TEST(dropped_gather_is_settled_by_cancel)
{
    hvmem_mfn mfn = 0;

    begin();
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 3, &mfn), HVMEM_OK);
    open_gather();
    CHECK_EQ(hvmem_gather_entry(&gather, 0x4000, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 3, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_begin(&gather, &rig.mapping[1], 0, 0, 0x1000), HVMEM_E_PHASE);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_GATHERED);
    CHECK_EQ(hvmem_gather_cancel(&gather), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_FREE);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1);
    CHECK_EQ(gather_rig_stats(&rig, 0).cancelled, 1);
    gather_rig_end(&rig);
}

TEST(nonsense_flushes_everything)
{
    static const struct hvmem_pte absent = {HVMEM_PTE_ABSENT, 0, 0, 0}, odd = {3, 0, 0, 0};
    hvmem_u32 told, i;

    for (i = 0; i < 11; i++) {
        hvmem_status status = HVMEM_OK, expected = HVMEM_E_ARG;
        uint64_t reported;

        begin();
        open_gather();
        reported = rig.reported;
        switch (i) {
        case 0:
            status = hvmem_gather_entry(&gather, 0x4000, 12, 4, 0);
            break;
        case 1:
            status = hvmem_gather_entry(&gather, 0x4000, 12, 3, 4);
            break;
        case 2:
            status = hvmem_gather_entry(&gather, 0x4000, 12, 3, HVMEM_ENTRY_GLOBAL);
            break; /* on a mapping that has none */
        case 3:
            status = hvmem_gather_entry(&gather, 0x4000, 11, 3, 0);
            expected = HVMEM_E_ORDER;
            break;
        case 4:
            status = hvmem_gather_entry(&gather, 0x4000, 64, 3, 0);
            expected = HVMEM_E_ORDER;
            break;
        case 5:
            status = hvmem_gather_entry(&gather, 0x4000, 21, 2, 0);
            expected = HVMEM_E_ALIGN;
            break;
        case 6:
            status = hvmem_gather_change(&gather, 0, 12, 3, NULL, &absent, 0, NULL);
            break;
        case 7:
            status = hvmem_gather_change(&gather, 0, 12, 3, &absent, NULL, 0, &told);
            break;
        case 8:
            status = hvmem_gather_change(&gather, 0, 12, 3, &odd, &absent, 0, &told);
            break;
        case 9:
            status = hvmem_gather_table(&gather, GATHER_BASE, 0, 4, 0);
            break;
        default:
            status = hvmem_gather_table(&gather, GATHER_BASE, 0, 3, 2);
            break;
        }
        if (!CHECK_EQ(status, expected) || !CHECK_EQ(rig.reported, reported + 1))
            test_note("case %u", i);
        ends_whole();
        gather_rig_end(&rig);
    }
}

/* Frames that are not the caller's to free stay as they are; the table's range is flushed. */
TEST(refuses_frames_that_are_not_the_callers)
{
    struct hvmem_stats before, after;
    hvmem_mfn mfn = 0, freed = 0;

    begin();
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 3, &mfn), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 5, &freed), HVMEM_OK);
    REQUIRE_EQ(hvmem_free(rig.heap, freed, 5), HVMEM_OK);
    open_gather();
    REQUIRE_EQ(hvmem_stats(rig.heap, HVMEM_NODE_ANY, sizeof before, &before), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 3, NULL, 0x100), HVMEM_E_ARG);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 2, NULL, 0), HVMEM_E_WRONG_ORDER);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 77, NULL, 0), HVMEM_E_ORDER);
    CHECK_EQ(hvmem_gather_free(&gather, mfn + 1, 0, NULL, 0), HVMEM_E_INTERIOR);
    CHECK_EQ(hvmem_gather_free(&gather, 5, 0, NULL, 0), HVMEM_E_FOREIGN);
    CHECK_EQ(hvmem_gather_free(&gather, freed, 5, NULL, 0), HVMEM_E_FREE);
    CHECK_EQ(hvmem_gather_table(&gather, mfn, 0, 3, 0), HVMEM_E_WRONG_ORDER);
    CHECK_EQ(hvmem_gather_table(&gather, 5, 0, 3, 0), HVMEM_E_FOREIGN); /* and no table_free */
    REQUIRE_EQ(hvmem_stats(rig.heap, HVMEM_NODE_ANY, sizeof after, &after), HVMEM_OK);
    CHECK_EQ(after.refused, before.refused + 8);
    CHECK_EQ(after.free, before.free);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_ALLOCATED);
    rig.logged = 0;
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1);
    CHECK_EQ(hvmem_free(rig.heap, mfn, 3), HVMEM_OK);
    gather_rig_end(&rig);
}

/* The whole space requested and one page changed: one flush of the space. */
TEST(whole_request_is_one_flush)
{
    begin();
    REQUIRE_EQ(hvmem_gather_begin(&gather, &rig.mapping[0], HVMEM_GATHER_WHOLE, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig.logged, 0);
    REQUIRE_EQ(hvmem_gather_begin(&gather, &rig.mapping[0], HVMEM_GATHER_WHOLE, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(rig.log[1].a, HVMEM_FLUSH_SPACE);
    gather_rig_end(&rig);
}

/* A notifier that is being called cannot be removed. */
static hvmem_status removes_itself(void *ctx, const struct hvmem_tlb_range *ranges, hvmem_u32 count,
                                   hvmem_u64 *ticket)
{
    (void)ranges;
    (void)count;
    (void)ticket;
    CHECK_EQ(hvmem_notifier_remove(&rig.mapping[0], ctx), HVMEM_E_BUSY);
    return HVMEM_OK;
}

TEST(notifier_in_use_stays)
{
    struct hvmem_notifier notifier = {.size = sizeof notifier, .invalidate = removes_itself};

    begin();
    notifier.ctx = &notifier;
    REQUIRE_EQ(hvmem_notifier_add(&rig.mapping[0], &notifier), HVMEM_OK);
    CHECK_EQ(hvmem_shootdown(&rig.mapping[0], NULL, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_notifier_remove(&rig.mapping[0], &notifier), HVMEM_OK);
    gather_rig_end(&rig);
}

/* The host went away with a gather open: whoever adopts the table finds its frames in quarantine. */
TEST(adoption_quarantines_what_was_gathered)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = GATHER_BASE, .frames = GATHER_FRAMES};
    hvmem_mfn single = 0, large = 0, next = 0;
    struct hvmem_config config;
    struct hvmem_block block;
    struct hvmem_heap *heap;
    hvmem_size bytes, table;
    hvmem_u64 cursor = 0;
    hvmem_status status;
    void *memory;

    begin();
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 0, &single), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 0, &next), HVMEM_OK);
    REQUIRE_EQ(hvmem_alloc_order(rig.heap, 4, &large), HVMEM_OK);
    open_gather();
    CHECK_EQ(hvmem_gather_free(&gather, single, 0, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, next, 0, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, large, 4, NULL, HVMEM_OWES_SCRUB), HVMEM_OK);
    CHECK_EQ(hvmem_quiesce(rig.heap), HVMEM_E_BUSY);

    hvmem_config_default(&config);
    config.max_order = 10;
    config.max_banks = 16;
    config.backend = &rig.tlb->backend;
    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    memory = test_memory(bytes);
    REQUIRE_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_OK);
    REQUIRE_EQ(hvmem_bank_size(heap, &bank, &table), HVMEM_OK);
    REQUIRE_EQ(hvmem_bank_adopt(heap, &bank, rig.memory[3], table), HVMEM_OK);
    do
        status = hvmem_adopt_finish(heap, &cursor);
    while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(hvmem_lookup(heap, single, &block), HVMEM_OK);
    CHECK_EQ(block.state, HVMEM_BLOCK_QUARANTINE);
    CHECK_EQ(hvmem_lookup(heap, large + 3, &block), HVMEM_OK);
    CHECK_EQ(block.state, HVMEM_BLOCK_QUARANTINE);
    CHECK(block.owed & HVMEM_OWES_TLB);
    CHECK_EQ(hvmem_quarantine_release(heap, large), HVMEM_OK);
    CHECK_EQ(hvmem_audit(heap, &single, &(const char *){NULL}), HVMEM_OK);
    free(memory);
    test_set_point_hook(NULL, NULL); /* the first heap is gone: no gather_rig_end() */
    for (size_t i = 0; i < sizeof rig.memory / sizeof *rig.memory; i++)
        free(rig.memory[i]);
}
