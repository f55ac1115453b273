/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every public function of a heap and its domains, called with each argument wrong in turn, at each stage of a
 * heap's life: refused with its code, nothing changed, counted and reported once. The functions are read out of
 * the headers: one that has no row here fails the test.
 */
#include "expect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define FRAMES       64u
#define FAR          (1ull << 39) /* in no bank */

enum life { EMPTY, BOOT, SMP, ADOPTING, LIVES };

struct stage {
    enum life life;
    struct world *world;
    struct hvmem_heap *heap;
    struct hvmem_domain *domain; /* being built; from SMP on it runs */
    struct hvmem_domain *dead;   /* the handle of one that was destroyed */
    void *dead_memory;
    const char *row;
    unsigned calls;
};

/*
 * While tables are being adopted calls are refused for that, if not for their arguments, and there is nothing
 * to compare.
 */
#define WRONG(s, call, code)                                                                       \
    do {                                                                                           \
        (s)->calls++;                                                                              \
        if ((s)->life == ADOPTING)                                                                 \
            refused(s, (call), (code), #call);                                                     \
        else                                                                                       \
            CHECK_REFUSED((s)->world, (call), (code));                                             \
    } while (0)
/* Without a heap, or a domain, there is nobody to tell. */
#define NOBODY(s, call)                                                                            \
    do {                                                                                           \
        (s)->calls++;                                                                              \
        CHECK_EQ((call), HVMEM_E_ARG);                                                             \
    } while (0)
/* Right, but not while tables are being adopted. */
#define NOT_NOW(s, call)                                                                           \
    do {                                                                                           \
        (s)->calls++;                                                                              \
        if ((s)->life == ADOPTING)                                                                 \
            CHECK_EQ((call), HVMEM_E_PHASE);                                                       \
    } while (0)

static void refused(struct stage *s, hvmem_status got, hvmem_status code, const char *text)
{
    if (!CHECK(got == code || got == HVMEM_E_PHASE))
        test_note("%s: %s gave %d", s->row, text, got);
}

/* ---- configuration ------------------------------------------------------------------------------ */

static void config_default(struct stage *s)
{
    struct hvmem_config config;

    hvmem_config_default(NULL); /* nothing */
    memset(&config, 0xa5, sizeof config);
    hvmem_config_default(&config);
    CHECK_EQ(config.size, sizeof config);
    s->calls++;
}

static void heap_size(struct stage *s)
{
    struct hvmem_config config = s->world->config;
    hvmem_size bytes = 7;

    NOBODY(s, hvmem_heap_size(NULL, &bytes));
    NOBODY(s, hvmem_heap_size(&config, NULL));
    config.size--;
    CHECK_EQ(hvmem_heap_size(&config, &bytes), HVMEM_E_VERSION);
    CHECK_EQ(bytes, 7);
}

static void heap_init(struct stage *s)
{
    struct hvmem_config config = s->world->config;
    struct hvmem_heap *heap = NULL;
    hvmem_size bytes = 0;
    unsigned char *memory;

    REQUIRE_EQ(hvmem_heap_size(&config, &bytes), HVMEM_OK);
    memory = aligned_alloc(64, bytes);
    REQUIRE(memory != NULL);
    NOBODY(s, hvmem_heap_init(memory, bytes, NULL, &heap));
    NOBODY(s, hvmem_heap_init(memory, bytes, &config, NULL));
    CHECK_EQ(hvmem_heap_init(NULL, bytes, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory + 8, bytes, &config, &heap), HVMEM_E_BUFFER);
    CHECK_EQ(hvmem_heap_init(memory, bytes - 64, &config, &heap), HVMEM_E_BUFFER);
    CHECK(heap == NULL);
    free(memory);
}

static void smp_enable(struct stage *s)
{
    NOBODY(s, hvmem_smp_enable(NULL));
    if (s->life >= SMP)
        WRONG(s, hvmem_smp_enable(s->heap), HVMEM_E_PHASE);
}

static void cpu_online(struct stage *s)
{
    NOBODY(s, hvmem_cpu_online(NULL, 0));
    WRONG(s, hvmem_cpu_online(s->heap, 0), HVMEM_E_CPU);
    WRONG(s, hvmem_cpu_online(s->heap, 2), HVMEM_E_CPU);
    WRONG(s, hvmem_cpu_online(s->heap, ~0u), HVMEM_E_CPU);
}

static void cpu_offline(struct stage *s)
{
    NOBODY(s, hvmem_cpu_offline(NULL, 0));
    WRONG(s, hvmem_cpu_offline(s->heap, 2), HVMEM_E_CPU);
    WRONG(s, hvmem_cpu_offline(s->heap, ~0u), HVMEM_E_CPU);
}

/* ---- banks -------------------------------------------------------------------------------------- */

static struct hvmem_bank bank_at(hvmem_mfn base, hvmem_u64 frames)
{
    struct hvmem_bank bank = {sizeof bank, 0, base, frames, 0, 0};

    return bank;
}

/* Descriptions of banks that none can have. */
static void each_bad_bank(struct stage *s,
                          hvmem_status (*call)(struct stage *, struct hvmem_bank *))
{
    struct hvmem_bank bank = bank_at(FAR, 64);

    bank.size--;
    WRONG(s, call(s, &bank), HVMEM_E_VERSION);
    bank = bank_at(FAR, 64);
    bank.flags = 8;
    WRONG(s, call(s, &bank), HVMEM_E_ARG);
    bank = bank_at(FAR, 0);
    WRONG(s, call(s, &bank), HVMEM_E_COUNT);
    bank = bank_at(1ull << 40, 1);
    WRONG(s, call(s, &bank), HVMEM_E_RANGE);
    bank = bank_at(FAR, ~0ull);
    WRONG(s, call(s, &bank), HVMEM_E_RANGE);
    bank = bank_at(FAR, 64);
    bank.node = HVMEM_NODE_LIMIT;
    WRONG(s, call(s, &bank), HVMEM_E_NODE);
    WRONG(s, call(s, NULL), HVMEM_E_ARG);
}

static unsigned char table[1 << 14] __attribute__((aligned(64)));

static hvmem_status call_bank_size(struct stage *s, struct hvmem_bank *bank)
{
    hvmem_size bytes;

    return hvmem_bank_size(s->heap, bank, &bytes);
}

static hvmem_status call_bank_add(struct stage *s, struct hvmem_bank *bank)
{
    return hvmem_bank_add(s->heap, bank, table, sizeof table);
}

static hvmem_status call_bank_adopt(struct stage *s, struct hvmem_bank *bank)
{
    return hvmem_bank_adopt(s->heap, bank, table, sizeof table);
}

static void bank_size(struct stage *s)
{
    struct hvmem_bank bank = bank_at(FAR, 64);
    hvmem_size bytes;

    NOBODY(s, hvmem_bank_size(NULL, &bank, &bytes));
    WRONG(s, hvmem_bank_size(s->heap, &bank, NULL), HVMEM_E_ARG);
    each_bad_bank(s, call_bank_size);
}

static void bank_add(struct stage *s)
{
    struct hvmem_bank bank = bank_at(FAR, 64);

    NOBODY(s, hvmem_bank_add(NULL, &bank, table, sizeof table));
    WRONG(s, hvmem_bank_add(s->heap, &bank, NULL, sizeof table), HVMEM_E_BUFFER);
    WRONG(s, hvmem_bank_add(s->heap, &bank, table + 8, sizeof table - 8), HVMEM_E_BUFFER);
    WRONG(s, hvmem_bank_add(s->heap, &bank, table, 64), HVMEM_E_BUFFER);
    bank = bank_at(FRAMES - 1, 2);
    if (s->life != EMPTY)
        WRONG(s, hvmem_bank_add(s->heap, &bank, table, sizeof table), HVMEM_E_OVERLAP);
    each_bad_bank(s, call_bank_add);
}

static void bank_remove(struct stage *s)
{
    NOBODY(s, hvmem_bank_remove(NULL, 0, FRAMES));
    WRONG(s, hvmem_bank_remove(s->heap, FAR, 64), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_bank_remove(s->heap, 0, FRAMES + 1), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_bank_remove(s->heap, 1, FRAMES - 1), HVMEM_E_FOREIGN);
    NOT_NOW(s, hvmem_bank_remove(s->heap, 0, FRAMES));
}

static void node_of(struct stage *s)
{
    hvmem_node node;

    NOBODY(s, hvmem_node_of(NULL, 0, &node));
    WRONG(s, hvmem_node_of(s->heap, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_node_of(s->heap, FAR, &node), HVMEM_E_FOREIGN);
}

static void quiesce(struct stage *s)
{
    NOBODY(s, hvmem_quiesce(NULL));
    NOT_NOW(s, hvmem_quiesce(s->heap));
}

static void bank_adopt(struct stage *s)
{
    struct hvmem_bank bank = bank_at(FAR, 64);

    NOBODY(s, hvmem_bank_adopt(NULL, &bank, table, sizeof table));
    memset(table, 0, sizeof table);
    if (s->life == BOOT || s->life == SMP) {
        WRONG(s, hvmem_bank_adopt(s->heap, &bank, table, sizeof table), HVMEM_E_PHASE);
        return;
    }
    WRONG(s, hvmem_bank_adopt(s->heap, &bank, NULL, sizeof table), HVMEM_E_BUFFER);
    WRONG(s, hvmem_bank_adopt(s->heap, &bank, table, 64), HVMEM_E_BUFFER);
    WRONG(s, hvmem_bank_adopt(s->heap, &bank, table, sizeof table), HVMEM_E_GEOMETRY);
    each_bad_bank(s, call_bank_adopt);
}

static void adopt_finish(struct stage *s)
{
    hvmem_u64 cursor = 5;

    NOBODY(s, hvmem_adopt_finish(NULL, &cursor));
    WRONG(s, hvmem_adopt_finish(s->heap, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_adopt_finish(s->heap, &cursor),
          s->life == ADOPTING ? HVMEM_E_STALE : HVMEM_E_PHASE);
}

/* ---- allocation --------------------------------------------------------------------------------- */

static void each_bad_request(struct stage *s,
                             hvmem_status (*call)(struct stage *, const struct hvmem_request *))
{
    struct hvmem_request request = expect_block(0, NULL);

    request.size++;
    WRONG(s, call(s, &request), HVMEM_E_VERSION);
    request = expect_block(0, NULL);
    request.flags = 1u << 20;
    WRONG(s, call(s, &request), HVMEM_E_ARG);
    request = expect_block(11, NULL);
    WRONG(s, call(s, &request), HVMEM_E_ORDER);
    request = expect_block(0, NULL);
    request.lo = 9;
    request.hi = 9;
    WRONG(s, call(s, &request), HVMEM_E_RANGE);
    request = expect_block(0, NULL);
    request.node = HVMEM_NODE_LIMIT;
    WRONG(s, call(s, &request), HVMEM_E_NODE);
    request = expect_block(0, NULL);
    request.node_mask = 1ull << 63;
    WRONG(s, call(s, &request), HVMEM_E_NODE);
    request = expect_block(0, NULL);
    request.colour_mask = 1;
    request.colour = 2;
    WRONG(s, call(s, &request), HVMEM_E_ARG);
    request = expect_block(0, NULL);
    request.flags = HVMEM_REQ_DEFER_TLB;
    WRONG(s, call(s, &request), HVMEM_E_PHASE);
    request = expect_block(0, s->dead);
    WRONG(s, call(s, &request), HVMEM_E_DOMAIN);
    WRONG(s, call(s, NULL), HVMEM_E_ARG);
}

static hvmem_status call_alloc(struct stage *s, const struct hvmem_request *request)
{
    hvmem_mfn mfn = 77;
    hvmem_status status = hvmem_alloc(s->heap, request, &mfn);

    CHECK_EQ(mfn, 77);
    return status;
}

static hvmem_status call_alloc_bulk(struct stage *s, const struct hvmem_request *request)
{
    hvmem_mfn mfn[2] = {77, 77};
    hvmem_u32 got = 0;
    hvmem_status status = hvmem_alloc_bulk(s->heap, request, mfn, 2, &got);

    CHECK_EQ(got, 0);
    CHECK_EQ(mfn[0], 77);
    return status;
}

static void alloc(struct stage *s)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn;

    NOBODY(s, hvmem_alloc(NULL, &request, &mfn));
    WRONG(s, hvmem_alloc(s->heap, &request, NULL), HVMEM_E_ARG);
    each_bad_request(s, call_alloc);
    request = expect_run(1025, 0, 0, 0);
    WRONG(s, hvmem_alloc(s->heap, &request, &mfn), HVMEM_E_COUNT);
    request = expect_run(1, 11, 0, 0);
    WRONG(s, hvmem_alloc(s->heap, &request, &mfn), HVMEM_E_ALIGN);
    request = expect_block(0, NULL);
    NOT_NOW(s, hvmem_alloc(s->heap, &request, &mfn));
}

static void alloc_order(struct stage *s)
{
    hvmem_mfn mfn;

    NOBODY(s, hvmem_alloc_order(NULL, 0, &mfn));
    WRONG(s, hvmem_alloc_order(s->heap, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_alloc_order(s->heap, 11, &mfn), HVMEM_E_ORDER);
    WRONG(s, hvmem_alloc_order(s->heap, HVMEM_ORDER_ANY, &mfn), HVMEM_E_ORDER);
    WRONG(s, hvmem_alloc_order(s->heap, ~0u, &mfn), HVMEM_E_ORDER);
    NOT_NOW(s, hvmem_alloc_order(s->heap, 0, &mfn));
}

static void alloc_owned(struct stage *s)
{
    hvmem_mfn mfn;

    NOBODY(s, hvmem_alloc_owned(NULL, s->domain, 0, &mfn));
    WRONG(s, hvmem_alloc_owned(s->heap, s->domain, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_alloc_owned(s->heap, s->domain, 11, &mfn), HVMEM_E_ORDER);
    WRONG(s, hvmem_alloc_owned(s->heap, s->dead, 0, &mfn), HVMEM_E_DOMAIN);
    NOT_NOW(s, hvmem_alloc_owned(s->heap, s->domain, 0, &mfn));
}

static void alloc_bulk(struct stage *s)
{
    struct hvmem_request request = expect_block(0, NULL);
    hvmem_mfn mfn[2];
    hvmem_u32 got;

    NOBODY(s, hvmem_alloc_bulk(NULL, &request, mfn, 1, &got));
    WRONG(s, hvmem_alloc_bulk(s->heap, &request, NULL, 1, &got), HVMEM_E_ARG);
    WRONG(s, hvmem_alloc_bulk(s->heap, &request, mfn, 1, NULL), HVMEM_E_ARG);
    each_bad_request(s, call_alloc_bulk);
    NOT_NOW(s, hvmem_alloc_bulk(s->heap, &request, mfn, 1, &got));
}

static void reserve(struct stage *s)
{
    NOBODY(s, hvmem_reserve(NULL, 0, 1));
    WRONG(s, hvmem_reserve(s->heap, 0, 0), HVMEM_E_RANGE);
    WRONG(s, hvmem_reserve(s->heap, ~0ull, 2), HVMEM_E_RANGE);
    WRONG(s, hvmem_reserve(s->heap, FAR, 1), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_reserve(s->heap, FRAMES - 1, 2), HVMEM_E_FOREIGN);
    NOT_NOW(s, hvmem_reserve(s->heap, 0, 1));
}

/* ---- frees and what else is done to frames ------------------------------------------------------- */

/* What freeing frame 0, which is free where there is one, is answered with. */
static hvmem_status code_of_free(const struct stage *s)
{
    return s->life == EMPTY ? HVMEM_E_FOREIGN : HVMEM_E_FREE;
}

static void free_block(struct stage *s)
{
    NOBODY(s, hvmem_free(NULL, 0, 0));
    WRONG(s, hvmem_free(s->heap, FAR, 0), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_free(s->heap, ~0ull, 0), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_free(s->heap, 0, 0), code_of_free(s));
    WRONG(s, hvmem_free(s->heap, 0, 9), code_of_free(s));
    WRONG(s, hvmem_free(s->heap, 0, HVMEM_ORDER_ANY), code_of_free(s));
    WRONG(s, hvmem_free(s->heap, 0, 11), HVMEM_E_ORDER);
    WRONG(s, hvmem_free(s->heap, 0, ~0u), HVMEM_E_ORDER);
}

static void free_owned(struct stage *s)
{
    NOBODY(s, hvmem_free_owned(NULL, 0, 0, s->domain, 0));
    WRONG(s, hvmem_free_owned(s->heap, 0, 0, NULL, 0x100), HVMEM_E_ARG);
    WRONG(s, hvmem_free_owned(s->heap, FAR, 0, NULL, 0), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_free_owned(s->heap, 0, 0, s->domain, 0), code_of_free(s));
    WRONG(s, hvmem_free_owned(s->heap, 0, 0, s->dead, 0), code_of_free(s));
    WRONG(s, hvmem_free_owned(s->heap, 0, 11, s->domain, 0), HVMEM_E_ORDER);
}

static void free_run(struct stage *s)
{
    NOBODY(s, hvmem_free_run(NULL, 0, 1));
    WRONG(s, hvmem_free_run(s->heap, 0, 0), HVMEM_E_RANGE);
    WRONG(s, hvmem_free_run(s->heap, 1, ~0ull), HVMEM_E_RANGE);
    WRONG(s, hvmem_free_run(s->heap, FAR, 1), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_free_run(s->heap, 0, 1), code_of_free(s));
}

static void free_bulk(struct stage *s)
{
    hvmem_mfn mfn[2] = {0, 0};
    hvmem_u32 done = 9;

    NOBODY(s, hvmem_free_bulk(NULL, mfn, 1, 0, &done));
    WRONG(s, hvmem_free_bulk(s->heap, NULL, 1, 0, &done), HVMEM_E_ARG);
    WRONG(s, hvmem_free_bulk(s->heap, mfn, 1, 0, NULL), HVMEM_E_ARG);
    CHECK_EQ(done, 9);
    WRONG(s, hvmem_free_bulk(s->heap, mfn, 2, 0, &done), code_of_free(s));
    WRONG(s, hvmem_free_bulk(s->heap, mfn, 2, 11, &done), HVMEM_E_ORDER);
    CHECK_EQ(done, 0);
}

static void settle(struct stage *s)
{
    NOBODY(s, hvmem_settle(NULL, 0, 1, 0));
    WRONG(s, hvmem_settle(s->heap, 0, 1, 0x100), HVMEM_E_ARG);
    WRONG(s, hvmem_settle(s->heap, 0, 0, HVMEM_OWES_TLB), HVMEM_E_RANGE);
    WRONG(s, hvmem_settle(s->heap, ~0ull, 2, HVMEM_OWES_TLB), HVMEM_E_RANGE);
    WRONG(s, hvmem_settle(s->heap, FAR, 1, HVMEM_OWES_TLB), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_settle(s->heap, 0, 1, HVMEM_OWES_TLB), code_of_free(s));
}

static void offline(struct stage *s)
{
    NOBODY(s, hvmem_offline(NULL, 0));
    WRONG(s, hvmem_offline(s->heap, FAR), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_offline(s->heap, ~0ull), HVMEM_E_FOREIGN);
    NOT_NOW(s, hvmem_offline(s->heap, 0));
    if (s->life == BOOT || s->life == SMP) {
        CHECK_EQ(hvmem_offline(s->heap, 0), HVMEM_OK);
        WRONG(s, hvmem_offline(s->heap, 0), HVMEM_E_OFFLINE);
        CHECK_EQ(hvmem_online(s->heap, 0), HVMEM_OK);
    }
}

static void online(struct stage *s)
{
    NOBODY(s, hvmem_online(NULL, 0));
    WRONG(s, hvmem_online(s->heap, FAR), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_online(s->heap, 0), s->life == EMPTY ? HVMEM_E_FOREIGN : HVMEM_E_ARG);
}

static void quarantine_release(struct stage *s)
{
    NOBODY(s, hvmem_quarantine_release(NULL, 0));
    WRONG(s, hvmem_quarantine_release(s->heap, FAR), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_quarantine_release(s->heap, 0),
          s->life == EMPTY ? HVMEM_E_FOREIGN : HVMEM_E_ARG);
}

/* ---- looking ------------------------------------------------------------------------------------ */

static void lookup(struct stage *s)
{
    struct hvmem_block block;

    NOBODY(s, hvmem_lookup(NULL, 0, &block));
    WRONG(s, hvmem_lookup(s->heap, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_lookup(s->heap, FAR, &block), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_lookup(s->heap, ~0ull, &block), HVMEM_E_FOREIGN);
}

static void free_frames(struct stage *s)
{
    CHECK_EQ(hvmem_free_frames(NULL), 0);
    s->calls++;
}

static void stats_of(struct stage *s)
{
    struct hvmem_stats stats;

    NOBODY(s, hvmem_stats(NULL, HVMEM_NODE_ANY, sizeof stats, &stats));
    WRONG(s, hvmem_stats(s->heap, HVMEM_NODE_ANY, sizeof stats, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_stats(s->heap, HVMEM_NODE_ANY, sizeof stats - 8, &stats), HVMEM_E_VERSION);
    WRONG(s, hvmem_stats(s->heap, 63, sizeof stats, &stats), HVMEM_E_NODE);
    WRONG(s, hvmem_stats(s->heap, HVMEM_NODE_LIMIT, sizeof stats, &stats), HVMEM_E_NODE);
}

static void drain(struct stage *s)
{
    NOBODY(s, hvmem_drain(NULL));
}

static void walk(struct stage *s)
{
    struct hvmem_block block;
    hvmem_u64 cursor = 0;

    NOBODY(s, hvmem_walk(NULL, &cursor, &block));
    WRONG(s, hvmem_walk(s->heap, NULL, &block), HVMEM_E_ARG);
    WRONG(s, hvmem_walk(s->heap, &cursor, NULL), HVMEM_E_ARG);
    cursor = ~0ull;
    CHECK_EQ(hvmem_walk(s->heap, &cursor, &block), HVMEM_OK);
}

static void audit(struct stage *s)
{
    const char *where;
    hvmem_mfn mfn;

    NOBODY(s, hvmem_audit(NULL, &mfn, &where));
    WRONG(s, hvmem_audit(s->heap, NULL, &where), HVMEM_E_ARG);
    WRONG(s, hvmem_audit(s->heap, &mfn, NULL), HVMEM_E_ARG);
}

/* ---- domains ------------------------------------------------------------------------------------ */

static void domain_size(struct stage *s)
{
    CHECK_EQ(hvmem_domain_size(NULL), 0);
    s->calls++;
}

static void domain_create(struct stage *s)
{
    static const hvmem_u32 ids[] = {0, 1, 9, ~0u}; /* 1 is there */
    struct hvmem_domain_config good = {sizeof good, 5, ~0ull, 0}, config = good;
    hvmem_size bytes = hvmem_domain_size(s->heap);
    unsigned char *memory = aligned_alloc(64, bytes + 64);
    struct hvmem_domain *domain = NULL;
    size_t i;

    REQUIRE(memory != NULL);
    NOBODY(s, hvmem_domain_create(NULL, memory, bytes, &config, &domain));
    WRONG(s, hvmem_domain_create(s->heap, NULL, bytes, &config, &domain), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_create(s->heap, memory, bytes, NULL, &domain), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_create(s->heap, memory, bytes, &config, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_create(s->heap, memory, bytes - 64, &config, &domain), HVMEM_E_BUFFER);
    WRONG(s, hvmem_domain_create(s->heap, memory + 4, bytes, &config, &domain), HVMEM_E_BUFFER);
    config.size--;
    WRONG(s, hvmem_domain_create(s->heap, memory, bytes, &config, &domain), HVMEM_E_VERSION);
    config = good;
    config.node_mask = 1ull << 63;
    WRONG(s, hvmem_domain_create(s->heap, memory, bytes, &config, &domain), HVMEM_E_NODE);
    config = good;
    for (i = 0; i < COUNT(ids); i++) {
        config.id = ids[i];
        WRONG(s, hvmem_domain_create(s->heap, memory, bytes, &config, &domain), HVMEM_E_DOMAIN);
    }
    CHECK(domain == NULL);
    free(memory);
}

static hvmem_status map_none(void *ctx, hvmem_gfn gfn, hvmem_mfn mfn, hvmem_order order)
{
    (void)ctx, (void)gfn, (void)mfn, (void)order;
    return HVMEM_OK;
}

static void domain_attach(struct stage *s)
{
    struct hvmem_domain_ops ops = {.size = sizeof ops, .map = map_none};

    NOBODY(s, hvmem_domain_attach(NULL, &ops, NULL, NULL));
    NOBODY(s, hvmem_domain_attach(s->dead, &ops, NULL, NULL));
    WRONG(s, hvmem_domain_attach(s->domain, NULL, NULL, NULL), HVMEM_E_ARG);
    ops.size = 0;
    WRONG(s, hvmem_domain_attach(s->domain, &ops, NULL, NULL), HVMEM_E_VERSION);
    ops.size = sizeof ops;
    if (s->life == SMP)
        WRONG(s, hvmem_domain_attach(s->domain, &ops, NULL, NULL), HVMEM_E_PHASE);
}

static void domain_start(struct stage *s)
{
    NOBODY(s, hvmem_domain_start(NULL));
    NOBODY(s, hvmem_domain_start(s->dead));
    if (s->life >= SMP)
        WRONG(s, hvmem_domain_start(s->domain), HVMEM_E_PHASE);
}

static void domain_start_step(struct stage *s)
{
    struct hvmem_cursor zero = {{0}}, forged = {{1, 2, 3, 4}};

    NOBODY(s, hvmem_domain_start_step(NULL, 0, &zero));
    NOBODY(s, hvmem_domain_start_step(s->dead, 0, &zero));
    WRONG(s, hvmem_domain_start_step(s->domain, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_start_step(s->domain, 0, &forged), HVMEM_E_STALE);
}

static void domain_dirtied(struct stage *s)
{
    NOBODY(s, hvmem_domain_dirtied(NULL, 0, 1));
    NOBODY(s, hvmem_domain_dirtied(s->dead, 0, 1));
    WRONG(s, hvmem_domain_dirtied(s->domain, 0, 0), HVMEM_E_RANGE);
    WRONG(s, hvmem_domain_dirtied(s->domain, ~0ull, 2), HVMEM_E_RANGE);
    WRONG(s, hvmem_domain_dirtied(s->domain, 1ull << 40, 1), HVMEM_E_RANGE);
    WRONG(s, hvmem_domain_dirtied(s->domain, 0, 1), HVMEM_E_UNSUPPORTED);
}

static void domain_clean(struct stage *s)
{
    struct hvmem_cursor cursor = {{0}};

    NOBODY(s, hvmem_domain_clean(NULL, 0, 1, &cursor));
    NOBODY(s, hvmem_domain_clean(s->dead, 0, 1, &cursor));
    WRONG(s, hvmem_domain_clean(s->domain, 0, 1, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_clean(s->domain, 0, 0, &cursor), HVMEM_E_RANGE);
    WRONG(s, hvmem_domain_clean(s->domain, 1ull << 40, 1, &cursor), HVMEM_E_RANGE);
    WRONG(s, hvmem_domain_clean(s->domain, 0, 1, &cursor), HVMEM_E_UNSUPPORTED);
}

static void domain_foreign(struct stage *s)
{
    NOBODY(s, hvmem_domain_foreign(NULL, 0, 0));
    NOBODY(s, hvmem_domain_foreign(s->dead, 0, 0));
    WRONG(s, hvmem_domain_foreign(s->domain, FAR, 0), HVMEM_E_FOREIGN);
    WRONG(s, hvmem_domain_foreign(s->domain, 0, 11), HVMEM_E_ORDER);
    WRONG(s, hvmem_domain_foreign(s->domain, 0, 0), code_of_free(s));
}

static void domain_teardown(struct stage *s)
{
    struct hvmem_cursor forged = {{1, 2, 3, 4}}, zero = {{0}};

    NOBODY(s, hvmem_domain_teardown(NULL, 0, &zero));
    NOBODY(s, hvmem_domain_teardown(s->dead, 0, &zero));
    WRONG(s, hvmem_domain_teardown(s->domain, 0, NULL), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_teardown(s->domain, 2, &zero), HVMEM_E_ARG);
    WRONG(s, hvmem_domain_teardown(s->domain, 0, &forged), HVMEM_E_STALE);
}

static void domain_kill(struct stage *s)
{
    NOBODY(s, hvmem_domain_kill(NULL));
    NOBODY(s, hvmem_domain_kill(s->dead));
}

static void domain_destroy(struct stage *s)
{
    NOBODY(s, hvmem_domain_destroy(NULL));
    NOBODY(s, hvmem_domain_destroy(s->dead));
    WRONG(s, hvmem_domain_destroy(s->domain), HVMEM_E_PHASE);
}

static void domain_limit(struct stage *s)
{
    NOBODY(s, hvmem_domain_limit(NULL, 1));
    NOBODY(s, hvmem_domain_limit(s->dead, 1));
}

static void domain_claim(struct stage *s)
{
    NOBODY(s, hvmem_domain_claim(NULL, HVMEM_NODE_ANY, 1));
    NOBODY(s, hvmem_domain_claim(s->dead, HVMEM_NODE_ANY, 1));
    WRONG(s, hvmem_domain_claim(s->domain, HVMEM_NODE_LIMIT, 1), HVMEM_E_NODE);
    WRONG(s, hvmem_domain_claim(s->domain, 63, 1), HVMEM_E_NODE);
    WRONG(s, hvmem_domain_claim(s->domain, ~0u - 1, 1), HVMEM_E_NODE);
    WRONG(s, hvmem_domain_claim(s->domain, HVMEM_NODE_ANY, FRAMES + 1), HVMEM_E_NOMEM);
}

static void domain_stats(struct stage *s)
{
    struct hvmem_domain_stats stats;

    NOBODY(s, hvmem_domain_stats(NULL, &stats));
    NOBODY(s, hvmem_domain_stats(s->dead, &stats));
    WRONG(s, hvmem_domain_stats(s->domain, NULL), HVMEM_E_ARG);
}

/* ---- the table ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(struct stage *s);
} rows[] = {
    {"hvmem_config_default", config_default},
    {"hvmem_heap_size", heap_size},
    {"hvmem_heap_init", heap_init},
    {"hvmem_smp_enable", smp_enable},
    {"hvmem_cpu_online", cpu_online},
    {"hvmem_cpu_offline", cpu_offline},
    {"hvmem_bank_size", bank_size},
    {"hvmem_bank_add", bank_add},
    {"hvmem_bank_remove", bank_remove},
    {"hvmem_node_of", node_of},
    {"hvmem_quiesce", quiesce},
    {"hvmem_bank_adopt", bank_adopt},
    {"hvmem_adopt_finish", adopt_finish},
    {"hvmem_alloc", alloc},
    {"hvmem_alloc_order", alloc_order},
    {"hvmem_alloc_owned", alloc_owned},
    {"hvmem_alloc_bulk", alloc_bulk},
    {"hvmem_reserve", reserve},
    {"hvmem_free", free_block},
    {"hvmem_free_owned", free_owned},
    {"hvmem_free_run", free_run},
    {"hvmem_free_bulk", free_bulk},
    {"hvmem_settle", settle},
    {"hvmem_offline", offline},
    {"hvmem_online", online},
    {"hvmem_quarantine_release", quarantine_release},
    {"hvmem_lookup", lookup},
    {"hvmem_free_frames", free_frames},
    {"hvmem_stats", stats_of},
    {"hvmem_drain", drain},
    {"hvmem_walk", walk},
    {"hvmem_audit", audit},
    {"hvmem_domain_size", domain_size},
    {"hvmem_domain_create", domain_create},
    {"hvmem_domain_attach", domain_attach},
    {"hvmem_domain_start", domain_start},
    {"hvmem_domain_start_step", domain_start_step},
    {"hvmem_domain_dirtied", domain_dirtied},
    {"hvmem_domain_clean", domain_clean},
    {"hvmem_domain_foreign", domain_foreign},
    {"hvmem_domain_teardown", domain_teardown},
    {"hvmem_domain_kill", domain_kill},
    {"hvmem_domain_destroy", domain_destroy},
    {"hvmem_domain_limit", domain_limit},
    {"hvmem_domain_claim", domain_claim},
    {"hvmem_domain_stats", domain_stats},
};

static struct world *new_world(void)
{
    struct hvmem_config config = world_config();

    config.max_cpus = 2;
    config.lock_regime = HVMEM_LOCK_PLAIN;
    config.flags = HVMEM_CONFIG_NO_CPU_CACHE;
    return WORLD_NEW(&config, WORLD_BROADCAST | WORLD_BARRIER);
}

/* A heap at this stage, with a domain, and the handle of one that was. */
static void stage_begin(struct stage *s, enum life life, struct world *old)
{
    struct hvmem_domain_config config = {sizeof config, 2, ~0ull, 0};
    hvmem_size bytes;

    memset(s, 0, sizeof *s);
    s->life = life;
    s->world = new_world();
    s->heap = s->world->heap;
    s->domain = world_domain(s->world, 1, ~0ull, 0, NULL);
    bytes = hvmem_domain_size(s->heap);
    s->dead_memory = aligned_alloc(64, bytes);
    REQUIRE(s->dead_memory != NULL);
    REQUIRE_EQ(hvmem_domain_create(s->heap, s->dead_memory, bytes, &config, &s->dead), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_kill(s->dead), HVMEM_OK);
    REQUIRE_EQ(hvmem_domain_destroy(s->dead), HVMEM_OK);
    if (life == BOOT || life == SMP)
        REQUIRE_EQ(world_bank(s->world, 0, FRAMES, 0, 0), HVMEM_OK);
    if (life == SMP) {
        REQUIRE_EQ(world_smp(s->world), HVMEM_OK);
        REQUIRE_EQ(hvmem_domain_start(s->domain), HVMEM_OK);
    }
    if (life == ADOPTING) {
        struct hvmem_bank bank = bank_at(0, FRAMES);
        struct world_table *first = world_table_of(old, 0);

        REQUIRE_EQ(hvmem_bank_adopt(s->heap, &bank, first->memory, first->bytes), HVMEM_OK);
    }
}

static void stage_end(struct stage *s)
{
    hvmem_u64 cursor = 0;

    if (s->life == ADOPTING)
        while (hvmem_adopt_finish(s->heap, &cursor) == HVMEM_AGAIN)
            continue;
    CHECK_AUDIT(s->world);
    CHECK_EQ(hvmem_free_frames(s->heap), s->life == EMPTY ? 0 : FRAMES);
    CHECK_TORN_DOWN(s->world, s->domain);
    WORLD_END(s->world);
    free(s->dead_memory);
}

TEST(wrong_arguments_at_every_stage)
{
    struct world *old = new_world();
    enum life life;
    size_t i;

    REQUIRE_EQ(world_bank(old, 0, FRAMES, 0, 0), HVMEM_OK);
    REQUIRE_EQ(hvmem_quiesce(old->heap), HVMEM_OK);
    for (life = EMPTY; life < LIVES; life++) {
        struct stage s;

        stage_begin(&s, life, old);
        for (i = 0; i < COUNT(rows); i++) {
            unsigned before = s.calls;

            s.row = rows[i].name;
            rows[i].run(&s);
            if (!CHECK(s.calls > before))
                test_note("%s makes no call", rows[i].name);
        }
        stage_end(&s);
    }
    CHECK(world_delete(old));
}

/* ---- the headers -------------------------------------------------------------------------------- */

static int has_row(const char *name, size_t length)
{
    size_t i;

    for (i = 0; i < COUNT(rows); i++)
        if (strlen(rows[i].name) == length && memcmp(rows[i].name, name, length) == 0)
            return 1;
    return 0;
}

/* The name of the function that is declared behind HVMEM_API. */
static const char *declared(const char *at, size_t *length)
{
    const char *end = strchr(at, '(');

    if (end == NULL)
        return NULL;
    for (at = end; isalnum((unsigned char)at[-1]) || at[-1] == '_'; at--)
        continue;
    *length = (size_t)(end - at);
    return at;
}

TEST(no_function_without_a_row)
{
    static const char *const headers[] = {"config", "heap", "bank", "look", "domain"};
    static char text[1 << 16];
    size_t i, found = 0;

    for (i = 0; i < COUNT(headers); i++) {
        char path[512];
        const char *at;
        size_t bytes;
        FILE *file;

        snprintf(path, sizeof path, "%s/hvmem/%s.h", TEST_INCLUDE_DIR, headers[i]);
        file = fopen(path, "r");
        REQUIRE(file != NULL);
        bytes = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        text[bytes] = '\0';
        for (at = strstr(text, "\nHVMEM_API "); at != NULL; at = strstr(at + 1, "\nHVMEM_API ")) {
            size_t length = 0;
            const char *name = declared(at, &length);

            REQUIRE(name != NULL);
            found++;
            if (!CHECK(has_row(name, length)))
                test_note("%.*s of hvmem/%s.h has no row in rows[]", (int)length, name, headers[i]);
        }
    }
    CHECK_EQ(found, COUNT(rows));
}
