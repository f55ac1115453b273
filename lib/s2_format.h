/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * s2_format.h: entries of second-stage tables in one description for all formats. Pure: no memory,
 * no tables. Levels are numbered as on arm64: 0 .. 3, with 4 KiB, 2 MiB, 1 GiB leaves at 3, 2, 1.
 *
 * An entry is absent (0), a table or a leaf. Its software bits lie where hardware ignores them,
 * whether the entry is valid or not:
 *   present   the entry means something; hardware's valid bits alone never say so
 *   count     tables: present entries in it, 0 .. 512
 *   broken    leaves: invalid while a change of its size waits for the flush
 *   unclean   leaves: invalid until its frames were cleaned at first touch
 *   touched   leaves: with broken: it was valid before
 *   aged      leaves: was touched, and made invalid by ageing: set/way has still to clean it
 * Arming clears `touched` and `aged` in whole tables without a look at what they hold: they must not be bits
 * of `count`. Clearing the valid bits loses nothing: hvmem__s2_validate() gives the entry back.
 */
#ifndef HVMEM_LIB_S2_FORMAT_H
#define HVMEM_LIB_S2_FORMAT_H

#include <hvmem/stage2.h>

#include "deps.h"

/* What is constant of a format; filled in by hvmem__s2_format_init(). */
struct hvmem__s2_format {
    hvmem_u32 format;     /* HVMEM_S2_ARM64, _NPT, _EPT */
    hvmem_u32 flags;      /* HVMEM_S2_FORCE_WB */
    hvmem_u64 valid;      /* hardware valid bits: with all of them clear it faults */
    hvmem_u64 address;    /* mask of the machine address */
    hvmem_u64 kind;       /* bit that tells tables from leaves above level 3 */
    hvmem_u64 kind_table; /* its value in a table */
    hvmem_u64 present;    /* software bits, see above */
    hvmem_u64 broken;
    hvmem_u64 unclean;
    hvmem_u64 touched;
    hvmem_u64 aged;
    hvmem_u32 count_shift;
    hvmem_u32 reserved;
};

/* 0: no such format. */
int hvmem__s2_format_init(struct hvmem__s2_format *f, hvmem_u32 format, hvmem_u32 flags);

/* A leaf of `level` that maps `address` (aligned to it), valid for hardware. */
hvmem_u64 hvmem__s2_make_leaf(const struct hvmem__s2_format *f, hvmem_u32 level,
                              hvmem_maddr address, hvmem_u32 rights, hvmem_u32 type);
/* A valid entry for the table at `address`, count 0. */
hvmem_u64 hvmem__s2_make_table(const struct hvmem__s2_format *f, hvmem_maddr address);

/* Of leaves, valid or not. */
hvmem_u32 hvmem__s2_rights(const struct hvmem__s2_format *f, hvmem_u64 entry);
hvmem_u32 hvmem__s2_type(const struct hvmem__s2_format *f, hvmem_u64 entry);

/* The formats' own parts, each in a file of its name. */
hvmem_u64 hvmem__s2_arm64_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type,
                               hvmem_u32 force_wb);
hvmem_u32 hvmem__s2_arm64_rights(hvmem_u64 entry);
hvmem_u32 hvmem__s2_arm64_type(hvmem_u64 entry, hvmem_u32 force_wb);
void hvmem__s2_arm64_format(struct hvmem__s2_format *f);
hvmem_u64 hvmem__s2_npt_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type);
hvmem_u32 hvmem__s2_npt_rights(hvmem_u64 entry);
hvmem_u32 hvmem__s2_npt_type(hvmem_u64 entry);
void hvmem__s2_npt_format(struct hvmem__s2_format *f);
hvmem_u64 hvmem__s2_ept_leaf(hvmem_u32 level, hvmem_u32 rights, hvmem_u32 type, hvmem_u32 force_wb);
hvmem_u32 hvmem__s2_ept_rights(hvmem_u64 entry);
hvmem_u32 hvmem__s2_ept_type(hvmem_u64 entry);
void hvmem__s2_ept_format(struct hvmem__s2_format *f);

/* log2 of the 4 KiB frames that an entry of the level maps. */
HVMEM_INLINE hvmem_u32 hvmem__s2_order(hvmem_u32 level)
{
    return 9u * (3u - level);
}

HVMEM_INLINE int hvmem__s2_present(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    return (entry & f->present) != 0;
}

HVMEM_INLINE int hvmem__s2_valid(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    return (entry & f->valid) != 0;
}

/* Of a present entry. */
HVMEM_INLINE int hvmem__s2_is_table(const struct hvmem__s2_format *f, hvmem_u64 entry,
                                    hvmem_u32 level)
{
    return level < 3 && (entry & f->kind) == f->kind_table;
}

HVMEM_INLINE hvmem_maddr hvmem__s2_address(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    return entry & f->address;
}

HVMEM_INLINE hvmem_u32 hvmem__s2_count(const struct hvmem__s2_format *f, hvmem_u64 table)
{
    return (hvmem_u32)(table >> f->count_shift) & 0x3ffu;
}

HVMEM_INLINE hvmem_u64 hvmem__s2_with_count(const struct hvmem__s2_format *f, hvmem_u64 table,
                                            hvmem_u32 count)
{
    return (table & ~((hvmem_u64)0x3ffu << f->count_shift)) | (hvmem_u64)count << f->count_shift;
}

HVMEM_INLINE hvmem_u64 hvmem__s2_invalid(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    return entry & ~f->valid;
}

/* A leaf valid for hardware, with the rights that it had; broken and unclean marks go. */
HVMEM_INLINE hvmem_u64 hvmem__s2_validate_leaf(const struct hvmem__s2_format *f, hvmem_u64 entry)
{
    entry &= ~(f->broken | f->unclean | f->touched | f->aged);
    /* EPT: the valid bits are the rights, of which it keeps a copy. */
    return entry | (f->format == HVMEM_S2_EPT ? hvmem__s2_rights(f, entry) : f->valid);
}

/* The same of a table or leaf. */
HVMEM_INLINE hvmem_u64 hvmem__s2_validate(const struct hvmem__s2_format *f, hvmem_u64 entry,
                                          hvmem_u32 level)
{
    return hvmem__s2_is_table(f, entry, level) ? entry | f->valid
                                               : hvmem__s2_validate_leaf(f, entry);
}

#endif
