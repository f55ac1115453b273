/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames held by gathers: their state, their debts, quarantine, slices, and every refusal. */
#include "gather_rig.h"

#include <hvmem/domain.h>

#include <stdlib.h>
#include <string.h>

static struct gather_rig rig;
static struct hvmem_gather gather;

static void begin(void)
{
    gather_rig_standard(&rig, GATHER_TAGS, 0);
    gather.self = 0;
}

static void open_gather(hvmem_u32 flags)
{
    REQUIRE_EQ(hvmem_gather_begin(&gather, &rig.mapping[0], flags, 0, 0x200000), HVMEM_OK);
}

static hvmem_mfn block(hvmem_u32 order)
{
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_alloc_order(rig.heap, order, &mfn), HVMEM_OK);
    return mfn;
}

static int is_free(hvmem_mfn mfn)
{
    hvmem_u32 state = gather_rig_block(&rig, mfn).state;

    return state == HVMEM_BLOCK_FREE || state == HVMEM_BLOCK_CACHED;
}

static void sound(void)
{
    const char *where = NULL;
    hvmem_mfn mfn = 0;

    if (!CHECK_EQ(hvmem_audit(rig.heap, &mfn, &where), HVMEM_OK))
        test_note("frame %#llx: %s", (unsigned long long)mfn, where);
}

static struct hvmem_stats heap_stats(void)
{
    struct hvmem_stats stats;

    REQUIRE_EQ(hvmem_stats(rig.heap, HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_OK);
    return stats;
}

/* ---- states ------------------------------------------------------------------------------------- */

TEST(gathered_frames_are_nobodys_to_take)
{
    hvmem_mfn mfn, other;
    hvmem_u64 allocated;

    begin();
    mfn = block(0);
    other = block(3);
    allocated = heap_stats().allocated;
    open_gather(0);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 0, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, other, HVMEM_ORDER_ANY, NULL, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_GATHERED);
    CHECK_EQ(gather_rig_block(&rig, other + 5).state, HVMEM_BLOCK_GATHERED);
    CHECK_EQ(heap_stats().allocated, allocated);
    sound();
    CHECK_EQ(hvmem_free(rig.heap, mfn, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free(rig.heap, other, 3), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free(rig.heap, other + 1, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_free_run(rig.heap, other, 8), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 0, NULL, 0), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_settle(rig.heap, mfn, 1, HVMEM_OWES_TLB), HVMEM_E_GATHERED);
    CHECK_EQ(hvmem_reserve(rig.heap, mfn, 1), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, mfn), HVMEM_E_ARG);
    CHECK_EQ(hvmem_quiesce(rig.heap), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_mapping_fini(&rig.mapping[0]), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK(is_free(mfn) && is_free(other));
    CHECK_EQ(hvmem_quiesce(rig.heap), HVMEM_OK);
    gather_rig_end(&rig);
}

/* Bad frames: told of while gathered, or before; in blocks that go to a cache and that do not. */
TEST(offline_of_gathered_frames)
{
    hvmem_mfn small, large, early;

    begin();
    small = block(0);
    large = block(4);
    early = block(2);
    open_gather(0);
    CHECK_EQ(hvmem_offline(rig.heap, early + 1), HVMEM_AGAIN);
    CHECK_EQ(hvmem_gather_free(&gather, small, 0, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, large, 4, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, early, 2, NULL, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, early).state, HVMEM_BLOCK_GATHERED);
    CHECK_EQ(hvmem_offline(rig.heap, small), HVMEM_AGAIN);
    CHECK_EQ(hvmem_offline(rig.heap, large + 3), HVMEM_AGAIN);
    CHECK_EQ(hvmem_offline(rig.heap, large + 3), HVMEM_E_OFFLINE);
    CHECK_EQ(hvmem_offline(rig.heap, large + 7), HVMEM_AGAIN);
    CHECK_EQ(hvmem_online(rig.heap, large + 7), HVMEM_OK); /* not after all */
    sound();
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, small).state, HVMEM_BLOCK_OFFLINE);
    CHECK_EQ(gather_rig_block(&rig, large + 3).state, HVMEM_BLOCK_OFFLINE);
    CHECK_EQ(gather_rig_block(&rig, early + 1).state, HVMEM_BLOCK_OFFLINE);
    CHECK(is_free(large + 2) && is_free(large + 7) && is_free(early));
    CHECK_EQ(heap_stats().offline, 3);
    gather_rig_end(&rig);
}

/* Noted while its gather is giving it back: neither lost nor left in the list. */
static hvmem_mfn racing;
static hvmem_status raced;
static int offline_now(const char *name, void *context)
{
    (void)context;
    if (!strcmp(name, "gathered_given")) {
        test_set_point_hook(NULL, NULL);
        raced = hvmem_offline(rig.heap, racing + 1);
    }
    return 0;
}

