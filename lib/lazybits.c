/* SPDX-License-Identifier: BSD-2-Clause */
/* lazybits.c: layout, summary maintenance and search of lazily valid bitmaps. */
#include "lazybits.h"

static hvmem_u64 words_for(hvmem_u64 bits)
{
    return (bits + 63) / 64;
}

hvmem_u64 hvmem__bits_low_words(hvmem_u64 count)
{
    return words_for(count);
}

hvmem_u64 hvmem__bits_up_words(hvmem_u64 count)
{
    hvmem_u64 words = words_for(count), total = 0;

    do {
        words = words_for(words);
        total += words;
    } while (words > HVMEM__BITS_TOP);
    return total;
}

void hvmem__bits_lay(struct hvmem__bits *bits, hvmem_u64 *low, hvmem_u64 *up, hvmem_u64 count)
{
    hvmem_u64 words = words_for(count);
    hvmem_u32 k = 0;

    memset(bits, 0, sizeof *bits);
    bits->count = count;
    bits->level[0] = low;
    do {
        words = words_for(words);
        bits->level[++k] = up;
        up += words;
    } while (words > HVMEM__BITS_TOP);
    bits->levels = k + 1;
    bits->top_words = (hvmem_u32)words;
}

void hvmem__bits_flatten(struct hvmem__bits *bits)
{
    bits->levels = 2;
    bits->top_words = (hvmem_u32)words_for(words_for(bits->count));
}

void hvmem__bits_raise(struct hvmem__bits *bits, hvmem_u64 word)
{
    hvmem_u32 k;

    for (k = 2; k < bits->levels; k++) {
        hvmem_u64 *up = &bits->level[k][word >> 6], old = *up;

        *up = old | (hvmem_u64)1 << (word & 63);
        if (old)
            return;
        word >>= 6;
    }
}

void hvmem__bits_lower(struct hvmem__bits *bits, hvmem_u64 word)
{
    hvmem_u32 k;

    for (k = 2; k < bits->levels; k++) {
        hvmem_u64 *up = &bits->level[k][word >> 6], left = *up & ~((hvmem_u64)1 << (word & 63));

        *up = left;
        if (left)
            return;
        word >>= 6;
    }
}

/* Members of word `from / 64` that belong to [from, from + count), and how many that are. */
static hvmem_u64 part(hvmem_u64 from, hvmem_u64 count, hvmem_u64 *n)
{
    hvmem_u64 first = from & 63, most = 64 - first;

    *n = count < most ? count : most;
    return (*n == 64 ? ~(hvmem_u64)0 : ((hvmem_u64)1 << *n) - 1) << first;
}

void hvmem__bits_set_range(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 count)
{
    hvmem_u64 n;

    for (; count; from += n, count -= n) {
        hvmem_u64 mask = part(from, count, &n);

        hvmem__bits_set_mask(bits, from >> 6, mask);
    }
}

void hvmem__bits_clear_range(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 count)
{
    hvmem_u64 n;

    for (; count; from += n, count -= n) {
        hvmem_u64 mask = part(from, count, &n);

        hvmem__bits_clear_mask(bits, from >> 6, mask);
    }
}

/* Words of level k, for bounds. */
HVMEM_INLINE hvmem_u64 hvmem__level_words(const struct hvmem__bits *bits, hvmem_u32 k)
{
    return bits->count ? ((bits->count - 1) >> (6 * k + 6)) + 1 : 0;
}

void hvmem__bits_mend(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 to, int not_first)
{
    hvmem_u64 words = words_for(bits->count), members, *up;
    hvmem_u32 k;

    for (k = 2; !from && k < bits->levels; k++)
        memset(bits->level[k], 0, (hvmem_size)hvmem__level_words(bits, k) * 8);
    for (; from < to; from++) {
        up = &bits->level[1][from >> 6];
        if (!*up) {
            from |= 63;
            continue;
        }
        members = hvmem__bits_word(bits, from);
        if (!from && not_first)
            members &= ~(hvmem_u64)1;
        if (from == words - 1) {
            members &= ~(hvmem_u64)0 >> ((64 - bits->count) & 63);
            *up &= ~(hvmem_u64)0 >> (63 - (from & 63));
        }
        if (*up >> (from & 63) & 1)
            hvmem__bits_leave(bits, from, members);
        if (*up && bits->levels > 2 && ((from & 63) == 63 || from == words - 1))
            hvmem__bits_raise(bits, from >> 6);
    }
}

hvmem_u64 hvmem__bits_next(const struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 end)
{
    hvmem_u64 at = from, word, mask;
    hvmem_u32 k = 0, shift = 0; /* bit `at` of level k stands for the numbers from at << shift on */

    end = end < bits->count ? end : bits->count;
    if (from >= end)
        return HVMEM__BITS_NONE;
    /* Up: the first level that has a member at or after `at` in the same word. */
    for (;;) {
        word = at >> 6;
        mask = k ? bits->level[k][word] : hvmem__bits_word(bits, word);
        mask &= ~(hvmem_u64)0 << (at & 63);
        if (mask)
            break;
        at = word + 1;
        if (k + 1 < bits->levels) {
            k++;
            shift += 6;
        } else {
            at <<= 6; /* the top level of a flat set: the next word of it */
        }
        if (at << shift >= end)
            return HVMEM__BITS_NONE;
    }
    /* Down: the first member below it. A table to be adopted may be damaged: trust no summary. */
    at = word << 6 | hvmem__lowest(mask);
    while (k > 0) {
        if (at << shift >= end || !bits->level[--k][at])
            return HVMEM__BITS_NONE;
        at = at << 6 | hvmem__lowest(bits->level[k][at]);
        shift -= 6;
    }
    return at < end ? at : HVMEM__BITS_NONE;
}

/* What word `word` of a level should be: bit i says that word i of the level below is not 0. */
static hvmem_u64 summary(const struct hvmem__bits *bits, hvmem_u32 k, hvmem_u64 word)
{
    hvmem_u64 at = word << 6, end = hvmem__level_words(bits, k - 1), mask = 0, below;
    hvmem_u32 i;

    for (i = 0; i < 64 && at < end; i++, at++) {
        below = k == 1 ? hvmem__bits_word(bits, at) : bits->level[k - 1][at];
        mask |= (hvmem_u64)(below != 0) << i;
    }
    return mask;
}

int hvmem__bits_sound(const struct hvmem__bits *bits, int not_first)
{
    hvmem_u64 word, last = hvmem__bits_word(bits, hvmem__level_words(bits, 0) - 1);
    hvmem_u32 k;

    if ((bits->count & 63 && last >> (bits->count & 63)) ||
        (not_first && hvmem__bits_test(bits, 0)))
        return 0;
    for (k = 1; k < bits->levels; k++)
        for (word = 0; word < hvmem__level_words(bits, k); word++)
            if (bits->level[k][word] != summary(bits, k, word))
                return 0;
    return 1;
}
