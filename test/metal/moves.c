/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * moves: frames go from domain A to domain B by every way the library has, while all CPUs hold A's
 * translations in their real TLBs and call each other by real interrupts. Each way runs twice: with
 * the invalidation claimed and not executed A still reads what B writes (negative control), with it
 * no CPU does. How many flushes are made, and whom they ask, is compared exactly.
 */
#include "test/metal/moves.h"

#include "test/metal/subject.h"

/* ---- immediate: the allocation pays ---- */

static int take_running(void)
{
    return move_take(moves.running, 0);
}

/* ---- deferred: the debt stays visible until it is settled ---- */

static int take_deferred(void)
{
    int good = move_take(moves.building, HVMEM_REQ_DEFER_TLB);

    move_write();
    CHECK(move_stale(move_all_cpus()) >= MOVE_FRAMES * moves.cpus / 2);
    for (unsigned i = 0; i < MOVE_FRAMES; i++)
        good &= hvmem_settle(moves.heap, moves.frame[i], 1, HVMEM_OWES_TLB) == HVMEM_OK;
    return good;
}

/* ---- filtered: CPUs that flushed since are left alone ---- */

#define ODD_CPUS 0xAAAAAAAAAAAAAAAAull

static void bracketed_flush(void *arg)
{
    struct hvmem_flush_token token;

    (void)arg;
    CHECK_EQUAL(hvmem_flush_begin(moves.heap, HVMEM_SCOPE_LOCAL, 0, &token), HVMEM_OK);
    metal_flush_own();
    CHECK_EQUAL(hvmem_flush_end(moves.heap, &token), HVMEM_OK);
}

static int free_and_flush_odd(void)
{
    const int good = move_free();

    CHECK_EQUAL(metal_call_cpus(move_all_cpus() & ODD_CPUS, bracketed_flush, NULL), METAL_OK);
    return good;
}

/* As above; with IPIs the CPUs asked are exactly those that did not flush. */
static int take_filtered(void)
{
    const int good = move_take(moves.running, 0);

    if (!(moves.backend.caps.features & HVMEM_CAP_BROADCAST))
        CHECK_EQUAL(moves.asked, move_all_cpus() & ~ODD_CPUS);
    return good;
}

/* The host flushes all CPUs by one bracket: the library has nothing left to do, and does nothing. */
static void forget_all(void *arg)
{
    (void)arg;
    metal_flush_own();
}

static int free_and_flush_all(void)
{
    const int good = move_free();
    struct hvmem_flush_token token;

    CHECK_EQUAL(hvmem_flush_begin(moves.heap, HVMEM_SCOPE_INNER, 0, &token), HVMEM_OK);
    if (moves.executes)
        CHECK_EQUAL(metal_call_cpus(move_all_cpus(), forget_all, NULL), METAL_OK);
    CHECK_EQUAL(hvmem_flush_end(moves.heap, &token), HVMEM_OK);
    return good;
}

/* flushes, CPUs asked and batches of a round: {without broadcast, with it}. */
static void run_debts(void)
{
    const uint64_t cpus = moves.cpus, even = (moves.cpus + 1) / 2;
    const uint64_t odd = move_all_cpus() & ODD_CPUS;
    const struct path paths[] = {
        {"immediate", move_free, take_running, {1, 1}, {cpus, 0}, {cpus, 1}, 0},
        {"deferred", move_free, take_deferred, {1, 1}, {cpus, 0}, {cpus, 1}, 0},
        {"filtered", free_and_flush_odd, take_filtered, {1, 1}, {even, 0}, {even, 1}, odd},
        {"flushed by the host", free_and_flush_all, take_running, {0, 0}, {0, 0}, {0, 0}, 0},
    };

    for (unsigned i = 0; i < sizeof paths / sizeof paths[0]; i++)
        move_run(&paths[i]);
}

static int run_moves(void)
{
    uint32_t id;

    if (!move_start())
        return check_result();
    run_debts();
    move_run_built();
    move_run_torn_down();
    /* At EL2 the window is of no guest: stage2_moves goes through gathers there. */
    if (subject_user_space(&id))
        move_run_gathered();
    metal_window_clear();
    CHECK_EQUAL(moves.host.reports, 0);
    return check_result();
}

METAL_PROGRAM(moves, run_moves);
