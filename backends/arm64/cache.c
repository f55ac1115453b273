/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cache maintenance of arm64 (Arm ARM B2.7.4.2, D7.5): by address, whole, by set and way, and
 * zeroing. Loops count lines instead of comparing with an end, so that the last line of the address
 * space ends them (an exclusive end would be 0).
 */
#include "encode.h"
#include "insn.h"
#include "internal.h"

static const struct hvmem_arm64 *machine(const struct hvmem_backend *be)
{
    return (const struct hvmem_arm64 *)be->ctx;
}

static int wraps(hvmem_uptr addr, hvmem_size bytes)
{
    return bytes != 0 && addr > ~(hvmem_uptr)0 - (bytes - 1);
}

/* The loop of each_line(): the word is a constant wherever this is inlined, so that no line chooses. */
HVMEM_INLINE void lines(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_uptr at, hvmem_uptr left,
                        hvmem_uptr line)
{
    for (;;) {
        insn_line(m, word, at);
        if (left == 0)
            return;
        left -= line;
        at += line;
    }
}

/* One instruction on every line of [addr, addr + bytes), bytes > 0. */
static void each_line(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_uptr addr,
                      hvmem_size bytes, hvmem_uptr line)
{
    hvmem_uptr at = addr & ~(line - 1);
    hvmem_uptr left = ((addr + (bytes - 1)) & ~(line - 1)) - at;

    switch (word) {
    case A64_DC_IVAC:
        lines(m, A64_DC_IVAC, at, left, line);
        break;
    case A64_DC_CVAC:
        lines(m, A64_DC_CVAC, at, left, line);
        break;
    case A64_DC_CVAU:
        lines(m, A64_DC_CVAU, at, left, line);
        break;
    case A64_DC_ZVA:
        lines(m, A64_DC_ZVA, at, left, line);
        break;
    case A64_IC_IVAU:
        lines(m, A64_IC_IVAU, at, left, line);
        break;
    default:
        lines(m, A64_DC_CIVAC, at, left, line);
        break;
    }
}

/* Invalidates; a line only partly inside holds a neighbour's bytes and is written back first. */
static void invalidate_lines(const struct hvmem_arm64 *m, hvmem_uptr addr, hvmem_size bytes,
                             hvmem_uptr line)
{
    hvmem_uptr head = addr & ~(line - 1);
    hvmem_uptr last = addr + (bytes - 1);
    hvmem_uptr tail = last & ~(line - 1);
    int head_partial = head != addr || last - head < line - 1;
    int tail_partial = last - tail != line - 1;

    if (head_partial)
        insn_line(m, A64_DC_CIVAC, head);
    if (tail_partial && tail != head)
        insn_line(m, A64_DC_CIVAC, tail);
    if (head_partial) {
        if (head == tail)
            return;
        head += line;
    }
    if (tail_partial) {
        if (head == tail)
            return;
        tail -= line;
    }
    each_line(m, A64_DC_IVAC, head, tail - head + 1, line);
}

static void dcache_pass(const struct hvmem_arm64 *m, const struct hvmem_backend_caps *caps,
                        hvmem_u32 op, hvmem_uptr addr, hvmem_size bytes)
{
    hvmem_u32 word = A64_DC_CIVAC;

    if (op == HVMEM_DC_INVALIDATE && m->config.level != HVMEM_ARM64_EL0) {
        invalidate_lines(m, addr, bytes, caps->dline);
        return;
    }
    if (op == HVMEM_DC_CLEAN)
        word = A64_DC_CVAC;
    if (op == HVMEM_DC_CLEAN_POU)
        word = A64_DC_CVAU;
    /* 826319 and kin: a clean by address may be lost, clean and invalidate is not. */
    if (caps->quirks & HVMEM_QUIRK_CLEAN_IS_CIVAC)
        word = A64_DC_CIVAC;
    each_line(m, word, addr, bytes, caps->dline);
}

static hvmem_u32 barrier_of(hvmem_u32 op)
{
    return op == HVMEM_DC_CLEAN_POU ? A64_DSB_ISH : A64_DSB_SY;
}

hvmem_status hvmem__arm64_dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                                 hvmem_size bytes)
{
    const struct hvmem_arm64 *m = machine(be);
    hvmem_u32 more = op & HVMEM_DC_MORE;

    op &= ~HVMEM_DC_MORE;
    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes == 0)
        return HVMEM_OK;
    if (op != HVMEM_DC_CLEAN_POU || !(be->caps.features & HVMEM_CAP_IDC)) {
        dcache_pass(m, &be->caps, op, addr, bytes);
        /* SI L1 4311569: the first pass may complete early for observers outside coherency. */
        if (op != HVMEM_DC_CLEAN_POU && (be->caps.quirks & HVMEM_QUIRK_CMO_TWICE)) {
            insn_plain(m, barrier_of(op));
            dcache_pass(m, &be->caps, op, addr, bytes);
        }
    }
    if (!more)
        insn_plain(m, barrier_of(op));
    return HVMEM_OK;
}

hvmem_status hvmem__arm64_dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    if (op > HVMEM_DC_CLEAN_POU)
        return HVMEM_E_ARG;
    insn_plain(machine(be), barrier_of(op));
    return HVMEM_OK;
}