TEST(offline_races_with_the_end_of_a_gather, points)
{
    begin();
    racing = block(4);
    open_gather(0);
    CHECK_EQ(hvmem_gather_free(&gather, racing, 4, NULL, 0), HVMEM_OK);
    test_set_point_hook(offline_now, NULL);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(raced, HVMEM_E_BUSY);
    CHECK(is_free(racing + 1));
    CHECK_EQ(hvmem_offline(rig.heap, racing + 1), HVMEM_OK);
    CHECK_EQ(hvmem_online(rig.heap, racing + 1), HVMEM_OK);
    gather_rig_end(&rig);
}

static struct hvmem_domain *domain;
static void *domain_memory;

static void make_domain(void)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = 1000};

    domain_memory = calloc(1, hvmem_domain_size(rig.heap));
    REQUIRE_EQ(
        hvmem_domain_create(rig.heap, domain_memory, hvmem_domain_size(rig.heap), &config, &domain),
        HVMEM_OK);
}

static hvmem_mfn owned_block(hvmem_u32 order, hvmem_u32 flags)
{
    struct hvmem_request request = {
        .size = sizeof request, .order = order, .domain = domain, .flags = flags};
    hvmem_mfn mfn = 0;

    request.node = HVMEM_NODE_ANY;
    REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn), HVMEM_OK);
    return mfn;
}

static hvmem_u64 pages_of_domain(void)
{
    struct hvmem_domain_stats stats;

    REQUIRE_EQ(hvmem_domain_stats(domain, &stats), HVMEM_OK);
    return stats.pages;
}

/* Charged until it is free; the TLB debt is the gather's; ICACHE only where code could be fetched. */
TEST(debts_of_gathered_frames)
{
    hvmem_mfn data, code, foreign;

    begin();
    make_domain();
    data = owned_block(0, 0);
    code = owned_block(4, 0);
    REQUIRE_EQ(hvmem_reserve(rig.heap, code ^ 16, 16), HVMEM_OK); /* no merging with each other */
    foreign = owned_block(4, 0);
    open_gather(0);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, data, 0, domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_entry(&gather, 0x1000, 12, 3, HVMEM_ENTRY_EXEC), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, code, 4, domain, HVMEM_OWES_TLB), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, foreign, 4, domain, HVMEM_OWES_FOREIGN | HVMEM_OWES_SCRUB),
             HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, code).owner, 1);
    CHECK_EQ(pages_of_domain(), 33);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(pages_of_domain(), 0);
    CHECK_EQ(hvmem_drain(rig.heap), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, data).owed & (HVMEM_OWES_TLB | HVMEM_OWES_ICACHE), 0);
    CHECK_EQ(gather_rig_block(&rig, code).owed & HVMEM_OWES_TLB, 0);
    CHECK(gather_rig_block(&rig, code).owed & HVMEM_OWES_ICACHE);
    /* Mapped by others: their flush is still due, and comes with TLB as for any freed block. */
    CHECK_EQ(gather_rig_block(&rig, foreign).owed & (HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN),
             HVMEM_OWES_TLB | HVMEM_OWES_FOREIGN);
    CHECK(gather_rig_block(&rig, foreign).owed & HVMEM_OWES_SCRUB);
    CHECK_EQ(gather_rig_block(&rig, foreign).owner, 0);
    gather_rig_end(&rig);
    free(domain_memory);
}

/* What a block owed before, for an earlier owner's sake, the gather's flush does not pay. */
TEST(earlier_debts_stay)
{
    hvmem_mfn mfn;

    begin();
    make_domain();
    mfn = owned_block(5, 0);
    CHECK_EQ(hvmem_free_owned(rig.heap, mfn, 5, domain, HVMEM_OWES_TLB), HVMEM_OK);
    for (;;) { /* the same one again, with its debt */
        hvmem_mfn got = owned_block(5, HVMEM_REQ_DEFER_ALL);

        if (gather_rig_block(&rig, got).owed & HVMEM_OWES_TLB) {
            mfn = got;
            break;
        }
    }
    open_gather(0);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 5, domain, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK(gather_rig_block(&rig, mfn).owed & HVMEM_OWES_TLB);
    gather_rig_end(&rig);
    free(domain_memory);
}

/* ---- slices, windows, tables elsewhere ----------------------------------------------------------- */

