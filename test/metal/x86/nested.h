/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A guest (AMD SVM) on nested tables of the library: the SVM back-end, a heap of all RAM, and tables that
 * map one to one all but a few pages, which the tests map.
 */
#ifndef TEST_METAL_X86_NESTED_H
#define TEST_METAL_X86_NESTED_H

#include "hosts/metal/common/host.h"
#include "hosts/metal/x86/svm_guest.h"

#include <hvmem/domain.h>
#include <hvmem/space.h>
#include <hvmem/stage2.h>
#include <hvmem/x86.h>

#define NESTED_PAGES 16u

struct nested {
    struct hvmem_x86 x86;
    struct hvmem_backend backend;
    struct metal_heap heap;
    struct metal_svm_guest guest;
    struct hvmem_ident *ident;
    struct hvmem_space *space;
    struct hvmem_stage2 *s2;
    hvmem_gfn first; /* of the pages; machine frames of the same numbers are nobody's */
};

extern struct nested nested;

/* Back-end, heap, and a guest that will run fn; 0: refused, and said so. */
int nested_make(metal_call_fn fn);

/*
 * A space of ids of its own, whose CPUs are asked through `ops` (NULL: those of the heap), and an empty
 * stage 2, which the guest runs on from now on, with all mapped one to one but the
 * pages and what the heap gives out, its tables among that. 0: as above.
 */
int nested_tables(const struct hvmem_host_ops *ops, struct hvmem_domain *domain);

/* Maps guest frames to the machine frames of the same number. */
int nested_map(hvmem_gfn gfn, hvmem_u64 frames);

#endif
