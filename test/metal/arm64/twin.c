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

void twin_ids(struct hvmem_arm64_ids *ids)
{
    ids->midr = read_sysreg(midr_el1);
    ids->ctr = read_sysreg(ctr_el0);
    ids->dczid = read_sysreg(dczid_el0);
    ids->clidr = read_sysreg(clidr_el1);
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
}

const char *subject_insn_name(hvmem_u32 word)
{
    static const struct {
        hvmem_u32 word;
        const char *name;
    } names[] = {
#define NAME3(name, local, is, os) {local, name}, {is, name "IS"}, {os, name "OS"},
        NAME3("VMALLE1", 0xd508871f, 0xd508831f,
              0xd508811f) NAME3("VAE1", 0xd5088720, 0xd5088320,
                                0xd5088120) NAME3("ASIDE1", 0xd5088740, 0xd5088340, 0xd5088140)
            NAME3("VAAE1", 0xd5088760, 0xd5088360,
                  0xd5088160) NAME3("VALE1", 0xd50887a0, 0xd50883a0,
                                    0xd50881a0) NAME3("VAALE1", 0xd50887e0, 0xd50883e0, 0xd50881e0)
                NAME3("RVAE1", 0xd5088620, 0xd5088220, 0xd5088520) NAME3("RVAAE1", 0xd5088660,
                                                                         0xd5088260, 0xd5088560)
                    NAME3("RVALE1", 0xd50886a0, 0xd50882a0,
                          0xd50885a0) NAME3("RVAALE1", 0xd50886e0, 0xd50882e0, 0xd50885e0)
                        NAME3("ALLE2", 0xd50c871f, 0xd50c831f,
                              0xd50c811f) NAME3("VAE2", 0xd50c8720, 0xd50c8320, 0xd50c8120)
                            NAME3("VALE2", 0xd50c87a0, 0xd50c83a0,
                                  0xd50c81a0) NAME3("RVAE2", 0xd50c8620, 0xd50c8220, 0xd50c8520)
                                NAME3("RVALE2", 0xd50c86a0, 0xd50c82a0,
                                      0xd50c85a0) NAME3("ALLE1", 0xd50c879f, 0xd50c839f, 0xd50c819f)
                                    NAME3("VMALLS12E1", 0xd50c87df, 0xd50c83df, 0xd50c81df) NAME3(
                                        "IPAS2E1", 0xd50c8420, 0xd50c8020, 0xd50c8400)
                                        NAME3("IPAS2LE1", 0xd50c84a0, 0xd50c80a0, 0xd50c8480) NAME3(
                                            "RIPAS2E1", 0xd50c8440, 0xd50c8040, 0xd50c8460)
                                            NAME3("RIPAS2LE1", 0xd50c84c0, 0xd50c80c0, 0xd50c84e0)
#undef NAME3
                                                {0xd5087620, "DC IVAC"},
        {0xd5087640, "DC ISW"},
        {0xd5087a40, "DC CSW"},
        {0xd5087e40, "DC CISW"},
        {0xd50b7420, "DC ZVA"},
        {0xd50b7a20, "DC CVAC"},
        {0xd50b7b20, "DC CVAU"},
        {0xd50b7e20, "DC CIVAC"},
        {0xd508711f, "IC IALLUIS"},
        {0xd508751f, "IC IALLU"},
        {0xd50b7520, "IC IVAU"},
    };

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if ((names[i].word | 31) == (word | 31))
            return names[i].name;
    return NULL;
}
