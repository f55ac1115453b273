/* SPDX-License-Identifier: BSD-2-Clause */
/* gather_ranges.c: which input ranges a gather must invalidate. Pure bookkeeping. */
#include "gather.h"

/* Largest stride a back-end steps by. */
#define WIDEST_STEP 47u

static int same_kind(const struct hvmem_gather_range *a, const struct hvmem_gather_range *b)
{
    return a->stride == b->stride && a->level == b->level && a->flags == b->flags;
}

/* Whether the two overlap, or touch and are of one kind. */
static int belong_together(const struct hvmem_gather_range *a, const struct hvmem_gather_range *b)
{
    if (a->start <= b->last && b->start <= a->last)
        return 1;
    /* (last + 1 is 0 only at the top of the address space, where nothing follows.) */
    return same_kind(a, b) &&
           ((a->last + 1 == b->start && b->start) || (b->last + 1 == a->start && a->start));
}

/* The smallest range that covers both, at the finest stride and with no more certainty than both. */
static struct hvmem_gather_range join(const struct hvmem_gather_range *a,
                                      const struct hvmem_gather_range *b)
{
    struct hvmem_gather_range both = *a;

    if (b->start < both.start)
        both.start = b->start;
    if (b->last > both.last)
        both.last = b->last;
    if (b->stride < both.stride)
        both.stride = b->stride;
    if (b->level != both.level)
        both.level = HVMEM_LEVEL_UNKNOWN;
    both.flags = (hvmem_u16)((a->flags & b->flags & HVMEM_RANGE_LEAF) |
                             ((a->flags | b->flags) & HVMEM_RANGE_GLOBAL));
    if (!(both.flags & HVMEM_RANGE_LEAF))
        both.level = HVMEM_LEVEL_UNKNOWN;
    return both;
}

/* Single operations that cover a range, less one. */
static hvmem_u64 steps(const struct hvmem_gather_range *range)
{
    return (range->last - range->start) >> range->stride;
}

static void take_out(struct hvmem_gather *gather, hvmem_u32 at)
{
    hvmem_u32 i;

    gather->ranges--;
    for (i = at; i < gather->ranges; i++) {
        gather->range[i] = gather->range[i + 1];
        hvmem__no_memmove();
    }
}

static void put_in(struct hvmem_gather *gather, const struct hvmem_gather_range *piece)
{
    hvmem_u32 i = gather->ranges++;

    for (; i && gather->range[i - 1].start > piece->start; i--) {
        gather->range[i] = gather->range[i - 1];
        hvmem__no_memmove();
    }
    gather->range[i] = *piece;
}

/* One too many: join the pair of neighbours that costs the least. */
static void make_room(struct hvmem_gather *gather)
{
    hvmem_u64 least = ~(hvmem_u64)0;
    hvmem_u32 i, best = 0;

    for (i = 0; i + 1 < gather->ranges; i++) {
        const struct hvmem_gather_range *a = &gather->range[i], *b = a + 1;
        struct hvmem_gather_range both = join(a, b);
        hvmem_u64 more = steps(&both) - steps(a) - steps(b);

        if (more < least) {
            least = more;
            best = i;
        }
    }
    gather->range[best] = join(&gather->range[best], &gather->range[best + 1]);
    take_out(gather, best + 1);
}

void hvmem__gather_add(struct hvmem_gather *gather, const struct hvmem_gather_range *piece)
{
    struct hvmem_gather_range grown = *piece;
    hvmem_u32 i = 0;

    if (!(grown.flags & HVMEM_RANGE_LEAF))
        grown.level = HVMEM_LEVEL_UNKNOWN;
    /* Grown by one it may reach another: look again from the start, as often as there are ranges. */
    while (i < gather->ranges) {
        if (belong_together(&gather->range[i], &grown)) {
            grown = join(&gather->range[i], &grown);
            take_out(gather, i);
            i = 0;
        } else {
            i++;
        }
    }
    put_in(gather, &grown);
    if (gather->ranges > HVMEM_GATHER_RANGES)
        make_room(gather);
}

/*
 * One operation at any address that a table translated drops the cached walks that end in it (Arm ARM
 * D8.14: by address, all levels; x86 drops all of the space's). So a range inside the span that is
 * there already, and steps finely enough to hit it, only has to cover walks too.
 */
void hvmem__gather_add_walks(struct hvmem_gather *gather, hvmem_u64 start, hvmem_u64 last,
                             const struct hvmem_gather_range *page)
{
    struct hvmem_gather_range range = *page;
    hvmem_u32 i;

    for (i = 0; i < gather->ranges; i++) {
        range = gather->range[i];
        if (range.start <= last && start <= range.last &&
            ((hvmem_u64)1 << range.stride) - 1 <= last - start)
            break;
    }
    if (i < gather->ranges)
        take_out(gather, i);
    else
        range = *page;
    range.flags &= (hvmem_u16)~HVMEM_RANGE_LEAF;
    hvmem__gather_add(gather, &range);
}

void hvmem__gather_export(const struct hvmem_gather *gather, hvmem_u32 page_shift,
                          struct hvmem_tlb_range *out)
{
    hvmem_u32 i;

    for (i = 0; i < gather->ranges; i++) {
        const struct hvmem_gather_range *range = &gather->range[i];

        out[i].start = range->start;
        out[i].pages = ((range->last - range->start) >> page_shift) + 1;
        out[i].stride_shift = range->stride < WIDEST_STEP ? range->stride : WIDEST_STEP;
        out[i].level = range->level;
        out[i].flags = range->flags;
        out[i].reserved = 0;
    }
}
