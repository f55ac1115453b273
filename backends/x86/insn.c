/* SPDX-License-Identifier: BSD-2-Clause */
/* The instruction layer of x86-64 that needs no inlining: control registers, flags, CPUID, MSRs. */
#include "insn.h"

#ifdef HVMEM_RECORD

static struct hvmem_record *record_of(const struct hvmem_x86 *m)
{
    return (struct hvmem_record *)m->config.machine;
}

hvmem_u64 hvmem__x86_read_cr3(const struct hvmem_x86 *m)
{
    return hvmem_record_get(record_of(m), HVMEM_X86_REG_CR3, 0);
}

hvmem_u64 hvmem__x86_read_cr4(const struct hvmem_x86 *m)
{
    return hvmem_record_get(record_of(m), HVMEM_X86_REG_CR4, 0);
}

void hvmem__x86_write_cr3(const struct hvmem_x86 *m, hvmem_u64 value)
{
    INSN_LOG(m, HVMEM_X86_INSN_CR3, value, 0);
    (void)hvmem_record_set(record_of(m), HVMEM_X86_REG_CR3, 0, value & ~(1ull << 63));
}

void hvmem__x86_write_cr4(const struct hvmem_x86 *m, hvmem_u64 value)
{
    INSN_LOG(m, HVMEM_X86_INSN_CR4, value, 0);
    (void)hvmem_record_set(record_of(m), HVMEM_X86_REG_CR4, 0, value);
}

hvmem_u64 hvmem__x86_irq_save(const struct hvmem_x86 *m)
{
    INSN_LOG(m, HVMEM_X86_INSN_CLI, 0, 0);
    return 0;
}

void hvmem__x86_irq_restore(const struct hvmem_x86 *m, hvmem_u64 flags)
{
    (void)flags;
    INSN_LOG(m, HVMEM_X86_INSN_POPF, 0, 0);
}

void hvmem__x86_serialize(const struct hvmem_x86 *m, int has_serialize)
{
    INSN_LOG(m, has_serialize ? HVMEM_X86_INSN_SERIALIZE : HVMEM_X86_INSN_CPUID, 0, 0);
}

void hvmem__x86_read_ids(const struct hvmem_x86 *m, struct hvmem_x86_ids *ids)
{
    static const struct hvmem_x86_ids none;

    (void)m;
    *ids = none;
}

#else

hvmem_u64 hvmem__x86_read_cr3(const struct hvmem_x86 *m)
{
    hvmem_u64 value;

    (void)m;
    __asm__ volatile("mov %%cr3, %0" : "=r"(value) : : "memory");
    return value;
}

hvmem_u64 hvmem__x86_read_cr4(const struct hvmem_x86 *m)
{
    hvmem_u64 value;

    (void)m;
    __asm__ volatile("mov %%cr4, %0" : "=r"(value) : : "memory");
    return value;
}

void hvmem__x86_write_cr3(const struct hvmem_x86 *m, hvmem_u64 value)
{
    (void)m;
    __asm__ volatile("mov %0, %%cr3" : : "r"(value) : "memory");
}

void hvmem__x86_write_cr4(const struct hvmem_x86 *m, hvmem_u64 value)
{
    (void)m;
    __asm__ volatile("mov %0, %%cr4" : : "r"(value) : "memory");
}

hvmem_u64 hvmem__x86_irq_save(const struct hvmem_x86 *m)
{
    hvmem_u64 flags;

    (void)m;
    /* Steps over a red zone, should the host be built with one. */
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tpopq %0\n\tlea 128(%%rsp), %%rsp\n\tcli"
                     : "=r"(flags)
                     :
                     : "memory");
    return flags;
}

void hvmem__x86_irq_restore(const struct hvmem_x86 *m, hvmem_u64 flags)
{
    (void)m;
    if (flags & 0x200) /* RFLAGS.IF */
        __asm__ volatile("sti" : : : "memory");
}

struct cpuid {
    hvmem_u32 eax;
    hvmem_u32 ebx;
    hvmem_u32 ecx;
    hvmem_u32 edx;
};

