/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The frames of moves.h as memory of a guest that has a vCPU on every CPU, through the library's second
 * stage; for programs of an image at EL2.
 */
#ifndef TEST_METAL_ARM64_STAGE2_RIG_H
#define TEST_METAL_ARM64_STAGE2_RIG_H

#include "test/metal/arm64/vm.h"
#include "test/metal/moves.h"

struct stage2_rig {
    struct vm vm;
    hvmem_gfn first; /* guest frames of what moves: one behind the other, 4 KiB entries */
};

extern struct stage2_rig rig;

/* Makes the heap of moves.h, the guest with the image mapped, and loads it on all CPUs; 0: could not. */
int rig_make(void);
void rig_end(void);
/* At EL1, and under VHE, there are no guests: checks that, and gives the program's result. */
int rig_refused(void);

/* This CPU's vCPU reads at the i-th guest frame. 1: it did; 0: it faulted in the second stage. */
int rig_reads(unsigned i, uint64_t *value);

/* A's frames are mapped where they belong. */
void rig_map(void);

#endif
