/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of the range policy: what the choice costs against the best one, at every size, on models of
 * two machines. The models are tables of published timings, between whose points lines are drawn; user
 * space can issue no TLB operation. Costs are fitted on half of the sizes and judged on the others.
 */
#include "bench/common/figure.h"

#include <hvmem/policy.h>

#include <string.h>

#define SIZES 62u

struct point {
    double pages, cost;
};

/* A machine: batches of single operations, of range operations, whole flush with what it costs later. */
struct model {
    const char *name;
    const struct point *singles, *ranges;
    double whole;
    hvmem_u64 features, max_range_pages;
    hvmem_u32 regime;
};

/*
 * x86, cycles: batches by INVLPG as traced by Linux on Ivy Bridge, 9, 17 and 33 pages and one page without
 * the bias of tracing; 2283 for the whole and 22,000 to load a dTLB of 512 entries again (D. Hansen, I.
 * Molnar, linux-kernel, 2014 and 2015). No range operations.
 */
static const struct point x86_singles[] = {{1, 941},   {9, 2954},      {17, 5138},
                                           {33, 8199}, {1024, 197791}, {0, 0}};

/*
 * arm64, the units of the source: TLBI by page and by range with 1 to 512 pages (Zhenyu Ye, linux-arm-
 * kernel, July 2020). The whole: one operation, as a range of any size, and 512 entries loaded again
 * at the 45 cycles a miss that Ivy Bridge takes, for want of a figure for arm64.
 */
static const struct point arm64_singles[] = {{1, 16051},     {8, 12837},    {32, 26983},
                                             {64, 43840},    {256, 145514}, {512, 280932},
                                             {1024, 551768}, {0, 0}};
static const struct point arm64_ranges[] = {{1, 13524},   {8, 11097},   {32, 11079},   {64, 11092},
                                            {256, 11089}, {512, 11111}, {1024, 11111}, {0, 0}};

static const double arm64_further = 529;

static const struct model models[] = {
    {"x86", x86_singles, NULL, 2283 + 22000, HVMEM_CAP_ICOHERENT, 0, HVMEM_REGIME_USER},
    {"arm64 without ranges", arm64_singles, NULL, 11100 + 512 * 45, HVMEM_CAP_BROADCAST, 0,
     HVMEM_REGIME_USER},
    {"arm64 with ranges", arm64_singles, arm64_ranges, 11100 + 512 * 45,
     HVMEM_CAP_BROADCAST | HVMEM_CAP_RANGE, 1ull << 21, HVMEM_REGIME_USER},
};
#define MODELS (sizeof models / sizeof models[0])

static double at(const struct point *points, double pages)
{
    while (points[1].pages > 0 && points[1].pages < pages)
        points++;
    if (points[1].pages <= 0)
        return points->cost;
    return points[0].cost + (pages - points[0].pages) * (points[1].cost - points[0].cost) /
                                (points[1].pages - points[0].pages);
}

/*
 * What a decision costs on the machine. A further range operation of a batch costs what a further
 * single one does, 529 by the table: both are one message to the other CPUs.
 */
static double cost(const struct model *model, hvmem_u32 what, hvmem_u64 pages, hvmem_u64 operations)
{
    if (what == HVMEM_CHOOSE_SINGLES)
        return at(model->singles, (double)pages);
    if (what == HVMEM_CHOOSE_RANGES)
        return at(model->ranges, (double)pages) + ((double)operations - 1) * arm64_further;
    return model->whole;
}

static struct hvmem_backend_caps caps_of(const struct model *model)
{
    struct hvmem_backend_caps caps;

    memset(&caps, 0, sizeof caps);
    caps.size = sizeof caps;
    caps.page_shift = 12;
    caps.features = model->features;
    caps.max_range_pages = model->max_range_pages;
    return caps;
}

/* Sizes 1 .. 1047, about a twelfth apart. */
static hvmem_u64 size_of(unsigned i)
{
    hvmem_u64 size = 1;

    while (i--)
        size += size / 12 + 1;
    return size;
}

