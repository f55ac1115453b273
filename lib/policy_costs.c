/* SPDX-License-Identifier: BSD-2-Clause */
/* policy_costs.c: costs of TLB work out of measurements, and the measurements. */
#include "backendcall.h"
#include "policy.h"

#define MOST_COST ((hvmem_u64)1 << 32)
#define STEPS     13u /* sizes 1 .. 4096 in powers of two */

/* Sums of a line fit y = base + slope * x; x <= 2^12, y <= 2^32, at most 2^8 points: below 2^64. */
struct line {
    hvmem_u64 n, x, y, xx, xy;
};

static void line_add(struct line *line, hvmem_u64 x, hvmem_u64 y)
{
    line->n++;
    line->x += x;
    line->y += y;
    line->xx += x * x;
    line->xy += x * y;
}

/* Slope and base, both at least 0; fails if all x are equal. */
static int line_fit(const struct line *line, hvmem_u64 *base, hvmem_u64 *slope)
{
    hvmem_u64 width = line->n * line->xx - line->x * line->x;
    hvmem_u64 up = line->n * line->xy, down = line->x * line->y;

    if (!width)
        return 0;
    *slope = up > down ? (up - down + width / 2) / width : 0;
    *base = line->y > *slope * line->x ? (line->y - *slope * line->x) / line->n : 0;
    return 1;
}

static hvmem_status check_sample(const struct hvmem_policy_sample *sample)
{
    if (sample->what < HVMEM_CHOOSE_SINGLES || sample->what > HVMEM_CHOOSE_ALL)
        return HVMEM_E_ARG;
    if (!sample->operations || sample->operations > HVMEM_POLICY_OPERATIONS)
        return HVMEM_E_COUNT;
    return sample->cost > MOST_COST ? HVMEM_E_RANGE : HVMEM_OK;
}

hvmem_status hvmem_policy_fit(struct hvmem_flush_costs *costs,
                              const struct hvmem_policy_sample *samples, hvmem_u32 count)
{
    struct line line[HVMEM_CHOICES];
    struct hvmem_flush_costs fit;
    const struct line *ranges = &line[HVMEM_CHOOSE_RANGES], *space = &line[HVMEM_CHOOSE_SPACE];
    const struct line *all = &line[HVMEM_CHOOSE_ALL];
    hvmem_status status;
    hvmem_u32 i;

    if (!costs || !samples)
        return HVMEM_E_ARG;
    if (count > HVMEM_POLICY_SAMPLES)
        return HVMEM_E_COUNT;
    memset(line, 0, sizeof line);
    for (i = 0; i < count; i++) {
        status = check_sample(&samples[i]);
        if (status)
            return status;
        line_add(&line[samples[i].what], samples[i].operations, samples[i].cost);
    }
    if (!space->n || !line_fit(&line[HVMEM_CHOOSE_SINGLES], &fit.batch, &fit.single))
        return HVMEM_E_COUNT;
    fit.range = fit.single;
    if (ranges->n)
        fit.range =
            ranges->y > ranges->n * fit.batch ? (ranges->y - ranges->n * fit.batch) / ranges->x : 0;
    fit.space = space->y / space->n;
    fit.all = all->n ? all->y / all->n : fit.space;
    *costs = fit;
    return HVMEM_OK;
}

/* ---- measuring ------------------------------------------------------------------------------ */

static hvmem_u64 use(const struct hvmem_policy_probe *probe)
{
    hvmem_u64 start = probe->counter(probe->ctx);

    probe->touch(probe->ctx);
    return probe->counter(probe->ctx) - start;
}

/* The least of `rounds` times of one flush; a wide one with what reloading costs more than use. */
static hvmem_status measure(struct hvmem_backend *be, const struct hvmem_policy_probe *probe,
                            const struct hvmem_tlb_flush *flush, hvmem_u64 *least)
{
    hvmem_u64 start, took, warm, again;
    hvmem_status status;
    hvmem_u32 i;

    *least = ~(hvmem_u64)0;
    for (i = 0; i < probe->rounds; i++) {
        warm = 0;
        if (probe->touch) {
            use(probe);
            warm = use(probe);
        }
        start = probe->counter(probe->ctx);
        status = hvmem__backend_tlb_flush(be, flush);
        took = probe->counter(probe->ctx) - start;
        if (status)
            return status;
        if (probe->touch && flush->what != HVMEM_FLUSH_RANGES) {
            again = use(probe);
            took += again > warm ? again - warm : 0;
        }
        if (took < *least)
            *least = took;
    }
    return HVMEM_OK;
}

