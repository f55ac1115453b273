/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The range policy: thresholds of each kind of machine, counts as the back-ends issue them, choices
 * against brute force, costs out of measurements, bad input.
 */
#include "backends/arm64/encode.h"
#include "policy.h"
#include "test_main.h"

#include <string.h>

#define ARM64      (HVMEM_CAP_BROADCAST | HVMEM_CAP_STAGE2 | HVMEM_CAP_STAGE2_RANGE | HVMEM_CAP_GUEST)
#define ARM64_TLBI (ARM64 | HVMEM_CAP_RANGE)
#define X86        (HVMEM_CAP_ICOHERENT | HVMEM_CAP_STAGE2 | HVMEM_CAP_GUEST)
#define INVLPGB    (X86 | HVMEM_CAP_BROADCAST | HVMEM_CAP_RANGE)
#define BIG        (1ull << 21)

/* A machine and its default policy, and a request of up to four ranges in it. */
struct job {
    struct hvmem_backend_caps caps;
    struct hvmem_policy policy;
    struct hvmem_tlb_range ranges[4];
    struct hvmem_tlb_flush flush;
    struct hvmem_policy_choice choice;
};

static void machine(struct job *job, uint64_t features, uint64_t most, uint32_t page_shift)
{
    memset(job, 0, sizeof *job);
    job->caps.size = sizeof job->caps;
    job->caps.page_shift = page_shift;
    job->caps.features = features;
    job->caps.max_range_pages = most;
    job->flush.size = sizeof job->flush;
    job->flush.scope = features & HVMEM_CAP_BROADCAST ? HVMEM_SCOPE_INNER : HVMEM_SCOPE_LOCAL;
    job->flush.ranges = job->ranges;
    job->flush.count = 1;
    CHECK_EQ(hvmem_policy_default(&job->policy, &job->caps), HVMEM_OK);
}

static uint32_t choose(struct job *job, uint32_t regime, uint64_t pages, uint32_t stride)
{
    job->flush.space.regime = regime;
    job->ranges[0] = (struct hvmem_tlb_range){
        .start = 1ull << 33, .pages = pages, .stride_shift = (uint8_t)stride, .level = 3};
    CHECK_EQ(hvmem_policy_choose(&job->policy, &job->caps, &job->flush, &job->choice), HVMEM_OK);
    return job->choice.what;
}

TEST(x86_flushes_the_space_above_33_operations)
{
    struct job job;

    machine(&job, X86, 0, 12);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 33, 12), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(job.choice.operations, 33);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 34, 12), HVMEM_CHOOSE_SPACE);
    CHECK_EQ(job.choice.operations, 1);
    /* Operations count, not pages: 33 blocks of 2 MiB are 33. */
    CHECK_EQ(choose(&job, HVMEM_REGIME_HOST, 33 * 512, 21), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(choose(&job, HVMEM_REGIME_HOST, 34 * 512, 21), HVMEM_CHOOSE_SPACE);
    /* Nothing takes guest-physical addresses. */
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 1, 12), HVMEM_CHOOSE_SPACE);
    job.caps.features &= ~HVMEM_CAP_STAGE2;
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 1, 12), HVMEM_CHOOSE_ALL);
    /* INVLPG of large pages is unreliable: only where there are large pages. */
    job.caps.quirks = HVMEM_QUIRK_FLUSH_SUPERPAGE;
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 512, 21), HVMEM_CHOOSE_SPACE);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 1, 12), HVMEM_CHOOSE_SINGLES);
}

TEST(invlpgb_counts_instructions)
{
    struct job job;

    machine(&job, INVLPGB, 8, 12);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 33 * 8, 12), HVMEM_CHOOSE_RANGES);
    CHECK_EQ(job.choice.operations, 33);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 33 * 8 + 1, 12), HVMEM_CHOOSE_SPACE);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 33ull << 18, 30), HVMEM_CHOOSE_RANGES);
    CHECK_EQ(job.choice.operations, 33); /* 1 GiB steps have no count */
    job.flush.scope = HVMEM_SCOPE_LOCAL; /* INVLPG */
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 34, 12), HVMEM_CHOOSE_SPACE);
}

