/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The lock regimes and what each host offers: a heap with no host at all, locks of the host, before
 * and after smp_enable, CPUs that come and go, frames in other CPUs' caches.
 */
#include "expect.h"
#include "shadow.h"

#include <stdlib.h>
#include <string.h>

/* One life of a heap: some of every order, all back. */
static void live(struct world *world)
{
    hvmem_mfn mfn[11];
    hvmem_u32 order;
    unsigned round;

    for (round = 0; round < 3; round++) {
        for (order = 0; order <= 10; order++)
            REQUIRE_EQ(hvmem_alloc_order(world->heap, order, &mfn[order]), HVMEM_OK);
        CHECK_EQ(hvmem_free_frames(world->heap), 4096 - 2047);
        for (order = 0; order <= 10; order++)
            CHECK_EQ(hvmem_free(world->heap, mfn[order], order), HVMEM_OK);
        CHECK_AUDIT(world);
    }
    CHECK_EQ(hvmem_drain(world->heap), HVMEM_OK);
    CHECK_EQ(expect_stats(world, HVMEM_NODE_ANY).free_blocks[10], 4);
}

TEST(no_host_at_all)
{
    struct hvmem_config config = world_config();
    struct world *world;
    hvmem_mfn mfn = 0;

    config.owed_on_free = 0;
    world = WORLD_NEW(&config, WORLD_NO_HOST | WORLD_NO_BACKEND);
    REQUIRE_EQ(world_bank(world, 0, 4096, 0, 0), HVMEM_OK);
    live(world);
    CHECK_EQ(hvmem_free(world->heap, 0, 0), HVMEM_E_FREE);
    CHECK_EQ(hvmem_alloc_order(world->heap, 11, &mfn), HVMEM_E_ORDER);
    WORLD_END(world);
}

TEST(every_regime_and_host)
{
    static const unsigned hosts[] = {0, WORLD_HOST_LOCK, WORLD_BARRIER,
                                     WORLD_HOST_LOCK | WORLD_BARRIER};
    hvmem_u32 regime;
    unsigned caches;
    size_t i;

    for (regime = HVMEM_LOCK_CALLER; regime <= HVMEM_LOCK_IRQSAVE; regime++)
        for (caches = 0; caches < 2; caches++)
            for (i = 0; i < 4; i++) {
                struct hvmem_config config = world_config();
                struct world *world;
                hvmem_cpu cpu;

                config.lock_regime = regime;
                config.max_cpus = 4;
                config.flags = caches ? 0 : HVMEM_CONFIG_NO_CPU_CACHE;
                world = WORLD_NEW(&config, hosts[i]);
                REQUIRE_EQ(world_bank(world, 0, 4096, 0, 0), HVMEM_OK);
                live(world);
                if (regime != HVMEM_LOCK_CALLER) {
                    REQUIRE_EQ(world_smp(world), HVMEM_OK);
                    for (cpu = 0; cpu < 4; cpu++) {
                        world_set_cpu(cpu);
                        live(world);
                    }
                }
                WORLD_END(world);
            }
}

/* IRQSAVE needs the two operations. */
TEST(irqsave_without_its_operations)
{
    struct hvmem_config config = world_config();
    struct hvmem_heap *heap = NULL;
    struct hvmem_host_ops ops;
    hvmem_size bytes = 0;
    void *memory;

    memset(&ops, 0, sizeof ops);
    ops.size = sizeof ops;
    config.lock_regime = HVMEM_LOCK_IRQSAVE;
    config.host = &ops;
    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    memory = aligned_alloc(64, bytes);
    REQUIRE(memory != NULL);
    CHECK_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_E_ARG);
    config.host = NULL;
    CHECK_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_E_ARG);
    CHECK(heap == NULL);
    config.lock_regime = HVMEM_LOCK_PLAIN;
    CHECK_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_OK);
    free(memory);
}

/* An older host: its table ends before `settle`; what lies behind is not read. */
TEST(shorter_host_table)
{
    struct hvmem_config config = world_config();
    struct world *world = WORLD_NEW(&config, 0);
    struct hvmem_host_ops old = world->host;
    struct hvmem_heap *heap = NULL;
    unsigned char *memory;
    hvmem_size bytes = 0;

    old.size = (hvmem_u32)offsetof(struct hvmem_host_ops, event);
    old.event = (void (*)(void *, hvmem_u32, hvmem_u64, hvmem_u64))(hvmem_uptr)1;
    config.host = &old;
    config.host_ctx = world;
    config.low_frames = 1000;
    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    memory = aligned_alloc(64, bytes);
    REQUIRE(memory != NULL);
    REQUIRE_EQ(hvmem_heap_init(memory, bytes, &config, &heap), HVMEM_OK);
    {
        struct hvmem_bank bank = {sizeof bank, 0, 0, 64, 0, 0};
        static unsigned char table[1 << 12] __attribute__((aligned(64)));
        hvmem_mfn mfn = 0;

        REQUIRE_EQ(hvmem_bank_add(heap, &bank, table, sizeof table), HVMEM_OK);
        CHECK_EQ(hvmem_alloc_order(heap, 0, &mfn), HVMEM_OK);
        CHECK_EQ(hvmem_free(heap, mfn, 0), HVMEM_OK);
    }
    free(memory);
    WORLD_END(world);
}

