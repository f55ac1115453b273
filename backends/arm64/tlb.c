/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLB invalidation of arm64. One batch is: check everything, DSB, (VMID switch), TLBI ..., DSB,
 * (second stage: VMALLE1, DSB), (repeat-TLBI workaround: TLBI, DSB), ISB, (VMID back). Arm ARM
 * D8.14.5: the first DSB shows table changes to walkers, the second waits until every CPU dropped
 * the entries and finished accesses that used them, ISB drops what this CPU fetched ahead.
 */
#include "encode.h"
#include "insn.h"
#include "internal.h"

/* What one batch issues, decided before anything is issued. */
struct plan {
    hvmem_u32 scope;
    hvmem_u32 granule_shift;
    hvmem_u32 asid;
    hvmem_u16 page_op; /* enum hvmem__arm64_tlbi; leaf and range forms below */
    hvmem_u16 leaf_op;
    hvmem_u16 range_op;
    hvmem_u16 range_leaf_op;
    hvmem_u16 whole_op;
    hvmem_u16 second_op; /* a second whole operation, or HVMEM__TLBI_COUNT */
    hvmem_u8 lpa2;
    hvmem_u8 use_range;
    hvmem_u8 use_ttl;
    hvmem_u8 whole;
    hvmem_u8 stage2; /* by-IPA: VMALLE1 follows */
    hvmem_u8 vmid;   /* the VMID of the space must be in force */
};

static void set_ops(struct plan *p, hvmem_u32 page, hvmem_u32 leaf, hvmem_u32 range,
                    hvmem_u32 range_leaf, hvmem_u32 whole)
{
    p->page_op = (hvmem_u16)page;
    p->leaf_op = (hvmem_u16)leaf;
    p->range_op = (hvmem_u16)range;
    p->range_leaf_op = (hvmem_u16)range_leaf;
    p->whole_op = (hvmem_u16)whole;
}

/* Operations of each regime; whole_op is that of HVMEM_FLUSH_SPACE. */
static void plan_regime(struct plan *p, hvmem_u32 regime, hvmem_u32 level)
{
    switch (regime) {
    case HVMEM_REGIME_USER:
        set_ops(p, HVMEM__TLBI_VAE1, HVMEM__TLBI_VALE1, HVMEM__TLBI_RVAE1, HVMEM__TLBI_RVALE1,
                HVMEM__TLBI_ASIDE1);
        break;
    case HVMEM_REGIME_STAGE2:
        set_ops(p, HVMEM__TLBI_IPAS2E1, HVMEM__TLBI_IPAS2LE1, HVMEM__TLBI_RIPAS2E1,
                HVMEM__TLBI_RIPAS2LE1, HVMEM__TLBI_VMALLS12E1);
        break;
    case HVMEM_REGIME_HOST:
        if (level == HVMEM_ARM64_EL2) {
            set_ops(p, HVMEM__TLBI_VAE2, HVMEM__TLBI_VALE2, HVMEM__TLBI_RVAE2, HVMEM__TLBI_RVALE2,
                    HVMEM__TLBI_ALLE2);
            break;
        }
        /* EL1; and EL2&0 under VHE, where E1 operations reach it while TGE is 1. */
        /* fall through */
    default:
        set_ops(p, HVMEM__TLBI_VAAE1, HVMEM__TLBI_VAALE1, HVMEM__TLBI_RVAAE1, HVMEM__TLBI_RVAALE1,
                HVMEM__TLBI_VMALLE1);
        break;
    }
}

/* Operation of HVMEM_FLUSH_REGIME and HVMEM_FLUSH_ALL. */
static void plan_wide(struct plan *p, const struct hvmem_tlb_flush *flush, hvmem_u32 level)
{
    if (flush->what == HVMEM_FLUSH_ALL) {
        p->whole_op = HVMEM__TLBI_VMALLE1;
        if (level != HVMEM_ARM64_EL1) {
            p->whole_op = HVMEM__TLBI_ALLE1;
            p->second_op = HVMEM__TLBI_ALLE2;
        }
    } else if (flush->space.regime == HVMEM_REGIME_USER) {
        p->whole_op = HVMEM__TLBI_VMALLE1;
    } else if (flush->space.regime != HVMEM_REGIME_HOST) {
        p->whole_op = HVMEM__TLBI_ALLE1;
    }
}