TEST(arm64_without_range_operations_takes_512)
{
    struct job job;

    machine(&job, ARM64, 0, 12);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 512, 12), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(job.choice.operations, 512);
    CHECK_EQ(job.choice.companions, 1);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 513, 12), HVMEM_CHOOSE_SPACE);
    CHECK_EQ(job.choice.companions, 0);
    /* One page of a VM is one by-IPA operation and its VMALLE1, not the VM. */
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 1, 12), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(job.choice.operations, 1);
    CHECK_EQ(job.choice.companions, 1);
    /* 192 GiB of 1 GiB blocks: 192 operations, though it is far more than 512 pages or bytes. */
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 192ull << 18, 30), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(job.choice.operations, 192);
    CHECK_EQ(choose(&job, HVMEM_REGIME_USER, 512, 12), HVMEM_CHOOSE_SINGLES);
    CHECK_EQ(job.choice.companions, 0);
    machine(&job, ARM64, 0, 14);
    CHECK_EQ(job.policy.max_operations, 2048);
    machine(&job, ARM64, 0, 16);
    CHECK_EQ(job.policy.max_operations, 4096);
}

TEST(arm64_ranges_cover_2_21_pages_in_few_operations)
{
    struct test_rng rng = test_rng(0);
    struct job job;
    uint32_t i;

    machine(&job, ARM64_TLBI, BIG, 12);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, BIG, 21), HVMEM_CHOOSE_RANGES);
    CHECK_EQ(job.choice.operations, 1);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, BIG + 1, 12), HVMEM_CHOOSE_SPACE);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 1, 12), HVMEM_CHOOSE_SINGLES);
    /* In a guest's regime there is no range form, for its granule is its own. */
    CHECK_EQ(choose(&job, HVMEM_REGIME_GUEST, 513, 12), HVMEM_CHOOSE_SPACE);
    for (i = 0; i < 20000; i++) {
        job.policy.flags = i & 1 ? HVMEM_POLICY_LPA2_STAGE1 : 0;
        job.flush.space.regime = HVMEM_REGIME_HOST;
        job.ranges[0].pages = 1 + (test_random(&rng) % BIG >> test_below(&rng, 21));
        job.ranges[0].start = test_below(&rng, BIG) << 12;
        REQUIRE_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
        CHECK(job.choice.operations <= (i & 1 ? 20 : 5));
        CHECK(job.choice.what == HVMEM_CHOOSE_RANGES ||
              job.choice.operations == job.ranges[0].pages);
    }
}

TEST(only_what_covers_globals_is_offered)
{
    struct job job;

    machine(&job, X86, 0, 12);
    job.flush.space.regime = HVMEM_REGIME_USER;
    job.ranges[0] = (struct hvmem_tlb_range){.pages = 1000, .flags = HVMEM_RANGE_GLOBAL};
    CHECK_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
    CHECK_EQ(job.choice.what, HVMEM_CHOOSE_ALL);
    job.flush.space.regime = HVMEM_REGIME_HOST; /* whose space flush takes globals along */
    CHECK_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
    CHECK_EQ(job.choice.what, HVMEM_CHOOSE_SPACE);
    job.flush.count = 0;
    CHECK_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
    CHECK_EQ(job.choice.what, HVMEM_CHOOSE_NOTHING);
    CHECK_EQ(job.choice.operations, 0);
}

/* ---- brute force ---------------------------------------------------------------------------- */

