/* SPDX-License-Identifier: BSD-2-Clause */
/* policy.c: counts what ranges take in each form and picks one, by thresholds or by costs. */
#include "policy.h"

/* Most pages of one range operation that gives its length as scale and count (arm64 TLBIRANGE). */
#define COVER_SHIFT    21u
#define COVER_PAGES    ((hvmem_u64)1 << COVER_SHIFT)
#define X86_OPERATIONS 33u
#define NEVER          (~(hvmem_u64)0)

/* How the machine does the work of one request. */
struct form {
    hvmem_u32 page_shift;
    hvmem_u64 misaligned; /* range bases must have these bits of the page number 0 */
    hvmem_u64 most;       /* pages of a range operation; 0: there are none */
    int cover;            /* they take scale and count, else a plain count of steps */
};

/* The work of a request in one form: `singles` by address and `ranged` range operations. */
struct work {
    hvmem_u64 singles;
    hvmem_u64 ranged;
};

hvmem_status hvmem_policy_default(struct hvmem_policy *policy,
                                  const struct hvmem_backend_caps *caps)
{
    hvmem_u64 features;

    if (!policy || !caps)
        return HVMEM_E_ARG;
    features = caps->features;
    memset(policy, 0, sizeof *policy);
    policy->size = sizeof *policy;
    policy->max_operations = X86_OPERATIONS;
    if ((features & HVMEM_CAP_BROADCAST) &&
        (!(features & HVMEM_CAP_RANGE) || caps->max_range_pages >= COVER_PAGES))
        policy->max_operations = 1u << (caps->page_shift - 3);
    if (policy->max_operations > HVMEM_POLICY_OPERATIONS)
        policy->max_operations = HVMEM_POLICY_OPERATIONS;
    policy->max_pages = COVER_PAGES;
    return HVMEM_OK;
}

/* ---- counting ------------------------------------------------------------------------------- */

static struct form form_of(const struct hvmem_policy *policy, const struct hvmem_backend_caps *caps,
                           const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 lpa2 = flush->space.regime == HVMEM_REGIME_STAGE2 ? HVMEM_POLICY_LPA2_STAGE2
                                                                : HVMEM_POLICY_LPA2_STAGE1;
    struct form form;

    form.page_shift = caps->page_shift;
    form.misaligned = 0;
    if ((policy->flags & lpa2) && form.page_shift < 16)
        form.misaligned = ((hvmem_u64)1 << (16 - form.page_shift)) - 1;
    form.most = caps->features & HVMEM_CAP_RANGE ? caps->max_range_pages : 0;
    form.cover = form.most >= COVER_PAGES;
    /* A guest's granule is its own; INVLPGB has no local form. */
    if (form.cover ? flush->space.regime == HVMEM_REGIME_GUEST : flush->scope == HVMEM_SCOPE_LOCAL)
        form.most = 0;
    return form;
}

/* Strides that a range touches. */
static hvmem_u64 strides(const struct form *form, const struct hvmem_tlb_range *range,
                         hvmem_u32 shift)
{
    hvmem_u64 last = range->start + ((range->pages - 1) << form->page_shift);

    return (last >> shift) - (range->start >> shift) + 1;
}

/*
 * Operations that cover the pages [page, end): single pages up to the first legal base, then at most
 * one range operation for each of four scales and one odd page, in every 2^21 pages. Stops when
 * `limit` is passed.
 */
static struct work cover(const struct form *form, hvmem_u64 page, hvmem_u64 end, hvmem_u64 limit)
{
    struct work work = {0, 0};
    hvmem_u64 left, head, next;

    for (; page != end && work.singles + work.ranged <= limit; page = next) {
        next = end - page > COVER_PAGES ? (page + COVER_PAGES) & ~form->misaligned : end;
        left = next - page;
        head = (0 - page) & form->misaligned;
        if (head > left)
            head = left;
        left -= head;
        work.singles += head + (left & 1);
        work.ranged += (left >> 1 & 31 ? 1u : 0u) + (left >> 6 & 31 ? 1u : 0u) +
                       (left >> 11 & 31 ? 1u : 0u) + (left >> 16 ? 1u : 0u);
    }
    return work;
}

/* Operations of INVLPGB: runs of 4 KiB or 2 MiB steps, other strides one by one. */
static struct work runs(const struct form *form, const struct hvmem_tlb_range *range)
{
    hvmem_u32 shift = range->stride_shift < 21 ? form->page_shift : range->stride_shift;
    hvmem_u64 each = shift == form->page_shift || shift == 21 ? form->most : 1;
    struct work work = {0, 0};

