/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The image's own stage-1 tables: 4 KiB granule, 48-bit input, identity. One format serves the EL2
 * regime, the EL1&0 regime and guests of the monitor that run the image's functions.
 */
#ifndef METAL_ARM64_MMU_H
#define METAL_ARM64_MMU_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu.h"

/* Leaf attributes of the host's own mappings. */
enum arm_attr {
    ARM_ATTR_CODE,   /* normal, read-only, executable */
    ARM_ATTR_RODATA, /* normal, read-only */
    ARM_ATTR_DATA,   /* normal, writable */
    ARM_ATTR_DEVICE, /* Device-nGnRE, writable */
};

/* Empties the tables and maps the image's own segments; the MMU may be off. */
void metal__arm_mmu_init(void);

/*
 * Maps [base, base + bytes) onto itself with the largest entries that fit, rounded outward to pages.
 * What is mapped already stays as it is. False: the table pool is used up, or the range wraps or
 * leaves the 48-bit space; part of it may be mapped then.
 */
bool metal__arm_mmu_map(uint64_t base, uint64_t bytes, enum arm_attr attr);

/* TCR_ELx for these tables, in the format of EL1 (also of EL2 under VHE) or of plain EL2. */
uint64_t metal__arm_mmu_tcr(unsigned el);

/* Fills the translation registers of a CPU's record. */
void metal__arm_mmu_registers(struct arm_cpu *cpu);

/* Address of the root table. Walkers run with caches on, so tables are never cleaned. */
uint64_t metal__arm_mmu_root(void);

#endif
