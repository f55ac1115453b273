/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model machine is as unkind as it says: pointers to tables outlive leaf flushes, flawed broadcasts
 * leave entries, devices hear only their notifier, and its oracle sees each of these.
 */
#include "backends/sim/machine.h"
#include "test_main.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES 64u

struct rig {
    struct hvmem_sim_machine m;
    struct hvmem_sim_space space;
    void *memory;
};

static struct rig rig;

/* Root in frame 0, its table 1 in frame 1 maps page 8 to frame 2; block of pages 16.. at frame 8. */
static void begin(unsigned cpus, unsigned devices, hvmem_u64 features, unsigned flawed)
{
    struct hvmem_sim_machine_config config = {.cpus = cpus, .slots = 24, .frames = FRAMES};
    unsigned row;

    config.devices = devices;
    config.features = features;
    config.flawed = flawed;
    config.seed = test_seed();
    config.base = 0x1000;
    config.lines = 4;
    rig.memory = calloc(1, hvmem_sim_machine_bytes(&config));
    REQUIRE(rig.memory != NULL);
    hvmem_sim_machine_init(&rig.m, rig.memory, &config);
    hvmem_sim_space_create(&rig.m, &rig.space, HVMEM_REGIME_USER, 7, 0x1000);
    hvmem_sim_hook(&rig.m, &rig.space, 1, 0x1001);
    hvmem_sim_map(&rig.m, &rig.space, 8, 0x1002, 0);
    hvmem_sim_map(&rig.m, &rig.space, 16, 0x1008, HVMEM_SIM_BLOCK_ORDER);
    for (row = 0; row < cpus + devices; row++) {
        if (row < cpus)
            hvmem_sim_set_online(&rig.m, row, 1);
        hvmem_sim_load(&rig.m, row, &rig.space);
    }
    hvmem_sim_speculate(&rig.m, 2000);
    for (row = 0; row < cpus + devices; row++)
        hvmem_sim_speculate_on(&rig.m, row, 600);
}

static void end(void)
{
    free(rig.memory);
    memset(&rig, 0, sizeof rig);
}

static hvmem_status flush_pages(unsigned scope, hvmem_u64 page, hvmem_u64 pages, unsigned flags)
{
    struct hvmem_tlb_range range = {.start = hvmem_sim_input(page) << 12, .pages = pages};
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .what = HVMEM_FLUSH_RANGES};

    range.stride_shift = 12;
    range.level = HVMEM_LEVEL_UNKNOWN;
    range.flags = (hvmem_u16)flags;
    flush.scope = (hvmem_u16)scope;
    flush.space = rig.space.tag;
    flush.ranges = &range;
    flush.count = 1;
    return rig.m.backend.ops->tlb_flush(&rig.m.backend, &flush);
}

TEST(every_cpu_loads_leaves_blocks_and_pointers)
{
    begin(4, 1, 0, 0);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1001, 1), 5);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 5);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x100f, 1), 5); /* the block's last page */
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1010, 48), 0);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1000, 1), 0); /* the root is in a register */
    hvmem_sim_set_online(&rig.m, 3, 0);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 4);
    CHECK_EQ(rig.m.recycled, 0);
    end();
}

/* B26: the table's frame is used again after a flush of leaves alone. */
TEST(B26_a_leaf_flush_leaves_the_pointer)
{
    begin(2, 0, HVMEM_CAP_BROADCAST, 0);
    hvmem_sim_unmap(&rig.m, &rig.space, 8);
    CHECK_EQ(hvmem_sim_unhook(&rig.m, &rig.space, 1), 0x1001);
    CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 8, 8, HVMEM_RANGE_LEAF), HVMEM_OK);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 0);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1001, 1), 2);
    hvmem_sim_use_data(&rig.m, 0x1001, 1, 99); /* bytes that look like descriptors */
    hvmem_sim_speculate(&rig.m, 2000);
    CHECK(rig.m.recycled != 0);
    end();
}

