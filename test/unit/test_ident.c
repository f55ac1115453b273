/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Identifiers: handing out at every width, pins, narrow CPUs, and all interleavings of small
 * programs around a rollover against the model TLB (B41).
 */
#include "test_machine.h"
#include "test_main.h"
#include "test_schedule.h"

#include "ident.h"

#include <stdlib.h>
#include <string.h>

/* ---- a plain object -------------------------------------------------------------------------- */

static hvmem_status no_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    hvmem_u32 *count = be->ctx;

    (void)flush;
    ++*count;
    return HVMEM_OK;
}

static const struct hvmem_backend_ops counting_ops = {.size = sizeof counting_ops,
                                                      .tlb_flush = no_flush};

struct plain {
    struct hvmem_ident_config config;
    struct hvmem_backend backend;
    struct hvmem_ident *ident;
    hvmem_u32 flushes;
    void *memory;
};

static void plain_config(struct plain *p, hvmem_u32 flags, hvmem_u32 cpus, hvmem_u32 ids)
{
    memset(p, 0, sizeof *p);
    p->backend.ops = &counting_ops;
    p->backend.ctx = &p->flushes;
    p->backend.caps.features = HVMEM_CAP_BROADCAST;
    p->config.size = sizeof p->config;
    p->config.flags = flags;
    p->config.regime = HVMEM_REGIME_USER;
    p->config.first = 1;
    p->config.ids = ids;
    p->config.max_cpus = cpus;
    p->config.lock_regime = HVMEM_LOCK_PLAIN;
    p->config.backend = &p->backend;
}

static void plain_begin(struct plain *p, hvmem_u32 flags, hvmem_u32 cpus, hvmem_u32 ids)
{
    hvmem_size bytes;
    hvmem_u32 i;

    plain_config(p, flags, cpus, ids);
    REQUIRE_EQ(hvmem_ident_size(&p->config, &bytes), HVMEM_OK);
    p->memory = aligned_alloc(64, bytes);
    memset(p->memory, 0xa5, bytes);
    REQUIRE_EQ(hvmem_ident_init(p->memory, bytes, &p->config, &p->ident), HVMEM_OK);
    for (i = 0; i < cpus; i++)
        REQUIRE_EQ(hvmem_ident_cpu_online(p->ident, i, 0xffff), HVMEM_OK);
}

static struct hvmem_space *plain_space(struct plain *p)
{
    struct hvmem_space_config config = {.size = sizeof config, .regime = HVMEM_REGIME_USER};
    hvmem_size bytes = hvmem_space_size(p->ident);
    struct hvmem_space *space;
    void *memory = aligned_alloc(64, bytes);

    memset(memory, 0xa5, bytes);
    REQUIRE_EQ(hvmem_space_create(p->ident, memory, bytes, &config, &space), HVMEM_OK);
    return space;
}

static hvmem_u32 run(struct plain *p, struct hvmem_space *space, hvmem_cpu cpu)
{
    struct hvmem_entry entry;

    REQUIRE_EQ(hvmem_space_activate(space, cpu, &entry), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_entered(p->ident, cpu), HVMEM_OK);
    return entry.id;
}

