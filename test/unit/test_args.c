/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bad arguments of heap, bank and allocation calls: each documented code is provoked; the refused
 * call changes nothing, is counted once and reported once.
 */
#include "expect.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A configuration that must be refused by the size query and by init alike. */
static void check_config(const struct hvmem_config *config, hvmem_status code)
{
    static unsigned char memory[1 << 16] __attribute__((aligned(64)));
    struct hvmem_heap *heap = NULL;
    hvmem_size bytes = 12345;

    CHECK_EQ(hvmem_heap_size(config, &bytes), code);
    CHECK_EQ(bytes, 12345);
    memset(memory, 0xa5, sizeof memory);
    CHECK_EQ(hvmem_heap_init(memory, sizeof memory, config, &heap), code);
    CHECK(heap == NULL);
    for (bytes = 0; bytes < sizeof memory && memory[bytes] == 0xa5; bytes++)
        ;
    CHECK_EQ(bytes, sizeof memory);
}

TEST(config_members_out_of_range)
{
    static const hvmem_u32 shifts[] = {0, 11, 13, 15, 17, 64, 0xffffffffu};
    struct hvmem_config good = world_config();
    struct hvmem_config bad;
    static hvmem_u8 nodes[4] = {0, 63, 64, 0};
    static hvmem_u8 distance[65 * 65];
    size_t i;

    check_config(NULL, HVMEM_E_ARG);
    bad = good;
    for (i = 0; i < 4; i++) {
        static const hvmem_u32 sizes[] = {0, 4, sizeof bad - 1, UINT_MAX};

        bad.size = sizes[i];
        check_config(&bad, HVMEM_E_VERSION);
    }
    bad = good;
    bad.flags = 1u << 31;
    check_config(&bad, HVMEM_E_ARG);
    for (i = 0; i < sizeof shifts / sizeof shifts[0]; i++) {
        bad = good;
        bad.page_shift = shifts[i];
        check_config(&bad, HVMEM_E_ARG);
    }
    bad = good;
    bad.max_order = HVMEM_ORDER_LIMIT + 1;
    check_config(&bad, HVMEM_E_ORDER);
    bad = good;
    bad.lock_regime = HVMEM_LOCK_IRQSAVE + 1;
    check_config(&bad, HVMEM_E_ARG);
    bad = good;
    bad.max_cpus = 0;
    check_config(&bad, HVMEM_E_CPU);
    bad.max_cpus = HVMEM_CPU_LIMIT + 1;
    check_config(&bad, HVMEM_E_CPU);
    bad = good;
    bad.max_banks = 0;
    check_config(&bad, HVMEM_E_COUNT);
    bad.max_banks = 65536;
    check_config(&bad, HVMEM_E_COUNT);
    bad = good;
    bad.max_domains = 65535;
    check_config(&bad, HVMEM_E_COUNT);
    bad = good;
    bad.owed_on_free = 0x100;
    check_config(&bad, HVMEM_E_ARG);
    bad = good;
    bad.max_cpus = 4;
    bad.cpu_node = nodes;
    check_config(&bad, HVMEM_E_NODE);
    bad = good;
    bad.distance = distance;
    bad.distance_nodes = 65;
    check_config(&bad, HVMEM_E_NODE);
}

TEST(heap_memory_is_checked)
{
    struct hvmem_config config = world_config();
    struct hvmem_heap *heap = NULL;
    unsigned char *memory;
    hvmem_size bytes = 0;

    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    CHECK_EQ(bytes % 64, 0);
    CHECK_EQ(hvmem_heap_size(&config, NULL), HVMEM_E_ARG);
    memory = aligned_alloc(64, bytes + 64);
    REQUIRE(memory != NULL);
    CHECK_EQ(hvmem_heap_init(NULL, bytes, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory, bytes - 1, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory, 0, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory + 8, bytes, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory, bytes, &config, NULL), HVMEM_E_ARG);
    CHECK(heap == NULL);
    CHECK_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_OK);
    CHECK(heap != NULL);
    free(memory);
}

