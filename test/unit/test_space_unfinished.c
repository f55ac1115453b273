/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Switches that are begun and not finished: the guest is kicked between hvmem_space_activate() and
 * the loading of the hardware, and another space is chosen. What the hardware still has loaded stays
 * protected until hvmem_space_entered().
 */
#include "test_machine.h"
#include "test_main.h"

#include "space.h"

static struct machine m;

static void begin(enum machine_kind kind, int cpus, int spaces, uint32_t ids)
{
    int i;

    machine_begin(&m, kind, cpus, 1, ids);
    for (i = 0; i < spaces; i++)
        machine_create(&m, i);
}

static struct hvmem_space *space_of(int index)
{
    return m.spaces[index].space;
}

/* The library's part of a switch alone. */
static hvmem_status choose(int space, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    m.acting[0] = (int)cpu;
    return hvmem_space_activate(space_of(space), cpu, &entry);
}

TEST(what_the_hardware_runs_is_not_destroyed)
{
    int kind;

    for (kind = 0; kind < MACHINE_KINDS; kind++) {
        begin((enum machine_kind)kind, 1, 3, 15);
        REQUIRE_EQ(machine_switch(&m, 0, 0), HVMEM_OK);
        REQUIRE_EQ(choose(1, 0), HVMEM_OK);
        REQUIRE_EQ(choose(2, 0), HVMEM_OK); /* 1 was never loaded: the hardware runs 0 */
        CHECK_EQ(machine_destroy(&m, 0, 0, 0), HVMEM_E_BUSY);
        CHECK_EQ(machine_destroy(&m, 0, 1, 0), HVMEM_OK);
        REQUIRE_EQ(hvmem_space_deactivate(m.ident, 0), HVMEM_OK);
        CHECK_EQ(machine_destroy(&m, 0, 0, 0), HVMEM_E_BUSY);
        REQUIRE_EQ(hvmem_space_entered(m.ident, 0), HVMEM_OK);
        CHECK_EQ(machine_destroy(&m, 0, 0, 0), HVMEM_OK);
        CHECK_EQ(machine_destroy(&m, 0, 2, 0), HVMEM_OK);
    }
    machine_free(&m);
}

TEST(what_the_hardware_runs_is_asked)
{
    hvmem_u64 words[1];
    hvmem_u64 change;
    hvmem_u32 count;

    begin(MACHINE_PCID, 1, 3, 15);
    REQUIRE_EQ(machine_switch(&m, 0, 0), HVMEM_OK);
    REQUIRE_EQ(choose(1, 0), HVMEM_OK);
    REQUIRE_EQ(choose(2, 0), HVMEM_OK);
    CHECK_EQ(hvmem_space_changed(space_of(0), &change), HVMEM_OK);
    CHECK_EQ(hvmem_space_targets(space_of(0), 0, words, 1, &count), HVMEM_OK);
    CHECK_EQ(count, 1);
    CHECK_EQ(words[0], 1);
    machine_free(&m);
}

/*
 * `choices` in a row, the last of them carried out: generations end meanwhile, and the hardware, which
 * still runs space 0, makes translations under its number.
 */
static void choose_often(enum machine_kind kind, int choices)
{
    int i;

    begin(kind, 1, choices + 1, 5);
    REQUIRE_EQ(machine_switch(&m, 0, 0), HVMEM_OK);
    for (i = 1; i <= choices; i++) {
        REQUIRE_EQ(choose(i, 0), HVMEM_OK);
        machine_speculate(&m, 64);
    }
    REQUIRE_EQ(machine_switch(&m, 0, choices), HVMEM_OK);
    for (i = 0; i < MACHINE_PAGES; i++)
        machine_access(&m, 0, i);
    CHECK_EQ(m.accesses, MACHINE_PAGES);
    CHECK_EQ(m.cross, 0);
}

TEST(its_number_is_not_handed_out)
{
    int kind, choices;

    for (kind = 0; kind < MACHINE_KINDS; kind++)
        for (choices = 1; choices < 12; choices++)
            choose_often((enum machine_kind)kind, choices);
    machine_free(&m);
}
