/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detection: what an arm64 CPU can do and which errata it has, decoded from its ID registers by pure
 * functions, and the merge of several CPUs.
 */
#ifndef HVMEM_ARM64_DETECT_H
#define HVMEM_ARM64_DETECT_H

#include <hvmem/arm64.h>

/* HVMEM_QUIRK_* of a part (errata.c); dic: CTR_EL0.DIC of that CPU. */
hvmem_u64 hvmem__arm64_errata(hvmem_u64 midr, int dic);

/* Capabilities of one CPU under a configuration. */
void hvmem__arm64_detect(struct hvmem_backend_caps *caps, const struct hvmem_arm64_ids *ids,
                         const struct hvmem_arm64_config *config);

/* caps := what both CPUs can do; quirks of either. */
void hvmem__arm64_merge(struct hvmem_backend_caps *caps, const struct hvmem_backend_caps *other);

#endif
