/* SPDX-License-Identifier: BSD-2-Clause */
/* A guest's second-stage tables without a machine; see guest_tables.h. */
#include "guest_tables.h"

#include "bench/common/figure.h"

#include <stdlib.h>
#include <string.h>

#define FRAMES 2048u /* memory for tables and for a guest of 4 MiB */
#define BASE   (GUEST_HOME - 1024)

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    (void)flush;
    return HVMEM_OK;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes)
{
    (void)be;
    (void)op;
    (void)addr;
    (void)bytes;
    return HVMEM_OK;
}

static const struct hvmem_backend_ops ops = {
    .size = sizeof(struct hvmem_backend_ops), .tlb_flush = tlb_flush, .dcache = dcache};

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    struct guest_tables *rig = host;

    (void)order;
    return rig->pool + ((mfn - BASE) << 12);
}

static void frame_unmap(void *host, void *map, hvmem_order order)
{
    (void)host;
    (void)map;
    (void)order;
}

static const struct hvmem_host_ops host = {
    .size = sizeof(struct hvmem_host_ops), .frame_map = frame_map, .frame_unmap = frame_unmap};

static void *block(struct guest_tables *rig, size_t bytes)
{
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    FIGURE_REQUIRE(memory != NULL);
    memset(memory, 0, bytes);
    return rig->memory[rig->blocks++] = memory;
}

static void open_heap(struct guest_tables *rig)
{
    struct hvmem_config config;
    struct hvmem_bank bank;
    hvmem_size bytes;

    hvmem_config_default(&config);
    config.host = &host;
    config.host_ctx = rig;
    config.backend = &rig->be;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_heap_init(block(rig, bytes), bytes, &config, &rig->heap) == HVMEM_OK);
    memset(&bank, 0, sizeof bank);
    bank.size = sizeof bank;
    bank.base = BASE;
    bank.frames = FRAMES;
    FIGURE_REQUIRE(hvmem_bank_size(rig->heap, &bank, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_add(rig->heap, &bank, block(rig, bytes), bytes) == HVMEM_OK);
}

static void open_space(struct guest_tables *rig)
{
    struct hvmem_ident_config config;
    struct hvmem_space_config space;
    hvmem_size bytes;

    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.flags = HVMEM_IDENT_BROADCAST;
    config.regime = HVMEM_REGIME_STAGE2;
    config.first = 1;
    config.ids = 255;
    config.max_cpus = 1;
    config.backend = &rig->be;
    FIGURE_REQUIRE(hvmem_ident_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_ident_init(block(rig, bytes), bytes, &config, &rig->ident) == HVMEM_OK);
    memset(&space, 0, sizeof space);
    space.size = sizeof space;
    space.regime = HVMEM_REGIME_STAGE2;
    space.root = 0x1000;
    bytes = hvmem_space_size(rig->ident);
    FIGURE_REQUIRE(hvmem_space_create(rig->ident, block(rig, bytes), bytes, &space, &rig->space) ==
                   HVMEM_OK);
}

/* An empty stage 2 of 40 bits (arm64: the root has two tables, each entry 1 GiB). */
void guest_tables_open_on(struct guest_tables *rig, unsigned largest,
                          const struct hvmem_backend *backend)
{
    struct hvmem_stage2_config config;
    hvmem_size bytes;

    memset(rig, 0, sizeof *rig);
    rig->be = *backend;
    rig->pool = block(rig, (size_t)FRAMES << 12);
    open_heap(rig);
    open_space(rig);
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.format = HVMEM_S2_ARM64;
    config.input_bits = 40;
    config.start_level = 1;
    config.output_bits = 48;
    config.id_bits = 8;
    config.largest = largest;
    config.node = HVMEM_NODE_ANY;
    config.heap = rig->heap;
    config.space = rig->space;
    config.direct_map = (hvmem_uptr)rig->pool - ((hvmem_uptr)BASE << 12);
    FIGURE_REQUIRE(hvmem_stage2_size(&config, &bytes) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_stage2_init(block(rig, bytes), bytes, &config, &rig->s2) == HVMEM_OK);
}

void guest_tables_open(struct guest_tables *rig, unsigned largest)
{
    struct hvmem_backend nothing;

    memset(&nothing, 0, sizeof nothing);
    nothing.ops = &ops;
    nothing.caps.size = sizeof nothing.caps;
    nothing.caps.page_shift = 12;
    nothing.caps.features =
        HVMEM_CAP_BROADCAST | HVMEM_CAP_STAGE2 | HVMEM_CAP_STAGE2_RANGE | HVMEM_CAP_RANGE;
    nothing.caps.max_range_pages = 1u << 21;
    nothing.caps.stage2_ids = 256;
    nothing.caps.stage2_id_bits = 8;
    nothing.caps.dline = 64;
    guest_tables_open_on(rig, largest, &nothing);
}

void guest_tables_close(struct guest_tables *rig)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_stage2_teardown(rig->s2, &cursor);
    while (status == HVMEM_AGAIN);
    FIGURE_REQUIRE(status == HVMEM_OK);
    while (rig->blocks)
        free(rig->memory[--rig->blocks]);
}

void guest_tables_map(struct guest_tables *rig, hvmem_gfn gfn, hvmem_u64 frames, hvmem_mfn mfn)
{
    struct hvmem_stage2_map request;

    memset(&request, 0, sizeof request);
    request.size = sizeof request;
    request.gfn = gfn;
    request.frames = frames;
    request.mfn = mfn;
    request.rights = HVMEM_S2_RWX;
    FIGURE_REQUIRE(hvmem_stage2_map(rig->s2, &request, NULL) == HVMEM_OK);
}

void guest_tables_arm(struct guest_tables *rig)
{
    struct hvmem_cursor cursor;
    hvmem_status status;

    memset(&cursor, 0, sizeof cursor);
    do
        status = hvmem_track_arm(rig->s2, &cursor);
    while (status == HVMEM_AGAIN);
    FIGURE_REQUIRE(status == HVMEM_OK);
}

void guest_tables_run(struct guest_tables *rig)
{
    struct hvmem_entry entry;

    FIGURE_REQUIRE(hvmem_ident_cpu_online(rig->ident, 0, 0xffff) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_space_activate(rig->space, 0, &entry) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_space_entered(rig->ident, 0) == HVMEM_OK);
}

/* Traps until the guest gets at the page. */
hvmem_u64 guest_tables_touch(struct guest_tables *rig, hvmem_gfn gfn)
{
    struct hvmem_stage2_leaf leaf;
    hvmem_u64 traps = 0;
    hvmem_u32 outcome;

    for (;;) {
        FIGURE_REQUIRE(hvmem_stage2_lookup(rig->s2, gfn, &leaf) == HVMEM_OK);
        if (leaf.state & HVMEM_S2_TOUCHED)
            return traps;
        FIGURE_REQUIRE(hvmem_stage2_fault(rig->s2, gfn << 12, HVMEM_S2_W, &outcome) == HVMEM_OK &&
                       outcome == HVMEM_FAULT_ENTER);
        traps++;
    }
}