/* One request for so many pages, decided. */
static struct hvmem_policy_choice choose(const struct model *model,
                                         const struct hvmem_policy *policy, hvmem_u64 pages)
{
    struct hvmem_backend_caps caps = caps_of(model);
    struct hvmem_tlb_range range = {.start = 1ull << 33, .pages = pages, .level = 3};
    struct hvmem_tlb_flush flush = {.size = sizeof flush, .scope = HVMEM_SCOPE_INNER};
    struct hvmem_policy_choice choice;

    flush.space.regime = model->regime;
    flush.ranges = &range;
    flush.count = 1;
    FIGURE_REQUIRE(hvmem_policy_choose(policy, &caps, &flush, &choice) == HVMEM_OK);
    return choice;
}

/* Range operations that so many pages take; 0: singles are not more, or there are none. */
static hvmem_u64 range_operations(const struct model *model, hvmem_u64 pages)
{
    struct hvmem_backend_caps caps = caps_of(model);
    struct hvmem_policy thresholds;
    struct hvmem_policy_choice choice;

    FIGURE_REQUIRE(hvmem_policy_default(&thresholds, &caps) == HVMEM_OK);
    choice = choose(model, &thresholds, pages);
    return choice.what == HVMEM_CHOOSE_RANGES ? choice.operations : 0;
}

/* Most that the policy's choice costs over the best one, over the odd sizes. */
static double regret(const struct model *model, const struct hvmem_policy *policy)
{
    double worst = 1;
    unsigned i;

    for (i = 1; i < SIZES; i += 2) {
        hvmem_u64 pages = size_of(i), operations = range_operations(model, pages);
        struct hvmem_policy_choice choice = choose(model, policy, pages);
        double best = model->whole, chosen = cost(model, choice.what, pages, choice.operations);

        if (cost(model, HVMEM_CHOOSE_SINGLES, pages, pages) < best)
            best = cost(model, HVMEM_CHOOSE_SINGLES, pages, pages);
        if (operations && cost(model, HVMEM_CHOOSE_RANGES, pages, operations) < best)
            best = cost(model, HVMEM_CHOOSE_RANGES, pages, operations);
        worst = chosen / best > worst ? chosen / best : worst;
    }
    return worst;
}

static struct hvmem_policy_sample sample(const struct model *model, hvmem_u32 what, hvmem_u64 pages,
                                         hvmem_u64 operations)
{
    struct hvmem_policy_sample sample = {what, (hvmem_u32)operations,
                                         (hvmem_u64)cost(model, what, pages, operations)};

    return sample;
}

/* Costs as a host would fit them, from the even sizes. */
static void fit(const struct model *model, struct hvmem_policy *policy)
{
    struct hvmem_policy_sample samples[HVMEM_POLICY_SAMPLES];
    hvmem_u32 count = 0;
    unsigned i;

    for (i = 0; i < SIZES; i += 2) {
        hvmem_u64 pages = size_of(i), operations = range_operations(model, pages);

        samples[count++] = sample(model, HVMEM_CHOOSE_SINGLES, pages, pages);
        if (operations)
            samples[count++] = sample(model, HVMEM_CHOOSE_RANGES, pages, operations);
    }
    samples[count++] = sample(model, HVMEM_CHOOSE_SPACE, 1, 1);
    FIGURE_REQUIRE(hvmem_policy_fit(&policy->costs[0], samples, count) == HVMEM_OK);
    policy->flags |= HVMEM_POLICY_COSTS;
    policy->max_operations = HVMEM_POLICY_OPERATIONS;
}

static double worst_of_models(int fitted)
{
    double worst = 1;
    unsigned m;

    for (m = 0; m < MODELS; m++) {
        struct hvmem_backend_caps caps = caps_of(&models[m]);
        struct hvmem_policy policy;
        double value;

        FIGURE_REQUIRE(hvmem_policy_default(&policy, &caps) == HVMEM_OK);
        if (fitted)
            fit(&models[m], &policy);
        value = regret(&models[m], &policy);
        figure_comment("policy: %s %.3f (model of published timings)", models[m].name, value);
        worst = value > worst ? value : worst;
    }
    return worst;
}

FIGURE(
    policy_regret, "policy.regret", "ratio",
    "cost of the chosen flush / best, worst size and modelled machine; costs fitted on other sizes")
{
    return worst_of_models(1);
}

FIGURE(policy_regret_defaults, "policy.regret_defaults", "ratio",
       "the same with the thresholds a policy starts with")
{
    return worst_of_models(0);
}