static struct cpuid cpuid(hvmem_u32 leaf, hvmem_u32 subleaf)
{
    struct cpuid r;

    __asm__ volatile("cpuid"
                     : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
                     : "a"(leaf), "c"(subleaf)
                     : "memory");
    return r;
}

static hvmem_u64 rdmsr(hvmem_u32 msr)
{
    hvmem_u32 low, high;

    __asm__ volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(msr));
    return (hvmem_u64)high << 32 | low;
}

void hvmem__x86_serialize(const struct hvmem_x86 *m, int has_serialize)
{
    (void)m;
    if (has_serialize)
        __asm__ volatile(".byte 0x0f, 0x01, 0xe8" : : : "memory");
    else
        (void)cpuid(0, 0);
}

/* Largest cache of the deterministic cache parameters (leaf 4 of Intel, 8000_001D of AMD). */
static hvmem_u32 cache_bytes(hvmem_u32 leaf)
{
    hvmem_u64 bytes, best = 0;
    hvmem_u32 i;

    for (i = 0; i < 16; i++) {
        struct cpuid r = cpuid(leaf, i);

        if ((r.eax & 31) == 0)
            break;
        bytes = (hvmem_u64)((r.ebx >> 22) + 1) * ((r.ebx >> 12 & 0x3ff) + 1) *
                ((r.ebx & 0xfff) + 1) * ((hvmem_u64)r.ecx + 1);
        if (bytes > best)
            best = bytes;
    }
    return best >> 32 ? 0xffffffffu : (hvmem_u32)best;
}

/* IA32_BIOS_SIGN_ID shows the loaded microcode after CPUID 1 filled it in (SDM vol. 3, 10.11.7). */
static hvmem_u32 microcode(void)
{
    __asm__ volatile("wrmsr" : : "a"(0), "d"(0), "c"(0x8b));
    (void)cpuid(1, 0);
    return (hvmem_u32)(rdmsr(0x8b) >> 32);
}

static void read_msrs(const struct hvmem_x86 *m, struct hvmem_x86_ids *ids)
{
    int intel = ids->vendor == 0x756e6547; /* "Genu" */

    if (m->config.flags & HVMEM_X86_USER)
        return;
    if (intel && !(ids->leaf1_ecx >> 31)) /* a hypervisor's microcode number means nothing */
        ids->microcode = microcode();
    if (ids->leaf7_edx >> 29 & 1)
        ids->arch_caps = rdmsr(0x10a);
    if ((m->config.flags & HVMEM_X86_VMX) && (ids->leaf1_ecx >> 5 & 1))
        ids->ept_vpid_cap = rdmsr(0x48c);
}

void hvmem__x86_read_ids(const struct hvmem_x86 *m, struct hvmem_x86_ids *ids)
{
    static const struct hvmem_x86_ids none;
    struct cpuid r = cpuid(0, 0);
    hvmem_u32 top = r.eax, ext_top = cpuid(0x80000000u, 0).eax;

    *ids = none;
    ids->vendor = r.ebx;
    r = cpuid(1, 0);
    ids->leaf1_eax = r.eax;
    ids->leaf1_ebx = r.ebx;
    ids->leaf1_ecx = r.ecx;
    ids->leaf1_edx = r.edx;
    if (top >= 7) {
        r = cpuid(7, 0);
        ids->leaf7_ebx = r.ebx;
        ids->leaf7_ecx = r.ecx;
        ids->leaf7_edx = r.edx;
    }
    if (ext_top >= 0x80000008u) {
        r = cpuid(0x80000008u, 0);
        ids->ext8_ebx = r.ebx;
        ids->ext8_edx = r.edx;
    }
    if (ext_top >= 0x8000000au && (cpuid(0x80000001u, 0).ecx >> 2 & 1)) {
        r = cpuid(0x8000000au, 0);
        ids->exta_ebx = r.ebx;
        ids->exta_edx = r.edx;
    }
    if (ext_top >= 0x8000001du && ids->vendor != 0x756e6547)
        ids->cache_bytes = cache_bytes(0x8000001du);
    else if (top >= 4)
        ids->cache_bytes = cache_bytes(4);
    read_msrs(m, ids);
}

#endif
