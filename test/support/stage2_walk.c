/* SPDX-License-Identifier: BSD-2-Clause */
/* The walker of stage2_walk.h. */
#include "stage2_walk.h"

#include <stddef.h>

static unsigned shift_of(int level)
{
    static const unsigned shifts[4] = {39, 30, 21, 12};

    return shifts[level];
}

static uint64_t field(uint64_t value, unsigned high, unsigned low)
{
    return (value >> low) & ((2ull << (high - low)) - 1);
}

static struct walk_entry made(enum walk_kind kind, uint64_t address, unsigned shift,
                              unsigned rights, unsigned type)
{
    struct walk_entry e = {kind, address, shift, rights, type};

    return e;
}

/* Address bits that must be 0 in a leaf of this size. */
static int misaligned(uint64_t d, unsigned shift)
{
    return shift > 12 && field(d, shift - 1, 12) != 0;
}

static struct walk_entry arm64(uint64_t d, int level)
{
    unsigned shift = shift_of(level), rights = 0, type;
    uint64_t address = field(d, 47, 12) << 12;

    if (!(d & 1))
        return made(WALK_INVALID, 0, shift, 0, 0);
    if (field(d, 50, 48))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    if (level < 3 && (d & 2))
        return made(WALK_TABLE, address, shift, 7, 0);
    if ((level == 3 && !(d & 2)) || level == 0 || misaligned(d, shift))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    /* Access flag set, no DBM, not contiguous, FnXS and nT clear, XN[0] clear. */
    if (!(d >> 10 & 1) || (d >> 11 & 1) || (level < 3 && (d >> 16 & 1)) || field(d, 53, 51))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    switch (field(d, 5, 2)) {
    case 15:
    case 6:
        type = WALK_WB;
        break;
    case 5:
        type = WALK_NC;
        break;
    case 1:
        type = WALK_DEVICE;
        break;
    default:
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    }
    if (type == WALK_WB && field(d, 9, 8) != 3)
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    rights |= d >> 6 & 1 ? WALK_R : 0;
    rights |= d >> 7 & 1 ? WALK_W : 0;
    rights |= d >> 54 & 1 ? 0 : WALK_X;
    return made(WALK_LEAF, address, shift, rights, type);
}

static struct walk_entry npt(uint64_t d, int level)
{
    unsigned shift = shift_of(level), rights = WALK_R;
    uint64_t address = field(d, 51, 12) << 12;
    int leaf = level == 3 || (d >> 7 & 1);

    if (!(d & 1))
        return made(WALK_INVALID, 0, shift, 0, 0);
    /* A user access that must not make the CPU write the tables: U and A set, D too in leaves. */
    if (!(d >> 2 & 1) || !(d >> 5 & 1) || (level == 0 && leaf))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    rights |= d >> 1 & 1 ? WALK_W : 0;
    rights |= d >> 63 ? 0 : WALK_X;
    if (!leaf)
        return made(WALK_TABLE, address, shift, rights, 0);
    /* PAT (bit 7 of a page, 12 of a large one) is not used; not global; no key. */
    if (!(d >> 6 & 1) || (level == 3 && (d >> 7 & 1)) || misaligned(d, shift) || (d >> 8 & 1) ||
        field(d, 62, 59))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    return made(WALK_LEAF, address, shift, rights,
                !(d >> 4 & 1)  ? WALK_WB
                : (d >> 3 & 1) ? WALK_DEVICE
                               : WALK_NC);
}

static struct walk_entry ept(uint64_t d, int level)
{
    unsigned shift = shift_of(level), rights = (unsigned)(d & 7), type;
    uint64_t address = field(d, 51, 12) << 12;

    if (!rights)
        return made(WALK_INVALID, 0, shift, 0, 0);
    if (!(rights & WALK_R))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    if (level < 3 && !(d >> 7 & 1)) {
        if (field(d, 7, 3))
            return made(WALK_MALFORMED, 0, shift, 0, 0);
        return made(WALK_TABLE, address, shift, rights, 0);
    }
    if (level == 0 || misaligned(d, shift))
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    switch (field(d, 5, 3)) {
    case 6:
        type = WALK_WB;
        break;
    case 1:
        type = WALK_NC;
        break;
    case 0:
        type = WALK_DEVICE;
        break;
    default:
        return made(WALK_MALFORMED, 0, shift, 0, 0);
    }
    return made(WALK_LEAF, address, shift, rights, type);
}

static const uint64_t *slot(const struct walk_tables *t, uint64_t table, int level, uint64_t gpa)
{
    uint64_t index = gpa >> shift_of(level);
    const uint64_t *base;

    /* Root tables lie one behind the other; a page is looked up at a time. */
    if (level == t->start_level)
        table += (index / 512) * 4096;
    base = t->at(t->ctx, table);
    return base != NULL ? base + index % 512 : NULL;
}

struct walk_entry walk_step(const struct walk_tables *t, uint64_t table, int level, uint64_t gpa)
{
    const uint64_t *p;
    struct walk_entry e;
    uint64_t d;

    if (gpa >> t->input_bits)
        return made(WALK_INVALID, 0, 12, 0, 0);
    p = slot(t, table, level, gpa);
    if (p == NULL)
        return made(WALK_MALFORMED, 0, 12, 0, 0);
    /* Hardware goes on from the very address that it read: what lies there was written before. */
    d = __atomic_load_n(p, __ATOMIC_ACQUIRE);
    e = t->format == WALK_ARM64 ? arm64(d, level)
        : t->format == WALK_NPT ? npt(d, level)
                                : ept(d, level);
    if (e.kind != WALK_INVALID && e.address >> t->output_bits)
        e.kind = WALK_MALFORMED;
    return e;
}

struct walk_entry walk_tables(const struct walk_tables *t, uint64_t gpa, int *level)
{
    uint64_t table = t->root;
    unsigned rights = 7;
    struct walk_entry e;

    for (*level = t->start_level;; ++*level) {
        e = walk_step(t, table, *level, gpa);
        rights &= e.rights;
        if (e.kind != WALK_TABLE)
            break;
        table = e.address;
    }
    e.rights = rights;
    if (e.kind == WALK_LEAF)
        e.address += gpa & ((1ull << e.shift) - 1);
    return e;
}

/* Goes on through tables that hardware would not enter: by the address, whatever the valid bits say. */
uint64_t walk_raw(const struct walk_tables *t, uint64_t gpa, int level)
{
    uint64_t table = t->root, d = 0;
    int at;

    for (at = t->start_level; at <= level; at++) {
        const uint64_t *p = slot(t, table, at, gpa);

        if (p == NULL || *p == 0)
            return 0;
        d = *p;
        table = field(d, t->format == WALK_ARM64 ? 47 : 51, 12) << 12;
    }
    return d;
}