TEST(B26_a_full_flush_of_the_span_takes_the_pointer)
{
    begin(2, 0, HVMEM_CAP_BROADCAST, 0);
    hvmem_sim_unmap(&rig.m, &rig.space, 8);
    (void)hvmem_sim_unhook(&rig.m, &rig.space, 1);
    CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 8, 8, 0), HVMEM_OK);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1001, 2), 0);
    hvmem_sim_use_data(&rig.m, 0x1001, 1, 99);
    hvmem_sim_speculate(&rig.m, 2000);
    CHECK_EQ(rig.m.recycled, 0);
    end();
}

TEST(one_page_short_is_seen)
{
    begin(2, 0, HVMEM_CAP_BROADCAST, 0);
    hvmem_sim_map(&rig.m, &rig.space, 9, 0x1003, 0);
    hvmem_sim_speculate(&rig.m, 4000);
    hvmem_sim_unmap(&rig.m, &rig.space, 8);
    hvmem_sim_unmap(&rig.m, &rig.space, 9);
    CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 8, 1, HVMEM_RANGE_LEAF), HVMEM_OK);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 0);
    CHECK(hvmem_sim_reached(&rig.m, 0x1003, 1) != 0);
    end();
}

/* Some entry stays after one broadcast; after two none does, which the quirk asks for. */
TEST(flawed_hardware_needs_the_second_broadcast)
{
    unsigned round, left = 0;

    for (round = 0; round < 20; round++) {
        begin(8, 0, HVMEM_CAP_BROADCAST, 1);
        CHECK_EQ(rig.m.backend.caps.quirks, HVMEM_QUIRK_REPEAT_TLBI);
        rig.m.backend.caps.quirks = 0;
        hvmem_sim_unmap(&rig.m, &rig.space, 8);
        CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 8, 1, HVMEM_RANGE_LEAF), HVMEM_OK);
        left += hvmem_sim_reached(&rig.m, 0x1002, 1) != 0;
        rig.m.backend.caps.quirks = HVMEM_QUIRK_REPEAT_TLBI;
        CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 40, 1, HVMEM_RANGE_LEAF), HVMEM_OK);
        CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 0);
        end();
    }
    CHECK(left > 10);
}

TEST(devices_hear_their_notifier_alone)
{
    struct hvmem_tlb_flush all = {.size = sizeof all, .what = HVMEM_FLUSH_ALL};

    begin(2, 2, HVMEM_CAP_BROADCAST, 0);
    hvmem_sim_unmap(&rig.m, &rig.space, 8);
    CHECK_EQ(flush_pages(HVMEM_SCOPE_INNER, 8, 1, 0), HVMEM_OK);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 2);
    rig.m.answer[1] = HVMEM_SIM_FAILS;
    CHECK_EQ(hvmem_sim_device_flush(&rig.m, 0, &all), HVMEM_OK);
    CHECK_EQ(hvmem_sim_device_flush(&rig.m, 1, &all), HVMEM_E_HOST);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 1);
    rig.m.answer[1] = HVMEM_SIM_SILENT;
    CHECK_EQ(hvmem_sim_device_flush(&rig.m, 1, &all), HVMEM_E_TIMEOUT);
    rig.m.answer[1] = HVMEM_SIM_ANSWERS;
    CHECK_EQ(hvmem_sim_device_flush(&rig.m, 1, &all), HVMEM_OK);
    CHECK_EQ(hvmem_sim_reached(&rig.m, 0x1002, 1), 0);
    end();
}

/* ---- CPUs ------------------------------------------------------------------------------------ */

static void note(void *arg)
{
    uint8_t *ran = arg;

    ran[rig.m.current]++;
}

