/* SPDX-License-Identifier: BSD-2-Clause */
/* vcpu_work.h: running the work queued for a vCPU. Posting and cancelling are public. */
#ifndef HVMEM_LIB_VCPU_WORK_H
#define HVMEM_LIB_VCPU_WORK_H

#include "vcpu.h"

/*
 * Run the queue until it is empty, at most HVMEM_VCPU_WORK_LIMIT pieces: HVMEM_AGAIN if more is
 * left. The CPU's lock is held on entry and on return and released around each run; *state is its
 * interrupt state. The vCPU is entered, so it stays on this CPU meanwhile.
 */
hvmem_status hvmem__vcpu_run_work(struct hvmem_vcpu *vcpu, hvmem_cpu cpu, hvmem_u64 *state);

#endif