static void leave(struct plain *p, hvmem_cpu cpu)
{
    REQUIRE_EQ(hvmem_space_deactivate(p->ident, cpu), HVMEM_OK);
    REQUIRE_EQ(hvmem_space_entered(p->ident, cpu), HVMEM_OK);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static void expect_config(struct plain *p, hvmem_status status)
{
    struct hvmem_ident *ident = NULL;
    static char memory[4096] __attribute__((aligned(64)));
    hvmem_size bytes = 1;

    CHECK_EQ(hvmem_ident_size(&p->config, &bytes), status);
    CHECK_EQ(bytes, 1);
    CHECK_EQ(hvmem_ident_init(memory, sizeof memory, &p->config, &ident), status);
    CHECK(ident == NULL);
}

TEST(refuses_bad_configurations)
{
    struct plain p;
    static const struct {
        hvmem_u32 flags, cpus, ids, first, regime;
        hvmem_status status;
    } bad[] = {
        {0, 1, 0, 1, 1, HVMEM_E_COUNT},
        {0, 1, 65536, 1, 1, HVMEM_E_COUNT},
        {0, 1, 65535, 2, 1, HVMEM_E_COUNT},
        {0, 1, 15, 0, 1, HVMEM_E_COUNT},
        {0, 16, 15, 1, 1, HVMEM_E_COUNT},
        {0, 0, 15, 1, 1, HVMEM_E_CPU},
        {0, HVMEM_CPU_LIMIT + 1, 65535, 1, 1, HVMEM_E_CPU},
        {0, 1, 15, 1, HVMEM_REGIME_HOST, HVMEM_E_ARG},
        {0, 1, 15, 1, 4, HVMEM_E_ARG},
        {0x10, 1, 15, 1, 1, HVMEM_E_ARG},
        {HVMEM_IDENT_PER_CPU | HVMEM_IDENT_BROADCAST, 1, 15, 1, 1, HVMEM_E_ARG},
        {HVMEM_IDENT_ENTRY, 1, 15, 1, 1, HVMEM_E_UNSUPPORTED},
    };
    size_t i;

    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        plain_config(&p, bad[i].flags, bad[i].cpus, bad[i].ids);
        p.config.first = bad[i].first;
        p.config.regime = bad[i].regime;
        expect_config(&p, bad[i].status);
    }
    plain_config(&p, HVMEM_IDENT_BROADCAST, 1, 15);
    p.backend.caps.features = 0;
    expect_config(&p, HVMEM_E_UNSUPPORTED);
    plain_config(&p, 0, 1, 15);
    p.config.size--;
    expect_config(&p, HVMEM_E_VERSION);
    p.config.size++;
    p.config.backend = NULL;
    expect_config(&p, HVMEM_E_ARG);
    p.config.backend = &p.backend;
    p.config.lock_regime = 3;
    expect_config(&p, HVMEM_E_ARG);
    p.config.lock_regime = HVMEM_LOCK_IRQSAVE; /* this host cannot */
    expect_config(&p, HVMEM_E_ARG);
    CHECK_EQ(hvmem_ident_size(NULL, NULL), HVMEM_E_ARG);
}

/* A number that the tag cannot hold would be another space's number. */
TEST(refuses_more_ids_than_the_machine_has)
{
    static const struct {
        hvmem_u32 regime, ids, user_bits, stage2_ids;
        hvmem_status status;
    } cases[] = {
        {HVMEM_REGIME_USER, 4095, 12, 0, HVMEM_OK},
        {HVMEM_REGIME_USER, 4096, 12, 0, HVMEM_E_COUNT},
        {HVMEM_REGIME_STAGE2, 255, 0, 256, HVMEM_OK},
        {HVMEM_REGIME_STAGE2, 256, 0, 256, HVMEM_E_COUNT},
        {HVMEM_REGIME_GUEST, 15, 12, 16, HVMEM_OK}, /* SVM counts its ASIDs */
        {HVMEM_REGIME_GUEST, 16, 12, 16, HVMEM_E_COUNT},
        {HVMEM_REGIME_GUEST, 65535, 0, 0, HVMEM_OK}, /* it does not say */
    };
    struct plain p;
    hvmem_size bytes;
    size_t i;

    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        plain_config(&p, 0, 1, cases[i].ids);
        p.config.regime = cases[i].regime;
        p.backend.caps.user_id_bits = cases[i].user_bits;
        p.backend.caps.stage2_ids = cases[i].stage2_ids;
        CHECK_EQ(hvmem_ident_size(&p.config, &bytes), cases[i].status);
    }
}

TEST(refuses_bad_buffers_and_cpus)
{
    struct plain p;
    struct hvmem_ident_stats stats;
    struct hvmem_ident *ident;
    hvmem_size bytes;

    plain_begin(&p, 0, 2, 15);
    REQUIRE_EQ(hvmem_ident_size(&p.config, &bytes), HVMEM_OK);
    CHECK_EQ(bytes % 64, 0);
    CHECK_EQ(hvmem_ident_init(p.memory, bytes - 1, &p.config, &ident), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_ident_init((char *)p.memory + 8, bytes, &p.config, &ident), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_ident_init(NULL, bytes, &p.config, &ident), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_ident_cpu_online(p.ident, 0, 15), HVMEM_E_CPU);
    CHECK_EQ(hvmem_ident_cpu_online(p.ident, 2, 15), HVMEM_E_CPU);
    CHECK_EQ(hvmem_ident_cpu_offline(p.ident, 2), HVMEM_E_CPU);
    CHECK_EQ(hvmem_ident_cpu_offline(p.ident, 1), HVMEM_OK);
    CHECK_EQ(hvmem_ident_cpu_offline(p.ident, 1), HVMEM_E_CPU);
    CHECK_EQ(hvmem_ident_cpu_online(NULL, 0, 15), HVMEM_E_ARG);
    CHECK_EQ(hvmem_ident_flush_all(NULL), HVMEM_E_ARG);
    CHECK_EQ(hvmem_ident_get_stats(p.ident, &stats), HVMEM_OK);
    CHECK_EQ(stats.refused, 4);
    free(p.memory);
}

