/* SPDX-License-Identifier: BSD-2-Clause */
/* table.c: how the table of a bank is laid out and checked. */
#include "arena.h"

hvmem_u64 hvmem__piece_frames(const struct hvmem_heap *heap, hvmem_mfn at, hvmem_mfn end)
{
    hvmem_mfn border = ((at >> heap->arena_order) + 1) << heap->arena_order;

    return (end < border ? end : border) - at;
}

/* Blocks of order k that can start in [base, base + frames). */
static hvmem_u64 block_count(hvmem_mfn base, hvmem_u64 frames, hvmem_u32 k)
{
    return ((base + frames - 1) >> k) - (base >> k) + 1;
}

/* Words of the header and of all that must be zero in a fresh table: one stretch. */
static hvmem_u64 front_words(const struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_u64 words = sizeof(struct hvmem__table) / 8 + hvmem__bits_up_words(frames);
    hvmem_u32 k;

    for (k = 0; k <= heap->max_order; k++)
        words += hvmem__bits_up_words(block_count(base, frames, k));
    return words;
}

hvmem_size hvmem__piece_bytes(const struct hvmem_heap *heap, hvmem_mfn base, hvmem_u64 frames)
{
    hvmem_u64 words = front_words(heap, base, frames) + hvmem__bits_low_words(frames) + frames;
    hvmem_u32 k;

    for (k = 0; k <= heap->max_order; k++)
        words += hvmem__bits_low_words(block_count(base, frames, k));
    return (hvmem_size)hvmem__round_up(words * 8, HVMEM_LINE);
}

/* One more word into a checksum: an odd multiplier and a rotation keep every bit. */
static hvmem_u64 mix(hvmem_u64 sum, hvmem_u64 word)
{
    return (sum << 7 | sum >> 57) * 0x9e3779b97f4a7c15ull + word;
}

hvmem_u64 hvmem__counts_checksum(const struct hvmem__table *table)
{
    hvmem_u64 sum = mix(table->checksum, table->clock);
    hvmem_u32 k;

    sum = mix(sum, table->reserved_frames);
    sum = mix(sum, table->offline_frames);
    sum = mix(sum, table->quarantine_frames);
    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++)
        sum = mix(sum, table->in_bitmap[k]);
    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++)
        sum = mix(sum, table->front[k]);
    return sum;
}

int hvmem__fronts_sound(const struct hvmem__table *table)
{
    hvmem_u32 k;

    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++) {
        hvmem_mfn front = table->front[k];

        if (front != HVMEM__NO_MFN &&
            (k > table->max_order || front - table->base >= table->frames ||
             (front & (((hvmem_u64)1 << k) - 1))))
            return 0;
    }
    return 1;
}

hvmem_u64 hvmem__table_checksum(const struct hvmem__table *table)
{
    hvmem_u64 word[4], sum = table->magic;
    hvmem_u32 i;

    word[0] = table->base;
    word[1] = table->frames;
    word[2] = (hvmem_u64)table->node << 32 | table->page_shift;
    word[3] = table->max_order;
    for (i = 0; i < 4; i++)
        sum = mix(sum, word[i]);
    return sum;
}

/*
 * The sets over the table. Level 0 of the large orders comes first, next to what is zeroed, so that
 * adding a bank touches one stretch of memory and a record for each of its blocks.
 */
static void lay_sets(struct hvmem_heap *heap, struct hvmem__bank *b)
{
    hvmem_u64 *up = (hvmem_u64 *)(void *)(b->table + 1);
    hvmem_u64 *low = (hvmem_u64 *)(void *)b->table + front_words(heap, b->base, b->frames);
    hvmem_u32 k = heap->max_order + 1;

    while (k-- > 0) {
        hvmem_u64 count = block_count(b->base, b->frames, k);

        hvmem__bits_lay(&b->free[k], low, up, count);
        low += hvmem__bits_low_words(count);
        up += hvmem__bits_up_words(count);
    }
    hvmem__bits_lay(&b->head, low, up, b->frames);
    hvmem__bits_flatten(&b->head); /* searched by audit and adoption only */
    b->record = low + hvmem__bits_low_words(b->frames);
}

/* Levels of bitmaps that are little work to change. */
#define FEW_LEVELS 3u

void hvmem__bank_measure(struct hvmem__bank *b, hvmem_u32 counted)
{
    b->climb = (b->free[0].levels <= FEW_LEVELS ? 5u : 3u) - (counted ? 1u : 0u);
    if (HVMEM_STEPS)
        b->climb = 1;
}

void hvmem__bank_layout(struct hvmem_heap *heap, struct hvmem__bank *b, void *table, int fresh)
{
    hvmem_u32 k;

    b->table = (struct hvmem__table *)table;
    lay_sets(heap, b);
    hvmem__bank_measure(b, heap->claims_active);
    if (!fresh)
        return;
    /* First, whatever order memset() takes: it is no bank's table from here on. */
    hvmem__store(&b->table->magic, 0);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    memset(table, 0, (hvmem_size)front_words(heap, b->base, b->frames) * 8);
    for (k = 0; k <= HVMEM_ORDER_LIMIT; k++)
        b->table->front[k] = HVMEM__NO_MFN;
    b->table->magic = HVMEM__TABLE_MAGIC;
    b->table->base = b->base;
    b->table->frames = b->frames;
    b->table->node = b->node;
    b->table->page_shift = heap->page_shift;
    b->table->max_order = heap->max_order;
    b->table->clock = hvmem__load(&heap->clock.now);
    b->table->checksum = hvmem__table_checksum(b->table);
}

/* Of the set of order k what belongs to the frames [at, stop). */
static void mend_set(const struct hvmem__bank *b, struct hvmem__bits *set, hvmem_u32 k,
                     hvmem_mfn at, hvmem_mfn stop)
{
    hvmem_u64 first = b->base >> k, from = 0, to = hvmem__bits_low_words(set->count);

    if (at != b->base)
        from = ((at >> k) - first + 63) >> 6;
    if (stop != b->base + b->frames)
        to = ((stop >> k) - first + 63) >> 6;
    hvmem__bits_mend(set, from, to, first << k != b->base);
}

void hvmem__table_mend(const struct hvmem_heap *heap, struct hvmem__bank *b, hvmem_mfn *at)
{
    hvmem_mfn stop = b->base + b->frames;
    hvmem_u32 k;

    if (*at < b->base)
        *at = b->base;
    if (stop - *at > HVMEM__ADOPT_FRAMES)
        stop = *at + HVMEM__ADOPT_FRAMES;
    for (k = 0; k <= heap->max_order; k++)
        mend_set(b, &b->free[k], k, *at, stop);
    mend_set(b, &b->head, 0, *at, stop);
    *at = stop;
}
