/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * TLB invalidation of x86: INVLPG, INVPCID, CR3, CR4.PGE on this CPU, INVLPGB with TLBSYNC on all.
 * Every local form serialises, so no fence surrounds it (SDM vol. 3 4.10.4.1, APM vol. 2 5.5.3).
 * The order: check everything, choose between addresses and the whole, issue.
 */
#include "insn.h"
#include "internal.h"

/* The request with what the control registers say. */
struct plan {
    const struct hvmem_tlb_flush *flush;
    hvmem_u64 quirks;
    hvmem_u64 most; /* pages one INVLPGB takes */
    int pcide;
    int pge;
    int global; /* some range may hold global entries */
    int local;  /* some range may hold other entries */
    int whole;  /* ranges are replaced by the space */
    int invlpgb;
};

static int supported(const struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    const struct hvmem_x86 *m = (const struct hvmem_x86 *)be->ctx;
    hvmem_u32 regime = flush->space.regime;
    int svm = (m->config.flags & HVMEM_X86_SVM) != 0;
    int ranges = flush->what == HVMEM_FLUSH_RANGES;

    if (flush->scope == HVMEM_SCOPE_OUTER)
        return 0;
    if (flush->scope == HVMEM_SCOPE_INNER && !(m->have & HAVE_INVLPGB))
        return 0;
    if (flush->what == HVMEM_FLUSH_ALL) {
        hvmem_u32 ept = m->have & (HAVE_INVEPT_ONE | HAVE_INVEPT_ALL);
        hvmem_u32 vpid = m->have & (HAVE_INVVPID_ADDR | HAVE_INVVPID_ONE | HAVE_INVVPID_ALL);

        if (svm)
            return (m->have & HAVE_INVLPGB) || (m->config.flags & HVMEM_X86_SVM_ENTRY_FLUSH);
        /* INVLPGB knows no VPID or EPT. */
        if (flush->scope == HVMEM_SCOPE_INNER)
            return !ept && !vpid;
        return ept != HAVE_INVEPT_ONE && (!vpid || (vpid & HAVE_INVVPID_ALL));
    }
    if (regime < HVMEM_REGIME_STAGE2)
        return 1;
    if (svm && regime == HVMEM_REGIME_GUEST)
        return (m->have & HAVE_INVLPGB) || ranges;
    if (svm)
        return (m->have & HAVE_NESTED) != 0;
    if (flush->scope == HVMEM_SCOPE_INNER)
        return 0;
    if (flush->what == HVMEM_FLUSH_REGIME)
        return (m->have & (regime == HVMEM_REGIME_STAGE2 ? HAVE_INVEPT_ALL : HAVE_INVVPID_ALL)) !=
               0;
    return (be->caps.features &
            (regime == HVMEM_REGIME_STAGE2 ? HVMEM_CAP_STAGE2 : HVMEM_CAP_GUEST)) != 0;
}

/* Could the space exist? Id 0 of guests is the host (VPID) or illegal (ASID). */
static int space_ok(const struct hvmem_backend *be, const struct hvmem_tlb_flush *flush, int pcide)
{
    const struct hvmem_x86 *m = (const struct hvmem_x86 *)be->ctx;
    hvmem_u32 id = flush->space.id;

    switch (flush->space.regime) {
    case HVMEM_REGIME_HOST:
        return 1;
    case HVMEM_REGIME_USER:
        return id == 0 || (pcide && id >> be->caps.user_id_bits == 0);
    case HVMEM_REGIME_STAGE2:
        if (!(m->config.flags & HVMEM_X86_SVM))
            return hvmem__x86_eptp_ok(flush->space.root);
        break;
    default:
        break;
    }
    if ((m->have & HAVE_INVLPGB) && id >> 16)
        return 0;
    return id != 0 && id < be->caps.stage2_ids;
}

static hvmem_status check_flush(const struct hvmem_backend *be, const struct hvmem_tlb_flush *flush,
                                struct plan *p)
{
    const struct hvmem_x86 *m = (const struct hvmem_x86 *)be->ctx;
    hvmem_u64 cr4;
    int tagged;

