/* SPDX-License-Identifier: BSD-2-Clause */
/* The forms a TLB request of the contract can take, for the tests that try each of them. */
#ifndef TEST_METAL_FORMS_H
#define TEST_METAL_FORMS_H

#include <hvmem/backend.h>

#include "hosts/metal/common/metal.h"

struct form {
    const char *name;
    uint16_t what;
    uint16_t flags;
    uint64_t pages;
};

static const struct form forms[] = {
    {"page", HVMEM_FLUSH_RANGES, 0, 1},   {"leaf page", HVMEM_FLUSH_RANGES, HVMEM_RANGE_LEAF, 1},
    {"range", HVMEM_FLUSH_RANGES, 0, 34}, {"leaf range", HVMEM_FLUSH_RANGES, HVMEM_RANGE_LEAF, 34},
    {"space", HVMEM_FLUSH_SPACE, 0, 0},   {"regime", HVMEM_FLUSH_REGIME, 0, 0},
    {"all", HVMEM_FLUSH_ALL, 0, 0},
};
#define FORM_COUNT (sizeof forms / sizeof forms[0])

/* The request for the page at `at` in 4 KiB leaves; *range must live as long as it. */
static inline struct hvmem_tlb_flush request(const struct form *f, uint32_t scope, uint32_t regime,
                                             uint32_t id, struct hvmem_tlb_range *range,
                                             uint64_t at)
{
    struct hvmem_tlb_flush flush = {
        .size = sizeof flush, .what = f->what, .scope = (hvmem_u16)scope, .space = {regime, id, 0}};

    *range = (struct hvmem_tlb_range){.start = at - (f->pages / 2) * METAL_PAGE_BYTES,
                                      .pages = f->pages,
                                      .stride_shift = METAL_PAGE_SHIFT,
                                      .level = HVMEM_LEVEL_UNKNOWN,
                                      .flags = f->flags};
    if (f->flags & HVMEM_RANGE_LEAF)
        range->level = 3;
    if (regime == HVMEM_REGIME_HOST)
        range->flags |= HVMEM_RANGE_GLOBAL;
    if (f->what == HVMEM_FLUSH_RANGES) {
        flush.ranges = range;
        flush.count = 1;
    }
    return flush;
}

static inline const char *scope_name(uint32_t scope)
{
    return scope == HVMEM_SCOPE_LOCAL ? "local" : scope == HVMEM_SCOPE_INNER ? "inner" : "outer";
}

#endif
