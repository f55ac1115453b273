/* SPDX-License-Identifier: BSD-2-Clause */
/* boot: as far as a unikernel that can allocate: all CPUs up, a heap of all RAM, one frame from it. */
#include "hosts/metal/common/host.h"

#include "test/metal/subject.h"

static struct metal_heap heap;

static int boot(void)
{
    const struct metal_heap_options options = {
        .backend = subject_backend(), .max_domains = 8, .lock_regime = HVMEM_LOCK_PLAIN};
    const unsigned cpus = metal_start_cpus(NULL);
    hvmem_mfn mfn = 0;

    if (metal_heap_boot(&heap, &options) != HVMEM_OK || metal_heap_smp(&heap) != HVMEM_OK ||
        hvmem_alloc_order(heap.heap, 0, &mfn) != HVMEM_OK)
        return 1;
    metal_printf("boot: ready: %u CPUs, %llu frames\n", cpus, (unsigned long long)heap.frames);
    return hvmem_free(heap.heap, mfn, 0) == HVMEM_OK ? 0 : 1;
}

METAL_PROGRAM(boot, boot);
