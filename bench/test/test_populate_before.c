/* SPDX-License-Identifier: BSD-2-Clause */
/* The reports' allocator as events: when it flushes, whom it asks, what makes it slow. */
#include "bench/reference/populate_before.h"
#include "test_main.h"

static struct before before;
static struct hvmem_sim_costs costs;

static void allocate(unsigned cpus, double rate, int live, unsigned count)
{
    hvmem_sim_costs_default(&costs);
    before_init(&before, &costs, cpus, rate);
    while (count--)
        before_allocate(&before, 0, live);
}

TEST(frames_freed_before_cost_one_flush)
{
    allocate(128, 0, 0, 5000);
    CHECK_EQ(before.flushes, 1);
    CHECK_EQ(before.asked, 128);
    CHECK_EQ(hvmem_sim_bill_price(&before.bill, &costs), before.now);
}

TEST(frames_given_back_meanwhile_cost_a_flush_each_time_round)
{
    allocate(128, 0, 1, 10 * BEFORE_LAG);
    CHECK_EQ(before.flushes, 10);
    CHECK_EQ(before.asked, 10 * 128);
}

TEST(cpus_that_switch_are_asked_less_and_read_dearer)
{
    allocate(128, 1e6, 1, 5000);
    CHECK(before.asked < 2000);
    CHECK(before.bill.count[HVMEM_SIM_LINE] > 5000 * 60);
}

TEST(the_scan_of_all_cpus_is_what_takes_the_time)
{
    double many, few;

    hvmem_sim_costs_default(&costs);
    before_init(&before, &costs, 128, 1e5);
    many = before_seconds(&before, 0, 0, 1e6, 20000);
    before_init(&before, &costs, 4, 1e5);
    few = before_seconds(&before, 0, 0, 1e6, 20000);
    CHECK(many > 10 * few);
}