hvmem_status hvmem__arm64_icache(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    const struct hvmem_arm64 *m = machine(be);

    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes == 0)
        return HVMEM_OK;
    if (!(be->caps.features & HVMEM_CAP_IDC))
        dcache_pass(m, &be->caps, HVMEM_DC_CLEAN_POU, addr, bytes);
    insn_plain(m, A64_DSB_ISH);
    if (!(be->caps.features & HVMEM_CAP_DIC)) {
        /* An aliasing I-cache may hold the bytes under other addresses. EL0 cannot drop it whole. */
        if ((be->caps.quirks & HVMEM_QUIRK_VIPT_ICACHE) && m->config.level != HVMEM_ARM64_EL0)
            insn_plain(m, A64_IC_IALLUIS);
        else
            each_line(m, A64_IC_IVAU, addr, bytes, be->caps.iline);
        insn_plain(m, A64_DSB_ISH);
    }
    insn_plain(m, A64_ISB);
    return HVMEM_OK;
}

hvmem_status hvmem__arm64_icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    const struct hvmem_arm64 *m = machine(be);

    if (scope > HVMEM_SCOPE_INNER)
        return HVMEM_E_ARG;
    if (m->config.level == HVMEM_ARM64_EL0)
        return HVMEM_E_LEVEL;
    insn_plain(m, A64_DSB_ISH);
    if (!(be->caps.features & HVMEM_CAP_DIC)) {
        insn_plain(m, scope == HVMEM_SCOPE_INNER ? A64_IC_IALLUIS : A64_IC_IALLU);
        insn_plain(m, scope == HVMEM_SCOPE_INNER ? A64_DSB_ISH : A64_DSB_NSH);
    }
    insn_plain(m, A64_ISB);
    return HVMEM_OK;
}

static void walk_level(const struct hvmem_arm64 *m, hvmem_u32 word, hvmem_u32 level, int ccidx)
{
    struct hvmem__arm64_geometry geometry;
    hvmem_u32 set, way;

    hvmem__a64_write(m, A64_W_CSSELR_EL1, (hvmem_u64)(level - 1) << 1);
    insn_plain(m, A64_ISB);
    hvmem__arm64_geometry(&geometry, hvmem__a64_read(m, A64_CCSIDR_EL1), ccidx);
    insn_plain(m, A64_DSB_SY);
    for (way = 0; way <= geometry.ways; way++)
        for (set = 0; set <= geometry.sets; set++)
            hvmem__a64_insn(m, word, hvmem__arm64_set_way(&geometry, level, set, way));
}

/*
 * Set and way work reaches this CPU's caches alone, up to the level of coherency: which they are this CPU
 * says, for others may have other levels.
 */
hvmem_status hvmem__arm64_dcache_all(struct hvmem_backend *be, hvmem_u32 op)
{
    const struct hvmem_arm64 *m = machine(be);
    hvmem_u64 clidr;
    hvmem_u32 coherency, level;
    int ccidx;
    hvmem_u32 word = op == HVMEM_DC_CLEAN ? A64_DC_CSW : A64_DC_CISW;

    if (op != HVMEM_DC_CLEAN && op != HVMEM_DC_CLEAN_INVALIDATE)
        return HVMEM_E_ARG;
    if (m->config.level == HVMEM_ARM64_EL0)
        return HVMEM_E_LEVEL;
    if (!(be->caps.features & HVMEM_CAP_WHOLE_CACHE))
        return HVMEM_E_UNSUPPORTED;
    if (be->caps.quirks & HVMEM_QUIRK_CLEAN_IS_CIVAC)
        word = A64_DC_CISW;
    clidr = hvmem__a64_read(m, A64_CLIDR_EL1);
    ccidx = (hvmem__a64_read(m, A64_MMFR2_EL1) >> 20 & 15) != 0;
    coherency = (hvmem_u32)(clidr >> 24) & 7;
    for (level = 1; level <= coherency; level++)
        if ((clidr >> (3 * (level - 1)) & 7) >= 2) /* data, split or unified */
            walk_level(m, word, level, ccidx);
    hvmem__a64_write(m, A64_W_CSSELR_EL1, 0);
    insn_plain(m, A64_DSB_SY);
    insn_plain(m, A64_ISB);
    return HVMEM_OK;
}

/* Zeroes [addr, addr + bytes) by ordinary stores; both multiples of 64. */
static void store_zeroes(const struct hvmem_arm64 *m, hvmem_uptr addr, hvmem_size bytes)
{
    for (; bytes != 0; bytes -= 64, addr += 64)
        insn_store_zero(m, addr);
}

hvmem_status hvmem__arm64_zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    const struct hvmem_arm64 *m = machine(be);
    hvmem_uptr block = be->caps.zero_block;
    hvmem_size head = bytes;

    if ((addr | bytes) & 63)
        return HVMEM_E_ALIGN;
    if (wraps(addr, bytes))
        return HVMEM_E_RANGE;
    if (bytes == 0)
        return HVMEM_OK;
    /* Blocks of the instruction that lie wholly inside; DC ZVA clears the block around its address. */
    if (block != 0)
        head = (block - (addr & (block - 1))) & (block - 1);
    if (head > bytes)
        head = bytes;
    store_zeroes(m, addr, head);
    addr += head;
    bytes -= head;
    if (bytes >= block && block != 0) {
        each_line(m, A64_DC_ZVA, addr, bytes & ~(block - 1), block);
        addr += bytes & ~(block - 1);
        bytes &= block - 1;
    }
    store_zeroes(m, addr, bytes);
    insn_plain(m, A64_DSB_ISHST);
    return HVMEM_OK;
}
