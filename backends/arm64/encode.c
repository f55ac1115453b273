/* SPDX-License-Identifier: BSD-2-Clause */
/* Operands of arm64 maintenance instructions; see encode.h. */
#include "encode.h"

/* op1, op2, CRm of local and inner shareable, CRm and op2 of outer shareable, takes an operand. */
struct tlbi_fields {
    hvmem_u8 op1;
    hvmem_u8 op2;
    hvmem_u8 crm_local;
    hvmem_u8 crm_inner;
    hvmem_u8 crm_outer;
    hvmem_u8 op2_outer;
    hvmem_u8 operand;
};

/* In the order of enum hvmem__arm64_tlbi (Arm ARM C5.5). */
static const struct tlbi_fields tlbi_table[HVMEM__TLBI_COUNT] = {
    {0, 0, 7, 3, 1, 0, 0}, /* VMALLE1 */
    {0, 1, 7, 3, 1, 1, 1}, /* VAE1 */
    {0, 2, 7, 3, 1, 2, 1}, /* ASIDE1 */
    {0, 3, 7, 3, 1, 3, 1}, /* VAAE1 */
    {0, 5, 7, 3, 1, 5, 1}, /* VALE1 */
    {0, 7, 7, 3, 1, 7, 1}, /* VAALE1 */
    {0, 1, 6, 2, 5, 1, 1}, /* RVAE1 */
    {0, 3, 6, 2, 5, 3, 1}, /* RVAAE1 */
    {0, 5, 6, 2, 5, 5, 1}, /* RVALE1 */
    {0, 7, 6, 2, 5, 7, 1}, /* RVAALE1 */
    {4, 0, 7, 3, 1, 0, 0}, /* ALLE2 */
    {4, 1, 7, 3, 1, 1, 1}, /* VAE2 */
    {4, 5, 7, 3, 1, 5, 1}, /* VALE2 */
    {4, 1, 6, 2, 5, 1, 1}, /* RVAE2 */
    {4, 5, 6, 2, 5, 5, 1}, /* RVALE2 */
    {4, 4, 7, 3, 1, 4, 0}, /* ALLE1 */
    {4, 6, 7, 3, 1, 6, 0}, /* VMALLS12E1 */
    {4, 1, 4, 0, 4, 0, 1}, /* IPAS2E1 */
    {4, 5, 4, 0, 4, 4, 1}, /* IPAS2LE1 */
    {4, 2, 4, 0, 4, 3, 1}, /* RIPAS2E1 */
    {4, 6, 4, 0, 4, 7, 1}, /* RIPAS2LE1 */
};

hvmem_u32 hvmem__arm64_tlbi_word(enum hvmem__arm64_tlbi op, hvmem_u32 scope)
{
    const struct tlbi_fields *f = &tlbi_table[op];
    hvmem_u32 crm = f->crm_local;
    hvmem_u32 op2 = f->op2;

    if (scope == HVMEM_SCOPE_INNER)
        crm = f->crm_inner;
    if (scope == HVMEM_SCOPE_OUTER) {
        crm = f->crm_outer;
        op2 = f->op2_outer;
    }
    return 0xd5088000u | (hvmem_u32)f->op1 << 16 | crm << 8 | op2 << 5 | (f->operand ? 0u : 31u);
}

/* TG field of TTL and range operands: 1 = 4 KiB, 2 = 16 KiB, 3 = 64 KiB. */
static hvmem_u32 granule_field(hvmem_u32 granule_shift)
{
    return (granule_shift - 10) / 2;
}

hvmem_u32 hvmem__arm64_ttl(hvmem_u32 granule_shift, hvmem_u32 level, int lpa2)
{
    if (level < 1 || level > 3)
        return 0;
    if (granule_shift == 14 && level == 1 && !lpa2)
        return 0;
    return granule_field(granule_shift) << 2 | level;
}

hvmem_u64 hvmem__arm64_va(hvmem_u64 va, hvmem_u32 asid, hvmem_u32 ttl)
{
    return (va >> 12 & ((1ull << 44) - 1)) | (hvmem_u64)(ttl & 15) << 44 | (hvmem_u64)asid << 48;
}

hvmem_u64 hvmem__arm64_ipa(hvmem_u64 ipa, hvmem_u32 ttl)
{
    return (ipa >> 12 & ((1ull << 40) - 1)) | (hvmem_u64)(ttl & 15) << 44;
}

hvmem_u64 hvmem__arm64_asid(hvmem_u32 asid)
{
    return (hvmem_u64)asid << 48;
}

