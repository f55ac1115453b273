/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Free-set candidate "bitmaps": 8 bytes a frame (the record), a bitmap with summary levels an order
 * for the free blocks, one more for the blocks in use. The bitmaps are the core's own (lib/lazybits).
 */
#ifndef BENCH_CANDIDATES_BITMAPS_H
#define BENCH_CANDIDATES_BITMAPS_H

#include "record.h"

#include "lib/lazybits.h"

#include <stddef.h>

struct set {
    uint64_t *record;
    struct hvmem__bits used;
    struct hvmem__bits free[CAND_MAX_ORDER + 1];
    uint64_t blocks[CAND_MAX_ORDER + 1];
    uint32_t nonempty;
};

static inline uint64_t set_words(uint64_t count)
{
    return hvmem__bits_low_words(count) + hvmem__bits_up_words(count);
}

/* An empty set of numbers at `words`; the first word after it. */
static inline hvmem_u64 *set_lay(struct hvmem__bits *bits, hvmem_u64 *words, uint64_t count)
{
    hvmem_u64 *up = words + hvmem__bits_low_words(count), *end = words + set_words(count);

    hvmem__bits_lay(bits, words, up, count);
    for (; up < end; up++)
        *up = 0;
    return end;
}

static inline size_t set_bytes(uint64_t frames)
{
    uint64_t words = frames + set_words(frames);
    unsigned order;

    for (order = 0; order <= CAND_MAX_ORDER; order++)
        words += set_words((frames >> order) + 1);
    return (size_t)(words * sizeof(uint64_t));
}

static inline void set_init(struct set *set, void *memory, uint64_t frames)
{
    hvmem_u64 *words = memory;
    unsigned order;

    set->record = memory;
    words += frames;
    words = set_lay(&set->used, words, frames);
    for (order = 0; order <= CAND_MAX_ORDER; order++) {
        words = set_lay(&set->free[order], words, (frames >> order) + 1);
        set->blocks[order] = 0;
    }
    set->nonempty = 0;
}

static inline uint64_t *set_record(struct set *set, uint64_t frame)
{
    return &set->record[frame];
}

static inline void set_enter(struct set *set, uint64_t frame, unsigned order, uint64_t record)
{
    set->record[frame] = record;
    hvmem__bits_set(&set->free[order], frame >> order);
    set->blocks[order]++;
    set->nonempty |= 1u << order;
}

static inline uint64_t set_leave(struct set *set, uint64_t frame, unsigned order)
{
    hvmem__bits_clear(&set->free[order], frame >> order);
    if (--set->blocks[order] == 0)
        set->nonempty &= ~(1u << order);
    return set->record[frame];
}

static inline uint64_t set_first(const struct set *set, unsigned order)
{
    return hvmem__bits_first(&set->free[order]) << order;
}

static inline int set_is_free(const struct set *set, uint64_t frame, unsigned order)
{
    return hvmem__bits_test(&set->free[order], frame >> order);
}

static inline int set_is_used(const struct set *set, uint64_t frame)
{
    return hvmem__bits_test(&set->used, frame);
}

static inline void set_use(struct set *set, uint64_t frame, uint64_t record)
{
    set->record[frame] = record;
    hvmem__bits_set(&set->used, frame);
}

static inline void set_unuse(struct set *set, uint64_t frame)
{
    hvmem__bits_clear(&set->used, frame);
}

/* A word of the bitmap at a time: its bits leave, and enter `used`, by one mask each. */
static inline unsigned set_take_singles(struct set *set, uint64_t *frames, unsigned most)
{
    unsigned n = 0;

    while (n < most && set->blocks[0] != 0) {
        uint64_t word = hvmem__bits_first(&set->free[0]) >> 6;
        uint64_t left = hvmem__bits_word(&set->free[0], word);
        uint64_t mask = 0;

        for (; left != 0 && n < most; left &= left - 1) {
            uint64_t frame = word << 6 | (uint64_t)__builtin_ctzll(left);

            mask |= left & (~left + 1);
            set->record[frame] = rec_with(set->record[frame], 0, CAND_CACHED);
            set->blocks[0]--;
            frames[n++] = frame;
        }
        hvmem__bits_clear_mask(&set->free[0], word, mask);
        hvmem__bits_set_mask(&set->used, word, mask);
    }
    if (set->blocks[0] == 0)
        set->nonempty &= ~1u;
    return n;
}

#endif
