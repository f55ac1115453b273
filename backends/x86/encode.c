/* SPDX-License-Identifier: BSD-2-Clause */
/* Operands of x86 maintenance instructions; see encode.h. */
#include "encode.h"

struct hvmem__x86_descriptor hvmem__x86_invpcid(hvmem_u32 pcid, hvmem_u64 addr)
{
    struct hvmem__x86_descriptor d;

    d.low = pcid & 0xfff;
    d.high = addr;
    return d;
}

struct hvmem__x86_descriptor hvmem__x86_invvpid(hvmem_u32 vpid, hvmem_u64 addr)
{
    struct hvmem__x86_descriptor d;

    d.low = vpid & 0xffff;
    d.high = addr;
    return d;
}

struct hvmem__x86_descriptor hvmem__x86_invept(hvmem_u64 eptp)
{
    struct hvmem__x86_descriptor d;

    d.low = eptp;
    d.high = 0;
    return d;
}

struct hvmem__x86_invlpgb hvmem__x86_invlpgb(hvmem_u64 addr, hvmem_u32 pages, int large,
                                             hvmem_u32 flags, hvmem_u32 asid, hvmem_u32 pcid)
{
    struct hvmem__x86_invlpgb r;

    r.rax = flags;
    r.ecx = 0;
    if (flags & HVMEM__INVLPGB_VA) {
        r.rax |= addr & ~0xfffull;
        r.ecx = (pages - 1) & 0xffff;
        if (large)
            r.ecx |= 1u << 31;
    }
    r.edx = (asid & 0xffff) | (pcid & 0xfff) << 16;
    return r;
}

hvmem_u32 hvmem__x86_split(hvmem_u64 left, hvmem_u32 most)
{
    return left < most ? (hvmem_u32)left : most;
}

hvmem_u32 hvmem__x86_tlb_control(hvmem_u32 owed, int flush_by_asid)
{
    if (owed == HVMEM_ENTRY_NOTHING)
        return 0;
    return owed == HVMEM_ENTRY_FLUSH_GUEST && flush_by_asid ? 3 : 1;
}

int hvmem__x86_canonical(hvmem_u64 first, hvmem_u64 last, hvmem_u32 va_bits)
{
    hvmem_u64 top = ~0ull << (va_bits - 1);

    return (last & top) == 0 || (first & top) == top;
}

int hvmem__x86_eptp_ok(hvmem_u64 eptp)
{
    hvmem_u64 type = eptp & 7, walk = eptp >> 3 & 7;

    return (type == 0 || type == 6) && (walk == 3 || walk == 4) && (eptp & 0xf00) == 0 &&
           eptp >> 52 == 0;
}