static void check_call(unsigned cpus)
{
    uint64_t words[HVMEM_SIM_CPUS / 64] = {~0ull, ~0ull, ~0ull, ~0ull};
    struct hvmem_cpuset set = {.words = words, .cpus = cpus};
    uint8_t ran[HVMEM_SIM_CPUS] = {0};
    unsigned cpu;

    begin(cpus, 0, 0, 0);
    hvmem_sim_set_online(&rig.m, cpus / 2, cpus == 1);
    words[0] &= ~2ull;
    CHECK_EQ(hvmem_sim_call_cpus(&rig.m, &set, note, ran), HVMEM_OK);
    for (cpu = 0; cpu < cpus; cpu++)
        CHECK_EQ(ran[cpu], cpu != 1 && (cpus == 1 || cpu != cpus / 2));
    CHECK_EQ(rig.m.current, 0);
    CHECK_EQ(rig.m.asked, cpus < 4 ? 0 : cpus - 3);
    rig.m.fail = 1;
    CHECK_EQ(hvmem_sim_call_cpus(&rig.m, &set, note, ran), HVMEM_E_HOST);
    CHECK_EQ(hvmem_sim_call_cpus(&rig.m, &set, note, ran), HVMEM_OK);
    end();
}

TEST(one_to_256_cpus_are_called)
{
    check_call(1);
    check_call(2);
    check_call(65);
    check_call(256);
}

/* ---- contents -------------------------------------------------------------------------------- */

#define SECRET 0x5ec2e7u

static hvmem_status zero(hvmem_mfn mfn)
{
    return rig.m.backend.ops->zero(&rig.m.backend, hvmem_sim_address(&rig.m.data, mfn), 4096);
}

static hvmem_status clean(hvmem_mfn mfn, unsigned op)
{
    return rig.m.backend.ops->dcache(&rig.m.backend, op, hvmem_sim_address(&rig.m.data, mfn), 4096);
}

/* A secret in RAM, in the caches and in every instruction cache. */
static void leave_secret(hvmem_mfn mfn)
{
    unsigned line;

    for (line = 0; line < 4; line++) {
        hvmem_sim_write_ram(&rig.m.data, mfn, line, SECRET);
        hvmem_sim_write(&rig.m.data, 0, mfn, line, SECRET);
    }
    CHECK_EQ(clean(mfn, HVMEM_DC_CLEAN), HVMEM_OK);
    for (line = 0; line < 4; line++) {
        CHECK_EQ(hvmem_sim_fetch(&rig.m.data, 0, mfn, line), SECRET);
        CHECK_EQ(hvmem_sim_fetch(&rig.m.data, 1, mfn, line), SECRET);
    }
}

/* Bits: 1 seen cached, 2 seen uncached, 4 seen as code. */
static unsigned seen(hvmem_mfn mfn)
{
    unsigned line, how = 0;

    for (line = 0; line < 4; line++) {
        how |= hvmem_sim_read_ram(&rig.m.data, mfn, line) == SECRET ? 2u : 0;
        how |= hvmem_sim_fetch(&rig.m.data, 1, mfn, line) == SECRET ? 4u : 0;
        how |= hvmem_sim_read(&rig.m.data, mfn, line) == SECRET ? 1u : 0;
    }
    return how;
}

TEST(secrets_leave_only_by_the_whole_sequence)
{
    begin(2, 0, 0, 0);
    leave_secret(0x1005);
    CHECK_EQ(seen(0x1005), 7);
    CHECK_EQ(zero(0x1005), HVMEM_OK);
    CHECK_EQ(seen(0x1005), 6); /* zeroes are in the cache alone */
    CHECK_EQ(clean(0x1005, HVMEM_DC_CLEAN_INVALIDATE), HVMEM_OK);
    CHECK_EQ(seen(0x1005), 4);
    CHECK_EQ(rig.m.backend.ops->icache_all(&rig.m.backend, HVMEM_SCOPE_INNER), HVMEM_OK);
    CHECK_EQ(seen(0x1005), 0);
    end();
}