/* Operations of the back-ends for one range: single ones and range ones. */
static void brute_range(const struct job *job, const struct hvmem_tlb_range *range, int ranges,
                        uint64_t n[2])
{
    uint32_t shift = job->caps.page_shift, regime = job->flush.space.regime;
    uint32_t stride = range->stride_shift > shift ? range->stride_shift : shift;
    uint64_t at, end = range->start + (range->pages << shift), singles = 0, cover[2] = {0, 0};
    int lpa2 =
        (job->policy.flags & (regime == HVMEM_REGIME_STAGE2 ? HVMEM_POLICY_LPA2_STAGE2
                                                            : HVMEM_POLICY_LPA2_STAGE1)) != 0;
    struct hvmem__arm64_cover walk;
    struct hvmem__arm64_step step;

    for (at = range->start >> stride << stride; at < end; at += 1ull << stride)
        singles++;
    if (ranges && job->caps.max_range_pages == BIG && regime != HVMEM_REGIME_GUEST) {
        hvmem__arm64_cover_start(&walk, range->start >> shift, range->pages, shift, lpa2);
        while (hvmem__arm64_cover_next(&walk, &step))
            cover[!step.single]++;
        if (cover[0] + cover[1] < singles) {
            n[0] += cover[0];
            n[1] += cover[1];
            return;
        }
    } else if (ranges && job->caps.max_range_pages && job->caps.max_range_pages < BIG &&
               job->flush.scope == HVMEM_SCOPE_INNER) {
        /* Runs of 4 KiB or 2 MiB steps; others have no count. */
        uint32_t run = range->stride_shift < 21 ? 12 : range->stride_shift, left = 0;

        for (at = range->start >> run << run; at < end; at += 1ull << run) {
            n[1] += left == 0;
            left = left ? left - 1 : run > 21 ? 0 : (uint32_t)job->caps.max_range_pages - 1;
        }
        return;
    }
    n[0] += singles;
}

/* Cost of a decision, or 0 if it is impossible. */
static uint64_t brute_cost(const struct job *job, uint32_t what)
{
    uint32_t regime = job->flush.space.regime, i;
    const struct hvmem_flush_costs *c = &job->policy.costs[regime == HVMEM_REGIME_STAGE2];
    uint64_t f = job->caps.features, n[2] = {0, 0};

    if (what == HVMEM_CHOOSE_ALL)
        return c->all;
    if (what == HVMEM_CHOOSE_SPACE) {
        for (i = 0; i < job->flush.count; i++)
            if (regime == HVMEM_REGIME_USER && (job->ranges[i].flags & HVMEM_RANGE_GLOBAL))
                return 0;
        if ((regime == HVMEM_REGIME_STAGE2 && !(f & HVMEM_CAP_STAGE2)) ||
            (regime == HVMEM_REGIME_GUEST && !(f & HVMEM_CAP_GUEST)))
            return 0;
        return c->space;
    }
    if (regime == HVMEM_REGIME_STAGE2 && !(f & HVMEM_CAP_STAGE2_RANGE))
        return 0;
    for (i = 0; i < job->flush.count; i++) {
        if (job->ranges[i].stride_shift > job->caps.page_shift &&
            (job->caps.quirks & HVMEM_QUIRK_FLUSH_SUPERPAGE))
            return 0;
        brute_range(job, &job->ranges[i], what == HVMEM_CHOOSE_RANGES, n);
    }
    if (n[0] + n[1] > job->policy.max_operations || (what == HVMEM_CHOOSE_RANGES && !n[1]))
        return 0;
    return c->batch + n[0] * c->single + n[1] * c->range;
}

