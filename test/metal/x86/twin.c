/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds the x86 back-end a second time, as recorder, under other names; see twin.h. Every function of
 * the back-end that calls an instruction is renamed here: a forgotten one is a duplicate symbol. The
 * pure functions (encoding, detection, errata) are those of the first build.
 */
#define HVMEM_RECORD

#define hvmem_x86_init             twin_x86_init
#define hvmem_x86_add_cpu          twin_x86_add_cpu
#define hvmem_x86_check_cpu        twin_x86_check_cpu
#define hvmem__x86_tlb_flush       twin__x86_tlb_flush
#define hvmem__x86_steps           twin__x86_steps
#define hvmem__x86_dcache          twin__x86_dcache
#define hvmem__x86_dcache_done     twin__x86_dcache_done
#define hvmem__x86_icache          twin__x86_icache
#define hvmem__x86_icache_all      twin__x86_icache_all
#define hvmem__x86_dcache_all      twin__x86_dcache_all
#define hvmem__x86_zero            twin__x86_zero
#define hvmem__x86_guest_entry     twin__x86_guest_entry
#define hvmem__x86_guest_flush     twin__x86_guest_flush
#define hvmem__x86_guest_flush_all twin__x86_guest_flush_all
#define hvmem__x86_read_cr3        twin__x86_read_cr3
#define hvmem__x86_read_cr4        twin__x86_read_cr4
#define hvmem__x86_write_cr3       twin__x86_write_cr3
#define hvmem__x86_write_cr4       twin__x86_write_cr4
#define hvmem__x86_irq_save        twin__x86_irq_save
#define hvmem__x86_irq_restore     twin__x86_irq_restore
#define hvmem__x86_serialize       twin__x86_serialize
#define hvmem__x86_read_ids        twin__x86_read_ids

#include "backends/sim/record.c"
#include "backends/x86/cache.c"
#include "backends/x86/guest.c"
#include "backends/x86/init.c"
#include "backends/x86/insn.c"
#include "backends/x86/tlb.c"

#include "test/metal/x86/twin.h"
#include "test/metal/subject.h"
#include "test/support/insn_names.h"

/* The real reader of CPUID: of the first build. */
#undef hvmem__x86_read_ids
void hvmem__x86_read_ids(const struct hvmem_x86 *m, struct hvmem_x86_ids *ids);

void twin_learn(struct hvmem_record *record, struct hvmem_x86_ids *ids)
{
    static const struct hvmem_x86 plain = {.have = 0};
    hvmem_u64 cr3, cr4;

    __asm__ volatile("mov %%cr3, %0\n\tmov %%cr4, %1" : "=r"(cr3), "=r"(cr4));
    (void)hvmem_record_set(record, HVMEM_X86_REG_CR3, 0, cr3);
    (void)hvmem_record_set(record, HVMEM_X86_REG_CR4, 0, cr4);
    hvmem__x86_read_ids(&plain, ids);
}

const char *subject_insn_name(hvmem_u32 code)
{
    return insn_name(insn_names_x86, INSN_COUNT(insn_names_x86), code);
}
