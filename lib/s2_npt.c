/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * s2_npt.c: nested page tables of AMD in long mode (APM vol. 2 5.3, 15.25): P 0, W 1, U 2, PWT 3,
 * PCD 4, A 5, D 6, PS 7, software 11:9 and 62:52, NX 63 (EFER.NXE set). The walk is a user access: U is set
 * everywhere. Bits 62:59 are protection keys of user pages only where CR4.PKE of the host is set:
 * leaves use none of them.
 */
#include "s2_format.h"

#define PRESENT  ((hvmem_u64)1)
#define WRITE    ((hvmem_u64)1 << 1)
#define USER     ((hvmem_u64)1 << 2)
#define PWT      ((hvmem_u64)1 << 3)
#define PCD      ((hvmem_u64)1 << 4)
#define ACCESSED ((hvmem_u64)1 << 5)
#define DIRTY    ((hvmem_u64)1 << 6)
#define LARGE    ((hvmem_u64)1 << 7)
#define NX       ((hvmem_u64)1 << 63)

hvmem_u64 hvmem__s2_npt_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type)
{
    hvmem_u64 e = PRESENT | USER | ACCESSED | DIRTY;

    if (level < 3)
        e |= LARGE;
    if (rights & HVMEM_S2_W)
        e |= WRITE;
    if (!(rights & HVMEM_S2_X))
        e |= NX;
    if (type != HVMEM_S2_WB)
        e |= PCD;
    return type == HVMEM_S2_DEVICE ? e | PWT : e;
}

hvmem_u32 hvmem__s2_npt_rights(hvmem_u64 entry)
{
    return HVMEM_S2_R | (entry & WRITE ? HVMEM_S2_W : 0) | (entry & NX ? 0 : HVMEM_S2_X);
}

hvmem_u32 hvmem__s2_npt_type(hvmem_u64 entry)
{
    if (!(entry & PCD))
        return HVMEM_S2_WB;
    return entry & PWT ? HVMEM_S2_DEVICE : HVMEM_S2_NC;
}

void hvmem__s2_npt_format(struct hvmem__s2_format *f)
{
    f->valid = PRESENT;
    f->address = (((hvmem_u64)1 << 52) - 1) & ~(hvmem_u64)0xfff;
    f->kind = LARGE;
    f->kind_table = 0;
    f->present = (hvmem_u64)1 << 9;
    f->broken = (hvmem_u64)1 << 52;
    f->unclean = (hvmem_u64)1 << 53;
    f->touched = (hvmem_u64)1 << 11;
    f->aged = (hvmem_u64)1 << 10;
    f->count_shift = 52;
}