static void random_job(struct job *job, struct test_rng *rng)
{
    static const uint64_t features[] = {X86, INVLPGB, ARM64, ARM64_TLBI, ARM64_TLBI};
    uint32_t kind = (uint32_t)test_below(rng, 5), i, shift;

    machine(job, features[kind] & (test_random(rng) | ~(HVMEM_CAP_STAGE2 | HVMEM_CAP_GUEST)),
            kind == 1   ? 1 + test_below(rng, 64)
            : kind >= 3 ? BIG
                        : 0,
            kind < 2 ? 12 : 12 + 2 * (uint32_t)test_below(rng, 3));
    shift = job->caps.page_shift;
    job->caps.quirks = test_below(rng, 8) ? 0 : HVMEM_QUIRK_FLUSH_SUPERPAGE;
    job->policy.flags = HVMEM_POLICY_COSTS | (uint32_t)(kind >= 2 ? test_below(rng, 4) * 2 : 0);
    job->policy.max_operations = 1 + (uint32_t)test_below(rng, 1000);
    for (i = 0; i < 2; i++)
        job->policy.costs[i] = (struct hvmem_flush_costs){
            1 + test_below(rng, 3000), 1 + test_below(rng, 500), 1 + test_below(rng, 2000),
            1 + test_below(rng, 100000), 1 + test_below(rng, 300000)};
    job->flush.space.regime = (uint32_t)test_below(rng, 4);
    job->flush.scope = (uint16_t)(job->flush.scope ? test_below(rng, 2) : 0);
    job->flush.count = 1 + (uint32_t)test_below(rng, 4);
    for (i = 0; i < job->flush.count; i++) {
        uint32_t larger = (uint32_t)test_below(rng, 3) * (shift - 3);

        job->ranges[i].stride_shift = (uint8_t)(shift + (larger > 18 ? 18 : larger));
        job->ranges[i].pages = 1 + (test_random(rng) & ((4ull << test_below(rng, 18)) - 1));
        job->ranges[i].start = test_below(rng, 1ull << 24) << shift;
        job->ranges[i].flags = (uint16_t)(test_below(rng, 6) ? 0 : HVMEM_RANGE_GLOBAL);
        job->ranges[i].level = 3;
    }
}

TEST(costs_choose_as_brute_force_does)
{
    struct test_rng rng = test_rng(1);
    uint64_t rounds = test_rounds(20000), seen[HVMEM_CHOICES] = {0}, best;
    struct job job;
    uint32_t what;

    test_note("seed %llu", (unsigned long long)test_seed());
    while (rounds--) {
        random_job(&job, &rng);
        REQUIRE_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
        best = ~0ull;
        for (what = HVMEM_CHOOSE_SINGLES; what < HVMEM_CHOICES; what++) {
            uint64_t cost = brute_cost(&job, what);

            if (cost && cost < best)
                best = cost;
        }
        CHECK_EQ(brute_cost(&job, job.choice.what), best);
        CHECK_EQ(job.choice.cost, best);
        seen[job.choice.what]++;
    }
    for (what = HVMEM_CHOOSE_SINGLES; what < HVMEM_CHOICES; what++)
        CHECK(seen[what] != 0);
}

/* ---- costs out of measurements -------------------------------------------------------------- */

TEST(fit_finds_the_line)
{
    struct hvmem_policy_sample samples[] = {
        {HVMEM_CHOOSE_SINGLES, 1, 1100},  {HVMEM_CHOOSE_SINGLES, 9, 1900},
        {HVMEM_CHOOSE_SINGLES, 33, 4300}, {HVMEM_CHOOSE_RANGES, 2, 1600},
        {HVMEM_CHOOSE_SPACE, 1, 9000},    {HVMEM_CHOOSE_SPACE, 1, 7000},
        {HVMEM_CHOOSE_ALL, 1, 20000}};
    struct hvmem_flush_costs costs = {1, 2, 3, 4, 5};

    CHECK_EQ(hvmem_policy_fit(&costs, samples, 7), HVMEM_OK);
    CHECK_EQ(costs.batch, 1000);
    CHECK_EQ(costs.single, 100);
    CHECK_EQ(costs.range, 300);
    CHECK_EQ(costs.space, 8000);
    CHECK_EQ(costs.all, 20000);
    samples[3].what = HVMEM_CHOOSE_SPACE;
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 6), HVMEM_OK);
    CHECK_EQ(costs.range, 100);
    CHECK_EQ(costs.all, costs.space);
}

/* A back-end whose clock runs by what it is asked. */
struct clocked {
    struct hvmem_backend be;
    uint64_t now;
    uint64_t fails_at; /* the batch that fails; 0 none */
    uint64_t batches;
    int cold;
};

static hvmem_status clocked_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    struct clocked *clocked = be->ctx;

    if (++clocked->batches == clocked->fails_at)
        return HVMEM_E_UNSUPPORTED;
    if (flush->what == HVMEM_FLUSH_RANGES && (flush->flags & HVMEM_TLB_SINGLES))
        clocked->now += 700 + 90 * flush->ranges[0].pages;
    else if (flush->what == HVMEM_FLUSH_RANGES)
        clocked->now += 700 + 250;
    else
        clocked->now += 900;
    clocked->cold = flush->what == HVMEM_FLUSH_SPACE ? 1 : flush->what == HVMEM_FLUSH_ALL ? 2 : 0;
    return HVMEM_OK;
}

