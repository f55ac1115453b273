/* SPDX-License-Identifier: BSD-2-Clause */
/* The recording twin of the x86 back-end: the same sources, built to log instead of execute. */
#ifndef TEST_METAL_X86_TWIN_H
#define TEST_METAL_X86_TWIN_H

#include <hvmem/record.h>
#include <hvmem/x86.h>

hvmem_status twin_x86_init(struct hvmem_x86 *m, struct hvmem_backend *be,
                           const struct hvmem_x86_config *config);

/* Copies this CPU's control registers into a record and its identification into ids. */
void twin_learn(struct hvmem_record *record, struct hvmem_x86_ids *ids);

#endif