/* No heap: every function says so and touches nothing. */
TEST(null_heap_everywhere)
{
    struct hvmem_request request = expect_block(0, NULL);
    struct hvmem_bank bank = {sizeof bank, 0, 0, 64, 0, 0};
    struct hvmem_block block;
    struct hvmem_stats stats;
    hvmem_size bytes = 0;
    hvmem_u64 cursor = 0;
    hvmem_u32 got = 0;
    hvmem_mfn mfn = 5;
    hvmem_node node = 0;
    const char *where = NULL;

    CHECK_EQ(hvmem_smp_enable(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_cpu_online(NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_cpu_offline(NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_bank_size(NULL, &bank, &bytes), HVMEM_E_ARG);
    CHECK_EQ(hvmem_bank_add(NULL, &bank, &bank, 64), HVMEM_E_ARG);
    CHECK_EQ(hvmem_bank_remove(NULL, 0, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_node_of(NULL, 0, &node), HVMEM_E_ARG);
    CHECK_EQ(hvmem_alloc(NULL, &request, &mfn), HVMEM_E_ARG);
    CHECK_EQ(hvmem_alloc_order(NULL, 0, &mfn), HVMEM_E_ARG);
    CHECK_EQ(hvmem_alloc_bulk(NULL, &request, &mfn, 1, &got), HVMEM_E_ARG);
    CHECK_EQ(hvmem_reserve(NULL, 0, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_free(NULL, 0, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_free_owned(NULL, 0, 0, NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_free_run(NULL, 0, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_free_bulk(NULL, &mfn, 1, 0, &got), HVMEM_E_ARG);
    CHECK_EQ(hvmem_settle(NULL, 0, 1, 1), HVMEM_E_ARG);
    CHECK_EQ(hvmem_offline(NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_online(NULL, 0), HVMEM_E_ARG);
    CHECK_EQ(hvmem_lookup(NULL, 0, &block), HVMEM_E_ARG);
    CHECK_EQ(hvmem_free_frames(NULL), 0);
    CHECK_EQ(hvmem_stats(NULL, HVMEM_NODE_ANY, sizeof stats, &stats), HVMEM_E_ARG);
    CHECK_EQ(hvmem_drain(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_walk(NULL, &cursor, &block), HVMEM_E_ARG);
    CHECK_EQ(hvmem_audit(NULL, &mfn, &where), HVMEM_E_ARG);
    CHECK_EQ(hvmem_domain_size(NULL), 0);
    CHECK_EQ(mfn, 5);
}

TEST(null_results)
{
    struct world *world = WORLD_SIMPLE(0, 64);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_request request = expect_block(0, NULL);
    struct hvmem_bank bank = {sizeof bank, 0, 64, 64, 0, 0};
    struct hvmem_block block;
    hvmem_size bytes = 0;
    hvmem_u64 cursor = 0;
    hvmem_u32 got = 0;
    hvmem_mfn mfn = 5;

    CHECK_REFUSED(world, hvmem_bank_size(heap, NULL, &bytes), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_bank_size(heap, &bank, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_bank_add(heap, NULL, &bank, 64), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_node_of(heap, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc(heap, NULL, &mfn), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc(heap, &request, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc_order(heap, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc_bulk(heap, NULL, &mfn, 1, &got), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc_bulk(heap, &request, NULL, 1, &got), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_alloc_bulk(heap, &request, &mfn, 1, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_free_bulk(heap, NULL, 1, 0, &got), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_free_bulk(heap, &mfn, 1, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_lookup(heap, 0, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_stats(heap, HVMEM_NODE_ANY, sizeof(struct hvmem_stats), NULL),
                  HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_walk(heap, NULL, &block), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_walk(heap, &cursor, NULL), HVMEM_E_ARG);
    CHECK_REFUSED(world, hvmem_audit(heap, NULL, NULL), HVMEM_E_ARG);
    CHECK_EQ(mfn, 5);
    WORLD_END(world);
}

TEST(smp_and_cpu_arguments)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    static const hvmem_cpu beyond[] = {1, 2, HVMEM_CPU_LIMIT, 0xffffffffu};
    size_t i;

    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_smp_enable(world->heap), HVMEM_E_PHASE);
    CHECK_REFUSED(world, hvmem_cpu_online(world->heap, 0), HVMEM_E_CPU);
    for (i = 0; i < 4; i++) {
        CHECK_REFUSED(world, hvmem_cpu_online(world->heap, beyond[i]), HVMEM_E_CPU);
        CHECK_REFUSED(world, hvmem_cpu_offline(world->heap, beyond[i]), HVMEM_E_CPU);
    }
    WORLD_END(world);

    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.max_cpus = 3;
    world = WORLD_NEW(&config, WORLD_NO_HOST);
    CHECK_EQ(hvmem_smp_enable(world->heap), world_is_bound() ? HVMEM_OK : HVMEM_E_UNSUPPORTED);
    WORLD_END(world);

    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0, 64, 0, 0), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_cpu_offline(world->heap, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_smp_enable(world->heap), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_smp_enable(world->heap), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_cpu_online(world->heap, 1), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_cpu_online(world->heap, 1), HVMEM_E_CPU);
    CHECK_REFUSED(world, hvmem_cpu_online(world->heap, 3), HVMEM_E_CPU);
    CHECK_EQ(hvmem_cpu_offline(world->heap, 1), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_cpu_offline(world->heap, 1), HVMEM_E_CPU);
    WORLD_END(world);
}

TEST(bank_arguments)
{
    const hvmem_mfn top = 1ull << (HVMEM_MADDR_BITS - 12);
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_heap *heap = world->heap;
    struct hvmem_bank good = {sizeof good, 0, 0x1000, 0x100, 0, 0};
    struct {
        struct hvmem_bank bank;
        hvmem_status code;
    } bad[] = {
        {{0, 0, 0x1000, 0x100, 0, 0}, HVMEM_E_VERSION},
        {{sizeof good - 1, 0, 0x1000, 0x100, 0, 0}, HVMEM_E_VERSION},
        {{UINT_MAX, 0, 0x1000, 0x100, 0, 0}, HVMEM_E_VERSION},
        {{sizeof good, 4, 0x1000, 0x100, 0, 0}, HVMEM_E_ARG},
        {{sizeof good, 0x80000000u, 0x1000, 0x100, 0, 0}, HVMEM_E_ARG},
        {{sizeof good, 0, 0x1000, 0, 0, 0}, HVMEM_E_COUNT},
        {{sizeof good, 0, ~0ull, 2, 0, 0}, HVMEM_E_RANGE},
        {{sizeof good, 0, ~0ull - 1, 2, 0, 0}, HVMEM_E_RANGE},
        {{sizeof good, 0, 1, ~0ull, 0, 0}, HVMEM_E_RANGE},
        {{sizeof good, 0, top, 1, 0, 0}, HVMEM_E_RANGE},
        {{sizeof good, 0, top - 1, 2, 0, 0}, HVMEM_E_RANGE},
        {{sizeof good, 0, 0x1000, 0x100, 64, 0}, HVMEM_E_NODE},
        {{sizeof good, 0, 0x1000, 0x100, 255, 0}, HVMEM_E_NODE},
        {{sizeof good, 0, 0x1000, 0x100, HVMEM_NODE_ANY, 0}, HVMEM_E_NODE},
    };
    static unsigned char table[1 << 16] __attribute__((aligned(64)));
    hvmem_size bytes = 777;
    size_t i;

    for (i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_REFUSED(world, hvmem_bank_size(heap, &bad[i].bank, &bytes), bad[i].code);
        CHECK_REFUSED(world, hvmem_bank_add(heap, &bad[i].bank, table, sizeof table), bad[i].code);
    }
    CHECK_EQ(bytes, 777);
    CHECK_EQ(hvmem_bank_size(heap, &good, &bytes), HVMEM_OK);
    CHECK_EQ(bytes % 64, 0);
    REQUIRE(bytes <= sizeof table - 64);
    CHECK_REFUSED(world, hvmem_bank_add(heap, &good, NULL, bytes), HVMEM_E_BUFFER);
    CHECK_REFUSED(world, hvmem_bank_add(heap, &good, table, bytes - 1), HVMEM_E_BUFFER);
    CHECK_REFUSED(world, hvmem_bank_add(heap, &good, table, 0), HVMEM_E_BUFFER);
    CHECK_REFUSED(world, hvmem_bank_add(heap, &good, table + 4, bytes), HVMEM_E_BUFFER);
    WORLD_END(world);
}

TEST(bank_overlap_and_removal)
{
    static const struct {
        hvmem_mfn base;
        hvmem_u64 frames;
    } overlapping[] = {{0x1000, 0x100}, {0xfff, 2},  {0x10ff, 1},    {0x1080, 1},
                       {0x800, 0x1000}, {0x1000, 1}, {0x10ff, 0x100}};
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;
    size_t i;

    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    world = WORLD_NEW(&config, 0);
    REQUIRE_EQ(world_bank(world, 0x1000, 0x100, 0, 0), HVMEM_OK);
    for (i = 0; i < sizeof overlapping / sizeof overlapping[0]; i++) {
        CHECK_REFUSED(world, world_bank(world, overlapping[i].base, overlapping[i].frames, 0, 0),
                      HVMEM_E_OVERLAP);
        CHECK_REFUSED(world, world_bank(world, overlapping[i].base, overlapping[i].frames, 1, 0),
                      HVMEM_E_OVERLAP);
        if (i != 0)
            CHECK_REFUSED(
                world, hvmem_bank_remove(world->heap, overlapping[i].base, overlapping[i].frames),
                HVMEM_E_FOREIGN);
    }
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, 0, 0x100), HVMEM_E_FOREIGN);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, ~0ull, ~0ull), HVMEM_E_FOREIGN);
    REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, 0x1000, 0x100), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_reserve(world->heap, 0x10ff, 1), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, 0x1000, 0x100), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_free_run(world->heap, 0x10ff, 1), HVMEM_OK);
    CHECK_EQ(world_remove(world, 0x1000, 0x100), HVMEM_OK);
    CHECK_REFUSED(world, hvmem_bank_remove(world->heap, 0x1000, 0x100), HVMEM_E_FOREIGN);
    CHECK_REFUSED_AT(world, hvmem_free(world->heap, 0x1000, 0), HVMEM_E_FOREIGN, 0x1000);
    WORLD_END(world);
}

TEST(max_banks_used_up)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_u64 i;

    config.max_banks = 4;
    world = WORLD_NEW(&config, 0);
    for (i = 0; i < 4; i++)
        REQUIRE_EQ(world_bank(world, i * 64, 32, 0, 0), HVMEM_OK);
    CHECK_REFUSED(world, world_bank(world, 4 * 64, 32, 0, 0), HVMEM_E_COUNT);
    CHECK_EQ(world_remove(world, 64, 32), HVMEM_OK);
    CHECK_EQ(world_bank(world, 4 * 64, 32, 0, 0), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(world->heap), 128);
    WORLD_END(world);
}

TEST(words_for_every_code)
{
    hvmem_status code;
    const char *unknown = hvmem_status_words(12345);

    REQUIRE(unknown != NULL);
    for (code = -100; code <= 10; code++) {
        const char *words = hvmem_status_words(code);
        bool known = code == 0 || code == 1 || (code <= -1 && code >= -6) ||
                     (code <= -16 && code >= -31) || (code <= -48 && code >= -57) ||
                     (code <= -80 && code >= -83);

        REQUIRE(words != NULL && words[0] != '\0');
        CHECK_EQ(strcmp(words, unknown) != 0, known);
    }
    CHECK_EQ(strcmp(hvmem_status_words(INT_MIN), unknown), 0);
    CHECK_EQ(strcmp(hvmem_status_words(INT_MAX), unknown), 0);
}
