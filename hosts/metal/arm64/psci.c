/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Power State Coordination Interface (DEN 0022): starts CPUs and switches the machine off, by the
 * conduit that the device tree names.
 */
#include "cpu.h"

static enum arm_psci_conduit conduit;

void metal__arm_psci_use(enum arm_psci_conduit used)
{
    conduit = used;
}

int64_t metal__arm_psci(uint32_t id, uint64_t a1, uint64_t a2, uint64_t a3)
{
    register uint64_t x0 __asm__("x0") = id;
    register uint64_t x1 __asm__("x1") = a1;
    register uint64_t x2 __asm__("x2") = a2;
    register uint64_t x3 __asm__("x3") = a3;

    /* SMC calling convention (DEN 0028): x4-x17 may change, the rest is kept. */
#define CONDUIT(instruction)                                                                       \
    __asm__ volatile(instruction                                                                   \
                     : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3)::"x4", "x5", "x6", "x7", "x8", "x9", \
                       "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "memory", "cc")
    switch (conduit) {
    case ARM_PSCI_SMC:
        CONDUIT("smc #0");
        break;
    case ARM_PSCI_HVC:
        CONDUIT("hvc #0");
        break;
    default:
        return -1; /* NOT_SUPPORTED */
    }
#undef CONDUIT
    return (int64_t)x0;
}

int metal__cpu_start(unsigned cpu)
{
    struct arm_cpu *c = &metal__arm_cpu[cpu];
    int64_t result;

    c->mpidr = metal__boot.cpu[cpu].hw_id;
    metal__arm_cpu_prepare(cpu);
    result =
        metal__arm_psci(PSCI_CPU_ON, c->mpidr, metal_maddr(metal__arm_secondary), metal_maddr(c));
    if (result != 0)
        metal_printf("metal: CPU %u: PSCI CPU_ON answers %d\n", cpu, (int)result);
    return result == 0 ? METAL_OK : METAL_E_LACK;
}
