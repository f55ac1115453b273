/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * B25: pages moved to other addresses in one batch, where other pages lie, with one flush at the end. What
 * was displaced is nobody's to take before that, and what was moved is mapped again only after it.
 */
#include "gather_rig.h"

#include <string.h>

enum {
    SOURCE = 0,
    TARGET = 1024, /* pages; tables of their own */
    GAP = 3,       /* neither source nor target pages are neighbours */
    MOST = 64
};

static struct gather_rig rig;

/* What is displaced in the batch at hand. */
static hvmem_mfn displaced[MOST];
static unsigned in_batch, looked;

/* How a batch goes. */
enum how {
    ALONE,
    MEDDLED, /* another CPU works in the middle of it */
    EARLY /* as well, and a mistake: pages are mapped anew while their old addresses may be cached */
};

static uint64_t source(unsigned i)
{
    return SOURCE + (uint64_t)i * GAP;
}

static uint64_t target(unsigned i)
{
    return TARGET + (uint64_t)i * GAP;
}

/* The last-level entry of a page whose tables exist. */
static uint64_t *entry_of(uint64_t page)
{
    hvmem_mfn table = rig.root[0];
    unsigned level;

    for (level = 1; level < 3; level++)
        table = rig.mem[table - GATHER_BASE][page >> (9 * (3 - level)) & 511] >> 12;
    return &rig.mem[table - GATHER_BASE][page & 511];
}

/* Take an entry out; its value. */
static uint64_t take_out(struct gather_op *op, uint64_t page)
{
    uint64_t *entry = entry_of(page), old = *entry;

    *entry = 0;
    CHECK_EQ(hvmem_gather_entry(&op->gather, page << 12, 12, 3, 0), HVMEM_OK);
    return old;
}

/* Free frames of the heap that are in nobody's hands: none that a gather or the space still has. */
static void look_for_reuse(void)
{
    hvmem_mfn mfn[32];
    unsigned i;

    for (i = 0; i < 32; i++) {
        REQUIRE_EQ(hvmem_alloc_order(rig.heap, 0, &mfn[i]), HVMEM_OK);
        rig.reused += rig.owner[mfn[i] - GATHER_BASE] != 0;
    }
    gather_rig_check(&rig);
    while (i-- > 0)
        CHECK_EQ(hvmem_free(rig.heap, mfn[i], 0), HVMEM_OK);
}

/* Just before CPUs or the broadcast flush. */
static int before_flush(const char *name, void *ctx)
{
    unsigned i;

    (void)ctx;
    if (strcmp(name, "shootdown_send") != 0 && strcmp(name, "shootdown_batch") != 0)
        return 0;
    for (i = 0; i < in_batch; i++)
        CHECK_EQ(gather_rig_block(&rig, displaced[i]).state, HVMEM_BLOCK_GATHERED);
    looked++;
    return 0;
}

/* Another CPU, in the middle of it. */
static void meddle(hvmem_mfn mfn, unsigned moved, enum how how)
{
    struct gather_op *other;

    gather_rig_act(&rig, 1);
    CHECK_EQ(hvmem_free(rig.heap, mfn, 0), HVMEM_E_GATHERED);
    CHECK_EQ(gather_rig_block(&rig, mfn).state, HVMEM_BLOCK_GATHERED);
    /* It unmaps and frees the page at its new address: where it is not mapped yet there is nothing. */
    other = gather_rig_open(&rig, 0, target(moved), 1, 0);
    gather_rig_step(&rig, other, 1);
    CHECK_EQ(gather_rig_close(&rig, other, 0), HVMEM_OK);
    CHECK_EQ(gather_rig_mapped(&rig, 0, target(moved)), 0);
    if (how != EARLY)
        CHECK_EQ(rig.stale, 0);
    look_for_reuse();
    gather_rig_act(&rig, 0);
}

static void move(enum gather_kind kind, unsigned count, enum how how)
{
    uint64_t moved[MOST];
    struct gather_op *op;
    unsigned i;

    gather_rig_standard(&rig, kind, 0);
    for (i = 0; i < count; i++)
        REQUIRE(gather_rig_map(&rig, 0, source(i), 0) && gather_rig_map(&rig, 0, target(i), 0));
    for (i = 0; i < count; i++) /* the last of them stay cached: few places in a TLB */
        CHECK(gather_rig_access(&rig, 1, target(i)) && gather_rig_access(&rig, 1, source(i)));
    op = gather_rig_open(&rig, 0, SOURCE, GATHER_PAGES, 0);
    for (i = 0; i < count; i++) {
        moved[i] = take_out(op, source(i));
        displaced[i] = take_out(op, target(i)) >> 12;
        CHECK_EQ(hvmem_gather_free(&op->gather, displaced[i], 0, NULL, 0), HVMEM_OK);
        rig.by[displaced[i] - GATHER_BASE] = op;
        if (how == EARLY)
            *entry_of(target(i)) = moved[i];
        look_for_reuse();
    }
    in_batch = count;
    if (how != ALONE)
        meddle(displaced[count / 2], count - 1, how);
    test_set_point_hook(before_flush, NULL);
    CHECK_EQ(gather_rig_close(&rig, op, 0), HVMEM_OK);
    test_set_point_hook(NULL, NULL);
    for (i = 0; i < count && how != EARLY; i++) {
        CHECK(!gather_rig_access(&rig, 1, source(i)) && !gather_rig_access(&rig, 1, target(i)));
        *entry_of(target(i)) = moved[i];
        CHECK(gather_rig_access(&rig, 1, target(i)));
        CHECK_EQ(gather_rig_mapped(&rig, 0, target(i)), moved[i] >> 12);
        CHECK(gather_rig_block(&rig, displaced[i]).state != HVMEM_BLOCK_GATHERED);
    }
    look_for_reuse();
}

/*
 * Batches of as many parts as a gather keeps apart, one more, twice as many, and the report's. (Of SVM,
 * CPUs that were asked have left the guest: nothing to access with.)
 */
TEST(B25_pages_moved_in_a_batch, points)
{
    static const enum gather_kind kinds[] = {GATHER_PCID, GATHER_TAGS, GATHER_VMID};
    static const unsigned counts[] = {HVMEM_GATHER_RANGES, HVMEM_GATHER_RANGES + 1,
                                      2 * HVMEM_GATHER_RANGES, MOST};
    unsigned kind, i, how;

    for (kind = 0; kind < 3; kind++)
        for (i = 0; i < 4; i++)
            for (how = ALONE; how <= MEDDLED; how++) {
                looked = 0;
                move(kinds[kind], counts[i], (enum how)how);
                CHECK(looked != 0);
                CHECK_EQ(rig.stale, 0);
                CHECK_EQ(rig.reused, 0);
                gather_rig_end(&rig);
            }
}

/* Negative control: mapped again before the flush, and freed there by another. */
TEST(B25_mistakes_are_seen, points)
{
    move(GATHER_TAGS, 2, EARLY);
    CHECK(rig.stale != 0);
    gather_rig_end(&rig);
}
