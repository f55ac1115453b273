/* SPDX-License-Identifier: BSD-2-Clause */
/* A million frames in one gather: no memory, one flush, freed in slices of a constant size. */
#include "test_heap.h"
#include "test_main.h"

#include <hvmem/gather.h>
#include <hvmem/heap.h>
#include <hvmem/look.h>

#include <stdlib.h>
#include <string.h>

#define FRAMES (1u << 20)
#define BASE   0x100000u

static uint64_t flushes, locks;

static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    (void)flush;
    flushes++;
    return HVMEM_OK;
}

static void lock(void *host, struct hvmem_lock *word)
{
    (void)host;
    (void)word;
    locks++;
}

static void unlock(void *host, struct hvmem_lock *word)
{
    (void)host;
    (void)word;
}

static hvmem_cpu this_cpu(void *host)
{
    (void)host;
    return 0;
}

static const struct hvmem_host_ops host_ops = {
    .size = sizeof host_ops, .this_cpu = this_cpu, .lock = lock, .unlock = unlock};
static const struct hvmem_backend_ops backend_ops = {.size = sizeof backend_ops,
                                                     .tlb_flush = tlb_flush};
static struct hvmem_backend backend;
static struct hvmem_heap *heap;
static struct hvmem_space *space;
static void *memory[4];

static void *take(int slot, hvmem_size bytes)
{
    return memory[slot] = test_memory(bytes);
}

static void make(void)
{
    struct hvmem_bank bank = {.size = sizeof bank, .base = BASE, .frames = FRAMES};
    struct hvmem_space_config of_space = {.size = sizeof of_space, .regime = HVMEM_REGIME_STAGE2};
    struct hvmem_ident_config ids = {.size = sizeof ids,
                                     .regime = HVMEM_REGIME_STAGE2,
                                     .first = 1,
                                     .ids = 7,
                                     .max_cpus = 1,
                                     .host = &host_ops,
                                     .backend = &backend};
    struct hvmem_config config;
    struct hvmem_ident *ident;
    struct hvmem_entry entry;
    hvmem_size bytes;

    memset(&backend, 0, sizeof backend);
    backend.ops = &backend_ops;
    backend.caps.size = sizeof backend.caps;
    backend.caps.page_shift = 12;
    backend.caps.features = HVMEM_CAP_BROADCAST | HVMEM_CAP_STAGE2 | HVMEM_CAP_STAGE2_RANGE;
    hvmem_config_default(&config);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.host = &host_ops;
    config.backend = &backend;
    heap = test_heap(&config, &bank, memory);
    REQUIRE_EQ(hvmem_ident_size(&ids, &bytes), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_init(take(2, bytes), bytes, &ids, &ident), HVMEM_OK);
    REQUIRE_EQ(hvmem_ident_cpu_online(ident, 0, 0xffff), HVMEM_OK);
    bytes = hvmem_space_size(ident);
    REQUIRE_EQ(hvmem_space_create(ident, take(3, bytes), bytes, &of_space, &space), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_activate(space, 0, &entry), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_entered(ident, 0), HVMEM_OK);
}

TEST(million_frames_one_flush_bounded_slices, slow)
{
    struct hvmem_mapping_config config = {.size = sizeof config};
    uint64_t in_slices = 0, calls = 0, before, i, count = FRAMES;
    struct hvmem_gather gather = {.self = 0};
    struct hvmem_mapping mapping;
    hvmem_status status;
    hvmem_mfn mfn;

    make();
    config.heap = heap;
    config.space = space;
    REQUIRE_EQ(hvmem_mapping_init(&mapping, &config), HVMEM_OK);
    REQUIRE_EQ(hvmem_gather_begin(&gather, &mapping, HVMEM_GATHER_PREEMPTIBLE, 0, 1ull << 32),
               HVMEM_OK);
    for (i = 0; i < count; i++) {
        REQUIRE_EQ(hvmem_alloc_order(heap, 0, &mfn), HVMEM_OK);
        REQUIRE_EQ(hvmem_gather_entry(&gather, i << 12, 12, 3, 0), HVMEM_OK);
        REQUIRE_EQ(hvmem_gather_free(&gather, mfn, 0, NULL, 0), HVMEM_OK);
    }
    CHECK_EQ(hvmem_free_frames(heap), 0);
    CHECK_EQ(gather.ranges, 1);
    flushes = 0;
    do {
        before = locks;
        status = hvmem_gather_finish(&gather);
        if (locks - before > in_slices)
            in_slices = locks - before;
        calls++;
    } while (status == HVMEM_AGAIN);
    CHECK_EQ(status, HVMEM_OK);
    CHECK_EQ(flushes, 1);
    CHECK_EQ(calls, FRAMES / HVMEM_GATHER_SLICE);
    /* Lock sections of a slice: a few for each block at most, however many blocks there are in all. */
    CHECK(in_slices <= 4 * HVMEM_GATHER_SLICE);
    CHECK_EQ(hvmem_free_frames(heap), FRAMES);
    CHECK_EQ(hvmem_mapping_fini(&mapping), HVMEM_OK);
    for (i = 0; i < 4; i++)
        free(memory[i]);
}
