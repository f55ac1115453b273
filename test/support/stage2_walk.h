/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How hardware reads second-stage tables: a walker written from the manuals for tests, which shares no
 * code with the library (Arm ARM D8.3; APM vol. 2 5.3, 15.25; SDM vol. 3 29.3).
 */
#ifndef STAGE2_WALK_H
#define STAGE2_WALK_H

#include <stdint.h>

enum { WALK_ARM64 = 1, WALK_NPT = 2, WALK_EPT = 3 };
enum { WALK_R = 1, WALK_W = 2, WALK_X = 4 };
enum { WALK_WB = 0, WALK_NC = 1, WALK_DEVICE = 2 };

struct walk_tables {
    int format;
    int start_level;
    unsigned input_bits, output_bits;
    uint64_t root;
    const uint64_t *(*at)(void *ctx, uint64_t table); /* NULL: no memory there */
    void *ctx;
};

/* What one descriptor says. */
enum walk_kind {
    WALK_INVALID,  /* faults as unmapped */
    WALK_TABLE,    /* go on at `address` */
    WALK_LEAF,     /* maps 2^shift bytes to `address` */
    WALK_MALFORMED /* hardware reports a broken descriptor, or a bit that must be 0 is set */
};

struct walk_entry {
    enum walk_kind kind;
    uint64_t address;
    unsigned shift;
    unsigned rights; /* leaf: R, W, X; NPT tables: what they leave */
    unsigned type;
};

/* Reads the descriptor for gpa in the table at `table` (the root's first, at start_level). */
struct walk_entry walk_step(const struct walk_tables *t, uint64_t table, int level, uint64_t gpa);
/* The whole walk: LEAF, INVALID or MALFORMED; address is that of the gpa itself for a leaf. */
struct walk_entry walk_tables(const struct walk_tables *t, uint64_t gpa, int *level);
/* The descriptor that is reached at `level`, raw, or 0 if the walk ends before by an absent (0) one. */
uint64_t walk_raw(const struct walk_tables *t, uint64_t gpa, int level);

#endif