    if (flush->size != sizeof(*flush) || flush->what > HVMEM_FLUSH_REGIME ||
        flush->scope > HVMEM_SCOPE_OUTER || (flush->flags & ~HVMEM_TLB_SINGLES))
        return HVMEM_E_ARG;
    if (flush->what != HVMEM_FLUSH_ALL && flush->space.regime > HVMEM_REGIME_GUEST)
        return HVMEM_E_ARG;
    if (flush->what == HVMEM_FLUSH_RANGES && flush->count != 0 && !flush->ranges)
        return HVMEM_E_ARG;
    if (m->config.flags & HVMEM_X86_USER)
        return HVMEM_E_LEVEL;
    if (!supported(be, flush))
        return HVMEM_E_UNSUPPORTED;
    cr4 = hvmem__x86_read_cr4(m);
    p->pcide = (cr4 & CR4_PCIDE) != 0;
    p->pge = (cr4 & CR4_PGE) != 0;
    tagged = flush->what == HVMEM_FLUSH_RANGES || flush->what == HVMEM_FLUSH_SPACE;
    return !tagged || space_ok(be, flush, p->pcide) ? HVMEM_OK : HVMEM_E_SPACE;
}

static hvmem_status check_range(const struct hvmem_x86 *m, hvmem_u32 regime,
                                const struct hvmem_tlb_range *range)
{
    hvmem_u64 last;
    int inside;

    if (range->flags & ~(HVMEM_RANGE_LEAF | HVMEM_RANGE_GLOBAL))
        return HVMEM_E_ARG;
    if (range->level > 4 && range->level != HVMEM_LEVEL_UNKNOWN)
        return HVMEM_E_ARG;
    if (range->stride_shift != 0 && (range->stride_shift < 12 || range->stride_shift > 47))
        return HVMEM_E_ARG;
    if (range->start & 0xfff)
        return HVMEM_E_ALIGN;
    if (range->pages == 0 || range->pages - 1 > (~0ull - range->start) >> 12)
        return HVMEM_E_RANGE;
    last = range->start + ((range->pages - 1) << 12);
    if (regime == HVMEM_REGIME_STAGE2)
        inside = last >> HVMEM_MADDR_BITS == 0;
    else /* a guest may use five levels where the host uses four */
        inside = hvmem__x86_canonical(range->start, last,
                                      regime == HVMEM_REGIME_GUEST ? 57 : m->config.va_bits);
    return inside ? HVMEM_OK : HVMEM_E_RANGE;
}

/* Steps of INVLPGB: 4 KiB or 2 MiB pages by count, larger strides one by one. */
static struct hvmem__x86_steps broadcast_steps(const struct hvmem_tlb_range *range)
{
    struct hvmem_tlb_range fine = *range;

    if (fine.stride_shift < 21)
        fine.stride_shift = 12;
    return hvmem__x86_steps(&fine);
}

/* Pages that one instruction takes at a step width. */
static hvmem_u32 batch_pages(const struct plan *p, const struct hvmem__x86_steps *steps)
{
    return steps->shift == 12 || steps->shift == 21 ? (hvmem_u32)p->most : 1;
}

static hvmem_u64 op_count(const struct plan *p, const struct hvmem_tlb_range *range)
{
    struct hvmem__x86_steps steps = hvmem__x86_steps(range);

    if (!p->invlpgb)
        return steps.count;
    steps = broadcast_steps(range);
    return (steps.count - 1) / batch_pages(p, &steps) + 1;
}

static hvmem_status plan_ranges(struct plan *p, const struct hvmem_x86 *m)
{
    const struct hvmem_tlb_flush *flush = p->flush;
    hvmem_u64 total = 0;
    hvmem_u32 i;

    for (i = 0; i < flush->count; i++) {
        const struct hvmem_tlb_range *range = &flush->ranges[i];
        hvmem_status status = check_range(m, flush->space.regime, range);

        if (status != HVMEM_OK)
            return status;
        if (range->flags & HVMEM_RANGE_GLOBAL)
            p->global = 1;
        else
            p->local = 1;
        if (range->stride_shift > 12 && (p->quirks & HVMEM_QUIRK_FLUSH_SUPERPAGE))
            p->whole = 1;
        if (total <= HVMEM_X86_BATCH_OPS)
            total += op_count(p, range);
    }
    if (total > HVMEM_X86_BATCH_OPS)
        p->whole = 1;
    return HVMEM_OK;
}

/* Everything of the host on this CPU, globals and all PCIDs. */
static void flush_host(const struct hvmem_x86 *m)
{
    hvmem_u64 flags, cr4;

    if (m->have & HAVE_INVPCID) {
        insn_invpcid(m, HVMEM__INVPCID_ALL, 0, 0);
        return;
    }
    flags = hvmem__x86_irq_save(m); /* read, change, write */
    cr4 = hvmem__x86_read_cr4(m);
    if (cr4 & (CR4_PGE | CR4_PCIDE)) {
        /* A change of PGE in either direction drops all PCIDs and globals. */
        hvmem__x86_write_cr4(m, cr4 ^ CR4_PGE);
        hvmem__x86_write_cr4(m, cr4);
    } else {
        hvmem__x86_write_cr3(m, hvmem__x86_read_cr3(m));
    }
    hvmem__x86_irq_restore(m, flags);
}

