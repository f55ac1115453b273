/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the x86 back-end share: operations, CR bits, instructions at hand. */
#ifndef HVMEM_X86_INTERNAL_H
#define HVMEM_X86_INTERNAL_H

#include <hvmem/x86.h>

/* struct hvmem_x86.have */
#define HAVE_INVPCID      0x0001u
#define HAVE_PGE          0x0002u
#define HAVE_CLFLUSH      0x0004u
#define HAVE_CLFLUSHOPT   0x0008u
#define HAVE_CLWB         0x0010u
#define HAVE_CLZERO       0x0020u
#define HAVE_WBNOINVD     0x0040u
#define HAVE_SERIALIZE    0x0080u
#define HAVE_INVEPT_ONE   0x0100u
#define HAVE_INVEPT_ALL   0x0200u
#define HAVE_INVVPID_ADDR 0x0400u
#define HAVE_INVVPID_ONE  0x0800u
#define HAVE_INVVPID_ALL  0x1000u
#define HAVE_NESTED       0x2000u /* INVLPGB of nested translations */
#define HAVE_FLUSHBYASID  0x4000u
#define HAVE_INVLPGB      0x8000u

#define CR4_PGE   (1ull << 7)
#define CR4_LA57  (1ull << 12)
#define CR4_PCIDE (1ull << 17)

/* tlb.c */
HVMEM_CALLBACK hvmem_status hvmem__x86_tlb_flush(struct hvmem_backend *be,
                                                 const struct hvmem_tlb_flush *flush);
/* cache.c */
HVMEM_CALLBACK hvmem_status hvmem__x86_dcache(struct hvmem_backend *be, hvmem_u32 op,
                                              hvmem_uptr addr, hvmem_size bytes);
HVMEM_CALLBACK hvmem_status hvmem__x86_dcache_done(struct hvmem_backend *be, hvmem_u32 op);
HVMEM_CALLBACK hvmem_status hvmem__x86_icache(struct hvmem_backend *be, hvmem_uptr addr,
                                              hvmem_size bytes);
HVMEM_CALLBACK hvmem_status hvmem__x86_icache_all(struct hvmem_backend *be, hvmem_u32 scope);
HVMEM_CALLBACK hvmem_status hvmem__x86_dcache_all(struct hvmem_backend *be, hvmem_u32 op);
HVMEM_CALLBACK hvmem_status hvmem__x86_zero(struct hvmem_backend *be, hvmem_uptr addr,
                                            hvmem_size bytes);
/* guest.c */
HVMEM_CALLBACK hvmem_status hvmem__x86_guest_entry(struct hvmem_backend *be, hvmem_u32 owed,
                                                   hvmem_u32 *value);

/*
 * Local flush of STAGE2 and GUEST spaces whose request was checked; ranges are used by GUEST alone.
 * HVMEM_E_HOST: the CPU refused every form (VMfail), nothing was invalidated.
 */
hvmem_status hvmem__x86_guest_flush(const struct hvmem_x86 *m, const struct hvmem_tlb_flush *flush,
                                    int whole);
/* The guests' part of HVMEM_FLUSH_ALL on this CPU, VMX. */
hvmem_status hvmem__x86_guest_flush_all(const struct hvmem_x86 *m);

/* First address and number of steps of 1 << shift that touch a range. */
struct hvmem__x86_steps {
    hvmem_u64 first;
    hvmem_u64 count;
    hvmem_u32 shift;
};
struct hvmem__x86_steps hvmem__x86_steps(const struct hvmem_tlb_range *range);

#endif