TEST(slices_free_a_bounded_number)
{
    enum { BLOCKS = 2000 };
    unsigned int calls = 0, freed = 0, i;
    static hvmem_mfn mfn[BLOCKS];
    hvmem_status status;

    begin();
    open_gather(HVMEM_GATHER_PREEMPTIBLE);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    for (i = 0; i < BLOCKS; i++) {
        mfn[i] = block(0);
        REQUIRE_EQ(hvmem_gather_free(&gather, mfn[i], 0, NULL, 0), HVMEM_OK);
    }
    do {
        unsigned int now = 0;

        status = hvmem_gather_finish(&gather);
        for (i = 0; i < BLOCKS; i++)
            now += gather_rig_block(&rig, mfn[i]).state != HVMEM_BLOCK_GATHERED;
        CHECK(now - freed <= HVMEM_GATHER_SLICE);
        freed = now;
        calls++;
        if (status == HVMEM_AGAIN) {
            CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_E_PHASE);
            CHECK_EQ(hvmem_gather_free(&gather, mfn[0], 0, NULL, 0), HVMEM_E_PHASE);
            CHECK_EQ(hvmem_mapping_fini(&rig.mapping[0]), HVMEM_E_BUSY);
        }
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(calls, (BLOCKS + HVMEM_GATHER_SLICE - 1) / HVMEM_GATHER_SLICE);
    CHECK_EQ(freed, BLOCKS);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1); /* one flush for all of them */
    gather_rig_end(&rig);
}

/* Frames of nine spans of 2^32: the ninth settles what is there. */
TEST(ninth_window_settles_early)
{
    struct hvmem_bank bank = {.size = sizeof bank, .frames = 1024};
    void *tables[9] = {NULL};
    hvmem_mfn mfn[9];
    hvmem_size bytes;
    int i, j;

    begin();
    open_gather(0);
    for (i = 0; i < 9; i++) {
        struct hvmem_request request = {.size = sizeof request, .order = 2};

        request.lo = i ? (hvmem_mfn)i << 32 : GATHER_BASE;
        request.hi = request.lo + 1024;
        request.node = HVMEM_NODE_ANY;
        if (i) {
            bank.base = request.lo;
            REQUIRE_EQ(hvmem_bank_size(rig.heap, &bank, &bytes), HVMEM_OK);
            tables[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
            REQUIRE_EQ(hvmem_bank_add(rig.heap, &bank, tables[i], bytes), HVMEM_OK);
        }
        REQUIRE_EQ(hvmem_alloc(rig.heap, &request, &mfn[i]), HVMEM_OK);
        CHECK_EQ(hvmem_gather_entry(&gather, (hvmem_u64)i << 14, 14, HVMEM_LEVEL_UNKNOWN, 0),
                 HVMEM_OK);
        CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 0);
        CHECK_EQ(hvmem_gather_free(&gather, mfn[i], 2, NULL, 0), HVMEM_OK);
        for (j = 0; j <= i; j++)
            CHECK_EQ(gather_rig_block(&rig, mfn[j]).state == HVMEM_BLOCK_GATHERED, i < 8 || j == 8);
    }
    CHECK_EQ(gather_rig_stats(&rig, 0).early, 1);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_ASK, 0), 1); /* all was told before the early flush */
    CHECK(is_free(mfn[8]));
    gather_rig_end(&rig);
    for (i = 1; i < 9; i++)
        free(tables[i]);
}

static hvmem_mfn given[64];
static hvmem_status given_status[64];
static unsigned int gave;

static void table_free(void *ctx, hvmem_mfn mfn, hvmem_status status)
{
    (void)ctx;
    if (gave < 64) {
        given[gave] = mfn;
        given_status[gave++] = status;
    }
}

static void own_tables(void)
{
    struct hvmem_mapping_config config = {
        .size = sizeof config, .heap = rig.heap, .space = rig.space[0], .table_free = table_free};

    REQUIRE_EQ(hvmem_notifier_remove(&rig.mapping[0], &rig.device[0]), HVMEM_OK);
    REQUIRE_EQ(hvmem_mapping_fini(&rig.mapping[0]), HVMEM_OK);
    REQUIRE_EQ(hvmem_mapping_init(&rig.mapping[0], &config), HVMEM_OK);
    REQUIRE_EQ(hvmem_notifier_add(&rig.mapping[0], &rig.device[0]), HVMEM_OK);
    gave = 0;
}

