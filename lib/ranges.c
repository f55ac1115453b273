/* SPDX-License-Identifier: BSD-2-Clause */
/* ranges.c: a few ranges that cover whatever was added. */
#include "ranges.h"

/* Take the entry at `index` out. */
static void remove_at(struct hvmem__ranges *ranges, hvmem_u32 index)
{
    for (ranges->count--; index < ranges->count; index++) {
        ranges->at[index] = ranges->at[index + 1];
        hvmem__no_memmove();
    }
}

/* Join each range with the next where they meet. */
static void join(struct hvmem__ranges *ranges)
{
    hvmem_u32 i = 0;

    while (i + 1 < ranges->count) {
        struct hvmem__span *a = &ranges->at[i], *b = a + 1;

        if (a->hi < b->lo) {
            i++;
            continue;
        }
        if (a->hi < b->hi)
            a->hi = b->hi;
        remove_at(ranges, i + 1);
    }
}

void hvmem__ranges_add(struct hvmem__ranges *ranges, hvmem_u64 lo, hvmem_u64 hi)
{
    hvmem_u32 i = ranges->count, best = 0;

    for (; i > 0 && ranges->at[i - 1].lo > lo; i--) {
        ranges->at[i] = ranges->at[i - 1];
        hvmem__no_memmove();
    }
    ranges->at[i].lo = lo;
    ranges->at[i].hi = hi;
    ranges->count++;
    join(ranges);
    if (ranges->count <= HVMEM__RANGES)
        return;
    /* One too many: give up the smallest gap. */
    for (i = 1; i + 1 < ranges->count; i++)
        if (ranges->at[i + 1].lo - ranges->at[i].hi < ranges->at[best + 1].lo - ranges->at[best].hi)
            best = i;
    ranges->at[best].hi = ranges->at[best + 1].hi;
    remove_at(ranges, best + 1);
}

int hvmem__ranges_next(const struct hvmem__ranges *ranges, hvmem_u64 *from, hvmem_u64 *end)
{
    hvmem_u32 i;

    for (i = 0; i < ranges->count; i++) {
        if (ranges->at[i].hi <= *from)
            continue;
        if (*from < ranges->at[i].lo)
            *from = ranges->at[i].lo;
        *end = ranges->at[i].hi;
        return 1;
    }
    return 0;
}
