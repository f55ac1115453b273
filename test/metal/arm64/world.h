/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A small world of the library on one CPU, made anew in the same memory for each back-end, so that the same
 * calls find the same addresses: a heap, a domain with a stage 2, and a region of the host's own.
 */
#ifndef TEST_METAL_ARM64_WORLD_H
#define TEST_METAL_ARM64_WORLD_H

#include <hvmem/domain.h>
#include <hvmem/gather.h>
#include <hvmem/populate.h>
#include <hvmem/track.h>

#include "hosts/metal/common/host.h"

#define WORLD_REGION                                                                               \
    (4ull << 20) /* bytes of the region, at the end of RAM: mapped, never touched */

struct world {
    struct hvmem_backend *backend;
    struct hvmem_host_ops ops;
    struct metal_host host;
    struct hvmem_heap *heap;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
    struct hvmem_domain *earlier, *domain;
    hvmem_mfn region; /* first frame */
    struct hvmem_gather gather;
    uint64_t cleaned; /* frames that set/way operations cleaned */
};

/* Takes memory for a world; 0: none left. Once. */
int world_memory(struct world *w);

/* Everything anew, in that memory, zeroed; no space runs and nothing is mapped. */
hvmem_status world_make(struct world *w);

#endif