/* ---- handing out ----------------------------------------------------------------------------- */

/* A space for each id: all numbers come, none twice; the next space ends the generation. */
static void hand_out_all(hvmem_u32 flags, hvmem_u32 bits)
{
    hvmem_u32 ids = (1u << bits) - 1;
    unsigned char *seen = calloc(1, ids + 1);
    struct hvmem_ident_stats stats;
    struct hvmem_space **spaces = calloc(ids + 1, sizeof *spaces);
    struct plain p;
    hvmem_u32 i;

    plain_begin(&p, flags, 1, ids);
    for (i = 0; i <= ids; i++) {
        hvmem_u32 id;

        spaces[i] = plain_space(&p);
        if (i > 0)
            leave(&p, 0);
        id = run(&p, spaces[i], 0);
        REQUIRE(id >= 1 && id <= ids);
        if (i < ids)
            CHECK(!seen[id]);
        seen[id] = 1;
        /* One flush when the CPU came, one when the numbers are used up. */
        CHECK_EQ(p.flushes, i == ids ? 2 : 1);
    }
    hvmem_ident_get_stats(p.ident, &stats);
    CHECK_EQ(stats.rollovers, flags & HVMEM_IDENT_PER_CPU ? 2 : 1);
    for (i = 0; i <= ids; i++)
        free(spaces[i]);
    free(spaces);
    free(seen);
    free(p.memory);
}

TEST(every_width_from_1_to_16)
{
    hvmem_u32 bits;

    for (bits = 1; bits <= 16; bits++) {
        struct plain p;

        plain_begin(&p, 0, 1, (1u << bits) - 1);
        free(p.memory);
        hand_out_all(0, bits);
        hand_out_all(HVMEM_IDENT_PER_CPU, bits);
    }
}

TEST(more_live_spaces_than_ids)
{
    static const hvmem_u32 flags[] = {0, HVMEM_IDENT_BROADCAST, HVMEM_IDENT_PER_CPU};
    struct hvmem_ident_stats stats;
    struct hvmem_space *spaces[50];
    struct plain p;
    size_t f;
    int i;

    for (f = 0; f < 3; f++) {
        plain_begin(&p, flags[f], 2, 15);
        for (i = 0; i < 50; i++)
            spaces[i] = plain_space(&p);
        for (i = 0; i < 1000; i++) {
            hvmem_u32 id = run(&p, spaces[(i * 7) % 50], (hvmem_cpu)i & 1);

            CHECK(id >= 1 && id <= 15);
        }
        hvmem_ident_get_stats(p.ident, &stats);
        CHECK(stats.rollovers > 20);
        CHECK_EQ(stats.refused, 0);
        for (i = 0; i < 50; i++)
            free(spaces[i]);
        free(p.memory);
    }
}

TEST(switching_within_a_generation_writes_no_flush)
{
    struct hvmem_space *a;
    struct hvmem_space *b;
    hvmem_u32 flushes;
    struct plain p;
    int i;

    plain_begin(&p, 0, 2, 15);
    a = plain_space(&p);
    b = plain_space(&p);
    run(&p, a, 0);
    run(&p, b, 0);
    flushes = p.flushes;
    for (i = 0; i < 100; i++)
        run(&p, i & 1 ? a : b, 0);
    CHECK_EQ(p.flushes, flushes);
    free(a);
    free(b);
    free(p.memory);
}

TEST(one_id_needs_deactivation_first)
{
    struct hvmem_entry entry;
    struct hvmem_space *a;
    struct hvmem_space *b;
    struct plain p;

    plain_begin(&p, 0, 1, 1);
    a = plain_space(&p);
    b = plain_space(&p);
    run(&p, a, 0);
    CHECK_EQ(hvmem_space_activate(b, 0, &entry), HVMEM_E_NOID);
    CHECK_EQ(entry.id, 0);
    CHECK_EQ(hvmem_space_destroy(a, 0), HVMEM_E_BUSY); /* still what the CPU runs */
    CHECK_EQ(run(&p, a, 0), 1);
    leave(&p, 0);
    CHECK_EQ(run(&p, b, 0), 1);
    free(a);
    free(b);
    free(p.memory);
}