/* One PCID, not globals. */
static void flush_pcid(const struct hvmem_x86 *m, hvmem_u32 pcid, int current)
{
    hvmem_u64 flags;

    if (m->have & HAVE_INVPCID) {
        insn_invpcid(m, HVMEM__INVPCID_PCID, pcid, 0);
    } else if (current) {
        flags = hvmem__x86_irq_save(m);
        hvmem__x86_write_cr3(m, hvmem__x86_read_cr3(m)); /* bit 63 reads as 0: flush */
        hvmem__x86_irq_restore(m, flags);
    } else {
        flush_host(m);
    }
}

/* By address: INVLPG, INVPCID 0, or both (INVPCID 0 leaves globals, INVLPG other PCIDs). */
static void flush_addresses(const struct hvmem_x86 *m, const struct hvmem_tlb_flush *flush,
                            int invpcid)
{
    hvmem_u32 i;

    for (i = 0; i < flush->count; i++) {
        struct hvmem__x86_steps steps = hvmem__x86_steps(&flush->ranges[i]);
        int invlpg = !invpcid || (flush->ranges[i].flags & HVMEM_RANGE_GLOBAL);

        for (; steps.count; steps.count--, steps.first += 1ull << steps.shift) {
            if (invpcid)
                insn_invpcid(m, HVMEM__INVPCID_ADDRESS, flush->space.id, steps.first);
            if (invlpg)
                insn_invlpg(m, steps.first);
        }
    }
}

static void local_host(const struct hvmem_x86 *m, const struct plan *p)
{
    /* With PCIDs INVLPG reaches the current one and globals, the latter not on every CPU. */
    int other_pcids = p->pcide && (p->local || !p->pge || (p->quirks & HVMEM_QUIRK_INVLPG_GLOBAL));

    if (p->whole || other_pcids)
        flush_host(m);
    else
        flush_addresses(m, p->flush, 0);
}

static void local_user(const struct hvmem_x86 *m, const struct plan *p)
{
    hvmem_u32 id = p->flush->space.id;
    int current = !p->pcide || (hvmem__x86_read_cr3(m) & 0xfff) == id;
    int missed_globals = p->pcide && p->global && (p->quirks & HVMEM_QUIRK_INVLPG_GLOBAL);

    if (p->flush->what == HVMEM_FLUSH_REGIME) {
        if (m->have & HAVE_INVPCID)
            insn_invpcid(m, HVMEM__INVPCID_NONGLOBALS, 0, 0);
        else
            flush_host(m);
    } else if ((p->whole && p->global) || missed_globals) {
        flush_host(m);
    } else if (p->whole) {
        flush_pcid(m, id, current);
    } else if (current || (m->have & HAVE_INVPCID)) {
        flush_addresses(m, p->flush, !current);
    } else {
        flush_host(m);
    }
}

static void broadcast_ranges(const struct hvmem_x86 *m, const struct plan *p, hvmem_u32 flags,
                             hvmem_u32 asid, hvmem_u32 pcid)
{
    const struct hvmem_tlb_flush *flush = p->flush;
    hvmem_u32 i, pages, own;

    for (i = 0; i < flush->count; i++) {
        struct hvmem__x86_steps steps = broadcast_steps(&flush->ranges[i]);

        own = flags | HVMEM__INVLPGB_VA;
        if (flush->ranges[i].flags & HVMEM_RANGE_GLOBAL)
            own |= HVMEM__INVLPGB_GLOBAL;
        if (flush->ranges[i].flags & HVMEM_RANGE_LEAF)
            own |= HVMEM__INVLPGB_FINAL;
        for (; steps.count; steps.count -= pages) {
            pages = hvmem__x86_split(steps.count, batch_pages(p, &steps));
            insn_invlpgb(
                m, hvmem__x86_invlpgb(steps.first, pages, steps.shift == 21, own, asid, pcid));
            steps.first += (hvmem_u64)pages << steps.shift;
        }
    }
}

/*
 * INVLPGB. The host's ASID is 0 and always compared, so that guests keep their entries, except where
 * all guests are meant: a flag that is clear compares nothing. TLBSYNC waits for what this CPU issued.
 */
