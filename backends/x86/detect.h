/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Detection: what an x86 CPU can do and which errata it has, decoded from CPUID words and registers by
 * pure functions, and the merge of several CPUs.
 */
#ifndef HVMEM_X86_DETECT_H
#define HVMEM_X86_DETECT_H

#include <hvmem/x86.h>

#define HVMEM__X86_INTEL 0x756e6547u /* "Genu" */
#define HVMEM__X86_AMD   0x68747541u /* "Auth" */
#define HVMEM__X86_HYGON 0x6f677948u /* "Hygo" */

/* HVMEM_QUIRK_* of a CPU (errata.c). */
hvmem_u64 hvmem__x86_errata(const struct hvmem_x86_ids *ids);

/* Capabilities of one CPU and the instructions it has (HAVE_*). */
void hvmem__x86_detect(struct hvmem_backend_caps *caps, hvmem_u32 *have,
                       const struct hvmem_x86_ids *ids, const struct hvmem_x86_config *config);

/* caps := what both CPUs can do; quirks of either. */
void hvmem__x86_merge(struct hvmem_backend_caps *caps, const struct hvmem_backend_caps *other);

#endif
