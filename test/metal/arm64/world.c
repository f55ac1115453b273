/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes the world of world.h. */
#include "test/metal/arm64/world.h"

#define CONTROL_BYTES (256ull << 10) /* handles and tables of the heap */
#define POOL          256u           /* frames of the heap */

static char *control, *pool;
static uint64_t used; /* bytes of control */

int world_memory(struct world *w)
{
    const struct metal_boot *boot = metal_boot_info();
    const struct metal_mem *last = &boot->mem[boot->mem_count - 1];

    control = metal_pages(CONTROL_BYTES, METAL_PAGE_BYTES);
    pool = metal_pages(POOL * METAL_PAGE_BYTES, POOL * METAL_PAGE_BYTES);
    w->region =
        ((last->base + last->bytes - WORLD_REGION) & ~(WORLD_REGION - 1)) >> METAL_PAGE_SHIFT;
    return control != NULL && pool != NULL && last->bytes > 8 * WORLD_REGION;
}

static void *take(hvmem_size bytes)
{
    void *at = control + used;

    used += (bytes + 63) & ~63ull;
    return used <= CONTROL_BYTES ? at : NULL;
}

static void zero(char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes / 8; i++)
        ((volatile uint64_t *)(void *)at)[i] = 0;
}

static hvmem_status heap_make(struct world *w)
{
    struct hvmem_bank bank = {
        .size = sizeof bank, .base = metal_maddr(pool) >> METAL_PAGE_SHIFT, .frames = POOL};
    struct hvmem_config config;
    hvmem_size bytes = 0;
    hvmem_status status;

    metal_host_ops(&w->ops);
    w->host = (struct metal_host){.report_lines = 8};
    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 1;
    config.max_banks = 1;
    config.max_domains = 2;
    config.max_order = 4;
    config.host = &w->ops;
    config.host_ctx = &w->host;
    config.backend = w->backend;
    status = hvmem_heap_size(&config, &bytes);
    if (status == HVMEM_OK)
        status = hvmem_heap_init(take(bytes), bytes, &config, &w->heap);
    if (status == HVMEM_OK)
        status = hvmem_bank_size(w->heap, &bank, &bytes);
    return status == HVMEM_OK ? hvmem_bank_add(w->heap, &bank, take(bytes), bytes) : status;
}

static hvmem_status space_make(struct world *w)
{
    const struct hvmem_ident_config config = {.size = sizeof config,
                                              .flags = HVMEM_IDENT_BROADCAST,
                                              .regime = HVMEM_REGIME_STAGE2,
                                              .first = 5,
                                              .ids = 16,
                                              .max_cpus = 1,
                                              .lock_regime = HVMEM_LOCK_PLAIN,
                                              .host = &w->ops,
                                              .host_ctx = &w->host,
                                              .backend = w->backend};
    const struct hvmem_space_config of = {.size = sizeof of, .regime = HVMEM_REGIME_STAGE2};
    hvmem_size bytes = 0;
    hvmem_status status = hvmem_ident_size(&config, &bytes);

    if (status == HVMEM_OK)
        status = hvmem_ident_init(take(bytes), bytes, &config, &w->ident);
    if (status == HVMEM_OK)
        status = hvmem_ident_cpu_online(w->ident, 0, 0xffff);
    bytes = status == HVMEM_OK ? hvmem_space_size(w->ident) : 0;
    return status == HVMEM_OK ? hvmem_space_create(w->ident, take(bytes), bytes, &of, &w->space)
                              : status;
}

static hvmem_status domain_make(struct world *w, hvmem_u32 id, struct hvmem_domain **domain)
{
    const struct hvmem_domain_config config = {.size = sizeof config, .id = id, .limit = ~0ull};
    const hvmem_size bytes = hvmem_domain_size(w->heap);

    return hvmem_domain_create(w->heap, take(bytes), bytes, &config, domain);
}

static hvmem_status stage2_make(struct world *w)
{
    const struct hvmem_stage2_config config = {.size = sizeof config,
                                               .flags = HVMEM_S2_TRACK,
                                               .format = HVMEM_S2_ARM64,
                                               .input_bits = 40,
                                               .start_level = HVMEM_S2_LEVEL_AUTO,
                                               .output_bits = 44,
                                               .id_bits = 8,
                                               .largest = 9,
                                               .node = HVMEM_NODE_ANY,
                                               .heap = w->heap,
                                               .domain = w->domain,
                                               .space = w->space};
    struct hvmem_domain_ops ops;
    hvmem_size bytes = 0;
    hvmem_status status = hvmem_stage2_size(&config, &bytes);

    if (status == HVMEM_OK)
        status = hvmem_stage2_init(take(bytes), bytes, &config, &w->s2);
    hvmem_stage2_ops(&ops);
    return status == HVMEM_OK ? hvmem_domain_attach(w->domain, &ops, w->s2, w->space) : status;
}

hvmem_status world_make(struct world *w)
{
    hvmem_status status;

    zero(control, CONTROL_BYTES);
    zero(pool, POOL * METAL_PAGE_BYTES);
    used = 0;
    w->cleaned = 0;
    status = heap_make(w);
    if (status == HVMEM_OK)
        status = space_make(w);
    if (status == HVMEM_OK)
        status = domain_make(w, 1, &w->earlier);
    if (status == HVMEM_OK)
        status = domain_make(w, 2, &w->domain);
    return status == HVMEM_OK ? stage2_make(w) : status;
}
