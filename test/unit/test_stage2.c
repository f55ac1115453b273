/* SPDX-License-Identifier: BSD-2-Clause */
/* Second-stage tables: mapping, partial unmapping, rights, splitting, merging, failures, bad input. */
#include "stage2_rig.h"

#include <string.h>

#define GIB 0x40000u /* frames */
#define MIB 0x100u

static struct stage2_rig rig;

/* Whether hardware sees gfn at mfn, in a leaf of that order. */
static int sees(uint64_t gfn, uint64_t mfn, unsigned order)
{
    struct walk_entry e = rig_walk(&rig, gfn);

    return e.kind == WALK_LEAF && e.address == mfn << 12 && e.shift == order + 12;
}

static int gone(uint64_t gfn)
{
    struct hvmem_stage2_leaf leaf;

    return rig_walk(&rig, gfn).kind == WALK_INVALID &&
           hvmem_stage2_lookup(rig.s2, gfn, &leaf) == HVMEM_E_FREE;
}

static hvmem_status unmap(uint64_t gfn, uint64_t frames, uint64_t *done)
{
    return hvmem_stage2_unmap(rig.s2, gfn, frames, NULL, done);
}

TEST(maps_with_the_largest_leaf_that_fits)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    uint64_t done;
    int i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        /* From 4 KiB below a 2 MiB border to 8 KiB beyond 1 GiB. */
        CHECK_EQ(rig_map(&rig, GIB - 513, GIB + 515, 3 * GIB - 513, 7, 0, &done), HVMEM_OK);
        CHECK_EQ(done, GIB + 515);
        CHECK(sees(GIB - 513, 3 * GIB - 513, 0));
        CHECK(sees(GIB - 512, 3 * GIB - 512, 9));
        CHECK(sees(GIB, 3 * GIB, 18));
        CHECK(sees(2 * GIB - 1, 4 * GIB - 1, 18));
        CHECK(sees(2 * GIB, 4 * GIB, 0));
        CHECK(sees(2 * GIB + 1, 4 * GIB + 1, 0));
        CHECK(gone(GIB - 514) && gone(2 * GIB + 2));
        CHECK_EQ(rig_stats(&rig).frames, GIB + 515);
        /* Frames out of step with the guest's: small leaves. */
        CHECK_EQ(rig_map(&rig, 3 * GIB, 1024, 1, 3, 2, &done), HVMEM_OK);
        CHECK(sees(3 * GIB, 1, 0) && sees(3 * GIB + 1023, 1024, 0));
        stage2_rig_finish(&rig);
    }
}

TEST(the_largest_leaf_is_a_choice)
{
    stage2_rig_prepare(&rig, HVMEM_S2_EPT);
    rig.config.largest = 9;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, GIB, GIB, 0, 7, 0, NULL), HVMEM_OK);
    CHECK(sees(GIB + 5, 5, 9));
    CHECK_EQ(rig_stats(&rig).leaves[1], 512);
    stage2_rig_finish(&rig);
}

TEST(geometry_of_arm64_roots)
{
    static const struct {
        unsigned bits, start, tables;
        uint64_t sl0;
    } known[] = {{32, HVMEM_S2_LEVEL_AUTO, 1, 1},
                 {36, HVMEM_S2_LEVEL_AUTO, 1, 1},
                 {39, 1, 1, 1},
                 {40, 1, 2, 1},
                 {42, 1, 8, 1},
                 {43, 1, 16, 1},
                 {44, HVMEM_S2_LEVEL_AUTO, 1, 2},
                 {48, 0, 1, 2},
                 {30, HVMEM_S2_LEVEL_AUTO, 1, 0},
                 {34, 2, 16, 0},
                 {25, HVMEM_S2_LEVEL_AUTO, 1, 0},
                 {24, HVMEM_S2_LEVEL_AUTO, 1, 0},
                 {23, 2, 1, 0}};
    uint64_t top, vtcr, root;
    unsigned i;

    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
        rig.config.input_bits = known[i].bits;
        rig.config.start_level = known[i].start;
        if (known[i].bits < 25)
            rig.features |= HVMEM_CAP_SMALL_INPUT;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).root_tables, known[i].tables);
        vtcr = hvmem_stage2_control(rig.s2);
        CHECK_EQ(vtcr & 0x3f, 64 - known[i].bits);
        CHECK_EQ(vtcr >> 6 & 3, known[i].sl0);
        CHECK_EQ(vtcr >> 19 & 1, 1);
        CHECK_EQ(hvmem_stage2_root(rig.s2, 0xffff, &root), HVMEM_OK);
        CHECK_EQ(root >> 48, 0xffff);
        CHECK_EQ(root & (known[i].tables * 4096 - 1), 0);
        CHECK_EQ(hvmem_stage2_root(rig.s2, 0x10000, &root), HVMEM_E_RANGE);
        /* First, last and one in every root table. */
        top = 1ull << (known[i].bits - 12);
        CHECK_EQ(rig_map(&rig, 0, 3, 9, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, top - 512, 512, 0x200, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, top / 2, 512, 0x400, 7, 0, NULL), HVMEM_OK);
        CHECK(sees(2, 11, 0) && sees(top - 1, 0x3ff, 9) && sees(top / 2, 0x400, 9));
        CHECK_EQ(rig_map(&rig, top, 1, 0, 7, 0, NULL), HVMEM_E_RANGE);
        CHECK_EQ(unmap(0, top, NULL), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).tables, known[i].tables);
        stage2_rig_finish(&rig);
    }
}

