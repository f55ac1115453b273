/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lazybits.h: a set of numbers 0 .. n-1 as a bitmap with summary levels, in memory that starts with
 * unknown content.
 *
 * level[0] has one bit a number; bit i of level[k+1] says that word i of level[k] is not zero. Only
 * the levels above 0 are zeroed at init (1/64 of the memory). INVARIANT: a word of level 0 means
 * something only while its bit in level 1 is set; otherwise it counts as zero and may hold garbage.
 * There are always at least two levels, and no more than it takes for an uppermost one of at most
 * HVMEM__BITS_TOP words: each level is work at every change of an almost empty set.
 *
 * Lock contract: changes need the lock of the arena that owns the set. hvmem__bits_test() may run
 * without it: a number whose membership its caller keeps constant is answered exactly, because a
 * word is written before the level-1 bit that makes it valid.
 * Every operation costs O(levels), levels <= 6, but a search of a flat set (hvmem__bits_flatten).
 */
#ifndef HVMEM_LIB_LAZYBITS_H
#define HVMEM_LIB_LAZYBITS_H

#include "deps.h"

#define HVMEM__BITS_LEVELS 6u
#define HVMEM__BITS_TOP    8u
#define HVMEM__BITS_NONE   (~(hvmem_u64)0)

struct hvmem__bits {
    hvmem_u64 *level[HVMEM__BITS_LEVELS];
    hvmem_u64 count;     /* numbers 0 .. count - 1 */
    hvmem_u32 levels;    /* in use: 2 .. HVMEM__BITS_LEVELS */
    hvmem_u32 top_words; /* of the uppermost level in use */
};

/* Words of memory a set of `count` numbers needs, count <= 2^36: level 0, and all above it. */
hvmem_u64 hvmem__bits_low_words(hvmem_u64 count);
hvmem_u64 hvmem__bits_up_words(hvmem_u64 count);

/* Lay a set out in memory. It is empty if the words above level 0 are 0; low may hold anything. */
void hvmem__bits_lay(struct hvmem__bits *bits, hvmem_u64 *low, hvmem_u64 *up, hvmem_u64 count);

/*
 * Keep two levels of a set: changes cost less, a search walks over the words of level 1.
 * For sets that only rare passes search.
 */
void hvmem__bits_flatten(struct hvmem__bits *bits);

/*
 * Smallest member of [from, end), or HVMEM__BITS_NONE; HVMEM__BITS_NONE for `end`: of all. Levels that tell of
 * more than that are not looked at; of a flat set a word of level 1 for every 4,096 numbers is.
 */
hvmem_u64 hvmem__bits_next(const struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 end);

/* The 64 members of word `word` as a mask. */
HVMEM_INLINE hvmem_u64 hvmem__bits_word(const struct hvmem__bits *bits, hvmem_u64 word)
{
    if (!((hvmem__load_acquire(&bits->level[1][word >> 6]) >> (word & 63)) & 1))
        return 0;
    return hvmem__load(&bits->level[0][word]);
}

HVMEM_INLINE int hvmem__bits_test(const struct hvmem__bits *bits, hvmem_u64 number)
{
    return (int)((hvmem__bits_word(bits, number >> 6) >> (number & 63)) & 1);
}

/* Smallest member, or HVMEM__BITS_NONE. */
HVMEM_INLINE hvmem_u64 hvmem__bits_first(const struct hvmem__bits *bits)
{
    hvmem_u32 k = bits->levels - 1;
    hvmem_u64 at = 0;

    while (!bits->level[k][at])
        if (++at >= bits->top_words)
            return HVMEM__BITS_NONE;
    at = at << 6 | hvmem__lowest(bits->level[k][at]);
    while (k-- > 0)
        at = at << 6 | hvmem__lowest(bits->level[k][at]);
    return at;
}

/* Word `word` of level 1 became non-zero, or zero: the levels above. Arena lock held. */
void hvmem__bits_raise(struct hvmem__bits *bits, hvmem_u64 word);
void hvmem__bits_lower(struct hvmem__bits *bits, hvmem_u64 word);

