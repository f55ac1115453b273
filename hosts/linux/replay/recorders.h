/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The x86 back-end in its recording build, one for each CPU: a flush request becomes the instructions
 * that hardware would have executed, and these are counted by kind.
 */
#ifndef RECORDERS_H
#define RECORDERS_H

#include <hvmem/backend.h>

#include <stdint.h>

#define RECORD_KINDS 24u /* above every HVMEM_X86_INSN_* */

struct recorders;

/* For a CPU with PGE, PCID off, INVPCID and, if asked for, INVLPGB. NULL: no memory or refused. */
struct recorders *recorders_new(int broadcast);
void recorders_delete(struct recorders *recorders);

/* One request, on the calling thread's CPU; also from the signal that stands for an IPI. */
hvmem_status recorders_flush(struct recorders *recorders, const struct hvmem_tlb_flush *flush);

/* Instructions of each kind since the last clear; index HVMEM_X86_INSN_*. */
void recorders_counts(const struct recorders *recorders, uint64_t counts[RECORD_KINDS]);
void recorders_clear(struct recorders *recorders);

/* The instruction's name; NULL for a number without one. */
const char *recorders_word(unsigned kind);

#endif
