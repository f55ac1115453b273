/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * locked.h: heaps whose locks are counted: the instructions of each hold, of nested locks of the
 * outermost, become a section named after what is being done. Host and back-end do nothing.
 */
#ifndef BENCH_COUNT_LOCKED_H
#define BENCH_COUNT_LOCKED_H

#include "bench/common/figure.h"

#include <hvmem/domain.h>
#include <hvmem/heap.h>

#include <stddef.h>

#define LARGEST 18u /* order of an arena */
#define ARENA   ((hvmem_u64)1 << LARGEST)
#define PIECES  16u                     /* equal banks in one arena */
#define BANKS   (HVMEM_ORDER_LIMIT + 1) /* banks in one arena, at most */
#define FIRST   0x100000u
#define DOUBLING                                                                                   \
    0u /* pieces: the second as large as the first, each further one as all before it */

extern const char *counting; /* name of the sections; NULL: locks are not counted */
extern const char *kind;     /* what the names of alloc and free begin with */

/* The name of `what` at an order, for a while. */
const char *name_of(const char *what, hvmem_u32 order);

/* Runs a call, counting the locks it takes. */
#define COUNTED(name, call)                                                                        \
    do {                                                                                           \
        hvmem_status counted_status;                                                               \
        counting = (name);                                                                         \
        counted_status = (call);                                                                   \
        counting = NULL;                                                                           \
        FIGURE_REQUIRE(counted_status == HVMEM_OK);                                                \
    } while (0)

struct heap {
    struct hvmem_heap *heap;
    void *memory[3 + BANKS];
    size_t bytes[3 + BANKS];
    unsigned used;
};

/* A heap without memory, blocks up to `order`. */
void start(struct heap *h, hvmem_u32 flags, hvmem_u32 order);

/* Memory until the heap is closed. */
void *take_memory(struct heap *h, size_t bytes);
void add_bank(struct heap *h, hvmem_mfn base, hvmem_u64 frames);

/* One arena in one bank, or the same frames but one in that many banks of unequal size, or DOUBLING. */
void open_heap(struct heap *h, hvmem_u32 flags, unsigned pieces);
void close_heap(struct heap *h);

#endif
