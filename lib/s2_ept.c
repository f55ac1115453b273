/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * s2_ept.c: extended page tables of Intel (SDM vol. 3 29.3.2): R 0, W 1, X 2, memory type 5:3,
 * ignore-PAT 6, large 7, A 8, D 9, 11 and 62:52 ignored with the features that use some of them
 * off, 63 suppress #VE. An entry is present for hardware if it grants anything, so the rights of one
 * that is not are kept apart, in 54:52. A/D flags are not used (EPTP bit 6 is 0), so that 8 is ignored too.
 */
#include "s2_format.h"

#define LARGE       ((hvmem_u64)1 << 7)
#define IGNORE_PAT  ((hvmem_u64)1 << 6)
#define SAVED_SHIFT 52

hvmem_u64 hvmem__s2_ept_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type, hvmem_u32 force_wb)
{
    hvmem_u64 e = (hvmem_u64)rights | (hvmem_u64)rights << SAVED_SHIFT;

    if (level < 3)
        e |= LARGE;
    if (type == HVMEM_S2_WB)
        return e | 6u << 3 | (force_wb ? IGNORE_PAT : 0);
    return type == HVMEM_S2_NC ? e | 1u << 3 : e;
}

hvmem_u32 hvmem__s2_ept_rights(hvmem_u64 entry)
{
    return (hvmem_u32)(entry >> SAVED_SHIFT) & HVMEM_S2_RWX;
}

hvmem_u32 hvmem__s2_ept_type(hvmem_u64 entry)
{
    hvmem_u32 type = (hvmem_u32)(entry >> 3) & 7u;

    if (type == 6)
        return HVMEM_S2_WB;
    return type == 1 ? HVMEM_S2_NC : HVMEM_S2_DEVICE;
}

void hvmem__s2_ept_format(struct hvmem__s2_format *f)
{
    f->valid = HVMEM_S2_RWX;
    f->address = (((hvmem_u64)1 << 52) - 1) & ~(hvmem_u64)0xfff;
    f->kind = LARGE;
    f->kind_table = 0;
    f->present = (hvmem_u64)1 << 11;
    f->broken = (hvmem_u64)1 << 55;
    f->unclean = (hvmem_u64)1 << 56;
    f->touched = (hvmem_u64)1 << 8;
    f->aged = (hvmem_u64)1 << 62;
    f->count_shift = 52;
}
