/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the device tree says about the machine. Memory, nodes, CPUs, reservations, command line and
 * initrd go to the shared boot code (common/boot.h) as they are found; what only arm64 needs comes
 * back in struct arm_machine. No system register is touched: the tests run it on any machine.
 */
#ifndef METAL_ARM64_MACHINE_H
#define METAL_ARM64_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "../common/fdt.h"

#define ARM_MAX_GICR_REGIONS 4u

struct arm_machine {
    uint64_t uart;        /* PL011 registers, 0 = none */
    const char *bootargs; /* early only; NULL = none */
    uint64_t gicd;        /* distributor, 0 = no GICv3 */
    uint64_t gicd_bytes;
    uint64_t gicr[ARM_MAX_GICR_REGIONS][2]; /* redistributor regions: base, bytes */
    uint32_t gicr_count;
    char conduit;    /* of PSCI: 's' smc, 'h' hvc, 0 = none */
    bool is_virtual; /* the tree names QEMU's virtual machine */
    uint32_t bad;    /* nodes or properties that were reported and not used */
};

/*
 * What is needed before the MMU is on and before anything may print: uart (the first PL011 that is not
 * disabled) and bootargs. The rest of m is zero.
 */
void metal__arm_machine_early(const struct metal_fdt *f, struct arm_machine *m);

/* Walk the whole tree and fill m. Malformed parts are reported on the console and counted. */
void metal__arm_machine_read(const struct metal_fdt *f, struct arm_machine *m);

#endif
