/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage-2 tables for guests of the monitor: 4 KiB granule, 40-bit input, two root tables side by side.
 * Entries are written without any invalidation: stale translations are the tests' subject.
 */
#ifndef METAL_ARM64_STAGE2_H
#define METAL_ARM64_STAGE2_H

#include <stdint.h>

#include "../common/metal.h"

/* Width of the addresses these tables translate. */
#define METAL_S2_IPA_BITS 40u

#define METAL_S2_R      1u
#define METAL_S2_W      2u
#define METAL_S2_X      4u
#define METAL_S2_AF     8u /* access flag: without it the first access faults */
#define METAL_S2_RWX    (METAL_S2_R | METAL_S2_W | METAL_S2_X | METAL_S2_AF)
#define METAL_S2_DEVICE 16u

struct metal_s2 {
    uint64_t *root; /* 2 x 512 entries, 8 KiB aligned */
    uint64_t vtcr;
};

/* Empty tables from metal_pages. METAL_E_FULL: no memory; METAL_E_LACK: not at EL2. */
int metal_s2_init(struct metal_s2 *s2);

/*
 * Writes the entry for ipa at the given size (METAL_4K, METAL_2M, METAL_1G) and makes it visible to
 * walkers; flags 0 writes an invalid one. Tables are made where missing; METAL_E_INVAL: misaligned,
 * outside, or a table or larger entry in the way.
 */
int metal_s2_map(struct metal_s2 *s2, uint64_t ipa, uint64_t maddr, unsigned size_shift,
                 unsigned flags);

/* Identity for all RAM and the devices below it, by the largest entries. */
int metal_s2_map_all(struct metal_s2 *s2);

/* The entry itself, for tests that change it under running guests; NULL when no table leads there. */
uint64_t *metal_s2_entry(struct metal_s2 *s2, uint64_t ipa, unsigned size_shift);

/* VTTBR_EL2 for these tables and this VMID. */
uint64_t metal_s2_vttbr(const struct metal_s2 *s2, uint16_t vmid);

#endif
