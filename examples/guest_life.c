/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * guest_life: one guest from its first frame to its last, as a hypervisor at EL2 would do it: heap,
 * domain, space, second-stage tables, populate, start, an unmap through a gather, teardown. The
 * arm64 back-end records what it would issue, so the program runs anywhere and prints, for each
 * step, how many instructions of each kind the hardware would have seen.
 *
 *   build/release/examples/example_guest_life
 */
#include <hvmem/arm64.h>
#include <hvmem/gather.h>
#include <hvmem/ident.h>
#include <hvmem/look.h>
#include <hvmem/populate.h>
#include <hvmem/record.h>
#include <hvmem/stage2.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BASE_MFN   0x80000u   /* RAM from 2 GiB on */
#define RAM_FRAMES 0x10000u   /* 256 MiB */
#define EXTENTS    64u        /* 2 MiB each */
#define EVENTS     (1u << 20) /* more than that are counted, not kept */

/* ---- the machine ------------------------------------------------------------------------------ */

struct machine {
    unsigned char *ram; /* stands for [BASE_MFN, BASE_MFN + RAM_FRAMES) */
    struct hvmem_record record;
    struct hvmem_arm64 arm64;
    struct hvmem_backend backend;
    struct hvmem_host_ops host;
};

static HVMEM_CALLBACK void *frame_map(void *ctx, hvmem_mfn mfn, hvmem_order order)
{
    struct machine *m = ctx;

    (void)order;
    return m->ram + ((mfn - BASE_MFN) << 12);
}

static HVMEM_CALLBACK void *table_at(void *ctx, hvmem_maddr table)
{
    return frame_map(ctx, table >> 12, 0);
}

/* A call of the library failed where this program expects it not to. */
static void must(hvmem_status status, const char *what)
{
    if (status == HVMEM_OK)
        return;
    fprintf(stderr, "guest_life: %s: %s\n", what, hvmem_status_words(status));
    exit(1);
}

static void *memory(hvmem_size bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    if (!p) {
        fprintf(stderr, "guest_life: out of memory\n");
        exit(1);
    }
    return p;
}

/* An arm64 CPU with range invalidation and 64-byte lines, CTR_EL0 without IDC and DIC, no FWB. */
static void make_machine(struct machine *m)
{
    static const struct hvmem_arm64_ids ids = {
        .midr = 0x000f0510,  /* no known part */
        .ctr = 0x84448004,   /* PIPT, 64-byte lines */
        .dczid = 4,          /* DC ZVA clears 64 bytes */
        .isar0 = 2ull << 56, /* TLBI by range, outer shareable */
        .mmfr0 = 0x00101125, /* 48 bits, 4 KiB granule, 16-bit VMID in mmfr1 */
        .mmfr1 = 0x00000020,
    };
    struct hvmem_arm64_config config = {.size = sizeof config, .level = HVMEM_ARM64_EL2};

    m->ram = memory((hvmem_size)RAM_FRAMES << 12);
    hvmem_record_init(&m->record, memory(EVENTS * sizeof(struct hvmem_record_event)), EVENTS);
    config.ids = &ids;
    config.machine = &m->record;
    must(hvmem_arm64_init(&m->arm64, &m->backend, &config), "back-end");
    m->host.size = sizeof m->host;
    m->host.frame_map = frame_map;
}

/* ---- what the machine saw --------------------------------------------------------------------- */

/*
 * System instructions of TLBs have CRn = 8, those of caches CRn = 7 (Arm ARM C5.1.3). What was not kept
 * is DC: nothing else comes by the million.
 */
static void show(struct machine *m, const char *step)
{
    unsigned tlb = 0, data = 0, code = 0;
    hvmem_u32 i;

    for (i = 0; i < m->record.count; i++) {
        hvmem_u32 word = m->record.events[i].code, crn = word >> 12 & 15, crm = word >> 8 & 15;

        if (word >> 19 != 0xd508u >> 3)
            continue;
        tlb += crn == 8;
        code += crn == 7 && (crm == 1 || crm == 5);
        data += crn == 7 && crm != 1 && crm != 5;
    }
    printf("%-34s %5u TLBI %8" PRIu64 " DC (ZVA too) %3u IC\n", step, tlb, data + m->record.lost,
           code);
    hvmem_record_clear(&m->record);
    m->record.lost = 0;
}

