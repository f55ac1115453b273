/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operands of arm64 maintenance instructions, as pure functions: VA, IPA, ASID and range operands
 * of TLBI, level hints, the greedy cover of a range, set/way operands (Arm ARM C5.5, D8.13).
 */
#ifndef HVMEM_ARM64_ENCODE_H
#define HVMEM_ARM64_ENCODE_H

#include <hvmem/backend.h>

/* TLBI operations without their shareability. */
enum hvmem__arm64_tlbi {
    HVMEM__TLBI_VMALLE1,
    HVMEM__TLBI_VAE1,
    HVMEM__TLBI_ASIDE1,
    HVMEM__TLBI_VAAE1,
    HVMEM__TLBI_VALE1,
    HVMEM__TLBI_VAALE1,
    HVMEM__TLBI_RVAE1,
    HVMEM__TLBI_RVAAE1,
    HVMEM__TLBI_RVALE1,
    HVMEM__TLBI_RVAALE1,
    HVMEM__TLBI_ALLE2,
    HVMEM__TLBI_VAE2,
    HVMEM__TLBI_VALE2,
    HVMEM__TLBI_RVAE2,
    HVMEM__TLBI_RVALE2,
    HVMEM__TLBI_ALLE1,
    HVMEM__TLBI_VMALLS12E1,
    HVMEM__TLBI_IPAS2E1,
    HVMEM__TLBI_IPAS2LE1,
    HVMEM__TLBI_RIPAS2E1,
    HVMEM__TLBI_RIPAS2LE1,
    HVMEM__TLBI_COUNT
};

/* Pages one range operation can cover at most: NUM 31, SCALE 3. */
#define HVMEM__ARM64_RANGE_MAX (1ull << 21)

/* The instruction word of an operation in HVMEM_SCOPE_*. */
hvmem_u32 hvmem__arm64_tlbi_word(enum hvmem__arm64_tlbi op, hvmem_u32 scope);

/*
 * Level hint, bits 47:44 of the single-page form: granule and level where the leaf sits. 0 = no
 * hint, also where the encoding is reserved (level 0; 16 KiB level 1 without LPA2).
 */
hvmem_u32 hvmem__arm64_ttl(hvmem_u32 granule_shift, hvmem_u32 level, int lpa2);

/* Single-page operands. Addresses in bytes; they are encoded in 4 KiB units at every granule. */
hvmem_u64 hvmem__arm64_va(hvmem_u64 va, hvmem_u32 asid, hvmem_u32 ttl);
hvmem_u64 hvmem__arm64_ipa(hvmem_u64 ipa, hvmem_u32 ttl);
hvmem_u64 hvmem__arm64_asid(hvmem_u32 asid);

/* One step of a cover: a single page, or a range of (num + 1) << (5 * scale + 1) pages. */
struct hvmem__arm64_step {
    hvmem_u64 page; /* address >> granule_shift */
    hvmem_u32 single;
    hvmem_u32 num;   /* 0..31 */
    hvmem_u32 scale; /* 0..3 */
};

/* Walk over the operations that cover [page, end) exactly. */
struct hvmem__arm64_cover {
    hvmem_u64 page;
    hvmem_u64 end;
    hvmem_u64 piece_end;  /* end of the at most 2^21 pages in work */
    hvmem_u64 misaligned; /* range bases must have these page bits 0: LPA2 bases are 64 KiB */
    hvmem_u32 scale;
};
void hvmem__arm64_cover_start(struct hvmem__arm64_cover *cover, hvmem_u64 page, hvmem_u64 pages,
                              hvmem_u32 granule_shift, int lpa2);
/* The next operation; 0 when the range is covered. */
int hvmem__arm64_cover_next(struct hvmem__arm64_cover *cover, struct hvmem__arm64_step *step);
/* Number of operations of the cover, counted up to `limit`. */
hvmem_u32 hvmem__arm64_cover_count(hvmem_u64 page, hvmem_u64 pages, hvmem_u32 granule_shift,
                                   int lpa2, hvmem_u32 limit);

/* Range operand of a step. ttl_level 1..3, or 0 for any; tag: ASID in 63:48, or 0. */
hvmem_u64 hvmem__arm64_range(const struct hvmem__arm64_step *step, hvmem_u32 granule_shift,
                             int lpa2, hvmem_u32 ttl_level, hvmem_u32 asid);

/* Geometry of one cache level out of CCSIDR_EL1; ccidx: ID_AA64MMFR2_EL1.CCIDX is not 0. */
struct hvmem__arm64_geometry {
    hvmem_u32 line_shift;
    hvmem_u32 ways; /* minus one */
    hvmem_u32 sets; /* minus one */
    hvmem_u32 way_shift;
};
void hvmem__arm64_geometry(struct hvmem__arm64_geometry *geometry, hvmem_u64 ccsidr, int ccidx);
/* Set/way operand; level 1..7. */
hvmem_u64 hvmem__arm64_set_way(const struct hvmem__arm64_geometry *geometry, hvmem_u32 level,
                               hvmem_u32 set, hvmem_u32 way);

#endif