/* With less than 44 bits of machine address walks cannot start at level 0: more root tables do. */
TEST(level_0_needs_a_machine_that_has_it)
{
    static const struct {
        unsigned bits, out, tables, level;
    } known[] = {{39, 40, 1, 1}, {40, 40, 2, 1},  {40, 42, 2, 1},
                 {42, 42, 8, 1}, {43, 42, 16, 1}, {40, 44, 1, 0}};
    struct hvmem_stage2_config config;
    hvmem_size bytes;
    unsigned i;

    for (i = 0; i < sizeof known / sizeof known[0]; i++) {
        stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
        rig.config.input_bits = known[i].bits;
        rig.config.output_bits = known[i].out;
        rig.config.start_level = HVMEM_S2_LEVEL_AUTO;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).root_tables, known[i].tables);
        CHECK_EQ(hvmem_stage2_control(rig.s2) >> 6 & 3, 2 - known[i].level);
        CHECK_EQ(rig_map(&rig, 0, 1, 9, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, (1ull << (known[i].bits - 12)) - 1, 1, 10, 7, 0, NULL), HVMEM_OK);
        CHECK(sees(0, 9, 0) && sees((1ull << (known[i].bits - 12)) - 1, 10, 0));
        config = rig.config;
        config.start_level = 0;
        CHECK_EQ(hvmem_stage2_size(&config, &bytes), known[i].level ? HVMEM_E_ARG : HVMEM_OK);
        config.start_level = HVMEM_S2_LEVEL_AUTO;
        config.input_bits = 44;
        CHECK_EQ(hvmem_stage2_size(&config, &bytes), known[i].out < 44 ? HVMEM_E_ARG : HVMEM_OK);
        stage2_rig_finish(&rig);
    }
}

/* T0SZ above 39 means what it says on CPUs with FEAT_TTST alone. */
TEST(small_inputs_need_a_machine_that_has_them)
{
    static unsigned char memory[8192] __attribute__((aligned(64)));
    struct hvmem_stage2_config config;
    struct hvmem_stage2 *s2;
    uint64_t before;
    unsigned bits;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    config = rig.config;
    before = rig.reported;
    for (bits = 22; bits < 25; bits++) {
        config.input_bits = bits;
        CHECK_EQ(hvmem_stage2_init(memory, sizeof memory, &config, &s2), HVMEM_E_UNSUPPORTED);
    }
    CHECK_EQ(rig.reported - before, 3);
    stage2_rig_finish(&rig);
}

TEST(refuses_geometry_that_hardware_has_not)
{
    static const struct {
        unsigned format, bits, start, out, id;
        hvmem_status status;
    } bad[] = {{HVMEM_S2_ARM64, 49, 0, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 44, 1, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 35, 2, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 39, 0, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 21, 2, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 40, 3, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 40, 1, 52, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 40, 1, 48, 12, HVMEM_E_ARG},
               {HVMEM_S2_NPT, 48, 1, 52, 0, HVMEM_E_ARG},
               /* FEAT_LPA2 and five levels. */
               {HVMEM_S2_ARM64, 52, HVMEM_S2_LEVEL_AUTO, 52, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 48, 0, 52, 16, HVMEM_E_ARG},
               {HVMEM_S2_ARM64, 48, ~0u, 48, 16, HVMEM_E_ARG},
               {HVMEM_S2_NPT, 57, 0, 52, 0, HVMEM_E_ARG},
               {HVMEM_S2_EPT, 57, 0, 52, 0, HVMEM_E_ARG},
               {4, 40, 0, 48, 16, HVMEM_E_ARG}};
    static uint64_t room[1024];
    struct hvmem_stage2_config config;
    struct hvmem_stage2 *s2;
    hvmem_size bytes;
    unsigned i;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config = rig.config;
        config.format = bad[i].format;
        config.input_bits = bad[i].bits;
        config.start_level = bad[i].start;
        config.output_bits = bad[i].out;
        config.id_bits = bad[i].id;
        CHECK_EQ(hvmem_stage2_size(&config, &bytes), bad[i].status);
        CHECK_EQ(hvmem_stage2_init(room, sizeof room, &config, &s2), bad[i].status);
    }
    config = rig.config;
    config.largest = 1;
    CHECK_EQ(hvmem_stage2_size(&config, &bytes), HVMEM_E_ORDER);
    config = rig.config;
    config.size--;
    CHECK_EQ(hvmem_stage2_size(&config, &bytes), HVMEM_E_VERSION);
    stage2_rig_finish(&rig);
}

