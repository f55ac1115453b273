/* SPDX-License-Identifier: BSD-2-Clause */
/* s2_format.c: what the formats have in common, and the choice among them. */
#include "s2_format.h"

int hvmem__s2_format_init(struct hvmem__s2_format *f, hvmem_u32 format, hvmem_u32 flags)
{
    memset(f, 0, sizeof *f);
    f->format = format;
    f->flags = flags & HVMEM_S2_FORCE_WB;
    switch (format) {
    case HVMEM_S2_ARM64:
        hvmem__s2_arm64_format(f);
        return 1;
    case HVMEM_S2_NPT:
        hvmem__s2_npt_format(f);
        return 1;
    case HVMEM_S2_EPT:
        hvmem__s2_ept_format(f);
        return 1;
    default:
        return 0;
    }
}

hvmem_u64 hvmem__s2_make_leaf(const struct hvmem__s2_format *f, hvmem_u32 level,
                              hvmem_maddr address, hvmem_u32 rights, hvmem_u32 type)
{
    hvmem_u64 bits;

    if (f->format == HVMEM_S2_ARM64)
        bits = hvmem__s2_arm64_leaf(level, rights, type, f->flags);
    else if (f->format == HVMEM_S2_NPT)
        bits = hvmem__s2_npt_leaf(level, rights, type);
    else
        bits = hvmem__s2_ept_leaf(level, rights, type, f->flags);
    return bits | f->present | address;
}

hvmem_u64 hvmem__s2_make_table(const struct hvmem__s2_format *f, hvmem_maddr address)
{
    /* NPT: user and writable for whoever walks, and accessed, so that hardware never writes it. */
    hvmem_u64 bits = f->format == HVMEM_S2_NPT ? 0x26u : 0;

    return f->valid | (f->kind & f->kind_table) | bits | f->present | address;
}

hvmem_u32 hvmem__s2_rights(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    if (f->format == HVMEM_S2_ARM64)
        return hvmem__s2_arm64_rights(entry);
    if (f->format == HVMEM_S2_NPT)
        return hvmem__s2_npt_rights(entry);
    return hvmem__s2_ept_rights(entry);
}

hvmem_u32 hvmem__s2_type(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    if (f->format == HVMEM_S2_ARM64)
        return hvmem__s2_arm64_type(entry, f->flags);
    if (f->format == HVMEM_S2_NPT)
        return hvmem__s2_npt_type(entry);
    return hvmem__s2_ept_type(entry);
}
