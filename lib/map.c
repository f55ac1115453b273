/* SPDX-License-Identifier: BSD-2-Clause */
/* map.c: sweeping a firmware memory map. No state but the cursor, no memory. */
#include <hvmem/map.h>

#include "deps.h"

#define NO_FRAME (~(hvmem_mfn)0)

static hvmem_mfn frames_up(hvmem_maddr address, hvmem_u32 shift)
{
    return (address + (((hvmem_maddr)1 << shift) - 1)) >> shift;
}

static hvmem_status check_pieces(const struct hvmem_map_piece *piece, hvmem_u32 count, int ram)
{
    hvmem_u64 top = (hvmem_u64)1 << HVMEM_MADDR_BITS;
    hvmem_u32 i;

    if (count && !piece)
        return HVMEM_E_ARG;
    for (i = 0; i < count; i++) {
        if (piece[i].start > top || piece[i].bytes > top - piece[i].start)
            return HVMEM_E_RANGE;
        if (ram && piece[i].node >= HVMEM_NODE_LIMIT)
            return HVMEM_E_NODE;
    }
    return HVMEM_OK;
}

/* First RAM piece that holds the whole frame, or NULL. */
static const struct hvmem_map_piece *ram_at(const struct hvmem_map *map, hvmem_mfn mfn)
{
    hvmem_u32 i;

    for (i = 0; i < map->ram_count; i++) {
        const struct hvmem_map_piece *p = &map->ram[i];

        if (p->bytes && mfn >= frames_up(p->start, map->page_shift) &&
            mfn < (p->start + p->bytes) >> map->page_shift)
            return p;
    }
    return HVMEM_NULL;
}

/* Whether a kept-out piece touches the frame; *end: first frame after the piece. */
static int kept_out(const struct hvmem_map *map, hvmem_mfn mfn, hvmem_mfn *end)
{
    hvmem_u32 i;

    for (i = 0; i < map->keep_out_count; i++) {
        const struct hvmem_map_piece *p = &map->keep_out[i];

        if (p->bytes && mfn >= p->start >> map->page_shift &&
            mfn < frames_up(p->start + p->bytes, map->page_shift)) {
            *end = frames_up(p->start + p->bytes, map->page_shift);
            return 1;
        }
    }
    return 0;
}

/* The nearest start or end of a piece above mfn: nothing changes before it. */
static hvmem_mfn next_edge(const struct hvmem_map *map, hvmem_mfn mfn)
{
    hvmem_mfn best = NO_FRAME, edge[2];
    hvmem_u32 i, e;

    for (i = 0; i < map->ram_count + map->keep_out_count; i++) {
        int ram = i < map->ram_count;
        const struct hvmem_map_piece *p = ram ? &map->ram[i] : &map->keep_out[i - map->ram_count];

        if (!p->bytes)
            continue;
        edge[0] = ram ? frames_up(p->start, map->page_shift) : p->start >> map->page_shift;
        edge[1] = ram ? (p->start + p->bytes) >> map->page_shift
                      : frames_up(p->start + p->bytes, map->page_shift);
        for (e = 0; e < 2; e++)
            if (edge[e] > mfn && edge[e] < best)
                best = edge[e];
    }
    return best;
}

hvmem_status hvmem_map_next(const struct hvmem_map *map, hvmem_u64 *cursor, struct hvmem_bank *bank)
{
    const struct hvmem_map_piece *piece = HVMEM_NULL;
    hvmem_mfn at, end;
    hvmem_status status;

    if (!map || !cursor || !bank)
        return HVMEM_E_ARG;
    if (map->size != sizeof *map)
        return HVMEM_E_VERSION;
    if (map->page_shift != 12 && map->page_shift != 14 && map->page_shift != 16)
        return HVMEM_E_ARG;
    status = check_pieces(map->ram, map->ram_count, 1);
    if (!status)
        status = check_pieces(map->keep_out, map->keep_out_count, 0);
    if (status)
        return status;
    /* Between two edges nothing changes, so that looking at the first frame is enough. */
    for (at = *cursor; at != NO_FRAME; at = next_edge(map, at)) {
        piece = kept_out(map, at, &end) ? HVMEM_NULL : ram_at(map, at);
        if (piece)
            break;
    }
    if (at == NO_FRAME)
        return HVMEM_OK;
    memset(bank, 0, sizeof *bank);
    bank->size = sizeof *bank;
    bank->base = at;
    bank->node = piece->node;
    do {
        end = next_edge(map, at);
        bank->frames = end - bank->base;
        at = end;
        piece = kept_out(map, at, &end) ? HVMEM_NULL : ram_at(map, at);
    } while (piece && piece->node == bank->node);
    *cursor = at;
    return HVMEM_AGAIN;
}
