/* SPDX-License-Identifier: BSD-2-Clause */
/* arenas.c: the arenas whose locks are counted, and what makes their states bad. */
#include "bench/count/arenas.h"

#include <stdio.h>

static void make_domain(struct arena *a)
{
    struct hvmem_domain_config config = {.size = sizeof config, .id = 1, .limit = ~0ull};
    hvmem_size bytes = hvmem_domain_size(a->h.heap);

    FIGURE_REQUIRE(hvmem_domain_create(a->h.heap, take_memory(&a->h, bytes), bytes, &config,
                                       &a->domain) == HVMEM_OK);
}

void open_arena(struct arena *a, hvmem_u32 order, int doubling)
{
    hvmem_mfn at;

    start(&a->h, HVMEM_CONFIG_NO_CPU_CACHE, order);
    a->order = order;
    a->first = (hvmem_mfn)1 << order;
    at = a->first + (doubling ? 1 : (hvmem_mfn)1 << order);
    add_bank(&a->h, a->first, at - a->first);
    for (; at < a->first << 1; at += at - a->first)
        add_bank(&a->h, at, at - a->first);
    FIGURE_REQUIRE(hvmem_smp_enable(a->h.heap) == HVMEM_OK);
    make_domain(a);
}

const char *named(const char *what)
{
    static char name[48];

    snprintf(name, sizeof name, "%s%s", kind, what);
    return name;
}

hvmem_mfn take_above(struct arena *a, hvmem_mfn lo, hvmem_u32 order, struct hvmem_domain *domain)
{
    struct hvmem_request request = {.size = sizeof request,
                                    .order = order,
                                    .node = HVMEM_NODE_ANY,
                                    .lo = lo,
                                    .flags = domain ? HVMEM_REQ_DEFER_ALL : 0,
                                    .domain = domain};
    hvmem_mfn mfn;

    FIGURE_REQUIRE(hvmem_alloc(a->h.heap, &request, &mfn) == HVMEM_OK);
    return mfn;
}

struct chains make_chains(struct arena *a, hvmem_u32 owed)
{
    hvmem_mfn half = a->first + ((hvmem_mfn)1 << (a->order - 1));
    struct chains chains = {take_above(a, a->first, 0, NULL), take_above(a, half, 0, NULL)};
    hvmem_u32 order;

    for (order = 0; owed && order < a->order - 1; order += 2) {
        hvmem_mfn mfn = take_above(a, half, order, a->domain);

        FIGURE_REQUIRE(hvmem_free_owned(a->h.heap, mfn, order, a->domain, owed) == HVMEM_OK);
    }
    return chains;
}

void claim(struct hvmem_domain *domain, hvmem_u64 frames)
{
    FIGURE_REQUIRE(hvmem_domain_claim(domain, HVMEM_NODE_ANY, frames) == HVMEM_OK);
}

void open_crowd(struct arena *a)
{
    struct hvmem_bank bank = {.size = sizeof bank};
    hvmem_u64 small = 1 << 6;
    hvmem_size bytes;
    hvmem_u8 *memory;
    unsigned i;

    start(&a->h, HVMEM_CONFIG_NO_CPU_CACHE, LARGEST);
    a->order = LARGEST;
    a->first = (hvmem_mfn)1 << LARGEST;
    bank.frames = small;
    FIGURE_REQUIRE(hvmem_bank_size(a->h.heap, &bank, &bytes) == HVMEM_OK);
    bytes += 4096;
    memory = take_memory(&a->h, bytes * CROWD);
    for (i = 0; i < CROWD; i++) {
        bank.base = a->first + small * i + (i > 0);
        bank.frames = small + (i == 0);
        FIGURE_REQUIRE(hvmem_bank_add(a->h.heap, &bank, memory + bytes * i, bytes) == HVMEM_OK);
    }
    bank.base = a->first + small * CROWD + 1;
    add_bank(&a->h, bank.base, (a->first << 1) - bank.base);
    FIGURE_REQUIRE(hvmem_smp_enable(a->h.heap) == HVMEM_OK);
    make_domain(a);
}

void name_kind(const char *name, const char *state)
{
    static char text[32];

    snprintf(text, sizeof text, "%s%s", name, state);
    kind = text;
}

void end_chains(struct arena *a, struct chains chains)
{
    FIGURE_REQUIRE(hvmem_free(a->h.heap, chains.right, 0) == HVMEM_OK);
    FIGURE_REQUIRE(hvmem_free(a->h.heap, chains.left, 0) == HVMEM_OK);
}