    work.ranged = (strides(form, range, shift) - 1) / each + 1;
    return work;
}

/* One range in the form that takes fewer operations, as the back-ends issue it. */
static struct work count_ranged(const struct form *form, const struct hvmem_tlb_range *range,
                                hvmem_u64 singles, hvmem_u64 limit)
{
    hvmem_u64 page = range->start >> form->page_shift;
    struct work work = {singles, 0}, ranged;

    if (!form->most)
        return work;
    ranged = form->cover ? cover(form, page, page + range->pages, limit) : runs(form, range);
    return ranged.singles + ranged.ranged < singles || !form->cover ? ranged : work;
}

static hvmem_status check_range(const struct form *form, const struct hvmem_tlb_range *range)
{
    if ((range->flags & ~(HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL)) ||
        (range->stride_shift && (range->stride_shift < 12 || range->stride_shift > 47)))
        return HVMEM_E_ARG;
    if (!range->pages || range->pages - 1 > (NEVER - range->start) >> form->page_shift)
        return HVMEM_E_RANGE;
    return HVMEM_OK;
}

/* What the ranges need together. */
struct sums {
    struct work single; /* all by single-page operations */
    struct work ranged;
    hvmem_u64 pages;
    hvmem_u32 global; /* HVMEM_RANGE_GLOBAL of any */
    int large;        /* some stride is larger than a page */
};

static hvmem_u64 add(hvmem_u64 a, hvmem_u64 b)
{
    return a + b < a ? NEVER : a + b;
}

static hvmem_status sum(const struct form *form, const struct hvmem_tlb_flush *flush,
                        hvmem_u64 limit, struct sums *sums)
{
    hvmem_status status;
    hvmem_u32 i;

    memset(sums, 0, sizeof *sums);
    for (i = 0; i < flush->count; i++) {
        const struct hvmem_tlb_range *range = &flush->ranges[i];
        hvmem_u32 shift =
            range->stride_shift > form->page_shift ? range->stride_shift : form->page_shift;
        hvmem_u64 singles;
        struct work work;

        status = check_range(form, range);
        if (status)
            return status;
        singles = strides(form, range, shift);
        work = count_ranged(form, range, singles, limit);
        sums->single.singles = add(sums->single.singles, singles);
        sums->ranged.singles = add(sums->ranged.singles, work.singles);
        sums->ranged.ranged = add(sums->ranged.ranged, work.ranged);
        sums->pages = add(sums->pages, range->pages);
        sums->global |= range->flags & HVMEM_RANGE_GLOBAL;
        sums->large |= shift > form->page_shift;
    }
    return HVMEM_OK;
}

/* ---- deciding ------------------------------------------------------------------------------- */

/* Which decisions are possible: bit HVMEM_CHOOSE_*. */
static hvmem_u32 possible(const struct hvmem_policy *policy, const struct hvmem_backend_caps *caps,
                          const struct hvmem_tlb_flush *flush, const struct sums *sums)
{
    hvmem_u32 regime = flush->space.regime, set = 1u << HVMEM_CHOOSE_ALL;
    int by_address = !(sums->large && (caps->quirks & HVMEM_QUIRK_FLUSH_SUPERPAGE));
    int space = 1;

    if (regime == HVMEM_REGIME_STAGE2) {
        by_address = by_address && (caps->features & HVMEM_CAP_STAGE2_RANGE);
        space = (caps->features & HVMEM_CAP_STAGE2) != 0;
    } else if (regime == HVMEM_REGIME_GUEST) {
        space = (caps->features & HVMEM_CAP_GUEST) != 0;
    } else if (regime == HVMEM_REGIME_USER) {
        space = !sums->global;
    }
    if (space)
        set |= 1u << HVMEM_CHOOSE_SPACE;
    if (by_address && sums->single.singles <= policy->max_operations)
        set |= 1u << HVMEM_CHOOSE_SINGLES;
    if (by_address && sums->ranged.ranged &&
        add(sums->ranged.singles, sums->ranged.ranged) <= policy->max_operations)
        set |= 1u << HVMEM_CHOOSE_RANGES;
    return set;
}

static hvmem_u64 times(hvmem_u64 count, hvmem_u64 cost)
{
    return cost && count > NEVER / cost ? NEVER : count * cost;
}

