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
/* A vCPU of `vm` runs fn(the i-th guest frame) with this VTTBR, and as above. */
int rig_runs(struct vm *vm, uint64_t vttbr, metal_call_fn fn, unsigned i, uint64_t *value);
/* A guest function for it: *value is the word there, or the OR of the frame's words. */
void rig_read_word(void *at);
void rig_read_frame(void *at);

/* A's frames are mapped where they belong: in the rig's guest, in another. */
void rig_map(void);
void rig_map_in(struct vm *vm);
/* Of another guest: heap and ids of the rig. */
struct vm_options rig_options(void);

/* Allocates all free frames but those of the round, so that populate takes those; and frees them. */
void rig_hold_others(void);
void rig_release_others(void);

#endif