static hvmem_status check_flush(const struct hvmem_backend *be, const struct hvmem_arm64 *m,
                                const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 regime = flush->space.regime;

    if (flush->size != sizeof(*flush) || flush->what > HVMEM_FLUSH_REGIME ||
        flush->scope > HVMEM_SCOPE_OUTER || (flush->flags & ~HVMEM_TLB_SINGLES))
        return HVMEM_E_ARG;
    if (flush->what == HVMEM_FLUSH_RANGES && flush->count != 0 && !flush->ranges)
        return HVMEM_E_ARG;
    if (m->config.level == HVMEM_ARM64_EL0)
        return HVMEM_E_LEVEL;
    if (flush->scope == HVMEM_SCOPE_OUTER && !(be->caps.features & HVMEM_CAP_OUTER))
        return HVMEM_E_UNSUPPORTED;
    if (flush->what == HVMEM_FLUSH_ALL)
        return HVMEM_OK;
    if (regime > HVMEM_REGIME_GUEST)
        return HVMEM_E_ARG;
    if (regime >= HVMEM_REGIME_STAGE2 && m->config.level == HVMEM_ARM64_EL1)
        return HVMEM_E_LEVEL;
    if (flush->what == HVMEM_FLUSH_REGIME || regime == HVMEM_REGIME_HOST)
        return HVMEM_OK;
    if (regime == HVMEM_REGIME_USER)
        return flush->space.id >> be->caps.user_id_bits ? HVMEM_E_SPACE : HVMEM_OK;
    return flush->space.id >> be->caps.stage2_id_bits ? HVMEM_E_SPACE : HVMEM_OK;
}

/* Is [first, last] inside the input addresses of the regime? */
static int address_ok(const struct hvmem_arm64_config *config, hvmem_u32 regime, hvmem_u64 first,
                      hvmem_u64 last)
{
    /* A guest's first stage may be wider than the caller's. */
    hvmem_u32 bits = regime == HVMEM_REGIME_GUEST ? 52 : config->va_bits;
    hvmem_u64 top = ~0ull << bits;

    if (regime == HVMEM_REGIME_STAGE2)
        return last >> config->ipa_bits == 0;
    if (last >> bits == 0)
        return 1;
    /* The upper half: every bit above the address set. EL2 without VHE has the lower half alone. */
    if (regime == HVMEM_REGIME_HOST && config->level == HVMEM_ARM64_EL2)
        return 0;
    return (first & top) == top;
}

static hvmem_status check_range(const struct hvmem_arm64_config *config, hvmem_u32 regime,
                                const struct hvmem_tlb_range *range)
{
    hvmem_u64 last;

    if (range->flags & ~(HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL))
        return HVMEM_E_ARG;
    if (range->level > 3 && range->level != HVMEM_LEVEL_UNKNOWN)
        return HVMEM_E_ARG;
    if (range->stride_shift != 0 && (range->stride_shift < 12 || range->stride_shift > 47))
        return HVMEM_E_ARG;
    if (range->start & ((1ull << config->page_shift) - 1))
        return HVMEM_E_ALIGN;
    if (range->pages == 0 || range->pages - 1 > (~0ull - range->start) >> config->page_shift)
        return HVMEM_E_RANGE;
    last = range->start + ((range->pages - 1) << config->page_shift);
    return address_ok(config, regime, range->start, last) ? HVMEM_OK : HVMEM_E_RANGE;
}

/* log2 bytes from one single-page operation to the next. 0 in the request means single pages. */
static hvmem_u32 step_shift(const struct plan *p, const struct hvmem_tlb_range *range)
{
    return range->stride_shift > p->granule_shift ? range->stride_shift : p->granule_shift;
}

/* Single-page operations that the range takes, one for each stride it touches. */
static hvmem_u64 single_count(const struct plan *p, const struct hvmem_arm64_config *config,
                              const struct hvmem_tlb_range *range)
{
    hvmem_u32 shift = step_shift(p, range);
    hvmem_u64 last = range->start + ((range->pages - 1) << config->page_shift) +
                     ((1ull << config->page_shift) - 1);

    return (last >> shift) - (range->start >> shift) + 1;
}

/* Operations of the cheaper form, counted up to one more than a batch may have. */
static hvmem_u32 range_count(const struct plan *p, const struct hvmem_arm64_config *config,
                             const struct hvmem_tlb_range *range, int *as_range)
{
    hvmem_u64 singles = single_count(p, config, range);
    hvmem_u32 limit = HVMEM_ARM64_BATCH_OPS + 1;
    hvmem_u32 ranged;

    if (singles < limit)
        limit = (hvmem_u32)singles;
    *as_range = 0;
    if (!p->use_range)
        return limit;
    ranged = hvmem__arm64_cover_count(range->start >> p->granule_shift,
                                      range->pages << (config->page_shift - p->granule_shift),
                                      p->granule_shift, p->lpa2, limit);
    *as_range = ranged < singles;
    return ranged;
}