/* Add the members of a mask (not 0) to word `word`. */
HVMEM_INLINE void hvmem__bits_set_mask(struct hvmem__bits *bits, hvmem_u64 word, hvmem_u64 mask)
{
    hvmem_u64 *low = &bits->level[0][word], *up = &bits->level[1][word >> 6];
    hvmem_u64 valid = hvmem__load(up), bit = (hvmem_u64)1 << (word & 63);

    if (valid & bit) {
        hvmem__store(low, hvmem__load(low) | mask);
        return;
    }
    hvmem__store(low, mask);
    hvmem__store_release(up, valid | bit);
    if (!valid && bits->levels > 2)
        hvmem__bits_raise(bits, word >> 6);
}

/* Word `word` of level 0 loses members; `left` are the others. */
HVMEM_INLINE void hvmem__bits_leave(struct hvmem__bits *bits, hvmem_u64 word, hvmem_u64 left)
{
    hvmem_u64 *up, valid;

    hvmem__store(&bits->level[0][word], left);
    if (left)
        return;
    up = &bits->level[1][word >> 6];
    valid = hvmem__load(up) & ~((hvmem_u64)1 << (word & 63));
    hvmem__store_release(up, valid);
    if (!valid && bits->levels > 2)
        hvmem__bits_lower(bits, word >> 6);
}

HVMEM_INLINE void hvmem__bits_clear_mask(struct hvmem__bits *bits, hvmem_u64 word, hvmem_u64 mask)
{
    hvmem_u64 old = hvmem__bits_word(bits, word);

    if (old & mask)
        hvmem__bits_leave(bits, word, old & ~mask);
}

/* Where a member is, as hvmem__bits_find() read it: each word once, for merges live on it. */
struct hvmem__member {
    hvmem_u64 *low, *up;
    hvmem_u64 members, valid;
};

/* Whether a number is a member, and where. Arena lock held until it is dropped. */
HVMEM_INLINE int hvmem__bits_find(const struct hvmem__bits *bits, hvmem_u64 number,
                                  struct hvmem__member *found)
{
    hvmem_u64 word = number >> 6;

    found->up = &bits->level[1][word >> 6];
    found->valid = hvmem__load(found->up);
    if (!(found->valid >> (word & 63) & 1))
        return 0;
    found->low = &bits->level[0][word];
    found->members = hvmem__load(found->low);
    return (int)(found->members >> (number & 63) & 1);
}

/* Remove a member that was found. */
HVMEM_INLINE void hvmem__bits_drop(struct hvmem__bits *bits, hvmem_u64 number,
                                   const struct hvmem__member *found)
{
    hvmem_u64 members = found->members & ~((hvmem_u64)1 << (number & 63)), valid;

    hvmem__store(found->low, members);
    if (members)
        return;
    valid = found->valid & ~((hvmem_u64)1 << (number >> 6 & 63));
    hvmem__store_release(found->up, valid);
    if (!valid && hvmem__unlikely(bits->levels > 2))
        hvmem__bits_lower(bits, number >> 12);
}

HVMEM_INLINE void hvmem__bits_set(struct hvmem__bits *bits, hvmem_u64 number)
{
    hvmem__bits_set_mask(bits, number >> 6, (hvmem_u64)1 << (number & 63));
}

HVMEM_INLINE void hvmem__bits_clear(struct hvmem__bits *bits, hvmem_u64 number)
{
    hvmem__bits_clear_mask(bits, number >> 6, (hvmem_u64)1 << (number & 63));
}

/*
 * Make the words [from, to) of level 0 mean one thing, whatever a writer that died left: words without a
 * member and what is beyond the set are not valid, `not_first` says that 0 is no member. The levels
 * above follow, if the words of the set are mended from 0 upwards, all of them.
 */
void hvmem__bits_mend(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 to, int not_first);

/*
 * Whether every level is what the one below makes it, and no member lies beyond the set, nor is 0 where
 * `not_first` says so: what mend leaves. Arena lock held.
 */
int hvmem__bits_sound(const struct hvmem__bits *bits, int not_first);

/* The numbers [from, from + count), word by word. */
void hvmem__bits_set_range(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 count);
void hvmem__bits_clear_range(struct hvmem__bits *bits, hvmem_u64 from, hvmem_u64 count);

#endif