TEST(pins_keep_their_number_and_run_out)
{
    struct hvmem_space *pinned[16];
    struct hvmem_space *other[30];
    hvmem_u32 id[16];
    hvmem_u32 extra;
    struct plain p;
    int i;

    plain_begin(&p, 0, 2, 15);
    for (i = 0; i < 13; i++) {
        pinned[i] = plain_space(&p);
        CHECK_EQ(hvmem_space_pin(pinned[i], &id[i]), HVMEM_OK);
    }
    pinned[13] = plain_space(&p);
    CHECK_EQ(hvmem_space_pin(pinned[13], &extra), HVMEM_E_NOID);
    for (i = 0; i < 30; i++) {
        hvmem_u32 got;
        int k;

        other[i] = plain_space(&p);
        if (i > 0)
            leave(&p, 1);
        got = run(&p, other[i], 1);
        for (k = 0; k < 13; k++)
            CHECK(got != id[k]);
    }
    for (i = 0; i < 13; i++)
        CHECK_EQ(run(&p, pinned[i], 0), id[i]);
    CHECK_EQ(hvmem_space_destroy(pinned[3], 0), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_space_unpin(pinned[3]), HVMEM_OK);
    CHECK_EQ(hvmem_space_unpin(pinned[3]), HVMEM_E_PHASE);
    CHECK_EQ(hvmem_space_pin(pinned[13], &extra), HVMEM_OK);
    for (i = 0; i < 30; i++)
        free(other[i]);
    for (i = 0; i < 14; i++)
        free(pinned[i]);
    free(p.memory);
}

TEST(the_narrowest_cpu_decides)
{
    struct hvmem_ident_stats stats;
    struct hvmem_space *spaces[40];
    struct plain p;
    int i;

    plain_begin(&p, 0, 2, 31);
    CHECK_EQ(hvmem_ident_cpu_offline(p.ident, 1), HVMEM_OK);
    for (i = 0; i < 40; i++)
        spaces[i] = plain_space(&p);
    for (i = 0; i < 20; i++)
        run(&p, spaces[i], 0); /* CPU 0 has number 20 loaded */
    CHECK_EQ(hvmem_ident_cpu_online(p.ident, 1, 15), HVMEM_E_BUSY);
    CHECK_EQ(hvmem_ident_cpu_online(p.ident, 1, 1), HVMEM_E_COUNT);
    leave(&p, 0);
    CHECK_EQ(hvmem_ident_cpu_online(p.ident, 1, 15), HVMEM_OK);
    for (i = 0; i < 200; i++)
        CHECK(run(&p, spaces[(i * 11) % 40], (hvmem_cpu)i & 1) <= 15);
    hvmem_ident_get_stats(p.ident, &stats);
    CHECK_EQ(stats.last, 15);
    for (i = 0; i < 40; i++)
        free(spaces[i]);
    free(p.memory);
}

TEST(flush_all_reaches_every_cpu_once)
{
    static const hvmem_u32 flags[] = {0, HVMEM_IDENT_PER_CPU};
    struct hvmem_entry entry;
    struct hvmem_space *a;
    struct plain p;
    hvmem_cpu cpu;
    size_t f;

    for (f = 0; f < 2; f++) {
        plain_begin(&p, flags[f], 3, 15);
        a = plain_space(&p);
        for (cpu = 0; cpu < 3; cpu++)
            run(&p, a, cpu);
        CHECK_EQ(hvmem_ident_flush_all(p.ident), HVMEM_OK);
        for (cpu = 0; cpu < 3; cpu++) {
            CHECK_EQ(hvmem_space_activate(a, cpu, &entry), HVMEM_OK);
            CHECK_EQ(entry.flushed, HVMEM_ENTRY_FLUSH_ALL);
            CHECK_EQ(hvmem_space_activate(a, cpu, &entry), HVMEM_OK);
            CHECK_EQ(entry.flushed, HVMEM_ENTRY_NOTHING);
        }
        free(a);
        free(p.memory);
    }
}

/* A space that slept through generations finds its old number pinned by another: it takes a new one. */
TEST(B41_a_number_pinned_by_another_space_is_not_renewed)
{
    struct hvmem_space *sleeper;
    struct hvmem_space *pinner;
    hvmem_u32 old;
    hvmem_u32 id;
    struct plain p;

    plain_begin(&p, 0, 1, 15);
    sleeper = plain_space(&p);
    pinner = plain_space(&p);
    old = run(&p, sleeper, 0);
    leave(&p, 0);
    CHECK_EQ(hvmem_ident_flush_all(p.ident), HVMEM_OK);
    CHECK_EQ(hvmem_space_pin(pinner, &id), HVMEM_OK);
    CHECK_EQ(id, old);
    CHECK_EQ(hvmem_ident_flush_all(p.ident), HVMEM_OK);
    CHECK(run(&p, sleeper, 0) != id);
    CHECK_EQ(run(&p, pinner, 0), id);
    free(sleeper);
    free(pinner);
    free(p.memory);
}