/* Checks every range and decides between their operations and the whole space. */
static hvmem_status plan_ranges(struct plan *p, const struct hvmem_arm64_config *config,
                                const struct hvmem_tlb_flush *flush)
{
    hvmem_u64 total = 0;
    hvmem_u32 i;
    hvmem_u32 global = 0;
    int as_range;

    for (i = 0; i < flush->count; i++) {
        hvmem_status status = check_range(config, flush->space.regime, &flush->ranges[i]);

        if (status != HVMEM_OK)
            return status;
        global |= flush->ranges[i].flags & HVMEM_RANGE_GLOBAL;
        if (total <= HVMEM_ARM64_BATCH_OPS)
            total += range_count(p, config, &flush->ranges[i], &as_range);
    }
    if (total <= HVMEM_ARM64_BATCH_OPS)
        return HVMEM_OK;
    p->whole = 1;
    if (flush->space.regime == HVMEM_REGIME_USER && global)
        p->whole_op = HVMEM__TLBI_VMALLE1;
    return HVMEM_OK;
}

static hvmem_status make_plan(struct plan *p, const struct hvmem_backend *be,
                              const struct hvmem_arm64 *m, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 regime = flush->space.regime;
    int stage2 = regime == HVMEM_REGIME_STAGE2;

    p->scope = flush->scope;
    p->granule_shift = stage2 ? m->config.stage2_shift : m->config.page_shift;
    p->asid = regime == HVMEM_REGIME_USER ? flush->space.id : 0;
    p->second_op = HVMEM__TLBI_COUNT;
    p->lpa2 = (m->config.flags & (stage2 ? HVMEM_ARM64_LPA2_STAGE2 : HVMEM_ARM64_LPA2_STAGE1)) != 0;
    p->use_range =
        (be->caps.features & HVMEM_CAP_RANGE) != 0 && !(flush->flags & HVMEM_TLB_SINGLES);
    p->use_ttl = (be->caps.features & HVMEM_CAP_TTL) != 0;
    p->whole = flush->what != HVMEM_FLUSH_RANGES;
    p->stage2 = 0;
    p->vmid = 0;
    plan_regime(p, regime, m->config.level);
    if (flush->what == HVMEM_FLUSH_ALL || flush->what == HVMEM_FLUSH_REGIME) {
        plan_wide(p, flush, m->config.level);
        return HVMEM_OK;
    }
    p->vmid = regime >= HVMEM_REGIME_STAGE2;
    if (regime == HVMEM_REGIME_GUEST) {
        /* The guest's granule is not known: 4 KiB steps, no hint, no range form. */
        p->granule_shift = 12;
        p->use_range = 0;
        p->use_ttl = 0;
    }
    if (p->whole)
        return HVMEM_OK;
    p->stage2 = stage2 != 0;
    return plan_ranges(p, &m->config, flush);
}

static void tlbi(const struct hvmem_arm64 *m, const struct plan *p, hvmem_u32 op, hvmem_u64 operand)
{
    hvmem__a64_insn(m, hvmem__arm64_tlbi_word((enum hvmem__arm64_tlbi)op, p->scope), operand);
}

/* The DSB that waits for completion in the scope. */
static hvmem_u32 dsb_after(hvmem_u32 scope)
{
    if (scope == HVMEM_SCOPE_LOCAL)
        return A64_DSB_NSH;
    return scope == HVMEM_SCOPE_INNER ? A64_DSB_ISH : A64_DSB_OSH;
}

/* The DSB that shows earlier stores to table walkers in the scope. */
static hvmem_u32 dsb_before(hvmem_u32 scope)
{
    if (scope == HVMEM_SCOPE_LOCAL)
        return A64_DSB_NSHST;
    return scope == HVMEM_SCOPE_INNER ? A64_DSB_ISHST : A64_DSB_OSHST;
}

static hvmem_u64 page_operand(const struct plan *p, hvmem_u64 addr, hvmem_u32 ttl)
{
    return p->stage2 ? hvmem__arm64_ipa(addr, ttl) : hvmem__arm64_va(addr, p->asid, ttl);
}

