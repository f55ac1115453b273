/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cache maintenance of x86: by address, whole, and zeroing (SDM vol. 2 CLFLUSH, CLFLUSHOPT, CLWB; APM
 * vol. 3 CLZERO). There is no form that drops a dirty line: invalidate is clean and invalidate.
 * Instruction caches snoop stores. Loops count down to the last line, so that the top of the
 * address space ends them.
 */
#include "insn.h"
#include "internal.h"

static const struct hvmem_x86 *machine(const struct hvmem_backend *be)
{
    return (const struct hvmem_x86 *)be->ctx;
}

static int wraps(hvmem_uptr addr, hvmem_size bytes)
{
    return bytes != 0 && addr > ~(hvmem_uptr)0 - (bytes - 1);
}

/* One instruction, HVMEM_X86_INSN_*; a constant where each_line is inlined. */
HVMEM_INLINE void line_insn(const struct hvmem_x86 *m, hvmem_u32 code, hvmem_uptr addr)
{
    switch (code) {
    case HVMEM_X86_INSN_CLWB:
        insn_clwb(m, addr);
        break;
    case HVMEM_X86_INSN_CLFLUSHOPT:
        insn_clflushopt(m, addr);
        break;
    case HVMEM_X86_INSN_CLZERO:
        insn_clzero(m, addr);
        break;
    case HVMEM_X86_INSN_MOVNTI:
        insn_zero_nontemporal(m, addr);
        break;
    default:
        insn_clflush(m, addr);
        break;
    }
}

/* One instruction on every line of [addr, addr + bytes), bytes > 0. */
HVMEM_INLINE void each_line(const struct hvmem_x86 *m, hvmem_u32 code, hvmem_uptr addr,
                            hvmem_size bytes, hvmem_uptr line)
{
    hvmem_uptr at = addr & ~(line - 1);
    hvmem_uptr left = ((addr + (bytes - 1)) & ~(line - 1)) - at;

    for (;;) {
        line_insn(m, code, at);
        if (left == 0)
            return;
        left -= line;
        at += line;
    }
}

/*
 * CLFLUSHOPT and CLWB are ordered with nothing but older stores to their line: SFENCE follows.
 * CLFLUSH of AMD before CLFLUSHOPT is ordered with nothing at all: MFENCE on both sides. Elsewhere CLFLUSH is
 * ordered with all that follows.
 */
static void wait_for_lines(const struct hvmem_x86 *m, hvmem_u32 code, hvmem_u64 quirks)
{
    if (code != HVMEM_X86_INSN_CLFLUSH)
        insn_sfence(m);
    else if (quirks & HVMEM_QUIRK_CLFLUSH_UNORDERED)
        insn_mfence(m);
}

/* The instruction that does an operation. */
static hvmem_u32 code_of(const struct hvmem_x86 *m, hvmem_u32 op)
{
    if (op == HVMEM_DC_CLEAN && (m->have & HAVE_CLWB))
        return HVMEM_X86_INSN_CLWB;
    return m->have & HAVE_CLFLUSHOPT ? HVMEM_X86_INSN_CLFLUSHOPT : HVMEM_X86_INSN_CLFLUSH;
}

hvmem_status hvmem__x86_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                               hvmem_size bytes)
{
    const struct hvmem_x86 *m = machine(be);
    hvmem_u32 more = op & HVMEM_DC_MORE, code;

    op &= ~HVMEM_DC_MORE;
    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes == 0 || op == HVMEM_DC_CLEAN_POU) /* fetches snoop the data caches */
        return HVMEM_OK;
    if (be->caps.dline == 0)
        return HVMEM_E_UNSUPPORTED;
    code = code_of(m, op);
    switch (code) {
    case HVMEM_X86_INSN_CLWB:
        each_line(m, HVMEM_X86_INSN_CLWB, addr, bytes, be->caps.dline);
        break;
    case HVMEM_X86_INSN_CLFLUSHOPT:
        each_line(m, HVMEM_X86_INSN_CLFLUSHOPT, addr, bytes, be->caps.dline);
        break;
    default:
        if (be->caps.quirks & HVMEM_QUIRK_CLFLUSH_UNORDERED)
            insn_mfence(m);
        each_line(m, HVMEM_X86_INSN_CLFLUSH, addr, bytes, be->caps.dline);
        break;
    }
    if (!more)
        wait_for_lines(m, code, be->caps.quirks);
    return HVMEM_OK;
}

hvmem_status hvmem__x86_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    if (op != HVMEM_DC_CLEAN_POU)
        wait_for_lines(machine(be), code_of(machine(be), op), be->caps.quirks);
    return HVMEM_OK;
}

/* SDM vol. 3 9.1.3: code written through another linear address needs a serialising instruction. */
hvmem_status hvmem__x86_icache(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    const struct hvmem_x86 *m = machine(be);

    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes != 0)
        hvmem__x86_serialize(m, (m->have & HAVE_SERIALIZE) != 0);
    return HVMEM_OK;
}

hvmem_status hvmem__x86_icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    (void)be;
    return scope > HVMEM_SCOPE_INNER ? HVMEM_E_ARG : HVMEM_OK;
}

hvmem_status hvmem__x86_dcache_all(struct hvmem_backend *be, hvmem_u32 op)
{
    const struct hvmem_x86 *m = machine(be);

    if (op != HVMEM_DC_CLEAN && op != HVMEM_DC_CLEAN_INVALIDATE)
        return HVMEM_E_ARG;
    if (m->config.flags & HVMEM_X86_USER)
        return HVMEM_E_LEVEL;
    if (!(be->caps.features & HVMEM_CAP_WHOLE_CACHE))
        return HVMEM_E_UNSUPPORTED;
    if (op == HVMEM_DC_CLEAN && (m->have & HAVE_WBNOINVD))
        insn_wbnoinvd(m);
    else
        insn_wbinvd(m);
    return HVMEM_OK;
}

hvmem_status hvmem__x86_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    const struct hvmem_x86 *m = machine(be);

    if ((addr | bytes) & 63)
        return HVMEM_E_ALIGN;
    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes == 0)
        return HVMEM_OK;
    if (m->config.zero == HVMEM_X86_ZERO_STORES || !(be->caps.features & HVMEM_CAP_FAST_ZERO)) {
        insn_zero_stores(m, addr, bytes);
        return HVMEM_OK;
    }
    if (m->config.zero == HVMEM_X86_ZERO_BEST && be->caps.zero_block == 64)
        each_line(m, HVMEM_X86_INSN_CLZERO, addr, bytes, 64);
    else
        each_line(m, HVMEM_X86_INSN_MOVNTI, addr, bytes, 64);
    insn_sfence(m); /* both are weakly ordered */
    return HVMEM_OK;
}