/* ---- the hypervisor --------------------------------------------------------------------------- */

struct hypervisor {
    struct machine machine;
    struct hvmem_heap *heap;
    struct hvmem_ident *vmids;
};

static void make_heap(struct hypervisor *hv)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE_MFN, .frames = RAM_FRAMES};
    struct hvmem_config config;
    hvmem_size bytes;

    hvmem_config_default(&config);
    config.max_domains = 16;
    config.host = &hv->machine.host;
    config.host_ctx = &hv->machine;
    config.backend = &hv->machine.backend;
    must(hvmem_heap_size(&config, &bytes), "heap size");
    must(hvmem_heap_init(memory(bytes), bytes, &config, &hv->heap), "heap");
    bank.flags = HVMEM_BANK_DIRTY;
    must(hvmem_bank_size(hv->heap, &bank, &bytes), "bank size");
    must(hvmem_bank_add(hv->heap, &bank, memory(bytes), bytes), "bank");
}

static void make_vmids(struct hypervisor *hv)
{
    struct hvmem_ident_config config = {.size = sizeof config};
    hvmem_size bytes;

    config.flags = HVMEM_IDENT_BROADCAST;
    config.regime = HVMEM_REGIME_STAGE2;
    config.first = 1;
    config.ids = 255;
    config.max_cpus = 1;
    config.backend = &hv->machine.backend;
    must(hvmem_ident_size(&config, &bytes), "VMIDs");
    must(hvmem_ident_init(memory(bytes), bytes, &config, &hv->vmids), "VMIDs");
    must(hvmem_ident_cpu_online(hv->vmids, 0, 0xffff), "CPU");
}

struct guest {
    struct hvmem_domain *domain;
    struct hvmem_space *space;
    struct hvmem_stage2 *tables;
    void *memory[3]; /* of the three, lent to the library until they are gone */
};