static uint64_t clocked_counter(void *ctx)
{
    return ((struct clocked *)ctx)->now;
}

static void clocked_touch(void *ctx)
{
    struct clocked *clocked = ctx;

    clocked->now += 50 + 11000u * (uint32_t)clocked->cold;
    clocked->cold = 0;
}

TEST(calibration_measures_this_machine)
{
    static const struct hvmem_backend_ops ops = {.size = sizeof ops, .tlb_flush = clocked_flush};
    struct clocked clocked = {.be = {.ops = &ops}};
    struct hvmem_policy_probe probe = {.size = sizeof probe,
                                       .scope = HVMEM_SCOPE_INNER,
                                       .pages = 128,
                                       .rounds = 3,
                                       .counter = clocked_counter,
                                       .touch = clocked_touch,
                                       .ctx = &clocked};
    struct hvmem_policy before;
    struct job job;
    uint64_t fail;

    machine(&job, ARM64_TLBI, BIG, 12);
    clocked.be.caps = job.caps;
    clocked.be.ctx = &clocked;
    probe.space.regime = HVMEM_REGIME_STAGE2;
    REQUIRE_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, &probe), HVMEM_OK);
    CHECK(clocked.batches <= 20ull * probe.rounds);
    CHECK(job.policy.flags & HVMEM_POLICY_COSTS);
    CHECK_EQ(job.policy.max_operations, HVMEM_POLICY_OPERATIONS);
    CHECK_EQ(job.policy.costs[0].batch, 0);
    CHECK_EQ(job.policy.costs[1].batch, 700);
    CHECK_EQ(job.policy.costs[1].single, 90);
    CHECK_EQ(job.policy.costs[1].range, 250);
    CHECK_EQ(job.policy.costs[1].space, 900 + 11000);
    CHECK_EQ(job.policy.costs[1].all, 900 + 22000);
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 2, 12), HVMEM_CHOOSE_SINGLES); /* 180 < 250 */
    CHECK_EQ(choose(&job, HVMEM_REGIME_STAGE2, 4, 12), HVMEM_CHOOSE_RANGES);
    before = job.policy;
    for (fail = 1; fail <= 40; fail += 13) {
        clocked.batches = 0;
        clocked.fails_at = fail;
        CHECK_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, &probe), HVMEM_E_UNSUPPORTED);
        CHECK_EQ(memcmp(&before, &job.policy, sizeof before), 0);
    }
    clocked.fails_at = 0;
    probe.pages = 3;
    CHECK_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, &probe), HVMEM_E_COUNT);
    probe.pages = 4;
    probe.rounds = 0;
    CHECK_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, &probe), HVMEM_E_COUNT);
    probe.rounds = 1;
    probe.size--;
    CHECK_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, &probe), HVMEM_E_VERSION);
    CHECK_EQ(hvmem_policy_calibrate(&job.policy, &clocked.be, NULL), HVMEM_E_ARG);
}

/* ---- bad input, and a policy of the host's own ---------------------------------------------- */

static hvmem_status always_all(const struct hvmem_policy *policy,
                               const struct hvmem_backend_caps *caps,
                               const struct hvmem_tlb_flush *flush,
                               struct hvmem_policy_choice *choice)
{
    (void)policy;
    (void)caps;
    (void)flush;
    choice->what = HVMEM_CHOOSE_ALL;
    return HVMEM_OK;
}

