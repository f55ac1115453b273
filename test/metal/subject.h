/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The back-end under test on this machine, as the shared metal tests see it; made by
 * test/metal/ARCH/subject.c. A twin of it that records instead of executing names the instructions
 * of each call, so that the output says which instruction was seen at work.
 */
#ifndef TEST_METAL_SUBJECT_H
#define TEST_METAL_SUBJECT_H

#include <hvmem/backend.h>
#include <hvmem/record.h>

#include "hosts/metal/common/metal.h"

/* The back-end for the level this image runs at; made on first use, ends the image when it cannot. */
struct hvmem_backend *subject_backend(void);

/* Where the image runs: "el1", "el2", "vhe", "x86-64". */
const char *subject_level(void);

/* Whether the test window is also a space of HVMEM_REGIME_USER here, and its id. */
int subject_user_space(uint32_t *id);

/* This CPU runs the window under another id of that regime; x86 without PCIDs has one tag alone. */
void subject_load_user(uint32_t id);

/* The twin of subject_backend and its log. */
struct hvmem_backend *subject_twin(struct hvmem_record **log);

/* Name of a recorded maintenance instruction, NULL for barriers and the like. */
const char *subject_insn_name(uint32_t code);

/* Names of the invalidating instructions that `flush` issues ("VAE2IS", repeated ones once). */
void subject_name(const struct hvmem_tlb_flush *flush, char *text, size_t bytes);

#endif