/* Lines that were left open may have been cleaned, or not; what is stored meanwhile stays dirty. */
TEST(secrets_stay_until_the_last_clean_is_complete)
{
    const hvmem_u32 op = HVMEM_DC_CLEAN_INVALIDATE;
    unsigned times, late = 0;

    for (times = 0; times < 32; times++) {
        begin(2, 0, 0, 0);
        rig.m.data.random += times;
        leave_secret(0x1005);
        CHECK_EQ(zero(0x1005), HVMEM_OK);
        CHECK_EQ(clean(0x1005, op | HVMEM_DC_MORE), HVMEM_OK);
        late += (seen(0x1005) & 2) != 0;
        rig.m.current = 1; /* cannot complete what CPU 0 began */
        CHECK_EQ(rig.m.backend.ops->dcache_done(&rig.m.backend, op), HVMEM_OK);
        late += (seen(0x1005) & 2) != 0;
        rig.m.current = 0;
        CHECK_EQ(rig.m.backend.ops->dcache_done(&rig.m.backend, op), HVMEM_OK);
        CHECK_EQ(seen(0x1005) & 2, 0);
        CHECK_EQ(clean(0x1005, op | HVMEM_DC_MORE), HVMEM_OK);
        hvmem_sim_write(&rig.m.data, 1, 0x1005, 0, 77);
        CHECK_EQ(rig.m.backend.ops->dcache_done(&rig.m.backend, op), HVMEM_OK);
        CHECK(hvmem_sim_read_ram(&rig.m.data, 0x1005, 0) != 77);
        CHECK_EQ(rig.m.backend.ops->dcache_done(&rig.m.backend, op | HVMEM_DC_MORE), HVMEM_E_ARG);
        end();
    }
    CHECK(late > 20);
}

TEST(B45_cleaned_before_the_scrub_is_seen)
{
    begin(2, 0, 0, 0);
    leave_secret(0x1005);
    CHECK_EQ(clean(0x1005, HVMEM_DC_CLEAN_INVALIDATE), HVMEM_OK);
    CHECK_EQ(zero(0x1005), HVMEM_OK);
    CHECK_EQ(rig.m.backend.ops->icache_all(&rig.m.backend, HVMEM_SCOPE_INNER), HVMEM_OK);
    CHECK_EQ(seen(0x1005) & 2, 2);
    end();
}

TEST(invalidation_loses_dirty_lines_and_spares_halves)
{
    hvmem_uptr at;

    begin(2, 0, 0, 0);
    at = hvmem_sim_address(&rig.m.data, 0x1006);
    hvmem_sim_write(&rig.m.data, 1, 0x1006, 0, 11);
    hvmem_sim_write(&rig.m.data, 1, 0x1006, 1, 12);
    CHECK_EQ(rig.m.backend.ops->dcache(&rig.m.backend, HVMEM_DC_INVALIDATE, at, 1024 + 512),
             HVMEM_OK);
    CHECK_EQ(hvmem_sim_read(&rig.m.data, 0x1006, 0), 0);  /* whole: dropped */
    CHECK_EQ(hvmem_sim_read(&rig.m.data, 0x1006, 1), 12); /* in part: written back */
    CHECK_EQ(rig.m.backend.ops->dcache(&rig.m.backend, 9, at, 64), HVMEM_E_ARG);
    CHECK_EQ(rig.m.backend.ops->dcache(&rig.m.backend, 0, at, ~(hvmem_size)0), HVMEM_E_RANGE);
    CHECK_EQ(rig.m.backend.ops->zero(&rig.m.backend, at + 64, 64), HVMEM_E_ALIGN);
    end();
}

TEST(by_set_and_way_only_the_own_cache)
{
    begin(2, 0, 0, 0);
    hvmem_sim_write(&rig.m.data, 0, 0x1006, 0, 11);
    hvmem_sim_write(&rig.m.data, 1, 0x1006, 1, 12);
    CHECK_EQ(rig.m.backend.ops->dcache_all(&rig.m.backend, HVMEM_DC_CLEAN), HVMEM_OK);
    CHECK_EQ(hvmem_sim_read_ram(&rig.m.data, 0x1006, 0), 11);
    CHECK_EQ(hvmem_sim_read_ram(&rig.m.data, 0x1006, 1), 0);
    end();
}

TEST(snooped_hardware_hides_nothing)
{
    begin(2, 0, HVMEM_CAP_ICOHERENT, 0);
    leave_secret(0x1005);
    CHECK_EQ(zero(0x1005), HVMEM_OK);
    CHECK_EQ(seen(0x1005), 0);
    hvmem_sim_write_ram(&rig.m.data, 0x1005, 0, 5);
    CHECK_EQ(hvmem_sim_read(&rig.m.data, 0x1005, 0), 5);
    end();
}
