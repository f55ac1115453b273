/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The arm64 back-end's recording build in front of the model TLB: each batch is issued by the real
 * code, and the instructions that it recorded are what happens to the TLBs. EL2, second stage.
 */
#ifndef SIM_ARM64_H
#define SIM_ARM64_H

#include "backends/sim/machine.h"

#include <hvmem/arm64.h>
#include <hvmem/record.h>

#define SIM_ARM64_EVENTS 2048u

struct sim_arm64 {
    struct hvmem_record log;
    struct hvmem_record_event events[SIM_ARM64_EVENTS];
    struct hvmem_arm64_ids ids;
    struct hvmem_arm64 arm64;
    struct hvmem_backend be;
    const char *unknown; /* an instruction that was not understood */
};

/* With range operations and level hints; the workaround of flawed hardware if asked. */
void sim_arm64_begin(struct sim_arm64 *s, int repeat);
/* One batch on CPU m->current of the machine. Errors: the back-end's. */
hvmem_status sim_arm64_flush(struct sim_arm64 *s, struct hvmem_sim_machine *m,
                             const struct hvmem_tlb_flush *flush);

#endif
