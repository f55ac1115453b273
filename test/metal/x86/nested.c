/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the guest of nested.h. */
#include "test/metal/x86/nested.h"

#include "hosts/metal/x86/svm_vmcb.h"

#include <hvmem/status.h>

struct nested nested;

static int good(hvmem_status status, const char *what)
{
    if (status == HVMEM_OK)
        return 1;
    metal_printf("nested: %s: %s\n", what, hvmem_status_words(status));
    return 0;
}

int nested_make(metal_call_fn fn)
{
    const struct hvmem_x86_config config = {.size = sizeof config,
                                            .flags = HVMEM_X86_SVM | HVMEM_X86_SVM_ENTRY_FLUSH};
    const struct metal_heap_options options = {
        .backend = &nested.backend, .max_domains = 2, .lock_regime = HVMEM_LOCK_PLAIN};
    void *pages = metal_pages(NESTED_PAGES * METAL_PAGE_BYTES, NESTED_PAGES * METAL_PAGE_BYTES);

    if (pages == NULL || !good(hvmem_x86_init(&nested.x86, &nested.backend, &config), "back-end") ||
        metal_heap_boot(&nested.heap, &options) != HVMEM_OK)
        return 0;
    nested.first = metal_maddr(pages) >> METAL_PAGE_SHIFT;
    return metal_svm_guest_make(&nested.guest, fn, NULL) == METAL_OK;
}

static int space_make(const struct hvmem_host_ops *ops)
{
    const struct hvmem_ident_config config = {.size = sizeof config,
                                              .flags = HVMEM_IDENT_PER_CPU | HVMEM_IDENT_ENTRY,
                                              .regime = HVMEM_REGIME_STAGE2,
                                              .first = 1,
                                              .ids = 7,
                                              .max_cpus = metal_boot_info()->cpu_count,
                                              .lock_regime = HVMEM_LOCK_PLAIN,
                                              .host = ops != NULL ? ops : &nested.heap.ops,
                                              .host_ctx = &nested.heap.host,
                                              .backend = &nested.backend};
    const struct hvmem_space_config of = {.size = sizeof of, .regime = HVMEM_REGIME_STAGE2};
    hvmem_size bytes = 0;

    if (!good(hvmem_ident_size(&config, &bytes), "size of ids") ||
        !good(hvmem_ident_init(metal_pages(bytes, METAL_PAGE_BYTES), bytes, &config, &nested.ident),
              "ids"))
        return 0;
    for (unsigned cpu = 0; cpu < config.max_cpus; cpu++)
        if (!good(hvmem_ident_cpu_online(nested.ident, cpu, 0xffff), "CPU of ids"))
            return 0;
    bytes = hvmem_space_size(nested.ident);
    return good(hvmem_space_create(nested.ident, metal_pages(bytes, METAL_PAGE_BYTES), bytes, &of,
                                   &nested.space),
                "space");
}

int nested_map(hvmem_gfn gfn, hvmem_u64 frames)
{
    const struct hvmem_stage2_map request = {
        .size = sizeof request, .gfn = gfn, .frames = frames, .mfn = gfn, .rights = HVMEM_S2_RWX};

    return good(hvmem_stage2_map(nested.s2, &request, NULL), "map");
}

static int map_outside(void *arg, hvmem_mfn first, hvmem_u64 frames)
{
    (void)arg;
    return nested_map(first, frames);
}

int nested_tables(const struct hvmem_host_ops *ops, struct hvmem_domain *domain)
{
    struct hvmem_stage2_config config = {.size = sizeof config,
                                         .format = HVMEM_S2_NPT,
                                         .input_bits = 40,
                                         .start_level = HVMEM_S2_LEVEL_AUTO,
                                         .output_bits = 40,
                                         .largest = 9,
                                         .node = HVMEM_NODE_ANY,
                                         .heap = nested.heap.heap,
                                         .domain = domain};
    hvmem_size bytes = 0;
    hvmem_u64 root = 0;
    void *memory;

    if (!space_make(ops))
        return 0;
    config.space = nested.space;
    if (!good(hvmem_stage2_size(&config, &bytes), "size of stage 2"))
        return 0;
    memory = metal_pages(bytes, METAL_PAGE_BYTES);
    if (memory == NULL || !good(hvmem_stage2_init(memory, bytes, &config, &nested.s2), "stage 2") ||
        !metal_heap_outside(nested.heap.heap, 0, 1ull << (30 - METAL_PAGE_SHIFT), map_outside,
                            NULL) ||
        !good(hvmem_stage2_unmap(nested.s2, nested.first, NESTED_PAGES, NULL, NULL), "unmap") ||
        !good(hvmem_stage2_root(nested.s2, 0, &root), "root"))
        return 0;
    *vmcb64(nested.guest.vmcb, VMCB_NESTED_CR3) = root;
    return 1;
}