void hvmem__arm64_cover_start(struct hvmem__arm64_cover *cover, hvmem_u64 page, hvmem_u64 pages,
                              hvmem_u32 granule_shift, int lpa2)
{
    cover->page = page;
    cover->end = page + pages;
    cover->piece_end = page;
    cover->misaligned = lpa2 ? (1ull << (16 - granule_shift)) - 1 : 0;
    cover->scale = 3;
}

/*
 * Greedy from the largest scale down. Within a piece every scale is used at most once: what is left
 * after scale s is shorter than its unit, so NUM stays below 32. High scales go first, which keeps
 * the base aligned to 64 KiB until the last operations.
 */
int hvmem__arm64_cover_next(struct hvmem__arm64_cover *cover, struct hvmem__arm64_step *step)
{
    hvmem_u64 left, units;

    if (cover->page == cover->end)
        return 0;
    if (cover->page == cover->piece_end) {
        cover->scale = 3;
        cover->piece_end = cover->end;
        if (cover->end - cover->page > HVMEM__ARM64_RANGE_MAX)
            cover->piece_end = (cover->page + HVMEM__ARM64_RANGE_MAX) & ~cover->misaligned;
    }
    left = cover->piece_end - cover->page;
    step->page = cover->page;
    step->single = left == 1 || (cover->page & cover->misaligned) != 0;
    step->num = 0;
    step->scale = 0;
    if (step->single) {
        cover->page++;
        return 1;
    }
    /* left >= 2, so scale 0 (units of two pages) always has something to do. */
    while (left >> (5 * cover->scale + 1) == 0)
        cover->scale--;
    units = left >> (5 * cover->scale + 1);
    step->num = (hvmem_u32)(units - 1);
    step->scale = cover->scale;
    cover->page += units << (5 * cover->scale + 1);
    return 1;
}

hvmem_u32 hvmem__arm64_cover_count(hvmem_u64 page, hvmem_u64 pages, hvmem_u32 granule_shift,
                                   int lpa2, hvmem_u32 limit)
{
    struct hvmem__arm64_cover cover;
    struct hvmem__arm64_step step;
    hvmem_u32 count = 0;

    hvmem__arm64_cover_start(&cover, page, pages, granule_shift, lpa2);
    while (count < limit && hvmem__arm64_cover_next(&cover, &step))
        count++;
    return count;
}

hvmem_u64 hvmem__arm64_range(const struct hvmem__arm64_step *step, hvmem_u32 granule_shift,
                             int lpa2, hvmem_u32 ttl_level, hvmem_u32 asid)
{
    hvmem_u64 base = step->page;

    if (lpa2)
        base >>= 16 - granule_shift;
    return (base & ((1ull << 37) - 1)) | (hvmem_u64)(ttl_level & 3) << 37 |
           (hvmem_u64)step->num << 39 | (hvmem_u64)step->scale << 44 |
           (hvmem_u64)granule_field(granule_shift) << 46 | (hvmem_u64)asid << 48;
}

/* ceil(log2(x + 1)) of a value that fits 32 bits: the number of bits x needs. */
static hvmem_u32 bits_of(hvmem_u32 x)
{
    hvmem_u32 bits = 0;

    while (x >> bits)
        if (++bits == 32)
            break;
    return bits;
}

void hvmem__arm64_geometry(struct hvmem__arm64_geometry *geometry, hvmem_u64 ccsidr, int ccidx)
{
    geometry->line_shift = (hvmem_u32)(ccsidr & 7) + 4;
    if (ccidx) {
        geometry->ways = (hvmem_u32)(ccsidr >> 3 & 0x1fffff);
        geometry->sets = (hvmem_u32)(ccsidr >> 32 & 0xffffff);
    } else {
        geometry->ways = (hvmem_u32)(ccsidr >> 3 & 0x3ff);
        geometry->sets = (hvmem_u32)(ccsidr >> 13 & 0x7fff);
    }
    geometry->way_shift = 32 - bits_of(geometry->ways);
}

hvmem_u64 hvmem__arm64_set_way(const struct hvmem__arm64_geometry *geometry, hvmem_u32 level,
                               hvmem_u32 set, hvmem_u32 way)
{
    /* A direct-mapped cache has no way field; a shift by 32 would be out of the word. */
    hvmem_u64 way_bits = geometry->ways ? (hvmem_u64)way << geometry->way_shift : 0;

    return way_bits | (hvmem_u64)set << geometry->line_shift | (hvmem_u64)(level - 1) << 1;
}
