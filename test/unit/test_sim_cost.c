/* SPDX-License-Identifier: BSD-2-Clause */
/* The cost model: every event has a value and a source; batches are billed as the back-ends issue them. */
#include "backends/sim/cost.h"
#include "test_main.h"

#include <string.h>

TEST(every_event_has_a_value_and_a_source)
{
    struct hvmem_sim_costs costs;
    unsigned i, j;

    hvmem_sim_costs_default(&costs);
    for (i = 0; i < HVMEM_SIM_EVENTS; i++) {
        CHECK(costs.ps[i] != 0);
        CHECK(strlen(hvmem_sim_cost_name((enum hvmem_sim_event)i)) > 2);
        CHECK(strlen(hvmem_sim_cost_source((enum hvmem_sim_event)i)) > 10);
        for (j = 0; j < i; j++)
            CHECK(strcmp(hvmem_sim_cost_name((enum hvmem_sim_event)i),
                         hvmem_sim_cost_name((enum hvmem_sim_event)j)) != 0);
    }
    CHECK_EQ(strcmp(hvmem_sim_cost_name(HVMEM_SIM_EVENTS), "unknown"), 0);
}

TEST(a_bill_is_the_sum_of_its_events)
{
    struct hvmem_sim_costs costs;
    struct hvmem_sim_bill bill;

    hvmem_sim_costs_default(&costs);
    hvmem_sim_bill_clear(&bill);
    CHECK_EQ(hvmem_sim_bill_price(&bill, &costs), 0);
    hvmem_sim_bill_shootdown(&bill, 0);
    CHECK_EQ(hvmem_sim_bill_price(&bill, &costs), 0);
    hvmem_sim_bill_shootdown(&bill, 128);
    hvmem_sim_bill_add(&bill, HVMEM_SIM_STEP, 10);
    CHECK_EQ(hvmem_sim_bill_price(&bill, &costs),
             costs.ps[HVMEM_SIM_IPI_CALL] + 128 * costs.ps[HVMEM_SIM_IPI_CPU] +
                 costs.ps[HVMEM_SIM_FULL_FLUSH] + 10 * costs.ps[HVMEM_SIM_STEP]);
    hvmem_sim_costs_scale(&costs, HVMEM_SIM_STEP, 1, 2);
    CHECK_EQ(costs.ps[HVMEM_SIM_STEP], 500);
}

/* TLBI and DSB of one request for `pages` pages of 2^shift bytes; x86: operations in *ops. */
static void check(hvmem_u64 features, hvmem_u64 quirks, hvmem_u32 regime, hvmem_u64 pages,
                  unsigned shift, hvmem_u64 ops, hvmem_u64 barriers)
{
    struct hvmem_backend_caps caps = {.size = sizeof caps, .page_shift = 12};
    struct hvmem_tlb_range range = {.pages = pages, .stride_shift = (hvmem_u8)shift};
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .ranges = &range, .count = 1};
    struct hvmem_sim_bill bill;

    caps.features = features;
    caps.quirks = quirks;
    caps.max_range_pages = features & HVMEM_CAP_RANGE ? 1u << 21 : 0;
    flush.space.regime = regime;
    hvmem_sim_bill_clear(&bill);
    hvmem_sim_bill_flush(&bill, &caps, &flush);
    if (features & HVMEM_CAP_BROADCAST) {
        CHECK_EQ(bill.count[HVMEM_SIM_TLBI], ops);
        CHECK_EQ(bill.count[HVMEM_SIM_DSB], barriers);
    } else {
        CHECK_EQ(bill.count[HVMEM_SIM_INVLPG], ops);
    }
}

TEST(batches_are_billed_as_they_are_issued)
{
    const hvmem_u64 ranges = HVMEM_CAP_BROADCAST | HVMEM_CAP_RANGE;

    check(HVMEM_CAP_BROADCAST, 0, HVMEM_REGIME_USER, 5, 12, 5, 1);
    check(ranges, 0, HVMEM_REGIME_USER, 1, 12, 1, 1);
    check(ranges, 0, HVMEM_REGIME_USER, 512, 12, 1, 1);
    check(ranges, 0, HVMEM_REGIME_USER, 1 << 21, 12, 1, 1);
    check(ranges, 0, HVMEM_REGIME_USER, (1 << 21) + 1, 12, 2, 1);
    check(ranges, 0, HVMEM_REGIME_USER, (1 << 21) - 1, 12, 5, 1);
    check(ranges, HVMEM_QUIRK_REPEAT_TLBI, HVMEM_REGIME_STAGE2, 1 << 18, 12, 3, 3);
    check(ranges, 0, HVMEM_REGIME_STAGE2, 1, 12, 2, 2);
    check(ranges, 0, HVMEM_REGIME_USER, 1 << 18, 30, 1, 1);
    check(0, 0, HVMEM_REGIME_USER, 1024, 21, 2, 0);
    check(0, 0, HVMEM_REGIME_USER, 33, 12, 33, 0);
}