static hvmem_status check_probe(const struct hvmem_policy *policy, const struct hvmem_backend *be,
                                const struct hvmem_policy_probe *probe)
{
    if (!policy || !be || !probe || !probe->counter)
        return HVMEM_E_ARG;
    if (policy->size != sizeof *policy || probe->size != sizeof *probe)
        return HVMEM_E_VERSION;
    if (probe->pages < 4 || probe->pages > HVMEM_POLICY_OPERATIONS || !probe->rounds ||
        probe->rounds > 1000)
        return HVMEM_E_COUNT;
    return HVMEM_OK;
}

/* Add the measurement of one flush to the samples. */
static hvmem_status sample(struct hvmem_backend *be, const struct hvmem_policy_probe *probe,
                           const struct hvmem_tlb_flush *flush, hvmem_u32 what, hvmem_u64 ops,
                           struct hvmem_policy_sample *to)
{
    hvmem_status status = measure(be, probe, flush, &to->cost);

    to->what = what;
    to->operations = (hvmem_u32)ops;
    return status;
}

/* Range operations that the area's first pages take; 0 where there are none. */
static hvmem_u64 range_operations(const struct hvmem_policy *policy, struct hvmem_backend *be,
                                  const struct hvmem_tlb_flush *flush)
{
    struct hvmem_policy ranges = *policy;
    struct hvmem_policy_choice choice;

    ranges.flags |= HVMEM_POLICY_COSTS;
    memset(ranges.costs, 0, sizeof ranges.costs);
    ranges.costs[0].single = ranges.costs[0].space = ranges.costs[0].all = MOST_COST;
    ranges.costs[1] = ranges.costs[0];
    if (hvmem_policy_choose(&ranges, &be->caps, flush, &choice) ||
        choice.what != HVMEM_CHOOSE_RANGES)
        return 0;
    return choice.operations;
}

/* Measure 1, 2, 4 .. pages, singly and, where they exist, by range operations. */
static hvmem_status sample_pages(const struct hvmem_policy *policy, struct hvmem_backend *be,
                                 const struct hvmem_policy_probe *probe,
                                 struct hvmem_tlb_flush *flush, struct hvmem_policy_sample *samples,
                                 hvmem_u32 *count)
{
    struct hvmem_tlb_range range;
    hvmem_status status = HVMEM_OK;
    hvmem_u64 operations;

    memset(&range, 0, sizeof range);
    range.start = probe->start;
    range.level = HVMEM_LEVEL_UNKNOWN;
    flush->ranges = &range;
    flush->count = 1;
    for (range.pages = 1; range.pages <= probe->pages && !status; range.pages *= 2) {
        flush->flags = HVMEM_TLB_SINGLES;
        status = sample(be, probe, flush, HVMEM_CHOOSE_SINGLES, range.pages, &samples[(*count)++]);
        operations = range_operations(policy, be, flush);
        flush->flags = 0;
        if (!status && operations)
            status =
                sample(be, probe, flush, HVMEM_CHOOSE_RANGES, operations, &samples[(*count)++]);
    }
    flush->ranges = HVMEM_NULL;
    flush->count = 0;
    return status;
}

hvmem_status hvmem_policy_calibrate(struct hvmem_policy *policy, struct hvmem_backend *be,
                                    const struct hvmem_policy_probe *probe)
{
    struct hvmem_policy_sample samples[2 * STEPS + 2];
    hvmem_status status = check_probe(policy, be, probe);
    struct hvmem_flush_costs costs;
    struct hvmem_tlb_flush flush;
    hvmem_u32 count = 0;

    if (status)
        return status;
    memset(&flush, 0, sizeof flush);
    flush.size = sizeof flush;
    flush.what = HVMEM_FLUSH_RANGES;
    flush.scope = (hvmem_u16)probe->scope;
    flush.space = probe->space;
    status = sample_pages(policy, be, probe, &flush, samples, &count);
    flush.what = HVMEM_FLUSH_SPACE;
    if (!status)
        status = sample(be, probe, &flush, HVMEM_CHOOSE_SPACE, 1, &samples[count++]);
    flush.what = HVMEM_FLUSH_ALL;
    if (!status)
        status = sample(be, probe, &flush, HVMEM_CHOOSE_ALL, 1, &samples[count++]);
    if (!status)
        status = hvmem_policy_fit(&costs, samples, count);
    if (status)
        return status;
    policy->costs[probe->space.regime == HVMEM_REGIME_STAGE2] = costs;
    policy->flags |= HVMEM_POLICY_COSTS;
    policy->max_operations = HVMEM_POLICY_OPERATIONS;
    return HVMEM_OK;
}