static void broadcast(const struct hvmem_x86 *m, const struct plan *p)
{
    const struct hvmem_tlb_flush *flush = p->flush;
    hvmem_u32 nested = m->have & HAVE_NESTED ? HVMEM__INVLPGB_NESTED : 0;
    hvmem_u32 flags = HVMEM__INVLPGB_ASID | HVMEM__INVLPGB_GLOBAL;
    hvmem_u32 asid = 0, pcid = 0;
    int regime_wide = flush->what == HVMEM_FLUSH_REGIME;

    if (flush->what == HVMEM_FLUSH_ALL) {
        flags = HVMEM__INVLPGB_GLOBAL | nested;
    } else if (flush->space.regime == HVMEM_REGIME_USER) {
        flags = HVMEM__INVLPGB_ASID | (regime_wide ? 0 : HVMEM__INVLPGB_PCID);
        pcid = regime_wide ? 0 : flush->space.id;
        if (p->whole && p->global)
            flags = HVMEM__INVLPGB_ASID | HVMEM__INVLPGB_GLOBAL;
    } else if (flush->space.regime >= HVMEM_REGIME_STAGE2) {
        asid = regime_wide ? 0 : flush->space.id;
        if (regime_wide)
            flags &= ~HVMEM__INVLPGB_ASID;
        if (flush->space.regime == HVMEM_REGIME_STAGE2)
            flags |= nested;
    }
    if (p->whole)
        insn_invlpgb(
            m, hvmem__x86_invlpgb(0, 0, 0, flags, asid, flags & HVMEM__INVLPGB_PCID ? pcid : 0));
    else
        broadcast_ranges(m, p, flags, asid, pcid);
    insn_tlbsync(m);
}

static hvmem_status local_flush(const struct hvmem_x86 *m, const struct plan *p)
{
    hvmem_status status;

    if (p->flush->what == HVMEM_FLUSH_ALL) {
        status = hvmem__x86_guest_flush_all(m);
        if (status == HVMEM_OK)
            flush_host(m);
        return status;
    }
    switch (p->flush->space.regime) {
    case HVMEM_REGIME_HOST:
        local_host(m, p);
        return HVMEM_OK;
    case HVMEM_REGIME_USER:
        local_user(m, p);
        return HVMEM_OK;
    default:
        return hvmem__x86_guest_flush(m, p->flush, p->whole);
    }
}

/*
 * Does INVLPGB do it? All of scope INNER, and of guests under SVM what has no local form: everything
 * but INVLPGA by address.
 */
static int use_invlpgb(const struct hvmem_x86 *m, const struct plan *p)
{
    const struct hvmem_tlb_flush *flush = p->flush;
    int guests = flush->what == HVMEM_FLUSH_ALL || flush->space.regime >= HVMEM_REGIME_STAGE2;
    int by_address =
        flush->what == HVMEM_FLUSH_RANGES && !p->whole && flush->space.regime == HVMEM_REGIME_GUEST;

    if (flush->scope == HVMEM_SCOPE_INNER)
        return 1;
    return (m->config.flags & HVMEM_X86_SVM) && (m->have & HAVE_INVLPGB) && guests && !by_address;
}

hvmem_status hvmem__x86_tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    const struct hvmem_x86 *m = (const struct hvmem_x86 *)be->ctx;
    struct plan p = {0};
    hvmem_status status;

    if (!flush)
        return HVMEM_E_ARG;
    status = check_flush(be, flush, &p);
    if (status != HVMEM_OK || (flush->what == HVMEM_FLUSH_RANGES && flush->count == 0))
        return status;
    p.flush = flush;
    p.quirks = be->caps.quirks;
    p.most = 1;
    if (be->caps.max_range_pages && !(flush->flags & HVMEM_TLB_SINGLES))
        p.most = be->caps.max_range_pages;
    p.whole = flush->what != HVMEM_FLUSH_RANGES;
    p.invlpgb = use_invlpgb(m, &p);
    if (flush->what == HVMEM_FLUSH_RANGES) {
        status = plan_ranges(&p, m);
        if (status != HVMEM_OK)
            return status;
        /* No form takes guest-physical addresses. */
        if (flush->space.regime == HVMEM_REGIME_STAGE2)
            p.whole = 1;
    }
    /* SVM: too many pages for INVLPGA and no INVLPGB for the space. */
    if (p.whole && flush->what == HVMEM_FLUSH_RANGES && (m->config.flags & HVMEM_X86_SVM) &&
        flush->space.regime == HVMEM_REGIME_GUEST && !(m->have & HAVE_INVLPGB))
        return HVMEM_E_UNSUPPORTED;
    if (use_invlpgb(m, &p)) {
        broadcast(m, &p);
        return HVMEM_OK;
    }
    return local_flush(m, &p);
}
