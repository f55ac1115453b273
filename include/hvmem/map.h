/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hvmem/map.h: from a firmware memory map in bytes to banks in whole frames.
 *
 * Pure: no heap, no memory. RAM pieces and reserved pieces may come unsorted, overlap each other,
 * and end off frame limits; RAM is rounded inwards, reserved pieces outwards.
 */
#ifndef HVMEM_MAP_H
#define HVMEM_MAP_H

#include <hvmem/heap.h>

/* [start, start + bytes) in bytes; bytes 0 is ignored. */
struct hvmem_map_piece {
    hvmem_maddr start;
    hvmem_u64 bytes;
    hvmem_node node;    /* RAM pieces only */
    hvmem_u32 reserved; /* 0 */
};

struct hvmem_map {
    hvmem_u32 size;       /* sizeof(struct hvmem_map) */
    hvmem_u32 page_shift; /* as in struct hvmem_config: 12, 14 or 16 */
    const struct hvmem_map_piece *ram;
    const struct hvmem_map_piece *keep_out;
    hvmem_u32 ram_count;
    hvmem_u32 keep_out_count;
};

HVMEM_BEGIN_DECLS

/*
 * The next range of frames that is RAM and not kept out, in address order. *cursor starts at 0.
 * HVMEM_AGAIN: *bank was filled; HVMEM_OK: no more. Touching pieces of one node are joined; where
 * RAM pieces of two nodes overlap the one listed first wins.
 * Steps a call: at most (ram + keep_out) squared.
 * Errors: HVMEM_E_VERSION, HVMEM_E_ARG, HVMEM_E_RANGE (a piece wraps or exceeds 2^52), HVMEM_E_NODE.
 */
HVMEM_API hvmem_status hvmem_map_next(const struct hvmem_map *map, hvmem_u64 *cursor,
                                      struct hvmem_bank *bank);

HVMEM_END_DECLS

#endif
