/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * GICv3 as far as calls between CPUs need it: distributor on, this CPU's redistributor awake, SGI 0
 * sent and taken (IHI 0069). No SPI, PPI or LPI is enabled.
 */
#include "cpu.h"
#include "machine.h"
#include "mmu.h"

#define CALL_SGI 0u

/* System registers of the CPU interface by encoding: older assemblers lack the names. */
#define ICC_SRE_EL1     S3_0_C12_C12_5
#define ICC_SRE_EL2     S3_4_C12_C9_5
#define ICC_PMR_EL1     S3_0_C4_C6_0
#define ICC_IGRPEN1_EL1 S3_0_C12_C12_7
#define ICC_SGI1R_EL1   S3_0_C12_C11_5
#define ICC_IAR1_EL1    S3_0_C12_C12_0
#define ICC_EOIR1_EL1   S3_0_C12_C12_1

#define GICD_CTLR      0x0000u
#define GICD_CTLR_RWP  (1u << 31)
#define GICD_CTLR_ARE  (1u << 4)
#define GICD_CTLR_GRP1 (1u << 1)
#define GICR_TYPER     0x0008u
#define GICR_WAKER     0x0014u
#define GICR_FRAME     0x20000u
#define GICR_VLPIS     (1u << 1) /* TYPER: two more frames follow (GICv4) */
#define GICR_LAST      (1u << 4)
#define WAKER_SLEEP    (1u << 1)
#define WAKER_ASLEEP   (1u << 2)
#define SGI_BASE       0x10000u
#define SGI_IGROUPR0   (SGI_BASE + 0x080u)
#define SGI_ISENABLER0 (SGI_BASE + 0x100u)
#define SGI_IPRIORITYR (SGI_BASE + 0x400u)
#define SPURIOUS       1020u
#define GIC_PATIENCE   1000000u /* register reads before a wait is given up */

static uint64_t distributor;
static uint64_t regions[ARM_MAX_GICR_REGIONS][2];
static unsigned region_count;

static uint32_t read32(uint64_t at)
{
    return *(volatile uint32_t *)(uintptr_t)at;
}

static void write32(uint64_t at, uint32_t value)
{
    *(volatile uint32_t *)(uintptr_t)at = value;
}

/* Waits until the bits read as zero. */
static int wait_clear(uint64_t at, uint32_t bits)
{
    for (unsigned turns = 0; turns < GIC_PATIENCE; turns++)
        if ((read32(at) & bits) == 0)
            return METAL_OK;
    return METAL_E_TIMEOUT;
}

void metal__arm_gic_at(uint64_t gicd, const uint64_t gicr[][2], unsigned count)
{
    distributor = gicd;
    region_count = count > ARM_MAX_GICR_REGIONS ? ARM_MAX_GICR_REGIONS : count;
    for (unsigned i = 0; i < region_count; i++) {
        regions[i][0] = gicr[i][0];
        regions[i][1] = gicr[i][1];
    }
}

int metal__arm_gic_start(void)
{
    if (distributor == 0)
        return METAL_E_LACK;
    write32(distributor + GICD_CTLR, 0);
    if (wait_clear(distributor + GICD_CTLR, GICD_CTLR_RWP) != METAL_OK)
        return METAL_E_TIMEOUT;
    write32(distributor + GICD_CTLR, GICD_CTLR_ARE | GICD_CTLR_GRP1);
    return wait_clear(distributor + GICD_CTLR, GICD_CTLR_RWP);
}

/* MPIDR affinities as GICR_TYPER[63:32] shows them. */
static uint32_t packed_affinity(uint64_t mpidr)
{
    return (uint32_t)(mpidr & 0xFFFFFF) | (uint32_t)((mpidr >> 32) & 0xFF) << 24;
}

/* The redistributor of the CPU with this affinity, 0 = none. */
static uint64_t find_redistributor(uint32_t affinity)
{
    for (unsigned i = 0; i < region_count; i++) {
        uint64_t at = regions[i][0];
        const uint64_t end = at + regions[i][1];

        while (at < end && end - at >= GICR_FRAME) {
            const uint32_t low = read32(at + GICR_TYPER);

            if (read32(at + GICR_TYPER + 4) == affinity)
                return at;
            if (low & GICR_LAST)
                break;
            at += (low & GICR_VLPIS) ? 2 * GICR_FRAME : GICR_FRAME;
        }
    }
    return 0;
}

int metal__arm_gic_cpu_start(void)
{
    struct arm_cpu *cpu = this_cpu();
    const uint64_t at = find_redistributor(packed_affinity(read_sysreg(mpidr_el1)));

    if (at == 0)
        return METAL_E_LACK;
    cpu->redistributor = at;
    write32(at + GICR_WAKER, read32(at + GICR_WAKER) & ~WAKER_SLEEP);
    if (wait_clear(at + GICR_WAKER, WAKER_ASLEEP) != METAL_OK)
        return METAL_E_TIMEOUT;
    write32(at + SGI_IGROUPR0, 0xFFFFFFFFu);
    for (uint32_t i = 0; i < 16; i += 4)
        write32(at + SGI_IPRIORITYR + i, 0xA0A0A0A0u);
    write32(at + SGI_ISENABLER0, 1u << CALL_SGI);
    if (current_el() == 2) {
        write_sysreg(ICC_SRE_EL2, 0xF); /* system registers, open to EL1 */
        isb();
    }
    write_sysreg(ICC_SRE_EL1, 7);
    isb();
    write_sysreg(ICC_PMR_EL1, 0xFF); /* every priority */
    write_sysreg(ICC_IGRPEN1_EL1, 1);
    isb();
    return METAL_OK;
}

void metal__ipi_send(unsigned cpu)
{
    const uint64_t mpidr = metal__arm_cpu[cpu].mpidr;
    const uint64_t aff0 = mpidr & 0xFF;
    uint64_t value = 1ull << (aff0 & 15);

    value |= (aff0 >> 4) << 44;            /* range selector: groups of 16 */
    value |= ((mpidr >> 8) & 0xFF) << 16;  /* Aff1 */
    value |= ((mpidr >> 16) & 0xFF) << 32; /* Aff2 */
    value |= ((mpidr >> 32) & 0xFF) << 48; /* Aff3 */
    value |= (uint64_t)CALL_SGI << 24;
    dsb(ishst); /* the target sees what was stored before */
    write_sysreg(ICC_SGI1R_EL1, value);
    isb();
}

void metal__arm_gic_take(void)
{
    const uint64_t id = read_sysreg(ICC_IAR1_EL1) & 0xFFFFFF;

    if (id >= SPURIOUS)
        return;
    dsb(sy);
    write_sysreg(ICC_EOIR1_EL1, id);
    isb();
    if (id == CALL_SGI)
        metal__ipi_received();
}