/* No call fails while frames sit in another CPU's cache; leaving drains. */
TEST(frames_of_other_cpus)
{
    unsigned barrier;

    for (barrier = 0; barrier < 2; barrier++) {
        struct hvmem_config config = world_config();
        struct world *world;
        hvmem_mfn frames[256];
        hvmem_mfn mfn = 0;
        hvmem_cpu cpu;
        unsigned i;

        config.lock_regime = HVMEM_LOCK_PLAIN;
        config.max_cpus = 4;
        config.max_order = 8;
        world = WORLD_NEW(&config, barrier ? WORLD_BARRIER : 0);
        REQUIRE_EQ(world_bank(world, 0, 256, 0, 0), HVMEM_OK);
        REQUIRE_EQ(world_smp(world), HVMEM_OK);
        REQUIRE_EQ(expect_take_all(world, frames, 256), 256);
        for (i = 0; i < 256; i++) {
            world_set_cpu(i % 4);
            CHECK_EQ(hvmem_free(world->heap, frames[i], 0), HVMEM_OK);
        }
        CHECK(expect_stats(world, 0).cached != 0);
        for (cpu = 0; cpu < 4; cpu++) {
            world_set_cpu(cpu);
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 8, &mfn), HVMEM_OK);
            CHECK_EQ(hvmem_free(world->heap, mfn, 8), HVMEM_OK);
            REQUIRE_EQ(hvmem_reserve(world->heap, 10, 200), HVMEM_OK);
            CHECK_EQ(hvmem_free_run(world->heap, 10, 200), HVMEM_OK);
        }
        for (cpu = 1; cpu < 4; cpu++) {
            world_set_cpu(cpu);
            REQUIRE_EQ(hvmem_alloc_order(world->heap, 0, &mfn), HVMEM_OK);
            CHECK_EQ(hvmem_free(world->heap, mfn, 0), HVMEM_OK);
            CHECK(expect_stats(world, 0).cached != 0);
            CHECK_EQ(hvmem_cpu_offline(world->heap, cpu), HVMEM_OK);
            CHECK_EQ(expect_stats(world, 0).cached, 0);
            CHECK_AUDIT(world);
            CHECK_EQ(hvmem_cpu_online(world->heap, cpu), HVMEM_OK);
        }
        world_set_cpu(0);
        CHECK_EQ(world_remove(world, 0, 256), HVMEM_OK);
        WORLD_END(world);
    }
}

/* Two heaps side by side with the same frames do not know of each other. */
TEST(two_heaps)
{
    struct world *a = WORLD_SIMPLE(0, 64);
    struct world *b = WORLD_SIMPLE(0, 64);
    hvmem_mfn mfn = 0;

    REQUIRE_EQ(hvmem_alloc_order(a->heap, 6, &mfn), HVMEM_OK);
    CHECK_EQ(hvmem_free_frames(b->heap), 64);
    CHECK_REFUSED(b, hvmem_free(b->heap, 0, 6), HVMEM_E_FREE);
    CHECK_EQ(hvmem_free(a->heap, 0, 6), HVMEM_OK);
    WORLD_END(a);
    WORLD_END(b);
}

/* Page sizes of 16 and 64 KiB. */
TEST(page_shifts)
{
    static const hvmem_u32 shifts[] = {12, 14, 16};
    size_t i;

    for (i = 0; i < 3; i++) {
        struct hvmem_config config = world_config();
        struct shadow *shadow;
        struct world *world;
        struct hvmem_request request;
        hvmem_mfn mfn = 0;

        config.page_shift = shifts[i];
        config.owed_on_free = HVMEM_OWES_SCRUB | HVMEM_OWES_TLB;
        world = WORLD_NEW(&config, WORLD_BROADCAST);
        shadow = shadow_new(world, 0, 64);
        shadow_bank(shadow, 0, 64, 0, 0);
        shadow_domain_new(shadow, 1, ~0ull, 0);
        request = expect_block(2, shadow->domain[1].handle);
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(shadow_free(shadow, mfn, 2), HVMEM_OK);
        request = expect_block(6, NULL);
        CHECK_EQ(shadow_alloc(shadow, &request, &mfn), HVMEM_OK);
        CHECK_EQ(world->counts.zeroed, 4ull << shifts[i]);
        shadow_check(shadow);
        CHECK_EQ(shadow->failure[0], 0);
        shadow_delete(shadow);
        WORLD_END(world);
    }
}
