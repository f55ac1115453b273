/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reader of flattened device trees: checks the header once, then hands out tokens one at a time and
 * never reads outside the blob, whatever the blob says. Pure C, no state of its own: it works before
 * the MMU is on and is tested on any machine.
 */
#ifndef METAL_FDT_H
#define METAL_FDT_H

#include <stdbool.h>
#include <stdint.h>

/* Devicetree Specification 0.4, §5.2: the first word of a blob. */
#define METAL_FDT_MAGIC 0xD00DFEEDu

/* Nodes nested deeper than this are refused: real trees stay below 8. */
#define METAL_FDT_MAX_DEPTH 16u

enum metal_fdt_status {
    METAL_FDT_OK = 0,
    METAL_FDT_E_MAGIC,   /* not a device tree */
    METAL_FDT_E_VERSION, /* not readable as version 16 or 17 */
    METAL_FDT_E_SIZE,    /* a block of the blob leaves the blob, or the blob exceeds max_bytes */
};

enum metal_fdt_token {
    METAL_FDT_BEGIN, /* a node starts: name */
    METAL_FDT_END,   /* the node ends */
    METAL_FDT_PROP,  /* a property of the current node: name, data, bytes */
    METAL_FDT_DONE,  /* regular end of the tree */
    METAL_FDT_BAD,   /* malformed from here on: stop */
};

/* An opened blob; all offsets lie inside it. */
struct metal_fdt {
    const uint8_t *blob;
    uint32_t bytes;     /* total size as the header gives it */
    uint32_t struct_at; /* structure block: offset and end */
    uint32_t struct_end;
    uint32_t strings_at; /* property names: offset and end */
    uint32_t strings_end;
    uint32_t reserve_at; /* memory reservation block: offset */
};

/* Where a walk stands. Zero-initialise by metal_fdt_start. */
struct metal_fdt_cursor {
    uint32_t at;
    uint32_t depth; /* nodes open */
    bool over;      /* DONE or BAD was handed out */
};

struct metal_fdt_item {
    enum metal_fdt_token token;
    uint32_t depth; /* of the node meant: the root has depth 0 */
    const char *name;
    const uint8_t *data; /* PROP only; big endian, alignment 4 */
    uint32_t bytes;      /* PROP only */
};

/*
 * Check the header of blob, of which at most max_bytes may be read, and fill f.
 * Returns METAL_FDT_OK or the reason; on error f is unchanged.
 */
enum metal_fdt_status metal_fdt_open(struct metal_fdt *f, const void *blob, uint64_t max_bytes);

/* Put the cursor on the root node. */
void metal_fdt_start(const struct metal_fdt *f, struct metal_fdt_cursor *c);

/*
 * Hand out the next token. Ends with exactly one DONE or BAD; more calls repeat BAD.
 * Every call moves the cursor, so a walk ends after at most struct size / 4 calls.
 */
void metal_fdt_next(const struct metal_fdt *f, struct metal_fdt_cursor *c,
                    struct metal_fdt_item *item);

/*
 * Memory reservation number i (from 0): true and *base, *bytes, or false past the last one
 * (the pair 0, 0 or the end of the blob).
 */
bool metal_fdt_reservation(const struct metal_fdt *f, uint32_t i, uint64_t *base, uint64_t *bytes);

/* One big-endian cell at data. */
uint32_t metal_fdt_cell(const uint8_t *data);

/* A number of 1 or 2 cells at data; other counts give 0. */
uint64_t metal_fdt_number(const uint8_t *data, uint32_t cells);

/* Whether a property (a list of words, each ended by a NUL) holds exactly this word. */
bool metal_fdt_has_word(const struct metal_fdt_item *prop, const char *word);

/* Whether a node name is the given base name, with or without a unit address ("memory@0"). */
bool metal_fdt_is_node(const char *name, const char *base);

#endif
