/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * protect: a guest that runs on every CPU loses a right to its pages (hvmem_stage2_protect). With the
 * invalidation claimed and not executed its vCPUs go on writing (negative control); with it every write
 * faults, on every CPU, and reads go on. By a range in one call, page by page, and through a gather of the
 * caller. Needs EL2.
 */
#include <hvmem/gather.h>

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/stage2_rig.h"

#define ROUNDS 20u

static unsigned written, denied; /* atomic */

static void write_word(void *at)
{
    *(volatile uint64_t *)at = moves.word;
    (void)metal_guest_hvc(METAL_HVC_CALL, 0);
}

static void write_all(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        uint64_t none;

        if (rig_runs(&rig.vm, rig.vm.vttbr, write_word, i, &none))
            __atomic_fetch_add(&written, 1, __ATOMIC_RELAXED);
        else
            __atomic_fetch_add(&denied, 1, __ATOMIC_RELAXED);
    }
}

/* Writes that all CPUs together get through. */
static unsigned writes(void)
{
    written = denied = 0;
    moves.word++;
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), write_all, NULL), METAL_OK);
    CHECK_EQUAL(written + denied, MOVE_FRAMES * moves.cpus);
    return written;
}

static int protect(hvmem_gfn gfn, hvmem_u64 frames, hvmem_u32 rights, struct hvmem_gather *gather)
{
    hvmem_u64 done = 0;

    return CHECK_EQUAL(hvmem_stage2_protect(rig.vm.s2, gfn, frames, rights, gather, &done),
                       HVMEM_OK) &&
           CHECK_EQUAL(done, frames);
}

/* ---- ways to take the right; each flushes that often ---- */

static int by_range(void)
{
    return protect(rig.first, MOVE_FRAMES, HVMEM_S2_R, NULL);
}

static int by_page(void)
{
    int good = 1;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= protect(rig.first + i, 1, HVMEM_S2_R, NULL);
    return good;
}

static int by_gather(void)
{
    static struct hvmem_gather gather;
    int good = hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.vm.s2), 0,
                                  rig.first << METAL_PAGE_SHIFT,
                                  MOVE_FRAMES << METAL_PAGE_SHIFT) == HVMEM_OK;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= protect(rig.first + i, 1, HVMEM_S2_R, &gather);
    CHECK_EQUAL(moves.batches, 0);
    CHECK_EQUAL(writes(), MOVE_FRAMES * moves.cpus); /* not before it is finished */
    return good & (hvmem_gather_finish(&gather) == HVMEM_OK);
}

struct way {
    const char *name;
    int (*take)(void);
    unsigned batches;
};

/* All rights, every CPU holds a translation that writes. */
static void begin(void)
{
    moves.executes = 1;
    CHECK(protect(rig.first, MOVE_FRAMES, HVMEM_S2_RWX, NULL));
    CHECK_EQUAL(writes(), MOVE_FRAMES * moves.cpus);
    moves.batches = 0;
}

static void check_denied(void)
{
    uint64_t value = 0;
    hvmem_u32 outcome = 0;

    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        CHECK_EQUAL(hvmem_stage2_fault(rig.vm.s2, (rig.first + i) << METAL_PAGE_SHIFT, HVMEM_S2_W,
                                       &outcome),
                    HVMEM_OK);
        CHECK_EQUAL(outcome, HVMEM_FAULT_RIGHTS);
        CHECK(rig_reads(i, &value));
        CHECK_EQUAL(value, moves.word - 1); /* of the last writes that got through */
    }
}

static void run(const struct way *w)
{
    unsigned stale = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        begin();
        moves.executes = 0;
        CHECK(w->take());
        CHECK_EQUAL(moves.batches, w->batches);
        stale += writes();

        begin();
        CHECK(w->take());
        CHECK_EQUAL(moves.batches, w->batches);
        CHECK_EQUAL(writes(), 0);
        check_denied();
    }
    metal_printf("el2 protect, %s: writes without the flush %u of %u, with it 0\n", w->name, stale,
                 ROUNDS * MOVE_FRAMES * moves.cpus);
    CHECK(stale >= ROUNDS * MOVE_FRAMES * moves.cpus / 2);
}

static int protect_program(void)
{
    static const struct way ways[] = {
        {"a range", by_range, 1},
        {"page by page", by_page, MOVE_FRAMES},
        {"gathered", by_gather, 1},
    };

    if (!is_plain_el2())
        return rig_refused();
    if (!rig_make() || !CHECK(move_take(moves.a, 0)))
        return check_result();
    rig_map();
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++)
        run(&ways[i]);
    rig_end();
    return check_result();
}

METAL_PROGRAM(protect, protect_program);
