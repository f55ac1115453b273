/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_teardown: domain A is a guest with its own stage 2 that runs on every CPU; its teardown flushes its
 * VMID, frees its tables and its frames, and B gets them by allocation and by populate. Afterwards a vCPU
 * looks through A's VMID on another guest's tables, which map nothing there, as the next guest would to
 * which the number is given: without the flush it reads what B writes, with it no CPU does. Needs EL2.
 */
#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/stage2_rig.h"

#define VMID_MASK 0xFFFF000000000000ull

static struct vm guest; /* A */
static int is_gone;

static int reads(unsigned i, uint64_t *value)
{
    if (!is_gone)
        return rig_runs(&guest, guest.vttbr, rig_read_word, i, value);
    return rig_runs(&rig.vm, (rig.vm.vttbr & ~VMID_MASK) | (guest.vttbr & VMID_MASK), rig_read_word,
                    i, value);
}

static void map(void)
{
    struct vm_options options = rig_options();
    struct hvmem_domain_ops ops;

    options.domain = moves.a;
    CHECK(vm_make(&guest, &options) && vm_map_image(&guest));
    CHECK_EQUAL(hvmem_stage2_unmap(guest.s2, rig.first, MOVE_FRAMES, NULL, NULL), HVMEM_OK);
    rig_map_in(&guest);
    hvmem_stage2_ops(&ops);
    CHECK_EQUAL(hvmem_domain_attach(moves.a, &ops, guest.s2, guest.space), HVMEM_OK);
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), vm_load, &guest), METAL_OK);
    is_gone = 0;
}

/* An emulator forgets a VMID that is left, so it stays in VTTBR_EL2. */
static void leave(void *arg)
{
    vm_unload(arg, 0);
}

static int give(void)
{
    struct hvmem_domain_stats stats;
    int good;

    CHECK_EQUAL(hvmem_domain_stats(moves.a, &stats), HVMEM_OK);
    CHECK(stats.pages > MOVE_FRAMES + 2); /* its tables are its own */
    CHECK_EQUAL(metal_call_cpus(move_all_cpus(), leave, &guest), METAL_OK);
    good = move_tear_down();
    is_gone = 1;
    CHECK_EQUAL(moves.what, 1u << HVMEM_FLUSH_SPACE);
    return good;
}

static int take(void)
{
    return move_take(moves.running, 0);
}

static int take_populated(void)
{
    int good;

    rig_hold_others();
    good = move_populate();
    rig_release_others();
    return good;
}

static int stage2_teardown(void)
{
    const struct path paths[] = {
        {"guest torn down", give, take, {0, 0}, {0, 0}, {0, 1}, 0},
        {"guest torn down, populated", give, take_populated, {0, 0}, {0, 0}, {0, 1}, 0},
    };

    if (!is_plain_el2())
        return rig_refused();
    if (!rig_make())
        return check_result();
    rig_end();
    moves.map = map;
    moves.reads = reads;
    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        move_run(&paths[i]);
    CHECK_EQUAL(moves.host.reports, 0);
    return check_result();
}

METAL_PROGRAM(stage2_teardown, stage2_teardown);
