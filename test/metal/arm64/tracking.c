/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tracking: access tracking of a guest on every CPU. Arming without its flush leaves each CPU reading
 * through what its TLB holds (negative control); with it, each page faults once, on whichever CPU
 * touches it first, and the pages counted as touched are exactly those. Set/way operations of the
 * guest trap and clean exactly the touched pages, and no vCPU can touch a page unseen between its
 * re-arming and its cleaning. Needs EL2.
 */
#include <hvmem/track.h>

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/stage2_rig.h"

#define ROUNDS 20u

static unsigned faults; /* atomic: of the pages that are looked at */

static int arm(void)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    while ((status = hvmem_track_arm(rig.vm.s2, &cursor)) == HVMEM_AGAIN)
        ;
    return status == HVMEM_OK;
}

static uint64_t touched(void)
{
    hvmem_u64 frames = 0;

    CHECK_EQUAL(hvmem_track_age(rig.vm.s2, rig.first, MOVE_FRAMES, 0, &frames), HVMEM_OK);
    return frames;
}

/* This CPU's vCPU reads the page; a fault is taken by the library and the read made again. */
static void touch(void *arg)
{
    const unsigned i = *(const unsigned *)arg;
    uint64_t value;

    if (rig_reads(i, &value))
        return;
    __atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
    CHECK_EQUAL(vm_abort(&rig.vm, (rig.first + i) << METAL_PAGE_SHIFT, METAL_ACCESS_READ), 0);
    if (!rig_reads(i, &value)) { /* the first of a table was pushed down to it */
        CHECK_EQUAL(vm_abort(&rig.vm, (rig.first + i) << METAL_PAGE_SHIFT, METAL_ACCESS_READ), 0);
        CHECK(rig_reads(i, &value));
    }
}

static void forget(void *arg)
{
    (void)arg;
    metal_flush_own();
}

/* ---- arming ---- */

static void check_arming(void)
{
    unsigned stale = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), forget, NULL), METAL_OK);
        CHECK_EQUAL(move_stale(move_all_cpus()), MOVE_FRAMES * moves.cpus);
        moves.executes = 0;
        CHECK(arm());
        stale += move_stale(move_all_cpus());
        CHECK_EQUAL(touched(), 0); /* what was read there is lost to the record */
        moves.executes = 1;
        CHECK(arm());
        CHECK_EQUAL(move_stale(move_all_cpus()), 0);
        for (unsigned i = 0; i < MOVE_FRAMES; i++) {
            unsigned cpu = (round + i) % moves.cpus;

            faults = 0;
            CHECK_EQUAL(metal_call_cpus(1ull << cpu, touch, &i), METAL_OK);
            CHECK_EQUAL(faults, 1);
            CHECK_EQUAL(touched(), i + 1);
            CHECK_EQUAL(metal_call_cpus(move_all_cpus(), touch, &i), METAL_OK);
            CHECK_EQUAL(faults, 1); /* for all CPUs together */
        }
    }
    metal_printf("tracking: armed without the flush: %u of %u reads unseen\n", stale,
                 ROUNDS * MOVE_FRAMES * moves.cpus);
    CHECK(stale >= ROUNDS * MOVE_FRAMES * moves.cpus / 2);
}

/* ---- set/way ---- */

static hvmem_status (*machine_dcache)(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                                      hvmem_size bytes);
static uint64_t cleaned; /* bytes of the pages that are looked at */
static unsigned
    unseen; /* of them, pages that a vCPU reached without a fault when they were cleaned */

static hvmem_status spy_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                               hvmem_size bytes)
{
    for (unsigned i = 0; i < MOVE_FRAMES; i++) {
        uint64_t value;

        if (addr >> METAL_PAGE_SHIFT != moves.frame[i])
            continue;
        cleaned += bytes;
        unseen += (unsigned)rig_reads(i, &value);
    }
    return machine_dcache(be, op, addr, bytes);
}

static void do_setway(void *arg)
{
    (void)arg;
    __asm__ volatile("dc cisw, %0" ::"r"(0ull) : "memory");
}

static struct hvmem_track_progress progress;
static unsigned emulated;

static int on_exit(void *context, struct metal_vcpu *v, const struct metal_guest_exit *e)
{
    struct hvmem_cursor cursor = {{0, 0, 0, 0}};
    hvmem_status status;

    (void)context;
    if (e->kind != METAL_EXIT_SYSREG || e->op.crn != 7 || e->op.crm != 14 || e->op.op2 != 2)
        return METAL_GUEST_UNHANDLED;
    while ((status = hvmem_track_setway(rig.vm.s2, 0, &cursor, &progress)) == HVMEM_AGAIN)
        ;
    CHECK_EQUAL(status, HVMEM_OK);
    emulated++;
    v->pc += 4;
    return 0;
}

static void guest_sets_way(void)
{
    static struct metal_vcpu v;
    const struct hvmem_track_progress none = {0, 0, 0};

    cleaned = 0;
    emulated = unseen = 0;
    progress = none;
    CHECK(vm_vcpu(&rig.vm, &v, do_setway, NULL));
    v.hcr |= METAL_HCR_TSW;
    CHECK_EQUAL(metal_guest_call(&v, on_exit, NULL), METAL_OK);
    CHECK_EQUAL(emulated, 1);
    CHECK_EQUAL(unseen, 0);
}

static void check_setway(void)
{
    machine_dcache = moves.backend_ops.dcache;
    moves.backend_ops.dcache = spy_dcache;
    CHECK(arm());
    for (unsigned pages = 0; pages <= MOVE_FRAMES; pages++) {
        for (unsigned i = 0; i < pages; i++)
            CHECK_EQUAL(metal_call_cpus(1ull << i % moves.cpus, touch, &i), METAL_OK);
        CHECK_EQUAL(touched(), pages);
        guest_sets_way();
        CHECK_EQUAL(cleaned, pages * (uint64_t)METAL_PAGE_BYTES);
        CHECK_EQUAL(progress.cleaned, progress.noted);
        CHECK_EQUAL(touched(), 0);
        guest_sets_way(); /* nothing of them was touched since */
        CHECK_EQUAL(cleaned, 0);
    }
    moves.backend_ops.dcache = machine_dcache;
    metal_printf("tracking: set/way operations clean what was touched, and that once\n");
}

static int tracking(void)
{
    if (!is_plain_el2())
        return rig_refused();
    if (!rig_make() || !CHECK(move_take(moves.a, 0)))
        return check_result();
    rig_map();
    move_write();
    check_arming();
    check_setway();
    rig_end();
    return check_result();
}

METAL_PROGRAM(tracking, tracking);