TEST(B38_a_range_that_covers_blocks_in_part)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    struct hvmem_stage2_stats s;
    uint64_t done;
    int i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        CHECK_EQ(rig_map(&rig, 0, 3 * 512, 0x10000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(rig_stats(&rig).leaves[1], 3);
        CHECK(rig_access(&rig, 0, 0x100000, WALK_R) >= 0);
        CHECK(rig_access(&rig, 1, 0x2ff000, WALK_R) >= 0);
        CHECK(rig_access(&rig, 1, 0x4ff000, WALK_W) >= 0);
        CHECK_EQ(unmap(1 * MIB, 4 * MIB, &done), HVMEM_OK);
        CHECK_EQ(done, 4 * MIB);
        CHECK(sees(0xff, 0x100ff, 0) && gone(0x100) && gone(0x1ff));
        CHECK(gone(0x200) && gone(0x3ff) && gone(0x4ff) && sees(0x500, 0x10500, 0));
        CHECK_EQ(rig_holds(&rig, 0x100, 0x400), 0);
        s = rig_stats(&rig);
        CHECK_EQ(s.splits, 2); /* the middle one went whole */
        CHECK_EQ(s.frames, 0x200);
        /* An order-9 request at an odd frame. */
        CHECK_EQ(rig_map(&rig, GIB, 2048, 0x20000, 7, 0, NULL), HVMEM_OK);
        CHECK_EQ(unmap(GIB + 0x201, 0x200, &done), HVMEM_OK);
        CHECK(sees(GIB + 0x200, 0x20200, 0) && gone(GIB + 0x201) && gone(GIB + 0x400));
        CHECK(sees(GIB + 0x401, 0x20401, 0) && sees(GIB + 0x600, 0x20600, 9));
        stage2_rig_finish(&rig);
    }
}

TEST(B38_the_end_of_the_space_and_all_of_it)
{
    uint64_t top, done;

    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    top = 1ull << 20;
    CHECK_EQ(rig_map(&rig, 0, top, 0, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).leaves[2], 4);
    CHECK_EQ(unmap(top - GIB / 2, GIB / 2, &done), HVMEM_OK);
    CHECK_EQ(done, GIB / 2);
    CHECK(gone(top - 1) && gone(top - GIB / 2) && sees(top - GIB / 2 - 1, top - GIB / 2 - 1, 9));
    CHECK_EQ(unmap(0, top, &done), HVMEM_OK);
    CHECK_EQ(done, top);
    CHECK_EQ(rig_stats(&rig).frames, 0);
    CHECK_EQ(rig_stats(&rig).tables, 1);
    CHECK_EQ(unmap(0, 0, &done), HVMEM_E_RANGE);
    stage2_rig_finish(&rig);
}

TEST(B38_no_empty_tables_are_left_behind)
{
    uint64_t i;

    stage2_rig_begin(&rig, HVMEM_S2_NPT);
    for (i = 0; i < 1024; i++)
        CHECK_EQ(rig_map(&rig, GIB + i, 1, 0x5000 + 2 * i, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).tables, 5);
    CHECK_EQ(unmap(GIB, GIB, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).tables, 1);
    /* One by one, from the end. */
    for (i = 0; i < 600; i++)
        CHECK_EQ(rig_map(&rig, GIB + i, 1, 0x5000 + 2 * i, 7, 0, NULL), HVMEM_OK);
    for (i = 600; i-- > 0;)
        CHECK_EQ(unmap(GIB + i, 1, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).tables, 1);
    stage2_rig_finish(&rig);
}

