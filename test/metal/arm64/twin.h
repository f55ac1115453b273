/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording twin of the arm64 back-end: the same sources, built to log instead of execute. */
#ifndef TEST_METAL_ARM64_TWIN_H
#define TEST_METAL_ARM64_TWIN_H

#include <hvmem/arm64.h>
#include <hvmem/record.h>

hvmem_status twin_arm64_init(struct hvmem_arm64 *m, struct hvmem_backend *be,
                             const struct hvmem_arm64_config *config);

/* Copies into a record what reads of this CPU's cache geometry and of its EL1 registers return. */
void twin_learn(struct hvmem_record *record);

/* The ID registers of this CPU. */
void twin_ids(struct hvmem_arm64_ids *ids);

#endif