static hvmem_u64 cost_of(const struct hvmem_flush_costs *costs, hvmem_u32 what,
                         const struct sums *sums)
{
    const struct work *work = what == HVMEM_CHOOSE_SINGLES ? &sums->single : &sums->ranged;

    if (what == HVMEM_CHOOSE_SPACE)
        return costs->space;
    if (what == HVMEM_CHOOSE_ALL)
        return costs->all;
    return add(costs->batch,
               add(times(work->singles, costs->single), times(work->ranged, costs->range)));
}

/* By thresholds: by address, in the form that takes fewer operations, else the narrowest whole. */
static hvmem_u32 by_threshold(const struct hvmem_policy *policy, const struct form *form,
                              const struct sums *sums, hvmem_u32 set)
{
    hvmem_u32 what;

    if ((set & 1u << HVMEM_CHOOSE_RANGES) && (!form->cover || sums->pages <= policy->max_pages))
        return HVMEM_CHOOSE_RANGES;
    for (what = HVMEM_CHOOSE_SINGLES; what < HVMEM_CHOOSE_ALL; what++)
        if (what != HVMEM_CHOOSE_RANGES && (set & 1u << what))
            return what;
    return HVMEM_CHOOSE_ALL;
}

static hvmem_u32 by_cost(const struct hvmem_flush_costs *costs, const struct sums *sums,
                         hvmem_u32 set)
{
    hvmem_u32 what, best = HVMEM_CHOOSE_ALL;

    for (what = HVMEM_CHOOSE_ALL; what >= HVMEM_CHOOSE_SINGLES; what--)
        if ((set & 1u << what) && cost_of(costs, what, sums) <= cost_of(costs, best, sums))
            best = what;
    return best;
}

static hvmem_status check_request(const struct hvmem_policy *policy,
                                  const struct hvmem_backend_caps *caps,
                                  const struct hvmem_tlb_flush *flush)
{
    if (!policy || !caps || !flush)
        return HVMEM_E_ARG;
    if (policy->size != sizeof *policy || flush->size != sizeof *flush)
        return HVMEM_E_VERSION;
    if (flush->what != HVMEM_FLUSH_RANGES || flush->space.regime > HVMEM_REGIME_GUEST ||
        (flush->count && !flush->ranges))
        return HVMEM_E_ARG;
    return policy->max_operations && policy->max_operations <= HVMEM_POLICY_OPERATIONS
               ? HVMEM_OK
               : HVMEM_E_COUNT;
}

hvmem_status hvmem_policy_choose(const struct hvmem_policy *policy,
                                 const struct hvmem_backend_caps *caps,
                                 const struct hvmem_tlb_flush *flush,
                                 struct hvmem_policy_choice *choice)
{
    hvmem_status status = choice ? check_request(policy, caps, flush) : HVMEM_E_ARG;
    const struct hvmem_flush_costs *costs;
    struct sums sums;
    struct form form;
    hvmem_u32 set;

    if (status)
        return status;
    form = form_of(policy, caps, flush);
    status = sum(&form, flush, policy->max_operations, &sums);
    if (status)
        return status;
    memset(choice, 0, sizeof *choice);
    if (!flush->count)
        return HVMEM_OK;
    costs = &policy->costs[flush->space.regime == HVMEM_REGIME_STAGE2];
    set = possible(policy, caps, flush, &sums);
    if (policy->flags & HVMEM_POLICY_COSTS)
        choice->what = by_cost(costs, &sums, set);
    else
        choice->what = by_threshold(policy, &form, &sums, set);
    choice->cost = cost_of(costs, choice->what, &sums);
    choice->operations = 1;
    if (choice->what == HVMEM_CHOOSE_SINGLES)
        choice->operations = sums.single.singles;
    else if (choice->what == HVMEM_CHOOSE_RANGES)
        choice->operations = sums.ranged.singles + sums.ranged.ranged;
    choice->companions =
        flush->space.regime == HVMEM_REGIME_STAGE2 && choice->what < HVMEM_CHOOSE_SPACE;
    return HVMEM_OK;
}

void hvmem_policy_apply(const struct hvmem_policy_choice *choice, struct hvmem_tlb_flush *flush)
{
    if (!choice || !flush)
        return;
    flush->flags &= ~HVMEM_TLB_SINGLES;
    if (choice->what == HVMEM_CHOOSE_NOTHING)
        flush->count = 0;
    else if (choice->what == HVMEM_CHOOSE_SINGLES)
        flush->flags |= HVMEM_TLB_SINGLES;
    else if (choice->what == HVMEM_CHOOSE_SPACE)
        flush->what = HVMEM_FLUSH_SPACE;
    else if (choice->what == HVMEM_CHOOSE_ALL)
        flush->what = HVMEM_FLUSH_ALL;
}