TEST(replaced_and_applied)
{
    struct job job;

    machine(&job, X86, 0, 12);
    choose(&job, HVMEM_REGIME_USER, 1, 12);
    hvmem_policy_apply(&job.choice, &job.flush);
    CHECK_EQ(job.flush.what, HVMEM_FLUSH_RANGES);
    CHECK_EQ(job.flush.flags, HVMEM_TLB_SINGLES);
    job.policy.choose = always_all;
    CHECK_EQ(hvmem__policy_choose(&job.policy, &job.caps, &job.flush, &job.choice), HVMEM_OK);
    hvmem_policy_apply(&job.choice, &job.flush);
    CHECK_EQ(job.flush.what, HVMEM_FLUSH_ALL);
    CHECK_EQ(job.flush.flags, 0);
    job.choice.what = HVMEM_CHOOSE_SPACE;
    hvmem_policy_apply(&job.choice, &job.flush);
    CHECK_EQ(job.flush.what, HVMEM_FLUSH_SPACE);
    job.choice.what = HVMEM_CHOOSE_NOTHING;
    hvmem_policy_apply(NULL, &job.flush);
    hvmem_policy_apply(&job.choice, NULL);
    CHECK_EQ(job.flush.count, 1);
    hvmem_policy_apply(&job.choice, &job.flush);
    CHECK_EQ(job.flush.count, 0);
}

static void refused(struct job *job, hvmem_status code)
{
    struct hvmem_policy_choice before;

    memset(&job->choice, 0x5a, sizeof job->choice);
    before = job->choice;
    CHECK_EQ(hvmem_policy_choose(&job->policy, &job->caps, &job->flush, &job->choice), code);
    CHECK_EQ(memcmp(&before, &job->choice, sizeof before), 0);
}

TEST(bad_input_is_refused)
{
    struct hvmem_policy_sample samples[] = {
        {HVMEM_CHOOSE_SINGLES, 1, 1}, {HVMEM_CHOOSE_SINGLES, 2, 2}, {HVMEM_CHOOSE_SPACE, 1, 1}};
    struct hvmem_flush_costs costs;
    struct job job, good;

    machine(&good, ARM64_TLBI, BIG, 12);
    good.flush.ranges = job.ranges;
    good.ranges[0].pages = 1;
#define WITH(change, code)                                                                         \
    job = good;                                                                                    \
    job.change;                                                                                    \
    refused(&job, code)
    WITH(ranges[0].pages = 0, HVMEM_E_RANGE);
    WITH(ranges[0].pages = ~0ull, HVMEM_E_RANGE);
    WITH(ranges[0].flags = 4, HVMEM_E_ARG);
    WITH(ranges[0].stride_shift = 11, HVMEM_E_ARG);
    WITH(ranges[0].stride_shift = 48, HVMEM_E_ARG);
    WITH(flush.what = HVMEM_FLUSH_SPACE, HVMEM_E_ARG);
    WITH(flush.space.regime = 4, HVMEM_E_ARG);
    WITH(flush.ranges = NULL, HVMEM_E_ARG);
    WITH(flush.size = 1, HVMEM_E_VERSION);
    WITH(policy.size = 1, HVMEM_E_VERSION);
    WITH(policy.max_operations = 0, HVMEM_E_COUNT);
    WITH(policy.max_operations = HVMEM_POLICY_OPERATIONS + 1, HVMEM_E_COUNT);
#undef WITH
    CHECK_EQ(hvmem_policy_choose(&job.policy, &job.caps, &job.flush, NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_policy_default(NULL, &job.caps), HVMEM_E_ARG);
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 3), HVMEM_OK);
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 2), HVMEM_E_COUNT);
    CHECK_EQ(hvmem_policy_fit(&costs, samples + 1, 2), HVMEM_E_COUNT);
    CHECK_EQ(hvmem_policy_fit(&costs, samples, HVMEM_POLICY_SAMPLES + 1), HVMEM_E_COUNT);
    samples[0].cost = (1ull << 32) + 1;
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 3), HVMEM_E_RANGE);
    samples[0].operations = 0;
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 3), HVMEM_E_COUNT);
    samples[0].what = HVMEM_CHOOSE_NOTHING;
    CHECK_EQ(hvmem_policy_fit(&costs, samples, 3), HVMEM_E_ARG);
    CHECK_EQ(hvmem_policy_fit(&costs, NULL, 3), HVMEM_E_ARG);
}