/* The caller gets its table pages back, allocated, after the flush; those outside the heap too. */
TEST(tables_go_back_to_their_owner)
{
    hvmem_mfn mine, bad;
    hvmem_u64 i;

    begin();
    own_tables();
    mine = block(0);
    bad = block(0);
    open_gather(0);
    CHECK_EQ(hvmem_gather_table(&gather, mine, 0x1234, 3, HVMEM_TABLE_TOLD), HVMEM_OK);
    CHECK_EQ(hvmem_gather_table(&gather, bad, 0, 2, HVMEM_TABLE_TOLD), HVMEM_OK);
    CHECK_EQ(hvmem_offline(rig.heap, bad), HVMEM_AGAIN);
    for (i = 0; i < HVMEM_GATHER_TABLES; i++)
        CHECK_EQ(hvmem_gather_table(&gather, 7 + i, i << 21, 3, 0), HVMEM_OK);
    CHECK_EQ(gave, 0);
    CHECK_EQ(hvmem_gather_table(&gather, 99, 0, 3, 0), HVMEM_OK); /* no room: the others go */
    CHECK_EQ(gave, HVMEM_GATHER_TABLES + 2);
    CHECK_EQ(gather_rig_stats(&rig, 0).early, 1);
    CHECK_EQ(gather_rig_block(&rig, mine).state, HVMEM_BLOCK_ALLOCATED);
    CHECK_EQ(gather_rig_block(&rig, bad).state, HVMEM_BLOCK_OFFLINING);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(gave, HVMEM_GATHER_TABLES + 3);
    CHECK_EQ(given[gave - 1], 99);
    CHECK_EQ(gather_rig_count(&rig, EVENT_DEVICE, 0), 2); /* the last one had a flush of its own */
    for (i = 0; i < gave; i++)
        CHECK_EQ(given_status[i], HVMEM_OK);
    CHECK_EQ(hvmem_free(rig.heap, mine, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free(rig.heap, bad, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_block(&rig, bad).state, HVMEM_BLOCK_OFFLINE);
    gather_rig_end(&rig);
}

/* ---- quarantine ---------------------------------------------------------------------------------- */

static void fails(hvmem_status device, hvmem_status expected)
{
    hvmem_mfn mfn, table;

    begin();
    own_tables();
    mfn = block(3);
    table = block(0);
    rig.device_status = device;
    open_gather(0);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 3, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_table(&gather, table, 0, 3, HVMEM_TABLE_TOLD), HVMEM_OK);
    CHECK_EQ(hvmem_gather_table(&gather, 7, 0, 3, HVMEM_TABLE_TOLD), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), expected);
    CHECK_EQ(rig.report, expected);
    CHECK_EQ(rig.reported, 1);
    CHECK_EQ(rig.quarantined, 9);
    CHECK_EQ(heap_stats().quarantined, 9);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_QUARANTINE);
    CHECK_EQ(gather_rig_block(&rig, table).state, HVMEM_BLOCK_QUARANTINE);
    CHECK_EQ(gave, 2);
    CHECK_EQ(given_status[0], expected);
    CHECK_EQ(given_status[1], expected);
    CHECK_EQ(hvmem_free(rig.heap, mfn, 3), HVMEM_E_QUARANTINE);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_E_STALE);
    sound();
    /* What is cached is not known: the next ones flush all, though nothing changed, until it works. */
    rig.device_status = 0;
    rig.logged = 0;
    open_gather(0);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    CHECK_EQ(gather_rig_count(&rig, EVENT_DEVICE, 0), 1);
    CHECK_EQ(rig.log[rig.logged - 1].a, 0); /* everything */
    rig.logged = 0;
    open_gather(0);
    CHECK_EQ(hvmem_gather_cancel(&gather), HVMEM_OK);
    CHECK_EQ(rig.logged, 0);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, mfn + 5), HVMEM_OK);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, table), HVMEM_OK);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, table), HVMEM_E_ARG);
    CHECK_EQ(heap_stats().quarantined, 0);
    CHECK(is_free(mfn) && is_free(table));
    gather_rig_end(&rig);
}

TEST(B25_device_that_fails_or_never_answers)
{
    fails(HVMEM_E_HOST, HVMEM_E_HOST);
    fails(HVMEM_E_TIMEOUT, HVMEM_E_TIMEOUT);
    fails(101, HVMEM_E_TIMEOUT); /* one poll more than it may take */
}

TEST(slow_device_is_waited_for)
{
    begin();
    rig.device_status = 100;
    open_gather(0);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_OK);
    gather_rig_end(&rig);
}

TEST(B25_cpu_that_does_not_flush)
{
    hvmem_mfn mfn;

    begin();
    mfn = block(0);
    rig.tlb->fail = 4; /* both CPUs, by range and whole */
    open_gather(0);
    CHECK_EQ(hvmem_gather_entry(&gather, 0, 12, 3, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_free(&gather, mfn, 0, NULL, 0), HVMEM_OK);
    CHECK_EQ(hvmem_gather_finish(&gather), HVMEM_E_HOST);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_QUARANTINE);
    CHECK(gather_rig_block(&rig, mfn).owed & HVMEM_OWES_TLB);
    CHECK_EQ(gather_rig_stats(&rig, 0).failed, 1);
    CHECK_EQ(hvmem_quarantine_release(rig.heap, mfn), HVMEM_OK);
    gather_rig_end(&rig);
}