static void issue_range(const struct hvmem_arm64 *m, const struct plan *p,
                        const struct hvmem_tlb_range *range)
{
    int leaf = range->flags & HVMEM_RANGE_LEAF;
    hvmem_u32 ttl = 0;
    hvmem_u32 page_op = leaf ? p->leaf_op : p->page_op;
    hvmem_u32 range_op = leaf ? p->range_leaf_op : p->range_op;
    hvmem_u32 shift = step_shift(p, range);
    hvmem_u32 count;
    hvmem_u64 addr;
    int as_range;

    /* A hint is right only where every entry to drop is a leaf of that level. */
    if (leaf && p->use_ttl)
        ttl = hvmem__arm64_ttl(p->granule_shift, range->level, p->lpa2);
    count = range_count(p, &m->config, range, &as_range);
    if (as_range) {
        struct hvmem__arm64_cover cover;
        struct hvmem__arm64_step step;

        hvmem__arm64_cover_start(&cover, range->start >> p->granule_shift,
                                 range->pages << (m->config.page_shift - p->granule_shift),
                                 p->granule_shift, p->lpa2);
        while (hvmem__arm64_cover_next(&cover, &step)) {
            if (step.single)
                tlbi(m, p, page_op, page_operand(p, step.page << p->granule_shift, ttl));
            else
                tlbi(m, p, range_op,
                     hvmem__arm64_range(&step, p->granule_shift, p->lpa2, ttl & 3, p->asid));
        }
        return;
    }
    for (addr = range->start >> shift << shift; count != 0; count--, addr += 1ull << shift)
        tlbi(m, p, page_op, page_operand(p, addr, ttl));
}

static void issue(const struct hvmem_arm64 *m, const struct plan *p,
                  const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 i;

    if (!p->whole) {
        for (i = 0; i < flush->count; i++)
            issue_range(m, p, &flush->ranges[i]);
        return;
    }
    tlbi(m, p, p->whole_op, p->whole_op == HVMEM__TLBI_ASIDE1 ? hvmem__arm64_asid(p->asid) : 0);
    if (p->second_op != HVMEM__TLBI_COUNT)
        tlbi(m, p, p->second_op, 0);
}

/*
 * From the TLBI to their completion. IPAS2 leaves entries that combine both stages: VMALLE1 drops
 * them, and only after the DSB, lest another CPU makes one anew from a stale stage-2 entry.
 */
static void run(const struct hvmem_arm64 *m, hvmem_u64 quirks, const struct plan *p,
                const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 dsb = dsb_after(p->scope);

    issue(m, p, flush);
    insn_plain(m, dsb);
    if (p->stage2 && !p->whole) {
        tlbi(m, p, HVMEM__TLBI_VMALLE1, 0);
        insn_plain(m, dsb);
    }
    /* CVE-2025-10263 and kin: one more broadcast TLBI, of any kind, and DSB finish the batch. */
    if ((quirks & HVMEM_QUIRK_REPEAT_TLBI) && p->scope != HVMEM_SCOPE_LOCAL) {
        tlbi(m, p, m->config.level == HVMEM_ARM64_EL1 ? HVMEM__TLBI_VALE1 : HVMEM__TLBI_VALE2, 0);
        insn_plain(m, dsb);
    }
}

hvmem_status hvmem__arm64_tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    const struct hvmem_arm64 *m = (const struct hvmem_arm64 *)be->ctx;
    struct hvmem__arm64_vmid_state state;
    struct plan plan;
    hvmem_status status;

    if (!flush)
        return HVMEM_E_ARG;
    status = check_flush(be, m, flush);
    if (status != HVMEM_OK || (flush->what == HVMEM_FLUSH_RANGES && flush->count == 0))
        return status;
    status = make_plan(&plan, be, m, flush);
    if (status != HVMEM_OK)
        return status;
    if (!plan.vmid) {
        insn_plain(m, dsb_before(plan.scope));
        run(m, be->caps.quirks, &plan, flush);
        insn_plain(m, A64_ISB);
        return HVMEM_OK;
    }
    /* Not only stores: speculative walks under the old VMID must be finished too. */
    insn_plain(m, dsb_after(plan.scope));
    hvmem__arm64_vmid_enter(m, be->caps.quirks, &state, flush->space.id, flush->space.root);
    run(m, be->caps.quirks, &plan, flush);
    hvmem__arm64_vmid_leave(m, be->caps.quirks, &state);
    return HVMEM_OK;
}
