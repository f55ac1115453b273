/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The x86 back-end and its recording twin: the same sources, built to log instead of execute, with the
 * same configuration. What the twin logs for a call is what the back-end claims to execute.
 */
#ifndef TEST_METAL_X86_PAIR_H
#define TEST_METAL_X86_PAIR_H

#include <hvmem/record.h>
#include <hvmem/x86.h>

#include "hosts/metal/common/metal.h"
#include "test/metal/x86/twin.h"

#define X86_PAIR_EVENTS 8192u

struct x86_pair {
    struct hvmem_x86 state, twin_state;
    struct hvmem_backend backend, twin;
    struct hvmem_x86_ids ids;
    struct hvmem_record record;
    struct hvmem_record_event events[X86_PAIR_EVENTS];
};

/* Makes both; config->ids NULL: of this CPU. Ends the image when either is refused. */
void x86_pair_make(struct x86_pair *p, const struct hvmem_x86_config *config);

/* Empties the record and gives it this CPU's CR3 and CR4, on which the back-end's choices depend. */
void x86_pair_learn(struct x86_pair *p);

/* Names of the invalidating instructions that `flush` issues, repeated ones once. */
void x86_pair_name(struct x86_pair *p, const struct hvmem_tlb_flush *flush, char *text,
                   size_t bytes);

/* Name of a recorded instruction, INVPCID by type; NULL for one that invalidates or cleans nothing. */
const char *x86_pair_insn_name(const struct hvmem_record_event *event);

#endif
