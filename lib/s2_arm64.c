/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * s2_arm64.c: stage-2 descriptors of arm64, 4 KiB granule, 48-bit addresses (Arm ARM D8.3):
 * bit 0 valid, bit 1 table or page, MemAttr 5:2, S2AP 7:6, SH 9:8, AF 10, address 47:12, XN 54:53,
 * software 58:55, ignored 63. In a table descriptor 11:2 are ignored; in an invalid one all but bit 0.
 */
#include "s2_format.h"

#define READ       ((hvmem_u64)1 << 6)
#define WRITE      ((hvmem_u64)1 << 7)
#define INNER      ((hvmem_u64)3 << 8)
#define OUTER      ((hvmem_u64)2 << 8)
#define ACCESSED   ((hvmem_u64)1 << 10)
#define NO_EXECUTE ((hvmem_u64)1 << 54)

/* MemAttr (D8.6): combined with the guest's own type, or forcing write-back (HCR_EL2.FWB). */
static hvmem_u64 attribute(hvmem_u32 type, hvmem_u32 force_wb)
{
    if (type == HVMEM_S2_DEVICE)
        return 1;
    if (type == HVMEM_S2_NC)
        return 5;
    return force_wb ? 6 : 15;
}

hvmem_u64 hvmem__s2_arm64_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type,
                               hvmem_u32 force_wb)
{
    hvmem_u64 e = level == 3 ? 3u : 1u;

    e |= attribute(type, force_wb) << 2 | ACCESSED;
    e |= type == HVMEM_S2_WB ? INNER : OUTER;
    if (rights & HVMEM_S2_R)
        e |= READ;
    if (rights & HVMEM_S2_W)
        e |= WRITE;
    return rights & HVMEM_S2_X ? e : e | NO_EXECUTE;
}

hvmem_u32 hvmem__s2_arm64_rights(hvmem_u64 entry)
{
    return (entry & READ ? HVMEM_S2_R : 0) | (entry & WRITE ? HVMEM_S2_W : 0) |
           (entry & NO_EXECUTE ? 0 : HVMEM_S2_X);
}

hvmem_u32 hvmem__s2_arm64_type(hvmem_u64 entry, hvmem_u32 force_wb)
{
    hvmem_u32 type, bits = (hvmem_u32)(entry >> 2) & 15u;

    for (type = HVMEM_S2_WB; type < HVMEM_S2_DEVICE; type++)
        if (attribute(type, force_wb) == bits)
            break;
    return type;
}

void hvmem__s2_arm64_format(struct hvmem__s2_format *f)
{
    f->valid = 1;
    f->address = (((hvmem_u64)1 << 48) - 1) & ~(hvmem_u64)0xfff;
    f->kind = f->kind_table = 2;
    f->present = (hvmem_u64)1 << 55;
    f->broken = (hvmem_u64)1 << 56;
    f->unclean = (hvmem_u64)1 << 57;
    f->touched = (hvmem_u64)1 << 58;
    f->aged = (hvmem_u64)1 << 63;
    f->count_shift = 2;
}