static void make_guest(struct hypervisor *hv, struct guest *g)
{
    struct hvmem_domain_config domain = {.size = sizeof domain, .id = 1, .limit = ~(hvmem_u64)0};
    struct hvmem_space_config space = {.size = sizeof space, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_stage2_config tables = {.size = sizeof tables, .format = HVMEM_S2_ARM64};
    struct hvmem_domain_ops ops = {0};
    hvmem_size bytes;

    bytes = hvmem_domain_size(hv->heap);
    g->memory[0] = memory(bytes);
    must(hvmem_domain_create(hv->heap, g->memory[0], bytes, &domain, &g->domain), "domain");
    bytes = hvmem_space_size(hv->vmids);
    g->memory[1] = memory(bytes);
    must(hvmem_space_create(hv->vmids, g->memory[1], bytes, &space, &g->space), "space");
    tables.input_bits = 40;
    tables.start_level = HVMEM_S2_LEVEL_AUTO;
    tables.output_bits = 48;
    tables.id_bits = 8;
    tables.largest = 18;
    tables.node = HVMEM_NODE_ANY;
    tables.heap = hv->heap;
    tables.space = g->space;
    tables.table_at = table_at;
    tables.ctx = &hv->machine;
    must(hvmem_stage2_size(&tables, &bytes), "stage 2 size");
    g->memory[2] = memory(bytes);
    must(hvmem_stage2_init(g->memory[2], bytes, &tables, &g->tables), "stage 2");
    ops.size = sizeof ops;
    hvmem_stage2_ops(&ops);
    must(hvmem_domain_attach(g->domain, &ops, g->tables, g->space), "attach");
}

static void populate(struct guest *g)
{
    static struct hvmem_extent extents[EXTENTS];
    struct hvmem_populate request = {.size = sizeof request, .node = HVMEM_NODE_ANY};
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned i, calls = 0;

    for (i = 0; i < EXTENTS; i++) {
        extents[i].gfn = (hvmem_gfn)i << 9;
        extents[i].order = 9;
    }
    request.extents = extents;
    request.count = EXTENTS;
    request.flags = HVMEM_POPULATE_DEFER_DCACHE;
    request.budget = 4096;
    do {
        status = hvmem_domain_populate(g->domain, &request, &cursor);
    } while (status == HVMEM_AGAIN && ++calls < 10000);
    must(status, "populate");
}

/* The guest runs: its space is loaded, and left again. */
static void run(struct hypervisor *hv, struct guest *g)
{
    struct hvmem_entry entry;

    must(hvmem_space_activate(g->space, 0, &entry), "activate");
    must(hvmem_space_entered(hv->vmids, 0), "entered"); /* VTTBR_EL2 = hvmem_stage2_root(..) */
}

static void stop(struct hypervisor *hv)
{
    must(hvmem_space_deactivate(hv->vmids, 0), "deactivate");
    must(hvmem_space_entered(hv->vmids, 0), "left");
}

/* Take 16 MiB from the running guest and free it: one invalidation for all of it. */
static void balloon(struct guest *g)
{
    struct hvmem_gather gather;
    struct hvmem_stage2_leaf leaf;
    hvmem_gfn gfn = 0, end = 8u << 9; /* whole extents: each is one block */
    hvmem_mfn frames[8];
    unsigned i;

    memset(&gather, 0, sizeof gather);
    for (i = 0; i < 8; i++) {
        must(hvmem_stage2_lookup(g->tables, (hvmem_gfn)i << 9, &leaf), "look-up");
        frames[i] = leaf.mfn;
    }
    must(hvmem_gather_begin(&gather, hvmem_stage2_mapping(g->tables), 0, gfn << 12, end << 12),
         "gather");
    must(hvmem_stage2_unmap(g->tables, gfn, end, &gather, NULL), "unmap");
    for (i = 0; i < 8; i++)
        must(hvmem_gather_free(&gather, frames[i], 9, g->domain, 0), "free");
    must(hvmem_gather_finish(&gather), "finish");
}

static void destroy(struct guest *g)
{
    struct hvmem_cursor cursor = {{0}};
    hvmem_status status;
    unsigned calls = 0;

    do {
        status = hvmem_domain_teardown(g->domain, 0, &cursor);
    } while (status == HVMEM_AGAIN && ++calls < 10000);
    must(status, "teardown");
    must(hvmem_domain_destroy(g->domain), "destroy");
    for (calls = 0; calls < 3; calls++)
        free(g->memory[calls]);
}

int main(void)
{
    static struct hypervisor hv;
    struct machine *m = &hv.machine;
    struct guest guest;
    hvmem_u64 before;
    hvmem_mfn at;
    const char *where;

    make_machine(m);
    make_heap(&hv);
    make_vmids(&hv);
    before = hvmem_free_frames(hv.heap);
    make_guest(&hv, &guest);
    show(m, "created");
    populate(&guest);
    show(m, "populated with 128 MiB");
    must(hvmem_domain_dirtied(guest.domain, 0, 512), "image"); /* a kernel was copied to gfn 0 */
    must(hvmem_domain_start(guest.domain), "start");
    show(m, "started: 2 MiB of image made code");
    run(&hv, &guest);
    show(m, "entered");
    balloon(&guest);
    show(m, "gave 16 MiB back while running");
    stop(&hv);
    show(m, "left");
    destroy(&guest);
    show(m, "torn down");
    must(hvmem_audit(hv.heap, &at, &where), where ? where : "audit");
    if (hvmem_free_frames(hv.heap) != before) {
        fprintf(stderr, "guest_life: frames were lost\n");
        return 1;
    }
    printf("all %" PRIu64 " frames are free again, audit passed\n", before);
    return 0;
}