TEST(B38_orders_1_to_18)
{
    unsigned order;
    uint64_t gfn, done;

    stage2_rig_begin(&rig, HVMEM_S2_EPT);
    for (order = 1; order <= 18; order++) {
        gfn = 1ull << order;
        CHECK_EQ(rig_map(&rig, gfn, 1ull << order, gfn, 7, 0, NULL), HVMEM_OK);
        CHECK(sees(gfn, gfn, order < 9 ? 0 : order < 18 ? 9 : 18));
    }
    for (order = 1; order <= 18; order++) {
        gfn = 1ull << order;
        CHECK_EQ(unmap(gfn, 1ull << order, &done), HVMEM_OK);
        CHECK(gone(gfn) && gone(gfn + (1ull << order) - 1));
    }
    CHECK_EQ(rig_stats(&rig).splits, 0);
    stage2_rig_finish(&rig);
}

TEST(rights_change_page_by_page)
{
    static const uint32_t formats[] = {HVMEM_S2_ARM64, HVMEM_S2_NPT, HVMEM_S2_EPT};
    uint64_t done;
    int i;

    for (i = 0; i < 3; i++) {
        stage2_rig_begin(&rig, formats[i]);
        CHECK_EQ(rig_map(&rig, 0, 1024, 0x10000, 7, 0, NULL), HVMEM_OK);
        CHECK(rig_access(&rig, 0, 0x5000, WALK_W) >= 0);
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 5, 1, WALK_R, NULL, &done), HVMEM_OK);
        CHECK_EQ(rig_walk(&rig, 5).rights, WALK_R);
        CHECK_EQ(rig_walk(&rig, 6).rights, 7);
        CHECK_EQ(rig_access(&rig, 0, 0x5000, WALK_W), -1);
        CHECK(rig_access(&rig, 0, 0x5000, WALK_R) >= 0);
        /* Raised again: no CPU goes on with the tighter entry for ever. */
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 1024, 7, NULL, &done), HVMEM_OK);
        CHECK_EQ(done, 1024);
        if (formats[i] == HVMEM_S2_ARM64)
            CHECK(rig_access(&rig, 0, 0x5000, WALK_W) >= 0);
        CHECK_EQ(rig_walk(&rig, 5).rights, 7);
        CHECK_EQ(rig_stats(&rig).splits, 1); /* unchanged rights split nothing */
        /* Holes are passed over. */
        CHECK_EQ(hvmem_stage2_protect(rig.s2, 0, 4096, 5, NULL, &done), HVMEM_OK);
        CHECK_EQ(done, 4096);
        CHECK_EQ(rig_walk(&rig, 1023).rights, 5);
        stage2_rig_finish(&rig);
    }
}

TEST(what_goes_is_flushed_by_itself)
{
    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0x300, 2, 0x20000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, GIB, GIB, GIB, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x300000, WALK_R) >= 0);
    CHECK(rig_access(&rig, 0, 0x5000, WALK_R) >= 0);
    CHECK(rig_access(&rig, 1, 0x6000, WALK_R) >= 0);
    CHECK(rig_access(&rig, 1, (uint64_t)(GIB + 77) << 12, WALK_R) >= 0);
    /* A page is one operation by address; so are a block and 1 GiB. */
    CHECK_EQ(unmap(0x300, 1, NULL), HVMEM_OK);
    CHECK_EQ(rig.flushes, 1);
    CHECK_EQ(rig.ranges, 1);
    CHECK_EQ(rig.last_range.start, 0x300000);
    CHECK_EQ(rig.last_range.pages, 1);
    CHECK_EQ(rig_holds(&rig, 0x300, 1), 0);
    CHECK_EQ(unmap(0, 512, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, 0, 512), 0);
    CHECK_EQ(unmap(GIB, GIB, NULL), HVMEM_OK);
    CHECK_EQ(rig_holds(&rig, GIB, GIB), 0);
    CHECK_EQ(rig.flushes, 3);
    CHECK_EQ(rig.ranges, 3);
    CHECK_EQ(rig.whole, 0);
    /* Nothing there, nothing flushed; nor for what is mapped anew. */
    CHECK_EQ(unmap(0, 512, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x30000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig.flushes, 3);
    stage2_rig_finish(&rig);
}

/* ---- break before make ---------------------------------------------------------------------- */

static int broken_seen, live_seen;

/* At each flush: is the block's entry invalid, a table already, or still a block? */
static void look_at_entry(struct stage2_rig *r, const struct hvmem_tlb_flush *flush)
{
    uint64_t d = walk_raw(&r->tables, 0, 2);

    (void)flush;
    if (!(d & 1))
        broken_seen++;
    else
        live_seen++;
    hvmem_sim_tlb_speculate(r->tlb, 0, 200);
}

