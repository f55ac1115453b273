/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage2_moves: the frames of moves.h belong to a guest that runs on every CPU, mapped by the library's
 * stage 2; each way to take them from it goes through a gather. With the invalidation claimed and not
 * executed the guest still reads what the new owner writes, with it no vCPU does. Needs EL2; an image at
 * EL1 has nothing to show.
 */
#include <hvmem/gather.h>

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/stage2_rig.h"

/* ---- ways to take them ---- */

static int free_all(struct hvmem_gather *gather)
{
    int good = 1;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_gather_free(gather, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    return good;
}

/* One after the other, in one gather of the caller; the frames are freed by it. */
static int give_gathered(void)
{
    static struct hvmem_gather gather;
    struct hvmem_mapping *mapping = hvmem_stage2_mapping(rig.vm.s2);
    int good = hvmem_gather_begin(&gather, mapping, 0, rig.first << METAL_PAGE_SHIFT,
                                  MOVE_FRAMES << METAL_PAGE_SHIFT) == HVMEM_OK;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_stage2_unmap(rig.vm.s2, rig.first + i, 1, &gather, NULL) == HVMEM_OK;
    good &= free_all(&gather);
    CHECK_EQUAL(moves.batches, 0);
    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    return good & (hvmem_gather_finish(&gather) == HVMEM_OK);
}

static int give_whole(void)
{
    static struct hvmem_gather gather;
    int good = hvmem_gather_begin(&gather, hvmem_stage2_mapping(rig.vm.s2), HVMEM_GATHER_WHOLE, 0,
                                  0) == HVMEM_OK;

    good &= hvmem_stage2_unmap(rig.vm.s2, rig.first, MOVE_FRAMES, &gather, NULL) == HVMEM_OK;
    good &= free_all(&gather);
    good &= hvmem_gather_finish(&gather) == HVMEM_OK;
    CHECK_EQUAL(moves.what, 1u << HVMEM_FLUSH_SPACE);
    return good;
}

/* A range in one call that flushes; the frames are freed as owing, and the allocation pays again. */
static int give_range(void)
{
    int good = hvmem_stage2_unmap(rig.vm.s2, rig.first, MOVE_FRAMES, NULL, NULL) == HVMEM_OK;

    CHECK_EQUAL(moves.what, 1u << HVMEM_FLUSH_RANGES);
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_free_owned(moves.heap, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    return good;
}

static int give_singly(void)
{
    int good = 1;

    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_stage2_unmap(rig.vm.s2, rig.first + i, 1, NULL, NULL) == HVMEM_OK;
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_free_owned(moves.heap, moves.frame[i], 0, moves.a, 0) == HVMEM_OK;
    return good;
}

static int take_freed(void)
{
    return move_take(moves.running, 0);
}

static int stage2_moves(void)
{
    /* A by-IPA batch drags the whole of the guest's rig.first stage along: one batch is one call. */
    const struct path paths[] = {
        {"guest, gathered", give_gathered, take_freed, {0, 0}, {0, 0}, {0, 1}, 0},
        {"guest, whole", give_whole, take_freed, {0, 0}, {0, 0}, {0, 1}, 0},
        {"guest, a range", give_range, take_freed, {0, 1}, {0, 0}, {0, 2}, 0},
        {"guest, page by page", give_singly, take_freed, {0, 1}, {0, 0}, {0, MOVE_FRAMES + 1}, 0},
    };

    if (!is_plain_el2())
        return rig_refused();
    if (!rig_make())
        return check_result();
    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        move_run(&paths[i]);
    rig_end();
    return check_result();
}

METAL_PROGRAM(stage2_moves, stage2_moves);
