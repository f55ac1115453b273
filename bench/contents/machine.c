/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap over real memory with real cache instructions; see machine.h. */
#define _GNU_SOURCE
#include "machine.h"

#include <hvmem/x86.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct hvmem_x86 machine;

double contents_spent(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static struct contents *of(struct hvmem_backend *be)
{
    return be->ctx;
}

static hvmem_status dcache(struct hvmem_backend *be, hvmem_u32 op, hvmem_uptr addr,
                           hvmem_size bytes)
{
    struct contents *c = of(be);

    c->longest = bytes > c->longest ? bytes : c->longest;
    return c->real.ops->dcache(&c->real, op, addr, bytes);
}

static hvmem_status dcache_done(struct hvmem_backend *be, hvmem_u32 op)
{
    struct contents *c = of(be);

    return c->real.ops->dcache_done(&c->real, op);
}

static hvmem_status zero(struct hvmem_backend *be, hvmem_uptr addr, hvmem_size bytes)
{
    struct contents *c = of(be);

    return c->real.ops->zero(&c->real, addr, bytes);
}

static hvmem_status icache_all(struct hvmem_backend *be, hvmem_u32 scope)
{
    (void)scope;
    of(be)->icache_alls++;
    return HVMEM_OK;
}

/* Nothing else runs here: there is no translation to forget. */
static hvmem_status tlb_flush(struct hvmem_backend *be, const struct hvmem_tlb_flush *flush)
{
    (void)be;
    (void)flush;
    return HVMEM_OK;
}

static void *frame_map(void *host, hvmem_mfn mfn, hvmem_order order)
{
    struct contents *c = host;
    (void)order;

    return c->memory + ((mfn - CONTENTS_FIRST) << 12);
}

/* Asked behind each stretch; nobody else wants this CPU. */
static hvmem_u32 yield_wanted(void *host)
{
    (void)host;
    return 0;
}

static void open_backend(struct contents *c)
{
    struct hvmem_x86_config config = {.size = sizeof config, .flags = HVMEM_X86_USER};

    FIGURE_REQUIRE(hvmem_x86_init(&machine, &c->real, &config) == HVMEM_OK);
    c->ops.size = sizeof c->ops;
    c->ops.tlb_flush = tlb_flush;
    c->ops.dcache = dcache;
    c->ops.dcache_done = dcache_done;
    c->ops.zero = zero;
    c->ops.icache_all = icache_all;
    c->be.ops = &c->ops;
    c->be.ctx = c;
    c->be.caps = c->real.caps;
    /* As a machine whose instruction caches must be told: what is counted is who asks. */
    c->be.caps.features &= ~(HVMEM_CAP_ICOHERENT | HVMEM_CAP_DIC | HVMEM_CAP_IDC);
}

void contents_open(struct contents *c, hvmem_u32 owed_on_free, hvmem_u32 bank_flags)
{
    static struct hvmem_host_ops host;
    struct hvmem_bank bank = {.size = sizeof bank,
                              .flags = bank_flags,
                              .base = CONTENTS_FIRST,
                              .frames = CONTENTS_FRAMES};
    struct hvmem_config config;
    hvmem_size bytes = 0;

    memset(c, 0, sizeof *c);
    open_backend(c);
    host.size = sizeof host;
    host.frame_map = frame_map;
    host.yield_wanted = yield_wanted;
    c->memory = bench_pages_get(CONTENTS_FRAMES << 12, NULL);
    FIGURE_REQUIRE(c->memory != NULL);
    hvmem_config_default(&config);
    config.owed_on_free = owed_on_free;
    config.max_domains = 1;
    config.host = &host;
    config.host_ctx = c;
    config.backend = &c->be;
    FIGURE_REQUIRE(hvmem_heap_size(&config, &bytes) == HVMEM_OK);
    c->heap_bytes = bytes;
    c->heap_memory = bench_pages_get(bytes, NULL);
    FIGURE_REQUIRE(hvmem_heap_init(c->heap_memory, bytes, &config, &c->heap) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_bank_size(c->heap, &bank, &bytes) == HVMEM_OK);
    c->table_bytes = bytes;
    c->table = bench_pages_get(bytes, NULL);
    FIGURE_REQUIRE(hvmem_bank_add(c->heap, &bank, c->table, bytes) == HVMEM_OK);
    c->domain_bytes = hvmem_domain_size(c->heap);
    c->domain_memory = bench_pages_get(c->domain_bytes, NULL);
}

void contents_close(struct contents *c)
{
    bench_pages_put(c->domain_memory, c->domain_bytes);
    bench_pages_put(c->table, c->table_bytes);
    bench_pages_put(c->heap_memory, c->heap_bytes);
    bench_pages_put(c->memory, CONTENTS_FRAMES << 12);
}

struct hvmem_domain *contents_domain(struct contents *c)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    struct hvmem_domain *domain = NULL;

    FIGURE_REQUIRE(hvmem_domain_create(c->heap, c->domain_memory, c->domain_bytes, &config,
                                       &domain) == HVMEM_OK);
    return domain;
}

void contents_domain_gone(struct hvmem_domain *domain)
{
    FIGURE_REQUIRE(hvmem_domain_kill(domain) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_domain_destroy(domain) == HVMEM_OK);
}

hvmem_mfn contents_take(struct contents *c, struct hvmem_domain *domain, hvmem_order order)
{
    struct hvmem_request request = {.size = sizeof request,
                                    .flags = HVMEM_REQ_DEFER_ALL,
                                    .order = order,
                                    .node = HVMEM_NODE_ANY,
                                    .domain = domain};
    hvmem_mfn mfn = 0;

    FIGURE_REQUIRE(hvmem_alloc(c->heap, &request, &mfn) == HVMEM_OK);
    return mfn;
}

void contents_make_owe(struct contents *c, hvmem_order order)
{
    struct hvmem_domain *domain = contents_domain(c);
    hvmem_mfn mfn;

    for (mfn = 0; mfn < CONTENTS_FRAMES >> order; mfn++)
        (void)contents_take(c, domain, order);
    for (mfn = 0; mfn < CONTENTS_FRAMES; mfn += (hvmem_u64)1 << order)
        FIGURE_REQUIRE(hvmem_free(c->heap, CONTENTS_FIRST + mfn, order) == HVMEM_OK);
    contents_domain_gone(domain);
}