TEST(a_split_breaks_before_it_makes)
{
    int bbm2;

    for (bbm2 = 0; bbm2 <= 1; bbm2++) {
        stage2_rig_prepare(&rig, HVMEM_S2_ARM64);
        if (bbm2)
            rig.features |= HVMEM_CAP_BBM2;
        REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
        CHECK_EQ(rig_map(&rig, 0, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
        CHECK(rig_access(&rig, 0, 0x8000, WALK_W) >= 0);
        CHECK(rig_access(&rig, 1, 0x9000, WALK_W) >= 0);
        CHECK_EQ(rig_holds(&rig, 0, 512), 2);
        broken_seen = live_seen = 0;
        rig.on_flush = look_at_entry;
        CHECK_EQ(unmap(8, 1, NULL), HVMEM_OK);
        rig.on_flush = NULL;
        CHECK(bbm2 ? broken_seen == 0 : broken_seen == 1);
        CHECK_EQ(rig_holds(&rig, 8, 1), 0);
        CHECK(gone(8) && sees(7, 0x10007, 0) && sees(9, 0x10009, 0));
        CHECK(rig_access(&rig, 0, 0x9000, WALK_W) >= 0);
        /* And back: the table's pages out of all TLBs before the block comes in. */
        CHECK_EQ(rig_map(&rig, 8, 1, 0x10008, 7, 0, NULL), HVMEM_OK);
        CHECK(rig_access(&rig, 1, 0x8000, WALK_W) >= 0);
        broken_seen = live_seen = 0;
        rig.on_flush = look_at_entry;
        CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 1024, NULL), HVMEM_OK);
        rig.on_flush = NULL;
        CHECK(bbm2 ? broken_seen == 0 : broken_seen >= 1);
        CHECK(sees(9, 0x10009, 9));
        CHECK_EQ(rig_stats(&rig).merges, 1);
        CHECK_EQ(rig_stats(&rig).tables, 2);
        CHECK(rig_access(&rig, 0, 0x9000, WALK_W) >= 0);
        stage2_rig_finish(&rig);
    }
}

TEST(the_erratum_overrides_the_capability)
{
    stage2_rig_prepare(&rig, HVMEM_S2_EPT);
    rig.quirks = HVMEM_QUIRK_BBM_REQUIRED;
    REQUIRE_EQ(stage2_rig_open(&rig), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x10000, 7, 0, NULL), HVMEM_OK);
    CHECK(rig_access(&rig, 0, 0x8000, WALK_W) >= 0);
    broken_seen = live_seen = 0;
    rig.on_flush = look_at_entry;
    CHECK_EQ(unmap(8, 1, NULL), HVMEM_OK);
    rig.on_flush = NULL;
    CHECK_EQ(broken_seen, 1);
    stage2_rig_finish(&rig);
}

TEST(merges_only_what_continues)
{
    stage2_rig_begin(&rig, HVMEM_S2_ARM64);
    CHECK_EQ(rig_map(&rig, 0, 512, 0x10001, 7, 0, NULL), HVMEM_OK); /* misaligned */
    CHECK_EQ(rig_map(&rig, 512, 511, 0x20000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(rig_map(&rig, 1023, 1, 0x30000, 7, 0, NULL), HVMEM_OK); /* another frame */
    CHECK_EQ(rig_map(&rig, 1024, 512, 0x20000, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 1030, 1, 3, NULL, NULL), HVMEM_OK); /* other rights */
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 4096, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).merges, 0);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, 1030, 1, 7, NULL, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 1025, 511, NULL), HVMEM_OK); /* not the whole table */
    CHECK_EQ(rig_stats(&rig).merges, 0);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 1024, 512, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).merges, 1);
    CHECK(sees(1030, 0x20006, 9));
    stage2_rig_finish(&rig);
}

TEST(merges_up_to_1_gib)
{
    stage2_rig_begin(&rig, HVMEM_S2_NPT);
    CHECK_EQ(rig_map(&rig, GIB, GIB, 0, 7, 0, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GIB + 700, 3, 1, NULL, NULL), HVMEM_OK);
    CHECK_EQ(rig_stats(&rig).splits, 2);
    CHECK_EQ(hvmem_stage2_protect(rig.s2, GIB, GIB, 7, NULL, NULL), HVMEM_OK);
    CHECK_EQ(hvmem_stage2_merge(rig.s2, 0, 4 * GIB, NULL), HVMEM_OK);
    CHECK(sees(GIB + 700, 700, 18));
    CHECK_EQ(rig_stats(&rig).tables, 2);
    stage2_rig_finish(&rig);
}
