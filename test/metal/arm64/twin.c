/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Builds the arm64 back-end a second time, as recorder, under other names; see twin.h. Every function
 * of the back-end that is not static is renamed here: a forgotten one is a duplicate symbol.
 */
#define HVMEM_RECORD

#define hvmem_arm64_init         twin_arm64_init
#define hvmem_arm64_add_cpu      twin_arm64_add_cpu
#define hvmem_arm64_check_cpu    twin_arm64_check_cpu
#define hvmem__a64_insn          twin__a64_insn
#define hvmem__a64_read          twin__a64_read
#define hvmem__a64_write         twin__a64_write
#define hvmem__arm64_tlb_flush   twin__arm64_tlb_flush
#define hvmem__arm64_dcache      twin__arm64_dcache
#define hvmem__arm64_dcache_done twin__arm64_dcache_done
#define hvmem__arm64_icache      twin__arm64_icache
#define hvmem__arm64_icache_all  twin__arm64_icache_all
#define hvmem__arm64_dcache_all  twin__arm64_dcache_all
#define hvmem__arm64_zero        twin__arm64_zero
#define hvmem__arm64_guest_entry twin__arm64_guest_entry
#define hvmem__arm64_vmid_enter  twin__arm64_vmid_enter
#define hvmem__arm64_vmid_leave  twin__arm64_vmid_leave

#include "backends/arm64/cache.c"
#include "backends/arm64/guest.c"
#include "backends/arm64/init.c"
#include "backends/arm64/insn.c"
#include "backends/arm64/tlb.c"
#include "backends/sim/record.c"

#include "hosts/metal/arm64/cpu.h"
#include "test/metal/arm64/twin.h"
#include "test/metal/subject.h"
#include "test/support/insn_names.h"

void twin_ids(struct hvmem_arm64_ids *ids)
{
    ids->midr = read_sysreg(midr_el1);
    ids->ctr = read_sysreg(ctr_el0);
    ids->dczid = read_sysreg(dczid_el0);
    ids->isar0 = read_sysreg(id_aa64isar0_el1);
    ids->isar1 = read_sysreg(id_aa64isar1_el1);
    ids->mmfr0 = read_sysreg(id_aa64mmfr0_el1);
    ids->mmfr1 = read_sysreg(id_aa64mmfr1_el1);
    ids->mmfr2 = read_sysreg(id_aa64mmfr2_el1);
}

void twin_learn(struct hvmem_record *record)
{
    const uint64_t irq = metal_irq_save();

    for (uint32_t select = 0; select < 14; select++) {
        write_sysreg(csselr_el1, select);
        isb();
        (void)hvmem_record_set(record, A64_CCSIDR_EL1, select, read_sysreg(ccsidr_el1));
    }
    metal_irq_restore(irq);
    (void)hvmem_record_set(record, A64_CLIDR_EL1, 0, read_sysreg(clidr_el1));
    (void)hvmem_record_set(record, A64_TCR_EL1, 0, read_sysreg(tcr_el1));
    (void)hvmem_record_set(record, A64_SCTLR_EL1, 0, read_sysreg(sctlr_el1));
}

const char *subject_insn_name(hvmem_u32 code)
{
    return insn_name(insn_names_arm64, INSN_COUNT(insn_names_arm64), code);
}
