/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Figures of the arm64 range encoder: the most TLBI that any range of up to 2^21 pages takes, over
 * random ranges and the hardest known one. Every cover is checked to be exact.
 */
#include "backends/arm64/encode.h"
#include "bench/common/figure.h"

#include <stdint.h>

#define RANGES 300000u

static uint32_t cover(uint64_t page, uint64_t pages, uint32_t granule_shift, int lpa2)
{
    struct hvmem__arm64_cover cover;
    struct hvmem__arm64_step step;
    uint64_t at = page;
    uint32_t count = 0;

    hvmem__arm64_cover_start(&cover, page, pages, granule_shift, lpa2);
    while (hvmem__arm64_cover_next(&cover, &step)) {
        FIGURE_REQUIRE(step.page == at);
        at += step.single ? 1 : (uint64_t)(step.num + 1) << (5 * step.scale + 1);
        count++;
    }
    FIGURE_REQUIRE(at == page + pages);
    return count;
}

static double worst(uint32_t granule_shift, int lpa2)
{
    uint64_t random = 88172645463325252ull;
    uint32_t most, count, i;

    /* Every scale with its largest count, an odd page, and a base just past an aligned one. */
    most = cover(1, 31 + 31 * 64 + 31 * 2048ull + 31 * 65536ull - 16, granule_shift, lpa2);
    for (i = 0; i < RANGES; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        count = cover(random & 0xffffff, 1 + (random >> 43 >> (random >> 24 & 15)), granule_shift,
                      lpa2);
        most = count > most ? count : most;
    }
    return most;
}

FIGURE(range_ops_worst, "encode.range_ops_worst", "operations",
       "most TLBI of one range of up to 2^21 pages, 4 KiB granule")
{
    figure_comment("16 KiB: %.0f; with LPA2: 4 KiB %.0f, 16 KiB %.0f, 64 KiB %.0f", worst(14, 0),
                   worst(12, 1), worst(14, 1), worst(16, 1));
    return worst(12, 0);
}

FIGURE(range_ops_worst_lpa2, "encode.range_ops_worst_lpa2", "operations",
       "the same with LPA2, where bases are multiples of 64 KiB")
{
    return worst(12, 1);
}
