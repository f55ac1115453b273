/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache_effects: the cache half of the contract on the machine: memory keeps its content through every
 * clean, zeroing zeroes exactly its range, code written before an icache request is what every CPU
 * executes after it, and bad input is refused. No emulator has caches that could hold something
 * stale: that the right lines are named is the recorder's to check.
 */
#include "test/metal/check.h"
#include "test/metal/subject.h"

#define AREA 16384u

static uint8_t *area;

static void fill(void)
{
    for (unsigned i = 0; i < AREA; i++)
        area[i] = (uint8_t)(i * 7 + 1);
}

/* Does the area hold its pattern, but zeroes in [from, to)? */
static int holds(unsigned from, unsigned to)
{
    for (unsigned i = 0; i < AREA; i++)
        if (area[i] != (i >= from && i < to ? 0 : (uint8_t)(i * 7 + 1)))
            return 0;
    return 1;
}

static void check_dcache(struct hvmem_backend *be)
{
    static const hvmem_u32 keeping[] = {HVMEM_DC_CLEAN, HVMEM_DC_CLEAN_INVALIDATE,
                                        HVMEM_DC_CLEAN_POU};
    static const unsigned starts[] = {0, 1, 63, 64, 4095}, lengths[] = {0, 1, 64, 65, 5000};
    const hvmem_uptr at = (hvmem_uptr)area;

    for (unsigned o = 0; o < sizeof keeping / sizeof keeping[0]; o++)
        for (unsigned s = 0; s < sizeof starts / sizeof starts[0]; s++)
            for (unsigned l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
                fill();
                CHECK_EQUAL(be->ops->dcache(be, keeping[o], at + starts[s], lengths[l]), HVMEM_OK);
                CHECK(holds(0, 0));
            }
    /* Invalidation may drop what lies inside, never what shares its first and last line. */
    fill();
    CHECK_EQUAL(be->ops->dcache(be, HVMEM_DC_CLEAN, at, AREA), HVMEM_OK);
    CHECK_EQUAL(be->ops->dcache(be, HVMEM_DC_INVALIDATE, at + 100, 8000), HVMEM_OK);
    CHECK(holds(0, 0));
    CHECK_EQUAL(be->ops->dcache(be, 99, at, 64), HVMEM_E_ARG);
    CHECK_EQUAL(be->ops->dcache(be, HVMEM_DC_CLEAN, ~(hvmem_uptr)0 - 63, 128), HVMEM_E_RANGE);
}

static void check_zero(struct hvmem_backend *be)
{
    static const unsigned from[] = {0, 64, 4096, 4032, 8192}, bytes[] = {0, 64, 128, 4096, 8128};

    for (unsigned f = 0; f < sizeof from / sizeof from[0]; f++)
        for (unsigned b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
            fill();
            CHECK_EQUAL(be->ops->zero(be, (hvmem_uptr)area + from[f], bytes[b]), HVMEM_OK);
            CHECK(holds(from[f], from[f] + bytes[b]));
        }
    fill();
    CHECK(be->ops->zero(be, (hvmem_uptr)area + 1, 64) != HVMEM_OK);
    CHECK(be->ops->zero(be, (hvmem_uptr)area, 65) != HVMEM_OK);
    CHECK(holds(0, 0));
}

/* ---- code ---- */

static uintptr_t code_va;
static uint64_t results[METAL_MAX_CPUS];

static void run_code(void *arg)
{
    (void)arg;
    results[metal_cpu_id()] = 0;
    (void)metal_probe_exec(code_va, &results[metal_cpu_id()], NULL);
}

static void check_icache(struct hvmem_backend *be)
{
    uint8_t *code = metal_pages(METAL_PAGE_BYTES, METAL_PAGE_BYTES);
    const uint64_t cpus = metal_online();

    code_va = metal_window();
    CHECK_EQUAL(metal_map(code_va, metal_maddr(code), METAL_4K, METAL_P | METAL_X), METAL_OK);
    for (uint16_t value = 1; value <= 200; value++) {
        const size_t length = metal_code_return(code, value);

        CHECK_EQUAL(be->ops->icache(be, (hvmem_uptr)code, length), HVMEM_OK);
        CHECK_EQUAL(metal_call_cpus(cpus, run_code, NULL), METAL_OK);
        for (unsigned cpu = 0; cpu < METAL_MAX_CPUS; cpu++)
            if ((cpus >> cpu & 1) != 0)
                CHECK_EQUAL(results[cpu], value);
    }
    CHECK_EQUAL(be->ops->icache(be, (hvmem_uptr)code, 0), HVMEM_OK);
    CHECK_EQUAL(be->ops->icache(be, ~(hvmem_uptr)0 - 63, 128), HVMEM_E_RANGE);
    CHECK_EQUAL(be->ops->icache_all(be, HVMEM_SCOPE_LOCAL), HVMEM_OK);
    CHECK_EQUAL(be->ops->icache_all(be, HVMEM_SCOPE_INNER), HVMEM_OK);
    CHECK_EQUAL(be->ops->icache_all(be, 99), HVMEM_E_ARG);
    metal_window_clear();
}

static void check_whole(struct hvmem_backend *be)
{
    fill();
    CHECK_EQUAL(be->ops->dcache_all(be, HVMEM_DC_CLEAN), HVMEM_OK);
    CHECK_EQUAL(be->ops->dcache_all(be, HVMEM_DC_CLEAN_INVALIDATE), HVMEM_OK);
    CHECK(holds(0, 0));
    CHECK(be->ops->dcache_all(be, HVMEM_DC_INVALIDATE) != HVMEM_OK);
}

static int cache_effects(void)
{
    struct hvmem_backend *be = subject_backend();

    area = metal_pages(AREA, METAL_PAGE_BYTES);
    (void)metal_start_cpus(NULL);
    metal_printf("%s: data line %u, code line %u, zero block %u bytes\n", subject_level(),
                 be->caps.dline, be->caps.iline, be->caps.zero_block);
    check_dcache(be);
    check_zero(be);
    check_icache(be);
    check_whole(be);
    return check_result();
}

METAL_PROGRAM(cache_effects, cache_effects);
