/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reader of flattened device trees (Devicetree Specification 0.4, §5). Loads are byte-wise, because
 * with the MMU off all memory is Device memory and unaligned accesses fault.
 */
#include "fdt.h"

#define HEADER_BYTES 40u
#define MOST_BYTES   (256u << 20) /* keeps every sum of offsets below 2^32 */

enum { WORD_BEGIN = 1, WORD_END = 2, WORD_PROP = 3, WORD_NOP = 4, WORD_DONE = 9 };

uint32_t metal_fdt_cell(const uint8_t *data)
{
    return ((uint32_t)data[0] << 24) | ((uint32_t)data[1] << 16) | ((uint32_t)data[2] << 8) |
           (uint32_t)data[3];
}

uint64_t metal_fdt_number(const uint8_t *data, uint32_t cells)
{
    if (cells == 1)
        return metal_fdt_cell(data);
    if (cells == 2)
        return ((uint64_t)metal_fdt_cell(data) << 32) | metal_fdt_cell(data + 4);
    return 0;
}

/* Whether [at, at + bytes) lies inside [0, total). */
static bool inside(uint32_t at, uint32_t bytes, uint32_t total)
{
    return at <= total && bytes <= total - at;
}

enum metal_fdt_status metal_fdt_open(struct metal_fdt *f, const void *blob, uint64_t max_bytes)
{
    const uint8_t *b = blob;
    struct metal_fdt t;

    if (max_bytes < HEADER_BYTES)
        return METAL_FDT_E_SIZE;
    if (metal_fdt_cell(b) != METAL_FDT_MAGIC)
        return METAL_FDT_E_MAGIC;
    if (metal_fdt_cell(b + 20) < 16 || metal_fdt_cell(b + 24) > 17)
        return METAL_FDT_E_VERSION;

    t.blob = b;
    t.bytes = metal_fdt_cell(b + 4);
    t.struct_at = metal_fdt_cell(b + 8);
    t.strings_at = metal_fdt_cell(b + 12);
    t.reserve_at = metal_fdt_cell(b + 16);
    if (t.bytes < HEADER_BYTES || t.bytes > max_bytes || t.bytes > MOST_BYTES ||
        !inside(t.struct_at, metal_fdt_cell(b + 36), t.bytes) ||
        !inside(t.strings_at, metal_fdt_cell(b + 32), t.bytes) || t.reserve_at > t.bytes ||
        t.struct_at % 4 != 0)
        return METAL_FDT_E_SIZE;
    t.struct_end = t.struct_at + metal_fdt_cell(b + 36);
    t.strings_end = t.strings_at + metal_fdt_cell(b + 32);
    *f = t;
    return METAL_FDT_OK;
}

void metal_fdt_start(const struct metal_fdt *f, struct metal_fdt_cursor *c)
{
    c->at = f->struct_at;
    c->depth = 0;
    c->over = false;
}

/* Length of the word at [at, end) without its NUL, or end - at when no NUL is found. */
static uint32_t word_length(const struct metal_fdt *f, uint32_t at, uint32_t end)
{
    uint32_t n = 0;

    while (at + n < end && f->blob[at + n] != 0)
        n++;
    return n;
}

/* Bytes rounded up to a whole cell; the caller has bounded bytes by the blob's size. */
static uint32_t padded(uint32_t bytes)
{
    return (bytes + 3u) & ~3u;
}

static bool take_begin(const struct metal_fdt *f, struct metal_fdt_cursor *c,
                       struct metal_fdt_item *item)
{
    uint32_t n = word_length(f, c->at, f->struct_end);

    if (c->at + n >= f->struct_end || c->depth >= METAL_FDT_MAX_DEPTH)
        return false;
    item->token = METAL_FDT_BEGIN;
    item->name = (const char *)(f->blob + c->at);
    item->depth = c->depth++;
    c->at += padded(n + 1);
    return true;
}

static bool take_prop(const struct metal_fdt *f, struct metal_fdt_cursor *c,
                      struct metal_fdt_item *item)
{
    uint32_t bytes;
    uint32_t name;
    uint32_t strings = f->strings_end - f->strings_at;

    if (c->depth == 0 || !inside(c->at, 8, f->struct_end))
        return false;
    bytes = metal_fdt_cell(f->blob + c->at);
    name = metal_fdt_cell(f->blob + c->at + 4);
    c->at += 8;
    if (!inside(c->at, bytes, f->struct_end) || name >= strings ||
        f->strings_at + name + word_length(f, f->strings_at + name, f->strings_end) >=
            f->strings_end)
        return false;
    item->token = METAL_FDT_PROP;
    item->depth = c->depth - 1;
    item->name = (const char *)(f->blob + f->strings_at + name);
    item->data = f->blob + c->at;
    item->bytes = bytes;
    c->at += padded(bytes);
    return true;
}

/* One token, NOPs skipped; false when the tree is malformed. */
static bool take(const struct metal_fdt *f, struct metal_fdt_cursor *c, struct metal_fdt_item *item)
{
    uint32_t word = WORD_NOP;

    while (word == WORD_NOP) {
        if (!inside(c->at, 4, f->struct_end))
            return false;
        word = metal_fdt_cell(f->blob + c->at);
        c->at += 4;
    }
    switch (word) {
    case WORD_BEGIN:
        return take_begin(f, c, item);
    case WORD_PROP:
        return take_prop(f, c, item);
    case WORD_END:
        if (c->depth == 0)
            return false;
        item->token = METAL_FDT_END;
        item->depth = --c->depth;
        return true;
    case WORD_DONE:
        item->token = METAL_FDT_DONE;
        c->over = true;
        return c->depth == 0;
    default:
        return false;
    }
}

void metal_fdt_next(const struct metal_fdt *f, struct metal_fdt_cursor *c,
                    struct metal_fdt_item *item)
{
    item->name = "";
    item->data = f->blob;
    item->bytes = 0;
    item->depth = 0;
    if (c->over || !take(f, c, item)) {
        item->token = METAL_FDT_BAD;
        c->over = true;
    }
}

bool metal_fdt_reservation(const struct metal_fdt *f, uint32_t i, uint64_t *base, uint64_t *bytes)
{
    const uint8_t *entry;

    if (i >= (f->bytes - f->reserve_at) / 16)
        return false;
    entry = f->blob + f->reserve_at + i * 16u;
    *base = metal_fdt_number(entry, 2);
    *bytes = metal_fdt_number(entry + 8, 2);
    return *base != 0 || *bytes != 0;
}

bool metal_fdt_has_word(const struct metal_fdt_item *prop, const char *word)
{
    uint32_t at = 0;

    while (at < prop->bytes) {
        uint32_t n = 0;

        while (at + n < prop->bytes && prop->data[at + n] != 0 && word[n] != 0 &&
               prop->data[at + n] == (uint8_t)word[n])
            n++;
        if (at + n < prop->bytes && prop->data[at + n] == 0 && word[n] == 0)
            return true;
        at += n;
        while (at < prop->bytes && prop->data[at] != 0)
            at++;
        at++;
    }
    return false;
}

bool metal_fdt_is_node(const char *name, const char *base)
{
    uint32_t n = 0;

    while (base[n] != 0 && name[n] == base[n])
        n++;
    return base[n] == 0 && (name[n] == 0 || name[n] == '@');
}
